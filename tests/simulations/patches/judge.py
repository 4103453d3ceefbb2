"""Knows when each job ended and by whom, and which image each node has; nothing of it comes from `patch` but what it printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .world import NEW, Job, Node, Update, World

if TYPE_CHECKING:
    from .operators import Process

HELD_S = 7200.0
"""How long after the end of an update a node may be held while the command lives."""
SLACK_S = 180.0
"""What the agent's looks and a full minute take."""
JOINED_DURING_THE_UPDATE = "joined during the update"
"""The exemption of a node that HyperPod replaced in the second of the call and then updated: nothing can hold a node that Slurm or
Kubernetes does not have yet. A job that began before the next look runs on, and so does a pod that a budget protects
(docs/not-guaranteed.md)."""
LOOK_S = 150.0
"""Until a node that has just joined is held."""
LEASE_S = 600.0
"""The lease of a run that has sent nothing."""
_TIME = re.compile(r"until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC")


@dataclass
class Judge:
    """Collects what must not happen."""

    world: World
    processes: list[Process] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    operator_holds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Node -> from when until when a colleague's drain keeps jobs away."""
    calls: list[Update] = field(default_factory=list)
    exempt: list[str] = field(default_factory=list)
    """What ended a job unasked, and cannot be avoided: by name."""

    def fault(self, what: str) -> None:
        self.world.note(f"FAULT {what}")
        self.faults.append(what)

    # -- jobs -------------------------------------------------------------------------------------------------------

    def job_began(self, job: Job) -> None:
        begin, end = self.operator_holds.get(job.node.id, (0.0, 0.0))
        if self.world.releases and begin + SLACK_S < job.began < end - SLACK_S:
            self.fault("drain lost: a job begins on a node that a colleague has drained")

    def job_ended(self, job: Job, by: str) -> None:
        """By somebody: did the user say so?"""
        if by.startswith("image of patch") and self._has_joined_during_the_update(job):
            self.exempt.append(JOINED_DURING_THE_UPDATE)
        elif by.startswith("image of patch") and not (self.world.switches.eks and self._is_forced()):
            self.fault(f"job ended unasked: by the {by}")
        if by == "force of patch" and not self._is_forced():
            self.fault("job ended unasked: before --force-after of the run that shows it")

    def _has_joined_during_the_update(self, job: Job) -> bool:
        joined, stays = job.node.joins, job.protected or not self.world.switches.eks
        accepted = self.calls[-1].accepted if self.calls else joined
        return stays and joined > accepted and job.began < joined + LOOK_S

    def _is_forced(self) -> bool:
        now = self.world.now
        begun = [each for each in self.processes if each.began is not None]
        newest = max((each.began or 0.0 for each in begun if each.force_s is not None), default=None)
        for each in begun:
            if each.force_s is None or each.began is None or now < each.began + each.force_s - 5:
                continue
            if each.began == newest or each.alive:
                return True
            # A killed one's request lives on until another one is written.
            if each.killed and newest is not None and now < newest + SLACK_S:
                return True
        return False

    # -- images -----------------------------------------------------------------------------------------------------

    def re_imaged(self, node: Node, update: Update) -> None:
        """Before the node gets the image."""
        waiting = [n for n in self.world.nodes if n.job is not None and n.job.began < update.accepted - SLACK_S]
        if node.group == "head" and update.by.startswith("patch") and waiting:
            self.fault(f"queue lost: by the image of {update.by}")

    def called(self, update: Update) -> None:
        """HyperPod accepts a call of `patch`."""
        before = [each for each in self.calls if each.group == update.group]
        self.calls.append(update)
        if before and before[-1].by == update.by:
            self.fault("second call: one run has sent two")
        if before and not update.nodes and not before[-1].skipped and self.world.switches.versions:
            self.fault("second call: all nodes had the image")

    def said_patched(self, process: Process, groups: list[str]) -> None:
        for group in groups:
            old = [n.id for n in self.world.of(group) if n.here and n.image != NEW and n.status == "Running"]
            if old:
                self.fault(f"untrue: {group} is said to be patched, and {', '.join(old)} has the old image")

    # -- holds ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Every minute: is a node held too long, and do two operators work against each other?"""
        if len(self._at_work()) > 1:
            self.fault("two operators: both run")
        held = [node for node in self.world.nodes if "patch" in node.held_by and node.here]
        if not held or not self.world.releases or (self.world.switches.eks and not self._alive()):
            return
        alive = self._at_work()
        limit = max((self._limit(each) for each in alive or self.processes if each.began is not None), default=0.0)
        if self.world.now > limit + SLACK_S:
            self.fault(f"held too long: {'while the command lives' if alive else 'after its end'}")
            for node in held:
                node.held_by = frozenset()

    def _alive(self) -> list[Process]:
        return [each for each in self.processes if each.alive and each.is_awake]

    def _at_work(self) -> list[Process]:
        """Those that have had time to do something since they began or woke up."""
        return [each for each in self._alive() if self.world.now - each.awake_since > 900]

    def _limit(self, process: Process) -> float:
        own = [each for each in self.world.updates if each.by == process.name or each.by not in ("patch",)]
        if any(each.ended is None for each in own if each.accepted >= (process.began or 0.0)):
            return self.world.now
        if process in self._at_work():
            ended = max((each.ended or 0.0 for each in self.world.updates), default=process.awake_since)
            ended = max(ended, process.awake_since)
            return max((process.began or 0.0) + process.drain_for_s * process.groups, ended) + HELD_S
        if process in self._alive():
            return self.world.now
        printed = max((_seconds(found) for found in _TIME.findall("\n".join(process.output))), default=0.0)
        return max(printed, (process.ended or process.asleep_since) + LEASE_S) + 60

    def ended(self, process: Process) -> None:
        """A process has ended: what has it printed, and what does it leave?"""
        text = "\n".join(process.output)
        if process.error is not None and not process.killed:
            self.fault(f"crash: {process.error!r}")
        patched = [name for found in re.findall(r"^patched: (.*)$", text, re.MULTILINE) for name in found.split(", ")]
        self.said_patched(process, [name for name in patched if name in self.world.groups])
        if process.code == 0:
            self.world.time.at(self.world.now + SLACK_S, lambda: self._check_released(process))

    def _check_released(self, process: Process) -> None:
        if any(each.alive for each in self.processes if each is not process):
            return
        if self.world.releases and any("patch" in node.held_by for node in self.world.nodes if node.here):
            self.fault("held: after exit code 0")

    def outcomes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for each in self.processes:
            key = "killed" if each.killed else f"exit {each.code}"
            found[key] = found.get(key, 0) + 1
        return found


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()
