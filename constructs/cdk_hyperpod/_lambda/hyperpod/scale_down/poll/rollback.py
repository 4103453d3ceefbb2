"""What CloudFormation's status and events show of a rollback: whether the stack rolls back, and how far its update got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import tee
from typing import Any

from ...common import api
from .. import messages
from ..aws.call_errors import read_failed
from ..aws.services import Services
from ..aws.stack_events import clusters_reached, is_left_over
from .event import Event
from .poll_state import State
from .results import ScaleDownError

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
