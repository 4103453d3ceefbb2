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
from helpers.judging import REMOVED, SMALL, Changes, changed, judge, load_text

ZONE = "must be an availability zone's name or id, such as us-west-2c or usw2-az3"
OF_ONE_KIND = "use names such as us-west-2c throughout, or ids such as usw2-az3"
RANGE = "is not an IPv4 range; use one such as 10.0.0.0/16"
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
    ("bad", "messages", "good"),
    [
        # Regions
        pytest.param({"region": "us-west-3", **NO_ZONES}, ["region: AWS has no region 'us-west-3'; did you mean us-west-2?"], {}, id="a region that does not exist"),
        pytest.param({"region": "moon", **NO_ZONES}, ["region: AWS has no region 'moon'; use one such as us-west-2"], {}, id="a region like no other"),
        # Zones of the network
        pytest.param({"network.availability_zones": ["us-west-2g"]}, [f"network.availability_zones[0]: {ZONE}, got 'us-west-2g'; change it"], {"network.availability_zones": ["us-west-2f"]}, id="a zone beyond f"),
        pytest.param({"network.availability_zones": ["usw2-az7"]}, [f"network.availability_zones[0]: {ZONE}, got 'usw2-az7'; change it"], {"network.availability_zones": ["usw2-az6"]}, id="a zone id beyond 6"),
        pytest.param({"network.availability_zones": ["c"]}, [f"network.availability_zones[0]: {ZONE}, got 'c'; change it"], {}, id="a zone's letter"),
        pytest.param({"network.availability_zones": ["us-west-1c"]}, ["network.availability_zones[0]: 'us-west-1c' is not in us-west-2; name a zone of the region"], {}, id="a zone of another region"),
        pytest.param({"network.availability_zones": ["use1-az3"]}, ["network.availability_zones[0]: 'use1-az3' is not in us-west-2; name a zone of the region"], {"network.availability_zones": ["usw2-az3"]}, id="a zone id of another region"),
        pytest.param({"network.availability_zones": ["us-west-2c", "us-west-2c"]}, ["network: the zone 'us-west-2c' is there twice; name each zone once"], {"network.availability_zones": ["us-west-2c", "us-west-2a"]}, id="a zone twice"),
        pytest.param({"network.availability_zones": ["us-west-2c", "usw2-az1"]}, [f"network: zone names and zone ids are mixed; {OF_ONE_KIND}"], {"network.availability_zones": ["usw2-az3", "usw2-az1"]}, id="zone names and ids"),
        # Zones of groups
        pytest.param({"instance_groups.1.availability_zone": "odd-az"}, [f"instance_groups[work].availability_zone: {ZONE}, got 'odd-az'; change it"], {"instance_groups.1.availability_zone": "us-west-2c"}, id="a group's zone that is none"),
        pytest.param({"instance_groups.1.availability_zone": "us-east-1a"}, ["instance_groups[work].availability_zone: 'us-east-1a' is not in us-west-2; name a zone of the region"], {"instance_groups.1.availability_zone": "us-west-2a"}, id="a group's zone of another region"),
        pytest.param({"instance_groups.1.availability_zone": "usw2-az1"}, [f"instance_groups[work].availability_zone: 'usw2-az1' and network.availability_zones mix zone names and zone ids; {OF_ONE_KIND}"], {"network.availability_zones": ["usw2-az3"], "instance_groups.1.availability_zone": "usw2-az1"}, id="a group's zone by id, the network's by name"),
        pytest.param({**existing(SUBNET), "instance_groups.1.availability_zone": "us-west-2a"}, ["instance_groups[work].availability_zone: no subnet of network.subnets is in 'us-west-2a'; add one, or use a zone that has one, such as us-west-2c"], {**existing(SUBNET, OTHER_SUBNET), "instance_groups.1.availability_zone": "us-west-2d"}, id="a group's zone without subnet"),
        pytest.param(
            {**NO_ZONES, "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.availability_zone": "us-west-2a"},
            ["instance_groups[work].availability_zone: a group names its zone, and network.availability_zones does not name the cluster's own; add network.availability_zones, the cluster's own zone first"],
            {**NO_ZONES, "instance_groups.1.instance_type": "ml.m5.xlarge"},
            id="a group's zone, and none of the cluster's",
        ),
        # A new VPC's range
        pytest.param(new("10.0.0.0"), [f"network.cidr: '10.0.0.0' {RANGE}"], new("10.0.0.0/16"), id="an address"),
        pytest.param(new("10.0.0.1/16"), [f"network.cidr: '10.0.0.1/16' {RANGE}"], new("10.7.0.0/16"), id="bits beyond the prefix"),
        pytest.param(new("10.0.0.0/33"), [f"network.cidr: '10.0.0.0/33' {RANGE}"], {}, id="a prefix too long for IPv4"),
        pytest.param(new("fd00::/8"), [f"network.cidr: 'fd00::/8' {RANGE}"], {}, id="IPv6"),
        pytest.param(new(5), ["network.cidr: must be text, got 5; put it in quotes"], {}, id="a number for a range"),
        pytest.param(new("10.0.0.0/15"), ["network.cidr: 10.0.0.0/15 is a /15; use a /16 to /21; an eighth of it is one zone's subnet"], {}, id="range too large"),
        pytest.param(new("10.0.0.0/22"), ["network.cidr: 10.0.0.0/22 is a /22; use a /16 to /21; an eighth of it is one zone's subnet"], new("10.0.0.0/21"), id="range too small"),
        pytest.param(new("172.32.0.0/16"), ["network.cidr: 172.32.0.0/16 is not a private range; use part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10"], new("172.31.0.0/16"), id="public range"),
        # An existing VPC
        pytest.param({"network": {"subnets": [SUBNET], **ENDPOINTS}}, ["network.vpc_id: is missing, and subnets is set; add the subnets' VPC"], existing(SUBNET), id="subnets without VPC"),
        pytest.param(existing(), ["network.subnets: is missing, and vpc_id is set; name a private subnet: {subnet_id: …, availability_zone: …}"], existing(SUBNET, OTHER_SUBNET), id="VPC without subnets"),
        pytest.param(existing(SUBNET, vpc_id="vpc-1"), ["network.vpc_id: must be a VPC id such as vpc-0123456789abcdef0, got 'vpc-1'; change it"], existing(SUBNET, vpc_id="vpc-01234567"), id="VPC id"),
        pytest.param(existing({**SUBNET, "subnet_id": "subnet-xyz"}), ["network.subnets[0].subnet_id: must be a subnet id such as subnet-0123456789abcdef0, got 'subnet-xyz'; change it"], {}, id="subnet id"),
        pytest.param(existing(SUBNET, availability_zones=["us-west-2c"]), ["network: the zone 'us-west-2c' is there twice; name each zone once", "network.availability_zones: an existing VPC's subnets name their zones; remove it"], existing(SUBNET, availability_zones=[]), id="zones beside subnets"),
        pytest.param(existing(SUBNET, interface_endpoints=True), ["network.interface_endpoints: an existing VPC's endpoints are yours to make; remove it"], existing(SUBNET, interface_endpoints=False), id="endpoints in an existing VPC"),
        pytest.param(existing(SUBNET, endpoint_security_group_id="sg-1"), ["network.endpoint_security_group_id: must be a security group id such as sg-0123456789abcdef0, got 'sg-1'; change it"], existing(SUBNET, endpoint_security_group_id="sg-01234567"), id="endpoints' group id"),
        pytest.param({"network.endpoint_security_group_id": "sg-01234567"}, ["network.endpoint_security_group_id: a new VPC's endpoints get a group of their own; remove it"], existing(SUBNET), id="endpoints' group in a new VPC"),
        pytest.param(existing({**SUBNET, "cidr": "wide"}), [f"network.subnets[0].cidr: 'wide' {RANGE}"], existing({**SUBNET, "cidr": "10.0.0.0/24"}), id="a subnet's range that is none"),
        pytest.param(existing({**SUBNET, "cidr": "10.0.0.0/29"}), ["network.subnets[0].cidr: 10.0.0.0/29 is a /29, and AWS has subnets of /16 to /28; write the subnet's own range"], {"instance_groups.1.instance_type": "ml.m5.xlarge", **existing({**SUBNET, "cidr": "10.0.0.0/28"})}, id="a subnet's range that no subnet has"),
        pytest.param(existing({**SUBNET, "availability_zone": "us-east-1a"}), ["network.subnets[0].availability_zone: 'us-east-1a' is not in us-west-2; name a zone of the region"], {}, id="a subnet of another region"),
        pytest.param(existing(SUBNET, {**OTHER_SUBNET, "availability_zone": "us-west-2c"}), ["network: the zone 'us-west-2c' is there twice; name each zone once"], {}, id="two subnets of one zone"),
        # Room: P5 takes 32 addresses a node; AWS keeps 5 of each subnet; a closed network has 10 endpoints
        pytest.param({"instance_groups.1.instance_count": 256}, ["network: the subnet 10.0.64.0/19 has 8,187 addresses, and its nodes need 8,203 ('work' alone 8,192); use a larger range, or place groups in several zones"], {"instance_groups.1.instance_count": 255}, id="full: new subnet"),
        pytest.param({**new("10.0.0.0/21"), "instance_groups.1.instance_count": 8}, ["network: the subnet 10.0.2.0/24 has 251 addresses, and its nodes need 267 ('work' alone 256); use a larger range, or place groups in several zones"], {**new("10.0.0.0/21"), "instance_groups.1.instance_count": 7}, id="full: small VPC"),
        pytest.param({"network.internet_egress": False, **new("10.0.0.0/21"), "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.instance_count": 241}, ["network: the subnet 10.0.2.0/24 has 251 addresses, and its nodes need 252 ('work' alone 241); use a larger range, or place groups in several zones"], {"network.internet_egress": True, **new("10.0.0.0/21"), "instance_groups.1.instance_type": "ml.m5.xlarge", "instance_groups.1.instance_count": 241}, id="full: the endpoints need room too"),
        pytest.param({**existing({**SUBNET, "cidr": "10.0.0.0/26"})}, ["network: the subnet 10.0.0.0/26 has 59 addresses, and its nodes need 65 ('work' alone 64); use a larger range, or place groups in several zones"], {**existing({**SUBNET, "cidr": "10.0.0.0/26"}, {**OTHER_SUBNET, "cidr": "10.0.1.0/25"}), "instance_groups.1.availability_zone": "us-west-2d"}, id="full: existing subnet"),
        pytest.param({**existing(SUBNET, {**OTHER_SUBNET, "cidr": "10.0.1.0/26"}), "instance_groups.1.availability_zone": "us-west-2d"}, ["network: the subnet 10.0.1.0/26 has 59 addresses, and its nodes need 64 ('work' alone 64); use a larger range, or place groups in several zones"], existing(SUBNET), id="full: a subnet that is not the first"),
    ],
)  # fmt: skip
def test_rule(bad: Changes, messages: list[str], good: Changes) -> None:
    assert judge(bad) == messages
    assert [message for message in judge(good) if not message.startswith("warning: ")] == []


