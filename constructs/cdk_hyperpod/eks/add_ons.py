"""Add-ons whose pods need nodes, so they are installed after the HyperPod cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aws_cdk import Aws
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from ..config.cluster import ClusterArn
from ..config.eks import AddOn, is_on
from ..loader import LoadedConfig
from ..typed.validation import require_arguments
from .control_plane import EksControlPlane, add_on

_NAMES = {
    "coredns": "coredns",
    "cert_manager": "cert-manager",
    "training_operator": "amazon-sagemaker-hyperpod-training-operator",
    "task_governance": "amazon-sagemaker-hyperpod-taskgovernance",
    "observability": "amazon-sagemaker-hyperpod-observability",
    "fsx_csi_driver": "aws-fsx-csi-driver",
}
# The add-ons that must run first: all others need DNS, and the operator's webhooks need certificates.
_AFTER = {
    "cert_manager": ("coredns",),
    "training_operator": ("coredns", "cert_manager"),
    "task_governance": ("coredns",),
    "observability": ("coredns",),
    "fsx_csi_driver": ("coredns",),
}


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What an add-on gets besides the cluster."""

    own: Mapping[str, object] = field(default_factory=dict)
    """What the library sets in its configuration."""
    association: eks.CfnPodIdentityAssociation | None = None
    """What gives its pods a role. None: they need none."""


class HyperPodAddOns(Construct):
    """CoreDNS, cert-manager, the training operator, task governance, observability and the FSx CSI driver.

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
        if name == "training_operator":
            return _Inputs(association=self._training_operator_role())
        if name == "observability":
            return self._metrics()
        return _Inputs()

    def _training_operator_role(self) -> eks.CfnPodIdentityAssociation:
        return self._pod_role(
            "TrainingOperator",
            namespace="aws-hyperpod",
            service_account="hp-training-operator-controller-manager",
            action="sagemaker:DescribeClusterNode",
            resource=self._hyperpod_cluster_arn,
        )

    def _metrics(self) -> _Inputs:
        """A workspace for the metrics, and the role that writes to it."""
        # Imported only here, because few clusters enable it.
        from aws_cdk import aws_aps as aps

        workspace = aps.CfnWorkspace(self, "Metrics", alias=self._cluster_name, kms_key_arn=self._key.key_arn)
        association = self._pod_role(
            "Observability",
            namespace="hyperpod-observability",
            service_account="hyperpod-observability-operator-otel-collector",
            action="aps:RemoteWrite",
            resource=workspace.attr_arn,
        )
        own = {
            "ampWorkspace": {"prometheusEndpoint": workspace.attr_prometheus_endpoint, "arn": workspace.attr_arn},
            "logging": {"enabled": False},
        }
        return _Inputs(own=own, association=association)

    def _pod_role(
        self, construct_id: str, *, namespace: str, service_account: str, action: str, resource: str
    ) -> eks.CfnPodIdentityAssociation:
        policy = iam.CfnManagedPolicy(
            self,
            f"{construct_id}Policy",
            policy_document={
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": action, "Resource": resource}],
            },
        )
        role = iam.CfnRole(
            self,
            f"{construct_id}Role",
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
            f"{construct_id}Identity",
            cluster_name=self._cluster_name,
            namespace=namespace,
            service_account=service_account,
            role_arn=role.attr_arn,
        )
