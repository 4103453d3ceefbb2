#!/usr/bin/env python3
"""Drain nodes that somebody wants to take, after their jobs have ended and their data is saved. Usage: drain_agent.py FILE.

It runs on the controller, started by systemd (step drain). Requests and its answer are objects in S3, under the cluster's
name (docs/adr/0014): CLUSTER/requests/operator.json and .../deployment.json, one writer each, and CLUSTER/status.json, ours.

For each node that a request names it makes a reservation of root's (MAINT) at once, so that no new job starts there; waits
until the jobs on it have ended; copies what is to be saved by a job in the reservation (backup.py); drains the node, and
says `ready`. When nobody wants the node any more, it gives it back. It keeps nothing: the reservation, the drain's
reason, and the backup's job in Slurm are all that it knows, so it may be killed anywhere. It never changes a drain, a
reason or a reservation that is not its own. All that a request says is data, and is checked.

FILE: {"cluster": ..., "bucket": ..., "region": ..., "backup": {"paths": [...], "to": ..., "on_failure": "fail"},
       {"hook": ..., "on_failure": "fail"} or null}

Only the standard library, and nothing newer than Python 3.8.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from backup import LOG
from lib import last_line, log, on_node, run, run_step
from s3 import Bucket, S3Error

VERSION = 3
"""Of the agent, in its status."""
SCHEMA = 1
WRITERS = ("deployment", "operator")
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
MOST_BYTES = 2 * 1024**2
MOST_NODES = 6758
"""HyperPod's own limit for a group, and the most that scale_down.max_nodes can be."""
MOST_AHEAD_S = 26 * 3600
"""No request holds a node longer: one that outlives this is no request of ours."""
MOST_TRIES = 3
MOST_TOLD = 6
"""Jobs of each busy node in the status: five, and one that says that there are more."""
PREFIX = "cdk-hyperpod"
EVERYBODY = "dev"
"""HyperPod's partition of all nodes. Those that compute, and no others, are in one more (SlurmConfig, PartitionNames)."""
WORKS = "Slurm is still cleaning up after the last job"
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
COMPUTE = "a compute node"
PROVISIONING_PARAMETERS = "/opt/ml/config/provisioning_parameters.json"
OUR_REASON = re.compile(rf"{PREFIX}:(deployment|operator):([A-Za-z0-9-]+):(saved|unsaved|lost)")
"""The reason of a drain of ours. saved: with a backup; unsaved: none was asked for; lost: it could not be."""
OWN_DOWN = re.compile(rf"$|Not responding|Node unexpectedly rebooted|{OUR_REASON.pattern}")
"""The reason of a node that slurmctld itself has set down. It leaves a reason that stands there, such as one of ours;
a person must give one."""
OUR_RESERVATION = re.compile(rf"{PREFIX}-(i-[0-9a-f]{{8,17}})")
INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
REQUEST = re.compile(r"[A-Za-z0-9-]{1,64}")
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


class RequestError(Exception):
    """Why a request is refused: one sentence."""


class SlurmError(Exception):
    """Slurm does not answer, or not as it should."""


class Wish(NamedTuple):
    """What one request wants of one node."""

    writer: str
    request: str
    """What the writer calls this wish. Only a backup that was made for it counts."""
    instance: str
    address: str
    deadline: float
    """Until when its jobs may run, in seconds since 1970."""
    expires: float
    """Until when the node is held."""
    force: bool
    """At the deadline: end the jobs. Else the node goes back."""
    backup: bool
    limit: float | None = None
    """Until when it is waited for in all, where that is sooner than the node is held: a deployment renews what it holds."""


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
    def foreign(self) -> str:
        """How somebody else has taken it out of work; empty where nobody has."""
        if self.failed:
            return "set to FAIL"
        if self.drained:
            return "" if self.ours else "drained"
        return "set to DOWN" if "DOWN" in self.state and not OWN_DOWN.match(self.reason) else ""


class Job(NamedTuple):
    """Somebody's job."""

    id: str
    user: str
    state: str


