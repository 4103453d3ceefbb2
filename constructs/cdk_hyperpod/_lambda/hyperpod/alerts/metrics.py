"""The metrics of a cluster, from what DescribeCluster and DescribeTrainingPlan say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from .live import Group, Live

NAMESPACE = "HyperPod/Clusters"
HEARTBEAT = "Heartbeat"
MOST = 1000
"""Metrics in one PutMetricData (CloudWatch API reference)."""
_OUTDATED = frozenset({"SecurityUpdateRequired", "EndOfLife"})
"""UpdateAvailable is left out: every release would ring."""
_DAY = 86_400
_MINUTE = timedelta(minutes=1)

Datum = Mapping[str, Any]


def of_cluster(live: Live, plan_ends: Mapping[str, datetime], now: datetime) -> list[Datum]:
    """Each group's metrics and the cluster's. `plan_ends`: by the ARN of a training plan. A plan without an end has no metric."""
    by_group = {group.name: dict(_of_group(group, plan_ends, now)) for group in live.groups}
    total: dict[str, float] = {}
    for values in by_group.values():
        for name, value in values.items():
            total[name] = _together(name, total.get(name), value)
    data = [
        _datum(name, value, now, live.name, group) for group, found in by_group.items() for name, value in found.items()
    ]
    # The cluster's come first: its alarms use them.
    return [*(_datum(name, value, now, live.name) for name, value in total.items()), *data]


def for_two_minutes(data: Sequence[Datum]) -> list[Datum]:
    """The data for their minute and for the next one.

    CloudWatch evaluates an alarm every minute, over periods that end with that minute. If runs were now in one minute and now, a few
    seconds late, in the next, periods would be empty, and an alarm would end and begin again.
    """
    return [*data, *({**datum, "Timestamp": datum["Timestamp"] + _MINUTE} for datum in data)]


def heartbeat(cluster: str, now: datetime) -> Datum:
    """Says that everything could be measured."""
    return _datum(HEARTBEAT, 1, now, cluster)


def look_for_heartbeat(cluster: str, now: datetime) -> dict[str, Any]:
    """Parameters of GetMetricStatistics that find a heartbeat of this time."""
    return {
        "Namespace": NAMESPACE,
        "MetricName": HEARTBEAT,
        "Dimensions": [{"Name": "ClusterName", "Value": cluster}],
        "StartTime": now - timedelta(minutes=15),
        "EndTime": now + timedelta(minutes=5),
        "Period": 60,
        "Statistics": ["Sum"],
    }


def _of_group(group: Group, plan_ends: Mapping[str, datetime], now: datetime) -> Iterator[tuple[str, float]]:
    yield "MissingNodes", group.missing
    yield "NodesBelowMinimum", max(0, group.minimum - group.current)
    if group.plan in plan_ends:
        yield "TrainingPlanDaysLeft", max(0.0, (plan_ends[group.plan] - now).total_seconds() / _DAY)
    if group.image_status:
        yield "OutdatedImage", int(group.image_status in _OUTDATED)


def _together(name: str, total: float | None, value: float) -> float:
    if total is None:
        return value
    return min(total, value) if name == "TrainingPlanDaysLeft" else total + value


def _datum(name: str, value: float, now: datetime, cluster: str, group: str = "") -> Datum:
    names = {"ClusterName": cluster, "InstanceGroup": group}
    dimensions = [{"Name": key, "Value": value} for key, value in names.items() if value]
    return {"MetricName": name, "Dimensions": dimensions, "Value": float(value), "Timestamp": now}
