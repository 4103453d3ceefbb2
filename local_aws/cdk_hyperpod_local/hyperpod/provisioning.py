"""What happens over time: nodes start and end, minimums are met or rolled back, operations finish."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from . import automatic_updates, events, software_update
from .cluster_status import conclude, step_cluster, step_minimums
from .notices import announce_status
from .state import Cluster, Group, HyperPodState, Node, by_group, running_count
from .terminations import counted_extra, ending, replaced


def advance(state: HyperPodState, until: float) -> None:
    """Perform everything that is due by `until` (seconds since 1970), in order."""
    while state.wake is not None and state.wake <= until:
        state.now = max(state.now, state.wake)
        for cluster in list(state.clusters.values()):
            _step_nodes(state, cluster)
            step_minimums(state, cluster)
            step_cluster(state, cluster)
            automatic_updates.step(state, cluster)
        settle(state)
    state.now = max(state.now, until)


def settle(state: HyperPodState) -> None:
    """Apply all immediate consequences of the current state, and note when the next change is due."""
    for cluster in list(state.clusters.values()):
        _reconcile(state, cluster)
    _allocate(state)
    for cluster in list(state.clusters.values()):
        software_update.step(state, cluster)
        conclude(state, cluster)
        _note_readiness(state, cluster)
        announce_status(state, cluster)
    state.wake = _next_due(state)


def _note_readiness(state: HyperPodState, cluster: Cluster) -> None:
    """Warn of nodes that stopped running, and of new ones that do not run yet (Behaviour.scaling_warnings)."""
    ready = running_count(cluster.nodes.values())
    target = sum(group.target for group in cluster.groups.values())
    missing = max(target - ready, 0)
    lost = max(cluster.ready - ready, missing - cluster.missing)
    cluster.ready, cluster.missing = ready, missing
    if lost <= 0 or not state.behaviour.scaling_warnings or not (cluster.continuous and cluster.served):
        return
    if cluster.status == "InService":
        events.add(
            state, cluster, events.NOT_READY, lost=lost, ready=ready, target=target, groups=len(cluster.groups),
            metadata={"Cluster": {"FailureMessage": events.NO_SERVICE}},
        )  # fmt: skip


def _next_due(state: HyperPodState) -> float | None:
    due = [change.at for change in state.capacity if change.at > state.now]
    for cluster in state.clusters.values():
        due += [] if cluster.due is None else [cluster.due]
        due += [group.deadline for group in cluster.groups.values() if group.deadline is not None]
        due += [node.due for node in cluster.nodes.values() if node.due is not None]
        due += [each.update.due for each in cluster.groups.values() if each.update and each.update.due is not None]
        due += [at for each in cluster.groups.values() for at in automatic_updates.next_due(each)]
    return min(due, default=None)


# --- nodes ---


def _step_nodes(state: HyperPodState, cluster: Cluster) -> None:
    for node in list(cluster.nodes.values()):
        if node.due is not None and node.due <= state.now:
            after = _next_state(state, cluster, node)
            if after is None:
                del cluster.nodes[node.logical_id]
            else:
                cluster.nodes[node.logical_id] = after


def _next_state(state: HyperPodState, cluster: Cluster, node: Node) -> Node | None:
    """The node after its due step; None if it is deleted."""
    if node.status == "ShuttingDown":
        return _shut_down(state, cluster, node)
    if node.faulty:
        return replaced(state, cluster, node)
    if not node.launched:
        return replace(node, due=None)  # from now on it gets an instance as soon as one is available
    if node.status == "Pending" and _start_fails(state, node):
        return _failed_start(state, cluster, node)
    group = cluster.groups.get(node.group)
    if node.status == "Pending" and group is not None and group.spec.get("OnStartDeepHealthChecks"):
        return replace(node, status="DeepHealthCheckInProgress", due=state.now + state.timings.deep_health_check)
    if node.status == "Failure":
        return _retry(state, cluster, node)
    if node.status == "SystemUpdating":
        return software_update.scripts_ended(state, cluster, node, failed=_start_fails(state, node))
    return _started(state, cluster, node)


def _shut_down(state: HyperPodState, cluster: Cluster, node: Node) -> Node | None:
    """First the node leaves ListClusterNodes, later it no longer counts."""
    if node.instance_id in state.faults.undying_nodes:
        return replace(node, due=state.now + max(state.timings.shut_down, 1.0))
    if node.listed:
        _leave_list(state, cluster, node)
        return replace(node, listed=False, holds_place=False, due=state.now + state.timings.count_lag)
    events.add(
        state, cluster, events.INSTANCE_COMPLETED, operation="deletion", group=node.group, instance_id=node.instance_id,
        metadata={"Instance": {"NodeLogicalId": node.logical_id}},
    )  # fmt: skip
    return None


def _failed_start(state: HyperPodState, cluster: Cluster, node: Node) -> Node:
    message = "Lifecycle scripts failed with exit code 1"
    events.add_failed_launch(
        state, cluster, events.SCRIPTS_FAILED, status="Failed", group=node.group, instance_id=node.instance_id,
        metadata={"Instance": {"LcsExecutionState": "Failed", "FailureMessage": message}},
    )  # fmt: skip
    if node.replaces:
        _add_replacement(state, cluster, node, events.REPLACEMENT_FAILED)
    return replace(node, status="Failure", message=message, due=state.now + state.timings.retry_failed)


def _started(state: HyperPodState, cluster: Cluster, node: Node) -> Node:
    events.add(
        state, cluster, events.INSTANCE_COMPLETED, operation="creation", group=node.group, instance_id=node.instance_id
    )
    if node.replaces:
        _add_replacement(state, cluster, node, events.REPLACEMENT_COMPLETED)
    return replace(node, status="Running", due=None, message="", replaces=None)


def _add_replacement(state: HyperPodState, cluster: Cluster, node: Node, kind: events.Kind) -> None:
    events.add(
        state, cluster, kind, group=node.group, instance_id=node.instance_id, operation="creation",
        metadata={"Instance": {"NodeLogicalId": node.logical_id}},
    )  # fmt: skip


def _start_fails(state: HyperPodState, node: Node) -> bool:
    if node.group in state.faults.failing_groups or node.image in state.faults.failing_images:
        return True
    if state.faults.fail_start_next > 0:
        state.faults.fail_start_next -= 1
        return True
    return False


def _retry(state: HyperPodState, cluster: Cluster, node: Node) -> Node:
    """Continuous provisioning retries forever (botocore: NodeProvisioningMode).

    Standard provisioning keeps the failed node.
    """
    if not cluster.continuous or cluster.status == "Failed":
        return replace(node, due=None)
    return ending(state, cluster, node, "failed")


def _leave_list(state: HyperPodState, cluster: Cluster, node: Node) -> None:
    group = cluster.groups.get(node.group)
    if group is None or not node.holds_place:
        return
    if state.behaviour.batch_delete_lowers_target == "when_gone":
        cluster.groups[group.name] = replace(group, target=max(group.target - 1, 0))
    elif not state.behaviour.replaces_missing_nodes_after_batch_delete:
        cluster.groups[group.name] = replace(group, holes=group.holes + 1)


# --- what follows at once ---


def _reconcile(state: HyperPodState, cluster: Cluster) -> None:
    """Request the missing nodes."""
    if cluster.status in ("Deleting", "Failed"):
        return
    nodes = by_group(cluster)
    for group in list(cluster.groups.values()):
        if group.status == "Deleting" or not _may_start(state, cluster, group, nodes):
            continue
        occupied = sum(node.live or node.holds_place for node in nodes[group.name])
        occupied += counted_extra(state, nodes[group.name])
        for _ in range(group.target - group.holes - occupied):
            request_node(state, cluster, group)


def _may_start(state: HyperPodState, cluster: Cluster, group: Group, nodes: dict[str, list[Node]]) -> bool:
    """Continuous Slurm: the controller first, the others once it is running ("Continuous provisioning on Slurm")."""
    if not (cluster.continuous and cluster.slurm_configured) or cluster.served or group.node_type == "Controller":
        return True
    controllers = [name for name, other in cluster.groups.items() if other.node_type == "Controller"]
    return any(running_count(nodes[name]) for name in controllers)


def request_node(state: HyperPodState, cluster: Cluster, group: Group) -> Node:
    """A new node of the group, without an instance."""
    number = state.number()
    node = Node(
        logical_id=f"{group.name}-{state.digits(12)}", group=group.name, instance_type=group.instance_types[0], number=number,
        requested_at=state.now, image=group.image, due=state.now + state.timings.launch,
        lifecycle=group.spec.get("LifeCycleConfig"),
    )  # fmt: skip
    cluster.nodes[node.logical_id] = node
    return node


def capacity_limits(state: HyperPodState) -> dict[str, int]:
    """The available instances by type; a type that is not in it has no limit."""
    limits: dict[str, int] = {}
    for change in sorted(state.capacity, key=lambda change: change.at):
        if change.at > state.now:
            break
        if change.limit is None:
            limits.pop(change.instance_type, None)
        else:
            limits[change.instance_type] = change.limit
    return limits


def _allocate(state: HyperPodState) -> None:
    """Assign instances to the nodes that wait for one, oldest request first."""
    waiting = _waiting_nodes(state)
    if not waiting:
        return
    limits = capacity_limits(state)
    used = Counter(
        node.instance_type for cluster in state.clusters.values() for node in cluster.nodes.values() if node.launched
    )
    short: set[tuple[str, str]] = set()
    for node, cluster in waiting:
        group = cluster.groups[node.group]
        instance_type = _available_type(group, used, limits)
        if instance_type is None:
            short.add((cluster.arn, group.name))
            continue
        used[instance_type] += 1
        _launch(state, cluster, node, instance_type)
    for cluster in state.clusters.values():
        for group in list(cluster.groups.values()):
            _note_shortage(state, cluster, group, (cluster.arn, group.name) in short)


def _waiting_nodes(state: HyperPodState) -> list[tuple[Node, Cluster]]:
    waiting = [
        (node, cluster)
        for cluster in state.clusters.values()
        if cluster.status != "Failed"
        for node in cluster.nodes.values()
        if node.live and not node.launched and node.due is None
    ]
    return sorted(waiting, key=lambda pair: pair[0].number)


def _available_type(group: Group, used: Counter[str], limits: dict[str, int]) -> str | None:
    """The group's most preferred instance type that has capacity."""
    for kind in group.instance_types:
        if kind not in limits or used[kind] < limits[kind]:
            return kind
    return None


def _launch(state: HyperPodState, cluster: Cluster, node: Node, instance_type: str) -> None:
    launched = replace(
        node, instance_id=f"i-{state.digits(17)}", instance_type=instance_type, launched_at=state.now,
        due=state.now + state.timings.boot,
    )  # fmt: skip
    cluster.nodes[node.logical_id] = launched
    events.add(
        state, cluster, events.PROVISIONED, group=node.group, instance_id=launched.instance_id,
        metadata={"Instance": {"NodeLogicalId": node.logical_id}},
    )  # fmt: skip


def _note_shortage(state: HyperPodState, cluster: Cluster, group: Group, short: bool) -> None:
    if short == group.short:
        return
    cluster.groups[group.name] = replace(group, short=short)
    if short:
        message = events.capacity_message(", ".join(group.instance_types))
        events.add_failed_launch(
            state, cluster, events.NOT_PROVISIONED, group=group.name, metadata={"Instance": {"FailureMessage": message}}
        )
