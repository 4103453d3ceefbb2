"""How CloudWatch evaluates a metric alarm, without an engine: periods, missing data, M out of N, metric math.

May import: nothing.
"""

from .alarm import Alarm, metric_id
from .evaluation import State, evaluate
from .metrics import Datum, MetricId, Metrics

__all__ = ["Alarm", "Datum", "MetricId", "Metrics", "State", "evaluate", "metric_id"]
