"""Reads what exists, and refuses or accepts the deployment. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ..common import api
from ..kernel.refuse import Failure
from ..kernel.sentences import DENIED_HINT, fit
from ..kernel.text import one_line
from .decision import differences, explain
from .look import Clients, Stack, look
from .settings import read

T = TypeVar("T")

PATIENCE = timedelta(minutes=3)
"""Maximum wait for errors that may pass: throttling, and the function's own permissions, which IAM spreads with a delay. The
function has five minutes."""
STATUS_PATIENCE = timedelta(seconds=30)
"""The same for the stack's status, which is read twice at most: both reads and the look fit into the five minutes."""


class GuardError(Exception):
    """A refusal or failure. Its text is the reason that CloudFormation shows."""


class Guard:
    """The decision, with clients from outside."""

    def __init__(
        self,
        client: Clients,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        self._client = client
        self._now = now
        self._sleep = sleep
        self._log: Callable[[str], None] = lambda text: log(one_line(text))

    def check(self, event: Mapping[str, Any]) -> None:
        """Return if the deployment may go on. Raises GuardError if it must not.

        A rollback always may: it restores what existed before, and a refusal would leave the stack in UPDATE_ROLLBACK_FAILED. So an
        update reads the stack's status first, and a rollback does not depend on other reads.
        """
        if event["RequestType"] == "Delete":
            return
        stack = str(event["StackId"])
        rolls_back = self._rolls_back(stack) if event["RequestType"] == "Update" else None
        if rolls_back:
            self._log("the stack rolls back, so nothing is refused")
            return
        settings = read(event["ResourceProperties"])
        try:
            live = self._patiently(PATIENCE, lambda: look(settings, stack, self._client))
            found = [*differences(settings, live)]
            problem = explain(settings.cluster, found) if found else None
        except api.CALL_ERRORS as error:
            problem = _unreadable(settings.cluster, error)
        if problem is None:
            return
        # A status that could not be read at first may be readable now.
        if rolls_back is None and self._rolls_back(stack):
            self._log(f"the stack rolls back, so this is no refusal: {problem}")
            return
        raise GuardError(problem)

    def _rolls_back(self, stack: str) -> bool | None:
        """None: the stack's status cannot be read."""
        cloudformation: Stack = self._client("cloudformation")
        try:
            found = self._patiently(STATUS_PATIENCE, lambda: cloudformation.describe_stacks(StackName=stack))
        except api.CALL_ERRORS as error:
            self._log(f"cannot read the stack's status: {api.reason(error)}")
            return None
        return "ROLLBACK" in found["Stacks"][0]["StackStatus"]

    def _patiently(self, patience: timedelta, read: Callable[[], T]) -> T:
        """The result of a call, repeated while its error may pass. The guard runs before everything, so a wait blocks nothing else."""
        began = self._now()

        def until(error: Exception) -> datetime:
            return began + patience if api.is_passing(error, now=self._now(), began=began) else began

        return api.again(read, until, now=self._now, sleep=self._sleep, log=self._log)


def _unreadable(cluster: str, error: Exception) -> str:
    """The reason if what exists cannot be read."""
    failure = Failure(
        code="foundation-unreadable",
        problem=f"The guard could not read what the foundation of {cluster} consists of, and no stack was changed",
        remedy="find the cause, then deploy again",
    )
    return fit(failure.head, [api.reason(error), DENIED_HINT if api.is_denied(error) else failure.remedy])
