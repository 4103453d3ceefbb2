"""Which groups `patch` updates, in which order, and how each is emptied. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.rendering import deployment_config
from .images import is_older, newest_release, wanted_image, why_not_due
from .model import DrainedBy, Group, Options, Plan, Progress

_ORDER = {"Compute": 0, None: 0, "Login": 1, "Controller": 2}
"""The controller comes last: the drain agent runs on it."""


def make_plans(
    options: Options,
    config: ClusterConfig,
    groups: Sequence[Group],
    live: Mapping[str, Mapping[str, Any]],
    progress: Mapping[str, Progress],
) -> tuple[Plan, ...]:
    """A plan for each chosen group, in the order in which they are patched.

    `live`: the groups by name, as DescribeCluster shows them. `progress`: of an unfinished run.
    """
    of_file = {group.name: group for group in config.instance_groups}
    chosen = [group for group in groups if _is_chosen(options, group)]
    ordered = sorted(
        chosen, key=lambda group: (not _is_begun(progress.get(group.name)), _ORDER.get(group.node_type, 0))
    )
    return tuple(
        _plan(options, config, group, of_file.get(group.name), live[group.name], progress.get(group.name))
        for group in ordered
    )


def _is_begun(progress: Progress | None) -> bool:
    """Whether HyperPod may be at work there: its nodes stay held only as long as no other group has its turn."""
    return progress is not None and not progress.done and (progress.sent or progress.until) is not None


def named_images(options: Options, config: ClusterConfig) -> str:
    """What says that an unfinished run is about the same images: those of the options, or else of the file."""
    of_file = ((group.name, group.image_id or group.image_release_version) for group in config.instance_groups)
    return options.image or " ".join(f"{name}={image}" for name, image in of_file if image)


def unknown_groups(options: Options, groups: Sequence[Group]) -> list[str]:
    """Names that are not groups of the cluster."""
    known = {group.name for group in groups}
    return [name for name in dict.fromkeys(options.groups) if name not in known]


def left_out(options: Options, groups: Sequence[Group]) -> Iterator[str]:
    """Names of controller groups that are not patched, because no option says so."""
    if options.groups or options.controller:
        return
    yield from (group.name for group in groups if group.node_type == "Controller")


def _is_chosen(options: Options, group: Group) -> bool:
    is_controller = group.node_type == "Controller"
    if is_controller and options.controller:
        return True
    if options.groups:
        return group.name in options.groups
    return not is_controller


def _plan(
    options: Options,
    config: ClusterConfig,
    group: Group,
    of_file: InstanceGroup | None,
    live: Mapping[str, Any],
    progress: Progress | None,
) -> Plan:
    wanted = wanted_image(options, of_file)
    typed = bool(options.release or options.image_id)
    why_not = why_not_due(wanted, group, live, progress, typed=typed)
    rolling = of_file.rolling if of_file is not None else None
    newest = newest_release(group)
    return Plan(
        group=group.name,
        wanted=wanted,
        drained_by=_drained_by(options, group, is_eks=config.orchestrator == "eks", is_rolling=rolling is not None),
        node_type=group.node_type,
        instance_types=of_file.all_instance_types if of_file is not None else (),
        rolling=None if rolling is None else deployment_config(rolling),
        why_not=why_not,
        older=newest if newest is not None and not why_not and is_older(wanted, newest) else "",
    )


def _drained_by(options: Options, group: Group, *, is_eks: bool, is_rolling: bool) -> DrainedBy:
    if is_eks and is_rolling:
        return DrainedBy.HYPERPOD
    if not options.drains or group.node_type in ("Controller", "Login"):
        return DrainedBy.NONE
    return DrainedBy.DRAINER if is_eks else DrainedBy.AGENT
