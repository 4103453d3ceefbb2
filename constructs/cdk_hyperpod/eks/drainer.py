"""The function that drains nodes of an EKS cluster (docs/adr/0015). It is in the VPC, because the API endpoint is private."""

from __future__ import annotations

import typing
from collections.abc import Iterator

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct, IDependable

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards, wildcard
from .._common.functions import log_group as make_log_group
from .._common.functions import python_function
from .._common.pseudo import ACCOUNT_ID, PARTITION
from .._common.removal import check_removal
from ..config.patterns import ClusterName, CronJobName
from ..errors import Finding, raise_errors
from ..guard.drain_channel import IEksDrainer
from ..kubernetes.drainer import (
    BACKUP_NAMESPACE,
    DRAINER_GROUP,
    backup_namespace_manifest,
    drainer_manifests,
    in_own_namespace,
)
from ..kubernetes.manifests import Manifest
from ..loader import LoadedConfig
from ..names import drainer_name
from ..network.security_groups import allow_tcp, closed_security_group
from ..rules.scale_down_drain import check_backup_namespace, check_existing
from ..storage.lustre import ILustreFileSystem, LustreMount, mount_of
from ..typed.validation import check_arguments, check_at_synth, require_arguments
from .control_plane import EksControlPlane, access_entries, after_cluster
from .manifests import file_system_manifests

