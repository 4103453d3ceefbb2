"""Availability zones and their private subnets: pure planning.

The position of a zone's subnet in the VPC's range follows from the zone's own letter or number, not from its position
in a list. Naming one more zone, or naming them in another order, therefore moves no subnet with nodes.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..typed.known import is_known
from .cluster import ClusterConfig, NetworkConfig
from .eks import EksConfig, is_on

SLOTS = 8
"""The VPC's range is divided into eight: zones a to f (1 to 6) have the first six. The seventh is for the account's
first zone, if no zone is named. The eighth is for public subnets, and is again divided into eight."""
_UNNAMED_SLOT = 6
_PUBLIC_SLOT = 7

# What a closed subnet's nodes call: their logs and metrics, SSM sessions, their role, their network interfaces,
# container images, and HyperPod itself. S3 has a gateway endpoint, which needs no address.
INTERFACE_ENDPOINTS = (
    "ec2",
    "ec2messages",
    "ecr.api",
    "ecr.dkr",
    "logs",
    "monitoring",
    "sagemaker.api",
    "ssm",
    "ssmmessages",
    "sts",
)
# What EKS adds: the functions that run kubectl find their cluster (eks) and each other (lambda), pods get their roles.
EKS_INTERFACE_ENDPOINTS = ("eks", "eks-auth", "lambda")


ZONES_WITHOUT_EKS = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Zones that do not support a subnet of a control plane
(https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html)."""

