"""What watches a cluster, in the template: what reaches the function, what it may do, and that a deployment or a deletion sends nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    ClusterMonitoring,
    HyperPodCluster,
    HyperPodNetwork,
    IHyperPodCluster,
    InstanceGroup,
    LifecycleScripts,
    LustreFileSystem,
    load_config,
)
from cdk_hyperpod.config import SlurmConfig
from helpers.findings import refused
from helpers.synthesis import (
    CONFIGS,
    Template,
    flat,
    folder_of,
    needs,
    new_app,
    of_file,
    of_stack,
    of_text,
    templates_in,
)

ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab"
EKS_ARN = "arn:aws:eks:us-west-2:111122223333:cluster/train"
TOPIC = "arn:aws:sns:us-west-2:111122223333:oncall"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0-1"
ALARM, RULE = "AWS::CloudWatch::Alarm", "AWS::Events::Rule"
FIRST = "Custom::HyperPodFirstMetrics"
HEAD = InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1)
NODES = InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=2)


def of_this_app(stack: Stack, **more: Any) -> HyperPodCluster:
    groups = [NODES] if "eks_cluster_arn" in more else [HEAD]
    arguments: dict[str, Any] = {"cluster_name": "train", "instance_groups": groups, **more}
    network = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"])
    return HyperPodCluster(stack, "Cluster", network=network, **arguments)


def of_another_app(stack: Stack) -> IHyperPodCluster:
    return HyperPodCluster.from_cluster_attributes(stack, "Cluster", cluster_name="train", cluster_arn=ARN)


def monitored(cluster: Callable[..., IHyperPodCluster] = of_another_app, **more: Any) -> Template:
    return of_stack(lambda stack: ClusterMonitoring(stack, "Monitoring", cluster=cluster(stack), **more))


@pytest.fixture(scope="module")
def template() -> Template:
    """The cluster stack of a file."""
    return of_file(CONFIGS / "monitored.yaml")["hyperpod-watched-cluster"]


def warnings(stack: Stack, text: str) -> int:
    return len(Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp(text)))


# -- nothing is sent by a deployment, and nothing by a deletion --------------------------------------------------------


def test_alarms_are_created_after_the_first_metrics_and_deleted_before_what_writes_them(template: Template) -> None:
    """CloudFormation deletes in the opposite order."""
    schedule = next(name for name, rule in template.of(RULE).items() if "ScheduleExpression" in rule["Properties"])
    first = {template.only_id(FIRST), schedule}
    alarms = template.of(ALARM)

    assert len(alarms) == 6
    assert all(first <= needs(template, alarm) for alarm in alarms)


def test_the_first_metrics_come_after_the_permission_to_write_them(template: Template) -> None:
    policy = next(name for name in template.of("AWS::IAM::ManagedPolicy") if name.startswith("MonitoringPolicy"))
    assert policy in needs(template, template.only_id(FIRST))


def test_no_event_of_the_clusters_own_deletion_is_received(template: Template) -> None:
    """The rules are deleted before the cluster, so what its nodes' terminations report reaches nobody."""
    cluster = template.only_id("AWS::SageMaker::Cluster")
    rules = [name for name, rule in template.of(RULE).items() if "EventPattern" in rule["Properties"]]

    assert len(rules) == 3
    assert all(cluster in needs(template, rule) for rule in rules)


def test_a_recovered_alarm_and_a_new_one_send_nothing(template: Template) -> None:
    for alarm in template.properties(ALARM):
        assert "OKActions" not in alarm and "InsufficientDataActions" not in alarm


def test_the_code_of_the_function_is_no_property_of_the_first_metrics(template: Template) -> None:
    """A deployment of other code runs it again for nothing."""
    properties = template.only(FIRST).keys()
    assert properties == {"ServiceToken", "ServiceTimeout", "ClusterArn", "TopicArn"}


# -- alarms ------------------------------------------------------------------------------------------------------------


def alarms_by_metric(template: Template) -> dict[str, Any]:
    return {alarm.get("MetricName", "share"): alarm for alarm in template.properties(ALARM)}


