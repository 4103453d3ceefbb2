"""The cluster and its roles, which can be replaced without touching data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, CfnWaitConditionHandle, Environment
from constructs import Construct

from cdk_hyperpod import HyperPodCluster, ILustreFileSystem, LoadedConfig, ScaleDown
from cdk_hyperpod._common.tags import FOUNDATION_TAG
from cdk_hyperpod.config.changes import METADATA, record
from cdk_hyperpod.names import cluster_stack_name

from .file_stack import FileStack
from .foundation_stack import FoundationStack

if TYPE_CHECKING:
    from .eks_stack import EksStack


class ClusterStack(FileStack):
    """The replaceable stack. It reads the foundation's outputs at deployment, and does not lock them."""

    def __init__(
        self,
        scope: Construct,
        loaded: LoadedConfig,
        foundation: FoundationStack,
        *,
        env: Environment,
        eks: EksStack | None = None,
    ) -> None:
        """`eks`: the stack of the EKS cluster, which is deployed first. None: the cluster is under Slurm."""
        config = loaded.config
        super().__init__(
            scope,
            cluster_stack_name(config.name),
            loaded,
            description=f"HyperPod cluster {config.name} and its roles",
            env=env,
        )
        self.add_stack_dependency(eks or foundation)
        self.cluster = HyperPodCluster.from_config(
            self,
            "Cluster",
            loaded,
            network=foundation.network,
            lifecycle_scripts=foundation.lifecycle_scripts,
            file_system=foundation.file_system,
            openzfs=foundation.openzfs,
            encryption_key=foundation.key,
            eks_cluster_arn=None if eks is None else eks.control_plane.cluster_arn,
            drainer=None if eks is None else eks.drainer,
            # The guard is a sibling of the cluster, because deployed stacks have its logical ids.
            unguarded=True,
        )
        # The template must change with the foundation: the CLI skips a stack with the same template, and CloudFormation skips
        # one in which only metadata changed.
        self.cluster.resource.cdk_tag_manager.set_tag(FOUNDATION_TAG, foundation.digest)
        guard = ScaleDown.from_config(self, "ScaleDown", loaded, cluster=self.cluster)
        if config.monitoring is not None:
            self._add_monitoring(loaded, foundation.file_system)
        # `plan` compares the next file with these settings. A handle costs nothing and does nothing. CloudFormation deploys a change of
        # a resource's metadata, but not of the template's own.
        CfnWaitConditionHandle(self, "Settings").cfn_options.metadata = {METADATA: record(config)}
        CfnOutput(self, "ClusterArn", value=self.cluster.cluster_arn)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(self, "LogGroupName", value=self.cluster.log_group_name)
        # `plan` reads the outputs by these ids, and people do.
        for output in (guard.nodes_taken, guard.still_standing):
            output.override_logical_id(output.node.id)
        self.cluster.log.outcome.override_logical_id("ClusterLog")

    def _add_monitoring(self, loaded: LoadedConfig, file_system: ILustreFileSystem | None) -> None:
        # Only here: a cluster without it has no use for what it imports.
        from cdk_hyperpod import ClusterMonitoring

        monitoring = ClusterMonitoring.from_config(
            self, "Monitoring", loaded, cluster=self.cluster, file_system=file_system
        )
        CfnOutput(self, "AlertsTopicArn", value=monitoring.topic.topic_arn)
        monitoring.outcome.override_logical_id("Alerts")
