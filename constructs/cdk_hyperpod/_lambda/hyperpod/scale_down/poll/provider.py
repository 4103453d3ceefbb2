"""Both resources behind the Lambda's two entry points, with clients from outside.

on_event looks once, for as long as that takes, and refuses at once (first_look). is_complete is one poll of prepare or of finalize:
it reads, plans, has nodes drained first if the file configures it, and makes at most one kind of change. What on_event returns is the
only state (request.State). Nothing of an event is logged, because it holds a ResponseURL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ...common import api
from ...kernel.text import one_line
from .. import messages
from ..aws import clients
from ..aws.clients import Services, read_failed
from ..model.actions import Wait
from ..model.properties import FINALIZE, PREPARE, MalformedError
from . import deadline
from .draining import poll_without_a_task, release
from .finalize import finalize
from .first_look import first_look
from .poll import Again, Done, Failed, Poll, Result, ScaleDownError, open_poll, with_state
from .prepare import prepare
from .request import POLL, DeletionRecords, Event, State, read_event, read_state
from .stack import event_digest, with_reached

__all__ = ["Answer", "Provider", "ScaleDownError"]

PHYSICAL_IDS = {PREPARE: "hyperpod-scale-down", FINALIZE: "hyperpod-group-removal"}
ATTRIBUTES = {PREPARE: "NodesTaken", FINALIZE: "StillStanding"}
"""What a template may read of each resource (Fn::GetAtt); see properties.py."""

RESOURCES = {PREPARE: prepare, FINALIZE: finalize}
"""What a poll of each resource does."""

Answer = dict[str, Any]


class Provider:
    """Both resources, with clients from outside."""

    def __init__(
        self,
        sagemaker: Callable[[], clients.Client],
        cloudformation: Callable[[], clients.CloudFormation],
        *,
        s3: Callable[[], clients.S3],
        functions: Callable[[], clients.Lambda],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        self.services = Services(
            sagemaker=sagemaker,
            cloudformation=cloudformation,
            s3=s3,
            functions=functions,
            now=now,
            sleep=sleep,
            write_line=log,
        )
        self.records = DeletionRecords()

    def on_event(self, event: Mapping[str, Any]) -> Answer:
        """The first look. Raises ScaleDownError if the deployment must not go on; changes nothing."""
        found = _read(event)
        state = first_look(found, self.services)
        return {"PhysicalResourceId": found.physical_id or PHYSICAL_IDS[found.kind], **state.write()}

    def is_complete(self, event: Mapping[str, Any]) -> Answer:
        """One poll. Raises ScaleDownError if it is refused, if AWS rejects a call for good, or if the time is up."""
        found = _read(event)
        if found.request == "Delete":
            return _answer(found, Done(messages.attributes.NOTHING))
        state = self._with_record(found, _read_state(event))
        if _has_no_task(found, state):
            return _answer(found, Done(messages.attributes.NOTHING))
        poll: Poll | Result = self._open(found, state)
        if isinstance(poll, Poll) and state.pending is False:
            poll = poll_without_a_task(poll)
        if not isinstance(poll, Poll):
            return _answer(found, poll)
        try:
            result = _run(poll)
            if isinstance(result, Failed):
                result = _after_failure(poll, result)
            return _answer(found, result)
        finally:
            state.record.next_poll = self.services.now() + POLL

    def _with_record(self, event: Event, state: State) -> State:
        request = (event.kind, event.stack, state.began)
        record = self.records.at_poll(request, looked=state.looked or state.began, now=self.services.now())
        return replace(state, record=record, digest=event_digest(event, state))

    def _open(self, event: Event, state: State) -> Poll | Done | Failed:
        """The poll. Properties that are malformed fail an update. A rollback continues without doing anything."""
        try:
            return open_poll(event, state, self.services)
        except MalformedError as error:
            self.services.log(f"malformed: {error}")
            if state.rolling_back:
                return Done(messages.attributes.NOTHING)
            return Failed(reason=messages.failures.malformed(event.kind, error.problems))


def _has_no_task(event: Event, state: State) -> bool:
    """finalize releases no nodes, so it ends at once if its first look found nothing to do."""
    return event.kind == FINALIZE and state.pending is False


def _run(poll: Poll) -> Result:
    """The result of one poll. Once the time is up, it is done or failed."""
    try:
        poll = _with_known_rollback(poll)
        result = RESOURCES[poll.event.kind](poll)
    except Exception as error:  # noqa: BLE001 - CDK's framework never polls again once the function has failed
        result = _broken_off(poll, error)
    if not isinstance(result, Again):
        return result
    for wait in result.waits:
        poll.services.log(f"not yet: {wait.why}")
    return deadline.at_deadline(poll, result) if deadline.has_passed(poll) else result


def _with_known_rollback(poll: Poll) -> Poll:
    """If the first look could not read how far the failed update got, each poll tries again."""
    state = poll.state
    if not state.rolling_back or not state.first_look_failed or state.reached is not None:
        return poll
    return with_state(poll, with_reached(poll.event, state, poll.services))


def _broken_off(poll: Poll, error: Exception) -> Again | Failed:
    """A read that failed, or the function itself. A rollback always tries again, because its failure is UPDATE_ROLLBACK_FAILED. So
    does finalize if the function itself failed: after it CloudFormation would launch again what was just deleted."""
    if isinstance(error, api.CALL_ERRORS):
        reasons = read_failed(error)
        may_pass = api.is_passing(error, now=poll.services.now(), began=poll.state.began)
    else:
        import traceback  # Hardly ever needed, and a part of the cold start.

        poll.services.log(" | ".join("".join(traceback.format_exception(error)).split("\n")))
        reasons = [f"the function failed: {api.reason(error)}"]
        may_pass = poll.event.kind == FINALIZE
    if poll.rolling_back or may_pass:
        return Again(waits=tuple(Wait(why=reason) for reason in reasons))
    return Failed(reason=messages.failures.failed(poll.event.cluster, reasons))


def _after_failure(poll: Poll, failed: Failed) -> Failed:
    """The failure, after the release of drained nodes: with the nodes that were deleted, and those that stay held."""
    still_held = release(poll, failed.accepted)
    reason = messages.failures.with_requested(one_line(failed.reason), poll.state.record.requested)
    return replace(failed, reason=messages.failures.still_held(reason, still_held) if still_held else reason)


def _read(event: Mapping[str, Any]) -> Event:
    try:
        return read_event(event)
    except MalformedError as error:
        raise ScaleDownError(messages.failures.malformed("this resource", error.problems)) from None


def _read_state(event: Mapping[str, Any]) -> State:
    try:
        return read_state(event)
    except (KeyError, TypeError, ValueError):
        raise ScaleDownError(f"{messages.failures.OTHER_STATE}.") from None


def _answer(event: Event, result: Result) -> Answer:
    """As CDK's framework takes it. Raises ScaleDownError for a failure."""
    match result:
        case Done(text):
            return {"IsComplete": True, "Data": {ATTRIBUTES[event.kind]: one_line(text)}}
        case Again():
            return {"IsComplete": False}
        case Failed():
            raise ScaleDownError(result.reason)
