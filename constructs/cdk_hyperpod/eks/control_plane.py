"""The EKS cluster that a HyperPod cluster joins, with what must be in it before the first node."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aws_cdk import Annotations, Aws, CfnResource, RemovalPolicy, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge
from .._common.removal import check_removal
from ..config.eks import DEFAULT_KUBERNETES_VERSION, INSTALLED, AddOn, EksConfig, is_on
from ..config.zones import EKS_INTERFACE_ENDPOINTS
from ..errors import Finding, raise_errors
from ..facts.instance_types import catalogue, suggestion
from ..kubernetes.device_plugins import list_values, with_neuron_types
from ..kubernetes.helm_chart import HelmChart, chart_values, digest_of, write_files
from ..loader import LoadedConfig
from ..network.network import HyperPodNetwork
from ..rules import check_control_plane, has_neuron
from ..rules.charts import check_chart
from ..typed.known import UNKNOWN, is_known, is_list_token
from ..typed.validation import check_arguments, check_at_synth, check_call, check_value, without_refused
from ..typed.words import show
from .kubectl import connect, control_plane_security_group, finish_provider, kubectl_options

# Add-ons of daemon sets only, which are healthy where there is no node yet.
_BEFORE_NODES = {
    "vpc_cni": "vpc-cni",
    "kube_proxy": "kube-proxy",
    "eks_pod_identity_agent": "eks-pod-identity-agent",
}


class EksControlPlane(Construct):
    """An EKS cluster without nodes, new or existing, whose API is reached from inside the VPC, with HyperPod's Helm chart.

    Running nodes: not affected. Removal: delete the HyperPod cluster first. Everything that ran on its nodes is deleted with it.
    Cost: an EKS cluster is billed by the hour. kubectl's functions run during deployments only.

    Example::

        key = encryption_key(self, "Key", removal_policy=RemovalPolicy.RETAIN)
        network = HyperPodNetwork(
            self, "Network", availability_zones=["us-west-2c", "us-west-2a"], internet_egress=True
        )
        control_plane = EksControlPlane(
            self,
            "Eks",
            cluster_name="train",
            eks_config=EksConfig(
                dependencies_chart="installed", admin_role_arns=("arn:aws:iam::111122223333:role/admin",)
            ),
            network=network,
            encryption_key=key,
        )
    """

    config: EksConfig
    """The settings of add-ons, autoscaling and administrators."""
    cluster_name: str
    """The EKS cluster's name."""
    cluster_arn: str
    """The EKS cluster's ARN: `eks_cluster_arn` of a `HyperPodCluster`."""
    cluster: eks.ICluster
    """The EKS cluster as a CDK construct."""
    network: HyperPodNetwork
    """The network of the control plane and of the nodes."""
    security_group_id: str
    """The control plane's security group. The Kubernetes API is reached through it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        eks_config: EksConfig,
        network: HyperPodNetwork,
        encryption_key: kms.IKey,
        chart_folder: str | Path = ".",
        neuron: bool = False,
        instance_types: Sequence[str] = (),
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Make an EKS cluster, or use an existing one.

        :param cluster_name: the name of a new EKS cluster. Immutable. The name of an existing one is in `eks_config`.
        :param eks_config: version, add-ons, administrators and chart.
        :param network: the network of the control plane and of the nodes. A closed network needs the endpoints eks, eks-auth and
            lambda.
        :param encryption_key: encrypts secrets and logs. Immutable.
        :param chart_folder: the folder in which the chart's path of `eks_config` begins.
        :param neuron: whether any group has Neuron devices.
        :param instance_types: the types of the groups. If this library installs the chart, its device plug-ins run on them.
        :param removal_policy: of a new cluster's log group, when it leaves the stack. RETAIN keeps it, and the next cluster of this
            name cannot have one. DESTROY deletes it. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: with everything that EKS or Helm would refuse.
        """
        super().__init__(scope, construct_id)
        chart = _chart_path(chart_folder, eks_config)
        raise_errors(
            [
                *check_call(EksControlPlane.__init__, locals(), apart=["eks_config"]),
                *check_removal(removal_policy),
                *check_value(eks_config, EksConfig, "eks"),
                *_check_with_network(eks_config, network, chart, neuron),
                *_check_types(instance_types),
            ],
            lambda: self.node.path,
        )
        self.config = eks_config
        self.network = network
        self._key = encryption_key
        self._removal_policy = removal_policy or RemovalPolicy.DESTROY
        existing = eks_config.existing_cluster
        self.cluster_name = cluster_name if existing is None else existing.name
        # Without a reference, so that the stack of the nodes does not depend on this one.
        self.cluster_arn = eks_cluster_arn(self, self.cluster_name)
        if existing is None:
            self.security_group_id = control_plane_security_group(self, network).attr_group_id
            self.cluster = typing.cast(eks.ICluster, self._new_cluster(eks_config, self.security_group_id))
        else:
            self.security_group_id = existing.security_group_id
            self.cluster = self._existing_cluster(existing.name, self.security_group_id)
        connect(self, network, self.security_group_id)
        for index, arn in enumerate(eks_config.admin_role_arns):
            self._add_admin(f"Admin{index}", arn)
        self._add_first_add_ons(eks_config)
        if chart is not None:
            self._install(chart, eks_config.image_registry, neuron, instance_types)
        finish_provider(self._kubectl, encryption_key)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        network: HyperPodNetwork,
        encryption_key: kms.IKey,
    ) -> EksControlPlane:
        """The EKS cluster of a cluster file.

        :param loaded: the file.
        :param network: made by `HyperPodNetwork.from_config`.
        :param encryption_key: as in the constructor.
        :raises ConfigError: if the file is not under EKS, or the network lacks an endpoint.
        """
        findings = [*check_arguments(EksControlPlane.from_config, loaded=loaded)]
        if not findings and loaded.config.eks is None:
            findings.append(
                Finding(
                    code="eks-settings-missing",
                    path="eks",
                    problem="is missing in the file, and this construct needs it",
                    remedy="add `eks:`",
                )
            )
        raise_errors(findings, lambda: f"{scope.node.path}/{construct_id}")
        assert loaded.config.eks is not None
        return cls(
            scope,
            construct_id,
            cluster_name=loaded.config.name,
            eks_config=loaded.config.eks,
            network=network,
            encryption_key=encryption_key,
            chart_folder=loaded.folder,
            neuron=has_neuron(loaded.config.instance_groups),
            instance_types=[name for group in loaded.config.instance_groups for name in group.all_instance_types],
        )

    def _add_first_add_ons(self, config: EksConfig) -> None:
        """Add the add-ons that need no node, and that nodes need."""
        resources = [
            add_on(self, self.cluster_name, addon_name, getattr(config.add_ons, field))
            for field, addon_name in _BEFORE_NODES.items()
            if is_on(config, field, has_file_system=False)
        ]
        for resource in resources:
            after_cluster(self, resource)

    def _new_cluster(self, config: EksConfig, security_group_id: str) -> eks.Cluster:
        # EKS would create the log group itself, without a key and without retention.
        log_group = logs.LogGroup(
            self,
            "Log",
            log_group_name=f"/aws/eks/{self.cluster_name}/cluster",
            retention=logs.RetentionDays.ONE_YEAR,
            removal_policy=self._removal_policy,
            encryption_key=self._key,
        )
        cluster = eks.Cluster(
            self,
            "Cluster",
            cluster_name=self.cluster_name,
            version=eks.KubernetesVersion.of(config.kubernetes_version or DEFAULT_KUBERNETES_VERSION),
            vpc=self.network.vpc,
            vpc_subnets=[ec2.SubnetSelection(subnets=self.network.control_plane_subnets)],
            security_group=ec2.SecurityGroup.from_security_group_id(self, "ControlPlaneReference", security_group_id),
            endpoint_access=_endpoint_access(config),
            cluster_logging=list(eks.ClusterLoggingTypes),
            secrets_encryption_key=self._key,
            # HyperPod adds the nodes. Without this, CDK would use EKS Auto Mode.
            default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
            default_capacity=0,
            bootstrap_self_managed_addons=False,
            bootstrap_cluster_creator_admin_permissions=False,
            kubectl_provider_options=kubectl_options(self, self.network, security_group_id),
        )
        typing.cast(CfnResource, cluster.node.default_child).node.add_dependency(log_group)
        self._kubectl = typing.cast(eks.KubectlProvider, cluster.node.find_child("KubectlProvider"))
        Annotations.of(cluster).acknowledge_warning(
            "@aws-cdk/aws-eks:clusterMustManuallyTagSubnet",
            "The tag chooses subnets for load balancers, which this library does not make.",
        )
        acknowledge(cluster, reasons.CONTROL_PLANE)
        if config.public_access_cidrs:
            acknowledge(cluster, reasons.PUBLIC_API)
        return cluster

    def _existing_cluster(self, name: str, security_group_id: str) -> eks.ICluster:
        options = kubectl_options(self, self.network, security_group_id)
        # An imported cluster has no kubectl functions, and these need a cluster as an argument.
        found = eks.Cluster.from_cluster_attributes(self, "Found", cluster_name=name, vpc=self.network.vpc)
        self._kubectl = eks.KubectlProvider(
            self,
            "KubectlProvider",
            cluster=found,
            kubectl_layer=options.kubectl_layer,
            private_subnets=options.private_subnets,
            security_groups=options.security_groups,
        )
        assert self._kubectl.role is not None
        self._add_admin("KubectlAccess", self._kubectl.role.role_arn)
        return eks.Cluster.from_cluster_attributes(
            self, "Cluster", cluster_name=name, kubectl_provider=typing.cast(eks.IKubectlProvider, self._kubectl)
        )

    def _add_admin(self, construct_id: str, role_arn: str) -> None:
        entry = eks.CfnAccessEntry(
            self,
            construct_id,
            cluster_name=self.cluster_name,
            principal_arn=role_arn,
            access_policies=[
                eks.CfnAccessEntry.AccessPolicyProperty(
                    policy_arn=f"arn:{Aws.PARTITION}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
                    access_scope=eks.CfnAccessEntry.AccessScopeProperty(type="cluster"),
                )
            ],
        )
        after_cluster(self, entry)

    def _install(self, path: Path, image_registry: str | None, neuron: bool, instance_types: Sequence[str]) -> None:
        """Install the chart. Helm needs a folder, so the archive is unpacked beside the assembly's other assets."""
        chart = HelmChart(path)
        kinds = [catalogue()[name] for name in instance_types]
        files = with_neuron_types(chart.files, kinds)
        stage = Stage.of(self)
        assert stage is not None
        folder = Path(stage.asset_outdir) / f"chart-{digest_of(files).removeprefix('sha256:')[:16]}"
        write_files(files, folder)
        release = eks.HelmChart(
            self,
            "Dependencies",
            cluster=self.cluster,
            chart_asset=s3_assets.Asset(self, "Chart", path=str(folder)),
            # AWS's own names, so that it is the same installation as one made by hand.
            release="dependencies",
            namespace="kube-system",
            create_namespace=False,
            values=chart_values(
                region=Stack.of(self).region,
                image_registry=image_registry,
                neuron=neuron,
                lists=list_values(chart.files, kinds),
                components=self.config.chart_components,
            ),
        )
        release.node.add_dependency(*access_entries(self))


