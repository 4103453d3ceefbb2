"""What the stack reports of a request: whether it rolls back, how far its update got, and whether it asks for what the event says.

Whoever may invoke the function can write an event: its properties, the old ones, and what on_event found out. So each of them is
confirmed by the stack's own record, or not used (docs/adr/0019-an-event-is-believed-as-far-as-its-stack.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import tee
from typing import Any

from ...common import api
from .. import messages
from ..aws.clients import Services, read_failed
from ..aws.stack_events import (
    ROLLBACK_BEGINS,
    Record,
    agrees,
    clusters_reached,
    digest,
    earlier_properties,
    is_left_over,
    read_record,
    seal,
    template_properties,
)
from ..model.actions import Wait
from ..model.cluster import DesiredGroup
from ..model.properties import FINALIZE, PREPARE, read_properties, spec_with
from .poll import Poll, ScaleDownError, previous_properties
from .request import Event, State

LATE = timedelta(seconds=65)
"""Maximum age of what CloudFormation reports of a stack: its status and its events."""

PATIENCE = timedelta(minutes=5)
"""How long on_event waits for CloudFormation's record of a request, from its beginning. The function has ten minutes."""

STALE = timedelta(seconds=10)
"""For so long after a read, others are taken to have done nothing meanwhile."""


def with_stack_status(event: Event, state: State, services: Services) -> State:
    """The state with whether the stack rolls back, and since when it is updated. A new resource belongs to no rollback.

    Raises ScaleDownError if the status cannot be read: a rollback deletes what an update would refuse.
    """
    if event.request == "Create":
        return state
    try:
        stack = services.read_patiently(lambda: services.read_stack(event.stack), began=state.began)
    except api.CALL_ERRORS as error:
        reasons = [*read_failed(error)[:1], *messages.failures.as_reasons(messages.failures.STATUS_UNKNOWN)]
        raise ScaleDownError(messages.failures.failed(event.cluster, reasons)) from None
    return replace(state, rolling_back="ROLLBACK" in stack["StackStatus"], updated=stack.get("LastUpdatedTime"))


def with_reached(event: Event, state: State, services: Services) -> State:
    """The state with the clusters that the failed update got to.

    A request that is left over from that update, because it was cancelled before its first look, does not belong to the
    rollback: it may refuse, and makes no change (wait_if_abandoned).
    """
    try:
        if state.pending is False:
            return services.read_patiently(lambda: _read_reached(event, state, services), began=state.began)
        return _read_reached(event, state, services)
    except api.CALL_ERRORS as error:
        if not api.is_denied(error):
            raise
        # A rollback that has nothing to do continues anyway.
        services.log(f"cannot read how far the failed update got: {api.reason(error)}")
        return state


def _read_reached(event: Event, state: State, services: Services) -> State:
    found = _read_rollback(event, state, services)
    if found.left_over is None:
        return state
    if found.left_over:
        return replace(state, rolling_back=False)
    return replace(state, reached=clusters_reached(found.events, event.stack))


@dataclass(frozen=True, slots=True)
class _Rollback:
    left_over: bool | None
    """Whether the request is left over from the update. None: the events never showed the rollback."""
    events: Iterator[Mapping[str, Any]]


def _read_rollback(event: Event, state: State, services: Services) -> _Rollback:
    """Reads the events until they show the rollback that the stack's status shows."""
    until = services.now() + LATE
    while True:
        first, again = tee(services.read_events(event.stack))
        left_over = is_left_over(first, event.stack, event.resource, state.began)
        if left_over is not None or services.now() >= until:
            return _Rollback(left_over, again)
        services.sleep(STALE.total_seconds())


IN_PROGRESS = {"Create": "CREATE_IN_PROGRESS", "Update": "UPDATE_IN_PROGRESS"}
"""RequestType -> the status of a resource for which CloudFormation waits."""


def sealed(event: Event, state: State, services: Services) -> State:
    """The state with a seal, which on_event alone can make: it knows an id from the stack's events. It makes one only for a request that
    the stack's record confirms. Without a task it needs none.

    Raises ScaleDownError if the record does not confirm an update. A rollback and finalize must not end here: their polls try again.
    """
    if state.pending is False:
        return state
    must = event.kind == PREPARE and not state.rolling_back
    try:
        found = _seal_in_time(event, state, services, patient=must)
        if isinstance(found, State):
            return found
        reasons = [found.why, *messages.failures.as_reasons(messages.failures.NOT_CONFIRMED)]
    except api.CALL_ERRORS as error:
        reasons = read_failed(error)
    if must:
        raise ScaleDownError(messages.failures.failed(event.cluster, reasons))
    services.log("; ".join(reasons))
    return replace(state, pending=None, picked=())


def _seal_in_time(event: Event, state: State, services: Services, *, patient: bool) -> State | Wait:
    """The sealed state, once the record shows this request. The last reason if it never does."""

    def seal_once() -> State | Wait:
        return _seal_once(event, state, services)

    until = max(services.now() + LATE, state.began + PATIENCE)
    while True:
        found = services.read_patiently(seal_once, began=state.began) if patient else seal_once()
        if isinstance(found, State) or services.now() >= until:
            return found
        services.sleep(STALE.total_seconds())


def _seal_once(event: Event, state: State, services: Services) -> State | Wait:
    events = services.read_events(event.stack)
    record = read_record(events, event.stack, event.kind, event.resource)
    if record is None or not _is_in_progress(record, event, state):
        return messages.waits.NOT_RECORDED
    if not _asks_for(record, event, state, services):
        return messages.waits.OTHER_REQUEST
    unconfirmed = frozenset[str]() if state.rolling_back else _unconfirmed_groups(event, events)
    state = replace(state, recorded=record.began, unconfirmed=unconfirmed)
    return replace(state, seal=seal(record, event_digest(event, state)))


