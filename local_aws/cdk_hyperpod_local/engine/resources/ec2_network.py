"""The network for FSx: subnets, security groups, and the network interfaces of a file system."""

from __future__ import annotations

from collections.abc import Sequence

from cdk_hyperpod_local.engine.resources.base import Json
from cdk_hyperpod_local.engine.seam import stores


class Ec2Network:
    """Implements `services.fsx_rules.Network` on ministack's EC2."""

    def subnet(self, subnet_id: str) -> Json | None:
        return stores.ec2_store("subnets").get(subnet_id)

    def security_group(self, group_id: str) -> Json | None:
        return stores.ec2_store("security_groups").get(group_id)

    def default_group(self, vpc_id: str) -> str:
        vpc = stores.ec2_store("vpcs").get(vpc_id, {})
        return str(vpc.get("DefaultSecurityGroupId", ""))

    def attach(self, *, subnet_id: str, group_ids: Sequence[str], description: str) -> str:
        store = stores.ec2_store("network_interfaces")
        before = set(store)
        groups = {f"SecurityGroupId.{number}": group_id for number, group_id in enumerate(group_ids, 1)}
        stores.ec2_call("CreateNetworkInterface", SubnetId=subnet_id, Description=description, **groups)
        (interface,) = set(store) - before
        store[interface]["Status"] = "in-use"
        return str(interface)

    def detach(self, interface_id: str) -> None:
        stores.ec2_store("network_interfaces").pop(interface_id, None)
