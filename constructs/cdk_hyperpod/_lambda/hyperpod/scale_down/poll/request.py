"""One request of CloudFormation: its event, what on_event found out for every poll after it (State), and the nodes whose deletion this
process has requested (DeletionRecord).

The state between polls is what on_event returns. CDK's provider framework adds it to the event of every is_complete:

- StartedAt: seconds since 1970. LookedAt: the same, when on_event ended.
- RollingBack. StackUpdatedAt: seconds, or null.
- Reached: ids of the clusters that the failed update got to. null: unknown, or no rollback.
- Pending: true: there is something to do. false: nothing. null: the cluster could not be read.
- Planned: how many nodes the first look was to delete. Picked: the first of them (group, id, reason).
- Unlaunched: group -> how many of its nodes were not launched yet when the request began. Newest: the latest LaunchTime of the
  others, in seconds, or null.
- Settling: nodes were to be deleted, were terminating, or the list differed from the counts.
- RecordedAt: when CloudFormation's events show that the request began, in seconds, or null. Unconfirmed: groups whose earlier
  specification nothing confirms.
- Seal: shows that on_event wrote all this (stack.py). null: there is nothing to do, or the stack's events could not be read.

CDK's framework keeps nothing else between polls. Lambda mostly serves all polls of a request with one process. If another process
served some, the record of deletions is not complete, and the answer reports that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ..model.actions import Pick, Picked, Plan
from ..model.cluster import CLOCKS_APART, Cluster, Node
from ..model.properties import FINALIZE, PREPARE, MalformedError


@dataclass(frozen=True, slots=True)
class Event:
    """The parts of a CloudFormation event that matter here; never its ResponseURL."""

    kind: str
    """PREPARE or FINALIZE."""
    request: str
    """Create, Update or Delete."""
    stack: str
    resource: str
    """Its logical id."""
    properties: object
    old_properties: object
    physical_id: str | None

    @property
    def cluster(self) -> str:
        """The cluster's name, for messages, also if the properties are invalid."""
        name = self.properties.get("ClusterName") if isinstance(self.properties, Mapping) else None
        return name if isinstance(name, str) else "the cluster"


def read_event(event: Mapping[str, Any]) -> Event:
    """The event, as the provider framework passes it on. Raises MalformedError for a resource type that is not ours."""
    kind, request = event.get("ResourceType"), event.get("RequestType")
    if kind not in (PREPARE, FINALIZE):
        raise MalformedError([f"ResourceType: must be {PREPARE} or {FINALIZE}, got {json.dumps(kind)}"])
    if request not in ("Create", "Update", "Delete"):
        raise MalformedError([f"RequestType: must be Create, Update or Delete, got {json.dumps(request)}"])
    return Event(
        kind=kind,
        request=request,
        stack=str(event.get("StackId", "")),
        resource=str(event.get("LogicalResourceId", "")),
        properties=event.get("ResourceProperties"),
        old_properties=event.get("OldResourceProperties"),
        physical_id=event.get("PhysicalResourceId"),
    )


SLACK = timedelta(seconds=20)
"""How much later than expected a poll may come. The first is expected at once after on_event, the others after POLL."""

POLL = timedelta(seconds=30)
"""Time between two polls, by the construct."""

MOST_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Rollback:
    """What CloudFormation reported of a rollback: since when the stack is updated, and the clusters that the failed update got to.
    None: it did not report it."""

    updated: datetime | None
    reached: frozenset[str] | None


@dataclass(slots=True)
class DeletionRecord:
    """The record of one request."""

    complete: bool = True
    """All polls so far were this process's."""
    requested: dict[str, Picked] = field(default_factory=dict)
    """Name -> node whose deletion HyperPod accepted, or may have accepted."""
    next_poll: datetime | None = None
    """When the next poll is expected."""
    releases_again: bool = False
    """Its first look found nothing to do. Since then it has released nodes that another request held, or may not have had the
    permission to."""
    resumed: Rollback | None = None
    """A rollback whose first look found nothing to do, and that has something to do since then. None: it is not such a rollback."""

    def add(self, picks: Iterable[Pick], names: frozenset[str]) -> None:
        """`names`: those of the picks whose deletion was requested."""
        for pick in picks:
            if pick.node.name in names:
                self.requested[pick.node.name] = Picked(pick.node.group, pick.node.name, pick.reason)

    def deleted(self, here: frozenset[str]) -> list[Picked]:
        """Requested nodes that are not `here` any more."""
        return [pick for name, pick in self.requested.items() if name not in here]


class DeletionRecords:
    """Records of the requests that this process has polled."""

    def __init__(self) -> None:
        self._records: dict[Hashable, DeletionRecord] = {}

    def at_poll(self, request: Hashable, *, looked: datetime, now: datetime) -> DeletionRecord:
        """The record of a request, at one of its polls. `looked`: when on_event ended."""
        record = self._records.setdefault(request, DeletionRecord(next_poll=looked))
        expected = record.next_poll or looked
        record.complete = record.complete and now <= expected + SLACK
        while len(self._records) > MOST_RECORDS:
            del self._records[next(iter(self._records))]
        return record


_To = TypeVar("_To")

