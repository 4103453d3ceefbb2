"""The rules for clusters and their updates: pure functions, with one message for each broken rule.

Sources: botocore's shapes CreateClusterRequest, UpdateClusterRequest and ClusterInstanceGroupSpecification; AWS
documentation "Update a HyperPod cluster" (EKS, Slurm), "Continuous provisioning on Slurm", "Migrate to API-driven Slurm
configuration", "Getting started with SageMaker HyperPod using the AWS CLI".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import automatic_updates
from .errors import invalid
from .state import Cluster, Group, Json


def first(problems: Iterable[str]) -> None:
    """Raise ValidationException with the first problem, if there is one. The service reports one at a time."""
    for problem in problems:
        raise invalid(problem)


def cluster_problems(name: str, settings: Mapping[str, Any], specs: Sequence[Json]) -> Iterator[str]:
    """Why a cluster with these settings (CreateClusterRequest) and groups is invalid."""
    if "RestrictedInstanceGroups" in settings or "RestrictedInstanceGroupsConfig" in settings:
        yield "Restricted instance groups are not part of this simulation"
    for group, times in Counter(spec["InstanceGroupName"] for spec in specs).items():
        if times > 1:
            yield f"Instance group names must be unique within a cluster. Found {times} instance groups named {group}"
    orchestrator = settings.get("Orchestrator", {})
    if "Eks" in orchestrator and "Slurm" in orchestrator:
        yield "Only one orchestrator can be specified for a cluster"
    if "Eks" in orchestrator and "VpcConfig" not in settings:
        yield "VpcConfig is required for clusters orchestrated by Amazon EKS"
    if settings.get("AutoScaling", {}).get("Mode") == "Enable":
        yield from _autoscaling_problems(settings)
    for spec in specs:
        yield from group_problems(spec, settings)
    if "Eks" not in orchestrator:
        yield from slurm_problems(name, settings, specs)


def _autoscaling_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    # Karpenter needs all three (AWS documentation "Autoscaling on HyperPod EKS").
    if "Eks" not in settings.get("Orchestrator", {}):
        yield "AutoScaling is only supported for clusters orchestrated by Amazon EKS"
    if settings.get("NodeProvisioningMode") != "Continuous":
        yield "AutoScaling is only supported for clusters with NodeProvisioningMode Continuous"
    if "ClusterRole" not in settings:
        yield "ClusterRole is required when AutoScaling is enabled"


def group_problems(spec: Json, settings: Mapping[str, Any]) -> Iterator[str]:
    """Why one group's specification is invalid by itself."""
    name = spec["InstanceGroupName"]
    continuous = settings.get("NodeProvisioningMode") == "Continuous"
    if ("InstanceType" in spec) == ("InstanceRequirements" in spec):
        yield f"Exactly one of InstanceType and InstanceRequirements must be specified for instance group {name}"
    for only in ("InstanceRequirements", "MinInstanceCount"):
        if spec.get(only) and not continuous:
            yield f"{only} is only supported for clusters with NodeProvisioningMode Continuous. Instance group: {name}"
    capacity = spec.get("CapacityRequirements", {})
    if "Spot" in capacity and not continuous:
        yield f"Spot capacity is only supported for clusters with NodeProvisioningMode Continuous. Instance group: {name}"
    minimum = spec.get("MinInstanceCount", 0)
    if minimum > spec["InstanceCount"]:
        # 0 <= MinInstanceCount <= InstanceCount ("Minimum capacity requirements (MinCount)").
        yield (
            f"MinInstanceCount ({minimum}) cannot be greater than InstanceCount ({spec['InstanceCount']}) for instance group "
            f"{name}"
        )
    lifecycle = spec.get("LifeCycleConfig", {})
    if "OnCreate" in lifecycle and "OnInitComplete" in lifecycle:
        yield f"OnCreate and OnInitComplete cannot both be specified in LifeCycleConfig. Instance group: {name}"
    if problem := automatic_updates.schedule_problem(spec):
        yield problem
    for storage in spec.get("InstanceStorageConfigs", []):
        yield from _storage_problems(name, storage, settings)


def _storage_problems(name: str, storage: Json, settings: Mapping[str, Any]) -> Iterator[str]:
    volume = storage.get("EbsVolumeConfig")
    if volume is None:
        if "VpcConfig" not in settings:
            yield "FSx configurations are only supported for Custom VPC"
    elif volume.get("RootVolume"):
        if "VolumeSizeInGB" in volume or "VolumeKmsKeyId" not in volume:
            yield f"A root volume takes VolumeKmsKeyId and no VolumeSizeInGB. Instance group: {name}"
    elif "VolumeSizeInGB" not in volume:
        yield f"VolumeSizeInGB is required for a secondary EBS volume. Instance group: {name}"


def slurm_problems(name: str, settings: Mapping[str, Any], specs: Sequence[Json]) -> Iterator[str]:
    """The rules for Slurm that is configured through the API. Clusters with provisioning_parameters.json are not checked."""
    slurm = settings.get("Orchestrator", {}).get("Slurm")
    continuous = settings.get("NodeProvisioningMode") == "Continuous"
    uses_the_api = continuous or slurm is not None or any(_node_type(spec) for spec in specs)
    if not uses_the_api:
        return
    if continuous:
        yield from _continuous_slurm_problems(slurm or {}, specs)
    yield from _controller_problems(name, specs, continuous=continuous)
    if sum(_node_type(spec) == "Login" for spec in specs) > 1:
        yield "Cluster must have at most one InstanceGroup with Login node type"
    for spec in specs:
        yield from _partition_problems(spec)