def test_a_region_without_hyperpod_lists_those_that_have_it() -> None:
    (message,) = judge({"region": "eu-west-3", **NO_ZONES})

    assert message.startswith("region: HyperPod is not in eu-west-3; use one of ap-northeast-1, ap-northeast-2, ")
    assert message.endswith(", us-east-1, us-east-2, us-west-1, us-west-2")


@pytest.mark.parametrize("region", sorted(regions().known))
def test_every_region_of_aws_is_accepted_or_refused_as_such(region: str) -> None:
    problems = [finding.problem for finding in check_region(region)]

    assert problems == ([] if region in regions().available else [f"HyperPod is not in {region}"])


@pytest.mark.parametrize("of_group", [["ml.m5.xlarge"], ["ml.m5.xlarge", "ml.p5.48xlarge"]], ids=["plain", "p5"])
def test_a_zone_should_be_named_for_types_that_few_zones_offer(of_group: list[str]) -> None:
    changes = {**NO_ZONES, "instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": of_group}

    assert judge(changes) == (
        []
        if len(of_group) == 1
        else [
            (
                "warning: network.availability_zones: the cluster goes to the account's first zone, which may not offer "
                "ml.p5.48xlarge; name a zone that has the capacity, such as network: {availability_zones: [us-west-2c]}"
            )
        ]
    )


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

    assert judge(changes) == (
        []
        if of_storage is None
        else [
            (
                f"warning: instance_groups[work].availability_zone: the nodes are in {zone} and their file system in "
                f"{of_storage}; every read and write crosses zones, which is slower and billed; place them together if you can"
            )
        ]
    )


