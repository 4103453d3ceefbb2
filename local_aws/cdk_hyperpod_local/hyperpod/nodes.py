"""Reading nodes, adding nodes, and the event stream."""

from __future__ import annotations

from dataclasses import replace

from .clusters import refuse_beyond_limits
from .context import Context, below_minimum, refuse_while_busy
from .errors import invalid, not_found
from .paging import between, page
from .provisioning import request_node
from .responses import born, event_details, event_summary, node_details, node_summary
from .state import Cluster, Group, Json

TOKEN_HOURS = 8
MOST_ADDED = 50


def list_cluster_nodes(context: Context, request: Json) -> Json:
    """ListClusterNodes. InstanceGroupNameContains is a SUBSTRING filter: "p5" also finds "p5-spot".

    Nodes without an instance appear only with IncludeNodeLogicalIds, and only under continuous provisioning.
    """
    state, cluster = context.state, context.cluster(request["ClusterName"])
    logical = bool(request.get("IncludeNodeLogicalIds")) and cluster.continuous
    part = request.get("InstanceGroupNameContains", "")
    by_name = request.get("SortBy") == "NAME"
    shown = [
        node for node in cluster.nodes.values() if node.listed and part in node.group and (logical or node.launched)
    ]
    # Each page looks at every node again, and who wants all of them gives no bound.
    if "CreationTimeAfter" in request or "CreationTimeBefore" in request:
        shown = [node for node in shown if between(born(node), request, "CreationTime")]
    here, token = page(
        shown,
        request,
        key=lambda node: (node.group if by_name else born(node), node.number),
        default_size=state.behaviour.default_page_size,
        descending=request.get("SortOrder") == "Descending",
    )
    summaries = [node_summary(state, node, with_logical_id=logical) for node in here]
    return {"ClusterNodeSummaries": summaries, "NextToken": token}


def describe_cluster_node(context: Context, request: Json) -> Json:
    """DescribeClusterNode, by instance id or logical id."""
    cluster = context.cluster(request["ClusterName"])
    if ("NodeId" in request) == ("NodeLogicalId" in request):
        raise invalid("Exactly one of NodeId and NodeLogicalId must be specified")
    wanted = request.get("NodeId", request.get("NodeLogicalId"))
    for node in cluster.nodes.values():
        if node.listed and wanted in (node.instance_id, node.logical_id):
            return {"NodeDetails": node_details(context.state, cluster, node)}
    raise not_found(f"Could not find the node '{wanted}' in cluster {cluster.name}")


def batch_add_cluster_nodes(context: Context, request: Json) -> Json:
    """BatchAddClusterNodes: raises target counts, continuous only; a ClientToken is good for 8 hours (botocore)."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    if not cluster.continuous:
        raise invalid("BatchAddClusterNodes is only supported for clusters with NodeProvisioningMode Continuous")
    wanted: list[Json] = request["NodesToAdd"]
    total = sum(each["IncrementTargetCountBy"] for each in wanted)
    if total > MOST_ADDED:
        raise invalid(f"The total of IncrementTargetCountBy must not exceed {MOST_ADDED}, got {total}")
    token = request.get("ClientToken")
    known = cluster.tokens.get(token) if token else None
    if known and state.now - known["at"] < TOKEN_HOURS * 3600:
        if known["request"] != wanted:
            raise invalid("The client token was already used with different parameters")
        return {"Successful": [_added_again(cluster, *pair) for pair in known["nodes"]], "Failed": []}
    refuse_while_busy(context, cluster, "add nodes")
    good = [each for each in wanted if _add_problem(context, cluster, each) is None]
    counts = [
        {**cluster.groups[each["InstanceGroupName"]].spec,
         "InstanceCount": cluster.groups[each["InstanceGroupName"]].target + each["IncrementTargetCountBy"]}
        for each in good
    ]  # fmt: skip
    refuse_beyond_limits(context, cluster.groups, counts, cluster.settings)
    added: list[Json] = []
    for each in good:
        group = cluster.groups[each["InstanceGroupName"]]
        cluster.groups[group.name] = replace(group, target=group.target + each["IncrementTargetCountBy"])
        for _ in range(each["IncrementTargetCountBy"]):
            node = request_node(state, cluster, group)
            added.append({"NodeLogicalId": node.logical_id, "InstanceGroupName": group.name, "Status": node.status})
    if token:
        pairs = [[each["NodeLogicalId"], each["InstanceGroupName"]] for each in added]
        cluster.tokens[token] = {"at": state.now, "request": wanted, "nodes": pairs}
    failed = [
        {"InstanceGroupName": each["InstanceGroupName"], "ErrorCode": problem[0], "Message": problem[1],
         "FailedCount": each["IncrementTargetCountBy"]}
        for each in wanted
        if each not in good and (problem := _add_problem(context, cluster, each))
    ]  # fmt: skip
    return {"Successful": added, "Failed": failed}


def _added_again(cluster: Cluster, logical_id: str, group: str) -> Json:
    node = cluster.nodes.get(logical_id)
    # NotFound exists only here: a replayed request whose node is gone (botocore: NodeAdditionResult$Status).
    status = node.status if node and node.listed else "NotFound"
    return {"NodeLogicalId": logical_id, "InstanceGroupName": group, "Status": status}


def _add_problem(context: Context, cluster: Cluster, wanted: Json) -> tuple[str, str] | None:
    """Code and message of what keeps nodes from being added to the group; None: nothing."""
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


def list_cluster_events(context: Context, request: Json) -> Json:
    """ListClusterEvents: newest first unless asked otherwise; continuous clusters only (botocore: ListClusterEvents)."""
    cluster = _with_events(context, request)
    entries = []
    for position, event in enumerate(cluster.events):
        wanted = (
            request.get("InstanceGroupName") in (None, event.group)
            and request.get("NodeId") in (None, event.instance_id)
            and request.get("ResourceType") in (None, event.resource)
            and "OperationId" not in request
        )
        if wanted and between(event.at, request, "EventTime"):
            entries.append((event.at, position))
    here, token = page(
        entries,
        request,
        key=lambda entry: entry,
        default_size=100,
        descending=request.get("SortOrder") != "Ascending",
    )
    return {"Events": [event_summary(cluster, cluster.events[position]) for _, position in here], "NextToken": token}


def describe_cluster_event(context: Context, request: Json) -> Json:
    """DescribeClusterEvent."""
    cluster = _with_events(context, request)
    for event in cluster.events:
        if event.event_id == request["EventId"]:
            return {"EventDetails": event_details(cluster, event)}
    raise not_found(f"Could not find the event '{request['EventId']}' in cluster {cluster.name}")


def _with_events(context: Context, request: Json) -> Cluster:
    cluster = context.cluster(request["ClusterName"])
    if not cluster.continuous:
        raise invalid("Cluster events are only supported for clusters with NodeProvisioningMode Continuous")
    return cluster
