"""Encrypts HyperPod's own log group, sets its retention, and sends the health agent's records to the alerts' function.

A template cannot, because the group's name has the cluster's id.

HyperPod writes its work on the nodes, and the output of lifecycle scripts, to /aws/sagemaker/Clusters/NAME/ID. HyperPod creates
the group with the first node. If it does not exist yet, this function creates it: for each node but the first, the group exists
anyway. Events that were written before the group had the key stay unencrypted by it (CloudWatch Logs API reference,
AssociateKmsKey).

Nothing here fails a deployment, and nothing deletes a log. The answer reports what could not be done. The function is uploaded
separately, so a change of it does not update the guard's functions, and a change of those does not update it.
"""

from __future__ import annotations

import json
import os
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import boto3  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

PATIENCE = timedelta(minutes=3)
"""Maximum wait of all calls together for errors that may pass: throttling, and the function's own permissions, which IAM spreads
with a delay. The function has five minutes."""
PAUSE = timedelta(seconds=5)
_ACCESS_GRACE = timedelta(minutes=2)
"""How long AccessDenied is a wait: IAM is eventually consistent."""
_LONGEST = 1000
"""Characters of an outcome: CloudFormation accepts 4,096 bytes of an answer."""
FILTER = "cdk-hyperpod-health"
"""The name of the subscription filter. A filter of another name is somebody else's."""
PATTERN = "HealthMonitoringAgentDetectionEvent"
"""A term of each record of a fault ("Health monitoring agent", SageMaker AI developer guide)."""
_THERE = "ResourceAlreadyExistsException"
_GONE = "ResourceNotFoundException"
_NO_MORE_FILTERS = "LimitExceededException"
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnrecognizedClientException"})
_PASSING = frozenset(
    {
        "OperationAbortedException",
        "RequestLimitExceeded",
        "ServiceUnavailableException",
        "Throttling",
        "ThrottlingException",
    }
)
DAYS, KEY = "RETENTION_IN_DAYS", "KMS_KEY_ID"
"""Variables of the environment."""
_DESTINATION = "SubscriptionDestinationArn"
"""The property with the ARN of the alerts' function. Absent or empty: the cluster has no alerts."""
Reply = Mapping[str, Any]


class Logs(Protocol):
    """Exactly the CloudWatch Logs calls of this package."""

    def create_log_group(self, *, logGroupName: str) -> Reply: ...

    def put_retention_policy(self, *, logGroupName: str, retentionInDays: int) -> Reply: ...

    def associate_kms_key(self, *, logGroupName: str, kmsKeyId: str) -> Reply: ...

    def put_subscription_filter(
        self, *, logGroupName: str, filterName: str, filterPattern: str, destinationArn: str
    ) -> Reply: ...

    def delete_subscription_filter(self, *, logGroupName: str, filterName: str) -> Reply: ...


