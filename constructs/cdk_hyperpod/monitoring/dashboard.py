"""The dashboard: alarms, groups, the file system, and what the health monitoring agent logged last."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from ..storage.lustre import ILustreFileSystem
from .metrics import MetricName, search_of_groups

_WIDTH = 24
_HEIGHT = 6
_HEALTH_RECORDS = (
    "fields @timestamp, @logStream, @message",
    "filter @logStream like 'SagemakerHealthMonitoringAgent' and @message like 'HealthMonitoringAgentDetectionEvent'",
    "sort @timestamp desc",
    "limit 20",
)
_GRAPHS: Sequence[tuple[str, MetricName]] = (
    ("Missing nodes", "MissingNodes"),
    ("Nodes below the minimum", "NodesBelowMinimum"),
    ("Days until training plans end", "TrainingPlanDaysLeft"),
)


def widgets(
    cluster_name: str,
    log_group_name: str,
    alarms: Sequence[cloudwatch.Alarm],
    file_system: ILustreFileSystem | None,
) -> list[list[cloudwatch.IWidget]]:
    """The rows of the dashboard."""
    rows: list[list[cloudwatch.IWidget]] = [
        [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=[*alarms], width=_WIDTH)],
        [_graph(title, [search_of_groups(cluster_name, name)], len(_GRAPHS)) for title, name in _GRAPHS],
    ]
    if file_system is not None:
        rows.append(_storage(file_system))
    rows.append([_health_records(log_group_name)])
    return rows


def _storage(file_system: ILustreFileSystem) -> list[cloudwatch.IWidget]:
    minute = Duration.minutes(1)
    free = file_system.metric_free_data_storage_capacity()
    traffic = [file_system.metric(name, statistic="Sum", period=minute) for name in ("DataReadBytes", "DataWriteBytes")]
    return [
        _graph("Free bytes of the file system", [free], 2),
        _graph("Bytes read and written in a minute", traffic, 2),
    ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric], in_a_row: int) -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=[*metrics],
        left_y_axis=cloudwatch.YAxisProps(min=0),
        width=_WIDTH // in_a_row,
        height=_HEIGHT,
    )


def _health_records(log_group_name: str) -> cloudwatch.IWidget:
    return cloudwatch.LogQueryWidget(
        title="What the health monitoring agent logged last",
        log_group_names=[log_group_name],
        query_lines=[*_HEALTH_RECORDS],
        width=_WIDTH,
        height=_HEIGHT,
    )