def test_each_alarm_goes_to_the_topic_and_names_its_heading_of_the_page(template: Template) -> None:
    page = (CONFIGS.parents[2] / "docs" / "alerts.md").read_text("utf-8")
    headings = {line.strip("# ").lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")}
    topic = template.only_id("AWS::SNS::Topic")
    for alarm in [*template.properties(ALARM), *monitored().properties(ALARM)]:
        anchor = alarm["AlarmDescription"].partition("docs/alerts.md#")[2].split()[0]
        assert anchor in headings
        assert alarm["AlarmDescription"].startswith("HyperPod cluster ")
    assert all(alarm["AlarmActions"] == [{"Ref": topic}] for alarm in template.properties(ALARM))


def test_no_alarm_looks_back_further_than_cloudwatch_does() -> None:
    longest = monitored(below_minimum_minutes=1440, missing_nodes_hours=24)
    for alarm in longest.properties(ALARM):
        assert alarm["EvaluationPeriods"] * alarm["Period"] <= 86_400
        assert alarm["EvaluationPeriods"] == alarm["DatapointsToAlarm"]


def test_the_times_of_the_settings() -> None:
    found = alarms_by_metric(
        monitored(below_minimum_minutes=31, missing_nodes_hours=2, training_plan_days=14),
    )
    assert found["NodesBelowMinimum"]["EvaluationPeriods"] * 5 == 35, "rounded up to the next run"
    assert found["MissingNodes"]["EvaluationPeriods"] * 5 == 120
    assert found["TrainingPlanDaysLeft"]["Threshold"] == 14
    assert found["TrainingPlanDaysLeft"]["ComparisonOperator"] == "LessThanOrEqualToThreshold"


def test_silence_is_a_fault_of_the_heartbeat_alone() -> None:
    found = alarms_by_metric(monitored())
    missing = {name: alarm["TreatMissingData"] for name, alarm in found.items()}
    # SQS reports nothing about a queue that is idle for hours, and what is in it stays.
    assert missing.pop("ApproximateNumberOfMessagesVisible") == "ignore"
    assert missing.pop("Heartbeat") == "breaching"
    assert {*missing.values()} == {"notBreaching"}


def test_images_have_an_alarm_but_under_slurm(template: Template) -> None:
    assert "OutdatedImage" not in alarms_by_metric(template)
    assert "OutdatedImage" in alarms_by_metric(monitored()), "it is not known what schedules work there"
    assert "OutdatedImage" in alarms_by_metric(monitored(lambda stack: of_this_app(stack, eks_cluster_arn=EKS_ARN)))


def test_a_new_file_systems_free_share_is_of_its_capacity(template: Template) -> None:
    alarm = alarms_by_metric(template)["FreeDataStorageCapacity"]
    # FSx writes a value for each target every minute: a sum over five minutes would be five times as much.
    assert (alarm["Statistic"], alarm["Period"]) == ("Sum", 60)
    assert alarm["Threshold"] == 1200 * 2**30 / 10


def test_an_existing_file_systems_free_share_is_calculated() -> None:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"])
        existing = LustreFileSystem.from_attributes(
            stack, "Fsx", network=network, file_system_id="fs-0123456789abcdef0", mount_name="abcdefgh"
        )
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), file_system=existing)

    alarm = alarms_by_metric(of_stack(build))["share"]
    metrics = {each["Id"]: each for each in alarm["Metrics"]}
    assert alarm["Threshold"] == 10
    assert {each["MetricStat"]["Metric"]["MetricName"] for each in metrics.values() if "MetricStat" in each} == {
        "FreeDataStorageCapacity",
        "PhysicalDiskUsage",
    }
    assert {each["MetricStat"]["Period"] for each in metrics.values() if "MetricStat" in each} == {60}


def test_metrics_of_a_group_and_of_the_cluster() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    made = ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack))

    missing = made.metric_missing_nodes("p5")
    assert (missing.namespace, missing.metric_name, missing.statistic) == (
        "HyperPod/Clusters",
        "MissingNodes",
        "Maximum",
    )
    assert missing.dimensions == {"ClusterName": "train", "InstanceGroup": "p5"}
    assert made.metric_nodes_below_minimum().dimensions == {"ClusterName": "train"}
    days = made.metric_training_plan_days_left("p5", period=Duration.hours(1))
    assert (days.metric_name, days.statistic) == ("TrainingPlanDaysLeft", "Minimum")
    assert days.period.to_seconds() == 3600
    with refused(("value-of-wrong-type", "group")):
        made.metric_missing_nodes(5)  # type: ignore[arg-type]


# -- what reaches the function -----------------------------------------------------------------------------------------


