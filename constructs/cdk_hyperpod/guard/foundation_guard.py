"""Refuses a change of an immutable setting before any stack has changed anything (docs/adr/0011).

Immutable for an existing cluster: the first subnet with its zone and range, the VPC, the orchestrator, and EFA of a file system in
use. A template does not know the live cluster, so a custom resource runs first of all and compares.
"""

from __future__ import annotations

from aws_cdk import CustomResource, Duration, Fn, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from .._common import reasons
from .._common.acknowledge import acknowledge, wildcard
from .._common.functions import log_group, python_function
from .._common.pseudo import ACCOUNT_ID, PARTITION
from .._lambda.hyperpod.foundation_guard.settings import KIND, write
from ..config.cluster import ClusterConfig
from .immutable import immutable_settings

_TIMEOUT = Duration.minutes(20)
"""The function answers within 5 minutes, and Lambda retries a crashed one twice."""


class FoundationGuard(Construct):
    """The first resource of a foundation: everything else in its stack depends on it.

    Running nodes: not affected, because it only reads. Cost: one small function that runs when one of these settings changes.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: ClusterConfig, cluster_stack: str) -> None:
        """`cluster_stack`: the name of the cluster's stack. A cluster of another stack is not compared."""
        super().__init__(scope, construct_id)
        wanted = immutable_settings(config, cluster_stack)
        description = f"Refuses changes of immutable settings of HyperPod cluster {config.name}"
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=description,
        )
        # Without the foundation's key, which is created after the guard.
        log = log_group(self, "Log", encryption_key=None)
        acknowledge(log, reasons.FOUNDATION_GUARD_LOG)
        reading = self._allow_reading(role, log.log_group_arn)
        function = python_function(
            self,
            "Function",
            handler="hyperpod.foundation_guard.handler.handle",
            description=description,
            role=role,
            log_group=log,
        )
        properties = write(wanted)
        if wanted.subnet_id is None and wanted.zone is None:
            properties["AvailabilityZone"] = Fn.select(0, Fn.get_azs())
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type=KIND,
            service_token=function.function_arn,
            service_timeout=_TIMEOUT,
            properties=properties,
        )
        self.resource.node.add_dependency(reading)

    def come_before(self, *others: IConstruct) -> None:
        """Create these constructs, and everything in them, after the guard."""
        for other in others:
            other.node.add_dependency(self.resource)

    def _allow_reading(self, role: iam.Role, log_arn: str) -> iam.CfnManagedPolicy:
        stack = Stack.of(self)
        clusters = f"arn:{PARTITION}:sagemaker:{stack.region}:{ACCOUNT_ID}:cluster/*"
        statements = [
            {"Action": ["sagemaker:DescribeCluster", "sagemaker:ListTags"], "Resource": clusters},
            {
                "Action": ["cloudformation:DescribeStacks", "cloudformation:ListStackResources"],
                "Resource": stack.stack_id,
            },
            {"Action": ["ec2:DescribeSubnets", "fsx:DescribeFileSystems"], "Resource": "*"},
            {"Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": log_arn},
        ]
        policy = iam.CfnManagedPolicy(
            self,
            "Reading",
            description="Reading, for the guard of a foundation",
            roles=[role.role_name],
            policy_document={
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", **statement} for statement in statements],
            },
        )
        acknowledge(
            policy,
            {
                wildcard("Resource", clusters): reasons.ANY_CLUSTER_TO_READ,
                wildcard("Resource", "*"): reasons.READ_ONLY,
            },
        )
        return policy
