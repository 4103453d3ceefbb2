"""What becomes of a batch of records: incidents, the events to describe, messages, and records that failed. Pure.

The batch is the incident. Faults of one kind in one group are one message. A fault that another one explains, such as the second
event of a failed launch, is part of that one. HyperPod's events come first. Above a bound the last message lists them, and leaves none
out. Any process on a node can write a health record, so records explain no event, and their messages are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from . import message, records
from .kinds import HEALTH_RECORD, KINDS, ORCHESTRATION_READY, OTHER, UNKNOWN_TYPE, Kind
from .live import Live
from .memory import ANY, Memory, Reported
from .message import Answer, Incident, Look, Message

MOST_EVENT_MESSAGES = 20
"""Of HyperPod's events of one batch. The last one lists all others, or more than one if they are too long for it."""
MOST_RECORD_MESSAGES = 5
"""Of the health records of one batch. The last one lists some of the rest."""
MOST_DESCRIBED = 10
"""Calls of DescribeClusterEvent for one batch."""
_LEVELS = ("Error", "Warn", "Info")


@dataclass(frozen=True, slots=True)
class Batch:
    """What the records of a batch are."""

    faults: Sequence[tuple[str, records.Fault]]
    """With the id of the record."""
    failed: Sequence[str]
    """Ids of records that cannot be read."""


def read(batch: Iterable[Mapping[str, Any]]) -> Batch:
    """Sort the records of SQS."""
    faults, failed = [], []
    for record in batch:
        try:
            fault = records.read(record.get("body"))
        except records.MalformedRecord:
            failed.append(record["messageId"])
            continue
        if fault is not None:
            faults.append((record["messageId"], fault))
    return Batch(faults, failed)


# -- incidents ---------------------------------------------------------------------------------------------------------


def incidents(faults: Sequence[tuple[str, records.Fault]], live: Live | None) -> list[Incident]:
    """The incidents of a batch, the worst first. `live`: None if the cluster could not be read."""
    counts_change = live is not None and live.changing
    events = [fault for _, fault in faults if fault.kind != HEALTH_RECORD]
    of_nodes = {fault.node: fault.group for fault in events if fault.node and fault.group}
    found: dict[tuple[str, str, str], list[tuple[str, records.Fault]]] = {}
    for record, fault in faults:
        if fault.kind == ORCHESTRATION_READY and counts_change:
            continue
        placed = replace(fault, group=_group(fault, live) or of_nodes.get(fault.node, ""))
        alike = placed.words if placed.kind == UNKNOWN_TYPE else ""
        found.setdefault((placed.group, placed.kind, alike), []).append((record, placed))
    return sorted(_without_explained([_incident(same) for same in found.values()]), key=_order)


def _group(fault: records.Fault, live: Live | None) -> str:
    """A health record may name any group, so it must be one of the cluster."""
    is_invented = fault.kind == HEALTH_RECORD and live is not None and live.group(fault.group) is None
    return "" if is_invented else fault.group


def _incident(same: Sequence[tuple[str, records.Fault]]) -> Incident:
    """SQS may deliver an event twice."""
    once = {fault.event_id or str(number): fault for number, (_, fault) in enumerate(same)}
    ranked = sorted(once.values(), key=lambda fault: (fault.rank, str(fault.at), fault.event_id))
    return Incident(kind=ranked[0].kind, group=ranked[0].group, faults=ranked, records=[record for record, _ in same])


def _order(incident: Incident) -> tuple[bool, int, int, str, str]:
    is_record = incident.kind == HEALTH_RECORD
    return is_record, _LEVELS.index(incident.level), -incident.count, incident.group, incident.kind


def _without_explained(found: list[Incident]) -> list[Incident]:
    """Incidents that another one explains become a part of it."""
    left: list[Incident] = []
    parts: dict[int, list[str]] = {}
    for incident in found:
        rest = incident
        for number, other in enumerate(found):
            if other.kind in KINDS[incident.kind].explained_by and _concerns(other, incident):
                rest = _unexplained(rest, other)
                parts.setdefault(number, []).extend(incident.records)
        left.append(rest)
    whole = [replace(each, records=[*each.records, *parts.get(number, ())]) for number, each in enumerate(left)]
    return [incident for incident in whole if incident.faults]


def _concerns(other: Incident, incident: Incident) -> bool:
    """A fault of the cluster has no group."""
    return incident.group in ("", other.group) or other.group == ""


def _unexplained(incident: Incident, other: Incident) -> Incident:
    """What is left of the incident: faults of nodes that the other one does not name, if they are more than its nodes."""
    named = set(other.nodes)
    rest = replace(incident, faults=[fault for fault in incident.faults if not fault.node or fault.node not in named])
    is_covered = rest.count <= other.count and (not rest.nodes or KINDS[rest.kind].other_ids)
    return replace(rest, faults=[]) if is_covered else rest


