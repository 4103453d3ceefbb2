"""HyperPod's own log group: encrypted and limited where that is possible, and never a reason to fail a deployment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.cluster_log.handler import ClusterLog

Json = Any
GROUP = "/aws/sagemaker/Clusters/train/abc"
KEY = "arn:aws:kms:us-west-2:111122223333:key/1"
WELL = f"{GROUP}: Kept for 365 days. Encrypted with {KEY}."


def error(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")


@dataclass
class Logs:
    """CloudWatch, with errors at will."""

    groups: dict[str, Json] = field(default_factory=dict)
    """By name: what each call gave."""
    errors: dict[str, Exception] = field(default_factory=dict)
    """By operation."""
    until: datetime | None = None
    """When the errors are over. Absent: they stay."""
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    said: list[str] = field(default_factory=list)

    def decide(self, event: Json) -> Json:
        log = ClusterLog(lambda: self, now=lambda: self.now, sleep=self._pass, log=self.said.append)
        return log.decide(event, {"RETENTION_IN_DAYS": "365", "KMS_KEY_ID": KEY})

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _called(self, operation: str) -> None:
        if operation in self.errors and (self.until is None or self.now < self.until):
            raise self.errors[operation]

    def _group(self, name: str) -> Json:
        if name not in self.groups:
            raise error("ResourceNotFoundException", "there is none")
        return self.groups[name]

    def create_log_group(self, *, logGroupName: str) -> Json:
        self._called("create")
        if logGroupName in self.groups:
            raise error("ResourceAlreadyExistsException")
        self.groups[logGroupName] = {}
        return {}

    def put_retention_policy(self, *, logGroupName: str, retentionInDays: int) -> Json:
        self._called("retention")
        self._group(logGroupName)["days"] = retentionInDays
        return {}

    def associate_kms_key(self, *, logGroupName: str, kmsKeyId: str) -> Json:
        self._called("key")
        self._group(logGroupName)["key"] = kmsKeyId
        return {}

    def put_subscription_filter(
        self, *, logGroupName: str, filterName: str, filterPattern: str, destinationArn: str
    ) -> Json:
        self._called("filter")
        self._group(logGroupName)["filter"] = (filterName, filterPattern, destinationArn)
        return {}

    def delete_subscription_filter(self, *, logGroupName: str, filterName: str) -> Json:
        self._called("unfilter")
        if self._group(logGroupName).get("filter", ("",))[0] != filterName:
            raise error("ResourceNotFoundException", "there is no such filter")
        del self._group(logGroupName)["filter"]
        return {}


def event(request: str = "Create", **more: Json) -> Json:
    return {
        "RequestType": request,
        "ResponseURL": "https://secret.example.com",
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Log",
        "ResourceProperties": {"LogGroupName": GROUP, "RetentionInDays": "365", "KmsKeyId": KEY, **more},
    }


IDENTITY = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Log", "PhysicalResourceId": GROUP}


@pytest.mark.parametrize(
    "groups", [{}, {GROUP: {"events": 7, "days": None}}], ids=["before the first node", "after it"]
)
@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_a_group_gets_its_expiry_and_its_key_whoever_made_it(groups: dict[str, Json], request_type: str) -> None:
    logs = Logs(groups=dict(groups))
    assert logs.decide(event(request_type)) == {**IDENTITY, "Status": "SUCCESS", "Data": {"Outcome": WELL}}
    assert logs.groups == {GROUP: {**groups.get(GROUP, {}), "days": 365, "key": KEY}}


def test_an_event_says_neither_how_long_events_are_kept_nor_with_which_key() -> None:
    """Whoever may invoke the function could have all events older than a day deleted."""
    logs = Logs(groups={GROUP: {}})
    assert logs.decide(event("Update", RetentionInDays="1", KmsKeyId="another"))["Data"] == {"Outcome": WELL}
    assert logs.groups == {GROUP: {"days": 365, "key": KEY}}


FUNCTION = "arn:aws:lambda:us-west-2:111122223333:function:alerts"
FILTERED = ("cdk-hyperpod-health", "HealthMonitoringAgentDetectionEvent", FUNCTION)
SENT = {"SubscriptionDestinationArn": FUNCTION}


def outcome(logs: Logs, request: Json) -> str:
    reply = logs.decide(request)
    assert reply["Status"] == "SUCCESS"
    text: str = reply["Data"]["Outcome"]
    return text


def test_health_records_are_sent_to_the_alerts_function() -> None:
    logs = Logs()
    assert outcome(logs, event(**SENT)) == f"{WELL} Health records are sent as alerts."
    assert logs.groups[GROUP]["filter"] == FILTERED


@pytest.mark.parametrize("there", [{"filter": FILTERED}, {}, {"filter": ("another", "x", "y")}])
def test_the_filter_is_deleted_with_the_alerts_and_no_other(there: Json) -> None:
    logs = Logs(groups={GROUP: dict(there)})
    without = {**event("Update"), "OldResourceProperties": event(**SENT)["ResourceProperties"]}
    assert outcome(logs, without) == f"{WELL} Health records are no longer sent as alerts."
    assert logs.groups[GROUP].get("filter") == (None if there.get("filter") == FILTERED else there.get("filter"))


def test_the_filter_is_deleted_with_the_resource_and_the_log_stays() -> None:
    logs = Logs(groups={GROUP: {"events": 7, "filter": FILTERED}})
    assert logs.decide({**event("Delete", **SENT), "PhysicalResourceId": GROUP}) == {
        **IDENTITY,
        "Status": "SUCCESS",
    }
    assert logs.groups == {GROUP: {"events": 7}}


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "ValidationException"])
def test_a_deletion_succeeds_whatever_the_filter_does(code: str) -> None:
    logs = Logs(errors={"unfilter": error(code)})
    assert logs.decide(event("Delete", **SENT))["Status"] == "SUCCESS"


def test_a_cluster_that_never_had_alerts_needs_no_permission_for_filters() -> None:
    denied = error("AccessDeniedException")
    logs = Logs(errors={"filter": denied, "unfilter": denied})
    without = {**event("Update"), "OldResourceProperties": event()["ResourceProperties"]}
    assert [outcome(logs, request) for request in (event(), without)] == [WELL, WELL]
    assert logs.decide(event("Delete"))["Status"] == "SUCCESS"


def test_two_filters_of_others_end_no_deployment_and_the_outcome_has_the_remedy() -> None:
    logs = Logs(errors={"filter": error("LimitExceededException", "Resource limit exceeded.")})
    began = logs.now
    text = outcome(logs, event(**SENT))
    assert text.startswith(
        f"{WELL} Health records are NOT sent as alerts: LimitExceededException: Resource limit exceeded. A log"
    )
    assert (
        f"--filter-name cdk-hyperpod-health --filter-pattern HealthMonitoringAgentDetectionEvent --destination-arn {FUNCTION}."
        in text
    )
    assert logs.now == began, "waiting does not help"


def test_a_function_whose_policy_is_new_is_waited_for() -> None:
    words = "Could not execute the lambda function. Make sure you have given CloudWatch Logs permission to execute your function."
    logs = Logs(errors={"filter": error("InvalidParameterException", words)})
    logs.until = logs.now + timedelta(seconds=60)
    assert outcome(logs, event(**SENT)).endswith("Health records are sent as alerts.")
    logs.until = None
    assert "are NOT sent as alerts: InvalidParameterException" in outcome(logs, event(**SENT))


def test_a_deletion_does_nothing() -> None:
    logs = Logs(groups={GROUP: {"events": 7}})
    gone = {**event("Delete"), "PhysicalResourceId": "as it was"}
    assert logs.decide(gone) == {**IDENTITY, "PhysicalResourceId": "as it was", "Status": "SUCCESS"}
    assert logs.groups == {GROUP: {"events": 7}}


def test_the_group_of_another_cluster_is_another_resource() -> None:
    told = Logs().decide({**event("Update"), "PhysicalResourceId": "/aws/sagemaker/Clusters/train/old"})
    assert told["PhysicalResourceId"] == GROUP


@pytest.mark.parametrize("operation", ["create", "retention", "key"])
@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "OperationAbortedException"])
def test_temporary_errors_are_retried(operation: str, code: str) -> None:
    logs = Logs(errors={operation: error(code)})
    logs.until = logs.now + timedelta(seconds=100)
    assert logs.decide(event())["Data"] == {"Outcome": WELL}
    assert (logs.now, logs.said[0]) == (logs.until, f"not yet: {code}: no")


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        pytest.param(
            {"key": error("InvalidParameterException", "the key's policy")},
            f"{GROUP}: Kept for 365 days. NOT encrypted with {KEY}: InvalidParameterException: the key's policy.",
            id="a key that does not let CloudWatch use it",
        ),
        pytest.param(
            {"retention": error("AccessDeniedException")},
            f"{GROUP}: NOT limited to 365 days: AccessDeniedException: no. Encrypted with {KEY}.",
            id="a denied expiry",
        ),
        pytest.param(
            {"create": error("LimitExceededException")},
            f"{GROUP}: Does not exist: LimitExceededException: no. NOT limited to 365 days: ResourceNotFoundException: there is "
            f"none. NOT encrypted with {KEY}: ResourceNotFoundException: there is none.",
            id="no group at all",
        ),
        pytest.param(
            {"create": KeyError("whatever")},
            "nothing was done: KeyError; see the function's log",
            id="what nobody thought of",
        ),
    ],
)
def test_settings_that_cannot_be_applied_are_reported_and_fail_no_deployment(
    errors: dict[str, Exception], outcome: str
) -> None:
    assert Logs(errors=errors).decide(event()) == {**IDENTITY, "Status": "SUCCESS", "Data": {"Outcome": outcome}}


def test_it_ends_within_the_functions_five_minutes_whatever_hangs() -> None:
    lost = EndpointConnectionError(endpoint_url="https://logs")
    logs = Logs(errors=dict.fromkeys(("create", "retention", "key", "filter"), lost))
    began = logs.now
    assert logs.decide(event(**SENT))["Status"] == "SUCCESS"
    assert (logs.now - began).total_seconds() <= 200


def test_the_response_fits_and_does_not_reveal_its_url() -> None:
    """CloudFormation takes 4,096 bytes of an answer."""
    logs = Logs(errors=dict.fromkeys(("create", "retention", "key", "filter"), error("Invalid", "x" * 5000)))
    told = logs.decide(event(**SENT))
    assert len(str(told)) < 2000
    assert "secret.example.com" not in str((told, logs.said))
