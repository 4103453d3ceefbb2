"""The most nodes that HyperPod may believe a group has, and why. Pure.

An UpdateCluster with a lower count may make HyperPod terminate running nodes in place of nodes that are terminating already.
Whether it does is undocumented, so the guard sends no count below the worst case. Two reads show terminating nodes,
ListClusterNodes and CurrentCount, and nodes leave the first before they leave the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import messages
from ..model.actions import Wait
from ..model.cluster import RequestContext
from .choice import GroupPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to read the counts of a group in which nodes may be terminating: what HyperPod may count, term by term."""

    staying: int
    """Listed nodes that are not shutting down."""
    leaving: int
    """Listed nodes that are shutting down."""
    unlisted: int = 0
    """Nodes in CurrentCount that may have left the list, and may still be terminating."""
    replacements: int = 0
    """Nodes that TargetCount requests beyond the staying ones. They may be running, and not in the list yet."""
    wait: Wait
    """What the user reads if this case explains a wait."""

    @property
    def count(self) -> int:
        """The most nodes that HyperPod may believe the group has."""
        return self.staying + self.leaving + self.unlisted + self.replacements


def worst_case_count(group_plan: GroupPlan, context: RequestContext) -> int:
    """The most nodes that HyperPod may believe the group has while some of them may be terminating. 0: none may be."""
    return max((case.count for case in possible_cases(group_plan, context)), default=0)


def wait_before_count(group_plan: GroupPlan, context: RequestContext, count: int) -> Wait | None:
    """The wait before an UpdateCluster that carries `count`. None: HyperPod cannot mistake terminating nodes for too many."""
    if worst_case_count(group_plan, context) <= count:
        return None
    return next(case.wait for case in possible_cases(group_plan, context) if case.count > count)


def wait_while_terminating(group_plan: GroupPlan, context: RequestContext) -> Wait | None:
    """The wait until no node may be terminating, whatever the counts."""
    return next((case.wait for case in possible_cases(group_plan, context)), None)


def possible_cases(group_plan: GroupPlan, context: RequestContext) -> tuple[Case, ...]:
    """The cases that apply, in the order in which they explain a wait."""
    table = CASES_IN_DOUBT if context.doubting else CASES
    cases = (read(group_plan) for read in table)
    return tuple(case for case in cases if case is not None)


def listed_as_leaving(group_plan: GroupPlan) -> Case | None:
    """The list shows nodes that are shutting down. Their replacements may be running already."""
    leaving = len(group_plan.leaving)
    if leaving == 0:
        return None
    wait = messages.waits.shutting_down(group_plan.group.name, [node.name for node in group_plan.leaving])
    return Case(staying=len(group_plan.staying), leaving=leaving, replacements=_replacements(group_plan), wait=wait)


def counted_beyond_list(group_plan: GroupPlan) -> Case | None:
    """CurrentCount holds more nodes than the list: those that left the list may still be terminating."""
    return _beyond_list(group_plan, replacements=0)


def counted_beyond_list_with_replacements(group_plan: GroupPlan) -> Case | None:
    """The same. Whether CurrentCount holds replacements that are not listed yet is undocumented; here it does not."""
    return _beyond_list(group_plan, replacements=_replacements(group_plan))


def counted_beyond_booted(group_plan: GroupPlan) -> Case | None:
    """CurrentCount holds more nodes than have booted. Whether it holds nodes that boot is undocumented. If it does not, nodes
    are terminating although CurrentCount and the list agree."""
    unlisted = group_plan.group.current - group_plan.booted
    if unlisted <= 0:
        return None
    wait = messages.waits.maybe_counted(group_plan.group.name, group_plan.group.current, group_plan.booted)
    return Case(staying=len(group_plan.staying), leaving=len(group_plan.leaving), unlisted=unlisted, wait=wait)


def _beyond_list(group_plan: GroupPlan, *, replacements: int) -> Case | None:
    listed = len(group_plan.staying) + len(group_plan.leaving)
    unlisted = group_plan.group.current - listed
    if unlisted <= 0:
        return None
    wait = messages.waits.still_counted(group_plan.group.name, group_plan.group.current, listed)
    return Case(
        staying=len(group_plan.staying),
        leaving=len(group_plan.leaving),
        unlisted=unlisted,
        replacements=replacements,
        wait=wait,
    )


def _replacements(group_plan: GroupPlan) -> int:
    return max(0, group_plan.group.target - len(group_plan.staying))


CASES: tuple[Callable[[GroupPlan], Case | None], ...] = (
    listed_as_leaving,
    counted_beyond_list,
)
"""What the guard takes into account in any case."""

CASES_IN_DOUBT: tuple[Callable[[GroupPlan], Case | None], ...] = (
    listed_as_leaving,
    counted_beyond_list_with_replacements,
    counted_beyond_booted,
)
"""The same while the guard still waits for CurrentCount to drop (RequestContext.doubting)."""
