"""The alarms: one of each kind for the whole cluster, so that groups may come and go without a deployment.

None has an action for its other states, so a new alarm and a deleted one send nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from ..config.monitoring import PERIOD_MINUTES, MonitoringConfig
from ..storage.lustre import ILustreFileSystem
from .metrics import cluster_metric

PAGE = "docs/alerts.md"
_HOUR = Duration.hours(1)
_MINUTE = Duration.minutes(1)
_SILENCE_MINUTES = 15
_STORAGE_MINUTES = 15
_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_AT_MOST = cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD
_NOT_BREACHING = cloudwatch.TreatMissingData.NOT_BREACHING
"""A value counts as good until it is known: otherwise the first bad one would ring, whatever the number of periods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """One alarm."""

    construct_id: str
    metric: cloudwatch.IMetric
    compares: cloudwatch.ComparisonOperator
    threshold: float
    periods: int
    """How many periods in a row must breach."""
    says: str
    """What is wrong, for the description."""
    anchor: str
    """The heading of the alarm on its page."""
    missing: cloudwatch.TreatMissingData = _NOT_BREACHING

    def description(self, cluster_name: str) -> str:
        """What the notification says beside the metric."""
        return f"HyperPod cluster {cluster_name}: {self.says}. What to do: {PAGE}#{self.anchor} (cdk-hyperpod docs)"


def alarms_of_cluster(cluster_name: str, config: MonitoringConfig, *, has_images: bool) -> Iterator[AlarmSpec]:
    """The alarms on the metrics that the function writes. `has_images`: whether HyperPod may report the images' status."""
    minutes = math.ceil(config.below_minimum_minutes / PERIOD_MINUTES) * PERIOD_MINUTES
    yield AlarmSpec(
        construct_id="BelowMinimum",
        metric=cluster_metric(cluster_name, "NodesBelowMinimum"),
        compares=_ABOVE,
        threshold=0,
        periods=minutes // PERIOD_MINUTES,
        says=f"groups have had fewer nodes than their minimum for {minutes} minutes",
        anchor="below-the-minimum",
    )
    yield AlarmSpec(
        construct_id="NodesMissing",
        metric=cluster_metric(cluster_name, "MissingNodes"),
        compares=_ABOVE,
        threshold=0,
        periods=config.missing_nodes_hours * 60 // PERIOD_MINUTES,
        says=f"groups have had fewer nodes than they should have for {config.missing_nodes_hours} h",
        anchor="nodes-are-missing",
    )
    yield AlarmSpec(
        construct_id="TrainingPlanEnds",
        metric=cluster_metric(cluster_name, "TrainingPlanDaysLeft", period=_HOUR),
        compares=_AT_MOST,
        threshold=config.training_plan_days,
        periods=1,
        says=f"a training plan ends within {config.training_plan_days} days",
        anchor="a-training-plan-ends",
    )
    if has_images:
        yield AlarmSpec(
            construct_id="ImageOutdated",
            metric=cluster_metric(cluster_name, "OutdatedImage", period=_HOUR),
            compares=_ABOVE,
            threshold=0,
            periods=1,
            says="groups have an image that needs a security update or is no longer supported",
            anchor="an-image-is-outdated",
        )
    yield AlarmSpec(
        construct_id="HeartbeatGone",
        metric=cluster_metric(cluster_name, "Heartbeat"),
        compares=_BELOW,
        threshold=1,
        periods=_SILENCE_MINUTES // PERIOD_MINUTES,
        says=f"the function that watches it has written nothing for {_SILENCE_MINUTES} minutes, so the other alarms know nothing",
        anchor="the-heartbeat-is-gone",
        missing=cloudwatch.TreatMissingData.BREACHING,
    )


def alarm_of_dead_letters(queue: sqs.Queue) -> AlarmSpec:
    """An alarm on events that the function could not handle. SQS reports nothing about a queue that is idle for hours."""
    return AlarmSpec(
        construct_id="DeadLetters",
        metric=queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(PERIOD_MINUTES)),
        compares=_ABOVE,
        threshold=0,
        periods=1,
        says="events could not be handled, and wait in the dead-letter queue",
        anchor="events-could-not-be-handled",
        missing=cloudwatch.TreatMissingData.IGNORE,
    )


def alarm_of_storage(file_system: ILustreFileSystem, free_percent: int) -> AlarmSpec:
    """An alarm on the free space of a file system.

    FSx writes a value for each target every minute, so a sum over a minute is the file system's. For an existing file system, whose
    capacity is not known, the share is calculated from what is used.
    """
    free = file_system.metric_free_data_storage_capacity()
    if file_system.capacity_gib is None:
        metric, threshold = _free_share(file_system, free), float(free_percent)
    else:
        metric, threshold = free, file_system.capacity_gib * 2**30 * free_percent / 100
    return AlarmSpec(
        construct_id="StorageNearlyFull",
        metric=metric,
        compares=_BELOW,
        threshold=threshold,
        periods=_STORAGE_MINUTES,
        says=f"less than {free_percent} % of its Lustre file system is free",
        anchor="the-file-system-is-nearly-full",
    )


def _free_share(file_system: ILustreFileSystem, free: cloudwatch.IMetric) -> cloudwatch.IMetric:
    used = file_system.metric("PhysicalDiskUsage", statistic="Sum", period=_MINUTE)
    return cloudwatch.MathExpression(
        expression="100 * free / (free + used)",
        using_metrics={"free": free, "used": used},
        label="Free storage in percent",
        period=_MINUTE,
    )
