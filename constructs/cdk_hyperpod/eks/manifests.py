"""Kubernetes objects that are about this cluster and no team's own: Karpenter's, and the claims on the file system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..config_eks import AutoscalingConfig
from ..kubernetes.manifests import Manifest
from ..storage import LustreMount

CLAIM_NAME = "fsx"
"""The claim by which pods of a namespace mount the file system."""


def karpenter_manifests(config: AutoscalingConfig) -> list[Manifest]:
    """The node class that names the instance groups, and the pool that makes nodes of it.

    Nodes end only when they are empty: Karpenter would otherwise move pods together, and a training job with them.
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
    if config.limits:
        spec["limits"] = dict(config.limits)
    return [
        {
            "apiVersion": "karpenter.sagemaker.amazonaws.com/v1",
            "kind": "HyperpodNodeClass",
            "metadata": {"name": "hyperpod"},
            "spec": {"instanceGroups": [*config.instance_groups]},
        },
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "hyperpod"}, "spec": spec},
    ]


def file_system_manifests(
    mount: LustreMount | None, namespaces: Sequence[str], *, capacity_gib: int
) -> list[list[Manifest]]:
    """For each namespace a volume on the file system and the claim that alone may have it; data outlives both."""
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
                    # Kubernetes tells volumes apart by this; the driver mounts by what stands below.
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