def _endpoint_access(config: EksConfig) -> eks.EndpointAccess:
    if not config.public_access_cidrs:
        return eks.EndpointAccess.PRIVATE
    return eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*config.public_access_cidrs)


def _check_with_network(config: object, network: object, chart: Path | None, neuron: bool) -> Iterator[Finding]:
    """The configuration together with its network and its chart, if both have the right type."""
    if not isinstance(config, EksConfig) or not isinstance(network, HyperPodNetwork):
        return
    yield from check_control_plane(
        without_refused(config, []),
        network.config,
        region=Stack.of(network).region,
        has_file_system=None,
        control_plane_zone=_second_zone(network),
    )
    yield from _check_endpoints(network)
    if chart is not None:
        yield from _check_chart(chart, config, network, neuron)


def _check_types(instance_types: object) -> Iterator[Finding]:
    """Types that are not in the catalogue or not known yet, so the plug-ins that their nodes need are not known either."""
    names = instance_types if isinstance(instance_types, list | tuple) else ()
    if is_list_token(names):
        return  # The argument's type refuses it.
    for index, name in enumerate(names):
        remedy = "write it out: the chart's lists of types derive from it"
        yield from check_at_synth(name, f"instance_types[{index}]", remedy)
        if isinstance(name, str) and is_known(name) and name not in catalogue():
            yield Finding(
                code="instance-type-unknown",
                path=f"instance_types[{index}]",
                problem=f"HyperPod has no instance type {show(name)}",
                remedy=suggestion(name),
            )


