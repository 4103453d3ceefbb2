"""Schedules as AWS writes them: cron(minutes hours day-of-month month day-of-week year), in UTC."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

_MONTHS = {
    name: n
    for n, name in enumerate(["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1)
}
_DAYS = {name: n for n, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], 1)}
_FIELDS: tuple[tuple[str, int, int, Mapping[str, int]], ...] = (
    ("minutes", 0, 59, {}),
    ("hours", 0, 23, {}),
    ("day-of-month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day-of-week", 1, 7, _DAYS),
    ("year", 1970, 2199, {}),
)
_LOOKED_AHEAD = 6 * 366
"""Days. A schedule whose next time is later is treated as one that never comes."""

Schedule = tuple[frozenset[int], ...]
"""The values of each field that are a time of the schedule."""


def parse(expression: str) -> Schedule:
    """ValueError if it is not such an expression. L, W and # are not read."""
    found = re.fullmatch(r"cron\((.+)\)", expression.strip())
    parts = found[1].split() if found else []
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{expression} is not cron(minutes hours day-of-month month day-of-week year)")
    if (parts[2] == "?") == (parts[4] == "?"):
        raise ValueError(f"{expression} must have ? in exactly one of day-of-month and day-of-week")
    return tuple(_values(part, *field) for part, field in zip(parts, _FIELDS, strict=True))


def _values(part: str, name: str, low: int, high: int, names: Mapping[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for each in part.split(","):
        span, _, step = each.partition("/")
        first, _, last = span.partition("-")
        if span in ("*", "?"):
            begin, end = low, high
        else:
            begin = _number(first, name, names)
            end = _number(last, name, names) if last else high if step else begin
        if not (low <= begin <= end <= high) or (step and not step.isdecimal()) or step == "0":
            raise ValueError(f"{part} is not a value of {name}")
        values |= set(range(begin, end + 1, int(step or 1)))
    return frozenset(values)


def _number(text: str, name: str, names: Mapping[str, int]) -> int:
    if text.upper() in names:
        return names[text.upper()]
    if not text.isdecimal():
        raise ValueError(f"{text} is not a value of {name}")
    return int(text)


def next_time(expression: str, after: float) -> float | None:
    """The first time of the schedule after `after` (seconds since 1970); None if there is none in the next six years."""
    minutes, hours, days, months, weekdays, years = parse(expression)
    start = datetime.datetime.fromtimestamp(after, datetime.UTC)
    for ahead in range(_LOOKED_AHEAD):
        day = start.date() + datetime.timedelta(days=ahead)
        if not (day.year in years and day.month in months and day.day in days):
            continue
        if day.isoweekday() % 7 + 1 not in weekdays:
            continue
        for hour in sorted(hours):
            for minute in sorted(minutes):
                at = datetime.datetime.combine(day, datetime.time(hour, minute), datetime.UTC)
                if at.timestamp() > after:
                    return at.timestamp()
    return None
