"""A team's nodes as a Kubernetes ResourceQuota: shares, ceilings, and what they may not say.

A **share** is what a team can count on; all shares together may not exceed the cluster. A **ceiling** is the share and
what the team may borrow while others leave it idle; ceilings may exceed the cluster, since not everybody borrows at
once. The ResourceQuota holds the ceiling (a namespace has no other limit when autoscaling adds nodes); the share is
for task governance's ComputeQuota.

A ResourceQuota limits devices through `requests.` keys only. AWS's own example for eight ml.p5.48xlarge nodes
(https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-eks-elastic-training.html) says `nvidia.com/gpu: "64"`
instead: Kubernetes accepts that and enforces nothing
(https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources).

A quota acts on new pods: lowering one ends no running pod, and no new pod starts until the team is below it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from .._structure import is_known, join, show
from ..errors import Finding
from ..instance_types import catalogue, suggestion
from .allocatable import DEVICE_KEYS, GPU, allocatable
from .quantities import count_quantity, cpu_quantity, memory_quantity, parse_quantity

__all__ = [
    "AWS_EXAMPLE_HARD",
    "amounts",
    "bounds",
    "ceiling",
    "check_hard",
    "check_limits",
    "check_nodes",
    "check_shares",
    "compute_quota_config",
    "disk",
    "hard",
]

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

_CPU = "cpu"
_MEMORY = "memory"
_DISK_GIB = 100


def amounts(nodes: Mapping[str, int]) -> dict[str, int]:
    """What pods can have of so many nodes of each type together: `cpu` in millicores, `memory` in MiB, devices in pieces.

    Every device is named, 0 where the nodes have none: what a quota does not name it does not limit, and a team of CPU
    nodes could take every GPU of the cluster.
    """
    total = dict.fromkeys((*DEVICE_KEYS, _CPU, _MEMORY), 0)
    for name, count in nodes.items():
        node = allocatable(catalogue()[name])
        for key, amount in ((_CPU, node.millicpus), (_MEMORY, node.memory_mib), *node.devices.items()):
            total[key] += amount * count
    return total


def ceiling(
    quota: Mapping[str, int],
    *,
    borrow_limit: int | None = None,
    absolute_borrow_limits: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The most that a team may hold, in the units of `amounts`: its share, and what it may borrow.

    borrow_limit: percent of the share, rounded down to whole devices, vCPUs and GiB. (AWS words BorrowLimit as a
    percentage of the "idle compute that the team is allowed to borrow" and lets it go up to 500, which only a
    percentage of the team's own share can.) absolute_borrow_limits: nodes of each type. Neither: nothing is borrowed.
    """
    total = amounts(quota)
    if borrow_limit:
        total = {key: _more(key, amount, borrow_limit) for key, amount in total.items()}
    for key, amount in amounts(absolute_borrow_limits or {}).items():
        total[key] += amount
    return total


