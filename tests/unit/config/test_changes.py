"""What the change beside every setting says is what a deployment does: to the template, and to the nodes of a live cluster.

Each setting is changed once. Those whose change happens in place, or reaches new nodes only, are deployed together, one
deployment for each file: no node of the cluster may end. Those whose change is refused are deployed one by one.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod import LoadedConfig, load_config
from cdk_hyperpod._lambda.hyperpod.foundation_guard.decision import Live, Subnet, differences
from cdk_hyperpod._lambda.hyperpod.foundation_guard.settings import ImmutableSettings
from cdk_hyperpod.config.changes import METADATA, changed, record
from cdk_hyperpod.config.cluster import ClusterConfig
from cdk_hyperpod.config.effects import EFFECTS, change_of
from cdk_hyperpod.config.eks import AddOnsConfig
from cdk_hyperpod.config.lifecycle import LifecycleSteps
from cdk_hyperpod.errors import Finding, raise_errors
from cdk_hyperpod.guard.immutable import immutable_settings
from cdk_hyperpod.rules import check_cluster
from cdk_hyperpod.typed.annotations import Fields, field_types, shape
from cdk_hyperpod.typed.build import structure
from cdk_hyperpod.typed.schema import places
from cdk_hyperpod_local.hyperpod import ClusterHandler, HyperPod, ManualClock, Progress, replacement_reasons
from helpers.synthesis import CONFIGS, Json, flat, folder_of, new_app, of_file, templates_in
from helpers.validating import REMOVED
from helpers.validating import changed as edited
from stacks import add_stacks

OWN_KEY = "arn:aws:kms:us-west-2:111122223333:key/99999999-0000-1111-2222-333344445555"
EVERYTHING, EKS, EXISTING, OWN_EKS = "everything", "eks", "existing", "eks_existing"
AGENT = "../../../examples/monitoring_agent/scripts"
HOOKS = "../../../examples/gpu_prolog/slurm"
LUA = "../../../tests/helpers/slurm/job_submit.lua"
P5, MIXED = "instance_groups.2", "instance_groups.5"

# By setting: the file, what is changed in it, and the path that the change has.
SAME = ""
Case = tuple[str, dict[str, Any], str]
PARTITIONS = {"ml.p5.48xlarge": {"accelerator_partition": {"type": "mig-1g.10gb", "count": 14}}}
CASES: Mapping[str, Case] = {
    "ClusterConfig.name": (EVERYTHING, {"name": "other"}, "name"),
    "ClusterConfig.region": (OWN_EKS, {"region": "us-east-2"}, "region"),
    "ClusterConfig.instance_groups": (
        EVERYTHING,
        {"instance_groups.6": {"name": "more", "instance_type": "ml.c5.large", "instance_count": 1, "node_type": "compute", "partition": "cpu"}},
        "instance_groups[more]",
    ),
    "ClusterConfig.account": (EVERYTHING, {"account": "444455556666"}, "account"),
    "ClusterConfig.orchestrator": (EKS, {"orchestrator": "slurm"}, "orchestrator"),
    "ClusterConfig.node_provisioning_mode": (EXISTING, {"node_provisioning_mode": "continuous", "instance_groups.0.instance_count": 1}, "node_provisioning_mode"),
    "ClusterConfig.node_recovery": (EVERYTHING, {"node_recovery": "automatic"}, "node_recovery"),
    "ClusterConfig.eks": (EKS, {"eks": REMOVED, "orchestrator": "slurm"}, "eks"),
    "ClusterConfig.teams": (EKS, {"teams.2": {"name": "third", "quota": {"ml.p5.48xlarge": 1}}}, "teams[third]"),
    "ClusterConfig.storage": (OWN_EKS, {"storage": {"file_system_id": "fs-0123456789abcdef0", "mount_name": "abcdefgh"}}, "storage"),
    "ClusterConfig.tiered_storage": (EKS, {"tiered_storage": {}}, "tiered_storage"),
    "ClusterConfig.groups": (EVERYTHING, {"groups.2": {"name": "third", "gid": 5002}}, "groups[third]"),
    "ClusterConfig.users": (EVERYTHING, {"users.2": {"name": "carol", "uid": 5003, "group": "research"}}, "users[carol]"),
    "ClusterConfig.encrypt_root_volumes": (OWN_EKS, {"encrypt_root_volumes": False}, "encrypt_root_volumes"),
    "ClusterConfig.monitoring": (OWN_EKS, {"monitoring": {}}, "monitoring"),
    "ClusterConfig.removal": (EVERYTHING, {"removal": "destroy"}, "removal"),
    "ClusterConfig.log_retention_days": (EVERYTHING, {"log_retention_days": 30}, "log_retention_days"),
    "ClusterConfig.termination_protection": (EVERYTHING, {"termination_protection": True}, "termination_protection"),
    "ClusterConfig.tags": (EVERYTHING, {"tags": {"team": "other"}}, "tags"),
    "InstanceGroup.name": (EVERYTHING, {f"{P5}.name": "p6"}, "instance_groups[p5]"),
    "InstanceGroup.instance_count": (EVERYTHING, {f"{P5}.instance_count": 9}, "instance_groups[p5].instance_count"),
    "InstanceGroup.instance_type": (EVERYTHING, {"instance_groups.4.instance_type": "ml.trn1n.32xlarge"}, "instance_groups[trn1].instance_type"),
    "InstanceGroup.instance_types": (EVERYTHING, {f"{MIXED}.instance_types": ["ml.c5.9xlarge", "ml.c5.4xlarge"]}, "instance_groups[mixed].instance_types"),
    "InstanceGroup.min_instance_count": (EVERYTHING, {f"{P5}.min_instance_count": 5}, "instance_groups[p5].min_instance_count"),
    "InstanceGroup.node_type": (EVERYTHING, {"instance_groups.1.node_type": "compute", "instance_groups.1.partition": "cpu"}, "instance_groups[login].node_type"),
    "InstanceGroup.partition": (EVERYTHING, {f"{MIXED}.partition": "other"}, "instance_groups[mixed].partition"),
    "InstanceGroup.availability_zone": (EVERYTHING, {f"{MIXED}.availability_zone": "usw2-az4"}, "instance_groups[mixed].availability_zone"),
    "InstanceGroup.threads_per_core": (EVERYTHING, {"instance_groups.0.threads_per_core": 2}, "instance_groups[controller].threads_per_core"),
    "InstanceGroup.ebs_volumes": (EVERYTHING, {f"{MIXED}.ebs_volumes": [{"volume_size_gib": 100}]}, "instance_groups[mixed].ebs_volumes[second]"),
    "InstanceGroup.on_start_deep_health_checks": (EVERYTHING, {f"{P5}.on_start_deep_health_checks": ["instance_stress"]}, "instance_groups[p5].on_start_deep_health_checks"),
    "InstanceGroup.training_plan_arn": (EVERYTHING, {f"{P5}.training_plan_arn": REMOVED}, "instance_groups[p5].training_plan_arn"),
    "InstanceGroup.spot": (EVERYTHING, {f"{MIXED}.spot": False}, "instance_groups[mixed].spot"),
    "InstanceGroup.labels": (EKS, {"instance_groups.1.labels": {"accelerator": "other"}}, "instance_groups[p5].labels"),
    "InstanceGroup.taints": (EKS, {"instance_groups.1.taints.1": {"key": "new", "effect": "no_schedule"}}, "instance_groups[p5].taints[new]"),
    "InstanceGroup.image_id": (EVERYTHING, {f"{P5}.image_id": "ami-0123456789abcdef0"}, "instance_groups[p5].image_id"),
    "InstanceGroup.image_release_version": (EKS, {"instance_groups.1.image_release_version": "1.4.0"}, "instance_groups[p5].image_release_version"),
    "InstanceGroup.auto_patch": (EKS, {"instance_groups.1.auto_patch": "when_idle"}, "instance_groups[p5].auto_patch"),
    "InstanceGroup.scheduled_update": (EVERYTHING, {f"{P5}.scheduled_update": "none"}, "instance_groups[p5].scheduled_update"),
    "InstanceGroup.rolling": (EKS, {"instance_groups.1.rolling": {"batch_nodes": 2}}, "instance_groups[p5].rolling"),
    "ScheduledUpdate.schedule": ("scheduled", {"instance_groups.1.scheduled_update.schedule": "cron(0 3 ? * SUN *)"}, "instance_groups[p5].scheduled_update.schedule"),
    "Rolling.batch_nodes": ("scheduled", {"instance_groups.1.rolling.batch_nodes": 3}, "instance_groups[p5].rolling.batch_nodes"),
    "Rolling.batch_percent": ("scheduled", {"instance_groups.1.rolling": {"batch_percent": 20}}, "instance_groups[p5].rolling.batch_percent"),
    "Rolling.wait_seconds": ("scheduled", {"instance_groups.1.rolling.wait_seconds": 600}, "instance_groups[p5].rolling.wait_seconds"),
    "Rolling.rollback_alarms": ("scheduled", {"instance_groups.1.rolling.rollback_alarms": ["nccl-errors"]}, "instance_groups[p5].rolling.rollback_alarms"),
    "InstanceGroup.scripts_before": ("drained", {f"{P5}.scripts_before": AGENT}, "instance_groups[p5].scripts_before"),
    "InstanceGroup.scripts_after": ("drained", {f"{P5}.scripts_after": AGENT}, "instance_groups[p5].scripts_after"),
    "EbsVolume.volume_size_gib": (EVERYTHING, {"instance_groups.0.ebs_volumes.1.volume_size_gib": 600}, "instance_groups[controller].ebs_volumes[second].volume_size_gib"),
    "EbsVolume.root_volume": ("without keys", {"instance_groups.1.ebs_volumes": [{"root_volume": True, "volume_kms_key_arn": OWN_KEY}]}, "instance_groups[login].ebs_volumes[root]"),
    "EbsVolume.volume_kms_key_arn": (EVERYTHING, {f"{P5}.ebs_volumes.0.volume_kms_key_arn": OWN_KEY}, "instance_groups[p5].ebs_volumes[second].volume_kms_key_arn"),
    "Taint.key": (EKS, {"instance_groups.1.taints.0.key": "other"}, "instance_groups[p5].taints[other]"),
    "Taint.effect": (EKS, {"instance_groups.1.taints.0.effect": "prefer_no_schedule"}, "instance_groups[p5].taints[nvidia.com/gpu].effect"),
    "Taint.value": (EKS, {"instance_groups.1.taints.0.value": "other"}, "instance_groups[p5].taints[nvidia.com/gpu].value"),
    "NetworkConfig.availability_zones": (EVERYTHING, {"network.availability_zones": ["usw2-az1", "usw2-az3"]}, "network.availability_zones"),
    "NetworkConfig.internet_egress": (EVERYTHING, {"network.internet_egress": False}, "network.internet_egress"),
    "NetworkConfig.cidr": (EVERYTHING, {"network.cidr": "10.65.0.0/16"}, "network.cidr"),
    "NetworkConfig.interface_endpoints": (EVERYTHING, {"network.interface_endpoints": False}, "network.interface_endpoints"),
    "NetworkConfig.vpc_id": (EXISTING, {"network": {"availability_zones": ["us-east-1a"]}, "instance_groups.1.availability_zone": REMOVED}, "network.vpc_id"),
    "NetworkConfig.subnets": (EXISTING, {"network.subnets.0.subnet_id": "subnet-0aaaaaaaaaaaaaaaa"}, "network.subnets"),
    "NetworkConfig.endpoint_security_group_id": (EXISTING, {"network.endpoint_security_group_id": "sg-0aaaaaaaaaaaaaaaa"}, "network.endpoint_security_group_id"),
    "NetworkConfig.s3_prefix_list_id": (EXISTING, {"network.s3_prefix_list_id": "pl-00000000"}, "network.s3_prefix_list_id"),
    "NetworkConfig.endpoint_policies": (EVERYTHING, {"network.endpoint_policies": "organization", "network.organization_id": "o-a1b2c3d4e5"}, "network.endpoint_policies"),
    "NetworkConfig.trusted_accounts": (EVERYTHING, {"network.endpoint_policies": "account", "network.trusted_accounts": ["444455556666"]}, "network.trusted_accounts"),
    "NetworkConfig.organization_id": (EVERYTHING, {"network.endpoint_policies": "organization", "network.organization_id": "o-b1b2c3d4e5"}, "network.organization_id"),
    "SubnetConfig.subnet_id": (EXISTING, {"network.subnets.0.subnet_id": "subnet-0aaaaaaaaaaaaaaaa"}, "network.subnets"),
    "SubnetConfig.availability_zone": (EXISTING, {"network.subnets.0.availability_zone": "us-east-1c"}, "network.subnets[subnet-0123456789abcdef0].availability_zone"),
    "SubnetConfig.cidr": (EXISTING, {"network.subnets.0.cidr": "10.21.0.0/20"}, "network.subnets[subnet-0123456789abcdef0].cidr"),
    "EksConfig.dependencies_chart": (EKS, {"eks.dependencies_chart": "../chart/."}, "eks.dependencies_chart"),
    "EksConfig.dependencies_chart_digest": (EKS, {"eks.dependencies_chart": "installed", "eks.dependencies_chart_digest": REMOVED, "eks.image_registry": REMOVED}, "eks.dependencies_chart_digest"),
    "EksConfig.kubernetes_version": (EKS, {"eks.kubernetes_version": "1.34"}, "eks.kubernetes_version"),
    "EksConfig.existing_cluster": (OWN_EKS, {"eks.existing_cluster": REMOVED}, "eks.existing_cluster"),
    "EksConfig.public_access_cidrs": (EKS, {"eks.public_access_cidrs": []}, "eks.public_access_cidrs"),
    "EksConfig.admin_role_arns": (EKS, {"eks.admin_role_arns": []}, "eks.admin_role_arns"),
    "EksConfig.image_registry": (EKS, {"eks.image_registry": "111122223333.dkr.ecr.us-west-2.amazonaws.com/other"}, "eks.image_registry"),
    "EksConfig.autoscaling": (EKS, {"eks.autoscaling": {"instance_groups": ["p5"]}}, "eks.autoscaling"),
    **{
        f"ChartComponents.{name}": (EKS, {f"eks.chart_components.{name}": False}, f"eks.chart_components.{name}")
        for name in ("kubeflow_operator", "mpi_operator", "job_auto_restart", "deep_health_check")
    },
    "EksConfig.priority_classes": (EKS, {"eks.priority_classes.1": {"name": "later", "value": -1}}, "eks.priority_classes[later]"),
    "ExistingEksCluster.name": (OWN_EKS, {"eks.existing_cluster.name": "other"}, "eks.existing_cluster.name"),
    "ExistingEksCluster.security_group_id": (OWN_EKS, {"eks.existing_cluster.security_group_id": "sg-0aaaaaaaaaaaaaaaa"}, "eks.existing_cluster.security_group_id"),
    "ExistingEksCluster.endpoint": (OWN_EKS, {"eks.existing_cluster.endpoint": "https://other"}, "eks.existing_cluster.endpoint"),
    "ExistingEksCluster.certificate_authority": (OWN_EKS, {"eks.existing_cluster.certificate_authority": "AAAA"}, "eks.existing_cluster.certificate_authority"),
    "AutoscalingConfig.instance_groups": ("scaled", {"eks.autoscaling.instance_groups": ["p5", "system"]}, "eks.autoscaling.instance_groups"),
    "AutoscalingConfig.limits": ("scaled", {"eks.autoscaling.limits": {"cpu": "10"}}, "eks.autoscaling.limits"),
    **{
        f"AddOnsConfig.{field.name}": (EKS, {f"eks.add_ons.{field.name}.version": "v9.9.9-eksbuild.9", **({"eks.add_ons.metrics_server.enabled": True} if field.name == "metrics_server" else {})}, f"eks.add_ons.{field.name}.version")
        for field in dataclasses.fields(AddOnsConfig)
    },
    "AddOn.enabled": (EKS, {"eks.add_ons.observability.enabled": True}, "eks.add_ons.observability.enabled"),
    "AddOn.configuration": (EKS, {"eks.add_ons.coredns.configuration": {"replicaCount": 3}}, "eks.add_ons.coredns.configuration"),
    "AddOn.resolve_conflicts": (EKS, {"eks.add_ons.coredns.resolve_conflicts": "overwrite"}, "eks.add_ons.coredns.resolve_conflicts"),
    "AddOn.version": (EKS, {"eks.add_ons.training_operator.version": "v1.3.1-eksbuild.1"}, "eks.add_ons.training_operator.version"),
    **{
        f"{kind}.{setting}": (EKS, {f"eks.add_ons.{add_on}.{setting}": value}, f"eks.add_ons.{add_on}.{setting}")
        for kind, add_on in (("ObservabilityAddOn", "observability"), ("FsxCsiDriverAddOn", "fsx_csi_driver"), ("S3CsiDriverAddOn", "s3_csi_driver"), ("EbsCsiDriverAddOn", "ebs_csi_driver"))
        for setting, value in (("enabled", True), ("version", "v1.3.1-eksbuild.1"), ("configuration", {"more": 1}), ("resolve_conflicts", "preserve"))
    },
    "ObservabilityAddOn.workspace_arn": (EKS, {"eks.add_ons.observability": {"enabled": True, "workspace_arn": "arn:aws:aps:us-west-2:111122223333:workspace/ws-1"}}, "eks.add_ons.observability.workspace_arn"),
    "FsxCsiDriverAddOn.storage_class": (EKS, {"eks.add_ons.fsx_csi_driver.storage_class": True}, "eks.add_ons.fsx_csi_driver.storage_class"),
    "S3CsiDriverAddOn.buckets": (EKS, {"eks.add_ons.s3_csi_driver": {"enabled": True, "buckets": ["data"]}}, "eks.add_ons.s3_csi_driver.buckets"),
    "S3CsiDriverAddOn.kms_key_arns": (EKS, {"eks.add_ons.s3_csi_driver": {"enabled": True, "kms_key_arns": ["arn:aws:kms:us-west-2:111122223333:key/a"]}}, "eks.add_ons.s3_csi_driver.kms_key_arns"),
    "EbsCsiDriverAddOn.kms_key_arns": (EKS, {"eks.add_ons.ebs_csi_driver": {"enabled": True, "kms_key_arns": ["arn:aws:kms:us-west-2:111122223333:key/a"]}}, "eks.add_ons.ebs_csi_driver.kms_key_arns"),
    "PriorityClass.name": (EKS, {"eks.priority_classes.0.name": "other", "teams.0.priority_classes": ["other"]}, "eks.priority_classes[other]"),
    "PriorityClass.value": (EKS, {"eks.priority_classes.0.value": 1001}, "eks.priority_classes[urgent].value"),
    "PriorityClass.preempts": (EKS, {"eks.priority_classes.0.preempts": True}, "eks.priority_classes[urgent].preempts"),
    "PriorityClass.description": (EKS, {"eks.priority_classes.0.description": "Other words"}, "eks.priority_classes[urgent].description"),
    "TaskGovernance.priority_classes": (EKS, {"eks.task_governance.priority_classes.2": {"name": "third", "weight": 1}}, "eks.task_governance.priority_classes[third]"),
    "TaskGovernance.fair_share": (EKS, {"eks.task_governance.fair_share": False}, "eks.task_governance.fair_share"),
    "TaskGovernance.idle_resource_sharing": (EKS, {"eks.task_governance.idle_resource_sharing": False}, "eks.task_governance.idle_resource_sharing"),
    "TaskClass.name": (EKS, {"eks.task_governance.priority_classes.1.name": "other"}, "eks.task_governance.priority_classes[other]"),
    "TaskClass.weight": (EKS, {"eks.task_governance.priority_classes.0.weight": 99}, "eks.task_governance.priority_classes[inference]"),
    "Team.name": (EKS, {"teams.0.name": "renamed"}, "teams[renamed]"),
    "Team.quota": (EKS, {"teams.0.quota": {"ml.p5.48xlarge": 5}}, "teams[research].quota"),
    "Team.borrow_limit": (EKS, {"teams.0.borrow_limit": 60}, "teams[research].borrow_limit"),
    "Team.absolute_borrow_limits": (EKS, {"teams.1.absolute_borrow_limits": {"ml.p5.48xlarge": 2}}, "teams[inference].absolute_borrow_limits"),
    "Team.lend": (EKS, {"teams.1.lend": False, "teams.1.absolute_borrow_limits": {}}, "teams[inference].lend"),
    "Team.preempt_team_tasks": (EKS, {"teams.0.preempt_team_tasks": "never"}, "teams[research].preempt_team_tasks"),
    "Share.accelerators": (EKS, {"teams.0.quota": {"ml.p5.48xlarge": {"accelerators": 4}}}, "teams[research].quota"),
    "Share.vcpus": (EKS, {"teams.0.quota": {"ml.p5.48xlarge": {"vcpus": 96}}}, "teams[research].quota"),
    "Share.memory_gib": (EKS, {"teams.0.quota": {"ml.p5.48xlarge": {"memory_gib": 900}}}, "teams[research].quota"),
    "Share.accelerator_partition": (EKS, {"teams.0.quota": PARTITIONS}, "teams[research].quota"),
    "AcceleratorPartition.type": (EKS, {"teams.0.quota": PARTITIONS}, "teams[research].quota"),
    "AcceleratorPartition.count": (EKS, {"teams.0.quota": PARTITIONS}, "teams[research].quota"),
    "Team.work": (EKS, {"teams.0.work": ["training"]}, "teams[research].work"),
    "Team.see_nodes": (EKS, {"teams.0.see_nodes": True}, "teams[research].see_nodes"),
    "Team.hard": (EKS, {"teams.0.hard": {"secrets": "500"}}, "teams[research].hard"),
    "Team.namespace": (EKS, {"eks.add_ons.task_governance.enabled": False, "eks.task_governance": REMOVED, "teams.0.namespace": "other"}, "teams[research].namespace"),
    "Team.pod_security": (EKS, {"teams.0.pod_security": "restricted"}, "teams[research].pod_security"),
    "Team.role_arns": (EKS, {"teams.0.role_arns": []}, "teams[research].role_arns"),
    "Team.pod_role_arn": (EKS, {"teams.1.pod_role_arn": "arn:aws:iam::111122223333:role/pods"}, "teams[inference].pod_role_arn"),
    "Team.priority_classes": (EKS, {"teams.1.priority_classes": ["urgent"]}, "teams[inference].priority_classes"),
    "Team.patch_workloads": (EKS, {"teams.0.patch_workloads": True}, "teams[research].patch_workloads"),
    "Team.fair_share_weight": (EKS, {"teams.0.fair_share_weight": 40}, "teams[research].fair_share_weight"),
    "Team.default_vcpus": (EKS, {"teams.0.default_vcpus": 2}, "teams[research].default_vcpus"),
    "Team.default_memory_gib": (EKS, {"teams.0.default_memory_gib": 8}, "teams[research].default_memory_gib"),
    "StorageConfig.capacity_gib": (EKS, {"storage.capacity_gib": 2400}, "storage.capacity_gib"),
    "StorageConfig.throughput_mbps_per_tib": (EKS, {"storage.throughput_mbps_per_tib": 500}, "storage.throughput_mbps_per_tib"),
    "StorageConfig.efa": (EVERYTHING, {"storage.efa": False}, "storage.efa"),
    "StorageConfig.metadata_iops": (EVERYTHING, {"storage.metadata_iops": 24000}, "storage.metadata_iops"),
    "StorageConfig.automatic_backup_retention_days": (EKS, {"storage.automatic_backup_retention_days": 7}, "storage.automatic_backup_retention_days"),
    "StorageConfig.data_repositories": (EVERYTHING, {"storage.data_repositories.3": {"file_system_path": "/more"}}, "storage.data_repositories[/more]"),
    "StorageConfig.mount_path": (EXISTING, {"storage.mount_path": "/shared"}, "storage.mount_path"),
    "StorageConfig.file_system_id": (EXISTING, {"storage.file_system_id": "fs-0aaaaaaaaaaaaaaaa"}, "storage.file_system_id"),
    "StorageConfig.mount_name": (EXISTING, {"storage.mount_name": "other"}, "storage.mount_name"),
    "StorageConfig.security_group_id": (EXISTING, {"storage.security_group_id": "sg-0aaaaaaaaaaaaaaaa"}, "storage.security_group_id"),
    "StorageConfig.availability_zone": (EXISTING, {"storage.availability_zone": REMOVED}, "storage.availability_zone"),
    "StorageConfig.openzfs": (EXISTING, {"storage.openzfs": {"file_system_id": "fs-0bbbbbbbbbbbbbbbb"}}, "storage.openzfs"),
    "DataRepository.file_system_path": (EVERYTHING, {"storage.data_repositories.0.file_system_path": "/other"}, "storage.data_repositories[/other]"),
    "DataRepository.bucket_name": (EVERYTHING, {"storage.data_repositories.2.bucket_name": "another-bucket-of-ours"}, "storage.data_repositories[/theirs].bucket_name"),
    "DataRepository.prefix": (EVERYTHING, {"storage.data_repositories.1.prefix": "other"}, "storage.data_repositories[/checkpoints].prefix"),
    "DataRepository.auto_import": (EVERYTHING, {"storage.data_repositories.0.auto_import": ["new"]}, "storage.data_repositories[/data].auto_import"),
    "DataRepository.auto_export": (EVERYTHING, {"storage.data_repositories.0.auto_export": ["new"]}, "storage.data_repositories[/data].auto_export"),
    "OpenZfsConfig.file_system_id": (EVERYTHING, {"storage.openzfs.file_system_id": "fs-0aaaaaaaaaaaaaaaa"}, "storage.openzfs.file_system_id"),
    "OpenZfsConfig.mount_path": (EVERYTHING, {"storage.openzfs.mount_path": "/homes", "users.1.home": "/homes/bob"}, "storage.openzfs.mount_path"),
    "OpenZfsConfig.security_group_id": (EVERYTHING, {"storage.openzfs.security_group_id": "sg-0aaaaaaaaaaaaaaaa"}, "storage.openzfs.security_group_id"),
    "TieredStorageConfig.instance_memory_allocation_percentage": (EVERYTHING, {"tiered_storage.instance_memory_allocation_percentage": 50}, "tiered_storage.instance_memory_allocation_percentage"),
    "LifecycleConfig.mode": (EVERYTHING, {"lifecycle.mode": "extended"}, "lifecycle.mode"),
    "LifecycleConfig.scripts": (EVERYTHING, {"lifecycle.scripts": REMOVED}, "lifecycle.scripts"),
    "LifecycleConfig.scripts_before": ("drained", {"lifecycle.scripts_before": AGENT}, "lifecycle.scripts_before"),
    "LifecycleConfig.scripts_after": ("drained", {"lifecycle.scripts_after": AGENT}, "lifecycle.scripts_after"),
    "LifecycleConfig.script_minutes": ("drained", {"lifecycle.script_minutes": 20}, "lifecycle.script_minutes"),
    "LifecycleConfig.on_script_failure": ("drained", {"lifecycle.on_script_failure": "continue"}, "lifecycle.on_script_failure"),
    "LifecycleConfig.writers": (EVERYTHING, {"lifecycle.writers": []}, "lifecycle.writers"),
    **{
        f"LifecycleSteps.{field.name}": (EVERYTHING, {f"lifecycle.steps.{field.name}": field.name == "slurm"}, f"lifecycle.steps.{field.name}")
        for field in dataclasses.fields(LifecycleSteps)
    },
    "Group.name": (EVERYTHING, {"groups.1.name": "other", "users.0.groups": ["other"]}, "groups[other]"),
    "Group.gid": (EVERYTHING, {"groups.1.gid": 5009}, "groups[gpu-users]"),
    "User.name": (EVERYTHING, {"users.1.name": "robert", "slurm.accounts.0.users": ["alice"]}, "users[robert]"),
    "User.uid": (EVERYTHING, {"users.1.uid": 5009}, "users[bob]"),
    "User.group": (EVERYTHING, {"users.1.group": "gpu-users"}, "users[bob]"),
    "User.groups": (EVERYTHING, {"users.1.groups": ["gpu-users"]}, "users[bob]"),
    "User.home": (EVERYTHING, {"users.1.home": REMOVED}, "users[bob]"),
    "User.ssh_public_keys": (EVERYTHING, {"users.0.ssh_public_keys": []}, "users[alice]"),
    "SlurmConfig.accounting_database": (EVERYTHING, {"slurm.accounting_database": REMOVED}, "slurm.accounting_database"),
    "SlurmConfig.accounts": (EVERYTHING, {"slurm.accounts.1": {"name": "second"}}, "slurm.accounts[second]"),
    "SlurmConfig.partitions": ("drained", {"slurm.partitions": {"gpu": {"default": True}}}, "slurm.partitions[gpu]"),
    "SlurmConfig.qos": ("drained", {"slurm.qos": [{"name": "low"}]}, "slurm.qos[low]"),
    "SlurmConfig.conf": ("drained", {"slurm.conf": {"slurm": f"{HOOKS}/extra.conf"}}, "slurm.conf"),
    "SlurmConfig.prolog": ("drained", {"slurm.prolog": f"{HOOKS}/prolog.d"}, "slurm.prolog"),
    "SlurmConfig.epilog": ("drained", {"slurm.epilog": f"{HOOKS}/prolog.d"}, "slurm.epilog"),
    "SlurmConfig.hook_seconds": ("queued", {"slurm.hook_seconds": 30}, "slurm.hook_seconds"),
    "SlurmConfig.keep_state": ("drained", {"slurm.keep_state": False}, "slurm.keep_state"),
    "SlurmPartition.default": ("queued", {"slurm.partitions.gpu.default": True}, "slurm.partitions[gpu]"),
    "SlurmPartition.max_time_minutes": ("queued", {"slurm.partitions.gpu.max_time_minutes": 61}, "slurm.partitions[gpu]"),
    "SlurmPartition.priority_tier": ("queued", {"slurm.partitions.gpu.priority_tier": 2}, "slurm.partitions[gpu]"),
    "SlurmPartition.allow_accounts": ("queued", {"slurm.partitions.gpu.allow_accounts": ["research"]}, "slurm.partitions[gpu]"),
    "SlurmPartition.state": ("queued", {"slurm.partitions.gpu.state": "drain"}, "slurm.partitions[gpu]"),
    "SlurmQos.name": ("queued", {"slurm.qos.0.name": "other", "slurm.accounts.0.qos": ["other"]}, "slurm.qos[other]"),
    **{
        f"SlurmQos.{name}": ("queued", {f"slurm.qos.0.{name}": 9}, "slurm.qos[low]")
        for name in ("priority", "max_jobs", "grp_nodes", "max_wall_minutes")
    },
    "SlurmQos.preempts": ("queued", {"slurm.qos.0.preempts": ["normal"]}, "slurm.qos[low]"),
    "SlurmQos.preempt_mode": ("queued", {"slurm.qos.0.preempt_mode": "cancel"}, "slurm.qos[low]"),
    **{
        f"SlurmFiles.{name}": ("queued", {f"slurm.conf.{name}": f"{HOOKS}/./extra.conf"}, f"slurm.conf.{name}")
        for name in ("slurm", "gres", "cgroup", "job_container")
    },
    "SlurmFiles.job_submit": ("queued", {"slurm.conf.job_submit": LUA}, "slurm.conf.job_submit"),
    "SlurmAccount.qos": ("queued", {"slurm.accounts.0.qos": ["normal"]}, "slurm.accounts[research]"),
    "SlurmConfig.metadata_users": ("drained", {"slurm.metadata_users": []}, "slurm.metadata_users"),
    "SlurmConfig.drain": (EVERYTHING, {"slurm.drain": {}}, "slurm.drain"),
    "AccountingDatabase.endpoint": (EVERYTHING, {"slurm.accounting_database.endpoint": "other.us-west-2.rds.amazonaws.com"}, "slurm.accounting_database.endpoint"),
    "AccountingDatabase.secret_arn": (EVERYTHING, {"slurm.accounting_database.secret_arn": "arn:aws:secretsmanager:us-west-2:111122223333:secret:other-AbCdEf"}, "slurm.accounting_database.secret_arn"),
    "AccountingDatabase.port": (EVERYTHING, {"slurm.accounting_database.port": 3308}, "slurm.accounting_database.port"),
    "AccountingDatabase.name": (EVERYTHING, {"slurm.accounting_database.name": "other"}, "slurm.accounting_database.name"),
    **{
        f"SlurmAccount.{name}": (EVERYTHING, {f"slurm.accounts.0.{name}": 9}, "slurm.accounts[research]")
        for name in ("fairshare", "grp_nodes", "grp_gpus", "grp_jobs", "grp_submit_jobs", "max_jobs", "max_submit_jobs", "max_wall_minutes")
    },
    "SlurmAccount.name": (EVERYTHING, {"slurm.accounts.0.name": "other"}, "slurm.accounts[other]"),
    "SlurmAccount.users": (EVERYTHING, {"slurm.accounts.0.users": ["alice"]}, "slurm.accounts[research]"),
    "DrainAgentConfig.backup": ("drained", {"slurm.drain.backup": {"paths": ["/opt/a"], "to": "/shared/backup"}}, "slurm.drain.backup"),
    "DrainAgentConfig.operators": ("drained", {"slurm.drain.operators": ["arn:aws:iam::111122223333:role/ops"]}, "slurm.drain.operators"),
    "DrainBackup.paths": ("saved", {"slurm.drain.backup.paths": ["/opt/b"]}, "slurm.drain.backup.paths"),
    "DrainBackup.to": ("saved", {"slurm.drain.backup.to": "/shared/other"}, "slurm.drain.backup.to"),
    "DrainBackup.on_unsavable": ("saved", {"slurm.drain.backup.on_unsavable": "skip"}, "slurm.drain.backup.on_unsavable"),
    "DrainBackup.hook": ("saved", {"slurm.drain.backup": {"hook": "/shared/admin/save-node"}}, "slurm.drain.backup.hook"),
    "DrainBackup.timeout_minutes": ("saved", {"slurm.drain.backup.timeout_minutes": 15}, "slurm.drain.backup.timeout_minutes"),
    "DrainBackup.on_failure": ("saved", {"slurm.drain.backup.on_failure": "continue"}, "slurm.drain.backup.on_failure"),
    "ScaleDownConfig.nodes_to_delete": (EVERYTHING, {"scale_down.nodes_to_delete": []}, "scale_down.nodes_to_delete"),
    "ScaleDownConfig.instance_groups_to_delete": (EVERYTHING, {"scale_down.instance_groups_to_delete": ["other"]}, "scale_down.instance_groups_to_delete"),
    "ScaleDownConfig.max_nodes": (EVERYTHING, {"scale_down.max_nodes": 41}, "scale_down.max_nodes"),
    "ScaleDownConfig.drain": ("drained", {"scale_down.drain": {}}, "scale_down.drain"),
    **{
        f"ScaleDownDrain.{name}": ("asked", {f"scale_down.drain.{name}": value}, f"scale_down.drain.{name}")
        for name, value in {"timeout_minutes": 7, "on_timeout": "force", "on_silent": "undrained"}.items()
    },
    "ScaleDownDrain.backup_cron_job": (EKS, {"scale_down.drain.backup_cron_job": "hyperpod-backup/other"}, "scale_down.drain.backup_cron_job"),
    "ScaleDownDrain.unmanaged_pods": (EKS, {"scale_down.drain.unmanaged_pods": "evict"}, "scale_down.drain.unmanaged_pods"),
    "ScaleDownConfig.retry": (EVERYTHING, {"scale_down.retry": "third attempt"}, "scale_down.retry"),
    "MonitoringConfig.topic_arn": (EVERYTHING, {"monitoring.topic_arn": "arn:aws:sns:us-west-2:111122223333:oncall", "monitoring.emails": REMOVED}, "monitoring.topic_arn"),
    "MonitoringConfig.emails": (EVERYTHING, {"monitoring.emails": ["night@example.com"]}, "monitoring.emails"),
    **{
        f"MonitoringConfig.{name}": (EVERYTHING, {f"monitoring.{name}": 7}, f"monitoring.{name}")
        for name in ("below_minimum_minutes", "missing_nodes_hours", "training_plan_days", "free_storage_percent")
    },
}  # fmt: skip
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "scaled": (EKS, {"eks.autoscaling": {"instance_groups": ["p5"]}, "instance_groups.1.min_instance_count": REMOVED}),
    "scheduled": (
        EKS,
        {
            "instance_groups.1.scheduled_update": {"schedule": "cron(30 12 15 * ? *)"},
            "instance_groups.1.rolling": {"batch_nodes": 2},
        },
    ),
    "without keys": (EVERYTHING, {"encrypt_root_volumes": False, "instance_groups.0.ebs_volumes": REMOVED}),
    "drained": (EVERYTHING, {"lifecycle": REMOVED, "slurm.drain": {}}),
    "asked": (EVERYTHING, {"lifecycle": REMOVED, "slurm.drain": {}, "scale_down.drain": {}}),
    "queued": (
        EVERYTHING,
        {
            "lifecycle": REMOVED,
            "slurm.partitions": {"gpu": {"max_time_minutes": 60}},
            "slurm.qos": [{"name": "low"}],
            "slurm.accounts.0.qos": ["low"],
            "slurm.conf": {"slurm": f"{HOOKS}/extra.conf"},
            "slurm.prolog": f"{HOOKS}/prolog.d",
        },
    ),
    "saved": (
        EVERYTHING,
        {"lifecycle": REMOVED, "slurm.drain": {"backup": {"paths": ["/opt/a"], "to": "/shared/backup"}}},
    ),
}


def data_of(base: str) -> Json:
    if base in VARIANTS:
        name, edits = VARIANTS[base]
        return edited(edits, data_of(name))
    return copy.deepcopy(_data_of_file(base))


@cache
def _data_of_file(base: str) -> Json:
    data: Json = yaml.safe_load((CONFIGS / f"{base}.yaml").read_text("utf-8"))
    return data


def config_of(data: Json) -> ClusterConfig:
    findings: list[Finding] = []
    config = structure(ClusterConfig, data, findings)
    assert not findings, findings
    return config


KINDS = {kind.__name__: kind for kind in places(ClusterConfig)}


def entry_of(setting: str) -> Any:
    kind, _, name = setting.partition(".")
    return change_of(KINDS[kind], name)


def settings(*effects: str) -> list[str]:
    return [setting for setting in CASES if entry_of(setting).effect in effects]


# -- the changes beside the settings ---------------------------------------------------------------------------------------------------------


def test_every_setting_has_a_change_or_settings_in_it_that_have_one() -> None:
    without = [
        name
        for kind in KINDS.values()
        for name, annotation in field_types(kind).items()
        if change_of(kind, name) is None and not isinstance(shape(annotation).form, Fields)
    ]

    assert not without


def test_a_setting_that_may_be_absent_has_a_change_unless_its_defaults_are_what_absence_means() -> None:
    optional = [
        f"{kind.__name__}.{field.name}"
        for kind in KINDS.values()
        for field in dataclasses.fields(kind)
        if field.default is None and change_of(kind, field.name) is None
    ]

    assert optional == ["ClusterConfig.lifecycle", "ClusterConfig.slurm", "ClusterConfig.scale_down"]


def test_every_setting_with_a_change_is_changed_below() -> None:
    assert {*CASES} >= {
        f"{kind.__name__}.{name}" for kind in KINDS.values() for name in field_types(kind) if change_of(kind, name)
    }


@pytest.mark.parametrize("setting", CASES)
def test_a_changed_setting_is_listed_with_its_own_effect_only(setting: str) -> None:
    base, edits, path = CASES[setting]
    before, after = config_of(data_of(base)), config_of(edited(edits, data_of(base)))
    found = {each.path: each for each in changed(record(before), record(after))}

    assert path in found, [*found]
    assert len(found) <= 6, "little else follows from one change"
    told, entry = found[path], entry_of(setting)
    if told.path.endswith("]") and not path.startswith(
        ("users", "groups", "slurm.accounts", "slurm.qos", "slurm.partitions", "eks.task_governance")
    ):
        # What names an item has no change of its own: the old item goes, and another one comes.
        assert told.kind in ("added", "removed")
    elif setting not in ("EksConfig.dependencies_chart_digest",):
        assert told.effect in {entry.effect, "deletes nodes" if entry.deletion else entry.effect}
    assert told.effect in EFFECTS and str(told).startswith(f"{path}:")
    assert not changed(record(after), record(after)), "a file does not differ from itself"


def test_a_record_survives_the_template() -> None:
    for base in (EVERYTHING, EKS, EXISTING):
        template = templates(base)[f"hyperpod-{data_of(base)['name']}-cluster"]
        (kept,) = [each["Metadata"][METADATA] for each in template.resources.values() if METADATA in each.get("Metadata", {})]  # fmt: skip

        assert kept == json.loads(json.dumps(record(config_of(data_of(base)))))


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        pytest.param({"storage.capacity_gib": 2400}, {"storage.capacity_gib": 4800}, "in place", id="it grows"),
        pytest.param({"storage.capacity_gib": 4800}, {"storage.capacity_gib": 2400}, "refused", id="it shrinks"),
        pytest.param({"network.availability_zones": ["a", "b"]}, {"network.availability_zones": ["a"]}, "in place", id="the second zone"),
        pytest.param({"network.subnets": ["a"]}, {"network.subnets": ["a", "b"]}, "in place", id="a second subnet"),
        pytest.param({"eks.kubernetes_version": "1.34"}, {"eks.kubernetes_version": "1.35"}, "in place", id="up"),
        pytest.param({"instance_groups[a]": True}, {}, "refused", id="a dropped group"),
        pytest.param({"instance_groups[a].instance_count": 2}, {"instance_groups[a].instance_count": 1}, "deletes nodes", id="a lower count"),
        pytest.param({"instance_groups[a].instance_count": 1}, {"instance_groups[a].instance_count": 2}, "in place", id="a higher count"),
        pytest.param({"scale_down.nodes_to_delete": ["i-a"]}, {"scale_down.nodes_to_delete": ["i-a", "i-b"]}, "deletes nodes", id="another node"),
        pytest.param({"scale_down.nodes_to_delete": ["i-a", "i-b"]}, {"scale_down.nodes_to_delete": ["i-a"]}, "in place", id="a node less"),
        pytest.param({"scale_down.nodes_to_delete": ["i-a"]}, {"scale_down.nodes_to_delete": "sha256:0"}, "deletes nodes", id="many nodes"),
        pytest.param({"scale_down.nodes_to_delete": "sha256:0"}, {}, "in place", id="no nodes any more"),
        pytest.param({"of.another.release": 1}, {}, None, id="unknown here"),
    ],
)  # fmt: skip
def test_the_same_setting_may_change_in_two_ways(old: Json, new: Json, effect: str | None) -> None:
    assert [each.effect for each in changed(old, new)] == ([effect] if effect else [])


@pytest.mark.parametrize("names", [["a"], [*(f"a-group-of-a-long-name-{n}" for n in range(9)), "a"]], ids=["1", "10"])
def test_a_dropped_group_that_is_to_be_deleted_ends_nodes(names: list[str]) -> None:
    """However many are named, which a record keeps whole."""
    before = config_of(data_of(EVERYTHING))
    after = config_of(edited({"scale_down.instance_groups_to_delete": names}, data_of(EVERYTHING)))
    found = {each.path: each for each in changed({**record(before), "instance_groups[a]": True}, record(after))}

    assert found["instance_groups[a]"].effect == "deletes nodes"
    assert str(found["instance_groups[a]"]).endswith("removed; the group is deleted with all its nodes")


def test_synthesis_lists_the_settings_that_changed_against_a_given_file(tmp_path: Path) -> None:
    before, after = tmp_path / "before.yaml", tmp_path / "cluster.yaml"
    text = (CONFIGS.parents[2] / "cluster.yaml").read_text("utf-8")
    before.write_text(text, "utf-8")
    after.write_text(
        text.replace("node_recovery: automatic", "") + "\nnode_recovery: none\nlog_retention_days: 30\n", "utf-8"
    )
    app = new_app(against="before.yaml")
    cluster = add_stacks(app, load_config(after))

    said = [entry.data for entry in cluster.node.metadata if entry.type == "aws:cdk:info"]
    assert [text.partition(" [ack")[0] for text in said] == [
        "in place: node_recovery: automatic → none",
        "in place: log_retention_days: 365 → 30",
    ]
    assert templates_in(folder_of(app)).keys() == of_file(after).keys()


# -- what a deployment does -------------------------------------------------------------------------------------------


@cache
def templates(base: str) -> Mapping[str, Any]:
    return made(data_of(base))


def made(data: Json) -> Mapping[str, Any]:
    app = new_app()
    config = config_of(data)
    raise_errors([*check_cluster(config)])
    add_stacks(app, LoadedConfig(config=config, warnings=(), folder=CONFIGS))
    return templates_in(folder_of(app))


def cluster_of(made: Mapping[str, Any], name: str) -> Json:
    resolved: Json = deployed(made[f"hyperpod-{name}-cluster"].only("AWS::SageMaker::Cluster"))
    return resolved


def deployed(value: Any, key: str = "") -> Any:
    """A part of a template with something of the right form in the place of each reference, the same for the same one."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref")):
        return _stand_in(key, hashlib.sha256(flat(value).encode() if isinstance(flat(value), str) else b"").hexdigest())
    if isinstance(value, dict):
        return {name: deployed(item, name) for name, item in value.items()}
    return [deployed(item, key) for item in value] if isinstance(value, list) else value


