"""UpdateCluster: checks everything first, then applies everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import automatic_updates, cluster_operations, events, images, rules, software_update
from .clusters import new_group, refuse_beyond_limits
from .context import Context, running_in
from .errors import conflict, invalid
from .state import Cluster, Good, Group, Json, Node, by_group, settings_now
from .terminations import choose_victims, counted_extra, end

NOT_SETTINGS = ("ClusterName", "InstanceGroups", "InstanceGroupsToDelete")


def update_cluster(context: Context, request: Json) -> Json:
    """UpdateCluster. Groups that are not in the request do not change ("Specify the instance groups to update")."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    specs = [_completed(context, cluster, spec) for spec in request.get("InstanceGroups", [])]
    doomed = _groups_to_delete(context, cluster, request)
    _refuse_while_busy(cluster, doomed)
    _refuse_invalid(context, cluster, request, specs, doomed)
    refuse_beyond_limits(context, cluster.groups, specs, cluster.settings)

    if not cluster.continuous:
        cluster.before = settings_now(cluster)
    cluster.settings = {**cluster.settings, **{k: v for k, v in request.items() if k not in NOT_SETTINGS}}
    cluster.failure = ""
    before = cluster_operations.counts(state, cluster)
    for spec in specs:
        name = spec["InstanceGroupName"]
        if name in cluster.groups:
            _change_group(context, cluster, cluster.groups[name], spec)
        else:
            cluster.groups[name] = new_group(context, spec)
            events.add(state, cluster, events.GROUP_STARTED, group=name, operation="creation")
    for name in doomed:
        _delete_group(context, cluster, cluster.groups[name])
    if doomed and not specs and state.behaviour.group_deletion_drops_auto_patch:
        _drop_auto_patch(context, cluster)
    cluster_operations.record(state, cluster, before)
    _set_status(context, cluster)
    _update_software(context, cluster, specs)
    events.add(state, cluster, events.CLUSTER_STARTED, operation="update")
    return {"ClusterArn": cluster.arn}


def _completed(context: Context, cluster: Cluster, spec: Json) -> Json:
    """The specification with the values that absent members mean (Behaviour.absent_minimum_means, .below_minimum,
    .absent_scheduled_update_means)."""
    group = cluster.groups.get(spec["InstanceGroupName"])
    behaviour = context.state.behaviour
    if group and "ScheduledUpdateConfig" in group.spec and behaviour.absent_scheduled_update_means == "unchanged":
        spec = {"ScheduledUpdateConfig": group.spec["ScheduledUpdateConfig"], **spec}
    if group is None or "MinInstanceCount" in spec or not cluster.continuous:
        return spec
    minimum = group.minimum if behaviour.absent_minimum_means == "unchanged" else 0
    if minimum > spec["InstanceCount"] and behaviour.below_minimum == "lowers_minimum":
        minimum = spec["InstanceCount"]
    if minimum > spec["InstanceCount"] and behaviour.below_minimum == "allow":
        return spec
    return {**spec, "MinInstanceCount": minimum}


def _groups_to_delete(context: Context, cluster: Cluster, request: Json) -> list[str]:
    """The existing groups that the request deletes."""
    names: list[str] = list(dict.fromkeys(request.get("InstanceGroupsToDelete", [])))
    behaviour = context.state.behaviour
    if names and behaviour.update_needs_groups_with_delete and not request.get("InstanceGroups"):
        raise invalid("InstanceGroups must be specified together with InstanceGroupsToDelete")
    unknown = [name for name in names if name not in cluster.groups]
    if unknown and behaviour.delete_unknown_group == "refuse":
        raise invalid(
            f"Instance group(s) {', '.join(unknown)} specified in InstanceGroupsToDelete do not exist in the cluster"
        )
    known = [name for name in names if name in cluster.groups]
    deleting = [name for name in known if cluster.groups[name].status == "Deleting"]
    if deleting and behaviour.delete_deleting_group == "conflict":
        raise conflict(f"Instance group(s) {', '.join(deleting)} of cluster {cluster.name} are already being deleted")
    return known


