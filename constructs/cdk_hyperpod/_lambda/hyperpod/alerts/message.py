"""The message of an incident: subject, body and attributes, within SNS's limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..kernel.drain_protocol import INSTANCE_ID
from ..kernel.sentences import several
from . import kinds
from .kinds import HEALTH_RECORD, KINDS, OTHER, UNKNOWN_TYPE
from .live import Live
from .memory import RECORDS_AN_HOUR
from .records import GROUP, NAME, Fault, cause_of, text

PAGE = "docs/alerts.md"
"""The page about alerts in the folder that `cdk-hyperpod docs` prints."""
SUBJECT = 99
"""Maximum characters of a subject: "less than 100" (SNS API reference, Publish). They must be ASCII without control characters."""
SHOWN = 10
"""Instance ids in a message."""
_ALIKE = 3
"""Different texts of one kind in a message."""
_RECORDS = 30
"""Incidents in a message about the other health records."""
_EVENTS_BYTES = 100_000
"""Of the lines of a message about other events. With its attributes, which repeat the groups, it is below SNS's 262,144 bytes."""
WRITTEN = "written on the node: "
"""Before each text of a health record."""
_FAULT = r"[A-Za-z0-9_.-]{1,64}"
"""A fault's name of the health agent. A text of another form is in no subject."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What DescribeClusterEvent answered."""

    reason: str = ""
    """Empty: it has none, or it failed."""
    problem: str = ""
    """Why it failed. Empty: it did not."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of the cluster, and what its name is as long as it cannot be seen."""

    cluster: Live | None
    problem: str
    """Why there is no cluster. Empty: there is one."""
    name: str
    region: str


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Faults of one kind in one group."""

    kind: str
    group: str
    """Empty: the cluster, or a group that no event names."""
    faults: Sequence[Fault]
    """The one that says most is the first."""
    records: Sequence[str]
    """Ids of its records."""
    answer: Answer | None = None
    """None: DescribeClusterEvent was not called."""

    @cached_property
    def nodes(self) -> list[str]:
        """Instance ids."""
        return list(dict.fromkeys(fault.node for fault in self.faults if fault.node))

    @cached_property
    def count(self) -> int:
        """How many nodes failed. A launch that fails has two events, and mostly no instance id."""
        if KINDS[self.kind].whole:
            return len(self.nodes)
        alike: dict[int, list[str]] = {}
        for fault in self.faults:
            alike.setdefault(fault.rank, []).append(fault.node)
        counts = (len({*nodes} - {""}) + nodes.count("") for nodes in alike.values())
        return max([len(self.nodes), *counts])

    @cached_property
    def level(self) -> str:
        """The worst of its events."""
        levels = {fault.level for fault in self.faults}
        return next((level for level in ("Error", "Warn") if level in levels), "Info")

    @cached_property
    def reasons(self) -> list[str]:
        """Those that the records have."""
        by_cause: dict[str, str] = {}
        for fault in self.faults:
            by_cause.setdefault(cause_of(fault.reason), fault.reason)
        return [reason for reason in by_cause.values() if reason]

    @cached_property
    def reason(self) -> str:
        """One for all: what DescribeClusterEvent answered, or the first of the records. Empty: none is known."""
        answered = "" if self.answer is None else self.answer.reason
        return answered or next(iter(self.reasons), "")

    @cached_property
    def described(self) -> str | None:
        """The id of the event that may have the reason. None: there is none."""
        return next((fault.event_id for fault in self.faults if fault.event_id and fault.is_described), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is published."""

    subject: str
    body: str
    attributes: Mapping[str, Sequence[str]]
    """Each has a value at least."""
    records: Sequence[str]
    incidents: Sequence[Incident]

    @property
    def is_of_records(self) -> bool:
        """Whether processes on nodes wrote all of it."""
        return all(incident.kind == HEALTH_RECORD for incident in self.incidents)


