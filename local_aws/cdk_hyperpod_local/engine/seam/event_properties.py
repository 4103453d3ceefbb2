"""ResourceProperties in CloudFormation's events of custom resources, which ministack leaves out.

AWS documents neither that an event has all of them, nor that they are not cut.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from html import escape
from typing import Any

from ministack.services import cloudformation  # type: ignore[import-not-found]
from ministack.services.cloudformation import (  # type: ignore[import-not-found]
    custom_resource,
    stacks,
)
from ministack.services.cloudformation import handlers as requests

Json = Any
_SHOWN = "ResourceProperties"
_MEMBER = re.compile(r"<member>.*?</member>", re.DOTALL)


def show_properties(shows: Callable[[], str], delay: float) -> None:
    """`shows`: whole, absent, cut, or late: then an event appears after `delay` seconds."""
    _record_properties()
    describe = requests._describe_stack_events

    def described(parameters: Json) -> Json:
        status, headers, body = describe(parameters)
        if status != 200:
            return status, headers, body
        text = body.decode() if isinstance(body, bytes) else body
        events = {event["EventId"]: event for found in cloudformation._stack_events.values() for event in found}

        def shown(member: re.Match[str]) -> str:
            found = member[0]
            event = events[re.search(r"<EventId>(.*?)</EventId>", found)[1]]  # type: ignore[index]
            if shows() == "late" and time.time() - _seconds(event["Timestamp"]) < delay:
                return ""
            properties = _cut(event.get(_SHOWN), shows())
            return found if properties is None else found.replace("</member>", f"{properties}</member>")

        text = _MEMBER.sub(shown, text)
        return status, headers, text.encode() if isinstance(body, bytes) else text

    requests._describe_stack_events = described
    requests._ACTION_HANDLERS["DescribeStackEvents"] = described


def _record_properties() -> None:
    """Keep the properties of each request with its events, those before and those after it."""
    invoke, add_event = custom_resource.invoke_custom_resource, stacks._add_event
    sent: dict[tuple[str, str], str] = {}

    def invoked(
        request: str, logical_id: str, properties: Json, stack: str, stack_id: str, *more: Any, **named: Any
    ) -> Json:
        text = json.dumps(custom_resource._normalise_resource_properties(properties))
        sent[stack_id, logical_id] = text
        events = cloudformation._stack_events.get(stack_id, [])
        begun = next((event for event in reversed(events) if event["LogicalResourceId"] == logical_id), None)
        if begun is not None:
            begun[_SHOWN] = text
        return invoke(request, logical_id, properties, stack, stack_id, *more, **named)

    def added(stack_id: str, stack: str, logical_id: str, kind: str, status: str, *more: Any, **named: Any) -> None:
        add_event(stack_id, stack, logical_id, kind, status, *more, **named)
        text = sent.get((stack_id, logical_id))
        if text is not None and not status.endswith("_IN_PROGRESS"):
            cloudformation._stack_events[stack_id][-1][_SHOWN] = text

    custom_resource.invoke_custom_resource, stacks._add_event = invoked, added


def _cut(properties: str | None, shows: str) -> str | None:
    if properties is None or shows == "absent":
        return None
    text = properties[: len(properties) // 2] if shows == "cut" else properties
    return f"<{_SHOWN}>{escape(text)}</{_SHOWN}>"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
