"""The HyperPod cluster itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from aws_cdk import Annotations, CfnTag, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct, IConstruct

from .._common import reasons
from .._common.acknowledge import acknowledge
from .._common.buckets import access_logs_bucket
from .._common.dependencies import AtSynth, LatePolicy, prerequisites
from .._common.encryption import allow_logs
from .._common.encryption import encryption_key as make_encryption_key
from .._common.removal import check_removal
from .._lambda.hyperpod.kernel.owner import STACK_ID_TAG
from ..config.cluster import ClusterArn, ClusterConfig, EksClusterArn, InstanceGroup, LogRetentionDays, NetworkConfig
from ..config.lifecycle import LifecycleConfig, LifecycleMode
from ..config.patterns import ClusterName
from ..config.rendering import ClusterContext, in_words_of_cdk, network_spec, render_group
from ..config.scale_down import ScaleDownConfig
from ..config.slurm import AccountingDatabase
from ..config.storage import TieredStorageConfig
from ..errors import Finding, raise_errors
from ..guard.drain_channel import DRAIN_OPERATORS, DrainChannel, IEksDrainer, name_agent
from ..guard.scale_down import UNGUARDED, ScaleDown, name_patching_off
from ..interface import IHyperPodCluster, RoleName
from ..loader import LoadedConfig
from ..network.network import HyperPodNetwork
from ..rules.own_scripts import has_own_scripts, in_bootstrap_mode
from ..scripts.lifecycle_scripts import LifecycleScripts
from ..scripts.script_folder import check_source
from ..storage.lustre import ILustreFileSystem, LustreMount, mount_of
from ..storage.openzfs import OpenZfsMount
from ..typed.annotations import arguments_of, field_types
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import as_tuple, check_arguments, check_call, check_config, require_arguments
from .argument_checks import (
    RolesInUse,
    accounting_database_of,
    autoscaled_groups_of,
    check_autoscaled_groups,
    check_drainer,
    check_orchestrator,
    check_unguarded,
    check_with_network,
    lifecycle_mode_of,
    orchestrator_config,
)
from .cluster_log import ClusterLog
from .imported_cluster import ImportedCluster
from .permissions import NodeAccess, Statement
from .resource_properties import NodeMounts, auto_scaling_property, orchestrator_property, tiered_storage_property
from .roles import GivenRole, InstanceRole, RolesByNodeType, autoscaling_role, node_type_of

# Types of the CreateCluster API that the CloudFormation schema of cfn-lint does not have yet, or not for us-east-1, the region that
# it looks at if none is named.
_MISSING_IN_SCHEMA = {"ml.p5e.48xlarge", "ml.p6e-gb200.36xlarge", "ml.trn2.3xlarge"}


# The arguments that are validated as fields of a ClusterConfig. `network` and `lifecycle_scripts` are not, though fields have these names.
_IN_CONFIG = {*field_types(ClusterConfig), "cluster_name", "lifecycle_mode", "accounting_database"}
_IN_CONFIG -= {"network", "lifecycle_scripts"}
_UNGUARDED = (
    "nothing guards the cluster: HyperPod terminates nodes at random when a count is lowered; leave unguarded out, or add a "
    "ScaleDown"
)
_CONTROLLER_ADMITS_USERS = Finding(
    code="controller-admits-users",
    path="lifecycle_scripts",
    problem="do not know the login group, so the controller admits the users by SSH",
    remedy="set login_group=True on LifecycleScripts",
    level="warning",
)


class HyperPodCluster(IHyperPodCluster):
    """A HyperPod cluster under Slurm or EKS, with execution roles for its groups and a guard.

    Running nodes: raising a count adds nodes. `ScaleDown`, the guard, decides what happens when you lower a count. Without the guard,
    HyperPod terminates nodes at random. A change of the name or of the network would replace the cluster. CloudFormation
    refuses to replace a cluster that has a name, so no node is terminated.

    Example::

        cluster = HyperPodCluster(
            self,
            "Cluster",
            cluster_name="train",
            network=HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"]),
            instance_groups=[
                InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
                InstanceGroup(
                    name="p5", node_type="compute", partition="p5", instance_type="ml.p5.48xlarge", instance_count=4
                ),
            ],
        )
        s3.Bucket(self, "Datasets").grant_read(cluster)
    """

    resource: sagemaker.CfnCluster
    """CloudFormation's resource."""
    encryption_key: kms.IKey
    """The key of the cluster's volumes, scripts and logs."""
    lifecycle_scripts: LifecycleScripts
    """The upload of the scripts that run on new nodes."""
    lifecycle_mode: LifecycleMode
    """What runs on a new node; see `LifecycleConfig.mode`."""
    log: ClusterLog
    """Encrypts HyperPod's log group of the cluster, and sets its retention."""
    scale_down: ScaleDown | None
    """The guard. None: the cluster is unguarded."""
    _known_warnings: frozenset[Finding] = frozenset()

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        instance_groups: Sequence[InstanceGroup],
        network: HyperPodNetwork,
        file_system: ILustreFileSystem | LustreMount | None = None,
        openzfs: OpenZfsMount | None = None,
        lifecycle_scripts: LifecycleScripts | str | Path | None = None,
        lifecycle_mode: LifecycleMode | None = None,
        accounting_database: AccountingDatabase | None = None,
        encryption_key: kms.IKey | None = None,
        node_provisioning_mode: Literal["continuous", "standard"] = "continuous",
        node_recovery: Literal["automatic", "none"] = "automatic",
        tiered_storage: TieredStorageConfig | None = None,
        tags: Mapping[str, str] | None = None,
        eks_cluster_arn: EksClusterArn | None = None,
        autoscaled_groups: Sequence[str] = (),
        drainer: IEksDrainer | None = None,
        encrypt_root_volumes: bool | None = None,
        roles: Mapping[RoleName, iam.IRole] | None = None,
        scale_down: ScaleDownConfig | None = None,
        unguarded: bool = False,
        log_retention_days: LogRetentionDays = 365,
        guard_log_group: logs.ILogGroup | None = None,
        removal_policy: RemovalPolicy | None = None,
        _loaded: LoadedConfig | None = None,
    ) -> None:
        """Make a cluster and its guard.

        Arguments that are not described here are fields of `ClusterConfig`, and described there.

        :param cluster_name: the cluster's name. Immutable: CloudFormation refuses to replace a cluster that has a name.
        :param network: the network of the nodes. Immutable.
        :param file_system: mounted by every node, under EKS by pods. A change affects new and replaced nodes. Default: - none.
        :param openzfs: another file system that every node mounts, under Slurm only. Default: - none.
        :param lifecycle_scripts: an upload, or a folder. A folder is uploaded to a new bucket, and a second bucket gets the access
            logs. Changed scripts affect new and replaced nodes. Default: - the library's scripts.
        :param lifecycle_mode: what runs on a new node; see `LifecycleConfig.mode`. A change does not affect running nodes.
            Default: - extended for the library's scripts under Slurm, otherwise customer_managed.
        :param accounting_database: your database for Slurm's accounts. Default: - one on the controller.
        :param encryption_key: encrypts the scripts and, under continuous provisioning, the groups' EBS volumes. HyperPod cannot
            change the key of an existing group. Create a new group and delete the old one. A key of this app gets a
            statement that allows CloudWatch Logs to use it. An imported key must have that statement: without it CloudWatch refuses
            the guard's log groups and so the deployment, and HyperPod's own log group keeps CloudWatch's key, as the stack's output
            reports. Default: - one is made.
        :param eks_cluster_arn: the EKS cluster that the nodes join. HyperPod's Helm chart must be installed there. Pods, not nodes,
            then mount `file_system`. Immutable. Default: - Slurm.
        :param autoscaled_groups: the groups whose counts Karpenter sets. Default: - none.
        :param drainer: drains nodes under EKS if `scale_down.drain` is set: an `EksDrainer`. Default: - nodes are not drained.
        :param roles: your execution roles by node type (under EKS `node`), which trust sagemaker.amazonaws.com. If CDK may change a
            role, it gets the permissions that its nodes need; otherwise a warning lists them. A role for a type that no group has is
            an error at synthesis. HyperPod cannot change the role of an existing group. Default: - one is made for each node type.
        :param scale_down: the nodes and groups that the guard deletes. Default: - none by name.
        :param unguarded: True: no guard is made. HyperPod then terminates nodes at random if you lower a count. A warning says so
            until your own `ScaleDown` guards the cluster.
        :param guard_log_group: the log group of the guard's functions. Default: - three are made, which keep events for a year.
        :param removal_policy: of the key, the scripts and the logs that are made here, when they leave the stack: RETAIN or
            DESTROY. In either case the nodes terminate with the cluster, and HyperPod's own log group stays. Default: -
            RemovalPolicy.DESTROY.
        :raises ConfigError: with everything that HyperPod would refuse. Warnings appear on this construct.
        """
        super().__init__(scope, construct_id)
        self._stack = Stack.of(self)
        self._network = network
        self._file_system = mount_of(file_system)
        self._eks_cluster_arn = eks_cluster_arn
        self._removal_policy = removal_policy
        invalid_mode = [*check_arguments(HyperPodCluster.__init__, lifecycle_mode=lifecycle_mode)]
        argument_findings = [
            *check_call(HyperPodCluster.__init__, locals(), apart=_IN_CONFIG),
            *check_removal(removal_policy),
            *invalid_mode,
            *check_unguarded(unguarded, scale_down=scale_down, guard_log_group=guard_log_group),
            *check_drainer(drainer, eks_cluster_arn),
            *check_autoscaled_groups(autoscaled_groups, eks_cluster_arn),
            *check_source(lifecycle_scripts, "lifecycle_scripts", "slurm" if eks_cluster_arn is None else "eks"),
            *_check_mode(lifecycle_mode, lifecycle_scripts),
        ]
        if isinstance(lifecycle_scripts, LifecycleScripts):
            accounting_database = accounting_database or lifecycle_scripts.accounting_database
        orchestrator = orchestrator_config(eks_cluster_arn, autoscaled_groups, accounting_database, scale_down)
        self._config = ClusterConfig(
            name=cluster_name,
            region=self._stack.region,
            instance_groups=as_tuple(instance_groups),
            orchestrator=orchestrator.orchestrator,
            eks=orchestrator.eks,
            slurm=orchestrator.slurm,
            node_provisioning_mode=node_provisioning_mode,
            node_recovery=node_recovery,
            network=self._network_config(),
            tiered_storage=tiered_storage,
            lifecycle=LifecycleConfig(mode=UNKNOWN if invalid_mode else lifecycle_mode),
            tags={} if tags is None else tags,
            encrypt_root_volumes=encrypt_root_volumes,
            scale_down=scale_down,
            log_retention_days=log_retention_days,
        )
        if _loaded is not None:
            # The rules need the whole file. Other stacks show its warnings about teams and the EKS cluster.
            self._config = _loaded.config
            self._warn(_loaded.warnings_of("cluster"))
            self._known_warnings |= frozenset(_loaded.warnings)
        self._validate(self._config, argument_findings)
        self.cluster_name = self._config.name
        self.orchestrator = self._config.orchestrator
        self.node_provisioning_mode = self._config.node_provisioning_mode
        self.autoscaled_groups = autoscaled_groups_of(self._config)
        self.drainer = drainer
        self._mounts = NodeMounts() if eks_cluster_arn is not None else NodeMounts(self._file_system, openzfs)
        self.encryption_key = encryption_key or self._add_key()
        self.lifecycle_scripts = self._scripts_of(lifecycle_scripts)
        allow_logs(self.encryption_key)
        self.limits_metadata = self.lifecycle_scripts.limits_metadata
        self.drain_channel = self.lifecycle_scripts.drain or self._add_drain_channel(self.lifecycle_scripts)
        self.lifecycle_mode = lifecycle_mode or self.lifecycle_scripts.default_mode
        self._cluster_context = self._context_of_groups()
        self._given_roles = dict(roles or {})
        self._roles: dict[RoleName, InstanceRole | GivenRole] = {}
        self._awaited: list[iam.IRole] = []
        self.node.add_validation(RolesInUse(self._given_roles, self))
        self._add_roles()
        self._warn_of_shared_roles()
        if self._config.has_login_group and self.lifecycle_scripts.admits_users:
            self._warn([_CONTROLLER_ADMITS_USERS])
        self.roles = RolesByNodeType(self._roles, self._wait_for_policies_of)
        self.resource = self._add_resource(self._config)
        self.cluster_arn = self.resource.attr_cluster_arn
        self._wait_for_what_nodes_use(openzfs)
        self._acknowledge_schema_gaps()
        self.log = self._add_log()
        self.scale_down = self._add_guard(scale_down, unguarded=unguarded, log_group=guard_log_group)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        network: HyperPodNetwork,
        lifecycle_scripts: LifecycleScripts,
        file_system: ILustreFileSystem | LustreMount | None = None,
        openzfs: OpenZfsMount | None = None,
        encryption_key: kms.IKey | None = None,
        eks_cluster_arn: EksClusterArn | None = None,
        drainer: IEksDrainer | None = None,
        roles: Mapping[RoleName, iam.IRole] | None = None,
        unguarded: bool = False,
    ) -> HyperPodCluster:
        """The cluster of a cluster file, and its guard.

        The file's warnings appear on this construct, except those about `teams` and the EKS cluster.

        Example::

            loaded = load_config("cluster.yaml")
            key = encryption_key(self, "Key")
            network = HyperPodNetwork.from_config(self, "Network", loaded, log_encryption_key=key)
            storage = LustreFileSystem.from_config(self, "FileSystem", loaded, network=network, encryption_key=key)
            cluster = HyperPodCluster.from_config(
                self,
                "Cluster",
                loaded,
                network=network,
                lifecycle_scripts=LifecycleScripts.from_config(self, "Scripts", loaded, encryption_key=key),
                file_system=storage,
            )

        :param loaded: the file.
        :param network: made by `HyperPodNetwork.from_config`.
        :param lifecycle_scripts: made by `LifecycleScripts.from_config`.
        :param file_system: made by `LustreFileSystem.from_config`. Default: - none.
        :param openzfs: as in the constructor. Default: - none.
        :param encryption_key: as in the constructor. Default: - the scripts' key.
        :param eks_cluster_arn: as in the constructor. Required for a file under EKS. Default: - Slurm.
        :param drainer: as in the constructor. Required for a file under EKS with `scale_down.drain`. Default: - nodes are not drained.
        :param roles: as in the constructor. Default: - one is made for each node type.
        :param unguarded: as in the constructor. `ScaleDown.from_config` then makes the guard.
        :raises ConfigError: if the other arguments do not match the file.
        """
        where = f"{scope.node.path}/{construct_id}"
        require_arguments(HyperPodCluster.from_config, where, loaded=loaded, lifecycle_scripts=lifecycle_scripts)
        config = loaded.config
        raise_errors(check_orchestrator(config, eks_cluster_arn), where)
        return cls(
            scope,
            construct_id,
            cluster_name=config.name,
            instance_groups=config.instance_groups,
            network=network,
            file_system=file_system,
            openzfs=openzfs,
            lifecycle_scripts=lifecycle_scripts,
            lifecycle_mode=lifecycle_mode_of(config),
            accounting_database=accounting_database_of(config),
            encryption_key=encryption_key or lifecycle_scripts.encryption_key,
            node_provisioning_mode=config.node_provisioning_mode,
            node_recovery=config.node_recovery,
            tiered_storage=config.tiered_storage,
            tags=config.tags,
            eks_cluster_arn=eks_cluster_arn,
            autoscaled_groups=autoscaled_groups_of(config),
            drainer=drainer,
            encrypt_root_volumes=config.encrypt_root_volumes,
            roles=roles,
            scale_down=None if unguarded else config.scale_down,
            unguarded=unguarded,
            log_retention_days=config.log_retention_days,
            _loaded=loaded,
        )

    def _add_key(self) -> kms.IKey:
        return make_encryption_key(self, "Key", removal_policy=self._removal_policy or RemovalPolicy.DESTROY)

    def _scripts_of(self, lifecycle_scripts: LifecycleScripts | str | Path | None) -> LifecycleScripts:
        """The given upload, or one of the given folder. None: of the library's own scripts."""
        if isinstance(lifecycle_scripts, LifecycleScripts):
            return lifecycle_scripts
        return LifecycleScripts(
            self,
            "LifecycleScripts",
            cluster_name=self.cluster_name,
            encryption_key=self.encryption_key,
            file_system=self._file_system,
            openzfs=self._mounts.openzfs,
            lifecycle=LifecycleConfig(scripts=None if lifecycle_scripts is None else str(lifecycle_scripts)),
            access_logs=access_logs_bucket(
                self, "AccessLogs", removal_policy=self._removal_policy or RemovalPolicy.DESTROY
            ),
            orchestrator=self._config.orchestrator,
            login_group=self._config.has_login_group,
            removal_policy=self._removal_policy,
        )

    def _context_of_groups(self) -> ClusterContext:
        """What the groups' properties contain besides the groups' own settings."""
        return ClusterContext(
            continuous=self._config.node_provisioning_mode == "continuous",
            encrypts_root_volumes=self._config.encrypts_root_volumes,
            volume_key_arn=self.encryption_key.key_arn,
            lifecycle_mode=self.lifecycle_mode,
            scripts_uri=self.lifecycle_scripts.s3_uri,
            scripts_uris=self._uris_of_own_scripts(),
            mounts=self._mounts.specs(),
        )

    def _uris_of_own_scripts(self) -> dict[str, str]:
        """Where the scripts are of groups that have own ones, by the group's name."""
        groups = [group for group in self.instance_groups if has_own_scripts(group)]
        return {group.name: self.lifecycle_scripts.uri_of(group) for group in groups}

    def _add_drain_channel(self, scripts: LifecycleScripts) -> DrainChannel | None:
        """The channel of an agent that the scripts install. It is in this stack, so that its bucket's policy can name this stack's roles."""
        if scripts.drain_config is None:
            return None
        channel = DrainChannel(
            self,
            "Drain",
            cluster_name=self.cluster_name,
            encryption_key=scripts.encryption_key,
            drain=scripts.drain_config,
            access_logs=scripts.access_logs,
            removal_policy=self._removal_policy,
        )
        if any(warning.code == DRAIN_OPERATORS for warning in self._known_warnings):
            warning_id = f"cdk-hyperpod:{DRAIN_OPERATORS}"
            Annotations.of(channel).acknowledge_warning(warning_id, "It is a warning of the file.")
        return channel

    def _add_log(self) -> ClusterLog:
        return ClusterLog(
            self,
            "Log",
            cluster=self.resource,
            cluster_name=self.cluster_name,
            log_group_name=self.log_group_name,
            retention_days=self._config.log_retention_days,
            encryption_key=self.encryption_key,
            removal_policy=self._removal_policy,
        )

    def _add_guard(
        self, scale_down: ScaleDownConfig | None, *, unguarded: bool, log_group: logs.ILogGroup | None
    ) -> ScaleDown | None:
        if unguarded:
            Annotations.of(self.resource).add_warning_v2(UNGUARDED, _UNGUARDED)
            return None
        return ScaleDown(
            self,
            "ScaleDown",
            cluster=self,
            log_group=log_group,
            removal_policy=self._removal_policy,
            **arguments_of(scale_down or ScaleDownConfig()),
        )

    def _wait_for_what_nodes_use(self, openzfs: OpenZfsMount | None) -> None:
        """Create the cluster after these, and delete it before them: a node that starts uses all of them at once.

        What is in another stack needs no dependency, because that stack is deployed first as a whole.
        """
        self._wait_for(self.lifecycle_scripts)
        self._wait_for(self._network)
        if self.drain_channel is not None:
            self._wait_for(self.drain_channel)
        for mount in (self._file_system, openzfs):
            if mount is not None and mount.access is not None:
                self._wait_for(mount.access)
        self._wait_for_given_roles(self._roles.keys())

    def _add_resource(self, config: ClusterConfig) -> sagemaker.CfnCluster:
        return sagemaker.CfnCluster(
            self,
            "Resource",
            cluster_name=config.name,
            orchestrator=orchestrator_property(config, self._eks_cluster_arn),
            node_provisioning_mode="Continuous" if self._cluster_context.continuous else None,
            node_recovery="Automatic" if config.node_recovery == "automatic" else "None",
            vpc_config=sagemaker.CfnCluster.VpcConfigProperty(
                security_group_ids=[self._network.security_group_id], subnets=[self._network.subnets[0].subnet_id]
            ),
            tiered_storage_config=tiered_storage_property(config.tiered_storage),
            instance_groups=self._rendered(),
            auto_scaling=auto_scaling_property(self.autoscaled_groups),
            cluster_role=self._autoscaling_role(),
            tags=[CfnTag(key=key, value=value) for key, value in sorted(self._tags(config).items())],
        )

    def _tags(self, config: ClusterConfig) -> dict[str, str]:
        tags = {**config.tags, STACK_ID_TAG: self._stack.stack_id}
        if self._eks_cluster_arn is not None:
            # AWS's managed policies, such as that of observability, apply to clusters with this tag.
            tags["SageMaker"] = "true"
        return tags

    @classmethod
    def from_cluster_attributes(
        cls,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: ClusterName,
        cluster_arn: ClusterArn,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        roles: Mapping[RoleName, iam.IRole] | None = None,
    ) -> IHyperPodCluster:
        """A cluster of another app, for grants, rules and alarms of this app. It makes no resource.

        Example::

            known = HyperPodCluster.from_cluster_attributes(
                self,
                "Known",
                cluster_name="research",
                cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
                roles={"compute": iam.Role.from_role_name(self, "ResearchNodes", "research-nodes")},
            )
            s3.Bucket(self, "Papers").grant_read(known)

        :param cluster_name: the cluster's name.
        :param cluster_arn: the output `ClusterArn` of a file's cluster stack, or from `aws sagemaker describe-cluster`.
        :param security_groups: the nodes' security groups. Default: - none, and `connections` is an error.
        :param roles: the groups' execution roles by node type. Default: - none, and nothing can be granted.
        :raises ConfigError: for invalid arguments.
        """
        require_arguments(
            HyperPodCluster.from_cluster_attributes,
            construct_id,
            cluster_name=cluster_name,
            cluster_arn=cluster_arn,
            security_groups=security_groups,
            roles=roles,
        )
        return ImportedCluster(scope, construct_id, cluster_name, cluster_arn, security_groups, roles or {})

    @property
    def instance_groups(self) -> tuple[InstanceGroup, ...]:
        """The instance groups, in order."""
        return self._config.instance_groups

    def add_instance_group(self, group: InstanceGroup) -> None:
        """Add an instance group after the existing ones. Call it before synthesis.

        Running nodes: not affected. The deployment adds the group's nodes.

        :param group: the group.
        :raises ConfigError: for a group that HyperPod would refuse.
        """
        require_arguments(HyperPodCluster.add_instance_group, lambda: self.node.path, group=group)
        config = dataclasses.replace(self._config, instance_groups=(*self.instance_groups, group))
        self._validate(config, [])
        self._config = config
        self._cluster_context = self._context_of_groups()
        before = set(self._roles)
        self._add_roles()
        new = self._roles.keys() - before
        self._wait_for_given_roles(new)
        if self._principal is not None:
            for name in sorted(new):
                self._principal.add_role(self.roles[name])
        self.resource.instance_groups = self._rendered()
        if self.scale_down is not None:
            name_patching_off(self.scale_down, self.instance_groups)
        self._acknowledge_schema_gaps()

    def _validate(self, config: ClusterConfig, argument_findings: Sequence[Finding]) -> None:
        """Raise ConfigError with everything that is wrong, and add the warnings. The network has validated itself."""
        findings = [*argument_findings, *check_config(config, "", self._check_with_network)]
        self._warn(raise_errors(findings, lambda: self.node.path))

    def _check_with_network(self, config: ClusterConfig) -> Iterator[Finding]:
        zone = self._file_system.availability_zone if isinstance(self._file_system, LustreMount) else None
        warnings = self._network.warnings if isinstance(self._network, HyperPodNetwork) else ()
        yield from check_with_network(config, self._network_config(), warnings, zone)

    def _network_config(self) -> NetworkConfig:
        return self._network.config if isinstance(self._network, HyperPodNetwork) else UNKNOWN

    def _warn(self, warnings: Iterable[Finding]) -> None:
        """Add the warnings that neither the cluster nor another stack of its file has."""
        new = [warning for warning in dict.fromkeys(warnings) if warning not in self._known_warnings]
        self._known_warnings |= frozenset(new)
        for warning in new:
            Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.code}", warning.text)

    def _wait_for(self, needed: IConstruct) -> None:
        if Stack.of(needed) is self._stack:
            self.resource.node.add_dependency(needed)

    def _wait_for_given_roles(self, names: Iterable[RoleName]) -> None:
        """Wait for the policies of given roles: what their nodes need, and what the app has granted so far."""
        for name in sorted(names):
            role = self._roles[name]
            if not isinstance(role, GivenRole):
                continue
            if role.policy is not None:
                self._wait_for(role.policy)
            self._wait_for_policies_of(role.role)

    def _wait_for_policies_of(self, role: iam.IRole) -> None:
        """Create the cluster after a role's policies, except those that name the cluster."""
        if role in self._awaited or Stack.of(role) is not self._stack:
            return
        self._awaited.append(role)
        if len(self._awaited) == 1:
            self.resource.node.add_dependency(AtSynth(self._policies_before_nodes))

    def _policies_before_nodes(self) -> Sequence[IConstruct]:
        """The parts of the awaited roles that can come before the cluster. The others become warnings if they delay a permission."""
        found = prerequisites(self._awaited, self.resource)
        for late in found.late_policies:
            self._warn_of_late_policy(late)
        return found.before

    def _warn_of_late_policy(self, late: LatePolicy) -> None:
        policy = late.policy.node.path.removesuffix("/Resource")
        cause = "the cluster"
        if late.permission_on is not self.resource:
            cause = f"{late.permission_on.node.path.removesuffix('/Resource')}, which comes after the cluster"
        Annotations.of(self).add_warning_v2(
            "cdk-hyperpod:late-permissions",
            f"nodes start before they have any permission of {policy}, because one of them is on "
            f"{cause}; put that one into an iam.Policy of its own",
        )

    def _security_groups(self) -> list[ec2.ISecurityGroup]:
        return [self._network.security_group]

    def _autoscaling_role(self) -> str | None:
        """The ARN of the role with which Karpenter adds and deletes nodes. None: no group is autoscaled."""
        if not self.autoscaled_groups:
            return None
        role = autoscaling_role(self, cluster_name=self.cluster_name, volume_key_arns=self._volume_keys("node"))
        return role.attr_arn

    def _add_roles(self) -> None:
        """Create missing roles, and extend the policies of existing ones."""
        for name in sorted({node_type_of(group) for group in self.instance_groups}):
            statements = self._access_of(name).statements(self._stack.region)
            if name in self._roles:
                self._roles[name].allow(statements)
            else:
                self._roles[name] = self._new_role(name, statements)
        if self.drain_channel is not None and "controller" in self._roles:
            name_agent(self.drain_channel, self._roles["controller"].role_arn, self._stack)

    def _new_role(self, name: RoleName, statements: list[Statement]) -> InstanceRole | GivenRole:
        if name in self._given_roles:
            return GivenRole(self, name, self._given_roles[name], statements=statements)
        return InstanceRole(self, name, cluster_name=self.cluster_name, statements=statements)

    def _warn_of_shared_roles(self) -> None:
        """Every job can use the role of its node. If that is the controller's, it can write as the drain agent."""
        if self.drain_channel is None or "controller" not in self._given_roles:
            return
        arns = {name: self._stack.resolve(role.role_arn) for name, role in self._given_roles.items()}
        controller = arns.pop("controller")
        shared = [f"roles[{name}]" for name in sorted(arns) if arns[name] == controller]
        if shared:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:shared-role",
                f"{', '.join(shared)}: the role is the controller's too, so jobs there can write the drain "
                "agent's status, and say that nodes are saved; give the controller a role of its own",
            )

    def _access_of(self, name: RoleName) -> NodeAccess:
        access = NodeAccess(
            cluster_name=self.cluster_name,
            scripts_bucket_arn=self.lifecycle_scripts.bucket_arn,
            scripts_folder=self.lifecycle_scripts.folder,
            scripts_key_arn=_arn_of(self.lifecycle_scripts.bucket_key),
            vpc_id=self._network.vpc_id,
            subnet_ids=[subnet.subnet_id for subnet in self._network.subnets],
            security_group_id=self._network.security_group_id,
            volume_key_arns=self._volume_keys(name),
            eks_cluster_arn=self._eks_cluster_arn,
            rollback_alarms=self._rollback_alarms(),
        )
        if name != "controller":
            return access
        return dataclasses.replace(access, secret_arn=self._database_secret(), drain_arns=self._drain_arns())

    def _rollback_alarms(self) -> list[str]:
        """The alarms of all groups, each once. Under EKS, all of them have one role."""
        rollings = [group.rolling for group in self.instance_groups if group.rolling is not None]
        return sorted({alarm for rolling in rollings for alarm in rolling.rollback_alarms})

    def _database_secret(self) -> str | None:
        """The secret with which HyperPod connects the controller's slurmdbd. None: the database is on the controller."""
        slurm = self._config.slurm
        if slurm is None or slurm.accounting_database is None:
            return None
        return slurm.accounting_database.secret_arn

    def _drain_arns(self) -> tuple[str, str] | None:
        channel = self.drain_channel
        return None if channel is None else (channel.bucket_arn, channel.encryption_key.key_arn)

    def _volume_keys(self, node_type: str) -> list[str]:
        return self._cluster_context.volume_keys(
            [each for each in self.instance_groups if node_type_of(each) == node_type]
        )

    def _rendered(self) -> list[Any]:
        """The groups in the form of CDK's class."""
        return [
            in_words_of_cdk(
                render_group(
                    group,
                    self._cluster_context,
                    role_arn=self._roles[node_type_of(group)].role_arn,
                    network=self._network_of(group),
                )
            )
            for group in self.instance_groups
        ]

    def _network_of(self, group: InstanceGroup) -> dict[str, Any] | None:
        own = self._network.subnets[0]
        if group.availability_zone in (None, own.availability_zone):
            return None
        return network_spec(
            subnets=[self._network.subnet_in(group.availability_zone).subnet_id],
            security_groups=[self._network.security_group_id],
        )

    def _acknowledge_schema_gaps(self) -> None:
        groups = self.instance_groups
        types = {name for group in groups for name in group.all_instance_types if is_known(name)}
        ignored = []
        if types & _MISSING_IN_SCHEMA:
            ignored.append("E3644")
            acknowledge(self.resource, reasons.NEW_INSTANCE_TYPES)
        if any(group.image_id == "default" for group in groups):
            ignored.append("E1152")
            acknowledge(self.resource, reasons.LATEST_IMAGE)
        if any(group.image_release_version is not None for group in groups):
            acknowledge(self.resource, reasons.IMAGE_RELEASE)
        if ignored:
            self.resource.add_metadata("cfn-lint", {"config": {"ignore_checks": ignored}})


def _check_mode(mode: object, scripts: object) -> Iterator[Finding]:
    if mode == "bootstrap" and isinstance(scripts, LifecycleScripts) and scripts.own_scripts:
        yield in_bootstrap_mode("lifecycle_scripts")


def _arn_of(key: kms.IKey | None) -> str | None:
    return None if key is None else key.key_arn