def test_nodes_of_an_existing_vpc_without_a_way_to_aws_services_are_warned_of() -> None:
    closed = {"vpc_id": VPC, "subnets": [SUBNET]}

    assert judge({"network": closed}) == [
        (
            "warning: network.endpoint_security_group_id: is missing: the nodes would reach S3's gateway endpoint and no "
            "other AWS service; name the security group of the VPC's interface endpoints, or set internet_egress"
        )
    ]
    assert judge({"network": {**closed, **ENDPOINTS}}) == []
    assert judge({"network": {**closed, "internet_egress": True}}) == []


@pytest.mark.parametrize("region", ["ap-south-2", "ap-southeast-3", "ap-southeast-4", "eu-south-2"])
def test_an_existing_vpc_names_s3s_prefix_list_where_the_library_does_not_know_it(region: str) -> None:
    subnet = {**SUBNET, "availability_zone": f"{region}a"}
    closed = {"region": region, "network": {"vpc_id": VPC, "subnets": [subnet], **ENDPOINTS}}

    assert [line for line in judge(closed) if "prefix" in line] == [
        (
            f"network.s3_prefix_list_id: is missing, and S3's prefix list of {region} is not known here; name what "
            "`aws ec2 describe-managed-prefix-lists --filters Name=prefix-list-name,"
            f"Values=com.amazonaws.{region}.s3` prints, or set internet_egress"
        )
    ]
    for more in ({"network.s3_prefix_list_id": "pl-01234567"}, {"network.internet_egress": True}):
        assert not [line for line in judge({**closed, **more}) if "prefix" in line]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"endpoint_policies": "organization"}, "network.organization_id: is missing, and endpoint_policies is organization; add what `aws organizations describe-organization --query Organization.Id` prints", id="no organization"),
        pytest.param({"endpoint_policies": "account", "organization_id": "o-a1b2c3d4e5"}, "network.organization_id: has no effect with endpoint_policies: account; remove it, or set endpoint_policies: organization", id="organization beside account"),
        pytest.param({"organization_id": "o-a1b2c3d4e5"}, "network.organization_id: has no effect while endpoint_policies is none; set endpoint_policies, or remove it", id="organization without policies"),
        pytest.param({"trusted_accounts": ["111122223333"]}, "network.trusted_accounts: has no effect while endpoint_policies is none; set endpoint_policies, or remove it", id="trusted without policies"),
        pytest.param({"endpoint_policies": "account", "trusted_accounts": ["111122223333", "111122223333"]}, "network.trusted_accounts: '111122223333' is there twice; name it once", id="trusted twice"),
        pytest.param({"endpoint_policies": "account", "internet_egress": True}, "warning: network.endpoint_policies: does not keep data in with internet_egress: true, which leads past the endpoints; the policies then hold for what still goes through them, such as S3 in the region; set internet_egress: false, or endpoint_policies: none", id="a way past them"),
        pytest.param({"endpoint_policies": "account"}, None, id="account"),
        pytest.param({"endpoint_policies": "organization", "organization_id": "o-a1b2c3d4e5", "trusted_accounts": ["111122223333"]}, None, id="organization and trusted"),
    ],
)  # fmt: skip
def test_endpoint_policies_say_whose_endpoints_they_are(settings: dict[str, object], said: str | None) -> None:
    assert judge({f"network.{key}": value for key, value in settings.items()}) == ([] if said is None else [said])


