"""The agent on the controller, and the bucket between it and those who request drains.

Written only from docs/adr/0014 and from the observed behaviour of Slurm, not from the real agent. It remembers only
what it has read last: everything that it has done to a node is in Slurm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, Literal, NamedTuple

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NO_INSTANCE

from .clock import Clock
from .hyperpod import Node
from .slurm import Backup, Hold, Slurm
from .switches import Spoilt, Statuses

LOOKS = 10.0
"""Seconds between two looks of the agent at its requests."""

WRITERS = ("operator", "deployment")
STATUS = "status.json"

Saves = Literal["nothing", "or fails", "or goes on"]
"""What the agent does if a node cannot be backed up; "nothing": it makes no backups."""

NodeRequest = dict[str, Any]


class Away(Exception):
    """S3 does not respond, or returns something else."""


def status(beat: float, **more: Any) -> bytes:
    """The agent's status at that time. Of nodes and requests it contains only `more`."""
    nothing: dict[str, Any] = {"requests": {}, "refused": {}, "problem": "", "busy": {}, "backup": None, "nodes": {}}
    return json.dumps({"schema": 1, "beat": beat, **nothing, **more}).encode()


class Bucket:
    """Objects by key, without the cluster's name. Objects older than a day are deleted."""

    def __init__(self, clock: Clock, skew: float, statuses: Statuses, rng: Random) -> None:
        """`rng`: decides when a read returns a damaged status."""
        self.clock, self.statuses, self._rng = clock, statuses, rng
        self.skew = skew
        """How many seconds S3's clock is ahead of the function's."""
        self._objects: dict[str, tuple[float, bytes]] = {}
        self.reads_fail_until = self.writes_fail_until = 0.0
        """S3 fails for the agent until then."""
        self._spoilt: tuple[float, Spoilt] = 0.0, "missing"
        """Until when each read returns a damaged status, and how it is damaged."""

    @property
    def time(self) -> float:
        """S3's time, in seconds since 1970."""
        return self.clock.datetime().timestamp() + self.skew

    def get(self, key: str) -> bytes | None:
        at, body = self._objects.get(key, (0.0, None))
        return body if body is not None and self.clock.now < at + 36 * 3600 else None

    def sent(self, key: str) -> tuple[bytes, int] | None:
        """The content of an object as the function reads it, and its length as S3 reports it.

        Absent: there is no object.
        """
        body = self.get(key)
        how = None if body is None else self._spoils()
        if body is None or how == "missing":
            return None
        came = body if how is None else _SPOILS[how](body)
        return came, len(body) if how == "cut in transfer" else len(came)

    def _spoils(self) -> Spoilt | None:
        until, how = self._spoilt
        if self.clock.now < until:
            return how
        if self._rng.random() >= self.statuses.rate:
            return None
        how = self._rng.choice(self.statuses.ways)
        self._spoilt = self.clock.now + self._rng.choice(self.statuses.lasts), how
        return how

    def put(self, key: str, body: bytes) -> None:
        self._objects[key] = self.clock.now, body


def _with(body: bytes, **more: Any) -> bytes:
    """A status that reports something else. An invalid status stays as it is."""
    try:
        found = json.loads(body)
    except ValueError:
        return body
    return json.dumps(found | {name: change(found[name]) for name, change in more.items()}).encode()


