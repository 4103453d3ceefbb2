"""Checks of what `HyperPodCluster` is given: arguments that do not go together, and the cluster with its network and file system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import jsii
from aws_cdk import aws_iam as iam
from constructs import IValidation

from ..config.cluster import ClusterConfig, InstanceGroup, NetworkConfig, ScaleDownConfig
from ..config.eks import INSTALLED, AutoscalingConfig, EksConfig
from ..config.slurm import AccountingDatabase, SlurmConfig
from ..errors import Finding
from ..guard.drain_channel import IEksDrainer
from ..interface import RoleName
from ..rules import check_file_system_zone, check_rules
from ..typed.judge import as_tuple, check_at_synth
from ..typed.known import UNKNOWN, is_known
from ..typed.words import item_paths, show
from .roles import node_type_of

if TYPE_CHECKING:
    from .cluster import HyperPodCluster


def check_with_network(
    config: ClusterConfig, network: NetworkConfig, of_network: Sequence[Finding], file_system_zone: str | None
) -> Iterator[Finding]:
    """A cluster together with the network and the file system that it was given."""
    yield from check_rules(config, of_network)
    yield from check_at_synth(config.name, "name", "write it out: names of other resources derive from it")
    yield from _check_group_zones(config.instance_groups, network)
    yield from check_file_system_zone(config.instance_groups, file_system_zone)


def _check_group_zones(groups: Sequence[InstanceGroup], network: NetworkConfig) -> Iterator[Finding]:
    """Whether each group has a subnet. The zones of an existing VPC, and of a network that names none, are judged already."""
    zones = network.availability_zones if isinstance(network, NetworkConfig) else ()
    groups = groups if isinstance(groups, tuple) else ()
    for path, group in zip(item_paths("instance_groups", groups), groups, strict=True):
        if not is_known(group):
            continue
        if zones and group.availability_zone not in (None, UNKNOWN, *zones):
            yield Finding(
                path=f"{path}.availability_zone",
                problem=f"the network has no subnet in {show(group.availability_zone)}",
                remedy="add the zone to the network's availability_zones, or use one of " + ", ".join(zones),
            )


def check_orchestrator(config: ClusterConfig, eks_cluster_arn: object) -> Iterator[Finding]:
    """Whether the EKS cluster goes with the file."""
    if (config.orchestrator == "eks") != (eks_cluster_arn is not None):
        yield Finding(
            path="eks_cluster_arn",
            problem=f"is {'missing' if eks_cluster_arn is None else 'there'}, and the file's orchestrator is {config.orchestrator}",
            remedy="give it with a file under EKS, and with no other",
        )


def check_unguarded(unguarded: object, **arguments: object) -> Iterator[Finding]:
    """Whether a cluster without a guard has no arguments that are the guard's."""
    for name, value in arguments.items():
        if unguarded is True and value is not None:
            yield Finding(
                path="unguarded",
                problem=f"leaves out the guard that {name} is for",
                remedy="keep one of the two",
            )


def check_drainer(drainer: object, eks_cluster_arn: object) -> Iterator[Finding]:
    """Whether a cluster with an `EksDrainer` is under EKS."""
    if isinstance(drainer, IEksDrainer) and eks_cluster_arn is None:
        yield Finding(
            path="drainer",
            problem="drains nodes of an EKS cluster, and this cluster is under Slurm",
            remedy="leave it out, and give LifecycleScripts a DrainChannel",
        )


def check_autoscaled_groups(autoscaled_groups: object, eks_cluster_arn: object) -> Iterator[Finding]:
    """Whether a cluster with groups of Karpenter's is under EKS."""
    if autoscaled_groups and is_known(autoscaled_groups) and eks_cluster_arn is None:
        yield Finding(
            path="autoscaled_groups",
            problem="are Karpenter's, of an EKS cluster, and this cluster is under Slurm",
            remedy="leave them out",
        )


def slurm_config(database: AccountingDatabase | None, scale_down: object) -> SlurmConfig | None:
    """Whether there is an agent to drain nodes the guard knows, by the scripts."""
    drains = isinstance(scale_down, ScaleDownConfig) and scale_down.drain is not None
    if database is None and not drains:
        return None
    return SlurmConfig(accounting_database=database, drain=UNKNOWN if drains else None)


def eks_config(autoscaled_groups: Sequence[str]) -> EksConfig:
    """What the rules have to know of the EKS cluster: the control plane is another construct's."""
    names = as_tuple(autoscaled_groups)
    autoscaling = AutoscalingConfig(instance_groups=names) if names and isinstance(names, tuple) else None
    return EksConfig(dependencies_chart=INSTALLED, autoscaling=autoscaling)


@jsii.implements(IValidation)
class RolesInUse:
    """Whether each role that was given is a group's; groups may come until the template is made."""

    def __init__(self, given: Mapping[RoleName, iam.IRole], cluster: HyperPodCluster) -> None:
        self._given = given
        self._cluster = cluster

    def validate(self) -> list[str]:
        """What is wrong, as CDK shows it."""
        used = {node_type_of(group) for group in self._cluster.instance_groups}
        return [
            str(
                Finding(
                    path=f"roles[{name}]",
                    problem="no group has nodes of this type",
                    remedy="leave it out, or add a group",
                )
            )
            for name in sorted(set(self._given) - used)
        ]
