"""The facts about one requested node, at one look. The rules (decide.py) go by these alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drain_protocol import NodeRequest

from .slurm import Backup, Job, Mark, Reservation, SlurmNode, backup_name
from .slurm_state import SlurmState


@dataclass(frozen=True)
class NodeView:
    """One requested node, and everything that decides about it."""

    now: float
    """In seconds since 1970."""
    instance: str
    node: SlurmNode
    node_requests: tuple[NodeRequest, ...]
    """At least one. The first is named in what is made in Slurm."""

    # -- what the requests say
    is_waited_for: bool
    """A request still waits: its deadline is ahead, or it ends the jobs at its deadline."""
    has_passed_deadline: bool
    """The deadline of at least one request has passed."""
    ends_jobs: bool
    """A request ends the jobs at its deadline."""
    ends_jobs_now: bool
    """The deadline of such a request has passed."""
    seconds_left: float
    """Until the next deadline. 0: all have passed."""
    releases_nodes: bool
    """A node that timed out is released at this look."""

    # -- what runs on the node
    reservation: Reservation | None
    """Ours."""
    jobs: tuple[Job, ...]
    """The jobs to wait for, or to end."""
    jobs_naming_node: tuple[Job, ...]
    """Pending jobs that request the node by its name. Slurm fails them when the node leaves slurm.conf."""

    # -- our drain, and Slurm's
    mark: Mark | None
    """How far our drain is. None: the node is not drained by us."""
    slurm_reason: str
    """Why Slurm itself took the node out of work, also if we opened the node since. Empty: it did not."""

    # -- the backup
    backup: Mapping[str, Any]
    """The settings of backups. Empty: nothing is saved on this cluster."""
    needs_backup: bool
    """A request wants the node saved."""
    is_kept_if_unsaved: bool
    """The node is not ready if it cannot be saved."""
    tries: tuple[Backup, ...]
    """The requests' backup jobs under this reservation, oldest first. A backup for one request is good for all."""

    @property
    def running_try(self) -> Backup | None:
        """The backup job that has not ended."""
        for job in self.tries:
            if job.live:
                return job
        return None

    @property
    def last_try(self) -> Backup | None:
        if not self.tries:
            return None
        return self.tries[-1]


def view_node(
    node_requests: Sequence[NodeRequest], node: SlurmNode, slurm: SlurmState, settings: Mapping[str, Any]
) -> NodeView:
    """The facts of this look about the node that these requests name."""
    instance = node_requests[0].instance
    reservation = slurm.reservations.get(instance)
    ahead = [each for each in node_requests if each.deadline > slurm.now]
    late = [each for each in node_requests if each.deadline <= slurm.now]
    to_save = [each for each in node_requests if each.backup]
    backup = settings.get("backup") or {}
    needs_backup = bool(backup and to_save)
    tries = _find_tries(to_save, reservation, slurm)
    return NodeView(
        now=slurm.now,
        instance=instance,
        node=node,
        node_requests=tuple(node_requests),
        is_waited_for=bool(ahead) or _ends_jobs(node_requests),
        has_passed_deadline=bool(late),
        ends_jobs=_ends_jobs(node_requests),
        ends_jobs_now=_ends_jobs(late),
        seconds_left=min((each.deadline - slurm.now for each in ahead), default=0),
        releases_nodes=slurm.releases_nodes,
        reservation=reservation,
        jobs=_jobs_to_wait_for(node, slurm),
        jobs_naming_node=tuple(slurm.jobs_naming.get(node.name, ())),
        mark=node.our_drain.mark if node.our_drain else None,
        slurm_reason=_slurm_reason(node, tries),
        backup=backup,
        needs_backup=needs_backup,
        is_kept_if_unsaved=needs_backup and backup["on_failure"] == "fail",
        tries=tries,
    )


def _ends_jobs(node_requests: Sequence[NodeRequest]) -> bool:
    return any(each.force for each in node_requests)


def _jobs_to_wait_for(node: SlurmNode, slurm: SlurmState) -> tuple[Job, ...]:
    """None for a dead node: its jobs never end. A node that a person set DOWN may be alive."""
    if node.down and not node.foreign:
        return ()
    return tuple(slurm.jobs.get(node.name, ()))


def _find_tries(
    to_save: Sequence[NodeRequest], reservation: Reservation | None, slurm: SlurmState
) -> tuple[Backup, ...]:
    """Only those of this reservation. While the node was released before it, jobs may have written."""
    if reservation is None:
        return ()
    tries: list[Backup] = []
    for node_request in to_save:
        tries += slurm.backups.get(backup_name(node_request, reservation.start), ())
    return tuple(sorted(tries, key=lambda job: int(job.id)))


def _slurm_reason(node: SlurmNode, tries: Sequence[Backup]) -> str:
    if node.our_drain:
        return node.our_drain.slurm_reason
    if node.by_slurm:
        return _reason_to_restore(node)
    if tries:
        return tries[-1].slurm_reason
    return ""


def _reason_to_restore(node: SlurmNode) -> str:
    """Empty: Slurm resumes the node by itself as soon as it responds."""
    if node.silent and not node.drained:
        return ""
    return node.by_slurm