# -- reasons -----------------------------------------------------------------------------------------------------------


def to_describe(found: Sequence[Incident]) -> dict[str, Incident]:
    """Event id -> incident: one event of each incident whose records have no reason, for DescribeClusterEvent."""
    wanted = [incident for incident in found if incident.described is not None and not incident.reasons]
    return {str(incident.described): incident for incident in wanted[:MOST_DESCRIBED]}


# -- messages ----------------------------------------------------------------------------------------------------------


def messages(
    found: Sequence[Incident], look: Look, answers: Mapping[str, Answer], memory: Memory, now: datetime
) -> list[Message]:
    """The messages of a batch. `answers`: of DescribeClusterEvent, by event id."""
    with_reasons = [_with_answer(incident, answers) for incident in found]
    news = [new for incident in with_reasons for new in _news(incident, memory, now)]
    events, others = _split([each for each in news if each.kind != HEALTH_RECORD], MOST_EVENT_MESSAGES)
    most = min(MOST_RECORD_MESSAGES, memory.record_messages_left(now))
    # Of records without a message, the log group alone has them.
    records, rest = _split([each for each in news if each.kind == HEALTH_RECORD], most) if most else ([], [])
    return [
        *(message.of_incident(each, look) for each in events),
        *message.of_other_events(others, look),
        *(message.of_incident(each, look) for each in records),
        *([message.of_other_records(rest, look)] if rest else []),
    ]


def _split(found: Sequence[Incident], most: int) -> tuple[Sequence[Incident], Sequence[Incident]]:
    """Incidents that have a message each, and those of the last message."""
    own = found if len(found) <= most else found[: most - 1]
    return own, found[len(own) :]


def _with_answer(incident: Incident, answers: Mapping[str, Answer]) -> Incident:
    answer = answers.get(str(incident.described))
    return incident if answer is None else replace(incident, answer=answer)


def _news(incident: Incident, memory: Memory, now: datetime) -> list[Incident]:
    """The incident without what was reported within the last hour. Empty: nothing is new."""
    kind = KINDS[incident.kind]
    if _is_explained_by_memory(incident, kind, memory, now):
        return []
    if kind.retried:
        known = min(memory.count(incident.group, incident.kind, cause, now) for cause in causes(incident))
        return [] if known >= incident.count else [incident]
    faults = [
        fault
        for fault in incident.faults
        if not memory.knows_node(incident.group, incident.kind, _cause(fault, incident), fault.node, now)
    ]
    return [replace(incident, faults=faults)] if faults else []


def _is_explained_by_memory(incident: Incident, kind: Kind, memory: Memory, now: datetime) -> bool:
    for other, window in kind.explained_by.items():
        for group in (incident.group or ANY, ""):
            known = [memory.knows_node(group, other, "", node, now) for node in incident.nodes]
            is_as_many = memory.count(group, other, "", now, window) >= max(1, incident.count)
            if (known and all(known)) or (is_as_many and (not known or kind.other_ids)):
                return True
    return False


def causes(incident: Incident) -> list[str]:
    """The distinct causes. One that is empty is unknown."""
    return list(dict.fromkeys(_cause(fault, incident) for fault in incident.faults))


def _cause(fault: records.Fault, incident: Incident) -> str:
    """What is compared with the memory. Empty: the reason is unknown, so whatever was reported of the node counts."""
    if fault.kind in (UNKNOWN_TYPE, OTHER):
        return re.sub(r"[0-9]+", "…", records.cause_of(fault.words))
    found = fault.cause or records.cause_of(fault.reason or incident.reason)
    # Two Descriptions of a kind that is about a group are two causes, such as a failed update and its failed rollback.
    return f"{fault.rank} {found}" if KINDS[fault.kind].whole else found


def reported(sent: Message, live: Live | None) -> list[Reported]:
    """What the memory keeps of a message that was published."""
    found = []
    for incident in sent.incidents:
        missing = _missing(live, incident.group) if KINDS[incident.kind].retried else 0
        by_cause: dict[str, list[str]] = {}
        for fault in incident.faults:
            by_cause.setdefault(_cause(fault, incident), []).append(fault.node)
        found += [
            Reported(
                group=incident.group, kind=incident.kind, cause=cause, nodes=tuple(dict.fromkeys(nodes)),
                count=max(1, incident.count, missing),
            )
            for cause, nodes in by_cause.items()
        ]  # fmt: skip
    return found


def _missing(live: Live | None, name: str) -> int:
    group = None if live is None else live.group(name)
    return 0 if group is None else group.missing
