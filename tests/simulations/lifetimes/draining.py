"""Nodes that are drained before they are deleted: the settings in the file, the actor, and the faults.

Only lifetimes that drain have one of these, and it has its own random numbers, so that the other lifetimes stay the
same. `Draining` is common to both ways; `ByAgent` is Slurm's way, and eks.py has the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .agent import Agent, Bucket, Saves, Temper
from .cloudformation import Deployment, Template
from .function import PREPARE, Request
from .hyperpod import Node, Refused
from .slurm import Habits, Slurm
from .switches import Statuses, draw_statuses

if TYPE_CHECKING:
    from .lifetime import Lifetime

SILENT = 179.9
"""Seconds after which an actor without a readable answer counts as silent: three minutes, by either clock."""

LONGEST = 24 * 3600.0
"""Maximum seconds for which a node may be held."""


BUCKET = ("Bucket", "hyperpod-drain-111122223333-us-west-2")


@dataclass(frozen=True, slots=True)
class Policy:
    """The drain settings of the file."""

    minutes: int
    force: bool
    undrained: bool
    must_be_saved: bool

    channel: tuple[str, str] = BUCKET
    """How the property names the actor that drains."""
    unmanaged: str = "fail"
    """With EKS: what happens to pods without a controller."""

    def text(self) -> str:
        """The form of the property."""
        return json.dumps(
            {
                self.channel[0]: self.channel[1],
                "TimeoutMinutes": self.minutes,
                "OnTimeout": "force" if self.force else "fail",
                "OnSilent": "undrained" if self.undrained else "fail",
                "MustBeSaved": self.must_be_saved,
                **({"UnmanagedPods": self.unmanaged} if self.channel[0] == "Function" else {}),
            },
            sort_keys=True,
        )


def read_policy(text: str | None) -> Policy | None:
    if not text:
        return None
    found = json.loads(text)
    return Policy(
        int(found["TimeoutMinutes"]),
        found["OnTimeout"] == "force",
        found["OnSilent"] == "undrained",
        str(found["MustBeSaved"]).lower() == "true",
        BUCKET if "Bucket" in found else ("Function", found["Function"]),
        found.get("UnmanagedPods", "fail"),
    )


class Heard(NamedTuple):
    """The agent's status, as the function read it, or the drainer's answer."""

    at: float
    found: dict[str, Any] | None
    """Absent: there was none, or it is not readable."""
    silent: bool
    """Really silent: it has written nothing for three minutes, or nothing readable for as long."""


class Undone(NamedTuple):
    """Another party undid what the agent had done to a node."""

    at: float
    node: str


class Draining:
    """The interface for the function and the judge, for both ways."""

    deeds: ClassVar[Mapping[str, tuple[float, Callable[[Any], None]]]]
    """The faults, and how likely each is."""
    channel: ClassVar[tuple[str, str]] = BUCKET

    def __init__(self, life: Lifetime, rng: Random) -> None:
        self.life, self.rng = life, rng
        self.is_there = True
        """There is an actor that drains."""
        self.unready: dict[Node, str] = {}
        """Nodes that were terminated, and what should have prevented it; empty: nothing."""
        self.undone: list[Undone] = []
        self._must = False
        """Nodes must be backed up before they are deleted."""
        self._rights_from: float | None = None
        """When the function got its permissions; absent: it has none."""
        self._request_ids: set[str] = set()
        self.function_out: tuple[float, str] = (0.0, "")
        """Until when the function's calls fail, and with which error."""
        self._left = 0
        """Actions that may still happen."""
        life.pod.watch = self._ends

    def _ends(self, node: Node) -> None:
        raise NotImplementedError

    def begin(self, file: Template) -> None:
        self._rights_from = 0.0 if file.drain else None

    def finish(self) -> None:
        """No party acts any more, and all faults are repaired."""
        self._left = 0

    def nodes(self) -> Iterable[Node]:
        """Nodes that can be held: with an instance, and not shutting down."""
        for group in self.life.pod.groups.values():
            if not group.controller:
                yield from (node for node in group.nodes if node.id and not node.leaving)

    def wanted(self) -> list[str]:
        """Ids of nodes that are held for a deployment."""
        raise NotImplementedError

    def held(self) -> Iterable[str]:
        """Ids of nodes that are held, and that no party will release."""
        raise NotImplementedError

    # -- the file --

    def first(self, file: Template) -> Template:
        return replace(file, drain=self._policy()) if self.rng.random() < 0.85 else file

    def change(self, file: Template) -> Template:
        dice = self.rng.random()
        if dice < 0.05:
            return replace(file, drain="")
        if dice < 0.3 or not file.drain:
            return replace(file, drain=self._policy())
        return file

    def _policy(self) -> str:
        rng = self.rng
        minutes = rng.choice([1, 5, 10, 25, 30])
        return Policy(minutes, rng.random() < 0.4, rng.random() < 0.3, self._must, self.channel).text()

    # -- as time goes --

    def deployment_begins(self, deployment: Deployment) -> None:
        if not deployment.new.drain:
            self._rights_from = None
        elif self._rights_from is None:
            self._rights_from = self.life.clock.now + self.rng.choice([0.0, 0.0, 10.0, 60.0])
        for _ in range(2):
            if self.rng.random() < 0.5:
                self.life.clock.later(self.rng.uniform(0, 1800), self._act)

    def rollback_begins(self, deployment: Deployment) -> None:
        """The stack from before returns first, and with it the function's permissions."""
        before = deployment.before.get(PREPARE)
        if not (before and before.drain):
            self._rights_from = None
        elif self._rights_from is None:
            self._rights_from = self.life.clock.now

    def between_calls(self) -> None:
        if self._left > 0 and self.rng.random() < 0.006:
            self._act()

    def _act(self) -> None:
        if self._left <= 0 or not self.life.pod.exists:
            return
        self._left -= 1
        what = self.rng.choices(list(self.deeds), [weight for weight, _ in self.deeds.values()])[0]
        self.life.tell(f"    * {what}")
        self.deeds[what][1](self)

    # -- what the function calls --

    def serve(self, operation: str) -> None:
        """Raises the error of S3 or Lambda, if there is one."""
        until, code = self.function_out
        if self._rights_from is None or self.life.clock.now < self._rights_from:
            code = "AccessDenied"
        elif self.life.clock.now >= until:
            return
        raise Refused(code, f"{operation}: {code}", 403 if code == "AccessDenied" else 503)

    def all_ready(self, heard: Heard, request_ids: set[str]) -> bool:
        """Whether the agent now reports all requested nodes as ready, and as saved if they must be."""
        told = {} if heard.found is None or heard.silent else heard.found["nodes"]
        wanted = self.wanted()
        return bool(wanted) and all(
            node in told
            and told[node]["state"] == "ready"
            and (told[node]["saved"] or not self._must)
            and told[node]["requests"].get("deployment") in request_ids
            for node in wanted
        )

    def new_request_ids(self, node_requests: Iterable[Mapping[str, Any]]) -> set[str]:
        """New ids for nodes that were not requested before. A node that is already draining keeps its earlier id."""
        for node_request in node_requests:
            if node_request["expires"] - self.life.clock.datetime().timestamp() > LONGEST:
                self.life.judge.fault("a node is held for more than a day", str(node_request))
        new = {node_request["request"] for node_request in node_requests} - self._request_ids
        self._request_ids |= new
        return new