def _node_type(spec: Json) -> str | None:
    node_type: str | None = spec.get("SlurmConfig", {}).get("NodeType")
    return node_type


def _continuous_slurm_problems(slurm: Json, specs: Sequence[Json]) -> Iterator[str]:
    """ "Continuous provisioning on Slurm": SlurmConfig in every group, and no strategy in the Orchestrator's Slurm."""
    for spec in specs:
        if _node_type(spec) is None:
            group = spec["InstanceGroupName"]
            yield f"SlurmConfig is required in every instance group with NodeProvisioningMode Continuous: {group}"
    if "SlurmConfigStrategy" in slurm:
        yield "SlurmConfigStrategy cannot be specified for clusters with NodeProvisioningMode Continuous"


def _controller_problems(name: str, specs: Sequence[Json], *, continuous: bool) -> Iterator[str]:
    controllers = [spec for spec in specs if _node_type(spec) == "Controller"]
    if not controllers:
        yield f"Cluster {name} has no InstanceGroup with Controller node type."
    elif len(controllers) > 1:
        yield "Cluster must have exactly one InstanceGroup with Controller node type"
    elif continuous and controllers[0]["InstanceCount"] != 1:
        yield "The instance group with Controller node type must have exactly 1 instance with NodeProvisioningMode Continuous"


def _partition_problems(spec: Json) -> Iterator[str]:
    node_type = _node_type(spec)
    has_partitions = bool(spec.get("SlurmConfig", {}).get("PartitionNames"))
    if node_type == "Compute" and not has_partitions:
        yield f"PartitionNames is required for Compute node types. Instance group: {spec['InstanceGroupName']}"
    if node_type not in ("Compute", None) and has_partitions:
        yield "Partitions can only be assigned to Compute node types"


def immutable_problems(group: Group, spec: Json, live_types: frozenset[str]) -> Iterator[str]:
    """The immutable settings of a group that an update would change ("Update a HyperPod cluster").

    `live_types`: the instance types of its current nodes.
    """
    old = group.spec
    if ("InstanceType" in old) != ("InstanceType" in spec):
        yield f"Instance group {group.name} cannot switch between InstanceType and InstanceRequirements"
    elif old.get("InstanceType") != spec.get("InstanceType"):
        yield (
            f"Instance type cannot be changed for existing instance group {group.name}: "
            f"{old['InstanceType']} -> {spec['InstanceType']}"
        )
    elif "InstanceRequirements" in spec:
        lost = live_types - set(spec["InstanceRequirements"]["InstanceTypes"])
        if lost:
            yield f"Instance types with running instances cannot be removed from instance group {group.name}: {sorted(lost)}"
    for member in ("ExecutionRole", "ThreadsPerCore", "OverrideVpcConfig"):
        if old.get(member) != spec.get(member):
            yield f"{member} cannot be changed for existing instance group {group.name}"
    for root in (False, True):
        # "Customer managed AWS KMS key encryption for SageMaker HyperPod" does not say whether a group without a key
        # accepts one.
        before, after = _volume_key(old, root=root), _volume_key(spec, root=root)
        if before and after and before != after:
            yield f"VolumeKmsKeyId cannot be changed for existing instance group {group.name}"
    node_type = spec.get("SlurmConfig", {}).get("NodeType")
    if group.node_type and node_type != group.node_type:
        yield f"SlurmConfig NodeType cannot be changed for existing instance group {group.name}"


def _volume_key(spec: Json, *, root: bool) -> str | None:
    volumes = [each["EbsVolumeConfig"] for each in spec.get("InstanceStorageConfigs", []) if "EbsVolumeConfig" in each]
    return next((each.get("VolumeKmsKeyId") for each in volumes if bool(each.get("RootVolume")) == root), None)


def settings_problems(cluster: Cluster, changes: Mapping[str, Any], *, may_become_continuous: bool) -> Iterator[str]:
    """The immutable settings of the cluster that an update would change."""
    old = cluster.settings
    eks = changes.get("Orchestrator", {}).get("Eks")
    if "Orchestrator" in changes and (cluster.eks or eks is not None) and eks != old.get("Orchestrator", {}).get("Eks"):
        yield "The Amazon EKS cluster of a HyperPod cluster cannot be changed"
    if changes.get("NodeProvisioningMode") and not cluster.continuous and not may_become_continuous:
        yield "NodeProvisioningMode cannot be changed for an existing cluster"
    scaling = changes.get("AutoScaling", old.get("AutoScaling", {})).get("Mode")
    if changes.get("ClusterRole", old.get("ClusterRole")) != old.get("ClusterRole"):
        enabled = old.get("AutoScaling", {}).get("Mode") == "Enable"
        if enabled and scaling == "Enable":
            # "Cannot be updated while autoscaling is enabled" (botocore: UpdateClusterRequest$ClusterRole).
            yield "ClusterRole cannot be updated while autoscaling is enabled"


def deletion_problems(cluster: Cluster, names: Sequence[str], sent: Sequence[Json]) -> Iterator[str]:
    """Why these groups cannot be deleted ("Scale down a cluster", Delete instance groups)."""
    listed = {spec["InstanceGroupName"] for spec in sent}
    for name in names:
        if name in listed:
            yield f"Instance group {name} cannot be in both InstanceGroups and InstanceGroupsToDelete"
    going = {group.name for group in cluster.groups.values() if group.status == "Deleting"} | set(names)
    if not (set(cluster.groups) | listed) - going:
        yield f"Cluster {cluster.name} must maintain at least one instance group"
