"""Deletions that EC2 and S3 refuse because another resource still depends on this one. ministack would allow them.

Both ways are guarded: CloudFormation's delete and the API call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cdk_hyperpod_local.engine.resources.base import Json, RefusedError
from cdk_hyperpod_local.engine.seam import cloudformation, stores
from cdk_hyperpod_local.engine.seam import services as requests

Occupants = Callable[[str], Iterator[str]]
"""Subnet or security group id -> what uses it, apart from EC2's own interfaces."""


def install(occupants: Occupants, settle: Callable[[], None]) -> None:
    """`settle`: releases the interfaces of file systems that have been deleted by now."""

    def subnet_in_use(subnet_id: str) -> str | None:
        settle()
        used = next(_in_subnet(subnet_id), None) or next(occupants(subnet_id), None)
        return f"The subnet '{subnet_id}' has dependencies and cannot be deleted." if used else None

    def group_in_use(group_id: str) -> str | None:
        settle()
        used = next(_in_group(group_id), None) or next(occupants(group_id), None)
        return f"resource {group_id} has a dependent object" if used else None

    for resource_type, action, parameter, in_use in (
        ("AWS::EC2::Subnet", "DeleteSubnet", "SubnetId", subnet_in_use),
        ("AWS::EC2::SecurityGroup", "DeleteSecurityGroup", "GroupId", group_in_use),
    ):
        _guard_type(resource_type, in_use)
        _guard_action(action, parameter, in_use)
    _guard_vpc()
    _guard_bucket()


def _in_subnet(subnet_id: str) -> Iterator[str]:
    for key, interface in stores.ec2_store("network_interfaces").items():
        if interface.get("SubnetId") == subnet_id:
            yield key
    for key, endpoint in stores.ec2_store("vpc_endpoints").items():
        if subnet_id in endpoint.get("SubnetIds", []):
            yield key
    yield from _functions("SubnetIds", subnet_id)
    for key, gateway in stores.ec2_store("nat_gateways").items():
        if gateway["SubnetId"] == subnet_id and gateway["State"] != "deleted":
            yield key


def _in_group(group_id: str) -> Iterator[str]:
    for key, interface in stores.ec2_store("network_interfaces").items():
        if any(group.get("GroupId") == group_id for group in interface.get("Groups", [])):
            yield key
    for key, endpoint in stores.ec2_store("vpc_endpoints").items():
        if group_id in endpoint.get("SecurityGroupIds", []):
            yield key
    yield from _functions("SecurityGroupIds", group_id)
    for key, other in stores.ec2_store("security_groups").items():
        rules = [*other.get("IpPermissions", []), *other.get("IpPermissionsEgress", [])]
        named = (pair.get("GroupId") for rule in rules for pair in rule.get("UserIdGroupPairs", []))
        if key != group_id and group_id in named:
            yield key


def _functions(kind: str, identifier: str) -> Iterator[str]:
    """The resources whose interfaces are in this subnet, or have this security group."""
    for key, network in stores.function_networks().items():
        if identifier in network.get(kind, []):
            yield key


def _guard_type(resource_type: str, in_use: Callable[[str], str | None]) -> None:
    entry = cloudformation.handlers()[resource_type]
    original = entry["delete"]

    def delete(physical_id: str, properties: Json) -> None:
        reason = in_use(physical_id)
        if reason:
            raise RefusedError(reason, service="Ec2", code="DependencyViolation")
        original(physical_id, properties)

    entry["delete"] = delete


def _guard_action(action: str, parameter: str, in_use: Callable[[str], str | None]) -> None:
    original = stores.ec2_actions()[action]

    def guarded(params: Json) -> requests.Reply:
        reason = in_use(stores.ec2_parameter(params, parameter))
        return stores.ec2_error("DependencyViolation", reason) if reason else original(params)

    stores.ec2_actions()[action] = guarded


def _guard_vpc() -> None:
    """ministack refuses such a deletion itself, but reports EC2's whole reply."""
    entry = cloudformation.handlers()["AWS::EC2::VPC"]
    original = entry["delete"]

    def delete(physical_id: str, properties: Json) -> None:
        try:
            original(physical_id, properties)
        except ValueError as error:
            if "DependencyViolation" not in str(error):
                raise
            raise RefusedError(
                f"The vpc '{physical_id}' has dependencies and cannot be deleted.",
                service="Ec2",
                code="DependencyViolation",
            ) from None

    entry["delete"] = delete


def _guard_bucket() -> None:
    entry = cloudformation.handlers()["AWS::S3::Bucket"]
    original = entry["delete"]

    def delete(physical_id: str, properties: Json) -> None:
        if stores.bucket_objects(physical_id):
            raise RefusedError(
                "The bucket you tried to delete is not empty. You must delete all versions in the bucket.",
                service="S3",
                code="BucketNotEmpty",
            )
        original(physical_id, properties)

    entry["delete"] = delete
