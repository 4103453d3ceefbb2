"""The key that encrypts a cluster's data: file system, buckets, volumes and logs."""

from __future__ import annotations

from collections.abc import MutableSet
from weakref import WeakSet

from aws_cdk import RemovalPolicy, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from ..errors import raise_errors
from ..typed.validation import check_arguments
from .pseudo import PARTITION, URL_SUFFIX
from .removal import check_removal
from .tags import KEY_TAG

_LETS_LOGS_IN: MutableSet[kms.IKey] = WeakSet()
"""The keys whose policies have the statement for CloudWatch Logs already."""
_LETS_ALARMS_IN: MutableSet[kms.IKey] = WeakSet()
"""The keys whose policies have the statement for CloudWatch's alarms already."""


def encryption_key(
    scope: Construct,
    construct_id: str,
    *,
    removal_policy: RemovalPolicy | None = None,
) -> kms.Key:
    """A key that rotates every year, and that CloudWatch Logs may use.

    Example::

        key = encryption_key(self, "Key", removal_policy=RemovalPolicy.RETAIN)

    :param removal_policy: of the key, when its stack is deleted. RETAIN keeps it. DESTROY schedules its deletion, after which the
        data is unreadable. Default: - RemovalPolicy.RETAIN.
    """
    raise_errors(
        [
            *check_arguments(encryption_key, removal_policy=removal_policy),
            *check_removal(removal_policy),
        ],
        construct_id,
    )
    stack_name = Stack.of(scope).stack_name
    key = kms.Key(
        scope,
        construct_id,
        description=f"Data of HyperPod stack {stack_name}",
        enable_key_rotation=True,
        removal_policy=removal_policy or RemovalPolicy.RETAIN,
    )
    Tags.of(key).add(KEY_TAG, stack_name)
    allow_logs(key)
    return key


def allow_logs(key: kms.IKey) -> None:
    """Allow CloudWatch Logs to use a key, which it requires before it creates a log group. An imported key keeps its policy."""
    if key in _LETS_LOGS_IN:
        return
    _LETS_LOGS_IN.add(key)
    stack = Stack.of(key)
    region = stack.region
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Logs",
            actions=["kms:Decrypt*", "kms:Describe*", "kms:Encrypt*", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            principals=[iam.ServicePrincipal(f"logs.{region}.{URL_SUFFIX}")],
            resources=["*"],
            conditions={
                "ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:{PARTITION}:logs:{region}:{stack.account}:*"}
            },
        )
    )


def allow_alarms(key: kms.IKey) -> bool:
    """Allow CloudWatch's alarms of the account to publish to topics under a key. False: it is imported, and keeps its policy.

    Source: the SNS developer guide's page "Key management", "Enable compatibility between event sources from AWS services and
    encrypted topics".
    """
    if key in _LETS_ALARMS_IN:
        return True
    added = key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Alarms",
            actions=["kms:Decrypt", "kms:GenerateDataKey*"],
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(key).account}},
        )
    )
    if added.statement_added:
        _LETS_ALARMS_IN.add(key)
    return added.statement_added


def allow_data_repositories(scope: Construct, key: kms.IKey) -> None:
    """Allow FSx to read and write a linked bucket, which it does as a service-linked role of each file system.

    That role does not exist before the file system, and a key policy rejects the name of a role that does not exist, so
    conditions name it. The account as principal would not work: it only delegates the decision to IAM policies, and those of a
    service-linked role cannot be changed. An imported key keeps its policy.
    """
    stack = Stack.of(scope)
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="DataRepositories",
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            principals=[iam.AnyPrincipal()],
            resources=["*"],
            conditions={
                "StringEquals": {
                    "kms:CallerAccount": stack.account,
                    "kms:ViaService": f"s3.{stack.region}.{URL_SUFFIX}",
                },
                "ArnLike": {
                    "aws:PrincipalArn": (
                        f"arn:{PARTITION}:iam::{stack.account}:role/aws-service-role/"
                        "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-*"
                    )
                },
            },
        )
    )
