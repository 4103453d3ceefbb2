"""The jobs in the status, and how the status stays short enough for the guard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from drain_protocol import Status, StatusJob, make_status

from .slurm import Job
from .slurm_state import SlurmState

MOST_REPORTED = 6
"""Jobs of each busy node in the status: five, and one that shows that there are more."""
MOST_STATUS = 7 * 1024**2
"""Bytes of a status. The guard reads eight MiB of it."""
SHORTER = ((20, 2000), (5, 600), (1, 300), (0, 100))
"""Jobs of a node, and characters of its message, if the whole status would be too long."""


def busy_instances(slurm: SlurmState) -> dict[str, tuple[StatusJob, ...]]:
    """Instances that have jobs, and some of the jobs. The guard prefers idle nodes, and reports whose jobs end."""
    nodes = {address: node.name for node in slurm.nodes.values() for address in node.addresses}
    jobs = {name: slurm.jobs.get(nodes.get(address, ""), ()) for name, address in slurm.instances.items()}
    return {name: reported_jobs(found[:MOST_REPORTED]) for name, found in jobs.items() if found}


def reported_jobs(jobs: Sequence[Job]) -> tuple[StatusJob, ...]:
    """Jobs as the status has them."""
    return tuple(StatusJob(job.id, job.user) for job in jobs)


def fitting(status: Status) -> bytes:
    """The status as JSON. If it would be longer than the guard reads, each node has fewer jobs and a shorter message."""
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
