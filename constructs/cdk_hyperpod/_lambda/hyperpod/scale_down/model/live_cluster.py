"""The live cluster, from SageMaker's replies to DescribeCluster, ListClusterNodes and ListTags. Pure.

UpdateCluster turns off patching settings of a group that it does not carry. AWS documents that for AutoPatchConfig ("SageMaker
HyperPod AMI automatic patching"). ScheduledUpdateConfig is treated the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .cluster import PATCHING_SETTINGS, Cluster, Fixed, Group, Network, Node
from .images import SHOWN


def read_cluster(
    cluster: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]] = (), tags: Mapping[str, str] | None = None
) -> Cluster:
    """The live cluster from DescribeCluster, ListClusterNodes (with IncludeNodeLogicalIds) and ListTags."""
    listed = tuple(_once(_node(node) for node in nodes))
    staying = Counter(node.group for node in listed if not node.leaving)
    return Cluster(
        name=cluster.get("ClusterName", ""),
        arn=cluster["ClusterArn"],
        status=cluster["ClusterStatus"],
        continuous=cluster.get("NodeProvisioningMode") == "Continuous",
        groups=tuple(_live_group(group, staying) for group in cluster.get("InstanceGroups") or ()),
        nodes=listed,
        network=_live_network(cluster.get("VpcConfig")),
        eks_cluster=((cluster.get("Orchestrator") or {}).get("Eks") or {}).get("ClusterArn"),
        tags=tags,
        created=cluster.get("CreationTime"),
    )


def _live_group(group: Mapping[str, Any], staying: Mapping[str, int]) -> Group:
    """`staying`: group -> how many nodes of it are listed and stay. A count that the reply lacks is unknown, and not 0: a target of 0
    would look as if it had fallen."""
    requirements = group.get("InstanceRequirements") or {}
    types = requirements.get("DesiredInstanceTypes") or requirements.get("CurrentInstanceTypes") or ()
    one = group.get("InstanceType")
    return Group(
        name=group["InstanceGroupName"],
        fixed=Fixed(
            instance_types=tuple(types) or (() if one is None else (one,)),
            flexible=bool(types),
            node_type=(group.get("SlurmConfig") or {}).get("NodeType"),
            execution_role=group.get("ExecutionRole"),
            network=_live_network(group.get("OverrideVpcConfig")),
            threads_per_core=group.get("ThreadsPerCore"),
        ),
        status=group.get("Status") or "InService",
        current=group.get("CurrentCount", staying[group["InstanceGroupName"]]),
        target=group.get("TargetCount", staying[group["InstanceGroupName"]]),
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
    # A node without an instance has no InstanceId, or an empty one: the shape requires the member. Without a status it counts as
    # one that is still starting: then counts are not believed yet.
    instance_id = node.get("InstanceId") or None
    return Node(
        group=node["InstanceGroupName"],
        instance_id=instance_id,
        logical_id=node.get("NodeLogicalId"),
        status=(node.get("InstanceStatus") or {}).get("Status") or "Pending",
        launched=node.get("LaunchTime") if instance_id else None,
        outdated=node.get("ImageVersionStatus") not in (None, "UpToDate"),
        release=node.get("CurrentImageReleaseVersion"),
    )


def _once(nodes: Iterable[Node]) -> list[Node]:
    """Each node once: pages may repeat one, also by only one of its ids. The last of them counts, but no node loses its
    instance or stops shutting down."""
    found: list[Node] = []
    index: dict[str, int] = {}
    for node in nodes:
        ids = [each for each in (node.instance_id, node.logical_id) if each]
        place = next((index[each] for each in ids if each in index), len(found))
        shown = [node, *found[place : place + 1]]
        found[place : place + 1] = [max(shown, key=lambda each: (each.instance_id is not None, each.leaving))]
        index.update(dict.fromkeys(ids, place))
    return found


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
