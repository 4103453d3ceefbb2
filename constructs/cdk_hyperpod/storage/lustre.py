"""FSx for Lustre: the shared file system, new or existing, and the rules for access to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jsii
from aws_cdk import CfnResource, CfnTag, Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from .._common import reasons
from .._common.buckets import private_bucket
from .._common.encryption import allow_data_repositories
from .._common.encryption import encryption_key as make_encryption_key
from .._common.removal import check_removal, policy_of
from ..config.storage import DataRepository, StorageConfig
from ..errors import Finding, raise_errors
from ..loader import LoadedConfig
from ..network.network import HyperPodNetwork
from ..network.security_groups import allow_all, allow_tcp, closed_security_group
from ..rules import check_storage
from ..typed.known import is_known
from ..typed.validation import (
    check_arguments,
    check_call,
    check_config,
    check_value,
    explains_arguments,
    without_refused,
)
from .dns_name import file_system_dns_name

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch

# Lustre's own port, and those of its file servers (FSx for Lustre user guide, "File system access control with VPC").
_LUSTRE_PORTS = ((988, 988), (1018, 1023))


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreMount:
    """How nodes mount a Lustre file system."""

    dns_name: str
    """The file system's DNS name."""
    mount_name: str
    """FSx's mount name (`MountName`)."""
    mount_path: str = "/fsx"
    """The path where nodes mount it."""
    availability_zone: str | None = None
    """The file system's zone. None: unknown."""
    efa: bool = False
    """Whether it is made for EFA. The library's scripts then make the nodes' Lustre clients use it."""
    access: IConstruct | None = None
    """The rules that allow nodes to reach it. A cluster in the same stack is created after them. None: not of this app."""