class Backup(NamedTuple):
    """A job of ours, running or ended."""

    id: str
    state: str
    said: str


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
    stdin: str = ""
    otherwise: tuple[str, ...] = ()
    """Where the first one fails with one of NO_REQUEUE."""
    instance: str = ""


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


# -- requests ---------------------------------------------------------------------------------------------------------


def parse_request(writer: str, content: bytes, now: float) -> tuple[str, tuple[Wish, ...]]:
    """A request's id and its wishes. Raises RequestError for all of it where anything is wrong: nothing is done by halves."""
    try:
        return _parse_request(writer, content, now)
    except RecursionError:
        # What could be read is shown, which takes a little more of the stack.
        raise RequestError("is nested too deep") from None


def _parse_request(writer: str, content: bytes, now: float) -> tuple[str, tuple[Wish, ...]]:
    if len(content) > MOST_BYTES:
        raise RequestError(f"is larger than {MOST_BYTES} bytes")
    try:
        found = json.loads(content.decode("utf-8"))
    except ValueError:
        raise RequestError("is no JSON, or only a part of it") from None
    if not isinstance(found, dict):
        raise RequestError("is no object")
    if found.get("schema") != SCHEMA or isinstance(found.get("schema"), bool):
        raise RequestError(
            f"schema: this agent reads {SCHEMA}, got {_show(found.get('schema'))}; bring both up to date"
        )
    nodes = found.get("nodes")
    if not isinstance(nodes, list) or len(nodes) > MOST_NODES:
        raise RequestError(f"nodes: must be a list of at most {MOST_NODES}")
    wishes = tuple(_parse_wish(writer, f"nodes[{i}]", node, now) for i, node in enumerate(nodes))
    ids = [wish.instance for wish in wishes]
    if len(set(ids)) != len(ids):
        raise RequestError("nodes: names an instance twice")
    return _text("id", found.get("id"), REQUEST), wishes


def _parse_wish(writer: str, path: str, node: Any, now: float) -> Wish:
    if not isinstance(node, dict):
        raise RequestError(f"{path}: must be an object, got {_show(node)}")
    address = node.get("ip")
    try:
        ipaddress.IPv4Address(address if isinstance(address, str) else "")
    except ValueError:
        raise RequestError(f"{path}.ip: must be an address, got {_show(address)}") from None
    for name in ("deadline", "expires", *(["limit"] if "limit" in node else [])):
        if not _is_time(node.get(name), now):
            hours = MOST_AHEAD_S // 3600
            raise RequestError(f"{path}.{name}: must be a time at most {hours} h ahead, got {_show(node.get(name))}")
    for name, allowed in (("on_timeout", ("fail", "force")), ("backup", (True, False))):
        if not any(
            node.get(name) is value or (value == node.get(name) and isinstance(value, str)) for value in allowed
        ):
            words = " or ".join(json.dumps(value) for value in allowed)
            raise RequestError(f"{path}.{name}: must be {words}, got {_show(node.get(name))}")
    return Wish(
        writer=writer,
        request=_text(f"{path}.request", node.get("request"), REQUEST),
        instance=_text(f"{path}.id", node.get("id"), INSTANCE),
        address=str(address),
        deadline=float(node["deadline"]),
        expires=float(node["expires"]),
        force=node["on_timeout"] == "force",
        backup=node["backup"],
        limit=float(node["limit"]) if "limit" in node else None,
    )


def _is_time(moment: Any, now: float) -> bool:
    try:
        # Not only a number: not NaN, which compares with nothing, and no truth value.
        known = isinstance(moment, (int, float)) and not isinstance(moment, bool) and math.isfinite(moment)
        return known and 0 <= moment <= now + MOST_AHEAD_S
    except OverflowError:
        return False


