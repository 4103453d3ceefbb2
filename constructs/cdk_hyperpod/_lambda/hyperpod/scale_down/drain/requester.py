"""Asks for nodes to be drained, and keeps what is said of them: a deployment's part of the channel.

Who asks writes one request anew at every poll, from nothing but what that poll sees; `expires` in it is a lease, so a function
that dies holds no node for long (docs/adr/0014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ...common import api
from ...common.drain_protocol import NodeRequest, make_node_request, make_request
from ..cluster import Cluster, Node
from .channels import Channel, NoStatusError, UnansweredError
from .ready import NOTHING_SAID, Ask, Said

LEASE = timedelta(minutes=10)
"""How long a node is held that is waited for: many polls long, so that some may fail."""

TAKEN = timedelta(hours=2)
"""The same for one that is about to be deleted, or on its way out: nothing may start on it, whatever becomes of the function."""

KEPT = timedelta(hours=13)
"""The same for a group's nodes, until the cluster's own update is over and the group is deleted. Nobody polls meanwhile, and
CloudFormation waits twelve hours at most for the cluster."""

Patience = Callable[[Callable[[], Said]], Said]
"""Looks, maybe more than once."""


def _at_once(look: Callable[[], Said]) -> Said:
    return look()


class Hearing:
    """How long looks that fail are repeated: those without an answer, and those that AWS refuses. A refused look tells nothing of
    whoever answers, so only the time between two looks without an answer counts as silence."""

    def __init__(
        self,
        is_unanswered: Callable[[Exception], bool],
        now: Callable[[], datetime],
        *,
        unanswered: timedelta,
        refused: timedelta,
    ) -> None:
        self._is_unanswered, self._now = is_unanswered, now
        self._left = {True: unanswered, False: refused}
        self._at, self._before = now(), True

    def until(self, error: Exception) -> datetime:
        """The end of the time for looks that fail like the last one did, by this error."""
        now, unanswered = self._now(), self._is_unanswered(error)
        self._left[unanswered and self._before] -= now - self._at
        self._at, self._before = now, unanswered
        return now + self._left[unanswered]


class DrainRequester:
    """One deployment's part of the channel, during one run of the function."""

    def __init__(self, ask: Ask, channel: Channel, *, must: bool) -> None:
        """`must`: an error of a call is the caller's, unless it is the drainer's silence. Otherwise it is as if nobody answered."""
        self.ask, self._channel, self._must = ask, channel, must
        self.said = NOTHING_SAID
        self.held: frozenset[str] = frozenset()
        """Names of nodes that were not given back, as far as anybody told."""
        self.gave_back = False
        """Nodes were held, and it has asked to give them back."""

    def read(self, patience: Patience = _at_once) -> Said:
        """What is said now."""
        try:
            self.said = patience(self._channel.read)
        except api.CALL_ERRORS as error:
            excuse = self._channel.excuse(error)
            if excuse is None and self._must:
                raise
            # A look that AWS refuses is no silence.
            refused = Said(silent=timedelta(0), unreachable=f"cannot be heard ({api.reason(error)})")
            self.said = excuse or refused
        return self.said

    def is_unanswered(self, error: Exception) -> bool:
        """Whether the look found that nobody answers. Otherwise AWS refused it."""
        return self._channel.excuse(error) is not None

    def locate(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Which of these nodes do not run and cannot be asked for."""
        try:
            return frozenset(
                node.name
                for node in nodes
                if node.is_there and node.status != "Running" and self._channel.find(node.name, self.said) is None
            )
        except api.CALL_ERRORS:
            if self._must:
                raise
            return frozenset()

    def hold(
        self, wanted: Iterable[Node], live: Cluster | None, lease: timedelta, *, drained: Container[str] = ()
    ) -> None:
        """Ask for these nodes and for no other, but for those that are on their way out already: nothing may start there.

        `live`: the cluster; absent: it is no more. `drained`: names of those that were, for an earlier request, which they keep, since
        by another they would be saved once more; and nobody waits any longer for one of them that is not held. Nothing is asked of
        a drainer that has just not told what it holds.
        """
        if self.said.unreachable:
            return
        there = [node for node in wanted if node.is_there]
        asked = {
            node.name: self._node_request(node, lease, self.ask.request_id, backup=node.name not in drained)
            for node in there
        }
        kept = self._kept(node for node in there if node.name in drained)
        try:
            self._write(self._kept(_going_already(live)) | asked | kept)
        except api.CALL_ERRORS as error:
            if excuse := self._channel.excuse(error):
                # One call that failed is no silence.
                self.said = replace(excuse, silent=timedelta(0))
            elif self._must:
                raise

    def give_back(self, look: Callable[[], Cluster | None], accepted: Container[str]) -> None:
        """Ask for no node any more, but for those that are on their way out.

        `look`: reads the cluster; nobody needs it where no node is held. `accepted`: names of nodes whose deletion the service has
        accepted, whatever the cluster says of them. Raises api.CALL_ERRORS where a drainer keeps others, see `held`.
        """
        try:
            self.said = self._channel.read()
        except NoStatusError:
            self.said = NOTHING_SAID
        held = frozenset(self.said.deployment_requests())
        live = look() if held else None
        leaving = [node for node in live.nodes if node.name in accepted] if live else []
        kept = self._kept([*leaving, *_going_already(live)])
        self.held = held - kept.keys()
        self.gave_back = bool(self.held)
        self._write(kept)
        if not self.ask.drain.eks:
            return
        if self.held:
            self.held &= self._channel.read().deployment_requests().keys()
        if self.held or self.said.problem:
            raise UnansweredError(why=self.said.problem or f"it holds {', '.join(sorted(self.held))}")

    def _kept(self, nodes: Iterable[Node]) -> dict[str, dict[str, Any] | None]:
        """What these are held for already."""
        requests = self.said.deployment_requests()
        return {
            node.name: self._node_request(node, TAKEN, requests[node.name]) for node in nodes if node.name in requests
        }

    def _write(self, asked: Mapping[str, dict[str, Any] | None]) -> None:
        self.said = self._channel.write(self._request([each for each in asked.values() if each])) or self.said

    def _node_request(
        self, node: Node, lease: timedelta, request_id: str, *, backup: bool = True
    ) -> dict[str, Any] | None:
        """Absent: nobody can be asked for the node yet, or no more."""
        found = self._channel.find(node.name, self.said)
        if found is None:
            return None
        return make_node_request(
            NodeRequest(
                writer="deployment",
                request_id=request_id,
                instance=node.name,
                address=found,
                deadline=self.ask.deadline(node).timestamp(),
                limit=self.ask.limit(node).timestamp(),
                expires=(self.ask.now + lease).timestamp(),
                force=self.ask.forces,
                backup=backup,
                evict_unmanaged=self._evicts_unmanaged if self.ask.drain.eks else None,
            )
        )

    @property
    def _evicts_unmanaged(self) -> bool:
        """A rollback is never refused, and an eviction gives a pod more time than the end of its node."""
        return self.ask.rolling_back or self.ask.drain.evict_unmanaged

    def _request(self, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        # The answer names the request that was read: another id wherever another node is wanted.
        names = ",".join(sorted(node["id"] for node in nodes))
        request = f"{self.ask.request_id}-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
        return make_request(request, nodes)


def _going_already(live: Cluster | None) -> list[Node]:
    """Nodes on their way out, be it alone or with their group."""
    if live is None:
        return []
    groups = {group.name for group in live.groups if group.status == "Deleting"}
    return [node for node in live.nodes if node.leaving or node.group in groups]
