"""Properties of the cluster's resource in CDK's classes: the orchestrator, tiered storage, and what nodes mount."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_sagemaker as sagemaker

from ..config.cluster import TieredStorageConfig
from ..config.rendering import mount_spec
from ..config.slurm import AccountingDatabase
from ..storage.lustre import LustreMount
from ..storage.openzfs import OpenZfsMount


def orchestrator_property(
    eks_cluster_arn: str | None, database: AccountingDatabase | None
) -> sagemaker.CfnCluster.OrchestratorProperty:
    """Slurm, or the EKS cluster that the nodes join."""
    if eks_cluster_arn is not None:
        return sagemaker.CfnCluster.OrchestratorProperty(
            eks=sagemaker.CfnCluster.ClusterOrchestratorEksConfigProperty(cluster_arn=eks_cluster_arn)
        )
    # No SlurmConfigStrategy: under continuous provisioning the API refuses any.
    return sagemaker.CfnCluster.OrchestratorProperty(
        slurm=sagemaker.CfnCluster.ClusterOrchestratorSlurmConfigProperty(
            accounting_database=None
            if database is None
            else sagemaker.CfnCluster.ClusterAccountingDatabaseProperty(
                endpoint=database.endpoint, secret_arn=database.secret_arn, port=database.port, name=database.name
            )
        )
    )


def tiered_storage_property(
    config: TieredStorageConfig | None,
) -> sagemaker.CfnCluster.TieredStorageConfigProperty | None:
    """Managed tiered checkpointing. None: it is off."""
    if config is None:
        return None
    return sagemaker.CfnCluster.TieredStorageConfigProperty(
        mode="Enable", instance_memory_allocation_percentage=config.instance_memory_allocation_percentage
    )


def node_mounts(lustre: LustreMount | None, openzfs: OpenZfsMount | None) -> list[dict[str, Any]]:
    """What every node mounts."""
    mounts = []
    if lustre is not None:
        mounts.append(mount_spec(dns_name=lustre.dns_name, mount_path=lustre.mount_path, mount_name=lustre.mount_name))
    if openzfs is not None:
        mounts.append(mount_spec(dns_name=openzfs.dns_name, mount_path=openzfs.mount_path, mount_name=None))
    return mounts
