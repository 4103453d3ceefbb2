"""Alerts end to end, with IAM in force: one message for each fault, alarms, and silence when nothing is wrong.

One engine of its own, on which an hour of the functions' clock is a minute. HyperPod itself is much faster.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Environment, Stack

from cdk_hyperpod import ClusterMonitoring, HyperPodCluster
from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.environment import ACCOUNT
from cdk_hyperpod_local.session import LocalAws
from helpers.alerts.events import SCRIPTS, cluster_event, node_id
from helpers.deployments.alerts import (
    SPEED,
    TIMINGS,
    WINDOW,
    Subscriber,
    function,
    kinds,
    measure,
    one_message,
    rings,
    subscribing,
    unscheduled,
    wait_for,
)
from helpers.deployments.configs import TRN1, small
from helpers.local_aws import templates
from helpers.local_aws.fixtures import running_engine
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
P5 = "ml.p5.48xlarge"
LOG = ["logs:CreateLogStream", "logs:PutLogEvents"]
"""Lambda's own, with the function's role: the engine asks for them, and does not record it."""
DAY = 86_400.0
PLAN = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:training-plan/trn1-plan"
CONFIG: Json = {
    **small("alerts"),
    "instance_groups": [*small("alerts")["instance_groups"], {**TRN1, "training_plan_arn": PLAN}],
    "node_provisioning_mode": "continuous",
    "monitoring": {"below_minimum_minutes": 5, "missing_nodes_hours": 1},
    "removal": "destroy",
    "termination_protection": False,
}


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with running_engine(speed=SPEED) as started:
        started.change_hyperpod(timings=TIMINGS, plans=[plan(time.time() + 1000 * DAY)])
        yield started


def plan(end: float) -> Json:
    fields = {"arn": PLAN, "instance_type": TRN1["instance_type"], "total": 16, "available": 16, "zone": "usw2-az3"}
    return {**fields, "start": 0, "end": end}


@pytest.fixture(scope="module")
def subscriber(aws: LocalAws) -> Subscriber:
    return Subscriber.of(aws)


@pytest.fixture(scope="module")
def life(aws: LocalAws, subscriber: Subscriber, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    rehearsal = Rehearsal(aws, tmp_path_factory.mktemp("alerts"), CONFIG)
    made = rehearsal.deploy(edit=subscribing(subscriber))
    assert made.ok, made.reason
    return rehearsal


def in_service(life: Rehearsal) -> None:
    life.wait_for(lambda: all(current == target for current, _, target in life.groups().values()))


# -- nothing is wrong --------------------------------------------------------------------------------------------------


def test_a_first_deployment_sends_nothing_and_says_that_metrics_are_written(
    life: Rehearsal, subscriber: Subscriber
) -> None:
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    assert "Metrics are written." in outputs.values(), outputs
    time.sleep(8)
    assert [each["Subject"] for each in subscriber.got] == [], "neither messages nor alarms"


def test_one_call_describes_the_cluster_every_five_minutes(life: Rehearsal) -> None:
    since, began = life.mark(), time.monotonic()
    time.sleep(15)
    role = function(life)[1]
    calls = [entry for entry in life.aws.journal(since=since, operation="DescribeCluster") if role in entry.who]
    runs = (time.monotonic() - began) * SPEED / 300
    assert runs - 2 <= len(calls) <= runs + 1


# -- one message for each fault ----------------------------------------------------------------------------------------


def test_capacity_does_not_come(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    life.leave_room(P5, 0)
    began = time.time()
    life.resize_by_hand("p5", 3, 1)
    sent = one_message(subscriber, since, "launch")
    assert sent["Subject"] == "[alerts] p5: 1 node failed to launch"
    assert f"We currently do not have sufficient capacity to launch new {P5} instances" in sent["Message"]
    assert "current 2, target 3, minimum 1" in sent["Message"]
    assert {name: each["Value"] for name, each in sent["MessageAttributes"].items()} == {
        "cluster": "alerts", "group": "p5", "kind": "launch", "level": "Error",
    }  # fmt: skip
    assert kinds(subscriber, since) == ["launch"]
    assert sent["at"] - began < WINDOW + 5
    life.aws.change_hyperpod(capacity={P5: None})
    in_service(life)


def test_a_failed_lifecycle_script_sends_one_message_with_its_exit_code(
    life: Rehearsal, subscriber: Subscriber
) -> None:
    since = subscriber.mark()
    life.aws.change_hyperpod(faults={"fail_start_next": 1})
    life.resize_by_hand("p5", 4, 1)
    sent = one_message(subscriber, since, "lifecycle-script")
    assert sent["Subject"] == "[alerts] p5: 1 node failed in the lifecycle scripts"
    assert "Lifecycle scripts failed with exit code 1" in sent["Message"]
    assert kinds(subscriber, since) == ["lifecycle-script"]
    in_service(life)


@pytest.mark.parametrize("metadata", ["null", "filled"])
def test_a_node_is_replaced(life: Rehearsal, subscriber: Subscriber, metadata: str) -> None:
    life.aws.change_hyperpod(behaviour={"event_metadata_in_eventbridge": metadata})
    since = subscriber.mark()
    node = next(iter(life.nodes("p5")))
    life.aws.client("sagemaker").batch_replace_cluster_nodes(ClusterName=life.name, NodeIds=[node])
    sent = one_message(subscriber, since, "replacement")
    assert sent["Subject"] == "[alerts] p5: 1 node is being replaced"
    assert kinds(subscriber, since) == ["replacement"]
    life.wait_for(lambda: set(life.nodes().values()) == {"Running"})


def test_a_gpu_has_a_fault_under_slurm(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    node = list(life.nodes("p5"))[-1]
    began = time.time()
    fault = {"reason": "NvidiaErrorReplace", "message": "Xid 79, fell off the bus"}
    with unscheduled(life):
        life.aws.change_hyperpod(node_faults={node: fault})
        sent = one_message(subscriber, since, "health-record")
        life.wait_for(lambda: node not in life.nodes())
        time.sleep(3 * WINDOW)
    assert "p5: 1 node" in sent["Subject"] and node in sent["Message"]
    assert "written on the node: " in sent["Message"]
    assert "NvidiaErrorReplace" in sent["Subject"] + sent["Message"] and "Xid 79" in sent["Message"]
    assert sent["at"] - began < WINDOW + 5
    assert sorted(kinds(subscriber, since)) == ["health-record", "replacement"], "a record hides no event"
    life.wait_for(lambda: set(life.nodes().values()) == {"Running"})


def test_a_minimum_is_given_up(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    life.leave_room(P5, 0)
    life.aws.change_hyperpod(timings={"minimum_limit": 3.0})
    life.resize_by_hand("p5", 9, 9)
    sent = one_message(subscriber, since, "minimum")
    assert sent["Subject"] == "[alerts] p5: the minimum was not reached, the group is rolled back"
    assert "did not reach its minimum capacity of 9 instances" in sent["Message"]
    assert {*kinds(subscriber, since)} <= {"launch", "minimum"}, "that capacity does not come may be news, too"
    life.aws.change_hyperpod(capacity={P5: None})
    in_service(life)


def test_a_thousand_failures_of_a_hundred_groups_are_twenty_messages(life: Rehearsal, subscriber: Subscriber) -> None:
    since, sqs = subscriber.mark(), life.aws.client("sqs")
    failures = [cluster_event(SCRIPTS, group=f"g{number % 100}", node=node_id(number)) for number in range(1000)]
    with unread(life):
        for start in range(0, 1000, 10):
            bodies = enumerate(map(json.dumps, failures[start : start + 10]))
            entries = [{"Id": str(number), "MessageBody": body} for number, body in bodies]
            sqs.send_message_batch(QueueUrl=event_queue(life), Entries=entries)
        assert waiting(life) == 1000
    wait_for(lambda: waiting(life) == 0, seconds=60)
    assert kinds(subscriber, since) == ["lifecycle-script"] * 20
    groups = [each["MessageAttributes"]["group"]["Value"] for each in subscriber.messages(since)]
    assert {*groups[:-1], *json.loads(groups[-1])} == {f"g{number}" for number in range(100)}


@contextmanager
def unread(life: Rehearsal) -> Iterator[None]:
    """Lambda does not read the queue meanwhile."""
    functions = life.aws.client("lambda")
    (mapping,) = functions.list_event_source_mappings(FunctionName=function(life)[0])["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        yield
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def denying(life: Rehearsal) -> Iterator[Callable[[str], None]]:
    """Take one action away from the function's role, for one test."""
    iam, role = life.aws.client("iam"), function(life)[1]

    def deny(action: str) -> None:
        statement = {"Effect": "Deny", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_role_policy(RoleName=role, PolicyName="without", PolicyDocument=document)

    yield deny
    iam.delete_role_policy(RoleName=role, PolicyName="without")


def first_run(life: Rehearsal, bucket: str) -> str:
    """What the function answers to CloudFormation, which gives it an address of S3."""
    s3, place = life.aws.client("s3"), {"Bucket": bucket, "Key": uuid.uuid4().hex}
    request = {
        "RequestType": "Update",
        "ResponseURL": s3.generate_presigned_url("put_object", Params={**place, "ContentType": ""}),
        **dict.fromkeys(("StackId", "RequestId", "LogicalResourceId", "PhysicalResourceId"), place["Key"]),
    }
    life.aws.client("lambda").invoke(FunctionName=function(life)[0], Payload=json.dumps(request).encode())
    return str(json.loads(s3.get_object(**place)["Body"].read())["Data"]["Outcome"])


def event_queue(life: Rehearsal) -> str:
    """The URL of the queue that the function reads."""
    urls = life.aws.client("sqs").list_queues()["QueueUrls"]
    return next(str(url) for url in urls if f"{life.cluster}-MonitoringEventQueue" in url)


def waiting(life: Rehearsal) -> int:
    """Records in the queue, also those that a function works on."""
    sqs = life.aws.client("sqs")
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=event_queue(life), AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def ring(life: Rehearsal) -> str:
    """A fault: a node is replaced. Returns the node."""
    node = next(iter(life.nodes("p5")))
    life.aws.client("sagemaker").batch_replace_cluster_nodes(ClusterName=life.name, NodeIds=[node])
    return node


def test_every_permission_is_used(life: Rehearsal) -> None:
    """What the policy allows was asked for in the tests above. Only two permissions are asked for at a deployment."""
    template = assemblies.template(life.synth(), life.cluster)
    (policy,) = (
        each["Properties"]["PolicyDocument"]["Statement"]
        for name, each in template["Resources"].items()
        if name.startswith("MonitoringPolicy")
    )
    allowed = {action for statement in policy for action in statement["Action"]}
    role = function(life)[1]
    asked = {check.action for check in life.aws.checks(role=role) if check.allowed}
    generating = {"kms:GenerateDataKey*"} if "kms:GenerateDataKey" in asked else set()
    assert allowed - asked - generating == {*LOG}
    assert asked - allowed == {"kms:GenerateDataKey"}
    assert not [check for check in life.aws.checks(role=role) if not check.allowed], "nothing was refused"


@pytest.mark.parametrize("action", ["sagemaker:DescribeCluster", "cloudwatch:PutMetricData"])
def test_without_it_there_is_no_heartbeat(life: Rehearsal, denying: Callable[[str], None], action: str) -> None:
    assert measure(life) == ""
    denying(action)
    assert f"not authorized to perform: {action}" in measure(life)


@pytest.fixture(scope="module")
def answers(life: Rehearsal) -> str:
    """A bucket for the function's answers."""
    name = f"{life.name}-answers"
    location = {"LocationConstraint": life.aws.region}
    life.aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=location)
    return name


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("sagemaker:DescribeTrainingPlan", f"Metrics are written without a heartbeat: DescribeTrainingPlan of {PLAN}"),
        ("sns:GetTopicAttributes", "The topic's policy could not be read"),
        ("kms:GetKeyPolicy", "The policy of the topic's key could not be read"),
        ("kms:DescribeKey", "The policy of the topic's key could not be read"),
    ],
)
def test_without_it_the_first_run_says_so(
    life: Rehearsal, denying: Callable[[str], None], answers: str, action: str, said: str
) -> None:
    life.aws.skip(3600)  # the function remembers the end of a plan for an hour
    denying(action)
    outcome = first_run(life, answers)
    assert said in outcome and "not authorized" in outcome


