"""The Slurm controller of a Stack: the agent of tests/simulations/lifetimes, for the nodes of the first HyperPod model,
with its bucket.

The agent and Slurm have their own clock, which is set to the Stack's clock at each call.
"""

from __future__ import annotations

import email.utils
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Protocol

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from simulations.lifetimes import agent
from simulations.lifetimes.clock import EPOCH, Clock
from simulations.lifetimes.hyperpod import Node
from simulations.lifetimes.slurm import Habits, Hold, Job, Slurm
from simulations.lifetimes.switches import Statuses

NAME = "train"
STATUS, REQUEST = f"{NAME}/{agent.STATUS}", f"{NAME}/requests/deployment.json"
SAVING_S = 60.0


class Instance(Protocol):
    """A node of the first HyperPod model."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def group(self) -> str: ...
    @property
    def logical_id(self) -> str: ...
    @property
    def status(self) -> str: ...


class _Bucket(agent.Bucket):
    """Passes each status that the agent writes to `distort` first."""

    def __init__(self, clock: Clock, skew: float) -> None:
        super().__init__(clock, skew, Statuses(), Random(0))
        self.distort: Callable[[dict[str, Any]], object] = lambda status: None

    def put(self, key: str, body: bytes) -> None:
        if key == agent.STATUS:
            status = json.loads(body)
            self.distort(status)
            body = json.dumps(status).encode()
        super().put(key, body)

    def forget(self, key: str) -> None:
        self._objects.pop(key, None)


class _Holds(dict[str, Hold]):
    """Records when each hold ended."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.now = now
        self.ended: dict[str, float] = {}

    def __delitem__(self, node_id: str) -> None:
        super().__delitem__(node_id)
        self.ended[node_id] = self.now()


class _Slurm(Slurm):
    """Records on which nodes the agent has ended jobs, and when these ended."""

    ended: dict[str, float]

    def end_jobs(self, node_id: str, within: float) -> None:
        jobs = self.jobs_on(node_id)
        super().end_jobs(node_id, within)
        if jobs:
            self.ended[node_id] = max(job.ends for job in jobs)


class _Agent(agent.Agent):
    """Calls a function before each look."""

    def __init__(self, clock: Clock, rng: Random, bucket: _Bucket, slurm: _Slurm, temper: agent.Temper) -> None:
        super().__init__(clock, rng, bucket, slurm, temper)
        self.meddle: Callable[[], object] = lambda: None

    def look(self) -> None:
        self.meddle()
        super().look()


