"""HyperPod's cluster events as lines for `watch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from .. import tables

Reply = Mapping[str, Any]
MOST_ALIKE = 5
"""Up to so many nodes of a group, the same event has a line for each node."""


def event_lines(events: Sequence[Reply]) -> dict[str, str]:
    """Event id -> its line. If more than MOST_ALIKE nodes of a group have the same event, only the last one has a line, with their
    number. Warnings and errors always have their own."""
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
    """Equal for events of a group that differ only in the node; unique for all others."""
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
    """AWS's own description, and the reason if it was read."""
    reason = event.get("Reason")
    return tables.shown(f"{event.get('Description', '')}{f' ({reason})' if reason else ''}")


def event_reasons(value: object) -> Iterator[str]:
    """Messages and reasons in an event's details (botocore: EventMetadata, whose kinds each have a member for them)."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, str) and inner and str(name).endswith(("Message", "Reason")):
                yield inner
            else:
                yield from event_reasons(inner)
