"""Why a deployment must not go on, given the live cluster: names, counts, images, limits, and fields that cannot change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ...kernel.cluster_reading import CONTROLLER
from ...kernel.images import (
    IMAGE_SETTINGS,
    UNKNOWN,
    VERSIONED,
    VERSIONED_SINCE,
    ReImaged,
    Spec,
    is_older,
    is_release,
    re_imaged,
)
from ...kernel.owner import OWNER_TAGS
from ...kernel.refuse import Refuse
from .. import messages
from ..model.cluster import (
    PATCHING_SETTINGS,
    Cluster,
    Desired,
    DesiredGroup,
    Fixed,
    Group,
    Network,
    Node,
    RequestContext,
)
from .choice import GroupPlan, by_group, is_ahead, settled

CHASE = timedelta(minutes=10)
"""How long after its request, or after nodes were drained for it, a node that was launched may be the first replacement of a
deleted node."""


def owned(live: Cluster, desired: Desired) -> bool:
    """Whether the live cluster is this stack's, as far as its tags were read and there is a stack to compare with."""
    if desired.owner is None or live.tags is None:
        return True
    return any(live.tags.get(tag) == desired.owner for tag in OWNER_TAGS)


def replacement(live: Cluster, desired: Desired, previous: Desired | None) -> Iterator[Refuse]:
    """Create-only properties of AWS::SageMaker::Cluster: ClusterName, VpcConfig and Orchestrator/Eks."""
    if not desired.create_only:
        return
    if desired.eks_cluster != live.eks_cluster:
        yield messages.refusals.replaced("orchestrator")
    elif desired.network is not None and desired.network != live.network:
        yield messages.refusals.replaced("network")
    elif previous is not None and previous.create_only not in ("", desired.create_only):
        # CloudFormation compares texts: the same subnets in another order are a replacement, too.
        yield messages.refusals.replaced("network")


def re_imaged_groups(live: Cluster, desired: Desired, context: RequestContext) -> Iterator[Refuse]:
    """The groups whose nodes CloudFormation's own update would give another image."""
    if context.previous is not None and context.previous.same_cluster(desired):
        return
    specs = [group.spec for group in desired.groups]
    if not any(spec.get(setting) for spec in (*specs, *(context.deployed or ())) for setting in IMAGE_SETTINGS):
        return
    shown = [group.image for group in live.groups]
    for found in re_imaged(specs, shown, context.deployed, _shown_nodes(live)):
        if found.live == UNKNOWN:
            unknown = (
                messages.refusals.rollback_image_unknown if context.rolling_back else messages.refusals.image_unknown
            )
            yield unknown(found)
        elif context.rolling_back:
            yield messages.refusals.rollback_re_images(found, _named(found))
        elif is_older(found.wanted, found.live):
            yield messages.refusals.re_imaged_to_older(found)
        else:
            yield messages.refusals.re_imaged(found, _option(found, specs, shown))


def _shown_nodes(live: Cluster) -> list[dict[str, str | None]]:
    """As ListClusterNodes shows them, as far as the comparison reads them."""
    return [
        {"InstanceGroupName": node.group, "CurrentImageReleaseVersion": node.release}
        for node in live.nodes
        if node.is_there
    ]


def _option(found: ReImaged, specs: Sequence[Spec], shown: Sequence[Spec]) -> str:
    """What `cdk-hyperpod patch` needs besides the group, if it would find no difference between the file and the nodes."""
    if any(each.group == found.group for each in re_imaged(specs, shown)):
        return ""
    return _named(found)


def _named(found: ReImaged) -> str:
    return f" --release {found.wanted}" if is_release(found.wanted) else f" --image-id {found.wanted}"


def settings_of_newer_clusters(live: Cluster, desired: Desired) -> Iterator[Refuse]:
    """Settings that an older cluster under EKS does not have ("SageMaker HyperPod AMI automatic patching")."""
    if live.eks_cluster is None or live.created is None or live.created >= VERSIONED_SINCE:
        return
    for group in desired.groups:
        for name, setting in VERSIONED.items():
            if group.spec.get(name):
                yield messages.refusals.patching_needs_newer_cluster(group.name, setting, f"{live.created:%Y-%m-%d}")


