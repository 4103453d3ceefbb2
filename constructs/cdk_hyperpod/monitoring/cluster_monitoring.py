"""Messages about a cluster's failures, alarms on its capacity, and a dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableSet, Sequence
from typing import Any
from weakref import WeakSet

from aws_cdk import Annotations, CfnOutput, CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from .._common import reasons
from .._common.encryption import allow_logs
from .._common.encryption import encryption_key as make_encryption_key
from .._common.functions import log_group as make_log_group
from .._common.functions import python_function
from .._common.removal import check_removal
from ..config.monitoring import (
    BelowMinimumMinutes,
    EmailAddress,
    FreeStoragePercent,
    MissingNodesHours,
    MonitoringConfig,
    TrainingPlanDays,
)
from ..errors import Finding, raise_errors
from ..interface import DETAIL_TYPES, IHyperPodCluster
from ..loader import LoadedConfig
from ..rules.monitoring import check_events, check_topic_place, emails_of_another_topic
from ..storage.lustre import ILustreFileSystem
from ..typed.known import is_known
from ..typed.validation import as_tuple, check_at_synth, check_call, check_repeated, check_value, require_arguments
from .alarms import AlarmSpec, alarm_of_dead_letters, alarm_of_storage, alarms_of_cluster
from .dashboard import widgets
from .events import EVENT_RULES, EventRule
from .metrics import PERIOD, MetricName, cluster_metric
from .permissions import AlertsAccess, allow_alerts
from .topic import let_alarms_in, let_alarms_use, new_topic

FIRST_METRICS = "Custom::HyperPodFirstMetrics"
_TIMEOUT = Duration.minutes(1)
_WINDOW = Duration.seconds(30)
"""What is reported within this time is one incident: the function gets it in one batch."""
_BATCH = 1000
_CONCURRENCY = 2
"""As COPIES in alerts/memory.py."""
_VISIBILITY = Duration.seconds(6 * 60 + 30)
"""At least six times the function's timeout and the window (Lambda developer guide, "Using Lambda with Amazon SQS")."""
_ATTEMPTS = 3
_KEPT = Duration.days(14)
"""SQS's maximum: how long a record that failed can be looked at."""
_DEPLOYMENT_TIMEOUT = Duration.minutes(20)
"""The first run answers within 5 minutes, attempts of Lambda included."""
_MONITORED: MutableSet[IHyperPodCluster] = WeakSet()
"""The clusters that are monitored already."""


