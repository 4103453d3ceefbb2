"""Words for the dry run: what a deployment would take away, which nodes and why, and what it would refuse.

The plan is the deployment's own (planner.plan), and so are the words (messages).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime

from . import messages
from .actions import LowerMinimum, LowerTarget, Plan, TakeNodes
from .model import Cluster, Desired

NOTHING, REFUSED, CHANGES = 0, 1, 2
"""Exit codes of the dry run. A failure to read the cluster is a 1 as well."""


def exit_code(plan: Plan) -> int:
    """0: nothing would be taken away, 1: the deployment would be refused, 2: nodes or groups would go."""
    if plan.refusals:
        return REFUSED
    return CHANGES if plan.taken or plan.deletions or _waits_to_take(plan) else NOTHING


def report(plan: Plan, live: Cluster | None, desired: Desired, width: int = 100) -> str:
    """The whole dry run as text, lines no longer than `width` characters where words allow. Ends with a line end."""
    if live is None:
        lines = [f"There is no cluster {desired.cluster} yet: nothing would be taken away."]
    elif plan.refusals:
        lines = list(_refusals(plan, desired, width))
    else:
        lines = list(_changes(plan, live, desired, width))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _refusals(plan: Plan, desired: Desired, width: int) -> Iterator[str]:
    count = len(plan.refusals)
    yield f"{desired.cluster}: a deployment would be refused, with nothing changed ({messages.several(count, 'reason')})."
    for refusal in plan.refusals:
        yield ""
        yield from _wrap(f"{refusal.path}: {refusal.why}", width, "  ", "    ")
        yield from _wrap(f"→ {refusal.fix}", width, "    ", "      ")


def _changes(plan: Plan, live: Cluster, desired: Desired, width: int) -> Iterator[str]:
    if exit_code(plan) == NOTHING:
        yield f"{desired.cluster}: a deployment would take nothing away."
    else:
        yield f"{desired.cluster}: a deployment would take away {_summary(plan)}."
        yield from _wrap(messages.UNDRAINED, width, "", "")
    rows = list(_nodes(plan))
    if rows:
        yield ""
        yield from _table([("group", "node", "status", "launched (UTC)", "why"), *rows])
    nodes = {deletion.group: deletion.nodes for deletion in plan.deletions}
    if nodes:
        yield ""
        yield "Groups that go with all their nodes, after the cluster's own update:"
        for group, count in nodes.items():
            yield ""
            yield f"  {group} ({messages.several(count, 'node')})"
            yield from _wrap(", ".join(_names(live, group)), width, "    ", "    ")
    counts = [messages.line(change) for change in plan.changes if isinstance(change, LowerTarget | LowerMinimum)]
    yield from _list("Before that:" if nodes or rows else "Counts:", counts, width)
    yield from _list("A deployment would first wait, because", [wait.why for wait in plan.waits], width)
    yield from _list("Worth knowing:", list(plan.notes), width)


def _summary(plan: Plan) -> str:
    parts = [messages.several(plan.taken, "node")] if plan.taken else []
    if plan.deletions:
        nodes = sum(deletion.nodes for deletion in plan.deletions)
        parts.append(f"{messages.several(len(plan.deletions), 'group')} with {messages.several(nodes, 'node')}")
    return " and ".join(parts) or "nodes, as soon as what they wait for is over"


def _nodes(plan: Plan) -> Iterator[tuple[str, ...]]:
    for change in plan.changes:
        if isinstance(change, TakeNodes):
            for pick in change.picks:
                node = pick.node
                yield change.group, node.name, node.status, _time(node.launched), pick.reason


def _names(live: Cluster, group: str) -> list[str]:
    return [node.name for node in live.nodes if node.group == group and not node.leaving] or ["no nodes"]


def _time(launched: datetime | None) -> str:
    return "-" if launched is None else launched.strftime("%Y-%m-%d %H:%M")


def _waits_to_take(plan: Plan) -> bool:
    """Waits stand for nodes that would go, or are going already."""
    return bool(plan.waits)


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True))


def _list(head: str, items: list[str], width: int) -> Iterator[str]:
    if items:
        yield ""
        yield head
        for item in items:
            yield from _wrap(f"- {item}", width, "  ", "    ")


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
