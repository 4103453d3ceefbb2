"""ministack's alarms: their records, the data of their metrics, and what they do when their state changes.

Its own evaluation is not used (`services/alarms.py`). Its clock becomes that of the functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ministack.core import responses  # type: ignore[import-not-found]
from ministack.services import cloudwatch  # type: ignore[import-not-found]
from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found]

from cdk_hyperpod_local.alarms import Alarm, Datum, MetricId, Metrics, State
from cdk_hyperpod_local.engine.seam import policies

Json = Any
_SERVICE = "cloudwatch.amazonaws.com"


class _Time:
    """The module `time` with another clock, for one module of ministack."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.time = now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def install(now: Callable[[], float]) -> None:
    """`now`: the clock of data without a timestamp, and of state changes."""
    act, record = cloudwatch._dispatch_alarm_actions, provisioners._cw_metric_alarm_record

    def acted(alarm: Json, old: str, new: str, reason: str) -> None:
        # As on AWS, an action that the topic or its key does not allow has no effect, and the state changes.
        allowed = {
            field: [action for action in alarm.get(field) or [] if _may_publish(action, alarm["AlarmArn"])]
            for field in ("AlarmActions", "OKActions", "InsufficientDataActions")
        }
        act({**alarm, **allowed}, old, new, reason)

    def recorded(name: str, properties: Json) -> Json:
        if not properties.get("Metrics"):
            return record(name, properties)
        Alarm.of(properties)
        rest = {key: value for key, value in properties.items() if key != "Metrics"}
        whole = record(name, {**rest, "MetricName": "-", "Namespace": "-"})
        for key in ("MetricName", "Namespace", "Statistic", "Period", "Dimensions"):
            del whole[key]
        return {**whole, "Metrics": properties["Metrics"]}

    cloudwatch.time = _Time(now)
    cloudwatch._dispatch_alarm_actions = acted
    cloudwatch._evaluate_all_alarms = lambda: None
    cloudwatch._evaluate_alarm = lambda alarm: None
    provisioners._cw_metric_alarm_record = recorded


def _may_publish(action: str, alarm: str) -> bool:
    return not action.startswith("arn:aws:sns:") or policies.service_may_publish(action, _SERVICE, alarm)


def alarms() -> Iterator[tuple[str, str, Json]]:
    """Account, Region and record of every metric alarm."""
    for (account, region, _), alarm in list(cloudwatch._alarms._data.items()):
        yield account, region, alarm


def data(account: str, region: str, metric: MetricId, since: float) -> list[tuple[float, Datum]]:
    """The data of a metric since a time, oldest first."""
    namespace, name, dimensions = metric
    key = (namespace, name, cloudwatch._dims_key(dict(dimensions)))
    points = cloudwatch._metrics._data.get((account, region, key)) or []
    recent = [(float(point["Timestamp"]), _datum(point)) for point in list(points) if point["Timestamp"] >= since]
    return sorted(recent, key=lambda pair: pair[0])


def _datum(point: Json) -> Datum:
    if "_stat" not in point:
        return Datum.of(float(point["Value"]), float(point.get("Count", 1)))
    values = point["_stat"]
    return Datum(*(float(values[name]) for name in ("Minimum", "Maximum", "Sum", "SampleCount")))


def metrics_of(account: str, region: str, alarm: Alarm, since: float) -> Metrics:
    """The data that an alarm looks at."""
    found = Metrics()
    for metric in {query.metric for query in alarm.queries.values()}:
        for at, datum in data(account, region, metric, since):
            found.put(metric, at, datum)
    return found


def set_state(account: str, region: str, alarm: Json, state: State, reason: str) -> None:
    """Change an alarm's state, and do what it does in the new one."""
    old = alarm["StateValue"]
    if old == state:
        return
    with responses.request_scope(account, region):
        alarm |= {"StateValue": state, "StateReason": reason, "StateUpdatedTimestamp": int(cloudwatch.time.time())}
        cloudwatch._record_history(alarm["AlarmName"], old, state, reason)
        cloudwatch._dispatch_alarm_actions(alarm, old, state, reason)
        cloudwatch._evaluate_parent_alarms(alarm)


def put(account: str, region: str, namespace: str, name: str, value: float, **dimensions: str) -> None:
    """A metric of an AWS service itself."""
    with responses.request_scope(account, region):
        cloudwatch.record_metric(namespace, name, value, dimensions=dimensions)
