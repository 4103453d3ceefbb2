"""Checks of `HyperPodCluster`'s arguments: contradictions, and the cluster together with its network and file system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import jsii
from aws_cdk import aws_iam as iam
from constructs import IValidation

from ..config.cluster import ClusterConfig, InstanceGroup, NetworkConfig
from ..config.eks import INSTALLED, AutoscalingConfig, EksConfig
from ..config.lifecycle import LifecycleMode
from ..config.scale_down import ScaleDownConfig
from ..config.slurm import AccountingDatabase, SlurmConfig
from ..errors import Finding
from ..guard.drain_channel import IEksDrainer
from ..interface import RoleName
from ..rules import check_file_system_zone, check_rules
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import as_tuple, check_at_synth
from ..typed.words import item_paths, show
from .roles import node_type_of

if TYPE_CHECKING:
    from .cluster import HyperPodCluster


def check_with_network(
    config: ClusterConfig, network: NetworkConfig, of_network: Sequence[Finding], file_system_zone: str | None
) -> Iterator[Finding]:
    """The cluster together with its network and file system."""
    yield from check_rules(config, of_network)
    yield from check_at_synth(config.name, "name", "write it out: names of other resources derive from it")
    yield from _check_group_zones(config.instance_groups, network)
    yield from check_file_system_zone(config.instance_groups, file_system_zone)


def _check_group_zones(groups: Sequence[InstanceGroup], network: NetworkConfig) -> Iterator[Finding]:
    """Each group needs a subnet in its zone. The zones of an existing VPC, and of a network without zones, are validated already."""
    zones = network.availability_zones if isinstance(network, NetworkConfig) else ()
    groups = groups if isinstance(groups, tuple) else ()
    for path, group in zip(item_paths("instance_groups", groups), groups, strict=True):
        if not is_known(group):
            continue
        if zones and group.availability_zone not in (None, UNKNOWN, *zones):
            yield Finding(
                code="group-zone-without-subnet",
                path=f"{path}.availability_zone",
                problem=f"the network has no subnet in {show(group.availability_zone)}",
                remedy=f"add the zone to the network's availability_zones, or use one of {', '.join(zones)}",
            )


def check_orchestrator(config: ClusterConfig, eks_cluster_arn: object) -> Iterator[Finding]:
    """A file under EKS needs an EKS cluster, and no other file may have one."""
    if config.orchestrator == "eks" and eks_cluster_arn is None:
        yield Finding(
            code="eks-cluster-missing",
            path="eks_cluster_arn",
            problem="is missing, and the file's orchestrator is eks",
            remedy="give the ARN of the EKS cluster",
        )
    if config.orchestrator != "eks" and eks_cluster_arn is not None:
        yield Finding(
            code="eks-cluster-under-slurm",
            path="eks_cluster_arn",
            problem="is set, and the file's orchestrator is slurm",
            remedy="remove it",
        )


def check_unguarded(unguarded: object, **arguments: object) -> Iterator[Finding]:
    """An unguarded cluster must not have arguments for the guard."""
    for name, value in arguments.items():
        if unguarded is True and value is not None:
            yield Finding(
                code="unguarded-with-guard-setting",
                path="unguarded",
                problem=f"is True, and {name} is a setting of the guard",
                remedy="use one of them",
            )


def check_drainer(drainer: object, eks_cluster_arn: object) -> Iterator[Finding]:
    """An `EksDrainer` needs a cluster under EKS."""
    if isinstance(drainer, IEksDrainer) and eks_cluster_arn is None:
        yield Finding(
            code="drainer-under-slurm",
            path="drainer",
            problem="drains nodes of an EKS cluster, and this cluster is under Slurm",
            remedy="remove it, and give LifecycleScripts a DrainChannel",
        )


def check_autoscaled_groups(autoscaled_groups: object, eks_cluster_arn: object) -> Iterator[Finding]:
    """Autoscaled groups need a cluster under EKS."""
    if autoscaled_groups and is_known(autoscaled_groups) and eks_cluster_arn is None:
        yield Finding(
            code="autoscaled-groups-under-slurm",
            path="autoscaled_groups",
            problem="Karpenter scales groups of an EKS cluster only, and this cluster is under Slurm",
            remedy="remove them",
        )


@dataclass(frozen=True, slots=True)
class OrchestratorConfig:
    """The parts of a configuration that depend on the orchestrator."""

    orchestrator: Literal["slurm", "eks"]
    slurm: SlurmConfig | None
    eks: EksConfig | None


def orchestrator_config(
    eks_cluster_arn: object,
    autoscaled_groups: Sequence[str],
    accounting_database: AccountingDatabase | None,
    scale_down: object,
) -> OrchestratorConfig:
    """The configuration that the arguments mean, as far as the rules need it."""
    if eks_cluster_arn is not None:
        return OrchestratorConfig("eks", None, _eks_config(autoscaled_groups))
    return OrchestratorConfig("slurm", _slurm_config(accounting_database, scale_down), None)


def _slurm_config(database: AccountingDatabase | None, scale_down: object) -> SlurmConfig | None:
    """The drain settings are unknown here: whether an agent drains nodes depends on the scripts, which the guard checks."""
    drains = isinstance(scale_down, ScaleDownConfig) and scale_down.drain is not None
    if database is None and not drains:
        return None
    return SlurmConfig(accounting_database=database, drain=UNKNOWN if drains else None)


def _eks_config(autoscaled_groups: Sequence[str]) -> EksConfig:
    """Another construct makes the control plane, so only its autoscaled groups count."""
    names = as_tuple(autoscaled_groups)
    autoscaling = AutoscalingConfig(instance_groups=names) if names and isinstance(names, tuple) else None
    return EksConfig(dependencies_chart=INSTALLED, autoscaling=autoscaling)


def autoscaled_groups_of(config: ClusterConfig) -> Sequence[str]:
    """The groups whose counts an autoscaler sets."""
    return () if config.eks is None else config.eks.autoscaled_groups


def accounting_database_of(config: ClusterConfig) -> AccountingDatabase | None:
    """The database of Slurm's accounts. None: the one on the controller."""
    return None if config.slurm is None else config.slurm.accounting_database


def lifecycle_mode_of(config: ClusterConfig) -> LifecycleMode | None:
    """What runs on a new node. None: the default of the scripts."""
    return None if config.lifecycle is None else config.lifecycle.mode


@jsii.implements(IValidation)
class RolesInUse:
    """Each given role must be for the node type of a group. It runs at synthesis, because groups may be added until then."""

    def __init__(self, given: Mapping[RoleName, iam.IRole], cluster: HyperPodCluster) -> None:
        self._given = given
        self._cluster = cluster

    def validate(self) -> list[str]:
        """One message for each unused role."""
        used = {node_type_of(group) for group in self._cluster.instance_groups}
        return [
            str(
                Finding(
                    code="role-without-group",
                    path=f"roles[{name}]",
                    problem="no group has nodes of this type",
                    remedy="remove the role, or add a group",
                )
            )
            for name in sorted(set(self._given) - used)
        ]