def test_three_kinds_of_events_and_of_cluster_events_those_that_matter(template: Template) -> None:
    patterns = [rule["EventPattern"] for rule in template.properties(RULE) if "EventPattern" in rule]
    by_type = {pattern["detail-type"][0]: pattern.get("detail") for pattern in patterns}

    assert by_type["SageMaker HyperPod Cluster State Change"] == {"ClusterStatus": ["Failed", "RollingBack"]}
    assert by_type["SageMaker HyperPod Cluster Node Health Event"] is None
    assert by_type["SageMaker HyperPod Cluster Event"]["EventDetails"]["$or"] == [
        {"EventLevel": [{"anything-but": "Info"}]},
        {"EventLevel": [{"exists": False}]},
        {"EventLevel": ["Info"], "Description": [{"wildcard": "*instance replacement*"}]},
    ]
    cluster = template.only_id("AWS::SageMaker::Cluster")
    assert all(pattern["resources"] == [{"Fn::GetAtt": [cluster, "ClusterArn"]}] for pattern in patterns)


def test_the_queue_waits_long_enough_and_gives_up_into_another(template: Template) -> None:
    mapping = template.only("AWS::Lambda::EventSourceMapping")
    function = next(each for each in template.properties("AWS::Lambda::Function") if "Alerts" in each["Description"])
    queues = template.properties("AWS::SQS::Queue")
    (waiting,) = [queue for queue in queues if "RedrivePolicy" in queue]

    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert (mapping["BatchSize"], mapping["ScalingConfig"]) == (1000, {"MaximumConcurrency": 2})
    assert waiting["VisibilityTimeout"] >= 6 * function["Timeout"] + mapping["MaximumBatchingWindowInSeconds"]
    assert all(queue["SqsManagedSseEnabled"] for queue in queues)


def test_health_records_come_from_the_log_group_under_slurm(template: Template) -> None:
    log = template.only("Custom::HyperPodClusterLog")
    (function,) = [name for name in template.of("AWS::Lambda::Function") if name.startswith("MonitoringFunction")]
    assert log["SubscriptionDestinationArn"] == {"Fn::GetAtt": [function, "Arn"]}
    # CloudWatch tries the function, so it must be let in first.
    waits_for = needs(template, template.only_id("Custom::HyperPodClusterLog"))
    permissions = template.of("AWS::Lambda::Permission")
    (let_in,) = [name for name in permissions if permissions[name]["Properties"]["Principal"] == "logs.amazonaws.com"]
    assert let_in in waits_for
    properties = permissions[let_in]["Properties"]
    assert properties["SourceAccount"] == {"Ref": "AWS::AccountId"}
    assert flat(properties["SourceArn"]).endswith(":*")


def test_the_permission_to_remove_the_filter_outlives_its_property(template: Template) -> None:
    """In a policy of its own, which CloudFormation deletes after it has updated the log's resource."""
    policies = template.of("AWS::IAM::ManagedPolicy")
    (own,) = [name for name in policies if "logs:DeleteSubscriptionFilter" in json.dumps(policies[name])]
    assert json.dumps(policies[own]).count("logs:") - json.dumps(policies[own]).count(":logs:") == 2


def test_under_eks_faults_of_gpus_are_events() -> None:
    found = monitored(lambda stack: of_this_app(stack, eks_cluster_arn=EKS_ARN))
    assert "SubscriptionDestinationArn" not in found.only("Custom::HyperPodClusterLog")


# -- what the function may do ------------------------------------------------------------------------------------------


def test_the_function_reaches_one_cluster_one_topic_and_one_queue(template: Template) -> None:
    (policy,) = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in template.of("AWS::IAM::ManagedPolicy").items()
        if name.startswith("MonitoringPolicy")
    ]
    reach = {action: flat(each["Resource"]) for each in policy for action in each["Action"]}
    cluster = f"<{template.only_id('AWS::SageMaker::Cluster')}.ClusterArn>"

    assert reach["sagemaker:DescribeCluster"] == reach["sagemaker:DescribeClusterEvent"] == cluster
    assert reach["sns:Publish"] == f"<{template.only_id('AWS::SNS::Topic')}>"
    assert reach["sqs:SendMessage"].startswith("<MonitoringEventQueue")
    assert [action for action, resource in reach.items() if resource == "*"] == [
        "cloudwatch:PutMetricData",
        "cloudwatch:GetMetricStatistics",
    ]
    (writes,) = [each["Condition"] for each in policy if each["Action"] == ["cloudwatch:PutMetricData"]]
    assert writes == {"StringEquals": {"cloudwatch:namespace": "HyperPod/Clusters"}}


