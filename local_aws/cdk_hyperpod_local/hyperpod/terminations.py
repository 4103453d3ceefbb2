"""Terminations: which nodes a lower count chooses, and the record of every termination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from . import events
from .state import Cause, Cluster, HyperPodState, Node, Termination


def ending(state: HyperPodState, cluster: Cluster, node: Node, cause: Cause, *, holds_place: bool = False) -> Node:
    """Record the node's termination, and return the node that is shutting down.

    Without an instance, it is deleted at the next step.
    """
    state.terminations.append(
        Termination(
            at=state.now,
            cluster=cluster.name,
            group=node.group,
            logical_id=node.logical_id,
            node_id=node.instance_id,
            cause=cause,
            call=state.call,
        )
    )
    wait = state.timings.shut_down if node.launched else 0.0
    return replace(node, status="ShuttingDown", due=state.now + wait, holds_place=holds_place)


def replaced(state: HyperPodState, cluster: Cluster, node: Node) -> Node:
    """Record the termination of the node's instance, and return the node with a new one, which is starting."""
    state.terminations.append(
        Termination(
            at=state.now,
            cluster=cluster.name,
            group=node.group,
            logical_id=node.logical_id,
            node_id=node.instance_id,
            cause="replaced",
            call=state.call,
        )
    )
    group = cluster.groups.get(node.group)
    # "New nodes are always created using the desired image ID" (botocore: TargetStateCount).
    image = node.image if group is None else group.image
    new = replace(
        node, status="Pending", due=state.now + state.timings.boot, message="", instance_id=f"i-{state.digits(17)}",
        launched_at=state.now, replaces=node.instance_id, faulty=False,
        image=image, attempts=0,
    )  # fmt: skip
    events.add(
        state, cluster, events.REPLACEMENT_STARTED, group=new.group, instance_id=new.instance_id,
        metadata={"Instance": {"NodeLogicalId": new.logical_id}},
    )  # fmt: skip
    return new


def end(
    state: HyperPodState, cluster: Cluster, nodes: Iterable[Node], cause: Cause, *, holds_place: bool = False
) -> None:
    """Terminate nodes. Nodes that never had an instance are deleted at once."""
    for node in nodes:
        ended = ending(state, cluster, node, cause, holds_place=holds_place and node.launched)
        if node.launched:
            cluster.nodes[node.logical_id] = ended
        else:
            del cluster.nodes[node.logical_id]


def choose_victims(
    nodes: Sequence[Node], count: int, types: Sequence[str], random: Random, *, spares: bool
) -> list[Node]:
    """Which `count` of the live nodes a lower InstanceCount terminates: RANDOM ones ("Scale down a cluster").

    Flexible groups lose their least preferred type first ("Update a HyperPod cluster", EKS). `spares`: requests without
    an instance are cancelled first.
    """
    rank = {instance_type: -position for position, instance_type in enumerate(types)}
    shuffled = random.sample(list(nodes), len(nodes))
    shuffled.sort(key=lambda node: (spares and node.launched, rank.get(node.instance_type, -len(types))))
    return shuffled[: max(count, 0)]


def counted_extra(state: HyperPodState, nodes: Iterable[Node]) -> int:
    """How many nodes that are shutting down still count against the target (Behaviour.counts_shutting_down_nodes)."""
    match state.behaviour.counts_shutting_down_nodes:
        case "never":
            return 0
        case "while_listed":
            return sum(not node.live and node.listed and not node.holds_place for node in nodes)
        case "while_counted":
            return sum(not node.live and not node.holds_place for node in nodes)
