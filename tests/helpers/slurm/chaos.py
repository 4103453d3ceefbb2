"""Jobs of all kinds, requests of all kinds, and an agent that is killed at any moment: `make chaos-slurm`.

    python -m helpers.slurm.chaos 24.11 --jobs 1000 --kills 60 --seed 7

Alice submits single jobs, arrays and heterogeneous jobs, some of them into MAINT reservations of her own, while an operator asks
for nodes, with `force` and without, and gives them back; some nodes Slurm has drained before. A judge that is not the agent
looks at every node that is ready and saved, and compares it with its copy by diff; and asks Slurm's accounting at the end
which jobs were ended: each on a node whose jobs a request had told the agent to end by then.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node, slurm_cluster
from helpers.slurm.drains import UNIT, WORK, Drains
from helpers.slurm.hyperpod import LOGIN, SlurmVersion
from helpers.slurm.scripts import packed

SAVED = "/fsx/backup"
SUBMIT = "sbatch --parsable --chdir=/tmp --output=/dev/null"
BY_SLURM = "Kill task failed"
ENDED_BY_SOMEBODY = ("CANCELLED", "REQUEUED", "PREEMPTED", "FAILED", "NODE_FAIL", "TIMEOUT")
SLACK_S = 5
"""Time between an action and its entry in the accounting."""


@dataclass
class Found:
    """The results."""

    jobs: int = 0
    kills: int = 0
    requests: int = 0
    saved: int = 0
    """Nodes that were ready and saved, each compared with its copy."""
    ended: int = 0
    """Jobs, tasks and components that were ended."""
    faults: list[str] = field(default_factory=list)


class Chaos:
    """One run on a cluster. `seed` determines the actions, but not Slurm's decisions."""

    def __init__(self, cluster: Cluster, drains: Drains, seed: int) -> None:
        self.cluster, self.drains = cluster, drains
        self.random = random.Random(seed)
        self.found = Found()
        self.forced: list[tuple[str, float, float]] = []
        """Nodes whose jobs were to end, from and until when."""
        self.drained: set[str] = set()
        """Nodes that Slurm had drained before they were requested."""
        self.began = time.time()

    # -- alice

    def submit(self) -> int:
        """Submit some jobs; returns how many."""
        seconds = self.random.choice([1, 2, 3, 5, 10, 600])
        write = f"echo $SLURM_JOB_ID >>{WORK}/$SLURM_JOB_ID; sleep {seconds}; echo end >>{WORK}/$SLURM_JOB_ID"
        requeue = self.random.choice(["--requeue", "--no-requeue"])
        kind = self.random.choice(["one", "two nodes", "array", "array", "heterogeneous", "reserved"])
        where, count = {
            "one": ("-N1 -n1", 1),
            "two nodes": ("-N2", 1),
            "array": ("-N1 -n1 -c8 --array=0-3", 4),
            "heterogeneous": ("-p p5 -N1 : -p trn1 -N1", 2),
            "reserved": (f"-N1 --reservation=theirs-{self.random.choice(self.cluster.compute).name}", 1),
        }[kind]
        usual = "" if kind == "heterogeneous" else f"-p dev -x {LOGIN.name}"
        command = f"{SUBMIT} {requeue} {usual} {where} <<'END'\n#!/bin/bash\n{write}\nEND"
        done = self.cluster.login.try_run(command, user="alice")
        return count if done.returncode == 0 else 0

    # -- the operator

    def ask(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """Request these nodes; returns the request's id."""
        now = time.time()
        force = self.random.random() < 0.75
        node_request: dict[str, Any] = {
            "deadline": now + self.random.choice([-1, 2, 5]),
            "on_timeout": "force" if force else "fail",
            "backup": self.random.random() < 0.8,
        }
        for node in nodes:
            if self.random.random() < 0.2:
                run = self.cluster.controller.try_run
                state = f"scontrol update nodename={node.name} state=drain reason='{BY_SLURM}'"
                if run(state).returncode == 0:
                    self.drained.add(node.name)
        self.found.requests += 1
        request = self.drains.ask(*nodes, **node_request)
        if force:
            self.forced += [(node.name, node_request["deadline"], float("inf")) for node in nodes]
        return {**node_request, "request": request}

    def release(self, nodes: Sequence[Node]) -> None:
        """Request no nodes, and check that the nodes are as before."""
        self.drains.ask()
        self.cluster.until(
            lambda: not any(node.instance.instance_id in self.drains.reservations() for node in nodes),
            "nothing of ours is there",
            60,
        )
        now = time.time()
        self.forced = [(name, begin, min(end, now)) for name, begin, end in self.forced]
        for node in nodes:
            # A backup that was cancelled at its start may have drained the node since the agent's look. The next look
            # resumes it.
            until = time.monotonic() + 20
            while (wrong := self._not_as_it_was(node)) and time.monotonic() < until:
                time.sleep(0.5)
            if wrong:
                self.found.faults.append(f"{node.name} was given back as {wrong}")
            if node.name in self.drained:
                self.drains.controller.run(f"scontrol update nodename={node.name} state=resume")
                self.drained.discard(node.name)

    def _not_as_it_was(self, node: Node) -> str:
        """Slurm's state of a node if it differs from the state before the request."""
        line = self.drains.slurm_of(node)
        state = line.partition(" State=")[2].split()[0]
        right = ("DRAIN" in state) == (node.name in self.drained) and "Reason=cdk-hyperpod:" not in line
        return "" if right else line[-300:]

    def judge(self, node: Node, node_request: dict[str, Any]) -> bool:
        """Whether the drain of the node has ended, ready or not. A saved node is compared."""
        said = self.drains.of(node, node_request["request"])
        if said.get("state") != "ready":
            return said.get("state") in ("timed-out", "backup-failed")
        on_it = f"squeue --noheader --states=R,CG --nodelist={node.name} --user=alice --format=%i"
        if others := self.drains.controller.run(on_it):
            self.found.faults.append(f"{node.name} is ready, and has {others}")
        if said["saved"]:
            self.found.saved += 1
            copy = f"{SAVED}/{node.instance.instance_id}/files{WORK}"
            if (differs := node.try_run(f"diff -r {WORK} {copy}")).returncode != 0:
                self.found.faults.append(f"{node.name} is saved, and differs: {differs.output[:300]}")
        elif node_request["backup"] and not said["saved"]:
            self.found.faults.append(f"{node.name} is ready and not saved: {said}")
        return True

    # -- all of them

    def run(self, jobs: int, kills: int) -> Found:
        """Until there were enough of both, and some nodes were saved."""
        for node in self.cluster.compute:
            node.run(f"rm -rf {WORK}; mkdir -p -m 1777 {WORK}")
            self.cluster.controller.run(
                f"scontrol create reservation reservationname=theirs-{node.name} starttime=now duration=1-0 users=alice "
                f"flags=MAINT,IGNORE_JOBS nodes={node.name}"
            )
        try:
            while self.found.jobs < jobs or self.found.kills < kills or self.found.saved < min(2, kills):
                self._round(jobs, kills)
        finally:
            over = time.time()
            self.cluster.controller.try_run("scancel --user=alice")
            for node in self.cluster.compute:
                delete = f"scontrol delete reservationname=theirs-{node.name}"
                self.cluster.until(
                    partial(self._succeeds, delete),
                    "alice's reservation is gone",
                    60,
                )
        self._judge_jobs(over)
        return self.found

    def _succeeds(self, command: str) -> bool:
        return self.cluster.controller.try_run(command).returncode == 0

    def _round(self, jobs: int, kills: int) -> None:
        nodes = self.random.sample(self.cluster.compute, self.random.choice([1, 1, 2]))
        for _ in range(self.random.randint(2, 5)):
            self.found.jobs += self.submit()
        node_request = self.ask(nodes)
        until = time.monotonic() + 40
        open_nodes = set(nodes)
        while open_nodes and time.monotonic() < until:
            if self.found.jobs < jobs and self.random.random() < 0.4:
                self.found.jobs += self.submit()
            if self.found.kills < kills and self.random.random() < 0.4:
                self.drains.controller.try_run(f"systemctl kill --kill-who=main --signal=KILL {UNIT}")
                self.found.kills += 1
            open_nodes -= {node for node in open_nodes if self.judge(node, node_request)}
            if self.random.random() < 0.02:
                break
        self.release(nodes)

    def _judge_jobs(self, over: float) -> None:
        """By the accounting: every ended job was on a node whose jobs were to end."""
        time.sleep(SLACK_S)
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self.began))
        said = self.cluster.controller.run(
            f"SLURM_TIME_FORMAT=%s sacct --allusers --user=alice --duplicates --allocations --noheader --parsable2 "
            f"--starttime={begin} --format=JobID,State,End,NodeList"
        )
        rows = [line.split("|") for line in said.splitlines()]
        nodes_of: dict[str, set[str]] = {}
        for name, _, _, nodes in rows:
            nodes_of.setdefault(name.partition("+")[0], set()).update(self._expand(nodes))
        for name, state, end, nodes in rows:
            if not state.startswith(ENDED_BY_SOMEBODY) or nodes in ("", "None assigned") or not end.isdigit():
                continue
            if int(end) >= over - 1:
                continue  # ended with the run
            self.found.ended += 1
            own = nodes_of[name.partition("+")[0]] if "+" in name else set(self._expand(nodes))
            if not any(n in own and b - SLACK_S <= int(end) <= e + SLACK_S for n, b, e in self.forced):
                self.found.faults.append(f"job {name} ended ({state}) on {nodes}, and no rule ends it")

    def _expand(self, nodes: str) -> list[str]:
        if nodes in ("", "None assigned"):
            return []
        return (
            self.cluster.controller.run(f"scontrol show hostnames '{nodes}'").split()
            if "[" in nodes
            else nodes.split(",")
        )


def main() -> None:
    """Print what happened; exit code 1 where something was wrong."""
    options = argparse.ArgumentParser()
    options.add_argument("version", choices=["22.05", "24.11"])
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--kills", type=int, default=60)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    version: SlurmVersion = chosen.version
    with tempfile.TemporaryDirectory() as folder:
        scripts = packed(Path(folder))
        with slurm_cluster(version, "extended", Path(folder)) as cluster:
            cluster.hyperpod_starts_slurm()
            cluster.on_each(lambda node: node.provision(scripts))
            cluster.await_idle()
            with asking.agent(cluster) as drains:
                drains.await_heard()
                began = time.monotonic()
                found = Chaos(cluster, drains, chosen.seed).run(chosen.jobs, chosen.kills)
    print(
        f"Slurm {version}, seed {chosen.seed}: {found.jobs} jobs, {found.requests} requests, {found.kills} kills, "
        f"{found.saved} nodes saved and compared, {found.ended} jobs ended by force, {len(found.faults)} faults, "
        f"{time.monotonic() - began:.0f} s"
    )
    print(json.dumps(found.faults, indent=1))
    raise SystemExit(1 if found.faults else 0)


if __name__ == "__main__":
    main()
