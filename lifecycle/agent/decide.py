"""What becomes of each node that somebody wants, by what Slurm and the requests say; and the loop that does it."""

from __future__ import annotations

import functools
import ipaddress
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from drain_protocol import (
    INSTANCE_ID,
    MAX_AHEAD_S,
    MAX_REQUEST_BYTES,
    WRITERS,
    NodeStatus,
    RequestError,
    Status,
    StatusJob,
    Wish,
    make_status,
    parse_request,
    request_key,
    status_key,
)
from lib import last_line, log, on_node, one_line, run, what_failed

from .backup import LOG
from .s3 import Bucket, S3Error

VERSION = 3
"""Of the agent, in its status."""
UNKNOWN = {
    "operator": "gives nothing back until the operator's request is written anew, by `cdk-hyperpod drain` or `undrain`",
    "deployment": "gives nothing back until the deployment's request is written anew, by the next deployment",
}
"""Of a broken request, where an agent that started after it cannot know what was wanted before."""
POLL_S = float(os.environ.get("DRAIN_POLL_S", "10"))
"""Between two looks: two requests to S3 each, so 12 a minute, and one for the status."""
BEAT_S = 60
"""The status is written when it changes, and this often."""
ACT_S = 30
"""A look acts no longer than this before it tells: an agent that says nothing for three minutes is taken for dead."""
MOST_TRIES = 3
MOST_KEPT = 1000
"""Deleted nodes of which it is known what was left out."""
SAVED = re.compile(r"saved \d+ files?, [\d.]+ [kMG]B(?:[;:] (.*))?")
"""What a backup says at its end (backup.py), and what of it is not in the copy."""
LEFT_OUT = re.compile(r"saved [^:;]*; (\d+) files? left out")
UNSAID = "manifest.json at the target says what was left out"
MOST_TOLD = 6
"""Jobs of each busy node in the status: five, and one that says that there are more."""
MOST_STATUS = 7 * 1024**2
"""Bytes of a status. The guard reads eight MiB of it."""
SHORTER = ((20, 2000), (5, 600), (1, 300), (0, 100))
"""How many jobs of a node, and how much of what is said of it, where all would be too much."""
UNREAD_S = 600
"""An agent that could read no request for so long since it started gives back what is older than any lease."""
PREFIX = "cdk-hyperpod"
EVERYBODY = "dev"
"""HyperPod's partition of all nodes. Those that compute, and no others, are in one more (SlurmConfig, PartitionNames)."""
WORKS = "Slurm is still cleaning up after the last job"
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
COMPUTE = "a compute node"
WAS = "@"
"""In the name of a backup's job, before Slurm's own reason: an instance, a request and a time have none."""
REASON_ENDS = re.compile(r" \[[^][@ ]+@(\d{4}-\d\d-\d\dT[\d:]+|Unknown)\]")
"""Who gave a reason, and when. 24.11 has more of the node behind it."""
PROVISIONING_PARAMETERS = "/opt/ml/config/provisioning_parameters.json"
OUR_REASON = re.compile(
    rf"{PREFIX}:(deployment|operator):([A-Za-z0-9-]+):(saving|saved|unsaved|lost)(?:-(\d{{1,9}}))?(?::(.+))?"
)
"""The reason of a drain of ours. saving: its backup's job has begun; saved: with a backup; saved-2: with one that lacks two files;
unsaved: none was asked for; lost: it could not be. What follows is Slurm's own reason, where the node was drained by it: it is
put back when the node is."""
UNFIT = (
    r"Low (?:socket\*core\*thread count|CPUs|TmpDisk|RealMemory(?: \([^)]*\))?)|CoreSpec differ|Could not unpack gres data|"
    r"gres/\S+ count (?:too low|reported lower than configured|changed and jobs are using them) \(\d+ (?:<|!=) \d+\)|"
    r"gres/\S+ type (?:\(\S+\) reported but not configured|changed and jobs are using them)"
)
"""What slurmctld finds wrong with a node that registers (_slurm_validate_node and gres.c), one or several."""
SLURM_OWN = re.compile(
    "|".join(
        (
            # slurmd and slurmstepd, of a step or a job that they cannot end or begin. 25.11 adds which.
            r"Kill task failed(?: \(JobId=[^)]*\))?",
            r"Job step not running(?: \(JobId=[^)]*\))?",
            "switch_g_job_postfini failed",
            "SlurmdSpoolDir is full",
            # slurmctld, by what a slurmd answers.
            "Prolog error",
            "Epilog error",
            "Prolog/Epilog failure",
            "Job env setup error",
            "Duplicate jobid",
            "batch job complete failure",
            # slurmctld, of a node that it does not hear, or hears again.
            "Not responding",
            "Node unexpectedly rebooted",
            "ResumeTimeout reached",
            "NO NETWORK ADDRESS FOUND",
            rf"(?:{UNFIT})(?:, (?:{UNFIT}))*",
        )
    )
)
"""All reasons by which Slurm itself takes a node out of work: slurmctld and slurmd of 22.05.8, 24.11.5 and 25.11. Whatever
else stands there is a person's, or HyperPod's (`Action:`). `reboot requested` is a person's, who has asked for it."""
OUR_RESERVATION = re.compile(rf"{PREFIX}-({INSTANCE_ID})")
ONE_JOB = re.compile(r"\d+(?:[_+]\d+)?")
"""A job, a task of an array (its array and index: squeue's %F_%K), or a component of a heterogeneous job (its leader and offset)."""
ENDED = frozenset(
    [
        "PENDING",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
    ]
)
"""The states of a job that is on no node (squeue(1))."""

NO_REQUEUE = ("Only batch jobs are accepted", "Requested operation is presently disabled")
"""What Slurm says of a job that cannot be requeued: one of srun or salloc, and one with --no-requeue (slurm_errno.c)."""


class SlurmError(Exception):
    """Slurm does not answer, or not as it should."""


