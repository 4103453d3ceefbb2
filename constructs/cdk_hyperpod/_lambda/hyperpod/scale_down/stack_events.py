"""What a stack's events show of the update that is being rolled back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

CLUSTER = "AWS::SageMaker::Cluster"

UPDATE_BEGINS = "UPDATE_IN_PROGRESS"
ROLLBACK_BEGINS = "UPDATE_ROLLBACK_IN_PROGRESS"

CLOCKS = timedelta(seconds=2)
"""How far the function's clock may be behind CloudFormation's. Not cluster.CLOCKS_APART: it decides between two requests that
CloudFormation may send within seconds, the cancelled update's and its rollback's. If the clocks differ by more, a rollback
looks left over: it deletes nothing, and an operator has to continue it. With a longer time a left-over request would look like the
rollback, and delete the nodes of an update that is over."""


def clusters_reached(events: Iterable[Mapping[str, Any]], stack: str) -> frozenset[str] | None:
    """Physical ids of the clusters that CloudFormation had begun to change when the update failed. None: the events do
    not go back to its beginning.

    `events` come newest first, and are read no further than necessary: first the rollback, which began with the last
    UPDATE_ROLLBACK_IN_PROGRESS (a rollback that was continued has several), then the update. An update that failed and was
    left so (UPDATE_FAILED, `--no-rollback`) is undone together with the next one, so it belongs to it, also if it was
    cancelled. A cluster whose update was cancelled before it began has no event in progress.

    By events and not by LastUpdatedTime: AWS does not document what continuing a rollback makes of that.
    """
    reached: set[str] = set()
    update_began = rollback_read = False
    for event in events:
        if _is_cluster_in_progress(event):
            reached.add(event.get("PhysicalResourceId", ""))
            continue
        if event.get("PhysicalResourceId") != stack:
            continue
        status = _status(event)
        if update_began and status.endswith("_COMPLETE"):
            return frozenset(reached)
        if status == ROLLBACK_BEGINS and not rollback_read:
            reached.clear()
        update_began = status == UPDATE_BEGINS
        rollback_read = rollback_read or update_began
    return frozenset(reached) if update_began else None


def _is_cluster_in_progress(event: Mapping[str, Any]) -> bool:
    return event.get("ResourceType") == CLUSTER and _status(event).endswith("_IN_PROGRESS")


def is_left_over(events: Iterable[Mapping[str, Any]], stack: str, resource: str, received: datetime) -> bool | None:
    """Whether a request belongs to the update, and not to the stack's rollback, which has begun: CloudFormation began with the
    resource before the rollback, and not since. None: the events are late, and do not show the rollback yet. Without events: no.

    `events` come newest first, and are read no further than necessary. `resource`: its logical id. `received`: when the function
    received the request; later events belong to another one.
    """
    requested_since = False
    for event in events:
        status = _status(event)
        is_stack = event.get("PhysicalResourceId") == stack
        if is_stack and status == ROLLBACK_BEGINS:
            return not requested_since
        if is_stack and status == UPDATE_BEGINS:
            return None
        if status == UPDATE_BEGINS and event.get("LogicalResourceId") == resource:
            requested_since = requested_since or event["Timestamp"] <= received + CLOCKS
    return False


def _status(event: Mapping[str, Any]) -> str:
    return str(event.get("ResourceStatus", ""))
