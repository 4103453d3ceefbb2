"""What a record of the queue says: a fault, progress, or nothing that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..kernel.drain_protocol import INSTANCE_ID
from ..kernel.text import one_line
from . import kinds
from .descriptions import PROGRESS, meaning

WORDS = 600
"""Maximum characters of a text of HyperPod."""
NAME = 100
"""Maximum characters of a name or an id. HyperPod's own are at most 63."""
GROUP = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
"""botocore: InstanceGroupName and ClusterName."""
WHOLE = 4000
"""Maximum characters of an event that is passed on as it is."""

_EVENT = "SageMaker HyperPod Cluster Event"
_STATE = "SageMaker HyperPod Cluster State Change"
_HEALTH = "SageMaker HyperPod Cluster Node Health Event"
_STATES = {"Failed": (kinds.CLUSTER, "the cluster failed"), "RollingBack": (kinds.CLUSTER_ROLLBACK, "")}
"""ClusterStatus -> the kind, and its headline if it differs from the kind's. The others are progress."""
_LEVELS = frozenset({"Info", "Warn", "Error"})
_LAST_RANK = 1000
_ORCHESTRATION = re.compile(r"Current: ([0-9]{1,9})/([0-9]{1,9})")


class MalformedRecord(ValueError):
    """A record that is no event of EventBridge and no health record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One event that may need a message. Every text is one printable line of bounded length."""

    kind: str
    """A name of `kinds.KINDS`."""
    level: str
    """Info, Warn or Error."""
    words: str
    """HyperPod's own."""
    at: datetime | None
    """When it happened. None: the record has no time."""
    group: str = ""
    """Empty: the event names none."""
    node: str = ""
    """The instance id. Empty: the event names none."""
    cluster: str = ""
    reason: str = ""
    """Empty: the record has none."""
    cause: str = ""
    """A shorter name of the reason, such as XidHardwareFailure. Empty: the reason is the cause."""
    event_id: str = ""
    """HyperPod's own, not the envelope's. Empty: it has none."""
    is_described: bool = False
    """Whether DescribeClusterEvent may have a reason."""
    headline: str = ""
    """For the subject. Empty: the kind's."""
    rank: int = _LAST_RANK
    """Of the events of an incident, the one with the lowest rank says most."""


def read(body: object) -> Fault | None:
    """None: progress, which needs no message. Raises MalformedRecord."""
    record = _parsed(body)
    if isinstance(record.get("healthRecord"), Mapping):
        return _health_record(record["healthRecord"])
    detail_type, detail = record.get("detail-type"), record.get("detail")
    if not isinstance(detail_type, str) or not isinstance(detail, Mapping):
        raise MalformedRecord("no detail-type and detail, and no healthRecord")
    readers = {_EVENT: _cluster_event, _STATE: _state_change, _HEALTH: _health_event}
    return readers.get(detail_type, _unknown)(record, detail)


def _parsed(body: object) -> Mapping[str, Any]:
    try:
        record = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError) as error:
        raise MalformedRecord("no JSON") from error
    if not isinstance(record, Mapping):
        raise MalformedRecord("no JSON object")
    return record


def _cluster_event(envelope: Mapping[str, Any], detail: Mapping[str, Any]) -> Fault | None:
    event = detail.get("EventDetails")
    if not isinstance(event, Mapping):
        raise MalformedRecord("no detail.EventDetails")
    description, level = text(event.get("Description"), WORDS), text(event.get("EventLevel"), NAME)
    known = meaning(description)
    kind = kinds.OTHER if known is None else known.kind
    if kind == PROGRESS and level in {"Warn", "Error"}:
        kind = kinds.OTHER
    if kind == PROGRESS or (kind == kinds.ORCHESTRATION_READY and not _are_nodes_lost(description)):
        return None
    has_reason = kind not in kinds.WITHOUT_REASON
    return Fault(
        kind=kind,
        level=level if level in _LEVELS else "Error",
        words=description or "(an event without a Description)",
        at=_time(event.get("EventTime")) or _time(envelope.get("time")),
        group=text(event.get("InstanceGroupName"), NAME),
        node=text(event.get("InstanceId"), NAME),
        cluster=text(event.get("ClusterName"), NAME),
        reason=reason_of(event) if has_reason else "",
        event_id=text(event.get("EventId"), NAME),
        is_described=has_reason,
        rank=_LAST_RANK if known is None else known.rank,
    )


def _are_nodes_lost(description: str) -> bool:
    """Whether fewer nodes are ready than wanted. If not, "N node(s) lost orchestration-ready status" is about nodes that were to go."""
    counts = _ORCHESTRATION.search(description)
    return counts is None or int(counts[1]) < int(counts[2])


