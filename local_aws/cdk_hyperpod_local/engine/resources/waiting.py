"""How a resource handler waits for an operation that it started."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdk_hyperpod_local.engine.resources.base import RefusedError

POLL_SECONDS = 0.1
_LONGEST_SECONDS = 600.0
"""In wall-clock time. No handler outlives a test run, whatever the schema's own limit."""


def until(done: Callable[[], bool], what: str, *, longest: float = _LONGEST_SECONDS, service: str) -> None:
    """Return when done() is true. Raises RefusedError if that takes too long."""
    limit = time.monotonic() + longest
    while not done():
        if time.monotonic() >= limit:
            raise RefusedError(
                f"Exceeded attempts to wait: {what} after {longest:.0f} s", service=service, code="NotStabilized"
            )
        time.sleep(POLL_SECONDS)