def forbidden(live: Cluster, desired: Desired, group_plans: Sequence[GroupPlan], *, first: bool) -> Iterator[Refuse]:
    """What names, groups and immutable fields forbid. `first`: nothing was deleted for this request yet."""
    yield from _forbidden_groups(live, desired)
    groups = {group.name for group in live.groups}
    names = frozenset(desired.nodes_to_delete)
    for node in live.nodes:
        if node.instance_id in names and not node.leaving and node.group not in groups:
            yield messages.refusals.named_elsewhere(node.name, node.group)
    for group_plan in group_plans:
        yield from check_group(group_plan.group, group_plan.wanted, live)
        yield from _forbidden_names(group_plan, first=first)


def _forbidden_groups(live: Cluster, desired: Desired) -> Iterator[Refuse]:
    yield from _unknown_groups(live, desired)
    wanted = {group.name for group in desired.groups}
    if desired.groups_to_delete and wanted <= set(desired.groups_to_delete):
        yield messages.refusals.last_group(desired.groups_to_delete)
        return
    controllers = {group.name for group in live.groups if group.fixed.node_type == CONTROLLER}
    for name in desired.groups_to_delete:
        if name in wanted:
            yield messages.refusals.kept_group(name)
        elif name in controllers:
            yield messages.refusals.controller_group(name)


def _unknown_groups(live: Cluster, desired: Desired) -> Iterator[Refuse]:
    """Live groups that the deployment neither keeps nor deletes."""
    known = {group.name for group in desired.groups} | set(desired.groups_to_delete)
    nodes = by_group(live)
    for group in live.groups:
        if group.name not in known and group.status != "Deleting":
            yield messages.refusals.unknown_group(group.name, len(nodes.get(group.name, [])))


def _forbidden_names(group_plan: GroupPlan, *, first: bool) -> Iterator[Refuse]:
    if group_plan.controller:
        yield from _forbidden_controllers(group_plan)
    elif first and not group_plan.wanted.autoscaled:
        yield from _names_beyond_count(group_plan)


def _forbidden_controllers(group_plan: GroupPlan) -> Iterator[Refuse]:
    for node in group_plan.named:
        yield messages.refusals.named_controller(node.name, group_plan.group.name)
    # If the target is not above the count, it is HyperPod that replaces a controller.
    if not group_plan.named and group_plan.crowded and group_plan.group.target > group_plan.wanted.count:
        yield messages.refusals.controller_count(
            group_plan.group.name, len(group_plan.staying), group_plan.wanted.count
        )


def _names_beyond_count(group_plan: GroupPlan) -> Iterator[Refuse]:
    """More named nodes than the lower count deletes."""
    most, count = max(group_plan.group.target, len(group_plan.staying)), group_plan.wanted.count
    if len(group_plan.named) > max(0, most - count):
        yield messages.refusals.beyond_count(group_plan.group.name, len(group_plan.named), most, count)


def lower_counts_of_autoscaled_groups(group_plans: Sequence[GroupPlan], context: RequestContext) -> Iterator[Refuse]:
    """Autoscaled groups whose lower count the cluster's own update would send, with every group, whatever changed in it."""
    for group_plan in group_plans:
        if not group_plan.wanted.autoscaled or not group_plan.counted:
            continue
        held = _held_by_autoscaler(group_plan, context)
        if group_plan.wanted.count < held:
            yield messages.refusals.autoscaled_count(group_plan.group.name, held, group_plan.wanted.count)


def _held_by_autoscaler(group_plan: GroupPlan, context: RequestContext) -> int:
    """How many nodes the autoscaler holds, without those that this deployment deletes.

    While nodes are terminating, however long they take, only nodes count: the target may fall with them yet.
    """
    falling = not context.first and (context.young or bool(group_plan.leaving))
    target = 0 if falling else group_plan.group.target
    return max(target, len(group_plan.staying)) - len(group_plan.picks)