def _stand_in(key: str, digest: str) -> Any:
    number = digest[:17]
    return {
        "Subnets": f"subnet-{number}",
        "SecurityGroupIds": f"sg-{number}",
        "ExecutionRole": f"arn:aws:iam::111122223333:role/{number}",
        "ClusterRole": f"arn:aws:iam::111122223333:role/{number}",
        "VolumeKmsKeyId": f"arn:aws:kms:us-west-2:111122223333:key/{number}",
        "SourceS3Uri": f"s3://sagemaker-scripts/{number}",
        "DnsName": f"fs-{number}.fsx.us-west-2.amazonaws.com",
        "MountName": number[:8],
        "ClusterArn": f"arn:aws:eks:us-west-2:111122223333:cluster/{number}",
    }.get(key, number)


class Deployment:
    """A cluster of a template on the local AWS's model, and updates of it."""

    def __init__(self, properties: Json) -> None:
        self.clock = ManualClock()
        self.model = HyperPod(clock=self.clock, seed=1)
        self.handler = ClusterHandler(self.model)
        self.properties = properties
        self.live = self._finish(self.handler.start("create", properties=properties))
        self._settle()

    def update(self, properties: Json) -> Progress:
        done = self._finish(
            self.handler.start("update", properties=properties, old_properties=self.properties, physical_id=self.live.physical_id)
        )  # fmt: skip
        self._settle()
        return done

    def nodes(self) -> dict[str, str | None]:
        return {node.logical_id: node.instance_id for node in self.model.nodes(self.properties["ClusterName"])}

    def _finish(self, progress: Progress) -> Progress:
        for _ in range(2_000):
            progress = self.handler.poll(progress)
            if progress.status != "pending":
                return progress
            self.clock.advance(60)
        raise AssertionError(progress)

    def _settle(self) -> None:
        for _ in range(20):
            self.clock.advance(3600)
            self.model.tick()


