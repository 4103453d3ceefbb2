"""The agent on a Slurm controller and its bucket, as ADR 14 tells of them; and the jobs, as they truly are.

Independent of the function, and of the real agent's code (lifecycle/drain_agent.py, which tests/slurm tries on real Slurm).
It looks every ten seconds of a clock that tests move; between two moments that anybody asks about, it catches up.
"""

from __future__ import annotations

import email.utils
import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

LOOK_S = 10
BEAT_S = 60
STATUS, REQUEST = "train/status.json", "train/requests/deployment.json"


class Instance(Protocol):
    """A node of the simulated HyperPod."""

    @property
    def instance_id(self) -> str | None: ...


@dataclass(slots=True)
class Held:
    """What the agent has done on a node."""

    since: float
    saving_since: float | None = None
    drained: bool = False
    saved: bool = False


@dataclass(slots=True)
class Agent:
    """A bucket with one agent that reads it, and the jobs of its cluster."""

    now: Callable[[], float]
    nodes: Callable[[], Iterable[Instance]]
    """Those that HyperPod lists on the controller."""
    jobs: dict[str, float] = field(default_factory=dict)
    """Node -> until when a job runs there."""
    saving_s: float = 60
    unsavable: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    """Drained by somebody else."""
    unknown: set[str] = field(default_factory=set)
    """Nodes that Slurm does not have."""
    refused: set[str] = field(default_factory=set)
    """Nodes that may be login nodes."""
    strangers: set[str] = field(default_factory=set)
    """Nodes that it knows by another address."""
    mute: set[str] = field(default_factory=set)
    """Nodes whose slurmd does not respond."""
    deaf: bool = False
    """It writes, and cannot read."""
    backup: str | None = "/fsx/backup"
    """Absent: it runs since before there was anything to save."""
    distort: Callable[[dict[str, Any]], object] = lambda status: None
    """What somebody makes of its status."""
    dead_since: float = math.inf
    denied: set[str] = field(default_factory=set)
    """Calls that the function may not make."""
    held: dict[str, Held] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    """Nodes on which it has ended jobs, and when."""
    given_back: dict[str, float] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    """The one that it has read last."""
    looked: float = -math.inf
    beat: float = -math.inf

    # -- what is true

    def busy(self, node: str) -> bool:
        """A job runs there now."""
        self.catch_up()
        return self.jobs.get(node, -math.inf) > self.now()

    def may_start(self, node: str) -> bool:
        """Whether Slurm would start a job there."""
        self.catch_up()
        return node not in self.held and node not in self.foreign

    # -- S3

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self._check("GetObject", Bucket)
        assert Key == STATUS, f"the function reads nothing but the status: {Key}"
        self.catch_up()
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
        date = email.utils.formatdate(self.now(), usegmt=True)
        return {
            "Body": io.BytesIO(self.objects[Key]),
            "ContentLength": len(self.objects[Key]),
            "ResponseMetadata": {"HTTPHeaders": {"date": date}},
        }

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> dict[str, Any]:
        self._check("PutObject", Bucket)
        assert Key == REQUEST, f"the function writes nothing but its request: {Key}"
        assert json.loads(Body)["schema"] == 1, "the agent reads no other"
        self.catch_up()
        self.objects[Key] = Body
        return {}

    def _check(self, operation: str, bucket: str) -> None:
        assert bucket == "drains"
        if operation in self.denied:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"no {operation}"}}, operation)

    # -- the agent

    def catch_up(self) -> None:
        """Look as often as it would have since it was asked last."""
        now = self.now()
        if self.looked == -math.inf:
            self.looked = now - LOOK_S
        while self.looked + LOOK_S <= now:
            busy_with = self.held or self.objects.get(REQUEST)
            self.looked = self.looked + LOOK_S if busy_with else now - (now - self.looked) % LOOK_S
            if self.looked < self.dead_since:
                self._look(self.looked)

    def _look(self, now: float) -> None:
        if REQUEST in self.objects and not self.deaf:
            self.request = json.loads(self.objects[REQUEST])
        wishes = {wish["id"]: wish for wish in self.request.get("nodes", ()) if wish["expires"] > now}
        here = {node.instance_id for node in self.nodes()}
        told = {}
        for node, wish in wishes.items():
            assert wish["ip"], wish
            told[node] = {"ip": wish["ip"], "requests": {"deployment": wish["request"]}, "jobs": []}
            told[node] |= self._judge(node, wish, now, here)
        for node in [node for node in self.held if node not in wishes]:
            self._give_back(node, now)
        self.beat = now
        busy = {node: [{"id": "4711", "user": "alice"}] for node, until in self.jobs.items() if until > now}
        status = {"schema": 1, "agent": 3, "beat": now, "nodes": told, "busy": busy, "refused": {}, "problem": ""}
        status["requests"] = {"deployment": self.request["id"]} if self.request else {}
        status["backup"] = self.backup
        self.distort(status)
        self.objects[STATUS] = json.dumps(status).encode()

    def _judge(self, node: str, wish: dict[str, Any], now: float, here: set[str | None]) -> dict[str, Any]:
        running = self.jobs.get(node, -math.inf) > now
        jobs = {"jobs": [{"id": "7", "user": "alice"}]} if running else {}
        if node not in here:
            return {"state": "unknown", "message": "is no instance of this cluster"}
        if node in self.strangers:
            return {
                "state": "unknown",
                "message": "has the address 10.0.0.1 on the controller, and 10.0.0.2 in the request",
            }
        if node in self.refused:
            return {"state": "refused", "message": "may be a login node"}
        if node in self.unknown:
            return {"state": "unknown", "message": "Slurm has no node with the address", "absent": True}
        if node in self.foreign:
            state = "draining" if running else "ready"
            return {"state": state, "message": "was drained by somebody else", **jobs}
        held = self.held.get(node)
        if held is not None and held.drained and not running:
            return {"state": "ready", "message": "is saved" if held.saved else "", "saved": held.saved}
        if wish["deadline"] <= now and wish["on_timeout"] == "fail":
            self._give_back(node, now)
            return {"state": "timed-out", "message": "went back to work at its deadline; jobs: 7 of alice", **jobs}
        if held is None:
            self.held[node] = Held(since=now)
            return {"state": "draining", "message": "", **jobs}
        if running:
            if wish["deadline"] <= now:
                self.jobs[node] = self.ended[node] = now
            left = max(0, wish["deadline"] - now) / 60
            return {"state": "draining", "message": f"jobs: 7 of alice; {left:.0f} minutes left", **jobs}
        if node in self.mute:
            return {"state": "draining", "message": "does not respond"}
        if self.backup is None:
            held.drained = True
            return {"state": "draining", "message": ""}
        if held.saving_since is None:
            held.saving_since = now
        if node in self.unsavable:
            return {"state": "backup-failed", "message": "could not be saved in 3 tries: the disk is full"}
        if now - held.saving_since < self.saving_s:
            return {"state": "backing-up", "message": "job 8, running: 0.1 of 0.2 GB"}
        held.drained = held.saved = True
        return {"state": "backing-up", "message": ""}

    def _give_back(self, node: str, now: float) -> None:
        if self.held.pop(node, None):
            self.given_back[node] = now