# Zones for a second subnet of the control plane, by the zones' letters and by the numbers of their ids. Append only: a change
# of an entry's first two would move the subnet of an existing cluster. The letter of an id differs between accounts:
# us-east-1e usually is use1-az3, and in us-west-1 no letter exists in every account.
_EKS_ZONES: Mapping[str, tuple[str, str]] = {
    "ap-northeast-1": ("acd", "124"),
    "ap-northeast-2": ("abcd", "1234"),
    "ap-south-1": ("abc", "123"),
    "ap-south-2": ("abc", "123"),
    "ap-southeast-1": ("abc", "123"),
    "ap-southeast-2": ("abc", "123"),
    "ap-southeast-3": ("abc", "123"),
    "ap-southeast-4": ("abc", "123"),
    "ca-central-1": ("abd", "124"),
    "eu-central-1": ("abc", "123"),
    "eu-north-1": ("abc", "123"),
    "eu-south-2": ("abc", "123"),
    "eu-west-1": ("abc", "123"),
    "eu-west-2": ("abc", "123"),
    "sa-east-1": ("abc", "123"),
    "us-east-1": ("abcdf", "12456"),
    "us-east-2": ("abc", "123"),
    "us-west-1": ("", "13"),
    "us-west-2": ("abcd", "1234"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneSubnet:
    """A zone's private subnet, before it has an id."""

    key: str
    """The subnet's name in the template: the zone, or Default for the account's first one."""
    availability_zone: str | None
    """None: the account's first zone."""
    cidr: str | None
    """None: an existing subnet without a known range."""
    public_cidr: str | None = None
    """The range of the zone's public subnet, if it needs one."""
    endpoints: int = 0
    """How many interface endpoints are in it."""


def is_zone_id(zone: str) -> bool:
    """Whether a zone is given by its id (usw2-az3), which is the same in every account, not by its name."""
    return "-az" in zone


def zone_prefixes(region: str) -> tuple[str, str]:
    """How a region's zone names and zone ids begin: `us-west-2` and `usw2-`."""
    area, *direction, number = region.split("-")
    short = re.sub(r"(north|south|east|west|central)", lambda word: word[0][0], "".join(direction))
    return region, f"{area}{short}{number}-"


def second_zone(region: str, zone: str) -> str | None:
    """The zone of the second subnet of an EKS control plane. None: it is not known here.

    It depends on the two names alone, so that no other setting ever moves the subnet.
    """
    names, ids = _eks_zones(region)
    return next((other for other in (ids if is_zone_id(zone) else names) if other != zone), None)


def two_zones(region: str) -> tuple[str, ...]:
    """Two zones of a region that have EKS, as an example. Empty: the region is unknown."""
    names, ids = _eks_zones(region)
    return tuple((names or ids)[:2])


def _eks_zones(region: str) -> tuple[list[str], list[str]]:
    if region not in _EKS_ZONES:
        return [], []
    letters, numbers = _EKS_ZONES[region]
    name_prefix, id_prefix = zone_prefixes(region)
    return [name_prefix + letter for letter in letters], [f"{id_prefix}az{number}" for number in numbers]


def control_plane_zones(zones: Sequence[str | None], second: str | None) -> list[str | None]:
    """The zones of a new EKS cluster's control plane: the first one with a subnet, and `second`. None: the first two.

    EKS keeps the zones of its creation. A third one, which a group may need later, therefore never counts.
    """
    distinct = list(dict.fromkeys(zones))
    return distinct[:2] if second is None else [*distinct[:1], second]


def control_plane_zone(config: ClusterConfig) -> str | None:
    """The second zone for a cluster file that names one. None: the cluster needs none, or must name two."""
    network, eks = config.network, config.eks
    if config.orchestrator != "eks" or not isinstance(eks, EksConfig) or not isinstance(network, NetworkConfig):
        return None
    zones = network.availability_zones
    if eks.existing_cluster is not None or network.vpc_id is not None or not is_known((zones, config.region)):
        return None
    return second_zone(config.region, zones[0]) if len(set(zones)) == 1 else None


def zones_of_all(config: ClusterConfig) -> tuple[str, ...]:
    """The zones of the network, and other zones that groups name."""
    of_groups = [group.availability_zone for group in config.instance_groups if group.availability_zone is not None]
    return tuple(dict.fromkeys([*config.network.availability_zones, *of_groups]))


def control_plane_subnet(network: NetworkConfig, zone: str) -> ZoneSubnet:
    """The subnet of a control plane's second zone, at the position that it would have if the network named the zone."""
    return plan_subnets(dataclasses.replace(network, availability_zones=(zone,)))[0]


def has_interface_endpoints(network: NetworkConfig) -> bool:
    """Whether the network creates interface endpoints: on request, or because a new closed VPC needs them."""
    if network.vpc_id is not None:
        return False
    return not network.internet_egress if network.interface_endpoints is None else network.interface_endpoints


def more_endpoints(config: ClusterConfig) -> tuple[str, ...]:
    """The services that a cluster calls in addition to `INTERFACE_ENDPOINTS`."""
    if config.orchestrator != "eks":
        return ()
    eks = config.eks
    if not isinstance(eks, EksConfig):
        return EKS_INTERFACE_ENDPOINTS
    driver = getattr(eks.add_ons, "fsx_csi_driver", None)
    needed = {
        "aps-workspaces": is_on(eks, "observability", has_file_system=False),
        "fsx": getattr(driver, "storage_class", False) is True,
    }
    return (*EKS_INTERFACE_ENDPOINTS, *(service for service, is_needed in needed.items() if is_needed))


def plan_subnets(
    network: NetworkConfig, group_zones: Sequence[str] = (), services: Sequence[str] = ()
) -> tuple[ZoneSubnet, ...]:
    """The private subnets of a network and of the zones that groups name, the cluster's own first.

    `services`: those with an interface endpoint in addition to `INTERFACE_ENDPOINTS`.
    """
    endpoints = len(INTERFACE_ENDPOINTS) + len(services) if has_interface_endpoints(network) else 0
    if network.subnets:
        return tuple(
            ZoneSubnet(key=subnet.subnet_id, availability_zone=subnet.availability_zone, cidr=subnet.cidr)
            for subnet in network.subnets
        )
    zones: Sequence[str | None] = list(dict.fromkeys([*network.availability_zones, *group_zones])) or [None]
    slots = _cut(network.cidr)
    public_slots = _cut(slots[_PUBLIC_SLOT])
    taken = {_slot(zone) for zone in zones if is_known(zone)}
    free = (slot for slot in range(_PUBLIC_SLOT) if slot not in taken)
    subnets = []
    for position, zone in enumerate(zones):
        slot = _slot(zone) if is_known(zone) else next(free)
        subnets.append(
            ZoneSubnet(
                key=_key(zone, position),
                availability_zone=zone,
                cidr=slots[slot],
                public_cidr=public_slots[slot],
                endpoints=endpoints if position == 0 else 0,
            )
        )
    return tuple(subnets)


def _cut(cidr: str) -> list[str]:
    network = ipaddress.IPv4Network(cidr)
    return [str(part) for part in network.subnets(prefixlen_diff=SLOTS.bit_length() - 1)]


def _slot(zone: str | None) -> int:
    if zone is None:
        return _UNNAMED_SLOT
    if is_zone_id(zone):
        return (int(re.findall(r"[0-9]+", zone)[-1]) - 1) % _UNNAMED_SLOT
    return (ord(zone[-1]) - ord("a")) % _UNNAMED_SLOT


def _key(zone: str | None, position: int) -> str:
    if zone is None:
        return "Default"
    if not is_known(zone):
        return f"Zone{position}"
    return "".join(part.capitalize() for part in re.findall(r"[a-z0-9]+", zone))