def targets_that_stay(live: Cluster, group_plans: Sequence[GroupPlan], context: RequestContext) -> Iterator[Refuse]:
    """Standard provisioning: a target above the count that nothing but a random choice could lower."""
    if live.continuous:
        return
    for group_plan in group_plans:
        group, count = group_plan.group, group_plan.wanted.count
        if group_plan.wanted.autoscaled or group.target <= count:
            continue
        if _launched_instead(group_plan, context) or _has_not_fallen(live, group_plan, context):
            yield messages.refusals.target_stays(group.name, group.target, len(group_plan.staying), count)


def _launched_instead(group_plan: GroupPlan, context: RequestContext) -> bool:
    """Whether HyperPod launches others in place of what was deleted: more nodes came than there were requests at the first
    look, and only those are left to delete."""
    if context.first or not group_plan.picks or group_plan.picks_before_request:
        return False
    requested = (context.unlaunched or {}).get(group_plan.group.name, 0)
    return len(group_plan.newcomers) > requested


def _has_not_fallen(live: Cluster, group_plan: GroupPlan, context: RequestContext) -> bool:
    """Whether the target stayed up although all nodes were deleted and the group does not change any more."""
    return not group_plan.picks and not context.young and settled(live, group_plan)


def nodes_launched_again(group_plans: Sequence[GroupPlan], context: RequestContext) -> Iterator[Refuse]:
    """Groups of which only replacements are left to delete, also some that replace replacements: their target does not fall,
    and deleting them would never end."""
    if context.began is None:
        return
    since = context.began + CHASE + context.drained_within
    for group_plan in group_plans:
        again = any(pick.node.launched is not None and pick.node.launched > since for pick in group_plan.picks)
        if again and not group_plan.picks_before_request and not group_plan.leaving:
            yield messages.refusals.launched_again(
                group_plan.group.name, group_plan.group.target, group_plan.wanted.count
            )


def ids_not_in_cluster(live: Cluster, desired: Desired, context: RequestContext) -> list[str]:
    """Named ids that are not nodes of the cluster, and that were not deployed before."""
    here = {node.instance_id for node in live.nodes} | (context.deployed_ids or frozenset())
    return [each for each in desired.nodes_to_delete if each not in here]


def mistyped_ids(
    live: Cluster, desired: Desired, group_plans: Sequence[GroupPlan], context: RequestContext
) -> Iterator[Refuse]:
    """New ids that are not nodes of the cluster, while the count would delete others: a typing error must not cost another node."""
    if not context.first or context.deployed_ids is None:
        return
    going = Counter(
        pick.node.group for group_plan in group_plans for pick in group_plan.picks if pick.reason != "named"
    )
    if going and (unknown := ids_not_in_cluster(live, desired, context)):
        yield messages.refusals.not_here(unknown, going)


def over_limit(
    live: Cluster, desired: Desired, group_plans: Sequence[GroupPlan], context: RequestContext
) -> Iterator[Refuse]:
    """More nodes than max_nodes, those of groups to delete included."""
    deleted = [*_surely_picked(group_plans, context), *_nodes_of_groups_to_delete(live, desired)]
    count = sum(_is_protected(node, context) for node in deleted)
    if count > desired.max_nodes:
        yield messages.refusals.too_many(count, desired.max_nodes)


def _surely_picked(group_plans: Sequence[GroupPlan], context: RequestContext) -> Iterator[Node]:
    """The nodes that this deployment deletes. If a list is above its target, only named ones are certain to be deleted."""
    for group_plan in group_plans:
        named_alone = is_ahead(group_plan, context)
        for pick in group_plan.picks:
            if pick.reason == "named" or not named_alone:
                yield pick.node


def _nodes_of_groups_to_delete(live: Cluster, desired: Desired) -> Iterator[Node]:
    """The nodes of groups that this deployment deletes. A group that is Deleting already was another request's."""
    names = set(desired.groups_to_delete) - {group.name for group in desired.groups}
    deleted = {group.name for group in live.groups if group.name in names and group.status != "Deleting"}
    for node in live.nodes:
        if node.group in deleted and not node.leaving:
            yield node


