"""AWS::EC2::FlowLog and AWS::EC2::VPCCidrBlock."""

from __future__ import annotations

import uuid

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.seam import stores

_FLOW_LOG_SOURCES = {"VPC": "vpcs", "Subnet": "subnets", "NetworkInterface": "network_interfaces"}


def _create_flow_log(logical_id: str, properties: Json, stack_name: str) -> Created:
    kind, source = properties["ResourceType"], properties["ResourceId"]
    if kind in _FLOW_LOG_SOURCES and source not in stores.ec2_store(_FLOW_LOG_SOURCES[kind]):
        raise RefusedError(f"The {kind} '{source}' does not exist", service="Ec2", code="NotFound")
    to_logs = properties.get("LogDestinationType", "cloud-watch-logs") == "cloud-watch-logs"
    if to_logs and not properties.get("DeliverLogsPermissionArn"):
        raise RefusedError(
            "DeliverLogsPermissionArn can't be empty if LogDestinationType is cloud-watch-logs",
            service="Ec2",
            code="InvalidRequest",
        )
    before = set(stores.ec2_store("flow_logs"))
    stores.ec2_call(
        "CreateFlowLogs",
        **{"ResourceId.1": source},
        ResourceType=kind,
        TrafficType=properties.get("TrafficType", "ALL"),
        LogDestinationType=properties.get("LogDestinationType", "cloud-watch-logs"),
        LogDestination=properties.get("LogDestination", ""),
        LogGroupName=properties.get("LogGroupName", ""),
    )
    (identifier,) = set(stores.ec2_store("flow_logs")) - before
    stores.ec2_tag(identifier, properties)
    return identifier, {"Id": identifier}


def _update_flow_log(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
    stores.ec2_tag(physical_id, new, old)
    return physical_id, {"Id": physical_id}


def _delete_flow_log(physical_id: str, properties: Json) -> None:
    stores.ec2_store("flow_logs").pop(physical_id, None)
    stores.ec2_tag(physical_id, {}, properties)


def _create_cidr(logical_id: str, properties: Json, stack_name: str) -> Created:
    vpc = stores.ec2_store("vpcs").get(properties["VpcId"])
    if vpc is None:
        raise RefusedError(f"The vpc ID '{properties['VpcId']}' does not exist", service="Ec2", code="NotFound")
    identifier = f"vpc-cidr-assoc-{uuid.uuid4().hex[:17]}"
    block = {
        "AssociationId": identifier,
        "CidrBlock": properties.get("CidrBlock", ""),
        "CidrBlockState": {"State": "associated"},
    }
    vpc.setdefault("CidrBlockAssociationSet", []).append(block)
    return identifier, {"Id": identifier, "Ipv6CidrBlock": properties.get("Ipv6CidrBlock", "")}


def _delete_cidr(physical_id: str, properties: Json) -> None:
    vpc = stores.ec2_store("vpcs").get(properties["VpcId"])
    if vpc:
        blocks = vpc.get("CidrBlockAssociationSet", [])
        blocks[:] = [block for block in blocks if block["AssociationId"] != physical_id]


FLOW_LOG = ResourceType(
    name="AWS::EC2::FlowLog",
    create=_create_flow_log,
    update=_update_flow_log,
    delete=_delete_flow_log,
    tag_property="Tags",
)
VPC_CIDR_BLOCK = ResourceType(name="AWS::EC2::VPCCidrBlock", create=_create_cidr, delete=_delete_cidr)
