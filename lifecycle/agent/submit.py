"""Submit the job that saves a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drain_protocol import NodeRequest

from .backup.job import LOG
from .commands import Act, reason_of
from .slurm import WAS, Mark, OurDrain, backup_name, reservation_name
from .view import NodeView

MOST_TRIES = 3
"""Backup jobs under one reservation."""


def submit_backup(view: NodeView) -> Act:
    """Submit a backup job into the node's reservation, in the name of the first request that wants the node saved."""
    to_save = [node_request for node_request in view.node_requests if node_request.backup]
    node_request = to_save[0]
    start = view.reservation.start if view.reservation else ""
    command = (
        "sbatch",
        "--parsable",
        f"--job-name={_job_name(backup_name(node_request, start), view.slurm_reason)}",
        f"--reservation={reservation_name(view.instance)}",
        f"--nodelist={view.node.name}",
        "--nodes=1",
        "--exclusive",
        "--mem=0",
        "--no-requeue",
        "--export=NONE",
        "--chdir=/",
        f"--output={LOG}",
        # All of them, because the cluster file may close some (slurm.partitions): Slurm runs the job in one that is open.
        *([f"--partition={','.join(view.node.partitions)}"] if view.node.partitions else []),
    )
    ends = max(_end_of_time(each) for each in to_save)
    order = {
        **_backup_settings(view.backup),
        **last_try(view.backup, len(view.tries)),
        "instance": view.instance,
        "request": node_request.request_id,
        "seconds": max(0, round(ends - view.now)),
        "hold": {
            "node": view.node.name,
            "reason": reason_of(node_request, OurDrain(Mark.SAVING, 0, view.slurm_reason)),
        },
    }
    return Act(f"submit the backup of {view.node.name}", command, order, instance=view.instance)


def _job_name(name: str, slurm_reason: str) -> str:
    """The job keeps Slurm's own reason, which is lost when the node is opened for it."""
    if not slurm_reason:
        return name
    return f"{name}{WAS}{slurm_reason}"


def _backup_settings(backup: Mapping[str, Any]) -> dict[str, Any]:
    """Without what the agent alone decides by: on_failure, on_unsavable."""
    return {name: value for name, value in backup.items() if not name.startswith("on_")}


def last_try(backup: Mapping[str, Any], tries: int) -> dict[str, bool]:
    """What the next try of a backup of folders may do besides, after so many tries.

    The last try ends processes that keep writing. With on_unsavable: skip it leaves out what cannot be saved, and the second
    try is already the last: a program that was about to end has ended by then.
    """
    if "paths" not in backup:
        return {}
    skip = backup.get("on_unsavable") == "skip"
    most = 2 if skip else MOST_TRIES
    return {"last": tries + 1 >= most, "skip": skip}


def _end_of_time(node_request: NodeRequest) -> float:
    """Until when its backup has time. If jobs end at the deadline, that is after the deadline."""
    if not node_request.force:
        return node_request.deadline
    if node_request.limit is None:
        return node_request.expires
    return node_request.limit
