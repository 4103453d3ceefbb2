"""Decides what happens to each node that a request names, and to nodes that no request names any more. Pure.

The rules of `RULES` are tried in their order, and the first that applies decides. The order is the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ..kernel.drain_protocol import NodeRequest
from ..kernel.refuse import Failure
from ..kernel.sentences import join_clauses, some
from . import changes
from .backup_job import job_name
from .changes import Change
from .cluster_snapshot import ClusterSnapshot
from .objects import Job, Node, Pod
from .view import NodeView, PendingBackup, Phase, view_node

RENEW_S = 300.0
"""The lease in the mark is renewed if it differs by more than this from the requested one. The shortest lease is ten minutes."""
CHECKED_PODS = 3
"""Pods of a node that timed out whose eviction is checked, to report what keeps them."""
SHOWN = 3
"""Names that a message shows."""

State = Literal["unknown", "refused", "draining", "backing-up", "backup-failed", "timed-out", "ready"]
"""The Slurm agent's words."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the answer reports of a node, and the changes to make."""

    state: State
    message: str = ""
    changes: tuple[Change, ...] = ()
    release: bool = False
    """The node is released, and its backup is stopped."""
    saved: bool = False
    """The node is ready, and what had to be saved is."""
    absent: bool = False
    """Kubernetes has no such node, so nothing runs on it."""


# -- one node ---------------------------------------------------------------------------------------------------------


def reject_karpenter(view: NodeView) -> Decision | None:
    """Karpenter would replace the node, or delete it by itself."""
    if not view.node.karpenter:
        return None
    failure = Failure(
        code="node-of-karpenter",
        problem=f"is a node of Karpenter (NodePool {view.node.karpenter}), which decides by itself when it deletes a node",
        remedy="end what runs there, or delete the NodePool, and wait until the node is deleted; or deploy without scale_down.drain",
    )
    return Decision("refused", str(failure), release=True)


def reject_unmanaged_pods(view: NodeView) -> Decision | None:
    """No controller would create such pods again. A node that is held stays held until the deployment releases it."""
    if not view.rejected_pods:
        return None
    pods = some([pod.title for pod in view.rejected_pods], SHOWN)
    failure = Failure(
        code="pods-unmanaged",
        problem=f"has pods that no controller owns, so nothing would create them again: {pods}",
        remedy="end them, or set scale_down.drain.unmanaged_pods: evict",
    )
    return Decision("refused", str(failure), release=not view.held)


def report_ready(view: NodeView) -> Decision | None:
    """The node is empty, or does not have to be, and nothing is left to save."""
    if not view.held or view.awaited_pods or view.pending_backup:
        return None
    left = f"what is left ends with the node; {_describe(view.pods)}" if view.pods else ""
    message = view.note + join_clauses("is saved" if view.saved else "", left)
    return Decision("ready", message, _record_backup(view), saved=view.saved)


def _record_backup(view: NodeView) -> tuple[Change, ...]:
    """Write the end of the backup into the mark, which outlives the Job."""
    if not view.saved or view.mark is None or view.mark.saved:
        return ()
    mark = replace(view.mark, request=view.request, saved=True)
    return (changes.write_mark(view.node, mark, "is saved"),)


def give_up_lost_node(view: NodeView) -> Decision | None:
    """Its kubelet runs no Job, so the node cannot be saved."""
    if not view.held or not view.lost:
        return None
    failure = Failure(
        code="node-lost",
        problem="cannot be saved, because its kubelet runs no Job",
        remedy=f"if the node is lost, run `kubectl delete node {view.node.name}`",
    )
    return Decision("backup-failed", view.note + join_clauses(str(failure), _describe(view.pods)))


def time_out(view: NodeView) -> Decision | None:
    """The node is released. No pod is evicted any more. The evictions are only checked, to report what keeps the pods."""
    if view.phase is not Phase.TIMED_OUT:
        return None
    checks = tuple(
        changes.check_eviction(view.request.instance, pod) for pod in view.pods[:CHECKED_PODS] if not pod.leaving
    )
    delay = _delay(view.request.instance, view.pending_backup) if view.pending_backup else ""
    message = join_clauses("was released at its deadline", _describe(view.pods), delay)
    return Decision("timed-out", view.note + message, checks, release=True)


