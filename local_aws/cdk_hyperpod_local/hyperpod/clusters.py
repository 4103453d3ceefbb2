"""Operations on whole clusters, apart from UpdateCluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import automatic_updates, events, images, limits, rules
from .context import Context, below_minimum
from .errors import ApiError, conflict, not_found
from .paging import between, page
from .responses import cluster_details
from .state import Cluster, Group, Json
from .tagging import checked_tags
from .terminations import end

Specs = Sequence[Json]


def create_cluster(context: Context, request: Json) -> Json:
    """CreateCluster is accepted as Creating. Everything else happens later."""
    state, name = context.state, request["ClusterName"]
    specs: Specs = request.get("InstanceGroups", [])
    settings = {key: value for key, value in request.items() if key not in ("ClusterName", "InstanceGroups", "Tags")}
    rules.first(rules.cluster_problems(name, settings, specs))
    tags = checked_tags(request.get("Tags", []), {}, context.principal)
    if any(cluster.name == name for cluster in context.clusters()):
        raise ApiError("ResourceInUse", f"Cluster with name {name} already exists")
    refuse_beyond_limits(context, {}, specs, settings)
    cluster = Cluster(
        name=name,
        arn=f"arn:aws:sagemaker:{context.region}:{context.account}:cluster/{state.digits(12)}",
        account=context.account,
        region=context.region,
        created_at=state.now,
        settings=settings,
        tags=tags,
    )
    wait = state.timings.create_cluster
    cluster.due = state.now + wait + (0 if cluster.continuous else state.timings.standard_capacity_wait)
    cluster.groups = {spec["InstanceGroupName"]: new_group(context, spec) for spec in specs}
    state.clusters[cluster.arn] = cluster
    events.add(state, cluster, events.CLUSTER_STARTED, operation="creation")
    return {"ClusterArn": cluster.arn}


def new_group(context: Context, spec: Json) -> Group:
    """A group at the time when its request is accepted.

    The minimum counts from then on (botocore: MinInstanceCount).
    """
    state, minimum = context.state, spec.get("MinInstanceCount", 0)
    image = images.wanted(spec, state.image)
    group = Group(
        name=spec["InstanceGroupName"], spec=spec, target=spec["InstanceCount"], minimum=minimum, status="Creating",
        image=image, current_image=image, awaiting=minimum > 0, deadline=state.now + state.timings.minimum_limit if minimum else None,
    )  # fmt: skip
    return automatic_updates.planned(state, group)


def refuse_beyond_limits(context: Context, before: Mapping[str, Group], specs: Specs, settings: Json) -> None:
    """ApiError if these specifications exceed the account's limits.

    `before`: the existing groups, `settings`: the cluster's.
    """
    limits.refuse(context.state, context.clusters(), before, specs, settings.get("VpcConfig", {}))


def describe_training_plan(context: Context, request: Json) -> Json:
    """DescribeTrainingPlan."""
    for plan in context.state.plans.values():
        if plan.arn.endswith(f"/{request['TrainingPlanName']}"):
            return limits.plan_details(plan)
    raise not_found(f"Could not find the training plan '{request['TrainingPlanName']}'")


def list_training_plans(context: Context, request: Json) -> Json:
    """ListTrainingPlans, in one page and unfiltered."""
    del request
    return {"TrainingPlanSummaries": [limits.plan_details(plan) for plan in context.state.plans.values()]}


def describe_cluster(context: Context, request: Json) -> Json:
    """DescribeCluster."""
    return cluster_details(context.state, context.cluster(request["ClusterName"]))


def delete_cluster(context: Context, request: Json) -> Json:
    """DeleteCluster. A running operation blocks it; an unmet minimum does not ("Minimum capacity requirements")."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    if cluster.status in ("SystemUpdating", "Deleting") or (
        not cluster.continuous and cluster.status not in ("InService", "Failed")
    ):
        raise conflict(f"Cannot delete cluster {cluster.name} while it is in status {cluster.status}")
    end(state, cluster, [node for node in cluster.nodes.values() if node.live], "cluster-deleted")
    cluster.groups = {
        name: replace(group, status="Deleting", awaiting=False, deadline=None, update=None)
        for name, group in cluster.groups.items()
    }
    cluster.status, cluster.due = "Deleting", None
    events.add(state, cluster, events.CLUSTER_STARTED, operation="deletion")
    return {"ClusterArn": cluster.arn}


def list_clusters(context: Context, request: Json) -> Json:
    """ListClusters, by default sorted by creation time, oldest first."""
    by_name = request.get("SortBy") == "NAME"
    entries = []
    for cluster in context.clusters():
        plans = sorted(
            {group.spec["TrainingPlanArn"] for group in cluster.groups.values() if "TrainingPlanArn" in group.spec}
        )
        if (
            request.get("NameContains", "") in cluster.name
            and between(cluster.created_at, request, "CreationTime")
            and request.get("TrainingPlanArn") in (None, *plans)
        ):
            summary: Json = {
                "ClusterArn": cluster.arn,
                "ClusterName": cluster.name,
                "CreationTime": cluster.created_at,
                "ClusterStatus": cluster.status,
                "TrainingPlanArns": plans or None,
            }
            entries.append(summary)
    here, token = page(
        entries,
        request,
        key=lambda entry: (entry["ClusterName" if by_name else "CreationTime"], entry["ClusterName"]),
        default_size=context.state.behaviour.default_page_size,
        descending=request.get("SortOrder") == "Descending",
    )
    return {"ClusterSummaries": here, "NextToken": token}


def start_cluster_health_check(context: Context, request: Json) -> Json:
    """StartClusterHealthCheck: deep health checks of the named nodes, or of the running nodes of the groups."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    if cluster.status != "InService" or below_minimum(cluster):
        raise conflict(f"Cannot start health checks on cluster {cluster.name} while it is in status {cluster.status}")
    for wanted in request["DeepHealthCheckConfigurations"]:
        if wanted["InstanceGroupName"] not in cluster.groups:
            raise not_found(f"Instance group {wanted['InstanceGroupName']} not found in cluster {cluster.name}")
    for wanted in request["DeepHealthCheckConfigurations"]:
        ids = wanted.get("InstanceIds")
        for node in list(cluster.nodes.values()):
            named = ids is None or node.instance_id in ids
            if node.group == wanted["InstanceGroupName"] and node.status == "Running" and named:
                cluster.nodes[node.logical_id] = replace(
                    node, status="DeepHealthCheckInProgress", due=state.now + state.timings.deep_health_check
                )
    return {"ClusterArn": cluster.arn}