class ClusterMonitoring(Construct):
    """Messages about a cluster's failures with HyperPod's reason, alarms on its capacity, and a dashboard.

    For each failure, a topic gets one message with HyperPod's own words, the nodes, the counts and what to do next. Events of one
    incident are one message. The alarms go straight to the topic: groups below their minimum, missing nodes, a training plan that
    ends, outdated images (EKS), a file system that is nearly full, a watching function that is silent, and events that could not be
    handled. docs/alerts.md explains each of them.

    A first deployment sends nothing: a custom resource writes the first metrics and waits until CloudWatch shows them, and the
    alarms are created after it. They have no action for the states OK and INSUFFICIENT_DATA. A deployment of the function sends
    nothing: events wait in the queue meanwhile, and the heartbeat may be absent for 15 minutes. A deletion sends nothing: the alarms
    are deleted before everything that writes their metrics, and the rules before the cluster. What is already wrong when an alarm is
    created is reported.

    Running nodes: not affected. It only reads the cluster.
    Cost: metrics, seven alarms and a dashboard, which `cdk-hyperpod cost` lists; a small function that runs every five minutes.

    Example::

        known = HyperPodCluster.from_cluster_attributes(
            self,
            "Known",
            cluster_name="research",
            cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
        )
        monitoring = ClusterMonitoring(self, "Monitoring", cluster=known, emails=["oncall@example.com"])
        monitoring.metric_missing_nodes("p5").create_alarm(self, "FourMissing", threshold=4, evaluation_periods=6)
    """

    topic: sns.ITopic
    """What gets messages and alarms."""
    function: lambda_.Function
    """The function that sends messages and writes metrics."""
    queue: sqs.Queue
    """Where events wait for the function."""
    dead_letter_queue: sqs.Queue
    """The events that the function could not handle, for 14 days."""
    alarms: Mapping[str, cloudwatch.Alarm]
    """The alarms by name: BelowMinimum, NodesMissing, TrainingPlanEnds, ImageOutdated (absent under Slurm), HeartbeatGone,
    DeadLetters, and with a file system StorageNearlyFull."""
    dashboard: cloudwatch.Dashboard
    """The dashboard hyperpod-NAME-REGION."""
    outcome: CfnOutput
    """Output: whether the first metrics were written, and whether the function can publish to the topic, as far as it can know."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: IHyperPodCluster,
        topic: sns.ITopic | None = None,
        emails: Sequence[EmailAddress] = (),
        file_system: ILustreFileSystem | None = None,
        below_minimum_minutes: BelowMinimumMinutes = 30,
        missing_nodes_hours: MissingNodesHours = 3,
        training_plan_days: TrainingPlanDays = 7,
        free_storage_percent: FreeStoragePercent = 10,
        encryption_key: kms.IKey | None = None,
        log_group: logs.ILogGroup | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Monitor a cluster of this app or of another one.

        Arguments that are not described here are fields of `MonitoringConfig`, and described there.

        Under Slurm, GPU faults are in the cluster's log only. They are reported if this construct is in the stack of the
        `HyperPodCluster`. Otherwise a warning says that they are not.

        :param cluster: the cluster, in the region of this stack.
        :param topic: a standard topic of the same account and region. If this app makes it, its policy and its key get the statements
            that alarms need. An imported topic keeps its policy. Default: - one is made under `encryption_key`.
        :param emails: the addresses that the made topic sends to, each of which has to confirm. Default: - nobody, until you subscribe.
        :param file_system: the file system whose free space is watched. Default: - none.
        :param encryption_key: encrypts the made topic and the function's log. Default: - the key of a `HyperPodCluster`. For a cluster
            of another app one is made with the topic, and without it CloudWatch's own key encrypts the log.
        :param log_group: the function's log group. Default: - one is made, which keeps events for a year.
        :param removal_policy: of the key and of the log group that are made, when they leave the stack: RETAIN or DESTROY.
            Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for invalid arguments, and for a topic or a cluster of another region.
        """
        super().__init__(scope, construct_id)
        self._stack = Stack.of(self)
        emails = as_tuple(emails)
        raise_errors(
            [
                *check_call(ClusterMonitoring.__init__, locals()),
                *check_removal(removal_policy),
                *check_repeated(_texts(emails), "emails"),
                *_check_numbers(
                    below_minimum_minutes=below_minimum_minutes,
                    missing_nodes_hours=missing_nodes_hours,
                    training_plan_days=training_plan_days,
                    free_storage_percent=free_storage_percent,
                ),
                *self._check_places(cluster, topic),
                *_check_subscribers(emails, topic),
            ],
            lambda: self.node.path,
        )
        _MONITORED.add(cluster)
        self._cluster = cluster
        self._settings = MonitoringConfig(
            emails=emails,
            below_minimum_minutes=below_minimum_minutes,
            missing_nodes_hours=missing_nodes_hours,
            training_plan_days=training_plan_days,
            free_storage_percent=free_storage_percent,
        )
        self._warn(check_events(cluster.node_provisioning_mode, "cluster"))
        key = encryption_key or cluster.encryption_key
        if key is None and topic is None:
            key = make_encryption_key(self, "Key", removal_policy=removal_policy or RemovalPolicy.DESTROY)
        self.topic = topic or self._add_topic(key)
        let_alarms_in(self.topic)
        path = "encryption_key" if topic is None else "topic.master_key"
        self._warn(let_alarms_use(self.topic.master_key, path, self._stack.account))
        self.dead_letter_queue = self._add_queue("DeadLetterQueue", retention_period=_KEPT)
        self.queue = self._add_queue(
            "EventQueue",
            visibility_timeout=_VISIBILITY,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letter_queue, max_receive_count=_ATTEMPTS),
        )
        self.function = self._add_function(log_group or self._add_log(key, removal_policy))
        self._receive_events()
        schedule = self._add_schedule()
        first = self._add_first_metrics()
        self.alarms = {spec.construct_id: self._add_alarm(spec) for spec in self._alarm_specs(file_system)}
        for alarm in self.alarms.values():
            # Created after what writes the metrics, and deleted before it.
            alarm.node.add_dependency(first, schedule)
        self.dashboard = self._add_dashboard(file_system)
        self._receive_health_records()

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        cluster: IHyperPodCluster,
        file_system: ILustreFileSystem | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> ClusterMonitoring:
        """The monitoring of a cluster file's cluster, with the settings of its `monitoring`.

        :param loaded: the file.
        :param cluster: made by `HyperPodCluster.from_config`.
        :param file_system: made by `LustreFileSystem.from_config`. Default: - none.
        :param encryption_key: as in the constructor. Default: - the cluster's key.
        :raises ConfigError: if the file has no `monitoring`, and for arguments of a wrong type.
        """
        require_arguments(
            ClusterMonitoring.from_config,
            construct_id,
            loaded=loaded,
            cluster=cluster,
            file_system=file_system,
            encryption_key=encryption_key,
        )
        config = loaded.config.monitoring
        if config is None:
            raise_errors([_MISSING], construct_id)
        assert config is not None
        topic = None
        if config.topic_arn is not None:
            topic = sns.Topic.from_topic_arn(scope, f"{construct_id}Topic", config.topic_arn)
        made = cls(
            scope,
            construct_id,
            cluster=cluster,
            topic=topic,
            emails=config.emails,
            file_system=file_system,
            below_minimum_minutes=config.below_minimum_minutes,
            missing_nodes_hours=config.missing_nodes_hours,
            training_plan_days=config.training_plan_days,
            free_storage_percent=config.free_storage_percent,
            encryption_key=encryption_key,
        )
        for code in ("no-cluster-events", _OPEN_METADATA.code):
            Annotations.of(made).acknowledge_warning(f"cdk-hyperpod:{code}", "It is a warning of the file.")
        return made

    def metric_missing_nodes(
        self, group: str | None = None, *, statistic: str | None = None, period: Duration | None = None
    ) -> cloudwatch.Metric:
        """How many nodes a group lacks: its target count without its current count, at least 0.

        :param group: the instance group. Default: - the sum of all groups.
        :param statistic: how the values of a period are combined. Default: - Maximum.
        :param period: the length of a period. A value is written every five minutes. Default: - five minutes.
        :raises ConfigError: for arguments of a wrong type.
        """
        return self._metric("MissingNodes", group, statistic, period)

    def metric_nodes_below_minimum(
        self, group: str | None = None, *, statistic: str | None = None, period: Duration | None = None
    ) -> cloudwatch.Metric:
        """How many nodes a group lacks until its minimum (MinInstanceCount), at least 0.

        :param group: the instance group. Default: - the sum of all groups.
        :param statistic: how the values of a period are combined. Default: - Maximum.
        :param period: the length of a period. A value is written every five minutes. Default: - five minutes.
        :raises ConfigError: for arguments of a wrong type.
        """
        return self._metric("NodesBelowMinimum", group, statistic, period)

    def metric_training_plan_days_left(
        self, group: str | None = None, *, statistic: str | None = None, period: Duration | None = None
    ) -> cloudwatch.Metric:
        """How many days are left until the training plan of a group ends. There is no value without a training plan.

        :param group: the instance group. Default: - the plan of all groups that ends first.
        :param statistic: how the values of a period are combined. Default: - Minimum.
        :param period: the length of a period. A value is written every five minutes. Default: - five minutes.
        :raises ConfigError: for arguments of a wrong type.
        """
        return self._metric("TrainingPlanDaysLeft", group, statistic, period)

    def _metric(
        self, name: MetricName, group: str | None, statistic: str | None, period: Duration | None
    ) -> cloudwatch.Metric:
        findings = [
            *check_value(group, str | None, "group"),
            *check_value(statistic, str | None, "statistic"),
            *check_value(period, Duration | None, "period"),
        ]
        raise_errors(findings, lambda: self.node.path)
        made = cluster_metric(self._cluster.cluster_name, name, group=group, statistic=statistic, period=period)
        return made.attach_to(self)

    def _check_places(self, cluster: object, topic: Any) -> Iterator[Finding]:
        region, account = self._stack.region, self._stack.account
        if isinstance(cluster, IHyperPodCluster):
            cluster_region = cluster.env.region
            if is_known((region, cluster_region)) and region != cluster_region:
                yield Finding(
                    code="monitoring-in-another-region",
                    path="cluster",
                    problem=f"the cluster is in {cluster_region}, and this stack in {region} receives none of its events",
                    remedy=f"monitor it in a stack in {cluster_region}",
                )
            if cluster in _MONITORED:
                yield _DUPLICATED
        if _is_topic(topic):
            place = (topic.env.region, topic.env.account)
            yield from check_topic_place(place, region=region, account=account, path="topic")
            if topic.fifo:
                yield _FIFO

    def _warn(self, warnings: Iterable[Finding]) -> None:
        for warning in warnings:
            Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.code}", warning.text)

    def _add_topic(self, key: kms.IKey | None) -> sns.Topic:
        assert key is not None  # made for the topic, if there was none
        return new_topic(self, key, self._settings.emails)

    def _add_queue(
        self,
        construct_id: str,
        *,
        visibility_timeout: Duration | None = None,
        retention_period: Duration | None = None,
        dead_letter_queue: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        """A queue under SQS's own key: EventBridge names no account to KMS, so a key of ours could not be limited to ours."""
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=visibility_timeout,
            retention_period=retention_period,
            dead_letter_queue=dead_letter_queue,
        )

    def _add_log(self, key: kms.IKey | None, removal_policy: RemovalPolicy | None) -> logs.LogGroup:
        if key is not None:
            allow_logs(key)
        return make_log_group(self, "Log", encryption_key=key, removal_policy=removal_policy)

    def _add_function(self, log: logs.ILogGroup) -> lambda_.Function:
        description = f"Alerts of HyperPod cluster {self._cluster.cluster_name}"
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description)
        access = AlertsAccess(
            cluster_arn=self._cluster.cluster_arn,
            topic_arn=self.topic.topic_arn,
            topic_key_arn=_arn_of_key(self.topic.master_key),
            queue_arn=self.queue.queue_arn,
            log_group_arn=log.log_group_arn,
        )
        policy = allow_alerts(self, role, access, description=description)
        function = python_function(
            self,
            "Function",
            handler="hyperpod.alerts.handler.handle",
            description=description,
            role=role,
            log_group=log,
            timeout=_TIMEOUT,
            environment={
                "CLUSTER_ARN": self._cluster.cluster_arn,
                "TOPIC_ARN": self.topic.topic_arn,
                "QUEUE_URL": self.queue.queue_url,
                "LOG_GROUP": self._cluster.log_group_name,
            },
            reasons=reasons.ALERTS,
        )
        # The first run, and Lambda itself when it reads the queue, need the permissions.
        function.node.add_dependency(policy)
        return function

    def _receive_events(self) -> None:
        """From HyperPod's rules to the queue, and from the queue to the function."""
        self.function.add_event_source_mapping(
            "Queue",
            event_source_arn=self.queue.queue_arn,
            batch_size=_BATCH,
            max_batching_window=_WINDOW,
            max_concurrency=_CONCURRENCY,
            report_batch_item_failures=True,
        )
        target = targets.SqsQueue(self.queue)
        for rule in EVENT_RULES:
            self._add_rule(rule, target)

    def _add_rule(self, rule: EventRule, target: events.IRuleTarget) -> None:
        events.Rule(
            self,
            rule.construct_id,
            description=f"HyperPod cluster {self._cluster.cluster_name}: {rule.description}",
            targets=[target],
            event_pattern=events.EventPattern(
                source=["aws.sagemaker"],
                detail_type=[DETAIL_TYPES[rule.kind]],
                resources=[self._cluster.cluster_arn],
                detail=rule.detail,
            ),
        )

    def _add_schedule(self) -> events.Rule:
        return events.Rule(
            self,
            "Schedule",
            description=f"Metrics of HyperPod cluster {self._cluster.cluster_name}",
            schedule=events.Schedule.rate(PERIOD),
            targets=[
                targets.LambdaFunction(self.function, event=events.RuleTargetInput.from_object({"schedule": "metrics"}))
            ],
        )

    def _add_first_metrics(self) -> CustomResource:
        """Write the metrics once before the alarms exist. It never fails a deployment: its output says what failed."""
        first = CustomResource(
            self,
            "FirstMetrics",
            resource_type=FIRST_METRICS,
            service_token=self.function.function_arn,
            service_timeout=_DEPLOYMENT_TIMEOUT,
            properties={"ClusterArn": self._cluster.cluster_arn, "TopicArn": self.topic.topic_arn},
        )
        self.outcome = CfnOutput(
            self,
            "Outcome",
            value=first.get_att_string("Outcome"),
            description="The first metrics of the alarms, and whether messages can be published",
        )
        return first

    def _alarm_specs(self, file_system: ILustreFileSystem | None) -> Iterator[AlarmSpec]:
        has_images = self._cluster.orchestrator != "slurm"
        yield from alarms_of_cluster(self._cluster.cluster_name, self._settings, has_images=has_images)
        yield alarm_of_dead_letters(self.dead_letter_queue)
        if file_system is not None:
            yield alarm_of_storage(file_system, self._settings.free_storage_percent)

    def _add_alarm(self, spec: AlarmSpec) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            spec.construct_id,
            alarm_description=spec.description(self._cluster.cluster_name),
            metric=spec.metric,
            comparison_operator=spec.compares,
            threshold=spec.threshold,
            evaluation_periods=spec.periods,
            datapoints_to_alarm=spec.periods,
            treat_missing_data=spec.missing,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        return alarm

    def _add_dashboard(self, file_system: ILustreFileSystem | None) -> cloudwatch.Dashboard:
        cluster = self._cluster
        return cloudwatch.Dashboard(
            self,
            "Dashboard",
            # Names of dashboards are shared by all regions of an account.
            dashboard_name=f"hyperpod-{cluster.cluster_name}-{self._stack.region}",
            widgets=widgets(cluster.cluster_name, cluster.log_group_name, [*self.alarms.values()], file_system),
        )

    def _receive_health_records(self) -> None:
        """From the cluster's log group to the function, if this stack sets the log group up. Under EKS the same faults are events."""
        if self._cluster.orchestrator == "eks":
            return
        log = self._cluster.log
        if log is None or Stack.of(log) is not self._stack:
            self._warn([_NO_HEALTH_RECORDS])
            return
        log.send_health_records(self.function)
        if not self._cluster.limits_metadata:
            self._warn([_OPEN_METADATA])