class SlurmNode(NamedTuple):
    """A node as Slurm has it."""

    name: str
    addresses: frozenset[str]
    state: frozenset[str]
    """The words of State, without marks."""
    silent: bool
    """It does not respond."""
    reason: str
    partitions: tuple[str, ...]
    since: str = ""
    """When the reason was given, as Slurm writes it."""

    @property
    def drained(self) -> bool:
        return any(word.startswith("DRAIN") for word in self.state)

    @property
    def down(self) -> bool:
        return bool(self.state & {"DOWN", "POWERED_DOWN", "POWERING_DOWN"})

    @property
    def busy(self) -> bool:
        """Slurm still has work on it, whatever the list of jobs says."""
        return bool(self.state & {"ALLOCATED", "MIXED", "COMPLETING", "FAILING"})

    @property
    def failed(self) -> bool:
        """Set FAIL, which is never slurmctld's own doing: a repair that somebody has asked of HyperPod, for example."""
        return bool(self.state & {"FAIL", "FAILING"})

    @property
    def ours(self) -> Any:
        """Our mark, where the node is drained by us: a reason without a drain says nothing."""
        return OUR_REASON.match(self.reason) if self.drained and not self.failed else None

    @property
    def left_out(self) -> int:
        """How many files are not in its backup, by our mark."""
        return int(self.ours[4] or 0) if self.ours else 0

    @property
    def by_slurm(self) -> str:
        """Slurm's own reason, where Slurm itself has taken it out of work: no person's decision."""
        out = (self.drained or "DOWN" in self.state) and not self.failed
        return self.reason if out and SLURM_OWN.fullmatch(self.reason) else ""

    @property
    def foreign(self) -> str:
        """How somebody else has taken it out of work; empty where nobody has, or Slurm itself."""
        if self.failed:
            return "set to FAIL"
        if self.by_slurm or self.ours:
            return ""
        if self.drained:
            return "drained"
        # slurmctld leaves a reason that stands there, such as one of ours; a person must give one.
        own = not self.reason or OUR_REASON.match(self.reason)
        return "set to DOWN" if "DOWN" in self.state and not own else ""


class Job(NamedTuple):
    """Somebody's job, one task of an array, or one component of a heterogeneous job."""

    id: str
    """As squeue has it: 7, 7_1, 7+1. Never the number that a task has besides: the last task has that of its array."""
    user: str
    state: str

    @property
    def ends(self) -> str:
        """What is named to end it, and no more than has to. Slurm ends all components of a heterogeneous job, by their leader."""
        return self.id.partition("+")[0]


class Backup(NamedTuple):
    """A job of ours, running or ended."""

    id: str
    state: str
    said: str
    was: str = ""
    """Slurm's own reason, where Slurm had drained the node before: it is opened for this job alone."""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state == "PENDING" or self.state not in ENDED


class Reservation(NamedTuple):
    """One of ours."""

    nodes: tuple[str, ...]
    start: str
    """When it began, as Slurm writes it: a node that went back to work between has another."""


class Seen(NamedTuple):
    """All that one look reads."""

    now: float
    instances: Mapping[str, str]
    """Id to address, as HyperPod has them."""
    barred: Mapping[str, str]
    """Addresses of nodes that are never drained, and what they are."""
    nodes: Mapping[str, SlurmNode]
    """By name."""
    reservations: Mapping[str, Reservation]
    """Ours, by the instance's id."""
    jobs: Mapping[str, tuple[Job, ...]]
    """What is on each node, without backups of ours."""
    naming: Mapping[str, tuple[Job, ...]]
    """Pending jobs that asked for the node by its name."""
    backups: Mapping[str, tuple[Backup, ...]]
    """By the job's name."""
    untold: frozenset[str] = frozenset()
    """Addresses of nodes whose type HyperPod's files do not tell."""
    gives_back: bool = True
    """Whether what nobody wants is given back: it is not known before both requests are."""


class World(Seen):
    """What one look reads, with what is looked up for each node."""

    @functools.cached_property
    def at(self) -> Mapping[str, Sequence[SlurmNode]]:
        """Slurm's nodes by address."""
        found: dict[str, list[SlurmNode]] = {}
        for node in self.nodes.values():
            for address in node.addresses:
                found.setdefault(address, []).append(node)
        return found


class Act(NamedTuple):
    """One command, and the one to run where Slurm can never do the first."""

    why: str
    command: tuple[str, ...]
    order: Mapping[str, Any] | None = None
    """What backup.py is told, where the command gives it to Slurm."""
    otherwise: tuple[str, ...] = ()
    """Where the first one fails with one of NO_REQUEUE."""
    instance: str = ""
    ends: str = ""
    """The job that it ends."""

    @property
    def stdin(self) -> str:
        """The command's. It is made when it is given, for a look may want thousands of them."""
        if self.order is None:
            return ""
        program = Path(__file__).with_name("backup.py").read_text("utf-8")
        return f"{program}\n\nraise SystemExit(main(json.loads({json.dumps(self.order)!r})))\n"


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


# -- decisions --------------------------------------------------------------------------------------------------------


def judge(wishes: Sequence[Wish], world: World, settings: Mapping[str, Any]) -> Judgement:
    """What becomes of one instance that these live wishes name: the first that holds."""
    first = wishes[0]
    if first.instance not in world.instances:
        return Judgement("unknown", "is no instance of this cluster: it is gone, was replaced, or is another cluster's")
    address = world.instances[first.instance]
    if any(wish.address != address for wish in wishes):
        others = ", ".join(sorted({wish.address for wish in wishes} - {address}))
        return Judgement("unknown", f"has the address {address} on the controller, and {others} in the request")
    if address in world.barred:
        return Judgement("refused", f"is {world.barred[address]}, which is never drained")
    named = world.at.get(address, ())
    if len(named) != 1:
        many = "no node" if not named else f"{len(named)} nodes"
        doubt = "" if named else _doubt(world)
        said = f"Slurm has {many} with the address {address}"
        return Judgement("unknown", "; ".join(filter(None, (said, doubt))), absent=not named and not doubt)
    if address in world.untold and not set(named[0].partitions) - {EVERYBODY}:
        said = f"may be a login node: no file of HyperPod's tells its type, and it is in no partition but {EVERYBODY}"
        return Judgement("refused", said)
    view = View.of(wishes, named[0], world, settings)
    found = (rule(view) for rule in RULES)
    return next(judgement for judgement in found if judgement is not None)