class ClusterLog:
    """One log group, with a client from outside."""

    def __init__(
        self,
        logs: Callable[[], Logs],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        self._logs = logs
        self._now = now
        self._sleep = sleep
        self._log = log

    def decide(self, event: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
        """The answer to CloudFormation: always SUCCESS, with the result for the group.

        How long events are kept, and with which key, is in the environment, which only CloudFormation writes: with a day in a forged
        event, CloudWatch would delete all older events. They are properties of the resource, too, so that a change is an update.
        """
        properties = event["ResourceProperties"]
        group = str(properties["LogGroupName"])
        reply = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
        reply |= {"PhysicalResourceId": event.get("PhysicalResourceId", group), "Status": "SUCCESS"}
        destination, began = str(properties.get(_DESTINATION) or ""), self._now()
        try:
            if event["RequestType"] == "Delete":
                if destination:
                    self._remove_filter(group, began)
                return reply
            had = str((event.get("OldResourceProperties") or {}).get(_DESTINATION) or "")
            days, key = int(environment[DAYS]), environment[KEY]
            steps = [*self._steps(group, days, key, began), *self._filter_steps(group, destination, had, began)]
            outcome = _in_one_line(group, steps)
        except Exception as error:  # noqa: BLE001 - a log group ends no deployment, whatever it is
            self._log(traceback.format_exc())
            outcome = f"nothing was done: {type(error).__name__}; see the function's log"
        # Another cluster has another group; the request to delete the old one does nothing.
        return {**reply, "PhysicalResourceId": group, "Data": {"Outcome": outcome}}

    def _steps(self, group: str, days: int, key: str, began: datetime) -> Iterator[str]:
        logs = self._logs()
        problem = self._try(lambda: logs.create_log_group(logGroupName=group), began)
        if problem is not None:
            yield f"does not exist: {problem}"
        problem = self._try(lambda: logs.put_retention_policy(logGroupName=group, retentionInDays=days), began)
        yield f"kept for {days} days" if problem is None else f"NOT limited to {days} days: {problem}"
        problem = self._try(lambda: logs.associate_kms_key(logGroupName=group, kmsKeyId=key), began)
        yield f"encrypted with {key}" if problem is None else f"NOT encrypted with {key}: {problem}"

    def _filter_steps(self, group: str, destination: str, had: str, began: datetime) -> Iterator[str]:
        """`destination`: of the records. Empty: none is wanted. `had`: the one before this change."""
        if destination:
            yield from self._put_filter(group, destination, began)
        elif had:
            problem = self._remove_filter(group, began)
            rest = f", but its subscription filter {FILTER} was not deleted: {problem}" if problem else ""
            yield f"health records are no longer sent as alerts{rest}"

    def _put_filter(self, group: str, destination: str, began: datetime) -> Iterator[str]:
        logs = self._logs()
        problem = self._try(
            lambda: logs.put_subscription_filter(
                logGroupName=group, filterName=FILTER, filterPattern=PATTERN, destinationArn=destination
            ),
            began,
        )
        if problem is None:
            yield "health records are sent as alerts"
            return
        yield f"health records are NOT sent as alerts: {problem}"
        if problem.startswith(_NO_MORE_FILTERS):
            # CloudFormation invokes the function only if a property changes.
            yield (
                "a log group takes two subscription filters: delete one, and run aws logs put-subscription-filter "
                f"--log-group-name {group} --filter-name {FILTER} --filter-pattern {PATTERN} --destination-arn {destination}"
            )

    def _remove_filter(self, group: str, began: datetime) -> str | None:
        """Why it is still there. None: it is not."""
        logs = self._logs()
        problem = self._try(lambda: logs.delete_subscription_filter(logGroupName=group, filterName=FILTER), began)
        return None if problem is None or problem.startswith(_GONE) else problem

    def _try(self, call: Callable[[], Reply], began: datetime) -> str | None:
        """Why a call failed. None: it succeeded, or what it creates exists."""
        while True:
            try:
                call()
                return None
            except (ClientError, BotoCoreError) as error:
                if _code(error) == _THERE:
                    return None
                now, reason = self._now(), _reason(error)
                if now - began >= PATIENCE or not _is_passing(error, now - began):
                    self._log(reason)
                    return reason
                self._log(f"not yet: {reason}")
            self._sleep(PAUSE.total_seconds())


def _in_one_line(group: str, steps: Iterable[str]) -> str:
    """The result for the group. Each step becomes a sentence."""
    clean = [" ".join(step.split()).rstrip(".") for step in steps]
    text = " ".join([f"{group}:", *(f"{step[0].upper()}{step[1:]}." for step in clean)])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _code(error: Exception) -> str:
    """The error's code. Empty for an error that never reached AWS."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def _reason(error: Exception) -> str:
    message = getattr(error, "response", {}).get("Error", {}).get("Message", error)
    return " ".join(f"{_code(error) or type(error).__name__}: {message}".split())


def _is_passing(error: Exception, age: timedelta) -> bool:
    """Whether waiting may help: CloudWatch throttles, the connection broke, or a permission is still on its way."""
    if _code(error) in _DENIED:
        return age < _ACCESS_GRACE
    if "execute the lambda function" in _reason(error):
        # CloudWatch tries the destination, and the function's policy is as new as the filter.
        return age < _ACCESS_GRACE
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _code(error) in _PASSING or not isinstance(error, ClientError) or status >= 500


_cluster_log = ClusterLog(lambda: boto3.client("logs"))


def handle(event: Mapping[str, Any], _context: object) -> None:
    """Lambda entry point: `hyperpod.cluster_log.handler.handle`. CloudFormation invokes it itself, and reads the answer at a pre-signed address of S3,
    signed for an empty content type. Nothing of the event is logged, because
    a reader of that address could answer in the function's place."""
    body = json.dumps(_cluster_log.decide(event, os.environ)).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""})
    with urllib.request.urlopen(request, timeout=30):
        pass
