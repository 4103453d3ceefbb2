"""CloudFormation's own record of a request: the stack's events of this very resource, and the stack's template. Pure.

Only CloudFormation writes them. AWS documents neither that an event of a custom resource has all properties, nor how long they may be
(docs/adr/0019-an-event-is-believed-as-far-as-its-stack.md).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .stack_events import is_of_stack

_NOT_COMPARED = frozenset({"ServiceToken", "ServiceTimeout"})
"""Of CloudFormation itself. The guard does not use them."""

_HIDDEN = re.compile(r"\{\{resolve:[^}]*\}\}|\*{4,}")
"""What a record shows in the place of a value: a dynamic reference, or a parameter with NoEcho."""

_NOT_ASCII = r"[?\x80-\U0010ffff]"
"""What a question mark may stand for: GetTemplate shows one for each character outside ASCII (cloudformation-coverage-roadmap#1220)."""

_ANY = r'[^"\\]*'
"""What an unknown part of a text may be. A group is JSON, so an unknown part must not add a key to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the newest operation of a stack does with a resource."""

    operation: str
    """EventId of the stack's newest event, a UUID: only those know it who may read the events."""
    stack_status: str
    status: str
    """Of the resource. Empty: the operation has not begun with it."""
    began: datetime | None
    """Since when it has this status."""
    properties: Mapping[str, Any] | None
    """None: the events do not have them, or only a part."""


def read_record(events: Iterator[Mapping[str, Any]], stack: str, kind: str, resource: str) -> Record | None:
    """The record, from events that come newest first. None: the stack has no event of its own yet.

    Reads no further than to the stack's newest event of its own. `kind`, `resource`: the resource's type and its logical id.
    """
    own: list[Mapping[str, Any]] = []
    for event in events:
        if is_of_stack(event, stack):
            return _record(event, own)
        # prepare and finalize of one stack have the same properties but for one, and prepare releases what finalize deletes.
        if event.get("LogicalResourceId") == resource and event.get("ResourceType") == kind:
            own.append(event)
    return None


def _record(of_stack: Mapping[str, Any], own: list[Mapping[str, Any]]) -> Record:
    status = str(own[0].get("ResourceStatus", "")) if own else ""
    current = [event for event in own if event.get("ResourceStatus") == status]
    found = (properties_of(event) for event in current)
    return Record(
        operation=str(of_stack.get("EventId", "")),
        stack_status=str(of_stack.get("ResourceStatus", "")),
        status=status,
        began=current[-1].get("Timestamp") if current else None,
        properties=next((each for each in found if each is not None), None),
    )


def earlier_properties(events: Iterator[Mapping[str, Any]], resource: str) -> Iterator[Mapping[str, Any]]:
    """The properties that CloudFormation may have sent as the old ones: those of earlier events, up to the last one that succeeded."""
    for event in events:
        if event.get("LogicalResourceId") != resource:
            continue
        found = properties_of(event)
        if found is not None:
            yield found
        if str(event.get("ResourceStatus", "")).endswith("_COMPLETE"):
            return


def properties_of(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """None: the event does not have them, or they are cut."""
    try:
        found = json.loads(event.get("ResourceProperties") or "")
    except (TypeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def agrees(recorded: object, sent: object) -> bool:
    """Whether the properties of a record, or of a template, are those that were sent."""
    return _agrees(_plain(recorded, top=True), _plain(sent, top=True))


def _agrees(recorded: object, sent: object) -> bool:
    pattern = _pattern(recorded)
    if pattern is not None:
        return isinstance(sent, str) and re.fullmatch(pattern, sent, re.DOTALL) is not None
    if isinstance(recorded, list) and isinstance(sent, list):
        return len(recorded) == len(sent) and all(map(_agrees, recorded, sent))
    if isinstance(recorded, Mapping) and isinstance(sent, Mapping):
        return recorded.keys() == sent.keys() and all(_agrees(recorded[key], sent[key]) for key in recorded)
    return False


def _plain(value: object, *, top: bool = False) -> object:
    """As CloudFormation hands it over: each scalar as a text. Empty properties are as good as absent ones."""
    if isinstance(value, Mapping):
        left_out = _NOT_COMPARED if top else frozenset()
        found = {key: _plain(item) for key, item in value.items() if key not in left_out}
        return {key: item for key, item in found.items() if not top or item not in ("", [], {}, None)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, str) else str(value)


def _pattern(value: object) -> str | None:
    """A regular expression for a text, or for an intrinsic function that gives one. None: it is a list or an object."""
    if isinstance(value, str):
        return _ANY.join(re.escape(part).replace(r"\?", _NOT_ASCII) for part in _HIDDEN.split(value))
    if not (isinstance(value, Mapping) and len(value) == 1):
        return None
    (name, argument), *_ = value.items()
    if name == "Fn::Join":
        return _joined(argument)
    return _ANY if name == "Ref" or str(name).startswith("Fn::") else None


def _joined(argument: object) -> str | None:
    match argument:
        case [str(separator), list(parts)]:
            patterns = [_pattern(part) for part in parts]
            if all(pattern is not None for pattern in patterns):
                return re.escape(separator).join(pattern or "" for pattern in patterns)
    return _ANY


def template_properties(template: object, resource: str) -> object:
    """A resource's properties in the template as GetTemplate gives it, with its intrinsic functions. None: it has none."""
    found = template
    for key in ("Resources", resource, "Properties"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def digest(parts: Iterable[object]) -> str:
    """Stands for these values of JSON."""
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True).encode()).hexdigest()


def seal(record: Record, text: str) -> str:
    """Shows that whoever wrote the text knew the stack's record."""
    return hmac.new(record.operation.encode(), text.encode(), hashlib.sha256).hexdigest()
