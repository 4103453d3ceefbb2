"""What a stack's events show of the update that is being rolled back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ..model.cluster import ANY_CLUSTER

CLUSTER = "AWS::SageMaker::Cluster"
STACK = "AWS::CloudFormation::Stack"

UPDATE_BEGINS = "UPDATE_IN_PROGRESS"
ROLLBACK_BEGINS = "UPDATE_ROLLBACK_IN_PROGRESS"

CANCELLED = "cancelled"
"""In CloudFormation's reason for a resource that it has not begun to update, or no longer updates ("Resource update cancelled")."""

CLOCKS = timedelta(seconds=2)
"""How far the function's clock may be behind CloudFormation's. Not cluster.CLOCKS_APART: it decides between two requests that
CloudFormation may send within seconds, the cancelled update's and its rollback's. If the clocks differ by more, a rollback
looks left over: it deletes nothing, and an operator has to continue it. With a longer time a left-over request would look like the
rollback, and delete the nodes of an update that is over."""


def clusters_reached(events: Iterable[Mapping[str, Any]], stack: str) -> frozenset[str] | None:
    """Physical ids of the clusters that CloudFormation had begun to change when the update failed; ANY_CLUSTER among them: some cluster.
    None: it is unknown, because the events do not go back to the update's beginning, or do not say which of several clusters it was.

    `events` come newest first, and are read no further than necessary: first the rollback, which began with the last
    UPDATE_ROLLBACK_IN_PROGRESS (a rollback that was continued has several), then the update. An update that failed and was
    left so (UPDATE_FAILED, `--no-rollback`) is undone together with the next one, so it belongs to it, also if it was
    cancelled.

    A cluster was not reached only if every event of it in the update says so: a rollback that is wrong about it lets HyperPod end
    nodes at random. All members of an event but its stack, id and time are optional (botocore: StackEvent), so an event without a
    physical id counts, and one without a status, too.

    By events and not by LastUpdatedTime: AWS does not document what continuing a rollback makes of that.
    """
    reached: list[Mapping[str, Any]] = []
    seen: list[Mapping[str, Any]] = []
    update_began = rollback_read = False
    for event in events:
        if event.get("ResourceType") == CLUSTER:
            seen.append(event)
            if _has_begun(event):
                reached.append(event)
            continue
        if not is_of_stack(event, stack):
            continue
        status = _status(event)
        if update_began and status.endswith("_COMPLETE"):
            return _physical_ids(reached, seen)
        if status == ROLLBACK_BEGINS and not rollback_read:
            reached.clear()
        update_began = status == UPDATE_BEGINS
        rollback_read = rollback_read or update_began
    return _physical_ids(reached, seen) if update_began else None


def _has_begun(event: Mapping[str, Any]) -> bool:
    """Whether an event of a cluster shows that CloudFormation began to change it, or may do. A cluster whose update was cancelled before
    it began has no other event than that. One that is created is another cluster, which has no physical id yet."""
    status, reason = _status(event), str(event.get("ResourceStatusReason", ""))
    is_unmade = status.startswith("CREATE_") and not event.get("PhysicalResourceId")
    is_cancelled = status.endswith("_FAILED") and CANCELLED in reason
    return not (is_unmade or is_cancelled)


def _physical_ids(reached: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]) -> frozenset[str] | None:
    """`seen`: all events of clusters that were read. Another one of the same logical id may have the physical id."""
    known: dict[str, set[str]] = {}
    for event in seen:
        ids = known.setdefault(str(event.get("LogicalResourceId", "")), set())
        ids.update(filter(None, [event.get("PhysicalResourceId")]))
    found: set[str] = set()
    for event in reached:
        physical = event.get("PhysicalResourceId")
        same = {physical} if physical else known[str(event.get("LogicalResourceId", ""))]
        if len(known) == 1 and not physical:
            same = {ANY_CLUSTER}
        if not same:
            return None
        found |= same
    return frozenset(found)


def has_new_status(event: Mapping[str, Any]) -> bool:
    """Whether it reports that a stack or a resource has a new status. A hook's event does not, and may have none. CONFIGURATION_COMPLETE
    repeats the status, also of a whole stack, while the stack is in progress."""
    return not event.get("HookType") and event.get("DetailedStatus") != "CONFIGURATION_COMPLETE"


def is_of_stack(event: Mapping[str, Any], stack: str) -> bool:
    """Whether it is the stack's own event, and not one of a stack inside it, or of a resource that has the stack's id as its own."""
    physical = event.get("PhysicalResourceId")
    if physical:
        return bool(physical == stack) and event.get("ResourceType", STACK) == STACK
    return event.get("ResourceType") == STACK and event.get("LogicalResourceId") == event.get("StackName")


def is_left_over(events: Iterable[Mapping[str, Any]], stack: str, resource: str, received: datetime) -> bool | None:
    """Whether a request belongs to the update, and not to the stack's rollback, which has begun: CloudFormation began with the
    resource before the rollback, and not since. None: the events are late, and do not show the rollback yet. Without events: no.

    `events` come newest first, and are read no further than necessary. `resource`: its logical id. `received`: when the function
    received the request; later events belong to another one.
    """
    requested_since = False
    for event in events:
        status = _status(event)
        is_stack = is_of_stack(event, stack)
        if is_stack and status == ROLLBACK_BEGINS:
            return not requested_since
        if is_stack and status == UPDATE_BEGINS:
            return None
        if status == UPDATE_BEGINS and event.get("LogicalResourceId") == resource:
            requested_since = requested_since or event["Timestamp"] <= received + CLOCKS
    return False


def _status(event: Mapping[str, Any]) -> str:
    return str(event.get("ResourceStatus", ""))
