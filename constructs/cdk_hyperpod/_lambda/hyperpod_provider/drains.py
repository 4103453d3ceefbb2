"""Asks the agent on the controller for nodes, and reads what it says: the only module that knows the channel's objects.

Who asks writes one object anew at every poll, from nothing but what that poll sees; `expires` in it is a lease, so a function
that dies holds no node for long (docs/adr/0014).
"""

from __future__ import annotations

import email.utils
import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from . import api
from .model import Cluster, Node
from .ready import NOTHING_SAID, SILENT, Ask, Said

MOST_BYTES = 8 * 1024**2
"""Of a status: more than a thousand bytes for every node that a cluster may have."""

LEASE = timedelta(minutes=10)
"""How long a node is held that is waited for: many polls long, so that some may fail."""

TAKEN = timedelta(hours=2)
"""The same for one that is about to be deleted, or on its way out: nothing may start on it, whatever becomes of the function."""

KEPT = timedelta(hours=13)
"""The same for a group's nodes, until the cluster's own update is over and the group is deleted. Nobody polls meanwhile, and
CloudFormation waits twelve hours at most for the cluster."""


class Drains:
    """One deployment's part of the channel, during one run of the function."""

    def __init__(
        self, ask: Ask, cluster: str, s3: Callable[[], api.S3], sagemaker: Callable[[], api.Nodes], *, must: bool
    ) -> None:
        """`must`: an error of a call is the caller's. Otherwise it is as if nobody answered."""
        self.ask, self._cluster, self._s3, self._sagemaker, self._must = ask, cluster, s3, sagemaker, must
        self.said = NOTHING_SAID
        self._addresses: dict[str, str] = {}

    def read(self) -> Said:
        """What the agent says now."""
        try:
            self.said = self._read()
        except api.CALL_ERRORS:
            if self._must:
                raise
        return self.said

    def _read(self) -> Said:
        return read_status(self._s3(), self.ask.drain.bucket, self._cluster)

    def locate(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Which of these nodes do not run and have no address."""
        try:
            return frozenset(
                node.name
                for node in nodes
                if node.is_there and node.status != "Running" and not self._address(node.name)
            )
        except api.CALL_ERRORS:
            if self._must:
                raise
            return frozenset()

    def hold(self, wanted: Iterable[Node], live: Cluster | None, lease: timedelta) -> None:
        """Ask for these nodes and for no other, but for those that are on their way out already: nothing may start there.

        `live`: the cluster; absent: it is no more. What is held for an earlier wish keeps it.
        """
        wishes = self.said.wishes()
        asked = {node.name: (node, lease, self.ask.wish) for node in wanted if node.is_there}
        for node in _going_already(live) if live else ():
            if node.name in wishes and node.name not in asked:
                asked[node.name] = (node, TAKEN, wishes[node.name])
        try:
            self._write([each for each in (self._wish(*each) for each in asked.values()) if each])
        except api.CALL_ERRORS:
            if self._must:
                raise

    def _wish(self, node: Node, lease: timedelta, wish: str) -> dict[str, Any] | None:
        """Absent: the node has no address yet, or no more."""
        address = self._address(node.name)
        if not address:
            return None
        return {
            "id": node.name,
            "ip": address,
            "request": wish,
            "deadline": self.ask.deadline(node).timestamp(),
            "expires": (self.ask.now + lease).timestamp(),
            "on_timeout": "force" if self.ask.forces(node) else "fail",
            "backup": True,
        }

    def _address(self, node: str) -> str:
        told = self.said.nodes.get(node, {}).get("ip")
        if isinstance(told, str) and told:
            return told
        if node not in self._addresses:
            self._addresses[node] = self._look_up(node)
        return self._addresses[node]

    def _look_up(self, node: str) -> str:
        try:
            found = self._sagemaker().describe_cluster_node(ClusterName=self._cluster, NodeId=node)
        except api.CALL_ERRORS as error:
            if api.is_gone(error) or api.code(error) == "ValidationException":
                return ""  # it went meanwhile
            raise
        return str(found["NodeDetails"].get("PrivatePrimaryIp") or "")

    def _write(self, wishes: list[dict[str, Any]]) -> None:
        # The agent answers with the id of what it has read: another one wherever another node is wanted.
        names = ",".join(sorted(wish["id"] for wish in wishes))
        request = f"{self.ask.wish}-{hashlib.sha256(names.encode()).hexdigest()[:8]}"
        self._s3().put_object(
            Bucket=self.ask.drain.bucket,
            Key=f"{self._cluster}/requests/deployment.json",
            Body=json.dumps({"schema": 1, "id": request, "nodes": wishes}).encode(),
            ContentType="application/json",
        )


def read_status(s3: api.S3, bucket: str, cluster: str) -> Said:
    """What the agent says now. Raises an error of the call; where there is no status, nothing was said."""
    try:
        reply = s3.get_object(Bucket=bucket, Key=f"{cluster}/status.json")
    except api.CALL_ERRORS as error:
        if api.code(error) != "NoSuchKey":
            raise
        return NOTHING_SAID
    sent = reply["ResponseMetadata"]["HTTPHeaders"]["date"]
    return parse(reply["Body"].read(MOST_BYTES), email.utils.parsedate_to_datetime(sent).timestamp())


def parse(content: bytes, now: float) -> Said:
    """The agent's status. What is not as it should be is as if it were not said."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    found = _mapping(found)
    beat = found.get("beat")
    if isinstance(beat, bool) or not isinstance(beat, int | float):
        return NOTHING_SAID
    # One that is ahead would never be silent. NaN is not between anything.
    if not 0 <= beat <= now + SILENT.total_seconds():
        return NOTHING_SAID
    return Said(
        silent=timedelta(seconds=max(0.0, now - beat)),
        rejected=str(_mapping(found.get("refused")).get("deployment") or ""),
        problem=str(found.get("problem") or ""),
        nodes={name: each for name, each in _mapping(found.get("nodes")).items() if isinstance(each, dict)},
        busy=_busy(found.get("busy")),
        saves=bool(found.get("backup")),
    )


def _busy(told: object) -> dict[str, tuple[str, ...]]:
    """Id -> some of its jobs. An agent of version 2 told a list of ids alone."""
    if isinstance(told, list):
        return {name: () for name in told if isinstance(name, str)}
    return {
        name: tuple(f"{job.get('id')} of {job.get('user')}" for job in jobs if isinstance(job, dict))
        for name, jobs in _mapping(told).items()
        if isinstance(jobs, list)
    }


def _going_already(live: Cluster) -> list[Node]:
    """Nodes on their way out, be it alone or with their group."""
    groups = {group.name for group in live.groups if group.status == "Deleting"}
    return [node for node in live.nodes if node.leaving or node.group in groups]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
