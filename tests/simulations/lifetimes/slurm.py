"""Jobs, and what Slurm does with them, as far as draining a node needs it: who runs where, and what may start there.

Written from what Slurm was seen to do: a reservation of root's lets no new job start and leaves those that run alone; so does
a drain; a job on several nodes ends on all of them; a node that does not respond is given up after a while, with its jobs.
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
"""Seconds after which Slurm takes a node for down that does not respond (SlurmdTimeout)."""


@dataclass(slots=True, eq=False)
class Job:
    name: str
    nodes: frozenset[str]
    """Ids of its nodes."""
    ends: float
    user: str = "alice"

    def told(self) -> dict[str, str]:
        """As the agent reports it."""
        return {"id": self.name, "user": self.user}


@dataclass(slots=True, eq=False)
class Backup:
    """A job of root's in the reservation."""

    ends: float
    works: bool


@dataclass(slots=True, eq=False)
class Hold:
    """The agent's reservation on a node, and its drain. All that the agent remembers of a node is here."""

    drained: bool = False
    saved: bool = False
    """All of it, since its last job."""
    backup: Backup | None = None
    tries: int = 0
    """Backups that failed."""


@dataclass(slots=True)
class Habits:
    """How the users of a cluster go about it."""

    arrivals: float
    """How often a free node gets a job within a minute or two."""
    spans: tuple[tuple[float, float], ...] = ((30, 600), (600, 3000), (3000, 40000), (inf, inf))
    weights: tuple[float, ...] = (5, 3, 1.5, 0.5)
    """How long jobs run, in seconds, and how often so."""


class Slurm:
    """Every node that HyperPod runs and that is no controller is in slurm.conf, but for those that are `absent`."""

    def __init__(self, clock: Clock, rng: Random, nodes: Callable[[], Iterable[Node]], habits: Habits) -> None:
        """`nodes`: those with an instance that are not shutting down."""
        self.clock, self.rng, self.nodes, self.habits = clock, rng, nodes, habits
        self.jobs: list[Job] = []
        self.holds: dict[str, Hold] = {}
        """By the instance's id."""
        self.others: dict[str, str] = {}
        """Nodes that somebody else has drained, and the reason."""
        self.absent: set[str] = set()
        self.open = True
        """Users send jobs."""
        self._down: dict[str, float] = {}
        """Since when nodes do not respond."""
        self._count = 0

    def find(self, node_id: str) -> Node | None:
        return next((node for node in self.nodes() if node.id == node_id), None)

    def jobs_on(self, node_id: str) -> list[Job]:
        return [job for job in self.jobs if node_id in job.nodes and job.ends > self.clock.now]

    def busy(self) -> dict[str, list[dict[str, str]]]:
        """Node -> its jobs, as the agent reports them."""
        nodes = {node for job in self.jobs if job.ends > self.clock.now for node in job.nodes}
        return {node: [job.told() for job in self.jobs_on(node)] for node in sorted(nodes)}

    def may_start(self, node: Node) -> bool:
        """Whether a job may start there."""
        return (
            node.status == "Running"
            and node.id is not None
            and not (node.id in self.holds or node.id in self.others or node.id in self.absent)
        )

    def responds(self, node: Node) -> bool:
        return node.status != "Failure"

    def is_down(self, node: Node) -> bool:
        """It was given up, and its jobs with it."""
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
        """Why something would be lost if it went now; empty: nothing would."""
        if node.id is None:
            return ""
        if jobs := self.jobs_on(node.id):
            return f"{jobs[0].name} runs"
        if self.may_start(node):
            return "a job may start"
        hold = self.holds.get(node.id)
        # Where no job of root's can run, nothing can be saved.
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
        # A node that went takes its jobs with it, on every node.
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
        """Its jobs may go on for a while; HyperPod may drain it for its repair."""
        assert node.id
        if self.rng.random() < 0.5:
            self.others.setdefault(node.id, "Action:Replace")

    def resumes(self, node_id: str) -> None:
        """A person takes the reservation and the drain away, by hand."""
        self.holds.pop(node_id, None)
        if node := self.find(node_id):
            self.clock.later(1, partial(self._start, node))
