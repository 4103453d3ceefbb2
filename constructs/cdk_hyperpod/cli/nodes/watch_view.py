"""One look of `watch`: whether it is the end, and the lines that show the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..._lambda.hyperpod.kernel.cluster_reading import counts, group_status
from .. import live, tables

Reply = Mapping[str, Any]
READY, ROLLED_BACK, FAILED = 0, 3, 4
"""Exit codes at the end."""
MINIMUM_LIMIT = timedelta(hours=3)
"""How long HyperPod waits for a group's minimum before it rolls the group back (botocore: MinInstanceCount)."""
_BELOW_MINIMUM = "  docs/at-3-am.md says what to do about a group below its minimum"
_UPDATED = "Succeeded"
"""SoftwareUpdateStatus after the last update (botocore); missing if there never was one."""
_PLAN_HOLDS = ("Applied", "Active")
"""TrainingPlanStatus of a group that has its plan. botocore lists no values: DescribeCluster is assumed to report "Applied", and
the plan itself reports "Active". Other values are shown as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The stack and the cluster, as they were read."""

    stack: Reply | None
    """Reply of DescribeStacks. None: there is no stack, or it is not watched."""
    cluster: Reply | None
    """Reply of DescribeCluster. None: there is no cluster yet."""
    rolled_back: str = ""
    """Why HyperPod rolled a group back during this change; empty: it did not."""
    before: bool = False
    """The stack is the foundation, which is deployed before the cluster's stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a deployment."""

    code: int
    text: str


def end_of(view: View) -> End | None:
    """The end; None: the deployment still runs."""
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
    if status != "InService" or not all(_has_all_nodes(group) for group in live.groups(cluster)):
        return None
    if view.rolled_back:
        return End(code=ROLLED_BACK, text=f"rolled back: {view.rolled_back}")
    return End(code=READY, text="ready")


def _has_all_nodes(group: Reply) -> bool:
    current, target = counts(group)
    return group_status(group) == "InService" and current == target


def state_lines(view: View, began: datetime | None, *, colour: bool = False) -> list[str]:
    """The stack, the cluster, and each group with its counts."""
    stack = "" if view.stack is None else f"stack {view.stack['StackName']}: {view.stack['StackStatus']}; "
    if view.cluster is None:
        return [f"{stack}no cluster {'stack ' if view.before else ''}yet"]
    head = f"{stack}cluster {view.cluster['ClusterName']}: {view.cluster['ClusterStatus']}"
    rows = [
        (
            f"  {group['InstanceGroupName']}",
            group_status(group),
            str(group.get("CurrentCount", "-")),
            str(group.get("MinCount") or "-"),
            str(group.get("TargetCount", "-")),
            "; ".join(filter(None, (*_besides(group), minimum_clock(group, began)))),
        )
        for group in live.groups(view.cluster)
    ]
    paint = {"Failed": tables.RED, "Degraded": tables.RED} if colour else None
    headings = ("  group", "status", "current", "minimum", "target", "")
    table = tables.table(headings, rows, columns=tables.width(), cut=(0, 5), right=(2, 3, 4), paint=paint)
    is_below = any(minimum_clock(group, began) for group in live.groups(view.cluster))
    return [head, *table, *([_BELOW_MINIMUM] if is_below else [])]


def minimum_clock(group: Reply, began: datetime | None) -> str:
    """When the group is rolled back if it stays below its minimum; empty if it cannot be. `began`: of the deployment; None: unknown."""
    minimum = group.get("MinCount") or 0
    if group_status(group) not in ("Creating", "Updating") or counts(group)[0] >= minimum:
        return ""
    if began is None:
        return "rolls back 3 hours after the change began"
    return f"rolls back at {began + MINIMUM_LIMIT:%H:%M} UTC or later"


def _besides(group: Reply) -> Iterator[str]:
    """Other states of a group that are unusual or not done yet, in AWS's own words."""
    update, plan = group.get("SoftwareUpdateStatus"), group.get("TrainingPlanStatus")
    if update not in (None, _UPDATED):
        yield f"software update {update}"
    if plan not in (None, *_PLAN_HOLDS):
        yield f"training plan {plan}"
    # Counts that differ show a scaling by themselves.
    current, target = counts(group)
    counted = {"Scaling"} if current != target else set()
    yield from sorted(group.get("ActiveOperations", {}).keys() - counted)


def is_under_way(stack: Reply | None) -> bool:
    """Whether a deployment of the stack is running. In REVIEW_IN_PROGRESS there is only a change set, which may never be executed."""
    status = "" if stack is None else str(stack["StackStatus"])
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def began_at(stack: Reply | None, cluster: Reply | None) -> datetime | None:
    """When the running change began, by the stack or by the cluster's creation; None: unknown."""
    if stack is not None and is_under_way(stack):
        time = stack.get("LastUpdatedTime") or stack.get("CreationTime")
    elif cluster is not None and cluster["ClusterStatus"] == "Creating":
        time = cluster.get("CreationTime")
    else:
        return None
    return time.astimezone(UTC) if time else None


def state_content(view: View) -> dict[str, Any]:
    """The stack, the cluster and its groups for --json."""
    cluster = view.cluster or {}
    return {
        "stack_status": None if view.stack is None else view.stack["StackStatus"],
        "cluster_status": cluster.get("ClusterStatus"),
        "groups": [
            {
                "group": group["InstanceGroupName"],
                "status": group_status(group),
                "current": group.get("CurrentCount"),
                "minimum": group.get("MinCount"),
                "target": group.get("TargetCount"),
                "active_operations": group.get("ActiveOperations") or {},
                "software_update_status": group.get("SoftwareUpdateStatus"),
                "training_plan_status": group.get("TrainingPlanStatus"),
            }
            for group in live.groups(cluster)
        ],
    }
