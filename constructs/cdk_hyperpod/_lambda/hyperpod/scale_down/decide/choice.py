"""Which nodes of a group are deleted, and in which order. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial

from ...kernel.cluster_reading import CONTROLLER, MOVING
from ..model.actions import Pick, Reason
from ..model.cluster import Cluster, Desired, DesiredGroup, Group, Node, RequestContext


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A live group that the file keeps, with its nodes and those to delete."""

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
    """The cluster's own update, or its rollback, sends a count of the group. Then no autoscaler owns it."""
    picks: tuple[Pick, ...]
    newcomers: frozenset[str]
    """Names of the nodes that came since the request began."""

    @property
    def booted(self) -> int:
        """Listed nodes that are past their boot, shutting down or not."""
        return len(self.leaving) + sum(node.status != "Pending" for node in self.staying)

    @property
    def picks_before_request(self) -> tuple[Pick, ...]:
        """Picks that were there when the request began."""
        return tuple(pick for pick in self.picks if pick.node.name not in self.newcomers)

    @property
    def crowded(self) -> bool:
        """A controller group with more nodes than it should have, of which none can be deleted."""
        return self.controller and len(self.staying) > self.wanted.count


def find_group_plans(live: Cluster, desired: Desired, context: RequestContext) -> list[GroupPlan]:
    """Every live group that the file keeps. Groups of only one side need nothing here."""
    nodes = by_group(live)
    wanted = {group.name: group for group in desired.groups}
    names = frozenset(desired.nodes_to_delete)
    # An update of the cluster sends every group, and so does its rollback.
    sent = context.previous is None or not context.previous.same_cluster(desired)
    return [
        _plan_group(group, wanted[group.name], nodes.get(group.name, []), names, context, sent=sent)
        for group in live.groups
        if group.name in wanted
    ]


def by_group(live: Cluster) -> dict[str, list[Node]]:
    """All nodes, group by group; a group without nodes is missing."""
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in live.nodes:
        groups[node.group].append(node)
    return groups


def _plan_group(
    group: Group, wanted: DesiredGroup, nodes: list[Node], names: frozenset[str], context: RequestContext, *, sent: bool
) -> GroupPlan:
    staying = [node for node in nodes if not node.leaving]
    leaving = [node for node in nodes if node.leaving]
    group_plan = GroupPlan(
        group=group,
        wanted=wanted,
        staying=staying,
        leaving=leaving,
        named=[node for node in staying if node.instance_id in names],
        named_leaving=any(node.instance_id in names for node in leaving),
        controller=CONTROLLER in (group.fixed.node_type, wanted.fixed.node_type),
        counted=sent or context.rolling_back or not wanted.autoscaled,
        picks=(),
        newcomers=_newcomers(group.name, staying, context),
    )
    picks = _picks_of_rollback(group_plan, context) if context.rolling_back else _picks_of_update(group_plan, context)
    return replace(group_plan, picks=tuple(picks))


# -- an update --------------------------------------------------------------------------------------------------------


def _picks_of_update(group_plan: GroupPlan, context: RequestContext) -> list[Pick]:
    """Named nodes, and, unless an autoscaler or HyperPod owns the count, those that a lower count deletes."""
    named = [Pick(node=node, reason="named") for node in group_plan.named]
    if group_plan.wanted.autoscaled or group_plan.controller:
        return named
    return named + [Pick(node=node, reason=_reason(node)) for node in _unnamed(group_plan, context)]


def _unnamed(group_plan: GroupPlan, context: RequestContext) -> list[Node]:
    """Which of the nodes that are not named a lower count deletes."""
    count = group_plan.wanted.count
    names = {node.instance_id for node in group_plan.named}
    rest = [node for node in group_plan.staying if node.instance_id not in names]
    older = [node for node in rest if node.name not in group_plan.newcomers]
    deleted = _excess(sorted(older, key=partial(_order_of_update, context=context)), len(older), count)
    if group_plan.group.target <= count:
        # Newcomers under a fallen target are HyperPod's own business, such as the replacement of a faulty node.
        return deleted
    # HyperPod replaced what was deleted, because its target has not fallen: the newcomers are deleted, and not older nodes.
    newcomers = [node for node in rest if node.name in group_plan.newcomers]
    return deleted + _excess(sorted(newcomers, key=_order), len(rest) - len(deleted), count)


def _excess(ordered: list[Node], running: int, count: int) -> list[Node]:
    """The first of these nodes, as many as `running` ones are above the count. Never more than live minus desired."""
    return ordered[: max(0, running - count)]


def _order_of_update(node: Node, context: RequestContext) -> tuple[bool, bool, bool, tuple[int, float, str]]:
    """Nodes that the first look chose come first: the list may still show one that was deleted as it was. Of the others, those that a
    patch holds come last, and nodes without jobs first."""
    return node.name not in context.chosen, node.name in context.patched, node.name in context.busy, _order(node)


def _order(node: Node) -> tuple[int, float, str]:
    """The documented order in which unnamed nodes are deleted: failed, not yet launched, outdated image, newest."""
    return _RANK[_reason(node)], -_launch_time(node), node.name