def _refuse_while_busy(cluster: Cluster, doomed: Sequence[str]) -> None:
    """ConflictException during an operation that excludes an update.

    An unmet minimum does not exclude one: count and minimum can be changed ("Minimum capacity requirements"), and a
    continuous cluster is InService meanwhile. Deep health checks do ("Update a HyperPod cluster", EKS).
    """
    if cluster.status not in ("InService", "Failed"):
        raise conflict(f"Cannot update cluster {cluster.name} while it is in status {cluster.status}")
    checking = {node.group for node in cluster.nodes.values() if node.status == "DeepHealthCheckInProgress"}
    if checking - set(doomed):
        raise conflict(
            f"Cannot update cluster {cluster.name} while deep health checks are in progress on instance group "
            f"{min(checking)}"
        )


def _refuse_invalid(context: Context, cluster: Cluster, request: Json, specs: list[Json], doomed: list[str]) -> None:
    """Raise the first problem of the settings, the deletions, each group, and the cluster as it would be."""
    settings = {key: value for key, value in request.items() if key not in NOT_SETTINGS}
    may = context.state.behaviour.standard_can_become_continuous
    rules.first(rules.settings_problems(cluster, settings, may_become_continuous=may))
    rules.first(rules.deletion_problems(cluster, doomed, specs))
    nodes = by_group(cluster)
    for spec in specs:
        group = cluster.groups.get(spec["InstanceGroupName"])
        if group is None:
            _refuse_empty_new_group(spec)
        else:
            _refuse_group_change(cluster, group, spec, nodes[group.name])
    remaining = _unchanged_specs(cluster, specs, doomed)
    after = [*_as_live(cluster, remaining), *specs]
    rules.first(rules.cluster_problems(cluster.name, {**cluster.settings, **settings}, after))


def _refuse_empty_new_group(spec: Json) -> None:
    """A new group has at least one instance; an existing one can go to 0 ("Update a HyperPod cluster")."""
    if spec["InstanceCount"] < 1:
        raise invalid(f"InstanceCount must be at least 1 for new instance group {spec['InstanceGroupName']}")


def _refuse_group_change(cluster: Cluster, group: Group, spec: Json, nodes: Sequence[Node]) -> None:
    if group.status == "Deleting":
        raise conflict(f"Instance group {group.name} of cluster {cluster.name} is being deleted")
    # A cluster with provisioning_parameters.json is migrated by a software update ("Migrate to API-driven Slurm").
    was_migrated = cluster.patched or cluster.continuous
    if spec.get("SlurmConfig") and not group.node_type and not was_migrated:
        raise invalid("Update required to use SlurmConfig in InstanceGroups")
    live_types = frozenset(node.instance_type for node in nodes if node.live and node.launched)
    rules.first(rules.immutable_problems(group, spec, live_types))


def _unchanged_specs(cluster: Cluster, specs: list[Json], doomed: list[str]) -> list[Json]:
    """The specifications of the existing groups that the request neither changes nor deletes."""
    changed = {*doomed, *(spec["InstanceGroupName"] for spec in specs)}
    groups = (group for group in cluster.groups.values() if group.name not in changed)
    return [group.spec for group in groups if group.status != "Deleting"]


def _as_live(cluster: Cluster, specs: list[Json]) -> list[Json]:
    """Specifications with the counts that BatchAdd and BatchDelete left, and without minimums that were met."""
    return [
        {**spec, "InstanceCount": cluster.groups[spec["InstanceGroupName"]].target, "MinInstanceCount": 0}
        for spec in specs
    ]


