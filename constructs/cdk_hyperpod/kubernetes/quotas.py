"""A team's nodes as a Kubernetes ResourceQuota: shares and ceilings. `rules/quotas.py` validates them.

A **share** is what a team can count on; all shares together may not exceed the cluster. A **ceiling** is the share and
what the team may borrow while others leave it idle; ceilings may exceed the cluster, since not everybody borrows at
once. The ResourceQuota holds the ceiling (a namespace has no other limit when autoscaling adds nodes); the share is
for task governance's ComputeQuota.

A ResourceQuota limits devices through `requests.` keys only. AWS's own example for eight ml.p5.48xlarge nodes
(https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-eks-elastic-training.html) says `nvidia.com/gpu: "64"`
instead: Kubernetes accepts that and enforces nothing
(https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources).

A quota affects new pods. Lowering it terminates no running pod, and no new pod starts until the team is below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..config.teams import Share, Work
from ..facts.instance_types import catalogue
from .allocatable import DEVICE_KEYS
from .quantities import count_quantity, cpu_quantity, memory_quantity
from .shares import CPU, HUGEPAGES, MEMORY, MIG_KEYS, SHARED_GPU, amounts_of
from .work import OF_OPERATORS, kinds_of

AWS_EXAMPLE_HARD: Mapping[str, str] = MappingProxyType(
    {"requests.cpu": "1536", "requests.memory": "5120Gi", "limits.memory": "5120Gi"}
)
"""The vCPUs and memory that AWS's elastic-training guide gives eight ml.p5.48xlarge nodes: 8 x 192 and 8 x 640 GiB.
Without the guide's `limits.cpu`, which refuses every job of `hyp` (`hard` says why).