def reject_impossible_backup(view: NodeView) -> Decision | None:
    """Checked before a pod leaves the node: it would leave in vain."""
    backup = view.pending_backup
    if backup is None or backup.job or not backup.hook.trouble:
        return None
    problem = f"cannot be saved: {backup.hook.trouble}"
    if not backup.hook.lasting:
        return Decision("draining", problem)
    failure = Failure(
        code="backup-impossible",
        problem=problem,
        remedy="correct backup_cron_job or its CronJob, then deploy again",
    )
    return Decision("backup-failed", str(failure))


def drain(view: NodeView) -> Decision | None:
    """Cordon the node, and evict the pods that it waits for."""
    if view.held and not view.awaited_pods:
        return None
    hold = () if view.held else (changes.cordon(view),)
    evictions = [changes.evict(view.request.instance, pod) for pod in view.awaited_pods if not pod.leaving]
    message = join_clauses(_describe(view.awaited_pods), _minutes_left(view))
    return Decision("draining", view.note + message, (*hold, *evictions))


def _minutes_left(view: NodeView) -> str:
    if not view.awaited_pods:
        return ""
    return f"{max(0.0, view.request.deadline - view.now) / 60:.0f} minutes left"


def report_failed_backup(view: NodeView) -> Decision | None:
    """A Job that failed is not made again for the same request."""
    backup = view.pending_backup
    if backup is None or backup.job is None or backup.job.state != "failed":
        return None
    job, namespace = backup.job.name, backup.hook.namespace
    failure = Failure(
        code="node-backup-failed",
        problem=f"could not be saved: Job {namespace}/{job}: {backup.job.message}",
        remedy=f"read its log with `kubectl logs job/{job} --namespace {namespace}`",
    )
    return Decision("backup-failed", view.note + str(failure))


def await_backup(view: NodeView) -> Decision | None:
    """The Job runs."""
    backup = view.pending_backup
    if backup is None or backup.job is None:
        return None
    return Decision("backing-up", view.note + _delay(view.request.instance, backup))


def begin_backup(view: NodeView) -> Decision | None:
    """Create the Job. A Job of its name whose uid is not in the mark is deleted, though the drainer itself may have made it and
    failed to write its uid down: only a Job in the mark proves a backup."""
    backup = view.pending_backup
    if backup is None:
        return None
    message, steps = "", list[Change]()
    if backup.other_job:
        message = f"deletes Job {backup.hook.namespace}/{backup.other_job.name}, which is not in the mark"
        steps.append(changes.delete_backup_job(backup.other_job, backup.hook.namespace))
    if backup.hook.cron_job:
        steps.append(changes.create_backup_job(view, backup.hook, backup.hook.cron_job))
    return Decision("backing-up", view.note + message, tuple(steps))


Rule = Callable[[NodeView], Decision | None]

RULES: tuple[Rule, ...] = (
    reject_karpenter,
    reject_unmanaged_pods,
    report_ready,
    give_up_lost_node,
    time_out,
    reject_impossible_backup,
    drain,
    report_failed_backup,
    await_backup,
    begin_backup,
)


def decide_node(view: NodeView) -> Decision:
    """By the first rule that applies. One always does: a node that is neither ready nor drained has a backup to make."""
    for rule in RULES:
        decision = rule(view)
        if decision is not None:
            return decision
    raise AssertionError


def _delay(instance: str, backup: PendingBackup) -> str:
    """What delays the backup, as far as Kubernetes reports it: the state of its pod, or the last event of its Job."""
    if backup.job is not None:
        return f"Job {backup.hook.namespace}/{backup.job.name}: {_state_of(backup.job, backup)}"
    if backup.hook.trouble:
        return backup.hook.trouble
    # If an earlier look released the node, its Job is deleted, and the Job's events are not.
    jobs = [name for name in backup.hook.events if name.startswith(f"drain-{instance}-")]
    if not jobs:
        return ""
    return f"Job {backup.hook.namespace}/{jobs[-1]}: {backup.hook.events[jobs[-1]]}"


def _state_of(job: Job, backup: PendingBackup) -> str:
    pod = backup.hook.pods.get(job.name)
    return pod or join_clauses("has no pod", backup.hook.events.get(job.name, ""))


def _describe(pods: Sequence[Pod]) -> str:
    return f"pods: {some(map(_title, pods), SHOWN)}" if pods else ""


def _title(pod: Pod) -> str:
    owner = f" of {pod.owner}" if pod.owner else ""
    return f"{pod.title}{owner}{' (ending)' if pod.leaving else ''}"


# -- one instance -----------------------------------------------------------------------------------------------------


