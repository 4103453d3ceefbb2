"""What a deployment sends for the groups: the same for the template and for `cdk-hyperpod plan`. Pure, and without CDK.

The caller passes what the file does not contain (ARNs, subnets, where scripts and file systems are): tokens in a
template, the live cluster's values in a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .cluster import EKS_ENTRY_SCRIPT, ENTRY_SCRIPTS, EbsVolume, InstanceGroup, Rolling, ScheduledUpdate
from .lifecycle import LifecycleMode
from .scale_down import ScaleDownConfig

Spec = dict[str, Any]
"""A structure of AWS::SageMaker::Cluster and of the SageMaker API, which use the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """What a group's specification needs to know of its cluster."""

    continuous: bool
    """Whether the nodes are provisioned continuously."""
    encrypts_root_volumes: bool
    """Whether root volumes get `volume_key_arn` if the group has no entry for them."""
    lifecycle_mode: LifecycleMode
    """What runs on a new node."""
    scripts_uri: str
    """Where the scripts are, as s3://BUCKET/PREFIX."""
    scripts_uris: Mapping[str, str] = field(default_factory=dict)
    """The same for groups with own scripts, by the group's name."""
    volume_key_arn: str | None = None
    """The key of volumes without a key of their own. None: AWS's own."""
    mounts: Sequence[Spec] = ()
    """File systems that every node mounts (InstanceStorageConfigs)."""

    def volumes(self, group: InstanceGroup) -> tuple[EbsVolume, ...]:
        """The volumes that the specification lists: the group's own, and the root volume if it gets a key."""
        if not self.encrypts_root_volumes or any(volume.root_volume for volume in group.ebs_volumes):
            return group.ebs_volumes
        return (EbsVolume(root_volume=True), *group.ebs_volumes)

    def volume_key(self, volume: EbsVolume) -> str | None:
        """The volume's key. HyperPod accepts a customer managed key under continuous provisioning only.

        https://docs.aws.amazon.com/sagemaker/latest/dg/smcluster-cmk.html
        """
        return volume.volume_kms_key_arn or (self.volume_key_arn if self.continuous else None)

    def volume_keys(self, groups: Sequence[InstanceGroup]) -> list[str]:
        """The keys of all volumes of these groups, each once."""
        keys = (self.volume_key(volume) for group in groups for volume in self.volumes(group))
        return list(dict.fromkeys(key for key in keys if key is not None))


def render_group(group: InstanceGroup, cluster: ClusterContext, *, role_arn: str, network: Spec | None) -> Spec:
    """The group's ClusterInstanceGroupSpecification. `network`: OverrideVpcConfig. None: the cluster's own network."""
    return _without_empty(
        InstanceGroupName=group.name,
        InstanceType=group.instance_type,
        InstanceRequirements=_without_empty(InstanceTypes=list(group.instance_types)),
        InstanceCount=group.instance_count,
        # Sent even if it is 0: it is not documented whether an update without it keeps the group's minimum.
        MinInstanceCount=group.min_instance_count if cluster.continuous else None,
        ExecutionRole=role_arn,
        LifeCycleConfig=_life_cycle_config(group, cluster),
        SlurmConfig=None
        if group.node_type is None
        else _without_empty(
            NodeType=group.node_type.capitalize(), PartitionNames=None if group.partition is None else [group.partition]
        ),
        KubernetesConfig=_without_empty(
            Labels=dict(group.labels),
            Taints=[
                _without_empty(Key=taint.key, Value=taint.value, Effect=_in_capitals(taint.effect))
                for taint in group.taints
            ],
        ),
        InstanceStorageConfigs=[
            *({"EbsVolumeConfig": _ebs_volume(volume, cluster)} for volume in cluster.volumes(group)),
            *cluster.mounts,
        ],
        ThreadsPerCore=group.threads_per_core,
        OnStartDeepHealthChecks=[_in_capitals(check) for check in group.on_start_deep_health_checks],
        TrainingPlanArn=group.training_plan_arn,
        CapacityRequirements={"Spot": {}} if group.spot else None,
        OverrideVpcConfig=network,
        ImageId=group.image_id,
        ImageReleaseVersion=group.image_release_version,
        AutoPatchConfig=_auto_patch_config(group),
        ScheduledUpdateConfig=_scheduled_update_config(group),
    )


def _auto_patch_config(group: InstanceGroup) -> Spec | None:
    if group.auto_patch in (None, "none"):
        return None
    return {"PatchingStrategy": _in_capitals(group.auto_patch)}


