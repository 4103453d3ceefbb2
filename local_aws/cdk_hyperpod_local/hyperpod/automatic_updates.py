"""Software updates that HyperPod begins itself: by ScheduledUpdateConfig, and by AutoPatchConfig.

Sources: AWS documentation "SageMaker HyperPod AMI automatic patching", and botocore's shape ClusterAutoPatchConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from . import cron, events, images, software_update
from .state import Cluster, Group, HyperPodState, Json, Node, SoftwareUpdate

IDLE_WINDOW = 86_400
"""IdleWaitWindowInSeconds, by default."""


def planned(state: HyperPodState, group: Group) -> Group:
    """The group with the times that its specification and the newest image give."""
    schedule = group.spec.get("ScheduledUpdateConfig")
    next_update = cron.next_time(schedule["ScheduleExpression"], state.now) if schedule else None
    return replace(group, next_update=next_update, next_patch=_patch_time(state, group))


def _patch_time(state: HyperPodState, group: Group) -> float | None:
    """The requested time, or 21 days after a patch was first seen."""
    config = group.spec.get("AutoPatchConfig")
    if config is None or group.update is not None or not images.only_patch_differs(group.current_image, state.image):
        return None
    requested: float | None = config.get("PatchSchedule", {}).get("NextPatchDate")
    if requested is not None and requested > state.now:
        return requested
    return group.next_patch if group.next_patch is not None else state.now + state.timings.patch_notice


def next_due(group: Group) -> list[float]:
    """When an update of this module begins."""
    return [at for at in (group.next_update, group.next_patch) if at is not None]


def step(state: HyperPodState, cluster: Cluster) -> None:
    """Begin the updates that are due, and continue automatic patching."""
    for group in list(cluster.groups.values()):
        if group.status == "Deleting":
            continue
        if group.next_update is not None and group.next_update <= state.now:
            _begin_scheduled(state, cluster, group)
        elif group.next_patch is not None and group.next_patch <= state.now:
            _begin_patching(state, cluster, group)
        elif group.update is not None and group.update.step == "patching":
            _patch(state, cluster, group, group.update)


def _begin_scheduled(state: HyperPodState, cluster: Cluster, group: Group) -> None:
    """If schedules overlap, or another operation is in progress, the update fails ("Update your AMI version")."""
    config = group.spec["ScheduledUpdateConfig"]
    cluster.groups[group.name] = replace(group, next_update=cron.next_time(config["ScheduleExpression"], state.now))
    if cluster.status != "InService" or group.update is not None or group.awaiting:
        events.add(state, cluster, events.PATCHING_NOT_SCHEDULED, group=group.name)
        return
    image = state.image if images.release(group.image) else group.image
    software_update.begin(state, cluster, group.name, image, config.get("DeploymentConfig", {}))
    cluster.patched = True


# --- automatic patching ---


def _begin_patching(state: HyperPodState, cluster: Cluster, group: Group) -> None:
    config = group.spec["AutoPatchConfig"]
    group = replace(group, next_patch=None)
    cluster.groups[group.name] = group
    if cluster.status != "InService" or group.update is not None or group.awaiting:
        cluster.groups[group.name] = replace(group, next_patch=state.now + state.timings.idle_check)
        return
    if config["PatchingStrategy"] == "DrainFirst":
        software_update.begin(state, cluster, group.name, state.image, config.get("DeploymentConfig", {}))
        return
    events.add(state, cluster, events.PATCHING_SCHEDULED, group=group.name)
    for node in _nodes(cluster, group):
        state.outside.cordon(cluster, node)
    seconds = config.get("IdleWaitWindowInSeconds", IDLE_WINDOW) * state.timings.requested_second
    update = SoftwareUpdate(
        image=state.image, former=group.image, step="patching", due=state.now, ends=state.now + seconds
    )
    cluster.groups[group.name] = replace(group, image=state.image, software="InProgress", update=update)


def _patch(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    """Begin with the nodes that are idle, or end: when all nodes have the image, or when the window is over."""
    old = [node for node in _nodes(cluster, group) if _waits(node, update)]
    if not _goes_on(state, cluster, group, update, old):
        _end(state, cluster, group, update, old)
    elif update.due is not None and update.due <= state.now:
        _look_for_idle(state, cluster, group, update, old)


def _waits(node: Node, update: SoftwareUpdate) -> bool:
    return node.status == "Running" and not images.same(node.image, update.image)


def _goes_on(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate, old: list[Node]) -> bool:
    """Whether nodes are getting the image, or may still become idle."""
    starting = any(node.status == "SystemUpdating" for node in _nodes(cluster, group))
    return starting or (bool(old) and state.now < update.ends)


def _look_for_idle(
    state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate, old: list[Node]
) -> None:
    """Begin with idle nodes. After the window, only those that have begun are waited for."""
    due = None
    if state.now < update.ends:
        for node in _STRATEGIES[group.spec["AutoPatchConfig"]["PatchingStrategy"]](state, cluster, old):
            software_update.replace_root(state, cluster, node, update.image)
        due = min(state.now + state.timings.idle_check, update.ends)
    cluster.groups[group.name] = replace(group, update=replace(update, due=due))


def _each_idle(state: HyperPodState, cluster: Cluster, nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if state.outside.is_idle(cluster, node)]


def _all_idle(state: HyperPodState, cluster: Cluster, nodes: list[Node]) -> list[Node]:
    return nodes if len(_each_idle(state, cluster, nodes)) == len(nodes) else []


_STRATEGIES: Mapping[str, Callable[[HyperPodState, Cluster, list[Node]], list[Node]]] = {
    "WhenIdle": _each_idle,
    "WhenAllIdle": _all_idle,
}


def _end(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate, old: list[Node]) -> None:
    """Nodes that were never idle keep the old image, and are uncordoned."""
    for node in old:
        software_update.restore(state, cluster, node)
    everything = not old
    current = update.image if everything or len(old) < len(_nodes(cluster, group)) else update.former
    kind = events.PATCHING_COMPLETED if everything else events.PATCHING_NOT_COMPLETED
    events.add(state, cluster, kind, group=group.name)
    cluster.groups[group.name] = replace(
        group, update=None, software="Succeeded" if everything else "Failed", image=current, current_image=current
    )


def _nodes(cluster: Cluster, group: Group) -> list[Node]:
    return [node for node in cluster.nodes.values() if node.group == group.name and node.launched and node.live]


def note_release(state: HyperPodState) -> None:
    """A new image is there: plan the patches of all groups."""
    for cluster in state.clusters.values():
        for name, group in list(cluster.groups.items()):
            cluster.groups[name] = replace(group, next_patch=_patch_time(state, group))


def schedule_problem(spec: Json) -> str | None:
    """Why the specification's ScheduleExpression is invalid."""
    try:
        cron.parse(spec["ScheduledUpdateConfig"]["ScheduleExpression"])
    except KeyError:
        return None
    except ValueError as error:
        return f"ScheduleExpression of instance group {spec['InstanceGroupName']} is invalid: {error}"
    return None