def _text(path: str, value: Any, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise RequestError(f"{path}: must be of the form {form.pattern}, got {_show(value)}")
    return value


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


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
    return _judge_node(wishes, named[0], world, settings)


def _doubt(world: World) -> str:
    """Why it may have a node all the same that none of its nodes seems to be."""
    if not world.nodes:
        return "it lists no node at all"
    hidden = sorted(node.name for node in world.nodes.values() if not node.addresses)
    more = f" and {len(hidden) - 5} more" if len(hidden) > 5 else ""
    return f"it may be one whose name has no address now: {', '.join(hidden[:5])}{more}" if hidden else ""


def _judge_node(wishes: Sequence[Wish], node: SlurmNode, world: World, settings: Mapping[str, Any]) -> Judgement:
    instance = wishes[0].instance
    # What a dead node still has is no job that anybody waits for. One that a person set down may be alive.
    jobs = () if node.down and not node.foreign else world.jobs.get(node.name, ())
    late = [wish for wish in wishes if wish.deadline <= world.now]
    waiting = [wish for wish in wishes if wish not in late or wish.force]
    save = bool(settings.get("backup")) and any(wish.backup for wish in wishes)
    mark = node.ours
    if mark and not jobs and not _can_be_saved(mark[3], node, save, settings):
        if node.busy:
            return Judgement("draining", WORKS)
        return Judgement("ready", _ready_message(mark[3], node, world), saved=mark[3] == "saved")
    if node.foreign:
        # Somebody else's, HyperPod's `Action:Replace` for example: neither ended nor renamed.
        by = f"was {node.foreign} by somebody else ({node.reason[:200] or 'no reason'})"
        note = f"{by}; nothing is saved"
        tried = tuple(backup_name(wish, "") for wish in wishes if wish.backup)
        if save and settings["backup"]["on_failure"] == "fail" and any(job.startswith(tried) for job in world.backups):
            # A Prolog that fails, for example: Slurm has drained the node for the backup's own job.
            return Judgement("backup-failed", f"could not be saved: {by}; mend that, and resume the node")
        if not jobs and not node.busy:
            return Judgement("ready", note)
        said = f"{note}; {_running(jobs) or WORKS}"
        return Judgement("draining" if waiting else "timed-out", said)
    if not waiting:
        how = "went back to work at its deadline" if world.gives_back else "is past its deadline, and still held"
        return Judgement("timed-out", f"{how}; {_running(jobs)}", keep=False)
    if instance not in world.reservations:
        return Judgement("draining", _running(jobs), (_reserve(instance, node),))
    if mark and _can_be_saved(mark[3], node, save, settings):
        return Judgement(
            "draining", "is opened again, so that it can be saved", (_open(instance, node, "open it for its backup"),)
        )
    # One that completes may be on its way back to the queue: whoever ends it now takes it out of there.
    ending = [job for job in jobs if job.state != "COMPLETING"] if any(wish.force for wish in late) else []
    forced = tuple(_end(instance, job) for job in ending)
    if jobs:
        left = max(0, min((wish.deadline for wish in waiting if wish not in late), default=world.now) - world.now)
        return Judgement("draining", f"{_running(jobs)}; {left / 60:.0f} minutes left", forced)
    free = tuple(_forget(instance, job) for job in world.naming.get(node.name, ())) if late else ()
    if node.down:
        return Judgement("draining", "is down", (*free, _drain(wishes, node, "lost")))
    if node.silent:
        return Judgement("draining", "does not respond; waiting until it does, or until Slurm gives it up")
    if not save:
        return Judgement("draining", "", (*free, _drain(wishes, node, "unsaved")))
    return _judge_backup(wishes, node, world, settings, free)


def _can_be_saved(how: str, node: SlurmNode, save: bool, settings: Mapping[str, Any]) -> bool:
    """Whether a node that we have drained without a backup is to be opened, and saved."""
    if how == "saved" or not save or node.down:
        return False
    # lost, and back by now. Where the file says `continue`, it may have been given up after its tries.
    return how == "unsaved" or (not node.silent and settings["backup"]["on_failure"] == "fail")


def _tries(wishes: Sequence[Wish], world: World) -> list[Backup]:
    """The jobs by which it was to be saved. One that was made for one of the wishes is good for the other, too.

    None of before it went back to work, where jobs may have written since.
    """
    start = world.reservations[wishes[0].instance].start
    return [job for wish in wishes if wish.backup for job in world.backups.get(backup_name(wish, start), ())]


def _judge_backup(
    wishes: Sequence[Wish], node: SlurmNode, world: World, settings: Mapping[str, Any], free: tuple[Act, ...]
) -> Judgement:
    asked = [wish for wish in wishes if wish.backup]
    tries = _tries(wishes, world)
    if any(job.state == "COMPLETED" for job in tries):
        return Judgement("backing-up", "", (*free, _drain(wishes, node, "saved")))
    live = [job for job in tries if job.state == "PENDING" or job.state not in ENDED]
    if live:
        return Judgement("backing-up", f"job {live[0].id}, {live[0].state.lower()}: {live[0].said}".rstrip(": "))
    if len(tries) < MOST_TRIES:
        return Judgement("backing-up", "", (_submit(asked, node, settings, world),))
    last = max(tries, key=lambda job: int(job.id))
    said = f"could not be saved in {len(tries)} tries: {last.said or last.state}"
    if settings["backup"]["on_failure"] == "continue":
        return Judgement("backup-failed", said, (*free, _drain(wishes, node, "lost")))
    return Judgement(
        "backup-failed", f"{said}; the agent tries again in a few minutes: remove the cause, or undrain the node"
    )


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
            acts.append(_open("", node, "give it back"))
    for name, backups in world.backups.items():
        if name.split(":")[1] not in keep:
            live = [job for job in backups if job.state == "PENDING" or job.state not in ENDED]
            acts += [Act(f"nobody wants backup {job.id}", ("scancel", job.id)) for job in live]
    for instance, (names, _) in world.reservations.items():
        if instance not in keep or not held.issuperset(names):
            why = f"give {','.join(names) or instance} back"
            acts.append(Act(why, ("scontrol", "delete", f"reservationname={PREFIX}-{instance}")))
    return tuple(acts)


def busy_instances(world: World) -> dict[str, list[dict[str, str]]]:
    """Instances that have jobs, and some of these: by them who lowers a count chooses others, or says whose jobs end."""
    nodes = {address: node.name for node in world.nodes.values() for address in node.addresses}
    jobs = {name: world.jobs.get(nodes.get(address, ""), ()) for name, address in world.instances.items()}
    return {name: _told_jobs(found[:MOST_TOLD]) for name, found in jobs.items() if found}


def _told_jobs(jobs: Sequence[Job]) -> list[dict[str, str]]:
    return [{"id": job.id, "user": job.user} for job in jobs]


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


def _drain(wishes: Sequence[Wish], node: SlurmNode, how: str) -> Act:
    reason = f"{PREFIX}:{wishes[0].writer}:{wishes[0].request}:{how}"
    return _update(wishes[0].instance, node, f"drain it ({how})", "state=drain", f"reason={reason}")


def _open(instance: str, node: SlurmNode, why: str) -> Act:
    # Without our mark, whatever state=resume does with a reason (22.05 and 24.11.5 clear it): slurmctld leaves one that
    # stands there when it drains the node itself, and that drain would pass for ours.
    return _update(instance, node, why, "state=resume", "reason=")


def _update(instance: str, node: SlurmNode, why: str, *words: str) -> Act:
    return Act(f"{node.name}: {why}", ("scontrol", "update", f"nodename={node.name}", *words), instance=instance)


def _end(instance: str, job: Job) -> Act:
    return Act(
        f"the deadline of job {job.id}",
        ("scontrol", "requeue", job.id),
        otherwise=("scancel", job.id),
        instance=instance,
    )


def _forget(instance: str, job: Job) -> Act:
    # Slurm fails a pending job when a node that it asks for by name leaves slurm.conf.
    command = ("scontrol", "update", f"jobid={job.id}", "reqnodelist=")
    return Act(f"job {job.id} may run elsewhere", command, instance=instance)


def _submit(asked: Sequence[Wish], node: SlurmNode, settings: Mapping[str, Any], world: World) -> Act:
    backup, wish = settings["backup"], asked[0]
    name = backup_name(wish, world.reservations[wish.instance].start)
    order = {
        **{name: value for name, value in backup.items() if not name.startswith("on_")},
        **last_try(backup, len(_tries(asked, world))),
        "instance": wish.instance,
        "request": wish.request,
        "seconds": max(0, round(max(_end_of_time(each) for each in asked) - world.now)),
    }
    program = Path(__file__).with_name("backup.py").read_text("utf-8")
    script = f"{program}\n\nraise SystemExit(main(json.loads({json.dumps(order)!r})))\n"
    command = (
        *("sbatch", "--parsable", f"--job-name={name}", f"--reservation={PREFIX}-{wish.instance}"),
        *(f"--nodelist={node.name}", "--nodes=1", "--exclusive", "--mem=0", "--no-requeue", "--export=NONE"),
        *(
            "--chdir=/",
            f"--output={LOG}",
            *([f"--partition={node.partitions[0]}"] if node.partitions else []),
        ),
    )
    return Act(f"save {node.name}", command, script, instance=wish.instance)


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
    jobs = _slurm("squeue", "--noheader", "--states=all", "--format=%A|%u|%T|%N|%n")
    own = _slurm("squeue", "--noheader", "--states=all", "--users=root", "--format=%A|%T|%r|%j|%k")
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
    for line in text.splitlines():
        # What comes after Reason= may hold anything.
        head, _, tail = line.partition(" Reason=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        if "NodeName" not in words:
            continue
        state = words.get("State", "UNKNOWN")
        partitions = tuple(filter(None, words.get("Partitions", "").split(",")))
        found[words["NodeName"]] = SlurmNode(
            name=words["NodeName"],
            addresses=_addresses(words.get("NodeAddr", "")),
            state=frozenset(re.findall(r"[A-Z_]+", state)),
            silent="*" in state or "NOT_RESPONDING" in state,
            reason=re.sub(r" \[[^\]]*\]\s*$", "", tail).strip(),
            partitions=partitions,
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
    for line in text.splitlines():
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
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 5 or not parts[0].isdigit() or parts[0] in skip:
            continue
        job, state, on, asked = Job(parts[0], parts[1][:64], parts[2]), parts[2], parts[3], parts[4]
        if state == "PENDING":
            for name in expand_names(asked) if asked not in ("", "(null)", "N/A") else ():
                naming.setdefault(name, []).append(job)
        elif state not in ENDED:
            for name in expand_names(on) if on else ():
                running.setdefault(name, []).append(job)
    return {name: tuple(jobs) for name, jobs in running.items()}, {name: tuple(jobs) for name, jobs in naming.items()}


def parse_backups(text: str) -> dict[str, tuple[Backup, ...]]:
    """Root's jobs that are backups of ours, by name."""
    found: dict[str, list[Backup]] = {}
    for line in text.splitlines():
        parts = line.split("|", 4)
        if len(parts) == 5 and parts[0].isdigit() and parts[3].startswith(f"{PREFIX}-backup:"):
            comment = "" if parts[4] == "(null)" else parts[4]
            said = comment or (f"waits, {parts[2]}" if parts[1] == "PENDING" else "")
            found.setdefault(parts[3], []).append(Backup(parts[0], parts[1], said))
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
        raise SlurmError(f"`{' '.join(command[:3])}`: {last_line(done.stdout)}")
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
        self.written: Any = None
        self.written_at = -math.inf
        self.troubles: dict[str, str] = {}

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
        nodes: dict[str, Any] = {}
        busy: dict[str, Any] = {}
        problem = ""
        known = None not in self.wishes.values()
        try:
            world = read_world(now)._replace(gives_back=known)
            judged = {instance: judge(wishes, world, self.settings) for instance, wishes in wanted.items()}
            acts = [act for judgement in judged.values() for act in judgement.acts]
            if known:
                keep = frozenset(instance for instance, judgement in judged.items() if judgement.keep)
                acts += give_back(keep, world)
            failed: dict[str, str] = {}
            began = time.monotonic()
            for act in acts:
                if time.monotonic() - began > ACT_S:
                    break  # the next look sees what is left to do
                said = self._do(act)
                if said:
                    failed[act.instance] = said
            done = bool(acts) and not failed
            nodes = {instance: self._tell(wanted[instance], one, world, failed) for instance, one in judged.items()}
            busy = busy_instances(world)
        except SlurmError as error:
            problem = str(error)
        self._say("Slurm", problem)
        self._write_status(now, nodes, busy, problem)
        return done

    def _read_requests(self) -> None:
        for writer in WRITERS:
            key = f"{self.settings['cluster']}/requests/{writer}.json"
            try:
                found = self.bucket.get(key, self.etags[writer], MOST_BYTES)
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
                    self.ids[writer], self.wishes[writer] = parse_request(writer, found.content, self.bucket.now())
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
        log("WARNING" if said else "INFO", f"{act.why}: {said or ' '.join(command[:2])}")
        return said

    @staticmethod
    def _tell(wishes: Sequence[Wish], one: Judgement, world: World, failed: Mapping[str, str]) -> dict[str, Any]:
        instance = wishes[0].instance
        names = [node.name for node in world.at.get(world.instances.get(instance, ""), ())]
        name = names[0] if len(names) == 1 else ""
        late = [wish.writer for wish in wishes if wish.deadline <= world.now and not wish.force]
        told: dict[str, Any] = {
            "state": one.state,
            "slurm": name,
            "ip": wishes[0].address,
            "requests": {wish.writer: wish.request for wish in wishes},
            "jobs": _told_jobs(world.jobs.get(name, ())[:20]),
            "saved": one.saved,
            "message": "; ".join(filter(None, (one.message, failed.get(instance, "")))),
        }
        if late and one.state != "ready":
            told["timed_out"] = late
        if one.absent:
            told["absent"] = True
        return told

    def _write_status(self, now: float, nodes: Mapping[str, Any], busy: Mapping[str, Any], problem: str) -> None:
        backup = self.settings.get("backup") or {}
        unknown = [UNKNOWN[writer] for writer in self.refused if self.wishes[writer] is None]
        status = {
            "schema": SCHEMA,
            "agent": VERSION,
            "cluster": self.settings["cluster"],
            "requests": self.ids,
            "refused": self.refused,
            "problem": "; ".join(filter(None, (problem, *self.unread.values(), *unknown))),
            "backup": backup.get("hook") or backup.get("to"),
            "nodes": nodes,
        }
        # Without Slurm there is nothing new to say of nodes: what was said stays, and the problem beside it.
        if problem and self.written:
            status["nodes"] = self.written["nodes"]
        if status == self.written and time.monotonic() - self.written_at < BEAT_S:
            return
        # Who is busy changes all the time, and is told as often as the status is written anyway.
        content = json.dumps({**status, "beat": round(now), "busy": busy}, sort_keys=True).encode()
        try:
            self.bucket.put(f"{self.settings['cluster']}/status.json", content)
            self.written, self.written_at = json.loads(json.dumps(status)), time.monotonic()
            self._say("status", "")
        except S3Error as error:
            self._say("status", str(error))


def main(settings_file: str) -> None:
    """Look until somebody ends it."""
    settings = json.loads(Path(settings_file).read_text("utf-8"))
    agent = Agent(settings, Bucket(settings["bucket"], settings["region"]))
    log("INFO", f"drains nodes of {settings['cluster']}, as s3://{settings['bucket']} asks")
    while True:
        quick = agent.look()
        time.sleep(min(1.0, POLL_S) if quick else POLL_S)


if __name__ == "__main__":
    sys.exit(run_step(lambda: main(sys.argv[1])))
