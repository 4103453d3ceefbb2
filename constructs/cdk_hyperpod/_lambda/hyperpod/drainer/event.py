"""The event, with one request of docs/adr/0014 or none. All of it is data of another function."""

from __future__ import annotations

from typing import Any

from ..common.drain_protocol import DRAINER, Request, RequestError, check_request, check_schema, show

WRITER = "deployment"


def parse_event(event: Any, now: float) -> Request | None:
    """The request in an event. None: the event has no request, and only an answer is wanted.

    Raises RequestError for the whole request if any part is wrong.
    """
    try:
        return _parse_event(event, now)
    except RecursionError:
        raise RequestError("is nested too deep") from None


def _parse_event(event: Any, now: float) -> Request | None:
    if not isinstance(event, dict):
        raise RequestError("is not a JSON object")
    check_schema(DRAINER, event)
    requests = event.get("requests", False)
    if requests is None:
        return None
    if not isinstance(requests, dict) or set(requests) != {WRITER}:
        raise RequestError(f"requests: must be null or hold {WRITER} alone, got {show(requests)}")
    return check_request(DRAINER, WRITER, requests[WRITER], now)