def _doubt(world: World) -> str:
    """Why it may have a node all the same that none of its nodes seems to be."""
    if not world.nodes:
        return "it lists no node at all"
    hidden = sorted(node.name for node in world.nodes.values() if not node.addresses)
    more = f" and {len(hidden) - 5} more" if len(hidden) > 5 else ""
    return f"it may be one whose name has no address now: {', '.join(hidden[:5])}{more}" if hidden else ""


class View(NamedTuple):
    """One wanted node at one look: what the rules go by."""

    wishes: Sequence[Wish]
    node: SlurmNode
    world: World
    settings: Mapping[str, Any]
    jobs: tuple[Job, ...]
    """What has to end, or to be waited for."""
    late: tuple[Wish, ...]
    """The wishes whose deadline is over."""
    saves: bool
    """It is to be saved."""
    tries: tuple[Backup, ...]
    """The jobs by which it was to be saved, the last one last. One that was made for one of the wishes is good for the other,
    too. None of before it went back to work, where jobs may have written since."""

    @classmethod
    def of(cls, wishes: Sequence[Wish], node: SlurmNode, world: World, settings: Mapping[str, Any]) -> View:
        # What a dead node still has is no job that anybody waits for. One that a person set down may be alive.
        jobs = () if node.down and not node.foreign else world.jobs.get(node.name, ())
        late = tuple(wish for wish in wishes if wish.deadline <= world.now)
        asked = [wish for wish in wishes if wish.backup]
        held = world.reservations.get(wishes[0].instance)
        names = [backup_name(wish, held.start) for wish in asked] if held else []
        tries = sorted((job for name in names for job in world.backups.get(name, ())), key=lambda job: int(job.id))
        return cls(wishes, node, world, settings, jobs, late, bool(settings.get("backup") and asked), tuple(tries))

    @property
    def instance(self) -> str:
        return self.wishes[0].instance

    @property
    def held(self) -> bool:
        """It is reserved."""
        return self.instance in self.world.reservations

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for it."""
        return any(wish.force or wish not in self.late for wish in self.wishes)

    @property
    def fails(self) -> bool:
        """Whether a node that cannot be saved stays."""
        return self.saves and self.settings["backup"]["on_failure"] == "fail"

    @property
    def mark(self) -> str:
        """What our drain says of it: saving, saved, unsaved or lost; empty: it is not drained by us."""
        return self.node.ours[3] if self.node.ours else ""

    @property
    def was(self) -> str:
        """Slurm's own reason, which it has, or had before we opened it."""
        if self.node.ours:
            return self.node.ours[5] or ""
        if self.node.by_slurm:
            # One that is only silent Slurm takes back by itself.
            return self.node.by_slurm if self.node.drained or not self.node.silent else ""
        return self.tries[-1].was if self.tries else ""

    @property
    def out_of_work(self) -> bool:
        """No job starts on it, root's neither."""
        return self.node.drained or "DOWN" in self.node.state

    @property
    def free(self) -> tuple[Act, ...]:
        """Slurm fails a pending job when a node that it asks for by name leaves slurm.conf."""
        naming = self.world.naming.get(self.node.name, ()) if self.late else ()
        return tuple(_forget(self.instance, job) for job in naming)

    def drain(self, how: str) -> tuple[Act, ...]:
        """How it becomes ready."""
        return (*self.free, _drain(self.wishes, self.node, how, self.was))


def _is_ready(view: View) -> Judgement | None:
    """We have drained it, and nothing more is to be saved."""
    if view.mark in ("", "saving") or view.jobs or _can_be_saved(view):
        return None
    if view.node.busy:
        return Judgement("draining", WORKS)
    return Judgement("ready", _ready_message(view.mark, view.node, view.world), saved=view.mark == "saved")


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
    tried = tuple(backup_name(wish, "") for wish in view.wishes if wish.backup)
    if view.fails and any(job.startswith(tried) for job in view.world.backups):
        # A node's health check, for example, which the backup's own job has set off.
        return Judgement("backup-failed", f"could not be saved: {by}; mend that, and resume the node")
    note = f"{by}; nothing is saved"
    if not view.jobs and not view.node.busy:
        return Judgement("ready", note)
    return Judgement("draining" if view.waiting else "timed-out", f"{note}; {_running(view.jobs) or WORKS}")


def _is_too_late(view: View) -> Judgement | None:
    if view.waiting:
        return None
    how = "went back to work at its deadline" if view.world.gives_back else "is past its deadline, and still held"
    return Judgement("timed-out", f"{how}; {_running(view.jobs)}", keep=False)


def _is_not_reserved(view: View) -> Judgement | None:
    return None if view.held else Judgement("draining", _running(view.jobs), (_reserve(view.instance, view.node),))


def _has_jobs(view: View) -> Judgement | None:
    """Wait for them, or end them at the deadline."""
    if not view.jobs:
        return None
    others = [wish.deadline for wish in view.wishes if wish not in view.late]
    left = max(0, min(others, default=view.world.now) - view.world.now)
    force = any(wish.force for wish in view.wishes)
    leaders = dict.fromkeys(job.ends for job in view.jobs if "+" in job.id) if force else {}
    wide = f"all components of heterogeneous job {', '.join(leaders)} end with it" if leaders else ""
    by = f"was drained by Slurm ({view.node.by_slurm})" if view.node.by_slurm else ""
    said = filter(None, (_running(view.jobs), f"{left / 60:.0f} minutes left", wide, by))
    return Judgement("draining", "; ".join(said), _endings(view))


