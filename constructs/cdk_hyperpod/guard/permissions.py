"""The permissions of the guard's functions: they read clusters, their stack and the answers to a drain request, and change one cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import IResolvable, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards, wildcard
from .._common.pseudo import ACCOUNT_ID, PARTITION, URL_SUFFIX
from .._lambda.hyperpod.kernel.drain_protocol import request_key, status_key
from .cluster_template import ClusterTemplate
from .drain_channel import DrainChannel, IEksDrainer


def allow_reading(
    scope: Construct,
    role: iam.Role,
    *,
    cluster_name: str,
    region: str,
    functions: Sequence[lambda_.Function],
    channel: DrainChannel | IEksDrainer | None,
) -> iam.CfnManagedPolicy:
    """The permission to read, and to write the functions' logs. It must exist before prepare runs."""
    stack = Stack.of(scope)
    cluster_arns = f"arn:{PARTITION}:sagemaker:{region}:{ACCOUNT_ID}:cluster/*"
    log_groups = list(dict.fromkeys(function.log_group.log_group_arn for function in functions))
    policy = _policy(
        scope,
        role,
        cluster_name,
        "Reading",
        [
            {
                "Effect": "Allow",
                "Action": ["sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:ListTags"],
                "Resource": cluster_arns,
            },
            # Optional: without them the guard does not wait for operations of others.
            _allow(["sagemaker:DescribeClusterOperation", "sagemaker:ListClusterOperations"], cluster_arns),
            {
                "Effect": "Allow",
                "Action": [
                    "cloudformation:DescribeStackEvents",
                    "cloudformation:DescribeStacks",
                    "cloudformation:GetTemplate",
                ],
                "Resource": stack.stack_id,
            },
            {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": log_groups},
            *_draining_statements(channel, region, cluster_arns),
        ],
    )
    acknowledge(
        policy,
        {
            wildcard("Resource", cluster_arns): reasons.ANY_CLUSTER_TO_READ,
            **dict.fromkeys(policy_wildcards([{"Resource": stack.resolve(log_groups)}]), reasons.FUNCTION_LOGS),
        },
    )
    return policy


def _draining_statements(
    channel: DrainChannel | IEksDrainer | None, region: str, cluster_arns: str
) -> list[dict[str, Any]]:
    """The permission to request a drain and to read the answer: one function, or single objects."""
    if channel is None:
        return []
    if isinstance(channel, IEksDrainer):
        return [_allow(["lambda:InvokeFunction"], channel.function_arn)]
    ours = {"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}}
    status, request = status_key(channel.cluster_name), request_key(channel.cluster_name, "deployment")
    by_s3 = {"StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}}
    return [
        # The agent identifies nodes by their addresses.
        _allow(["sagemaker:DescribeClusterNode"], cluster_arns),
        # Without it S3 answers AccessDenied if there is no status yet.
        _allow(["s3:ListBucket"], channel.bucket_arn, ours),
        _allow(["s3:GetObject"], f"{channel.bucket_arn}/{status}", ours),
        _allow(["s3:PutObject"], f"{channel.bucket_arn}/{request}", ours),
        _allow(["kms:Decrypt", "kms:GenerateDataKey"], channel.encryption_key.key_arn, by_s3),
    ]


def allow_writing(
    scope: Construct,
    role: iam.Role,
    cluster: sagemaker.CfnCluster,
    *,
    cluster_name: str,
    region: str,
    template: ClusterTemplate,
) -> iam.CfnManagedPolicy:
    """The permission to change this cluster. It is created after the cluster."""
    capacity = f"arn:{PARTITION}:sagemaker:{region}:{ACCOUNT_ID}:reserved-capacity/*"
    cluster_arn = cluster.attr_cluster_arn
    policy = _policy(
        scope,
        role,
        cluster_name,
        "Writing",
        template.token(lambda snapshot: _writing_statements(snapshot.groups, cluster_arn, capacity)),
    )
    acknowledge(policy, {wildcard("Resource", capacity): reasons.CAPACITY})
    return policy


def _policy(
    scope: Construct,
    role: iam.Role,
    cluster_name: str,
    construct_id: str,
    statements: list[dict[str, Any]] | IResolvable,
) -> iam.CfnManagedPolicy:
    return iam.CfnManagedPolicy(
        scope,
        construct_id,
        description=f"{construct_id}, for scaling down HyperPod cluster {cluster_name}",
        roles=[role.role_name],
        policy_document={"Version": "2012-10-17", "Statement": statements},
    )


def _writing_statements(groups: Sequence[Mapping[str, Any]], cluster_arn: str, capacity: str) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": ["sagemaker:BatchDeleteClusterNodes", "sagemaker:UpdateCluster"],
            "Resource": cluster_arn,
        },
        {
            "Effect": "Allow",
            "Action": ["iam:PassRole"],
            "Resource": _each(groups, "ExecutionRole"),
            "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        },
    ]
    # UpdateCluster authorises the plan of a group that it sends, and the capacity behind it (service authorization
    # reference, SageMaker AI).
    plans = _each(groups, "TrainingPlanArn")
    if plans:
        statements.append({"Effect": "Allow", "Action": ["sagemaker:UpdateCluster"], "Resource": [*plans, capacity]})
    return statements


def _each(groups: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """The groups' values of a key, each once. Groups without it are skipped."""
    return list(dict.fromkeys(str(group[key]) for group in groups if group.get(key)))


def _allow(actions: list[str], resource: str, conditions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resource}
    return statement if conditions is None else {**statement, "Condition": conditions}
