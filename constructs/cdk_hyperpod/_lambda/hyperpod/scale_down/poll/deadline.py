"""What a request ends with when its time is up, shortly before CloudFormation's own limit. RULES are tried in their order."""

from __future__ import annotations

from collections.abc import Callable

from .. import messages
from ..drain.readiness import DEADLINE
from ..messages.failures import Deleted, StayingTarget
from ..model.cluster import Cluster
from ..model.properties import FINALIZE
from . import finalize, prepare
from .draining import release
from .poll import Again, Done, Failed, Poll


def has_passed(poll: Poll) -> bool:
    """Whether the time is up."""
    return poll.age >= DEADLINE


def at_deadline(poll: Poll, again: Again) -> Done | Failed:
    """The end of a request that has not finished."""
    for rule in RULES:
        if result := rule(poll, again):
            return result
    return _out_of_time(poll, again)


def finalize_leaves_groups(poll: Poll, again: Again) -> Done | None:
    """finalize leaves the groups to the next deployment: its failure would launch again what was just deleted."""
    if poll.event.kind != FINALIZE:
        return None
    poll.services.log("time is up, groups are left to the next deployment")
    release(poll)
    return finalize.complete(poll, again.live, [wait.why for wait in again.waits])


def rollback_continues(poll: Poll, again: Again) -> Done | None:
    """A rollback without a node left to delete continues (docs/adr/0010-a-rollback-at-its-deadline.md)."""
    if not (poll.rolling_back and _only_passing_waits(again)):
        return None
    poll.services.log("time is up, and nothing is left to delete: the rollback continues")
    return prepare.complete(poll, again.live)


def _only_passing_waits(again: Again) -> bool:
    nothing_left = not (again.left or again.accepted)
    return nothing_left and bool(again.waits) and all(wait.passing for wait in again.waits)


RULES: tuple[Callable[[Poll, Again], Done | None], ...] = (finalize_leaves_groups, rollback_continues)


def _out_of_time(poll: Poll, again: Again) -> Failed:
    """Everything else fails."""
    reason = messages.failures.out_of_time(
        poll.event.cluster,
        int(DEADLINE.total_seconds() // 60),
        _deleted_of_planned(poll, again),
        [pick.node.name for pick in again.left],
        [wait.why for wait in again.waits],
        rolling_back=poll.rolling_back,
        stays=_staying_target(poll, again.live) if poll.rolling_back else None,
    )
    return Failed(reason=reason, accepted=again.accepted)


def _deleted_of_planned(poll: Poll, again: Again) -> Deleted | None:
    """What became of the nodes of the first look. None: they cannot be counted."""
    if again.live is None or not _is_counted(poll):
        return None
    planned = {pick.name for pick in poll.state.picked}
    ending = planned & {pick.name for pick in poll.state.record.deleted(again.live.staying - again.accepted)}
    gone = ending - {node.name for node in again.live.nodes}
    return Deleted(len(gone), len(ending - gone), poll.state.planned)


def _is_counted(poll: Poll) -> bool:
    """Whether there was a first look, all its nodes travel by name, and this process made all the polls."""
    state = poll.state
    return not state.first_look_failed and state.planned == len(state.picked) and state.record.complete


def _staying_target(poll: Poll, live: Cluster | None) -> StayingTarget | None:
    """Why a rollback that deleted nodes finds as many again. None: it does not."""
    counts = {group.name: group.count for group in poll.desired.groups}
    deleted = {pick.group for pick in poll.state.record.requested.values()}
    for group in live.groups if live else ():
        count = counts.get(group.name, group.target)
        if group.name in deleted and group.target > count:
            return StayingTarget(group.name, group.target, count)
    return None
