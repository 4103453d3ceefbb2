"""An alarm's settings, read from PutMetricAlarm's parameters or from CloudFormation's properties: they are the same."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .metrics import MetricId, Metrics, statistic

Json = Mapping[str, Any]
Missing = Literal["missing", "ignore", "breaching", "notBreaching"]
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanOrEqualToThreshold": operator.le,
    "LessThanThreshold": operator.lt,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The statistic of a metric."""

    metric: MetricId
    statistic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The settings that decide an alarm's state."""

    queries: Mapping[str, Query]
    """By id, as the expression names them."""
    expression: str
    """Arithmetic with ids: a single id, without metric math."""
    period: int
    """Seconds."""
    evaluation_periods: int
    datapoints_to_alarm: int
    threshold: float
    comparison: str
    missing: Missing

    @classmethod
    def of(cls, given: Json) -> Alarm:
        """The alarm with these properties. ValueError for metric math beyond arithmetic, and for anomaly detection."""
        queries, expression, period = _metric_math(given) if given.get("Metrics") else _single(given)
        periods = int(given["EvaluationPeriods"])
        if given["ComparisonOperator"] not in _COMPARISONS:
            raise ValueError(f"the comparison {given['ComparisonOperator']} is not evaluated")
        return cls(
            queries=queries,
            expression=expression,
            period=period,
            evaluation_periods=periods,
            datapoints_to_alarm=int(given.get("DatapointsToAlarm") or periods),
            threshold=float(given["Threshold"]),
            comparison=given["ComparisonOperator"],
            missing=given.get("TreatMissingData") or "missing",
        )

    def breaches(self, metrics: Metrics, start: float) -> bool | None:
        """Whether the period that begins at `start` breaches; None if it has no value."""
        end = start + self.period
        values = {
            name: statistic(query.statistic, metrics.period(query.metric, start, end))
            for name, query in self.queries.items()
        }
        value = values[self.expression] if self.expression in values else _calculated(_parsed(self.expression), values)
        return None if value is None else self.compares(value)

    def compares(self, value: float) -> bool:
        """Whether a value of a period breaches."""
        return _COMPARISONS[self.comparison](value, self.threshold)


def _single(given: Json) -> tuple[dict[str, Query], str, int]:
    name = str(given.get("ExtendedStatistic") or given.get("Statistic") or "Average")
    return {"value": Query(metric=metric_id(given), statistic=name)}, "value", int(given["Period"])


def _metric_math(given: Json) -> tuple[dict[str, Query], str, int]:
    entries = {entry["Id"]: entry for entry in given["Metrics"]}
    queries = {
        name: Query(metric=metric_id(entry["MetricStat"]["Metric"]), statistic=entry["MetricStat"]["Stat"])
        for name, entry in entries.items()
        if "MetricStat" in entry
    }
    (expression,) = (
        entry.get("Expression", name) for name, entry in entries.items() if entry.get("ReturnData", True) is not False
    )
    periods = {int(entry["MetricStat"]["Period"]) for entry in entries.values() if "MetricStat" in entry}
    if len(periods) != 1:
        raise ValueError("the metrics of an expression must have one period")
    _calculated(_parsed(expression), dict.fromkeys(queries, 1.0))
    return queries, expression, periods.pop()


def metric_id(given: Json) -> MetricId:
    """The metric that is named by Namespace, MetricName and Dimensions."""
    dimensions = frozenset((each["Name"], each["Value"]) for each in given.get("Dimensions") or ())
    return str(given["Namespace"]), str(given["MetricName"]), dimensions


@functools.cache
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _calculated(node: ast.expr, values: Mapping[str, float | None]) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            first, second = _calculated(left, values), _calculated(right, values)
            if first is None or second is None or (second == 0 and isinstance(op, ast.Div)):
                return None
            return _ARITHMETIC[type(op)](first, second)
        case _:
            raise ValueError(f"the expression {ast.unparse(node)} is not arithmetic with the ids of metrics")
