"""The settings of a cluster file that cannot change after creation, for the template and for `plan`. Nothing here imports aws_cdk."""

from __future__ import annotations

from .._lambda.hyperpod.foundation_guard.settings import ImmutableSettings
from ..config.cluster import ClusterConfig
from ..config.zones import plan_subnets


def immutable_settings(config: ClusterConfig, cluster_stack: str) -> ImmutableSettings:
    """The settings of a cluster file that cannot change after creation."""
    network, storage = config.network, config.storage
    zones = [group.availability_zone for group in config.instance_groups if group.availability_zone]
    own = plan_subnets(network, zones)[0]
    exists = bool(network.subnets)
    return ImmutableSettings(
        cluster=config.name,
        cluster_stack=cluster_stack,
        orchestrator=config.orchestrator,
        subnet_id=network.subnets[0].subnet_id if exists else None,
        zone=None if exists else own.availability_zone,
        cidr=None if exists else own.cidr,
        efa=None if storage is None or storage.file_system_id is not None else storage.efa,
    )
