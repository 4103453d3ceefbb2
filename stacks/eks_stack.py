"""The stack of the EKS cluster that the nodes join, with everything that must be in it before the first node."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment
from constructs import Construct

from cdk_hyperpod import LoadedConfig
from cdk_hyperpod.eks import EksControlPlane, EksDrainer
from cdk_hyperpod.names import eks_stack_name

from .file_stack import FileStack
from .foundation_stack import FoundationStack


class EksStack(FileStack):
    """Control plane, kubectl, add-ons that need no node, HyperPod's Helm chart, and the drainer. It contains no node."""

    def __init__(
        self, scope: Construct, loaded: LoadedConfig, foundation: FoundationStack, *, env: Environment
    ) -> None:
        config = loaded.config
        super().__init__(
            scope,
            eks_stack_name(config.name),
            loaded,
            description=f"EKS cluster of HyperPod cluster {config.name}",
            env=env,
        )
        self.add_stack_dependency(foundation)
        self.control_plane = EksControlPlane.from_config(
            self, "Eks", loaded, network=foundation.network, encryption_key=foundation.key
        )
        self.drainer = self._add_drainer(loaded, foundation)
        # Warnings about the nodes appear on the cluster.
        self.warn(loaded.warnings_of("eks"))
        CfnOutput(self, "EksClusterName", value=self.control_plane.cluster_name)

    def _add_drainer(self, loaded: LoadedConfig, foundation: FoundationStack) -> EksDrainer | None:
        scale_down = loaded.config.scale_down
        if scale_down is None or scale_down.drain is None:
            return None
        return EksDrainer.from_config(
            self, "Drainer", loaded, control_plane=self.control_plane, encryption_key=foundation.key
        )
