"""Rules of regions, availability zones and room for addresses.

Sources: the developer guide's page "Prerequisites for using SageMaker HyperPod" (addresses for each node, one zone
for EFA); "Subnet CIDR blocks" in the VPC user guide (five addresses of a subnet are AWS's own).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..config.cluster import ClusterConfig, InstanceGroup, NetworkConfig, SubnetConfig
from ..config.storage import StorageConfig
from ..config.zones import ZoneSubnet, is_zone_id, more_endpoints, plan_subnets, zone_prefixes
from ..errors import Finding
from ..facts.instance_types import regions
from ..facts.s3_prefix_lists import S3_PREFIX_LISTS
from ..typed.known import UNKNOWN, is_known
from ..typed.words import item_paths, show
from .endpoint_policies import check_endpoint_policies
from .groups import known_types

RESERVED_ADDRESSES = 5
"""AWS reserves the first four addresses and the last one of each subnet."""


def check_region(region: str) -> Iterator[Finding]:
    """Whether AWS::SageMaker::Cluster exists in the region."""
    if not is_known(region) or region in regions().available:
        return
    available = sorted(regions().available)
    if region in regions().known:
        yield Finding(
            code="region-without-hyperpod",
            path="region",
            problem=f"HyperPod is not available in {region}",
            remedy=f"use one of {', '.join(available)}",
        )
        return
    close = difflib.get_close_matches(region[:80], available, n=1)
    if close:
        likely = close[0]
        yield Finding(
            code="region-misspelled",
            path="region",
            problem=f"AWS has no region {show(region)}",
            remedy=f"did you mean {likely}?",
        )
    else:
        yield Finding(
            code="region-unknown",
            path="region",
            problem=f"AWS has no region {show(region)}",
            remedy="use one such as us-west-2",
        )


def what_closed_means(network: NetworkConfig) -> str | None:
    """One sentence on how data can leave a network without internet egress. None: it cannot, or there is internet egress."""
    if network.internet_egress or network.endpoint_policies != "none":
        return None
    note = (
        "nodes cannot reach the internet, but data can still leave: a program on a node that has keys of another account can "
        "copy data through the VPC endpoints to any bucket of the region"
    )
    if network.vpc_id is not None:
        return f"{note}; the owner of the VPC can prevent that by policies of its endpoints"
    return f"{note}; set network.endpoint_policies: account to prevent that (try it first: docs/closed-networks.md)"


def check_network(network: NetworkConfig, *, region: str, path: str = "network") -> Iterator[Finding]:
    """Everything that is wrong with a network by itself."""
    if not isinstance(network, NetworkConfig):
        return
    if network.vpc_id is not None or network.subnets:
        yield from _check_existing(network, path)
        yield from _check_prefix_list(network, region, path)
    else:
        yield from _check_cidr(network.cidr, f"{path}.cidr")
        if network.endpoint_security_group_id is not None:
            yield Finding(
                code="endpoint-group-in-new-vpc",
                path=f"{path}.endpoint_security_group_id",
                problem="cannot be set for a new VPC, whose endpoints get a security group of their own",
                remedy="remove it",
            )
        zone_count = len(network.availability_zones) if isinstance(network.availability_zones, tuple) else 0
        if zone_count > 6:
            yield Finding(
                code="zones-too-many",
                path=f"{path}.availability_zones",
                problem=f"there are {zone_count} zones",
                remedy="use at most 6",
            )
    yield from check_endpoint_policies(network, path)
    zones = _known_zones(network)
    for zone_path, zone in zones:
        yield from _check_zone_region(zone, region, zone_path)
    if len({is_zone_id(zone) for _, zone in zones}) > 1:
        yield Finding(
            code="zone-names-and-ids",
            path=path,
            problem="zone names and zone ids are mixed",
            remedy="use only names such as us-west-2c, or only ids such as usw2-az3",
        )
    if network.availability_zones and network.subnets:
        return  # reported as zones-in-existing-vpc
    for zone, count in Counter(zone for _, zone in zones).items():
        if count > 1:
            yield Finding(
                code="zone-duplicated",
                path=path,
                problem=f"the zone {show(zone)} is duplicated",
                remedy="name each zone once",
            )


def _check_zone_region(zone: str, region: str, path: str) -> Iterator[Finding]:
    if is_known(region) and region in regions().available and not zone.startswith(zone_prefixes(region)):
        yield Finding(
            code="zone-in-another-region",
            path=path,
            problem=f"{show(zone)} is not in {region}",
            remedy="name a zone of the region",
        )


def _known_zones(network: NetworkConfig) -> list[tuple[str, str]]:
    """Path and name of every zone that the network names, without those that are not known."""
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
        yield Finding(
            code="vpc-missing",
            path=f"{path}.vpc_id",
            problem="is missing, but subnets is set",
            remedy="add the subnets' VPC",
        )
    if not network.subnets:
        yield Finding(
            code="subnets-missing",
            path=f"{path}.subnets",
            problem="is missing, but vpc_id is set",
            remedy="name a private subnet: {subnet_id: …, availability_zone: …}",
        )
    if network.availability_zones:
        yield Finding(
            code="zones-in-existing-vpc",
            path=f"{path}.availability_zones",
            problem="cannot be combined with vpc_id: the subnets name their zones",
            remedy="remove it",
        )
    # A cidr that is written as the default cannot be told from none.
    if is_known(network.cidr) and network.cidr != NetworkConfig().cidr:
        yield Finding(
            code="cidr-in-existing-vpc",
            path=f"{path}.cidr",
            problem="cannot be combined with vpc_id: an existing VPC has a range already",
            remedy="remove it, and write a subnet's range in subnets",
        )
    if network.interface_endpoints is True:
        yield Finding(
            code="endpoints-in-existing-vpc",
            path=f"{path}.interface_endpoints",
            problem="cannot be combined with vpc_id: you create the endpoints of an existing VPC",
            remedy="remove it",
        )
    if not network.internet_egress and network.endpoint_security_group_id is None:
        yield Finding(
            code="endpoint-group-missing",
            path=f"{path}.endpoint_security_group_id",
            problem="is missing, so the nodes can reach S3's gateway endpoint but no other AWS service",
            remedy="name the security group of the VPC's interface endpoints, or set internet_egress",
            level="warning",
        )
    yield from _check_subnets(network.subnets, f"{path}.subnets")


def _check_subnets(subnets: Sequence[SubnetConfig], path: str) -> Iterator[Finding]:
    """Existing subnets: each one once, with a range that AWS accepts beside the others."""
    known = [
        (f"{path}[{index}]", subnet)
        for index, subnet in enumerate(subnets if isinstance(subnets, tuple) else ())
        if is_known(subnet)
    ]
    yield from _check_subnet_ids(known)
    ranges: list[tuple[str, ipaddress.IPv4Network]] = []
    for place, subnet in known:
        if subnet.cidr is None or not is_known(subnet.cidr):
            continue
        parsed = _parse_cidr(subnet.cidr)
        if parsed is None:
            yield _bad_cidr(f"{place}.cidr", subnet.cidr)
            continue
        yield from _check_subnet_range(parsed, f"{place}.cidr", ranges)
        ranges.append((f"{place}.cidr", parsed))


def _check_subnet_ids(subnets: Sequence[tuple[str, SubnetConfig]]) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for place, subnet in subnets:
        name = subnet.subnet_id
        if is_known(name) and name in first:
            other = first[name]
            yield Finding(
                code="subnet-duplicated",
                path=f"{place}.subnet_id",
                problem=f"{show(name)} is also {other}",
                remedy="name each subnet once, with its own zone",
            )
        first.setdefault(name, place)


def _check_subnet_range(
    cidr: ipaddress.IPv4Network, path: str, others: Sequence[tuple[str, ipaddress.IPv4Network]]
) -> Iterator[Finding]:
    length = cidr.prefixlen
    if not 16 <= length <= 28:
        yield Finding(
            code="subnet-size-not-supported",
            path=path,
            problem=f"{cidr} is a /{length}, but AWS has subnets of /16 to /28",
            remedy="write the subnet's own range",
        )
    for place, other in others:
        if cidr.overlaps(other):
            yield Finding(
                code="subnets-overlap",
                path=path,
                problem=f"{cidr} overlaps {other} of {place}, which no two subnets of a VPC do",
                remedy="write the ranges that `aws ec2 describe-subnets` prints",
            )


def _check_prefix_list(network: NetworkConfig, region: str, path: str) -> Iterator[Finding]:
    """An existing VPC may have routes to any address, so access to S3 is limited to the addresses of S3's prefix list."""
    if network.internet_egress or network.s3_prefix_list_id is not None or region in S3_PREFIX_LISTS:
        return
    if region is UNKNOWN:
        return
    shown_region = region if is_known(region) else "REGION"
    yield Finding(
        code="prefix-list-unknown",
        path=f"{path}.s3_prefix_list_id",
        problem=f"is missing, and S3's prefix list in {shown_region} is not known to this library",
        remedy=(
            "name what `aws ec2 describe-managed-prefix-lists --filters "
            f"Name=prefix-list-name,Values=com.amazonaws.{shown_region}.s3` prints, or set internet_egress"
        ),
    )


