"""A cluster of another app: `HyperPodCluster.from_cluster_attributes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from ..interface import IHyperPodCluster, RoleName


class ImportedCluster(IHyperPodCluster):
    """A cluster of another app."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        cluster_name: str,
        cluster_arn: str,
        security_groups: Sequence[ec2.ISecurityGroup],
        roles: Mapping[RoleName, iam.IRole],
    ) -> None:
        super().__init__(scope, construct_id, environment_from_arn=cluster_arn)
        self.cluster_name = cluster_name
        self.cluster_arn = cluster_arn
        self.roles = dict(roles)
        self._groups = list(security_groups)

    def _security_groups(self) -> list[ec2.ISecurityGroup]:
        return self._groups
