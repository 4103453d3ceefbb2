"""What becomes of each node that somebody wants: the first rule that holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from drain_protocol import NodeRequest

from .backup.job import LOG
from .commands import Act, drain_node, end_drain, end_job, free_job, open_node, put_back, reason_of, reserve_node
from .slurm import WAS, Backup, Job, SlurmNode, backup_name, left_out, reservation_name
from .slurm_state import SlurmState

MOST_TRIES = 3
EVERYBODY = "dev"
"""HyperPod's partition of all nodes. Those that compute, and no others, are in one more (SlurmConfig, PartitionNames)."""
WORKS = "Slurm is still cleaning up after the last job"


class Judgement(NamedTuple):
    """What is to be said of a node, and to be done about it."""

    state: str
    message: str
    acts: tuple[Act, ...] = ()
    keep: bool = True
    """Whether what is ours on it stays."""
    saved: bool = False
    """Whether it is ready, and what was to be saved is."""
    absent: bool = False
    """It is a node of this cluster's, and for sure none of Slurm's: nothing runs on it."""


def judge(node_requests: Sequence[NodeRequest], slurm: SlurmState, settings: Mapping[str, Any]) -> Judgement:
    """What becomes of one instance that these live requests name: the first that holds."""
    first = node_requests[0]
    if first.instance not in slurm.instances:
        return Judgement("unknown", "is no instance of this cluster: it is gone, was replaced, or is another cluster's")
    address = slurm.instances[first.instance]
    if any(node_request.address != address for node_request in node_requests):
        others = ", ".join(sorted({node_request.address for node_request in node_requests} - {address}))
        return Judgement("unknown", f"has the address {address} on the controller, and {others} in the request")
    if address in slurm.barred:
        return Judgement("refused", f"is {slurm.barred[address]}, which is never drained")
    named = slurm.at.get(address, ())
    if len(named) != 1:
        many = "no node" if not named else f"{len(named)} nodes"
        doubt = "" if named else _doubt(slurm)
        said = f"Slurm has {many} with the address {address}"
        return Judgement("unknown", "; ".join(filter(None, (said, doubt))), absent=not named and not doubt)
    if address in slurm.untold and not set(named[0].partitions) - {EVERYBODY}:
        said = f"may be a login node: no file of HyperPod's tells its type, and it is in no partition but {EVERYBODY}"
        return Judgement("refused", said)
    view = View.of(node_requests, named[0], slurm, settings)
    found = (rule(view) for rule in RULES)
    return next(judgement for judgement in found if judgement is not None)


def _doubt(slurm: SlurmState) -> str:
    """Why it may have a node all the same that none of its nodes seems to be."""
    if not slurm.nodes:
        return "it lists no node at all"
    hidden = sorted(node.name for node in slurm.nodes.values() if not node.addresses)
    more = f" and {len(hidden) - 5} more" if len(hidden) > 5 else ""
    return f"it may be one whose name has no address now: {', '.join(hidden[:5])}{more}" if hidden else ""


