"""HyperPod's own log group of a cluster: its retention and its key.

HyperPod names it /aws/sagemaker/Clusters/NAME/ID. Its managed policy AmazonSageMakerClusterInstanceRolePolicy allows nodes to create
it and write to it. The id is known only after the cluster is created, so a template cannot contain the group. A small function
sets it up.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import CfnOutput, CfnResource, CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards
from .._common.functions import log_group, python_function
from .._common.pseudo import ACCOUNT_ID, PARTITION
from ..config.cluster import LogRetentionDays

KIND = "Custom::HyperPodClusterLog"
_TIMEOUT = Duration.minutes(20)
"""The function answers within 5 minutes, and Lambda retries a crashed one twice."""


class ClusterLog(Construct):
    """Encrypts a cluster's log group and sets its retention, once the cluster exists.

    It never fails a deployment and never deletes a log. An output reports what failed. Running nodes: not affected.
    Cost: one small function that runs when the setting or the cluster changes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: sagemaker.CfnCluster,
        cluster_name: str,
        log_group_name: str,
        retention_days: LogRetentionDays,
        encryption_key: kms.IKey,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Set up the log group of a cluster.

        `encryption_key`: its policy must allow CloudWatch Logs to use it, as that of `encryption_key()` does. `removal_policy`: of the
        function's own log.
        """
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self._cluster_name = cluster_name
        description = f"Encrypts the log group of HyperPod cluster {cluster_name}, and sets its retention"
        self._role = role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description
        )
        own_log = log_group(self, "FunctionLog", encryption_key=encryption_key, removal_policy=removal_policy)
        function = python_function(
            self,
            "Function",
            handler="hyperpod.cluster_log.handler.handle",
            description=description,
            role=role,
            log_group=own_log,
            environment={"RETENTION_IN_DAYS": str(retention_days), "KMS_KEY_ID": encryption_key.key_arn},
        )
        # Create before the cluster changes whatever can fail: a later failure would roll the deployment back.
        cluster.node.add_dependency(function)
        # With and without the end for its streams: the service authorization reference has the one, and CloudWatch's own
        # guide tells to write the other.
        arn = f"arn:{PARTITION}:logs:{stack.region}:{ACCOUNT_ID}:log-group:{log_group_name}"
        self.log_group_arns = (arn, f"{arn}:*")
        statements = [
            {
                "Effect": "Allow",
                "Action": ["logs:AssociateKmsKey", "logs:CreateLogGroup", "logs:PutRetentionPolicy"],
                "Resource": [*self.log_group_arns],
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
                "Resource": own_log.log_group_arn,
            },
        ]
        policy = self._add_policy("Policy", description, statements)
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type=KIND,
            service_token=function.function_arn,
            service_timeout=_TIMEOUT,
            # CloudFormation repeats the work if one changes. The function reads the last two from its own environment.
            properties={
                "LogGroupName": log_group_name,
                "RetentionInDays": retention_days,
                "KmsKeyId": encryption_key.key_arn,
            },
        )
        self.resource.node.add_dependency(policy)
        self.outcome = CfnOutput(
            self,
            "Outcome",
            value=self.resource.get_att_string("Outcome"),
            description="HyperPod's log group of the cluster: how long it is kept, and with which key it is encrypted",
        )
        """What was done to the log group, and what could not be."""

    def send_health_records(self, function: lambda_.IFunction) -> None:
        """Send what HyperPod's health monitoring agent logs about faults to a function of this stack, by a subscription filter.

        It never fails a deployment: a log group has two filters at most, and if both are taken, the output says so. Without this
        call, the next deployment removes the filter.
        """
        permission = lambda_.CfnPermission(
            self,
            "HealthRecords",
            action="lambda:InvokeFunction",
            function_name=function.function_arn,
            principal="logs.amazonaws.com",
            source_account=ACCOUNT_ID,
            source_arn=self.log_group_arns[1],
        )
        # A policy of its own: CloudFormation deletes it after it has updated the resource, which removes the filter with it.
        policy = self._add_policy(
            "SubscriptionPolicy",
            f"Sends health records of HyperPod cluster {self._cluster_name} to a function",
            [
                {
                    "Effect": "Allow",
                    "Action": ["logs:DeleteSubscriptionFilter", "logs:PutSubscriptionFilter"],
                    "Resource": [*self.log_group_arns],
                }
            ],
        )
        resource = typing.cast(CfnResource, self.resource.node.default_child)
        resource.add_property_override("SubscriptionDestinationArn", function.function_arn)
        # CloudWatch tries the function before it puts the filter.
        self.resource.node.add_dependency(policy, permission)

    def _add_policy(
        self, construct_id: str, description: str, statements: Sequence[Mapping[str, Any]]
    ) -> iam.CfnManagedPolicy:
        policy = iam.CfnManagedPolicy(
            self,
            construct_id,
            description=description,
            roles=[self._role.role_name],
            policy_document={"Version": "2012-10-17", "Statement": statements},
        )
        wildcards = policy_wildcards(Stack.of(self).resolve(statements))
        acknowledge(policy, dict.fromkeys(wildcards, reasons.CLUSTER_LOG))
        return policy