_TIMEOUT = Duration.minutes(1)
"""The guard waits a little longer for the answer."""
_MEMORY_MB = 1024
"""Lambda gives CPU by memory. Half a core reads two thousand pods of 1.5 MB within the time; a quarter does not."""
_INTERFACES = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""The permissions that Lambda uses for a function in a VPC (Lambda developer guide, "Required IAM permissions")."""


class EksDrainer(IEksDrainer):
    """A function that cordons nodes of an EKS cluster and evicts their pods at the guard's request.

    It reaches only the Kubernetes API: its security group allows traffic to the control plane alone, and it calls no AWS service. In
    Kubernetes it may read nodes and pods, cordon a node, evict a pod, and create the Jobs of one CronJob in the CronJob's namespace.
    Give it to `HyperPodCluster`.
    Cost: it runs during deployments that delete nodes. Running nodes: not affected until a deployment deletes nodes.

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
        HyperPodCluster(
            self,
            "Cluster",
            cluster_name="train",
            network=network,
            instance_groups=[InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=4)],
            eks_cluster_arn=control_plane.cluster_arn,
            encryption_key=key,
            drainer=EksDrainer(
                self, "Drainer", cluster_name="train", control_plane=control_plane, encryption_key=key
            ),
            scale_down=ScaleDownConfig(drain=ScaleDownDrain()),
        )
    """

    function: lambda_.Function
    """The function that the guard calls."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: ClusterName,
        control_plane: EksControlPlane,
        encryption_key: kms.IKey,
        backup_cron_job: CronJobName | None = None,
        log_group: logs.ILogGroup | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Make the function, its access entry, and its permissions in Kubernetes.

        :param cluster_name: the HyperPod cluster's name. The function's name derives from it.
        :param control_plane: the EKS cluster. An existing one needs `endpoint` and `certificate_authority`.
        :param encryption_key: encrypts the log.
        :param backup_cron_job: NAMESPACE/NAME of your CronJob, whose Job backs a node up before it is deleted. The namespace
            hyperpod-backup is created here, with the permission to create Jobs in it. It stays when this construct leaves the stack,
            because your CronJob is in it. For another namespace, call `allow_backup` once that namespace exists. Default: - nodes are
            not backed up.
        :param log_group: the function's log group. Default: - one is made, which keeps events for a year.
        :param removal_policy: of that log group, when it leaves the stack: RETAIN or DESTROY. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for invalid arguments, and for an EKS cluster whose API the function could not reach.
        """
        super().__init__(scope, construct_id)
        warnings = raise_errors(
            [
                *check_arguments(
                    EksDrainer.__init__,
                    cluster_name=cluster_name,
                    control_plane=control_plane,
                    encryption_key=encryption_key,
                    backup_cron_job=backup_cron_job,
                    log_group=log_group,
                    removal_policy=removal_policy,
                ),
                *check_removal(removal_policy),
                *check_at_synth(cluster_name, "cluster_name", "write it out: the function's name derives from it"),
                *check_at_synth(
                    backup_cron_job, "backup_cron_job", "write it out: rights in its namespace derive from it"
                ),
                *check_backup_namespace(backup_cron_job, "backup_cron_job"),
                *_check_existing_cluster(control_plane),
            ],
            lambda: self.node.path,
        )
        for warning in warnings:
            Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.code}", warning.text)
        self._control_plane = control_plane
        self.cluster_name = cluster_name
        self.eks_cluster_arn = control_plane.cluster_arn
        self.backup_cron_job = backup_cron_job
        name = drainer_name(cluster_name)
        # The name does not depend on the function's resource, so the guard's stack can use it without a reference.
        self.function_arn = f"arn:{PARTITION}:lambda:{Stack.of(self).region}:{ACCOUNT_ID}:function:{name}"
        log = log_group or make_log_group(self, "Log", encryption_key=encryption_key, removal_policy=removal_policy)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Drains nodes of HyperPod cluster {cluster_name}",
        )
        permissions = self._allow(role, log.log_group_arn)
        self.function = python_function(
            self,
            "Function",
            function_name=name,
            description=f"Drains nodes of HyperPod cluster {cluster_name}",
            handler="hyperpod.drainer.handler.on_event",
            role=role,
            log_group=log,
            timeout=_TIMEOUT,
            memory_mb=_MEMORY_MB,
            network=self._network(permissions),
            environment=self._environment(),
            reasons=reasons.DRAINER,
        )
        # Lambda refuses a function in a VPC whose role may not create its network interfaces, and deletes them with the same permissions.
        self.function.node.add_dependency(permissions)
        self._let_in(role)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        control_plane: EksControlPlane,
        encryption_key: kms.IKey,
    ) -> EksDrainer:
        """The drainer of a cluster file's cluster, with the backup of its `scale_down.drain`.

        :param loaded: the file.
        :param control_plane: made by `EksControlPlane.from_config`.
        :param encryption_key: as in the constructor.
        :raises ConfigError: for arguments of a wrong type, and for an EKS cluster whose API the function could not reach.
        """
        require_arguments(
            EksDrainer.from_config,
            construct_id,
            loaded=loaded,
            control_plane=control_plane,
            encryption_key=encryption_key,
        )
        drain = None if loaded.config.scale_down is None else loaded.config.scale_down.drain
        made = cls(
            scope,
            construct_id,
            cluster_name=loaded.config.name,
            control_plane=control_plane,
            encryption_key=encryption_key,
            backup_cron_job=None if drain is None else drain.backup_cron_job,
        )
        Annotations.of(made).acknowledge_warning(
            "cdk-hyperpod:backup-namespace-unprotected", "It is a warning of the file."
        )
        return made

    def allow_backup(
        self,
        scope: Construct,
        construct_id: str,
        *after: IDependable,
        file_system: ILustreFileSystem | LustreMount | None = None,
        capacity_gib: int = 1200,
    ) -> None:
        """Allow the function to create the Jobs of `backup_cron_job` in another namespace than hyperpod-backup.

        Running nodes: not affected.

        :param scope: where the permission is added: in this stack or a later one.
        :param construct_id: its id there.
        :param after: what must exist first: the namespace, and the CSI driver of `file_system`.
        :param file_system: a claim `fsx` on it is created in hyperpod-backup, for the CronJob to copy to. Default: - none.
        :param capacity_gib: the capacity in GiB that the claim shows.
        """
        if self.backup_cron_job is None:
            return
        if in_own_namespace(self.backup_cron_job):
            # The permission is there already (`BackupRights`).
            (claim,) = file_system_manifests(mount_of(file_system), [BACKUP_NAMESPACE], capacity_gib=capacity_gib)
            if claim:
                self._apply(scope, f"{construct_id}FileSystem", claim).node.add_dependency(*after)
            return
        # Another namespace makes another resource, so that the permission in the old one is deleted.
        namespace = self.backup_cron_job.partition("/")[0]
        permissions = self._apply(scope, f"{construct_id}{namespace}", self._manifests_in_namespace())
        permissions.node.add_dependency(*after)

    def _manifests_in_namespace(self) -> list[Manifest]:
        """The permission to make Jobs in the CronJob's namespace."""
        return [manifest for manifest in self._manifests() if "namespace" in manifest["metadata"]]

    def _manifests_of_cluster(self) -> list[Manifest]:
        """The permissions on nodes and on pods of all namespaces."""
        return [manifest for manifest in self._manifests() if "namespace" not in manifest["metadata"]]

    def _manifests(self) -> tuple[Manifest, ...]:
        return drainer_manifests(self.backup_cron_job)

    def _let_in(self, role: iam.Role) -> None:
        """Let the function into the EKS cluster, with few permissions."""
        entry = eks.CfnAccessEntry(
            self,
            "Access",
            cluster_name=self._control_plane.cluster_name,
            principal_arn=role.role_arn,
            kubernetes_groups=[DRAINER_GROUP],
        )
        after_cluster(self._control_plane, entry)
        self._apply(self, "Rights", self._manifests_of_cluster())
        if in_own_namespace(self.backup_cron_job):
            namespace = self._add_namespace()
            self._apply(self, "BackupRights", self._manifests_in_namespace()).node.add_dependency(namespace)

    def _add_namespace(self) -> eks.KubernetesManifest:
        """Add the backup's namespace.

        It stays if the file stops naming a backup, because the user's CronJob is in it. So it may exist when it is added again.
        """
        made = eks.KubernetesManifest(
            self,
            "BackupNamespace",
            cluster=self._control_plane.cluster,
            manifest=[backup_namespace_manifest()],
            overwrite=True,
            prune=False,
            removal_policy=RemovalPolicy.RETAIN,
        )
        self._after_access(made)
        return made

    def _apply(self, scope: Construct, construct_id: str, manifests: list[Manifest]) -> eks.KubernetesManifest:
        applied = eks.KubernetesManifest(scope, construct_id, cluster=self._control_plane.cluster, manifest=manifests)
        self._after_access(applied)
        return applied

    def _after_access(self, applied: eks.KubernetesManifest) -> None:
        if Stack.of(applied) is Stack.of(self._control_plane):
            applied.node.add_dependency(*access_entries(self._control_plane))

    def _network(self, permissions: iam.CfnManagedPolicy) -> lambda_.CfnFunction.VpcConfigProperty:
        """The nodes' subnets, with traffic to the API only. Looking names up and signing tokens needs no other traffic.

        `permissions`: with them Lambda deletes the function's network interfaces, up to 40 minutes after the function is deleted.
        Until then nobody can delete the group, so the permissions must be deleted after it.
        """
        network = self._control_plane.network
        group = closed_security_group(self, "Group", network, "Drains nodes of a HyperPod cluster", "drainer")
        group.node.add_dependency(permissions)
        to_api = self._control_plane.security_group_id
        allow_tcp(self, "ToControlPlane", group.attr_group_id, to_api, 443, 443, "Kubernetes API")
        return lambda_.CfnFunction.VpcConfigProperty(
            security_group_ids=[group.attr_group_id], subnet_ids=[subnet.subnet_id for subnet in network.subnets]
        )

    def _environment(self) -> dict[str, str]:
        variables = {**self._address(), "EKS_CLUSTER": self._control_plane.cluster_name}
        if self.backup_cron_job is not None:
            variables["BACKUP_CRON_JOB"] = self.backup_cron_job
        return variables

    def _address(self) -> dict[str, str]:
        existing = self._control_plane.config.existing_cluster
        if existing is not None:
            # check_existing requires both.
            return {"KUBERNETES_ENDPOINT": str(existing.endpoint), "KUBERNETES_CA": str(existing.certificate_authority)}
        made = typing.cast(eks.Cluster, self._control_plane.cluster)
        return {
            "KUBERNETES_ENDPOINT": made.cluster_endpoint,
            "KUBERNETES_CA": made.cluster_certificate_authority_data,
        }

    def _allow(self, role: iam.Role, log_arn: str) -> iam.CfnManagedPolicy:
        """Allow the log, and what Lambda itself does with the role. The function's own code may do none of the latter."""
        statements = [
            {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": log_arn},
            {"Effect": "Allow", "Action": [*_INTERFACES], "Resource": "*"},
            {
                "Effect": "Deny",
                "Action": [*_INTERFACES],
                "Resource": "*",
                "Condition": {"ArnEquals": {"lambda:SourceFunctionArn": self.function_arn}},
            },
        ]
        policy = iam.CfnManagedPolicy(
            self,
            "Policy",
            description=f"For draining nodes of HyperPod cluster {self.cluster_name}",
            roles=[role.role_name],
            policy_document={"Version": "2012-10-17", "Statement": statements},
        )
        log_wildcards = policy_wildcards([{"Resource": Stack.of(self).resolve(log_arn)}])
        acknowledge(
            policy,
            {
                wildcard("Resource", "*"): reasons.DRAINER_INTERFACES,
                **dict.fromkeys(log_wildcards, reasons.FUNCTION_LOGS),
            },
        )
        return policy


def _check_existing_cluster(control_plane: object) -> Iterator[Finding]:
    existing = control_plane.config.existing_cluster if isinstance(control_plane, EksControlPlane) else None
    if existing is not None:
        yield from check_existing(existing, "control_plane.existing_cluster")
