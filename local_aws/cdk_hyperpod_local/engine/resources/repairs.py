"""Parts of ministack's own resource types and templates that are missing, and that our templates need."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError
from cdk_hyperpod_local.engine.seam import cloudformation, queues, stores
from cdk_hyperpod_local.engine.services import ec2_lookups


def install(is_unnamed: Callable[[str, str], bool]) -> None:
    """`is_unnamed`: whether events of a type and with a status have no physical id."""
    cloudformation.repair_events(is_unnamed)
    _check("AWS::EC2::Subnet", _check_subnet)
    _check("AWS::Lambda::Function", _check_network)
    _check("AWS::IAM::Role", _check_boundary)
    _check_change("AWS::IAM::Role", _check_boundary)
    _check("AWS::Lambda::EventSourceMapping", _check_reader)


def _check_subnet(properties: Json) -> None:
    """A subnet must be in a zone of its region and inside its VPC, and must not overlap with another subnet."""
    zone, zone_id = (str(properties.get(f"AvailabilityZone{end}") or "") for end in ("", "Id"))
    if problem := ec2_lookups.zone_problem(zone, zone_id):
        raise RefusedError(problem, service="Ec2", code="InvalidRequest")
    vpc = stores.ec2_store("vpcs").get(properties.get("VpcId", ""))
    if vpc is None:
        raise RefusedError(f"The vpc ID '{properties.get('VpcId')}' does not exist", service="Ec2", code="NotFound")
    if not properties.get("CidrBlock"):
        return
    wanted = ipaddress.ip_network(properties["CidrBlock"])
    blocks = [vpc["CidrBlock"], *(block["CidrBlock"] for block in vpc.get("CidrBlockAssociationSet", []))]
    if not any(_inside(wanted, ipaddress.ip_network(block)) for block in blocks if block):
        raise RefusedError(f"The CIDR '{wanted}' is invalid.", service="Ec2", code="InvalidRequest")
    for other in stores.ec2_store("subnets").values():
        if other["VpcId"] == vpc["VpcId"] and ipaddress.ip_network(other["CidrBlock"]).overlaps(wanted):
            raise RefusedError(
                f"The CIDR '{wanted}' conflicts with another subnet", service="Ec2", code="InvalidRequest"
            )


def _check_network(properties: Json) -> None:
    """A function's subnets and security groups must exist, in one VPC."""
    network = properties.get("VpcConfig") or {}
    places = [("subnets", "subnet ID", item) for item in network.get("SubnetIds") or []]
    places += [("security_groups", "security group ID", item) for item in network.get("SecurityGroupIds") or []]
    records = [stores.ec2_store(store).get(item) for store, _, item in places]
    for (_, kind, item), record in zip(places, records, strict=True):
        if record is None:
            raise RefusedError(f"The {kind} '{item}' does not exist", service="Lambda", code="InvalidRequest")
    if len({record["VpcId"] for record in records}) > 1:
        raise RefusedError("Security groups must be in the subnets' VPC", service="Lambda", code="InvalidRequest")


def _check_reader(properties: Json) -> None:
    """A function that reads a queue needs the permissions in its role."""
    queue = str(properties.get("EventSourceArn", ""))
    if not queue.startswith("arn:aws:sqs:"):
        return
    action = queues.missing_action(str(properties.get("FunctionName", "")), queue)
    if action is not None:
        message = f"The provided execution role does not have permissions to call {action.partition(':')[2]} on SQS"
        raise RefusedError(message, service="Lambda", code="InvalidRequest")


def _check_boundary(properties: Json) -> None:
    """A role's permissions boundary must be a policy of this account or of AWS."""
    boundary = properties.get("PermissionsBoundary")
    if boundary and not stores.policy_exists(str(boundary)):
        raise RefusedError(
            f"Scope ARN: {boundary} does not exist or is not attachable.", service="Iam", code="NotFound", status=404
        )


def _inside(inner: ipaddress.IPv4Network | ipaddress.IPv6Network, outer: object) -> bool:
    return isinstance(outer, type(inner)) and inner.subnet_of(outer)  # type: ignore[arg-type]


def _check(resource_type: str, check: Callable[[Json], None]) -> None:
    entry = cloudformation.handlers()[resource_type]
    create = entry["create"]

    def checked(logical_id: str, properties: Json, stack_name: str) -> Created:
        check(properties)
        created: Created = create(logical_id, properties, stack_name)
        return created

    entry["create"] = checked


def _check_change(resource_type: str, check: Callable[[Json], None]) -> None:
    entry = cloudformation.handlers()[resource_type]
    update = entry["update"]

    def checked(physical_id: str, old: Json, new: Json, *rest: str) -> Created:
        check(new)
        updated: Created = update(physical_id, old, new, *rest)
        return updated

    entry["update"] = checked
