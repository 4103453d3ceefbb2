"""Rules of regions, availability zones and room for addresses.

Sources: the developer guide's page "Prerequisites for using SageMaker HyperPod" (addresses for each node, one zone
for EFA); "Subnet CIDR blocks" in the VPC user guide (five addresses of a subnet are AWS's own).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterator, Sequence

from .._structure import is_known, item_path, show
from ..config import ClusterConfig, InstanceGroup, NetworkConfig, StorageConfig
from ..errors import Finding
from ..instance_types import catalogue, regions
from ..zones import ZoneSubnet, is_zone_id, plan_subnets, zone_prefixes

RESERVED_ADDRESSES = 5
"""Of each subnet, AWS keeps the first four and the last."""


def check_region(region: str) -> Iterator[Finding]:
    """Whether AWS::SageMaker::Cluster exists in the region."""
    if not is_known(region) or region in regions().available:
        return
    if region in regions().known:
        yield Finding(
            path="region",
            problem=f"HyperPod is not in {region}",
            remedy=f"use one of {', '.join(sorted(regions().available))}",
        )
        return
    close = difflib.get_close_matches(region[:80], sorted(regions().available), n=1)
    yield Finding(
        path="region",
        problem=f"AWS has no region {show(region)}",
        remedy=f"did you mean {close[0]}?" if close else "use one such as us-west-2",
    )


def check_network(network: NetworkConfig, *, region: str, path: str = "network") -> Iterator[Finding]:
    """Everything that is wrong with a network by itself."""
    if not isinstance(network, NetworkConfig):
        return
    if network.vpc_id is not None or network.subnets:
        yield from _check_existing(network, path)
    else:
        yield from _check_cidr(network.cidr, f"{path}.cidr")
    zones = _known_zones(network)
    for zone_path, zone in zones:
        if is_known(region) and region in regions().known and not zone.startswith(zone_prefixes(region)):
            yield Finding(
                path=zone_path, problem=f"{show(zone)} is not in {region}", remedy="name a zone of the region"
            )
    if len({is_zone_id(zone) for _, zone in zones}) > 1:
        yield Finding(
            path=path,
            problem="zone names and zone ids are mixed",
            remedy="use names such as us-west-2c throughout, or ids such as usw2-az3",
        )
    names = [zone for _, zone in zones]
    for zone in dict.fromkeys(names):
        if names.count(zone) > 1:
            yield Finding(path=path, problem=f"the zone {show(zone)} stands twice", remedy="name each zone once")


def _known_zones(network: NetworkConfig) -> list[tuple[str, str]]:
    """Path and name of every zone that the network names and that can be looked at."""
    zones: list[tuple[str, str]] = []
    if isinstance(network.availability_zones, tuple):
        zones += [(f"network.availability_zones[{i}]", zone) for i, zone in enumerate(network.availability_zones)]
    if isinstance(network.subnets, tuple):
        zones += [
            (f"network.subnets[{i}].availability_zone", subnet.availability_zone)
            for i, subnet in enumerate(network.subnets)
            if is_known(subnet)
        ]
    return [(path, zone) for path, zone in zones if is_known(zone)]


def _check_existing(network: NetworkConfig, path: str) -> Iterator[Finding]:
    if network.vpc_id is None:
        yield Finding(path=f"{path}.vpc_id", problem="is missing beside subnets", remedy="add the subnets' VPC")
    if not network.subnets:
        yield Finding(
            path=f"{path}.subnets",
            problem="is missing beside vpc_id",
            remedy="name a private subnet: {subnet_id: …, availability_zone: …}",
        )
    if network.availability_zones:
        yield Finding(
            path=f"{path}.availability_zones",
            problem="an existing VPC's subnets name their zones",
            remedy="remove it",
        )
    if network.interface_endpoints is True:
        yield Finding(
            path=f"{path}.interface_endpoints",
            problem="an existing VPC's endpoints are yours to make",
            remedy="remove it",
        )
    if is_known(network.subnets):
        for index, subnet in enumerate(network.subnets):
            if subnet.cidr is not None and _parse_cidr(subnet.cidr) is None:
                yield _bad_cidr(f"{path}.subnets[{index}].cidr", subnet.cidr)


def _check_cidr(cidr: object, path: str) -> Iterator[Finding]:
    if not isinstance(cidr, str) or not is_known(cidr):
        return
    parsed = _parse_cidr(cidr)
    if parsed is None:
        yield _bad_cidr(path, cidr)
    elif not 16 <= parsed.prefixlen <= 21:
        yield Finding(
            path=path,
            problem=f"{cidr} is a /{parsed.prefixlen}",
            remedy="use a /16 to /21; an eighth of it is one zone's subnet",
        )
    elif not any(parsed.subnet_of(private) for private in _PRIVATE):
        yield Finding(
            path=path,
            problem=f"{cidr} is not a private range",
            remedy="use part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10",
        )


_PRIVATE = tuple(
    ipaddress.IPv4Network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)


def _parse_cidr(cidr: str) -> ipaddress.IPv4Network | None:
    if not re.fullmatch(r"[0-9.]{7,15}/[0-9]{1,2}", cidr):
        return None
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def _bad_cidr(path: str, cidr: str) -> Finding:
    return Finding(path=path, problem=f"{show(cidr)} is not an IPv4 range", remedy="use one such as 10.0.0.0/16")


def check_zones(config: ClusterConfig) -> Iterator[Finding]:
    """Whether every group's zone fits the network, and what crossing zones costs."""
    network = config.network
    if not isinstance(network, NetworkConfig) or not is_known(network) or not is_known(network.subnets):
        return
    own = own_zones(network)
    if not own and network.vpc_id is None:
        yield from _check_unnamed_zone(config)
        return
    for path, group in _known_groups(config.instance_groups):
        zone = group.availability_zone
        if zone is None or not is_known(zone):
            continue
        if network.subnets and zone not in own:
            yield Finding(
                path=f"{path}.availability_zone",
                problem=f"no subnet of network.subnets is in {show(zone)}",
                remedy="add one, or use one of " + ", ".join(own),
            )
        if not network.subnets and own and is_known(own[0]) and is_zone_id(zone) != is_zone_id(own[0]):
            yield Finding(
                path=f"{path}.availability_zone",
                problem=f"{show(zone)} and network.availability_zones mix zone names and zone ids",
                remedy="use names such as us-west-2c throughout, or ids such as usw2-az3",
            )
        if (
            is_known(config.region)
            and config.region in regions().known
            and not zone.startswith(zone_prefixes(config.region))
        ):
            yield Finding(
                path=f"{path}.availability_zone",
                problem=f"{show(zone)} is not in {config.region}",
                remedy="name a zone of the region",
            )


