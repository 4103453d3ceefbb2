"""`plan(live, desired)`: what prepare does now. Pure, and linear in the nodes.

Every poll plans afresh from the live cluster, so a retry, a crash, a lost reply and a change by hand all take the same path.
Nodes that are shutting down are never counted as live. The number of nodes to delete is live minus desired, never target
minus desired: with capacity short, the latter deletes nodes that are needed. What must be true before nodes are deleted, or
a count is sent, is in conditions.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...kernel.owner import STACK_ID_TAG
from ...kernel.refuse import Refuse
from .. import messages
from ..model.actions import Change, DeleteGroup, DeleteNodes, Lower, Pick, Plan, Wait
from ..model.cluster import ANY_CLUSTER, FIRST, Cluster, Desired, RequestContext
from .choice import GroupPlan, by_group, find_group_plans, is_ahead
from .conditions import (
    BEFORE_COUNT_IS_SENT,
    BEFORE_GROUP_IS_DONE,
    BEFORE_NODES_ARE_DELETED,
    BEFORE_TARGET_IS_SENT,
    GroupView,
    first_unmet,
)
from .refusals import (
    dropped_patching_settings,
    forbidden,
    ids_not_in_cluster,
    lower_counts_of_autoscaled_groups,
    mistyped_ids,
    nodes_launched_again,
    over_limit,
    owned,
    re_imaged_groups,
    replacement,
    settings_of_newer_clusters,
    targets_that_stay,
)


def plan(live: Cluster | None, desired: Desired, context: RequestContext = FIRST) -> Plan:
    """What to do now, ahead of the cluster's own update. `live` None: there is no such cluster."""
    if context.rolling_back:
        return _plan_rollback(live, desired, context)
    if context.renamed_from is not None:
        return Plan(refusals=(messages.refusals.renamed(context.renamed_from, desired.cluster),))
    if live is None:
        return Plan()
    if not owned(live, desired):
        return Plan(refusals=(messages.refusals.not_ours(live.name, STACK_ID_TAG, desired.owner or ""),))
    group_plans = find_group_plans(live, desired, context)
    refusals = _refusals(live, desired, group_plans, context)
    if refusals:
        return Plan(refusals=refusals)
    unknown = ids_not_in_cluster(live, desired, context) if context.first else []
    return replace(
        _arrange(live, group_plans, context),
        groups_to_delete=tuple(_groups_to_delete(live, desired)),
        notes=(messages.notes.absent(unknown),) if unknown else (),
    )


def _refusals(
    live: Cluster, desired: Desired, group_plans: Sequence[GroupPlan], context: RequestContext
) -> tuple[Refuse, ...]:
    """Everything that forbids the deployment, in the order of a report."""
    return (
        *replacement(live, desired, context.previous),
        *forbidden(live, desired, group_plans, first=context.first),
        *lower_counts_of_autoscaled_groups(group_plans, context),
        *targets_that_stay(live, group_plans, context),
        *nodes_launched_again(group_plans, context),
        *mistyped_ids(live, desired, group_plans, context),
        *over_limit(live, desired, group_plans, context),
        *dropped_patching_settings(live, desired, context),
        *re_imaged_groups(live, desired, context),
        *settings_of_newer_clusters(live, desired),
    )


# -- changes and waits ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """What to do about one group now."""

    step: Change | Wait | None
    """None: nothing."""
    held: tuple[Pick, ...] = ()
    """Nodes of the group that are deleted later, and may be drained now."""


def _arrange(live: Cluster, group_plans: Sequence[GroupPlan], context: RequestContext) -> Plan:
    """One decision for each group, and of the changes those of one kind of call."""
    views = [GroupView(cluster=live, group_plan=group_plan, context=context) for group_plan in group_plans]
    # Should a list never meet its target, the deployment fails, and has deleted nothing. A rollback does what it can.
    may_delete = context.rolling_back or not any(_listed_above_target(view) for view in views)
    decisions = [_decide(view, may_delete=may_delete) for view in views]
    steps = [decision.step for decision in decisions]
    waits = [step for step in steps if isinstance(step, Wait)]
    held = [pick for decision in decisions for pick in decision.held]
    return Plan(
        changes=_of_one_kind(steps, counts_first=context.minimum_blocks),
        waits=tuple(dict.fromkeys(waits)),
        held=tuple(held),
    )


def _decide(view: GroupView, *, may_delete: bool) -> GroupDecision:
    group_plan = view.group_plan
    if group_plan.crowded:
        return GroupDecision(messages.waits.controller_replaced(group_plan.group.name, len(group_plan.staying)))
    if _listed_above_target(view):
        wait = messages.waits.ahead_of_target(group_plan.group.name, view.staying, group_plan.group.target)
        return GroupDecision(wait, held=_surely_deleted(view))
    if not group_plan.picks:
        return GroupDecision(_settle(view))
    step = _delete_nodes(view)
    if not isinstance(step, DeleteNodes):
        return GroupDecision(step, held=group_plan.picks)
    if not may_delete:
        return GroupDecision(None, held=group_plan.picks)
    return GroupDecision(step)