def hard(total: Mapping[str, int], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """`spec.hard` of a ResourceQuota for such amounts; the overrides replace values, or add keys.

    No `limits.cpu`: with it Kubernetes refuses every container that declares no CPU limit, and the jobs of AWS's SDK
    (`hyp create hyp-pytorch-job`) declare none. A container beyond its request is slowed down where the node is full,
    so what is requested is what is shared. Memory is not given back, so its limits count.
    """
    cpu, memory = cpu_quantity(total[_CPU]), memory_quantity(total[_MEMORY])
    computed = {f"requests.{key}": count_quantity(total[key]) for key in DEVICE_KEYS}
    computed |= {"requests.cpu": cpu, "requests.memory": memory, "limits.memory": memory}
    return computed | dict(overrides or {})


def bounds(nodes: int) -> dict[str, str]:
    """What a team may have of things that are in nobody's share and run out for everybody: its ceiling has so many nodes.

    Every kind that the team's Role lets a member make is here, and the ReplicaSets that Deployments leave behind; a kind
    that the cluster does not have counts nothing. Objects are kept by the API server of all teams, in 8 GiB (https://docs.aws.amazon.com/eks/latest/best-practices/scale-control-plane.html);
    a Secret or a ConfigMap has at most 1 MiB. Pods take addresses of the subnet, and finished ones do not count. A busy
    team is far below each of them.
    """
    return {
        "pods": count_quantity(max(1000, 50 * nodes)),
        "persistentvolumeclaims": "100",
        "configmaps": count_quantity(1000),
        "secrets": "200",
        "count/jobs.batch": count_quantity(1000),
        "count/hyperpodpytorchjobs.sagemaker.amazonaws.com": count_quantity(1000),
        "count/jobsets.jobset.x-k8s.io": count_quantity(1000),
        "count/pytorchjobs.kubeflow.org": count_quantity(1000),
        "count/mpijobs.kubeflow.org": count_quantity(1000),
        "count/deployments.apps": "200",
        # A Deployment keeps ten old ones (revisionHistoryLimit).
        "count/replicasets.apps": "2200",
        "count/serviceaccounts": "100",
        "count/poddisruptionbudgets.policy": count_quantity(1000),
        # Every Service is a rule on every node of the cluster.
        "services": "200",
        # Such Services open ports to the network, and a load balancer of AWS costs money.
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }


def disk(nodes: int) -> dict[str, str]:
    """What a team may request of its nodes' disks: 100 GiB of each, which is the root volume of a HyperPod node.

    No limits: where a disk fills up, the kubelet ends those first that use more than they requested
    (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
    """
    return {"requests.ephemeral-storage": memory_quantity(nodes * _DISK_GIB * 1024)}


def compute_quota_config(
    quota: Mapping[str, int],
    *,
    borrow_limit: int | None = None,
    absolute_borrow_limits: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """`ComputeQuotaConfig` of an AWS::SageMaker::ComputeQuota: the share by nodes, and what the team may borrow.

    A team that may not borrow still lends what it leaves idle (`Lend`); what is lent comes back when its jobs need it,
    because Kueue reclaims it. Beside absolute limits no BorrowLimit is sent: AWS's documents give 1 to 500 percent, and
    whether 0 is taken is not known; the ResourceQuota holds the team at its ceiling in any case.
    """
    sharing: dict[str, Any] = {"Strategy": "LendAndBorrow" if borrow_limit or absolute_borrow_limits else "Lend"}
    if borrow_limit:
        sharing["BorrowLimit"] = borrow_limit
    if absolute_borrow_limits:
        sharing["AbsoluteBorrowLimits"] = _resources(absolute_borrow_limits)
    return {"ComputeQuotaResources": _resources(quota), "ResourceSharingConfig": sharing}


def check_nodes(
    nodes: Mapping[str, int], path: str, *, cluster: Mapping[str, int | None] | None = None
) -> Iterator[Finding]:
    """What is wrong with nodes by instance type. `cluster`: the nodes that there are; None: not known."""
    for name, count in nodes.items():
        place = join(path, name)
        if not is_known(name) or not is_known(count):
            continue
        if name not in catalogue():
            yield Finding(
                path=place,
                problem=f"HyperPod has no instance type {show(name)}",
                remedy=suggestion(name),
            )
        elif cluster is not None and name not in cluster:
            yield Finding(
                path=place,
                problem=f"no instance group has {name}",
                remedy=f"use {' or '.join(sorted(cluster)[:5]) or 'a type of the cluster'}, or add a group",
            )
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 6758:
            yield Finding(path=place, problem=f"must be 1 to 6758 nodes, got {show(count)}", remedy="change it")


def check_shares(
    shares: Mapping[str, Mapping[str, int]], cluster: Mapping[str, int | None], path: str = "teams"
) -> Iterator[Finding]:
    """Types of which the teams' shares add up to more nodes than the cluster has. None of a type: nobody knows."""
    for name in sorted({name for quota in shares.values() for name in quota if name in cluster}):
        held = {team: quota[name] for team, quota in shares.items() if _is_count(quota.get(name))}
        total, there = sum(held.values()), cluster[name]
        if there is not None and total > there:
            listed = ", ".join(f"{team} {count}" for team, count in [*held.items()][:5])
            yield Finding(
                path=path,
                problem=f"the shares of {name} add up to {total} nodes ({listed}{', …' if len(held) > 5 else ''}), "
                f"and the cluster has {there}",
                remedy="lower a quota and let its team borrow (borrow_limit), or raise instance_count",
            )


def check_hard(overrides: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Keys that a ResourceQuota would take and not enforce, or not take, and values that are no quantities."""
    for key, value in overrides.items():
        if not is_known(key) or not is_known(value):
            continue
        if not _HARD_KEY.fullmatch(key):
            yield Finding(path=join(path, key), problem=f"a quota {_why_not(key)}", remedy=_instead_of(key))
        elif "." in key and (plural := key.replace(".", "s.", 1)) in bounds(0):
            yield Finding(path=join(path, key), problem=f"a quota {_why_not(key)}", remedy=f"did you mean {plural}?")
        yield from _check_quantity(key, value, path)


def check_limits(limits: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Keys of a NodePool's limits that no node has, which would limit nothing, and values that are no quantities."""
    for key, value in limits.items():
        if not is_known(key) or not is_known(value):
            continue
        if not _LIMIT_KEY.fullmatch(key):
            base = key.removeprefix("requests.").removeprefix("limits.")
            known = [_CPU, _MEMORY, *DEVICE_KEYS]
            close = [base] if _LIMIT_KEY.fullmatch(base) else [name for name in known if name.endswith(f"/{base}")]
            close += difflib.get_close_matches(base[:80], known, n=1)
            yield Finding(
                path=join(path, key),
                problem=f"nodes have no resource {show(key)}",
                remedy=f"did you mean {close[0]}?" if close else f"use one such as {_CPU}, {_MEMORY}, {GPU}",
            )
        yield from _check_quantity(key, value, path)


def _check_quantity(key: str, value: object, path: str) -> Iterator[Finding]:
    amount = parse_quantity(value) if isinstance(value, str) else None
    if amount is None:
        yield Finding(
            path=join(path, key),
            problem=f"must be a quantity, got {show(value)}",
            remedy='write it as "64", "500m" or "5120Gi"',
        )
    elif amount.denominator != 1 and not _CPU_KEY.fullmatch(key):
        yield Finding(
            path=join(path, key),
            problem=f"must be a whole amount, got {show(value)}",
            remedy="leave the fraction out",
        )


_DEVICE = r"[a-z0-9]([a-z0-9.-]{0,100}[a-z0-9])?\.[a-z]+/[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?"
# What Kubernetes counts without a group behind the kind. (An Event is counted too, and ends by itself.)
_CORE_KINDS = (
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
)
_CPU_KEY = re.compile(r"((requests|limits)\.)?cpu")
_LIMIT_KEY = re.compile(rf"cpu|memory|ephemeral-storage|pods|nodes|hugepages-[0-9]+[KMG]i|{_DEVICE}")
_HARD_KEY = re.compile(
    r"(requests|limits)\.(cpu|memory|ephemeral-storage)"
    rf"|requests\.(storage|hugepages-[0-9]+[KMG]i|{_DEVICE})"
    r"|pods|services(\.loadbalancers|\.nodeports)?|configmaps|secrets|persistentvolumeclaims"
    rf"|count/({'|'.join(_CORE_KINDS)}|[a-z0-9-]{{1,63}}(\.[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?){{1,10}})"
    r"|[a-z0-9.-]{1,200}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)"
)


def _why_not(key: str) -> str:
    if re.fullmatch(rf"limits\.{_DEVICE}", key):
        return f"has no key {show(key)}: a device's limit is always its request"
    if re.fullmatch(_DEVICE, key):
        return f"is not enforced under {show(key)}: Kubernetes limits devices by what is requested"
    if key in (_CPU, _MEMORY):
        return f"has {show(f'requests.{key}')} already, and {show(key)} is another name for it"
    return f"has no key {show(key)}"


def _instead_of(key: str) -> str:
    base = key.removeprefix("limits.")
    known = [*hard(amounts({})), *bounds(0), *disk(0), "requests.storage"]
    if key.startswith("count/"):
        kind = key.removeprefix("count/")
        kinds = [name.removeprefix("count/") for name in known if name.startswith("count/")] + [*_CORE_KINDS]
        # "count/jobs" is short for "count/jobs.batch".
        close = [name for name in kinds if name.startswith(f"{kind}.")]
        close += difflib.get_close_matches(kind[:80].lower(), kinds, n=1)
        return f"did you mean count/{close[0]}?" if close else "name the kind and its group, such as count/jobs.batch"
    if key in (_CPU, _MEMORY) or re.fullmatch(_DEVICE, base):
        return f"use requests.{base}"
    close = difflib.get_close_matches(key[:80], known, n=1)
    return f"did you mean {close[0]}?" if close else "use one such as requests.cpu, limits.memory, pods"


def _more(key: str, amount: int, percent: int) -> int:
    unit = {_CPU: 1000, _MEMORY: 1024}.get(key, 1)
    return amount + amount * percent // 100 // unit * unit


def _resources(nodes: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"InstanceType": name, "Count": count} for name, count in nodes.items()]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and is_known(value) and value > 0
