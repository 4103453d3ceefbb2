"""What alerts need of the other services: EventBridge, queues that functions read, filters of logs, alarms and topics.

Each asks the policies that AWS asks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any
STACK = "alerting"
CODE = """
import json, os, boto3
def handler(event, context):
    print("GOT " + json.dumps(event))
    bad = [r["messageId"] for r in event.get("Records", []) if "bad" in r["body"]]
    return {"batchItemFailures": [{"itemIdentifier": each} for each in bad]}
"""
LOG = ["logs:CreateLogStream", "logs:PutLogEvents"]
READ = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]


def attribute(name: str) -> Json:
    return {"Fn::GetAtt": [name, "Arn"]}


def resources(**changes: Json) -> Json:
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    made = {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
                "Policies": [policy("read", READ), policy("log", LOG)],
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": "alerting",
                "Role": attribute("Role"),
                "Runtime": "python3.12",
                "Handler": "index.handler",
                "Code": {"ZipFile": CODE},
            },
        },
        "DeadLetters": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "alerting-dead"}},
        "Queue": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": "alerting",
                "VisibilityTimeout": 100,
                "RedrivePolicy": {"deadLetterTargetArn": attribute("DeadLetters"), "maxReceiveCount": 2},
            },
        },
        "Reading": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "FunctionName": {"Ref": "Function"},
                "EventSourceArn": attribute("Queue"),
                "BatchSize": 1000,
                "MaximumBatchingWindowInSeconds": 300,
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
            },
        },
    }
    return {**made, **changes}


def policy(name: str, actions: list[str]) -> Json:
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    return {"PolicyName": name, "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}}


@pytest.fixture(scope="module")
def stack(engine: LocalAws) -> Iterator[LocalAws]:
    log = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/aws/lambda/alerting"}}
    made = templates.deploy(engine, STACK, resources(Log=log))
    assert made.status == "CREATE_COMPLETE", made.reasons
    yield engine
    assert templates.delete(engine, STACK).status == "DELETE_COMPLETE"


def wait_for(what: Callable[[], Json], seconds: float = 20) -> Json:
    limit = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < limit, "it does not come"
        time.sleep(0.1)
    return found


def batches(aws: LocalAws, word: str) -> list[Json]:
    """What the function got with this word in it."""
    found = aws.client("logs").filter_log_events(logGroupName="/aws/lambda/alerting", filterPattern="GOT")["events"]
    events = [json.loads(each["message"][4:]) for each in found if each["message"].startswith("GOT ")]
    return [each for each in events if word in json.dumps(each)]


def url(aws: LocalAws, name: str) -> str:
    return str(aws.client("sqs").get_queue_url(QueueName=name)["QueueUrl"])


def bodies(aws: LocalAws, name: str) -> list[str]:
    """Takes the messages out of the queue."""
    sqs, address = aws.client("sqs"), url(aws, name)
    found = sqs.receive_message(QueueUrl=address, MaxNumberOfMessages=10).get("Messages", [])
    for each in found:
        sqs.delete_message(QueueUrl=address, ReceiptHandle=each["ReceiptHandle"])
    return [each["Body"] for each in found]


def arn(aws: LocalAws, service: str, name: str) -> str:
    return f"arn:aws:{service}:{aws.region}:{aws.account}:{name}"


# -- queues ------------------------------------------------------------------------------------------------------------


def test_a_window_is_one_batch_and_a_bad_record_ends_in_the_dead_letter_queue(stack: LocalAws) -> None:
    """Five minutes at a hundred times the speed are three seconds, in which forty messages come."""
    sqs, address = stack.client("sqs"), url(stack, "alerting")
    for number in range(4):
        entries = [{"Id": str(each), "MessageBody": f"window {number} {each}"} for each in range(10)]
        sqs.send_message_batch(QueueUrl=address, Entries=entries)
        time.sleep(0.2)
    sqs.send_message(QueueUrl=address, MessageBody="window bad")
    got = wait_for(lambda: batches(stack, "window"))
    assert [len(each["Records"]) for each in got] == [41]
    record = got[0]["Records"][0]
    assert record["eventSource"] == "aws:sqs" and record["body"] == "window 0 0"
    assert wait_for(lambda: bodies(stack, "alerting-dead")) == ["window bad"]
    again = batches(stack, "window")
    assert [len(each["Records"]) for each in again] == [41, 1], "only the bad one came again, once"


@pytest.mark.parametrize("action", READ)
def test_a_queue_is_read_with_the_role_of_the_function(stack: LocalAws, action: str) -> None:
    iam, sqs = stack.client("iam"), stack.client("sqs")
    role, word = templates.physical_id(stack, STACK, "Role"), action.partition(":")[2]
    left = policy("read", [each for each in READ if each != action])["PolicyDocument"]
    iam.put_role_policy(RoleName=role, PolicyName="read", PolicyDocument=json.dumps(left))
    sqs.send_message(QueueUrl=url(stack, "alerting"), MessageBody=word)
    time.sleep(4)
    assert not batches(stack, f'"{word}"')
    whole = policy("read", READ)["PolicyDocument"]
    iam.put_role_policy(RoleName=role, PolicyName="read", PolicyDocument=json.dumps(whole))
    assert wait_for(lambda: batches(stack, f'"{word}"'))


def test_a_mapping_without_permission_is_refused(stack: LocalAws) -> None:
    made = resources()
    made["Role"]["Properties"]["Policies"] = [policy("read", READ[1:])]
    made["Function"]["Properties"]["FunctionName"] = "unread"
    for queue, name in (("Queue", "unread"), ("DeadLetters", "unread-dead")):
        made[queue]["Properties"]["QueueName"] = name
    failed = templates.deploy(stack, "unread", made)
    assert "permissions to call ReceiveMessage on SQS" in failed.reasons[0]
    templates.delete(stack, "unread")


@pytest.mark.parametrize("absent", LOG)
def test_a_log_is_written_with_the_role_of_the_function(stack: LocalAws, absent: str) -> None:
    iam, role, word = stack.client("iam"), templates.physical_id(stack, STACK, "Role"), absent.partition(":")[2]

    def log_with(actions: list[str]) -> bool:
        document = json.dumps(policy("log", actions)["PolicyDocument"])
        iam.put_role_policy(RoleName=role, PolicyName="log", PolicyDocument=document)
        stack.client("lambda").invoke(FunctionName="alerting", Payload=json.dumps({word: actions}).encode())
        return bool(batches(stack, f'"{word}": {json.dumps(actions)}'))

    assert not log_with([each for each in LOG if each != absent])
    assert log_with(LOG)


# -- EventBridge -------------------------------------------------------------------------------------------------------


def test_a_rule_delivers_what_the_queue_allows(stack: LocalAws) -> None:
    events, sqs = stack.client("events"), stack.client("sqs")
    for name in ("ruled", "ruled-dead"):
        sqs.create_queue(QueueName=name)
    pattern = json.dumps({"source": ["mine"], "detail": {"word": ["ring"]}})
    rule = events.put_rule(Name="ruled", EventPattern=pattern)["RuleArn"]
    target = {
        "Id": "1",
        "Arn": arn(stack, "sqs", "ruled"),
        "DeadLetterConfig": {"Arn": arn(stack, "sqs", "ruled-dead")},
    }
    events.put_targets(Rule="ruled", Targets=[target])

    def allow(name: str, source: str) -> None:
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn(stack, "sqs", name),
            "Condition": {"ArnEquals": {"aws:SourceArn": source}},
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs.set_queue_attributes(QueueUrl=url(stack, name), Attributes={"Policy": document})

    def put() -> None:
        entry = {"Source": "mine", "DetailType": "d", "Detail": json.dumps({"word": "ring"})}
        assert not events.put_events(Entries=[entry])["FailedEntryCount"]

    put()
    assert bodies(stack, "ruled") == bodies(stack, "ruled-dead") == [], "no queue allows it"
    allow("ruled-dead", rule)
    allow("ruled", rule + "-other")
    put()
    assert bodies(stack, "ruled") == []
    (dead,) = bodies(stack, "ruled-dead")
    assert json.loads(dead)["detail"] == {"word": "ring"}
    allow("ruled", rule)
    put()
    (delivered,) = bodies(stack, "ruled")
    assert json.loads(delivered)["detail-type"] == "d"


def test_a_schedule_runs_on_the_clock_of_functions_and_needs_permission(stack: LocalAws) -> None:
    """Five minutes are three seconds."""
    events = stack.client("events")
    rule = events.put_rule(Name="often", ScheduleExpression="rate(5 minutes)")["RuleArn"]
    target = {"Id": "1", "Arn": arn(stack, "lambda", "function:alerting"), "Input": json.dumps({"schedule": "often"})}
    events.put_targets(Rule="often", Targets=[target])
    time.sleep(5)
    assert not batches(stack, "often")
    stack.client("lambda").add_permission(
        FunctionName="alerting",
        StatementId="often",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=rule,
    )
    assert wait_for(lambda: len(batches(stack, "often")) > 1)
    events.remove_targets(Rule="often", Ids=["1"])
    events.delete_rule(Name="often")


# -- subscription filters ----------------------------------------------------------------------------------------------


def test_a_subscription_filter_delivers_matching_lines_to_its_function(stack: LocalAws) -> None:
    logs, group = stack.client("logs"), "/alerting/filtered"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    function = arn(stack, "lambda", "function:alerting")

    def put(name: str, pattern: str = 'Detected -"not this"') -> None:
        logs.put_subscription_filter(
            logGroupName=group, filterName=name, filterPattern=pattern, destinationArn=function
        )

    with pytest.raises(ClientError, match="Make sure you have given CloudWatch Logs permission"):
        put("ours")
    stack.client("lambda").add_permission(
        FunctionName="alerting",
        StatementId="logs",
        Action="lambda:InvokeFunction",
        Principal="logs.amazonaws.com",
        SourceArn=arn(stack, "logs", f"log-group:{group}:*"),
        SourceAccount=stack.account,
    )
    put("ours")
    put("another")
    with pytest.raises(ClientError) as third:
        put("third")
    assert third.value.response["Error"]["Code"] == "LimitExceededException"
    put("another", "nothing")
    with pytest.raises(ClientError, match="not evaluated here"):
        put("ours", '{ $.level = "error" }')

    lines = ["Detected: 1", "detected: 2", "Detected, but not this"]
    at = int(time.time() * 1000)
    events = [{"timestamp": at, "message": each} for each in lines]
    logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)
    assert len(wait_for(lambda: batches(stack, "awslogs"))) == 1


# -- alarms ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(stack: LocalAws) -> str:
    """A topic with a subscribed queue, `heard`."""
    sns, sqs = stack.client("sns"), stack.client("sqs")
    made = str(sns.create_topic(Name="heard")["TopicArn"])
    sqs.create_queue(QueueName="heard")
    statement = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    sqs.set_queue_attributes(QueueUrl=url(stack, "heard"), Attributes={"Policy": document})
    sns.subscribe(TopicArn=made, Protocol="sqs", Endpoint=arn(stack, "sqs", "heard"), ReturnSubscriptionArn=True)
    return made


def heard(aws: LocalAws) -> list[str]:
    """The subjects of what the topic has sent since the last look."""
    return [json.loads(each)["Subject"] for each in bodies(aws, "heard")]


def alarm(aws: LocalAws, topic: str, name: str, **more: Json) -> None:
    settings = {
        "Namespace": "Alerting",
        "MetricName": "Missing",
        "Dimensions": [{"Name": "Cluster", "Value": "a"}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "AlarmActions": [topic],
        **more,
    }
    aws.client("cloudwatch").put_metric_alarm(AlarmName=name, **settings)


def put_metric(aws: LocalAws, value: float, cluster: str) -> None:
    datum = {"MetricName": "Missing", "Value": value, "Dimensions": [{"Name": "Cluster", "Value": cluster}]}
    aws.client("cloudwatch").put_metric_data(Namespace="Alerting", MetricData=[datum])


def state(aws: LocalAws, name: str) -> str:
    (found,) = aws.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return str(found["StateValue"])


def test_alarms_look_at_dimensions_and_at_missing_data(stack: LocalAws, topic: str) -> None:
    alarm(stack, topic, "missing", TreatMissingData="notBreaching")
    alarm(stack, topic, "silent", TreatMissingData="breaching", ComparisonOperator="LessThanThreshold")
    wait_for(lambda: state(stack, "silent") == "ALARM")  # nothing has arrived
    wait_for(lambda: state(stack, "missing") == "OK")
    subject = f'ALARM: "silent" in {stack.region}'
    assert wait_for(lambda: heard(stack)) == [subject]

    for _ in range(12):  # nine minutes
        put_metric(stack, 1, "b")
        time.sleep(0.3)
    assert (state(stack, "missing"), state(stack, "silent")) == ("OK", "ALARM"), "another cluster"
    for _ in range(12):
        put_metric(stack, 1, "a")
        time.sleep(0.3)
    assert (state(stack, "missing"), state(stack, "silent")) == ("ALARM", "OK")
    wait_for(lambda: state(stack, "missing") == "OK")
    wait_for(lambda: state(stack, "silent") == "ALARM")
    assert sorted(heard(stack)) == sorted([f'ALARM: "missing" in {stack.region}', subject])
    stack.client("cloudwatch").delete_alarms(AlarmNames=["missing", "silent"])


def test_alarms_publish_if_the_topic_and_its_key_allow_it(stack: LocalAws, topic: str) -> None:
    sns, kms = stack.client("sns"), stack.client("kms")
    given = [{"Sid": "Owner", "Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{stack.account}:root"}, "Action": "kms:*", "Resource": "*"}]  # fmt: skip
    service = {"Service": "cloudwatch.amazonaws.com"}
    condition = {"StringEquals": {"aws:SourceAccount": stack.account}}
    ours = {"Effect": "Allow", "Principal": service, "Resource": "*", "Condition": condition}
    key = kms.create_key(Policy=json.dumps({"Version": "2012-10-17", "Statement": given}))["KeyMetadata"]["Arn"]

    def rings(name: str) -> bool:
        alarm(stack, topic, name, TreatMissingData="breaching")
        wait_for(lambda: state(stack, name) == "ALARM")
        stack.client("cloudwatch").delete_alarms(AlarmNames=[name])
        return bool(heard(stack))

    def set_attribute(name: str, value: str) -> None:
        sns.set_topic_attributes(TopicArn=topic, AttributeName=name, AttributeValue=value)

    bodies(stack, "heard")
    assert rings("plain")
    set_attribute("KmsMasterKeyId", key)
    assert not rings("key-without-statement")
    allowed = [*given, {**ours, "Action": ["kms:GenerateDataKey*", "kms:Decrypt"]}]
    kms.put_key_policy(
        KeyId=key, PolicyName="default", Policy=json.dumps({"Version": "2012-10-17", "Statement": allowed})
    )
    assert rings("key-with-statement")
    denied = {**ours, "Effect": "Deny", "Action": "sns:Publish", "Resource": topic}
    del denied["Condition"]
    set_attribute("Policy", json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    assert not rings("topic-without-statement")
    sns.delete_topic(TopicArn=topic)


def test_an_alarm_on_an_expression(stack: LocalAws, topic: str) -> None:
    def stat(name: str) -> Json:
        return {"Metric": {"Namespace": "Alerting", "MetricName": name}, "Period": 60, "Stat": "Sum"}

    properties = {
        "AlarmName": "share",
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": 10,
        "EvaluationPeriods": 1,
        "Metrics": [
            {"Id": "e", "Expression": "100 * free / (free + used)"},
            {"Id": "free", "MetricStat": stat("Free"), "ReturnData": False},
            {"Id": "used", "MetricStat": stat("Used"), "ReturnData": False},
        ],
    }
    made = templates.deploy(stack, "share", {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}})
    assert made.status == "CREATE_COMPLETE", made.reasons
    data = [{"MetricName": "Free", "Value": 1.0}, {"MetricName": "Used", "Value": 99.0}]
    stack.client("cloudwatch").put_metric_data(Namespace="Alerting", MetricData=data)
    wait_for(lambda: state(stack, "share") == "ALARM")
    templates.delete(stack, "share")


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def publisher(stack: LocalAws) -> str:
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": stack.account}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    stack.client("iam").create_role(RoleName="publisher", AssumeRolePolicyDocument=document)
    return "publisher"


def may(aws: LocalAws, role: str, *statements: Json) -> None:
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **each} for each in statements]})
    aws.client("iam").put_role_policy(RoleName=role, PolicyName="may", PolicyDocument=document)


def test_a_namespace_is_a_condition(stack: LocalAws, publisher: str) -> None:
    only = {"StringEquals": {"cloudwatch:namespace": "HyperPod/Clusters"}}
    may(stack, publisher, {"Action": "cloudwatch:PutMetricData", "Resource": "*", "Condition": only})
    client = stack.client_as(publisher, "cloudwatch")
    data = [{"MetricName": "Heartbeat", "Value": 1}]
    client.put_metric_data(Namespace="HyperPod/Clusters", MetricData=data)
    with pytest.raises(ClientError, match="not authorized"):
        client.put_metric_data(Namespace="AWS/Other", MetricData=data)


@pytest.mark.parametrize("absent", ["kms:GenerateDataKey*", "kms:Decrypt", "sns:Publish"])
def test_publishing_under_a_key_needs_the_key(stack: LocalAws, publisher: str, absent: str) -> None:
    sns = stack.client("sns")
    key = stack.client("kms").create_key()["KeyMetadata"]["Arn"]
    made = sns.create_topic(Name=f"keyed-{absent[-4]}", Attributes={"KmsMasterKeyId": key})["TopicArn"]
    needed = {"sns:Publish": made, "kms:GenerateDataKey*": key, "kms:Decrypt": key}
    given = [{"Action": action, "Resource": resource} for action, resource in needed.items()]
    may(stack, publisher, *given)
    client = stack.client_as(publisher, "sns")
    client.publish(TopicArn=made, Message="m")
    may(stack, publisher, *(each for each in given if each["Action"] != absent))
    with pytest.raises(ClientError, match="not authorized"):
        client.publish(TopicArn=made, Message="m")