@pytest.mark.parametrize(
    "action",
    [
        "sns:Publish",
        "kms:GenerateDataKey",
        "kms:Decrypt",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
    ],
)
def test_without_it_the_message_comes_later(
    life: Rehearsal, subscriber: Subscriber, denying: Callable[[str], None], action: str
) -> None:
    since = subscriber.mark()
    denying(action)
    ring(life)
    time.sleep(3)
    assert kinds(subscriber, since) == []
    life.aws.client("iam").put_role_policy(
        RoleName=function(life)[1],
        PolicyName="without",
        PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:ListQueues", "Resource": "*"}]}
        ),
    )
    wait_for(lambda: "replacement" in kinds(subscriber, since))
    wait_for(lambda: waiting(life) == 0)
    life.wait_for(lambda: set(life.nodes().values()) == {"Running"})


def test_without_describing_an_event_the_message_says_so(
    life: Rehearsal, subscriber: Subscriber, denying: Callable[[str], None]
) -> None:
    since = subscriber.mark()
    life.aws.change_hyperpod(behaviour={"event_metadata_in_eventbridge": "null"})
    denying("sagemaker:DescribeClusterEvent")
    life.aws.change_hyperpod(faults={"fail_start_next": 1})
    life.resize_by_hand("trn1", 3, 2)
    sent = one_message(subscriber, since, "lifecycle-script")
    assert "DescribeClusterEvent failed" in sent["Message"]
    in_service(life)


