"""What a request may answer: what it deleted and what still exists, one sentence if it fails, and hardly ever a failed
rollback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .causes import Cause, Rules
from .function import FINALIZE, PREPARE, Request
from .hyperpod import BUSY, Group
from .properties import counts_of, specs_of
from .software import IMAGES, release_of

if TYPE_CHECKING:
    from .lifetime import Lifetime

Faults = Iterator[tuple[str, str]]
"""Kinds, each with a text."""


def faults_of_success(life: Lifetime, request: Request) -> Faults:
    """The answer contains what was deleted, and what still exists."""
    told = request.data or {}
    if len(json.dumps(told)) > 4096 or any("\n" in str(value) for value in told.values()):
        yield "an output that is too long", str(request)
    if request.kind == PREPARE and request.type != "Delete":
        yield from _faults_of_nodes(request, str(told.get("NodesTaken")))
    if request.kind == FINALIZE and request.type != "Delete":
        yield from _faults_of_groups(life, request, str(told.get("StillStanding")))


def _faults_of_nodes(request: Request, told: str) -> Faults:
    """Every node that it deleted, and no other. Groups that are deleted next are reported after them."""
    if "The log has all" in told or "more, in the log" in told:
        return
    taken = told.partition('Group "')[0]
    took = {node.name for write in request.writes for node in write.took}
    if any(name not in taken for name in took):
        yield "nodes go in silence", f"{request}: {', '.join(took)}, told {told}"
    if set(re.findall(r"(?:i|n)-[0-9a-z]+(?= \()", taken)) - took.union(*request.asked.values()):
        yield "tells of nodes that it did not take", f"{request}: {told}"


def _faults_of_groups(life: Lifetime, request: Request, told: str) -> Faults:
    """Every group that should be deleted and is not, including one that HyperPod is still deleting, and no other."""
    accepted = re.findall(r'accepted the deletion of group "([^"]+)"', told)
    doomed = {*request.new["InstanceGroupsToDelete"], *(name for write in request.writes for name in write.groups)}
    doomed -= counts_of(request.new).keys()
    for name, group in life.pod.groups.items():
        if life.actors.since(request.described, name):
            continue
        text = f"{request}: {name}, told {told}"
        going = group.status == "Deleting"
        if name in doomed and name not in (accepted if going else told):
            yield "a group is being deleted in silence" if going else "a group stands in silence", text
        if name in accepted and not going:
            yield "tells of a deletion that is none", text


def faults_of_sentence(request: Request) -> Faults:
    reason = request.reason
    if not reason.strip() or "\n" in reason or len(reason) > 1000:
        yield "not one readable sentence", f"{request}: {reason[:200]!r} ({len(reason)} characters)"


def failed_rollback(life: Lifetime, request: Request, *, killed: bool) -> Rules:
    """A rollback failed. If only a status is left to wait for, it continues (docs/adr/0010)."""
    counts, reason, pod = counts_of(request.new), request.reason, life.pod
    groups = [group for group in pod.groups.values() if group.status != "Deleting"]
    left = [group for group in groups if len(group.live) > counts.get(group.name, len(group.live))]
    # At the last poll it was terminated, and HyperPod may launch it again.
    just_taken = any(write.took for write in request.writes if request.answered - write.at < 60)
    stays = life.switches.lowering == "never" and request.writes
    yield killed, Cause.KILLED
    yield _would_re_image(life, request), Cause.IMAGE_IN_ROLLBACK
    yield life.faults.status_denied and "DescribeStacks" in reason, Cause.STATUS_DENIED
    denied = life.faults.events_denied and "DescribeStackEvents" in reason
    yield denied and not request.writes, Cause.EVENTS_DENIED
    yield request.answered - request.began <= 54 * 60, "a rollback gets stuck"
    yield left and pod.never_patched, Cause.NEVER_PATCHED
    yield left and _is_busy(life, groups, left), Cause.BUSY_TOO_LONG
    yield any(_has_leaving_nodes(life, group) for group in pod.groups.values()), Cause.STILL_LEAVING
    yield stays and (left or just_taken), Cause.STAYS_IN_ROLLBACK
    yield any(_is_autoscaled(life, request, group.name) for group in left), Cause.AUTOSCALER_IN_ROLLBACK
    # It is not known that no node is left (docs/adr/0010).
    yield not left and request.cluster_unread, Cause.UNREAD_IN_ROLLBACK
    yield True, "a rollback gets stuck"


def _is_busy(life: Lifetime, groups: Sequence[Group], left: Sequence[Group]) -> bool:
    nodes = [node for group in groups for node in group.nodes]
    checked = any(node.status == "DeepHealthCheckInProgress" for node in nodes)
    return checked or life.pod.status in BUSY or any(group.under_way for group in left)


def _has_leaving_nodes(life: Lifetime, group: Group) -> bool:
    """Shutting down, or terminated and still counted: the two cases of ADR 10."""
    return life.pod.current_count(group) > len(group.live) or any(node.leaving for node in group.nodes)


def _is_autoscaled(life: Lifetime, request: Request, name: str) -> bool:
    return name in request.new["AutoscaledGroups"] and bool(life.actors.counted_since(request.began, name))


def _would_re_image(life: Lifetime, request: Request) -> bool:
    """CloudFormation had begun to update the cluster, and the rollback names another image than the update, or than is
    live."""
    if not re.search(r"\[(nodes-re-imaged|live-image-unknown)", request.reason) or not request.deployment.reached:
        return False
    wanted, failed, groups = specs_of(request.new), specs_of(request.old or {"Groups": []}), life.pod.groups
    both = [(wanted[name], failed[name]) for name in wanted.keys() & failed.keys()]
    images = [(release_of(wanted[name]), groups[name].image) for name in wanted.keys() & groups.keys()]
    differs = any(one.get(key) != other.get(key) for one, other in both for key in IMAGES)
    return differs or any(named not in (None, live) for named, live in images)
