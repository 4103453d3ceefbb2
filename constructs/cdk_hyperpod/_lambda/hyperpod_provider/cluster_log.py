"""Encrypts HyperPod's own log group and lets its events expire. No template can: the group's name holds the cluster's id.

HyperPod writes what it does to the nodes, and what lifecycle scripts print, to /aws/sagemaker/Clusters/NAME/ID. It makes the
group with the first node. Where that has not been, the group is made here: each node but the first finds one anyway. What was
written before it had the key stays as it was (CloudWatch Logs API reference, AssociateKmsKey).

Nothing here fails a deployment, and nothing deletes a log: what could not be done is told in the answer.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from . import api
from .answer import answer, whose
from .handler import client
from .messages import fit

PATIENCE = timedelta(minutes=3)
"""How long what may pass is waited for, all calls together: throttling, and the function's own rights, which IAM spreads in
its own time. The function has five minutes."""
PAUSE = timedelta(seconds=5)
_THERE = "ResourceAlreadyExistsException"


class Logs(Protocol):
    """Exactly the CloudWatch Logs calls of this package."""

    def create_log_group(self, *, logGroupName: str) -> api.Reply: ...

    def put_retention_policy(self, *, logGroupName: str, retentionInDays: int) -> api.Reply: ...

    def associate_kms_key(self, *, logGroupName: str, kmsKeyId: str) -> api.Reply: ...


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
        told = {**whose(event, group), "Status": "SUCCESS"}
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
        return fit(f"{group}:", list(self._steps(group, days, key)))

    def _steps(self, group: str, days: int, key: str) -> Iterator[str]:
        logs, began = self._logs(), self._now()
        problem = self._try(lambda: logs.create_log_group(logGroupName=group), began)
        if problem is not None:
            yield f"is not there: {problem}"
        problem = self._try(lambda: logs.put_retention_policy(logGroupName=group, retentionInDays=days), began)
        yield f"kept for {days} days" if problem is None else f"NOT limited to {days} days: {problem}"
        problem = self._try(lambda: logs.associate_kms_key(logGroupName=group, kmsKeyId=key), began)
        yield f"encrypted with {key}" if problem is None else f"NOT encrypted with {key}: {problem}"

    def _try(self, call: Callable[[], api.Reply], began: datetime) -> str | None:
        """Why a call did not succeed; None: it did, or what it makes is there."""
        while True:
            try:
                call()
                return None
            except api.CALL_ERRORS as error:
                if api.code(error) == _THERE:
                    return None
                now, reason = self._now(), api.reason(error)
                if now - began >= PATIENCE or not api.is_passing(error, now=now, began=began):
                    self._log(reason)
                    return reason
                self._log(f"not yet: {reason}")
            self._sleep(PAUSE.total_seconds())


_cluster_log = ClusterLog(lambda: client("logs"))


def handle(event: Mapping[str, Any], _context: object) -> None:
    """Lambda entry point: `hyperpod_provider.cluster_log.handle`. CloudFormation invokes it itself."""
    answer(event, _cluster_log.decide(event))
