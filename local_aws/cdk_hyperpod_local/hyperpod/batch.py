"""BatchDeleteClusterNodes, and the similar operations that add, reboot and replace nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from . import events
from .clusters import refuse_beyond_limits
from .context import Context, below_minimum, find_node, refuse_below_minimum, refuse_unpatched, refuse_while_busy
from .errors import ApiError, invalid
from .provisioning import request_node
from .state import Cluster, Group, HyperPodState, Json, Node, settings_now
from .terminations import end, replaced

MOST_IDS = 99
"""Maximum node ids in one call ("Scale down a cluster"). The shape itself allows 3000."""
MOST_WITH_LOGICAL_IDS = 50
"""Maximum ids of both kinds if one is logical (botocore: BatchDeleteClusterNodesRequest$NodeLogicalIds)."""

TOKEN_HOURS = 8
MOST_ADDED = 50
"""Maximum nodes that one call adds."""

Problem = tuple[str, str]
"""Code and message."""


def batch_delete_cluster_nodes(context: Context, request: Json) -> Json:
    """BatchDeleteClusterNodes deletes exactly these nodes.

    200 if at least one can be deleted, 400 if none ("Scale down a cluster").
    """
    cluster = context.cluster(request["ClusterName"])
    ids, logical_ids = _ids(request, cluster)
    refuse_while_busy(context, cluster, "delete nodes")
    refuse_unpatched(context, cluster, "delete nodes")

    found = _by_id(cluster, ids)
    found_logical = {logical_id: _logical(cluster, logical_id) for logical_id in logical_ids}
    named = [node for node in (*found.values(), *found_logical.values()) if node is not None]
    refuse_below_minimum(context, cluster, {node.group for node in named}, "delete nodes")
    _refuse_under_minimum(context, cluster, named)

    failed = _failed(context, cluster, found, "NodeId")
    failed_logical = _failed(context, cluster, found_logical, "NodeLogicalId")
    deletable = _without_failed(found, failed, "NodeId")
    deletable_logical = _without_failed(found_logical, failed_logical, "NodeLogicalId")
    victims = {node.logical_id: node for node in (*deletable.values(), *deletable_logical.values())}
    if not victims:
        reasons = "; ".join(f"{each['Code']}: {each['Message']}" for each in (*failed, *failed_logical))
        code = context.state.behaviour.all_fail_code
        raise ApiError(code, f"All of the specified nodes failed validation. {reasons}")
    _terminate(context, cluster, list(victims.values()))
    # Empty members are left out, because the shapes require at least one entry in a list.
    return {
        "Successful": list(deletable) or None,
        "Failed": failed or None,
        "SuccessfulNodeLogicalIds": list(deletable_logical) or None,
        "FailedNodeLogicalIds": failed_logical or None,
    }


def _by_id(cluster: Cluster, ids: Sequence[str]) -> dict[str, Node | None]:
    """The nodes that ListClusterNodes shows with these instance ids."""
    listed = {node.instance_id: node for node in cluster.nodes.values() if node.launched and node.listed}
    return {node_id: listed.get(node_id) for node_id in ids}


def _without_failed(found: Mapping[str, Node | None], failed: Sequence[Json], member: str) -> dict[str, Node]:
    keys = {each[member] for each in failed}
    return {key: node for key, node in found.items() if node is not None and key not in keys}


def _ids(request: Json, cluster: Cluster, *, most: int = MOST_IDS) -> tuple[list[str], list[str]]:
    """The ids of both kinds, without repetitions. Raises ValidationException if there are none, or too many."""
    ids = list(dict.fromkeys(request.get("NodeIds", [])))
    logical_ids = list(dict.fromkeys(request.get("NodeLogicalIds", [])))
    if not ids and not logical_ids:
        raise invalid("At least one of NodeIds and NodeLogicalIds must be specified")
    if logical_ids and not cluster.continuous:
        raise invalid("NodeLogicalIds are only supported for clusters with NodeProvisioningMode Continuous")
    if logical_ids:
        most = min(most, MOST_WITH_LOGICAL_IDS)
    count = len(request.get("NodeIds", [])) + len(request.get("NodeLogicalIds", []))
    if count > most:
        raise invalid(f"The number of nodes in a request must not exceed {most}, got {count}")
    return ids, logical_ids


def _logical(cluster: Cluster, logical_id: str) -> Node | None:
    node = cluster.nodes.get(logical_id)
    return node if node and node.listed else None


def _failed(context: Context, cluster: Cluster, found: dict[str, Node | None], member: str) -> list[Json]:
    failed = []
    for key, node in found.items():
        problem = _problem(context, cluster, key, node, logical=member == "NodeLogicalId")
        if problem:
            failed.append({member: key, "Code": problem[0], "Message": problem[1]})
    return failed


def _problem(context: Context, cluster: Cluster, key: str, node: Node | None, *, logical: bool) -> Problem | None:
    """The code and message if a node cannot be deleted; None if it can."""
    state, behaviour = context.state, context.state.behaviour
    if node is None:
        code = behaviour.logical_not_found_code if logical else "NodeIdNotFound"
        return code, f"Node {key} not found in cluster {cluster.name}"
    group = cluster.groups.get(node.group)
    if group and group.node_type == "Controller":
        # "You cannot remove instances that are configured as Slurm controller nodes" (botocore: NodeIds).
        return behaviour.controller_code, f"Node {key} is a Slurm controller node and cannot be deleted"
    if node.status in ("ShuttingDown", "SystemUpdating", "DeepHealthCheckInProgress"):
        return "InvalidNodeStatus", f"Node {key} is in status {node.status}"
    if logical and node.launched and not behaviour.logical_ids_delete_launched_nodes:
        return "InvalidNodeStatus", f"Node {key} is already launched. Specify its NodeId {node.instance_id}"
    if state.now < state.faults.in_use_until.get(node.instance_id or "", 0.0):
        return "NodeIdInUse", f"Node {key} is in use by another process"
    return None


def _refuse_under_minimum(context: Context, cluster: Cluster, named: Sequence[Node]) -> None:
    behaviour = context.state.behaviour
    if behaviour.below_minimum != "refuse" or behaviour.batch_delete_lowers_target == "never":
        return
    for group in cluster.groups.values():
        count = len({node.logical_id for node in named if node.group == group.name and node.live})
        if count and group.target - count < group.minimum:
            raise invalid(
                f"Deleting {count} nodes would bring instance group {group.name} below its MinInstanceCount of {group.minimum}"
            )


def _terminate(context: Context, cluster: Cluster, victims: list[Node]) -> None:
    state, behaviour = context.state, context.state.behaviour
    lowers = behaviour.batch_delete_lowers_target
    end(state, cluster, victims, "named", holds_place=lowers != "at_once")
    for group in list(cluster.groups.values()):
        mine = [node for node in victims if node.group == group.name]
        # A request without an instance has no termination to wait for, so the target falls at once, unless it never
        # falls.
        lowered = len(mine) if lowers == "at_once" else sum(not node.launched for node in mine)
        if lowers == "never":
            holes = 0 if behaviour.replaces_missing_nodes_after_batch_delete else lowered
            cluster.groups[group.name] = replace(group, holes=group.holes + holes)
            continue
        target = max(group.target - lowered, 0)
        minimum = min(group.minimum, target) if behaviour.below_minimum == "lowers_minimum" else group.minimum
        cluster.groups[group.name] = replace(group, target=target, minimum=minimum)
    if not cluster.continuous and behaviour.standard_batch_delete_shows_updating:
        cluster.before = settings_now(cluster)
        cluster.status, cluster.due = (
            "Updating",
            state.now + state.timings.shut_down + state.timings.standard_capacity_wait,
        )
    for node in victims:
        if node.launched:
            events.add(state, cluster, events.TERMINATING, group=node.group, instance_id=node.instance_id)


def batch_add_cluster_nodes(context: Context, request: Json) -> Json:
    """BatchAddClusterNodes raises target counts, with continuous provisioning only.

    A ClientToken is valid for 8 hours (botocore).
    """
    cluster = context.cluster(request["ClusterName"])
    if not cluster.continuous:
        raise invalid("BatchAddClusterNodes is only supported for clusters with NodeProvisioningMode Continuous")
    wanted: list[Json] = request["NodesToAdd"]
    total = sum(each["IncrementTargetCountBy"] for each in wanted)
    if total > MOST_ADDED:
        raise invalid(f"The total of IncrementTargetCountBy must not exceed {MOST_ADDED}, got {total}")
    token = request.get("ClientToken")
    repeated = _earlier_call(context.state, cluster, token)
    if repeated is not None:
        if repeated["request"] != wanted:
            raise invalid("The client token was already used with different parameters")
        return {"Successful": [_added_again(cluster, *pair) for pair in repeated["nodes"]], "Failed": []}
    refuse_while_busy(context, cluster, "add nodes")

    problems = [(each, _add_problem(context, cluster, each)) for each in wanted]
    accepted = [each for each, problem in problems if problem is None]
    _refuse_additions_beyond_limits(context, cluster, accepted)
    added = [node for each in accepted for node in _add(context.state, cluster, each)]
    if token:
        pairs = [[each["NodeLogicalId"], each["InstanceGroupName"]] for each in added]
        cluster.tokens[token] = {"at": context.state.now, "request": wanted, "nodes": pairs}
    failed = [_failed_addition(each, problem) for each, problem in problems if problem is not None]
    return {"Successful": added, "Failed": failed}


def _earlier_call(state: HyperPodState, cluster: Cluster, token: str | None) -> Json | None:
    """The call with the same token in the last 8 hours."""
    earlier = cluster.tokens.get(token) if token else None
    if earlier is None or state.now - earlier["at"] >= TOKEN_HOURS * 3600:
        return None
    return earlier


def _refuse_additions_beyond_limits(context: Context, cluster: Cluster, additions: Sequence[Json]) -> None:
    specs = []
    for addition in additions:
        group = cluster.groups[addition["InstanceGroupName"]]
        specs.append({**group.spec, "InstanceCount": group.target + addition["IncrementTargetCountBy"]})
    refuse_beyond_limits(context, cluster.groups, specs, cluster.settings)


def _add(state: HyperPodState, cluster: Cluster, addition: Json) -> Iterator[Json]:
    """Raise the group's target, and request its nodes."""
    count = addition["IncrementTargetCountBy"]
    group = cluster.groups[addition["InstanceGroupName"]]
    cluster.groups[group.name] = replace(group, target=group.target + count)
    for _ in range(count):
        node = request_node(state, cluster, group)
        yield {"NodeLogicalId": node.logical_id, "InstanceGroupName": group.name, "Status": node.status}


