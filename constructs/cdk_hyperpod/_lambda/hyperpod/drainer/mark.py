"""The mark: the annotation that the drainer writes on a node that it holds."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from ..kernel.drain_protocol import PATCH, REQUEST_ID, NodeRequest

MARK = "cdk-hyperpod.dev/drain"
"""The annotation's name."""
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class Mark:
    """What the drainer has written on a node that it holds: all that it knows at its next look."""

    request: NodeRequest
    ours: bool
    """The cordon is the drainer's. False: another client had cordoned the node before, or it is unknown who did."""
    saved: bool
    """The node's data is saved, for this very request."""
    since: float
    """When it was cordoned for this request: only a backup that was made since then has all that pods wrote there."""
    job: str = ""
    """The uid of the Job that the drainer made to save the node. It trusts no other: anybody may use a name."""


def make_mark(mark: Mark) -> str:
    """The annotation's text."""
    request = mark.request
    return json.dumps(
        {
            "by": request.writer,
            "request": request.request_id,
            "deadline": request.deadline,
            "expires": request.expires,
            "on_timeout": "force" if request.force else "fail",
            "backup": request.backup,
            "cordon": "ours" if mark.ours else "another's",
            "unmanaged_pods": "evict" if request.evict_unmanaged else "fail",
            "saved": mark.saved,
            "since": mark.since,
            "job": mark.job,
        }
    )


def parse_mark(text: str, instance: str) -> Mark:
    """The mark in an annotation. An invalid text is a mark of no request, whose lease is over.

    A cordon is the drainer's only if the mark says so. If that is unknown, the node stays cordoned.
    """
    found = _parse_object(text)
    request_id = _text_of(found.get("request"), re.compile(REQUEST_ID))
    request = NodeRequest(
        # Only runs of `cdk-hyperpod patch` are operators here.
        writer="operator" if request_id.startswith(PATCH) else "deployment",
        request_id=request_id,
        instance=instance,
        address="",
        deadline=_number(found.get("deadline")),
        expires=_number(found.get("expires")),
        force=found.get("on_timeout") == "force",
        backup=found.get("backup") is True,
        evict_unmanaged=found.get("unmanaged_pods") == "evict",
    )
    return Mark(
        request,
        ours=found.get("cordon") == "ours",
        saved=found.get("saved") is True,
        since=_number(found.get("since")),
        job=_text_of(found.get("job"), _UID),
    )


def _parse_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text_of(value: Any, form: re.Pattern[str]) -> str:
    """The text, if it has the form; else an empty one."""
    if isinstance(value, str) and form.fullmatch(value):
        return value
    return ""


def _number(value: Any) -> float:
    """The number, if it is finite; else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0
