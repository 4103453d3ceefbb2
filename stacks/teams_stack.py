"""What teams work with: add-ons, queues, quotas, access. It holds no node, so nothing in it can cost one."""

from __future__ import annotations

from aws_cdk import Annotations, CrossStackReferences, Environment, ReferenceStrength, Stack
from constructs import Construct

from cdk_hyperpod import LoadedConfig
from cdk_hyperpod.eks import HyperPodAddOns, HyperPodTeams

from .cluster_stack import ClusterStack
from .eks_stack import EksStack
from .foundation_stack import FoundationStack
from .names import teams_stack_name


class TeamsStack(Stack):
    """Comes after the nodes, because its pods need them; when it fails, it rolls back without them."""

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
        name = teams_stack_name(config.name)
        super().__init__(
            scope,
            name,
            stack_name=name,
            env=env,
            description=f"Add-ons and teams of HyperPod cluster {config.name}",
            termination_protection=config.termination_protection,
            analytics_reporting=False,
            tags=dict(config.tags),
        )
        CrossStackReferences.of(self).consume(ReferenceStrength.WEAK)
        for warning in loaded.warnings:
            if warning.path.startswith("teams"):
                Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.topic}", str(warning))
        self.add_stack_dependency(cluster)
        self.add_ons = HyperPodAddOns(
            self,
            "AddOns",
            control_plane=eks.control_plane,
            hyperpod_cluster_arn=cluster.cluster.cluster_arn,
            encryption_key=foundation.key,
            has_file_system=foundation.mount is not None,
        )
        HyperPodTeams(
            self,
            "Teams",
            control_plane=eks.control_plane,
            cluster_name=config.name,
            hyperpod_cluster_arn=cluster.cluster.cluster_arn,
            teams=config.teams,
            instance_groups=config.instance_groups,
            file_system=foundation.mount,
            capacity_gib=None if config.storage is None else config.storage.capacity_gib,
            add_ons=list(self.add_ons.resources.values()),
        )