def _failed_addition(addition: Json, problem: Problem) -> Json:
    code, message = problem
    return {
        "InstanceGroupName": addition["InstanceGroupName"],
        "ErrorCode": code,
        "Message": message,
        "FailedCount": addition["IncrementTargetCountBy"],
    }


def _added_again(cluster: Cluster, logical_id: str, group: str) -> Json:
    node = cluster.nodes.get(logical_id)
    # NotFound is returned only here: for a repeated request whose node no longer exists (botocore:
    # NodeAdditionResult$Status).
    status = node.status if node and node.listed else "NotFound"
    return {"NodeLogicalId": logical_id, "InstanceGroupName": group, "Status": status}


def _add_problem(context: Context, cluster: Cluster, wanted: Json) -> Problem | None:
    """The code and message if nodes cannot be added to the group; None if they can."""
    name = wanted["InstanceGroupName"]
    group: Group | None = cluster.groups.get(name)
    if group is None:
        return "InstanceGroupNotFound", f"Instance group {name} not found in cluster {cluster.name}"
    waiting = below_minimum(cluster)
    blocked = bool(waiting) if context.state.behaviour.minimum_blocks == "cluster" else group in waiting
    if group.status == "Deleting" or blocked:
        return "InvalidInstanceGroupStatus", f"Instance group {name} is in status {group.status}"
    if not set(wanted.get("InstanceTypes", [])) <= set(group.instance_types):
        return (
            "IncompatibleInstanceTypes",
            f"Instance group {name} has the instance types {', '.join(group.instance_types)}",
        )
    return None