def _second_zone(network: HyperPodNetwork) -> str | None:
    """The zone that only the control plane uses. None: it is in the zones of the nodes."""
    subnet = network.control_plane_subnet
    return None if subnet is None else subnet.availability_zone


def _check_endpoints(network: HyperPodNetwork) -> Iterator[Finding]:
    """Without these endpoints kubectl's functions wait until they time out."""
    is_closed_and_new = network.config.vpc_id is None and network.endpoint_security_group_id is not None
    missing = [service for service in EKS_INTERFACE_ENDPOINTS if service not in network.more_endpoints]
    if is_closed_and_new and missing:
        yield Finding(
            code="eks-endpoints-missing",
            path="network",
            problem=f"has no endpoint for {', '.join(missing)}, which an EKS cluster calls",
            remedy=f"give HyperPodNetwork more_endpoints={missing}",
        )


def _chart_path(folder: object, config: object) -> Path | None:
    """Where the chart is. None: it is installed already, or an argument is invalid."""
    if not isinstance(config, EksConfig) or not isinstance(folder, str | Path):
        return None
    chart = without_refused(config, []).dependencies_chart
    return None if chart in (INSTALLED, UNKNOWN) else Path(folder, chart)


def _check_chart(path: Path, config: EksConfig, network: HyperPodNetwork, neuron: bool) -> Iterator[Finding]:
    return check_chart(
        path,
        config.dependencies_chart,
        digest=config.dependencies_chart_digest,
        image_registry=config.image_registry,
        neuron=neuron,
        closed_region=Stack.of(network).region if network.config.internet_egress is False else None,
    )