# -- the topic and its key ---------------------------------------------------------------------------------------------


def statement_for_alarms(statements: list[Any]) -> Any:
    (found,) = [each for each in statements if each.get("Principal") == {"Service": "cloudwatch.amazonaws.com"}]
    return found


def test_the_clusters_key_and_the_topic_let_alarms_in() -> None:
    templates = of_file(CONFIGS / "monitored.yaml")
    foundation, cluster = templates["hyperpod-watched-foundation"], templates["hyperpod-watched-cluster"]
    account = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}

    of_key = statement_for_alarms(foundation.only("AWS::KMS::Key")["KeyPolicy"]["Statement"])
    assert of_key["Action"] == ["kms:Decrypt", "kms:GenerateDataKey*"]
    of_topic = statement_for_alarms(cluster.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"])
    assert of_topic["Action"] == "sns:Publish"
    assert of_key["Condition"] == of_topic["Condition"] == account
    assert "AlertsTopicArn" in cluster.body["Outputs"]


def test_a_key_is_made_for_a_cluster_whose_key_is_not_known() -> None:
    found = monitored(emails=["oncall@example.com"])
    key = {"Fn::GetAtt": [found.only_id("AWS::KMS::Key"), "Arn"]}
    assert found.only("AWS::SNS::Topic")["KmsMasterKeyId"] == key
    assert found.only("AWS::SNS::Subscription")["Endpoint"] == "oncall@example.com"


def test_a_given_topic_keeps_its_policy_and_its_alarms_reach_it(tmp_path: Any) -> None:
    text = (
        (CONFIGS / "monitored.yaml").read_text("utf-8").replace("emails: [oncall@example.com]", f"topic_arn: {TOPIC}")
    )
    found = of_text(text, tmp_path)["hyperpod-watched-cluster"]

    assert not found.of("AWS::SNS::Topic") and not found.of("AWS::SNS::TopicPolicy")
    assert all(alarm["AlarmActions"] == [TOPIC] for alarm in found.properties(ALARM))
    assert found.body["Outputs"]["AlertsTopicArn"]["Value"] == TOPIC


def test_an_imported_key_keeps_its_policy_and_a_warning_has_the_statement() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2", account="111122223333"))
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), encryption_key=key)
    assert warnings(stack, "encryption_key: is imported.*kms:GenerateDataKey.*111122223333") == 1


def test_a_topic_of_this_app_and_its_key_get_the_statements() -> None:
    def build(stack: Stack) -> None:
        topic = sns.Topic(stack, "Topic", master_key=kms.Key(stack, "Key"))
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), topic=topic)

    found = of_stack(build)
    assert statement_for_alarms(found.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"])
    assert statement_for_alarms(found.only("AWS::KMS::Key")["KeyPolicy"]["Statement"])


def test_a_key_that_is_named_by_its_alias_is_used_through_any_key() -> None:
    """IAM compares the key's own ARN, which is not known."""

    def build(stack: Stack) -> None:
        topic = sns.Topic(stack, "Topic", master_key=kms.Alias.from_alias_name(stack, "Key", "alias/oncall"))
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), topic=topic)

    found = of_stack(build)
    policies = flat(found.properties("AWS::IAM::ManagedPolicy"))
    assert "alias/oncall" in flat(found.properties("AWS::SNS::Topic"))
    assert "alias/oncall" not in policies and "key/*" in policies


# -- warnings and bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "warned"),
    [
        (of_another_app, 1),
        (of_this_app, 0),
        (lambda stack: of_this_app(stack, eks_cluster_arn=EKS_ARN), 0),
    ],
)
def test_a_log_group_of_another_app_is_a_warning(cluster: Callable[[Stack], IHyperPodCluster], warned: int) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    ClusterMonitoring(stack, "Monitoring", cluster=cluster(stack))
    assert warnings(stack, "GPU faults under Slurm raise no message") == warned


@pytest.mark.parametrize(("metadata_users", "warned"), [(None, 1), ((), 0)])
def test_open_metadata_is_a_warning(metadata_users: tuple[str, ...] | None, warned: int) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    key = kms.Key(stack, "Key")
    scripts = LifecycleScripts(
        stack, "Scripts", cluster_name="train", encryption_key=key, slurm=SlurmConfig(metadata_users=metadata_users)
    )
    ClusterMonitoring(stack, "Monitoring", cluster=of_this_app(stack, lifecycle_scripts=scripts, encryption_key=key))
    assert warnings(stack, "lets every job use the role of its node and write health records") == warned