def _listed_above_target(view: GroupView) -> bool:
    return not view.group_plan.crowded and is_ahead(view.group_plan, view.context)


def _surely_deleted(view: GroupView) -> tuple[Pick, ...]:
    """Named nodes, and those of the first look. Whether the others have to be deleted is unknown, so they are not even drained."""
    chosen = view.context.chosen
    return tuple(pick for pick in view.group_plan.picks if pick.reason == "named" or pick.node.name in chosen)


def _of_one_kind(steps: Sequence[Change | Wait | None], *, counts_first: bool) -> tuple[Change, ...]:
    """The changes of one kind of call: deletions if there are any, unless HyperPod rejects them and a count may help."""
    deletions = tuple(step for step in steps if isinstance(step, DeleteNodes))
    counts = tuple(step for step in steps if isinstance(step, Lower))
    return (counts or deletions) if counts_first else (deletions or counts)


def _delete_nodes(view: GroupView) -> Change | Wait:
    """What to do about a group of which nodes are to be deleted."""
    unmet = first_unmet(BEFORE_NODES_ARE_DELETED, view)
    if unmet is not None:
        return unmet
    minimum = view.wanted.minimum if view.falls_below_minimum else None
    return DeleteNodes(group=view.group.name, picks=_next_picks(view), minimum=minimum)


def _next_picks(view: GroupView) -> tuple[Pick, ...]:
    """The first look deletes nothing and reports all nodes. After it, nodes that were there before are deleted before the others."""
    if view.context.first or not view.group_plan.picks_before_request:
        return view.group_plan.picks
    return view.group_plan.picks_before_request


def _settle(view: GroupView) -> Change | Wait | None:
    """What to do about a group of which no node is to be deleted (any more). None: it is done."""
    unmet = first_unmet(BEFORE_COUNT_IS_SENT, view)
    if unmet is not None:
        return unmet
    if view.target_is_high:
        return _lower_target(view)
    return first_unmet(BEFORE_GROUP_IS_DONE, view)


def _lower_target(view: GroupView) -> Change | Wait | None:
    """Lower a target that has not fallen with its nodes. None: nothing can be sent, and waiting has not helped."""
    unmet = first_unmet(BEFORE_TARGET_IS_SENT, view)
    if unmet is not None:
        return unmet
    if view.spec is None:
        return None
    minimum = min(view.group.minimum, view.wanted.minimum)
    return Lower(group=view.group.name, count=view.wanted.count, minimum=minimum, spec=view.spec)


def _groups_to_delete(live: Cluster, desired: Desired) -> Iterator[DeleteGroup]:
    nodes = by_group(live)
    for group in live.groups:
        if group.name in desired.groups_to_delete and group.status != "Deleting":
            yield DeleteGroup(group=group.name, nodes=sum(not node.leaving for node in nodes.get(group.name, [])))


# -- rollback ---------------------------------------------------------------------------------------------------------


def _plan_rollback(live: Cluster | None, desired: Desired, context: RequestContext) -> Plan:
    """Delete what the failed update added, before the rollback of the cluster itself, which would terminate nodes at random.

    A refusal ends in UPDATE_ROLLBACK_FAILED. One is for nodes to delete in a cluster of which it is unknown whether CloudFormation
    rolls it back, the other for nodes that would get another image.
    """
    if live is None:
        return Plan()
    if not owned(live, desired):
        return Plan(notes=(messages.notes.NOT_OURS,))
    if _not_reached(live, context):
        return Plan(notes=(messages.notes.NOT_REACHED,))
    if re_images := tuple(re_imaged_groups(live, desired, context)):
        return Plan(refusals=re_images)
    group_plans = find_group_plans(live, replace(desired, nodes_to_delete=()), context)
    found = _arrange(live, [group_plan for group_plan in group_plans if not _keeps_controllers(group_plan)], context)
    if context.reached is None and (found.changes or found.held):
        # If the cluster is not sent back, some of these nodes were there before. If it is, nodes end at random without this.
        return Plan(refusals=(messages.refusals.NOT_KNOWN,))
    excess = [
        messages.notes.controller_excess(group_plan.group.name)
        for group_plan in group_plans
        if _keeps_controllers(group_plan)
    ]
    return replace(found, notes=(*_left_behind(live, desired), *excess))


def _not_reached(live: Cluster, context: RequestContext) -> bool:
    """Whether the failed update did not get to the cluster: CloudFormation does not send it back, so nothing is to be undone."""
    if context.reached is None:
        return False
    return context.reached.isdisjoint({live.arn, live.name, ANY_CLUSTER})


def _keeps_controllers(group_plan: GroupPlan) -> bool:
    """Whether the group keeps more controllers than its count, because HyperPod deletes none. With a lower target it is
    HyperPod that replaces one."""
    return group_plan.crowded and group_plan.group.target > group_plan.wanted.count


def _left_behind(live: Cluster, desired: Desired) -> Iterator[str]:
    """Groups that neither the template before nor this rollback names."""
    known = {group.name for group in desired.groups} | set(desired.groups_to_delete)
    nodes = by_group(live)
    for group in live.groups:
        if group.name not in known:
            yield messages.notes.left_behind(group.name, len(nodes.get(group.name, [])))
