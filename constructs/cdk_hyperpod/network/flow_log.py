"""The flow log of a new VPC: its log group and the role that writes to it."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge
from .._common.encryption import allow_logs


def add_flow_log(
    scope: Construct, vpc_id: str, key: kms.IKey | None, given: logs.ILogGroup | None, *, removal_policy: RemovalPolicy
) -> None:
    """Log the traffic of a new VPC to the given log group, or to a new one that is encrypted with the key."""
    stack = Stack.of(scope)
    log_group_arn = _log_group(scope, key, removal_policy) if given is None else given.log_group_arn
    policy = iam.CfnManagedPolicy(
        scope,
        "FlowLogPolicy",
        policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                    "Resource": log_group_arn,
                }
            ],
        },
    )
    role = iam.CfnRole(
        scope,
        "FlowLogRole",
        assume_role_policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": "sts:AssumeRole",
                    "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                    "Condition": {"StringEquals": {"aws:SourceAccount": stack.account}},
                }
            ],
        },
        managed_policy_arns=[policy.ref],
    )
    ec2.CfnFlowLog(
        scope,
        "FlowLog",
        resource_id=vpc_id,
        resource_type="VPC",
        traffic_type="ALL",
        log_destination=log_group_arn,
        deliver_logs_permission_arn=role.attr_arn,
    )


def _log_group(scope: Construct, key: kms.IKey | None, removal_policy: RemovalPolicy) -> str:
    """The ARN of a new log group, kept for a year."""
    if key is not None:
        allow_logs(key)
    log_group = logs.CfnLogGroup(
        scope,
        "FlowLogGroup",
        retention_in_days=365,
        kms_key_id=None if key is None else key.key_arn,
    )
    log_group.apply_removal_policy(removal_policy)
    if key is None:
        acknowledge(log_group, reasons.FLOW_LOG_WITHOUT_KEY)
    return log_group.attr_arn
