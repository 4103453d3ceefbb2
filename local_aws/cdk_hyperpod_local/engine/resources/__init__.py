"""CloudFormation resource types that ministack lacks, and the validation of every type's properties.

To add a type, write a `ResourceType` in the file of its topic, and add an entry to `_types`.
May import: engine.schemas, engine.seam, engine.services, hyperpod.
"""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.resources import (
    ec2_addresses,
    ec2_rules,
    ec2_vpc_parts,
    eks,
    fsx,
    governance,
    guards,
    hyperpod,
    prometheus,
    repairs,
    validation,
)
from cdk_hyperpod_local.engine.resources.base import ResourceType
from cdk_hyperpod_local.engine.schemas import Schemas
from cdk_hyperpod_local.engine.seam import cloudformation, event_properties
from cdk_hyperpod_local.engine.services.eks import EksService
from cdk_hyperpod_local.engine.services.fsx import FsxService
from cdk_hyperpod_local.engine.services.hyperpod import HyperPodService

Json = Any


def _types(file_systems: FsxService, control_planes: EksService, clusters: HyperPodService) -> tuple[ResourceType, ...]:
    return (
        ec2_addresses.ADDRESS,
        ec2_addresses.NAT_GATEWAY,
        ec2_rules.INGRESS,
        ec2_rules.EGRESS,
        ec2_vpc_parts.FLOW_LOG,
        ec2_vpc_parts.VPC_CIDR_BLOCK,
        *eks.types(control_planes),
        *fsx.types(file_systems),
        *governance.types(clusters),
        *hyperpod.types(clusters),
        prometheus.WORKSPACE,
    )


def install(schemas: Schemas, file_systems: FsxService, control_planes: EksService, clusters: HyperPodService) -> None:
    for kind in _types(file_systems, control_planes, clusters):
        cloudformation.register_type(
            kind.name,
            create=kind.create,
            update=kind.update,
            delete=kind.delete,
            create_only=schemas.create_only(kind.name, seam.region()),
            tag_property=kind.tag_property,
            name_property=kind.name_property,
            blocking=kind.blocking,
            read=kind.read,
            read_properties=kind.read_properties,
        )
    repairs.install(
        lambda kind, status: (
            not clusters.handler.names_cluster_at_once
            and (kind, status) == ("AWS::SageMaker::Cluster", "UPDATE_IN_PROGRESS")
        )
    )
    event_properties.show_properties(lambda: clusters.handler.events_show, 40 / clusters.speed)
    guards.install(clusters.occupants, file_systems.settle)
    validation.install(schemas)