class View(NamedTuple):
    """One wanted node at one look: what the rules go by."""

    node_requests: Sequence[NodeRequest]
    node: SlurmNode
    slurm: SlurmState
    settings: Mapping[str, Any]
    jobs: tuple[Job, ...]
    """What has to end, or to be waited for."""
    late: tuple[NodeRequest, ...]
    """The requests whose deadline is over."""
    saves: bool
    """It is to be saved."""
    tries: tuple[Backup, ...]
    """The jobs by which it was to be saved, the last one last. One that was made for one of the requests is good for the other,
    too. None of before it went back to work, where jobs may have written since."""

    @classmethod
    def of(
        cls, node_requests: Sequence[NodeRequest], node: SlurmNode, slurm: SlurmState, settings: Mapping[str, Any]
    ) -> View:
        # What a dead node still has is no job that anybody waits for. One that a person set down may be alive.
        jobs = () if node.down and not node.foreign else slurm.jobs.get(node.name, ())
        late = tuple(node_request for node_request in node_requests if node_request.deadline <= slurm.now)
        asked = [node_request for node_request in node_requests if node_request.backup]
        held = slurm.reservations.get(node_requests[0].instance)
        names = [backup_name(node_request, held.start) for node_request in asked] if held else []
        tries = sorted((job for name in names for job in slurm.backups.get(name, ())), key=lambda job: int(job.id))
        return cls(
            node_requests, node, slurm, settings, jobs, late, bool(settings.get("backup") and asked), tuple(tries)
        )

    @property
    def instance(self) -> str:
        return self.node_requests[0].instance

    @property
    def held(self) -> bool:
        """It is reserved."""
        return self.instance in self.slurm.reservations

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for it."""
        return any(node_request.force or node_request not in self.late for node_request in self.node_requests)

    @property
    def fails(self) -> bool:
        """Whether a node that cannot be saved stays."""
        return self.saves and self.settings["backup"]["on_failure"] == "fail"

    @property
    def mark(self) -> str:
        """What our drain says of it: saving, saved, unsaved or lost; empty: it is not drained by us."""
        return self.node.our_drain.mark.value if self.node.our_drain else ""

    @property
    def was(self) -> str:
        """Slurm's own reason, which it has, or had before we opened it."""
        if self.node.our_drain:
            return self.node.our_drain.slurm_reason
        if self.node.by_slurm:
            # One that is only silent Slurm takes back by itself.
            return self.node.by_slurm if self.node.drained or not self.node.silent else ""
        return self.tries[-1].was if self.tries else ""

    @property
    def out_of_work(self) -> bool:
        """No job starts on it, root's neither."""
        return self.node.out_of_work

    @property
    def free(self) -> tuple[Act, ...]:
        """Slurm fails a pending job when a node that it asks for by name leaves slurm.conf."""
        naming = self.slurm.naming.get(self.node.name, ()) if self.late else ()
        return tuple(free_job(self.instance, job) for job in naming)

    def drain(self, how: str) -> tuple[Act, ...]:
        """How it becomes ready."""
        return (*self.free, drain_node(self.node_requests, self.node, how, self.was))


def _is_ready(view: View) -> Judgement | None:
    """We have drained it, and nothing more is to be saved."""
    if view.mark in ("", "saving") or view.jobs or _can_be_saved(view):
        return None
    if view.node.busy:
        return Judgement("draining", WORKS)
    return Judgement("ready", _ready_message(view.mark, view.node, view.slurm), saved=view.mark == "saved")


def _can_be_saved(view: View) -> bool:
    """Whether a node that we have drained without a backup is to be opened, and saved."""
    if view.mark == "saved" or not view.saves or view.node.down:
        return False
    # lost, and back by now. Where the file says `continue`, it may have been given up after its tries.
    return view.mark == "unsaved" or (not view.node.silent and view.fails)


def _is_another_s(view: View) -> Judgement | None:
    """A person, or HyperPod by `Action:Replace`, took it out of work: neither ended nor renamed."""
    if not view.node.foreign:
        return None
    by = f"was {view.node.foreign} by somebody else ({view.node.reason[:200] or 'no reason'})"
    tried = tuple(backup_name(node_request, "") for node_request in view.node_requests if node_request.backup)
    if view.fails and any(job.startswith(tried) for job in view.slurm.backups):
        # A node's health check, for example, which the backup's own job has set off.
        return Judgement("backup-failed", f"could not be saved: {by}; mend that, and resume the node")
    note = f"{by}; nothing is saved"
    if not view.jobs and not view.node.busy:
        return Judgement("ready", note)
    return Judgement("draining" if view.waiting else "timed-out", f"{note}; {_running(view.jobs) or WORKS}")


