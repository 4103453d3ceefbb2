"""What the backups of nodes have left out. It is kept for nodes that are deleted, for whoever deleted them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drain_protocol import NodeStatus

from .decision import join_texts
from .slurm import SAVED, UNSAID, Backup, instance_of_backup, left_out
from .slurm_state import SlurmState

MOST_KEPT = 1000
"""Instances whose results are kept."""


@dataclass(frozen=True)
class BackupResult:
    """What is not in an instance's backup."""

    files_left_out: int = 0
    note: str = UNSAID


class BackupResults:
    """The results of backups, by instance.

    Slurm forgets a job after some minutes. Then the drain's reason has the count, and the manifest at the target has it all.
    """

    def __init__(self) -> None:
        self._results: dict[str, BackupResult] = {}

    def update(self, nodes: Mapping[str, NodeStatus], slurm: SlurmState) -> None:
        """Note what this look shows. `nodes`: the status of each requested node."""
        for name, job in _completed_backups(slurm):
            self._results[instance_of_backup(name)] = _result_of(job)
        for instance, status in nodes.items():
            count = _count_in_drain(status, slurm)
            if count:
                files = "1 file" if count == 1 else f"{count} files"
                self._results.setdefault(instance, BackupResult(count, f"{files} left out; {UNSAID}"))
        for instance in list(self._results):
            if instance not in nodes and instance in slurm.instances:
                del self._results[instance]  # it was released
        for instance in list(self._results)[:-MOST_KEPT]:
            del self._results[instance]

    def files_left_out(self) -> dict[str, int]:
        """Instance -> how many files its backup lacks. Only instances whose backups lack some."""
        return {name: result.files_left_out for name, result in self._results.items() if result.files_left_out}

    def add_to(self, nodes: dict[str, NodeStatus]) -> None:
        """Add to the message of each saved node what its backup lacks."""
        for instance, status in nodes.items():
            if status.saved:
                result = self._results.get(instance, BackupResult())
                nodes[instance] = replace(status, message=join_texts(status.message, result.note))


def _completed_backups(slurm: SlurmState) -> list[tuple[str, Backup]]:
    """Oldest first: of several for one instance the last counts."""
    found: list[tuple[str, Backup]] = []
    for name, jobs in slurm.backups.items():
        found += [(name, job) for job in jobs if job.state == "COMPLETED"]
    return sorted(found, key=lambda each: (int(each[1].id), each[0]))


def _result_of(job: Backup) -> BackupResult:
    saved = SAVED.fullmatch(job.comment)
    if saved is None:
        return BackupResult(left_out(job.comment))
    return BackupResult(left_out(job.comment), saved[1] or "")


def _count_in_drain(status: NodeStatus, slurm: SlurmState) -> int:
    if not status.saved:
        return 0
    drain = slurm.nodes[status.host].our_drain
    if drain is None:
        return 0
    return drain.files_left_out
