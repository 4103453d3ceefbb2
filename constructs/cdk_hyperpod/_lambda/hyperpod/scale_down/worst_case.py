"""The most nodes that HyperPod may believe a group has, and why. Pure.

An UpdateCluster with a lower count may make HyperPod terminate running nodes in place of nodes that are terminating already.
Whether it does is undocumented, so the guard sends no count below the worst case. Two reads show terminating nodes,
ListClusterNodes and CurrentCount, and nodes leave the first before they leave the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import messages
from .actions import Wait
from .choice import Need
from .cluster import Occasion


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
    """Nodes that TargetCount asks for beyond the staying ones. They may be running, and not in the list yet."""
    wait: Wait
    """What the user reads if this case explains a wait."""

    @property
    def count(self) -> int:
        """The most nodes that HyperPod may believe the group has."""
        return self.staying + self.leaving + self.unlisted + self.replacements


def worst_case_count(need: Need, request: Occasion) -> int:
    """The most nodes that HyperPod may believe the group has while some of them may be terminating. 0: none may be."""
    return max((case.count for case in possible_cases(need, request)), default=0)


def wait_before_count(need: Need, request: Occasion, count: int) -> Wait | None:
    """The wait before an UpdateCluster that carries `count`. None: HyperPod cannot mistake terminating nodes for too many."""
    if worst_case_count(need, request) <= count:
        return None
    return next(case.wait for case in possible_cases(need, request) if case.count > count)


def wait_while_terminating(need: Need, request: Occasion) -> Wait | None:
    """The wait until no node may be terminating, whatever the counts."""
    return next((case.wait for case in possible_cases(need, request)), None)


def possible_cases(need: Need, request: Occasion) -> tuple[Case, ...]:
    """The cases that apply, in the order in which they explain a wait."""
    table = CASES_IN_DOUBT if request.doubting else CASES
    cases = (read(need) for read in table)
    return tuple(case for case in cases if case is not None)


def listed_as_leaving(need: Need) -> Case | None:
    """The list shows nodes that are shutting down. Their replacements may be running already."""
    leaving = len(need.leaving)
    if leaving == 0:
        return None
    wait = messages.shutting_down(need.group.name, [node.name for node in need.leaving])
    return Case(staying=len(need.staying), leaving=leaving, replacements=_replacements(need), wait=wait)


def counted_beyond_list(need: Need) -> Case | None:
    """CurrentCount holds more nodes than the list: those that left the list may still be terminating."""
    return _beyond_list(need, replacements=0)


def counted_beyond_list_with_replacements(need: Need) -> Case | None:
    """The same. Whether CurrentCount holds replacements that are not listed yet is undocumented; here it does not."""
    return _beyond_list(need, replacements=_replacements(need))


def counted_beyond_booted(need: Need) -> Case | None:
    """CurrentCount holds more nodes than have booted. Whether it holds nodes that boot is undocumented. If it does not, nodes
    are terminating although CurrentCount and the list agree."""
    unlisted = need.group.current - need.booted
    if unlisted <= 0:
        return None
    wait = messages.maybe_counted(need.group.name, need.group.current, need.booted)
    return Case(staying=len(need.staying), leaving=len(need.leaving), unlisted=unlisted, wait=wait)


def _beyond_list(need: Need, *, replacements: int) -> Case | None:
    listed = len(need.staying) + len(need.leaving)
    unlisted = need.group.current - listed
    if unlisted <= 0:
        return None
    wait = messages.still_counted(need.group.name, need.group.current, listed)
    return Case(
        staying=len(need.staying),
        leaving=len(need.leaving),
        unlisted=unlisted,
        replacements=replacements,
        wait=wait,
    )


def _replacements(need: Need) -> int:
    return max(0, need.group.target - len(need.staying))


CASES: tuple[Callable[[Need], Case | None], ...] = (
    listed_as_leaving,
    counted_beyond_list,
)
"""What the guard takes into account in any case."""

CASES_IN_DOUBT: tuple[Callable[[Need], Case | None], ...] = (
    listed_as_leaving,
    counted_beyond_list_with_replacements,
    counted_beyond_booted,
)
"""The same for as long as a count that may mean nothing is worth a wait (Occasion.doubting)."""
