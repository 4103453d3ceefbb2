"""The drainer of an EKS cluster leaves its VPC: Lambda unplugs it with the function's role, long after the function is gone."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack

from cdk_hyperpod import (
    EksControlPlane,
    EksDrainer,
    HyperPodNetwork,
    encryption_key,
)
from cdk_hyperpod.config import EksConfig
from helpers.synthesis import of_stack


def _make(stack: Stack) -> None:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    zones = ["us-west-2c", "us-west-2a"]
    network = HyperPodNetwork(stack, "Net", availability_zones=zones, internet_egress=True, log_encryption_key=key)
    config = EksConfig(dependencies_chart="installed")
    control_plane = EksControlPlane(
        stack, "Eks", cluster_name="eks", eks_config=config, network=network, encryption_key=key
    )
    EksDrainer(stack, "Drainer", cluster_name="train", control_plane=control_plane, encryption_key=key)


def test_its_rights_are_deleted_after_its_security_group() -> None:
    groups = of_stack(_make).of("AWS::EC2::SecurityGroup")
    (group,) = (each for name, each in groups.items() if name.startswith("DrainerGroup"))
    assert any(name.startswith("DrainerPolicy") for name in group["DependsOn"])
