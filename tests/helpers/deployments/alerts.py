"""Clusters with alerts on an engine of their own: what a subscriber of the topic gets, and the function's rights.

An hour of the functions' clock is a minute. HyperPod itself is much faster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from cdk_hyperpod_local.hyperpod import Timings
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
SPEED = 60.0
WINDOW = 30 / SPEED
TIMINGS = {**asdict(Timings().faster(1200)), "boot": 3.0, "repair": 3.0, "minimum_limit": 30.0}
"""A boot and a repair outlast the window, as on AWS: counts still change when the function looks."""


@dataclass
class Subscriber:
    """A queue that is subscribed to the topic, and everything that it got."""

    aws: LocalAws
    queue: str = "heard"
    got: list[Json] = field(default_factory=list)

    @classmethod
    def of(cls, aws: LocalAws, queue: str = "heard") -> Subscriber:
        sqs = aws.client("sqs")
        sns = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [sns]})
        sqs.create_queue(QueueName=queue, Attributes={"Policy": policy})
        return cls(aws, queue)

    @property
    def arn(self) -> str:
        return f"arn:aws:sqs:{self.aws.region}:{self.aws.account}:{self.queue}"

    def subscription(self, topic: Json) -> Json:
        properties = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": self.arn}
        return {"Type": "AWS::SNS::Subscription", "Properties": properties}

    def look(self) -> None:
        sqs = self.aws.client("sqs")
        url = sqs.get_queue_url(QueueName=self.queue)["QueueUrl"]
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for each in found:
                self.got.append({**json.loads(each["Body"]), "at": time.time()})
                sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])

    def messages(self, since: int = 0) -> list[Json]:
        """What the function has sent."""
        self.look()
        return [each for each in self.got[since:] if "AlarmName" not in each["Message"]]

    def alarms(self, since: int = 0) -> list[str]:
        """The names of the alarms that have rung."""
        self.look()
        return [json.loads(each["Message"])["AlarmName"] for each in self.got[since:] if "AlarmName" in each["Message"]]

    def mark(self) -> int:
        self.look()
        return len(self.got)


def subscribing(subscriber: Subscriber) -> Callable[[Json], None]:
    def edit(template: Json) -> None:
        (topic,) = (name for name, each in template["Resources"].items() if each["Type"] == "AWS::SNS::Topic")
        template["Resources"]["Heard"] = subscriber.subscription({"Ref": topic})

    return edit


def wait_for(what: Callable[[], Json], seconds: float = 30) -> Json:
    limit = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < limit, f"not so after {seconds:.0f} s"
        time.sleep(0.1)
    return found


def one_message(subscriber: Subscriber, since: int, kind: str) -> Json:
    """The only message of this kind: nothing else comes for three windows and a second."""
    wait_for(lambda: of_kind(subscriber, since, kind))
    time.sleep(3 * WINDOW + 1)
    (found,) = of_kind(subscriber, since, kind)
    return found


def of_kind(subscriber: Subscriber, since: int, kind: str) -> list[Json]:
    return [each for each in subscriber.messages(since) if each["MessageAttributes"]["kind"]["Value"] == kind]


def kinds(subscriber: Subscriber, since: int) -> list[str]:
    return [each["MessageAttributes"]["kind"]["Value"] for each in subscriber.messages(since)]


def rings(subscriber: Subscriber, since: int, name: str, seconds: float = 60) -> None:
    wait_for(lambda: [each for each in subscriber.alarms(since) if f"Monitoring{name}" in each], seconds)


def function(life: Rehearsal) -> tuple[str, str]:
    """Names of the alerts' function and of its role."""
    resources = life.aws.client("cloudformation").describe_stack_resources(StackName=life.cluster)["StackResources"]
    found = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
    starts = ("MonitoringFunction", "MonitoringRole")
    name, role = (next(value for logical, value in found.items() if logical.startswith(start)) for start in starts)
    return name, role


@contextmanager
def unscheduled(life: Rehearsal) -> Iterator[None]:
    """No metrics are written meanwhile. Lambda starts another copy of a busy function, and a copy knows its own messages only."""
    events = life.aws.client("events")
    (rule,) = (
        each["Name"] for each in events.list_rules()["Rules"] if f"{life.cluster}-MonitoringSchedule" in each["Name"]
    )
    events.disable_rule(Name=rule)
    yield
    events.enable_rule(Name=rule)


def measure(life: Rehearsal) -> str:
    """Run the schedule. What the function raised; empty if nothing."""
    reply = life.aws.client("lambda").invoke(
        FunctionName=function(life)[0], Payload=json.dumps({"schedule": "metrics"}).encode()
    )
    return str(json.loads(reply["Payload"].read())["errorMessage"]) if "FunctionError" in reply else ""
