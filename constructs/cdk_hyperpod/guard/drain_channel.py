"""How the guard requests a drain: through a bucket from the agent on a Slurm controller (docs/adr/0014), under EKS from a function (0015)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from .._common import reasons
from .._common.buckets import deny_other_keys, emptying_roles, private_bucket
from .._common.pseudo import ACCOUNT_ID, PARTITION
from .._common.removal import check_removal
from .._lambda.hyperpod.kernel.drain_protocol import WRITERS, request_key, status_key
from ..config.scale_down import ScaleDownDrain
from ..config.slurm import DrainAgentConfig, DrainBackup
from ..errors import ConfigError, Finding, raise_errors
from ..facts.s3_actions import PUTS, WRITES
from ..loader import LoadedConfig
from ..names import check_name_known, drain_bucket_name
from ..rules import check_writers
from ..typed.known import is_known
from ..typed.validation import check_arguments, require_arguments

DRAIN_OPERATORS = "drain-operators-missing"
"""The code of the warning that the drain operators are not named."""
_AGENT = "cdk-hyperpod:drain-agent"


class IEksDrainer(Construct):
    """The function that drains nodes of an EKS cluster, as the guard uses it. `EksDrainer` makes one."""

    cluster_name: str
    """The HyperPod cluster whose nodes it drains."""
    eks_cluster_arn: str
    """The EKS cluster that these nodes join."""
    function_arn: str
    """The function's ARN, without a reference to its stack."""
    backup_cron_job: str | None
    """NAMESPACE/NAME of the CronJob whose Job backs a node up. None: nodes are not backed up."""


