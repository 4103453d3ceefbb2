"""The metrics that the alerts' function writes every five minutes."""

from __future__ import annotations

from typing import Literal

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from ..config.monitoring import PERIOD_MINUTES
from .permissions import NAMESPACE

MetricName = Literal["Heartbeat", "MissingNodes", "NodesBelowMinimum", "OutdatedImage", "TrainingPlanDaysLeft"]
PERIOD = Duration.minutes(PERIOD_MINUTES)
DEFAULT_STATISTIC = {"Heartbeat": "Sum", "TrainingPlanDaysLeft": "Minimum"}
"""By metric. All others: Maximum."""


def cluster_metric(
    cluster_name: str,
    name: MetricName,
    *,
    group: str | None = None,
    period: Duration | None = None,
    statistic: str | None = None,
) -> cloudwatch.Metric:
    """A metric of a group. `group`: absent, of the whole cluster."""
    of_group = {} if group is None else {"InstanceGroup": group}
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"ClusterName": cluster_name, **of_group},
        period=period or PERIOD,
        statistic=statistic or DEFAULT_STATISTIC.get(name, "Maximum"),
    )


def search_of_groups(cluster_name: str, name: MetricName) -> cloudwatch.SearchExpression:
    """A metric of each group that the cluster has had lately, for a graph: groups come and go without a deployment."""
    statistic = DEFAULT_STATISTIC.get(name, "Maximum")
    schema = f"{{{NAMESPACE},ClusterName,InstanceGroup}}"
    return cloudwatch.SearchExpression(
        expression=f"SEARCH('{schema} MetricName=\"{name}\" ClusterName=\"{cluster_name}\"', '{statistic}', {PERIOD_MINUTES * 60})",
        label="",
        period=PERIOD,
    )
