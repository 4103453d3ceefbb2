"""Encrypts HyperPod's own log group and lets its events expire. No template can: the group's name holds the cluster's id.

HyperPod writes what it does to the nodes, and what lifecycle scripts print, to /aws/sagemaker/Clusters/NAME/ID. It makes the
group with the first node. Where that has not been, the group is made here: each node but the first finds one anyway. What was
written before it had the key stays as it was (CloudWatch Logs API reference, AssociateKmsKey).

Nothing here fails a deployment, and nothing deletes a log: what could not be done is told in the answer. The function is uploaded by
itself, so that a change of it does not update the guard's functions, nor the other way round.
"""

from __future__ import annotations

import json
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import boto3  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

PATIENCE = timedelta(minutes=3)
"""How long what may pass is waited for, all calls together: throttling, and the function's own rights, which IAM spreads in
its own time. The function has five minutes."""
PAUSE = timedelta(seconds=5)
_ACCESS_GRACE = timedelta(minutes=2)
"""How long AccessDenied is a wait: IAM is eventually consistent."""
_LONGEST = 1000
"""Characters of an outcome: CloudFormation takes 4,096 bytes of an answer."""
_THERE = "ResourceAlreadyExistsException"
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
Reply = Mapping[str, Any]


class Logs(Protocol):
    """Exactly the CloudWatch Logs calls of this package."""

    def create_log_group(self, *, logGroupName: str) -> Reply: ...

    def put_retention_policy(self, *, logGroupName: str, retentionInDays: int) -> Reply: ...

    def associate_kms_key(self, *, logGroupName: str, kmsKeyId: str) -> Reply: ...


class ClusterLog:
    """One log group, on a client that is handed in."""

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

    def decide(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """What CloudFormation is told: always that all is well, and what became of the group."""
        properties = event["ResourceProperties"]
        group = str(properties["LogGroupName"])
        told = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
        told |= {"PhysicalResourceId": event.get("PhysicalResourceId", group), "Status": "SUCCESS"}
        if event["RequestType"] == "Delete":
            return told
        try:
            outcome = self.keep(group, int(properties["RetentionInDays"]), str(properties["KmsKeyId"]))
        except Exception as error:  # noqa: BLE001 - a log group ends no deployment, whatever it is
            self._log(traceback.format_exc())
            outcome = f"nothing was done to it: {type(error).__name__}; the function's log says more"
        # Another cluster has another group; the request to delete the old one does nothing.
        return {**told, "PhysicalResourceId": group, "Data": {"Outcome": outcome}}

    def keep(self, group: str, days: int, key: str) -> str:
        """Give the group its expiry and its key, and tell what came of it in one line."""
        steps = [" ".join(step.split()).rstrip(".") for step in self._steps(group, days, key)]
        text = " ".join([f"{group}:", *(f"{step[0].upper()}{step[1:]}." for step in steps)])
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def _steps(self, group: str, days: int, key: str) -> Iterator[str]:
        logs, began = self._logs(), self._now()
        problem = self._try(lambda: logs.create_log_group(logGroupName=group), began)
        if problem is not None:
            yield f"is not there: {problem}"
        problem = self._try(lambda: logs.put_retention_policy(logGroupName=group, retentionInDays=days), began)
        yield f"kept for {days} days" if problem is None else f"NOT limited to {days} days: {problem}"
        problem = self._try(lambda: logs.associate_kms_key(logGroupName=group, kmsKeyId=key), began)
        yield f"encrypted with {key}" if problem is None else f"NOT encrypted with {key}: {problem}"

    def _try(self, call: Callable[[], Reply], began: datetime) -> str | None:
        """Why a call did not succeed; None: it did, or what it makes is there."""
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


def _code(error: Exception) -> str:
    """Its wire code; empty for an error that never reached AWS."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def _reason(error: Exception) -> str:
    message = getattr(error, "response", {}).get("Error", {}).get("Message", error)
    return " ".join(f"{_code(error) or type(error).__name__}: {message}".split())


def _is_passing(error: Exception, age: timedelta) -> bool:
    """Whether waiting may help: CloudWatch throttles, the connection broke, or a permission is still on its way."""
    if _code(error) in _DENIED:
        return age < _ACCESS_GRACE
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _code(error) in _PASSING or not isinstance(error, ClientError) or status >= 500


_cluster_log = ClusterLog(lambda: boto3.client("logs"))


def handle(event: Mapping[str, Any], _context: object) -> None:
    """Lambda entry point: `hyperpod.cluster_log.handler.handle`. CloudFormation invokes it itself, and reads the answer at a pre-signed address of S3,
    signed for an empty content type. Nothing of the event is logged: whoever reads that address could answer in its place."""
    body = json.dumps(_cluster_log.decide(event)).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""})
    with urllib.request.urlopen(request, timeout=30):
        pass
