"""ListClusterOperations and DescribeClusterOperation: the record of scaling requests (developer guide, cluster
operations).

Whether BatchDeleteClusterNodes creates an entry is not documented. Here only UpdateCluster does, with continuous
provisioning.
"""

from __future__ import annotations

from .context import Context
from .errors import not_found
from .paging import between, page
from .state import Cluster, Counts, HyperPodState, Json, Scaling, by_group, current_count

KEPT_SECONDS = 14 * 86_400


def counts(state: HyperPodState, cluster: Cluster) -> dict[str, Counts]:
    """Current, target and minimum of each group."""
    nodes = by_group(cluster)
    return {
        name: Counts(current=current_count(nodes[name], state.behaviour), target=group.target, minimum=group.minimum)
        for name, group in cluster.groups.items()
    }


def record(state: HyperPodState, cluster: Cluster, before: dict[str, Counts]) -> None:
    """Record a request's change of targets and minimums, if it changed any."""
    none = Counts(current=0, target=0, minimum=0)
    after = counts(state, cluster)
    changed = {
        name: (before.get(name, none), now)
        for name, now in after.items()
        if (now.target, now.minimum) != (before.get(name, none).target, before.get(name, none).minimum)
    }
    if changed and cluster.continuous:
        number = state.number()
        operation = f"{number:08x}-0000-4000-8000-{number:012x}"
        cluster.scalings.append(Scaling(operation_id=operation, at=state.now, groups=changed))


def list_cluster_operations(context: Context, request: Json) -> Json:
    """ListClusterOperations, newest first by default."""
    cluster = context.cluster(request["ClusterName"])
    entries = [
        (each.at, each.operation_id)
        for each in _kept(context.state, cluster)
        if request.get("Status") in (None, _status(context.state, cluster, each))
        and request.get("Type") in (None, "Scaling")
        and between(each.at, request, "CreationTime")
    ]
    descending = request.get("SortOrder") != "Ascending"
    here, token = page(entries, request, key=lambda entry: entry, default_size=100, descending=descending)
    known = {each.operation_id: each for each in cluster.scalings}
    summaries = [_summary(context.state, cluster, known[operation]) for _, operation in here]
    return {"ClusterOperationSummaries": summaries, "NextToken": token}


def describe_cluster_operation(context: Context, request: Json) -> Json:
    """DescribeClusterOperation."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    for each in _kept(state, cluster):
        if each.operation_id == request["OperationId"]:
            details = [
                {
                    "InstanceGroupName": name,
                    "Status": _status_of_group(state, cluster, each, name),
                    "Original": _shown(original),
                    "Desired": _shown(desired),
                }
                for name, (original, desired) in each.groups.items()
            ]
            return {**_summary(state, cluster, each), "ScalingDetails": details}
    raise not_found(f"Could not find the operation '{request['OperationId']}' in cluster {cluster.name}")


def _kept(state: HyperPodState, cluster: Cluster) -> list[Scaling]:
    return [each for each in cluster.scalings if each.at > state.now - KEPT_SECONDS]


def _summary(state: HyperPodState, cluster: Cluster, scaling: Scaling) -> Json:
    return {
        "OperationId": scaling.operation_id,
        "ClusterArn": cluster.arn,
        "Type": "Scaling",
        "Status": _status(state, cluster, scaling),
        "CreationTime": scaling.at,
    }


def _status(state: HyperPodState, cluster: Cluster, scaling: Scaling) -> str:
    of_groups = {_status_of_group(state, cluster, scaling, name) for name in scaling.groups}
    return next(status for status in ("InProgress", "Superseded", "Done") if status in of_groups)


def _status_of_group(state: HyperPodState, cluster: Cluster, scaling: Scaling, name: str) -> str:
    later = cluster.scalings[cluster.scalings.index(scaling) + 1 :]
    now = counts(state, cluster).get(name)
    if any(name in each.groups for each in later):
        return "Superseded"
    if now is None or now.current == scaling.groups[name][1].target:
        return "Done"
    return "InProgress" if now.target == scaling.groups[name][1].target else "Superseded"


def _shown(counts: Counts) -> Json:
    return {"CurrentCount": counts.current, "TargetCount": counts.target, "MinCount": counts.minimum}
