"""Words for the dry run: what a deployment would take away, which nodes and why, and what it would refuse.

The plan is the deployment's own (planner.plan), and so are the words (messages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from ..._lambda.hyperpod.common import sentences
from ..._lambda.hyperpod.scale_down.actions import Plan
from ..._lambda.hyperpod.scale_down.cluster import Cluster, Desired, Node
from ..._lambda.hyperpod.scale_down.drain import readiness
from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
from ..tables import BOLD, RED, painted, table, wrapped

NOTHING, REFUSED, CHANGES = 0, 1, 2
"""Exit codes of the dry run. A failure to read the cluster is a 1 as well."""

UNDRAINED = "A deployment does not drain the nodes or save their data: jobs on them stop, and what is only on their disks is lost."
DRAINED = "Under scale_down.drain a deployment first waits for their jobs or pods, and saves their data."
NO_JOBS = "The drain agent on the controller says that no job runs on them."
NO_PODS = "Kubernetes says that no pod runs on them that would have to leave."
SHOWN = 5
"""Jobs of a node that are shown. The agent tells of one more."""
_HEADINGS = ("why", "status", "launched (UTC)", "node")


def exit_code(plan: Plan) -> int:
    """0: nothing would be taken away, 1: the deployment would be refused, 2: nodes or groups would go."""
    if plan.refusals:
        return REFUSED
    return CHANGES if plan.taken or plan.held or plan.deletions else NOTHING


def report(
    plan: Plan, live: Cluster | None, desired: Desired, said: AgentStatus | None = None, *, colour: bool = False
) -> list[str]:
    """The whole dry run, in lines of 80 characters where ids and names allow.

    `said`: by the agent that drains nodes; absent: there is none, or it was not heard.
    """
    if live is None and not plan.refusals:
        lines = [f"There is no cluster {desired.cluster} yet: a deployment would take nothing away."]
    else:
        lines = list(
            _refusals(plan, desired, colour)
            if plan.refusals or live is None
            else _changes(plan, live, desired, said, colour)
        )
    return [line.rstrip() for line in lines]


def _refusals(plan: Plan, desired: Desired, colour: bool) -> Iterator[str]:
    reasons = sentences.several(len(plan.refusals), "reason")
    yield _paint(f"{desired.cluster}: a deployment would be refused, and take nothing away ({reasons}).", RED, colour)
    for refusal in plan.refusals:
        yield ""
        yield from wrapped(f"{refusal.path}: {refusal.why}", "  ", "    ")
        yield from wrapped(f"→ {refusal.fix}", "    ", "      ")


def _changes(plan: Plan, live: Cluster, desired: Desired, said: AgentStatus | None, colour: bool) -> Iterator[str]:
    heard = said is not None and not readiness.is_silent(said)
    jobs: Mapping[str, Sequence[str]] = said.busy if said is not None and heard else {}
    what = "pods" if live.eks_cluster else "jobs"
    going = (*plan.taken, *plan.held)
    if exit_code(plan) == NOTHING:
        yield _paint(f"{desired.cluster}: a deployment would take nothing away.", BOLD, colour)
    else:
        nodes = len(going) + sum(deletion.nodes for deletion in plan.deletions)
        yield _paint(
            f"{desired.cluster}: a deployment would take {sentences.several(nodes, 'node')} away.", BOLD, colour
        )
        yield from wrapped(UNDRAINED if desired.drain is None else DRAINED)
        if heard and not any(node.name in jobs for node in readiness.nodes_to_drain(plan, live)):
            yield from wrapped(NO_PODS if live.eks_cluster else NO_JOBS)
    for group in dict.fromkeys(pick.node.group for pick in going):
        chosen = [(pick.reason, pick.node) for pick in going if pick.node.group == group]
        yield ""
        yield _paint(f"{group}: {sentences.several(len(chosen), 'node')}", BOLD, colour)
        yield from _table(chosen)
        yield from _jobs([node for _, node in chosen], jobs, what)
    for deletion in plan.deletions:
        members = [node for node in live.nodes if node.group == deletion.group and not node.leaving]
        yield ""
        yield _paint(f"{deletion.group}: the whole group, after the cluster's own update", BOLD, colour)
        yield from _table([("group deleted", node) for node in members])
        yield from _jobs(members, jobs, what)
    yield from _list("It would first wait, because", [wait.why for wait in plan.waits])
    yield from _list("Besides", plan.notes)


def _table(rows: Sequence[tuple[str, Node]]) -> Iterator[str]:
    """One line for each node; its id comes last, because a logical id may be long."""
    if rows:
        cells = [(why, node.status, _time(node.launched), node.name) for why, node in rows]
        yield from (f"  {line}" for line in table(_HEADINGS, cells))


def _jobs(nodes: Sequence[Node], jobs: Mapping[str, Sequence[str]], what: str) -> Iterator[str]:
    """A line for each node that has some. `what`: jobs, or pods."""
    for node in nodes:
        if node.name in jobs:
            told = [*jobs[node.name][:SHOWN], *(["and more"] if len(jobs[node.name]) > SHOWN else [])]
            yield from wrapped(f"{node.name} runs {what}: {', '.join(told)}".removesuffix(": "), "  ", "    ")


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
