"""Which jobs of a restored state start again, and which are held: the copy may be a minute old, and a job may have run since.

A job that waits in the copy waits again, unless something says that it has run, or its own rules forbid a second run. A job that
runs in the copy goes on if its node still has it. If not, Slurm puts it back into the queue, and it is held there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lib import ask_slurm, log, on_node, run

SETTLE = "/var/lib/cdk-hyperpod/state-settle.json"
"""The jobs that the copy calls running, until the nodes have said which of them they have."""
SETTLE_S = 25
"""slurmctld takes a job that a node does not have for lost only this long after its own start (BatchStartTimeout, MessageTimeout)."""
RAN = re.compile(
    r"(?:Orphan|Registered PENDING|complete_batch_script|Registered .*without).*?(?:StepId|JobId)=(\d+)(?:_\S+?\((\d+)\))?"
)
"""What slurmctld logs of a job that a node has or had, and that its own state has not as running."""
FIELDS = "JobID:24,ArrayJobID:24,ArrayTaskID:24,State:24,Requeue:12,PriorityLong:24"
ACTIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")
MARK = "cdk-hyperpod: the controller was replaced"
MOST_NAMED = 50


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
    held: bool = False


def parse(text: str) -> list[Job]:
    """The jobs in the output of `squeue -O FIELDS`. None of the fields is a user's text."""
    rows = (line.split() for line in text.splitlines())
    return [
        Job(int(row[0]), int(row[1]) if row[1].isdigit() else 0, row[2] != "N/A", row[3], row[4] != "0", row[5] == "0")
        for row in rows
        if len(row) == 6 and row[0].isdigit()
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


def started(jobs: Iterable[Job]) -> frozenset[int]:
    """Of the jobs that wait, those that the accounting database knows to have started."""
    ids = [str(job.id) for job in jobs if job.state == "PENDING"]
    found: set[int] = set()
    for begin in range(0, len(ids), 1000):
        wanted = ",".join(ids[begin : begin + 1000])
        done = run("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--jobs={wanted}",
                   "--format=JobIDRaw,State", timeout_s=60)  # fmt: skip
        rows = (line.split("|") for line in done.stdout.splitlines() if done.returncode == 0)
        found |= {int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit() and row[1].split()[0] not in ("PENDING", "REQUEUED")}
    return frozenset(found)


def hold(reasons: Mapping[int, str]) -> None:
    """Hold jobs, so that their users can release them, and name them."""
    for number, reason in sorted(reasons.items()):
        run("scontrol", "uhold", str(number), timeout_s=30)
        run("scontrol", "update", f"jobid={number}", f"admincomment={MARK}, and {reason}", timeout_s=30)
    by_reason: dict[str, list[int]] = {}
    for number, reason in reasons.items():
        by_reason.setdefault(reason, []).append(number)
    for reason, numbers in by_reason.items():
        log("WARNING", f"held because {reason}: jobs {named(numbers)}; look at their output, then `scontrol release ID`")


def named(numbers: Iterable[int]) -> str:
    """Job ids for a line of the log."""
    found = sorted(numbers)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(map(str, found[:MOST_NAMED])) + more


def settle() -> None:
    """Some time after a restore: find the jobs that no node has any more, and hold those that Slurm put back into the queue."""
    file = on_node(SETTLE)
    if not file.exists():
        return
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if 0 <= time.time() - content["since"] < SETTLE_S:
        return
    # slurmctld asks the nodes what they run.
    ask_slurm("scontrol", "reconfigure")
    time.sleep(5)
    ran = frozenset(content["ran"])
    lost = [job for job in queue() if job.id in ran and job.state not in ACTIVE]
    hold({job.id: "it ran when the last copy was made, and no node has it now" for job in lost if job.state == "PENDING" and not job.held})
    ended = [job.id for job in lost if job.state != "PENDING"]
    if ended:
        log("INFO", f"ended since the controller was replaced: jobs {named(ended)}")
    file.unlink()
