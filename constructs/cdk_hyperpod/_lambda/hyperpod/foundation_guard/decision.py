"""Compares the settings that cannot change after creation with what exists. Pure; `plan` and the event show the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..kernel.refuse import Refuse
from ..kernel.sentences import fit
from .settings import ImmutableSettings, Orchestrator


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A live subnet."""

    id: str
    zone: str
    zone_id: str
    cidr: str
    vpc: str
    made_here: bool
    """Whether it is a resource of the foundation's stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What exists. The default is nothing."""

    orchestrator: Orchestrator | None = None
    """The cluster's. None: this app has no cluster."""
    cluster_subnet: Subnet | None = None
    """None: there is no cluster, or its subnet is not known."""
    efa: bool | None = None
    """Whether the foundation's file system has EFA. None: there is no such file system."""
    file_system_subnet: Subnet | None = None


MOVE_CLUSTER = "undo this change, or deploy a new cluster under another name and move your work there"
MOVE_DATA = "undo this change, or first remove storage from the file in a separate deployment (`removal` decides what happens to its data)"


def differences(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    """Why the deployment must not go on. Empty: it requests what exists, or nothing exists."""
    yield from _of_orchestrator(settings, live)
    yield from _of_network(settings, live)
    yield from _of_efa(settings, live)


def _of_orchestrator(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    if live.orchestrator is None or live.orchestrator == settings.orchestrator:
        return
    wanted, live_orchestrator = settings.orchestrator, live.orchestrator
    yield Refuse(
        code="orchestrator-immutable",
        path="orchestrator",
        why=f"is {wanted}, and the live cluster has {live_orchestrator}",
        fix=MOVE_CLUSTER,
    )


def _of_network(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    """The subnet of the cluster if there is one. Otherwise that of the file system, if the deployment keeps it."""
    if live.cluster_subnet is not None:
        yield from _of_subnet(settings, live.cluster_subnet, "cluster", MOVE_CLUSTER)
    elif live.file_system_subnet is not None and settings.efa is not None:
        yield from _of_subnet(settings, live.file_system_subnet, "file system", MOVE_DATA)


def _of_efa(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    if live.efa is None or settings.efa is None or live.efa == settings.efa:
        return
    wanted, found = _word(settings.efa), _word(live.efa)
    yield Refuse(
        code="file-system-efa-immutable",
        path="storage.efa",
        why=f"is {wanted}, and the live file system has {found}. A change creates a new, empty file system",
        fix=MOVE_DATA,
    )


def explain(cluster: str, found: Sequence[Refuse]) -> str:
    """The reason that CloudFormation shows. The guard runs before everything, so no stack was changed."""
    head = f"Changing the foundation of {cluster} was refused, and no stack was changed."
    return fit(head, [str(each) for each in found])


def _of_subnet(settings: ImmutableSettings, live: Subnet, what: str, fix: str) -> Iterator[Refuse]:
    """At most one difference, because the others follow from the first."""
    place = f"the live {what} is in {live.id}"
    if settings.subnet_id is not None:
        yield from _of_existing_subnet(settings.subnet_id, live, place, fix)
    elif not live.made_here:
        why = f"is missing, so this deployment would create a VPC, and {place} of {live.vpc}"
        yield Refuse(code="vpc-immutable", path="network.vpc_id", why=why, fix=fix)
    elif not _is_in_zone(live, settings.zone):
        why = f"the first zone is {settings.zone}, and the live {what} is in {_zone_like(settings.zone, live)}"
        yield Refuse(code="zone-immutable", path="network.availability_zones", why=why, fix=fix)
    elif settings.cidr is not None and settings.cidr != live.cidr:
        why = f"gives the first zone the subnet {settings.cidr}, and the live {what} is in {live.cidr}"
        yield Refuse(code="subnet-range-immutable", path="network", why=why, fix=fix)


def _of_existing_subnet(subnet_id: str, live: Subnet, place: str, fix: str) -> Iterator[Refuse]:
    if subnet_id == live.id:
        return
    path = "network.vpc_id" if live.made_here else "network.subnets"
    yield Refuse(code="subnet-immutable", path=path, why=f"the first subnet is {subnet_id}, and {place}", fix=fix)


def _is_in_zone(live: Subnet, zone: str | None) -> bool:
    """`zone`: a name or an id. None: the account's first one, which is not known here."""
    return zone is None or zone in (live.zone, live.zone_id)


def _zone_like(zone: str | None, live: Subnet) -> str:
    """The live zone, by its id if the configured zone is an id."""
    return live.zone_id if zone and "-az" in zone else live.zone


def _word(value: bool) -> str:
    return "true" if value else "false"
