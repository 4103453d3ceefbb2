"""Zones, offers and the default VPC, as programs and the CDK CLI look them up."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any
TYPE = "p5.48xlarge"


def network(**zone: str) -> Json:
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.3.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.3.0.0/24", **zone},
        },
    }


def zones_of(aws: LocalAws, region: str) -> dict[str, str]:
    client = LocalAws(place=aws.place, region=region).client("ec2")
    return {zone["ZoneName"]: zone["ZoneId"] for zone in client.describe_availability_zones()["AvailabilityZones"]}


def test_a_region_has_aws_s_zones_and_each_offers_every_type(engine: LocalAws) -> None:
    zones = zones_of(engine, "us-west-2")
    assert zones == {f"us-west-2{letter}": f"usw2-az{number}" for number, letter in enumerate("abcd", 1)}
    assert [*zones_of(engine, "eu-west-1")] == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    offers = engine.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [TYPE]}]
    )["InstanceTypeOfferings"]
    assert {(offer["InstanceType"], offer["Location"]) for offer in offers} == {(TYPE, zone) for zone in zones}


@pytest.mark.parametrize("zone", [{"AvailabilityZone": "us-west-2d"}, {"AvailabilityZoneId": "usw2-az4"}], ids=str)
def test_a_subnet_is_in_the_zone_that_it_names(engine: LocalAws, zone: dict[str, str]) -> None:
    subnet = {"Zone": {"Value": {"Fn::GetAtt": ["Subnet", "AvailabilityZone"]}}}
    made = templates.deploy(engine, "zoned", network(**zone), Outputs=subnet)
    assert (made.status, made.outputs) == ("CREATE_COMPLETE", {"Zone": "us-west-2d"}), made.reasons
    assert templates.delete(engine, "zoned").status == "DELETE_COMPLETE"


@pytest.mark.parametrize("zone", [{"AvailabilityZone": "us-west-2e"}, {"AvailabilityZoneId": "usw2-az5"}], ids=str)
def test_a_subnet_in_a_zone_that_the_region_lacks_is_refused(engine: LocalAws, zone: dict[str, str]) -> None:
    failed = templates.deploy(engine, "unzoned", network(**zone))
    (reason,) = (reason for reason in failed.reasons if "Value (" in reason)
    assert "is invalid. Subnets can currently only be created in the following availability zones: us" in reason
    assert templates.delete(engine, "unzoned").status == "DELETE_COMPLETE"
    client = engine.client("ec2")
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        client.create_subnet(VpcId=client.describe_vpcs()["Vpcs"][0]["VpcId"], CidrBlock="172.31.240.0/24", **zone)


def test_the_default_vpc_is_found_beside_others(engine: LocalAws) -> None:
    client = engine.client("ec2")
    client.create_vpc(CidrBlock="10.4.0.0/16")
    for name in ("is-default", "isDefault"):  # EC2 documents the first, and the CDK CLI uses the second
        found = client.describe_vpcs(Filters=[{"Name": name, "Values": ["true"]}])["Vpcs"]
        assert [vpc["IsDefault"] for vpc in found] == [True], name
