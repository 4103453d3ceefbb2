"""What type checkers should tell who writes an app: each line is wrong, and says so. Nobody runs it."""

from __future__ import annotations

from aws_cdk import Stack

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, InstanceGroup, LustreFileSystem, ScaleDown, encryption_key
from cdk_hyperpod.config import StorageConfig


def mistakes(stack: Stack) -> None:
    """Names and values that there are not, and what is missing."""
    network = HyperPodNetwork(stack, "Network", endpoint_policies="all")  # type: ignore[arg-type]
    group = InstanceGroup(name="p5", instance_count="4")  # type: ignore[arg-type]
    HyperPodCluster(stack, "A", cluster_name="a", network=network)  # type: ignore[call-arg]
    cluster = HyperPodCluster(stack, "B", cluster_name="b", network=network, instance_groups=[group], roles={"gpu": 1})  # type: ignore[dict-item]
    HyperPodCluster(stack, "C", cluster_name="c", network=network, instance_groups=[group], node_recovery="never")  # type: ignore[arg-type]
    HyperPodCluster(stack, "D", cluster_name="d", network=network, instance_groups=[group], scale_down=[])  # type: ignore[arg-type]
    ScaleDown(stack, "E", cluster="b")  # type: ignore[arg-type]
    cluster.on_event("F", kinds=["nodes"])  # type: ignore[list-item]
    encryption_key(stack, "Key", removal_policy="keep")  # type: ignore[arg-type]
    LustreFileSystem(stack, "G", network=network, storage=StorageConfig(capacity_gib=1200, throughput_mbps_per_tib=300))  # type: ignore[arg-type]
    print(cluster.arn)  # type: ignore[attr-defined]
