"""Which nodes are released: those that no request names any more."""

from __future__ import annotations

import time
from collections.abc import Mapping

from drain_protocol import MAX_AHEAD_S

from .commands import Act, cancel_backup, delete_reservation, end_drain, put_back
from .slurm import Reservation, SlurmNode, instance_of_backup
from .slurm_state import SlurmState


def release_nodes(keep: frozenset[str], slurm: SlurmState) -> tuple[Act, ...]:
    """End everything of ours that no request wants. `keep`: the instances that requests want.

    The reservations are deleted last, so that no job starts on a node that is still to change.
    """
    held = _held_nodes(keep, slurm)
    return (*_end_drains(keep, held, slurm), *_cancel_backups(keep, slurm), *_delete_reservations(keep, held, slurm))


def _held_nodes(keep: frozenset[str], slurm: SlurmState) -> frozenset[str]:
    """The nodes whose reservation stays."""
    held: set[str] = set()
    for instance, reservation in slurm.reservations.items():
        if instance in keep and not _is_replaced(instance, reservation, slurm):
            held.update(reservation.nodes)
    return frozenset(held)


def _is_replaced(instance: str, reservation: Reservation, slurm: SlurmState) -> bool:
    """Another instance has the address by now. It is a new node, so it is released even if a request wants the old one."""
    if instance in slurm.instances:
        return False
    for name in reservation.nodes:
        node = slurm.nodes.get(name)
        if node is not None and slurm.instances_of(node):
            return True
    return False


def _end_drains(keep: frozenset[str], held: frozenset[str], slurm: SlurmState) -> list[Act]:
    acts = []
    for node in slurm.nodes.values():
        if node.our_drain is None or node.name in held:
            continue
        if keep.isdisjoint(slurm.instances_of(node)):
            acts.append(end_drain("", node, "release it"))
    return acts


def _cancel_backups(keep: frozenset[str], slurm: SlurmState) -> list[Act]:
    acts: list[Act] = []
    for name, backups in slurm.backups.items():
        instance = instance_of_backup(name)
        if instance in keep:
            continue
        live = [job for job in backups if job.live]
        # A completing job was cancelled, or has ended by itself.
        acts += [cancel_backup(job) for job in live if job.state != "COMPLETING"]
        for job in live:
            if job.slurm_reason:
                acts += [put_back("", node, job.slurm_reason) for node in _open_nodes(instance, slurm)]
    return acts


def _open_nodes(instance: str, slurm: SlurmState) -> list[SlurmNode]:
    """The instance's node, if jobs can start on it."""
    nodes = slurm.nodes_at.get(slurm.instances.get(instance, ""), ())
    return [node for node in nodes if not node.drained and not node.down]


def _delete_reservations(keep: frozenset[str], held: frozenset[str], slurm: SlurmState) -> list[Act]:
    acts = []
    for instance, reservation in slurm.reservations.items():
        if instance in keep and held.issuperset(reservation.nodes):
            continue
        acts.append(delete_reservation(instance, reservation))
    return acts


def release_expired(keep: frozenset[str], slurm: SlurmState) -> tuple[Act, ...]:
    """Release what is older than any lease, for an agent that could not read all requests.

    `keep`: the instances that the readable requests want. A lease that is renewed may be older than any single one.
    """
    now = time.time()
    reservations: dict[str, Reservation] = {}
    for instance, reservation in slurm.reservations.items():
        if instance not in keep and _is_past_any_lease(reservation.start, now):
            reservations[instance] = reservation
    nodes = {**_nodes_of(reservations, slurm), **_old_drains(slurm, now)}
    backups = {name: jobs for name, jobs in slurm.backups.items() if instance_of_backup(name) in reservations}
    # In Slurm's order: acts follow it.
    ordered = {name: node for name, node in slurm.nodes.items() if name in nodes}
    return release_nodes(keep, slurm._replace(reservations=reservations, nodes=ordered, backups=backups))


def _nodes_of(reservations: Mapping[str, Reservation], slurm: SlurmState) -> dict[str, SlurmNode]:
    names = {name for reservation in reservations.values() for name in reservation.nodes}
    return {name: node for name, node in slurm.nodes.items() if name in names}


def _old_drains(slurm: SlurmState, now: float) -> dict[str, SlurmNode]:
    """Nodes with an old reason and no reservation of ours.

    An agent may have been killed between the two, or the backup's job was about to drain the node.
    """
    reserved = _nodes_of(slurm.reservations, slurm)
    found = {}
    for name, node in slurm.nodes.items():
        if name not in reserved and _is_past_any_lease(node.since, now):
            found[name] = node
    return found


def _is_past_any_lease(began: str, now: float) -> bool:
    return now - _seconds(began, now) > MAX_AHEAD_S


def _seconds(text: str, otherwise: float) -> float:
    """A time as Slurm writes it, in seconds since 1970. It is slurmctld's clock, which is this machine's own."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return otherwise
