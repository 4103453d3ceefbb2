"""What a deployment must not go on with, looked at together with the live cluster. Pure; refusals only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from ..common.owner import OWNER_TAGS
from ..common.refuse import Refuse
from . import messages
from .choice import Need, by_group, is_ahead, settled
from .cluster import CONTROLLER, Cluster, Desired, Occasion
from .policy import check_group

CHASE = timedelta(minutes=10)
"""How long after its request, or after nodes were drained for it, a node that was launched may be the first replacement of one
that was taken."""


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
        yield messages.replaced("orchestrator")
    elif desired.network is not None and desired.network != live.network:
        yield messages.replaced("network")
    elif previous is not None and previous.create_only not in ("", desired.create_only):
        # CloudFormation compares texts: the same subnets in another order are a replacement, too.
        yield messages.replaced("network")


def forbidden(live: Cluster, desired: Desired, needs: Sequence[Need], *, first: bool) -> Iterator[Refuse]:
    """What names, groups and immutable fields forbid. `first`: nothing has been taken for this request yet."""
    yield from _forbidden_groups(live, desired)
    groups = {group.name for group in live.groups}
    names = frozenset(desired.nodes_to_delete)
    for node in live.nodes:
        if node.instance_id in names and not node.leaving and node.group not in groups:
            yield messages.named_elsewhere(node.name, node.group)
    for need in needs:
        yield from check_group(need.group, need.wanted, live)
        yield from _forbidden_names(need, first=first)


def _forbidden_groups(live: Cluster, desired: Desired) -> Iterator[Refuse]:
    groups = {group.name: group for group in live.groups}
    wanted = {group.name for group in desired.groups}
    doomed = set(desired.groups_to_delete)
    nodes = by_group(live)
    for group in live.groups:
        if group.name not in wanted | doomed and group.status != "Deleting":
            yield messages.unknown_group(group.name, len(nodes.get(group.name, [])))
    if doomed and not wanted - doomed:
        yield messages.last_group(desired.groups_to_delete)
        return
    for name in desired.groups_to_delete:
        if name in wanted:
            yield messages.kept_group(name)
        elif name in groups and groups[name].fixed.node_type == CONTROLLER:
            yield messages.controller_group(name)


def _forbidden_names(need: Need, *, first: bool) -> Iterator[Refuse]:
    if need.controller:
        for node in need.named:
            yield messages.named_controller(node.name, need.group.name)
        # With a target that is none too high, it is HyperPod that replaces a controller.
        if not need.named and need.crowded and need.group.target > need.wanted.count:
            yield messages.controller_count(need.group.name, len(need.staying), need.wanted.count)
    elif first and not need.wanted.autoscaled:
        most = max(need.group.target, len(need.staying))
        if len(need.named) > max(0, most - need.wanted.count):
            yield messages.beyond_count(need.group.name, len(need.named), most, need.wanted.count)


def resent(needs: Sequence[Need], occasion: Occasion) -> Iterator[Refuse]:
    """Autoscaled groups whose lower count the cluster's own update would send, with every group, whatever changed in it."""
    for need in needs:
        # While nodes are going, however long they take, only nodes count: the target may fall with them yet.
        falling = not occasion.first and (occasion.young or bool(need.leaving))
        held = max(0 if falling else need.group.target, len(need.staying)) - len(need.picks)
        if need.wanted.autoscaled and need.counted and need.wanted.count < held:
            yield messages.autoscaled_count(need.group.name, held, need.wanted.count)


def stuck(live: Cluster, needs: Sequence[Need], occasion: Occasion) -> Iterator[Refuse]:
    """Standard provisioning: a target above the count that nothing but a random choice could lower."""
    if live.continuous:
        return
    for need in needs:
        group, count = need.group, need.wanted.count
        high = not need.wanted.autoscaled and group.target > count
        # More came than there were requests at the first look: HyperPod launches others in place of what was taken.
        replaced = not occasion.first and len(need.fresh) > (occasion.unlaunched or {}).get(group.name, 0)
        comes_back = replaced and need.picks and not need.old_picks
        if high and (comes_back or (not need.picks and settled(live, need) and not occasion.young)):
            yield messages.target_stays(group.name, group.target, len(need.staying), count)


def chased(needs: Sequence[Need], occasion: Occasion) -> Iterator[Refuse]:
    """Groups of which nothing but replacements is left to take, also some that replace replacements: their target does not
    fall, and taking them would go on for ever."""
    for need in needs:
        since = occasion.began + CHASE + occasion.drained_within if occasion.began else None
        again = [pick for pick in need.picks if pick.node.launched and since and pick.node.launched > since]
        if again and not (need.old_picks or need.leaving):
            yield messages.launched_again(need.group.name, need.group.target, need.wanted.count)


def absent(live: Cluster, desired: Desired, occasion: Occasion) -> list[str]:
    """Named ids that are no node of the cluster, and that were not deployed before."""
    here = {node.instance_id for node in live.nodes} | (occasion.deployed_ids or frozenset())
    return [each for each in desired.nodes_to_delete if each not in here]


def mistaken(live: Cluster, desired: Desired, needs: Sequence[Need], occasion: Occasion) -> Iterator[Refuse]:
    """New ids that are no node of the cluster, while others would go by count: a typing error must not cost another node."""
    if not occasion.first or occasion.deployed_ids is None:
        return
    going = Counter(pick.node.group for need in needs for pick in need.picks if pick.reason != "named")
    if going and (unknown := absent(live, desired, occasion)):
        yield messages.not_here(unknown, going)


def over_limit(live: Cluster, desired: Desired, needs: Sequence[Need], occasion: Occasion) -> Iterator[Refuse]:
    """More nodes than max_nodes, those of groups to delete included."""
    doomed = set(desired.groups_to_delete) - {group.name for group in desired.groups}
    going = {group.name for group in live.groups if group.name in doomed and group.status != "Deleting"}
    # Of more nodes than the target, only named ones surely go.
    picked = [
        pick.node for need in needs for pick in need.picks if pick.reason == "named" or not is_ahead(need, occasion)
    ]
    total = [*picked, *(node for node in live.nodes if node.group in going and not node.leaving)]
    # Replacements that came meanwhile, launched or not, are none of the nodes that the limit protects.
    count = sum(occasion.first or not (node.launched is None or occasion.came_since(node)) for node in total)
    if count > desired.max_nodes:
        yield messages.too_many(count, desired.max_nodes)
