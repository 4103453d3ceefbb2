"""The lifecycle scripts of the nodes: their bucket, and their upload under a prefix that contains a hash of their content."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Annotations, CustomResource, RemovalPolicy, Stack, Stage
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import without_traces
from .._common.buckets import deny_other_keys, emptying_roles, private_bucket
from .._common.functions import log_group
from .._common.pseudo import ACCOUNT_ID, PARTITION
from .._common.removal import check_removal
from .._lambda.hyperpod.uploader.content import SETTINGS, content_hash
from ..config.cluster import ClusterConfig, InstanceGroup, Orchestrator
from ..config.lifecycle import LifecycleConfig, LifecycleMode, switches
from ..config.slurm import AccountingDatabase, DrainAgentConfig, Group, SlurmAccount, SlurmConfig, User
from ..errors import raise_errors
from ..facts.s3_actions import WRITES
from ..guard.drain_channel import DrainChannel, agent_settings
from ..loader import LoadedConfig
from ..names import bucket_label, check_name_known
from ..rules.files import check_own_script_folders
from ..rules.own_scripts import check_own_scripts
from ..storage.lustre import ILustreFileSystem, LustreMount
from ..storage.openzfs import OpenZfsMount
from ..typed.validation import check_call, explains_arguments, require_arguments
from . import checks
from .own_scripts import OwnScripts, own_scripts
from .script_folder import checksums, find_scripts
from .script_uploads import ScriptUploads
from .slurm_files import SlurmQueues

# on_create.sh, and under EKS node.sh, compares the scripts with this file.
_CHECKSUMS = "scripts.sha256"


class LifecycleScripts(Construct):
    """A bucket that HyperPod can read, with the scripts under `lifecycle/<hash of their content>/`.

    A changed script gets a new prefix, which changes a property of the cluster. Unchanged scripts change nothing. Earlier
    prefixes stay, because a rollback and the replacement of a node read them. Everything in the bucket can be uploaded again,
    and the bucket is deleted with its stack.
    Running nodes: not affected. New and replaced nodes run the new scripts.

    Example::

        key = encryption_key(self, "Key", removal_policy=RemovalPolicy.RETAIN)
        scripts = LifecycleScripts(
            self,
            "Scripts",
            cluster_name="train",
            encryption_key=key,
            file_system=LustreFileSystem(
                self,
                "FileSystem",
                network=HyperPodNetwork(self, "Network", availability_zones=["us-west-2b"]),
                storage=StorageConfig(capacity_gib=4800),
            ),
            home_path="/fsx/home",
            groups=[Group(name="research", gid=5000)],
            users=[User(name="alice", uid=5001, group="research")],
            slurm=SlurmConfig(accounts=(SlurmAccount(name="research", users=("alice",)),)),
            lifecycle=LifecycleConfig(steps=LifecycleSteps(upgrades=False)),
        )
    """

    default_mode: LifecycleMode
    """When the scripts run. The default for a cluster that uses them."""
    prefix: str
    """The prefix of the scripts in the bucket. Changed scripts get a new one."""
    folder: str
    """The prefix of all scripts of this cluster in the bucket, including those of earlier deployments."""
    encryption_key: kms.IKey
    """The key of a new bucket, and of the upload's log."""
    bucket_key: kms.IKey | None
    """The key with which nodes decrypt the scripts. None: they are not encrypted with a KMS key, or the key is unknown."""
    drain: DrainChannel | None
    """The channel of the drain agent on the controller. None: there is no agent, or `HyperPodCluster` makes the channel."""
    drain_config: DrainAgentConfig | None
    """The settings of the drain agent on the controller. None: there is no agent."""
    accounting_database: AccountingDatabase | None
    """Your database for Slurm's accounts, which `HyperPodCluster` uses. None: one on the controller."""
    limits_metadata: bool
    """Whether jobs of some users cannot use the nodes' roles (`slurm.metadata_users`)."""
    admits_users: bool
    """Whether the `users` may log in to the controller by SSH, because the scripts know no login group."""
    access_logs: s3.IBucket | None
    """The bucket for access logs of a new bucket."""
    bucket_name: str
    """The bucket's name. That of a new bucket contains no reference to its stack."""
    bucket_arn: str
    """The bucket's ARN. That of a new bucket contains no reference to its stack."""
    bucket: s3.IBucket
    """The scripts' bucket."""
    deployment: CustomResource
    """The upload of the scripts of groups without scripts of their own."""
    own_scripts: OwnScripts
    """Your scripts that every node runs besides the library's."""

    @explains_arguments(
        source="lifecycle=LifecycleConfig(scripts=…)",
        mount_paths="file_system=…",
        nfs_mount_paths="openzfs=OpenZfsMount(…)",
    )
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        encryption_key: kms.IKey,
        file_system: ILustreFileSystem | LustreMount | None = None,
        openzfs: OpenZfsMount | None = None,
        orchestrator: Orchestrator = "slurm",
        lifecycle: LifecycleConfig | None = None,
        slurm: SlurmConfig | None = None,
        groups: Sequence[Group] = (),
        users: Sequence[User] = (),
        home_path: str = "/home",
        login_group: bool = False,
        drain: DrainChannel | None = None,
        bucket: s3.IBucket | None = None,
        access_logs: s3.IBucket | None = None,
        removal_policy: RemovalPolicy | None = None,
        _loaded: LoadedConfig | None = None,
    ) -> None:
        """Upload the library's scripts with your settings, or a folder of yours. Under Slurm a folder `eks` in it is not uploaded.

        Paths in `lifecycle` and `slurm` are relative to the working directory.

        :param cluster_name: the cluster of the nodes. The bucket's name derives from it.
        :param encryption_key: encrypts a new bucket, and the upload's log.
        :param file_system: must be mounted before a node runs jobs, as in `HyperPodCluster`. Default: - none.
        :param openzfs: the same for homes. Default: - none.
        :param orchestrator: Slurm or EKS.
        :param lifecycle: which scripts run, and when. Default: - the library's scripts, all steps.
        :param slurm: what Slurm does besides running jobs. Default: - what Slurm does by itself.
        :param groups: Linux groups on every node. Default: - those of the image.
        :param users: Linux users on every node. Default: - those of the image.
        :param home_path: the folder for the homes of users without `home`.
        :param login_group: whether the cluster has a login group. sshd of the controller then refuses the `users`.
        :param drain: your channel of the controller's drain agent. Default: - `HyperPodCluster` makes one for `slurm.drain`.
        :param bucket: your bucket, in this account and region. Its name must begin with `sagemaker-`, because HyperPod's managed
            policy reads no other. The scripts are then under `CLUSTER_NAME/lifecycle/`. You set its encryption, logs and TLS.
            Import a bucket with its own key by its attributes, including `encryption_key`. If CDK may change its policy, a
            statement denies others to write scripts; otherwise a warning says so. A change affects new and replaced nodes.
            Default: - one is made, whose name derives from the cluster's.
        :param access_logs: the bucket for access logs. Default: - there are none.
        :param removal_policy: of a new bucket and of the upload's log, when they leave the stack. DESTROY deletes both with their
            content. RETAIN keeps them, and the next cluster of this name needs another bucket. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: if a folder does not exist or lacks a script, and for arguments that the scripts would refuse.
        """
        super().__init__(scope, construct_id)
        checks.check_no_agent_settings(drain)
        base = Path() if _loaded is None else _loaded.folder
        mounts = checks.Mounts.of(file_system, openzfs) if _loaded is None else checks.Mounts.of_file(_loaded.config)
        config = checks.as_config(orchestrator, groups, users, lifecycle, slurm, drain)
        raise_errors(
            [
                *check_call(LifecycleScripts.__init__, locals()),
                *check_removal(removal_policy),
                *check_name_known(cluster_name),
                *checks.check_settings(config, mounts, base),
                *checks.check_channel(drain, orchestrator),
                *checks.check_bucket(bucket, access_logs),
            ],
            lambda: self.node.path,
        )
        without_traces(self)
        self._config = config
        self._lifecycle, slurm = config.lifecycle or LifecycleConfig(), config.slurm or SlurmConfig()
        self.encryption_key = encryption_key
        self.access_logs = access_logs
        self.drain, self.drain_config = drain, slurm.drain
        self.accounting_database = slurm.accounting_database
        self.limits_metadata = slurm.metadata_users is not None
        self.admits_users = bool(users) and not login_group
        self.default_mode = config.lifecycle_mode
        self._removal_policy = removal_policy
        self._has_given_bucket = bucket is not None
        self._queues = SlurmQueues(config=slurm, base=base)
        self._base = base
        folder = config.scripts_folder
        self._scripts = find_scripts(None if folder is None else base / folder, orchestrator, self._asset_folder())
        self.own_scripts = own_scripts(self._lifecycle.scripts_before, self._lifecycle.scripts_after, base)
        self._settings = _settings(
            config,
            slurm,
            cluster_name=cluster_name,
            checksums=self._scripts.is_of_library,
            mounts=mounts.of_nodes(orchestrator),
            efa=mounts.efa,
            home_path=home_path,
            login_group=login_group,
            drain=self._agent_settings(cluster_name),
            queues=self._queues,
        )
        if (
            slurm.keep_state
            and orchestrator == "slurm"
            and self._scripts.is_of_library
            and not self._settings["mounts"]
        ):
            self._warn_of_lost_state()
        # A given bucket may hold the scripts of several clusters.
        self.folder = f"{cluster_name}/lifecycle" if self._has_given_bucket else "lifecycle"
        self._set_bucket(bucket, cluster_name)
        self._log = log_group(
            self, "UploadLog", encryption_key=self.encryption_key, removal_policy=self._removal_policy
        )
        self._uploader = ScriptUploads(
            self,
            "Uploads",
            cluster_name=cluster_name,
            bucket=self.bucket,
            bucket_key=self.bucket_key,
            folder=self.folder,
            log_group=self._log,
        )
        self._uploads: dict[str, CustomResource] = {}
        self.prefix = self._upload("Upload", self.own_scripts)
        self.deployment = self._uploads[self.prefix]
        self._deny_other_writers(self._lifecycle.writers)
        if not self._has_given_bucket:
            deny_other_keys(self.bucket, encryption_key)
        if self.bucket.policy is not None:
            # It names the role that may write scripts. That of an earlier version names another one.
            self._uploader.come_after(self.bucket.policy)

    @classmethod
    def from_config(
        cls,
        scope: Construct,
        construct_id: str,
        loaded: LoadedConfig,
        *,
        encryption_key: kms.IKey,
        access_logs: s3.IBucket | None = None,
        drain: DrainChannel | None = None,
    ) -> LifecycleScripts:
        """The scripts of a cluster file: the library's with the file's settings, or those of the file's own folder.

        :param loaded: the file.
        :param encryption_key: as in the constructor.
        :param access_logs: as in the constructor.
        :param drain: your channel. Default: - `HyperPodCluster` makes one for the file's `slurm.drain`.
        :raises HyperPodError: if the folder does not exist or lacks a script.
        """
        require_arguments(
            LifecycleScripts.from_config, lambda: f"{scope.node.path}/{construct_id}", loaded=loaded, drain=drain
        )
        config = loaded.config
        return cls(
            scope,
            construct_id,
            cluster_name=config.name,
            encryption_key=encryption_key,
            orchestrator=config.orchestrator,
            lifecycle=config.lifecycle,
            slurm=config.slurm,
            groups=config.groups,
            users=config.users,
            home_path=config.home_path,
            login_group=config.has_login_group,
            drain=drain,
            access_logs=access_logs,
            _loaded=loaded,
        )

    def uri_of(self, group: InstanceGroup) -> str:
        """The S3 URI of the scripts of a group's nodes: `s3_uri`, or that of a second upload if the group has own scripts.

        So a change of a group's scripts changes no other group.

        :param group: the group. Its folders are relative to the cluster file, or to the working directory.
        :raises ConfigError: if nodes could not run what is in its folders.
        """
        of_group = own_scripts(group.scripts_before, group.scripts_after, self._base)
        if not of_group:
            return self.s3_uri
        config = dataclasses.replace(self._config, instance_groups=(group,))
        raise_errors(
            [*check_own_scripts(config), *check_own_script_folders(config, self._base)], lambda: self.node.path
        )
        return f"s3://{self.bucket_name}/{self._upload(f'Upload-{group.name}', self.own_scripts.and_then(of_group))}"

    def _upload(self, construct_id: str, own: OwnScripts) -> str:
        """Upload the scripts together with own ones, unless that is done. Returns the prefix."""
        settings = self._settings
        if own:
            settings = {**settings, "own_scripts": {"scripts": own.settings(), **self._own_settings()}}
        files = self._files(own)
        if self._scripts.is_of_library:
            files[_CHECKSUMS] = checksums(sorted(files.items())).encode()
        files[SETTINGS] = self._uploader.mark_values(json.dumps(settings)).encode()
        raise_errors(checks.check_size(files), lambda: self.node.path)
        digest = content_hash(sorted(files.items()))
        prefix = f"{self.folder}/{digest}"
        if prefix not in self._uploads:
            staging = Path(self._asset_folder(), "cdk-hyperpod-scripts")
            self._uploads[prefix] = self._uploader.add(construct_id, files, digest, staging)
        return prefix

    def _files(self, own: OwnScripts) -> dict[str, bytes]:
        """The scripts and the user's files beside them, by name."""
        return dict([*self._scripts.files(), *own.files(), *self._queues.files()])

    def _asset_folder(self) -> str:
        """The folder of this synthesis."""
        return typing.cast(Stage, Stage.of(self)).asset_outdir

    def _set_bucket(self, bucket: s3.IBucket | None, cluster_name: str) -> None:
        if bucket is not None:
            self.bucket, self.bucket_key = bucket, bucket.encryption_key
            self.bucket_name, self.bucket_arn = bucket.bucket_name, bucket.bucket_arn
            return
        # The name does not depend on the bucket's resource, so other stacks can use it without a reference.
        self.bucket_name = _bucket_name(self, cluster_name)
        self.bucket_arn = f"arn:{PARTITION}:s3:::{self.bucket_name}"
        self.bucket_key = self.encryption_key
        self.bucket = private_bucket(
            self,
            "Bucket",
            bucket_name=self.bucket_name,
            encryption_key=self.encryption_key,
            removal_policy=self._removal_policy or RemovalPolicy.DESTROY,
            access_logs=self.access_logs,
            reasons=reasons.SCRIPTS_BUCKET,
        )

    def _warn_of_lost_state(self) -> None:
        """Without a file system of all nodes, nothing outlives the controller."""
        Annotations.of(self).add_warning_v2(
            "cdk-hyperpod:keep-state-without-storage",
            "slurm.keep_state needs a shared file system, and there is none: when HyperPod replaces the controller, running and waiting "
            "jobs, reservations, reasons of drained nodes and the accounting history on it are lost, and job ids begin at 1 again. Add "
            "storage, or set slurm.keep_state to false to accept that",
        )

    def _agent_settings(self, cluster_name: str) -> Mapping[str, object] | None:
        if self.drain is not None:
            return self.drain.settings()
        return None if self.drain_config is None else agent_settings(self, cluster_name, self.drain_config)

    def _own_settings(self) -> dict[str, object]:
        lifecycle = self._lifecycle
        region = Stack.of(self).region
        return {"minutes": lifecycle.script_minutes, "on_failure": lifecycle.on_script_failure, "region": region}

    def _deny_other_writers(self, writers: Sequence[str]) -> None:
        """Deny everybody else to write scripts, because whoever writes one is root on every new node.

        Whoever may change the bucket's policy can undo this: it limits writers, not administrators.
        """
        if not self._add_writers_statement(writers):
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:scripts-writers",
                f"whoever may write {self.folder}/ of the bucket is root on every new node, and CDK may not add the statement "
                f"that keeps others out; let the bucket's policy deny s3:PutObject there to all but the upload's role",
            )

    def _add_writers_statement(self, writers: Sequence[str]) -> bool:
        """Whether CDK could add the statement to the bucket's policy."""
        if Stack.of(self.bucket) is not Stack.of(self):
            # The policy would name this stack's role, and each of the two stacks would wait for the other.
            return False
        exempt = [self._uploader.role.role_arn, *emptying_roles(self), *writers]
        statement = iam.PolicyStatement(
            # The statements of a policy must have different names, and a given bucket may have several clusters.
            sid=None if self._has_given_bucket else "ScriptsAreWrittenByTheirDeployment",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=list(WRITES),
            resources=[self.bucket.arn_for_objects(f"{self.folder}/*")],
            conditions={"ArnNotEquals": {"aws:PrincipalArn": exempt}},
        )
        return self.bucket.add_to_resource_policy(statement).statement_added

    @property
    def s3_uri(self) -> str:
        """The S3 URI of the scripts: `LifeCycleConfig.SourceS3Uri`."""
        return f"s3://{self.bucket_name}/{self.prefix}"


