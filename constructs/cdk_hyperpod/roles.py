"""What a node may do: one execution role for each node type, and nothing in it that a node of that type does not use.

Sources: the policy AmazonSageMakerClusterInstanceRolePolicy, and the developer guide's page "IAM for HyperPod", which
adds the permissions for a VPC of one's own. The policies are customer-managed and come before their role, and so
before the cluster; they outlive it too, because HyperPod removes its network interfaces with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from ._acknowledge import acknowledge, wildcard
from ._names import WRITERS, request_key, status_key
from ._pseudo import ACCOUNT_ID, PARTITION, URL_SUFFIX
from .config.cluster import NodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of a policy, and why its resources are no narrower."""

    actions: Sequence[str]
    resources: Sequence[str]
    conditions: Mapping[str, Mapping[str, str | list[str]]] | None = None
    wildcard_reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The statement as IAM reads it."""
        statement = {"Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources)}
        return statement if self.conditions is None else {**statement, "Condition": self.conditions}


def instance_role(
    scope: Construct,
    node_type: NodeType | Literal["node"],
    *,
    cluster_name: str,
    scripts_bucket_arn: str,
    scripts_key_arn: str,
    vpc_id: str,
    subnet_ids: Sequence[str],
    security_group_id: str,
    volume_key_arns: Sequence[str] = (),
    eks_cluster_arn: str | None = None,
    secret_arn: str | None = None,
    drain_bucket_arn: str | None = None,
) -> iam.CfnRole:
    """The execution role of the instance groups of one node type; under EKS all nodes are of one: `node`.

    `volume_key_arns`: the keys of the groups' EBS volumes, for which EC2 needs grants; empty: none is named.
    `eks_cluster_arn`: the EKS cluster that the nodes join; None: they are under Slurm.
    `secret_arn`: the secret of the accounting database, which HyperPod reads with the role; None: there is none.
    `drain_bucket_arn`: the bucket of the agent that drains nodes, which runs on the controller; None: not on these.
    """
    region = Stack.of(scope).region
    title = node_type.capitalize()
    nodes = "nodes" if node_type == "node" else f"{node_type} nodes"
    statements = [
        *_logs(region, cluster_name),
        _metrics(),
        *_scripts(region, scripts_bucket_arn, scripts_key_arn),
        _sessions(),
        *_network_interfaces(region, vpc_id, subnet_ids, security_group_id),
        *_volume_keys(region, volume_key_arns),
        *([] if eks_cluster_arn is None else _kubernetes(region, vpc_id, eks_cluster_arn)),
        *([] if secret_arn is None else [Statement(actions=["secretsmanager:GetSecretValue"], resources=[secret_arn])]),
        *([] if drain_bucket_arn is None else _drains(region, drain_bucket_arn, cluster_name, scripts_key_arn)),
    ]
    policy = iam.CfnManagedPolicy(
        scope,
        f"{title}Policy",
        description=f"What the {nodes} of HyperPod cluster {cluster_name} may do",
        policy_document={"Version": "2012-10-17", "Statement": [statement.to_json() for statement in statements]},
    )
    acknowledge(
        policy,
        {
            wildcard("Resource", resource): statement.wildcard_reason
            for statement in statements
            for resource in statement.resources
            if "*" in resource
        },
    )
    return iam.CfnRole(
        scope,
        f"{title}Role",
        description=f"Execution role of the {nodes} of HyperPod cluster {cluster_name}",
        assume_role_policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
            ],
        },
        managed_policy_arns=[policy.ref],
    )


def _logs(region: str, cluster_name: str) -> list[Statement]:
    group = f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:log-group:/aws/sagemaker/Clusters/{cluster_name}/*"
    reason = "HyperPod names the log group by an id that it gives the cluster, and a stream by group and instance."
    return [
        Statement(actions=["logs:CreateLogGroup"], resources=[group], wildcard_reason=reason),
        Statement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[f"{group}:log-stream:*"],
            wildcard_reason=reason,
        ),
    ]


_UNSCOPED = (
    "IAM has no resource for these actions: metrics (limited to HyperPod's namespace), SSM session channels, and "
    "the descriptions of network parts that HyperPod reads before it plugs a node in."
)


def _metrics() -> Statement:
    return Statement(
        actions=["cloudwatch:PutMetricData"],
        resources=["*"],
        conditions={"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}},
        wildcard_reason=_UNSCOPED,
    )


def _scripts(region: str, bucket_arn: str, key_arn: str) -> list[Statement]:
    ours: dict[str, Mapping[str, str | list[str]]] = {"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}}
    return [
        Statement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=ours),
        Statement(
            actions=["s3:GetObject"],
            resources=[f"{bucket_arn}/lifecycle/*"],
            conditions=ours,
            wildcard_reason="Nodes read every file of the scripts' bucket below one prefix.",
        ),
        Statement(
            actions=["kms:Decrypt"],
            resources=[key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}},
        ),
    ]


def _drains(region: str, bucket_arn: str, cluster_name: str, key_arn: str) -> list[Statement]:
    """What the agent reads and writes, object by object."""
    ours: dict[str, Mapping[str, str | list[str]]] = {"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}}
    requests = [f"{bucket_arn}/{request_key(cluster_name, writer)}" for writer in WRITERS]
    return [
        # Without it S3 says of an object that is not there that access is denied.
        Statement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=ours),
        Statement(actions=["s3:GetObject"], resources=requests, conditions=ours),
        Statement(actions=["s3:PutObject"], resources=[f"{bucket_arn}/{status_key(cluster_name)}"], conditions=ours),
        Statement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=[key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}},
        ),
    ]


def _sessions() -> Statement:
    return Statement(
        actions=[
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        resources=["*"],
        wildcard_reason=_UNSCOPED,
    )


def _network_interfaces(region: str, vpc_id: str, subnet_ids: Sequence[str], security_group_id: str) -> list[Statement]:
    """HyperPod plugs its nodes into our subnets with the node's own role.

    What is limited to the VPC and not to its subnets has to work after a zone has left the file: nodes are still ending.
    Source of the keys: the service authorization reference of EC2, resource network-interface.
    """
    ec2 = f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}"
    interfaces = f"{ec2}:network-interface/*"
    subnets = [f"{ec2}:subnet/{subnet_id}" for subnet_id in subnet_ids]
    reason = "EC2 gives an interface its id when it is made; its VPC, subnets or security group are named."
    return [
        Statement(
            actions=[
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            resources=["*"],
            wildcard_reason=_UNSCOPED,
        ),
        Statement(
            actions=["ec2:CreateNetworkInterface"],
            resources=[interfaces, f"{ec2}:security-group/{security_group_id}", *subnets],
            wildcard_reason=reason,
        ),
        Statement(
            actions=["ec2:CreateNetworkInterfacePermission"],
            resources=[interfaces],
            conditions={"ArnEquals": {"ec2:Subnet": subnets}},
            wildcard_reason=reason,
        ),
        Statement(
            actions=[
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
                "ec2:DetachNetworkInterface",
            ],
            resources=[interfaces],
            conditions={"ArnEquals": _in_vpc(region, vpc_id)},
            wildcard_reason=reason,
        ),
        # An interface that is tagged while it is made is in no VPC yet, as far as anybody has documented.
        Statement(
            actions=["ec2:CreateTags"],
            resources=[interfaces],
            conditions={"ArnEqualsIfExists": _in_vpc(region, vpc_id)},
            wildcard_reason=reason,
        ),
        # An interface is detached from an instance, of which the account of the nodes is AWS's own. It has no key of its VPC.
        Statement(
            actions=["ec2:DetachNetworkInterface"],
            resources=[f"arn:{PARTITION}:ec2:{region}:*:instance/*"],
            wildcard_reason=reason,
        ),
    ]


def _in_vpc(region: str, vpc_id: str) -> dict[str, str | list[str]]:
    return {"ec2:Vpc": f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}:vpc/{vpc_id}"}


def _kubernetes(region: str, vpc_id: str, eks_cluster_arn: str) -> list[Statement]:
    """What the VPC CNI plug-in, the kubelet and the pod identity agent do with the node's own role."""
    ec2 = f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}"
    reason = "EC2 gives an interface and an instance their ids when they are made."
    repositories = f"arn:{PARTITION}:ecr:{region}:*:repository/*"
    return [
        Statement(
            actions=["ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeTags"],
            resources=["*"],
            wildcard_reason=_UNSCOPED,
        ),
        Statement(
            actions=[
                "ec2:AssignPrivateIpAddresses",
                "ec2:AttachNetworkInterface",
                "ec2:ModifyNetworkInterfaceAttribute",
                "ec2:UnassignPrivateIpAddresses",
            ],
            resources=[f"{ec2}:network-interface/*"],
            conditions={"ArnEquals": _in_vpc(region, vpc_id)},
            wildcard_reason=reason,
        ),
        # An instance has no key of its VPC.
        Statement(
            actions=["ec2:AttachNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute"],
            resources=[f"{ec2}:instance/*"],
            wildcard_reason=reason,
        ),
        Statement(actions=["ecr:GetAuthorizationToken"], resources=["*"], wildcard_reason=_UNSCOPED),
        Statement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[repositories],
            wildcard_reason="Add-ons' images are in repositories of AWS's own accounts, jobs' in those that teams choose.",
        ),
        Statement(actions=["eks-auth:AssumeRoleForPodIdentity"], resources=[eks_cluster_arn]),
    ]


