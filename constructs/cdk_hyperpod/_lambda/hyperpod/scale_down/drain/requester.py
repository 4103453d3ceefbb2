"""Requests drains for one deployment, and keeps the status that answers.

Every poll writes the whole request again, from nothing but what that poll sees. `expires` in it is a lease, so a function that dies
holds no node for long (docs/adr/0014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ...common import api
from ...kernel.drain_protocol import NodeRequest, make_node_request, make_request
from ..model.cluster import Cluster, Node
from .channels import Channel, NoStatusError, UnansweredError
from .readiness import NO_STATUS, AgentStatus, DrainRequest

DRAIN_LEASE = timedelta(minutes=10)
"""How long a node is held that the deployment waits for: many polls long, so that some may fail."""

DELETION_LEASE = timedelta(hours=2)
"""How long a node is held that is about to be deleted, or is terminating: nothing may start on it, even if the function dies."""

GROUP_LEASE = timedelta(hours=13)
"""How long a group's nodes are held, until the cluster's own update is over and the group is deleted. Nothing polls meanwhile, and
CloudFormation waits for the cluster for twelve hours at most."""

Retry = Callable[[Callable[[], AgentStatus]], AgentStatus]
"""Reads, maybe more than once."""

_Requests = Mapping[str, dict[str, Any] | None]
"""Node -> what is requested of it. None: it cannot be requested yet, or not any more."""


def _read_once(read: Callable[[], AgentStatus]) -> AgentStatus:
    return read()


class RetryBudget:
    """How long reads that fail are repeated: those without an answer, and those that AWS rejects. A rejected read does not show
    that the agent is silent, so only the time between two reads without an answer counts as silence."""

    def __init__(
        self,
        is_unanswered: Callable[[Exception], bool],
        now: Callable[[], datetime],
        *,
        unanswered: timedelta,
        rejected: timedelta,
    ) -> None:
        self._is_unanswered, self._now = is_unanswered, now
        self._unanswered_left, self._rejected_left = unanswered, rejected
        self._last, self._last_was_unanswered = now(), True

    def until(self, error: Exception) -> datetime:
        """The end of the time for reads that fail like the last one did, with this error."""
        now, unanswered = self._now(), self._is_unanswered(error)
        passed = now - self._last
        if unanswered and self._last_was_unanswered:
            self._unanswered_left -= passed
        else:
            self._rejected_left -= passed
        self._last, self._last_was_unanswered = now, unanswered
        return now + (self._unanswered_left if unanswered else self._rejected_left)


class DrainRequester:
    """Requests drains for one deployment, during one run of the function."""

    def __init__(self, drain_request: DrainRequest, channel: Channel, *, must: bool) -> None:
        """`must`: re-raise call errors, except those that mean silence. Otherwise treat them as no answer."""
        self.drain_request, self._channel, self._must = drain_request, channel, must
        self.status = NO_STATUS
        """The last status. A write may bring a newer one."""
        self.held: frozenset[str] = frozenset()
        """Names of nodes that were not released, as far as the status shows."""
        self.released = False
        """Nodes were held, and their release was requested."""

    def read(self, retry: Retry = _read_once) -> AgentStatus:
        """The current status."""
        try:
            self.status = retry(self._channel.read)
        except api.CALL_ERRORS as error:
            self.status = self._status_after(error)
        return self.status

    def _status_after(self, error: Exception) -> AgentStatus:
        silence = self._channel.excuse(error)
        if silence is not None:
            return silence
        if self._must:
            raise error
        # A read that AWS rejects is no silence.
        return AgentStatus(silent=timedelta(0), unreachable=f"has a status that cannot be read ({api.reason(error)})")

    def is_unanswered(self, error: Exception) -> bool:
        """Whether the read found that nothing answers. Otherwise AWS rejected it."""
        return self._channel.excuse(error) is not None

    def locate(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Names of those nodes that do not run and cannot be requested."""
        stopped = [node for node in nodes if node.is_there and node.status != "Running"]
        try:
            return frozenset(node.name for node in stopped if self._channel.find(node.name, self.status) is None)
        except api.CALL_ERRORS:
            if self._must:
                raise
            return frozenset()

    def hold(
        self, wanted: Iterable[Node], live: Cluster | None, lease: timedelta, *, drained: Container[str] = ()
    ) -> None:
        """Request these nodes and no other, except those that terminate already: nothing may start there.

        `live`: the cluster; None: it does not exist any more. `drained`: names of those that were drained for an earlier request.
        They keep that request, because with another one they would be backed up once more. Does nothing if the drainer has not
        reported what it holds.
        """
        if self.status.unreachable:
            return
        there = [node for node in wanted if node.is_there]
        own = {node.name: self._own_request(node, lease, drained) for node in there}
        earlier = self._held_requests(node for node in there if node.name in drained)
        try:
            self._write({**self._held_requests(_terminating(live)), **own, **earlier})
        except api.CALL_ERRORS as error:
            self._note_failed_write(error)

    def _own_request(self, node: Node, lease: timedelta, drained: Container[str]) -> dict[str, Any] | None:
        return self._node_request(node, lease, self.drain_request.request_id, backup=node.name not in drained)

    def _note_failed_write(self, error: Exception) -> None:
        silence = self._channel.excuse(error)
        if silence is not None:
            # One call that failed is not yet a silent drainer.
            self.status = replace(silence, silent=timedelta(0))
        elif self._must:
            raise error

    def release(self, check: Callable[[], None], look: Callable[[], Cluster | None], accepted: Container[str]) -> None:
        """Request no node any more, except those that terminate already.

        `check`: raises an error if nothing may be released; `held` has the nodes by then. `look`: reads the cluster; not called if
        no node is held. `accepted`: names of nodes whose deletion HyperPod has accepted,
        whatever their status. Raises api.CALL_ERRORS if a drainer holds others, see `held`.
        """
        try:
            self.status = self._channel.read()
        except NoStatusError:
            self.status = NO_STATUS
        self.held = held = frozenset(self.status.deployment_requests())
        check()
        live = look() if held else None
        kept = self._held_requests([*_accepted(live, accepted), *_terminating(live)])
        self.held = held - kept.keys()
        self.released = bool(self.held)
        self._write(kept)
        if self.drain_request.drain.eks:
            self._check_release()

    def _check_release(self) -> None:
        """The drainer reports at once what it holds. Raises UnansweredError if it did not release all."""
        if self.held:
            self.held &= self._channel.read().deployment_requests().keys()
        problem = self.status.problem or (f"it holds {', '.join(sorted(self.held))}" if self.held else "")
        if problem:
            raise UnansweredError(why=problem)

    def _held_requests(self, nodes: Iterable[Node]) -> dict[str, dict[str, Any] | None]:
        """The requests for which these nodes are held already."""
        requests = self.status.deployment_requests()
        return {
            node.name: self._node_request(node, DELETION_LEASE, requests[node.name])
            for node in nodes
            if node.name in requests
        }

    def _write(self, requests: _Requests) -> None:
        self.status = self._channel.write(self._request([each for each in requests.values() if each])) or self.status

    def _node_request(
        self, node: Node, lease: timedelta, request_id: str, *, backup: bool = True
    ) -> dict[str, Any] | None:
        """None: the node cannot be requested yet, or not any more."""
        address = self._channel.find(node.name, self.status)
        if address is None:
            return None
        return make_node_request(
            NodeRequest(
                writer="deployment",
                request_id=request_id,
                instance=node.name,
                address=address,
                deadline=self.drain_request.deadline(node).timestamp(),
                limit=self.drain_request.limit(node).timestamp(),
                expires=(self.drain_request.now + lease).timestamp(),
                force=self.drain_request.forces,
                backup=backup,
                evict_unmanaged=self._evicts_unmanaged if self.drain_request.drain.eks else None,
                takes_over=self.drain_request.drain.eks and self.drain_request.rolling_back,
            )
        )

    @property
    def _evicts_unmanaged(self) -> bool:
        """A rollback is never refused, and an eviction gives a pod more time than the end of its node."""
        return self.drain_request.rolling_back or self.drain_request.drain.evict_unmanaged

    def _request(self, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        # The status names the request that was read, so another set of nodes needs another id.
        names = ",".join(sorted(node["id"] for node in nodes))
        request = f"{self.drain_request.request_id}-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
        return make_request(request, nodes)


def _accepted(live: Cluster | None, names: Container[str]) -> list[Node]:
    """Nodes whose deletion HyperPod has accepted."""
    return [node for node in live.nodes if node.name in names] if live else []


def _terminating(live: Cluster | None) -> list[Node]:
    """Nodes that terminate, alone or with their group."""
    if live is None:
        return []
    groups = {group.name for group in live.groups if group.status == "Deleting"}
    return [node for node in live.nodes if node.leaving or node.group in groups]
