"""A cluster on which `cdk-hyperpod patch` runs: HyperPod's model, and a drain agent that the test plays, or the drainer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import parse_request, request_key
from cdk_hyperpod.cli import live
from helpers.scale_down.drainer import Drainer
from simulations.lifetimes.agent import status as agent_status
from unit.cli.conftest import FakeAws

Json = Any
OPERATOR = request_key("small", "operator")


def live_node(name: str, **more: Any) -> live.Node:
    """A node that runs. Times are in seconds since 1970."""
    usual: Json = {"group": "work", "instance_id": name or None, "status": "Running", "instance_type": "ml.p5.48xlarge"}
    usual |= dict.fromkeys(("logical_id", "launched", "image", "image_status", "host")) | {"message": ""}
    times = {key: datetime.fromtimestamp(more[key], UTC) for key in ("updated", "launched") if key in more}
    return live.Node(**{**usual, **more, **times})


@dataclass
class World:
    """One cluster. Time passes only while the command waits."""

    aws: FakeAws
    jobs: dict[str, float] = field(default_factory=dict)
    """Instance id -> when its job ends. While the node is not held, a job that has ended is followed by another one."""
    killed: list[str] = field(default_factory=list)
    """Nodes of which an update or a release ended a job."""
    agent_alive: bool = True
    queue: int | None = 0
    state_of: dict[str, str] = field(default_factory=dict)
    """Instance id -> the state that the agent reports, whatever runs there."""
    saves: bool = False
    held: dict[str, Json] = field(default_factory=dict)
    """Nodes that are held now, with their requests."""
    waits: list[float] = field(default_factory=list)
    calls_of_waits: list[int] = field(default_factory=list)
    """How many calls were made before each wait."""
    do: Callable[[int], object] = lambda number: None
    """What else happens at a wait, by its number."""
    beat: float = 0.0
    _seen: int = 0

    def __post_init__(self) -> None:
        self.drainer = Drainer(lambda: self.now, lambda: self.aws.model.nodes("small"))

    @property
    def now(self) -> float:
        return float(self.aws.model.clock.now())

    def wait(self, seconds: float) -> None:
        """In place of `Patcher.wait`."""
        self.waits.append(seconds)
        self.calls_of_waits.append(len(self.aws.calls) - self._seen)
        self._seen = len(self.aws.calls)
        before = {node: self._updating(node) for node in self.jobs}
        self.aws.model.clock.advance(seconds)  # type: ignore[attr-defined]
        self.note_killed(before)
        self.look()
        self.do(len(self.waits))

    def note_killed(self, before: Mapping[str, bool]) -> None:
        for node, was_updating in before.items():
            if not was_updating and self._updating(node) and self.jobs[node] > self.now:
                self.killed.append(node)

    def _updating(self, node: str) -> bool:
        return any(
            each.instance_id == node and each.status == "SystemUpdating" for each in self.aws.model.nodes("small")
        )

    def requests(self) -> dict[str, Json]:
        """What operators request, as the agent reads it."""
        content = self.aws.asked.get(OPERATOR)
        if content is None:
            return {}
        parse_request("operator", content, self.now)
        return {each["id"]: each for each in json.loads(content)["nodes"] if each["expires"] > self.now}

    def deploy(self) -> None:
        """A deployment holds the group's nodes, as the agent reports it."""
        held = {"state": "draining", "requests": {"deployment": "20261127T000000"}}
        self.aws.status = agent_status(self.now, nodes=dict.fromkeys(self.aws.nodes("work"), held))

    def look(self) -> None:
        """A look of the agent on the controller."""
        if not self.agent_alive:
            return
        self.held = self.requests()
        here = {str(node.instance_id) for node in self.aws.model.nodes("small")}
        nodes = {node: self._status(node, request, here) for node, request in self.held.items()}
        busy = {node: [{"id": "4711", "user": "alice"}] for node, end in self.jobs.items() if end > self.now}
        more: Json = {"nodes": nodes, "busy": busy, "backup": "/fsx/backup" if self.saves else None}
        if self.queue is not None:
            more["queue"] = self.queue
        self.aws.status = agent_status(self.now, **more)

    def _status(self, node: str, request: Json, here: set[str]) -> Json:
        requests = {"operator": request["request"]}
        if node not in here:
            return {
                "state": "unknown",
                "message": "is no instance of this cluster: it was replaced",
                "requests": requests,
            }
        if node in self.state_of:
            return {"state": self.state_of[node], "message": "why", "requests": requests}
        if self.jobs.get(node, 0.0) > self.now:
            if request["on_timeout"] == "force" and request["deadline"] <= self.now:
                self.jobs.pop(node)
            else:
                return {"state": "draining", "message": "jobs: 4711 of alice", "requests": requests}
        return {"state": "ready", "message": "", "saved": self.saves, "requests": requests}

    def drain_by_function(self, event: Json) -> Json:
        """The answer of the drainer, which remembers all as marks on nodes, and the run of `patch` in its Lease."""
        self.drainer.jobs = self.jobs
        answer = self.drainer.look(event)
        requests = {node: mark.request for node, mark in self.drainer.marks.items()}
        self.held = {node: {"request": each.request_id, "expires": each.expires} for node, each in requests.items()}
        return answer
