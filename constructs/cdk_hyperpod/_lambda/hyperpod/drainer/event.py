"""The event, with one request of docs/adr/0014 or none. All of it is data of another function, or of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..kernel.drain_protocol import DRAINER, PATCH, WRITERS, Request, RequestError, check_request, check_schema, show


@dataclass(frozen=True, slots=True)
class RunChange:
    """The change of the kept run of `cdk-hyperpod patch` that an event asks for (docs/adr/0021)."""

    version: str
    """Of what the writer has read. Another one by now: nothing is changed."""
    record: Mapping[str, Any] | None
    """None: the run is over."""


@dataclass(frozen=True, slots=True)
class Question:
    """The event, as it was read."""

    writer: str = WRITERS[0]
    request: Request | None = None
    """None: only an answer is wanted, or the request is refused."""
    refused: str = ""
    """Why the request is refused."""
    asks_run: bool = False
    """The answer has the kept run."""
    run: RunChange | None = None
    """None: it is not to be changed."""


def read_question(event: Any, now: float) -> Question:
    """The event. A part that is wrong refuses the whole request."""
    try:
        return parse_event(event, now)
    except RequestError as error:
        writer = _writer_of(event)
        return Question(writer, refused=f"the request of the {writer} {error}")


def parse_event(event: Any, now: float) -> Question:
    """The event. Raises RequestError for the whole request if any part is wrong."""
    try:
        return _parse_event(event, _writer_of(event), now)
    except RecursionError:
        raise RequestError("is nested too deep") from None


def _writer_of(event: Any) -> str:
    requests = event.get("requests") if isinstance(event, dict) else None
    named = [writer for writer in WRITERS if isinstance(requests, dict) and set(requests) == {writer}]
    return named[0] if named else WRITERS[0]


def _parse_event(event: Any, writer: str, now: float) -> Question:
    if not isinstance(event, dict):
        raise RequestError("is not a JSON object")
    check_schema(DRAINER, event)
    run = _run_change(event.get("run"))
    requests = event.get("requests", False)
    if requests is None:
        return Question(writer, asks_run="run" in event, run=run)
    if not isinstance(requests, dict) or set(requests) != {writer}:
        raise RequestError(f"requests: must be null or hold one of {', '.join(WRITERS)}, got {show(requests)}")
    request = check_request(DRAINER, writer, requests[writer], now)
    _check_writer(writer, request, run)
    return Question(writer, request, asks_run="run" in event, run=run)


def _run_change(found: Any) -> RunChange | None:
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("version"), str):
        raise RequestError(f"run: must be an object with a version, got {show(found)}")
    record = found.get("record")
    if record is not None and not isinstance(record, dict):
        raise RequestError(f"run.record: must be null or an object, got {show(record)}")
    return RunChange(found["version"], record)


def _check_writer(writer: str, request: Request, run: RunChange | None) -> None:
    """An operator's request is a run's, which every one of them proves to be the kept one."""
    is_of_patch = request.id.startswith(PATCH)
    if (writer == "operator") != is_of_patch or (is_of_patch and run is None):
        raise RequestError("is of another version of `cdk-hyperpod patch`; bring it up to date")
