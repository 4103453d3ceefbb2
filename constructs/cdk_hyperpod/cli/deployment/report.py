"""The text of `plan`: which nodes and groups a deployment would delete and why, or why it would be refused.

The plan is the deployment's own (planner.plan), and so are the words (messages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..._lambda.hyperpod.kernel import sentences
from ..._lambda.hyperpod.scale_down.drain import readiness
from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
from ..._lambda.hyperpod.scale_down.model.actions import Pick, Plan
from ..._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired, Node
from ..tables import BOLD, RED, WIDTH, painted, table, wrapped
from .exit_codes import CHANGES, NOTHING, REFUSED

UNDRAINED = "The deployment does not drain these nodes or save their data. Jobs on them stop, and local data is lost."
UNLAUNCHED = "None of them is launched yet, so no jobs run on them, and no local data is lost."
DRAINED = "scale_down.drain is set: the deployment first waits for jobs or pods to end, and saves the nodes' data."
NO_JOBS = "The drain agent on the controller reports no jobs on them."
NO_PODS = "Kubernetes reports no pods on them that would have to leave."
SHOWN = 5
"""Jobs of a node that are shown. The agent reports one more, so that "and more" is known."""
_HEADINGS = ("why", "status", "launched (UTC)", "node")


def exit_code(plan: Plan) -> int:
    """0: nothing would be deleted, 1: the deployment would be refused, 2: nodes or groups would be deleted."""
    if plan.refusals:
        return REFUSED
    return CHANGES if plan.nodes_to_delete or plan.held or plan.groups_to_delete else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    """The jobs or pods on the nodes."""

    kind: Literal["jobs", "pods"]
    is_known: bool
    by_node: Mapping[str, Sequence[str]]
    """Instance id -> some of its jobs or pods; empty if they are unknown."""


def _workload(live: Cluster, status: AgentStatus | None) -> _Workload:
    kind: Literal["jobs", "pods"] = "pods" if live.eks_cluster else "jobs"
    if status is None or readiness.is_silent(status):
        return _Workload(kind=kind, is_known=False, by_node={})
    return _Workload(kind=kind, is_known=True, by_node=status.busy)


def report(
    plan: Plan, live: Cluster | None, desired: Desired, status: AgentStatus | None = None, *, colour: bool = False
) -> list[str]:
    """The plan as text, in lines of 80 characters unless an id or a name is longer.

    `status`: of the agent that drains nodes; None: there is no agent, or its status was not read.
    """
    if plan.refusals:
        lines = _refusals(plan, desired, colour)
    elif live is None:
        lines = iter([f"There is no cluster {desired.cluster} yet: a deployment would delete nothing."])
    else:
        lines = _changes(plan, live, desired, _workload(live, status), colour)
    return [line.rstrip() for line in lines]


def _refusals(plan: Plan, desired: Desired, colour: bool) -> Iterator[str]:
    reasons = sentences.several(len(plan.refusals), "reason")
    yield _paint(f"{desired.cluster}: the deployment would be refused and delete nothing ({reasons}).", RED, colour)
    for refusal in plan.refusals:
        yield ""
        yield from wrapped(f"{refusal.path}: {refusal.why}", "  ", "    ")
        yield from wrapped(f"→ {refusal.fix} [{refusal.code}]", "    ", "      ")


def _changes(plan: Plan, live: Cluster, desired: Desired, workload: _Workload, colour: bool) -> Iterator[str]:
    if exit_code(plan) == NOTHING:
        yield _paint(f"{desired.cluster}: a deployment would delete nothing.", BOLD, colour)
    else:
        yield from _summary(plan, live, desired, workload, colour)
    yield from _chosen_nodes(plan, workload, colour)
    yield from _groups_to_delete(plan, live, workload, colour)
    yield from _list("It would first wait, because", [wait.why for wait in plan.waits])
    yield from _list("Notes", plan.notes)


def _summary(plan: Plan, live: Cluster, desired: Desired, workload: _Workload, colour: bool) -> Iterator[str]:
    """How many nodes would be deleted, and what happens to their jobs and data."""
    count = len(plan.nodes_to_delete) + len(plan.held) + sum(deletion.nodes for deletion in plan.groups_to_delete)
    yield _paint(f"{desired.cluster}: a deployment would delete {sentences.several(count, 'node')}.", BOLD, colour)
    if is_all_unlaunched(plan, live):
        yield from wrapped(UNLAUNCHED)
        return
    yield from wrapped(UNDRAINED if desired.drain is None else DRAINED)
    is_any_busy = any(node.name in workload.by_node for node in readiness.nodes_to_drain(plan, live))
    if workload.is_known and not is_any_busy:
        yield from wrapped(NO_PODS if workload.kind == "pods" else NO_JOBS)


def is_all_unlaunched(plan: Plan, live: Cluster) -> bool:
    """Whether no node that the plan deletes has an instance. False also if it deletes none."""
    picked = [pick.node for pick in (*plan.nodes_to_delete, *plan.held)]
    members = [node for deletion in plan.groups_to_delete for node in _members(deletion.group, live)]
    nodes = [*picked, *members]
    return bool(nodes) and all(node.instance_id is None for node in nodes)


def _members(group: str, live: Cluster) -> list[Node]:
    return [node for node in live.nodes if node.group == group and not node.leaving]


def _chosen_nodes(plan: Plan, workload: _Workload, colour: bool) -> Iterator[str]:
    """The nodes that are deleted one by one, by group."""
    by_group: dict[str, list[Pick]] = {}
    for pick in (*plan.nodes_to_delete, *plan.held):
        by_group.setdefault(pick.node.group, []).append(pick)
    for group, picks in by_group.items():
        yield ""
        yield _paint(f"{group}: {sentences.several(len(picks), 'node')}", BOLD, colour)
        yield from _table([(pick.reason, pick.node) for pick in picks])
        yield from _busy_nodes([pick.node for pick in picks], workload)


def _groups_to_delete(plan: Plan, live: Cluster, workload: _Workload, colour: bool) -> Iterator[str]:
    for deletion in plan.groups_to_delete:
        members = _members(deletion.group, live)
        yield ""
        yield _paint(f"{deletion.group}: the whole group, after the cluster's own update", BOLD, colour)
        yield from _table([("group deleted", node) for node in members])
        yield from _busy_nodes(members, workload)


def _table(rows: Sequence[tuple[str, Node]]) -> Iterator[str]:
    """One line for each node; its id comes last, because a logical id may be long."""
    if rows:
        cells = [(why, node.status, _time(node.launched), node.name) for why, node in rows]
        yield from (f"  {line}" for line in table(_HEADINGS, cells, columns=WIDTH - 2, cut=(1,)))


def _busy_nodes(nodes: Sequence[Node], workload: _Workload) -> Iterator[str]:
    """A line for each node that has jobs or pods."""
    for node in nodes:
        if node.name in workload.by_node:
            yield from wrapped(_busy_node(node.name, workload), "  ", "    ")


def _busy_node(name: str, workload: _Workload) -> str:
    running = list(workload.by_node[name])
    if not running:
        return f"{name} runs {workload.kind}"
    more = ["and more"] if len(running) > SHOWN else []
    return f"{name} runs {workload.kind}: {', '.join([*running[:SHOWN], *more])}"


def _time(launched: datetime | None) -> str:
    return "-" if launched is None else launched.strftime("%Y-%m-%d %H:%M")


def _list(head: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield ""
        yield head
        for item in items:
            yield from wrapped(f"- {item}", "  ", "    ")


def _paint(text: str, code: str, colour: bool) -> str:
    return painted(text, code if colour else None)
