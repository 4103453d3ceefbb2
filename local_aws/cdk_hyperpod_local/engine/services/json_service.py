"""A simulated service over AWS's JSON protocol, also for CloudFormation's handlers in this process; with one
journal."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable
from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.journal import Journal, error_of, request_of
from cdk_hyperpod_local.engine.seam import services as requests

Json = Any
CLOUDFORMATION = "cloudformation.amazonaws.com"
_CONTENT_TYPE = "application/x-amz-json-1.1"


class ServiceError(Exception):
    """An error reply of the service."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class JsonService(requests.Service):
    """A service. `answer(operation, body, caller, account, region)` returns the reply; one call at a time."""

    def __init__(
        self, name: str, answer: Callable[[str, bytes, str, str, str], requests.Reply], journal: Journal
    ) -> None:
        self.name = name
        self._answer = answer
        self._journal = journal
        self.lock = threading.RLock()

    async def handle_request(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json
    ) -> requests.Reply:
        # The journal entry is made around the request (`observe`), so that it contains IAM's refusals too.
        with self.lock:
            return self._answer(
                requests.operation_of(headers), body, requests.caller(headers, query), seam.account(), seam.region()
            )

    def call(self, operation: str, request: Json, *, who: str = CLOUDFORMATION) -> Json:
        """A call by a service, such as a CloudFormation handler. Raises ServiceError."""
        body = json.dumps(request).encode()
        with self.lock:
            status, _, reply = self._answer(operation, body, who, seam.account(), seam.region())
        if not operation.startswith(("Describe", "List")):
            # CloudFormation's repeated reads while it waits are not recorded.
            self._note(who, operation, body, status, reply)
        error = error_of(status, reply)
        if error:
            raise ServiceError(*error)
        return json.loads(reply or b"{}")

    def observe(self, headers: Json, body: bytes, query: Json, reply: requests.Reply) -> None:
        """Record a request that came in over HTTP."""
        self._note(requests.caller(headers, query), requests.operation_of(headers), body, reply[0], reply[2])

    def _note(self, who: str, operation: str, body: bytes, status: int, reply: bytes) -> None:
        self._journal.record(
            who=who,
            service=self.name,
            operation=operation,
            request=request_of(body),
            status=status,
            error=error_of(status, reply),
        )


def success(reply: Json) -> requests.Reply:
    return 200, {"Content-Type": _CONTENT_TYPE}, json.dumps(reply, default=_seconds).encode()


def _seconds(value: Any) -> float:
    """Seconds since 1970: the protocol's form of timestamps."""
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    raise TypeError(f"{value!r} has no JSON form")


def failure(code: str, message: str, status: int = 400) -> requests.Reply:
    body = json.dumps({"__type": code, "message": message}).encode()
    return status, {"Content-Type": _CONTENT_TYPE, "x-amzn-errortype": code}, body
