"""Which nodes are given back: those that nobody wants any more."""

from __future__ import annotations

import time

from drain_protocol import MAX_AHEAD_S

from .commands import Act, end_drain, put_back
from .slurm import SlurmNode, reservation_name
from .slurm_state import SlurmState


def release_nodes(keep: frozenset[str], slurm: SlurmState) -> tuple[Act, ...]:
    """What is ours and nobody wants: `keep` names the instances that somebody does.

    The reservation goes last, so that no job slips in between. Of an instance whose address is another's by now, the drain
    is given back even while somebody wants the old one: its replacement is a new node.
    """
    owners = {address: instance for instance, address in slurm.instances.items()}
    acts: list[Act] = []
    held: set[str] = set()
    for instance, (names, _) in slurm.reservations.items():
        nodes = [slurm.nodes[name] for name in names if name in slurm.nodes]
        replaced = instance not in slurm.instances and any(owners.get(a) for node in nodes for a in node.addresses)
        if instance in keep and not replaced:
            held.update(names)
    for node in slurm.nodes.values():
        if node.our_drain and node.name not in held and not any(owners.get(a) in keep for a in node.addresses):
            acts.append(end_drain("", node, "give it back"))
    for name, backups in slurm.backups.items():
        instance = name.split(":")[1]
        if instance not in keep:
            live = [job for job in backups if job.live]
            # One that completes was cancelled, or has ended by itself.
            cancelled = [job for job in live if job.state != "COMPLETING"]
            acts += [Act(f"nobody wants backup {job.id}", ("scancel", job.id)) for job in cancelled]
            acts += [put_back("", node, job.was) for job in live if job.was for node in _opened(instance, slurm)]
    for instance, (names, _) in slurm.reservations.items():
        if instance not in keep or not held.issuperset(names):
            why = f"give {','.join(names) or instance} back"
            acts.append(Act(why, ("scontrol", "delete", f"reservationname={reservation_name(instance)}")))
    return tuple(acts)


def _opened(instance: str, slurm: SlurmState) -> list[SlurmNode]:
    """The instance's node, where it takes work."""
    nodes = slurm.at.get(slurm.instances.get(instance, ""), ())
    return [node for node in nodes if not node.drained and not node.down]


def release_expired(keep: frozenset[str], slurm: SlurmState) -> tuple[Act, ...]:
    """What is older than any lease, and may be nobody's: for an agent that cannot read all of who wants what. `keep` names the
    instances that a request wants that it can read: a lease that is renewed is older than one that is not."""
    now = time.time()
    old = {
        name: one for name, one in slurm.reservations.items() if name not in keep and _is_past_any_lease(one.start, now)
    }
    names = {name for one in old.values() for name in one.nodes}
    reserved = {name for one in slurm.reservations.values() for name in one.nodes}
    # The reservation may have gone before the drain did: the agent was killed, or the backup's job was about to drain it.
    names |= {
        name for name, node in slurm.nodes.items() if name not in reserved and _is_past_any_lease(node.since, now)
    }
    nodes = {name: node for name, node in slurm.nodes.items() if name in names}
    backups = {name: jobs for name, jobs in slurm.backups.items() if name.split(":")[1] in old}
    return release_nodes(keep, slurm._replace(reservations=old, nodes=nodes, backups=backups))


def _is_past_any_lease(began: str, now: float) -> bool:
    return now - _seconds(began, now) > MAX_AHEAD_S


def _seconds(moment: str, otherwise: float) -> float:
    """A time as Slurm writes it, by this machine's own clock as slurmctld's is, in seconds since 1970."""
    try:
        return time.mktime(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return otherwise