def all_of(effect: str) -> Iterator[tuple[str, list[str]]]:
    """The file, and the settings of one effect that are changed in it together."""
    by_base: dict[str, list[str]] = {}
    for setting in settings(effect):
        by_base.setdefault(CASES[setting][0], []).append(setting)
    yield from by_base.items()


# Of those that exclude each other, or that name one thing twice, each is changed in another deployment.
SECOND = {
    *{"AddOn.version", "ClusterConfig.teams", "EksConfig.dependencies_chart", "EksConfig.image_registry", "Group.name"},
    *{
        "EksConfig.public_access_cidrs",
        "LifecycleConfig.scripts",
        "MonitoringConfig.topic_arn",
        "Rolling.batch_percent",
    },
    *{
        "NetworkConfig.internet_egress",
        "NetworkConfig.trusted_accounts",
        "OpenZfsConfig.mount_path",
        "SlurmAccount.name",
    },
    *{"SlurmConfig.accounting_database", "StorageConfig.automatic_backup_retention_days", "StorageConfig.mount_name"},
    *{"SubnetConfig.availability_zone", "Taint.key", "TaskClass.name", "User.name"},
}
THIRD = {"EksConfig.dependencies_chart_digest", "NetworkConfig.organization_id"}
# What their cases make of the file is refused by its check, for another setting that would have to change too.
NOT_DEPLOYED = {"AutoscalingConfig.instance_groups", "EksConfig.autoscaling", "SlurmConfig.drain"}


