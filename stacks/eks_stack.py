"""The EKS cluster that the nodes join, with what must be in it before the first of them."""

from __future__ import annotations

from aws_cdk import Annotations, CfnOutput, CrossStackReferences, Environment, ReferenceStrength, Stack
from constructs import Construct

from cdk_hyperpod import LoadedConfig
from cdk_hyperpod.eks import EksControlPlane
from cdk_hyperpod.rules import has_neuron

from .foundation_stack import FoundationStack
from .names import eks_stack_name


class EksStack(Stack):
    """Control plane, kubectl, add-ons that need no node, and HyperPod's Helm chart. No node is in here."""

    def __init__(
        self, scope: Construct, loaded: LoadedConfig, foundation: FoundationStack, *, env: Environment
    ) -> None:
        config = loaded.config
        assert config.eks is not None  # the rules made sure
        name = eks_stack_name(config.name)
        super().__init__(
            scope,
            name,
            stack_name=name,
            env=env,
            description=f"EKS cluster of HyperPod cluster {config.name}",
            termination_protection=config.termination_protection,
            analytics_reporting=False,
            tags=dict(config.tags),
        )
        CrossStackReferences.of(self).consume(ReferenceStrength.WEAK)
        self.add_stack_dependency(foundation)
        self.control_plane = EksControlPlane(
            self,
            "Eks",
            cluster_name=config.name,
            eks_config=config.eks,
            network=foundation.network,
            encryption_key=foundation.key,
            chart_folder=loaded.folder,
            neuron=has_neuron(config.instance_groups),
        )
        for warning in loaded.warnings:
            # Those of the nodes are told where the nodes are.
            if warning.path.startswith("eks.") or warning.topic == "second-zone":
                Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.topic}", str(warning))
        CfnOutput(self, "EksClusterName", value=self.control_plane.cluster_name)
