"""Which jobs of a restored state start again, and which are held: the copy may be a minute old, and a job may have run since.

A job that waits in the copy waits again, unless something says that it has run, or its own rules forbid a second run. A job that
runs in the copy goes on if its node still has it. If not, Slurm puts it back into the queue, and it is held there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lib import ask_slurm, log, on_node, run, write_file

UNSURE = "/var/lib/cdk-hyperpod/state-unsure.json"
"""The jobs that the copy calls running, while a node of theirs does not answer."""
RAN = re.compile(
    r"(?:Orphan|Registered PENDING|complete_batch_script|Registered .*without).*?(?:StepId|JobId)=(\d+)(?:_\S+?\((\d+)\))?"
)
"""What slurmctld logs of a job that a node has or had, and that its own state has not as running."""
FIELDS = "JobID:24,ArrayJobID:24,ArrayTaskID:24,State:24,Requeue:12,BatchFlag:12,PriorityLong:24"
ACTIVE = ("RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING")
MARK = "cdk-hyperpod: the controller was replaced"
MOST_NAMED = 50
UNSAVED_S = 60
"""slurmctld writes its state some seconds after a change, and a copy takes some."""


@dataclass(frozen=True)
class Job:
    """A job of Slurm's queue."""

    id: int
    array: int
    """The id of its array, or its own."""
    is_array: bool
    """It stands for tasks that have not started."""
    state: str
    may_requeue: bool = True
    is_batch: bool = True
    held: bool = False


def parse(text: str) -> list[Job]:
    """The jobs in the output of `squeue -O FIELDS`. None of the fields is a user's text."""
    rows = (line.split() for line in text.splitlines())
    return [
        Job(
            int(row[0]),
            int(row[1]) if row[1].isdigit() else 0,
            row[2] != "N/A",
            row[3],
            row[4] != "0",
            row[5] != "0",
            row[6] == "0",
        )
        for row in rows
        if len(row) == 7 and row[0].isdigit()
    ]


def ran_in(log_text: str) -> frozenset[int]:
    """The jobs that nodes say they have or had, by slurmctld's log."""
    return frozenset(int(number) for found in RAN.findall(log_text) for number in found if number)


def reason_to_hold(job: Job, ran: frozenset[int], known: frozenset[int]) -> str | None:
    """Why a job that waits in the copy may not start by itself. None: it may."""
    if job.state != "PENDING" or job.held:
        return None
    if job.id in ran or job.array in ran:
        return "it has run since the last copy of the controller's state"
    if job.is_array and ran - known:
        return "some of its tasks may have run since the last copy of the controller's state"
    if not job.may_requeue:
        return "it may have run since the last copy of the controller's state, and it is submitted with --no-requeue"
    return None


def queue() -> list[Job]:
    """All jobs that Slurm knows."""
    return parse(ask_slurm("squeue", "--all", "--noheader", "--states=all", "-O", FIELDS))


def started(jobs: Iterable[Job], since: float) -> frozenset[int]:
    """Of the jobs that wait, those that the accounting database knows to have run after this time.

    A job that was preempted, or lost its node, has an earlier run there, and waits all the same.
    """
    found: set[int] = set()
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - UNSAVED_S))
    for wanted in _lists(job.id for job in jobs if job.state == "PENDING"):
        done = run("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--jobs={wanted}",
                   f"--starttime={begin}", "--format=JobIDRaw,State", timeout_s=60)  # fmt: skip
        rows = (line.split("|") for line in done.stdout.splitlines() if done.returncode == 0)
        found |= {
            int(row[0])
            for row in rows
            if len(row) == 2 and row[0].isdigit() and row[1].split()[0] not in ("PENDING", "REQUEUED")
        }
    return frozenset(found)


def hold(reasons: Mapping[int, str]) -> None:
    """Hold jobs, so that their users can release them, and name them."""
    by_reason: dict[str, list[int]] = {}
    for number, reason in reasons.items():
        by_reason.setdefault(reason, []).append(number)
    for reason, numbers in by_reason.items():
        for some in _lists(numbers):
            run("scontrol", "uhold", some)
            run("scontrol", "update", f"jobid={some}", f"admincomment={MARK}, and {reason}")
        log(
            "WARNING", f"held because {reason}: jobs {named(numbers)}; look at their output, then `scontrol release ID`"
        )