def autoscaling_role(scope: Construct, *, cluster_name: str, volume_key_arns: Sequence[str]) -> iam.CfnRole:
    """What HyperPod's autoscaler adds and ends nodes with (the cluster's ClusterRole)."""
    region = Stack.of(scope).region
    clusters = f"arn:{PARTITION}:sagemaker:{region}:{ACCOUNT_ID}:cluster/*"
    statement = Statement(
        actions=["sagemaker:BatchAddClusterNodes", "sagemaker:BatchDeleteClusterNodes"],
        resources=[clusters],
        conditions={"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}},
        wildcard_reason="The cluster names this role, so the role is there before the cluster has an ARN.",
    )
    policy = iam.CfnManagedPolicy(
        scope,
        "AutoscalingPolicy",
        description=f"What the autoscaler of HyperPod cluster {cluster_name} may do",
        policy_document={
            "Version": "2012-10-17",
            "Statement": [item.to_json() for item in [statement, *_volume_keys(region, volume_key_arns)]],
        },
    )
    acknowledge(policy, {wildcard("Resource", clusters): statement.wildcard_reason})
    return iam.CfnRole(
        scope,
        "AutoscalingRole",
        description=f"Adds and ends nodes of HyperPod cluster {cluster_name}",
        assume_role_policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": "sts:AssumeRole",
                    "Principal": {"Service": "hyperpod.sagemaker.amazonaws.com"},
                    "Condition": {"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}},
                }
            ],
        },
        managed_policy_arns=[policy.ref],
    )


def _volume_keys(region: str, key_arns: Sequence[str]) -> list[Statement]:
    """EC2 decrypts a node's volumes by grants on their keys, which are asked for with the node's role."""
    if not key_arns:
        return []
    via: dict[str, str | list[str]] = {
        "kms:ViaService": [f"{service}.{region}.{URL_SUFFIX}" for service in ("ec2", "sagemaker")]
    }
    return [
        Statement(
            actions=["kms:CreateGrant"],
            resources=key_arns,
            conditions={"StringEquals": via, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
        Statement(
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"],
            resources=key_arns,
            conditions={"StringEquals": via},
        ),
    ]
