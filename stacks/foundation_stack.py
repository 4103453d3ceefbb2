"""The stack that outlives a cluster: network, file system, key and the bucket of lifecycle scripts."""

from __future__ import annotations

import hashlib
import json

from aws_cdk import CfnOutput, Environment
from constructs import Construct

from cdk_hyperpod import (
    HyperPodNetwork,
    ILustreFileSystem,
    LifecycleScripts,
    LoadedConfig,
    LustreFileSystem,
    OpenZfsMount,
)
from cdk_hyperpod._common.buckets import access_logs_bucket
from cdk_hyperpod._common.encryption import encryption_key
from cdk_hyperpod._common.removal import policy_of
from cdk_hyperpod.config.cluster import ClusterConfig
from cdk_hyperpod.config.storage import StorageConfig
from cdk_hyperpod.guard.foundation_guard import FoundationGuard
from cdk_hyperpod.names import cluster_stack_name, foundation_stack_name
from cdk_hyperpod.storage.openzfs import openzfs_mount

from .file_stack import FileStack


class FoundationStack(FileStack):
    """The long-lived stack. Replacing the cluster changes nothing in it."""

    def __init__(self, scope: Construct, loaded: LoadedConfig, *, env: Environment) -> None:
        config = loaded.config
        super().__init__(
            scope,
            foundation_stack_name(config.name),
            loaded,
            description=f"Network, storage and lifecycle scripts of HyperPod cluster {config.name}",
            env=env,
        )
        self.digest = foundation_digest(config)
        """A tag of the cluster. A change of it updates the cluster."""
        removal_policy = policy_of(config.removal)
        self.key = encryption_key(self, "Key", removal_policy=removal_policy)
        self.network = HyperPodNetwork.from_config(self, "Network", loaded, log_encryption_key=self.key)
        if config.removal == "retain":
            # Also without storage in the file: a retained file system of an earlier deployment may use the subnet.
            self.network.retain()
        self._access_logs = access_logs_bucket(self, "AccessLogs", removal_policy=removal_policy)
        self.file_system = self._add_file_system(loaded)
        self.openzfs = self._add_openzfs(config)
        # The channel of slurm.drain is in the cluster's stack, because its policy names the roles of that stack.
        self.lifecycle_scripts = LifecycleScripts.from_config(
            self, "LifecycleScripts", loaded, encryption_key=self.key, access_logs=self._access_logs
        )
        self._add_outputs()
        guard = FoundationGuard(self, "Guard", config=config, cluster_stack=cluster_stack_name(config.name))
        guard.come_before(
            *[child for child in self.node.children if child is not guard and not isinstance(child, CfnOutput)]
        )

    def _add_file_system(self, loaded: LoadedConfig) -> ILustreFileSystem | None:
        if loaded.config.storage is None:
            return None
        return LustreFileSystem.from_config(
            self,
            "FileSystem",
            loaded,
            network=self.network,
            encryption_key=self.key,
            access_logs=self._access_logs,
        )

    def _add_openzfs(self, config: ClusterConfig) -> OpenZfsMount | None:
        if config.storage is None or config.storage.openzfs is None:
            return None
        return openzfs_mount(Construct(self, "OpenZfs"), config.storage.openzfs, self.network)

    def _add_outputs(self) -> None:
        """Add outputs, for users' scripts (docs/stacks.md)."""
        outputs = {
            "VpcId": self.network.vpc_id,
            "SubnetIds": ",".join(subnet.subnet_id for subnet in self.network.subnets),
            "SecurityGroupId": self.network.security_group_id,
            "ScriptsBucketName": self.lifecycle_scripts.bucket_name,
            "KeyArn": self.key.key_arn,
        }
        if self.file_system is not None:
            outputs |= {
                "FileSystemDnsName": self.file_system.mount.dns_name,
                "FileSystemMountName": self.file_system.mount.mount_name,
                "FileSystemId": self.file_system.file_system_id,
            }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def foundation_digest(config: ClusterConfig) -> str:
    """A digest of the settings that give the nodes another subnet or another file system.

    They are listed here: a digest of all settings would change with each field that a release adds, and update every deployed
    cluster. An update sends the file's counts, so settings that do not affect the nodes are left out.
    """
    network = config.network
    subnet_ids = [subnet.subnet_id for subnet in network.subnets]
    subnets = [network.availability_zones, network.cidr, network.vpc_id, subnet_ids]
    mounted = config.storage if config.orchestrator == "slurm" else None
    settings = [subnets, None if mounted is None else _file_systems(mounted)]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def _file_systems(storage: StorageConfig) -> list[object]:
    """The settings that decide which file systems nodes mount. FSx changes the others in place."""
    homes = None if storage.openzfs is None else storage.openzfs.file_system_id
    return [storage.efa, storage.file_system_id, storage.mount_name, homes]
