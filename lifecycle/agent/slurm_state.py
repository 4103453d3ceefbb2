"""All that one look reads of Slurm and HyperPod. The decisions depend on it alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .hyperpod import read_instances
from .slurm import (
    Backup,
    Job,
    Reservation,
    SlurmNode,
    expand,
    parse_backups,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    run_slurm,
)


class Seen(NamedTuple):
    """All that one look reads."""

    now: float
    instances: Mapping[str, str]
    """Id to address, as HyperPod has them."""
    never_drained: Mapping[str, str]
    """Address of a node that is never drained -> what the node is."""
    nodes: Mapping[str, SlurmNode]
    """By name."""
    reservations: Mapping[str, Reservation]
    """Ours, by the instance's id."""
    jobs: Mapping[str, tuple[Job, ...]]
    """What is on each node, without backups of ours."""
    jobs_naming: Mapping[str, tuple[Job, ...]]
    """Pending jobs that request the node by its name."""
    backups: Mapping[str, tuple[Backup, ...]]
    """By the job's name."""
    unknown_types: frozenset[str] = frozenset()
    """Addresses of nodes whose type HyperPod's files do not have."""
    releases_nodes: bool = True
    """Nodes that no request names are released: True only if both requests were read."""
    queue: int = 0
    """How many jobs of users run or wait."""


class SlurmState(Seen):
    """What one look reads, indexed by address."""

    @functools.cached_property
    def nodes_at(self) -> Mapping[str, Sequence[SlurmNode]]:
        """Slurm's nodes by address."""
        found: dict[str, list[SlurmNode]] = {}
        for node in self.nodes.values():
            for address in node.addresses:
                found.setdefault(address, []).append(node)
        return found

    @functools.cached_property
    def _instance_at(self) -> Mapping[str, str]:
        """Instances by address."""
        return {address: instance for instance, address in self.instances.items()}

    def instances_of(self, node: SlurmNode) -> frozenset[str]:
        """The instances that have an address of this node: one, unless the node has several addresses."""
        return frozenset(self._instance_at[address] for address in node.addresses if address in self._instance_at)


def read_slurm(now: float) -> SlurmState:
    """One look. Reservations are read before jobs, so that no job starts unseen on a reserved node."""
    instances = read_instances()
    nodes = parse_nodes(run_slurm("scontrol", "--oneliner", "show", "node"))
    reservations = parse_reservations(run_slurm("scontrol", "--oneliner", "show", "reservation"))
    # Users choose names and comments, which may contain newlines. So they are read of root's jobs alone.
    jobs = run_slurm("squeue", "--noheader", "--states=all", "--format=%A|%u|%T|%e|%N|%n|%i")
    own = run_slurm("squeue", "--noheader", "--states=all", "--users=root", "--format=%A|%T|%e|%r|%j|%k")
    backups = parse_backups(own)
    ours = {job.id for each in backups.values() for job in each}
    found = parse_jobs(jobs, ours, expand)
    return SlurmState(
        now=now,
        instances=instances.addresses,
        never_drained=instances.never_drained,
        nodes=nodes,
        reservations=reservations,
        jobs=found.running,
        jobs_naming=found.naming,
        backups=backups,
        unknown_types=instances.unknown_types,
        queue=found.queue,
    )