def _is_protected(node: Node, context: RequestContext) -> bool:
    """Whether the limit counts the node. It does not count replacements that came since the first look, launched or not."""
    if context.first:
        return True
    return node.launched is not None and not context.came_since(node)


def dropped_patching_settings(live: Cluster, desired: Desired, context: RequestContext) -> Iterator[Refuse]:
    """The live settings that the cluster's own update would turn off, because its template does not have them."""
    if context.previous is not None and context.previous.same_cluster(desired):
        return
    specs = {group.name: group.spec for group in desired.groups}
    for name in PATCHING_SETTINGS:
        groups = [
            group.name
            for group in live.groups
            if name in group.patching
            and group.name in specs
            and not specs[group.name].get(name)
            and group.name not in desired.patching_off.get(name, ())
        ]
        if groups:
            yield messages.refusals.patching_dropped(groups, name)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of a group, as the user reads it."""

    live: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Immutable:
    """A field that only a new group can have with another value. `difference` gives None if both sides agree, or if one of them is
    unknown: an unknown value is no reason to refuse a deployment."""

    field: str
    difference: Callable[[Group, DesiredGroup, Cluster], Difference | None]


def _types(live: Group, wanted: DesiredGroup, _: Cluster) -> Difference | None:
    have, want = live.fixed, wanted.fixed
    if not have.instance_types or not want.instance_types:
        return None
    if have.flexible and want.flexible:
        return _flexible_types(live, want)
    if have.flexible == want.flexible and have.instance_types == want.instance_types:
        return None
    return Difference(live=_list(have), wanted=_list(want))


def _flexible_types(live: Group, want: Fixed) -> Difference | None:
    """A flexible group may change its list, as long as it keeps each type of which it has nodes."""
    lost = live.types_in_use - set(want.instance_types)
    if not lost:
        return None
    return Difference(live=f"{_list(live.fixed)} with nodes of {', '.join(sorted(lost))}", wanted=_list(want))


def _list(fixed: Fixed) -> str:
    text = ", ".join(fixed.instance_types)
    return f"[{text}]" if fixed.flexible else text


def _network(live: Group, wanted: DesiredGroup, cluster: Cluster) -> Difference | None:
    # Whether DescribeCluster repeats the cluster's network in each group is undocumented, so both sides fall back to it.
    have = live.fixed.network or cluster.network
    want = wanted.fixed.network or cluster.network
    if have == want:
        return None
    return Difference(live=_place(have), wanted=_place(want))


def _place(network: Network | None) -> str:
    if network is None:
        return "HyperPod's own network"
    return " ".join([*sorted(network.subnets), *sorted(network.security_groups)])


def _differ(have: object, want: object) -> Difference | None:
    if have is None or want is None or have == want:
        return None
    return Difference(live=str(have), wanted=str(want))


IMMUTABLE = (
    Immutable(field="instance_type", difference=_types),
    Immutable(field="node_type", difference=lambda live, want, _: _differ(live.fixed.node_type, want.fixed.node_type)),
    Immutable(
        field="execution_role",
        difference=lambda live, want, _: _differ(live.fixed.execution_role, want.fixed.execution_role),
    ),
    Immutable(field="availability_zone", difference=_network),
    Immutable(
        field="threads_per_core",
        difference=lambda live, want, _: _differ(live.fixed.threads_per_core, want.fixed.threads_per_core),
    ),
)
"""The fields of a live group that cannot change. Source: "Update a SageMaker HyperPod cluster"."""


def check_group(live: Group, wanted: DesiredGroup, cluster: Cluster) -> Iterator[Refuse]:
    """Every immutable field of one group that the deployment would change."""
    for policy in IMMUTABLE:
        found = policy.difference(live, wanted, cluster)
        if found is not None:
            yield messages.refusals.immutable(live.name, policy.field, found.live, found.wanted)
