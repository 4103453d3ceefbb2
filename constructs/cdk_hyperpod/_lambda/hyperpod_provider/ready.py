"""The seam "make this node ready to go": what has to happen on a node before it may be deleted. Pure.

What the agent on the controller says of each node is looked at afresh at every poll, and nothing else is remembered. The plan
is carried out when every node of the request may go, so where one may not, none has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from . import messages
from .actions import Wait
from .model import Drain, Node

SILENT = timedelta(minutes=3)
"""The agent writes its status every minute; after this long it is taken for dead."""

HEARD = timedelta(minutes=1)
"""The agent reads what is asked every ten seconds."""

BACK = timedelta(minutes=5)
"""The most that a rollback waits for a node, and anybody for a node that is there in place of one that was taken."""

ENDING = 0.8
"""Where jobs are ended at the deadline: when, as a share of the time there is. What is left is for ending and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the agent said last (docs/adr/0014). All of it is data of another machine."""

    silent: timedelta | None = None
    """Since when it says nothing, by S3's clock. Absent: it never said anything."""
    refused: str = ""
    """Why it does not read it."""
    problem: str = ""
    """Why it does nothing."""
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    """Ids of the instances that have jobs."""

    def wishes(self) -> dict[str, str]:
        """Node -> the wish of a deployment that it is held for."""
        told = {name: (each.get("requests") or {}).get("deployment") for name, each in self.nodes.items()}
        return {name: wish for name, wish in told.items() if isinstance(wish, str)}


NOTHING_SAID = Said()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One deployment's wish to have nodes drained."""

    drain: Drain
    began: datetime
    now: datetime
    rolling_back: bool = False

    @property
    def wish(self) -> str:
        """What it is called: the same at every poll."""
        return f"{self.began:%Y%m%dT%H%M%S}"

    def limit(self, node: Node) -> datetime:
        """Until when the node is waited for."""
        begins, span = self._time(node)
        return begins + span

    def deadline(self, node: Node) -> datetime:
        """Until when its jobs may run."""
        begins, span = self._time(node)
        return begins + (span * ENDING if self.forces(node) else span)

    def forces(self, node: Node) -> bool:
        """Whether it goes at the limit, whatever runs on it."""
        return self.rolling_back or self.drain.force or self._came_since(node)

    def _time(self, node: Node) -> tuple[datetime, timedelta]:
        if self._came_since(node):
            return node.launched or self.began, BACK
        return self.began, BACK if self.rolling_back else timedelta(minutes=self.drain.minutes)

    def _came_since(self, node: Node) -> bool:
        """The service launched it in place of one that was taken; of a rollback's nodes that is no matter."""
        return not self.rolling_back and node.launched is not None and node.launched > self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the nodes may go: all of them, or none yet."""

    waits: tuple[Wait, ...] = ()
    refusal: tuple[str, ...] = ()
    """Why they may not, and never will; absent: they may, or may yet."""

    @property
    def ready(self) -> bool:
        return not (self.waits or self.refusal)


READY = Verdict()


def is_silent(said: Said) -> bool:
    """Whether nobody does what is asked."""
    return said.silent is None or said.silent > SILENT


def judge(going: Iterable[Node], said: Said, ask: Ask) -> Verdict:
    """Whether these nodes may go."""
    nodes = [node for node in going if _has_to_be_asked_for(node)]
    if not nodes:
        return READY
    if is_silent(said):
        if ask.drain.undrained or ask.rolling_back:
            return READY
        return Verdict(refusal=(messages.agent_is_silent(said.silent),))
    # What it refused may be an earlier request.
    if said.refused and not ask.rolling_back and ask.now - ask.began > HEARD:
        return Verdict(refusal=(said.refused,))
    waits: list[Wait] = []
    refusals: list[str] = []
    for node in nodes:
        why, final = _what_keeps(node, said, ask)
        if final:
            refusals.append(messages.not_ready(node.name, why).why)
        elif why:
            waits.append(messages.not_ready(node.name, why))
    if said.problem and waits:
        waits.append(messages.agent_is_stuck(said.problem))
    return Verdict(waits=tuple(waits), refusal=tuple(refusals))


def _has_to_be_asked_for(node: Node) -> bool:
    return node.instance_id is not None and not node.leaving


def _what_keeps(node: Node, said: Said, ask: Ask) -> tuple[str, bool]:
    """Why the node may not go, if so, and whether it ever may."""
    told = said.nodes.get(node.name, {})
    heard = said.wishes().get(node.name) == ask.wish
    state, message = (str(told.get("state")), str(told.get("message") or "")) if heard else ("", messages.UNREAD)
    if _is_ready(node, told, state):
        return "", False
    if state == "backup-failed" and ask.drain.must_be_saved and not ask.rolling_back:
        return message, True
    if ask.now < ask.limit(node):
        return message or state, False
    if not ask.forces(node):
        return message or state, True
    unsaved = state in ("backing-up", "backup-failed") and ask.drain.must_be_saved
    return (message or state, True) if unsaved and not ask.rolling_back else ("", False)


def _is_ready(node: Node, told: Mapping[str, Any], state: str) -> bool:
    match state:
        case "ready":
            return True
        case "unknown":
            # Of what Slurm does not know it runs nothing. What HyperPod's own list on the controller does not know, it may
            # know by the next look; of a node that is not there yet, or no more, nothing is to be waited for.
            return told.get("absent") is True or node.status != "Running"
        case "refused":
            # A login node, or one that may be one.
            return not told.get("jobs")
    return False
