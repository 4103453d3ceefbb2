"""Which nodes of a group would go, and in which order. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .actions import Pick, Reason
from .cluster import CONTROLLER, MOVING, Cluster, Desired, DesiredGroup, Group, Node, Occasion


@dataclass(frozen=True, slots=True)
class Need:
    """A live group that the file keeps, with its nodes and those of them to take."""

    group: Group
    wanted: DesiredGroup
    staying: list[Node]
    leaving: list[Node]
    named: list[Node]
    """Named nodes that are not shutting down."""
    named_leaving: bool
    controller: bool
    """HyperPod never deletes its nodes."""
    counted: bool
    """The cluster's own update, or its way back, sends a count of the group, which is no autoscaler's then."""
    picks: tuple[Pick, ...]
    fresh: frozenset[str]
    """Names of the nodes that came since the request began."""

    @property
    def booted(self) -> int:
        """Listed nodes that are past their boot, shutting down or not."""
        return len(self.leaving) + sum(node.status != "Pending" for node in self.staying)

    @property
    def old_picks(self) -> tuple[Pick, ...]:
        """Picks that were there when the request began."""
        return tuple(pick for pick in self.picks if pick.node.name not in self.fresh)

    @property
    def crowded(self) -> bool:
        """A controller group with more nodes than it should have, of which none can be taken."""
        return self.controller and len(self.staying) > self.wanted.count


def find_needs(live: Cluster, desired: Desired, occasion: Occasion) -> list[Need]:
    """Every live group that the file keeps. Groups of only one side need nothing here."""
    nodes = by_group(live)
    wanted = {group.name: group for group in desired.groups}
    names = frozenset(desired.nodes_to_delete)
    # An update of the cluster sends every group, and the way back does, too.
    sent = occasion.previous is None or not occasion.previous.same_cluster(desired)
    return [
        _need(group, wanted[group.name], nodes.get(group.name, []), names, occasion, sent=sent)
        for group in live.groups
        if group.name in wanted
    ]


def by_group(live: Cluster) -> dict[str, list[Node]]:
    """All nodes, group by group; a group without nodes is missing."""
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in live.nodes:
        groups[node.group].append(node)
    return groups


def _need(
    group: Group, wanted: DesiredGroup, nodes: list[Node], names: frozenset[str], occasion: Occasion, *, sent: bool
) -> Need:
    staying = [node for node in nodes if not node.leaving]
    leaving = [node for node in nodes if node.leaving]
    named = [node for node in staying if node.instance_id in names]
    fresh = _replacements(group.name, staying, occasion)
    controller = CONTROLLER in (group.fixed.node_type, wanted.fixed.node_type)
    if occasion.rolling_back:
        picks = [] if controller else _excess_of_rollback(staying, group, wanted.count, occasion)
    else:
        picks = [Pick(node=node, reason="named") for node in named]
        if not (wanted.autoscaled or controller):
            rest = [node for node in staying if node.instance_id not in names]
            picks += _unnamed(group.target, wanted.count, rest, fresh, occasion)
    return Need(
        group=group,
        wanted=wanted,
        staying=staying,
        leaving=leaving,
        named=named,
        named_leaving=any(node.instance_id in names for node in leaving),
        controller=controller,
        counted=sent or occasion.rolling_back or not wanted.autoscaled,
        picks=tuple(picks),
        fresh=fresh,
    )


def _unnamed(target: int, count: int, rest: list[Node], fresh: frozenset[str], occasion: Occasion) -> list[Pick]:
    """What a lowered count takes of the nodes that are not named."""
    before = [node for node in rest if node.name not in fresh]
    # Nodes that were there before: never more of them than live minus desired, whoever came since.
    # Those that the first look chose stay chosen: the list may show one that was taken as it was for a while.
    # Of the others, a node without jobs costs nobody anything.
    before.sort(key=lambda node: (node.name not in occasion.chosen, node.name in occasion.busy, _order(node)))
    taken = before[: max(0, len(before) - count)]
    # The service replaced what was taken, because its target has not fallen: the newcomers go, not older nodes.
    # With the target down they are its own business, such as the replacement of a faulty node.
    if target > count:
        newcomers = sorted((node for node in rest if node.name in fresh), key=_order)
        taken += newcomers[: max(0, len(rest) - len(taken) - count)]
    return [Pick(node=node, reason=_reason(node)) for node in taken]


def _replacements(group: str, staying: list[Node], occasion: Occasion) -> frozenset[str]:
    """Names of the nodes that came since the request began, most of them HyperPod's replacements.

    A node that is not launched yet has no time of its own. As many as there were at the first look, less those that were
    launched meanwhile, were there before, and the documented order applies to them; one is as good as another. So were those that the first look found just launched.
    """
    if occasion.rolling_back:
        # What a rollback takes is the failed update's, also what was launched since it was asked for.
        return frozenset()
    fresh = [node.name for node in staying if occasion.came_since(node)]
    waiting = sorted(node.name for node in staying if node.instance_id is None)
    earliest = occasion.first and occasion.unlaunched is None
    known = (occasion.unlaunched or {}).get(group, 0)
    before = len(waiting) if earliest else max(0, known - len(fresh))
    return frozenset([*fresh, *waiting[before:]])


def _reason(node: Node) -> Reason:
    if node.status == "Failure":
        return "failed"
    if node.instance_id is None:
        return "not yet launched"
    return "outdated image" if node.outdated else "newest"


_RANK: dict[Reason, int] = {"failed": 0, "not yet launched": 1, "outdated image": 2, "newest": 3}


def _order(node: Node) -> tuple[int, float, str]:
    """The fixed order in which unnamed nodes go: failed, not yet launched, outdated image, newest."""
    return (_RANK[_reason(node)], -_launch_time(node), node.name)


def _launch_time(node: Node) -> float:
    return node.launched.timestamp() if node.launched else 0.0


def _excess_of_rollback(staying: list[Node], group: Group, count: int, occasion: Occasion) -> list[Pick]:
    """The nodes above `count`, the newest first: those of the failed update go before any that was there before it, whether
    or not CloudFormation tells when it began. Of those, the ones that the first look chose stay chosen, as in an update. With
    more nodes than the target, some may be terminating: then only those of the failed update, and no more that are not launched
    yet than at the first look, since HyperPod asks for others in place of nodes that end."""

    def order(node: Node) -> tuple[bool, bool, float, str]:
        standing = occasion.of_failed_update(node) and node.name in occasion.chosen
        return not standing, node.instance_id is not None, -_launch_time(node), node.name

    def reason(node: Node) -> Reason:
        if node.instance_id is None:
            return "not yet launched"
        return "launched by the failed update" if occasion.of_failed_update(node) else "newest"

    excess = [
        Pick(node=node, reason=reason(node)) for node in sorted(staying, key=order)[: max(0, len(staying) - count)]
    ]
    if len(staying) <= group.target:
        return excess
    unlaunched = [pick for pick in excess if pick.reason == "not yet launched"]
    known = len(unlaunched) if occasion.unlaunched is None else occasion.unlaunched.get(group.name, 0)
    return [pick for pick in excess if pick.reason != "newest" and pick not in unlaunched[known:]]


def is_ahead(need: Need, occasion: Occasion) -> bool:
    """More nodes in the list than the target: the difference may be terminating, and no other node goes to make up for it."""
    if need.wanted.autoscaled and not occasion.rolling_back:
        return False  # Nodes of it go by name alone, and its autoscaler changes the target.
    if occasion.rolling_back and need.picks and not occasion.doubting:
        return False  # The difference stays. By now only nodes of the failed update are picked.
    return len(need.staying) > max(need.group.target, need.wanted.count)


def settled(live: Cluster, need: Need) -> bool:
    """Whether the group neither changes nor has nodes on their way out."""
    return (
        live.status not in MOVING
        and need.group.status not in MOVING
        and not need.leaving
        and need.group.current <= len(need.staying)
    )