def of_incident(incident: Incident, look: Look) -> Message:
    """The message of one incident."""
    title = headline(incident)
    where = [f"instance group {incident.group}"] if incident.group else []
    begin = f"{' of '.join([*where, f'cluster {look.name}'])}: {title}."
    is_record = incident.kind == HEALTH_RECORD
    parts = [
        *_labelled("Log:" if is_record else "HyperPod:", _words(incident)),
        *_labelled("Event:" if incident.kind == UNKNOWN_TYPE else "Reason:", _reasons(incident)),
        *_labelled("Nodes:", _nodes(incident)),
        *_labelled("Counts:", [_counts(incident, look)]),
        *_labelled("By itself:", [_itself(incident, look)]),
        *(_labelled("Limit:", [_LIMIT]) if is_record else []),
        "",
        *_labelled("Next:", _next(incident, look)),
        *_labelled("Page:", [f"{PAGE}, in the folder that `cdk-hyperpod docs` prints"]),
        *_labelled("First:", [_first(incident)]),
    ]
    return Message(
        subject=subject(f"[{look.name}] {_title(incident)}"),
        body="\n".join([f"{begin[:1].upper()}{begin[1:]}", "", *parts, ""]),
        attributes=_attributes(look.name, [incident]),
        records=incident.records,
        incidents=[incident],
    )


_LIMIT = f"at most {RECORDS_AN_HOUR} such messages an hour. Any process on a node can write a record; all of them are in the log group."


def of_other_events(others: Sequence[Incident], look: Look) -> list[Message]:
    """All incidents of HyperPod that have no message of their own, each in a line: one message, or more if they are long."""
    return [
        _list_of([incident for incident, _ in part], [line for _, line in part], f"{len(part)} more failures", look)
        for part in _parts([(incident, _line(incident)) for incident in others])
    ]


def _parts(lines: Sequence[tuple[Incident, str]]) -> list[list[tuple[Incident, str]]]:
    """As few parts as have room for the lines, in their order."""
    parts: list[list[tuple[Incident, str]]] = []
    size = _EVENTS_BYTES
    for each in lines:
        length = len(each[1].encode()) + 1
        if size + length > _EVENTS_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += length
    return parts


def _line(incident: Incident) -> str:
    """What the incident's own message would say."""
    said = {"HyperPod": _words(incident), "Reason": _reasons(incident), "Nodes": _nodes(incident)}
    return f"- {_title(incident)}. " + " ".join(
        f"{label}: {'; '.join(texts)}" for label, texts in said.items() if texts
    )


def of_other_records(rest: Sequence[Incident], look: Look) -> Message:
    """One message of all health records that have none of their own."""
    lines = []
    for incident in rest[:_RECORDS]:
        reason = "".join(f" ({WRITTEN}{each})" for each in incident.reasons[:1])
        lines.append(text(f"- {_title(incident)}{reason}", 400))
    if len(rest) > _RECORDS:
        lines.append(f"- and {len(rest) - _RECORDS} more")
    return _list_of(
        rest, [*lines, "", *_labelled("Limit:", [_LIMIT])], f"{len(rest)} more kinds of health records", look
    )


def _list_of(found: Sequence[Incident], lines: Sequence[str], title: str, look: Look) -> Message:
    body = [
        f"Cluster {look.name}: {title} at the same time.",
        "",
        *lines,
        "",
        *_labelled("Next:", [_command("watch", look)]),
        *_labelled("Page:", [f"{PAGE}, in the folder that `cdk-hyperpod docs` prints"]),
        "",
    ]
    return Message(
        subject=subject(f"[{look.name}] {title}"),
        body="\n".join(body),
        attributes=_attributes(look.name, found),
        records=[record for incident in found for record in incident.records],
        incidents=list(found),
    )


def _title(incident: Incident) -> str:
    group = f"{incident.group}: " if incident.group else ""
    return f"{group}{headline(incident)}"


def headline(incident: Incident) -> str:
    """What happened, as a subject says it."""
    kind, count = KINDS[incident.kind], incident.count
    own = next((fault.headline for fault in incident.faults if fault.headline), "")
    if own:
        return own
    if incident.kind in (OTHER, UNKNOWN_TYPE) and len(_different(incident)) == 1:
        return incident.faults[0].words.rstrip(".")
    if count == 0:
        return kind.whole
    return f"{several(count, 'node')} {_verb(incident, kind, count)}"


def _verb(incident: Incident, kind: kinds.Kind, count: int) -> str:
    names = {fault.cause for fault in incident.faults}
    if incident.kind == HEALTH_RECORD and len(names) == 1 and re.fullmatch(_FAULT, name := names.pop()):
        return f"wrote the health record {name}"
    return kind.one if count == 1 else kind.many or kind.one


def subject(line: str) -> str:
    """At most 99 printable ASCII characters that begin with a letter, a digit or punctuation."""
    plain = re.sub(r"[^\x20-\x7e]", "?", line.replace("…", "...")).strip() or "?"
    return plain if len(plain) <= SUBJECT else f"{plain[: SUBJECT - 3].rstrip()}..."


