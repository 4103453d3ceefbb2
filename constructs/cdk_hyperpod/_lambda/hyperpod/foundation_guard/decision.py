"""Compares the settings that cannot change after creation with what exists. Pure; `plan` and the event show the same words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..common.refuse import Refuse
from ..common.sentences import fit
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


MOVE_CLUSTER = "put it back, or deploy a new cluster under another name and move over"
MOVE_DATA = "put it back, or take storage out of the file in a deployment of its own first (`removal` says what becomes of the data)"


def differences(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    """Why the deployment must not go on. Nothing: it asks for what exists, or nothing exists."""
    yield from _of_orchestrator(settings, live)
    yield from _of_network(settings, live)
    yield from _of_efa(settings, live)


def _of_orchestrator(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    if live.orchestrator is None or live.orchestrator == settings.orchestrator:
        return
    yield Refuse(
        path="orchestrator",
        why=f"is {settings.orchestrator}, the live cluster's is {live.orchestrator}",
        fix=MOVE_CLUSTER,
    )


def _of_network(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    """The cluster's subnet, if there is one; else the file system's, if the deployment keeps the file system."""
    if live.cluster_subnet is not None:
        yield from _of_subnet(settings, live.cluster_subnet, "cluster", MOVE_CLUSTER)
    elif live.file_system_subnet is not None and settings.efa is not None:
        yield from _of_subnet(settings, live.file_system_subnet, "file system", MOVE_DATA)


def _of_efa(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    if live.efa is None or settings.efa is None or live.efa == settings.efa:
        return
    yield Refuse(
        path="storage.efa",
        why=f"is {_word(settings.efa)}, the live file system's is {_word(live.efa)}, and a change makes a new, empty one",
        fix=MOVE_DATA,
    )


def explain(cluster: str, found: Sequence[Refuse]) -> str:
    """The reason that CloudFormation shows. The guard comes first of all, so that it speaks for every stack."""
    head = f"Changing the foundation of {cluster} was refused, no stack has been changed."
    return fit(head, [str(each) for each in found])


def _of_subnet(settings: ImmutableSettings, live: Subnet, what: str, fix: str) -> Iterator[Refuse]:
    """At most one difference: each of the rest follows from the first."""
    stands = f"the live {what} stands in {live.id}"
    if settings.subnet_id is not None:
        yield from _of_existing_subnet(settings.subnet_id, live, stands, fix)
    elif not live.made_here:
        why = f"is missing, which asks for a new VPC, and {stands} of {live.vpc}"
        yield Refuse(path="network.vpc_id", why=why, fix=fix)
    elif not _is_in_zone(live, settings.zone):
        why = f"the first zone is {settings.zone}, the live {what} stands in {_zone_like(settings.zone, live)}"
        yield Refuse(path="network.availability_zones", why=why, fix=fix)
    elif settings.cidr is not None and settings.cidr != live.cidr:
        why = f"gives the first zone the subnet {settings.cidr}, the live {what} stands in {live.cidr}"
        yield Refuse(path="network", why=why, fix=fix)


def _of_existing_subnet(subnet_id: str, live: Subnet, stands: str, fix: str) -> Iterator[Refuse]:
    if subnet_id == live.id:
        return
    path = "network.vpc_id" if live.made_here else "network.subnets"
    yield Refuse(path=path, why=f"the first subnet is {subnet_id}, {stands}", fix=fix)


def _is_in_zone(live: Subnet, zone: str | None) -> bool:
    """`zone`: a name or an id. None: the account's first one, which is not known here."""
    return zone is None or zone in (live.zone, live.zone_id)


def _zone_like(zone: str | None, live: Subnet) -> str:
    """The live zone, by its id if the configured zone is an id."""
    return live.zone_id if zone and "-az" in zone else live.zone


def _word(value: bool) -> str:
    return "true" if value else "false"