def deployments() -> Iterator[Any]:
    """Every setting that ends no node, in at most three deployments of its file."""
    for effect in ("in place", "new nodes only"):
        for base, every in all_of(effect):
            first = {*every} - SECOND - THIRD - NOT_DEPLOYED
            for name, some in {"first": first, "second": SECOND, "third": THIRD}.items():
                if together := [setting for setting in every if setting in some]:
                    yield pytest.param(effect, base, together, id=f"{effect}-{base}-{name}")


@pytest.mark.parametrize(("effect", "base", "some"), [*deployments()])
def test_no_node_ends_where_the_table_says_that_none_does(effect: str, base: str, some: list[str]) -> None:
    before = data_of(base)
    after = copy.deepcopy(before)
    for setting in some:
        after = edited(CASES[setting][1], after)
    old, new = cluster_of(templates(base), before["name"]), cluster_of(made(after), before["name"])
    assert replacement_reasons(old, new) == ()

    deployment = Deployment(old)
    ids = deployment.nodes()
    done = deployment.update(new)

    assert (done.status, done.message) == ("done", "")
    assert {*ids.values()} <= {*deployment.nodes().values()}, "every node is there as it was"
    assert deployment.model.terminations == ()
    if effect == "new nodes only":
        changed_groups = [a for a, b in zip(old["InstanceGroups"], new["InstanceGroups"], strict=True) if a != b]
        assert changed_groups, "something of what new nodes get is another one"


