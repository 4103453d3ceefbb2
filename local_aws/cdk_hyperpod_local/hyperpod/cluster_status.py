"""The status of clusters and groups: minimums are met or rolled back, operations finish or fail."""

from __future__ import annotations

from dataclasses import replace

from . import events
from .notices import announce_status
from .state import Cluster, Good, Group, HyperPodState, Node, by_group, running_count
from .terminations import choose_victims, end


def step_minimums(state: HyperPodState, cluster: Cluster) -> None:
    """Roll back the groups whose time is up."""
    for group in list(cluster.groups.values()):
        if group.deadline is not None and group.deadline <= state.now:
            if group.status == "Deleting" or cluster.status in ("Deleting", "Failed"):
                cluster.groups[group.name] = replace(group, deadline=None)
                continue
            running = running_count(node for node in cluster.nodes.values() if node.group == group.name)
            if not group.awaiting or running >= group.minimum:
                cluster.groups[group.name] = replace(group, deadline=None)
            else:
                _roll_back(state, cluster, group, running)


def _roll_back(state: HyperPodState, cluster: Cluster, group: Group, running: int) -> None:
    """The minimum was not met in time.

    A new group goes to 0/0, another to its last settings (botocore: MinInstanceCount).
    """
    good = group.good or Good(spec=group.spec, target=0, minimum=0)
    cluster.failure = (
        f"Instance group {group.name} did not reach its minimum capacity of {group.minimum} instances within "
        f"{state.timings.minimum_limit / 3600:g} hours ({running} running). Rolled back to InstanceCount {good.target}, "
        f"MinInstanceCount {good.minimum}."
    )
    events.add(
        state, cluster, events.ROLLBACK, group=group.name,
        metadata={"InstanceGroupScaling": {"InstanceCount": running, "TargetCount": good.target, "MinCount": good.minimum,
                                           "FailureMessage": cluster.failure}},
    )  # fmt: skip
    live = [node for node in cluster.nodes.values() if node.group == group.name and node.live]
    if state.behaviour.rollback_ends_newest:
        victims = sorted(live, key=lambda node: (not node.launched, node.number), reverse=True)[
            : max(len(live) - good.target, 0)
        ]
    else:
        victims = choose_victims(live, len(live) - good.target, group.instance_types, state.random(), spares=False)
    end(state, cluster, victims, "rollback")
    cluster.groups[group.name] = replace(
        group, spec=good.spec, target=good.target, minimum=good.minimum, awaiting=False, deadline=None, good=None,
        rolling=True, holes=0, status="Updating",
    )  # fmt: skip
    if cluster.status in ("InService", "Updating"):
        cluster.status = "RollingBack"
        announce_status(state, cluster)  # it may be over at once


def step_cluster(state: HyperPodState, cluster: Cluster) -> None:
    """End the cluster's own operation if its time has come."""
    if cluster.due is None or cluster.due > state.now:
        return
    cluster.due = None
    if not cluster.continuous and cluster.status in ("Creating", "Updating"):
        if _short(cluster):
            _fail_operation(state, cluster)
        else:
            cluster.due = state.now + max(state.timings.standard_capacity_wait, 1.0)


def _short(cluster: Cluster) -> bool:
    return any(not node.launched or node.status == "Failure" for node in cluster.nodes.values() if node.live)


def _fail_operation(state: HyperPodState, cluster: Cluster) -> None:
    """Standard provisioning is all or nothing: missing capacity reverts the whole operation."""
    cluster.failure = (
        "We currently do not have sufficient capacity to launch the requested instances. Please try again, or use another "
        "instance type or Availability Zone."
    )
    operation = "update" if cluster.status == "Updating" else "creation"
    _report_failure(state, cluster, operation)
    before = cluster.before or {}
    undo = cluster.status == "Updating" and state.behaviour.standard_update_failure == "rolls_back"
    new: list[Node] = []
    for name, nodes in by_group(cluster).items():
        live = [node for node in nodes if node.live]
        keep = before[name].target if name in before else 0
        new += sorted(live, key=lambda node: node.number, reverse=True)[: max(len(live) - keep, 0)]
    end(state, cluster, new, "standard-rollback")
    if undo:
        cluster.groups = {
            name: replace(
                group,
                spec=before[name].spec,
                target=before[name].target,
                minimum=before[name].minimum,
                status="Updating",
            )
            for name, group in cluster.groups.items()
            if name in before
        }
    else:
        cluster.groups = {name: replace(group, status="Failed") for name, group in cluster.groups.items()}
    cluster.status = "RollingBack" if undo else "Failed"
    announce_status(state, cluster)