def eks_cluster_arn(scope: Construct, name: str) -> str:
    """The ARN of an EKS cluster of this account and region."""
    return f"arn:{Aws.PARTITION}:eks:{Stack.of(scope).region}:{Aws.ACCOUNT_ID}:cluster/{name}"


def after_cluster(control_plane: EksControlPlane, resource: CfnResource) -> None:
    """Create a resource after a new EKS cluster. Its literal name alone makes no dependency."""
    if control_plane.config.existing_cluster is None:
        resource.add_resource_dependency(typing.cast(CfnResource, control_plane.cluster.node.default_child))


def access_entries(control_plane: EksControlPlane) -> list[eks.CfnAccessEntry]:
    """The access entries, including kubectl's."""
    return [child for child in control_plane.node.children if isinstance(child, eks.CfnAccessEntry)]


def add_on(
    scope: Construct, cluster_name: str, name: str, config: AddOn, *, own: Mapping[str, object] | None = None
) -> eks.CfnAddon:
    """An EKS add-on. Its construct id is its name, so that other add-ons do not affect it. `own`: what the library sets in
    its configuration."""
    configuration = merged(own or {}, config.configuration)
    conflicts = config.resolve_conflicts
    return eks.CfnAddon(
        scope,
        "".join(part.capitalize() for part in name.removeprefix("amazon-sagemaker-").split("-")),
        addon_name=name,
        addon_version=config.version,
        cluster_name=cluster_name,
        configuration_values=Stack.of(scope).to_json_string(configuration) if configuration else None,
        resolve_conflicts=None if conflicts is None else conflicts.upper(),
    )


def merged(own: Mapping[str, object], configuration: Mapping[str, object]) -> dict[str, object]:
    """The library's settings of an add-on together with the file's, in the order of their names."""
    both = dict(own)
    for key in sorted(configuration):
        held, more = both.get(key), configuration[key]
        if isinstance(held, Mapping) and isinstance(more, Mapping):
            more = merged(held, more)
        both[key] = more
    return both
