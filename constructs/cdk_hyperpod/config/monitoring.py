"""The settings of `monitoring`: who learns of failures, and after how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..typed.bounds import Pattern, Range
from .effects import IN_PLACE, Change, in_place

TopicArn = Annotated[
    str,
    Pattern(
        # Without `.fifo` at the end: such a topic needs a group for each message, and has no e-mail.
        r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}",
        "a standard SNS topic's ARN such as arn:aws:sns:us-west-2:111122223333:oncall",
        length=512,
    ),
]
EmailAddress = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+",
        "an e-mail address such as oncall@example.com",
        length=254,
    ),
]
PERIOD_MINUTES = 5
"""How often the metrics are written. CloudWatch looks back one day at most for an alarm with periods this short."""
BelowMinimumMinutes = Annotated[int, Range(PERIOD_MINUTES, 1440)]
MissingNodesHours = Annotated[int, Range(1, 24)]
TrainingPlanDays = Annotated[int, Range(1, 365)]
FreeStoragePercent = Annotated[int, Range(1, 99)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringConfig:
    """Messages about failures with HyperPod's reason, alarms on capacity, and a dashboard.

    A change touches no node. docs/alerts.md explains each message and each alarm.
    """

    topic_arn: Annotated[
        TopicArn | None,
        Change(
            effect="in place",
            says="a topic that this file created is deleted with its subscriptions",
            removed=in_place("a topic is created, and nobody has subscribed to it"),
        ),
    ] = None
    """An existing SNS topic of the cluster's account and region that gets messages and alarms. `cdk-hyperpod preflight`
    checks whether its policy and its key allow that. Absent: a topic under the cluster's key is created, and the output
    AlertsTopicArn has its ARN."""
    emails: Annotated[tuple[EmailAddress, ...], in_place("a new address has to confirm")] = ()
    """E-mail addresses that the created topic sends to. SNS asks each for a confirmation first, and deletes the
    subscription if nobody confirms. Cannot be combined with `topic_arn`. Absent: nobody, until you subscribe."""
    below_minimum_minutes: Annotated[BelowMinimumMinutes, IN_PLACE] = 30
    """Alarm if a group has had fewer nodes than its `min_instance_count` for so many minutes, rounded up to 5."""
    missing_nodes_hours: Annotated[MissingNodesHours, IN_PLACE] = 3
    """Alarm if a group has had fewer nodes than it should have for so many hours."""
    training_plan_days: Annotated[TrainingPlanDays, IN_PLACE] = 7
    """Alarm if a training plan of a group ends within so many days."""
    free_storage_percent: Annotated[FreeStoragePercent, IN_PLACE] = 10
    """Alarm if less than this share of the Lustre file system of `storage` is free."""
