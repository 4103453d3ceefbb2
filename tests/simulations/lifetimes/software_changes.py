"""A deployment never re-images a node, and never turns patching off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .causes import FINE, Cause, Rules
from .cloudformation import ClusterUpdate
from .exemptions import is_anothers, not_called
from .properties import specs_of
from .software import Dropped, ReImaging, ami

if TYPE_CHECKING:
    from .lifetime import Lifetime


def re_imaged(life: Lifetime, update: ClusterUpdate, made: ReImaging) -> Rules:
    """The cluster's own update gives a node an image."""
    yield made.before == made.after and life.switches.same_image_again, Cause.SAME_IMAGE
    yield _is_hidden(life, update, made), Cause.HIDDEN_IMAGE
    yield from _unguarded(life, update, made.node.group)
    yield True, "a deployment re-images a node"


def _is_hidden(life: Lifetime, update: ClusterUpdate, made: ReImaging) -> bool:
    """Under Slurm, no list shows the image of a node."""
    look = update.before.look if update.before else None
    shown = look.shown.get(made.node.group, {}) if look else {}
    return not life.pod.has_versions and shown.get("CurrentImageId") == ami(made.after)


def patching_dropped(life: Lifetime, update: ClusterUpdate, dropped: Dropped) -> Rules:
    """The cluster's own update turns patching off."""
    name, setting, deployment = dropped.group, dropped.setting, update.deployment
    deeds = life.actors.since(deployment.began, name)
    set_since = any(deed.what == f"sets {setting}" for deed in deeds)
    yield _is_meant(update, name, setting), FINE
    yield update.rollback and (set_since or name not in deployment.new.counts), Cause.PATCHING_IN_ROLLBACK
    yield from _unguarded(life, update, name)
    yield True, "a deployment turns patching off"


def _is_meant(update: ClusterUpdate, name: str, setting: str) -> bool:
    """The file says `none`, or a rollback takes back what the failed update had brought."""
    new = update.deployment.new
    if not update.rollback:
        return (setting, name) in new.patching_off
    return any(setting in spec for spec in new.groups if spec["InstanceGroupName"] == name)


def _unguarded(life: Lifetime, update: ClusterUpdate, name: str) -> Rules:
    """Why prepare could not refuse CloudFormation's call for this group."""
    prepare = update.before
    yield prepare is None, not_called(life, update)
    yield is_anothers(life, update), Cause.ANOTHERS
    sent = {spec["InstanceGroupName"]: spec for spec in update.specs}
    yield update.rollback and specs_of(prepare.new).get(name) != sent.get(name), Cause.BACK_TO_TWO
    # What prepare decides by may be as old as its first look.
    look = prepare.first_look
    yield look is None or life.actors.since(look.since, name), Cause.CHANGED_BEFORE_CLOUDFORMATION
    yield update.rollback and _patched_since(life, look.since, name), Cause.CHANGED_BEFORE_CLOUDFORMATION


def _patched_since(life: Lifetime, at: float, name: str) -> bool:
    """An update of another party took effect, which had begun before: a rollback waits for it, and prepare does not."""
    made = [each for each in life.pod.software.re_images if each.at >= at and each.node.group == name]
    return any(each.by in ("person", "hyperpod") for each in made)
