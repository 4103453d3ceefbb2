"""How much a team's share of one instance type is: whole nodes, or a part of them."""

from __future__ import annotations

from fractions import Fraction

from ..config.teams import Share
from ..facts.instance_types import InstanceType, catalogue
from ..facts.mig import ALL_PROFILES, SLICES, slices_of
from .allocatable import EFA, GPU, PLUGIN_OF, Allocatable, allocatable, missing_plugins

CPU = "cpu"
MEMORY = "memory"
HUGEPAGES = "hugepages-2Mi"
SHARED_GPU = "nvidia.com/gpu.shared"
"""What the device plug-in offers in place of GPUs that several pods use at the same time (time-slicing, MPS)."""
MIG_KEYS = tuple(f"nvidia.com/{profile}" for profile in ALL_PROFILES)
"""What it offers in place of partitioned GPUs, one name for each profile."""
_HUGEPAGES_MIB = 43 * 1024
"""Huge pages of a node with EFA that pods can have. AWS's samples show up to 42,242 MiB
(https://github.com/awslabs/awsome-distributed-ai, 3.test_cases). Nodes without EFA reserve none."""


def amounts_of(kind: InstanceType, share: int | Share, *, lists_extended: bool = False) -> dict[str, int]:
    """`cpu` in millicores, `memory` and huge pages in MiB, and the devices that the nodes offer, in pieces.

    lists_extended: as in `offered_devices`.
    """
    missing = missing_plugins(kind, lists_extended=lists_extended)
    return {key: amount for key, amount in _all_of(kind, share).items() if _plugin_of(key) not in missing}


def _plugin_of(key: str) -> str | None:
    """The plug-in that offers it. None: it is no device."""
    return PLUGIN_OF[GPU] if key in MIG_KEYS else PLUGIN_OF.get(key)


def _all_of(kind: InstanceType, share: int | Share) -> dict[str, int]:
    if isinstance(share, int):
        return {key: amount * share for key, amount in _of_a_node(kind).items()}
    parts = parts_of(kind.name, share)
    nodes = -(-max(parts.values()) // 1)
    node = allocatable(kind)
    cpu, memory = parts[CPU] * kind.vcpus, parts[MEMORY] * Fraction(kind.memory_gib)
    # Whole vCPUs and GiB, and never more than pods can have of so many nodes.
    amounts = {
        CPU: min(-(-cpu // 1) * 1000, nodes * node.millicpus),
        MEMORY: min(-(-memory // 1) * 1024, nodes * node.memory_mib),
    }
    return {key: int(amount) for key, amount in (amounts | _devices(kind, share, nodes)).items()}


def parts_of(instance_type: str, share: int | Share) -> dict[str, Fraction]:
    """The share as a number of nodes, by what it has of them: accelerators, vCPUs and memory.

    As AWS divides a node for a ComputeQuota: in proportion to the accelerators, otherwise to the vCPUs, otherwise to the memory
    (https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ComputeQuotaResourceConfig.html). AWS's SDK requests the same for a
    job, and rounds it to what pods can have of one node.
    """
    if isinstance(share, int):
        # Of any type: one that the catalogue does not have is reported elsewhere.
        return dict.fromkeys(("accelerators", CPU, MEMORY), Fraction(share))
    kind = catalogue()[instance_type]
    accelerators = _accelerators(kind, share)
    vcpus = Fraction(share.vcpus, kind.vcpus) if share.vcpus else None
    memory = share.memory_gib / Fraction(kind.memory_gib) if share.memory_gib else None
    if share.accelerators:
        vcpus, memory = vcpus or accelerators, memory or accelerators
    vcpus, memory = vcpus or memory or accelerators, memory or vcpus or accelerators
    return {"accelerators": accelerators, CPU: vcpus, MEMORY: memory}


def _accelerators(kind: InstanceType, share: Share) -> Fraction:
    if share.accelerator_partition is not None:
        slices = share.accelerator_partition.count * slices_of(share.accelerator_partition.type)
        return Fraction(slices, max(1, kind.accelerators) * SLICES)
    return Fraction(share.accelerators or 0, max(1, kind.accelerators))


def _of_a_node(kind: InstanceType) -> dict[str, int]:
    node = allocatable(kind)
    return {CPU: node.millicpus, MEMORY: node.memory_mib, **node.devices, HUGEPAGES: _hugepages_mib(node)}


def _devices(kind: InstanceType, share: Share, nodes: int) -> dict[str, int]:
    if share.accelerator_partition is not None:
        return {f"nvidia.com/{share.accelerator_partition.type}": share.accelerator_partition.count}
    if not share.accelerators:
        return {}
    node = allocatable(kind)
    accelerators = {
        name: count * share.accelerators // max(1, kind.accelerators)
        for name, count in node.devices.items()
        if name != EFA
    }
    # AWS's SDK requests all adapters of a node for a job on a part of it.
    return accelerators | {EFA: node.devices.get(EFA, 0) * nodes, HUGEPAGES: _hugepages_mib(node) * nodes}


def _hugepages_mib(node: Allocatable) -> int:
    return _HUGEPAGES_MIB if node.devices.get(EFA) else 0