MOST_PICKED = 50
"""Nodes of the first look that the state names: a waiter's event has 262,144 bytes, of which the properties may take 240,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What on_event found out, for every later poll."""

    began: datetime
    """When the request began, by the function's clock."""
    looked: datetime | None = None
    """When on_event ended. None: it has not looked yet."""
    rolling_back: bool = False
    """Whether the stack rolls back."""
    updated: datetime | None = None
    """When the update of the stack began. None: CloudFormation does not report it."""
    reached: frozenset[str] | None = None
    """Ids of the clusters that the failed update reached. None: unknown, or no rollback."""
    pending: bool | None = False
    """Whether the first look found something to do. None: see `first_look_failed`."""
    planned: int = 0
    """How many nodes the first look was to delete."""
    picked: tuple[Picked, ...] = ()
    """The first MOST_PICKED of these nodes."""
    unlaunched: Mapping[str, int] = field(default_factory=dict)
    """Group -> how many of its nodes were not launched yet when the request began. A group without such nodes is missing."""
    newest: datetime | None = None
    """The latest LaunchTime of the other nodes. None: there were none."""
    record: DeletionRecord = field(default_factory=DeletionRecord)
    """What was deleted for it. It stays in this process."""
    settling: bool = False
    """Nodes were to be deleted, were terminating, or the list differed from the counts."""
    recorded: datetime | None = None
    """When the request began, as CloudFormation's events show it. None: they do not."""
    unconfirmed: frozenset[str] = frozenset()
    """Groups whose earlier specification CloudFormation's record does not confirm."""
    seal: str | None = None
    """Shows that on_event wrote the state. None: it is not sealed."""
    digest: str = ""
    """Stands for the event and the state as is_complete got them."""

    @property
    def first_look_failed(self) -> bool:
        """The cluster could not be read, or the first look is out of date: whether there is something to do is unknown."""
        return self.pending is None

    def write(self) -> dict[str, Any]:
        """As on_event returns it."""
        return {
            "StartedAt": self.began.timestamp(),
            "LookedAt": (self.looked or self.began).timestamp(),
            "RollingBack": self.rolling_back,
            "StackUpdatedAt": _optional(datetime.timestamp, self.updated),
            "Reached": _optional(sorted, self.reached),
            "Pending": self.pending,
            "Planned": self.planned,
            "Picked": [[pick.group, pick.name, pick.reason, pick.launched_before] for pick in self.picked],
            "Unlaunched": dict(self.unlaunched),
            "Newest": _optional(datetime.timestamp, self.newest),
            "Settling": self.settling,
            "RecordedAt": _optional(datetime.timestamp, self.recorded),
            "Unconfirmed": sorted(self.unconfirmed),
            "Seal": self.seal,
        }


def with_plan(state: State, live: Cluster | None, plan: Plan) -> State:
    """The state after a look at the cluster in on_event, which found this plan. The first look decides which nodes are as old as
    the request."""
    if state.looked is None:
        state = _with_ages(state, live.nodes if live else ())
    picks = (*plan.nodes_to_delete, *plan.held)
    return replace(
        state,
        pending=not plan.done or bool(plan.groups_to_delete),
        planned=len(picks),
        picked=tuple(_picked(pick, state.began) for pick in picks[:MOST_PICKED]),
        settling=bool(picks) or (live is not None and _is_settling(live)),
    )


def _picked(pick: Pick, began: datetime) -> Picked:
    before = _launched_before(pick.node, began) is not None
    return Picked(pick.node.group, pick.node.name, pick.reason, launched_before=before)


def _with_ages(state: State, nodes: Sequence[Node]) -> State:
    """The state with the nodes that are not launched yet, and the newest launch of the others."""
    launched = [_launched_before(node, state.began) for node in nodes]
    unlaunched = [node.group for node, when in zip(nodes, launched, strict=True) if when is None]
    return replace(state, unlaunched=Counter(unlaunched), newest=max(filter(None, launched), default=None))


def _launched_before(node: Node, began: datetime) -> datetime | None:
    """When the node was launched. None: it was not, or only after the request began."""
    if node.launched is None or node.launched > began + CLOCKS_APART:
        return None
    return node.launched


def _is_settling(live: Cluster) -> bool:
    """Whether nodes may still be terminating: the list shows some, or a count differs from it."""
    if any(node.leaving for node in live.nodes):
        return True
    listed = Counter(node.group for node in live.nodes)
    return any(group.current > listed[group.name] or group.target < listed[group.name] for group in live.groups)


def read_state(event: Mapping[str, Any]) -> State:
    """As is_complete gets it."""
    return State(
        began=_from_seconds(event["StartedAt"]),
        looked=_from_seconds(event["LookedAt"]),
        rolling_back=event["RollingBack"],
        updated=_optional(_from_seconds, event["StackUpdatedAt"]),
        reached=_optional(frozenset, event["Reached"]),
        pending=event["Pending"],
        planned=event["Planned"],
        picked=tuple(Picked(*pick) for pick in event["Picked"]),
        unlaunched=event["Unlaunched"],
        newest=_optional(_from_seconds, event["Newest"]),
        settling=event["Settling"],
        recorded=_optional(_from_seconds, event.get("RecordedAt")),
        unconfirmed=frozenset(event.get("Unconfirmed", ())),
        seal=event.get("Seal"),
    )


def _from_seconds(seconds: Any) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)


def _optional(convert: Callable[[Any], _To], value: Any) -> _To | None:
    return None if value is None else convert(value)