@pytest.mark.parametrize("setting", settings("refused"))
def test_a_change_that_the_table_refuses_fails_and_deletes_no_node(setting: str) -> None:
    base, edits, _ = CASES[setting]
    data, after = data_of(base), edited(edits, data_of(base))
    if setting in BY_AWS:
        assert BY_AWS[setting] in entry_of(setting).says
        return
    before, wanted = config_of(data), config_of(after)
    if why := [
        each.path for each in differences(immutable_settings(wanted, "s"), standing(immutable_settings(before, "s")))
    ]:
        assert why == [BY_GUARD[setting]]
        return
    if setting in BY_PLANNER:
        # CloudFormation would end nodes: the deployment's own guard looks first, and refuses it (tests/unit/scale_down).
        assert BY_PLANNER[setting]
        return
    old = cluster_of(templates(base), data["name"])
    deployment = Deployment(old)
    ids = deployment.nodes()
    done = deployment.update(old | with_one_change(setting, old))

    assert done.status == "failed", done
    assert deployment.nodes() == ids
    assert deployment.model.terminations == ()


def with_one_change(setting: str, old: Json) -> Json:
    """What differs in the cluster's properties. Groups' settings are changed in one template, and taken group by group."""
    base, edits, path = CASES[setting]
    if not path.startswith("instance_groups["):
        return cluster_of(made(edited(edits, data_of(base))), old["ClusterName"])
    new = groups_changed(base)
    name = path.partition("[")[2].partition("]")[0]
    return {"InstanceGroups": [new[name] if group["InstanceGroupName"] == name else group for group in old["InstanceGroups"]]}  # fmt: skip


