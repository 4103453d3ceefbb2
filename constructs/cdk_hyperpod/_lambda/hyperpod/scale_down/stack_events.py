"""What a stack's events tell about the update that is being rolled back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

CLUSTER = "AWS::SageMaker::Cluster"

CLOCKS = timedelta(seconds=2)
"""How far the function's clock may be behind CloudFormation's. Not cluster.CLOCKS_APART: it decides between two requests that
CloudFormation may send within seconds, the cancelled update's and its rollback's. If the clocks differ by more, a rollback is
taken for left over: it deletes nothing, and somebody has to continue it. With a longer time a left-over request would be taken
for the rollback, and delete the nodes of an update that is over."""


def clusters_reached(events: Iterable[Mapping[str, Any]], stack: str) -> frozenset[str] | None:
    """Physical ids of the clusters that CloudFormation had begun to change when the update failed. Absent: the events do
    not go back to where it began.

    `events` come newest first, and no further than necessary: the way back, which began with the last
    UPDATE_ROLLBACK_IN_PROGRESS (a rollback that was continued has several), then the update. An update that failed and was
    left so (UPDATE_FAILED, `--no-rollback`) is undone together with the next one, so it belongs to it, also where it was
    cancelled. A cluster whose update was cancelled before it began has no event in progress.

    By events and not by LastUpdatedTime, of which nobody documents what continuing a rollback makes of it.
    """
    reached: set[str] = set()
    begun = way_back_read = False
    for event in events:
        status = event.get("ResourceStatus", "")
        if event.get("ResourceType") == CLUSTER and status.endswith("_IN_PROGRESS"):
            reached.add(event.get("PhysicalResourceId", ""))
        elif event.get("PhysicalResourceId") == stack:
            if begun and status.endswith("_COMPLETE"):
                return frozenset(reached)
            if status == "UPDATE_ROLLBACK_IN_PROGRESS" and not way_back_read:
                reached.clear()
            begun = status == "UPDATE_IN_PROGRESS"
            way_back_read = way_back_read or begun
    return frozenset(reached) if begun else None


def is_left_over(events: Iterable[Mapping[str, Any]], stack: str, resource: str, heard: datetime) -> bool | None:
    """Whether a request that the function heard of at this time is of the update, and not of the stack's way back, which has begun:
    CloudFormation began with the resource of this logical id before that, and not since. Absent: the events are late, and do not
    tell yet that the way back began. Without events: no.

    `events` come newest first, and no further than necessary. What came after `heard` is another request's.
    """
    asked = False
    for event in events:
        status = event.get("ResourceStatus", "")
        if event.get("PhysicalResourceId") == stack:
            if status == "UPDATE_ROLLBACK_IN_PROGRESS":
                return not asked
            if status == "UPDATE_IN_PROGRESS":
                return None
        ours = event.get("LogicalResourceId") == resource and status == "UPDATE_IN_PROGRESS"
        asked = asked or (ours and event["Timestamp"] <= heard + CLOCKS)
    return False