def _state_change(envelope: Mapping[str, Any], detail: Mapping[str, Any]) -> Fault | None:
    status = detail.get("ClusterStatus")
    if not isinstance(status, str) or status not in _STATES:
        return None
    kind, headline = _STATES[status]
    return Fault(
        kind=kind,
        level="Error",
        words=f"ClusterStatus is {status}",
        headline=headline,
        at=_time(envelope.get("time")),
        cluster=text(detail.get("ClusterName"), NAME),
        reason=text(detail.get("FailureMessage"), WORDS),
    )


def _health_event(envelope: Mapping[str, Any], detail: Mapping[str, Any]) -> Fault | None:
    found = detail.get("HealthSummary")
    summary: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    if summary.get("HealthStatus") == "Healthy":
        return None
    names = {"HealthStatus": "Status", "RepairAction": "Repair action", "Recommendation": "Recommendation"}
    texts = {name: text(summary.get(key), WORDS // 3) for key, name in names.items()}
    return Fault(
        kind=kinds.UNHEALTHY,
        level="Error",
        words="; ".join(f"{name}: {value}" for name, value in texts.items() if value)
        or "(a node health event without a HealthSummary)",
        at=_time(envelope.get("time")),
        group=text(detail.get("InstanceGroupName"), NAME),
        node=text(detail.get("InstanceId"), NAME),
        cluster=text(detail.get("ClusterName"), NAME),
        reason=text(summary.get("HealthStatusReason"), WORDS),
    )


def _unknown(envelope: Mapping[str, Any], detail: Mapping[str, Any]) -> Fault:
    return Fault(
        kind=kinds.UNKNOWN_TYPE,
        level="Warn",
        words=text(envelope["detail-type"], NAME),
        at=_time(envelope.get("time")),
        cluster=text(detail.get("ClusterName"), NAME),
        reason=text(json.dumps(envelope, ensure_ascii=False), WHOLE),
    )


def _health_record(record: Mapping[str, Any]) -> Fault:
    """A line of the health agent: `{…, "details": {"severity", "reason", "message"}, …}`. AWS's samples also have "details: " as the key.

    Any process on a node can write such a line, and name the stream, so group and node are kept only if they have AWS's form.
    """
    line, stream = record.get("message"), record.get("logStream")
    if not isinstance(line, str) or not isinstance(stream, str):
        raise MalformedRecord("a healthRecord without message and logStream")
    details = _details(line)
    parts = [text(details.get(name), WORDS) for name in ("reason", "message")]
    _, group, node = [*stream.split("/", 2), "", ""][:3]
    severity = str(details.get("severity", "")).lower()
    return Fault(
        kind=kinds.HEALTH_RECORD,
        level="Error" if severity.startswith(("err", "crit", "fatal")) else "Warn",
        words="HealthMonitoringAgentDetectionEvent in the cluster's log group",
        at=_time(record.get("timestamp")),
        group=group if re.fullmatch(GROUP, group) else "",
        node=node if re.fullmatch(INSTANCE_ID, node) else "",
        reason=": ".join(filter(None, parts)) or text(line, WORDS),
        cause=parts[0],
    )


def _details(line: str) -> Mapping[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    members = content.items() if isinstance(content, Mapping) else ()
    return next((value for key, value in members if key.startswith("details") and isinstance(value, Mapping)), {})


def reason_of(event: Mapping[str, Any]) -> str:
    """The messages and reasons in an event's metadata, wherever they are. Empty: there is none.

    The envelope has six subtrees, all null, and botocore's EventMetadata has others. So each is read.
    """
    return text("; ".join(dict.fromkeys(_reasons(event.get("EventDetails"), depth=6))), WORDS)


def _reasons(value: object, depth: int) -> Iterator[str]:
    if not isinstance(value, Mapping) or depth == 0:
        return
    for name, inner in value.items():
        if isinstance(inner, str) and inner.strip() and str(name).endswith(("Message", "Reason", "Advisory")):
            yield inner.strip()
        else:
            yield from _reasons(inner, depth - 1)


def cause_of(reason: str) -> str:
    """The reason without what differs from node to node: ids, addresses, processes and times."""
    return _DIFFERENT.sub("…", reason.lower())


_DIFFERENT = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[a-z]+-[0-9a-f]{8,17}\b|\b\d{4}-\d\d-\d\d[t ][\d:.z+-]+|\b\d+\.\d+\.\d+\.\d+\b|\bpid=\d+"
)


def text(value: object, limit: int) -> str:
    """A text of somebody else in one printable line. Empty: it is none."""
    if not isinstance(value, str):
        return ""
    line = one_line(value[: 4 * limit])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _time(value: object) -> datetime | None:
    """Milliseconds since 1970, or ISO 8601."""
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone(UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