def _attributes(cluster: str, found: Sequence[Incident]) -> dict[str, list[str]]:
    """For subscription filters: a message about several incidents passes those that one of them passes."""
    values = {
        "cluster": [cluster],
        "group": [incident.group for incident in found],
        "kind": [incident.kind for incident in found],
        "level": [incident.level for incident in found],
    }
    distinct = {name: [*dict.fromkeys(filter(None, each))] for name, each in values.items()}
    return {name: each for name, each in distinct.items() if each}


def _labelled(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{name:<11}{line}" for name, line in zip([label, *[""] * len(lines)], lines, strict=False)]


def _different(incident: Incident) -> dict[str, int]:
    """Texts of HyperPod that differ in more than the node, with their numbers. Of a failed launch, the one that says most is enough."""
    texts: dict[str, list[str]] = {}
    for fault in incident.faults:
        alike = fault.words.replace(fault.node, "…") if fault.node else fault.words
        texts.setdefault(alike, []).append(fault.words)
    found = {words[0]: len(words) for words in texts.values()}
    return dict([*found.items()][:1]) if KINDS[incident.kind].retried else found


def _words(incident: Incident) -> list[str]:
    different = _different(incident)
    lines = [f"{words}{f' ({count} events)' if count > 1 else ''}" for words, count in different.items()]
    rest = len(lines) - _ALIKE
    return lines if rest <= 0 else [*lines[:_ALIKE], f"and {rest} other texts"]


def _reasons(incident: Incident) -> list[str]:
    answer = incident.answer or Answer()
    found = incident.reasons or [answer.reason]
    if found != [""]:
        rest = len(found) - _ALIKE
        shown = [f"{WRITTEN if incident.kind == HEALTH_RECORD else ''}{each}" for each in found[:_ALIKE]]
        return shown if rest <= 0 else [*shown, f"and {rest} other reasons"]
    if answer.problem:
        return [f"not available: {answer.problem}"]
    is_unread = incident.answer is None and incident.described is not None
    return ["not read, because too many different faults came at once" if is_unread else "HyperPod gives none"]


def _nodes(incident: Incident) -> list[str]:
    nodes, count = incident.nodes, incident.count
    if count == 0:
        return []
    unnamed = f"{several(count - len(nodes), 'node')} without an instance id" if count > len(nodes) else ""
    more = f"{len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return [" and ".join(filter(None, [", ".join(nodes[:SHOWN]), more, unnamed]))]


def _counts(incident: Incident, look: Look) -> str:
    if look.cluster is None:
        return f"unknown: {look.problem}"
    group = look.cluster.group(incident.group)
    if group is not None:
        minimum = f", minimum {group.minimum}" if group.minimum else ", no minimum"
        return f"current {group.current}, target {group.target}{minimum}"
    if incident.group:
        return "the group does not exist now"
    groups = look.cluster.groups
    return f"all groups: current {sum(each.current for each in groups)}, target {sum(each.target for each in groups)}"


def _itself(incident: Incident, look: Look) -> str:
    itself = KINDS[incident.kind].itself
    if look.cluster is None:
        return itself
    if itself == kinds.RECOVERS:
        itself = kinds.RECOVERY.get(look.cluster.recovery, itself)
    is_controller = incident.group and incident.group == look.cluster.controller
    return f"{itself} {kinds.CONTROLLER}" if is_controller and incident.kind in kinds.OF_CONTROLLER else itself


def _next(incident: Incident, look: Look) -> list[str]:
    """A reader copies these lines, and a node's user can name a log stream: no command contains a name of another form."""
    node = next((node for node in incident.nodes if re.fullmatch(INSTANCE_ID, node)), None)
    return [_command("watch", look), *([_command(f"logs {node}", look)] if node else [])]


def _command(command: str, look: Look) -> str:
    name = look.name if re.fullmatch(GROUP, look.name) else "CLUSTER"
    return f"cdk-hyperpod {command} --cluster {name} --region {look.region}"


def _first(incident: Incident) -> str:
    at = min((fault.at for fault in incident.faults if fault.at is not None), default=None)
    when = "time unknown" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
    event = next((fault.event_id for fault in incident.faults if fault.event_id), "")
    return text(f"{when}{f', event {event}' if event else ''}", 2 * NAME)
