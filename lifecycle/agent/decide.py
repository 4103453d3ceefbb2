"""What happens to each requested node: the decision of the first rule that applies.

First the rules of identity.py: is the instance one Slurm node that may be drained? Then the rules here. Their order is the
specification: each rule may rely on every rule before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drain_protocol import NodeRequest

from . import identity
from .commands import Act, drain_node, end_drain, end_job, free_job, open_node, put_back, reserve_node
from .decision import CLEANING_UP, Decision, first_decision, join_texts, show_jobs
from .slurm import WAIVER, Job, Mark, OurDrain, left_out
from .slurm_state import SlurmState
from .submit import MOST_TRIES, submit_backup
from .view import NodeView, view_node

MOST_REASON_LETTERS = 200


def decide_node(node_requests: Sequence[NodeRequest], slurm: SlurmState, settings: Mapping[str, Any]) -> Decision:
    """What happens to the one instance that these live requests name."""
    candidates = identity.find_candidates(node_requests, slurm)
    refusal = first_decision(identity.RULES, candidates)
    if refusal is not None:
        return refusal
    (node,) = candidates.nodes
    view = view_node(node_requests, node, slurm, settings)
    return first_decision(RULES, view) or _give_up(view)


# -- we have drained it


def _is_drained_but_busy(view: NodeView) -> Decision | None:
    if not _has_final_drain(view) or not view.node.busy:
        return None
    return Decision("draining", CLEANING_UP)


def _is_dead_and_unsaved(view: NodeView) -> Decision | None:
    """It was drained for somebody who needed no backup, or before on_failure was set to fail."""
    if not _has_final_drain(view) or view.mark is Mark.SAVED or not view.is_kept_if_unsaved:
        return None
    return Decision("backup-failed", f"could not be saved: no job can run there; {_waiver(view)}")


def _is_ready(view: NodeView) -> Decision | None:
    if not _has_final_drain(view):
        return None
    return Decision("ready", _ready_message(view), saved=view.mark is Mark.SAVED)


def _has_final_drain(view: NodeView) -> bool:
    """We have drained it, nothing runs there, and nothing more is to be saved."""
    if view.mark is None or view.mark is Mark.SAVING:
        return False
    if view.jobs:
        return False
    return not _can_be_saved_after_all(view)


def _can_be_saved_after_all(view: NodeView) -> bool:
    """A node that we have drained without a backup is to be opened, and saved."""
    if not view.needs_backup or view.node.down:
        return False
    if view.mark is Mark.UNSAVED:
        return True
    # A lost node that responds again. With on_failure: continue it may have been given up after its tries.
    return view.mark is Mark.LOST and view.is_kept_if_unsaved and not view.node.silent


def _ready_message(view: NodeView) -> str:
    how = {Mark.SAVED: "is saved", Mark.LOST: "nothing could be saved"}.get(view.mark or Mark.UNSAVED, "")
    if not view.jobs_naming_node:
        return how
    jobs = show_jobs(view.jobs_naming_node)
    return join_texts(how, f"when it is deleted, Slurm fails the pending jobs that request it by name: {jobs}")


# -- a person, or HyperPod (Action:Replace), took it out of work: the agent changes neither state nor reason


def _is_kept_by_a_foreign_drain(view: NodeView) -> Decision | None:
    """Whoever drained it, such as a health check, only a person's own words give up its data."""
    if not view.node.foreign or not view.is_kept_if_unsaved or view.node.waived:
        return None
    if view.jobs or view.node.busy:
        return None
    return Decision(
        "backup-failed",
        f"could not be saved: {_foreign_drain(view)}; remove the cause, and resume the node; {_waiver(view)}",
    )


def _is_ready_by_a_foreign_drain(view: NodeView) -> Decision | None:
    if not view.node.foreign or view.jobs or view.node.busy:
        return None
    return Decision("ready", f"{_foreign_drain(view)}; nothing is saved", waived=view.node.waived)


def _waiver(view: NodeView) -> str:
    return (
        f"to delete it without a backup, run `scontrol update nodename={view.node.name} state=drain reason='{WAIVER}'`"
    )


def _is_busy_under_a_foreign_drain(view: NodeView) -> Decision | None:
    if not view.node.foreign or not view.is_waited_for:
        return None
    return Decision("draining", _busy_foreign_drain(view))


