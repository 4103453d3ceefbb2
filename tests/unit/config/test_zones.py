"""Zones and their subnets: a subnet's range follows its zone, so that a zone more moves no subnet that has nodes."""

from __future__ import annotations

import ipaddress
import itertools
import string
from typing import Any

import pytest

from cdk_hyperpod import SubnetConfig
from cdk_hyperpod.config import NetworkConfig
from cdk_hyperpod.config.zones import (
    INTERFACE_ENDPOINTS,
    ZoneSubnet,
    has_interface_endpoints,
    is_zone_id,
    plan_subnets,
    second_zone,
    zone_prefixes,
)
from cdk_hyperpod.facts.instance_types import regions

NAMES = [f"us-west-2{letter}" for letter in "abcdef"]
IDS = [f"usw2-az{number}" for number in range(1, 7)]
TOKENS = ["${Token[TOKEN.1]}", "${Token[TOKEN.2]}"]


def ranges(*zones: str, group_zones: tuple[str, ...] = (), cidr: str = "10.0.0.0/16") -> dict[str | None, str | None]:
    network = NetworkConfig(availability_zones=zones, cidr=cidr)
    return {subnet.availability_zone: subnet.cidr for subnet in plan_subnets(network, group_zones)}


# As AWS lists them: https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
@pytest.mark.parametrize(
    ("region", "prefix"),
    [
        ("ap-northeast-1", "apne1-"),
        ("ap-northeast-2", "apne2-"),
        ("ap-south-1", "aps1-"),
        ("ap-south-2", "aps2-"),
        ("ap-southeast-1", "apse1-"),
        ("ap-southeast-2", "apse2-"),
        ("ap-southeast-3", "apse3-"),
        ("ap-southeast-4", "apse4-"),
        ("ca-central-1", "cac1-"),
        ("eu-central-1", "euc1-"),
        ("eu-north-1", "eun1-"),
        ("eu-south-2", "eus2-"),
        ("eu-west-1", "euw1-"),
        ("eu-west-2", "euw2-"),
        ("sa-east-1", "sae1-"),
        ("us-east-1", "use1-"),
        ("us-east-2", "use2-"),
        ("us-west-1", "usw1-"),
        ("us-west-2", "usw2-"),
    ],
)
def test_zone_names_and_ids_begin_like_their_region(region: str, prefix: str) -> None:
    assert zone_prefixes(region) == (region, prefix)


def test_the_prefix_of_every_region_with_hyperpod_is_checked_above() -> None:
    (mark,) = test_zone_names_and_ids_begin_like_their_region.pytestmark  # type: ignore[attr-defined]

    assert {region for region, _ in mark.args[1]} == regions().available


@pytest.mark.parametrize("zone", [*NAMES, *IDS])
def test_zone_names_and_zone_ids_are_distinguished(zone: str) -> None:
    assert is_zone_id(zone) == (zone in IDS)


@pytest.mark.parametrize("zones", [NAMES, IDS], ids=["names", "ids"])
def test_a_subnet_stays_where_it_is_whatever_zones_are_named_beside_it(zones: list[str]) -> None:
    places = {zone: f"10.0.{32 * position}.0/19" for position, zone in enumerate(zones)}

    for count in (1, 2, 3):
        for chosen in itertools.permutations(zones, count):
            assert ranges(*chosen) == {zone: places[zone] for zone in chosen}
    assert ranges(zones[2], group_zones=(zones[0], zones[2], zones[0])) == {
        zones[2]: places[zones[2]],
        zones[0]: places[zones[0]],
    }


def test_the_accounts_first_zone_has_a_place_that_no_named_zone_has() -> None:
    assert plan_subnets(NetworkConfig()) == (
        ZoneSubnet(
            key="Default",
            availability_zone=None,
            cidr="10.0.192.0/19",
            public_cidr="10.0.248.0/22",
            endpoints=len(INTERFACE_ENDPOINTS),
        ),
    )


