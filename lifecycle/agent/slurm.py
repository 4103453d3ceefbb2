"""What Slurm shows, by its own commands: nodes, jobs, and the reservations and backups that are ours."""

from __future__ import annotations

import enum
import functools
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from drain_protocol import INSTANCE_ID, NodeRequest
from lib import one_line, run, what_failed

PREFIX = "cdk-hyperpod"
WAS = "@"
"""In the name of a backup's job, before Slurm's own reason. An instance, a request and a time never contain it."""
REASON_ENDS = re.compile(r" \[[^][@ ]+@(\d{4}-\d\d-\d\dT[\d:]+|Unknown)\]")
"""Who gave a reason, and when. In 24.11 more fields of the node follow."""
OUR_REASON = re.compile(
    rf"{PREFIX}:(deployment|operator):([A-Za-z0-9-]+):(saving|saved|unsaved|lost)(?:-(\d{{1,9}}))?(?::(.+))?"
)
"""The reason of a drain of ours, with one of the marks of Mark. saved-2: the backup lacks two files. Slurm's own reason follows, if
Slurm had drained the node. It is restored when the node is released."""
UNFIT = (
    r"Low (?:socket\*core\*thread count|CPUs|TmpDisk|RealMemory(?: \([^)]*\))?)|CoreSpec differ|Could not unpack gres data|"
    r"gres/\S+ count (?:too low|reported lower than configured|changed and jobs are using them) \(\d+ (?:<|!=) \d+\)|"
    r"gres/\S+ type (?:\(\S+\) reported but not configured|changed and jobs are using them)"
)
"""Why slurmctld drains a node that registers (_slurm_validate_node and gres.c): one reason, or several."""
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
            # run_hooks.py adds which program failed, and how.
            r"(?:Prolog|Epilog) error: [^|]+",
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
"""All reasons with which Slurm itself takes a node out of work, by slurmctld and slurmd of 22.05.8, 24.11.5 and 25.11. Any other
reason is a person's, or HyperPod's (`Action:`). `reboot requested` is a person's."""
WAIVER = "delete unsaved"
"""The beginning of a reason with which a person drains a node that may be deleted without a backup."""
OUR_RESERVATION = re.compile(rf"{PREFIX}-({INSTANCE_ID})")
"""As reservation_name makes it."""
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
NO_NAMES = ("", "(null)", "N/A")
"""How squeue shows that a job names no node."""
SAVED = re.compile(r"saved \d+ files?, [\d.]+ [kMG]B(?:[;:] (.*))?")
"""The comment of a backup that succeeded (backup/), and the part of it about what is not in the copy."""
LEFT_OUT = re.compile(r"saved [^:;]*; (\d+) files? left out")
UNSAID = "manifest.json at the target lists what was left out"


class SlurmError(Exception):
    """A command of Slurm's failed, or what it printed has an unknown form."""


class Mark(enum.Enum):
    """How far we are with a node, by the reason of our drain."""

    SAVING = "saving"
    """Its backup's job has begun."""
    SAVED = "saved"
    UNSAVED = "unsaved"
    """No backup was requested."""
    LOST = "lost"
    """The backup could not be made."""


class OurDrain(NamedTuple):
    """What the reason of a drain of ours holds."""

    mark: Mark
    files_left_out: int = 0
    slurm_reason: str = ""
    """Slurm's own reason for a drain, which ours replaced."""

    @property
    def how(self) -> str:
        """The mark with its count: saved, saved-2."""
        if not self.files_left_out:
            return self.mark.value
        return f"{self.mark.value}-{self.files_left_out}"


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
    def set_down(self) -> bool:
        """In state DOWN, which a person or slurmctld has set."""
        return "DOWN" in self.state

    @property
    def down(self) -> bool:
        """Nothing can run on it: it is in state DOWN, or has no power."""
        return bool(self.state & {"DOWN", "POWERED_DOWN", "POWERING_DOWN"})

    @property
    def busy(self) -> bool:
        """Slurm still has work on it, whatever the list of jobs says."""
        return bool(self.state & {"ALLOCATED", "MIXED", "COMPLETING", "FAILING"})

    @property
    def failed(self) -> bool:
        """In state FAIL, which slurmctld never sets itself. A repair by HyperPod does, for example."""
        return bool(self.state & {"FAIL", "FAILING"})

    @property
    def out_of_work(self) -> bool:
        """Slurm starts no job on it, not even one of root's."""
        return self.drained or self.set_down

    @property
    def our_drain(self) -> OurDrain | None:
        """Our drain. None: the node is not drained, or not by us. A reason without a drain proves nothing."""
        if not self.drained or self.failed:
            return None
        found = OUR_REASON.match(self.reason)
        if found is None:
            return None
        return OurDrain(Mark(found[3]), int(found[4] or 0), found[5] or "")

    @property
    def by_slurm(self) -> str:
        """The reason, if Slurm itself took the node out of work. Empty: Slurm did not."""
        if not self.out_of_work or self.failed:
            return ""
        if SLURM_OWN.fullmatch(self.reason) is None:
            return ""
        return self.reason

    @property
    def foreign(self) -> str:
        """How a person or another program took the node out of work. Empty: none did."""
        if self.failed:
            return "set to FAIL"
        if self.by_slurm or self.our_drain:
            return ""
        if self.drained:
            return "drained"
        if self.set_down and self._has_foreign_reason:
            return "set to DOWN"
        return ""

    @property
    def waived(self) -> bool:
        """A person said that the node may be deleted unsaved."""
        return bool(self.foreign) and self.reason.lower().startswith(WAIVER)

    @property
    def _has_foreign_reason(self) -> bool:
        # A person must give a reason. slurmctld needs none, and leaves an older one, such as ours, in place.
        return self.reason != "" and OUR_REASON.match(self.reason) is None