def check_file_system_zone(groups: Sequence[InstanceGroup], file_system_zone: str | None) -> Iterator[Finding]:
    """A warning for each group that lives in another zone than its file system; None: that zone is not known."""
    for path, group in _known_groups(groups) if file_system_zone is not None and is_known(file_system_zone) else ():
        zone = group.availability_zone
        if zone is not None and is_known(zone) and zone != file_system_zone:
            yield Finding(
                path=f"{path}.availability_zone",
                problem=f"the nodes are in {zone} and their file system in {file_system_zone}",
                remedy="every read and write crosses zones, which is slower and billed; place them together if you can",
                level="warning",
                topic="file-system-in-another-zone",
            )


def file_system_zone(config: ClusterConfig) -> str | None:
    """The zone of a cluster's file system; None: there is none, or it is not known."""
    storage, network = config.storage, config.network
    if not isinstance(storage, StorageConfig) or not isinstance(network, NetworkConfig):
        return None
    if storage.file_system_id is not None:
        return storage.availability_zone
    own = own_zones(network)
    return own[0] if own else None


def own_zones(network: NetworkConfig) -> list[str]:
    """The zones that a network names; the first is the cluster's own."""
    if not is_known(network.availability_zones) or not is_known(network.subnets):
        return []
    return [*network.availability_zones, *(subnet.availability_zone for subnet in network.subnets if is_known(subnet))]


def _check_unnamed_zone(config: ClusterConfig) -> Iterator[Finding]:
    for path, group in _known_groups(config.instance_groups):
        if group.availability_zone is not None:
            yield Finding(
                path=f"{path}.availability_zone",
                problem="a group names its zone, and network.availability_zones does not name the cluster's own",
                remedy="add network.availability_zones, the cluster's own zone first",
            )
        types = [catalogue()[name] for name in group.all_instance_types if is_known(name) and name in catalogue()]
        if any(instance_type.is_accelerated for instance_type in types):
            yield Finding(
                path="network.availability_zones",
                problem=f"the cluster goes to the account's first zone, which may not offer {types[0].name}",
                remedy="name a zone that has the capacity, such as network: {availability_zones: [us-west-2c]}",
                level="warning",
                topic="unnamed-zone",
            )
            return


def _known_groups(groups: Sequence[InstanceGroup]) -> list[tuple[str, InstanceGroup]]:
    if not isinstance(groups, tuple):
        return []
    return [(item_path("instance_groups", i, group), group) for i, group in enumerate(groups) if is_known(group)]


def check_room(config: ClusterConfig) -> Iterator[Finding]:
    """Whether each subnet has an address for everything that will live in it."""
    network = config.network
    if not is_known(network) or any(
        finding.level == "error" for finding in check_network(network, region=config.region)
    ):
        return
    groups = [group for _, group in _known_groups(config.instance_groups) if is_known(group.instance_count)]
    zones = [group.availability_zone for group in groups if group.availability_zone is not None]
    subnets = plan_subnets(network, [zone for zone in zones if is_known(zone)])
    yield from check_subnet_room(subnets, groups, config.orchestrator)


def check_subnet_room(
    subnets: Sequence[ZoneSubnet], groups: Sequence[InstanceGroup], orchestrator: str
) -> Iterator[Finding]:
    """Whether each subnet whose range is known has an address for everything that will live in it."""
    for position, subnet in enumerate(subnets):
        if subnet.cidr is None or not is_known(subnet.cidr):
            continue
        here = [
            group
            for group in groups
            if group.availability_zone == subnet.availability_zone
            or (group.availability_zone is None and position == 0)
        ]
        needed = subnet.endpoints + sum(_addresses(group, orchestrator) for group in here)
        room = ipaddress.IPv4Network(subnet.cidr).num_addresses - RESERVED_ADDRESSES
        if needed > room:
            biggest = max(here, key=lambda group: _addresses(group, orchestrator))
            yield Finding(
                path="network",
                problem=(
                    f"the subnet {subnet.cidr} has {room:,} addresses, and its nodes need {needed:,} "
                    f"({biggest.name} alone {_addresses(biggest, orchestrator):,})"
                ),
                remedy="use a larger range, or place groups in several zones",
            )


def _addresses(group: InstanceGroup, orchestrator: str) -> int:
    """How many addresses a group at its full count takes."""
    if not is_known(group.instance_count):
        return 0
    types = [catalogue()[name] for name in group.all_instance_types if is_known(name) and name in catalogue()]
    of_a_node = max((kind.ip_addresses("eks" if orchestrator == "eks" else "slurm") for kind in types), default=1)
    return group.instance_count * of_a_node