@pytest.mark.parametrize(
    "zones",
    [
        pytest.param((*TOKENS,), id="only tokens"),
        pytest.param((TOKENS[0], NAMES[0], TOKENS[1], NAMES[1]), id="tokens before names"),
        pytest.param((NAMES[1], NAMES[0], *TOKENS), id="tokens after names"),
        pytest.param((*IDS,), id="every zone"),
    ],
)
@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "172.16.8.0/21"])
def test_no_two_subnets_overlap_and_all_lie_in_the_vpc(zones: tuple[str, ...], cidr: str) -> None:
    plans = plan_subnets(NetworkConfig(availability_zones=zones, cidr=cidr))
    networks = [ipaddress.IPv4Network(str(text)) for plan in plans for text in (plan.cidr, plan.public_cidr)]

    assert len(networks) == 2 * len(zones)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))
    assert all(network.subnet_of(ipaddress.IPv4Network(cidr)) and network.prefixlen <= 28 for network in networks)
    assert len({plan.key for plan in plans}) == len(zones)
    assert all(set(plan.key) <= set(string.ascii_letters + string.digits) for plan in plans)


def test_the_first_zone_is_the_clusters_own_and_has_the_endpoints() -> None:
    plans = plan_subnets(NetworkConfig(availability_zones=("us-west-2c", "us-west-2a")), ["us-west-2b"])

    assert [(plan.key, plan.endpoints) for plan in plans] == [("UsWest2c", 10), ("UsWest2a", 0), ("UsWest2b", 0)]


def test_existing_subnets_are_taken_as_they_are() -> None:
    subnet = SubnetConfig(subnet_id="subnet-01234567", availability_zone="us-west-2c", cidr="10.9.0.0/24")
    network = NetworkConfig(vpc_id="vpc-01234567", subnets=(subnet,))

    assert plan_subnets(network, ["us-west-2a"]) == (
        ZoneSubnet(key="subnet-01234567", availability_zone="us-west-2c", cidr="10.9.0.0/24"),
    )


@pytest.mark.parametrize(
    ("settings", "has"),
    [
        pytest.param({}, True, id="closed"),
        pytest.param({"internet_egress": True}, False, id="open"),
        pytest.param({"internet_egress": True, "interface_endpoints": True}, True, id="open, asked for"),
        pytest.param({"interface_endpoints": False}, False, id="closed, not wanted"),
        pytest.param({"vpc_id": "vpc-01234567"}, False, id="existing"),
    ],
)
def test_endpoints_are_made_where_nothing_else_leads_to_aws(settings: dict[str, Any], has: bool) -> None:
    assert has_interface_endpoints(NetworkConfig(**settings)) is has


SECOND = {
    "ap-northeast-1": "ac",
    "ap-northeast-2": "ab",
    "us-east-1": "ab",
    "ca-central-1": "ab",
    "us-west-2": "ab",
    "eu-west-1": "ab",
}


@pytest.mark.parametrize("region", sorted(regions().available - {"us-west-1"}))
def test_the_second_zone_never_moves(region: str) -> None:
    """Written down here once more: a change would replace subnets of control planes that stand."""
    first, second = list(SECOND.get(region, "ab"))
    assert second_zone(region, f"{region}{first}") == f"{region}{second}"
    assert second_zone(region, f"{region}{second}") == f"{region}{first}"
    assert second_zone(region, f"{region}d") == f"{region}{first}"
    prefix = zone_prefixes(region)[1]
    assert second_zone(region, f"{prefix}az1") == f"{prefix}az2"
    assert second_zone(region, f"{prefix}az3") == f"{prefix}az1"
    assert plan_subnets(NetworkConfig(availability_zones=(f"{region}{first}", f"{region}{second}")))


def test_a_zone_without_eks_is_never_the_second_zone() -> None:
    assert second_zone("us-west-1", "usw1-az1") == "usw1-az3"
    assert second_zone("us-west-1", "us-west-1a") is None
    for region, zone in (("us-east-1", "use1-az3"), ("us-west-1", "usw1-az2"), ("ca-central-1", "cac1-az3")):
        prefix = zone_prefixes(region)[1]
        assert zone not in {second_zone(region, f"{prefix}az{number}") for number in range(1, 7)}
