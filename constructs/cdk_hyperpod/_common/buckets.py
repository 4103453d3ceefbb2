"""S3 buckets as this library makes them: private, encrypted, TLS only, versioned, with access logs."""

from __future__ import annotations

import typing

from aws_cdk import CustomResourceProviderBase, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from . import reasons
from .acknowledge import acknowledge
from .pseudo import ACCOUNT_ID

# The construct of CDK's function that empties buckets, one for each stack.
_EMPTYING = "Custom::S3AutoDeleteObjectsCustomResourceProvider"


def access_logs_bucket(scope: Construct, construct_id: str, *, removal_policy: RemovalPolicy) -> s3.Bucket:
    """The bucket for other buckets' access logs, kept for a year. S3 delivers such logs to SSE-S3 buckets only."""
    bucket = s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="KeepAYear", expiration=Duration.days(365), noncurrent_version_expiration=Duration.days(1)
            )
        ],
        **_removal(removal_policy),
    )
    bucket.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["s3:PutObject"],
            resources=[bucket.arn_for_objects("*")],
            principals=[iam.ServicePrincipal("logging.s3.amazonaws.com")],
            conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}},
        )
    )
    _keep_policy(bucket, removal_policy)
    acknowledge(bucket, reasons.ACCESS_LOGS)
    return bucket


def private_bucket(
    scope: Construct,
    construct_id: str,
    *,
    encryption_key: kms.IKey,
    removal_policy: RemovalPolicy,
    reasons: reasons.Reasons,
    access_logs: s3.IBucket | None = None,
    bucket_name: str | None = None,
) -> s3.Bucket:
    """A private bucket. DESTROY deletes it with its objects. RETAIN keeps both.

    `reasons`: acknowledgements of the checks' findings, such as missing replication. `access_logs`: a bucket of `access_logs_bucket`.
    Absent: there are no access logs.
    """
    bucket = s3.Bucket(
        scope,
        construct_id,
        bucket_name=bucket_name,
        encryption=s3.BucketEncryption.KMS,
        encryption_key=encryption_key,
        bucket_key_enabled=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[s3.LifecycleRule(id="AbortUploads", abort_incomplete_multipart_upload_after=Duration.days(7))],
        **_removal(removal_policy),
    )
    if access_logs is not None:
        # Not the L2's own argument: with it, the feature flags of the app decide whether the log bucket gets an ACL,
        # which it refuses, or a policy, which it has.
        resource = typing.cast(s3.CfnBucket, bucket.node.default_child)
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=access_logs.bucket_name, log_file_prefix=f"{construct_id.lower()}/"
        )
    _keep_policy(bucket, removal_policy)
    acknowledge(bucket, reasons)
    return bucket


def emptying_roles(scope: Construct) -> list[str]:
    """The role of CDK's function that empties buckets, if one of this stack is emptied."""
    emptying = Stack.of(scope).node.try_find_child(_EMPTYING)
    return [] if emptying is None else [typing.cast(CustomResourceProviderBase, emptying).role_arn]


def deny_other_keys(bucket: s3.IBucket, key: kms.IKey) -> None:
    """Deny uploads that name another key of KMS than the bucket's own."""
    # A negated condition also matches requests without the key. Null excludes them: they use the bucket's default key.
    given = "s3:x-amz-server-side-encryption-aws-kms-key-id"
    bucket.add_to_resource_policy(
        iam.PolicyStatement(
            sid="NoOtherKey",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:PutObject"],
            resources=[bucket.arn_for_objects("*")],
            conditions={"StringNotEquals": {given: key.key_arn}, "Null": {given: "false"}},
        )
    )


def _keep_policy(bucket: s3.Bucket, removal_policy: RemovalPolicy) -> None:
    """A retained bucket still accepts TLS only."""
    if removal_policy == RemovalPolicy.RETAIN and bucket.policy is not None:
        bucket.policy.apply_removal_policy(RemovalPolicy.RETAIN)


class _RemovalArguments(typing.TypedDict):
    removal_policy: RemovalPolicy
    auto_delete_objects: bool


def _removal(removal_policy: RemovalPolicy) -> _RemovalArguments:
    return {"removal_policy": removal_policy, "auto_delete_objects": removal_policy == RemovalPolicy.DESTROY}
