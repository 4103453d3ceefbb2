"""The resources of a node that pods can use: vCPUs and memory without the node's reservation, and its devices.

Kubernetes schedules against a node's *allocatable* resources, not its capacity
(https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/). AWS does not document how much a HyperPod
node reserves. The code of its SDK has it, which reduces the requests of its own jobs accordingly:
https://github.com/aws/sagemaker-hyperpod-cli/blob/main/src/sagemaker/hyperpod/training/quota_allocation_util.py
(`_calculate_cpu_reservation`, `_calculate_memory_reservation`; a test compares this module with that code).

It is a good deal more than the kubelet's own reservation on EKS (255 MiB and 11 MiB a pod; 60 millicores and 2.5 for
each vCPU beyond the fourth: https://github.com/awslabs/amazon-eks-ami), because the daemon sets that HyperPod puts on
every node request CPU and memory too. A pod that requested everything that the kubelet leaves would stay pending forever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..facts.device_plugins import EFA as EFA_PLUGIN
from ..facts.device_plugins import NEURON as NEURON_PLUGIN
from ..facts.device_plugins import NVIDIA, PLUGINS, published_chart
from ..facts.instance_types import InstanceType

__all__ = [
    "DEVICE_KEYS",
    "EFA",
    "GPU",
    "NEURON",
    "NEURON_CORE",
    "NEURON_DEVICE",
    "PLUGIN_OF",
    "Allocatable",
    "allocatable",
    "missing_plugins",
    "offered_devices",
    "plugins_of",
]

GPU = "nvidia.com/gpu"
"""NVIDIA's device plug-in: one for each GPU."""
EFA = "vpc.amazonaws.com/efa"
"""The EFA device plug-in: one for each Elastic Fabric Adapter."""
NEURON = "aws.amazon.com/neuron"
"""The Neuron device plug-in: one for each chip. Every version of the plug-in has it."""
NEURON_CORE = "aws.amazon.com/neuroncore"
"""The same chips by their cores."""
NEURON_DEVICE = "aws.amazon.com/neurondevice"
"""The older name of `NEURON`, gone since Neuron 2.20
(https://awsdocs-neuron.readthedocs-hosted.com/en/latest/general/announcements/neuron2.x/announce-no-support-device-version.html).
HyperPod's chart pins a plug-in that still has it, and its SDK and recipes request it."""
DEVICE_KEYS = (GPU, EFA, NEURON, NEURON_CORE, NEURON_DEVICE)
"""Every device that a HyperPod node may offer, MIG partitions of a GPU apart."""
PLUGIN_OF: Mapping[str, str] = {
    GPU: NVIDIA,
    EFA: EFA_PLUGIN,
    NEURON: NEURON_PLUGIN,
    NEURON_CORE: NEURON_PLUGIN,
    NEURON_DEVICE: NEURON_PLUGIN,
}
"""The device plug-in that offers each device."""

# Share of the memory that is kept, in percent, for each stretch of so many MiB; and of everything beyond.
_MEMORY_TIERS = ((4 * 1024, 30), (4 * 1024, 25), (8 * 1024, 20), (112 * 1024, 17))
_MEMORY_BEYOND = 7
_MEMORY_ALWAYS_MIB = 512
# Millicores kept for each of the first four vCPUs; and for every further one.
_CPU_TIERS = (300, 150, 100, 100)
_CPU_BEYOND = 60
_CPU_ALWAYS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocatable:
    """The resources that the pods of one node can request together."""

    millicpus: int
    """Thousandths of a vCPU; whole vCPUs (a multiple of 1,000) where there is at least one."""
    memory_mib: int
    """Host memory in MiB, not that of the accelerators; whole GiB where there is at least one."""
    devices: Mapping[str, int]
    """Devices by Kubernetes' name for them; a name that is missing means none. The three Neuron names count the same
    chips in three ways: a pod requests one of them."""


def allocatable(kind: InstanceType, *, threads_per_core: int | None = None) -> Allocatable:
    """The resources of a node of this type for pods. `threads_per_core`: of its group. Absent: the type's default.

    A team's quota counts the type's default threads. For a group with `threads_per_core: 1`, lower it with `hard`.
    """
    memory_mib = round(kind.memory_gib * 1024)
    vcpus = kind.default_cores if threads_per_core == 1 else kind.vcpus
    return Allocatable(
        millicpus=_rounded_down(vcpus * 1000 - reserved_millicpus(vcpus), 1000),
        memory_mib=_rounded_down(memory_mib - reserved_memory_mib(memory_mib), 1024),
        devices=_devices(kind),
    )


def offered_devices(kind: InstanceType, *, lists_extended: bool = False) -> dict[str, int]:
    """The devices that pods can request on a node of this type: those whose plug-in runs on it.

    lists_extended: the lists of HyperPod's chart contain every type of the file, as they do if this library installs the
    chart (`EksConfig.installs_chart`). False: the lists are those that AWS publishes.
    """
    missing = missing_plugins(kind, lists_extended=lists_extended)
    return {name: count for name, count in _devices(kind).items() if PLUGIN_OF[name] not in missing}


def plugins_of(kind: InstanceType) -> tuple[str, ...]:
    """The device plug-ins that a node of this type needs to offer all its devices."""
    needed = {PLUGIN_OF[name] for name in _devices(kind)}
    return tuple(plugin for plugin in PLUGINS if plugin in needed)


def missing_plugins(kind: InstanceType, *, lists_extended: bool = False) -> tuple[str, ...]:
    """The plug-ins of this type that do not run on its nodes. `lists_extended`: as in `offered_devices`."""
    if lists_extended:
        return ()
    lists = published_chart().instance_types
    return tuple(plugin for plugin in plugins_of(kind) if kind.name not in lists[plugin])


def reserved_millicpus(vcpus: int) -> int:
    """The reservation of a node with this many vCPUs, in millicores."""
    tiers = sum(_CPU_TIERS[: max(0, vcpus)])
    return _CPU_ALWAYS + tiers + max(0, vcpus - len(_CPU_TIERS)) * _CPU_BEYOND


def reserved_memory_mib(memory_mib: int) -> int:
    """The reservation of a node with this much memory, in MiB, rounded up."""
    hundredths = _MEMORY_ALWAYS_MIB * 100
    rest = memory_mib
    for size, percent in _MEMORY_TIERS:
        hundredths += min(size, rest) * percent
        rest -= min(size, rest)
    return -(-(hundredths + rest * _MEMORY_BEYOND) // 100)


def _rounded_down(value: int, unit: int) -> int:
    # So a job's replicas and its team's quota are round numbers that fit together. Less than one unit of a node is lost. A node
    # smaller than one unit is not rounded.
    return value // unit * unit if value >= unit else max(0, value)


def _devices(kind: InstanceType) -> dict[str, int]:
    devices = {EFA: kind.efa_interfaces}
    if kind.accelerator_kind == "gpu":
        devices[GPU] = kind.accelerators
    if kind.accelerator_kind == "neuron":
        devices |= {NEURON: kind.accelerators, NEURON_CORE: kind.neuron_cores, NEURON_DEVICE: kind.accelerators}
    return {name: devices[name] for name in DEVICE_KEYS if devices.get(name)}