def _timed_out_under_a_foreign_drain(view: NodeView) -> Decision | None:
    if not view.node.foreign:
        return None
    return Decision("timed-out", _busy_foreign_drain(view))


def _foreign_drain(view: NodeView) -> str:
    return f"was {view.node.foreign} by another user or program ({_reason(view)})"


def _busy_foreign_drain(view: NodeView) -> str:
    return f"{_foreign_drain(view)}; nothing is saved; {show_jobs(view.jobs) or CLEANING_UP}"


def _reason(view: NodeView) -> str:
    return view.node.reason[:MOST_REASON_LETTERS] or "no reason"


# -- the deadline, the reservation, and the jobs


def _timed_out(view: NodeView) -> Decision | None:
    if view.is_waited_for:
        return None
    how = "is past its deadline, and still reserved"
    if view.releases_nodes:
        how = "was released at its deadline"
    return Decision("timed-out", f"{how}; {show_jobs(view.jobs)}", holds=False)


def _is_not_reserved(view: NodeView) -> Decision | None:
    if view.reservation is not None:
        return None
    return Decision("draining", show_jobs(view.jobs), (reserve_node(view.instance, view.node),))


def _has_jobs_past_their_deadline(view: NodeView) -> Decision | None:
    if not view.jobs or not view.ends_jobs_now:
        return None
    return Decision("draining", _jobs_message(view), _end_jobs(view))


def _has_jobs(view: NodeView) -> Decision | None:
    if not view.jobs:
        return None
    return Decision("draining", _jobs_message(view))


def _end_jobs(view: NodeView) -> tuple[Act, ...]:
    # A completing job may be on its way back to the queue. Ending it now would delete it there.
    running = [job for job in view.jobs if job.state != "COMPLETING"]
    return tuple(end_job(view.instance, name) for name in dict.fromkeys(job.ends for job in running))


def _jobs_message(view: NodeView) -> str:
    left = f"{view.seconds_left / 60:.0f} minutes left"
    return join_texts(show_jobs(view.jobs), left, _other_components(view), _drained_by_slurm(view))


def _other_components(view: NodeView) -> str:
    """Slurm ends all components of a heterogeneous job together, on other nodes, too."""
    if not view.ends_jobs:
        return ""
    leaders = ", ".join(dict.fromkeys(job.ends for job in view.jobs if _is_component(job)))
    if not leaders:
        return ""
    return f"all components of heterogeneous job {leaders} end with it"


def _is_component(job: Job) -> bool:
    return "+" in job.id


def _drained_by_slurm(view: NodeView) -> str:
    if not view.node.by_slurm:
        return ""
    return f"was drained by Slurm ({view.node.by_slurm})"


# -- nothing runs there any more, and it is down or silent


def _is_down_and_kept(view: NodeView) -> Decision | None:
    if not _is_dead(view) or not view.is_kept_if_unsaved or not view.node.set_down:
        return None
    return Decision(
        "backup-failed", f"could not be saved: is down ({_reason(view)}), and no job can run there; {_waiver(view)}"
    )


def _is_down(view: NodeView) -> Decision | None:
    if not _is_dead(view):
        return None
    return Decision("draining", "is down", _drain(view, Mark.LOST))


def _is_dead(view: NodeView) -> bool:
    """It is down, and its backup cannot run. A node that Slurm set DOWN, and that responds again, can be opened for it."""
    if not view.node.down:
        return False
    if not view.needs_backup:
        return True
    return view.node.silent or not view.node.by_slurm


def _is_silent(view: NodeView) -> Decision | None:
    if not view.node.silent:
        return None
    return Decision("draining", "does not respond; the agent waits until it responds, or until Slurm sets it DOWN")


# -- it responds, and needs no backup


def _needs_only_a_drain(view: NodeView) -> Decision | None:
    if view.needs_backup or view.node.by_slurm:
        return None
    return Decision("draining", "", _drain(view, Mark.UNSAVED))


def _is_busy_under_a_drain_of_slurm(view: NodeView) -> Decision | None:
    if view.needs_backup or not view.node.busy:
        return None
    return Decision("draining", f"{_drained_by_slurm(view)}; nothing is saved; {CLEANING_UP}")


def _is_ready_by_a_drain_of_slurm(view: NodeView) -> Decision | None:
    """Slurm's own drain keeps jobs away as ours would."""
    if view.needs_backup:
        return None
    return Decision("ready", f"{_drained_by_slurm(view)}; nothing is saved")