class Controller:
    """Times are seconds since 1970, as in the Stack. Node ids are instance ids."""

    def __init__(
        self, now: Callable[[], float], nodes: Callable[[], Iterable[Instance]], address: Callable[[str], str]
    ) -> None:
        """`nodes`: those of the cluster. `address`: the one that HyperPod reports for a node."""
        self.now, self._instances, self._address = now, nodes, address
        self._began = now()
        self._clock, rng = Clock(), Random(0)
        self.bucket = _Bucket(self._clock, self._began - EPOCH.timestamp())
        self.slurm = _Slurm(self._clock, rng, self._nodes, Habits(arrivals=0))
        self.slurm.holds = self._holds = _Holds(lambda: self._began + self._clock.now)
        self.slurm.ended = {}
        self.temper = agent.Temper("or fails", backup=(SAVING_S, SAVING_S))
        self._agent = _Agent(self._clock, rng, self.bucket, self.slurm, self.temper)
        self._addresses: dict[str, str] = {}
        self.strangers: set[str] = set()
        """Nodes that the controller has with another address."""
        self.denied: set[str] = set()
        """Calls that the function may not make."""
        self._agent.begin()

    # -- what is true

    @property
    def held(self) -> dict[str, Hold]:
        """The agent's actions, by node."""
        return self.slurm.holds

    @property
    def given_back(self) -> dict[str, float]:
        """When nodes were released, or deleted."""
        return self._holds.ended

    @given_back.setter
    def given_back(self, kept: dict[str, float]) -> None:
        self._holds.ended = kept

    @property
    def ended(self) -> dict[str, float]:
        """Nodes on which the agent has ended jobs, and when these ended."""
        return {node: self._began + at for node, at in self.slurm.ended.items()}

    @property
    def jobs(self) -> dict[str, float]:
        """Node -> when its last job ends."""
        return {node: self._began + job.ends for job in self.slurm.jobs for node in job.nodes}

    def runs(self, node_id: str, seconds: float) -> None:
        """A job runs there for this long from now."""
        self.slurm.jobs.append(Job("7", frozenset({node_id}), self.now() - self._began + seconds))

    def busy(self, node_id: str) -> bool:
        self.catch_up()
        return bool(self.slurm.jobs_on(node_id))

    def may_start(self, node_id: str) -> bool:
        """Whether Slurm would start a job there."""
        self.catch_up()
        node = self.slurm.find(node_id)
        return node is not None and self.slurm.may_start(node)

    def request(self) -> Any:
        """The deployment's request."""
        return json.loads(self.bucket.get("requests/deployment.json") or b"null")

    # -- what goes wrong

    def dies_in(self, seconds: float) -> None:
        """The agent is silent from then on."""
        self.catch_up()
        self._clock.later(seconds, self._dies)

    def _dies(self) -> None:
        self._agent.beat()
        self._agent.die()

    def was_never_installed(self) -> None:
        """There is no agent, and no status."""
        self._agent.die()
        self.bucket.forget(agent.STATUS)

    def reads_nothing(self) -> None:
        """The agent's reads of its requests fail from now on."""
        self.bucket.reads_fail_until = math.inf

    def meanwhile(self, meddle: Callable[[], object]) -> None:
        """The actions of others before each look of the agent."""
        self._agent.meddle = meddle

    def says(self, node_id: str, state: str, message: str) -> None:
        """The agent's report of a requested node, whatever it really does there."""

        def distort(status: dict[str, Any]) -> None:
            if node_id in status["nodes"]:
                status["nodes"][node_id] |= {"state": state, "message": message}

        self.bucket.distort = distort

    # -- S3

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self._check("GetObject", Bucket)
        assert Key == STATUS, f"the function reads nothing but the status: {Key}"
        self.catch_up()
        if self._agent.lives:
            self._agent.beat()
        body = self.bucket.get(agent.STATUS)
        if body is None:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
        return {
            "Body": io.BytesIO(body),
            "ContentLength": len(body),
            "ResponseMetadata": {"HTTPHeaders": {"date": email.utils.formatdate(self.bucket.time, usegmt=True)}},
        }

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> dict[str, Any]:
        self._check("PutObject", Bucket)
        assert Key == REQUEST, f"the function writes nothing but its request: {Key}"
        request = json.loads(Body)
        assert request["schema"] == 1, "the agent reads no other"
        assert all(node["ip"] for node in request["nodes"]), request
        self.catch_up()
        self.bucket.put("requests/deployment.json", Body)
        self._agent.wake()
        return {}

    def _check(self, operation: str, bucket: str) -> None:
        assert bucket == "drains"
        if operation in self.denied:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"no {operation}"}}, operation)

    # -- the agent's clock and nodes

    def catch_up(self) -> None:
        """Perform what the agent has done since the last call."""
        self._clock.pass_time(self.now() - self._began - self._clock.now)

    def _nodes(self) -> Iterator[Node]:
        for each in self._instances():
            if each.instance_id and each.status != "ShuttingDown":
                address = self._address_of(each.instance_id)
                yield Node(each.group, each.logical_id, 0.0, "person", each.instance_id, 0.0, address, each.status)

    def _address_of(self, node_id: str) -> str:
        if node_id in self.strangers:
            return "10.0.0.1"
        if node_id not in self._addresses:
            self._addresses[node_id] = self._address(node_id)
        return self._addresses[node_id]