def _report_failure(state: HyperPodState, cluster: Cluster, operation: str) -> None:
    events.add(
        state,
        cluster,
        events.CLUSTER_FAILED,
        operation=operation,
        metadata={"Cluster": {"FailureMessage": cluster.failure}},
    )


def conclude(state: HyperPodState, cluster: Cluster) -> None:
    """End what is complete: deleted groups and clusters, creations, updates and rollbacks."""
    nodes = by_group(cluster)
    for group in list(cluster.groups.values()):
        if group.status == "Deleting" and not nodes[group.name]:
            del cluster.groups[group.name]
            events.add(state, cluster, events.GROUP_COMPLETED, group=group.name, operation="deletion")
    if cluster.status == "Deleting":
        if cluster.due is None and not cluster.nodes:
            del state.clusters[cluster.arn]
        return
    finish = _conclude_continuous if cluster.continuous else _conclude_standard
    finish(state, cluster, nodes)


def _conclude_continuous(state: HyperPodState, cluster: Cluster, nodes: dict[str, list[Node]]) -> None:
    if cluster.status == "Creating":
        _conclude_creation(state, cluster, nodes)
    if cluster.status in ("Creating", "Failed"):
        return
    for group in list(cluster.groups.values()):
        if group.status not in ("Creating", "Updating"):
            continue
        if group.rolling:
            _conclude_rollback(state, cluster, group, nodes[group.name])
        else:
            _conclude_scaling(state, cluster, group, nodes[group.name])
    is_rolling = any(group.rolling for group in cluster.groups.values())
    if cluster.status == "RollingBack" and not is_rolling:
        cluster.status = "InService"
    if cluster.status == "Updating" and cluster.due is None:
        cluster.status = "InService"


def _conclude_rollback(state: HyperPodState, cluster: Cluster, group: Group, nodes: list[Node]) -> None:
    remaining = sum(node.live or node.listed for node in nodes)
    if remaining <= group.target:
        cluster.groups[group.name] = replace(group, rolling=False, status=state.behaviour.rollback_group_status)


def _conclude_scaling(state: HyperPodState, cluster: Cluster, group: Group, nodes: list[Node]) -> None:
    running = running_count(nodes)
    if not group.awaiting or running >= group.minimum:
        _serve(state, cluster, group, running)


def _serve(state: HyperPodState, cluster: Cluster, group: Group, running: int) -> None:
    if group.awaiting:
        # From now on the minimum is not guaranteed (botocore: "does not guarantee maintaining this minimum afterward").
        events.add(
            state, cluster, events.MINIMUM_REACHED, group=group.name,
            metadata={"InstanceGroupScaling": {"InstanceCount": running, "TargetCount": group.target, "MinCount": group.minimum}},
        )  # fmt: skip
    cluster.groups[group.name] = replace(group, status="InService", awaiting=False, deadline=None, good=None)


def _conclude_creation(state: HyperPodState, cluster: Cluster, nodes: dict[str, list[Node]]) -> None:
    """InService once the cluster's own resources exist.

    On Slurm it also needs one running controller, and one login node if there is a login group.
    """
    for group in cluster.groups.values():
        why = _controller_failure(group, nodes[group.name])
        if why is not None:
            cluster.status, cluster.due = "Failed", None
            cluster.failure = f"The controller instance group {group.name} could not be provisioned: {why}."
            _report_failure(state, cluster, "creation")
            return
    required = [
        group for group in cluster.groups.values() if group.node_type in ("Controller", "Login") and group.target > 0
    ]
    if cluster.due is None and all(running_count(nodes[group.name]) for group in required):
        cluster.status, cluster.served = "InService", True
        events.add(state, cluster, events.CLUSTER_COMPLETED, operation="creation")


def _controller_failure(group: Group, nodes: list[Node]) -> str | None:
    """Why the controller could not start. It is not retried ("Continuous provisioning on Slurm")."""
    if group.node_type != "Controller":
        return None
    if group.short:
        return "insufficient capacity"
    if any(node.status == "Failure" for node in nodes):
        return "its lifecycle scripts failed"
    return None


def _conclude_standard(state: HyperPodState, cluster: Cluster, nodes: dict[str, list[Node]]) -> None:
    if cluster.status not in ("Creating", "Updating", "RollingBack"):
        return
    if any(not node.live and node.listed for node in cluster.nodes.values()):
        return
    for group in cluster.groups.values():
        # Reverted nodes must be terminated. Nodes that cannot be launched again do not keep the cluster in RollingBack
        # forever.
        short = cluster.status != "RollingBack" and running_count(nodes[group.name]) < group.target - group.holes
        if group.status == "Deleting" or short:
            return
    cluster.status, cluster.due, cluster.before, cluster.served = "InService", None, None, True
    for group in list(cluster.groups.values()):
        cluster.groups[group.name] = replace(group, status="InService")