@jsii.implements(ec2.IConnectable)
class ILustreFileSystem(Construct):
    """An FSx for Lustre file system, of this app (`LustreFileSystem`) or existing (`LustreFileSystem.from_attributes`)."""

    file_system_id: str
    """The file system's id, such as fs-0123456789abcdef0."""
    mount: LustreMount
    """How nodes mount it."""
    capacity_gib: int | None = None
    """Its capacity in GiB. None: it exists already, and its capacity is not known."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        """Make an empty construct."""
        super().__init__(scope, construct_id)
        self._connections: ec2.Connections | None = None

    def _servers(self) -> list[ec2.ISecurityGroup]:
        raise NotImplementedError

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        """The servers' security group, to allow access for others than the cluster's nodes. Lustre's ports are 988 and 1018 to 1023.

        Raises ConfigError if the group is unknown. CDK passes that on as RuntimeError.
        """
        if self._connections is None:
            groups = self._servers()
            if not groups:
                finding = Finding(
                    code="file-system-security-group-unknown",
                    path="security_group",
                    problem="is unknown, so no rule can be added to it",
                    remedy="give the servers' security group",
                )
                raise_errors([finding], lambda: self.node.path)
            self._connections = ec2.Connections(security_groups=groups, default_port=ec2.Port.tcp(988))
        return self._connections

    def metric(
        self,
        metric_name: str,
        *,
        statistic: str | None = None,
        period: Duration | None = None,
        dimensions: Mapping[str, str] | None = None,
    ) -> cloudwatch.Metric:
        """A metric that FSx sends to CloudWatch, in the namespace AWS/FSx.

        Source: the FSx for Lustre user guide's page "Amazon FSx for Lustre metrics and dimensions".

        :param metric_name: such as DataWriteBytes or ClientConnections.
        :param statistic: how the values of a period are combined. Default: - their average.
        :param period: the length of a period. Default: - five minutes.
        :param dimensions: the dimensions that a metric of one server or target needs besides the file system's id, such as
            `{"FileServer": "OSS0000"}`. Default: - none.
        :raises ConfigError: for arguments of a wrong type.
        """
        from aws_cdk import aws_cloudwatch as cloudwatch  # only here: most apps have no use for it

        raise_errors(
            [
                *check_value(metric_name, str, "metric_name"),
                *check_value(statistic, str | None, "statistic"),
                *check_value(dimensions, Mapping[str, str] | None, "dimensions"),
            ],
            self.node.path,
        )
        return cloudwatch.Metric(
            namespace="AWS/FSx",
            metric_name=metric_name,
            dimensions_map={"FileSystemId": self.file_system_id, **(dimensions or {})},
            statistic=statistic,
            period=period,
        ).attach_to(self)

    def metric_free_data_storage_capacity(self, *, period: Duration | None = None) -> cloudwatch.Metric:
        """How many bytes are free on all storage targets together.

        FSx writes a value for each target every minute, so a sum over a longer period counts the same bytes several times.

        Example::

            file_system = LustreFileSystem.from_attributes(
                self,
                "Scratch",
                network=HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"]),
                file_system_id="fs-0123456789abcdef0",
                mount_name="abcdef12",
            )
            file_system.metric_free_data_storage_capacity().create_alarm(
                self,
                "AlmostFull",
                threshold=500 * 2**30,
                comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
                evaluation_periods=3,
            )

        :param period: how long a period is. Default: - one minute.
        """
        return self.metric("FreeDataStorageCapacity", statistic="Sum", period=period or Duration.minutes(1))


class LustreFileSystem(ILustreFileSystem):
    """A PERSISTENT_2 file system in the cluster's own zone, encrypted, compressed, with its own security group.

    Cost: billed for its capacity, used or not.
    Removal: RETAIN keeps it when its stack is deleted, together with the VPC, the subnet and the security group that it uses. Its key
    is retained or deleted by its own policy. DESTROY deletes the file system with its data, also when a change replaces it.
    Running nodes: the capacity grows in place. A change of subnet, key or EFA creates a new, empty file system. Nodes that start
    after that mount the new one.

    Example::

        file_system = LustreFileSystem(
            self,
            "FileSystem",
            network=HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"]),
            storage=StorageConfig(capacity_gib=4800, data_repositories=(DataRepository(file_system_path="/data"),)),
        )
    """

    security_group: ec2.CfnSecurityGroup
    """The file servers' security group."""
    encryption_key: kms.IKey
    """The key of the data."""
    resource: fsx.CfnFileSystem
    """CloudFormation's resource."""

    @explains_arguments()
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        network: HyperPodNetwork,
        storage: StorageConfig,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy | None = None,
        access_logs: s3.IBucket | None = None,
    ) -> None:
        """Make a file system.

        :param network: the file system is in its first subnet, and its nodes may reach it. A change creates a new, empty file
            system.
        :param storage: its settings. `capacity_gib` is required; it grows in place, and FSx refuses to lower it.
        :param encryption_key: encrypts the data. A change creates a new, empty file system. Default: - one is made.
        :param removal_policy: RETAIN or DESTROY, also of a key that is made; see the class. Default: - RemovalPolicy.RETAIN.
        :param access_logs: the bucket for access logs of a new data bucket. Default: - it has none.
        :raises ConfigError: with everything that FSx would refuse.
        """
        super().__init__(scope, construct_id)
        raise_errors(
            [
                *check_call(LustreFileSystem.__init__, locals()),
                *check_removal(removal_policy),
                *_check_new(storage),
            ],
            lambda: self.node.path,
        )
        self.encryption_key = encryption_key or make_encryption_key(self, "Key", removal_policy=removal_policy)
        removal_policy = removal_policy or RemovalPolicy.RETAIN
        self.security_group = closed_security_group(
            self, "Servers", network, "Servers of an FSx for Lustre file system", "lustre"
        )
        self.resource = self._add_file_system(storage, network)
        self.file_system_id = self.resource.ref
        self.capacity_gib = storage.capacity_gib
        rules_of_servers = self._allow_lustre(network, storage.efa)
        # FSx checks the rules when it creates the file system.
        for rule in rules_of_servers:
            self.resource.add_resource_dependency(rule)
        self._apply_removal(removal_policy, network, rules_of_servers)
        self._add_links(storage.data_repositories, removal_policy, access_logs)
        self.mount = LustreMount(
            dns_name=self.resource.attr_dns_name,
            mount_name=self.resource.attr_lustre_mount_name,
            mount_path=storage.mount_path,
            availability_zone=network.subnets[0].availability_zone,
            efa=storage.efa,
            access=self,
        )

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        network: HyperPodNetwork,
        encryption_key: kms.IKey,
        access_logs: s3.IBucket | None = None,
    ) -> ILustreFileSystem:
        """The Lustre file system in `storage` of a cluster file, new or existing.

        :param loaded: the file.
        :param network: the network of the nodes that mount it.
        :param encryption_key: as in the constructor.
        :param access_logs: as in the constructor.
        :raises ConfigError: if the file has no `storage`.
        """
        arguments = {"network": network, "encryption_key": encryption_key, "access_logs": access_logs}
        config = loaded.config.storage if isinstance(loaded, LoadedConfig) else None
        findings = [*check_arguments(LustreFileSystem.from_config, loaded=loaded, **arguments)]
        if not findings and config is None:
            findings.append(
                Finding(
                    code="storage-missing",
                    path="storage",
                    problem="is missing in the file, and this construct needs it",
                    remedy="add `storage:`",
                )
            )
        raise_errors(findings, construct_id)
        assert config is not None
        if config.file_system_id is not None:
            imported = _ImportedLustreFileSystem(scope, construct_id)
            imported.know(config, network)
            return imported
        return cls(
            scope,
            construct_id,
            network=network,
            storage=replace(config, openzfs=None),
            encryption_key=encryption_key,
            removal_policy=policy_of(loaded.config.removal),
            access_logs=access_logs,
        )

    @classmethod
    def from_attributes(
        cls,
        scope: Construct,
        construct_id: str,
        *,
        network: HyperPodNetwork,
        file_system_id: str,
        mount_name: str,
        mount_path: str = "/fsx",
        security_group: ec2.ISecurityGroup | None = None,
        availability_zone: str | None = None,
    ) -> ILustreFileSystem:
        """An existing file system. With a security group it adds rules that allow the nodes to reach it, and no other resource.

        Example::

            network = HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"])
            scratch = LustreFileSystem.from_attributes(
                self,
                "Scratch",
                network=network,
                file_system_id="fs-0123456789abcdef0",
                mount_name="abcdef12",
                security_group=ec2.SecurityGroup.from_security_group_id(self, "Servers", "sg-0123456789abcdef0"),
            )

        :param network: the network of the nodes that mount it.
        :param file_system_id: such as fs-0123456789abcdef0.
        :param mount_name: FSx's mount name (`MountName`).
        :param mount_path: the path where nodes mount it.
        :param security_group: the servers' security group. Rules then allow the nodes of `network` to reach it. Default: - you allow
            that yourself.
        :param availability_zone: its zone. Default: - it is not compared with the nodes' zones.
        :raises ConfigError: for arguments that FSx would refuse.
        """
        imported = _ImportedLustreFileSystem(scope, construct_id)
        raise_errors(
            check_arguments(LustreFileSystem.from_attributes, network=network, security_group=security_group),
            lambda: imported.node.path,
        )
        imported.security_group = security_group
        config = StorageConfig(
            file_system_id=file_system_id,
            mount_name=mount_name,
            mount_path=mount_path,
            security_group_id=None if security_group is None else security_group.security_group_id,
            availability_zone=availability_zone,
        )
        raise_errors(check_config(config, "storage", check_storage), lambda: imported.node.path)
        imported.know(config, network)
        return imported

    def _servers(self) -> list[ec2.ISecurityGroup]:
        group_id = self.security_group.attr_group_id
        return [ec2.SecurityGroup.from_security_group_id(self, "ServersReference", group_id)]

    def _add_file_system(self, config: StorageConfig, network: HyperPodNetwork) -> fsx.CfnFileSystem:
        return fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version="2.15",
            storage_type="SSD",
            storage_capacity=config.capacity_gib,
            subnet_ids=[network.subnets[0].subnet_id],
            security_group_ids=[self.security_group.attr_group_id],
            kms_key_id=self.encryption_key.key_arn,
            lustre_configuration=_lustre_configuration(config),
            tags=[CfnTag(key="Name", value=Stack.of(self).stack_name)],
        )

    def _apply_removal(
        self, removal_policy: RemovalPolicy, network: HyperPodNetwork, rules: Sequence[CfnResource]
    ) -> None:
        if removal_policy == RemovalPolicy.RETAIN:
            network.retain()
            for resource in (self.resource, self.security_group, *rules):
                resource.apply_removal_policy(RemovalPolicy.RETAIN)
        else:
            # On replacement too: a file system that no stack knows would block the deletion of its subnet, and of the stack.
            self.resource.apply_removal_policy(RemovalPolicy.DESTROY)

    def _allow_lustre(self, network: HyperPodNetwork, efa: bool) -> Sequence[CfnResource]:
        """Add rules between the servers, and between servers and nodes. Returns the rules between the servers."""
        own = self.security_group.attr_group_id
        # The same id with and without EFA: AWS would refuse a retained rule that is added again under another id.
        inner = allow_all(self, "Servers", own, own, "Lustre between its servers, EFA included")
        if efa:
            allow_all(self, "NodesToServers", network.security_group_id, own, "Lustre over EFA")
            allow_all(self, "ServersToNodes", own, network.security_group_id, "Lustre over EFA")
        else:
            allow_nodes(self, network, own)
        return inner

    def _add_links(
        self,
        repositories: Sequence[DataRepository],
        removal_policy: RemovalPolicy,
        access_logs: s3.IBucket | None,
    ) -> None:
        """Add a link for each repository. Those that name no bucket share a new one."""
        new_bucket: str | None = None
        for index, repository in enumerate(repositories):
            if repository.bucket_name is not None:
                self._add_link(index, repository, repository.bucket_name)
                continue
            if new_bucket is None:
                new_bucket = self._add_data_bucket(removal_policy, access_logs).bucket_name
            self._add_link(index, repository, new_bucket)

    def _add_data_bucket(self, removal_policy: RemovalPolicy, access_logs: s3.IBucket | None) -> s3.Bucket:
        bucket = private_bucket(
            self,
            "Data",
            encryption_key=self.encryption_key,
            removal_policy=removal_policy,
            access_logs=access_logs,
            reasons=reasons.DATA_BUCKET,
        )
        allow_data_repositories(self, self.encryption_key)
        return bucket

    def _add_link(self, index: int, repository: DataRepository, bucket_name: str) -> None:
        prefix = repository.prefix or repository.file_system_path.strip("/")
        fsx.CfnDataRepositoryAssociation(
            self,
            _link_id(index, repository.file_system_path),
            file_system_id=self.resource.ref,
            file_system_path=repository.file_system_path,
            data_repository_path=f"s3://{bucket_name}/{prefix}".rstrip("/"),
            batch_import_meta_data_on_create=True,
            s3=fsx.CfnDataRepositoryAssociation.S3Property(
                auto_import_policy=_auto_import(repository.auto_import),
                auto_export_policy=_auto_export(repository.auto_export),
            ),
        )