_SPOILS: dict[Spoilt, Callable[[bytes], bytes]] = {
    "empty": lambda body: b"",
    "cut off": lambda body: body[: len(body) // 2],
    "cut in transfer": lambda body: body[: len(body) // 2],
    "half a character": lambda body: body + "é".encode()[:1],
    "ahead": lambda body: _with(body, beat=lambda beat: beat + 400),
    "another version": lambda body: _with(body, schema=lambda schema: schema + 1),
}


@dataclass(slots=True)
class Temper:
    """The character of this agent, drawn once for a lifetime."""

    saves: Saves
    late: float = 0.0
    """How many seconds each look may be late."""
    backup: tuple[float, float] = (5, 120)
    """Duration of a backup in seconds."""
    fails: float = 0.0
    """Probability that a backup fails."""
    another_version: bool = False
    """It refuses the requests of deployments."""


class Work(NamedTuple):
    """What is on a node, and what its requests say of it."""

    jobs: str
    running: bool
    """They may run on."""
    forced: bool
    backup: bool
    down: bool

    @property
    def timed_out(self) -> tuple[str, str]:
        return "timed-out", f"went back to work at its deadline; jobs: {self.jobs}"


class Agent:
    def __init__(self, clock: Clock, rng: Random, bucket: Bucket, slurm: Slurm, temper: Temper) -> None:
        self.clock, self.rng, self.bucket, self.slurm, self.temper = clock, rng, bucket, slurm, temper
        self.lives = False
        self.slurmctld_away_until = 0.0
        self.spoils_next = False
        """Its next status is cut off in the middle."""
        self.said = -inf
        """When it last wrote a status, readable or not."""
        self._read: dict[str, Mapping[str, Any] | None] = dict.fromkeys(WRITERS)
        """Absent: not read since its start."""
        self._refused: dict[str, str] = {}
        self._nodes: dict[str, Any] = {}
        self._due = 0.0
        self._spoilt = False

    def begin(self) -> None:
        self._read, self._refused, self._nodes = dict.fromkeys(WRITERS), {}, {}
        self.lives = True
        self.wake()

    def die(self) -> None:
        self.lives = False

    def wake(self) -> None:
        """It looks within its ten seconds, plus its delay."""
        if self.lives:
            self._look_in(self.rng.uniform(0.2, LOOKS) + self.rng.uniform(0, self.temper.late))

    def _look_in(self, seconds: float) -> None:
        at = self.clock.now + seconds
        if not self.clock.now < self._due <= at:
            self._due = at
            self.clock.later(seconds, self._look_if_due)

    def _look_if_due(self) -> None:
        if self.lives and self.clock.now >= self._due:
            self.look()

    def beat(self) -> None:
        """It writes a status once a minute. This is computed when the status is read."""
        found = self.bucket.get(STATUS)
        if self.lives and (found is None or self._spoilt or json.loads(found)["beat"] < self.bucket.time - 60):
            self._tell(self.rng.uniform(0, 55))

    # -- one look --

    def look(self) -> None:
        if self.clock.now >= self.slurmctld_away_until:
            self._read_requests()
            self._nodes = self._see_to_all()
        self._tell(0)
        restless = any(each["state"] not in ("ready", "timed-out", "backup-failed") for each in self._nodes.values())
        if restless or self.clock.now < self.slurmctld_away_until or self.clock.now < self.bucket.reads_fail_until:
            self._look_in(LOOKS)
        elif self._nodes or self.slurm.holds:
            self._look_in(60)

    def _read_requests(self) -> None:
        if self.clock.now < self.bucket.reads_fail_until:
            return
        self._refused = {}
        for who in WRITERS:
            body = self.bucket.get(f"requests/{who}.json")
            try:
                found: Any = {"id": "", "nodes": []} if body is None else json.loads(body)
                asked = {request["id"]: request for request in found["nodes"]}
            except (ValueError, KeyError, TypeError):
                self._refused[who] = f"the request of the {who} is broken"
                continue
            if self.temper.another_version and who == "deployment" and asked:
                self._refused[who] = "the request of the deployment is of another version"
                continue
            self._read[who] = {"id": found["id"], "nodes": asked}

    def _see_to_all(self) -> dict[str, Any]:
        now = self.bucket.time
        requests: dict[str, dict[str, NodeRequest]] = {}
        for who, found in self._read.items():
            for node_id, request in (found["nodes"] if found else {}).items():
                if request["expires"] > now:
                    requests.setdefault(node_id, {})[who] = request
        told = {node_id: self._see_to(node_id, asked, now) for node_id, asked in requests.items()}
        if None not in self._read.values():
            here = {node.id for node in self.slurm.nodes()}
            for node_id in [each for each in self.slurm.holds if each not in requests or each not in here]:
                del self.slurm.holds[node_id]
        return told

    def _see_to(self, node_id: str, asked: Mapping[str, NodeRequest], now: float) -> dict[str, Any]:
        requests = list(asked.values())
        state, message, more = self._state(node_id, requests, now)
        hold = self.slurm.holds.get(node_id)
        return {
            "state": state,
            "message": message,
            "jobs": [job.told() for job in self.slurm.jobs_on(node_id)],
            "saved": bool(hold and hold.saved),
            "requests": {who: request["request"] for who, request in asked.items()},
            "ip": requests[0]["ip"],
            **more,
        }

    def _state(self, node_id: str, requests: list[NodeRequest], now: float) -> tuple[str, str, dict[str, Any]]:
        slurm = self.slurm
        node = slurm.find(node_id)
        if node is None or (node.status == "Pending" and node_id not in slurm.holds):
            return "unknown", NO_INSTANCE, {}
        if any(request["ip"] != node.address for request in requests):
            return "unknown", f"has the address {node.address} on the controller", {}
        if node_id in slurm.absent:
            return "unknown", "Slurm has no node with the address", {"absent": True}
        work = Work(
            jobs=", ".join(f"{job.name} of {job.user}" for job in slurm.jobs_on(node_id)),
            running=any(now < request["deadline"] for request in requests),
            forced=any(now >= request["deadline"] and request["on_timeout"] == "force" for request in requests),
            backup=self.temper.saves != "nothing" and any(request["backup"] for request in requests),
            down=slurm.is_down(node),
        )
        hold = slurm.holds.get(node_id)
        if hold is None and node_id in slurm.others:
            return *self._of_another(node_id, work), {}
        if hold is None and work.jobs and not (work.running or work.forced):
            return *work.timed_out, {}
        return *self._held(node, slurm.holds.setdefault(node_id, Hold()), work), {}

    def _of_another(self, node_id: str, work: Work) -> tuple[str, str]:
        """Another has drained it."""
        if work.jobs and work.forced:
            self.slurm.end_jobs(node_id, self.rng.uniform(2, 30))
        if work.jobs:
            return "draining", f"jobs: {work.jobs}"
        must = self.temper.saves == "or fails" and work.backup
        return "backup-failed" if must else "ready", "another has drained it"

    def _held(self, node: Node, hold: Hold, work: Work) -> tuple[str, str]:
        unsaved = work.backup and not hold.saved
        if hold.drained and not (unsaved and hold.tries == 0 and self.slurm.responds(node)):
            return "ready", ""
        # A person has drained it without a backup. No job of root's can run there in its reservation until it is
        # resumed.
        hold.drained = False
        if work.down and unsaved and self.temper.saves == "or fails":
            return "backup-failed", "is down, and no job can run there"
        if work.down:
            hold.drained = True
            return "ready", "does not respond, nothing could be saved"
        if not self.slurm.responds(node):
            return "draining", "does not respond"
        if work.jobs:
            return self._with_jobs(str(node.id), work)
        if unsaved and (state := self._save(hold)):
            return state
        hold.drained = True
        return "ready", ""

    def _with_jobs(self, node_id: str, work: Work) -> tuple[str, str]:
        if work.forced:
            self.slurm.end_jobs(node_id, self.rng.uniform(2, 30))
        elif not work.running:
            del self.slurm.holds[node_id]
            return work.timed_out
        return "draining", f"jobs: {work.jobs}"

    def _save(self, hold: Hold) -> tuple[str, str] | None:
        """Absent: it is backed up, or need not be."""
        now = self.clock.now
        if hold.tries >= 3:
            return ("backup-failed", "could not be saved") if self.temper.saves == "or fails" else None
        if hold.backup is None:
            hold.backup = Backup(now + self.rng.uniform(*self.temper.backup), self.rng.random() >= self.temper.fails)
        if now < hold.backup.ends:
            return "backing-up", "is being saved"
        hold.saved = hold.backup.works
        hold.tries += not hold.saved
        hold.backup = None
        return None if hold.saved else ("backing-up", "is saved once more")

    def _tell(self, ago: float) -> None:
        if self.clock.now < self.bucket.writes_fail_until:
            return
        away = self.clock.now < self.slurmctld_away_until
        body = status(
            self.bucket.time - ago,
            requests={who: found["id"] for who, found in self._read.items() if found},
            refused=self._refused,
            problem="Unable to contact slurm controller" if away else "",
            busy=self.slurm.busy(),
            backup=None if self.temper.saves == "nothing" else "/fsx/backup",
            nodes=self._nodes,
        )
        self.said = self.clock.now - ago
        self._spoilt, self.spoils_next = self.spoils_next, False
        self.bucket.put(STATUS, body[: len(body) // 2] if self._spoilt else body)
