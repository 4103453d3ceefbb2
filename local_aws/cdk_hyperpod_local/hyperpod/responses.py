"""Builds the members of API responses from the state.

Times stay seconds; `api_shapes.response` converts them to boto3's types.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from typing import Any

from . import images
from .state import Cluster, Event, Group, HyperPodState, Json, Node, by_group, current_count

SAME_IN_DETAILS = (
    "InstanceType",
    "LifeCycleConfig",
    "ExecutionRole",
    "ThreadsPerCore",
    "InstanceStorageConfigs",
    "OnStartDeepHealthChecks",
    "TrainingPlanArn",
    "OverrideVpcConfig",
    "ScheduledUpdateConfig",
    "CapacityRequirements",
    "SlurmConfig",
    "NetworkInterface",
)
"""Members that ClusterInstanceGroupSpecification and ClusterInstanceGroupDetails share (botocore)."""


def cluster_details(state: HyperPodState, cluster: Cluster) -> Json:
    """DescribeCluster's response."""
    nodes = by_group(cluster)
    details: Json = {
        "ClusterArn": cluster.arn,
        "ClusterName": cluster.name,
        "ClusterStatus": cluster.status,
        "CreationTime": cluster.created_at,
        "FailureMessage": cluster.failure or None,
        "InstanceGroups": [
            group_details(state, cluster, group, nodes[group.name]) for group in cluster.groups.values()
        ],
    }
    for member in (
        "VpcConfig",
        "Orchestrator",
        "TieredStorageConfig",
        "NodeRecovery",
        "NodeProvisioningMode",
        "ClusterRole",
    ):
        details[member] = copy.deepcopy(cluster.settings.get(member))
    if "AutoScaling" in cluster.settings:
        scaling = copy.deepcopy(cluster.settings["AutoScaling"])
        details["AutoScaling"] = {**scaling, "Status": "Creating" if cluster.status == "Creating" else "InService"}
    return details


def group_details(state: HyperPodState, cluster: Cluster, group: Group, nodes: list[Node]) -> Json:
    """ClusterInstanceGroupDetails. Its names differ from the specification's, so it cannot be sent as one."""
    spec = group.spec
    details: Json = {member: copy.deepcopy(spec[member]) for member in SAME_IN_DETAILS if member in spec}
    details |= {
        "InstanceGroupName": group.name,
        "CurrentCount": current_count(nodes, state.behaviour),
        "TargetCount": group.target,
        "MinCount": group.minimum if cluster.continuous else None,
        "Status": group.status,
        "TargetStateCount": sum(node.status == "Running" and images.same(node.image, group.image) for node in nodes),
        "CurrentImageId": images.image_id(group.current_image),
        "DesiredImageId": images.image_id(group.image),
        "CurrentImageReleaseVersion": _version(state, cluster, group.current_image),
        "DesiredImageReleaseVersion": _version(state, cluster, group.image),
        "ImageVersionStatus": _version_status(state, cluster, group.current_image),
        "SoftwareUpdateStatus": group.software,
        "ActiveSoftwareUpdateConfig": copy.deepcopy(group.update.deployment) or None if group.update else None,
        "ActiveOperations": {"Scaling": 1} if _is_scaling(group, nodes) else {},
    }
    if "TrainingPlanArn" in spec:
        details["TrainingPlanStatus"] = "Applied"
    if "InstanceRequirements" in spec:
        wanted = spec["InstanceRequirements"]["InstanceTypes"]
        details["InstanceRequirements"] = {"CurrentInstanceTypes": list(wanted), "DesiredInstanceTypes": list(wanted)}
        details["InstanceTypeDetails"] = _type_details(state, wanted, nodes)
    if "KubernetesConfig" in spec:
        details["KubernetesConfig"] = _kubernetes(spec["KubernetesConfig"])
    if "AutoPatchConfig" in spec:
        details["AutoPatchConfig"] = _patch_config(spec["AutoPatchConfig"], group.next_patch)
    return details


def _version(state: HyperPodState, cluster: Cluster, image: str) -> str | None:
    shown = state.behaviour.image_versions == "always" or images.has_versions(cluster)
    return images.release(image) if shown else None


def _version_status(state: HyperPodState, cluster: Cluster, image: str) -> str | None:
    if _version(state, cluster, image) is None:
        return None
    return "UpToDate" if image == state.image else state.older_images


def _is_scaling(group: Group, nodes: list[Node]) -> bool:
    """ "When there is a scaling operation in progress, this map contains a key Scaling with value 1" (botocore)."""
    started = sum(node.live and node.launched and node.status != "Pending" for node in nodes)
    terminating = any(not node.live for node in nodes)
    return started != group.target or terminating


