"""What `watch` sees in one look: whether it is the end, and the lines that show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import live, tables

Reply = Mapping[str, Any]
READY, ROLLED_BACK, FAILED = 0, 3, 4
"""Exit codes of an end."""
MINIMUM_LIMIT = timedelta(hours=3)
"""How long HyperPod tries for a group's minimum before it rolls the group back (botocore: MinInstanceCount)."""
_UPDATED = "Succeeded"
"""SoftwareUpdateStatus when the last update is done (botocore); absent where there never was one."""
_PLAN_HOLDS = ("Applied", "Active")
"""TrainingPlanStatus of a group that has its plan. botocore lists no values: "Applied" is what DescribeCluster is thought to
say, "Active" what the plan itself says; another one is shown as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one look has seen."""

    stack: Reply | None
    """Of DescribeStacks. Absent: there is none, or none was asked for."""
    cluster: Reply | None
    """Of DescribeCluster. Absent: there is none yet."""
    rolled_back: str = ""
    """Why HyperPod itself rolled a group back, if it did since the beginning."""
    before: bool = False
    """The stack is the one that comes before the cluster's, which is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How it ended."""

    code: int
    text: str


def end_of(view: View) -> End | None:
    """Whether there is nothing left to wait for; None: there is."""
    stack = "" if view.stack is None else str(view.stack["StackStatus"])
    cluster = {} if view.cluster is None else view.cluster
    status = str(cluster.get("ClusterStatus", ""))
    if is_under_way(view.stack):
        return None
    if stack.endswith("_FAILED"):
        return End(code=FAILED, text=f"stack failed ({stack})")
    if stack.endswith("ROLLBACK_COMPLETE"):
        return End(code=ROLLED_BACK, text=f"rolled back ({stack})")
    if status == "Failed":
        return End(
            code=FAILED, text=f"cluster failed: {tables.shown(cluster.get('FailureMessage') or 'no reason given')}"
        )
    if status != "InService" or not all(_is_there(group) for group in live.groups(cluster)):
        return None
    if view.rolled_back:
        return End(code=ROLLED_BACK, text=f"rolled back: {view.rolled_back}")
    return End(code=READY, text="ready")


def _is_there(group: Reply) -> bool:
    return bool(group["Status"] == "InService" and group["CurrentCount"] == group["TargetCount"])


def state_lines(view: View, began: datetime | None, *, colour: bool = False) -> list[str]:
    """The stack, the cluster, and each group with its counts."""
    stack = "" if view.stack is None else f"stack {view.stack['StackName']}: {view.stack['StackStatus']}; "
    if view.cluster is None:
        return [f"{stack}no cluster {'stack ' if view.before else ''}yet"]
    head = f"{stack}cluster {view.cluster['ClusterName']}: {view.cluster['ClusterStatus']}"
    rows = [
        (
            f"  {group['InstanceGroupName']}",
            str(group["Status"]),
            str(group["CurrentCount"]),
            str(group.get("MinCount") or "-"),
            str(group["TargetCount"]),
            "; ".join(filter(None, (*_besides(group), minimum_clock(group, began)))),
        )
        for group in live.groups(view.cluster)
    ]
    paint = {"Failed": tables.RED, "Degraded": tables.RED} if colour else None
    headings = ("  group", "status", "current", "minimum", "target", "")
    return [head, *tables.table(headings, rows, columns=tables.width(), cut=(0, 5), right=(2, 3, 4), paint=paint)]


def minimum_clock(group: Reply, began: datetime | None) -> str:
    """Until when the group may be below its minimum; empty where nothing is at stake. `began`: of the deployment; absent: unknown."""
    minimum = group.get("MinCount") or 0
    if group["Status"] not in ("Creating", "Updating") or group["CurrentCount"] >= minimum:
        return ""
    if began is None:
        return "rolls back 3 hours after the change began"
    return f"rolls back at {began + MINIMUM_LIMIT:%H:%M} UTC or later"


def _besides(group: Reply) -> Iterator[str]:
    """What else AWS says of a group, in its own words, where that is not as it should be or not done yet."""
    update, plan = group.get("SoftwareUpdateStatus"), group.get("TrainingPlanStatus")
    if update not in (None, _UPDATED):
        yield f"software update {update}"
    if plan not in (None, *_PLAN_HOLDS):
        yield f"training plan {plan}"
    # The counts tell of a scaling by themselves, unless they are right and nodes come or go still.
    counted = {"Scaling"} if group["CurrentCount"] != group["TargetCount"] else set()
    yield from sorted(group.get("ActiveOperations", {}).keys() - counted)


def is_under_way(stack: Reply | None) -> bool:
    """In REVIEW_IN_PROGRESS there is a change set that nobody may ever execute, and no stack yet."""
    status = "" if stack is None else str(stack["StackStatus"])
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def began_at(stack: Reply | None, cluster: Reply | None) -> datetime | None:
    """When the change under way began, as far as anybody tells: the stack's, or the cluster's creation."""
    if stack is not None and is_under_way(stack):
        moment = stack.get("LastUpdatedTime") or stack.get("CreationTime")
    elif cluster is not None and cluster["ClusterStatus"] == "Creating":
        moment = cluster.get("CreationTime")
    else:
        return None
    return moment.astimezone(UTC) if moment else None


def state_content(view: View) -> dict[str, Any]:
    """What --json has of the stack, the cluster and its groups."""
    cluster = view.cluster or {}
    return {
        "stack_status": None if view.stack is None else view.stack["StackStatus"],
        "cluster_status": cluster.get("ClusterStatus"),
        "groups": [
            {
                "group": group["InstanceGroupName"],
                "status": group["Status"],
                "current": group["CurrentCount"],
                "minimum": group.get("MinCount"),
                "target": group["TargetCount"],
                "active_operations": group.get("ActiveOperations") or {},
                "software_update_status": group.get("SoftwareUpdateStatus"),
                "training_plan_status": group.get("TrainingPlanStatus"),
            }
            for group in live.groups(cluster)
        ],
    }
