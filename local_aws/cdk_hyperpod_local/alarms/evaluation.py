"""The state of an alarm: "Configuring how CloudWatch alarms treat missing data" (CloudWatch user guide).

CloudWatch evaluates once a minute, over the periods that end with that minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .alarm import Alarm, Missing
from .metrics import Metrics

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
MINUTE = 60
MORE_PERIODS = 2
"""How many periods beyond EvaluationPeriods are looked at if data are missing. The guide's examples have two."""
_ALL_MISSING: Mapping[Missing, State | None] = {
    "missing": "INSUFFICIENT_DATA",
    "ignore": None,
    "breaching": "ALARM",
    "notBreaching": "OK",
}
_FILLED: Mapping[Missing, bool] = {"breaching": True, "notBreaching": False}


def evaluate(alarm: Alarm, metrics: Metrics, now: float) -> State | None:
    """The alarm's state at `now` (seconds since 1970); None: it keeps its state."""
    end = now // MINUTE * MINUTE
    looked_at = range(alarm.evaluation_periods + MORE_PERIODS, 0, -1)
    return judge(alarm, [alarm.breaches(metrics, end - number * alarm.period) for number in looked_at])


def judge(alarm: Alarm, periods: Sequence[bool | None]) -> State | None:
    """The state by the periods that were looked at, oldest first: breaching, not breaching, or missing (None)."""
    known = [breaches for breaches in periods if breaches is not None]
    if not known:
        return _ALL_MISSING[alarm.missing]
    if len(known) >= alarm.evaluation_periods:
        return _by_count(alarm, known[-alarm.evaluation_periods :])
    if alarm.missing in _FILLED:
        filled = [_FILLED[alarm.missing]] * (alarm.evaluation_periods - len(known))
        return _by_count(alarm, [*known, *filled])
    if _by_count(alarm, known) == "ALARM" or not all(known):
        return _by_count(alarm, known)
    return "ALARM" if alarm.missing == "missing" and _is_old_enough(alarm, periods) else None


def _by_count(alarm: Alarm, known: Sequence[bool]) -> State:
    return "ALARM" if sum(known) >= alarm.datapoints_to_alarm else "OK"


def _is_old_enough(alarm: Alarm, periods: Sequence[bool | None]) -> bool:
    """Whether a breaching period is at least as old as DatapointsToAlarm, and nothing newer contradicts it.

    Otherwise a first breaching value would be an alarm before the next one is known.
    """
    recent = periods[-alarm.evaluation_periods :]
    oldest = next((len(recent) - position for position, breaches in enumerate(recent) if breaches), 0)
    return oldest >= alarm.datapoints_to_alarm