def _check_new(storage: object) -> Iterator[Finding]:
    """The rules of a new file system. The types are validated already."""
    if not isinstance(storage, StorageConfig):
        return
    known = without_refused(storage, [])
    yield from check_storage(known)
    for name, remedy in (("file_system_id", "LustreFileSystem"), ("openzfs", "OpenZfsMount")):
        if getattr(known, name) is not None:
            yield Finding(
                code="file-system-exists",
                path=f"storage.{name}",
                problem="is about an existing file system, and this construct makes a new one",
                remedy=f"remove it, and use {remedy}.from_attributes",
            )


def mount_of(file_system: ILustreFileSystem | LustreMount | None) -> LustreMount | None:
    """How nodes mount a file system. None: there is none."""
    return file_system.mount if isinstance(file_system, ILustreFileSystem) else file_system


def _auto_import(
    events: Sequence[str],
) -> fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty | None:
    if not events:
        return None
    return fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(events=[event.upper() for event in events])


def _auto_export(
    events: Sequence[str],
) -> fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty | None:
    if not events:
        return None
    return fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(events=[event.upper() for event in events])


class _ImportedLustreFileSystem(ILustreFileSystem):
    """An existing file system."""

    security_group: ec2.ISecurityGroup | None = None

    def know(self, config: StorageConfig, network: HyperPodNetwork) -> None:
        """Set its attributes. If its security group is known, allow the nodes to reach it."""
        assert config.file_system_id is not None  # the rules require it
        if self.security_group is None and config.security_group_id is not None:
            self.security_group = ec2.SecurityGroup.from_security_group_id(
                self, "ServersReference", config.security_group_id
            )
        self.file_system_id = config.file_system_id
        self.mount = _existing_mount(self, config, network)

    def _servers(self) -> list[ec2.ISecurityGroup]:
        return [] if self.security_group is None else [self.security_group]


