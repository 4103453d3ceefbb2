"""kubectl and Helm as functions in the VPC, because the API endpoint is private."""

from __future__ import annotations

import importlib
import typing

from aws_cdk import CfnTag, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, wildcards_of_cdk
from ..errors import HyperPodError
from ..network.network import HyperPodNetwork
from ..network.security_groups import allow_tcp, closed_security_group

# kubectl supports its own minor version of Kubernetes, the one before and the one after.
_LAYER = "aws_cdk.lambda_layer_kubectl_v35"


def kubectl_options(scope: Construct, network: HyperPodNetwork, control_plane: str) -> eks.KubectlProviderOptions:
    """kubectl in the network's subnets, with traffic to the control plane's security group and the endpoints only."""
    network.allow_custom_resources()
    layer: lambda_.ILayerVersion = _layer_module().KubectlV35Layer(scope, "KubectlLayer")
    group = ec2.CfnSecurityGroup(
        scope,
        "Kubectl",
        group_description="Functions that run kubectl and Helm",
        vpc_id=network.vpc_id,
        security_group_egress=[network.outward_rule()],
        tags=[CfnTag(key="Name", value=f"{Stack.of(scope).stack_name}/kubectl")],
    )
    allow_tcp(scope, "KubectlToControlPlane", group.attr_group_id, control_plane, 443, 443, "Kubernetes API")
    if network.endpoint_security_group_id is not None:
        allow_tcp(
            scope,
            "KubectlToEndpoints",
            group.attr_group_id,
            network.endpoint_security_group_id,
            443,
            443,
            "AWS services",
        )
    return eks.KubectlProviderOptions(
        kubectl_layer=layer,
        private_subnets=network.vpc.private_subnets,
        security_groups=[ec2.SecurityGroup.from_security_group_id(scope, "KubectlReference", group.attr_group_id)],
    )


def connect(scope: Construct, network: HyperPodNetwork, control_plane: str) -> None:
    """Allow the nodes to reach the Kubernetes API, and the control plane to reach kubelets and webhooks of add-ons."""
    nodes = network.security_group_id
    allow_tcp(scope, "NodesToControlPlane", nodes, control_plane, 443, 443, "Kubernetes API")
    for low, high, what in ((443, 443, "Webhooks"), (1025, 65535, "Kubelets, webhooks and metrics of pods")):
        ingress, _ = allow_tcp(scope, f"ControlPlaneToNodes{low}", control_plane, nodes, low, high, what)
        acknowledge(ingress, reasons.WEBHOOKS)


def control_plane_security_group(scope: Construct, network: HyperPodNetwork) -> ec2.CfnSecurityGroup:
    """The security group of a new control plane. By itself it allows no traffic."""
    return closed_security_group(
        scope, "ControlPlane", network, "EKS control plane of a HyperPod cluster", "control-plane"
    )


def finish_provider(scope: Construct, key: kms.IKey) -> None:
    """Encrypt the logs of CDK's kubectl functions, reduce their permissions, and acknowledge the findings on the rest."""
    _remove_registry_permissions(scope)
    for child in scope.node.find_all():
        if isinstance(child, logs.CfnLogGroup):
            child.kms_key_id = key.key_arn
            child.retention_in_days = 365
            child.apply_removal_policy(RemovalPolicy.DESTROY)
    acknowledge(scope, {**reasons.KUBECTL, **dict.fromkeys(wildcards_of_cdk(scope), reasons.KUBECTL_INVOKES)})


def _remove_registry_permissions(scope: Construct) -> None:
    """CDK allows the function to read every container registry of the account, for charts from registries. Ours is a file."""
    handler = scope.node.find_child("Handler")
    role = typing.cast(iam.CfnRole, handler.node.find_child("ServiceRole").node.default_child)
    role.managed_policy_arns = [
        iam.ManagedPolicy.from_aws_managed_policy_name(f"service-role/{name}").managed_policy_arn
        for name in ("AWSLambdaBasicExecutionRole", "AWSLambdaVPCAccessExecutionRole")
    ]
    handler.node.try_remove_child("HasEcrPublic")


def _layer_module() -> typing.Any:
    try:
        return importlib.import_module(_LAYER)
    except ModuleNotFoundError:
        raise HyperPodError(
            "kubectl's layer is not installed, and an EKS cluster needs it; install the library's wheel with the extra eks: pip install 'WHEEL[eks]'"
        ) from None
