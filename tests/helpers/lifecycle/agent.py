"""Tests of the drain agent: typical requests and output of Slurm, and a simulated node and agent."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol
from helpers.lifecycle.programs import load

agent_loop = load("agent/loop.py")
decide = load("agent/decide.py")
slurm = load("agent/slurm.py")
SlurmState: Any = load("agent/slurm_state.py").SlurmState
NOW = 1_800_000_000.0
SETTINGS: dict[str, Any] = {"backup": {"paths": ["/data"], "to": "/fsx/backup", "on_failure": "fail"}}
ONE, TWO = "i-00000000000000001", "i-00000000000000002"
START = "2026-11-23T05:00:00"


def node_request_json(**change: Any) -> dict[str, Any]:
    usual = {"id": ONE, "ip": "10.0.0.1", "request": "r1", "deadline": NOW + 60, "expires": NOW + 120}
    return {**usual, "on_timeout": "fail", "backup": True, **change}


def request(*nodes: Any, **change: Any) -> bytes:
    return json.dumps({"schema": 1, "id": "q1", "nodes": list(nodes), **change}).encode()


def node_request(**change: Any) -> Any:
    usual = {"writer": "operator", "request_id": "r1", "instance": ONE, "address": "10.0.0.1", "deadline": NOW + 60}
    return drain_protocol.NodeRequest(**{**usual, "expires": NOW + 120, "force": False, "backup": True, **change})


def slurm_node(name: str = "n1", state: str = "IDLE", reason: str = "", *, number: int = 1) -> Any:
    return slurm.SlurmNode(name, frozenset({f"10.0.0.{number}"}), frozenset(state.split("+")), False, reason, ("p5",))


def silent(state: str, reason: str) -> Any:
    return slurm_node(state=state, reason=reason)._replace(silent=True)


def held(node: str = "n1", start: str = START) -> Any:
    return slurm.Reservation((node,), start)


def slurm_state(*nodes: Any, **change: Any) -> Any:
    usual: dict[str, Any] = {"now": NOW, "instances": {ONE: "10.0.0.1", TWO: "10.0.0.2"}, "never_drained": {}}
    usual.update(nodes={node.name: node for node in nodes or (slurm_node(),)}, reservations={ONE: held()})
    return SlurmState(**{**usual, "jobs": {}, "jobs_naming": {}, "backups": {}, **change})


def job(number: int, user: str = "alice", state: str = "RUNNING") -> Any:
    return slurm.Job(str(number), user, state)


def backups(*states: str, said: str = "", was: str = "") -> dict[str, Any]:
    tries = tuple(slurm.Backup(str(i), state, said, was) for i, state in enumerate(states))
    return {slurm.backup_name(node_request(), START): tries}


def saving(request: str = "r1") -> Any:
    """A node whose backup job has begun."""
    return slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:{request}:saving")


def words(acts: Any) -> list[str]:
    return [" ".join(act.command) for act in acts]


CONTINUE: dict[str, Any] = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
KILL = "Kill task failed"


class Acting:
    """A node in Slurm that follows the agent. A backup begins when the test starts it."""

    def __init__(self, node: Any, settings: Any = SETTINGS) -> None:
        self.slurm = slurm_state(node)
        self.settings = settings

    @property
    def node(self) -> Any:
        return self.slurm.nodes["n1"]

    def set(self, state: str, reason: str) -> None:
        self.slurm = self.slurm._replace(
            nodes={"n1": self.node._replace(state=frozenset(state.split("+")), reason=reason)}
        )

    def tries(self, *tries: Any) -> None:
        self.slurm = self.slurm._replace(backups={slurm.backup_name(node_request(), START): tries})

    def look(self) -> tuple[str, list[str]]:
        """The state, and the actions."""
        found = decide.decide_node([node_request()], self.slurm, self.settings)
        for act in found.acts:
            self.do(act)
        return found.state, [" ".join(act.command[:1] + act.command[3:]) for act in found.acts]

    def do(self, act: Any) -> None:
        said = dict(word.split("=", 1) for word in act.command if "=" in word)
        if act.command[0] == "sbatch":
            name, _, was = said["--job-name"].partition("@")
            tries = self.slurm.backups.get(name, ())
            self.tries(*tries, slurm.Backup(str(len(tries)), "PENDING", "", was))
            self.hold = json.loads(
                ast.literal_eval(act.stdin.rpartition("json.loads(")[2].rstrip().removesuffix(")))"))
            )["hold"]
        elif said.get("state") == "drain":
            self.set("IDLE+DRAIN", said["reason"])
        elif said.get("state") == "resume":
            self.set("IDLE", "")

    def begin(self) -> None:
        """The backup's job, and what it does first."""
        assert not self.node.drained
        self.set("ALLOCATED+DRAIN", self.hold["reason"])
        self.end("RUNNING")

    def end(self, state: str) -> None:
        (tries,) = self.slurm.backups.values()
        self.tries(*tries[:-1], tries[-1]._replace(state=state))
        if state != "RUNNING" and self.node.drained:
            self.set("IDLE+DRAIN", self.node.reason)


class Bucket:
    def __init__(self) -> None:
        self.objects: dict[str, bytes | Exception] = {}
        self.time = NOW
        self.short: int | None = None
        """After how many bytes a read ends."""

    def now(self) -> float:
        return self.time

    def get(self, key: str, etag: str, most_bytes: int) -> Any:
        found = self.objects.get(key)
        if isinstance(found, Exception):
            raise found
        if found is not None and etag == str(hash(found)):
            return None
        return load("agent/s3.py").Object(None if found is None else found[: self.short], str(hash(found)))

    def put(self, key: str, content: bytes) -> None:
        self.objects[key] = content


class Loop:
    """An agent with this view of Slurm. It records its actions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket, self.slurm = Bucket(), slurm_state(reservations={})
        self.done: list[str] = []
        self.agent = agent_loop.Agent({"cluster": "c", **SETTINGS}, self.bucket)
        monkeypatch.setattr(agent_loop, "read_slurm", lambda now: self.slurm._replace(now=now))
        monkeypatch.setattr(self.agent, "_do", self._do)

    def _do(self, act: Any) -> str:
        self.done.append(" ".join(act.command))
        return ""

    def ask(self, content: Any, writer: str = "operator") -> None:
        self.bucket.objects[f"c/requests/{writer}.json"] = content

    def look(self) -> dict[str, Any]:
        self.done.clear()
        self.agent.look()
        found: dict[str, Any] = json.loads(self.bucket.objects["c/status.json"])  # type: ignore[arg-type]
        return found


HELD = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved"))