@cache
def groups_changed(base: str) -> Mapping[str, Json]:
    """The groups of a file, by name, each with the one setting changed that is refused."""
    data = data_of(base)
    for setting in settings("refused"):
        if CASES[setting][0] == base and CASES[setting][2].startswith("instance_groups[") and setting not in BY_PLANNER:
            data = edited(CASES[setting][1], data)
    return {group["InstanceGroupName"]: group for group in cluster_of(made(data), data["name"])["InstanceGroups"]}


# What another service refuses, of which the local AWS's HyperPod knows nothing: the change names the service.
BY_AWS = {
    "EksConfig.kubernetes_version": "EKS",
    "PriorityClass.value": "Kubernetes",
    "PriorityClass.preempts": "Kubernetes",
    "StorageConfig.capacity_gib": "FSx",
}
BY_GUARD = {
    "ClusterConfig.orchestrator": "orchestrator",
    "ClusterConfig.eks": "orchestrator",
    "NetworkConfig.availability_zones": "network.availability_zones",
    "NetworkConfig.cidr": "network",
    "NetworkConfig.vpc_id": "network.vpc_id",
    "NetworkConfig.subnets": "network.subnets",
    "SubnetConfig.subnet_id": "network.subnets",
    "StorageConfig.efa": "storage.efa",
}
BY_PLANNER = {
    "InstanceGroup.name": "unknown_group",
    "ExistingEksCluster.name": "replaced",
    "EksConfig.existing_cluster": "replaced",
}


def standing(before: ImmutableSettings) -> Live:
    """What stands where these settings were deployed."""
    subnet = Subnet(
        id=before.subnet_id or "subnet-1", zone=before.zone or "us-west-2a", zone_id=before.zone or "usw2-az1",
        cidr=before.cidr or "10.20.0.0/20", vpc="vpc-1", made_here=before.subnet_id is None,
    )  # fmt: skip
    return Live(orchestrator=before.orchestrator, cluster_subnet=subnet, efa=before.efa)