def _existing_mount(child: Construct, config: StorageConfig, network: HyperPodNetwork) -> LustreMount:
    assert config.mount_name is not None  # the rules require it
    if config.security_group_id is not None:
        allow_nodes(child, network, config.security_group_id)
    return LustreMount(
        dns_name=file_system_dns_name(child, config.file_system_id),
        mount_name=config.mount_name,
        mount_path=config.mount_path,
        availability_zone=config.availability_zone,
        access=child,
    )


def _lustre_configuration(config: StorageConfig) -> fsx.CfnFileSystem.LustreConfigurationProperty:
    backups = config.automatic_backup_retention_days
    return fsx.CfnFileSystem.LustreConfigurationProperty(
        deployment_type="PERSISTENT_2",
        per_unit_storage_throughput=config.throughput_mbps_per_tib,
        data_compression_type="LZ4",
        efa_enabled=config.efa or None,
        metadata_configuration=fsx.CfnFileSystem.MetadataConfigurationProperty(
            mode="AUTOMATIC" if config.metadata_iops is None else "USER_PROVISIONED", iops=config.metadata_iops
        ),
        automatic_backup_retention_days=backups,
        copy_tags_to_backups=True if backups else None,
    )


def _link_id(index: int, path: str) -> str:
    """A link's id derives from its folder, so that the order of links can change. Folder names contain no colon."""
    return f"Link{index}" if not is_known(path) else "Link" + path.replace("/", ":")


def allow_nodes(scope: Construct, network: HyperPodNetwork, servers: str) -> None:
    """Allow Lustre between the nodes and the servers of a file system."""
    nodes = network.security_group_id
    for low, high in _LUSTRE_PORTS:
        allow_tcp(scope, f"NodesToServers{low}", nodes, servers, low, high, "Lustre")
        allow_tcp(scope, f"ServersToNodes{low}", servers, nodes, low, high, "Lustre")