def _is_too_late(view: View) -> Judgement | None:
    if view.waiting:
        return None
    how = "went back to work at its deadline" if view.slurm.gives_back else "is past its deadline, and still held"
    return Judgement("timed-out", f"{how}; {_running(view.jobs)}", keep=False)


def _is_not_reserved(view: View) -> Judgement | None:
    return None if view.held else Judgement("draining", _running(view.jobs), (reserve_node(view.instance, view.node),))


def _has_jobs(view: View) -> Judgement | None:
    """Wait for them, or end them at the deadline."""
    if not view.jobs:
        return None
    others = [node_request.deadline for node_request in view.node_requests if node_request not in view.late]
    left = max(0, min(others, default=view.slurm.now) - view.slurm.now)
    force = any(node_request.force for node_request in view.node_requests)
    leaders = dict.fromkeys(job.ends for job in view.jobs if "+" in job.id) if force else {}
    wide = f"all components of heterogeneous job {', '.join(leaders)} end with it" if leaders else ""
    by = f"was drained by Slurm ({view.node.by_slurm})" if view.node.by_slurm else ""
    said = filter(None, (_running(view.jobs), f"{left / 60:.0f} minutes left", wide, by))
    return Judgement("draining", "; ".join(said), _endings(view))


def _endings(view: View) -> tuple[Act, ...]:
    if not any(node_request.force for node_request in view.late):
        return ()
    # One that completes may be on its way back to the queue: whoever ends it now takes it out of there.
    ending = dict.fromkeys(job.ends for job in view.jobs if job.state != "COMPLETING")
    return tuple(end_job(view.instance, name) for name in ending)


def _is_dead(view: View) -> Judgement | None:
    """Slurm has given it up. One that answers again can be saved."""
    node = view.node
    if not node.down or (view.saves and node.by_slurm and not node.silent):
        return None
    if not (view.fails and node.set_down):
        return Judgement("draining", "is down", view.drain("lost"))
    why = node.reason[:200] or "no reason"
    mend = f"`scontrol update nodename={node.name} state=drain reason=...`, in words of your own, lets it go unsaved"
    return Judgement("backup-failed", f"could not be saved: is down ({why}), and no job can run there; {mend}")


def _is_silent(view: View) -> Judgement | None:
    said = "does not respond; waiting until it does, or until Slurm gives it up"
    return Judgement("draining", said) if view.node.silent else None


def _needs_no_backup(view: View) -> Judgement | None:
    if view.saves:
        return None
    if not view.node.by_slurm:
        return Judgement("draining", "", view.drain("unsaved"))
    # Slurm's own drain keeps jobs away as ours would.
    note = f"was drained by Slurm ({view.node.by_slurm}); nothing is saved"
    return Judgement("draining", f"{note}; {WORKS}") if view.node.busy else Judgement("ready", note)


def _is_being_saved(view: View) -> Judgement | None:
    live = [job for job in view.tries if job.live]
    if not live:
        return None
    said = f"job {live[0].id}, {live[0].state.lower()}: {live[0].said}".rstrip(": ")
    opens = live[0].state == "PENDING" and view.out_of_work
    # A job on a drained node never starts. This one drains it again before it reads anything.
    return Judgement(
        "backing-up", said, (open_node(view.instance, view.node, "open it for its backup"),) if opens else ()
    )


def _is_saved(view: View) -> Judgement | None:
    """Its backup's job drained it when it began, and it is drained still: no other job was there since, nor can be."""
    if view.mark != "saving" or not view.tries or view.tries[-1].state != "COMPLETED":
        return None
    # Slurm forgets the job, and what it said, after some minutes.
    count = left_out(view.tries[-1].said)
    return Judgement("backing-up", "", view.drain(f"saved-{count}" if count else "saved"))


def _was_left_open(view: View) -> Judgement | None:
    """Slurm had drained it, and its backup's job ended before it could drain it again."""
    if view.out_of_work or not view.was:
        return None
    return Judgement("backing-up", "", (put_back(view.instance, view.node, view.was),))


