"""What a stack's events tell about the update that is being rolled back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CLUSTER = "AWS::SageMaker::Cluster"


def clusters_reached(events: Iterable[Mapping[str, Any]], stack: str) -> frozenset[str] | None:
    """Physical ids of the clusters that CloudFormation had begun to change when the update failed. Absent: the events do
    not go back to where it began.

    `events` come newest first, and no further than necessary: the way back, which began with the last
    UPDATE_ROLLBACK_IN_PROGRESS (a rollback that was continued has several), then the update. An update that failed and was
    left so (UPDATE_FAILED, `--no-rollback`) is undone together with the next one, so it belongs to it.

    By events and not by LastUpdatedTime, of which nobody documents what continuing a rollback makes of it.
    """
    reached: set[str] = set()
    begun = False
    for event in events:
        status = event.get("ResourceStatus", "")
        if event.get("ResourceType") == CLUSTER:
            reached.add(event.get("PhysicalResourceId", ""))
        elif event.get("PhysicalResourceId") == stack:
            if begun and status.endswith("_COMPLETE"):
                return frozenset(reached)
            if status == "UPDATE_ROLLBACK_IN_PROGRESS":
                reached.clear()
            begun = status == "UPDATE_IN_PROGRESS"
    return frozenset(reached) if begun else None