Given as `hard` beside `quota: {ml.p5.48xlarge: 8}`, they reproduce it: 64 GPUs, 256 EFA, 1,536 vCPUs, 5,120 GiB. They
are not the default, because they are not what the nodes have. 640 GiB is the memory of a node's **GPUs** (8 H100 of
80 GB each); a quota counts **host** memory, and a P5 node has 2,048 GiB of that, of which pods can have 1,890. With 5,120
GiB a team cannot use a third of its nodes' memory, and a job that asks for all of a node gets two nodes out of eight. And 192
vCPUs is all that a node has, the part that it keeps for itself included, which no pod can have."""

_DISK_GIB = 100
_STORAGE_GIB = 10 * 1024
_PARTS_OF_GPUS = (SHARED_GPU, *MIG_KEYS)


def amounts(nodes: Mapping[str, int | Share], *, lists_extended: bool = False) -> dict[str, int]:
    """What pods can have of so many nodes of each type together: `cpu` in millicores, `memory` and huge pages in MiB, devices in pieces.

    Every device is named, 0 where the nodes offer none: what a quota does not name it does not limit, and a team of CPU
    nodes could take every GPU of the cluster, whole or in parts. `lists_extended`: as in `offered_devices`.
    """
    total = dict.fromkeys((*DEVICE_KEYS, CPU, MEMORY, HUGEPAGES, *_PARTS_OF_GPUS), 0)
    for name, share in nodes.items():
        for key, amount in amounts_of(catalogue()[name], share, lists_extended=lists_extended).items():
            total[key] += amount
    return total


def ceiling(
    quota: Mapping[str, int | Share],
    *,
    borrow_limit: int | None = None,
    absolute_borrow_limits: Mapping[str, int | Share] | None = None,
    lists_extended: bool = False,
) -> dict[str, int]:
    """The most that a team may hold, in the units of `amounts`: its share, and what it may borrow.

    borrow_limit: percent of the share, rounded down to whole devices, vCPUs and GiB. (AWS words BorrowLimit as a
    percentage of the "idle compute that the team is allowed to borrow" and lets it go up to 500, which only a
    percentage of the team's own share can.) absolute_borrow_limits: nodes of each type. Neither: nothing is borrowed.
    lists_extended: as in `amounts`.
    """
    total = amounts(quota, lists_extended=lists_extended)
    if borrow_limit:
        total = {key: _more(key, amount, borrow_limit) for key, amount in total.items()}
    for key, amount in amounts(absolute_borrow_limits or {}, lists_extended=lists_extended).items():
        total[key] += amount
    return total


def hard(total: Mapping[str, int], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """`spec.hard` of a ResourceQuota for such amounts; the overrides replace values, or add keys.

    No `limits.cpu`: with it Kubernetes refuses every container that declares no CPU limit, and the jobs of AWS's SDK
    (`hyp create hyp-pytorch-job`) declare none. A container beyond its request is slowed down where the node is full,
    so requests are what is shared. A container keeps its memory, so limits count for memory.
    """
    cpu, memory = cpu_quantity(total[CPU]), memory_quantity(total[MEMORY])
    computed = {f"requests.{key}": count_quantity(total[key]) for key in DEVICE_KEYS}
    computed |= {"requests.cpu": cpu, "requests.memory": memory, "limits.memory": memory}
    pages = memory_quantity(total[HUGEPAGES]) if total[HUGEPAGES] else "0"
    # HyperPod's nodes reserve pages of 2 MiB only.
    computed |= {f"requests.{HUGEPAGES}": pages, "requests.hugepages-1Gi": "0"}
    computed |= {f"requests.{key}": count_quantity(total[key]) for key in _PARTS_OF_GPUS}
    return computed | dict(overrides or {})


def bounds(nodes: int, work: Iterable[Work] = (), *, file_system_gib: int | None = 0) -> dict[str, str]:
    """The limits of a team for objects that no share divides and that all teams use up.

    nodes: of the team's ceiling. work: the team's. file_system_gib: the capacity that the team's claim on the file system shows. None: it
    is unknown, and claims are only counted.

    They cover every kind that the team's Role can create, those of `work`, and the ReplicaSets that Deployments leave behind: without
    a count, one team's objects of 1.5 MB each could fill the API server's store. Kinds of HyperPod's operators have a price: an existing
    quota refuses their objects for five minutes at most after the operator was installed. The stacks install operators first. The API
    server stores the objects of all teams in 8 GiB (https://docs.aws.amazon.com/eks/latest/best-practices/scale-control-plane.html).
    A Secret or a ConfigMap has at most 1 MiB. Pods use addresses of the subnet; finished pods do not count. A busy team stays far below
    each limit.
    """
    return {
        "pods": count_quantity(max(1000, 50 * nodes)),
        "persistentvolumeclaims": "100",
        **_storage(file_system_gib),
        "configmaps": count_quantity(1000),
        "secrets": "200",
        "count/jobs.batch": count_quantity(1000),
        "count/deployments.apps": "200",
        # Each Deployment keeps ten by default, and the current one.
        "count/replicasets.apps": count_quantity(2200),
        "count/serviceaccounts": "100",
        "count/poddisruptionbudgets.policy": count_quantity(1000),
        # Every Service is a rule on every node of the cluster.
        "services": "200",
        # Such Services open ports to the network, and a load balancer of AWS costs money.
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **{f"count/{name}": count_quantity(1000) for name in OF_OPERATORS},
    } | {f"count/{kind.plural}.{kind.group}": count_quantity(kind.most) for kind in kinds_of(work)}


def disk(nodes: int) -> dict[str, str]:
    """The disk that a team may request: 100 GiB of each node, which is the root volume of a HyperPod node.

    There are no limits: if a disk fills up, the kubelet first evicts pods that use more than they requested
    (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
    """
    return {"requests.ephemeral-storage": memory_quantity(nodes * _DISK_GIB * 1024)}


def compute_quota_config(
    quota: Mapping[str, int | Share],
    *,
    borrow_limit: int | None = None,
    absolute_borrow_limits: Mapping[str, int | Share] | None = None,
    lend: bool = True,
    preempt_team_tasks: str = "lower_priority",
) -> dict[str, Any]:
    """`ComputeQuotaConfig` of an AWS::SageMaker::ComputeQuota: the share, and what the team may borrow.

    A team that may not borrow still lends idle capacity (`Lend`). Kueue reclaims it when the team's jobs need it. With absolute limits no
    BorrowLimit is sent: AWS documents 1 to 500 percent, and whether 0 is valid is unknown. The ResourceQuota enforces the ceiling
    in any case.
    """
    alone = "Lend" if lend else "DontLend"
    sharing: dict[str, Any] = {"Strategy": "LendAndBorrow" if borrow_limit or absolute_borrow_limits else alone}
    if borrow_limit:
        sharing["BorrowLimit"] = borrow_limit
    if absolute_borrow_limits:
        sharing["AbsoluteBorrowLimits"] = _resources(absolute_borrow_limits)
    config = {"ComputeQuotaResources": _resources(quota), "ResourceSharingConfig": sharing}
    # Without it, AWS lets jobs preempt those of their own team.
    return config if preempt_team_tasks == "lower_priority" else config | {"PreemptTeamTasks": "Never"}


def _storage(file_system_gib: int | None) -> dict[str, str]:
    """The disks behind a team's claims, which cost money."""
    if file_system_gib is None:
        return {}
    gib = _STORAGE_GIB + file_system_gib
    return {"requests.storage": f"{gib // 1024}Ti" if gib % 1024 == 0 else f"{gib}Gi"}


def _more(key: str, amount: int, percent: int) -> int:
    unit = {CPU: 1000, MEMORY: 1024, HUGEPAGES: 1024}.get(key, 1)
    return amount + amount * percent // 100 // unit * unit


def _resources(nodes: Mapping[str, int | Share]) -> list[dict[str, Any]]:
    return [{"InstanceType": name, **_resource(share)} for name, share in nodes.items()]


def _resource(share: int | Share) -> dict[str, Any]:
    if isinstance(share, int):
        return {"Count": share}
    partition = share.accelerator_partition
    given = {
        "Accelerators": share.accelerators,
        "VCpu": share.vcpus,
        "MemoryInGiB": share.memory_gib,
        "AcceleratorPartition": None if partition is None else {"Type": partition.type, "Count": partition.count},
    }
    return {name: value for name, value in given.items() if value is not None}
