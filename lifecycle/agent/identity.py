"""Find the Slurm node of a requested instance, or decide why the agent drains none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drain_protocol import NodeRequest

from .decision import Decision, shorten
from .slurm import SlurmNode
from .slurm_state import SlurmState

ALL_NODES = "dev"
"""HyperPod's partition of all nodes. Compute nodes are in one more partition, and other nodes are not (SlurmConfig, PartitionNames)."""
MOST_NODES_SHOWN = 5


@dataclass(frozen=True)
class Candidates:
    """A requested instance, and the Slurm nodes that may be it."""

    in_cluster: bool
    """HyperPod lists the instance."""
    address: str
    """HyperPod's. Empty: HyperPod does not list the instance."""
    other_addresses: tuple[str, ...]
    """Addresses in the requests that differ from HyperPod's."""
    never_drained: str
    """What the node is, if nodes of that kind are never drained: a controller, a login node."""
    has_known_type: bool
    """HyperPod's files say what the node is."""
    nodes: tuple[SlurmNode, ...]
    """Slurm's nodes with this address."""
    slurm_has_nodes: bool
    """Slurm lists at least one node."""
    nodes_without_address: tuple[str, ...]
    """Slurm's nodes whose name resolves to no address now. Each of them may be the instance."""


def find_candidates(node_requests: Sequence[NodeRequest], slurm: SlurmState) -> Candidates:
    """What this look shows of the instance that these requests name."""
    instance = node_requests[0].instance
    address = slurm.instances.get(instance, "")
    requested = {node_request.address for node_request in node_requests}
    return Candidates(
        in_cluster=instance in slurm.instances,
        address=address,
        other_addresses=tuple(sorted(requested - {address})),
        never_drained=slurm.never_drained.get(address, ""),
        has_known_type=address not in slurm.unknown_types,
        nodes=tuple(slurm.nodes_at.get(address, ())),
        slurm_has_nodes=bool(slurm.nodes),
        nodes_without_address=tuple(sorted(node.name for node in slurm.nodes.values() if not node.addresses)),
    )


def _is_not_in_cluster(found: Candidates) -> Decision | None:
    if found.in_cluster:
        return None
    # The guard reads the first words of this message (scale_down).
    return Decision(
        "unknown", "is no instance of this cluster: it was deleted or replaced, or it belongs to another cluster"
    )


def _has_another_address(found: Candidates) -> Decision | None:
    if not found.other_addresses:
        return None
    others = ", ".join(found.other_addresses)
    return Decision("unknown", f"has the address {found.address} on the controller, but {others} in the request")


def _is_never_drained(found: Candidates) -> Decision | None:
    if not found.never_drained:
        return None
    return Decision("refused", f"is {found.never_drained}, which is never drained")


def _slurm_has_no_nodes(found: Candidates) -> Decision | None:
    """An empty list does not prove that nothing runs on the instance."""
    if found.slurm_has_nodes:
        return None
    return Decision("unknown", f"Slurm has no node with the address {found.address}; Slurm lists no node at all")


def _may_be_a_node_without_address(found: Candidates) -> Decision | None:
    """A failure of DNS does not prove that nothing runs on the instance."""
    if found.nodes or not found.nodes_without_address:
        return None
    names = shorten(found.nodes_without_address, MOST_NODES_SHOWN)
    return Decision(
        "unknown",
        f"Slurm has no node with the address {found.address}; it may be a node whose name has no address now: {names}",
    )


def _is_absent_from_slurm(found: Candidates) -> Decision | None:
    if found.nodes:
        return None
    return Decision("unknown", f"Slurm has no node with the address {found.address}", absent=True)


def _is_several_nodes(found: Candidates) -> Decision | None:
    if len(found.nodes) <= 1:
        return None
    return Decision("unknown", f"Slurm has {len(found.nodes)} nodes with the address {found.address}")


def _may_be_a_login_node(found: Candidates) -> Decision | None:
    if found.has_known_type:
        return None
    for node in found.nodes:
        if set(node.partitions) - {ALL_NODES}:
            return None
    return Decision(
        "refused",
        f"may be a login node: HyperPod's files do not have its type, and its only partition is {ALL_NODES}",
    )


RULES: Sequence[Callable[[Candidates], Decision | None]] = (
    _is_not_in_cluster,
    _has_another_address,
    _is_never_drained,
    _slurm_has_no_nodes,
    _may_be_a_node_without_address,
    _is_absent_from_slurm,
    _is_several_nodes,
    _may_be_a_login_node,
)
"""Why an instance is not drained: the first that applies. None applies: it is the one Slurm node with its address."""