def test_an_endpoints_policy_has_room_for_200_accounts_more() -> None:
    accounts = [f"{number:012}" for number in range(201)]

    def judged(count: int) -> list[str]:
        return judge({"network.endpoint_policies": "account", "network.trusted_accounts": accounts[:count]})

    assert judged(200) == []
    assert judged(201) == [
        (
            "network.trusted_accounts: there are 201 accounts, and an endpoint's policy holds 200; name fewer: "
            "`endpoint_policies: organization` lets all of an organization's in"
        )
    ]


def test_the_policies_of_an_existing_vpcs_endpoints_are_not_ours() -> None:
    existing = {"vpc_id": VPC, "subnets": [SUBNET], **ENDPOINTS, "endpoint_policies": "account"}
    assert judge({"network": existing}) == [
        (
            "network.endpoint_policies: an existing VPC's endpoints are their owner's, and so are their policies; remove it, "
            "and set the policies there"
        )
    ]


@pytest.mark.parametrize(
    ("network", "end"),
    [
        (NetworkConfig(), "; set network.endpoint_policies: account to refuse that (try it first: docs/deploying.md)"),
        (NetworkConfig(vpc_id=VPC), "; the owner of the VPC can refuse that by policies of its endpoints"),
        (NetworkConfig(internet_egress=True), None),
        (NetworkConfig(endpoint_policies="account"), None),
    ],
)
def test_what_closed_means_is_told_where_endpoints_have_no_policy(network: NetworkConfig, end: str | None) -> None:
    said = what_closed_means(network)
    assert (said is None) is (end is None)
    assert said is None or (
        said.startswith("nodes cannot reach the internet, but data can still leave") and said.endswith(str(end))
    )