def _endings(view: View) -> tuple[Act, ...]:
    if not any(wish.force for wish in view.late):
        return ()
    # One that completes may be on its way back to the queue: whoever ends it now takes it out of there.
    ending = dict.fromkeys(job.ends for job in view.jobs if job.state != "COMPLETING")
    return tuple(_end(view.instance, name) for name in ending)


def _is_dead(view: View) -> Judgement | None:
    """Slurm has given it up. One that answers again can be saved."""
    node = view.node
    if not node.down or (view.saves and node.by_slurm and not node.silent):
        return None
    if not (view.fails and "DOWN" in node.state):
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
    return Judgement("backing-up", said, (_open(view.instance, view.node, "open it for its backup"),) if opens else ())


def _is_saved(view: View) -> Judgement | None:
    """Its backup's job drained it when it began, and it is drained still: no other job was there since, nor can be."""
    if view.mark != "saving" or not view.tries or view.tries[-1].state != "COMPLETED":
        return None
    # Slurm forgets the job, and what it said, after some minutes.
    count = left_out(view.tries[-1].said)
    return Judgement("backing-up", "", view.drain(f"saved-{count}" if count else "saved"))


def left_out(said: str) -> int:
    """How many files are not in a backup, by what its job said at its end."""
    found = LEFT_OUT.match(said)
    return int(found[1]) if found else 0


def _was_left_open(view: View) -> Judgement | None:
    """Slurm had drained it, and its backup's job ended before it could drain it again."""
    if view.out_of_work or not view.was:
        return None
    return Judgement("backing-up", "", (_put_back(view.instance, view.node, view.was),))


def _is_to_be_saved(view: View) -> Judgement | None:
    return Judgement("backing-up", "", (_submit(view),)) if len(view.tries) < MOST_TRIES else None


def _cannot_be_saved(view: View) -> Judgement:
    last = view.tries[-1]
    why = "ended well, but the node was opened meanwhile" if last.state == "COMPLETED" else last.said or last.state
    by = f"; was drained by Slurm ({view.was})" if view.was else ""
    said = f"could not be saved in {len(view.tries)} tries: {why}{by}"
    if not view.fails:
        return Judgement("backup-failed", said, view.drain("lost"))
    acts = (_release(view.instance, view.node, "it could not be saved"),) if view.mark else ()
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


def give_back(keep: frozenset[str], world: World) -> tuple[Act, ...]:
    """What is ours and nobody wants: `keep` names the instances that somebody does.

    The reservation goes last, so that no job slips in between. Of an instance whose address is another's by now, the drain
    is given back even while somebody wants the old one: its replacement is a new node.
    """
    owners = {address: instance for instance, address in world.instances.items()}
    acts: list[Act] = []
    held: set[str] = set()
    for instance, (names, _) in world.reservations.items():
        nodes = [world.nodes[name] for name in names if name in world.nodes]
        replaced = instance not in world.instances and any(owners.get(a) for node in nodes for a in node.addresses)
        if instance in keep and not replaced:
            held.update(names)
    for node in world.nodes.values():
        if node.ours and node.name not in held and not any(owners.get(a) in keep for a in node.addresses):
            acts.append(_release("", node, "give it back"))
    for name, backups in world.backups.items():
        instance = name.split(":")[1]
        if instance not in keep:
            live = [job for job in backups if job.live]
            # One that completes was cancelled, or has ended by itself.
            cancelled = [job for job in live if job.state != "COMPLETING"]
            acts += [Act(f"nobody wants backup {job.id}", ("scancel", job.id)) for job in cancelled]
            acts += [_put_back("", node, job.was) for job in live if job.was for node in _opened(instance, world)]
    for instance, (names, _) in world.reservations.items():
        if instance not in keep or not held.issuperset(names):
            why = f"give {','.join(names) or instance} back"
            acts.append(Act(why, ("scontrol", "delete", f"reservationname={PREFIX}-{instance}")))
    return tuple(acts)


def _opened(instance: str, world: World) -> list[SlurmNode]:
    """The instance's node, where it takes work."""
    nodes = world.at.get(world.instances.get(instance, ""), ())
    return [node for node in nodes if not node.drained and not node.down]


def release_old(keep: frozenset[str], world: World) -> tuple[Act, ...]:
    """What is older than any lease, and may be nobody's: for an agent that cannot read all of who wants what. `keep` names the
    instances that a request wants that it can read: a lease that is renewed is older than one that is not."""
    now = time.time()
    old = {
        name: one for name, one in world.reservations.items() if name not in keep and _is_past_any_lease(one.start, now)
    }
    names = {name for one in old.values() for name in one.nodes}
    reserved = {name for one in world.reservations.values() for name in one.nodes}
    # The reservation may have gone before the drain did: the agent was killed, or the backup's job was about to drain it.
    names |= {
        name for name, node in world.nodes.items() if name not in reserved and _is_past_any_lease(node.since, now)
    }
    nodes = {name: node for name, node in world.nodes.items() if name in names}
    backups = {name: jobs for name, jobs in world.backups.items() if name.split(":")[1] in old}
    return give_back(keep, world._replace(reservations=old, nodes=nodes, backups=backups))


def _is_past_any_lease(began: str, now: float) -> bool:
    return now - _seconds(began, now) > MAX_AHEAD_S