class DrainChannel(Construct):
    """A bucket for drain requests and for the status of the drain agent.

    Nothing in it is older than two days, and it is deleted with its stack. It is not the scripts' bucket, because a
    role that may request a drain must not write scripts that run as root, and because a status every minute would pile up there. Give
    the channel to `LifecycleScripts`, which installs the agent on the controller. `HyperPodCluster` then allows the controller's role,
    and no other role, to read the requests and to write the status.

    The bucket's policy denies all others what their own permissions allow. Only the controller's role writes the status, only the
    guard's role writes the deployment's request, and only `DrainAgentConfig.operators` write the operators' request. The policy can
    name roles of its own stack and ARNs that are known at synthesis, so make the channel in the cluster's stack. For scripts in
    another stack, give `LifecycleScripts` the `drain` of `SlurmConfig`; `HyperPodCluster` then makes the channel.
    Running nodes: not affected.

    Example::

        key = encryption_key(self, "Key", removal_policy=RemovalPolicy.RETAIN)
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
        drain: DrainAgentConfig | None = None,
        access_logs: s3.IBucket | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Make the bucket.

        :param cluster_name: the cluster whose nodes are drained. The bucket's name derives from it.
        :param encryption_key: encrypts the bucket.
        :param drain: what the agent backs up before it drains a node. Default: - nothing.
        :param access_logs: the bucket for access logs. Default: - requests are not logged.
        :param removal_policy: of the bucket, when it leaves the stack. DESTROY deletes it with its objects. RETAIN keeps it, and
            the next cluster of this name cannot have a channel. Default: - RemovalPolicy.DESTROY.
        :raises ConfigError: for an invalid cluster name, or one that is not known at synthesis.
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
                *check_removal(removal_policy),
                *check_name_known(cluster_name),
            ],
            lambda: self.node.path,
        )
        self.encryption_key: kms.IKey = encryption_key
        """The bucket's key."""
        self.cluster_name: str = cluster_name
        """The cluster whose nodes are drained."""
        self.drain: DrainAgentConfig = drain or DrainAgentConfig()
        """What the agent backs up before it drains a node."""
        raise_errors(check_writers(self.drain.operators, "drain.operators"), lambda: self.node.path)
        # The name does not depend on the bucket's resource, so roles of another stack can use it without a reference.
        self.bucket_name: str = drain_bucket_name(cluster_name, ACCOUNT_ID, Stack.of(self).region)
        """The bucket's name, without a reference to its stack."""
        self.bucket_arn: str = f"arn:{PARTITION}:s3:::{self.bucket_name}"
        """The bucket's ARN, without a reference to its stack."""
        self.bucket: s3.Bucket = private_bucket(
            self,
            "Bucket",
            bucket_name=self.bucket_name,
            encryption_key=encryption_key,
            removal_policy=removal_policy or RemovalPolicy.DESTROY,
            access_logs=access_logs,
            reasons=reasons.DRAIN_BUCKET,
        )
        """The bucket of the requests and of the agent's status."""
        # An invalid request expires too: its writer may not exist any more.
        self.bucket.add_lifecycle_rule(
            id="NothingStays", expiration=Duration.days(1), noncurrent_version_expiration=Duration.days(1)
        )
        self._emptying = emptying_roles(self)
        self._status_written_by: list[str] = []
        self._requested_by: list[str] = []
        self._status_statement: iam.PolicyStatement | None = None
        self._request_statement = self._deny_writes("DeploymentsRequest", request_key(cluster_name, "deployment"), [])
        if self.drain.operators:
            self._deny_writes("OperatorsRequest", request_key(cluster_name, "operator"), self.drain.operators)
        else:
            Annotations.of(self).add_warning_v2(
                f"cdk-hyperpod:{DRAIN_OPERATORS}",
                "drain.operators is missing, so every principal with s3:PutObject on all buckets can drain nodes; "
                "name the roles of those who run `cdk-hyperpod drain`",
            )
        Annotations.of(self).add_warning_v2(
            _AGENT,
            "the role of the agent that writes the status is unknown, so every principal with s3:PutObject on all buckets can "
            "write one; make the channel in the stack of its HyperPodCluster, or call add_agent_role",
        )
        self._allow_no_other_name()
        deny_other_keys(self.bucket, encryption_key)

    def add_agent_role(self, role: iam.IRole) -> None:
        """Deny all other roles to write the status. `HyperPodCluster` calls this for its controller's role.

        It grants nothing: the role needs a policy of its own. Running nodes: not affected.

        :param role: a role of this stack, or one whose ARN is known at synthesis. Import a role with a path by its ARN. By its name,
            CDK would omit the path, and the policy would deny the agent to write.
        :raises ConfigError: if it is not a role.
        """
        require_arguments(DrainChannel.add_agent_role, lambda: self.node.path, role=role)
        name_agent(self, role.role_arn, Stack.of(role))

    def add_guard_role(self, role: iam.IRole) -> None:
        """Deny all other roles to write the deployment's request. `ScaleDown` calls this for the role of its functions.

        It grants nothing: the role needs a policy of its own. Running nodes: not affected.

        :param role: a role of this stack, or one whose ARN is known at synthesis.
        :raises ConfigError: if it is not a role.
        """
        require_arguments(DrainChannel.add_guard_role, lambda: self.node.path, role=role)
        role_arn = role.role_arn
        if not self._can_name(role_arn, Stack.of(role)):
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:drain-guard",
                "the guard's role is in another stack, so every role of this account with s3:PutObject on all buckets can "
                "write the deployment's request; make the channel in the cluster's stack",
            )
            role_arn = f"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/*"
        self._requested_by.append(role_arn)
        self._exempt(self._request_statement, self._requested_by)

    def _name_agent(self, role_arn: str, stack: Stack) -> None:
        if not self._can_name(role_arn, stack) or role_arn in self._status_written_by:
            return
        self._status_written_by.append(role_arn)
        if self._status_statement is None:
            self._status_statement = self._deny_writes("AgentsStatus", status_key(self.cluster_name), [])
            Annotations.of(self).acknowledge_warning(_AGENT, "The agent's role is known.")
        self._exempt(self._status_statement, self._status_written_by)

    def _can_name(self, role_arn: str, stack: Stack) -> bool:
        """Whether the bucket's policy can name a role. If one of another stack came after the bucket, each stack would wait
        for the other."""
        return stack is Stack.of(self) or is_known(role_arn)

    def _deny_writes(self, sid: str, key: str, roles: Sequence[str]) -> iam.PolicyStatement:
        """Deny every change of an object, except by these roles and by what empties the bucket."""
        statement = iam.PolicyStatement(
            sid=sid,
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=list(WRITES),
            resources=[self.bucket.arn_for_objects(key)],
        )
        self._exempt(statement, roles)
        self.bucket.add_to_resource_policy(statement)
        return statement

    def _exempt(self, statement: iam.PolicyStatement, roles: Sequence[str]) -> None:
        # aws:PrincipalArn of a role's session is the role's ARN, whatever the session's name.
        exempt = [*self._emptying, *roles]
        if exempt:
            statement.add_condition("ArnNotEquals", {"aws:PrincipalArn": exempt})

    def _allow_no_other_name(self) -> None:
        keys = [status_key(self.cluster_name), *(request_key(self.cluster_name, writer) for writer in WRITERS)]
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NoOtherObject",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=list(PUTS),
                not_resources=[self.bucket.arn_for_objects(key) for key in keys],
            )
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
        """The channel of a cluster file, with the settings of its `slurm.drain`.

        :param loaded: the file.
        :param encryption_key: encrypts the bucket.
        :param access_logs: the bucket for access logs. Default: - requests are not logged.
        :raises ConfigError: if the file has no `slurm.drain`.
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
            missing = Finding(
                code="slurm-drain-missing",
                path="slurm.drain",
                problem="is missing in the file, and this construct needs it",
                remedy="add `slurm: {drain: {}}`",
            )
            raise ConfigError([missing], construct_id)
        channel = cls(
            scope,
            construct_id,
            cluster_name=loaded.config.name,
            encryption_key=encryption_key,
            drain=drain,
            access_logs=access_logs,
        )
        Annotations.of(channel).acknowledge_warning(f"cdk-hyperpod:{DRAIN_OPERATORS}", "It is a warning of the file.")
        return channel

    def settings(self) -> dict[str, Any]:
        """The agent's settings in `cluster.json`."""
        return agent_settings(self, self.cluster_name, self.drain)


