"""AWS::EC2::EIP and AWS::EC2::NatGateway."""

from __future__ import annotations

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.seam import stores


def _create_address(logical_id: str, properties: Json, stack_name: str) -> Created:
    before = set(stores.ec2_store("addresses"))
    stores.ec2_call("AllocateAddress", Domain=properties.get("Domain", "vpc"))
    (allocation,) = set(stores.ec2_store("addresses")) - before
    stores.ec2_tag(allocation, properties)
    address = stores.ec2_store("addresses")[allocation]["PublicIp"]
    return address, {"AllocationId": allocation, "PublicIp": address}


def _update_address(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
    allocation = _allocation(physical_id)
    stores.ec2_tag(allocation, new, old)
    return physical_id, {"AllocationId": allocation, "PublicIp": physical_id}


def _delete_address(physical_id: str, properties: Json) -> None:
    allocation = _allocation(physical_id)
    if not allocation:
        return
    if any(gateway["AllocationId"] == allocation for gateway in _live_gateways()):
        raise RefusedError(
            f"The address with allocation id [{allocation}] cannot be released because it is locked to a NAT gateway.",
            service="Ec2",
            code="InvalidRequest",
        )
    stores.ec2_store("addresses").pop(allocation, None)
    stores.ec2_tag(allocation, {}, properties)


def _allocation(address: str) -> str:
    found = (key for key, record in stores.ec2_store("addresses").items() if record["PublicIp"] == address)
    return next(found, "")


def _live_gateways() -> list[Json]:
    return [record for record in stores.ec2_store("nat_gateways").values() if record["State"] != "deleted"]


def _create_gateway(logical_id: str, properties: Json, stack_name: str) -> Created:
    subnet, allocation = properties["SubnetId"], properties.get("AllocationId", "")
    if subnet not in stores.ec2_store("subnets"):
        raise RefusedError(f"The subnet ID '{subnet}' does not exist", service="Ec2", code="NotFound")
    public = properties.get("ConnectivityType", "public") == "public"
    if public and allocation not in stores.ec2_store("addresses"):
        raise RefusedError(f"The allocation ID '{allocation}' does not exist", service="Ec2", code="NotFound")
    if public and any(gateway["AllocationId"] == allocation for gateway in _live_gateways()):
        raise RefusedError(
            f"Elastic IP address [{allocation}] is already associated", service="Ec2", code="AlreadyExists"
        )
    before = set(stores.ec2_store("nat_gateways"))
    connectivity = "public" if public else "private"
    stores.ec2_call("CreateNatGateway", SubnetId=subnet, AllocationId=allocation, ConnectivityType=connectivity)
    (gateway,) = set(stores.ec2_store("nat_gateways")) - before
    stores.ec2_tag(gateway, properties)
    return gateway, {"NatGatewayId": gateway}


def _update_gateway(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
    stores.ec2_tag(physical_id, new, old)
    return physical_id, {"NatGatewayId": physical_id}


def _delete_gateway(physical_id: str, properties: Json) -> None:
    stores.ec2_store("nat_gateways").pop(physical_id, None)
    stores.ec2_tag(physical_id, {}, properties)


ADDRESS = ResourceType(
    name="AWS::EC2::EIP",
    create=_create_address,
    update=_update_address,
    delete=_delete_address,
    tag_property="Tags",
)
NAT_GATEWAY = ResourceType(
    name="AWS::EC2::NatGateway",
    create=_create_gateway,
    update=_update_gateway,
    delete=_delete_gateway,
    tag_property="Tags",
)
