"""Security groups: a closed one, and rules that allow traffic from one group to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnTag, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge

if TYPE_CHECKING:
    from .network import HyperPodNetwork

# AWS adds a rule for all traffic to a security group without an egress rule. This one allows nothing.
_NO_EGRESS = ec2.CfnSecurityGroup.EgressProperty(ip_protocol="-1", cidr_ip="127.0.0.1/32", description="No egress")


def closed_security_group(
    scope: Construct, construct_id: str, network: HyperPodNetwork, description: str, part: str
) -> ec2.CfnSecurityGroup:
    """A security group that allows no traffic. `part`: the end of its Name tag, after the stack's name."""
    return ec2.CfnSecurityGroup(
        scope,
        construct_id,
        group_description=description,
        vpc_id=network.vpc_id,
        security_group_egress=[_NO_EGRESS],
        tags=[CfnTag(key="Name", value=f"{Stack.of(scope).stack_name}/{part}")],
    )


def allow_tcp(
    scope: Construct, construct_id: str, from_group: str, to_group: str, low: int, high: int, description: str
) -> tuple[ec2.CfnSecurityGroupIngress, ec2.CfnSecurityGroupEgress]:
    """Allow TCP from one security group to another. The rules are resources, so that either group can be deleted without the other."""
    ingress = ec2.CfnSecurityGroupIngress(
        scope,
        construct_id + "In",
        group_id=to_group,
        source_security_group_id=from_group,
        ip_protocol="tcp",
        from_port=low,
        to_port=high,
        description=description,
    )
    egress = ec2.CfnSecurityGroupEgress(
        scope,
        construct_id + "Out",
        group_id=from_group,
        destination_security_group_id=to_group,
        ip_protocol="tcp",
        from_port=low,
        to_port=high,
        description=description,
    )
    return ingress, egress


def allow_all(
    scope: Construct, construct_id: str, from_group: str, to_group: str, description: str
) -> tuple[ec2.CfnSecurityGroupIngress, ec2.CfnSecurityGroupEgress]:
    """Allow all traffic from one security group to another. The rules name groups, as EFA requires."""
    ingress = ec2.CfnSecurityGroupIngress(
        scope,
        construct_id + "In",
        group_id=to_group,
        source_security_group_id=from_group,
        ip_protocol="-1",
        description=description,
    )
    egress = ec2.CfnSecurityGroupEgress(
        scope,
        construct_id + "Out",
        group_id=from_group,
        destination_security_group_id=to_group,
        ip_protocol="-1",
        description=description,
    )
    acknowledge(ingress, reasons.ALL_TRAFFIC)
    return ingress, egress
