"""Whom the guard asks for nodes: an agent on a Slurm controller by a channel (docs/adr/0014), a function under EKS (0015)."""

from __future__ import annotations

import dataclasses
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from . import _reasons
from ._pseudo import ACCOUNT_ID, PARTITION
from .buckets import private_bucket
from .config.slurm import DrainConfig
from .errors import ConfigError, Finding, raise_errors
from .loader import LoadedConfig
from .names import check_name_known, drain_bucket_name
from .removal import check_removal, removal_word
from .typed.judge import check_arguments, require_arguments


class IEksDrainer(Construct):
    """What the guard has to know of the function that drains nodes of an EKS cluster: `EksDrainer`."""

    cluster_name: str
    """The HyperPod cluster whose nodes it drains."""
    eks_cluster_arn: str
    """The EKS cluster that they are in."""
    function_arn: str
    """The function's ARN, without a reference to its stack."""
    backup_cron_job: str | None
    """NAMESPACE/NAME of the CronJob whose Job saves a node. None: nothing is saved."""


class DrainChannel(Construct):
    """A bucket of requests to drain nodes, and of the agent's status.

    Nothing in it is older than two days, and it goes with its stack. It is not the scripts' bucket: who may ask for a node
    may not write what runs on it as root, and a status a minute would pile up there. Give it to `LifecycleScripts`, which
    installs the agent on the controller; `HyperPodCluster` then lets the controller's role, and no other, read the requests
    and write the status. Running nodes: none is touched.

    Example::

        key = encryption_key(self, "Key", removal="retain")
        channel = DrainChannel(self, "Drain", cluster_name="train", encryption_key=key)
        scripts = LifecycleScripts(self, "Scripts", cluster_name="train", encryption_key=key, drain=channel)
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        encryption_key: kms.IKey,
        drain: DrainConfig | None = None,
        access_logs: s3.IBucket | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Make the bucket.

        :param cluster_name: whose nodes are drained; the bucket's name derives from it.
        :param encryption_key: encrypts the bucket.
        :param drain: what the agent saves of a node before it drains it. Default: - nothing.
        :param access_logs: where the bucket writes its access logs. Default: - nobody logs who asked.
        :param removal_policy: what becomes of the bucket when it leaves the stack: DESTROY deletes it with all that is in it;
            RETAIN keeps it, and the next cluster of this name cannot have a channel. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for a cluster name that is no name, or not known at synthesis.
        """
        super().__init__(scope, construct_id)
        raise_errors(
            [
                *check_arguments(
                    DrainChannel.__init__,
                    cluster_name=cluster_name,
                    encryption_key=encryption_key,
                    drain=drain,
                    access_logs=access_logs,
                    removal_policy=removal_policy,
                ),
                *check_removal(None, removal_policy),
                *check_name_known(cluster_name),
            ],
            lambda: self.node.path,
        )
        self.encryption_key: kms.IKey = encryption_key
        """What encrypts the bucket."""
        self.cluster_name: str = cluster_name
        """Whose nodes are drained."""
        self.drain: DrainConfig = drain or DrainConfig()
        """What the agent saves of a node before it drains it."""
        # The name is known before the bucket is: the roles of another stack name it without a reference.
        self.bucket_name: str = drain_bucket_name(cluster_name, ACCOUNT_ID, Stack.of(self).region)
        """The bucket's name, without a reference to its stack."""
        self.bucket_arn: str = f"arn:{PARTITION}:s3:::{self.bucket_name}"
        """The bucket's ARN, without a reference to its stack."""
        self.bucket: s3.Bucket = private_bucket(
            self,
            "Bucket",
            bucket_name=self.bucket_name,
            encryption_key=encryption_key,
            removal=removal_word(removal_policy, "destroy"),
            access_logs=access_logs,
            reasons=_reasons.DRAIN_BUCKET,
        )
        """The bucket of requests and of the agent's status."""
        # Also a broken request ends so: whoever wrote it may be gone.
        self.bucket.add_lifecycle_rule(
            id="NothingStays", expiration=Duration.days(1), noncurrent_version_expiration=Duration.days(1)
        )

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        encryption_key: kms.IKey,
        access_logs: s3.IBucket | None = None,
    ) -> DrainChannel:
        """The channel of a cluster file, whose agent saves what its `slurm.drain` says.

        :param loaded: the file.
        :param encryption_key: as the constructor's.
        :param access_logs: as the constructor's. Default: - nobody logs who asked.
        :raises ConfigError: where the file has no `slurm.drain`.
        """
        require_arguments(
            DrainChannel.from_config,
            construct_id,
            loaded=loaded,
            encryption_key=encryption_key,
            access_logs=access_logs,
        )
        drain = None if loaded.config.slurm is None else loaded.config.slurm.drain
        if drain is None:
            missing = Finding(path="slurm.drain", problem="is missing in the file", remedy="add it")
            raise ConfigError([missing], construct_id)
        return cls(
            scope,
            construct_id,
            cluster_name=loaded.config.name,
            encryption_key=encryption_key,
            drain=drain,
            access_logs=access_logs,
        )

    def settings(self) -> dict[str, Any]:
        """What the agent has to know, as `cluster.json` has it."""
        backup = self.drain.backup
        said = {} if backup is None else dataclasses.asdict(backup)
        return {
            "bucket": self.bucket_name,
            "region": Stack.of(self).region,
            # What is absent is left out, and tuples are lists, as they are where the agent reads them.
            "backup": {name: list(value) if name == "paths" else value for name, value in said.items() if value}
            or None,
        }