@pytest.mark.parametrize("action", LOG)
def test_without_it_there_is_no_log(life: Rehearsal, denying: Callable[[str], None], action: str) -> None:
    (group,) = (name for name in log_groups(life) if "MonitoringLog" in name)

    def lines() -> int:
        return len(life.aws.client("logs").filter_log_events(logGroupName=group)["events"])

    with unscheduled(life):
        before = lines()
        assert measure(life) == "" and lines() > before
        denying(action)
        before = lines()
        assert measure(life) == "" and lines() == before


def log_groups(life: Rehearsal) -> list[str]:
    found = life.aws.client("logs").describe_log_groups()["logGroups"]
    return [each["logGroupName"] for each in found]


def test_without_sending_to_the_queue_a_gpu_fault_is_not_heard(
    life: Rehearsal, subscriber: Subscriber, denying: Callable[[str], None]
) -> None:
    since = subscriber.mark()
    denying("sqs:SendMessage")
    node = list(life.nodes("p5"))[-1]
    life.aws.change_hyperpod(node_faults={node: {"reason": "NvidiaErrorReboot", "message": "Xid 48"}})
    time.sleep(4)
    assert "health-record" not in kinds(subscriber, since)
    life.wait_for(lambda: set(life.nodes().values()) == {"Running"})