class Job(NamedTuple):
    """A user's job, one task of an array, or one component of a heterogeneous job."""

    id: str
    """As squeue has it: 7, 7_1, 7+1. Not a task's own job number, which for the last task is that of the whole array."""
    user: str
    state: str

    @property
    def ends(self) -> str:
        """The id to requeue or cancel: the task and not its array. Slurm ends a heterogeneous job as a whole, by its leader."""
        return self.id.partition("+")[0]


class Backup(NamedTuple):
    """A job of ours, running or ended."""

    id: str
    state: str
    comment: str
    slurm_reason: str = ""
    """Slurm's own reason, if Slurm had drained the node. The agent resumes the node for this job alone."""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state == "PENDING" or self.state not in ENDED


class Reservation(NamedTuple):
    """One of ours."""

    nodes: tuple[str, ...]
    start: str
    """When it began, as Slurm writes it. A node that was released in between has a new start."""


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """The output of `scontrol --oneliner show node`."""
    found = {}
    for line in text.split("\n"):
        # The text after Reason= may contain anything.
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
    """NodeAddr is an address or a name. Empty: the name does not resolve now."""
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


class Jobs(NamedTuple):
    """Users' jobs by node."""

    running: dict[str, tuple[Job, ...]]
    """The jobs on each node."""
    naming: dict[str, tuple[Job, ...]]
    """The pending jobs that request the node by its name."""
    queue: int = 0
    """How many jobs run or wait. The pending tasks of an array count once."""


def parse_jobs(text: str, ours: Iterable[str], expand_names: Callable[[str], Sequence[str]]) -> Jobs:
    """The output of squeue (slurm_state.read_slurm). `ours`: numbers of jobs to skip. `expand_names`: as expand."""
    running: dict[str, list[Job]] = {}
    naming: dict[str, list[Job]] = {}
    queue = 0
    skip = frozenset(ours)
    for line in text.split("\n"):
        parts = line.split("|")
        if len(parts) != 7 or not parts[0].isdigit() or parts[0] in skip:
            continue
        number, user, shown, end, on, requested, name = parts
        # The pending tasks of an array share one line, whose name lists them.
        job = Job(name if ONE_JOB.fullmatch(name) else number, user[:64], base_state(shown, end))
        if job.state == "PENDING" and requested not in NO_NAMES:
            _add(naming, expand_names(requested), job)
        if job.state not in ENDED and on:
            _add(running, expand_names(on), job)
        if job.state == "PENDING" or job.state not in ENDED:
            queue += 1
    return Jobs(_frozen(running), _frozen(naming), queue)


def _add(jobs: dict[str, list[Job]], nodes: Sequence[str], job: Job) -> None:
    for node in nodes:
        jobs.setdefault(node, []).append(job)


def _frozen(jobs: Mapping[str, list[Job]]) -> dict[str, tuple[Job, ...]]:
    return {node: tuple(found) for node, found in jobs.items()}


def base_state(state: str, end: str) -> str:
    """The state of a job. If Slurm purged its reservation with the node, RESV_DEL_HOLD hides it, also after the job has ended."""
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
            message = "" if comment == "(null)" else one_line(comment)
            if state == "PENDING":
                message = message or f"waits, {why}"
            name, _, was = called.partition(WAS)
            found.setdefault(name, []).append(Backup(number, state, message, was))
    return {name: tuple(jobs) for name, jobs in found.items()}


def reservation_name(instance: str) -> str:
    """The name of our reservation of this instance's node."""
    return f"{PREFIX}-{instance}"


def backup_name(node_request: NodeRequest, start: str) -> str:
    """The name of its backup's job. Only a job for this request, since the reservation began, proves that the node is saved."""
    return f"{PREFIX}-backup:{node_request.instance}:{node_request.request_id}:{start}"


def instance_of_backup(name: str) -> str:
    """The instance in the name of a backup's job."""
    return name.split(":")[1]


def left_out(comment: str) -> int:
    """How many files are not in a backup, by the comment of its job."""
    found = LEFT_OUT.match(comment)
    return int(found[1]) if found else 0


@functools.lru_cache(maxsize=10_000)
def expand(names: str) -> tuple[str, ...]:
    """The nodes in Slurm's short form of a list of them."""
    if "[" not in names and "," not in names:
        return (names,)
    return tuple(run_slurm("scontrol", "show", "hostnames", names).split())


def run_slurm(*command: str) -> str:
    """A command's output. Raises SlurmError if it fails."""
    done = run(*command, timeout_s=60)
    if done.returncode != 0:
        raise SlurmError(f"`{' '.join(command[:3])}`: {what_failed(done.stdout)}")
    return done.stdout
