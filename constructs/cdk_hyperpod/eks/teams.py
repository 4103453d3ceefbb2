"""The teams that share a cluster: queues and shares of task governance, access by IAM roles, and each team's objects."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import CfnResource, Duration
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, IDependable

from .._common import reasons
from .._common.acknowledge import acknowledge
from ..config.cluster import ClusterArn, InstanceGroup
from ..config.eks import EksConfig, is_on
from ..config.teams import Share, Team
from ..errors import Finding, raise_errors
from ..kubernetes.governance import compute_quota_properties, scheduler_properties
from ..kubernetes.manifests import Manifest
from ..kubernetes.teams import (
    POD_SERVICE_ACCOUNT,
    access_groups,
    claim_gib,
    namespace_name,
    pod_security_labels,
    priority_class_manifests,
    team_manifests,
)
from ..loader import LoadedConfig
from ..rules import check_eks_teams
from ..storage.lustre import ILustreFileSystem, LustreMount, mount_of
from ..typed.validation import as_tuple, check_at_synth, check_call, require_arguments
from ..typed.words import item_paths
from .control_plane import EksControlPlane
from .manifests import file_system_manifests, karpenter_manifests

_OF_THE_QUEUE = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
KUEUE_NAMESPACE = "kueue-system"
"""Kueue's namespace in its own manifests. No live account has confirmed it for HyperPod's add-on."""
EVERY_NAME = "--all-namespaces=false"
"""In place of an object's name: kubectl then lists all objects of the namespace, also of one that does not exist."""
ALL_AVAILABLE = ".kind}{.items[?(@.status.unavailableReplicas)].metadata[0]"
"""Of a list of Deployments: `List`. While any of them has unavailable replicas it is an error, since its metadata is no list."""