def _change_group(context: Context, cluster: Cluster, group: Group, spec: Json) -> None:
    state, behaviour = context.state, context.state.behaviour
    target = spec["InstanceCount"]
    minimum = spec.get("MinInstanceCount", group.minimum)
    for node in list(cluster.nodes.values()):
        if node.group == group.name and node.holds_place:
            # An explicit count is final: it includes what BatchDelete would still have subtracted later.
            cluster.nodes[node.logical_id] = replace(node, holds_place=False)
    here = [node for node in cluster.nodes.values() if node.group == group.name]
    live = [node for node in here if node.live]
    excess = len(live) + counted_extra(state, here) - target
    victims = choose_victims(
        live, min(excess, len(live)), group.instance_types, state.random(), spares=behaviour.random_spares_unlaunched
    )
    end(state, cluster, victims, "random")
    if victims:
        events.add(state, cluster, events.GROUP_STARTED, group=group.name, operation="scaling")
    wait = _minimum_after(context, cluster, group, target, minimum)
    image = images.wanted(spec, group.image)
    if images.only_patch_differs(image, group.image):
        # "Later patches show as drift and are not reverted" (ImageReleaseVersion, in CloudFormation's documentation).
        image = group.image
    changed = replace(
        group, spec=spec, target=target, minimum=minimum, awaiting=wait.awaiting, deadline=wait.deadline, good=wait.good, holes=0, image=image,
        status=group.status if group.status in ("Creating", "SystemUpdating") else "Updating",
    )  # fmt: skip
    cluster.groups[group.name] = automatic_updates.planned(state, changed)


def _drop_auto_patch(context: Context, cluster: Cluster) -> None:
    for name, group in list(cluster.groups.items()):
        spec = {key: value for key, value in group.spec.items() if key != "AutoPatchConfig"}
        cluster.groups[name] = automatic_updates.planned(context.state, replace(group, spec=spec))


def _update_software(context: Context, cluster: Cluster, specs: Sequence[Json]) -> None:
    """Give existing nodes the image of their specification (Behaviour.update_cluster_re_images)."""
    if not context.state.behaviour.update_cluster_re_images:
        return
    for spec in specs:
        group = cluster.groups[spec["InstanceGroupName"]]
        old = any(
            node.group == group.name and not images.same(node.image, group.image) for node in cluster.nodes.values()
        )
        if old and group.update is None:
            software_update.begin(context.state, cluster, group.name, group.image, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _MinimumWait:
    """Whether the group waits for its minimum, until when, and the settings of a rollback."""

    awaiting: bool = False
    deadline: float | None = None
    good: Good | None = None


def _minimum_after(context: Context, cluster: Cluster, group: Group, target: int, minimum: int) -> _MinimumWait:
    """The group's wait for a minimum after this change.

    Every change of the minimum starts its 3 hours again. A minimum that was met has no effect until it is changed.
    """
    state = context.state
    if not cluster.continuous or running_in(cluster, group.name) >= minimum:
        return _MinimumWait()
    good = group.good if group.awaiting else Good(spec=group.spec, target=group.target, minimum=group.minimum)
    count_restarts = state.behaviour.count_change_restarts_minimum and target != group.target
    if minimum != group.minimum or (count_restarts and not group.awaiting):
        return _MinimumWait(awaiting=True, deadline=state.now + state.timings.minimum_limit, good=good)
    if group.awaiting:
        return _MinimumWait(awaiting=True, deadline=group.deadline, good=good)
    return _MinimumWait()


def _delete_group(context: Context, cluster: Cluster, group: Group) -> None:
    """Terminates all its instances.

    The group is deleted once they are ("Scale down a cluster", Delete instance groups).
    """
    state = context.state
    if group.status == "Deleting":
        return
    end(state, cluster, [n for n in cluster.nodes.values() if n.group == group.name and n.live], "group-deleted")
    cluster.groups[group.name] = replace(
        group, status="Deleting", awaiting=False, deadline=None, rolling=False, update=None
    )
    events.add(state, cluster, events.GROUP_STARTED, group=group.name, operation="deletion")


def _set_status(context: Context, cluster: Cluster) -> None:
    state = context.state
    if cluster.status == "Failed":
        # Failed is not final: an update tries again (hyperpod-mental-model.md). Nodes that never started are terminated
        # first.
        end(state, cluster, [node for node in cluster.nodes.values() if node.status == "Failure"], "failed")
    if not cluster.continuous:
        cluster.status, cluster.due = "Updating", state.now + state.timings.standard_capacity_wait
    elif not cluster.served:
        cluster.status, cluster.due = "Creating", None
    elif state.behaviour.continuous_update_shows_updating:
        cluster.status, cluster.due = "Updating", state.now + state.timings.update_settle
    else:
        cluster.status = "InService"
