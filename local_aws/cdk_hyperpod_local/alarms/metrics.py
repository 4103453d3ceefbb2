"""The data of metrics: what PutMetricData has stored, and the statistics of a period."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MetricId = tuple[str, str, frozenset[tuple[str, str]]]
"""Namespace, name and dimensions. Data with other dimensions are another metric's."""


@dataclass(frozen=True, slots=True)
class Datum:
    """A stored value: a single one, or a set of them as its statistics."""

    low: float
    high: float
    total: float
    count: float = 1.0

    @classmethod
    def of(cls, value: float, count: float = 1.0) -> Datum:
        """`value`, `count` times."""
        return cls(value, value, value * count, count)


@dataclass(slots=True)
class Metrics:
    """All metrics of one account and Region. Times are seconds since 1970, and must not fall within a metric."""

    _times: dict[MetricId, list[float]] = field(default_factory=lambda: defaultdict(list))
    _data: dict[MetricId, list[Datum]] = field(default_factory=lambda: defaultdict(list))

    def put(self, metric: MetricId, at: float, datum: Datum) -> None:
        """Store a datum."""
        self._times[metric].append(at)
        self._data[metric].append(datum)

    def forget(self, before: float) -> None:
        """Drop all data that are older."""
        for metric, times in self._times.items():
            old = bisect_left(times, before)
            del times[:old], self._data[metric][:old]

    def period(self, metric: MetricId, start: float, end: float) -> Sequence[Datum]:
        """The data from `start` until before `end`."""
        times = self._times.get(metric)
        if not times:
            return ()
        return self._data[metric][bisect_left(times, start) : bisect_left(times, end)]


_STATISTICS: Mapping[str, Callable[[Sequence[Datum]], float]] = {
    "Sum": lambda data: math.fsum(each.total for each in data),
    "Average": lambda data: math.fsum(each.total for each in data) / math.fsum(each.count for each in data),
    "Minimum": lambda data: min(each.low for each in data),
    "Maximum": lambda data: max(each.high for each in data),
    "SampleCount": lambda data: math.fsum(each.count for each in data),
}


def statistic(name: str, data: Sequence[Datum]) -> float | None:
    """The value of a period; None if it has no data.

    ValueError for a statistic that is not calculated here: trimmed means and the like.
    """
    if not data:
        return None
    if name in _STATISTICS:
        return _STATISTICS[name](data)
    if name.startswith("p"):
        values = sorted(each.total / each.count for each in data)
        return values[max(math.ceil(len(values) * float(name[1:]) / 100) - 1, 0)]
    raise ValueError(f"the statistic {name} is not calculated")
