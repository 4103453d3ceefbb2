"""Rules of regions, zones, ranges and room: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from typing import Any

import pytest
from yaml import safe_dump

from cdk_hyperpod import InstanceGroup
from cdk_hyperpod.config import NetworkConfig
from cdk_hyperpod.config.zones import ZoneSubnet
from cdk_hyperpod.facts.instance_types import regions
from cdk_hyperpod.rules import check_network, check_region
from cdk_hyperpod.rules.network import check_subnet_room, what_closed_means
from helpers.findings import Found, found
from helpers.validating import REMOVED, SMALL, Changes, changed, changed_findings, load_text, validate

NO_ZONES: Changes = {"network": REMOVED}
VPC = "vpc-0123456789abcdef0"
SUBNET = {"subnet_id": "subnet-0123456789abcdef0", "availability_zone": "us-west-2c"}
OTHER_SUBNET = {"subnet_id": "subnet-0fedcba9876543210", "availability_zone": "us-west-2d"}
ENDPOINTS = {"endpoint_security_group_id": "sg-0123456789abcdef0"}


def existing(*subnets: object, **settings: object) -> dict[str, Any]:
    return {"network": {"vpc_id": VPC, "subnets": list(subnets), **ENDPOINTS, **settings}}


def new(cidr: object) -> dict[str, Any]:
    return {"network.cidr": cidr}


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        # Regions
        pytest.param({"region": "us-west-3", **NO_ZONES}, [("region-misspelled", "region")], {}, id="a region that does not exist"),
        pytest.param({"region": "moon", **NO_ZONES}, [("region-unknown", "region")], {}, id="a region like no other"),
        # Zones of the network
        pytest.param({"network.availability_zones": ["us-west-2g"]}, [("value-malformed", "network.availability_zones[0]")], {"network.availability_zones": ["us-west-2f"]}, id="a zone beyond f"),
        pytest.param({"network.availability_zones": ["usw2-az7"]}, [("value-malformed", "network.availability_zones[0]")], {"network.availability_zones": ["usw2-az6"]}, id="a zone id beyond 6"),
        pytest.param({"network.availability_zones": ["c"]}, [("value-malformed", "network.availability_zones[0]")], {}, id="a zone's letter"),
        pytest.param({"network.availability_zones": ["us-west-1c"]}, [("zone-in-another-region", "network.availability_zones[0]")], {}, id="a zone of another region"),
        pytest.param({"network.availability_zones": ["use1-az3"]}, [("zone-in-another-region", "network.availability_zones[0]")], {"network.availability_zones": ["usw2-az3"]}, id="a zone id of another region"),
        pytest.param({"network.availability_zones": ["us-west-2c", "us-west-2c"]}, [("zone-duplicated", "network")], {"network.availability_zones": ["us-west-2c", "us-west-2a"]}, id="a zone twice"),
        pytest.param({"network.availability_zones": ["us-west-2c", "usw2-az1"]}, [("zone-names-and-ids", "network")], {"network.availability_zones": ["usw2-az3", "usw2-az1"]}, id="zone names and ids"),
        # Zones of groups
        pytest.param({"instance_groups.1.availability_zone": "odd-az"}, [("value-malformed", "instance_groups[work].availability_zone")], {"instance_groups.1.availability_zone": "us-west-2c"}, id="a group's zone that is none"),
        pytest.param({"instance_groups.1.availability_zone": "us-east-1a"}, [("zone-in-another-region", "instance_groups[work].availability_zone")], {"instance_groups.1.availability_zone": "us-west-2a"}, id="a group's zone of another region"),
        pytest.param({"instance_groups.1.availability_zone": "usw2-az1"}, [("zone-names-and-ids", "instance_groups[work].availability_zone")], {"network.availability_zones": ["usw2-az3"], "instance_groups.1.availability_zone": "usw2-az1"}, id="a group's zone by id, the network's by name"),
        pytest.param({**existing(SUBNET), "instance_groups.1.availability_zone": "us-west-2a"}, [("zone-without-subnet", "instance_groups[work].availability_zone")], {**existing(SUBNET, OTHER_SUBNET), "instance_groups.1.availability_zone": "us-west-2d"}, id="a group's zone without subnet"),
        pytest.param(
            {**NO_ZONES, "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.availability_zone": "us-west-2a"},
            [("zone-of-group-only", "instance_groups[work].availability_zone")],
            {**NO_ZONES, "instance_groups.1.instance_type": "ml.m5.xlarge"},
            id="a group's zone, and none of the cluster's",
        ),
        # A new VPC's range
        pytest.param(new("10.0.0.0"), [("network-cidr-invalid", "network.cidr")], new("10.0.0.0/16"), id="an address"),
        pytest.param(new("10.0.0.1/16"), [("network-cidr-with-host-bits", "network.cidr")], new("10.7.0.0/16"), id="bits beyond the prefix"),
        pytest.param(new("10.0.0.0/33"), [("network-cidr-invalid", "network.cidr")], {}, id="a prefix too long for IPv4"),
        pytest.param(new("fd00::/8"), [("network-cidr-invalid", "network.cidr")], {}, id="IPv6"),
        pytest.param(new(5), [("value-of-wrong-type", "network.cidr")], {}, id="a number for a range"),
        pytest.param(new("10.0.0.0/15"), [("vpc-size-not-supported", "network.cidr")], {}, id="range too large"),
        pytest.param(new("10.0.0.0/22"), [("vpc-size-not-supported", "network.cidr")], new("10.0.0.0/21"), id="range too small"),
        pytest.param(new("172.32.0.0/16"), [("vpc-range-public", "network.cidr")], new("172.31.0.0/16"), id="public range"),
        # An existing VPC
        pytest.param({"network": {"subnets": [SUBNET], **ENDPOINTS}}, [("vpc-missing", "network.vpc_id")], existing(SUBNET), id="subnets without VPC"),
        pytest.param(existing(), [("subnets-missing", "network.subnets")], existing(SUBNET, OTHER_SUBNET), id="VPC without subnets"),
        pytest.param(existing(SUBNET, vpc_id="vpc-1"), [("value-malformed", "network.vpc_id")], existing(SUBNET, vpc_id="vpc-01234567"), id="VPC id"),
        pytest.param(existing({**SUBNET, "subnet_id": "subnet-xyz"}), [("value-malformed", "network.subnets[0].subnet_id")], {}, id="subnet id"),
        pytest.param(existing(SUBNET, availability_zones=["us-west-2c"]), [("zones-in-existing-vpc", "network.availability_zones")], existing(SUBNET, availability_zones=[]), id="zones beside subnets"),
        pytest.param(existing(SUBNET, cidr="10.1.0.0/16"), [("cidr-in-existing-vpc", "network.cidr")], existing(SUBNET), id="a range for an existing VPC"),
        pytest.param(existing(SUBNET, interface_endpoints=True), [("endpoints-in-existing-vpc", "network.interface_endpoints")], existing(SUBNET, interface_endpoints=False), id="endpoints in an existing VPC"),
        pytest.param(existing(SUBNET, endpoint_security_group_id="sg-1"), [("value-malformed", "network.endpoint_security_group_id")], existing(SUBNET, endpoint_security_group_id="sg-01234567"), id="endpoints' group id"),
        pytest.param({"network.endpoint_security_group_id": "sg-01234567"}, [("endpoint-group-in-new-vpc", "network.endpoint_security_group_id")], existing(SUBNET), id="endpoints' group in a new VPC"),
        pytest.param(existing({**SUBNET, "cidr": "wide"}), [("network-cidr-invalid", "network.subnets[0].cidr")], existing({**SUBNET, "cidr": "10.0.0.0/24"}), id="a subnet's range that is none"),
        pytest.param(existing({**SUBNET, "cidr": "10.0.0.0/29"}), [("subnet-size-not-supported", "network.subnets[0].cidr")], {"instance_groups.1.instance_type": "ml.m5.xlarge", **existing({**SUBNET, "cidr": "10.0.0.0/28"})}, id="a subnet's range that no subnet has"),
        pytest.param(existing({**SUBNET, "cidr": "10.20.1.0/20"}), [("network-cidr-with-host-bits", "network.subnets[0].cidr")], existing({**SUBNET, "cidr": "10.20.0.0/20"}), id="a subnet's range with bits beyond the prefix"),
        pytest.param(existing(SUBNET, {**OTHER_SUBNET, "subnet_id": SUBNET["subnet_id"]}), [("subnet-duplicated", "network.subnets[1].subnet_id")], existing(SUBNET, OTHER_SUBNET), id="a subnet twice"),
        pytest.param(existing({**SUBNET, "cidr": "10.20.0.0/20"}, {**OTHER_SUBNET, "cidr": "10.20.8.0/21"}), [("subnets-overlap", "network.subnets[1].cidr")], existing({**SUBNET, "cidr": "10.20.0.0/21"}, {**OTHER_SUBNET, "cidr": "10.20.8.0/21"}), id="subnets that overlap"),
        pytest.param(existing({**SUBNET, "availability_zone": "us-east-1a"}), [("zone-in-another-region", "network.subnets[0].availability_zone")], {}, id="a subnet of another region"),
        pytest.param(existing(SUBNET, {**OTHER_SUBNET, "availability_zone": "us-west-2c"}), [("zone-duplicated", "network")], {}, id="two subnets of one zone"),
        # Room: P5 takes 32 addresses a node; AWS keeps 5 of each subnet; a closed network has 10 endpoints
        pytest.param({"instance_groups.1.instance_count": 256}, [("subnet-too-small", "network.cidr")], {"instance_groups.1.instance_count": 255}, id="full: new subnet"),
        pytest.param({**new("10.0.0.0/21"), "instance_groups.1.instance_count": 8}, [("subnet-too-small", "network.cidr")], {**new("10.0.0.0/21"), "instance_groups.1.instance_count": 7}, id="full: small VPC"),
        pytest.param({"network.internet_egress": False, **new("10.0.0.0/21"), "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.instance_count": 241}, [("subnet-too-small", "network.cidr")], {"network.internet_egress": True, **new("10.0.0.0/21"), "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.instance_count": 241}, id="full: the endpoints need room too"),
        pytest.param({**existing({**SUBNET, "cidr": "10.0.0.0/26"})}, [("subnet-too-small", "network.subnets[0].cidr")], {**existing({**SUBNET, "cidr": "10.0.0.0/26"}, {**OTHER_SUBNET, "cidr": "10.0.1.0/25"}), "instance_groups.1.availability_zone": "us-west-2d"}, id="full: existing subnet"),
        pytest.param({**existing(SUBNET, {**OTHER_SUBNET, "cidr": "10.0.1.0/26"}), "instance_groups.1.availability_zone": "us-west-2d"}, [("subnet-too-small", "network.subnets[1].cidr")], existing(SUBNET), id="full: a subnet that is not the first"),
    ],
)  # fmt: skip
def test_an_invalid_setting_has_its_findings_and_a_valid_one_has_no_error(
    bad: Changes, expected: Found, good: Changes
) -> None:
    assert validate(bad) == expected
    assert [finding for finding in changed_findings(good) if finding.level == "error"] == []


@pytest.mark.parametrize("cidr", ["10.20.1.0/20", "10.20.15.255/20"])
def test_a_cidr_with_host_bits_is_refused_with_the_right_range(cidr: str) -> None:
    (finding,) = changed_findings(existing({**SUBNET, "cidr": cidr}))

    assert finding.remedy == "use 10.20.0.0/20"


def test_a_region_without_hyperpod_lists_those_that_have_it() -> None:
    (finding,) = changed_findings({"region": "eu-west-3", **NO_ZONES})

    assert (finding.code, finding.path) == ("region-without-hyperpod", "region")
    assert "ap-northeast-1, ap-northeast-2" in finding.remedy and "us-west-1, us-west-2" in finding.remedy


@pytest.mark.parametrize("region", sorted(regions().known))
def test_every_region_of_aws_is_accepted_or_refused_as_such(region: str) -> None:
    refused = [] if region in regions().available else [("region-without-hyperpod", "region")]
    assert found(check_region(region)) == refused


@pytest.mark.parametrize("of_group", [["ml.m5.xlarge"], ["ml.m5.xlarge", "ml.p5.48xlarge"]], ids=["plain", "p5"])
def test_a_zone_should_be_named_for_types_that_few_zones_offer(of_group: list[str]) -> None:
    changes = {**NO_ZONES, "instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": of_group}

    assert validate(changes) == ([] if len(of_group) == 1 else [("zone-unnamed", "network.availability_zones")])


@pytest.mark.parametrize(
    ("storage", "zone", "of_storage"),
    [
        pytest.param({"capacity_gib": 1200}, "us-west-2d", "us-west-2c", id="new file system"),
        pytest.param({"capacity_gib": 1200}, "us-west-2c", None, id="new file system, its zone"),
        pytest.param({"file_system_id": "fs-01234567", "mount_name": "abc", "availability_zone": "us-west-2b"}, "us-west-2d", "us-west-2b", id="existing file system"),
        pytest.param({"file_system_id": "fs-01234567", "mount_name": "abc"}, "us-west-2d", None, id="existing file system somewhere"),
        pytest.param(REMOVED, "us-west-2d", None, id="no file system"),
    ],
)  # fmt: skip
def test_nodes_in_another_zone_than_their_file_system_are_warned_of(
    storage: object, zone: str, of_storage: str | None
) -> None:
    changes = {"instance_groups.1.availability_zone": zone, **({} if storage is REMOVED else {"storage": storage})}

    assert validate(changes) == (
        [] if of_storage is None else [("file-system-in-another-zone", "instance_groups[work].availability_zone")]
    )


def test_nodes_of_an_existing_vpc_without_a_way_to_aws_services_are_warned_of() -> None:
    closed = {"vpc_id": VPC, "subnets": [SUBNET]}

    assert validate({"network": closed}) == [("endpoint-group-missing", "network.endpoint_security_group_id")]
    assert validate({"network": {**closed, **ENDPOINTS}}) == []
    assert validate({"network": {**closed, "internet_egress": True}}) == []


@pytest.mark.parametrize("region", ["ap-south-2", "ap-southeast-3", "ap-southeast-4", "eu-south-2"])
def test_an_existing_vpc_names_s3s_prefix_list_where_the_library_does_not_know_it(region: str) -> None:
    subnet = {**SUBNET, "availability_zone": f"{region}a"}
    closed = {"region": region, "network": {"vpc_id": VPC, "subnets": [subnet], **ENDPOINTS}}

    assert [line for line in validate(closed) if "prefix" in line[1]] == [
        ("prefix-list-unknown", "network.s3_prefix_list_id")
    ]
    for more in ({"network.s3_prefix_list_id": "pl-01234567"}, {"network.internet_egress": True}):
        assert not [line for line in validate({**closed, **more}) if "prefix" in line[1]]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"endpoint_policies": "organization"}, ("organization-missing", "network.organization_id"), id="no organization"),
        pytest.param({"endpoint_policies": "account", "organization_id": "o-a1b2c3d4e5"}, ("organization-without-effect", "network.organization_id"), id="organization beside account"),
        pytest.param({"organization_id": "o-a1b2c3d4e5"}, ("endpoint-policies-none", "network.organization_id"), id="organization without policies"),
        pytest.param({"trusted_accounts": ["111122223333"]}, ("endpoint-policies-none", "network.trusted_accounts"), id="trusted without policies"),
        pytest.param({"endpoint_policies": "account", "trusted_accounts": ["111122223333", "111122223333"]}, ("value-duplicated", "network.trusted_accounts"), id="trusted twice"),
        pytest.param({"endpoint_policies": "account", "internet_egress": True}, ("endpoint-policies-with-internet", "network.endpoint_policies"), id="a way past them"),
        pytest.param({"endpoint_policies": "account"}, None, id="account"),
        pytest.param({"endpoint_policies": "organization", "organization_id": "o-a1b2c3d4e5", "trusted_accounts": ["111122223333"]}, None, id="organization and trusted"),
    ],
)  # fmt: skip
def test_endpoint_policies_say_whose_endpoints_they_are(
    settings: dict[str, object], said: tuple[str, str] | None
) -> None:
    assert validate({f"network.{key}": value for key, value in settings.items()}) == ([] if said is None else [said])


def test_an_endpoints_policy_has_room_for_200_accounts_more() -> None:
    accounts = [f"{number:012}" for number in range(201)]

    def of_accounts(count: int) -> Found:
        return validate({"network.endpoint_policies": "account", "network.trusted_accounts": accounts[:count]})

    assert of_accounts(200) == []
    assert of_accounts(201) == [("trusted-accounts-too-many", "network.trusted_accounts")]


def test_the_policies_of_an_existing_vpcs_endpoints_are_not_ours() -> None:
    existing = {"vpc_id": VPC, "subnets": [SUBNET], **ENDPOINTS, "endpoint_policies": "account"}
    assert validate({"network": existing}) == [("endpoint-policies-in-existing-vpc", "network.endpoint_policies")]


@pytest.mark.parametrize(
    ("network", "end"),
    [
        (
            NetworkConfig(),
            "; set network.endpoint_policies: account to prevent that (try it first: docs/closed-networks.md)",
        ),
        (NetworkConfig(vpc_id=VPC), "; the owner of the VPC can prevent that by policies of its endpoints"),
        (NetworkConfig(internet_egress=True), None),
        (NetworkConfig(endpoint_policies="account"), None),
    ],
)
def test_a_closed_network_without_endpoint_policies_says_that_data_can_leave(
    network: NetworkConfig, end: str | None
) -> None:
    said = what_closed_means(network)
    assert (said is None) is (end is None)
    assert said is None or (
        said.startswith("nodes cannot reach the internet, but data can still leave") and said.endswith(str(end))
    )


def test_a_network_has_at_most_six_zones_also_of_those_that_are_known_at_deployment_only() -> None:
    def said(count: int) -> Found:
        zones = tuple(f"${{Token[TOKEN.{n}]}}" for n in range(count))
        return found(check_network(NetworkConfig(availability_zones=zones), region="us-west-2"))

    assert said(7) == [("zones-too-many", "network.availability_zones")]
    assert said(6) == []


def test_warnings_of_one_kind_have_one_code() -> None:
    plain = load_text(safe_dump(changed(NO_ZONES)))
    crossing = load_text(
        safe_dump(changed({"instance_groups.1.availability_zone": "us-west-2a", "storage.capacity_gib": 1200}))
    )

    closed = load_text(safe_dump(changed({"network": {"vpc_id": VPC, "subnets": [SUBNET]}})))
    tiered = load_text(safe_dump(changed({"tiered_storage": {}})))

    assert [warning.code for warning in plain.warnings] == ["zone-unnamed"]
    assert [warning.code for warning in crossing.warnings] == ["file-system-in-another-zone"]
    assert [warning.code for warning in closed.warnings] == ["endpoint-group-missing"]
    assert [warning.code for warning in tiered.warnings] == ["tiered-storage-under-slurm"]
    assert load_text(safe_dump(dict(SMALL))).warnings == ()


def test_room_is_counted_with_the_largest_of_a_groups_types_and_as_each_orchestrator_counts() -> None:
    subnet = ZoneSubnet(key="a", availability_zone=None, cidr="10.0.0.0/28", endpoints=3)
    group = InstanceGroup(name="g", instance_count=1, instance_types=("ml.m5.xlarge", "ml.p4d.24xlarge"))
    p5 = InstanceGroup(name="p5", instance_count=1, instance_type="ml.p5.48xlarge")

    def needs(group: InstanceGroup, orchestrator: str) -> list[str]:
        return [finding.problem for finding in check_subnet_room([subnet], [group], orchestrator)]

    assert needs(group, "slurm") == []  # 4 cards and 3 endpoints in 11
    assert needs(p5, "slurm") == ["the subnet 10.0.0.0/28 has 11 addresses, but its nodes need 35 ('p5' alone 32)"]
    assert needs(p5, "eks") == ["the subnet 10.0.0.0/28 has 11 addresses, but its nodes need 84 ('p5' alone 81)"]