def _lists(numbers: Iterable[int]) -> Iterator[str]:
    """Job ids as Slurm's commands take them: a command for each job would take most of the time of a restore."""
    found = sorted(numbers)
    return (",".join(map(str, found[begin : begin + 1000])) for begin in range(0, len(found), 1000))


def named(numbers: Iterable[int]) -> str:
    """Job ids for a line of the log."""
    found = sorted(numbers)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(map(str, found[:MOST_NAMED])) + more


LOST = "it ran when the last copy of the controller's state was made, and no node has it now"


def is_lost(job: Job, on_nodes: frozenset[int], ended: frozenset[int]) -> bool:
    """Whether a job that Slurm calls running runs nowhere. All its nodes have been asked.

    A job without a script may have no process on a node for a while. `ended`: those that a slurmctld without the state has ended.
    """
    return job.id in ended or (job.is_batch and job.id not in on_nodes)


def settle(ran: frozenset[int], ended: frozenset[int]) -> frozenset[int]:
    """Of the jobs that the copy calls running, find those that the nodes have not. Returns those whose nodes do not answer yet.

    Slurm itself takes half an hour to find out, and then starts them again.
    """
    jobs = [job for job in queue() if job.id in ran]
    active = [job for job in jobs if job.state in ACTIVE]
    unsure = _on_silent_nodes() if active else frozenset()
    asked = [job for job in active if job.id not in unsure]
    on_nodes = _on_nodes(asked)
    _end([job for job in asked if is_lost(job, on_nodes, ended)])
    hold({job.id: LOST for job in jobs if job.state == "PENDING" and not job.held})
    return frozenset(job.id for job in active if job.id in unsure)


def _end(lost: list[Job]) -> None:
    """Hold the jobs that Slurm may start again, and cancel the others."""
    again = [job.id for job in lost if job.may_requeue]
    for some in _lists(again):
        run("scontrol", "requeuehold", some)
    hold(dict.fromkeys(again, LOST))
    over = [job.id for job in lost if not job.may_requeue]
    for some in _lists(over):
        run("scontrol", "update", f"jobid={some}", f"admincomment={MARK}, and no node has the job now")
    if over:
        log("WARNING", f"ended, because no node has it now and it is submitted with --no-requeue: jobs {named(over)}")
        run("scancel", *map(str, over), timeout_s=60)


def silent_nodes() -> list[str]:
    """The nodes whose slurmd has not registered since slurmctld started. Without those that Slurm knows to be down."""
    found = []
    # What comes after Reason= may hold anything.
    for line in (
        line.split(" Reason=")[0] for line in ask_slurm("scontrol", "--oneliner", "show", "node").splitlines()
    ):
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("SlurmdStartTime") == "None" and not words.get("State", "").startswith("DOWN"):
            found.append(words["NodeName"])
    return found


def _on_silent_nodes() -> frozenset[int]:
    silent = silent_nodes()
    if not silent:
        return frozenset()
    found = ask_slurm("squeue", "--all", "--noheader", "--format=%A", f"--nodelist={','.join(silent)}")
    return frozenset(int(word) for word in found.split() if word.isdigit())


def _on_nodes(jobs: Iterable[Job]) -> frozenset[int]:
    """The jobs that have processes, as slurmd of their nodes says it."""
    ids = ",".join(str(job.id) for job in jobs)
    if not ids:
        return frozenset()
    said = ask_slurm(
        "sstat",
        "--noheader",
        "--parsable2",
        "--pidformat",
        "--allsteps",
        f"--jobs={ids}",
        "--format=JobID",
        timeout_s=300,
    )
    return frozenset(int(found) for found in re.findall(r"^(\d+)\.", said, re.MULTILINE))


def note_unsure(jobs: frozenset[int]) -> None:
    """Have `settle_later` look again."""
    file = on_node(UNSURE)
    if jobs:
        write_file(UNSURE, json.dumps({"jobs": sorted(jobs)}) + "\n", mode=0o600)
    elif file.exists():
        file.unlink()


def settle_later() -> None:
    """Look at the jobs again whose nodes did not answer when the state was restored."""
    file = on_node(UNSURE)
    if file.exists():
        note_unsure(settle(frozenset(json.loads(file.read_text("utf-8"))["jobs"]), frozenset()))
