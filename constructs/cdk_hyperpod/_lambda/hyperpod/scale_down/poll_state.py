"""What on_event found out, for every poll after it.

State between polls is what on_event returns, which the provider framework adds to the event of every is_complete:
StartedAt (seconds since 1970), LookedAt (when on_event was through), RollingBack, StackUpdatedAt (seconds or null), Reached (ids
of the clusters that the failed update got to; null: unknown, or no rollback), Pending (true: there is something to do; false: nothing; null: the cluster could
not be read), and of the first look: Planned (how many nodes there were to take), Picked (the first of them: group, id, reason),
Unlaunched (group: how many of its nodes were not launched yet when the request began), Newest (the latest LaunchTime of the
others, in seconds, or null), Settling (nodes were to be taken, were shutting down, or were counted and not listed, or the other
way round).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from .actions import Picked, Plan
from .cluster import CLOCKS_APART, Cluster
from .deletion_record import DeletionRecord

MOST_PICKED = 50
"""Nodes of the first look that travel by name: a waiter's event has 262,144 bytes, of which the properties may take 240,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What on_event found out, for every later poll."""

    began: datetime
    looked: datetime | None = None
    rolling_back: bool = False
    updated: datetime | None = None
    reached: frozenset[str] | None = None
    pending: bool | None = False
    planned: int = 0
    picked: tuple[Picked, ...] = ()
    unlaunched: Mapping[str, int] = field(default_factory=dict)
    newest: datetime | None = None
    record: DeletionRecord = field(default_factory=DeletionRecord)
    """What was deleted for it; it does not travel."""
    settling: bool = False

    def write(self) -> dict[str, Any]:
        """As on_event returns it."""
        return {
            "StartedAt": self.began.timestamp(),
            "LookedAt": (self.looked or self.began).timestamp(),
            "RollingBack": self.rolling_back,
            "StackUpdatedAt": None if self.updated is None else self.updated.timestamp(),
            "Reached": None if self.reached is None else sorted(self.reached),
            "Pending": self.pending,
            "Planned": self.planned,
            "Picked": [[pick.group, pick.name, pick.reason] for pick in self.picked],
            "Unlaunched": dict(self.unlaunched),
            "Newest": None if self.newest is None else self.newest.timestamp(),
            "Settling": self.settling,
        }


def with_plan(state: State, live: Cluster | None, plan: Plan) -> State:
    """The state after a look at the cluster in on_event, which found this plan. Which nodes are as old as the request, its first
    look tells."""
    nodes, groups = (live.nodes, live.groups) if live else ((), ())
    listed = Counter(node.group for node in nodes)
    going = (*plan.taken, *plan.held)
    if state.looked is None:
        since = state.began + CLOCKS_APART
        state = replace(
            state,
            unlaunched=Counter(node.group for node in nodes if node.launched is None or node.launched > since),
            newest=max((node.launched for node in nodes if node.launched and node.launched <= since), default=None),
        )
    return replace(
        state,
        pending=not plan.done or bool(plan.deletions),
        planned=len(going),
        picked=tuple(Picked(pick.node.group, pick.node.name, pick.reason) for pick in going[:MOST_PICKED]),
        settling=bool(going)
        or any(node.leaving for node in nodes)
        or any(group.current > listed[group.name] or group.target < listed[group.name] for group in groups),
    )


def read_state(event: Mapping[str, Any]) -> State:
    """As is_complete gets it."""
    updated, reached, newest = event["StackUpdatedAt"], event["Reached"], event["Newest"]
    return State(
        began=datetime.fromtimestamp(float(event["StartedAt"]), UTC),
        looked=datetime.fromtimestamp(float(event["LookedAt"]), UTC),
        rolling_back=event["RollingBack"],
        updated=None if updated is None else datetime.fromtimestamp(float(updated), UTC),
        reached=None if reached is None else frozenset(reached),
        pending=event["Pending"],
        planned=event["Planned"],
        picked=tuple(Picked(*pick) for pick in event["Picked"]),
        unlaunched=event["Unlaunched"],
        newest=None if newest is None else datetime.fromtimestamp(float(newest), UTC),
        settling=event["Settling"],
    )
