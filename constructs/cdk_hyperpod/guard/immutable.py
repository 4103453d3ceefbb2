"""The settings of a cluster file that cannot change after creation, for the template and for `plan`. This module does not import aws_cdk."""

from __future__ import annotations

from dataclasses import dataclass

from .._lambda.hyperpod.foundation_guard.settings import ImmutableSettings
from ..config.cluster import ClusterConfig
from ..config.storage import StorageConfig
from ..config.zones import plan_subnets


def immutable_settings(config: ClusterConfig, cluster_stack: str) -> ImmutableSettings:
    """The settings of a cluster file that cannot change after creation.

    An existing subnet decides zone and range, so they are compared only for a new one.
    """
    place = _existing_subnet(config) or _new_subnet(config)
    return ImmutableSettings(
        cluster=config.name,
        cluster_stack=cluster_stack,
        orchestrator=config.orchestrator,
        subnet_id=place.subnet_id,
        zone=place.zone,
        cidr=place.cidr,
        efa=_efa(config.storage),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subnet:
    """The first subnet of the nodes: its id if it exists, otherwise its zone and range."""

    subnet_id: str | None = None
    zone: str | None = None
    cidr: str | None = None


def _existing_subnet(config: ClusterConfig) -> _Subnet | None:
    subnets = config.network.subnets
    return _Subnet(subnet_id=subnets[0].subnet_id) if subnets else None


def _new_subnet(config: ClusterConfig) -> _Subnet:
    zones = [group.availability_zone for group in config.instance_groups if group.availability_zone]
    first = plan_subnets(config.network, zones)[0]
    return _Subnet(zone=first.availability_zone, cidr=first.cidr)


def _efa(storage: StorageConfig | None) -> bool | None:
    """Whether a new file system is reached over EFA. None: there is no new file system."""
    if storage is None or storage.file_system_id is not None:
        return None
    return storage.efa