class ByAgent(Draining):
    """The Slurm way, with the agent on the controller."""

    def __init__(self, life: Lifetime, rng: Random) -> None:
        super().__init__(life, rng)
        clock = life.clock
        saves: Saves = rng.choice(["nothing", "or fails", "or fails", "or goes on"])
        self._must = saves == "or fails"
        if self._must and rng.random() < 0.07:
            saves = "nothing"  # It has been running since before the backup was in the file.
        temper = Temper(
            saves=saves,
            late=rng.choice([0.0, 0.0, 0.0, 60.0, 150.0]),
            backup=rng.choice([(2.0, 30.0), (30.0, 400.0), (400.0, 2500.0)]),
            fails=rng.choice([0.0, 0.0, 0.1, 0.7]),
            another_version=rng.random() < 0.03,
        )
        dice = Random(f"{life.seed} the statuses")
        skew = rng.choice([0.0, 0.0, 0.0, 5.0, -5.0, 170.0, -170.0, 300.0, -300.0])
        self.bucket = Bucket(clock, skew, draw_statuses(dice), dice)
        self.slurm = Slurm(clock, rng, self.nodes, Habits(arrivals=rng.choice([0.02, 0.2, 0.6])))
        self.agent = Agent(clock, rng, self.bucket, self.slurm, temper)
        self.is_there = rng.random() < 0.93
        self._broken = False
        """The operator's current request."""
        self._unread: dict[Request, float] = {}
        """Requests that read nothing usable, and since when."""
        self._left = rng.choice([0, 1, 2, 4, 8])

    def _ends(self, node: Node) -> None:
        self.unready[node] = self.slurm.unready(node, must_be_saved=True)

    # -- as time goes --

    def begin(self, file: Template) -> None:
        super().begin(file)
        self.slurm.begin()
        if self.is_there:
            self.agent.begin()
            self.agent.beat()
        self.life.tell(f"drains: {asdict(self.agent.temper)}, agent {self.is_there}, S3 {self.bucket.skew:+.0f} s")
        self.life.tell(str(self.bucket.statuses))

    def finish(self) -> None:
        """No party acts any more, the agent is repaired, and a day passes."""
        super().finish()
        self.slurm.open = False
        self.agent.slurmctld_away_until = self.bucket.reads_fail_until = self.bucket.writes_fail_until = 0.0
        self.agent.spoils_next, self.bucket.statuses = False, Statuses()
        if self.is_there and not self.agent.lives:
            self.agent.begin()
        if self._broken:
            self._operator([], whole=True)  # The agent's message says so, whatever command is used.
        self.agent.wake()
        self.life.clock.pass_time(LONGEST + 3600)

    # -- what the function calls --

    def read(self, key: str, request: Request, began: float) -> tuple[tuple[bytes, int] | None, Heard]:
        """The status from a read that began then: its content and length, and what can be known from it."""
        if self.agent.lives:
            self.agent.beat()
        sent = self.bucket.sent(key.partition("/")[2])
        heard = self.hear(request, began, self._understood(*sent) if sent else None)
        if heard.found is None:
            self.life.tell(
                f"    GetObject: {f'{len(sent[0])} of {sent[1]} bytes' if sent else 'NoSuchKey'}, and no status"
            )
        return sent, heard

    def _understood(self, body: bytes, length: int) -> dict[str, Any] | None:
        """Absent: it is not readable."""
        if len(body) != length:
            return None
        try:
            found: dict[str, Any] = json.loads(body)
            whole = found["schema"] == 1 and 0 <= found["beat"] <= self.bucket.time + SILENT
        except (ValueError, KeyError, TypeError):
            return None
        return found if whole else None

    def hear(self, request: Request, began: float, found: dict[str, Any] | None) -> Heard:
        """Silent means that it has really written nothing, or that none of it was readable all the time."""
        now = self.life.clock.now
        quiet = now - self.agent.said > SILENT
        if found is not None:
            self._unread.pop(request, None)
            return Heard(now, found, quiet)
        return Heard(now, None, quiet or now - self._unread.setdefault(request, began) >= SILENT)

    def write(self, key: str, body: bytes) -> set[str]:
        """In the form of new_request_ids."""
        judge, own = self.life.judge, key.partition("/")[2]
        if own != "requests/deployment.json":
            judge.fault("the function writes what is another's", key)
        self.bucket.put(own, body)
        self.agent.wake()
        return self.new_request_ids(json.loads(body)["nodes"])

    def wanted(self) -> list[str]:
        """Nodes that the deployment's request contains now."""
        body = self.bucket.get("requests/deployment.json")
        return [node_request["id"] for node_request in json.loads(body)["nodes"]] if body else []

    def held(self) -> Iterable[str]:
        return self.slurm.holds if self.is_there else ()

    # -- what goes wrong --

    def _agent_dies(self) -> None:
        self.agent.die()
        if self.is_there:
            self.life.clock.later(self.rng.choice([3.0, 3.0, 20.0, 200.0, 400.0, 2000.0, 20000.0]), self.agent.begin)

    def _agent_reads_nothing(self) -> None:
        self.bucket.reads_fail_until = self.life.clock.now + self.rng.choice([60.0, 400.0, 1500.0])

    def _agent_writes_nothing(self) -> None:
        self.bucket.writes_fail_until = self.life.clock.now + self.rng.choice([60.0, 400.0, 1500.0])

    def _function_is_refused(self) -> None:
        code = self.rng.choice(["AccessDenied", "SlowDown", "ServiceUnavailable", "InternalError"])
        self.function_out = (self.life.clock.now + self.rng.choice([20.0, 200.0, 700.0, 1500.0]), code)

    def _status_is_cut(self) -> None:
        self.agent.spoils_next = True

    def _slurmctld_restarts(self) -> None:
        self.agent.slurmctld_away_until = self.life.clock.now + self.rng.choice([20.0, 100.0, 600.0])
        self.agent.wake()

    def _operator_drains(self) -> None:
        rng, now = self.rng, self.life.clock.datetime().timestamp()
        nodes = list(self.slurm.nodes())
        hold = rng.choice([600.0, 3600.0, 12 * 3600.0])
        node_requests = [
            {
                "id": node.id,
                "ip": node.address,
                "request": f"operator-{now:.0f}",
                "deadline": now + rng.choice([300.0, hold]),
                "expires": now + hold,
                "on_timeout": rng.choice(["fail", "force"]),
                "backup": rng.random() < 0.7,
            }
            for node in rng.sample(nodes, min(len(nodes), rng.choice([1, 2])))
        ]
        self._operator(node_requests)

    def _operator_undrains(self) -> None:
        self._operator([])

    def _operator(self, node_requests: list[dict[str, Any]], *, whole: bool = False) -> None:
        now = self.life.clock.datetime().timestamp()
        # Sometimes cut off in the middle. The agent then continues with what it read before.
        body = json.dumps({"schema": 1, "id": f"operator-{now:.0f}", "nodes": node_requests}).encode()
        self._broken = not whole and self.rng.random() < 0.1
        self.bucket.put("requests/operator.json", body[: len(body) // 2] if self._broken else body)
        self.agent.wake()

    def _a_person_resumes(self) -> None:
        if self.slurm.holds:
            node = self.rng.choice(list(self.slurm.holds))
            self.undone.append(Undone(self.life.clock.now, node))
            self.slurm.resumes(node)

    def _another_drains(self) -> None:
        if nodes := [node.id for node in self.slurm.nodes() if node.id and node.id not in self.slurm.holds]:
            self.slurm.others[self.rng.choice(nodes)] = "bad disk"

    def _another_undrains(self) -> None:
        if self.slurm.others:
            node = self.rng.choice(list(self.slurm.others))
            self.undone.append(Undone(self.life.clock.now, node))
            del self.slurm.others[node]

    def _a_node_leaves_slurm(self) -> None:
        if nodes := [node.id for node in self.slurm.nodes() if node.id]:
            node = self.rng.choice(nodes)
            self.slurm.absent.add(node)
            self.slurm.end_jobs(node, 0)

    def _a_node_fails(self) -> None:
        """A held node, if there is one."""
        if nodes := [node for node in self.slurm.nodes() if node.status == "Running"]:
            held = [node for node in nodes if node.id in self.slurm.holds]
            node = self.rng.choice(held or nodes)
            self.life.pod.fail(node)
            self.slurm.fails(node)


ByAgent.deeds = {
    "the agent dies": (3, ByAgent._agent_dies),
    "the agent cannot read": (1, ByAgent._agent_reads_nothing),
    "the agent cannot write": (1, ByAgent._agent_writes_nothing),
    "S3 refuses the function": (2, ByAgent._function_is_refused),
    "a status is cut off": (1, ByAgent._status_is_cut),
    "slurmctld restarts": (1, ByAgent._slurmctld_restarts),
    "an operator drains": (2, ByAgent._operator_drains),
    "an operator undrains": (1, ByAgent._operator_undrains),
    "a person resumes a node by hand": (2, ByAgent._a_person_resumes),
    "somebody else drains a node": (1, ByAgent._another_drains),
    "somebody else undrains a node": (1, ByAgent._another_undrains),
    "a node leaves slurm.conf": (1, ByAgent._a_node_leaves_slurm),
    "a node fails": (2, ByAgent._a_node_fails),
}