def _reason(node: Node) -> Reason:
    if node.status == "Failure":
        return "failed"
    if node.instance_id is None:
        return "not yet launched"
    if node.outdated:
        return "outdated image"
    return "newest"


_RANK: dict[Reason, int] = {"failed": 0, "not yet launched": 1, "outdated image": 2, "newest": 3}


def _launch_time(node: Node) -> float:
    return node.launched.timestamp() if node.launched else 0.0


def _newcomers(group: str, staying: list[Node], context: RequestContext) -> frozenset[str]:
    """Names of the nodes that came since the request began, most of them HyperPod's replacements.

    In a rollback there are none: it deletes what the failed update launched, also after the rollback began.
    """
    if context.rolling_back:
        return frozenset()
    launched = [node.name for node in staying if context.came_since(node)]
    unlaunched = sorted(node.name for node in staying if node.instance_id is None)
    deleted = _deleted_since(group, staying, context)
    older = _unlaunched_before(group, len(unlaunched), len(launched) + deleted, context)
    return frozenset([*launched, *unlaunched[older:]])


def _deleted_since(group: str, staying: list[Node], context: RequestContext) -> int:
    """How many nodes of the group, unlaunched when the request began and chosen by the first look, are not in the list any more.

    A node that was launched since has another name. The list still has its logical id, so it does not count as deleted.
    """
    listed = {node.name for node in staying} | {node.logical_id for node in staying}
    chosen = [name for name, of in context.chosen_unlaunched.items() if of == group]
    return sum(name not in listed for name in chosen)


def _unlaunched_before(group: str, unlaunched: int, fewer: int, context: RequestContext) -> int:
    """How many of the nodes that are not launched yet were there when the request began. `fewer`: how many were launched or
    deleted since.

    They have no time of their own. It is as many as at the first look, less these; which of them is the same, because one is
    as good as another. The documented order applies to them, and to those that the first look found just launched.
    """
    if context.first and context.unlaunched is None:
        return unlaunched
    known = (context.unlaunched or {}).get(group, 0)
    return max(0, known - fewer)


# -- a rollback -------------------------------------------------------------------------------------------------------


def _picks_of_rollback(group_plan: GroupPlan, context: RequestContext) -> list[Pick]:
    """The nodes above the count, those of the failed update first.

    With more nodes than the target, some may be terminating. Then only nodes of the failed update are deleted, and no
    unlaunched nodes that HyperPod requested since the first look.
    """
    if group_plan.controller:
        return []
    ordered = sorted(group_plan.staying, key=partial(_order_of_rollback, context=context))
    excess = [
        Pick(node=node, reason=_reason_of_rollback(node, context))
        for node in _excess(ordered, len(ordered), group_plan.wanted.count)
    ]
    if len(group_plan.staying) <= group_plan.group.target:
        return excess
    later = _later_unlaunched(group_plan.group, excess, context)
    return [pick for pick in excess if pick.reason != "newest" and pick not in later]


def _later_unlaunched(group: Group, excess: list[Pick], context: RequestContext) -> list[Pick]:
    """Nodes that are not launched yet, beyond as many as at the first look: HyperPod launches others in place of nodes that
    terminate."""
    if context.unlaunched is None:
        return []
    unlaunched = [pick for pick in excess if pick.reason == "not yet launched"]
    return unlaunched[context.unlaunched.get(group.name, 0) :]


def _order_of_rollback(node: Node, context: RequestContext) -> tuple[bool, bool, float, str]:
    """Nodes of the failed update that the first look chose, nodes that are not launched yet, and then the newest: so those of
    the failed update are deleted before any older one, whether or not CloudFormation reports when it began."""
    chosen = context.of_failed_update(node) and node.name in context.chosen
    return not chosen, node.instance_id is not None, -_launch_time(node), node.name


def _reason_of_rollback(node: Node, context: RequestContext) -> Reason:
    if node.instance_id is None:
        return "not yet launched"
    if context.of_failed_update(node):
        return "launched by the failed update"
    return "newest"


# -- the group as a whole ---------------------------------------------------------------------------------------------


def is_ahead(group_plan: GroupPlan, context: RequestContext) -> bool:
    """More nodes in the list than the target: the difference may be terminating, and no other node is deleted in its place."""
    if group_plan.wanted.autoscaled and not context.rolling_back:
        return False  # Only its named nodes are deleted, and its autoscaler changes the target.
    if context.rolling_back and group_plan.picks and not context.doubting:
        return False  # The difference stays. By now only nodes of the failed update are picked.
    return len(group_plan.staying) > max(group_plan.group.target, group_plan.wanted.count)


def settled(live: Cluster, group_plan: GroupPlan) -> bool:
    """Whether the group neither changes nor has terminating nodes."""
    return (
        live.status not in MOVING
        and group_plan.group.status not in MOVING
        and not group_plan.leaving
        and group_plan.group.current <= len(group_plan.staying)
    )
