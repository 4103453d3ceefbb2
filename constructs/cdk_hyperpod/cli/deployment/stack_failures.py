"""Why the last operation on a stack failed: by its events, its change sets, and the errors of CloudFormation's early validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from .. import aws
from .deployed_stack import PlanError

Event = Mapping[str, Any]
_STACK = "AWS::CloudFormation::Stack"
# If one resource fails, CloudFormation cancels others with exactly these texts.
_CANCELLED = ("Resource creation cancelled", "Resource update cancelled")
_OWN = "Custom::HyperPod"
"""How the types of this library's custom resources begin."""
_BEGINNINGS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "IMPORT_IN_PROGRESS")
_ROLLBACK_BEGINNINGS = ("ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "IMPORT_ROLLBACK_IN_PROGRESS")
_FAILED_ROLLBACKS = ("ROLLBACK_FAILED", "UPDATE_ROLLBACK_FAILED", "IMPORT_ROLLBACK_FAILED")
# The text that CloudFormation and CDK's provider framework add before and after the reason of a custom resource.
_AROUND = re.compile(r"^(?:Received response status \[FAILED\] from custom resource\. Message returned: )?(?:Error: )?")
_BEHIND = re.compile(r"\s*(?:\n|\(RequestId: ).*", re.DOTALL)
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")
"""In the reason of a change set that failed only because there is nothing to change."""
_MOST_EVENTS = 500
"""Events of DescribeEvents that are read at most. With its filter, they are failures only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOperation:
    """What a stack's events show of its last operation."""

    began: datetime | None = None
    """When it began. None: the events that were read do not show it."""
    reason: str | None = None
    """What failed first of its resources, the rollback that failed aside. None: none of them."""
    rollback_reason: str | None = None
    """What failed first in the last rollback, if that rollback failed. None: no rollback failed."""
    status: str | None = None
    """The stack's status, if the operation failed or was rolled back. None: it did not fail."""
    stack_reason: str = ""
    """What CloudFormation says of the stack itself, if the operation failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFailure:
    """What is known about a stack's last operation."""

    exists: bool
    reason: str | None = None
    """Why it failed, in one line. None: it did not fail."""
    rollback_reason: str | None = None
    """Why its rollback failed, in one line. None: it did not."""
    began: datetime | None = None
    """When the operation that failed began to change resources. None: it changed none, or its beginning is unknown."""
    notes: tuple[str, ...] = field(default=())
    """What could not be read, with the missing permission."""

    def lines(self, stack: str) -> list[str]:
        """The reasons as they are printed, each after the stack's name. Empty: it did not fail."""
        rollback = None if self.rollback_reason is None else f"The rollback failed: {self.rollback_reason}"
        return [f"{stack}: {reason}" for reason in (self.reason, rollback) if reason is not None]


def read_failure(stack: str, cloudformation: Any, since: datetime | None = None) -> StackFailure:
    """Why the stack's last operation failed. `since`: ignore earlier failures; None: any. Raises PlanError if the events cannot
    be read."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down.aws import clients

    try:
        last = last_operation(clients.read_events(cloudformation, stack), since)
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return StackFailure(exists=False)
        raise PlanError(f"cannot read the events of {stack}: {aws.sentence(error)}") from None
    if last.reason is not None:
        return StackFailure(exists=True, reason=last.reason, rollback_reason=last.rollback_reason, began=last.began)
    if last.status is not None:
        return _failed_without_resource(stack, cloudformation, last)
    return read_refusal(stack, cloudformation, max(filter(None, (since, last.began)), default=None))


def last_operation(events: Iterable[Event], since: datetime | None = None) -> LastOperation:
    """A stack's last operation, by its events, newest first. `since`: ignore earlier events; None: all count. Pure."""
    found: list[Event] = []
    began = None
    for event in events:
        if since is not None and event["Timestamp"] < since:
            break
        if _is_of_stack(event) and event["ResourceStatus"] in _BEGINNINGS:
            began = event["Timestamp"]
            break
        found.append(event)
    wrong = [event for event in found if _is_of_stack(event) and _is_wrong(event["ResourceStatus"])]
    status = str(wrong[0]["ResourceStatus"]) if wrong else None
    in_rollback = _last_rollback(found) if status in _FAILED_ROLLBACKS else []
    return LastOperation(
        began=began,
        reason=_first_failure(found[len(in_rollback) :]),
        rollback_reason=_first_failure(in_rollback) or _first_reason(wrong[:1] if in_rollback else []),
        status=status,
        stack_reason=_first_reason(wrong) or "",
    )


def _is_of_stack(event: Event) -> bool:
    """Whether the event is of the stack itself. A nested stack is a resource."""
    return bool(event["ResourceType"] == _STACK and event.get("PhysicalResourceId") == event["StackId"])


def _last_rollback(found: Sequence[Event]) -> Sequence[Event]:
    """The events of the last rollback, newest first: all of them if its beginning was not read. A rollback that a user continues
    begins anew."""
    for place, event in enumerate(found):
        if _is_of_stack(event) and event["ResourceStatus"] in _ROLLBACK_BEGINNINGS:
            return found[:place]
    return found


def _first_failure(events: Sequence[Event]) -> str | None:
    """The reason of the resource that failed first. None: no resource failed."""
    failed = [event for event in events if not _is_of_stack(event) and _is_failure(event)]
    return _reason_of_resource(failed[-1]) if failed else None


def _first_reason(events: Sequence[Event]) -> str | None:
    reasons = [event["ResourceStatusReason"] for event in events if event.get("ResourceStatusReason")]
    return _plain(reasons[-1]) if reasons else None


def _is_failure(event: Event) -> bool:
    reason = event.get("ResourceStatusReason", "")
    return bool(event["ResourceStatus"].endswith("_FAILED") and reason and reason.strip() not in _CANCELLED)


def _is_wrong(status: str) -> bool:
    """Whether a stack has this status because an operation failed, or was cancelled."""
    return status.endswith("_FAILED") or "ROLLBACK" in status


def _plain(reason: str) -> str:
    return _BEHIND.sub("", _AROUND.sub("", reason))


def _reason_of_resource(event: Event) -> str:
    """The reason, after the resource that failed. The custom resources of this library say themselves what they are about."""
    reason = _plain(event["ResourceStatusReason"])
    kind = event["ResourceType"]
    return reason if kind.startswith(_OWN) else f"{event['LogicalResourceId']} ({kind}): {reason}"


def _failed_without_resource(stack: str, cloudformation: Any, last: LastOperation) -> StackFailure:
    """A failure that none of the stack's resources explains: CloudFormation's early validation refused the template, or a user
    cancelled the operation."""
    errors = _validation_errors(cloudformation, last.began, StackName=stack)
    if errors.found:
        return StackFailure(exists=True, reason=_refused(errors.found), rollback_reason=last.rollback_reason)
    said = f": {last.stack_reason}" if last.stack_reason else ", and its events give no reason"
    notes = () if errors.unread is None else (f"{stack}: the full reason cannot be read: {errors.unread}",)
    reason = f"{last.status}{said}"
    return StackFailure(exists=True, reason=reason, rollback_reason=last.rollback_reason, began=last.began, notes=notes)


def read_refusal(stack: str, cloudformation: Any, since: datetime | None) -> StackFailure:
    """The stack's newest change set that failed. Then CloudFormation has changed nothing. `since`: the last operation on the stack,
    because change sets before it do not count; None: all count."""
    from ..._lambda.hyperpod.common import api

    try:
        listed = [*islice(aws.pages(cloudformation.list_change_sets, "Summaries", StackName=stack), _MOST_EVENTS)]
    except api.CALL_ERRORS as error:
        note = f"{stack}: whether CloudFormation refused a change set cannot be read: {aws.sentence(error)}"
        return StackFailure(exists=True, notes=(note,))
    failed = [each for each in listed if _has_failed(each) and (since is None or each["CreationTime"] >= since)]
    if not failed:
        return StackFailure(exists=True)
    newest = max(failed, key=lambda each: each["CreationTime"])
    errors = _validation_errors(cloudformation, None, StackName=stack, ChangeSetName=newest["ChangeSetId"])
    if errors.found:
        return StackFailure(exists=True, reason=_refused(errors.found))
    notes = () if errors.unread is None else (f"{stack}: the full reason cannot be read: {errors.unread}",)
    return StackFailure(
        exists=True, reason=f"CloudFormation refused the change set: {newest.get('StatusReason', '')}", notes=notes
    )


def _has_failed(change_set: Mapping[str, Any]) -> bool:
    reason = change_set.get("StatusReason", "")
    return change_set["Status"] == "FAILED" and not any(words in reason for words in _NO_CHANGES)


def _refused(errors: Sequence[Event]) -> str:
    """Early validation changes nothing if it refuses a template."""
    return f"CloudFormation refused the template and changed nothing. {' '.join(dict.fromkeys(map(_error, errors)))}"


def _error(event: Event) -> str:
    reason = str(event.get("ValidationStatusReason", "")).rstrip(".")
    return f"{event.get('LogicalResourceId', 'The template')}: {reason} [{event.get('ValidationName', '')}]."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """The errors of early validation."""

    found: tuple[Event, ...] = ()
    unread: str | None = None
    """Why they could not be read. None: they were."""


def _validation_errors(cloudformation: Any, since: datetime | None, **which: str) -> _Errors:
    """The errors of the newest operation that has some, at `since` or later. `which`: the stack, and its change set if it is one."""
    from ..._lambda.hyperpod.common import api

    if not hasattr(cloudformation, "describe_events"):
        return _Errors(unread="your boto3 does not know DescribeEvents. Install boto3 1.41 or later")
    listed = aws.pages(cloudformation.describe_events, "OperationEvents", **which, Filters={"FailedEvents": True})
    try:
        found = [*_errors(islice(listed, _MOST_EVENTS), since)]
    except api.CALL_ERRORS as error:
        return _Errors(unread=aws.sentence(error))
    newest = max(found, key=lambda event: event["Timestamp"])["OperationId"] if found else None
    return _Errors(found=tuple(event for event in found if event["OperationId"] == newest))


def _errors(events: Iterable[Event], since: datetime | None) -> Iterator[Event]:
    for event in events:
        is_error = event.get("EventType") == "VALIDATION_ERROR" and event.get("ValidationFailureMode") != "WARN"
        if is_error and (since is None or event["Timestamp"] >= since):
            yield event
