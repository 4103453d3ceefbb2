"""Alarms become what CloudWatch's user guide says: its two tables of missing data, and everything around them."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_hyperpod_local.alarms import Alarm, Datum, Metrics, evaluate, metric_id
from cdk_hyperpod_local.alarms.evaluation import judge

Json = dict[str, Any]
KEEP = None
ALL = {"missing", "ignore", "breaching", "notBreaching"}
NOW = 1_780_000_020.0


def alarm(**given: Any) -> Json:
    base = {
        "Namespace": "N",
        "MetricName": "M",
        "Dimensions": [{"Name": "Cluster", "Value": "a"}],
        "Statistic": "Maximum",
        "Period": 300,
        "EvaluationPeriods": 3,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
    }
    return {**base, **given}


def slots(text: str) -> list[bool | None]:
    return [{"X": True, "0": False, "-": None}[each] for each in text.split()]


Table = list[tuple[str, dict[str, str | None]]]
THREE_OF_THREE: Table = [
    ("0 - X - X", {"missing": "OK", "ignore": "OK", "breaching": "OK", "notBreaching": "OK"}),
    ("0 - - - -", {"missing": "OK", "ignore": "OK", "breaching": "OK", "notBreaching": "OK"}),
    ("- - - - -", {"missing": "INSUFFICIENT_DATA", "ignore": KEEP, "breaching": "ALARM", "notBreaching": "OK"}),
    ("0 X X - X", dict.fromkeys(sorted(ALL), "ALARM")),
    ("- - X - -", {"missing": "ALARM", "ignore": KEEP, "breaching": "ALARM", "notBreaching": "OK"}),
    ("- - - - X", {"missing": KEEP, "ignore": KEEP, "breaching": "ALARM", "notBreaching": "OK"}),
    ("- - - X -", {"missing": KEEP, "ignore": KEEP, "breaching": "ALARM", "notBreaching": "OK"}),
]
TWO_OF_THREE: Table = [
    ("0 - X - X", dict.fromkeys(sorted(ALL), "ALARM")),
    ("0 0 X 0 X", dict.fromkeys(sorted(ALL), "ALARM")),
    ("0 - X - -", {"missing": "OK", "ignore": "OK", "breaching": "ALARM", "notBreaching": "OK"}),
    ("- - - - 0", {"missing": "OK", "ignore": "OK", "breaching": "ALARM", "notBreaching": "OK"}),
    ("- - - X -", {"missing": "ALARM", "ignore": KEEP, "breaching": "ALARM", "notBreaching": "OK"}),
]
TABLES = [
    pytest.param(needed, text, missing, state, id=f"{needed}/3 {text} {missing}")
    for needed, table in ((3, THREE_OF_THREE), (2, TWO_OF_THREE))
    for text, states in table
    for missing, state in states.items()
]


@pytest.mark.parametrize(("needed", "text", "missing", "state"), TABLES)
def test_the_tables_of_the_guide(needed: int, text: str, missing: str, state: str | None) -> None:
    made = Alarm.of(alarm(DatapointsToAlarm=needed, TreatMissingData=missing))
    assert judge(made, slots(text)) == state


def test_another_dimension_is_another_metric() -> None:
    metrics, made = Metrics(), Alarm.of(alarm(EvaluationPeriods=1))
    other = metric_id({"Namespace": "N", "MetricName": "M", "Dimensions": [{"Name": "Cluster", "Value": "b"}]})
    more = metric_id(
        {
            "Namespace": "N",
            "MetricName": "M",
            "Dimensions": [{"Name": "Cluster", "Value": "a"}, {"Name": "Group", "Value": "p5"}],
        }
    )
    for metric in (other, more):
        metrics.put(metric, NOW - 60, Datum.of(1))
    assert evaluate(made, metrics, NOW) == "INSUFFICIENT_DATA"
    metrics.put(metric_id(alarm()), NOW + 30, Datum.of(1))
    assert evaluate(made, metrics, NOW + 40) == "INSUFFICIENT_DATA", "the minute is not over"
    assert evaluate(made, metrics, NOW + 60) == "ALARM"


def test_nothing_arrives_and_the_alarm_is_evaluated() -> None:
    """A heartbeat every five minutes, which is not punctual; then silence."""
    metrics = Metrics()
    made = Alarm.of(
        alarm(Statistic="Sum", Threshold=1, ComparisonOperator="LessThanThreshold", TreatMissingData="breaching")
    )
    for number in range(12):
        metrics.put(metric_id(alarm()), NOW + 300 * number + number % 5 * 12, Datum.of(1))
    last = NOW + 300 * 11
    found = [evaluate(made, metrics, NOW + 60 * minute) for minute in range(2, 55)]
    assert set(found) == {"OK"}
    fired = next(minute for minute in range(60) if evaluate(made, metrics, last + 60 * minute) == "ALARM")
    assert 15 <= fired <= 26


@pytest.mark.parametrize(
    ("statistic", "value"),
    [("Sum", 13), ("Average", 3.25), ("Minimum", 1), ("Maximum", 6), ("SampleCount", 4), ("p50", 3), ("p99", 3)],
)
def test_statistics(statistic: str, value: float) -> None:
    metrics = Metrics()
    for datum in (Datum.of(3, 2), Datum(1, 6, 7, 2)):
        metrics.put(metric_id(alarm()), NOW - 100, datum)
    for threshold, state in ((value, "ALARM"), (value + 0.6, "OK")):
        given = alarm(Statistic=statistic, Threshold=threshold, ComparisonOperator="GreaterThanOrEqualToThreshold")
        assert evaluate(Alarm.of({**given, "EvaluationPeriods": 1}), metrics, NOW) == state


def metric_math(expression: str) -> Json:
    def query(name: str) -> Json:
        stat = {"Metric": {"Namespace": "N", "MetricName": name}, "Period": 60, "Stat": "Sum"}
        return {"Id": name, "MetricStat": stat, "ReturnData": False}

    below = {"ComparisonOperator": "LessThanThreshold", "Threshold": 10, "EvaluationPeriods": 1}
    return {"Metrics": [{"Id": "e", "Expression": expression}, query("free"), query("used")], **below}


def test_an_alarm_evaluates_metric_math() -> None:
    metrics, made = Metrics(), Alarm.of(metric_math("100 * free / (free + used)"))
    metrics.put(("N", "used", frozenset()), NOW - 60, Datum.of(91))
    assert evaluate(made, metrics, NOW) == "INSUFFICIENT_DATA", "without one of them there is no value"
    metrics.put(("N", "free", frozenset()), NOW - 60, Datum.of(9))
    assert evaluate(made, metrics, NOW) == "ALARM"


@pytest.mark.parametrize("expression", ["FILL(free, 0)", "free if used else 1", "unknown + 1", "'free'"])
def test_more_metric_math_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="is not arithmetic"):
        Alarm.of(metric_math(expression))


def test_old_data_can_be_dropped() -> None:
    metrics = Metrics()
    for number in range(10):
        metrics.put(metric_id(alarm()), NOW + number, Datum.of(number))
    metrics.forget(NOW + 7)
    assert [each.total for each in metrics.period(metric_id(alarm()), 0, NOW * 2)] == [7, 8, 9]