def _seconds(moment: str, otherwise: float) -> float:
    """A time as Slurm writes it, by this machine's own clock as slurmctld's is, in seconds since 1970."""
    try:
        return time.mktime(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return otherwise


def busy_instances(world: World) -> dict[str, tuple[StatusJob, ...]]:
    """Instances that have jobs, and some of these: by them who lowers a count chooses others, or says whose jobs end."""
    nodes = {address: node.name for node in world.nodes.values() for address in node.addresses}
    jobs = {name: world.jobs.get(nodes.get(address, ""), ()) for name, address in world.instances.items()}
    return {name: _told_jobs(found[:MOST_TOLD]) for name, found in jobs.items() if found}


def _told_jobs(jobs: Sequence[Job]) -> tuple[StatusJob, ...]:
    return tuple(StatusJob(job.id, job.user) for job in jobs)


def backup_name(wish: Wish, start: str) -> str:
    """The name of its backup's job: only one that was made for this wish, since the reservation began, proves anything."""
    return f"{PREFIX}-backup:{wish.instance}:{wish.request}:{start}"


def _reserve(instance: str, node: SlurmNode) -> Act:
    # IGNORE_JOBS: it is taken under jobs that run. MAINT: also beside another's reservation.
    words = ["starttime=now", "duration=UNLIMITED", "users=root", "flags=MAINT,IGNORE_JOBS"]
    name = f"reservationname={PREFIX}-{instance}"
    return Act(
        f"reserve {node.name}",
        ("scontrol", "create", "reservation", name, *words, f"nodes={node.name}"),
        instance=instance,
    )


def _drain(wishes: Sequence[Wish], node: SlurmNode, how: str, was: str) -> Act:
    return _update(
        wishes[0].instance, node, f"drain it ({how})", "state=drain", f"reason={_reason(wishes[0], how, was)}"
    )


def _reason(wish: Wish, how: str, was: str) -> str:
    return f"{PREFIX}:{wish.writer}:{wish.request}:{how}{f':{was}' if was else ''}"


def _release(instance: str, node: SlurmNode, why: str) -> Act:
    """End our drain. What Slurm itself had drained stays so."""
    was = node.ours[5] if node.ours else ""
    return _put_back(instance, node, was) if was else _open(instance, node, why)


def _put_back(instance: str, node: SlurmNode, was: str) -> Act:
    return _update(instance, node, "Slurm had drained it", "state=drain", f"reason={was}")


def _open(instance: str, node: SlurmNode, why: str) -> Act:
    # Without our mark, whatever state=resume does with a reason (22.05 and 24.11.5 clear it): slurmctld leaves one that
    # stands there when it drains the node itself, and that drain would pass for ours.
    return _update(instance, node, why, "state=resume", "reason=")


def _update(instance: str, node: SlurmNode, why: str, *words: str) -> Act:
    return Act(f"{node.name}: {why}", ("scontrol", "update", f"nodename={node.name}", *words), instance=instance)


def _end(instance: str, name: str) -> Act:
    return Act(
        f"the deadline of job {name}",
        ("scontrol", "requeue", name),
        otherwise=("scancel", name),
        instance=instance,
        ends=name,
    )


def _forget(instance: str, job: Job) -> Act:
    # Slurm fails a pending job when a node that it asks for by name leaves slurm.conf.
    command = ("scontrol", "update", f"jobid={job.id}", "reqnodelist=")
    return Act(f"job {job.id} may run elsewhere", command, instance=instance)


def _submit(view: View) -> Act:
    backup, node = view.settings["backup"], view.node
    asked = [wish for wish in view.wishes if wish.backup]
    wish = asked[0]
    name = backup_name(wish, view.world.reservations[wish.instance].start)
    order = {
        **{name: value for name, value in backup.items() if not name.startswith("on_")},
        **last_try(backup, len(view.tries)),
        "instance": wish.instance,
        "request": wish.request,
        "seconds": max(0, round(max(_end_of_time(each) for each in asked) - view.world.now)),
        "hold": {"node": node.name, "reason": _reason(wish, "saving", view.was)},
    }
    command = (
        *("sbatch", "--parsable", f"--job-name={name}{f'{WAS}{view.was}' if view.was else ''}"),
        *(f"--reservation={PREFIX}-{wish.instance}", f"--nodelist={node.name}", "--nodes=1", "--exclusive", "--mem=0"),
        *("--no-requeue", "--export=NONE", "--chdir=/", f"--output={LOG}"),
        *([f"--partition={node.partitions[0]}"] if node.partitions else []),
    )
    return Act(f"save {node.name}", command, order, instance=wish.instance)


def last_try(backup: Mapping[str, Any], tries: int) -> dict[str, bool]:
    """What the next try may do besides. In the last one processes that keep writing are ended; where the file says so, it leaves
    out what cannot be saved, and the second is the last: a program that was about to end has ended by then."""
    if "paths" not in backup:
        return {}
    skip = backup.get("on_unsavable") == "skip"
    return {"last": tries + 1 >= (2 if skip else MOST_TRIES), "skip": skip}


def _end_of_time(wish: Wish) -> float:
    """Until when its backup has time. Where jobs are ended at the deadline, that is beyond it."""
    if not wish.force:
        return wish.deadline
    return wish.expires if wish.limit is None else wish.limit


def _running(jobs: Sequence[Job]) -> str:
    if not jobs:
        return ""
    shown = ", ".join(f"{job.id} of {job.user}" for job in jobs[:5])
    return f"jobs: {shown}{f' and {len(jobs) - 5} more' if len(jobs) > 5 else ''}"


def _ready_message(how: str, node: SlurmNode, world: World) -> str:
    said = {"saved": "is saved", "unsaved": "", "lost": "nothing could be saved"}[how]
    naming = world.naming.get(node.name, ())
    asks = f"once it is gone, Slurm fails what asks for it by name: {_running(naming)}" if naming else ""
    return "; ".join(filter(None, (said, asks)))


# -- Slurm and HyperPod -----------------------------------------------------------------------------------------------


def read_world(now: float) -> World:
    """One look. Reservations are read before jobs: what is reserved gets no job that the look does not see."""
    instances, barred, untold = read_instances()
    nodes = parse_nodes(_slurm("scontrol", "--oneliner", "show", "node"))
    reservations = parse_reservations(_slurm("scontrol", "--oneliner", "show", "reservation"))
    # Names and comments are their users' own: of others' jobs nothing is read that may hold a newline.
    jobs = _slurm("squeue", "--noheader", "--states=all", "--format=%A|%u|%T|%e|%N|%n|%i")
    own = _slurm("squeue", "--noheader", "--states=all", "--users=root", "--format=%A|%T|%e|%r|%j|%k")
    backups = parse_backups(own)
    ours = {job.id for each in backups.values() for job in each}
    running, naming = parse_jobs(jobs, ours, expand)
    return World(now, instances, barred, nodes, reservations, running, naming, backups, untold)


def read_instances() -> tuple[dict[str, str], dict[str, str], frozenset[str]]:
    """Instances by id with their addresses; the addresses of controllers and login nodes; those of nodes of no known type."""
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH") or RESOURCE_CONFIG
    try:
        config = json.loads(on_node(path).read_text("utf-8"))
        slurm = config.get("SlurmConfig") or {}
        controllers = [slurm.get("PrimaryControllerIp"), *(slurm.get("SecondaryControllerIps") or ())]
        barred = {address: "a controller" for address in controllers if address}
        kinds = _group_kinds()
        if not barred and "a controller" not in kinds.values():
            # Not besides: the network of HyperPod's agents may overlap the cluster's own, so one of these may be another's.
            barred = dict.fromkeys(own_addresses(), "the agent's own node, a controller")
        instances, untold = {}, set()
        for group in config["InstanceGroups"]:
            kind = kinds.get(group["Name"], "")
            for each in group.get("Instances") or ():
                address = each.get("CustomerIpAddress")
                if address and each.get("InstanceId"):
                    instances[each["InstanceId"]] = address
                    if not kind:
                        untold.add(address)
                    elif kind != COMPUTE:
                        barred.setdefault(address, kind)
        return instances, barred, frozenset(untold)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SlurmError(f"{path} cannot be read: {error!r}") from None


def _group_kinds() -> dict[str, str]:
    """What the nodes of a group are. The file is absent under SlurmConfig, perhaps: nobody has documented it."""
    try:
        found = json.loads(on_node(PROVISIONING_PARAMETERS).read_text("utf-8"))
        workers = {group["instance_group_name"]: COMPUTE for group in found.get("worker_groups") or ()}
        kinds = {"controller_group": "a controller", "login_group": "a login node"}
        return {**workers, **{found[name]: kind for name, kind in kinds.items() if found.get(name)}}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


@functools.lru_cache(maxsize=1)
def own_addresses() -> frozenset[str]:
    """This node's. Raises SlurmError: without them the agent could drain its own node."""
    try:
        interfaces = json.loads(_slurm("ip", "-json", "address", "show"))
        return frozenset(one["local"] for each in interfaces for one in each.get("addr_info", ()) if "local" in one)
    except (ValueError, TypeError, AttributeError) as error:
        raise SlurmError(f"`ip -json address show`: {error!r}") from None


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """The output of `scontrol --oneliner show node`."""
    found = {}
    for line in text.split("\n"):
        # What comes after Reason= may hold anything.
        head, _, tail = line.partition(" Reason=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        if "NodeName" not in words:
            continue
        state = words.get("State", "UNKNOWN")
        partitions = tuple(filter(None, words.get("Partitions", "").split(",")))
        reason, *since = REASON_ENDS.split(tail, maxsplit=1)
        found[words["NodeName"]] = SlurmNode(
            name=words["NodeName"],
            addresses=_addresses(words.get("NodeAddr", "")),
            state=frozenset(re.findall(r"[A-Z_]+", state)),
            silent="*" in state or "NOT_RESPONDING" in state,
            reason=one_line(reason),
            partitions=partitions,
            since=since[0] if since else "",
        )
    return found


def _addresses(name: str) -> frozenset[str]:
    """NodeAddr is an address or a name; nothing where the name has none, or none can be had now."""
    try:
        return frozenset({str(ipaddress.ip_address(name))})
    except ValueError:
        pass
    try:
        return frozenset(socket.gethostbyname_ex(name)[2])
    except (OSError, UnicodeError):
        return frozenset()


def parse_reservations(text: str) -> dict[str, Reservation]:
    """Ours, in the output of `scontrol --oneliner show reservation`. Each is of one node."""
    found = {}
    for line in text.split("\n"):
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = OUR_RESERVATION.fullmatch(words.get("ReservationName", ""))
        if name and words.get("Users") == "root":
            nodes = words.get("Nodes", "")
            held = () if nodes in ("", "(null)") else (nodes,)
            found[name[1]] = Reservation(held, words.get("StartTime", ""))
    return found


def parse_jobs(
    text: str, ours: Iterable[str], expand_names: Any
) -> tuple[dict[str, tuple[Job, ...]], dict[str, tuple[Job, ...]]]:
    """The jobs on each node, and the pending ones that ask for it by name."""
    running: dict[str, list[Job]] = {}
    naming: dict[str, list[Job]] = {}
    skip = frozenset(ours)
    for line in text.split("\n"):
        parts = line.split("|")
        if len(parts) != 7 or not parts[0].isdigit() or parts[0] in skip:
            continue
        number, user, shown, end, on, asked, name = parts
        state = base_state(shown, end)
        # What waits of an array has one line, whose name lists the tasks.
        job = Job(name if ONE_JOB.fullmatch(name) else number, user[:64], state)
        if state == "PENDING":
            for name in expand_names(asked) if asked not in ("", "(null)", "N/A") else ():
                naming.setdefault(name, []).append(job)
        elif state not in ENDED:
            for name in expand_names(on) if on else ():
                running.setdefault(name, []).append(job)
    return {name: tuple(jobs) for name, jobs in running.items()}, {name: tuple(jobs) for name, jobs in naming.items()}


def base_state(state: str, end: str) -> str:
    """The state of a job whose reservation Slurm has purged with its node: RESV_DEL_HOLD hides it, also when the job has ended."""
    if state != "RESV_DEL_HOLD":
        return state
    return "PENDING" if end == "N/A" else "NODE_FAIL"


def parse_backups(text: str) -> dict[str, tuple[Backup, ...]]:
    """Root's jobs that are backups of ours, by name."""
    found: dict[str, list[Backup]] = {}
    for line in text.split("\n"):
        parts = line.split("|", 5)
        if len(parts) == 6 and parts[0].isdigit() and parts[4].startswith(f"{PREFIX}-backup:"):
            number, shown, end, why, called, comment = parts
            state = base_state(shown, end)
            said = "" if comment == "(null)" else one_line(comment)
            if state == "PENDING":
                said = said or f"waits, {why}"
            name, _, was = called.partition(WAS)
            found.setdefault(name, []).append(Backup(number, state, said, was))
    return {name: tuple(jobs) for name, jobs in found.items()}


@functools.lru_cache(maxsize=10_000)
def expand(names: str) -> tuple[str, ...]:
    """The nodes in Slurm's short form of a list of them."""
    if "[" not in names and "," not in names:
        return (names,)
    return tuple(_slurm("scontrol", "show", "hostnames", names).split())


def _slurm(*command: str) -> str:
    done = run(*command, timeout_s=60)
    if done.returncode != 0:
        raise SlurmError(f"`{' '.join(command[:3])}`: {what_failed(done.stdout)}")
    return done.stdout


# -- the loop ---------------------------------------------------------------------------------------------------------


class Agent:
    """What one process knows between two looks: what it has read of S3, which it may read again."""

    def __init__(self, settings: Mapping[str, Any], bucket: Bucket) -> None:
        self.settings = settings
        self.bucket = bucket
        self.etags: dict[str, str] = dict.fromkeys(WRITERS, "")
        self.ids: dict[str, str] = {}
        self.wishes: dict[str, tuple[Wish, ...] | None] = dict.fromkeys(WRITERS)
        """None: nobody knows what this writer wants, so nothing that may be its own is given back."""
        self.refused: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        """Why a request could not be read the last time."""
        self.written: Status | None = None
        self.written_at = -math.inf
        self.troubles: dict[str, str] = {}
        self.began = time.monotonic()
        self.ended: frozenset[str] = frozenset()
        """Jobs that the last look has ended, as far as its commands tell."""
        self.stuck: frozenset[str] = frozenset()
        """Those of them that were there all the same, of which the log has a line."""
        self.backups: dict[str, tuple[int, str]] = {}
        """Instance -> how many files are not in its backup, and all that is not. Slurm forgets a job after some minutes; then the
        drain's reason has the count, and the manifest has it all."""

    def look(self) -> bool:
        """Read, decide, act, tell. Whether anything was done, so that a look soon sees more."""
        self._read_requests()
        now = self.bucket.now()
        wanted: dict[str, list[Wish]] = {}
        for writer in WRITERS:
            for wish in self.wishes[writer] or ():
                if wish.expires > now:
                    wanted.setdefault(wish.instance, []).append(wish)
        done = False
        nodes: dict[str, NodeStatus] = {}
        busy: dict[str, tuple[StatusJob, ...]] = {}
        problem = ""
        known = None not in self.wishes.values()
        try:
            world = read_world(now)._replace(gives_back=known)
            judged = {instance: judge(wishes, world, self.settings) for instance, wishes in wanted.items()}
            # A job on several nodes is ended once.
            acts = list({act.command: act for judgement in judged.values() for act in judgement.acts}.values())
            keep = frozenset(instance for instance, judgement in judged.items() if judgement.keep)
            if known:
                acts += give_back(keep, world)
            elif time.monotonic() - self.began > UNREAD_S:
                acts += release_old(keep, world)
            failed = self._find_stuck(acts)
            began = time.monotonic()
            for act in acts:
                if time.monotonic() - began > ACT_S:
                    break  # the next look sees what is left to do
                said = self._do(act)
                self.ended |= {act.ends} - {""}
                if said and act.ends not in self.stuck:
                    failed[act.instance] = said
            done = bool(acts) and not failed
            nodes = {instance: self._tell(wanted[instance], one, world, failed) for instance, one in judged.items()}
            self._add_what_is_not_saved(nodes, world)
            busy = busy_instances(world)
        except SlurmError as error:
            problem = str(error)
        self._say("Slurm", problem)
        self._write_status(now, nodes, busy, problem)
        return done

    def _find_stuck(self, acts: Sequence[Act]) -> dict[str, str]:
        """By instance, which job is still there that the last look ended. The log says so of each job once."""
        ends = frozenset(act.ends for act in acts if act.ends)
        stuck = self.ended & ends
        for job in sorted(stuck - self.stuck):
            log(
                "WARNING",
                f"job {job} is still there after it was requeued or cancelled; it is tried again at each look",
            )
        self.stuck = (self.stuck & ends) | stuck
        self.ended = self.ended & ends
        said = "is still there after it was requeued or cancelled"
        return {act.instance: f"job {act.ends} {said}" for act in acts if act.ends in self.stuck}

    def _read_requests(self) -> None:
        for writer in WRITERS:
            key = request_key(self.settings["cluster"], writer)
            before = self.bucket.now()
            try:
                found = self.bucket.get(key, self.etags[writer], MAX_REQUEST_BYTES)
            except S3Error as error:
                self.unread[writer] = str(error)
                self._say(writer, str(error))
                continue
            self.unread.pop(writer, None)
            self.refused.pop(writer, None)
            if found is None:
                pass  # what was understood last is there again, or still
            elif found.content is None:
                self.ids.pop(writer, None)
                self.etags[writer], self.wishes[writer] = "", ()
            else:
                try:
                    # An answer that sets the clock back, until others say so too, makes no time too far ahead.
                    now = max(before, self.bucket.now())
                    request = parse_request(writer, found.content, now)
                    self.ids[writer], self.wishes[writer] = request.id, request.wishes
                    # Only of what was understood: it may have been read in part, and is read again.
                    self.etags[writer] = found.etag
                except RequestError as error:
                    # What it wanted before stands until its lease is over: a broken request ends no drain.
                    self.refused[writer] = f"the request of the {writer} {error}"
            self._say(writer, self.refused.get(writer, ""))

    def _say(self, about: str, problem: str) -> None:
        """Log what is new."""
        if self.troubles.get(about, "") != problem:
            log("WARNING" if problem else "INFO", problem or f"{about}: works again")
            self.troubles[about] = problem

    def _do(self, act: Act) -> str:
        """What went wrong, or nothing."""
        done = run(*act.command, stdin=act.stdin, timeout_s=60)
        command = act.command
        if done.returncode != 0 and act.otherwise and any(words in done.stdout for words in NO_REQUEUE):
            command = act.otherwise
            done = run(*command, timeout_s=60)
        said = "" if done.returncode == 0 else f"`{' '.join(command[:3])}` failed: {last_line(done.stdout)}"
        if act.ends in self.stuck:
            return said
        log("WARNING" if said else "INFO", f"{act.why}: {said or ' '.join(command[:2])}")
        return said

    @staticmethod
    def _tell(wishes: Sequence[Wish], one: Judgement, world: World, failed: Mapping[str, str]) -> NodeStatus:
        instance = wishes[0].instance
        names = [node.name for node in world.at.get(world.instances.get(instance, ""), ())]
        name = names[0] if len(names) == 1 else ""
        return NodeStatus(
            state=one.state,
            message="; ".join(filter(None, (one.message, failed.get(instance, "")))),
            requests={wish.writer: wish.request for wish in wishes},
            saved=one.saved,
            absent=one.absent,
            address=wishes[0].address,
            host=name,
            jobs=_told_jobs(world.jobs.get(name, ())[: SHORTER[0][0]]),
        )

    def _add_what_is_not_saved(self, nodes: dict[str, NodeStatus], world: World) -> None:
        """Say of what is saved what is not in it; and keep it of nodes that are deleted, for who deleted them."""
        ended = [(int(job.id), name, job) for name, jobs in world.backups.items() for job in jobs]
        for _, name, job in sorted(each for each in ended if each[2].state == "COMPLETED"):
            found = SAVED.fullmatch(job.said)
            self.backups[name.split(":")[1]] = left_out(job.said), (found[1] or "") if found else UNSAID
        for instance, told in nodes.items():
            count = world.nodes[told.host].left_out if told.saved else 0
            if count:
                note = f"{count} file{'' if count == 1 else 's'} left out; {UNSAID}"
                self.backups.setdefault(instance, (count, note))
        for instance in [each for each in self.backups if each not in nodes and each in world.instances]:
            del self.backups[instance]  # it went back to work
        for instance in list(self.backups)[:-MOST_KEPT]:
            del self.backups[instance]
        if (self.settings.get("backup") or {}).get("hook"):
            return
        for instance, told in nodes.items():
            if told.saved:
                _, note = self.backups.get(instance, (0, UNSAID))
                nodes[instance] = replace(told, message="; ".join(filter(None, (told.message, note))))

    def _left_out(self) -> dict[str, int]:
        """How many files are not in the backups of nodes, also of those that are deleted."""
        return {instance: count for instance, (count, _) in self.backups.items() if count}

    def _write_status(
        self,
        now: float,
        nodes: Mapping[str, NodeStatus],
        busy: Mapping[str, tuple[StatusJob, ...]],
        problem: str,
    ) -> None:
        backup = self.settings.get("backup") or {}
        unknown = [UNKNOWN[writer] for writer in self.refused if self.wishes[writer] is None]
        # Without Slurm there is nothing new to say of nodes: what was said stays, and the problem beside it.
        stays = self.written.nodes if problem and self.written else nodes
        status = Status(
            agent=VERSION,
            requests=dict(self.ids),
            refused=dict(self.refused),
            problem="; ".join(filter(None, (problem, *self.unread.values(), *unknown))),
            backup=backup.get("hook") or backup.get("to"),
            nodes=stays,
            left_out=self._left_out(),
        )
        if status == self.written and time.monotonic() - self.written_at < BEAT_S:
            return
        # Who is busy changes all the time, and is told as often as the status is written anyway.
        content = _fitting(replace(status, beat=round(now), busy=busy))
        try:
            self.bucket.put(status_key(self.settings["cluster"]), content)
            self.written, self.written_at = status, time.monotonic()
            self._say("status", "")
        except S3Error as error:
            self._say("status", str(error))


def _fitting(status: Status) -> bytes:
    """The status as JSON, without some of the jobs and words of each node where it would be longer than the guard reads."""
    content = _to_json(status)
    for jobs, letters in SHORTER:
        if len(content) <= MOST_STATUS:
            break
        nodes = {
            name: replace(one, jobs=one.jobs[:jobs], message=one.message[:letters])
            for name, one in status.nodes.items()
        }
        busy = {name: found[:jobs] for name, found in status.busy.items()}
        content = _to_json(replace(status, nodes=nodes, busy=busy))
    return content


def _to_json(status: Status) -> bytes:
    return json.dumps(make_status(status), sort_keys=True).encode()


def main(settings_file: str) -> None:
    """Look until somebody ends it."""
    settings = json.loads(Path(settings_file).read_text("utf-8"))
    agent = Agent(settings, Bucket(settings["bucket"], settings["region"]))
    log("INFO", f"drains nodes of {settings['cluster']}, as s3://{settings['bucket']} asks")
    while True:
        quick = agent.look()
        time.sleep(min(1.0, POLL_S) if quick else POLL_S)
