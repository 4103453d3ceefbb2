"""CloudFormation's own record: a stack's events and its template. What they show of an update that is rolled back, and of one request. Pure.

Only CloudFormation writes them. AWS documents neither that an event of a custom resource has all properties, nor how long they may be
(docs/adr/0019-an-event-is-believed-as-far-as-its-stack.md).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..model.cluster import ANY_CLUSTER

CLUSTER = "AWS::SageMaker::Cluster"
STACK = "AWS::CloudFormation::Stack"

UPDATE_BEGINS = "UPDATE_IN_PROGRESS"
ROLLBACK_BEGINS = "UPDATE_ROLLBACK_IN_PROGRESS"

CANCELLED = "cancelled"
"""In CloudFormation's reason for a resource that it has not begun to update, or no longer updates ("Resource update cancelled")."""

CLOCKS = timedelta(seconds=2)
"""How far the function's clock may be behind CloudFormation's. Not cluster.CLOCKS_APART: it decides between two requests that
CloudFormation may send within seconds, the cancelled update's and its rollback's. If the clocks differ by more, a rollback
looks left over: it deletes nothing, and an operator has to continue it. With a longer time a left-over request would look like the
rollback, and delete the nodes of an update that is over."""


def clusters_reached(events: Iterable[Mapping[str, Any]], stack: str) -> frozenset[str] | None:
    """Physical ids of the clusters that CloudFormation had begun to change when the update failed; ANY_CLUSTER among them: some cluster.
    None: it is unknown, because the events do not go back to the update's beginning, or do not say which of several clusters it was.

    `events` come newest first, and are read no further than necessary: first the rollback, which began with the last
    UPDATE_ROLLBACK_IN_PROGRESS (a rollback that was continued has several), then the update. An update that failed and was
    left so (UPDATE_FAILED, `--no-rollback`) is undone together with the next one, so it belongs to it, also if it was
    cancelled.

    A cluster was not reached only if every event of it in the update says so: a rollback that is wrong about it lets HyperPod end
    nodes at random. All members of an event but its stack, id and time are optional (botocore: StackEvent), so an event without a
    physical id counts, and one without a status, too.

    By events and not by LastUpdatedTime: AWS does not document what continuing a rollback makes of that.
    """
    reached: list[Mapping[str, Any]] = []
    seen: list[Mapping[str, Any]] = []
    update_began = rollback_read = False
    for event in events:
        if event.get("ResourceType") == CLUSTER:
            seen.append(event)
            if _has_begun(event):
                reached.append(event)
            continue
        if not is_of_stack(event, stack):
            continue
        status = _status(event)
        if update_began and status.endswith("_COMPLETE"):
            return _physical_ids(reached, seen)
        if status == ROLLBACK_BEGINS and not rollback_read:
            reached.clear()
        update_began = status == UPDATE_BEGINS
        rollback_read = rollback_read or update_began
    return _physical_ids(reached, seen) if update_began else None


def _has_begun(event: Mapping[str, Any]) -> bool:
    """Whether an event of a cluster shows that CloudFormation began to change it, or may do. A cluster whose update was cancelled before
    it began has no other event than that. One that is created is another cluster, which has no physical id yet."""
    status, reason = _status(event), str(event.get("ResourceStatusReason", ""))
    is_unmade = status.startswith("CREATE_") and not event.get("PhysicalResourceId")
    is_cancelled = status.endswith("_FAILED") and CANCELLED in reason
    return not (is_unmade or is_cancelled)


def _physical_ids(reached: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]) -> frozenset[str] | None:
    """`seen`: all events of clusters that were read. Another one of the same logical id may have the physical id."""
    known: dict[str, set[str]] = {}
    for event in seen:
        ids = known.setdefault(str(event.get("LogicalResourceId", "")), set())
        ids.update(filter(None, [event.get("PhysicalResourceId")]))
    found: set[str] = set()
    for event in reached:
        physical = event.get("PhysicalResourceId")
        same = {physical} if physical else known[str(event.get("LogicalResourceId", ""))]
        if len(known) == 1 and not physical:
            same = {ANY_CLUSTER}
        if not same:
            return None
        found |= same
    return frozenset(found)


def has_new_status(event: Mapping[str, Any]) -> bool:
    """Whether it reports that a stack or a resource has a new status. A hook's event does not, and may have none. CONFIGURATION_COMPLETE
    repeats the status, also of a whole stack, while the stack is in progress."""
    return not event.get("HookType") and event.get("DetailedStatus") != "CONFIGURATION_COMPLETE"


def is_of_stack(event: Mapping[str, Any], stack: str) -> bool:
    """Whether it is the stack's own event, and not one of a stack inside it, or of a resource that has the stack's id as its own."""
    physical = event.get("PhysicalResourceId")
    if physical:
        return bool(physical == stack) and event.get("ResourceType", STACK) == STACK
    return event.get("ResourceType") == STACK and event.get("LogicalResourceId") == event.get("StackName")


def is_left_over(events: Iterable[Mapping[str, Any]], stack: str, resource: str, received: datetime) -> bool | None:
    """Whether a request belongs to the update, and not to the stack's rollback, which has begun: CloudFormation began with the
    resource before the rollback, and not since. None: the events are late, and do not show the rollback yet. Without events: no.

    `events` come newest first, and are read no further than necessary. `resource`: its logical id. `received`: when the function
    received the request; later events belong to another one.
    """
    requested_since = False
    for event in events:
        status = _status(event)
        is_stack = is_of_stack(event, stack)
        if is_stack and status == ROLLBACK_BEGINS:
            return not requested_since
        if is_stack and status == UPDATE_BEGINS:
            return None
        if status == UPDATE_BEGINS and event.get("LogicalResourceId") == resource:
            requested_since = requested_since or event["Timestamp"] <= received + CLOCKS
    return False


def _status(event: Mapping[str, Any]) -> str:
    return str(event.get("ResourceStatus", ""))


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
