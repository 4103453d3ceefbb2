"""What the alerts' function may do: read one cluster and its training plans, write metrics, and publish to one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards, wildcard
from .._common.pseudo import ACCOUNT_ID, PARTITION, URL_SUFFIX

NAMESPACE = "HyperPod/Clusters"
"""CloudWatch's namespace of the metrics."""
Statement = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsAccess:
    """What the function reaches."""

    cluster_arn: str
    topic_arn: str
    topic_key_arn: str | None
    """The key that encrypts the topic. None: it is not known, or there is none."""
    queue_arn: str
    log_group_arn: str


def allow_alerts(scope: Construct, role: iam.Role, access: AlertsAccess, *, description: str) -> iam.CfnManagedPolicy:
    """The function's policy. It must exist before the function runs."""
    stack = Stack.of(scope)
    plans = f"arn:{PARTITION}:sagemaker:{stack.region}:{ACCOUNT_ID}:training-plan/*"
    keys = f"arn:{PARTITION}:kms:{stack.region}:{ACCOUNT_ID}:key/*"
    own_log: Statement = {"Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": access.log_group_arn}
    statements: list[Statement] = [
        {"Action": ["sagemaker:DescribeCluster", "sagemaker:DescribeClusterEvent"], "Resource": access.cluster_arn},
        {"Action": ["sagemaker:DescribeTrainingPlan"], "Resource": plans},
        {
            "Action": ["cloudwatch:PutMetricData"],
            "Resource": "*",
            "Condition": {"StringEquals": {"cloudwatch:namespace": NAMESPACE}},
        },
        # The first run waits until CloudWatch shows the heartbeat.
        {"Action": ["cloudwatch:GetMetricStatistics"], "Resource": "*"},
        {"Action": ["sns:Publish"], "Resource": access.topic_arn},
        {
            "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
            "Resource": access.topic_key_arn or keys,
            "Condition": {"StringEquals": {"kms:ViaService": f"sns.{stack.region}.{URL_SUFFIX}"}},
        },
        # The first run reports whether alarms can publish, too.
        {"Action": ["sns:GetTopicAttributes"], "Resource": access.topic_arn},
        {"Action": ["kms:DescribeKey", "kms:GetKeyPolicy"], "Resource": access.topic_key_arn or keys},
        {
            "Action": ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage", "sqs:SendMessage"],
            "Resource": access.queue_arn,
        },
        own_log,
    ]
    policy = iam.CfnManagedPolicy(
        scope,
        "Policy",
        description=description,
        roles=[role.role_name],
        policy_document={
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", **statement} for statement in statements],
        },
    )
    acknowledge(
        policy,
        {
            wildcard("Resource", "*"): reasons.METRICS,
            wildcard("Resource", plans): reasons.TRAINING_PLANS,
            wildcard("Action", "kms:GenerateDataKey*"): reasons.TOPIC_KEY,
            wildcard("Resource", keys): reasons.TOPIC_KEY,
            **dict.fromkeys(policy_wildcards([stack.resolve(own_log)]), reasons.FUNCTION_LOGS),
        },
    )
    return policy
