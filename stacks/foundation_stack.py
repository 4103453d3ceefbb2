"""What outlives a cluster: network, file system, key and the lifecycle scripts' bucket."""

from __future__ import annotations

import hashlib

from aws_cdk import CfnOutput, Environment
from constructs import Construct

from cdk_hyperpod import (
    DrainChannel,
    HyperPodNetwork,
    LifecycleScripts,
    LoadedConfig,
    LustreFileSystem,
    LustreMount,
    OpenZfsMount,
    existing_lustre_mount,
    existing_openzfs_mount,
)
from cdk_hyperpod.buckets import access_logs_bucket
from cdk_hyperpod.config.cluster import StorageConfig
from cdk_hyperpod.encryption import encryption_key
from cdk_hyperpod.foundation_guard import FoundationGuard
from cdk_hyperpod.names import cluster_stack_name, foundation_stack_name
from cdk_hyperpod.zones import control_plane_zone, more_endpoints

from .file_stack import FileStack


class FoundationStack(FileStack):
    """The long-lived half: replacing the cluster touches nothing in here."""

    def __init__(self, scope: Construct, loaded: LoadedConfig, *, env: Environment) -> None:
        config = loaded.config
        super().__init__(
            scope,
            foundation_stack_name(config.name),
            loaded,
            description=f"Network, storage and lifecycle scripts of HyperPod cluster {config.name}",
            env=env,
        )
        mounted = config.storage if config.orchestrator == "slurm" else None
        self.digest = hashlib.sha256(repr((config.network, mounted)).encode()).hexdigest()[:16]
        """Changes with every setting that may give another subnet or file system to the nodes, and with nothing of `eks`: an
        add-on's version must send no counts to the cluster."""
        self.key = encryption_key(self, "Key", removal=config.removal)
        group_zones = [group.availability_zone for group in config.instance_groups if group.availability_zone]
        zones = (
            () if config.network.subnets else tuple(dict.fromkeys([*config.network.availability_zones, *group_zones]))
        )
        self.network = HyperPodNetwork(
            self,
            "Network",
            availability_zones=zones,
            internet_egress=config.network.internet_egress,
            cidr=config.network.cidr,
            interface_endpoints=config.network.interface_endpoints,
            vpc_id=config.network.vpc_id,
            subnets=config.network.subnets,
            endpoint_security_group_id=config.network.endpoint_security_group_id,
            s3_prefix_list_id=config.network.s3_prefix_list_id,
            endpoint_policies=config.network.endpoint_policies,
            trusted_accounts=config.network.trusted_accounts,
            organization_id=config.network.organization_id,
            more_endpoints=more_endpoints(config),
            control_plane_zone=control_plane_zone(config),
            log_encryption_key=self.key,
        )
        if config.removal == "retain":
            # Also while the file names no file system: one of an earlier deployment may be standing in the subnet.
            self.network.retain()
        self._access_logs = access_logs_bucket(self, "AccessLogs", removal=config.removal)
        self.file_system_id = None if config.storage is None else config.storage.file_system_id
        self.mount = None if config.storage is None else self._mount(config.storage, loaded)
        self.openzfs = self._openzfs(config.storage)
        drain = None if config.slurm is None else config.slurm.drain
        channel = (
            None
            if drain is None
            else DrainChannel(
                self,
                "Drain",
                cluster_name=config.name,
                encryption_key=self.key,
                drain=drain,
                access_logs=self._access_logs,
            )
        )
        self.lifecycle_scripts = LifecycleScripts(
            self,
            "LifecycleScripts",
            cluster_name=config.name,
            encryption_key=self.key,
            source=loaded.lifecycle_scripts,
            # Under EKS pods mount the file system, and nodes do not.
            mount_paths=() if self.mount is None or config.orchestrator == "eks" else (self.mount.mount_path,),
            nfs_mount_paths=() if self.openzfs is None else (self.openzfs.mount_path,),
            access_logs=self._access_logs,
            orchestrator=config.orchestrator,
            steps=config.lifecycle_steps,
            groups=config.groups,
            users=config.users,
            accounts=() if config.slurm is None else config.slurm.accounts,
            home_path=config.home_path,
            writers=() if config.lifecycle is None else config.lifecycle.writers,
            drain=channel,
        )
        self._add_outputs()
        everything = [child for child in self.node.children if not isinstance(child, CfnOutput)]
        FoundationGuard(self, "Guard", config=config, cluster_stack=cluster_stack_name(config.name)).come_before(
            *everything
        )

    def _add_outputs(self) -> None:
        """By these names scripts may find what the stack holds (docs/deploying.md)."""
        outputs = {
            "VpcId": self.network.vpc_id,
            "SubnetIds": ",".join(subnet.subnet_id for subnet in self.network.subnets),
            "SecurityGroupId": self.network.security_group_id,
            "ScriptsBucketName": self.lifecycle_scripts.bucket_name,
            "KeyArn": self.key.key_arn,
        }
        if self.mount is not None:
            outputs |= {"FileSystemDnsName": self.mount.dns_name, "FileSystemMountName": self.mount.mount_name}
        if self.file_system_id is not None:
            outputs["FileSystemId"] = self.file_system_id
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _openzfs(self, storage: StorageConfig | None) -> OpenZfsMount | None:
        if storage is None or storage.openzfs is None:
            return None
        return existing_openzfs_mount(
            self,
            "OpenZfs",
            network=self.network,
            file_system_id=storage.openzfs.file_system_id,
            mount_path=storage.openzfs.mount_path,
            security_group_id=storage.openzfs.security_group_id,
        )

    def _mount(self, storage: StorageConfig, loaded: LoadedConfig) -> LustreMount:
        if storage.file_system_id is not None:
            assert storage.mount_name is not None  # the rules made sure
            return existing_lustre_mount(
                self,
                "FileSystem",
                network=self.network,
                file_system_id=storage.file_system_id,
                mount_name=storage.mount_name,
                mount_path=storage.mount_path,
                security_group_id=storage.security_group_id,
                availability_zone=storage.availability_zone,
            )
        assert storage.capacity_gib is not None  # the rules made sure
        file_system = LustreFileSystem(
            self,
            "FileSystem",
            network=self.network,
            encryption_key=self.key,
            capacity_gib=storage.capacity_gib,
            throughput_mbps_per_tib=storage.throughput_mbps_per_tib,
            efa=storage.efa,
            metadata_iops=storage.metadata_iops,
            automatic_backup_retention_days=storage.automatic_backup_retention_days,
            data_repositories=storage.data_repositories,
            mount_path=storage.mount_path,
            removal=loaded.config.removal,
            access_logs=self._access_logs,
        )
        self.file_system_id = file_system.file_system_id
        return file_system.mount
