"""Whether CloudFormation asks for what an event says, before anything is changed.

Whoever may invoke the function can write an event: its properties, the old ones, and what on_event found out. So each of them is
confirmed by the stack's own record, or not used (docs/adr/0019-an-event-is-believed-as-far-as-its-stack.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..common import api
from . import messages
from .actions import Wait
from .event import Event
from .poll import Poll, wait_if_abandoned
from .poll_state import State
from .properties import FINALIZE, PREPARE
from .record import Record, agrees, digest, earlier_properties, read_record, seal, template_properties
from .rollback import LATE, STALE
from .services import Services
from .stack_events import ROLLBACK_BEGINS, clusters_reached

IN_PROGRESS = {"Create": "CREATE_IN_PROGRESS", "Update": "UPDATE_IN_PROGRESS"}
"""RequestType -> the status of a resource for which CloudFormation waits."""


def sealed(event: Event, state: State, services: Services) -> State:
    """The state with a seal, which on_event alone can make: it knows an id from the stack's events. Without a task it needs none.

    Raises api.CALL_ERRORS if an update cannot read the events. A rollback and finalize must not end here, and go without.
    """
    if state.pending is False:
        return state
    must = event.kind == PREPARE and not state.rolling_back

    try:
        record = _read_begun(event, state, services, patient=must)
    except api.CALL_ERRORS as error:
        if must:
            raise
        services.log(f"cannot read the stack's events: {api.reason(error)}")
        return state
    if record is None or not _is_in_progress(record, event, state):
        services.log("the stack's events do not show this request")
        return state
    return replace(state, seal=seal(record, event_digest(event, state)))


def _read_begun(event: Event, state: State, services: Services, *, patient: bool) -> Record | None:
    """The record, once it shows this request, or after LATE."""

    def read() -> Record | None:
        return read_record(services.read_events(event.stack), event.stack, event.kind, event.resource)

    until = services.now() + LATE
    while True:
        record = services.read_patiently(read, began=state.began) if patient else read()
        if (record is not None and _is_in_progress(record, event, state)) or services.now() >= until:
            return record
        services.sleep(STALE.total_seconds())


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


def wait_if_unconfirmed(poll: Poll) -> Wait | None:
    """The same, without the first. A rollback that cannot read the record continues: a wait would end it as UPDATE_ROLLBACK_FAILED."""
    event = poll.event
    try:
        events = poll.services.read_events(event.stack)
        record = read_record(events, event.stack, event.kind, event.resource)
        if record is None or not _is_in_progress(record, event, poll.state):
            return messages.waits.NOT_RECORDED
        if _is_undecided(record, poll):
            return messages.waits.NOT_DECIDED
        if not (_is_sealed(record, poll.state) or _needs_no_seal(poll)):
            return messages.waits.NOT_SEALED
        if not _asks_for(record, poll):
            return messages.waits.OTHER_REQUEST
        return _wait_for_old_properties(poll, events)
    except api.CALL_ERRORS as error:
        if not (poll.rolling_back and api.is_denied(error)):
            raise
        poll.services.log(f"cannot read the stack's record: {api.reason(error)}")
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


def _is_sealed(record: Record, state: State) -> bool:
    return state.seal is not None and seal(record, state.digest) == state.seal


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


def _asks_for(record: Record, poll: Poll) -> bool:
    """Whether the record has the event's properties. If events do not show them, the stack's template does."""
    properties = poll.event.properties
    if record.properties is not None:
        return agrees(record.properties, properties)
    template = template_properties(poll.services.read_template(poll.event.stack), poll.event.resource)
    # AWS does not document which template it shows while a stack rolls back.
    return poll.rolling_back or agrees(template, properties)


def _wait_for_old_properties(poll: Poll, events: Iterator[Mapping[str, Any]]) -> Wait | None:
    """A wait if this poll may have planned to send specifications that nothing confirms. The next one plans without them.

    An update sends a group as the old properties have it. One that the new properties have, too, needs no other confirmation.
    """
    record = poll.state.record
    if poll.rolling_back or poll.previous is None:
        return None
    specs = {group.name: group.spec for group in poll.desired.groups}
    changed = {group.name for group in poll.previous.groups if group.spec != specs.get(group.name, group.spec)}
    if not changed:
        return None
    old = poll.event.old_properties
    if any(agrees(each, old) for each in earlier_properties(events, poll.event.resource)):
        changed = set()
    is_news = changed != record.unconfirmed
    record.unconfirmed = frozenset(changed)
    return messages.waits.OVERTAKEN if is_news else None
