"""The stack of what teams use: add-ons, queues, quotas, access. It contains no node, so its failure costs none."""

from __future__ import annotations

from aws_cdk import Environment
from constructs import Construct

from cdk_hyperpod import LoadedConfig
from cdk_hyperpod.eks import HyperPodAddOns, HyperPodTeams
from cdk_hyperpod.names import teams_stack_name

from .cluster_stack import ClusterStack
from .eks_stack import EksStack
from .file_stack import FileStack
from .foundation_stack import FoundationStack


class TeamsStack(FileStack):
    """It is deployed after the nodes, because its pods need them. If it fails, it rolls back without them."""

    def __init__(
        self,
        scope: Construct,
        loaded: LoadedConfig,
        foundation: FoundationStack,
        eks: EksStack,
        cluster: ClusterStack,
        *,
        env: Environment,
    ) -> None:
        config = loaded.config
        super().__init__(
            scope,
            teams_stack_name(config.name),
            loaded,
            description=f"Add-ons and teams of HyperPod cluster {config.name}",
            env=env,
        )
        self.warn(loaded.warnings_of("teams"))
        self.add_stack_dependency(cluster)
        self.add_ons = HyperPodAddOns.from_config(
            self,
            "AddOns",
            loaded,
            control_plane=eks.control_plane,
            hyperpod_cluster_arn=cluster.cluster.cluster_arn,
            encryption_key=foundation.key,
        )
        teams = HyperPodTeams.from_config(
            self,
            "Teams",
            loaded,
            control_plane=eks.control_plane,
            hyperpod_cluster_arn=cluster.cluster.cluster_arn,
            file_system=foundation.file_system,
            add_ons=list(self.add_ons.resources.values()),
        )
        if eks.drainer is not None:
            # The backup's namespace exists by now, and the add-ons include the CSI driver of its claim.
            eks.drainer.allow_backup(
                self,
                "DrainBackup",
                teams,
                file_system=foundation.file_system,
                capacity_gib=1200 if config.storage is None else config.storage.capacity_gib or 1200,
            )
