"""The calls of HyperPod, FSx and EKS, one line of JSON each, for tests to assert on: caller, time, request, outcome.

It contains IAM's refusals too: an entry is made around the whole request, not inside the service.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class _Lines:
    """Appends JSON objects to a file, one per line."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps({"at": round(self._now(), 6), **entry}, separators=(",", ":"), default=str)
        with self._lock:
            self._file.write(line + "\n")


class Checks(_Lines):
    """Every permission that IAM checked for a role or a user, and the result."""

    def record(self, who: str, action: str, resource: str, allowed: bool) -> None:
        self._append({"who": who, "action": action, "resource": resource, "allowed": allowed})


class Journal(_Lines):
    """The calls; one per engine."""

    def record(
        self,
        *,
        who: str,
        service: str,
        operation: str,
        request: Any,
        status: int,
        error: tuple[str, str] | None,
        reply: str = "delivered",
    ) -> None:
        """`error`: code and message, absent if the call succeeded. `reply`: whether the caller received it."""
        entry = {
            "who": who,
            "service": service,
            "operation": operation,
            "request": request,
            "outcome": error[0] if error else "ok",
            "message": error[1] if error else "",
            "status": status,
            "reply": reply,
        }
        self._append(entry)


def error_of(status: int, body: bytes) -> tuple[str, str] | None:
    """Code and message of an AWS JSON error reply; None if the reply is not an error."""
    if status < 400:
        return None
    try:
        reply = json.loads(body or b"{}")
    except ValueError:
        return f"HTTP{status}", body.decode("utf-8", "replace")[:500]
    code = str(reply.get("__type") or reply.get("code") or f"HTTP{status}").rsplit("#", 1)[-1]
    return code, str(reply.get("message") or reply.get("Message") or "")


def request_of(body: bytes) -> Any:
    """The request as JSON, or as text if it is not JSON."""
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return body.decode("utf-8", "replace")