def decide_instance(request: NodeRequest, snapshot: ClusterSnapshot) -> Decision:
    """What happens to one instance that a request names."""
    nodes = snapshot.nodes.get(request.instance, ())
    if not nodes:
        doubt = _why_a_node_may_exist(snapshot)
        return Decision("unknown", join_clauses("Kubernetes has no such node", doubt), absent=not doubt)
    if len(nodes) > 1:
        names = some([node.name for node in nodes], SHOWN)
        return Decision("unknown", f"{len(nodes)} nodes have its instance id: {names}")
    decision = decide_node(view_node(request, nodes[0], snapshot))
    if _needs_renewal(request, nodes[0], decision):
        return replace(decision, changes=(_renew(request, nodes[0]), *decision.changes))
    return decision


def _why_a_node_may_exist(snapshot: ClusterSnapshot) -> str:
    """Why an instance may have a node though none is known to be it. Empty: it has none."""
    if not snapshot.nodes:
        return "it lists no nodes"
    hidden = [node.name for node in snapshot.nodes.get("", ()) if not node.no_instance]
    return f"it may be one without an instance id: {some(sorted(hidden), SHOWN)}" if hidden else ""


def _needs_renewal(request: NodeRequest, node: Node, decision: Decision) -> bool:
    """Whether only the lease in the mark is to be written: the node stays held, and no other change writes the mark."""
    mark = node.mark
    if mark is None or not node.cordoned or mark.request.request_id != request.request_id:
        return False
    if decision.release or any(change.node or change.then for change in decision.changes):
        return False
    return abs(mark.request.expires - request.expires) > RENEW_S


def _renew(request: NodeRequest, node: Node) -> Change:
    if node.mark is None:
        raise AssertionError  # it is held
    return changes.write_mark(node, replace(node.mark, request=request), "go on holding")


# -- all of them ------------------------------------------------------------------------------------------------------


def decide_all(requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> dict[str, Decision]:
    """What happens to all instances that a request names.

    If one of them is refused, the request is going to fail: no other node is cordoned for it, and no pod is evicted.
    """
    decisions = {instance: decide_instance(request, snapshot) for instance, request in requests.items()}
    if not any(_fails_request(decision) for decision in decisions.values()):
        return decisions
    return {instance: _without_beginning(decision) for instance, decision in decisions.items()}


def _fails_request(decision: Decision) -> bool:
    return decision.state == "refused" and decision.release


def _without_beginning(decision: Decision) -> Decision:
    return replace(decision, changes=tuple(change for change in decision.changes if not change.begins_drain))


def order_changes(
    requests: Mapping[str, NodeRequest],
    decisions: Mapping[str, Decision],
    snapshot: ClusterSnapshot,
    others: Mapping[str, NodeRequest] = MappingProxyType({}),
) -> list[Change]:
    """All changes that a request leads to. Releases come first, then the changes that cordon and mark nodes. `others`: what is held for
    others, and stays held."""
    kept = {instance: requests[instance] for instance, decision in decisions.items() if not decision.release}
    kept |= others
    # Each look begins with another node. Evictions that budgets refuse need time, and no node should always wait behind them.
    turn = round(snapshot.now) % max(1, len(decisions))
    in_turn = [*decisions.values()]
    made = [change for decision in (*in_turn[turn:], *in_turn[:turn]) for change in decision.changes]
    return [*release_unwanted(kept, snapshot), *sorted(made, key=lambda change: not change.first)]


def release_unwanted(kept: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> tuple[Change, ...]:
    """Release marked nodes, and stop backups, that no request wants. `kept`: the instances that stay held, and their requests."""
    return (*_release_nodes(kept, snapshot), *_stop_backups(kept, snapshot))


def _release_nodes(kept: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> Iterable[Change]:
    for nodes in snapshot.nodes.values():
        for node in nodes:
            if node.mark and node.instance not in kept:
                yield changes.release(node)


def _stop_backups(kept: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> Iterable[Change]:
    if snapshot.hook is None:
        return
    for job in snapshot.hook.jobs.values():
        if job.state == "running" and not _is_wanted(job, kept, snapshot):
            yield changes.delete_backup_job(job, snapshot.hook.namespace)


def _is_wanted(job: Job, kept: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> bool:
    request = kept.get(job.instance)
    if request is None:
        return False
    nodes = snapshot.nodes.get(job.instance, ())
    return any(job.name == job_name(request, node) for node in nodes)
