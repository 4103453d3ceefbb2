"""HyperPod's cluster events as lines: `watch` prints them as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from .. import tables

Reply = Mapping[str, Any]
MOST_ALIKE = 5
"""Nodes of a group that each have a line for what happens to all of them alike."""


def event_lines(events: Sequence[Reply]) -> dict[str, str]:
    """By event, what is printed of it. What more nodes of a group than MOST_ALIKE have alike is one line, of the last of them; a
    warning or an error always has its own."""
    alike: dict[tuple[str, str], list[Reply]] = {}
    for event in events:
        alike.setdefault(_kind(event), []).append(event)
    found = {}
    for (group, words), same in alike.items():
        if len(same) > MOST_ALIKE:
            last = same[-1]
            found[last["EventId"]] = f"{_when(last)} {group}, {len(same)} nodes: {words}"
        else:
            found |= {event["EventId"]: _event_line(event) for event in same}
    return found


def _kind(event: Reply) -> tuple[str, str]:
    """The same for events of a group's nodes that differ in the node alone; others are of a kind of their own."""
    node, group = event.get("InstanceId"), event.get("InstanceGroupName")
    if event.get("EventLevel", "Info") != "Info" or not node or not group:
        return "", str(event["EventId"])
    return str(group), event_words(event).replace(node, "…")


def _event_line(event: Reply) -> str:
    where = " ".join(filter(None, (event.get("InstanceGroupName"), event.get("InstanceId"))))
    return f"{_when(event)} {where}{': ' if where else ''}{event_words(event)}"


def _when(event: Reply) -> str:
    return f"{event['EventTime'].astimezone(UTC):%H:%M:%S} {event.get('EventLevel', 'Info')!s:<5}"


def event_words(event: Reply) -> str:
    """AWS's own description, known or not, and the reason behind it."""
    reason = event.get("Reason")
    return tables.shown(f"{event.get('Description', '')}{f' ({reason})' if reason else ''}")


def event_reasons(value: object) -> Iterator[str]:
    """What an event's details say in words (botocore: EventMetadata, whose kinds each have a message of some name)."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, str) and inner and str(name).endswith(("Message", "Reason")):
                yield inner
            else:
                yield from event_reasons(inner)