class HyperPodTeams(Construct):
    """Shares, quotas, access and volumes of the teams, the cluster's priorities, and Karpenter's objects.

    Running nodes: not affected, unless Karpenter owns groups. It terminates empty nodes, and nodes of groups that are removed from
    it. Running pods: a changed quota terminates none. If you remove a team, its namespace is deleted with everything in it, unless
    HyperPod made the namespace.

    Example::

        key = encryption_key(self, "Key", removal_policy=RemovalPolicy.RETAIN)
        network = HyperPodNetwork(
            self, "Network", availability_zones=["us-west-2c", "us-west-2a"], internet_egress=True
        )
        control_plane = EksControlPlane(
            self,
            "Eks",
            cluster_name="train",
            eks_config=EksConfig(dependencies_chart="installed"),
            network=network,
            encryption_key=key,
        )
        HyperPodTeams(
            self,
            "Teams",
            control_plane=control_plane,
            cluster_name="train",
            hyperpod_cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
            teams=[
                Team(
                    name="research",
                    quota={"ml.p5.48xlarge": 4},
                    role_arns=("arn:aws:iam::111122223333:role/research",),
                )
            ],
        )
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        control_plane: EksControlPlane,
        cluster_name: str,
        hyperpod_cluster_arn: ClusterArn,
        teams: Sequence[Team] = (),
        instance_groups: Sequence[InstanceGroup] | None = None,
        file_system: ILustreFileSystem | LustreMount | None = None,
        capacity_gib: int | None = None,
        add_ons: Sequence[IDependable] = (),
    ) -> None:
        """Give teams access to an EKS cluster.

        :param control_plane: the EKS cluster that they share.
        :param cluster_name: the HyperPod cluster's name.
        :param hyperpod_cluster_arn: the HyperPod cluster's ARN. Task governance divides its capacity.
        :param teams: the teams. Default: - none, and the namespace `default` has the claim on `file_system`.
        :param instance_groups: the cluster's groups. The shares may not exceed them. Default: - they are not compared.
        :param file_system: every team gets a claim on it. Default: - none.
        :param capacity_gib: the capacity in GiB that the claims show. Kubernetes does not enforce it. Default: - 1200.
        :param add_ons: what must be installed before all of this. Default: - nothing.
        :raises ConfigError: with everything that is wrong with the teams.
        """
        super().__init__(scope, construct_id)
        raise_errors(
            [
                *check_call(HyperPodTeams.__init__, locals()),
                *_check_with_cluster(teams, control_plane, instance_groups, file_system, capacity_gib),
                *_check_known(as_tuple(teams)),
            ],
            lambda: self.node.path,
        )
        self._control_plane = control_plane
        eks_config = control_plane.config
        self._cluster_name = cluster_name
        self._hyperpod_cluster_arn = hyperpod_cluster_arn
        self._first = list(add_ons)
        capacity = claim_gib(None) if capacity_gib is None else capacity_gib
        # A token is no int, and its value is known at deployment only.
        known_gib = capacity if isinstance(capacity, int) else None
        self._file_system_gib = 0 if file_system is None else known_gib
        governance = is_on(eks_config, "task_governance", has_file_system=file_system is not None)
        for arn, groups in access_groups(teams, task_governance=governance).items():
            self._add_access(arn, groups)
        if eks_config.autoscaling is not None:
            self._apply("Karpenter", karpenter_manifests(eks_config.autoscaling, teams))
        self._add_priority_classes(eks_config)
        scheduler = self._add_scheduler(eks_config) if governance else None
        self._kueue = self._wait_for_kueue() if teams and governance else None
        if teams:
            self._add_teams(teams, mount_of(file_system), capacity, scheduler)
        elif file_system is not None:
            (claims,) = file_system_manifests(mount_of(file_system), ["default"], capacity_gib=capacity)
            self._apply("FileSystem", claims)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        control_plane: EksControlPlane,
        hyperpod_cluster_arn: ClusterArn,
        file_system: ILustreFileSystem | LustreMount | None = None,
        add_ons: Sequence[IDependable] = (),
    ) -> HyperPodTeams:
        """The teams of a cluster file.

        :param loaded: the file.
        :param control_plane: made by `EksControlPlane.from_config`.
        :param hyperpod_cluster_arn: as in the constructor.
        :param file_system: made by `LustreFileSystem.from_config`. Default: - none.
        :param add_ons: as in the constructor. Default: - nothing.
        :raises ConfigError: for arguments of a wrong type.
        """
        require_arguments(HyperPodTeams.from_config, lambda: f"{scope.node.path}/{construct_id}", loaded=loaded)
        config = loaded.config
        return cls(
            scope,
            construct_id,
            control_plane=control_plane,
            cluster_name=config.name,
            hyperpod_cluster_arn=hyperpod_cluster_arn,
            teams=config.teams,
            instance_groups=config.instance_groups,
            file_system=file_system,
            capacity_gib=None if config.storage is None else config.storage.capacity_gib,
            add_ons=add_ons,
        )

    def _add_priority_classes(self, config: EksConfig) -> None:
        """Add one resource for each: CDK updates a resource with `kubectl apply --prune`, which does not delete objects of this kind."""
        for priority in priority_class_manifests(config.priority_classes):
            self._apply(f"PriorityClass{priority['metadata']['name']}", [priority])

    def _add_teams(
        self, teams: Sequence[Team], file_system: LustreMount | None, capacity_gib: int, scheduler: CfnResource | None
    ) -> None:
        namespaces = [namespace_name(team, task_governance=scheduler is not None) for team in teams]
        claims = file_system_manifests(file_system, namespaces, capacity_gib=capacity_gib)
        for team, namespace, claims_of_team in zip(teams, namespaces, claims, strict=True):
            self._add_team(team, namespace, claims_of_team, scheduler)

    def _add_team(self, team: Team, namespace: str, claims: Sequence[Manifest], scheduler: CfnResource | None) -> None:
        """Add the namespace, its limits, and then the permissions in it.

        Another namespace gets other resources, so that the old one is deleted with its content.
        """
        of_kind: dict[str, list[Manifest]] = {}
        for manifest in self._manifests(team, scheduler is not None):
            of_kind.setdefault(manifest["kind"], []).append(manifest)
        first: IDependable
        if scheduler is None:
            # A resource of its own: if the namespace exists already and is not ours, nothing of ours gets into it.
            first = self._apply(f"Namespace{namespace}", of_kind.pop("Namespace"))
        else:
            first = self._pod_security(team, namespace, self._compute_quota(team, scheduler))
        # Resources of their own, for the same reason as priority classes. Every team has quotas.
        limits = [self._apply(f"Limits{namespace}", of_kind.pop("ResourceQuota"), first)]
        if defaults := of_kind.pop("LimitRange", None):
            limits.append(self._apply(f"Defaults{namespace}", defaults, first))
        if accounts := of_kind.pop("ServiceAccount", None):
            self._add_pod_role(team, namespace, accounts, limits, first)
        policy = [manifest for kind in _OF_THE_QUEUE for manifest in of_kind.pop(kind, [])]
        if policy:
            limits.append(self._apply(f"Queue{namespace}", policy, first))
        others = [manifest for manifests in of_kind.values() for manifest in manifests]
        self._apply(f"Team{namespace}", [*others, *claims], *limits)

    def _add_pod_role(
        self,
        team: Team,
        namespace: str,
        accounts: Sequence[Manifest],
        limits: Sequence[IDependable],
        namespace_exists: IDependable,
    ) -> None:
        """Add the service account of the team's pods, and its role.

        It is a resource of its own, so that it is deleted with the role: pods of the account would run without one.
        """
        self._apply(f"Pods{namespace}", accounts, *limits)
        association = eks.CfnPodIdentityAssociation(
            self,
            f"PodRole{namespace}",
            cluster_name=self._control_plane.cluster_name,
            namespace=namespace,
            service_account=POD_SERVICE_ACCOUNT,
            role_arn=typing.cast(str, team.pod_role_arn),
        )
        association.node.add_dependency(namespace_exists)

    def _manifests(self, team: Team, task_governance: bool) -> tuple[Manifest, ...]:
        config = self._control_plane.config
        return team_manifests(
            team,
            task_governance=task_governance,
            priority_classes=config.priority_classes,
            file_system_gib=self._file_system_gib,
            lists_extended=config.installs_chart,
        )

    def _pod_security(self, team: Team, namespace: str, quota: IDependable) -> eks.KubernetesPatch:
        """Add Pod Security labels to the namespace, which HyperPod creates for the share."""
        labels = pod_security_labels(team)
        patch = eks.KubernetesPatch(
            self,
            f"PodSecurity{namespace}",
            cluster=self._control_plane.cluster,
            resource_name=f"namespace/{namespace}",
            apply_patch={"metadata": {"labels": labels}},
            restore_patch={},
        )
        # jsii omits null, and a patch removes a label with null.
        restored = json.dumps({"metadata": {"labels": dict.fromkeys(labels)}})
        resource = patch.node.find_child("Resource").node.default_child
        typing.cast(CfnResource, resource).add_property_override("RestorePatchJson", restored)
        patch.node.add_dependency(*self._first, quota)
        return patch

    def _apply(self, construct_id: str, manifests: Sequence[Manifest], *after: IDependable) -> eks.KubernetesManifest:
        applied = eks.KubernetesManifest(self, construct_id, cluster=self._control_plane.cluster, manifest=[*manifests])
        applied.node.add_dependency(*self._first, *after)
        return applied

    def _add_access(self, role_arn: str, groups: Sequence[str]) -> None:
        digest = hashlib.sha256(role_arn.encode()).hexdigest()[:8]
        eks.CfnAccessEntry(
            self,
            f"Access{digest}",
            cluster_name=self._control_plane.cluster_name,
            principal_arn=role_arn,
            kubernetes_groups=[*groups],
        )

    def _add_scheduler(self, config: EksConfig) -> CfnResource:
        properties = scheduler_properties(
            config.task_governance, name=self._cluster_name, cluster_arn=self._hyperpod_cluster_arn
        )
        scheduler = self._governance("Scheduler", "ClusterSchedulerConfig", properties)
        scheduler.node.add_dependency(*self._first)
        return scheduler

    def _wait_for_kueue(self) -> eks.KubernetesObjectValue:
        """Wait until Kueue runs. HyperPod creates a team's queues for its quota, and Kueue's webhook must accept them.

        CDK's function repeats the command until it prints something. In a cluster without the namespace it does so at once.
        """
        ready = eks.KubernetesObjectValue(
            self,
            "KueueReady",
            cluster=self._control_plane.cluster,
            object_type="deployments",
            object_name=EVERY_NAME,
            object_namespace=KUEUE_NAMESPACE,
            json_path=ALL_AVAILABLE,
            timeout=Duration.minutes(10),
        )
        ready.node.add_dependency(*self._first)
        return ready

    def _compute_quota(self, team: Team, scheduler: CfnResource) -> CfnResource:
        properties = compute_quota_properties(team, cluster_arn=self._hyperpod_cluster_arn)
        # Whether two clusters of an account may have quotas of one name is not documented.
        name = _quota_name(self._cluster_name, team.name)
        quota = self._governance(f"Quota{team.name}", "ComputeQuota", {**properties, "Name": name})
        quota.add_resource_dependency(scheduler)
        if self._kueue is not None:
            quota.node.add_dependency(self._kueue)
        return quota

    def _governance(self, construct_id: str, kind: str, properties: Mapping[str, Any]) -> CfnResource:
        resource = CfnResource(self, construct_id, type=f"AWS::SageMaker::{kind}", properties=properties)
        acknowledge(resource, reasons.GOVERNANCE)
        return resource


def _check_with_cluster(
    teams: Sequence[Team],
    control_plane: object,
    instance_groups: Sequence[InstanceGroup] | None,
    file_system: object,
    capacity_gib: int | None,
) -> Iterator[Finding]:
    """The teams together with the EKS cluster, if it has the right type."""
    if isinstance(control_plane, EksControlPlane):
        yield from check_eks_teams(
            as_tuple(teams),
            control_plane.config,
            groups=None if instance_groups is None else as_tuple(instance_groups),
            file_system_gib=0 if file_system is None else claim_gib(capacity_gib),
        )


def _check_known(teams: Sequence[Team]) -> Iterator[Finding]:
    """Resource names derive from a team's name, and the quotas of its pods are computed from its share."""
    if not isinstance(teams, tuple):
        return
    for path, team in zip(item_paths("teams", teams), teams, strict=True):
        for name in ("name", "namespace", "quota", "borrow_limit", "absolute_borrow_limits"):
            remedy = "write it out: resources' names and the pods' ceilings derive from it"
            value = getattr(team, name, None)
            yield from check_at_synth(value, f"{path}.{name}", remedy, kinds=(str, float, Mapping))
            for part in value.values() if isinstance(value, Mapping) else ():
                if isinstance(part, Share):
                    yield from check_at_synth(dataclasses.astuple(part), f"{path}.{name}", remedy, kinds=(tuple,))


def _quota_name(cluster_name: str, team_name: str) -> str:
    """A quota's name: unique in an account, at most 63 characters."""
    name = f"{cluster_name}-{team_name}"
    if len(name) <= 63:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[:54].rstrip('-')}-{digest}"