def batch_reboot_cluster_nodes(context: Context, request: Json) -> Json:
    """BatchRebootClusterNodes: the same instances, Pending for a short time. At most 25."""
    return _restart(context, request, fresh=False)


def batch_replace_cluster_nodes(context: Context, request: Json) -> Json:
    """BatchReplaceClusterNodes: new instances with the same logical ids; not for Slurm controllers. At most 25."""
    return _restart(context, request, fresh=True)


def _restart(context: Context, request: Json, *, fresh: bool) -> Json:
    """Reboot nodes, or (`fresh`) replace their instances."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    ids, logical_ids = _ids(request, cluster, most=25)
    action = "replace nodes" if fresh else "reboot nodes"
    refuse_while_busy(context, cluster, action)
    if fresh:
        refuse_unpatched(context, cluster, action)
    answer: dict[str, list[object]] = {
        "Successful": [], "Failed": [], "SuccessfulNodeLogicalIds": [], "FailedNodeLogicalIds": [],
    }  # fmt: skip
    for key, node, kind, suffix in _each(cluster, ids, logical_ids):
        code = _restart_problem(cluster, node, fresh=fresh)
        if node is None or code is not None:
            message = f"Cannot {action}: {key}, {code}"
            answer[f"Failed{suffix}"].append({kind: key, "ErrorCode": code, "Message": message})
            continue
        cluster.nodes[node.logical_id] = _restarted(state, cluster, node, fresh=fresh)
        answer[f"Successful{suffix}"].append(key)
    return {name: entries or None for name, entries in answer.items()}


def _restart_problem(cluster: Cluster, node: Node | None, *, fresh: bool) -> str | None:
    """The error code if a node cannot be rebooted or replaced; None if it can."""
    if node is None:
        return "InstanceIdNotFound"
    group = cluster.groups.get(node.group)
    if fresh and group is not None and group.node_type == "Controller":
        return "InstanceIdInUse"
    if node.status not in ("Running", "Failure"):
        return "InvalidInstanceStatus"
    return None


def _restarted(state: HyperPodState, cluster: Cluster, node: Node, *, fresh: bool) -> Node:
    if fresh:
        return replaced(state, cluster, node)
    return replace(node, status="Pending", due=state.now + state.timings.boot, message="")


def _each(
    cluster: Cluster, ids: Sequence[str], logical_ids: Sequence[str]
) -> Iterable[tuple[str, Node | None, str, str]]:
    for node_id in ids:
        yield node_id, find_node(cluster, node_id), "NodeId", ""
    for logical_id in logical_ids:
        yield logical_id, _logical(cluster, logical_id), "NodeLogicalId", "NodeLogicalIds"