def test_a_cluster_of_another_stack_of_the_app_is_a_warning_too() -> None:
    app = new_app()
    first, second = (Stack(app, name, env=Environment(region="us-west-2")) for name in ("First", "Second"))
    cluster = of_this_app(first)
    ClusterMonitoring(second, "Monitoring", cluster=cluster)

    templates_in(folder_of(app))  # the stacks need each other in one direction only
    assert warnings(second, "GPU faults under Slurm raise no message") == 1


def test_standard_provisioning_is_warned_about_once() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    ClusterMonitoring(stack, "Monitoring", cluster=of_this_app(stack, node_provisioning_mode="standard"))
    assert warnings(stack, "no cluster events under standard provisioning") == 1


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        ({"emails": ["nobody"]}, ("value-malformed", "emails[0]")),
        ({"emails": ["a@b.cd", "a@b.cd"]}, ("value-duplicated", "emails")),
        ({"below_minimum_minutes": 4}, ("value-out-of-range", "below_minimum_minutes")),
        ({"below_minimum_minutes": 1441}, ("value-out-of-range", "below_minimum_minutes")),
        ({"missing_nodes_hours": 0}, ("value-out-of-range", "missing_nodes_hours")),
        ({"missing_nodes_hours": 25}, ("value-out-of-range", "missing_nodes_hours")),
        ({"free_storage_percent": 100}, ("value-out-of-range", "free_storage_percent")),
        ({"topic": TOPIC.replace("us-west-2", "eu-west-1")}, ("topic-in-another-region", "topic")),
        ({"topic": f"{TOPIC}.fifo"}, ("topic-fifo", "topic")),
        ({"topic": TOPIC, "emails": ["a@b.cd"]}, ("emails-with-topic", "emails")),
    ],
)
def test_bad_arguments_are_refused(more: dict[str, Any], finding: tuple[str, str]) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    cluster = of_another_app(stack)
    if "topic" in more:
        more = {**more, "topic": sns.Topic.from_topic_arn(stack, "Topic", more["topic"])}
    with refused(finding):
        ClusterMonitoring(stack, "Monitoring", cluster=cluster, **more)


def test_a_topic_of_another_account_is_refused() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2", account="444455556666"))
    with refused(("topic-in-another-account", "topic")):
        topic = sns.Topic.from_topic_arn(stack, "Topic", TOPIC)
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), topic=topic)


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ({"region": "us-east-1", "account": "111122223333"}, "topic-in-another-region"),
        ({"region": "us-west-2", "account": "444455556666"}, "topic-in-another-account"),
    ],
)
def test_a_topic_of_another_stack_has_to_be_at_the_same_place(place: dict[str, str], code: str) -> None:
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2", account="111122223333"))
    topic = sns.Topic(Stack(app, "Other", env=Environment(**place)), "Topic", topic_name="oncall")
    with refused((code, "topic")):
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack), topic=topic)


def test_a_cluster_of_another_region_is_refused() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="eu-west-1"))
    with refused(("monitoring-in-another-region", "cluster")):
        ClusterMonitoring(stack, "Monitoring", cluster=of_another_app(stack))


@pytest.mark.parametrize(
    "made", [of_this_app, lambda stack: of_this_app(stack, eks_cluster_arn=EKS_ARN), of_another_app]
)
def test_a_cluster_is_monitored_once(made: Callable[[Stack], IHyperPodCluster]) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    cluster = made(stack)
    ClusterMonitoring(stack, "Monitoring", cluster=cluster)
    with refused(("monitoring-duplicated", "cluster")):
        ClusterMonitoring(stack, "Again", cluster=cluster)


def test_a_file_without_monitoring_has_none() -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    loaded = load_config(CONFIGS / "existing.yaml")
    with refused(("monitoring-missing", "monitoring")):
        ClusterMonitoring.from_config(stack, "Monitoring", loaded, cluster=of_another_app(stack))


def test_the_dashboard_finds_groups_by_itself(template: Template) -> None:
    board = template.only("AWS::CloudWatch::Dashboard")
    body = json.loads(flat(board["DashboardBody"]))
    searches = [json.dumps(widget) for widget in body["widgets"] if "SEARCH" in json.dumps(widget)]

    assert flat(board["DashboardName"]) == "hyperpod-watched-us-west-2"
    assert len(searches) == 3
    assert [widget["type"] for widget in body["widgets"]].count("log") == 1
    assert "AWS/FSx" in json.dumps(body)