def test_a_network_has_at_most_six_zones_also_of_those_that_are_known_at_deployment_only() -> None:
    def said(count: int) -> list[str]:
        zones = tuple(f"${{Token[TOKEN.{n}]}}" for n in range(count))
        return [str(finding) for finding in check_network(NetworkConfig(availability_zones=zones), region="us-west-2")]

    assert said(7) == ["network.availability_zones: there are 7 zones; use at most 6"]
    assert said(6) == []


def test_warnings_of_one_kind_have_one_topic() -> None:
    plain = load_text(safe_dump(changed(NO_ZONES)))
    crossing = load_text(
        safe_dump(changed({"instance_groups.1.availability_zone": "us-west-2a", "storage.capacity_gib": 1200}))
    )

    closed = load_text(safe_dump(changed({"network": {"vpc_id": VPC, "subnets": [SUBNET]}})))
    tiered = load_text(safe_dump(changed({"tiered_storage": {}})))

    assert [warning.code for warning in plain.warnings] == ["unnamed-zone"]
    assert [warning.code for warning in crossing.warnings] == ["file-system-in-another-zone"]
    assert [warning.code for warning in closed.warnings] == ["no-way-to-endpoints"]
    assert [warning.code for warning in tiered.warnings] == ["tiered-storage-under-slurm"]
    assert load_text(safe_dump(dict(SMALL))).warnings == ()


def test_room_is_counted_with_the_largest_of_a_groups_types_and_as_each_orchestrator_counts() -> None:
    subnet = ZoneSubnet(key="a", availability_zone=None, cidr="10.0.0.0/28", endpoints=3)
    group = InstanceGroup(name="g", instance_count=1, instance_types=("ml.m5.xlarge", "ml.p4d.24xlarge"))
    p5 = InstanceGroup(name="p5", instance_count=1, instance_type="ml.p5.48xlarge")

    def needs(group: InstanceGroup, orchestrator: str) -> list[str]:
        return [finding.problem for finding in check_subnet_room([subnet], [group], orchestrator)]

    assert needs(group, "slurm") == []  # 4 cards and 3 endpoints in 11
    assert needs(p5, "slurm") == ["the subnet 10.0.0.0/28 has 11 addresses, and its nodes need 35 ('p5' alone 32)"]
    assert needs(p5, "eks") == ["the subnet 10.0.0.0/28 has 11 addresses, and its nodes need 84 ('p5' alone 81)"]
