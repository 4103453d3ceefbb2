"""The live cluster, from SageMaker's replies to DescribeCluster, ListClusterNodes and ListTags. Pure.

UpdateCluster turns off patching settings of a group that it does not carry. AWS documents that for AutoPatchConfig ("SageMaker
HyperPod AMI automatic patching"). ScheduledUpdateConfig is treated the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...kernel.cluster_reading import counts, group_status, instance_id, node_status, node_type, once, own_groups
from ...kernel.images import SHOWN
from .cluster import PATCHING_SETTINGS, Cluster, Fixed, Group, Network, Node


def read_cluster(
    cluster: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]] = (), tags: Mapping[str, str] | None = None
) -> Cluster:
    """The live cluster from DescribeCluster, ListClusterNodes (with IncludeNodeLogicalIds) and ListTags."""
    listed = tuple(map(_node, once(nodes)))
    staying = Counter(node.group for node in listed if not node.leaving)
    return Cluster(
        name=cluster.get("ClusterName", ""),
        arn=cluster["ClusterArn"],
        status=cluster["ClusterStatus"],
        continuous=cluster.get("NodeProvisioningMode") == "Continuous",
        groups=tuple(_live_group(group, staying) for group in own_groups(cluster)),
        nodes=listed,
        network=_live_network(cluster.get("VpcConfig")),
        eks_cluster=((cluster.get("Orchestrator") or {}).get("Eks") or {}).get("ClusterArn"),
        tags=tags,
        created=cluster.get("CreationTime"),
    )


def _live_group(group: Mapping[str, Any], staying: Mapping[str, int]) -> Group:
    """`staying`: group -> how many nodes of it are listed and stay."""
    current, target = counts(group, staying[group["InstanceGroupName"]])
    requirements = group.get("InstanceRequirements") or {}
    types = requirements.get("DesiredInstanceTypes") or requirements.get("CurrentInstanceTypes") or ()
    one = group.get("InstanceType")
    return Group(
        name=group["InstanceGroupName"],
        fixed=Fixed(
            instance_types=tuple(types) or (() if one is None else (one,)),
            flexible=bool(types),
            node_type=node_type(group),
            execution_role=group.get("ExecutionRole"),
            network=_live_network(group.get("OverrideVpcConfig")),
            threads_per_core=group.get("ThreadsPerCore"),
        ),
        status=group_status(group),
        current=current,
        target=target,
        minimum=group.get("MinCount") or 0,
        types_in_use=frozenset(
            detail["InstanceType"] for detail in group.get("InstanceTypeDetails") or () if detail.get("CurrentCount")
        ),
        patching=patching(group),
        image={member: group.get(member) for member in SHOWN},
        shown={**group, **patching(group)},
    )


def _live_network(value: Mapping[str, Any] | None) -> Network | None:
    if not value:
        return None
    return Network(
        subnets=frozenset(value.get("Subnets", ())), security_groups=frozenset(value.get("SecurityGroupIds", ()))
    )


def _node(node: Mapping[str, Any]) -> Node:
    launched = instance_id(node)
    return Node(
        group=node["InstanceGroupName"],
        instance_id=launched,
        logical_id=node.get("NodeLogicalId"),
        status=node_status(node),
        launched=node.get("LaunchTime") if launched else None,
        outdated=node.get("ImageVersionStatus") not in (None, "UpToDate"),
        release=node.get("CurrentImageReleaseVersion"),
    )


_SHOWN_ONLY = ("CurrentPatchSchedule", "DesiredPatchSchedule")
"""Members of ClusterAutoPatchConfigDetails that UpdateCluster takes as PatchSchedule."""


def patching(group: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that DescribeCluster shows of a group, as UpdateCluster takes them."""
    return {name: _as_sent(group[name]) for name in PATCHING_SETTINGS if group.get(name)}


def _as_sent(shown: Mapping[str, Any]) -> dict[str, Any]:
    sent = {key: value for key, value in shown.items() if key not in _SHOWN_ONLY and value is not None}
    schedule = shown.get("DesiredPatchSchedule") or shown.get("CurrentPatchSchedule")
    return {**sent, "PatchSchedule": schedule} if schedule else sent


def carrying(spec: Mapping[str, Any], live: Cluster) -> dict[str, Any]:
    """A group's specification with its live settings, except those that it has itself."""
    found = next((group.patching for group in live.groups if group.name == spec["InstanceGroupName"]), {})
    return {**found, **spec}