# -- alarms ------------------------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_rings(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    sqs = life.aws.client("sqs")
    sqs.send_message(QueueUrl=event_queue(life), MessageBody="neither an event nor a record")
    rings(subscriber, since, "DeadLetters")


def test_a_full_file_system_and_a_group_below_its_minimum_ring(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    (file_system,) = life.aws.client("fsx").describe_file_systems()["FileSystems"]
    life.aws.change_hyperpod(used_storage={file_system["FileSystemId"]: 0.95}, capacity={P5: 0})
    # The cluster had one node: no new one comes.
    life.aws.client("sagemaker").batch_delete_cluster_nodes(ClusterName=life.name, NodeIds=list(life.nodes("p5")))
    life.resize_by_hand("p5", 1, 1)
    rings(subscriber, since, "BelowMinimum")
    rings(subscriber, since, "StorageNearlyFull")
    life.aws.change_hyperpod(capacity={P5: None})
    in_service(life)


def test_a_training_plan_that_ends_within_a_week_rings(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    life.aws.change_hyperpod(plans=[plan(time.time() + 5 * DAY)])
    life.aws.skip(3600)
    rings(subscriber, since, "TrainingPlanEnds")
    life.aws.change_hyperpod(plans=[plan(time.time() + 1000 * DAY)])


def test_a_stopped_schedule_rings_the_heartbeat_alarm(life: Rehearsal, subscriber: Subscriber) -> None:
    since = subscriber.mark()
    with unscheduled(life):
        rings(subscriber, since, "HeartbeatGone")


# -- a cluster of another app --------------------------------------------------------------------------------------------


def test_a_cluster_of_another_app_in_standard_mode(life: Rehearsal, subscriber: Subscriber, tmp_path: Path) -> None:
    """It was made without CloudFormation. Its status is all that HyperPod reports."""
    sagemaker = life.aws.client("sagemaker")
    specs = [
        {name: value for name, value in spec.items() if name != "InstanceStorageConfigs"}  # its file system is in a VPC
        for entry in life.aws.journal(operation="CreateCluster")
        for spec in entry.request["InstanceGroups"]
        if spec["InstanceGroupName"] == "controller"
    ]
    arn = sagemaker.create_cluster(ClusterName="other", Orchestrator={"Slurm": {}}, InstanceGroups=specs[:1])[
        "ClusterArn"
    ]
    wait_for(lambda: sagemaker.describe_cluster(ClusterName="other")["ClusterStatus"] == "InService")
    app = App(outdir=str(tmp_path / "cdk.out"), analytics_reporting=False)
    stack = Stack(app, "other-alerts", env=Environment(account=life.aws.account, region=life.aws.region))
    known = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="other", cluster_arn=arn)
    topic = ClusterMonitoring(stack, "Monitoring", cluster=known).topic
    properties = subscriber.subscription(topic.topic_arn)["Properties"]
    CfnResource(stack, "Heard", type="AWS::SNS::Subscription", properties=properties)
    since = subscriber.mark()
    made = life.cdk.deploy(Path(app.synth().directory), only="other-alerts", seconds=200)
    assert made.ok, made.reason
    assert [each["Subject"] for each in subscriber.got[since:]] == []

    kind = specs[0]["InstanceType"]
    life.aws.change_hyperpod(timings={"standard_capacity_wait": 1.0})
    life.leave_room(kind, 0)
    compute = {**specs[0], "InstanceGroupName": "c5", "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["c5"]}}
    sagemaker.update_cluster(ClusterName="other", InstanceGroups=[compute])
    wait_for(lambda: subscriber.messages(since))
    time.sleep(3 * WINDOW + 1)
    (sent,) = subscriber.messages(since)
    assert sent["Subject"].startswith("[other] ") and "sufficient capacity" in sent["Message"]
    assert templates.delete(life.aws, "other-alerts").status == "DELETE_COMPLETE"


# -- deployments -------------------------------------------------------------------------------------------------------


def test_a_deployment_of_the_function_and_a_deletion_send_nothing(life: Rehearsal, subscriber: Subscriber) -> None:
    time.sleep(10)  # the alarms above are over
    since = subscriber.mark()

    def changed(template: Json) -> None:
        subscribing(subscriber)(template)
        found = {name: each for name, each in template["Resources"].items() if name.startswith("MonitoringFunction")}
        (made,) = (each for each in found.values() if each["Type"] == "AWS::Lambda::Function")
        made["Properties"]["MemorySize"] = 1024

    assert life.change(edit=changed).status == "UPDATE_COMPLETE"
    time.sleep(8)
    assert templates.delete(life.aws, life.cluster).status == "DELETE_COMPLETE"
    assert [each["Subject"] for each in subscriber.got[since:]] == []