def _settings(
    config: ClusterConfig,
    slurm: SlurmConfig,
    *,
    cluster_name: str,
    checksums: bool,
    mounts: list[dict[str, str]],
    efa: bool,
    home_path: str,
    login_group: bool,
    drain: Mapping[str, object] | None,
    queues: SlurmQueues,
) -> dict[str, object]:
    """The content of cluster.json. Instance groups are not in it, because a new group must not change the existing ones."""
    users = config.users
    settings: dict[str, object] = {
        "cluster_name": cluster_name,
        # on_create.sh and node.sh require the file of checksums if this is set. Its absence alone would mean nothing.
        "checksums": checksums or None,
        "lustre_efa": efa or None,
        "mounts": mounts,
        "keep_state": bool(slurm.keep_state and mounts) or None,
        "steps": switches(config.lifecycle_steps),
        "groups": [_set_fields(group) for group in config.groups],
        "users": [{**_set_fields(user), "home": user.home or f"{home_path}/{user.name}"} for user in users],
        "accounts": [_set_fields(account) for account in slurm.accounts],
        "metadata_users": None if slurm.metadata_users is None else list(slurm.metadata_users),
        "login_group": bool(users and login_group) or None,
        "drain": drain,
        "slurm": queues.settings() or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _set_fields(value: Group | User | SlurmAccount) -> dict[str, object]:
    """The fields that are set."""
    return {name: item for name, item in dataclasses.asdict(value).items() if item not in (None, ())}


def _bucket_name(scope: Construct, cluster_name: str) -> str:
    """`sagemaker-…`, because HyperPod's managed policy reads such buckets only. With account and region, because names are global.

    At most 63 characters: 10 + label + 1 + 12 + 1 + 14 for the longest region leave 25 for the label.
    """
    return f"sagemaker-{bucket_label(cluster_name, 25)}-{ACCOUNT_ID}-{Stack.of(scope).region}"
