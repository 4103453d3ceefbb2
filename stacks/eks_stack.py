"""The EKS cluster that the nodes join, with what must be in it before the first of them."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment
from constructs import Construct

from cdk_hyperpod import LoadedConfig
from cdk_hyperpod.eks import EksControlPlane, EksDrainer
from cdk_hyperpod.names import eks_stack_name

from .file_stack import FileStack
from .foundation_stack import FoundationStack


class EksStack(FileStack):
    """Control plane, kubectl, add-ons that need no node, HyperPod's Helm chart, and what drains nodes. No node is in here."""

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
        drain = None if config.scale_down is None else config.scale_down.drain
        self.drainer = (
            None
            if drain is None
            else EksDrainer.from_config(
                self, "Drainer", loaded, control_plane=self.control_plane, encryption_key=foundation.key
            )
        )
        # Those of the nodes are told where the nodes are.
        self.warn(loaded.warnings_of("eks"))
        CfnOutput(self, "EksClusterName", value=self.control_plane.cluster_name)