# -- it responds, and has to be saved


def _backup_waits_for_an_open_node(view: NodeView) -> Decision | None:
    """A job on a drained node never starts. The backup's job drains the node again before it reads anything."""
    job = view.running_try
    if job is None or job.state != "PENDING" or not view.node.out_of_work:
        return None
    return Decision(
        "backing-up", _backup_message(view), (open_node(view.instance, view.node, "resume it for its backup"),)
    )


def _is_being_saved(view: NodeView) -> Decision | None:
    if view.running_try is None:
        return None
    return Decision("backing-up", _backup_message(view))


def _backup_message(view: NodeView) -> str:
    job = view.running_try
    if job is None:
        return ""
    return f"job {job.id}, {job.state.lower()}: {job.comment}".rstrip(": ")


def _was_saved(view: NodeView) -> Decision | None:
    """The job drained the node when it began, and the node is still drained. So no other job ran there since, nor can one."""
    job = view.last_try
    if job is None or job.state != "COMPLETED" or view.mark is not Mark.SAVING:
        return None
    # Slurm forgets a job and its comment after some minutes. The reason of the drain keeps the count.
    return Decision("backing-up", "", _drain(view, Mark.SAVED, left_out(job.comment)))


def _was_left_open(view: NodeView) -> Decision | None:
    """Slurm had drained the node, and the backup's job ended before it could drain the node again."""
    if view.node.out_of_work or not view.slurm_reason:
        return None
    return Decision("backing-up", "", (put_back(view.instance, view.node, view.slurm_reason),))


def _has_tries_left(view: NodeView) -> Decision | None:
    if not view.needs_backup or len(view.tries) >= MOST_TRIES:
        return None
    return Decision("backing-up", "", (submit_backup(view),))


def _is_drained_unsaved(view: NodeView) -> Decision | None:
    if view.is_kept_if_unsaved:
        return None
    return Decision("backup-failed", _failure_message(view), _drain(view, Mark.LOST))


def _give_up(view: NodeView) -> Decision:
    """No rule applies: all tries have failed. Our drain ends, so that a backup can run again after a person removed the cause."""
    acts: tuple[Act, ...] = ()
    if view.mark is not None:
        acts = (end_drain(view.instance, view.node, "resume it, as it could not be saved"),)
    return Decision(
        "backup-failed",
        f"{_failure_message(view)}; the agent tries again in a few minutes: remove the cause, or undrain the node",
        acts,
    )


def _failure_message(view: NodeView) -> str:
    message = f"could not be saved in {len(view.tries)} tries: {_last_failure(view)}"
    if not view.slurm_reason:
        return message
    return f"{message}; was drained by Slurm ({view.slurm_reason})"


def _last_failure(view: NodeView) -> str:
    job = view.last_try
    if job is None:
        return ""
    if job.state == "COMPLETED":
        return "succeeded, but the node was opened meanwhile"
    return job.comment or job.state


def _drain(view: NodeView, mark: Mark, files_left_out: int = 0) -> tuple[Act, ...]:
    drain = OurDrain(mark, files_left_out, view.slurm_reason)
    return (*_free_jobs(view), drain_node(view.node_requests[0], view.node, drain))


def _free_jobs(view: NodeView) -> tuple[Act, ...]:
    """Before the deadline, pending jobs that name the node may still get it back."""
    if not view.has_passed_deadline:
        return ()
    return tuple(free_job(view.instance, job) for job in view.jobs_naming_node)


RULES: Sequence[Callable[[NodeView], Decision | None]] = (
    _is_drained_but_busy,
    _is_dead_and_unsaved,
    _is_ready,
    _is_kept_by_a_foreign_drain,
    _is_ready_by_a_foreign_drain,
    _is_busy_under_a_foreign_drain,
    _timed_out_under_a_foreign_drain,
    _timed_out,
    _is_not_reserved,
    _has_jobs_past_their_deadline,
    _has_jobs,
    _is_down_and_kept,
    _is_down,
    _is_silent,
    _needs_only_a_drain,
    _is_busy_under_a_drain_of_slurm,
    _is_ready_by_a_drain_of_slurm,
    _backup_waits_for_an_open_node,
    _is_being_saved,
    _was_saved,
    _was_left_open,
    _has_tries_left,
    _is_drained_unsaved,
)
"""What happens to a node of Slurm's: the first that applies."""