def _type_details(state: HyperPodState, types: list[str], nodes: list[Node]) -> list[Json]:
    counts = Counter(node.instance_type for node in nodes if current_count([node], state.behaviour))
    return [{"InstanceType": kind, "CurrentCount": counts[kind]} for kind in types]


def _patch_config(config: Json, next_patch: float | None) -> Json:
    """Without a patch there is no date, unless one was requested."""
    details: Json = copy.deepcopy(config)
    schedule = details.pop("PatchSchedule", None)
    if next_patch is not None:
        schedule = {"NextPatchDate": next_patch}
    if schedule:
        details |= {"CurrentPatchSchedule": schedule, "DesiredPatchSchedule": schedule}
    return details


def _kubernetes(config: Json) -> Json:
    details: Json = {}
    for member in ("Labels", "Taints"):
        if member in config:
            details |= {
                f"Current{member}": copy.deepcopy(config[member]),
                f"Desired{member}": copy.deepcopy(config[member]),
            }
    return details


def node_summary(state: HyperPodState, cluster: Cluster, node: Node, *, with_logical_id: bool) -> Json:
    """ClusterNodeSummary. NodeLogicalId only with IncludeNodeLogicalIds (botocore:
    ClusterNodeSummary$NodeLogicalId)."""
    nothing = "" if state.behaviour.unlaunched_instance_id == "empty" else None
    return {
        "InstanceGroupName": node.group,
        "InstanceId": node.instance_id or nothing,
        "NodeLogicalId": node.logical_id if with_logical_id else None,
        "InstanceType": node.instance_type,
        "LaunchTime": born(node),
        "LastSoftwareUpdateTime": node.updated_at,
        "InstanceStatus": {"Status": node.status, "Message": node.message},
        "PrivateDnsHostname": f"ip-{_address(node).replace('.', '-')}.ec2.internal" if node.launched else None,
        "CurrentImageReleaseVersion": _version(state, cluster, node.image) if node.launched else None,
        "ImageVersionStatus": _version_status(state, cluster, node.image),
    }


def born(node: Node) -> float:
    """LaunchTime. For a node without an instance, the time of its request, because the member is required."""
    return node.requested_at if node.launched_at is None else node.launched_at


def node_details(state: HyperPodState, cluster: Cluster, node: Node) -> Json:
    """ClusterNodeDetails."""
    group = cluster.groups.get(node.group)
    spec: dict[str, Any] = group.spec if group else {}
    details = node_summary(state, cluster, node, with_logical_id=cluster.continuous)
    for member in ("OverrideVpcConfig", "ThreadsPerCore", "InstanceStorageConfigs", "NetworkInterface"):
        details[member] = copy.deepcopy(spec.get(member))
    details |= {
        "InstanceId": node.instance_id,
        "LaunchTime": node.launched_at,
        "LifeCycleConfig": copy.deepcopy(node.lifecycle),
        "CurrentImageId": images.image_id(node.image) if node.launched else None,
        "DesiredImageId": images.image_id(group.image) if group else None,
        "DesiredImageReleaseVersion": _version(state, cluster, group.image) if group else None,
        "CapacityType": "Spot" if "Spot" in spec.get("CapacityRequirements", {}) else "OnDemand",
    }
    if node.launched:
        details["PrivatePrimaryIp"] = _address(node)
        details["Placement"] = {"AvailabilityZone": f"{cluster.region}a"}
    if "KubernetesConfig" in spec:
        details["KubernetesConfig"] = _kubernetes(spec["KubernetesConfig"])
    return details


def _address(node: Node) -> str:
    if node.address:
        return node.address
    raw = hashlib.sha256(node.logical_id.encode()).digest()
    return f"10.{raw[0] % 16 + 1}.{raw[1]}.{raw[2] % 250 + 4}"


def event_summary(cluster: Cluster, event: Event) -> Json:
    """ClusterEventSummary."""
    return {
        "EventId": event.event_id,
        "ClusterArn": cluster.arn,
        "ClusterName": cluster.name,
        "InstanceGroupName": event.group,
        "InstanceId": event.instance_id,
        "ResourceType": event.resource,
        "EventTime": event.at,
        "Description": event.description,
        "EventLevel": event.level,
    }


def event_details(cluster: Cluster, event: Event) -> Json:
    """ClusterEventDetail."""
    metadata = copy.deepcopy(event.metadata)
    return event_summary(cluster, event) | {"EventDetails": {"EventMetadata": metadata} if metadata else None}
