"""The guard's Lambda functions, and CDK's provider framework that calls them."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, wildcards_of_cdk
from .._common.functions import log_group, python_function

_POLL = Duration.seconds(30)
_TIMEOUT = Duration.hours(1)
"""CloudFormation's maximum for a custom resource. The function itself stops earlier, with a reason."""
_FUNCTION_TIMEOUT = Duration.minutes(10)
"""The first look takes 4 minutes, the call of a drainer at most 3, and the last call of each at most one more."""
_FRAMEWORK = ("framework-onEvent", "framework-isComplete", "framework-onTimeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLogs:
    """How the guard's functions log."""

    log_group: logs.ILogGroup | None
    """The log group of all three. None: each gets one of its own."""
    encryption_key: kms.IKey | None
    """The key of these log groups. None: CloudWatch's own key."""
    removal_policy: RemovalPolicy | None
    """RETAIN or DESTROY, for these log groups. None: DESTROY."""

    def group_of(self, scope: Construct, construct_id: str) -> logs.ILogGroup:
        """The log group of one function."""
        if self.log_group is not None:
            return self.log_group
        return log_group(scope, construct_id, encryption_key=self.encryption_key, removal_policy=self.removal_policy)


def guard_function(
    guard: Construct,
    construct_id: str,
    handler: str,
    *,
    prefix: str,
    cluster_name: str,
    role: iam.Role,
    logs: GuardLogs,
) -> lambda_.Function:
    """A function of the guard. `handler`: its name in the module `scale_down.handler`."""
    return python_function(
        guard,
        construct_id,
        function_name=f"{prefix}-{construct_id.lower()}",
        description=f"Scaling down HyperPod cluster {cluster_name}",
        handler=f"hyperpod.scale_down.handler.{handler}",
        role=role,
        log_group=logs.group_of(guard, f"{construct_id}Log"),
        timeout=_FUNCTION_TIMEOUT,
    )


def guard_provider(
    guard: Construct, on_event: lambda_.Function, is_complete: lambda_.Function, *, prefix: str, logs: GuardLogs
) -> custom_resources.Provider:
    """CDK's provider framework for the two functions."""
    provider = custom_resources.Provider(
        guard,
        "Provider",
        on_event_handler=on_event,
        is_complete_handler=is_complete,
        query_interval=_POLL,
        total_timeout=_TIMEOUT,
        log_group=logs.group_of(guard, "FrameworkLog"),
        provider_function_name=f"{prefix}-provider",
    )
    for name in _FRAMEWORK:
        function = typing.cast(lambda_.Function, provider.node.find_child(name))
        # A refusal is shown in CloudFormation's event, which has no room for the framework's stack trace.
        function.add_environment("NODE_OPTIONS", "--stack-trace-limit=0")
    # The framework's roles, runtime and waiter are CDK's own.
    invocations = dict.fromkeys(wildcards_of_cdk(provider), reasons.PROVIDER_INVOKES)
    acknowledge(provider, {**reasons.PROVIDER, **invocations})
    return provider