def _check_cidr(cidr: str, path: str) -> Iterator[Finding]:
    if not is_known(cidr):
        return
    parsed = _parse_cidr(cidr)
    if parsed is None:
        yield _bad_cidr(path, cidr)
    elif not 16 <= parsed.prefixlen <= 21:
        length = parsed.prefixlen
        yield Finding(
            code="vpc-size-not-supported",
            path=path,
            problem=f"{cidr} is a /{length}, but a VPC of this library is a /16 to a /21",
            remedy="use one of these sizes. One eighth of it becomes a zone's subnet",
        )
    elif not any(parsed.subnet_of(private) for private in PRIVATE):
        yield Finding(
            code="vpc-range-public",
            path=path,
            problem=f"{cidr} is not a private range",
            remedy="use part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10",
        )


PRIVATE = tuple(
    ipaddress.IPv4Network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""Ranges that a VPC may have and that do not exist on the internet."""


def _parse_cidr(cidr: str) -> ipaddress.IPv4Network | None:
    parsed = _range_around(cidr)
    return parsed if str(parsed) == cidr else None


def _range_around(cidr: str) -> ipaddress.IPv4Network | None:
    """The range of this length that has the address; None: it is not an address with a length."""
    if not re.fullmatch(r"[0-9.]{7,15}/[0-9]{1,2}", cidr):
        return None
    try:
        return ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        return None


def _bad_cidr(path: str, cidr: str) -> Finding:
    if (around := _range_around(cidr)) is not None:
        return Finding(
            code="network-cidr-with-host-bits",
            path=path,
            problem=f"{show(cidr)} does not begin with the first address of a range",
            remedy=f"use {around}",
        )
    return Finding(
        code="network-cidr-invalid",
        path=path,
        problem=f"{show(cidr)} is not an IPv4 range",
        remedy="use one such as 10.0.0.0/16",
    )


def check_zones(config: ClusterConfig) -> Iterator[Finding]:
    """Whether the network has every group's zone."""
    network = config.network
    if not isinstance(network, NetworkConfig):
        return
    own = own_zones(network)
    if own == [] and network.vpc_id is None:
        yield from _check_unnamed_zone(config)
    for path, group in _known_groups(config.instance_groups):
        zone = group.availability_zone
        if zone is None or not is_known(zone):
            continue
        path += ".availability_zone"
        yield from _check_zone_region(zone, config.region, path)
        if own == [] and network.vpc_id is None:
            yield Finding(
                code="zone-of-group-only",
                path=path,
                problem="is set, but network.availability_zones does not name the cluster's own zone",
                remedy="add network.availability_zones, the cluster's own zone first",
            )
        if own and network.subnets:
            yield from _check_subnet_in_zone(zone, own, path)
        elif own:
            yield from _check_kind_of_zone(zone, own, path)


def _check_subnet_in_zone(zone: str, own: Sequence[str], path: str) -> Iterator[Finding]:
    if zone not in own:
        example = own[0]
        yield Finding(
            code="zone-without-subnet",
            path=path,
            problem=f"no subnet of network.subnets is in {show(zone)}",
            remedy=f"add one, or use a zone that has one, such as {example}",
        )


def _check_kind_of_zone(zone: str, own: Sequence[str], path: str) -> Iterator[Finding]:
    if is_zone_id(zone) != is_zone_id(own[0]):
        yield Finding(
            code="zone-names-and-ids",
            path=path,
            problem=f"{show(zone)} and network.availability_zones mix zone names and zone ids",
            remedy="use only names such as us-west-2c, or only ids such as usw2-az3",
        )


def check_file_system_zone(groups: Sequence[InstanceGroup], file_system_zone: str | None) -> Iterator[Finding]:
    """A warning for each group in another zone than its file system. `file_system_zone`: None: it is not known."""
    for path, group in _known_groups(groups) if file_system_zone is not None and is_known(file_system_zone) else ():
        zone = group.availability_zone
        if zone is not None and is_known(zone) and zone != file_system_zone:
            yield Finding(
                code="file-system-in-another-zone",
                path=f"{path}.availability_zone",
                problem=(
                    f"the nodes are in {zone}, but their file system is in {file_system_zone}, so every read and "
                    "write crosses zones, which is slower and billed"
                ),
                remedy="use the same zone if you can",
                level="warning",
            )


def file_system_zone(config: ClusterConfig) -> str | None:
    """The zone of a cluster's file system. None: there is no file system, or its zone is not known."""
    storage, network = config.storage, config.network
    if not isinstance(storage, StorageConfig) or not isinstance(network, NetworkConfig):
        return None
    if storage.file_system_id is not None:
        return storage.availability_zone
    own = own_zones(network)
    return own[0] if own else None


def own_zones(network: NetworkConfig) -> list[str] | None:
    """The zones that a network names. The first one is the cluster's own. None: not all are known."""
    if not is_known(network.availability_zones) or not is_known(network.subnets):
        return None
    zones = [*network.availability_zones, *(subnet.availability_zone for subnet in network.subnets)]
    return zones if is_known(zones) else None


def _check_unnamed_zone(config: ClusterConfig) -> Iterator[Finding]:
    groups = [group for _, group in _known_groups(config.instance_groups)]
    scarce = [kind.name for group in groups for kind in known_types(group) if kind.is_accelerated]
    if scarce:
        instance_type = scarce[0]
        yield Finding(
            code="zone-unnamed",
            path="network.availability_zones",
            problem=(f"is missing, so the cluster uses the account's first zone, which may not offer {instance_type}"),
            remedy="name a zone that has the capacity, such as network: {availability_zones: [us-west-2c]}",
            level="warning",
        )


def _known_groups(groups: Sequence[InstanceGroup]) -> list[tuple[str, InstanceGroup]]:
    if not isinstance(groups, tuple):
        return []
    paths = item_paths("instance_groups", groups)
    return [(paths[index], group) for index, group in enumerate(groups) if is_known(group)]


def check_room(config: ClusterConfig) -> Iterator[Finding]:
    """Whether each subnet has an address for every node and interface endpoint. A file system needs a few more.

    Call it only if network and zones have no other mistake.
    """
    network = config.network
    if not isinstance(network, NetworkConfig) or not is_known(network.cidr) or own_zones(network) is None:
        return
    groups = [group for _, group in _known_groups(config.instance_groups)]
    zones = [group.availability_zone for group in groups if group.availability_zone is not None]
    subnets = plan_subnets(network, [zone for zone in zones if is_known(zone)], more_endpoints(config))
    yield from check_subnet_room(subnets, groups, config.orchestrator, is_existing=bool(network.subnets))


def check_subnet_room(
    subnets: Sequence[ZoneSubnet], groups: Sequence[InstanceGroup], orchestrator: str, *, is_existing: bool = False
) -> Iterator[Finding]:
    """Whether each subnet with a known range has an address for every node and interface endpoint. `is_existing`: the subnets are
    those of `network.subnets`. False: they are parts of `network.cidr`."""
    by_zone: dict[str | None, list[tuple[int, str]]] = {}
    for group in groups:
        zone = subnets[0].availability_zone if group.availability_zone is None else group.availability_zone
        by_zone.setdefault(zone, []).append((_addresses(group, orchestrator), group.name))
    for i, subnet in enumerate(subnets):
        if subnet.cidr is None or not is_known(subnet.cidr):
            continue
        here = by_zone.get(subnet.availability_zone, [])
        needed = subnet.endpoints + sum(addresses for addresses, _ in here)
        room = ipaddress.IPv4Network(subnet.cidr).num_addresses - RESERVED_ADDRESSES
        if here and needed > room:
            most, name = max(here, key=lambda each: each[0])
            sizes = [f"{number:,}" for number in (room, needed, most)]
            available, required, required_by_largest = sizes
            yield Finding(
                code="subnet-too-small",
                path=f"network.subnets[{i}].cidr" if is_existing else "network.cidr",
                problem=(
                    f"the subnet {subnet.cidr} has {available} addresses, but its nodes need {required} "
                    f"({show(name)} alone {required_by_largest})"
                ),
                remedy="use a larger range, or place groups in several zones",
            )


def _addresses(group: InstanceGroup, orchestrator: str) -> int:
    """The number of addresses that a group needs at its full count."""
    if not is_known(group.instance_count):
        return 0
    kinds = known_types(group)
    of_a_node = max((kind.ip_addresses("eks" if orchestrator == "eks" else "slurm") for kind in kinds), default=1)
    return group.instance_count * of_a_node