def name_agent(channel: DrainChannel, role_arn: str, stack: Stack) -> None:
    """As `DrainChannel.add_agent_role`, for an ARN that a stack knows."""
    channel._name_agent(role_arn, stack)


def agent_settings(scope: Construct, cluster_name: str, drain: DrainAgentConfig) -> dict[str, Any]:
    """The settings of a cluster's agent in `cluster.json`. `scope`: in a stack of the cluster's region."""
    region = Stack.of(scope).region
    return {
        "bucket": drain_bucket_name(cluster_name, ACCOUNT_ID, region),
        "region": region,
        "backup": _backup_settings(drain.backup),
    }


def _backup_settings(backup: DrainBackup | None) -> dict[str, Any] | None:
    """What is set of a backup. The agent reads JSON, so a tuple is a list."""
    if backup is None:
        return None
    settings = {name: value for name, value in dataclasses.asdict(backup).items() if value}
    if "paths" in settings:
        settings["paths"] = list(settings["paths"])
    return settings or None


def drain_properties(drain: ScaleDownDrain, channel: DrainChannel | IEksDrainer) -> dict[str, object]:
    """How the guard's functions request a drain (the property `Drain`)."""
    return {
        **_request_target(drain, channel),
        "TimeoutMinutes": drain.timeout_minutes,
        "OnTimeout": drain.on_timeout,
        "OnSilent": drain.on_silent or "fail",
        "MustBeSaved": _must_be_saved(channel),
    }


def _request_target(drain: ScaleDownDrain, channel: DrainChannel | IEksDrainer) -> dict[str, object]:
    if isinstance(channel, IEksDrainer):
        return {"Function": channel.function_arn, "UnmanagedPods": drain.unmanaged_pods}
    return {"Bucket": channel.bucket_name}


def _must_be_saved(channel: DrainChannel | IEksDrainer) -> bool:
    """Whether a node without a backup must not be deleted."""
    if isinstance(channel, IEksDrainer):
        return channel.backup_cron_job is not None
    backup = channel.drain.backup
    return backup is not None and backup.on_failure == "fail"