_MISSING = Finding(
    code="monitoring-missing",
    path="monitoring",
    problem="is missing in the file, and this construct needs it",
    remedy="add `monitoring: {}`",
)
_DUPLICATED = Finding(
    code="monitoring-duplicated",
    path="cluster",
    problem="is monitored already, and each failure would be two messages",
    remedy="remove this one, and subscribe to the other one's topic",
)
_FIFO = Finding(
    code="topic-fifo",
    path="topic",
    problem="is a FIFO topic, and alarms send to standard topics only",
    remedy="give it a standard topic",
)
_OPEN_METADATA = Finding(
    code="monitoring-with-open-metadata",
    path="cluster",
    problem="lets every job use the role of its node and write health records, whose text the subscribers get",
    remedy="set slurm.metadata_users to [], or to the users whose jobs need the role (docs/node-role.md)",
    level="warning",
)
_NO_HEALTH_RECORDS = Finding(
    code="no-health-records",
    path="cluster",
    problem="this stack does not set up the cluster's log group, so GPU faults under Slurm raise no message",
    remedy="create ClusterMonitoring in the stack of a HyperPodCluster, or read the health records on the dashboard",
    level="warning",
)


def _check_numbers(**numbers: object) -> Iterator[Finding]:
    for name, number in numbers.items():
        yield from check_at_synth(number, name, "write it out: thresholds are calculated from it", kinds=(float, int))


def _texts(values: object) -> tuple[str, ...]:
    """What of a list is text. Anything else is reported by its type."""
    return tuple(each for each in values if isinstance(each, str)) if isinstance(values, tuple) else ()


def _arn_of_key(key: kms.IKey | None) -> str | None:
    """None: it is not known. An alias has an ARN of its own, which KMS does not compare with a policy's keys."""
    return None if key is None or hasattr(key, "alias_name") else key.key_arn


def _is_topic(topic: object) -> bool:
    """Anything else is reported by its type."""
    return isinstance(getattr(topic, "topic_arn", None), str)


def _check_subscribers(emails: Sequence[str], topic: object) -> Iterator[Finding]:
    if _is_topic(topic) and emails:
        yield emails_of_another_topic("emails", "topic")