def _scheduled_update_config(group: InstanceGroup) -> Spec | None:
    if not isinstance(group.scheduled_update, ScheduledUpdate):
        return None
    return _without_empty(
        ScheduleExpression=group.scheduled_update.schedule,
        DeploymentConfig=None if group.rolling is None else deployment_config(group.rolling),
    )


def deployment_config(rolling: Rolling) -> Spec:
    """How HyperPod replaces images (DeploymentConfiguration), for a group's schedule and for UpdateClusterSoftware."""
    in_nodes = rolling.batch_nodes is not None
    size = {
        "Type": "INSTANCE_COUNT" if in_nodes else "CAPACITY_PERCENTAGE",
        "Value": rolling.batch_nodes if in_nodes else rolling.batch_percent,
    }
    return _without_empty(
        RollingUpdatePolicy={"MaximumBatchSize": size},
        WaitIntervalInSeconds=rolling.wait_seconds,
        AutoRollbackConfiguration=[{"AlarmName": name} for name in rolling.rollback_alarms],
    )


def _life_cycle_config(group: InstanceGroup, cluster: ClusterContext) -> Spec | None:
    """The hook decides who sets the node up: HyperPod with OnInitComplete, the script with OnCreate."""
    if cluster.lifecycle_mode == "bootstrap":
        return None
    hook = "OnCreate" if cluster.lifecycle_mode == "customer_managed" else "OnInitComplete"
    script = EKS_ENTRY_SCRIPT if group.node_type is None else ENTRY_SCRIPTS[group.node_type]
    return {"SourceS3Uri": cluster.scripts_uris.get(group.name, cluster.scripts_uri), hook: script}


def _ebs_volume(volume: EbsVolume, cluster: ClusterContext) -> Spec:
    return _without_empty(
        RootVolume=volume.root_volume or None,
        VolumeSizeInGB=volume.volume_size_gib,
        VolumeKmsKeyId=cluster.volume_key(volume),
    )


def mount_spec(*, dns_name: str, mount_path: str, mount_name: str | None) -> Spec:
    """A file system that a node mounts. `mount_name`: Lustre's. None: it is OpenZFS."""
    kind = "FsxOpenZfsConfig" if mount_name is None else "FsxLustreConfig"
    return {kind: _without_empty(DnsName=dns_name, MountName=mount_name, MountPath=mount_path)}


def network_spec(*, subnets: Sequence[str], security_groups: Sequence[str]) -> Spec:
    """The nodes' network (VpcConfig)."""
    return {"SecurityGroupIds": [*security_groups], "Subnets": [*subnets]}


def patching_off(groups: Sequence[InstanceGroup]) -> Spec:
    """The groups whose live patching settings a deployment may turn off, because they say `none`."""
    return _without_empty(
        AutoPatchConfig=[group.name for group in groups if group.auto_patch == "none"],
        ScheduledUpdateConfig=[group.name for group in groups if group.scheduled_update == "none"],
    )


def guard_properties(
    cluster_name: str, groups: object, scale_down: ScaleDownConfig, *, autoscaled_groups: Sequence[str], digest: object
) -> Spec:
    """The properties of both resources of the guard. Both have all settings, so that CloudFormation calls both if one
    changes. `groups`: a JSON text each, because CloudFormation would turn the numbers of nested properties into text.
    `digest`: changes with any other setting of the cluster."""
    return {
        "ClusterName": cluster_name,
        "Groups": groups,
        "NodesToDelete": list(scale_down.nodes_to_delete),
        "InstanceGroupsToDelete": list(scale_down.instance_groups_to_delete),
        "MaxNodes": str(scale_down.max_nodes),
        "AutoscaledGroups": list(autoscaled_groups),
        "Digest": digest,
        "Retry": scale_down.retry or "",
    }


def _without_empty(**values: Any) -> Spec:
    """The values without empty ones."""
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _in_capitals(word: str) -> str:
    """`no_schedule` as the API spells it: NoSchedule."""
    return "".join(part.capitalize() for part in word.split("_"))


def in_words_of_cdk(spec: Mapping[str, Any]) -> Spec:
    """The same with the names of CDK's class of the resource: `VolumeSizeInGB` is volumeSizeInGb there."""
    return {_in_camel_case(name): _of_cdk(name, value) for name, value in spec.items()}


def _of_cdk(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        # The names of labels are users' own.
        return value if name == "Labels" else in_words_of_cdk(value)
    return [_of_cdk(name, item) for item in value] if isinstance(value, list) else value


def _in_camel_case(name: str) -> str:
    before = "A"
    letters = []
    for letter in name:
        letters.append(letter.lower() if before.isupper() else letter)
        before = letter
    return "".join(letters)
