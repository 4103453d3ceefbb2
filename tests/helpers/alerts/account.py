"""A small AWS for the alerts function. Each call's parameters are checked against the API's own model."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.alerts.handler import Alerts, route

from .events import ARN, sqs

Json = Any
TOPIC = "arn:aws:sns:us-west-2:111122223333:alerts"
KEY = "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/large"
ENVIRONMENT = {
    "CLUSTER_ARN": ARN,
    "TOPIC_ARN": TOPIC,
    "QUEUE_URL": "https://sqs.us-west-2.amazonaws.com/111122223333/alerts",
    "LOG_GROUP": "/aws/sagemaker/Clusters/llm-train/abcdefghijkl",
}
DEFAULT_POLICY = json.dumps(
    {
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": ["SNS:GetTopicAttributes", "SNS:Publish"],
                "Resource": TOPIC,
                "Condition": {"StringEquals": {"AWS:SourceOwner": "111122223333"}},
            }
        ]
    }
)


def error(code: str, message: str = "no", status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation"
    )


def group(name: str = "p5", current: int = 5, target: int = 8, minimum: int | None = 4, **more: Json) -> Json:
    """A group in DescribeCluster's answer."""
    given = {"InstanceGroupName": name, "CurrentCount": current, "TargetCount": target, "MinCount": minimum, **more}
    return {key: value for key, value in given.items() if value is not None}


@dataclass
class Account:
    """The services that the function calls, with errors at will."""

    groups: list[Json] = field(default_factory=lambda: [group()])
    recovery: str = "Automatic"
    reasons: dict[str, str] = field(default_factory=dict)
    """By event id: what DescribeClusterEvent has as FailureMessage. Absent: the event is gone."""
    plan_end: datetime | None = datetime(2026, 6, 11, 17, 20, 25, tzinfo=UTC)
    attributes: dict[str, str] = field(default_factory=lambda: {"Policy": DEFAULT_POLICY})
    key_policy: str = "{}"
    errors: dict[str, Exception] = field(default_factory=dict)
    """By operation."""
    until: datetime | None = None
    """When the errors are over. Absent: they stay."""
    delay: timedelta = timedelta(0)
    """How late CloudWatch shows a metric."""
    refused_entries: int = 0
    """How many entries SendMessageBatch does not accept."""
    now: datetime = datetime(2026, 6, 1, 17, 20, 25, tzinfo=UTC)
    calls: Counter[str] = field(default_factory=Counter)
    messages: list[Json] = field(default_factory=list)
    data: list[Json] = field(default_factory=list)
    """Of PutMetricData, call for call."""
    queue: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def alerts(self, **environment: str) -> Alerts:
        """A new copy of the function, which remembers nothing."""
        return Alerts(
            {**ENVIRONMENT, **environment}, self._client, now=lambda: self.now, sleep=self._pass, log=self.said.append
        )

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _client(self, service: str) -> Any:
        return _Client(service, self)

    # -- the operations ------------------------------------------------------------------------------------------------

    def describe_cluster(self, _: Json) -> Json:
        return {"ClusterName": "llm-train", "ClusterArn": ARN, "ClusterStatus": "InService", "InstanceGroups": self.groups,
                "NodeRecovery": self.recovery}  # fmt: skip

    def describe_cluster_event(self, request: Json) -> Json:
        if request["EventId"] not in self.reasons:
            raise error("ResourceNotFound", "there is no such event")
        metadata = {"Instance": {"FailureMessage": self.reasons[request["EventId"]]}}
        return {"EventDetails": {"EventId": request["EventId"], "EventDetails": {"EventMetadata": metadata}}}

    def describe_training_plan(self, request: Json) -> Json:
        assert request["TrainingPlanName"] == "large"
        return {} if self.plan_end is None else {"EndTime": self.plan_end}

    def publish(self, request: Json) -> Json:
        self.messages.append(request)
        return {"MessageId": "1"}

    def get_topic_attributes(self, _: Json) -> Json:
        return {"Attributes": self.attributes}

    def describe_key(self, request: Json) -> Json:
        assert request["KeyId"] == self.attributes["KmsMasterKeyId"]
        return {"KeyMetadata": {"KeyId": KEY.rpartition("/")[2], "Arn": KEY}}

    def get_key_policy(self, request: Json) -> Json:
        if request["KeyId"] != KEY:
            raise error("NotFoundException", "an alias is not a key's id")
        return {"Policy": self.key_policy}

    def put_metric_data(self, request: Json) -> Json:
        self.data.append(request)
        return {}

    def get_metric_statistics(self, request: Json) -> Json:
        shown = [
            datum["Timestamp"]
            for call in self.data
            for datum in call["MetricData"]
            if (datum["MetricName"], datum["Dimensions"]) == (request["MetricName"], request["Dimensions"])
            and request["StartTime"] <= datum["Timestamp"] < request["EndTime"]
            and datum["Timestamp"] + self.delay <= self.now
        ]
        return {"Datapoints": [{"Timestamp": at, "Sum": 1.0} for at in shown]}

    def send_message_batch(self, request: Json) -> Json:
        entries = request["Entries"]
        left, self.refused_entries = self.refused_entries, max(0, self.refused_entries - len(entries))
        self.queue += [entry["MessageBody"] for entry in entries[left:]]
        return {
            "Failed": [{"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in entries[:left]]
        }


class _Client:
    def __init__(self, service: str, account: Account) -> None:
        self._service = service
        self._account = account

    def __getattr__(self, operation: str) -> Callable[..., Json]:
        return functools.partial(self._call, operation)

    def _call(self, operation: str, **request: Json) -> Json:
        _validate(self._service, operation, request)
        account = self._account
        account.calls[operation] += 1
        if operation in account.errors and (account.until is None or account.now < account.until):
            raise account.errors[operation]
        return getattr(account, operation)(request)


def _validate(service: str, operation: str, request: Json) -> None:
    shapes = _shapes(service)
    report = ParamValidator().validate(request, shapes[operation])
    assert not report.has_errors(), report.generate_report()


@functools.cache
def _shapes(service: str) -> dict[str, Any]:
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): model.operation_model(name).input_shape for name in model.operation_names}


def deliver(account: Account, *bodies: Json, alerts: Alerts | None = None) -> list[str]:
    """Give a batch to the function. Returns the ids of the records that failed."""
    answer = route({"Records": sqs(*bodies)}, alerts or account.alerts())
    assert answer is not None
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]
