"""What outlives a cluster: network, file system, key and the lifecycle scripts' bucket."""

from __future__ import annotations

import hashlib
import json

from aws_cdk import CfnOutput, Environment
from constructs import Construct

from cdk_hyperpod import (
    HyperPodNetwork,
    LifecycleScripts,
    LoadedConfig,
    LustreFileSystem,
)
from cdk_hyperpod._common.buckets import access_logs_bucket
from cdk_hyperpod._common.encryption import encryption_key
from cdk_hyperpod._common.removal import policy_of
from cdk_hyperpod.config.cluster import ClusterConfig, StorageConfig
from cdk_hyperpod.guard.foundation_guard import FoundationGuard
from cdk_hyperpod.names import cluster_stack_name, foundation_stack_name
from cdk_hyperpod.storage.openzfs import openzfs_mount

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
        self.digest = foundation_digest(config)
        """A tag of the cluster, which is updated when it changes."""
        self.key = encryption_key(self, "Key", removal_policy=policy_of(config.removal))
        self.network = HyperPodNetwork.from_config(self, "Network", loaded, log_encryption_key=self.key)
        if config.removal == "retain":
            # Also while the file names no file system: one of an earlier deployment may be standing in the subnet.
            self.network.retain()
        self._access_logs = access_logs_bucket(self, "AccessLogs", removal=config.removal)
        self.file_system = (
            None
            if config.storage is None
            else LustreFileSystem.from_config(
                self,
                "FileSystem",
                loaded,
                network=self.network,
                encryption_key=self.key,
                access_logs=self._access_logs,
            )
        )
        self.mount = None if self.file_system is None else self.file_system.mount
        homes = None if config.storage is None else config.storage.openzfs
        self.openzfs = None if homes is None else openzfs_mount(Construct(self, "OpenZfs"), homes, self.network)
        # The channel of slurm.drain is the cluster stack's: its policy names the roles of that stack.
        self.lifecycle_scripts = LifecycleScripts.from_config(
            self, "LifecycleScripts", loaded, encryption_key=self.key, access_logs=self._access_logs
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

    They are named one by one: a digest of all settings would change with each field that a release adds, and update every
    cluster that is deployed. An update sends the file's counts, so settings that the nodes do not notice are left out.
    """
    network = config.network
    subnet_ids = [subnet.subnet_id for subnet in network.subnets]
    subnets = [network.availability_zones, network.cidr, network.vpc_id, subnet_ids]
    mounted = config.storage if config.orchestrator == "slurm" else None
    settings = [subnets, None if mounted is None else _file_systems(mounted)]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def _file_systems(storage: StorageConfig) -> list[object]:
    """Of a new file system, `efa` alone: FSx changes its other settings in place."""
    homes = None if storage.openzfs is None else storage.openzfs.file_system_id
    return [storage.efa, storage.file_system_id, storage.mount_name, homes]
