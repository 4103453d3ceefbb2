"""Kubernetes objects of the cluster as a whole: Karpenter's, and the claims on the file system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..config.eks import AutoscalingConfig
from ..config.teams import Team
from ..facts.instance_types import catalogue
from ..kubernetes.allocatable import DEVICE_KEYS, allocatable
from ..kubernetes.manifests import Manifest
from ..kubernetes.quantities import memory_quantity, parse_quantity
from ..kubernetes.teams import most_nodes
from ..storage.lustre import LustreMount

CLAIM_NAME = "fsx"
"""The claim by which pods of a namespace mount the file system."""
STORAGE_CLASS = "fsx-lustre"
"""The class of claims that get a file system of their own."""


def karpenter_manifests(config: AutoscalingConfig, teams: Sequence[Team] = ()) -> list[Manifest]:
    """The node class with the instance groups, and the pool of its nodes, for these teams.

    Karpenter terminates only empty nodes. Otherwise it would move pods to fewer nodes, and interrupt training jobs.
    """
    spec: dict[str, Any] = {
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"},
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.sagemaker.amazonaws.com",
                    "kind": "HyperpodNodeClass",
                    "name": "hyperpod",
                },
                "expireAfter": "Never",
                "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}],
            }
        },
    }
    if limits := dict(config.limits) or node_pool_limits(teams):
        spec["limits"] = limits
    return [
        {
            "apiVersion": "karpenter.sagemaker.amazonaws.com/v1",
            "kind": "HyperpodNodeClass",
            "metadata": {"name": "hyperpod"},
            "spec": {"instanceGroups": [*config.instance_groups]},
        },
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "hyperpod"}, "spec": spec},
    ]


def node_pool_limits(teams: Sequence[Team]) -> dict[str, str]:
    """The limits of Karpenter's nodes together: whole nodes for all that the teams may use. Empty: there are no teams.

    A quota alone does not limit nodes, because a small pod may need a node for itself. Karpenter compares the capacity of nodes, but a
    quota counts what pods can use of it. The quotas' own numbers would be one node too low.
    """
    if not teams:
        return {}
    keys = ("cpu", "memory", *DEVICE_KEYS)
    total = dict.fromkeys(keys, 0)
    for team in teams:
        nodes = _capacity(most_nodes(team))
        # A team whose `hard` exceeds its nodes may use that much.
        for key in keys:
            total[key] += max(nodes.get(key, 0), _amount(key, team.hard.get(f"requests.{key}", "0")))
    return {key: memory_quantity(amount) if key == "memory" else str(amount) for key, amount in total.items()}


def _capacity(nodes: Mapping[str, int]) -> dict[str, int]:
    """vCPUs, MiB and devices of these nodes, including what each node reserves."""
    total: dict[str, int] = {}
    for name, count in nodes.items():
        kind = catalogue()[name]
        one = {"cpu": kind.vcpus, "memory": round(kind.memory_gib * 1024), **allocatable(kind).devices}
        for key, amount in one.items():
            total[key] = total.get(key, 0) + amount * count
    return total


def _amount(key: str, quantity: str) -> int:
    amount = parse_quantity(quantity) or 0
    return math.ceil(amount / 2**20 if key == "memory" else amount)


def storage_class(*, subnet_id: str, security_group_id: str, kms_key_arn: str, tag: str) -> Manifest:
    """The class of claims that get a Lustre file system of their own. `tag`: of the file systems, with the value `owned`.

    The file system of a deleted claim stays, because nothing else has its data.
    """
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "fsx.csi.aws.com",
        "parameters": {
            "subnetId": subnet_id,
            "securityGroupIds": security_group_id,
            "deploymentType": "PERSISTENT_2",
            "perUnitStorageThroughput": "250",
            "fileSystemTypeVersion": "2.15",
            "dataCompressionType": "LZ4",
            "kmsKeyId": kms_key_arn,
            "extraTags": f"{tag}=owned",
        },
        "mountOptions": ["flock"],
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def file_system_manifests(
    mount: LustreMount | None, namespaces: Sequence[str], *, capacity_gib: int
) -> list[list[Manifest]]:
    """For each namespace a volume on the file system, and the only claim that may use it. Deleting both keeps the data."""
    if mount is None:
        return [[] for _ in namespaces]
    return [_volume_and_claim(mount, namespace, f"{capacity_gib}Gi") for namespace in namespaces]


def _volume_and_claim(mount: LustreMount, namespace: str, capacity: str) -> list[Manifest]:
    name = f"{namespace}-{CLAIM_NAME}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **common,
                "capacity": {"storage": capacity},
                "persistentVolumeReclaimPolicy": "Retain",
                "mountOptions": ["flock"],
                "claimRef": {"namespace": namespace, "name": CLAIM_NAME},
                "csi": {
                    "driver": "fsx.csi.aws.com",
                    # Kubernetes identifies the volume by this. The driver mounts by the attributes below.
                    "volumeHandle": name,
                    "volumeAttributes": {"dnsname": mount.dns_name, "mountname": mount.mount_name},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM_NAME, "namespace": namespace},
            "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": capacity}}},
        },
    ]