def _is_to_be_saved(view: View) -> Judgement | None:
    return Judgement("backing-up", "", (_submit(view),)) if len(view.tries) < MOST_TRIES else None


def _cannot_be_saved(view: View) -> Judgement:
    last = view.tries[-1]
    why = "ended well, but the node was opened meanwhile" if last.state == "COMPLETED" else last.said or last.state
    by = f"; was drained by Slurm ({view.was})" if view.was else ""
    said = f"could not be saved in {len(view.tries)} tries: {why}{by}"
    if not view.fails:
        return Judgement("backup-failed", said, view.drain("lost"))
    acts = (end_drain(view.instance, view.node, "it could not be saved"),) if view.mark else ()
    return Judgement(
        "backup-failed", f"{said}; the agent tries again in a few minutes: remove the cause, or undrain the node", acts
    )


RULES: Sequence[Callable[[View], Judgement | None]] = (
    _is_ready,
    _is_another_s,
    _is_too_late,
    _is_not_reserved,
    _has_jobs,
    _is_dead,
    _is_silent,
    _needs_no_backup,
    _is_being_saved,
    _is_saved,
    _was_left_open,
    _is_to_be_saved,
    _cannot_be_saved,
)
"""What becomes of a node of Slurm's: the first that says something."""


def _submit(view: View) -> Act:
    backup, node = view.settings["backup"], view.node
    asked = [node_request for node_request in view.node_requests if node_request.backup]
    node_request = asked[0]
    name = backup_name(node_request, view.slurm.reservations[node_request.instance].start)
    order = {
        **{name: value for name, value in backup.items() if not name.startswith("on_")},
        **last_try(backup, len(view.tries)),
        "instance": node_request.instance,
        "request": node_request.request_id,
        "seconds": max(0, round(max(_end_of_time(each) for each in asked) - view.slurm.now)),
        "hold": {"node": node.name, "reason": reason_of(node_request, "saving", view.was)},
    }
    command = (
        *("sbatch", "--parsable", f"--job-name={name}{f'{WAS}{view.was}' if view.was else ''}"),
        *(
            f"--reservation={reservation_name(node_request.instance)}",
            f"--nodelist={node.name}",
            "--nodes=1",
            "--exclusive",
            "--mem=0",
        ),
        *("--no-requeue", "--export=NONE", "--chdir=/", f"--output={LOG}"),
        *([f"--partition={node.partitions[0]}"] if node.partitions else []),
    )
    return Act(f"save {node.name}", command, order, instance=node_request.instance)


def last_try(backup: Mapping[str, Any], tries: int) -> dict[str, bool]:
    """What the next try may do besides. In the last one processes that keep writing are ended; where the file says so, it leaves
    out what cannot be saved, and the second is the last: a program that was about to end has ended by then."""
    if "paths" not in backup:
        return {}
    skip = backup.get("on_unsavable") == "skip"
    return {"last": tries + 1 >= (2 if skip else MOST_TRIES), "skip": skip}


def _end_of_time(node_request: NodeRequest) -> float:
    """Until when its backup has time. Where jobs are ended at the deadline, that is beyond it."""
    if not node_request.force:
        return node_request.deadline
    return node_request.expires if node_request.limit is None else node_request.limit


def _running(jobs: Sequence[Job]) -> str:
    if not jobs:
        return ""
    shown = ", ".join(f"{job.id} of {job.user}" for job in jobs[:5])
    return f"jobs: {shown}{f' and {len(jobs) - 5} more' if len(jobs) > 5 else ''}"


def _ready_message(how: str, node: SlurmNode, slurm: SlurmState) -> str:
    said = {"saved": "is saved", "unsaved": "", "lost": "nothing could be saved"}[how]
    naming = slurm.naming.get(node.name, ())
    asks = f"once it is gone, Slurm fails what asks for it by name: {_running(naming)}" if naming else ""
    return "; ".join(filter(None, (said, asks)))
