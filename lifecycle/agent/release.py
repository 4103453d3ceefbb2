"""Which nodes are given back: those that nobody wants any more."""

from __future__ import annotations

import time

from drain_protocol import MAX_AHEAD_S

from .commands import Act, end_drain, put_back
from .slurm import PREFIX, SlurmNode
from .slurm_state import World


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
            acts.append(end_drain("", node, "give it back"))
    for name, backups in world.backups.items():
        instance = name.split(":")[1]
        if instance not in keep:
            live = [job for job in backups if job.live]
            # One that completes was cancelled, or has ended by itself.
            cancelled = [job for job in live if job.state != "COMPLETING"]
            acts += [Act(f"nobody wants backup {job.id}", ("scancel", job.id)) for job in cancelled]
            acts += [put_back("", node, job.was) for job in live if job.was for node in _opened(instance, world)]
    for instance, (names, _) in world.reservations.items():
        if instance not in keep or not held.issuperset(names):
            why = f"give {','.join(names) or instance} back"
            acts.append(Act(why, ("scontrol", "delete", f"reservationname={PREFIX}-{instance}")))
    return tuple(acts)


def _opened(instance: str, world: World) -> list[SlurmNode]:
    """The instance's node, where it takes work."""
    nodes = world.at.get(world.instances.get(instance, ""), ())
    return [node for node in nodes if not node.drained and not node.down]


def release_old(keep: frozenset[str], world: World) -> tuple[Act, ...]:
    """What is older than any lease, and may be nobody's: for an agent that cannot read all of who wants what. `keep` names the
    instances that a request wants that it can read: a lease that is renewed is older than one that is not."""
    now = time.time()
    old = {
        name: one for name, one in world.reservations.items() if name not in keep and _is_past_any_lease(one.start, now)
    }
    names = {name for one in old.values() for name in one.nodes}
    reserved = {name for one in world.reservations.values() for name in one.nodes}
    # The reservation may have gone before the drain did: the agent was killed, or the backup's job was about to drain it.
    names |= {
        name for name, node in world.nodes.items() if name not in reserved and _is_past_any_lease(node.since, now)
    }
    nodes = {name: node for name, node in world.nodes.items() if name in names}
    backups = {name: jobs for name, jobs in world.backups.items() if name.split(":")[1] in old}
    return give_back(keep, world._replace(reservations=old, nodes=nodes, backups=backups))


def _is_past_any_lease(began: str, now: float) -> bool:
    return now - _seconds(began, now) > MAX_AHEAD_S


def _seconds(moment: str, otherwise: float) -> float:
    """A time as Slurm writes it, by this machine's own clock as slurmctld's is, in seconds since 1970."""
    try:
        return time.mktime(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return otherwise
