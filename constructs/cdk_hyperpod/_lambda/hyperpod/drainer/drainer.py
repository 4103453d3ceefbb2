"""Drains nodes of an EKS cluster that are going to be deleted, after their pods have left and their data is saved.

For each node that a request names, the drainer cordons it, evicts its pods, which disruption budgets may delay, waits until none
is left, saves it by a Job of the user's CronJob, and reports `ready`. It releases nodes that no request names any more.

It keeps no state of its own: the mark on a held node and the backups' Jobs are all that it knows. So a look may end anywhere, and
the next one comes to the same end. It never undoes a cordon that is a person's, HyperPod's or Karpenter's. A node stays held until
the lease in its mark is over, and only a look releases it.

`rules` decides from what one look has read. `Drainer` reads, makes the changes and answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..kernel.drain_protocol import NodeRequest, make_status
from .answer import Outcome, Results, make_answer, summarize, unreleased
from .api_client import Api, Json, KubernetesError
from .backup_job import make_probe
from .changes import Change
from .cluster_snapshot import ClusterSnapshot, Hook, read_snapshot
from .event import Question, read_question
from .objects import Node, parse_node
from .rules import Decision, decide_all, decide_instance, order_changes
from .run_lease import keep_run

CHANGES_S = 15.0
"""A look makes changes for this long, however long it has read. The next look goes on."""
MERGE = "application/merge-patch+json"
LATER = "the rest waits for the next look"


class Drainer:
    """Reads, decides, makes the changes and answers, once for each event."""

    def __init__(
        self,
        api: Api,
        backup: str | None,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`backup`: NAMESPACE/NAME of the CronJob that saves a node. None: nothing is saved."""
        self._api, self._backup, self._log, self._clock = api, backup, log, clock

    def look(self, event: Any, now: float) -> Json:
        """The answer to one event."""
        began = self._clock()
        question, kept = keep_run(self._api, read_question(event, now))
        outcome = self._run(question, now)
        answer = make_answer(question, outcome, self._backup, kept, now)
        self._log(summarize(answer, outcome.results, self._clock() - began))
        return make_status(answer)

    def _run(self, question: Question, now: float) -> Outcome:
        requests = _current_requests(question, now)
        wants_backup = any(request.backup for request in requests.values())
        try:
            snapshot = read_snapshot(self._api, self._backup, now, wanted=wants_backup, asked=requests.keys())
        except KubernetesError as error:
            return _unread(now, str(error))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return _unread(now, f"Kubernetes answers with something that this drainer cannot read: {error!r}")
        # A held node is reported, and stays held until its lease is over. A broken request ends no drain either.
        others = _held_for_others(question, requests, snapshot)
        requests = {instance: request for instance, request in requests.items() if instance not in others}
        snapshot = self._with_probe(requests if question.request else others, snapshot)
        decisions = decide_all(requests, snapshot)
        results = self._make(order_changes(requests, decisions, snapshot, others))
        shown = {**decisions, **{instance: _as_reported(request, snapshot) for instance, request in others.items()}}
        problem = unreleased(results.failed, shown, snapshot)
        return Outcome(snapshot, {**requests, **others}, shown, results, problem)

    def _with_probe(self, requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot, with what the server answers about the backup's Job before a pod leaves a node for it. Nothing is created."""
        probe = make_probe(requests, snapshot)
        if probe is None or snapshot.hook is None:
            return snapshot
        try:
            self._api.change("POST", *probe)
        except KubernetesError as error:
            return replace(snapshot, hook=_rejected_hook(snapshot.hook, error))
        return snapshot

    # -- changes ------------------------------------------------------------------------------------------------------

    def _make(self, changes: Iterable[Change]) -> Results:
        done, stopped, began = 0, set[str](), self._clock()
        failed: dict[str, list[str]] = {}
        for change in changes:
            if change.instance in stopped:
                continue
            late = self._clock() - began > CHANGES_S
            problem = LATER if late else self._try(change)
            if not problem:
                done += 1
                continue
            failed.setdefault(change.instance, []).append(problem)
            if late or change.first:
                stopped.add(change.instance)
        return Results(done, failed)

    def _try(self, change: Change) -> str:
        """Make the change, and the one that follows from it. Returns what went wrong; empty: nothing."""
        created: Json = {}
        try:
            if change.node is None:
                created = self._api.change(change.method, change.path, change.body)
            else:
                self._change_node(change, change.node)
        except KubernetesError as error:
            return "" if error.status in change.done_statuses else _describe_failure(change, error)
        return self._try(change.then(created)) if change.then else ""

    def _change_node(self, change: Change, node: Node) -> None:
        """Change the node unless it has changed since it was read. Its status may have: kubelets write it all the time."""
        try:
            self._patch(change, node.version)
        except KubernetesError as error:
            if error.status != 409:
                raise
            fresh = parse_node(self._api.get(change.path), 0.0)
            if _drain_facts(fresh) != _drain_facts(node):
                raise
            self._patch(change, fresh.version)

    def _patch(self, change: Change, version: str) -> None:
        body = {**change.body, "metadata": {**change.body["metadata"], "resourceVersion": version}}
        self._api.change("PATCH", change.path, body, MERGE)


def _current_requests(question: Question, now: float) -> dict[str, NodeRequest]:
    """Instance -> its request, if its lease is not over."""
    if question.request is None:
        return {}
    return {request.instance: request for request in question.request.nodes if request.expires > now}


def _held_for_others(
    question: Question, requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot
) -> dict[str, NodeRequest]:
    """Instance -> the request in its node's mark, which is not of the event's writer, and which that one does not take over. Without a
    request: all that are held."""
    held = _held_requests(snapshot)
    if question.request is None:
        return held
    taken = {instance for instance, request in requests.items() if request.takes_over}
    return {
        instance: request
        for instance, request in held.items()
        if request.writer != question.writer and instance not in taken
    }


def _as_reported(request: NodeRequest, snapshot: ClusterSnapshot) -> Decision:
    """What is reported of a node for which this look does nothing."""
    return replace(decide_instance(request, snapshot), changes=(), release=False)


def _held_requests(snapshot: ClusterSnapshot) -> dict[str, NodeRequest]:
    """Instance -> the request in its node's mark, if its lease is not over."""
    marks = [node.mark for nodes in snapshot.nodes.values() for node in nodes if node.mark]
    requests = {mark.request.instance: mark.request for mark in marks}
    return {instance: request for instance, request in requests.items() if _is_held_for(request, snapshot.now)}


def _is_held_for(request: NodeRequest, now: float) -> bool:
    """Whether a request in a mark is one: of a known instance, and with an id and a lease that is not over."""
    return bool(request.instance and request.request_id) and request.expires > now


def _unread(now: float, problem: str) -> Outcome:
    nothing = ClusterSnapshot(now, {}, {}, frozenset(), None)
    return Outcome(nothing, problem=problem)


def _rejected_hook(hook: Hook, error: KubernetesError) -> Hook:
    lasting = 400 <= error.status < 500 and error.status != 429
    return replace(hook, trouble=f"the server would refuse its Job: {error.detail}", lasting=lasting)


def _drain_facts(node: Node) -> tuple[object, ...]:
    """What a change of the node depends on."""
    return node.cordoned, node.mark, node.instance, node.barred


def _describe_failure(change: Change, error: KubernetesError) -> str:
    if error.causes:
        return f"{change.purpose}: waits for a disruption budget: {'; '.join(error.causes)}"
    if change.node and error.status == 409:
        return f"{change.purpose}: another client changed the node at the same moment, so the next look reads it again"
    return f"{change.purpose}: {error.detail}"
