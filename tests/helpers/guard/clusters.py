"""A cluster for the guard, and its guard."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_sagemaker as sagemaker

from cdk_hyperpod import ScaleDown

Group = sagemaker.CfnCluster.ClusterInstanceGroupProperty
# As long as the ARN of a role of the cluster's stack.
ROLE = "arn:aws:iam::111122223333:role/hyperpod-train-cluster-ClusterNode605A040B-abcdefghijkl"


def group(number: int = 0, role: str = ROLE) -> Group:
    """A group with most of the possible settings: about a kilobyte."""
    return Group(
        execution_role=role,
        instance_count=8,
        min_instance_count=4,
        instance_group_name=f"workers-{number:03d}",
        instance_type="ml.p5.48xlarge",
        life_cycle_config=sagemaker.CfnCluster.ClusterLifeCycleConfigProperty(
            source_s3_uri="s3://sagemaker-train-111122223333-us-west-2/lifecycle/0123456789abcdef",
            on_create="compute.sh",
        ),
        instance_storage_configs=[
            sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                ebs_volume_config=sagemaker.CfnCluster.ClusterEbsVolumeConfigProperty(
                    volume_size_in_gb=500,
                    volume_kms_key_id="arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-1111-2222-333344445555",
                )
            ),
            sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                fsx_lustre_config=sagemaker.CfnCluster.ClusterFsxLustreConfigProperty(
                    dns_name="fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
                    mount_name="abcdefgh",
                    mount_path="/fsx",
                )
            ),
        ],
        override_vpc_config=sagemaker.CfnCluster.VpcConfigProperty(
            security_group_ids=["sg-0123456789abcdef0"], subnets=["subnet-0123456789abcdef0"]
        ),
        slurm_config=sagemaker.CfnCluster.ClusterSlurmConfigProperty(
            node_type="Compute", partition_names=[f"partition-of-workers-{number:03d}"]
        ),
    )


def cluster_in(stack: Stack, construct_id: str = "Cluster", **properties: Any) -> sagemaker.CfnCluster:
    return sagemaker.CfnCluster(
        stack, construct_id, **{"cluster_name": "train", "instance_groups": [group()], **properties}
    )


def guard(stack: Stack, arguments: dict[str, Any] | None = None, **properties: Any) -> ScaleDown:
    return ScaleDown(stack, "ScaleDown", cluster=cluster_in(stack, **properties), **(arguments or {}))
