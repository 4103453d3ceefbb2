"""A monitored cluster on a simulated clock: the function's metrics of the simulated HyperPod, and the template's alarms.

The function's own code runs every five minutes, nearly punctually, and each alarm is evaluated once a minute.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from cdk_hyperpod._lambda.hyperpod.alerts.handler import Alerts
from cdk_hyperpod_local.alarms import Alarm, Datum, MetricId, Metrics, metric_id
from cdk_hyperpod_local.alarms.evaluation import MINUTE, MORE_PERIODS, judge
from cdk_hyperpod_local.hyperpod import ApiError, HyperPod, ManualClock

Json = Any
SCHEDULE = 300
DELAY = 20
"""The most seconds by which a run is late."""


class Watched:
    """`alarms`: name -> the properties of AWS::CloudWatch::Alarm."""

    def __init__(self, hyperpod: HyperPod, cluster_arn: str, alarms: dict[str, Json], seed: int = 0) -> None:
        assert isinstance(hyperpod.clock, ManualClock)
        self.hyperpod, self.clock = hyperpod, hyperpod.clock
        self._sagemaker: Any = hyperpod.client()
        self.calls: dict[str, int] = {}
        """The function's calls of SageMaker, by operation."""
        self.fired: list[tuple[float, str]] = []
        """When which alarm went to ALARM."""
        self.states = dict.fromkeys(alarms, "INSUFFICIENT_DATA")
        self.silent = False
        """The schedule does not run."""
        self.metrics = Metrics()
        self._random = Random(seed)
        self._alarms = {name: Alarm.of(properties) for name, properties in alarms.items()}
        self._known: dict[str, dict[float, bool | None]] = {name: {} for name in alarms}
        self._until = {name: self.clock.now() + self._range(name) for name in alarms}
        environment = {
            "CLUSTER_ARN": cluster_arn,
            "TOPIC_ARN": "arn:aws:sns:us-west-2:000000000000:t",
            "QUEUE_URL": "q",
            "LOG_GROUP": f"/aws/sagemaker/Clusters/train/{cluster_arn.rpartition('/')[2]}",
        }
        self._function = Alerts(environment, self._client, now=self._now, log=lambda line: None)
        self._answers: dict[str, tuple[Json, Json]] = {}
        self._changes = 0
        self._next_run = self.clock.now() + SCHEDULE
        self.run_schedule()  # FirstMetrics, before the alarms are made

    # -- what the function calls ---------------------------------------------------------------------------------------

    def _client(self, service: str) -> Any:
        return self

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC)

    def describe_cluster(self, **request: str) -> Json:
        return self._answer("DescribeCluster", self._sagemaker.describe_cluster, request)

    def describe_training_plan(self, **request: str) -> Json:
        return self._answer("DescribeTrainingPlan", self._sagemaker.describe_training_plan, request)

    def _answer(self, operation: str, call: Callable[..., Json], request: dict[str, str]) -> Json:
        """As long as nothing happens in HyperPod, the answer is the last one."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        self.hyperpod.tick()
        due = self.hyperpod.next_event
        if self._answers.get(operation, (None, None))[0] != (self._changes, due):
            self._answers[operation] = ((self._changes, due), call(**request))
        return self._answers[operation][1]

    def put_metric_data(self, *, Namespace: str, MetricData: Iterable[Json]) -> None:
        for datum in MetricData:
            if len(datum["Dimensions"]) == 1:  # the alarms look at no metric of a group
                self.put(metric_id({"Namespace": Namespace, **datum}), datum["Value"], datum["Timestamp"].timestamp())

    def put(self, metric: MetricId, value: float, at: float | None = None) -> None:
        """A value of a metric. `at`: absent, now."""
        self.metrics.put(metric, (at or self.clock.now()) // MINUTE * MINUTE, Datum.of(value))
        self._suspect(
            name
            for name, alarm in self._alarms.items()
            if alarm.queries["value"].metric == metric and alarm.compares(value)
        )

    # -- time ----------------------------------------------------------------------------------------------------------

    def do(self, what: Callable[[HyperPod], Json]) -> None:
        """Change the cluster. A refusal changes nothing."""
        self._changes += 1
        with contextlib.suppress(ApiError):
            what(self.hyperpod)

    def run_schedule(self) -> None:
        self._function.measure()

    def pass_time(self, seconds: float) -> None:
        """What happens in HyperPod, the schedule, and the alarms: minute by minute if one of them may change."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(max(self._next(end) - self.clock.now(), 0))
            due = self.hyperpod.next_event
            if due is not None and due <= self.clock.now():
                self.hyperpod.tick()
            if self.clock.now() >= self._next_run:
                self._run_late()
            self._evaluate()

    def _next(self, end: float) -> float:
        now = self.clock.now()
        due = self.hyperpod.next_event
        next_minute = (now // MINUTE + 1) * MINUTE
        if self.silent or max(self._until.values()) >= now:
            return min(next_minute, self._next_run) if self._next_run > now else next_minute
        return min(end, self._next_run, next_minute if due is None else max(due, next_minute))

    def _run_late(self) -> None:
        self._next_run += SCHEDULE
        if self.silent or self._random.random() < 0.003:  # a run fails now and then
            self._suspect(self._alarms)
            return
        self.clock.advance(self._random.random() * DELAY)
        self.run_schedule()
        if self._random.random() < 0.003:
            self.metrics.forget(self.clock.now() - 2 * 86_400)

    def _range(self, name: str) -> float:
        alarm = self._alarms[name]
        return alarm.period * (alarm.evaluation_periods + MORE_PERIODS + 1)

    def _suspect(self, names: Iterable[str]) -> None:
        """Alarms whose values are all there and good stay as they are. All others have to be evaluated."""
        for name in names:
            self._until[name] = self.clock.now() + self._range(name)

    def _evaluate(self) -> None:
        end = self.clock.now() // MINUTE * MINUTE
        for name, alarm in self._alarms.items():
            if self._until[name] < end:
                continue
            looked_at = range(alarm.evaluation_periods + MORE_PERIODS, 0, -1)
            state = judge(alarm, [self._breaches(name, end - number * alarm.period) for number in looked_at])
            if state is not None and state != self.states[name]:
                self.states[name] = state
                self.fired += [(self.clock.now(), name)] if state == "ALARM" else []

    def _breaches(self, name: str, start: float) -> bool | None:
        """A period that has ended gets no more data, so its value is calculated once."""
        known = self._known[name]
        if start not in known:
            if len(known) > 5_000:
                known.clear()
            known[start] = self._alarms[name].breaches(self.metrics, start)
        return known[start]