def event_digest(event: Event, state: State) -> str:
    """Stands for an event and for what on_event found out about it."""
    told = {name: value for name, value in state.write().items() if name != "Seal"}
    return digest(
        [event.kind, event.request, event.stack, event.resource, event.properties, event.old_properties, told]
    )


def wait_unless_asked(poll: Poll) -> Wait | None:
    """A wait if CloudFormation does not wait for this request, or if its record does not ask for what the event says. Then the poll
    may change nothing. Raises api.CALL_ERRORS."""
    return wait_if_abandoned(poll) or wait_if_unconfirmed(poll)


def wait_if_abandoned(poll: Poll) -> Wait | None:
    """A wait if CloudFormation no longer waits for this request's answer. None: it does.

    Then the poll may make no change. If an update is cancelled, or another of its resources fails, CloudFormation continues
    without this resource, and CDK's framework continues to poll.

    It is a wait, not a failure: CloudFormation does not read the answer. If the stack's status is ever misleading, a deployment
    that runs out of time costs no node, but one that continues while the nodes still exist costs random ones.
    """
    stack = poll.services.read_stack(poll.event.stack)
    is_over = _is_later(stack.get("LastUpdatedTime"), poll.state) or stack["StackStatus"] not in _running(poll)
    return messages.waits.OVER if is_over else None


def _is_later(updated: datetime | None, state: State) -> bool:
    """Whether another update began after this request did: by the function's clock, or by CloudFormation's if the first look read
    it."""
    return updated is not None and updated > max(state.began, state.updated or state.began)


def _running(poll: Poll) -> tuple[str, ...]:
    """Statuses of a stack that waits for this request."""
    if poll.rolling_back:
        return ("UPDATE_ROLLBACK_IN_PROGRESS",)
    return ("UPDATE_IN_PROGRESS", "CREATE_IN_PROGRESS")


def wait_if_unconfirmed(poll: Poll) -> Wait | None:
    """The same, without the first. A rollback that cannot read the record continues: a wait would end it as UPDATE_ROLLBACK_FAILED."""
    event, state, services = poll.event, poll.state, poll.services
    try:
        record = read_record(services.read_events(event.stack), event.stack, event.kind, event.resource)
        if record is None or not _is_in_progress(record, event, state):
            return messages.waits.NOT_RECORDED
        if _is_undecided(record, poll):
            return messages.waits.NOT_DECIDED
        if state.seal is not None and seal(record, state.digest) == state.seal:
            return None
        if not _needs_no_seal(poll):
            return messages.waits.NOT_SEALED
        return None if _asks_for(record, event, state, services) else messages.waits.OTHER_REQUEST
    except api.CALL_ERRORS as error:
        if not (poll.rolling_back and api.is_denied(error)):
            raise
        services.log(f"cannot read the stack's record: {api.reason(error)}")
        return None


def _is_in_progress(record: Record, event: Event, state: State) -> bool:
    """Whether CloudFormation waits for this resource, in the direction that the event says. The request began after that, by a clock
    that may be behind CloudFormation's."""
    directions = (ROLLBACK_BEGINS,) if state.rolling_back else tuple(IN_PROGRESS.values())
    if record.stack_status not in directions or record.status != IN_PROGRESS.get(event.request):
        return False
    return record.began is not None and record.began - state.began <= LATE


def _is_undecided(record: Record, poll: Poll) -> bool:
    """Whether CloudFormation's own request may still be at its first look, which takes LATE if there is something to do."""
    return poll.state.pending is not False and record.began is not None and poll.services.now() < record.began + LATE


def _needs_no_seal(poll: Poll) -> bool:
    """Whether what on_event says is nothing, or is what CloudFormation says.

    Without a task it chooses nothing. finalize never chooses nodes. A rollback whose first look failed has chosen none, and does not
    use it.
    """
    state, event, services = poll.state, poll.event, poll.services
    if state.pending is False:
        return True
    if not (poll.rolling_back or event.kind == FINALIZE):
        return False
    if state.picked or not state.first_look_failed:
        return False
    if services.read_stack(event.stack).get("LastUpdatedTime") != state.updated:
        return False
    return state.reached is None or state.reached == clusters_reached(services.read_events(event.stack), event.stack)


def _asks_for(record: Record, event: Event, state: State, services: Services) -> bool:
    """Whether the record has the event's properties. If events do not show them, the stack's template does. AWS does not document which
    template it shows while a stack rolls back."""
    if record.properties is not None:
        return agrees(record.properties, event.properties)
    if state.rolling_back:
        return True
    return agrees(template_properties(services.read_template(event.stack), event.resource), event.properties)


def _unconfirmed_groups(event: Event, events: Iterator[Mapping[str, Any]]) -> frozenset[str]:
    """Groups of which nothing confirms what an update sends with a count: the specification that the old properties have.

    One that the new properties have, too, needs no other confirmation. `events`: those before the ones of this request.
    """
    previous, desired = previous_properties(event), read_properties(event.properties, kind=event.kind)
    specs = {group.name: _sent(group) for group in desired.groups}
    old = previous.groups if previous else ()
    changed = frozenset(group.name for group in old if _sent(group) != specs.get(group.name, _sent(group)))
    if changed and any(agrees(each, event.old_properties) for each in earlier_properties(events, event.resource)):
        return frozenset()
    return changed


def _sent(group: DesiredGroup) -> Mapping[str, Any]:
    """What is sent with any count of the group."""
    return spec_with(group, count=0, minimum=0)
