"""A lifetime without any events yet, and the events that tests of its judge add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from simulations.lifetimes.cloudformation import STACK, TAG, Deployment, Template
from simulations.lifetimes.draining import ByAgent, Draining, Heard, Policy
from simulations.lifetimes.function import PREPARE, Look, Request, Write
from simulations.lifetimes.hyperpod import Group, Measure, Node
from simulations.lifetimes.lifetime import Lifetime
from simulations.lifetimes.readiness import Readiness


def spec(count: int, **more: Any) -> dict[str, Any]:
    return {
        "InstanceGroupName": "p5",
        "InstanceType": "ml.p5.48xlarge",
        "ExecutionRole": "arn:aws:iam::111122223333:role/node",
        "InstanceCount": count,
        **more,
    }


OLD, NEW = Template(groups=(spec(4),)), Template(groups=(spec(3),), digest="2")


def lifetime(**switches: Any) -> Lifetime:
    """A lifetime without any events yet, with a group p5 of four nodes."""
    life = Lifetime(0)
    life.switches = life.pod.switches = replace(
        life.switches, list_lag=0.0, unlaunched_listed=True, pages="whole", **switches
    )
    nodes = [Node("p5", f"n{n}", 0.0, "person", id=f"i-{n}", launched=float(n), status="Running") for n in range(1, 5)]
    life.pod.groups["p5"] = Group("p5", spec(4), 4, 0, nodes=nodes)
    life.pod.tags = {TAG: STACK}
    life.pod.network = OLD.vpc
    life.pod.ever = {node.name: node for node in nodes}
    life.clock.now = 1000.0
    life.stack.known = dict.fromkeys(life.stack.known, OLD)
    return life


def request(life: Lifetime, *, rollback: bool = False, number: int = 1) -> Request:
    deployment = Deployment(number, OLD, NEW, "none", True, 990.0, "fewer nodes")
    new, before = (OLD, NEW) if rollback else (NEW, OLD)
    properties = new.properties(PREPARE), before.properties(PREPARE)
    found = Request(PREPARE, "Update", *properties, deployment, rollback, began=995.0, heard=995.0)
    deployment.requests.append(found)
    return found


def listed(life: Lifetime, **statuses: str) -> list[dict[str, Any]]:
    return [
        {
            "InstanceGroupName": node.group,
            "InstanceId": node.id,
            "InstanceStatus": {"Status": statuses.get(f"n{node.name[2:]}", "Running")},
            "LaunchTime": life.clock.datetime(node.launched or 0.0),
        }
        for node in life.pod.groups["p5"].nodes
    ]


def look(life: Lifetime, *, target: int = 4, at: float = 999.0, **statuses: str) -> Look:
    measures = {"p5": Measure(live=4, unlaunched=0, leaving=0, ended=0, target=target)}
    shown: dict[str, dict[str, Any]] = {"p5": {"Status": "InService", "CurrentCount": 4, "TargetCount": target}}
    return Look(at - 0.5, at, listed(life, **statuses), measures, measures, shown)


def write(made: Request, seen: Look, *took: Node) -> Write:
    found = Write(made, 1000.0, "BatchDelete" if took else "Update", seen, over=False, before=seen.measures)
    found.took = list(took)
    made.writes.append(found)
    made.asked.setdefault(seen.at, set()).update(node.name for node in took)
    return found


def kinds(faults: Iterable[str]) -> list[str]:
    return [fault.split(":")[0] for fault in faults]


def drained(life: Lifetime) -> Draining:
    """The same lifetime, with nodes that are drained before they are deleted. One of them is not ready."""
    draining = life.draining = ByAgent(life, Random(0))
    life.judge.readiness = Readiness(life, draining)
    draining.unready = {life.pod.groups["p5"].nodes[3]: "job 1 runs"}
    return draining


def goes(
    life: Lifetime, said: Policy, heard: Heard | None, *, rollback: bool = False, waited: float = 0.0
) -> list[str]:
    """The judge's findings if that node is deleted at this time after the request began."""
    made = request(life, rollback=rollback)
    made.heard -= waited
    made.new["Drain"] = said.text()
    seen = look(life)
    seen.heard = heard
    life.judge.batch_delete_was_sent(write(made, seen, life.pod.groups["p5"].nodes[3]))
    return [kind for kind in kinds(life.judge.faults) if kind == "a node that was not ready goes"]
