"""Jobs, and Slurm's behaviour as far as draining a node needs it: which jobs run where, and which may start.

Written from the observed behaviour of Slurm: a reservation of root's lets no new job start and does not affect running
jobs, and so does a drain; a job on several nodes ends on all of them; a node that does not respond is given up after a
while, with its jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random

from .clock import Clock
from .hyperpod import Node

GIVES_UP = 300.0
"""Seconds after which Slurm treats a node that does not respond as down (SlurmdTimeout)."""


@dataclass(slots=True, eq=False)
class Job:
    name: str
    nodes: frozenset[str]
    """Ids of its nodes."""
    ends: float
    user: str = "alice"

    def told(self) -> dict[str, str]:
        """In the form of the agent's report."""
        return {"id": self.name, "user": self.user}


@dataclass(slots=True, eq=False)
class Backup:
    """A job of root's in the reservation."""

    ends: float
    works: bool


@dataclass(slots=True, eq=False)
class Hold:
    """The agent's reservation on a node, and its drain. The agent remembers nothing else of a node."""

    drained: bool = False
    saved: bool = False
    """Everything since its last job."""
    backup: Backup | None = None
    tries: int = 0
    """Failed backups."""


@dataclass(slots=True)
class Habits:
    """The habits of a cluster's users."""

    arrivals: float
    """Probability that a free node gets a job within a minute or two."""
    spans: tuple[tuple[float, float], ...] = ((30, 600), (600, 3000), (3000, 40000), (inf, inf))
    weights: tuple[float, ...] = (5, 3, 1.5, 0.5)
    """Durations of jobs in seconds, and their probabilities."""


class Slurm:
    """Every running node except the controller is in slurm.conf, unless it is in `absent`."""

    def __init__(self, clock: Clock, rng: Random, nodes: Callable[[], Iterable[Node]], habits: Habits) -> None:
        """`nodes`: those with an instance that are not shutting down."""
        self.clock, self.rng, self.nodes, self.habits = clock, rng, nodes, habits
        self.jobs: list[Job] = []
        self.holds: dict[str, Hold] = {}
        """By instance id."""
        self.others: dict[str, str] = {}
        """Nodes that another party has drained, and the reason."""
        self.absent: set[str] = set()
        self.open = True
        """Users submit jobs."""
        self._down: dict[str, float] = {}
        """Since when nodes do not respond."""
        self._count = 0

    def find(self, node_id: str) -> Node | None:
        return next((node for node in self.nodes() if node.id == node_id), None)

    def jobs_on(self, node_id: str) -> list[Job]:
        return [job for job in self.jobs if node_id in job.nodes and job.ends > self.clock.now]

    def busy(self) -> dict[str, list[dict[str, str]]]:
        """Node -> its jobs, in the form of the agent's report."""
        nodes = {node for job in self.jobs if job.ends > self.clock.now for node in job.nodes}
        return {node: [job.told() for job in self.jobs_on(node)] for node in sorted(nodes)}

    def may_start(self, node: Node) -> bool:
        """Whether a job can start there."""
        return (
            node.status == "Running"
            and node.id is not None
            and not (node.id in self.holds or node.id in self.others or node.id in self.absent)
        )

    def responds(self, node: Node) -> bool:
        return node.status != "Failure"

    def is_down(self, node: Node) -> bool:
        """Slurm has given it up, and its jobs with it."""
        assert node.id
        if self.responds(node):
            self._down.pop(node.id, None)
            return False
        since = self._down.setdefault(node.id, self.clock.now)
        if self.clock.now < since + GIVES_UP:
            return False
        self.end_jobs(node.id, 0)
        return True

    def unready(self, node: Node, *, must_be_saved: bool) -> str:
        """What would be lost if it were deleted now; empty: nothing."""
        if node.id is None:
            return ""
        if jobs := self.jobs_on(node.id):
            return f"{jobs[0].name} runs"
        if self.may_start(node):
            return "a job may start"
        hold = self.holds.get(node.id)
        if must_be_saved and hold is None and node.id in self.others:
            return "is not saved"
        # If no job of root's can run there, no backup is possible.
        can_be = self.responds(node) and node.id not in self.others and node.id not in self.absent
        return "is not saved" if must_be_saved and hold and not hold.saved and can_be else ""

    # -- jobs --

    def begin(self) -> None:
        for node in list(self.nodes()):
            if self.rng.random() < min(1.0, 2 * self.habits.arrivals):
                self._start(node)
        self._tick()

    def _tick(self) -> None:
        if not self.open:
            return
        here = {node.id for node in self.nodes()}
        # A deleted node ends its jobs on every node.
        self.jobs = [job for job in self.jobs if job.ends > self.clock.now and job.nodes <= here]
        for node in list(self.nodes()):
            if self.may_start(node) and not self.jobs_on(node.id or "") and self.rng.random() < self.habits.arrivals:
                self._start(node)
        self.clock.later(self.rng.uniform(30, 120), self._tick)

    def _start(self, node: Node) -> None:
        assert node.id
        if not self.may_start(node):
            return
        nodes = {node.id}
        if self.rng.random() < 0.2:
            free = [each.id for each in self.nodes() if each.id and self.may_start(each) and not self.jobs_on(each.id)]
            nodes |= set(free[:2])
        span = self.rng.choices(self.habits.spans, self.habits.weights)[0]
        lasts = inf if span[0] == inf else self.rng.uniform(*span)
        self._count += 1
        self.jobs.append(Job(f"job {self._count}", frozenset(nodes), self.clock.now + lasts))

    def end_jobs(self, node_id: str, within: float) -> None:
        """They are requeued, or cancelled."""
        for job in self.jobs_on(node_id):
            job.ends = min(job.ends, self.clock.now + within)

    # -- others --

    def fails(self, node: Node) -> None:
        """Its jobs may continue for a while. HyperPod may drain it for its repair."""
        assert node.id
        if self.rng.random() < 0.5:
            self.others.setdefault(node.id, "Action:Replace")

    def resumes(self, node_id: str) -> None:
        """A person removes the reservation and the drain manually."""
        self.holds.pop(node_id, None)
        if node := self.find(node_id):
            self.clock.later(1, partial(self._start, node))
