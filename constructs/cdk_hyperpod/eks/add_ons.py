"""Add-ons whose pods need nodes, so they are installed after the HyperPod cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aws_cdk import Aws, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from .._common.acknowledge import acknowledge, policy_wildcards
from ..config.cluster import ClusterArn
from ..config.eks import AddOn, is_on
from ..loader import LoadedConfig
from ..network.security_groups import allow_all, closed_security_group
from ..storage.lustre import allow_nodes
from ..typed.validation import require_arguments
from .add_on_roles import (
    PodRole,
    cluster_tag,
    ebs_role,
    fsx_role,
    observability_role,
    s3_role,
    training_operator_role,
)
from .control_plane import EksControlPlane, add_on
from .manifests import storage_class

_NAMES = {
    "coredns": "coredns",
    "cert_manager": "cert-manager",
    "training_operator": "amazon-sagemaker-hyperpod-training-operator",
    "task_governance": "amazon-sagemaker-hyperpod-taskgovernance",
    "observability": "amazon-sagemaker-hyperpod-observability",
    "fsx_csi_driver": "aws-fsx-csi-driver",
    "metrics_server": "metrics-server",
    "s3_csi_driver": "aws-mountpoint-s3-csi-driver",
    "ebs_csi_driver": "aws-ebs-csi-driver",
}
# The add-ons that must run first: all others need DNS, and the operator's webhooks need certificates.
_AFTER = {
    "cert_manager": ("coredns",),
    "training_operator": ("coredns", "cert_manager"),
    "task_governance": ("coredns",),
    "observability": ("coredns",),
    "fsx_csi_driver": ("coredns",),
    "metrics_server": ("coredns",),
    "s3_csi_driver": ("coredns",),
    "ebs_csi_driver": ("coredns",),
}


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What an add-on gets besides the cluster."""

    own: Mapping[str, object] = field(default_factory=dict)
    """What the library sets in its configuration."""
    association: eks.CfnPodIdentityAssociation | None = None
    """What gives its pods a role. None: they need none."""


