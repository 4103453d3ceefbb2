"""The account for EKS: the network, roles, keys, and the HyperPod clusters that use its control planes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.resources.ec2_network import Ec2Network
from cdk_hyperpod_local.engine.seam import stores
from cdk_hyperpod_local.engine.services.hyperpod import HyperPodService


class EksAccount(Ec2Network):
    """Implements `services.eks_state.Account` on ministack's EC2, IAM and KMS."""

    def __init__(self, hyperpod: Callable[[], HyperPodService]) -> None:
        self._hyperpod = hyperpod

    def create_group(self, *, vpc_id: str, name: str, description: str) -> str:
        store = stores.ec2_store("security_groups")
        before = set(store)
        stores.ec2_call("CreateSecurityGroup", VpcId=vpc_id, GroupName=name, GroupDescription=description)
        (group,) = set(store) - before
        return str(group)

    def delete_group(self, group_id: str) -> None:
        stores.ec2_store("security_groups").pop(group_id, None)

    def trusts(self, role_arn: str, service: str) -> bool | None:
        return stores.trusts(role_arn, service)

    def principal_exists(self, arn: str) -> bool:
        return arn.split(":")[4] != seam.account() or stores.principal_exists(arn)

    def key_exists(self, arn: str) -> bool:
        return stores.key_exists(arn)

    def hyperpod_clusters(self, arn: str) -> Sequence[str]:
        return self._hyperpod().on_eks.names(arn)

    def running_nodes(self, arn: str) -> int:
        return self._hyperpod().on_eks.running_nodes(arn)
