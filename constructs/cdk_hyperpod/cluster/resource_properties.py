"""Properties of the cluster's resource in CDK's classes: orchestrator, autoscaling, tiered storage and mounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_sagemaker as sagemaker

from ..config.cluster import ClusterConfig
from ..config.rendering import mount_spec
from ..config.slurm import AccountingDatabase
from ..config.storage import TieredStorageConfig
from ..storage.lustre import LustreMount
from ..storage.openzfs import OpenZfsMount
from .argument_checks import accounting_database_of


def orchestrator_property(
    config: ClusterConfig, eks_cluster_arn: str | None
) -> sagemaker.CfnCluster.OrchestratorProperty:
    """Slurm, or the EKS cluster that the nodes join."""
    if eks_cluster_arn is not None:
        return sagemaker.CfnCluster.OrchestratorProperty(
            eks=sagemaker.CfnCluster.ClusterOrchestratorEksConfigProperty(cluster_arn=eks_cluster_arn)
        )
    # Without SlurmConfigStrategy: under continuous provisioning the API rejects every value of it.
    return sagemaker.CfnCluster.OrchestratorProperty(
        slurm=sagemaker.CfnCluster.ClusterOrchestratorSlurmConfigProperty(
            accounting_database=_accounting_database_property(accounting_database_of(config))
        )
    )


def _accounting_database_property(
    database: AccountingDatabase | None,
) -> sagemaker.CfnCluster.ClusterAccountingDatabaseProperty | None:
    if database is None:
        return None
    return sagemaker.CfnCluster.ClusterAccountingDatabaseProperty(
        endpoint=database.endpoint, secret_arn=database.secret_arn, port=database.port, name=database.name
    )


def auto_scaling_property(
    autoscaled_groups: Sequence[str],
) -> sagemaker.CfnCluster.ClusterAutoScalingConfigProperty | None:
    """Karpenter, which HyperPod runs. None: no group is autoscaled."""
    if not autoscaled_groups:
        return None
    return sagemaker.CfnCluster.ClusterAutoScalingConfigProperty(mode="Enable", auto_scaler_type="Karpenter")


def tiered_storage_property(
    config: TieredStorageConfig | None,
) -> sagemaker.CfnCluster.TieredStorageConfigProperty | None:
    """Managed tiered checkpointing. None: it is off."""
    if config is None:
        return None
    return sagemaker.CfnCluster.TieredStorageConfigProperty(
        mode="Enable", instance_memory_allocation_percentage=config.instance_memory_allocation_percentage
    )


@dataclass(frozen=True, slots=True)
class NodeMounts:
    """The file systems that every node mounts. None under EKS, where pods mount them through a CSI driver."""

    lustre: LustreMount | None = None
    openzfs: OpenZfsMount | None = None

    def specs(self) -> list[dict[str, Any]]:
        """The mounts as an instance group has them (InstanceStorageConfigs)."""
        specs = []
        if self.lustre is not None:
            lustre = self.lustre
            specs.append(
                mount_spec(dns_name=lustre.dns_name, mount_path=lustre.mount_path, mount_name=lustre.mount_name)
            )
        if self.openzfs is not None:
            specs.append(
                mount_spec(dns_name=self.openzfs.dns_name, mount_path=self.openzfs.mount_path, mount_name=None)
            )
        return specs