class HyperPodAddOns(Construct):
    """CoreDNS, cert-manager, the training operator, task governance, and if the configuration enables them observability, the
    metrics server and the CSI drivers of FSx, S3 and EBS.

    Running nodes: not affected. If you remove an add-on, it stops working: without the training operator no job is restarted, without
    task governance no job leaves a queue.

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
        HyperPodAddOns(
            self,
            "AddOns",
            control_plane=control_plane,
            hyperpod_cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
            encryption_key=key,
            has_file_system=False,
        )
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        control_plane: EksControlPlane,
        hyperpod_cluster_arn: ClusterArn,
        encryption_key: kms.IKey,
        has_file_system: bool,
    ) -> None:
        """Install the add-ons that the control plane's configuration enables.

        :param control_plane: the EKS cluster and its configuration.
        :param hyperpod_cluster_arn: the cluster whose nodes run the add-ons. The training operator describes its nodes.
        :param encryption_key: encrypts the metrics.
        :param has_file_system: whether pods mount a file system, which needs the FSx CSI driver.
        :raises ConfigError: for arguments of a wrong type.
        """
        super().__init__(scope, construct_id)
        require_arguments(
            HyperPodAddOns.__init__,
            lambda: self.node.path,
            control_plane=control_plane,
            hyperpod_cluster_arn=hyperpod_cluster_arn,
            encryption_key=encryption_key,
            has_file_system=has_file_system,
        )
        self._control_plane = control_plane
        self._config = control_plane.config.add_ons
        self._cluster_name = control_plane.cluster_name
        self._cluster_arn = control_plane.cluster_arn
        self._hyperpod_cluster_arn = hyperpod_cluster_arn
        self._key = encryption_key
        self.resources: dict[str, eks.CfnAddon] = {}
        """The add-ons by their names in `AddOnsConfig`."""
        eks_config = control_plane.config
        for name in _NAMES:
            if is_on(eks_config, name, has_file_system=has_file_system):
                self.resources[name] = self._add(name, getattr(eks_config.add_ons, name))
        driver = self.resources.get("fsx_csi_driver")
        if driver is not None and eks_config.add_ons.fsx_csi_driver.storage_class:
            self._add_storage_class(driver)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        control_plane: EksControlPlane,
        hyperpod_cluster_arn: ClusterArn,
        encryption_key: kms.IKey,
    ) -> HyperPodAddOns:
        """The add-ons that a cluster file enables. With `storage` that includes the FSx CSI driver.

        :param loaded: the file.
        :param control_plane: made by `EksControlPlane.from_config`.
        :param hyperpod_cluster_arn: as in the constructor.
        :param encryption_key: as in the constructor.
        :raises ConfigError: for arguments of a wrong type.
        """
        require_arguments(
            HyperPodAddOns.from_config,
            construct_id,
            loaded=loaded,
            control_plane=control_plane,
            hyperpod_cluster_arn=hyperpod_cluster_arn,
            encryption_key=encryption_key,
        )
        return cls(
            scope,
            construct_id,
            control_plane=control_plane,
            hyperpod_cluster_arn=hyperpod_cluster_arn,
            encryption_key=encryption_key,
            has_file_system=loaded.config.storage is not None,
        )

    def _add(self, name: str, config: AddOn) -> eks.CfnAddon:
        """Add an add-on after its own role, and after the add-ons that it needs."""
        inputs = self._inputs_of(name)
        resource = add_on(self, self._cluster_name, _NAMES[name], config, own=inputs.own)
        if inputs.association is not None:
            # A resource of its own, before the add-on: the training operator does not use an association that comes with it.
            resource.add_resource_dependency(inputs.association)
        for other in _AFTER.get(name, ()):
            if other in self.resources:
                resource.add_resource_dependency(self.resources[other])
        return resource

    def _inputs_of(self, name: str) -> _Inputs:
        make = _INPUTS.get(name)
        return _Inputs() if make is None else make(self)

    def _training_operator(self) -> _Inputs:
        return self._with_role(training_operator_role(self._hyperpod_cluster_arn))

    def _metrics(self) -> _Inputs:
        """The workspace for the metrics, new or existing, and the role that writes to it."""
        existing = self._config.observability.workspace_arn
        if existing is None:
            # Imported only here, because few clusters enable it.
            from aws_cdk import aws_aps as aps

            workspace = aps.CfnWorkspace(self, "Metrics", alias=self._cluster_name, kms_key_arn=self._key.key_arn)
            arn, endpoint = workspace.attr_arn, workspace.attr_prometheus_endpoint
        else:
            arn, endpoint = existing, workspace_endpoint(existing)
        own = {"ampWorkspace": {"prometheusEndpoint": endpoint, "arn": arn}, "logging": {"enabled": False}}
        return self._with_role(observability_role(arn), own)

    def _s3(self) -> _Inputs:
        driver = self._config.s3_csi_driver
        return self._with_role(s3_role(self, driver.buckets, driver.kms_key_arns)) if driver.buckets else _Inputs()

    def _ebs(self) -> _Inputs:
        keys = self._config.ebs_csi_driver.kms_key_arns
        role = ebs_role(self, self._cluster_name, self._hyperpod_cluster_arn, keys)
        # What the driver creates has the cluster's tag, by which its role is bounded.
        return self._with_role(role, {"controller": {"k8sTagClusterId": self._cluster_name}})

    def _fsx(self) -> _Inputs:
        if not self._config.fsx_csi_driver.storage_class:
            return _Inputs()
        return self._with_role(fsx_role(self, self._cluster_name, self._key.key_arn))

    def _add_storage_class(self, driver: eks.CfnAddon) -> None:
        """Add the StorageClass for file systems of claims, and the security group of their servers."""
        network = self._control_plane.network
        scope = Construct(self, "FileSystemsOfClaims")
        servers = closed_security_group(
            scope, "Servers", network, "Servers of FSx for Lustre file systems of claims", "lustre-claims"
        ).attr_group_id
        allow_all(scope, "Servers", servers, servers, "Lustre between its servers")
        allow_nodes(scope, network, servers)
        manifest = storage_class(
            subnet_id=network.subnets[0].subnet_id,
            security_group_id=servers,
            kms_key_arn=self._key.key_arn,
            tag=cluster_tag(self._cluster_name),
        )
        applied = eks.KubernetesManifest(
            scope, "StorageClass", cluster=self._control_plane.cluster, manifest=[manifest]
        )
        applied.node.add_dependency(driver)

    def _with_role(self, role: PodRole, own: Mapping[str, object] | None = None) -> _Inputs:
        return _Inputs(own=own or {}, association=self._pod_role(role))

    def _pod_role(self, pods: PodRole) -> eks.CfnPodIdentityAssociation:
        policy = iam.CfnManagedPolicy(
            self,
            f"{pods.construct_id}Policy",
            policy_document={"Version": "2012-10-17", "Statement": pods.statements},
        )
        if pods.wildcards is not None:
            found = policy_wildcards(Stack.of(self).resolve(pods.statements))
            acknowledge(policy, dict.fromkeys(found, pods.wildcards))
        role = iam.CfnRole(
            self,
            f"{pods.construct_id}Role",
            assume_role_policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Action": ["sts:AssumeRole", "sts:TagSession"],
                        "Principal": {"Service": "pods.eks.amazonaws.com"},
                        # EKS names the cluster that the pod runs in (user guide, "Cross-service confused deputy prevention
                        # in Amazon EKS").
                        "Condition": {
                            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                            "ArnEquals": {"aws:SourceArn": self._cluster_arn},
                        },
                    }
                ],
            },
            managed_policy_arns=[policy.ref],
        )
        return eks.CfnPodIdentityAssociation(
            self,
            f"{pods.construct_id}Identity",
            cluster_name=self._cluster_name,
            namespace=pods.namespace,
            service_account=pods.service_account,
            role_arn=role.attr_arn,
        )


_INPUTS: Mapping[str, Callable[[HyperPodAddOns], _Inputs]] = {
    "training_operator": HyperPodAddOns._training_operator,
    "observability": HyperPodAddOns._metrics,
    "s3_csi_driver": HyperPodAddOns._s3,
    "ebs_csi_driver": HyperPodAddOns._ebs,
    "fsx_csi_driver": HyperPodAddOns._fsx,
}


def workspace_endpoint(arn: str) -> str:
    """The address of a workspace, as `aws amp describe-workspace` prints it."""
    region, workspace = arn.split(":")[3], arn.rpartition("/")[2]
    return f"https://aps-workspaces.{region}.{Aws.URL_SUFFIX}/workspaces/{workspace}/"
