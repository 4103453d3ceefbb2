"""The settings of a cluster file that cannot change after creation, as properties of `Custom::HyperPodFoundationGuard`.

=================  =============================================================================================
property           meaning (all are texts; an empty one is absent)
=================  =============================================================================================
ClusterName        the HyperPod cluster's name
ClusterStack       the name of the stack that it belongs to
Orchestrator       slurm or eks
SubnetId           the cluster's own subnet, if it exists already
AvailabilityZone   the first zone of a new network, by name or id
SubnetCidr         the range of the cluster's own subnet in a new network
Efa                true or false: whether the foundation's file system has EFA; absent: it makes none
=================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

KIND = "Custom::HyperPodFoundationGuard"

Orchestrator = Literal["slurm", "eks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmutableSettings:
    """The settings of a cluster file that cannot change after creation. Absent values are not compared."""

    cluster: str
    """The HyperPod cluster's name."""
    cluster_stack: str
    """The name of the stack that the cluster belongs to; a cluster of another stack is ignored here."""
    orchestrator: Orchestrator
    subnet_id: str | None = None
    """The cluster's own subnet in an existing VPC. None: a subnet that the foundation makes, as below."""
    zone: str | None = None
    """The name or the id of its zone. None: the account's first one, which is not known here."""
    cidr: str | None = None
    """Its range, an eighth of the VPC's own."""
    efa: bool | None = None
    """Whether the foundation's file system has EFA. None: it makes none."""


def read(properties: Mapping[str, Any]) -> ImmutableSettings:
    """The settings in a resource's properties, as the construct writes them."""

    def text(name: str) -> str | None:
        return properties.get(name) or None

    efa = text("Efa")
    return ImmutableSettings(
        cluster=properties["ClusterName"],
        cluster_stack=properties["ClusterStack"],
        orchestrator=cast(Orchestrator, properties["Orchestrator"]),
        subnet_id=text("SubnetId"),
        zone=text("AvailabilityZone"),
        cidr=text("SubnetCidr"),
        efa=None if efa is None else efa == "true",
    )


def write(settings: ImmutableSettings) -> dict[str, str]:
    """The properties of the resource."""
    return {
        "ClusterName": settings.cluster,
        "ClusterStack": settings.cluster_stack,
        "Orchestrator": settings.orchestrator,
        "SubnetId": settings.subnet_id or "",
        "AvailabilityZone": settings.zone or "",
        "SubnetCidr": settings.cidr or "",
        "Efa": "" if settings.efa is None else str(settings.efa).lower(),
    }
