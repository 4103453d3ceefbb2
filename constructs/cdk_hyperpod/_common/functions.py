"""The library's Lambda functions and their log groups."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from aws_cdk import Duration, IgnoreMode, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from . import reasons
from .acknowledge import acknowledge
from .assets import lambda_dir

# Each look-up is a call to Node.
_RUNTIME = lambda_.Runtime.PYTHON_3_14
_ARCHITECTURE = lambda_.Architecture.ARM_64
_TIMEOUT = Duration.minutes(5)


def python_function(
    scope: Construct,
    construct_id: str,
    *,
    handler: str,
    description: str,
    role: iam.Role,
    log_group: logs.ILogGroup,
    function_name: str | None = None,
    timeout: Duration = _TIMEOUT,
    memory_mb: int = 512,
    environment: Mapping[str, str] | None = None,
    network: lambda_.CfnFunction.VpcConfigProperty | None = None,
    reasons: reasons.Reasons = reasons.FUNCTION,
) -> lambda_.Function:
    """A function of `_lambda`.

    `handler`: hyperpod.FOLDER.MODULE.FUNCTION. `function_name`: absent, CloudFormation generates one. `network`: absent, the function is
    in no VPC. `reasons`: acknowledgements of the checks' findings.
    """
    function = lambda_.Function(
        scope,
        construct_id,
        function_name=function_name,
        description=description,
        runtime=_RUNTIME,
        architecture=_ARCHITECTURE,
        handler=handler,
        code=_code(handler.split(".")[1]),
        role=role,
        timeout=timeout,
        memory_size=memory_mb,
        environment=None if environment is None else dict(environment),
        log_group=log_group,
    )
    if network is not None:
        # CDK's own argument needs the VPC as a construct, and gives the role more permissions than Lambda needs.
        typing.cast(lambda_.CfnFunction, function.node.default_child).vpc_config = network
    acknowledge(function, reasons)
    return function


def _code(folder: str) -> lambda_.AssetCode:
    """The function's own folder, `common` and `kernel`, so that a change of one function does not update the others."""
    exclude = [
        "/hyperpod/*",
        "!/hyperpod/__init__.py",
        "!/hyperpod/common",
        "!/hyperpod/kernel",
        f"!/hyperpod/{folder}",
        "__pycache__",
        "*.pyc",
    ]
    return lambda_.Code.from_asset(str(lambda_dir()), exclude=exclude, ignore_mode=IgnoreMode.GIT)


def log_group(
    scope: Construct, construct_id: str, *, encryption_key: kms.IKey | None, removal_policy: RemovalPolicy | None = None
) -> logs.LogGroup:
    """A log group that keeps events for a year. `encryption_key`: absent, CloudWatch's own key. `removal_policy`: absent, DESTROY."""
    return logs.LogGroup(
        scope,
        construct_id,
        retention=logs.RetentionDays.ONE_YEAR,
        removal_policy=removal_policy or RemovalPolicy.DESTROY,
        encryption_key=encryption_key,
    )
