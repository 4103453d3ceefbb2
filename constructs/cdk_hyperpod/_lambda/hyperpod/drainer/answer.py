"""The drainer's answer, and its line in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..kernel.drain_protocol import NOT_RELEASED, NodeRequest, NodeStatus, Status, StatusJob
from ..kernel.sentences import cut, join_clauses, some
from ..kernel.text import one_line
from .cluster_snapshot import ClusterSnapshot
from .event import Question
from .objects import Pod
from .rules import SHOWN, Decision
from .run_lease import KeptRun

MOST_PODS_OF_A_NODE = 20
MOST_PODS = 2000
"""Pods that an answer names, of one node and in all: it may have 6 MB, and names have up to 253 characters."""
MOST_MESSAGE = 600
"""Characters of a node's message."""
MOST_MESSAGES = 1_200_000
"""Characters of all nodes' messages."""


@dataclass(frozen=True, slots=True)
class Results:
    """What became of the changes."""

    done: int = 0
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Instance -> what went wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one look has read, decided and changed."""

    snapshot: ClusterSnapshot
    requests: Mapping[str, NodeRequest] = field(default_factory=dict)
    """Those that the request names, and those that are held for the other writer. Without a request: those that are held."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    results: Results = Results()
    problem: str = ""
    """Why nothing was done, or which nodes were not released."""


def make_answer(question: Question, outcome: Outcome, backup: str | None, kept: KeptRun, now: float) -> Status:
    """The answer to one event."""
    request, writer = question.request, question.writer
    return Status(
        beat=round(now),
        requests={writer: request.id} if request else {},
        refused={writer: question.refused[:MOST_MESSAGE]} if question.refused else {},
        problem=outcome.problem[:MOST_MESSAGE],
        busy=dict.fromkeys(_busy_instances(outcome.snapshot), ()),
        backup=backup,
        nodes=_node_statuses(outcome),
        run=kept.record,
        run_version=kept.version,
    )


def _busy_instances(snapshot: ClusterSnapshot) -> list[str]:
    """Instances that have pods: when a count is lowered, others are chosen first."""
    busy = {node.instance for nodes in snapshot.nodes.values() for node in nodes if node.name in snapshot.busy}
    return sorted(busy - {""})


def _node_statuses(outcome: Outcome) -> dict[str, NodeStatus]:
    found: dict[str, NodeStatus] = {}
    room = MOST_PODS
    longest = min(MOST_MESSAGE, MOST_MESSAGES // max(1, len(outcome.decisions)))
    for instance, decision in outcome.decisions.items():
        request, pods = outcome.requests[instance], _pods_of(instance, outcome.snapshot)
        shown = pods[: min(room, MOST_PODS_OF_A_NODE)]
        room -= len(shown)
        found[instance] = NodeStatus(
            state=decision.state,
            message=cut(_message(decision, outcome.results.failed.get(instance, ())), longest, "..."),
            requests={request.writer: request.request_id},
            saved=decision.saved,
            absent=decision.absent,
            address=request.address,
            jobs=tuple(StatusJob(pod.title, pod.owner) for pod in shown),
            running=len(pods),
        )
    return found


def _pods_of(instance: str, snapshot: ClusterSnapshot) -> list[Pod]:
    return [pod for node in snapshot.nodes.get(instance, ()) for pod in snapshot.pods.get(node.name, ())]


def _message(decision: Decision, failed: Sequence[str]) -> str:
    return _ascii(join_clauses(decision.message, *_first_failures(failed)))


def _first_failures(failed: Sequence[str]) -> Iterable[str]:
    yield from failed[:SHOWN]
    if len(failed) > SHOWN:
        yield f"and {len(failed) - SHOWN} more refusals"


def _ascii(text: str) -> str:
    """One line of characters that JSON writes in one byte each."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in one_line(text))


def unreleased(
    failed: Mapping[str, Sequence[str]], decisions: Mapping[str, Decision], snapshot: ClusterSnapshot
) -> str:
    """Which nodes stay cordoned that no request names any more. The answer has no other place for them."""
    nodes = [
        f"{node.name} ({failed[instance][0]})"
        for instance in failed
        if instance not in decisions
        for node in snapshot.nodes.get(instance, ())
        if node.mark
    ]
    return f"{NOT_RELEASED}: {some(nodes, SHOWN)}" if nodes else ""


def summarize(answer: Status, results: Results, seconds: float) -> str:
    """One line for the log: checked words, and Kubernetes' own."""
    title = next(iter(answer.requests.values()), "a question")
    line = join_clauses(
        f"{title}: {_count_states(answer)}; {len(answer.busy)} busy; {results.done} done",
        _first_failure(results),
        *answer.refused.values(),
        answer.problem,
        f"{seconds:.1f} s",
    )
    return one_line(line)[:2000]


def _count_states(answer: Status) -> str:
    states = [node.state for node in answer.nodes.values()]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "no node"


def _first_failure(results: Results) -> str:
    failures = [failure for some_of in results.failed.values() for failure in some_of]
    return f"{len(failures)} not: {failures[0]}" if failures else ""
