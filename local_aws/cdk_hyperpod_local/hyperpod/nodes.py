"""Operations that read nodes, and the event stream."""

from __future__ import annotations

from .context import Context
from .errors import invalid, not_found
from .paging import between, page
from .responses import born, event_details, event_summary, node_details, node_summary
from .state import Cluster, Json


def list_cluster_nodes(context: Context, request: Json) -> Json:
    """ListClusterNodes. InstanceGroupNameContains filters by SUBSTRING: "p5" also finds "p5-spot".

    Nodes without an instance appear only with IncludeNodeLogicalIds, and only with continuous provisioning.
    """
    state, cluster = context.state, context.cluster(request["ClusterName"])
    logical = bool(request.get("IncludeNodeLogicalIds")) and cluster.continuous
    part = request.get("InstanceGroupNameContains", "")
    by_name = request.get("SortBy") == "NAME"
    shown = [
        node for node in cluster.nodes.values() if node.listed and part in node.group and (logical or node.launched)
    ]
    # Each page checks every node again. Callers that want all nodes pass no bound.
    if "CreationTimeAfter" in request or "CreationTimeBefore" in request:
        shown = [node for node in shown if between(born(node), request, "CreationTime")]
    here, token = page(
        shown,
        request,
        key=lambda node: (node.group if by_name else born(node), node.number),
        default_size=state.behaviour.default_page_size,
        descending=request.get("SortOrder") == "Descending",
    )
    summaries = [node_summary(state, cluster, node, with_logical_id=logical) for node in here]
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


def list_cluster_events(context: Context, request: Json) -> Json:
    """ListClusterEvents, newest first by default; continuous clusters only (botocore: ListClusterEvents)."""
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
