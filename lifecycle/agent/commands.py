"""The commands that change something in Slurm, each for one node or job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from drain_protocol import NodeRequest

from .script import make_script
from .slurm import PREFIX, Backup, Job, OurDrain, Reservation, SlurmNode, reservation_name

NO_REQUEUE = ("Only batch jobs are accepted", "Requested operation is presently disabled")
"""Slurm's errors for a job that it cannot requeue: a job of srun or salloc, or one with --no-requeue (slurm_errno.c)."""


class Act(NamedTuple):
    """One command, and the command to run if Slurm can never do the first."""

    why: str
    command: tuple[str, ...]
    order: Mapping[str, Any] | None = None
    """What the backup's job has to save. None: the command submits no backup."""
    otherwise: tuple[str, ...] = ()
    """The command to run if the first fails with one of NO_REQUEUE."""
    instance: str = ""
    ends: str = ""
    """The job that it ends."""

    @property
    def stdin(self) -> str:
        """The command's input. It is made only when the command runs: one look may have thousands of acts."""
        if self.order is None:
            return ""
        return make_script(self.order)


def reserve_node(instance: str, node: SlurmNode) -> Act:
    """Keep new jobs away from it."""
    # IGNORE_JOBS: also while jobs run there. MAINT: also if another reservation has the node.
    words = ["starttime=now", "duration=UNLIMITED", "users=root", "flags=MAINT,IGNORE_JOBS"]
    name = f"reservationname={reservation_name(instance)}"
    return Act(
        f"reserve {node.name}",
        ("scontrol", "create", "reservation", name, *words, f"nodes={node.name}"),
        instance=instance,
    )


def drain_node(node_request: NodeRequest, node: SlurmNode, drain: OurDrain) -> Act:
    """Drain it, with a reason of ours that names the request."""
    reason = f"reason={reason_of(node_request, drain)}"
    return _update(node_request.instance, node, f"drain it ({drain.how})", "state=drain", reason)


def reason_of(node_request: NodeRequest, drain: OurDrain) -> str:
    """The reason of a drain of ours, as OUR_REASON reads it."""
    reason = f"{PREFIX}:{node_request.writer}:{node_request.request_id}:{drain.how}"
    if not drain.slurm_reason:
        return reason
    return f"{reason}:{drain.slurm_reason}"


def end_drain(instance: str, node: SlurmNode, why: str) -> Act:
    """End our drain. A node that Slurm itself had drained stays drained."""
    was = node.our_drain.slurm_reason if node.our_drain else ""
    return put_back(instance, node, was) if was else open_node(instance, node, why)


def put_back(instance: str, node: SlurmNode, was: str) -> Act:
    """Drain it again with Slurm's own reason."""
    return _update(instance, node, "restore the drain of Slurm", "state=drain", f"reason={was}")


def open_node(instance: str, node: SlurmNode, why: str) -> Act:
    """Resume it."""
    # The empty reason removes our mark, whatever state=resume does with a reason (22.05 and 24.11.5 clear it). slurmctld
    # keeps an existing reason when it drains the node itself, and the agent would take that drain for its own.
    return _update(instance, node, why, "state=resume", "reason=")


def _update(instance: str, node: SlurmNode, why: str, *words: str) -> Act:
    return Act(f"{node.name}: {why}", ("scontrol", "update", f"nodename={node.name}", *words), instance=instance)


def end_job(instance: str, name: str) -> Act:
    """Requeue it, or cancel it if Slurm cannot requeue it."""
    return Act(
        f"end job {name} at its deadline",
        ("scontrol", "requeue", name),
        otherwise=("scancel", name),
        instance=instance,
        ends=name,
    )


def cancel_backup(job: Backup) -> Act:
    """Cancel a backup of ours."""
    return Act(f"cancel backup {job.id}, which no request wants", ("scancel", job.id))


def delete_reservation(instance: str, reservation: Reservation) -> Act:
    """Let jobs start on the node again."""
    what = ",".join(reservation.nodes) or instance
    return Act(f"release {what}", ("scontrol", "delete", f"reservationname={reservation_name(instance)}"))


def free_job(instance: str, job: Job) -> Act:
    """Let a pending job start on other nodes than those that it asks for by name."""
    # Slurm fails a pending job when a node that it asks for by name leaves slurm.conf.
    command = ("scontrol", "update", f"jobid={job.id}", "reqnodelist=")
    return Act(f"let job {job.id} run on other nodes", command, instance=instance)
