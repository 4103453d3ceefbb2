"""What one look knows of one node that a request names: facts alone, for the rules to decide by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ..kernel.drain_protocol import NodeRequest
from .backup_job import job_name
from .cluster_snapshot import ClusterSnapshot, Hook
from .mark import Mark
from .objects import Job, Node, Pod


class Phase(Enum):
    """How far the time of a request has passed."""

    DRAINING = auto()
    """Before the deadline."""
    TIMED_OUT = auto()
    """Past the deadline of a request that fails then: the node is released."""
    FORCED = auto()
    """Past the deadline of a request that forces: pods that still run end with the node."""


@dataclass(frozen=True, slots=True)
class PendingBackup:
    """A backup that still has to be made."""

    hook: Hook
    job: Job | None
    """The drainer's own Job that saves the node."""
    other_job: Job | None
    """A Job of the same name whose uid is not in the mark."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node that a request names. Its fields are facts; the rules decide."""

    request: NodeRequest
    node: Node
    now: float
    mark: Mark | None
    """The mark, if it is of this very request."""
    held: bool
    """The node is cordoned and marked for this very request."""
    phase: Phase
    lost: bool
    """Past the deadline, and its kubelet is silent while most others are not. It may run on, cut off from the API, so it had
    the time that all have."""
    pods: tuple[Pod, ...]
    """Pods that run there and have to leave."""
    awaited_pods: tuple[Pod, ...]
    """Those of `pods` that the drain waits for. None once the node is lost or the request forces."""
    rejected_pods: tuple[Pod, ...]
    """Those of `pods` that no controller would create again, unless the request allows their eviction."""
    saved: bool
    """Its data is saved for this very request."""
    pending_backup: PendingBackup | None
    """None: nothing has to be saved, or it is saved."""
    note: str
    """How a message begins: whose cordon it is, and that the node does not respond. Mostly empty."""


def view_node(request: NodeRequest, node: Node, snapshot: ClusterSnapshot) -> NodeView:
    """The facts of one node, from one look."""
    mark = _mark_of(request, node)
    held = mark is not None and node.cordoned
    phase = _phase_of(request, snapshot.now)
    lost = _is_lost(node, phase, snapshot)
    pods = snapshot.pods.get(node.name, ())
    backup = _backup_of(request, node, mark if held else None, snapshot)
    saved = _is_saved(mark, backup)
    return NodeView(
        request=request,
        node=node,
        now=snapshot.now,
        mark=mark,
        held=held,
        phase=phase,
        lost=lost,
        pods=pods,
        awaited_pods=() if lost or phase is Phase.FORCED else pods,
        rejected_pods=_rejected_pods(request, pods),
        saved=saved,
        pending_backup=None if saved else backup,
        note=_whose_cordon(node, held=held) + _responds(node, snapshot),
    )


def _mark_of(request: NodeRequest, node: Node) -> Mark | None:
    mark = node.mark
    if mark is None or mark.request.request_id != request.request_id:
        return None
    return mark


def _phase_of(request: NodeRequest, now: float) -> Phase:
    if now < request.deadline:
        return Phase.DRAINING
    return Phase.FORCED if request.force else Phase.TIMED_OUT


def _is_lost(node: Node, phase: Phase, snapshot: ClusterSnapshot) -> bool:
    if phase is Phase.DRAINING or snapshot.cut_off:
        return False
    return node.dead


def _rejected_pods(request: NodeRequest, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    if request.evict_unmanaged:
        return ()
    return tuple(pod for pod in pods if not pod.leaving and not pod.owner)


def _backup_of(
    request: NodeRequest, node: Node, held_by: Mark | None, snapshot: ClusterSnapshot
) -> PendingBackup | None:
    """The backup that the request wants, whether it is done or not. `held_by`: the mark, if the node is held."""
    if snapshot.hook is None or not request.backup:
        return None
    job = snapshot.hook.jobs.get(job_name(request, node)) if held_by else None
    if job is None or held_by is None:
        return PendingBackup(snapshot.hook, job=None, other_job=None)
    if proves_backup(job, held_by):
        return PendingBackup(snapshot.hook, job=job, other_job=None)
    return PendingBackup(snapshot.hook, job=None, other_job=job)


def proves_backup(job: Job, mark: Mark) -> bool:
    """Whether the drainer made the Job. Anybody may use its name, so only the uid in the mark counts."""
    return job.uid == mark.job


def _is_saved(mark: Mark | None, backup: PendingBackup | None) -> bool:
    if mark is not None and mark.saved:
        return True
    return backup is not None and backup.job is not None and backup.job.state == "complete"


def _whose_cordon(node: Node, *, held: bool) -> str:
    if not held or node.mark is None or node.mark.ours:
        return ""
    return "was cordoned by another client, which has to uncordon it; "


def _responds(node: Node, snapshot: ClusterSnapshot) -> str:
    if not node.dead:
        return ""
    if snapshot.cut_off:
        return "does not respond, as most nodes; "
    return "does not respond; "
