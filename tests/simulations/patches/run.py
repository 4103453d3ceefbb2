"""Random patches: `PYTHONPATH=tests python -m simulations.patches.run --patches=5000 [--eks] [--first=0]`, or one with its story: --seed=17."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import yaml

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol as protocol
from cdk_hyperpod.cli import live
from cdk_hyperpod.cli.nodes.drain import merge
from cdk_hyperpod.cli.nodes.operator_channel import OperatorChannel
from cdk_hyperpod.cli.patch.model import Options
from cdk_hyperpod.config.cluster import ClusterConfig
from cdk_hyperpod.loader import load_config

from .agent import Agent
from .judge import Judge
from .operators import Machine, Process, virtual
from .world import BEGIN, NAME, NEW, OLD, REGION, Credentials, Switches, World

HOUR = 3600.0
ALL = frozenset({"sagemaker", "s3", "lambda", "cloudformation"})


@dataclass
class Outcome:
    """How one random patch went."""

    seed: int
    faults: list[str]
    outcomes: dict[str, int]
    calls: int
    exempt: list[str]
    story: str = ""


@cache
def config(*, eks: bool, controller: bool) -> ClusterConfig:
    file: dict[str, Any] = {
        "name": NAME,
        "region": REGION,
        "orchestrator": "eks" if eks else "slurm",
        "instance_groups": [{"name": "work", "instance_type": "ml.p5.48xlarge", "instance_count": 3}],
    }
    if eks:
        existing = {
            "name": "small-eks",
            "security_group_id": "sg-0123456789abcdef0",
            "endpoint": "https://0A1B.gr7.us-west-2.eks.amazonaws.com",
            "certificate_authority": "LS0tLS1C",
        }
        subnets = [
            {"subnet_id": f"subnet-0{number}23456789abcdef0", "availability_zone": f"us-west-2{zone}"}
            for number, zone in ((1, "a"), (2, "b"))
        ]
        file |= {
            "eks": {"dependencies_chart": "installed", "existing_cluster": existing},
            "network": {"vpc_id": "vpc-0123456789abcdef0", "subnets": subnets},
            "scale_down": {"drain": {}},
        }
    else:
        file["instance_groups"][0] |= {"node_type": "compute", "partition": "work"}
        head = {"name": "head", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "controller"}
        file["instance_groups"].insert(0, head)
        slurm: dict[str, Any] = {"drain": {}}
        if controller:
            secret = "arn:aws:secretsmanager:us-west-2:111122223333:secret:a"
            slurm["accounting_database"] = {"endpoint": "db.us-west-2.rds.amazonaws.com", "secret_arn": secret}
        file["slurm"] = slurm
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cluster.yaml")
        path.write_text(yaml.safe_dump(file, sort_keys=False))
        return load_config(str(path)).config


def choose(random: Random, *, eks: bool) -> Switches:
    """A world, mostly with one or two oddities."""

    def odd(share: float) -> bool:
        return random.random() < share

    versions = eks and odd(0.7)
    controller = not eks and odd(0.15)
    shows: tuple[str, ...] = ("group", "status", "cluster", "nodes")
    if odd(0.3):
        shows = random.choice((("group",), ("cluster", "nodes"), ("nodes",), ("group", "nodes"), ()))
    loses = odd(0.15)
    if loses:
        shows = ("group",)
    skips = random.choice((1, 2, 2)) if odd(0.15) and not loses else 0
    return Switches(
        eks=eks,
        nodes=random.randint(1, 5),
        controller=controller,
        versions=versions,
        counts=odd(0.8),
        times=odd(0.7),
        shows=shows,
        late_s=random.uniform(60, 840) if odd(0.3) else random.uniform(0, 60),
        pending_s=random.uniform(60, 840) if odd(0.3) else random.uniform(0, 60),
        node_s=random.uniform(300, 2400),
        apart_s=random.uniform(300, 4800) if odd(0.15) and shows else 0.0,
        skips=skips,
        ends=random.choice(("RollbackComplete", "Completed", "PartiallySucceeded")) if odd(0.15) else "Succeeded",
        same_again=odd(0.1),
        leaves_out=0.3 if odd(0.2) else 0.0,
        list_lag_s=random.uniform(30, 200) if odd(0.3) else 0.0,
        counts_leaving=odd(0.3),
        lost_answers=0.7 if loses else 0.0,
        gap_s=6 * HOUR if controller else random.choice((30.0, 300.0, 3600.0)),
        protected=0.3 if odd(0.3) else 0.0,
        earlier=random.choice((None, "Succeeded", "RollbackComplete", "Failed")),
    )


@dataclass
class Scenario:
    """One random patch, and all that happens meanwhile."""

    seed: int
    eks: bool
    random: Random = field(init=False)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        switches = choose(self.random, eks=self.eks)
        self.world = World(switches, self.seed)
        self.judge = self.world.judge = Judge(self.world)
        self.machines = [Machine(), Machine()]
        self.config = config(eks=self.eks, controller=switches.controller)
        force = self.random.choice((None, None, 1800, 3600))
        self.options = Options(
            drain_for_s=int(self.random.choice((1.5, 2, 3)) * HOUR), force_s=force, controller=switches.controller
        )
        if self.eks:
            from .cluster import Kubernetes

            self.kubernetes = Kubernetes(self.world)
        else:
            self.agent = Agent(self.world)
        self.world.time.every(lambda: 60.0, self.judge.look)

    def process(self, machine: Machine | None = None, **more: Any) -> Process:
        number = len(self.judge.processes) + 1
        found = Process(self.world, machine or self.machines[0], self.config, self.options, f"patch {number}", **more)
        self.judge.processes.append(found)
        return found

    def live(self) -> Outcome:
        world, random, time = self.world, self.random, self.world.time
        begin = BEGIN + HOUR
        first = self.process(ahead_s=random.choice((0.0, 0.0, -400.0, 400.0)))
        self._befall(first, begin)
        time.at(begin, first.start)
        for share, happen in (
            (0.15, self._second_operator),
            (0.3, self._faulty_node),
            (0.1, self._resized),
            (0.1, self._deployed),
            (0.2, self._drained_by_a_colleague),
            (0.12, self._auto_patched),
            (0.2, self._throttled),
            (0.15, self._silent),
            (0.05, lambda at: time.at(at, world.delete_group)),
        ):
            if random.random() < share:
                happen(begin + random.uniform(-300, 3 * HOUR))
        time.run(begin + 3.2 * HOUR)
        self._run_out()
        for _ in range(3):
            last = self.judge.processes[-1]
            if last.code == 0 and not last.killed:
                break
            time.run(world.now + random.choice((300.0, 1 * HOUR, 3 * HOUR)))
            again = self.process(random.choice(self.machines) if random.random() < 0.3 else self.machines[0])
            if random.random() < 0.3:
                self._befall(again, world.now)
            time.at(world.now, again.start)
            self._run_out()
        time.run(world.now + (0.5 if random.random() < 0.8 else 30) * HOUR)
        return Outcome(
            self.seed,
            list(dict.fromkeys(self.judge.faults)),
            dict(self.judge.outcomes()),
            len(self.judge.calls),
            self.judge.exempt,
        )

    def _run_out(self) -> None:
        """Until no command runs any more."""
        end = self.world.now + 40 * HOUR
        self.world.time.run(self.world.now + 1)
        while any(each.alive for each in self.judge.processes):
            self.world.time.run(self.world.now + 0.2 * HOUR)
            if self.world.now > end:
                self.judge.fault("never ends")
                for each in self.judge.processes:
                    each.dies = 0.0

    # -- what happens -----------------------------------------------------------------------------------------------

    def _befall(self, process: Process, begin: float) -> None:
        when = begin + self.random.uniform(0, 4 * HOUR)
        kind = self.random.random()
        if kind < 0.15:
            process.dies = when
        elif kind < 0.3:
            process.interrupted = when
        elif kind < 0.4:
            process.expires = when
        elif kind < 0.55:
            process.sleeps = when, self.random.choice((400.0, 900.0, 3 * HOUR))

    def _second_operator(self, at: float) -> None:
        other = self.process(self.machines[1])
        begin = BEGIN + HOUR + self.random.uniform(0, 5) if self.random.random() < 0.5 else max(at, BEGIN + HOUR)
        self.world.time.at(begin, other.start)

    def _faulty_node(self, at: float) -> None:
        def fail() -> None:
            nodes = [node for node in self.world.of("work") if node.status == "Running"]
            if nodes and "work" in self.world.groups:
                self.world.replace(self.random.choice(nodes))

        self.world.time.at(at, fail)
        if self.random.random() < 0.4:
            # Right before the call, which is sent as soon as the last job has ended.
            self._at_the_end_of_jobs(fail)

    def _at_the_end_of_jobs(self, do: Any) -> None:
        world, tries = self.world, [0]

        def look() -> None:
            work = [node for node in world.of("work") if node.here]
            if work and all("patch" in node.held_by and node.job is None for node in work):
                do()
                return
            tries[0] += 1
            if tries[0] < 1000:
                world.time.at(world.now + 20, look)

        world.time.at(BEGIN + HOUR, look)

    def _resized(self, at: float) -> None:
        self.world.time.at(at, lambda: self.world.resize(1) if "work" in self.world.groups else None)

    def _deployed(self, at: float) -> None:
        def begin() -> None:
            self.world.stack = "UPDATE_IN_PROGRESS"
            self.world.note("a deployment begins")
            self.world.time.at(self.world.now + 1200, end)

        def end() -> None:
            self.world.stack = "UPDATE_COMPLETE"

        self.world.time.at(at, begin)

    def _drained_by_a_colleague(self, at: float) -> None:
        if self.eks:
            return

        def drain() -> None:
            nodes = [node for node in self.world.of("work") if node.status == "Running"]
            if not nodes:
                return
            node, now = self.random.choice(nodes), self.world.now
            hold = self.random.choice((900.0, 6 * HOUR, 12 * HOUR))
            request = protocol.make_node_request(
                protocol.NodeRequest(
                    writer="operator",
                    request_id=f"drain-{node.number}",
                    instance=node.id,
                    address=node.host[3:].replace("-", "."),
                    deadline=now + hold,
                    expires=now + hold,
                    force=False,
                    backup=True,
                )
            )
            self.world.note(f"a colleague drains {node.id} for {hold / 60:.0f} minutes")
            credentials = Credentials(self.world, lambda _: None)
            target = live.Target(name=NAME, region=REGION, client=credentials.client, config=self.config)
            throttled, self.world.throttled = self.world.throttled, []
            OperatorChannel(target, "000000000000").change(lambda existing: merge(existing, {node.id: request}, set()))
            self.world.throttled = throttled
            self.judge.operator_holds[node.id] = now, now + hold

        self.world.time.at(at, drain)

    def _auto_patched(self, at: float) -> None:
        def begin() -> None:
            group = self.world.groups.get("work")
            if group is not None and group.update is None and group.desired == OLD:
                image = self.random.choice(("1.0.1", NEW))
                self.world.begin(group, "autopatch", image)

        self.world.time.at(at, begin)

    def _throttled(self, at: float) -> None:
        services = self.random.choice((ALL, frozenset({"sagemaker"}), frozenset({"s3", "lambda"})))
        self.world.throttled.append((at, at + self.random.choice((200.0, 1200.0)), services))

    def _silent(self, at: float) -> None:
        if self.random.random() < 0.5:
            nodes = self.world.of("work")

            def fall_silent() -> None:
                nodes[0].silent = True
                if nodes[0].job is not None and not self.eks:
                    self.world.end_job(nodes[0].job, "Slurm")

            self.world.time.at(at, fall_silent)
            return
        if self.eks:
            return
        self.world.time.at(at, lambda: setattr(self.agent, "alive", False))
        if self.random.random() < 0.7:
            self.world.time.at(at + self.random.choice((300.0, 1500.0)), lambda: setattr(self.agent, "alive", True))


def patch(seed: int, *, eks: bool, story: bool = False) -> Outcome:
    """One random patch."""
    with virtual():
        scenario = Scenario(seed, eks)
        outcome = scenario.live()
    if story:
        lines = [str(scenario.world.switches), str(scenario.options), *scenario.world.log]
        return replace(outcome, story="\n".join(lines))
    return outcome


def _batch(seeds: Sequence[int], eks: bool) -> list[Outcome]:
    return [patch(seed, eks=eks) for seed in seeds]


def run(seeds: Sequence[int], *, eks: bool, processes: int | None = None) -> list[Outcome]:
    """Many."""
    batches = [seeds[at : at + 25] for at in range(0, len(seeds), 25)]
    if processes == 1 or len(batches) == 1:
        return [outcome for batch in batches for outcome in _batch(batch, eks)]
    with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return [outcome for found in pool.map(_batch, batches, [eks] * len(batches)) for outcome in found]


def report(outcomes: Sequence[Outcome]) -> str:
    ends = sum((Counter(each.outcomes) for each in outcomes), Counter[str]())
    lines = [
        f"{len(outcomes)} patches, {sum(each.calls for each in outcomes)} updates accepted; "
        + ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    ]
    exempt = Counter(name for outcome in outcomes for name in outcome.exempt)
    lines += [f"  exempt: {count} jobs, {name}" for name, count in exempt.items()]
    kinds: dict[str, list[int]] = {}
    for outcome in outcomes:
        for kind in dict.fromkeys(re.sub(r"i-\w+|\d+", "…", fault)[:90] for fault in outcome.faults):
            kinds.setdefault(kind, []).append(outcome.seed)
    lines += [f"  {len(seeds):5d}  {kind}: {', '.join(map(str, seeds[:6]))}" for kind, seeds in kinds.items()]
    return "\n".join(
        [*lines, "no fault" if not kinds else f"FAULTS in {sum(bool(o.faults) for o in outcomes)} patches"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="patches")
    parser.add_argument("--patches", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--eks", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int)
    given = parser.parse_args()
    if given.seed is not None:
        outcome = patch(given.seed, eks=given.eks, story=True)
        print(outcome.story, *outcome.faults, sep="\n")
        return bool(outcome.faults)
    began = time.monotonic()
    outcomes = run(range(given.first, given.first + given.patches), eks=given.eks, processes=given.processes)
    print(report(outcomes))
    print(f"{time.monotonic() - began:.0f} s")
    return any(outcome.faults for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
