"""What a deployment wants of what is for life, against what lives. Pure; the words are for `plan` and the event alike."""

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
    """What stands. The default is nothing."""

    orchestrator: Orchestrator | None = None
    """The cluster's. Absent: there is no cluster of ours."""
    cluster_subnet: Subnet | None = None
    """Absent: there is no cluster, or nobody can tell where it stands."""
    efa: bool | None = None
    """Whether the foundation's file system has EFA. Absent: there is no such file system."""
    file_system_subnet: Subnet | None = None


MOVE_CLUSTER = "put it back, or deploy a new cluster under another name and move over"
MOVE_DATA = "put it back, or take storage out of the file in a deployment of its own first (`removal` says what becomes of the data)"


def differences(settings: ImmutableSettings, live: Live) -> Iterator[Refuse]:
    """Why the deployment must not go on; nothing where it asks for what lives, or where nothing does."""
    if live.orchestrator is not None and live.orchestrator != settings.orchestrator:
        yield Refuse(
            path="orchestrator",
            why=f"is {settings.orchestrator}, the live cluster's is {live.orchestrator}",
            fix=MOVE_CLUSTER,
        )
    if live.cluster_subnet is not None:
        yield from _of_subnet(settings, live.cluster_subnet, "cluster", MOVE_CLUSTER)
    elif live.file_system_subnet is not None and settings.efa is not None:
        yield from _of_subnet(settings, live.file_system_subnet, "file system", MOVE_DATA)
    if live.efa is not None and settings.efa is not None and live.efa != settings.efa:
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
    """At most one: each of the rest follows from the first."""
    stands = f"the live {what} stands in {live.id}"
    if settings.subnet_id is not None:
        if settings.subnet_id != live.id:
            path = "network.vpc_id" if live.made_here else "network.subnets"
            yield Refuse(path=path, why=f"the first subnet is {settings.subnet_id}, {stands}", fix=fix)
    elif not live.made_here:
        why = f"is missing, which asks for a new VPC, and {stands} of {live.vpc}"
        yield Refuse(path="network.vpc_id", why=why, fix=fix)
    elif settings.zone is not None and settings.zone not in (live.zone, live.zone_id):
        zone = live.zone_id if "-az" in settings.zone else live.zone
        why = f"the first zone is {settings.zone}, the live {what} stands in {zone}"
        yield Refuse(path="network.availability_zones", why=why, fix=fix)
    elif settings.cidr is not None and settings.cidr != live.cidr:
        why = f"gives the first zone the subnet {settings.cidr}, the live {what} stands in {live.cidr}"
        yield Refuse(path="network", why=why, fix=fix)


def _word(value: bool) -> str:
    return "true" if value else "false"
