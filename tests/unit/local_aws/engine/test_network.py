"""Network resources: the types that the engine adds, and the refusal to delete one that is still in use."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cdk_hyperpod_local.engine.services.fsx_file_systems import DELETE_SECONDS
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates
from helpers.local_aws.fixtures import SPEED

Json = Any


def vpc(**resources: Json) -> Json:
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.1.0.0/24", "AvailabilityZone": "us-west-2c"},
        },
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "GroupDescription": "file system"},
        },
        **resources,
    }


def ingress(port: int, **properties: Json) -> Json:
    rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "GroupId": {"Ref": "Group"}, **properties}
    return {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule}


def file_system(depends_on: list[str], **properties: Json) -> Json:
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    return {
        "Type": "AWS::FSx::FileSystem",
        "DependsOn": depends_on,
        "Properties": {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": 1200,
            "SubnetIds": [{"Ref": "Subnet"}],
            "SecurityGroupIds": [{"Ref": "Group"}],
            "LustreConfiguration": lustre,
            **properties,
        },
    }


def test_a_nat_gateway_uses_an_elastic_ip_and_releases_it(engine: LocalAws) -> None:
    resources = vpc(
        Address={"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        Gateway={
            "Type": "AWS::EC2::NatGateway",
            "Properties": {"SubnetId": {"Ref": "Subnet"}, "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]}},
        },
        More={
            "Type": "AWS::EC2::VPCCidrBlock",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.2.0.0/16"},
        },
        Second={
            "Type": "AWS::EC2::Subnet",
            "DependsOn": "More",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.2.0.0/24"},
        },
    )
    assert templates.deploy(engine, "nat", resources).status == "CREATE_COMPLETE"
    ec2 = engine.client("ec2")
    gateway = templates.physical_id(engine, "nat", "Gateway")
    (shown,) = ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"]
    assert shown["SubnetId"] == templates.physical_id(engine, "nat", "Subnet")
    subnet_error = ec2.exceptions.ClientError
    with pytest.raises(subnet_error, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=shown["SubnetId"])
    assert templates.delete(engine, "nat").status == "DELETE_COMPLETE"
    assert gateway not in {item["NatGatewayId"] for item in ec2.describe_nat_gateways()["NatGateways"]}


@pytest.mark.parametrize(
    ("cidr", "reason"),
    [("10.1.0.128/25", "conflicts with another subnet"), ("10.9.0.0/24", "is invalid")],
    ids=["overlaps its sister", "lies outside the VPC"],
)
def test_subnet_that_ec2_would_refuse(engine: LocalAws, cidr: str, reason: str) -> None:
    second = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": cidr}}
    second["DependsOn"] = "Subnet"
    outcome = templates.deploy(engine, f"subnet-{cidr[3]}-{cidr[-1]}", vpc(Second=second))
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert reason in outcome.reasons[0]


def test_file_system_needs_its_port_open_first(engine: LocalAws) -> None:
    outcome = templates.deploy(engine, "closed", vpc(FileSystem=file_system(["Group"])))
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert "do not permit Lustre LNET network traffic on port 988" in outcome.reasons[0]


def test_the_network_of_a_file_system_cannot_be_deleted(engine: LocalAws) -> None:
    kept = {**file_system(["Port"]), "DeletionPolicy": "Retain"}
    resources = vpc(FileSystem=kept, Port=ingress(988, SourceSecurityGroupId={"Ref": "Group"}))
    outputs = {
        "Dns": {"Value": {"Fn::GetAtt": ["FileSystem", "DNSName"]}},
        "Mount": {"Value": {"Fn::GetAtt": ["FileSystem", "LustreMountName"]}},
    }
    made = templates.deploy(engine, "kept", resources, Outputs=outputs)
    assert made.status == "CREATE_COMPLETE", made.reasons
    identifier = templates.physical_id(engine, "kept", "FileSystem")
    assert made.outputs["Dns"] == f"{identifier}.fsx.us-west-2.amazonaws.com"
    gone = templates.delete(engine, "kept")
    assert gone.status == "DELETE_FAILED"
    for kind in ("vpc", "subnet"):
        reasons = [reason for reason in gone.reasons if f"The {kind} '{kind}-" in reason]
        assert reasons and "has dependencies and cannot be deleted. (Service: Ec2" in reasons[0], gone.reasons
    assert any("has a dependent object" in reason for reason in gone.reasons)
    fsx = engine.client("fsx")
    (shown,) = fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert (shown["Lifecycle"], shown["LustreConfiguration"]["MountName"]) == ("AVAILABLE", made.outputs["Mount"])
    # Nobody asks FSx whether the deletion has ended: EC2 releases the network by itself.
    fsx.delete_file_system(FileSystemId=identifier)
    time.sleep(DELETE_SECONDS / SPEED + 0.1)
    assert templates.delete(engine, "kept").status == "DELETE_COMPLETE"


def test_the_same_rule_twice_is_refused(engine: LocalAws) -> None:
    twice = {**ingress(443, CidrIp="10.1.0.0/16"), "DependsOn": "Once"}
    outcome = templates.deploy(engine, "twice", vpc(Once=ingress(443, CidrIp="10.1.0.0/16"), Twice=twice))
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert "the specified rule already exists" in outcome.reasons[0]


def test_own_egress_rule_replaces_the_open_one(engine: LocalAws) -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "GroupId": {"Ref": "Group"}, "CidrIp": "10.1.0.0/16"}
    resources = vpc(Out={"Type": "AWS::EC2::SecurityGroupEgress", "Properties": rule})
    assert templates.deploy(engine, "egress", resources).status == "CREATE_COMPLETE"
    group = templates.physical_id(engine, "egress", "Group")
    (shown,) = engine.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert [item.get("FromPort") for item in shown["IpPermissionsEgress"]] == [443]
    assert templates.delete(engine, "egress").status == "DELETE_COMPLETE"


def test_bucket_with_objects_stays(engine: LocalAws) -> None:
    assert templates.deploy(engine, "bucket", {"Bucket": {"Type": "AWS::S3::Bucket"}}).status == "CREATE_COMPLETE"
    bucket, s3 = templates.physical_id(engine, "bucket", "Bucket"), engine.client("s3")
    s3.put_object(Bucket=bucket, Key="a", Body=b"a")
    gone = templates.delete(engine, "bucket")
    assert (gone.status, "is not empty" in gone.reasons[0]) == ("DELETE_FAILED", True)
    s3.delete_object(Bucket=bucket, Key="a")
    assert templates.delete(engine, "bucket").status == "DELETE_COMPLETE"
