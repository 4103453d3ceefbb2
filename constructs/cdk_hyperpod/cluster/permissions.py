"""The permissions of nodes: the statements of their execution roles' policies. Each node type gets only what its nodes use.

Sources: the policy AmazonSageMakerClusterInstanceRolePolicy, and the developer guide's page "IAM for HyperPod", which
adds the permissions for your own VPC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._common import reasons
from .._common.pseudo import ACCOUNT_ID, PARTITION, URL_SUFFIX
from .._lambda.hyperpod.kernel.drain_protocol import WRITERS, request_key, status_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of a policy, and why its resources are not narrower."""

    actions: Sequence[str]
    resources: Sequence[str]
    conditions: Mapping[str, Mapping[str, str | list[str]]] | None = None
    wildcard_reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The statement in IAM's form."""
        statement = {"Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources)}
        return statement if self.conditions is None else {**statement, "Condition": self.conditions}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """The resources that the nodes of one type use, or HyperPod on their behalf. Under EKS all nodes have the type `node`."""

    cluster_name: str
    scripts_bucket_arn: str
    scripts_folder: str
    scripts_key_arn: str | None
    """None: the scripts are not encrypted with a KMS key, or the key is unknown."""
    vpc_id: str
    subnet_ids: Sequence[str]
    security_group_id: str
    volume_key_arns: Sequence[str] = ()
    """The keys of the groups' EBS volumes, for which EC2 needs grants. Empty: no volume names a key."""
    eks_cluster_arn: str | None = None
    """The EKS cluster that the nodes join. None: they are under Slurm."""
    secret_arn: str | None = None
    """The secret of the accounting database, which HyperPod reads with the role. None: there is no such database."""
    rollback_alarms: Sequence[str] = ()
    """The alarms on which HyperPod rolls a patch back, which it looks at with the role. Empty: none."""
    drain_arns: tuple[str, str] | None = None
    """The bucket and the key of the drain agent, which runs on the controller. None: other nodes."""

    def statements(self, region: str) -> list[Statement]:
        """The statements of these nodes' execution role."""
        statements = [
            *_logs(region, self.cluster_name),
            _metrics(),
            *_scripts(region, self.scripts_bucket_arn, self.scripts_folder, self.scripts_key_arn),
            _sessions(),
            *_network_interfaces(region, self.vpc_id, self.subnet_ids, self.security_group_id),
            *volume_key_statements(region, self.volume_key_arns),
        ]
        if self.eks_cluster_arn is not None:
            statements += _kubernetes(region, self.vpc_id, self.eks_cluster_arn)
        if self.rollback_alarms:
            statements.append(_alarms(region, self.rollback_alarms))
        if self.secret_arn is not None:
            statements.append(Statement(actions=["secretsmanager:GetSecretValue"], resources=[self.secret_arn]))
        if self.drain_arns is not None:
            statements += _drains(region, self.drain_arns, self.cluster_name)
        return statements


def _logs(region: str, cluster_name: str) -> list[Statement]:
    group = f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:log-group:/aws/sagemaker/Clusters/{cluster_name}/*"
    reason = reasons.NODE_LOGS
    return [
        Statement(actions=["logs:CreateLogGroup"], resources=[group], wildcard_reason=reason),
        Statement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[f"{group}:log-stream:*"],
            wildcard_reason=reason,
        ),
    ]


def _metrics() -> Statement:
    return Statement(
        actions=["cloudwatch:PutMetricData"],
        resources=["*"],
        conditions={"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}},
        wildcard_reason=reasons.NO_RESOURCE,
    )


def _scripts(region: str, bucket_arn: str, folder: str, key_arn: str | None) -> list[Statement]:
    ours: dict[str, Mapping[str, str | list[str]]] = {"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}}
    statements = [
        Statement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=ours),
        Statement(
            actions=["s3:GetObject"],
            resources=[f"{bucket_arn}/{folder}/*"],
            conditions=ours,
            wildcard_reason=reasons.SCRIPTS,
        ),
    ]
    if key_arn is not None:
        by_s3: dict[str, Mapping[str, str | list[str]]] = {
            "StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}
        }
        statements.append(Statement(actions=["kms:Decrypt"], resources=[key_arn], conditions=by_s3))
    return statements


def _drains(region: str, arns: tuple[str, str], cluster_name: str) -> list[Statement]:
    """The objects that the drain agent reads and writes."""
    bucket_arn, key_arn = arns
    ours: dict[str, Mapping[str, str | list[str]]] = {"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}}
    requests = [f"{bucket_arn}/{request_key(cluster_name, writer)}" for writer in WRITERS]
    return [
        # Without it S3 answers AccessDenied if an object does not exist.
        Statement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=ours),
        Statement(actions=["s3:GetObject"], resources=requests, conditions=ours),
        Statement(actions=["s3:PutObject"], resources=[f"{bucket_arn}/{status_key(cluster_name)}"], conditions=ours),
        Statement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=[key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}},
        ),
    ]


def _alarms(region: str, names: Sequence[str]) -> Statement:
    """The developer guide's page "Update your AMI version in your SageMaker HyperPod cluster" names the permission."""
    alarms = f"arn:{PARTITION}:cloudwatch:{region}:{ACCOUNT_ID}:alarm"
    return Statement(actions=["cloudwatch:DescribeAlarms"], resources=[f"{alarms}:{name}" for name in names])


def _sessions() -> Statement:
    return Statement(
        actions=[
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        resources=["*"],
        wildcard_reason=reasons.NO_RESOURCE,
    )


def _network_interfaces(region: str, vpc_id: str, subnet_ids: Sequence[str], security_group_id: str) -> list[Statement]:
    """HyperPod connects its nodes to our subnets with the node's own role.

    Statements that are limited to the VPC, and not to its subnets, must work after a zone has left the file, while its nodes terminate.
    Source of the keys: the service authorization reference of EC2, resource network-interface.
    """
    ec2 = f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}"
    interfaces = f"{ec2}:network-interface/*"
    subnets = [f"{ec2}:subnet/{subnet_id}" for subnet_id in subnet_ids]
    reason = reasons.INTERFACES
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
            wildcard_reason=reasons.NO_RESOURCE,
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
        # An interface that is tagged at creation may not be in a VPC yet. This is not documented.
        Statement(
            actions=["ec2:CreateTags"],
            resources=[interfaces],
            conditions={"ArnEqualsIfExists": _in_vpc(region, vpc_id)},
            wildcard_reason=reason,
        ),
        # Detaching needs the instance too. The nodes' instances are in an account of AWS, and have no key for their VPC.
        Statement(
            actions=["ec2:DetachNetworkInterface"],
            resources=[f"arn:{PARTITION}:ec2:{region}:*:instance/*"],
            wildcard_reason=reason,
        ),
    ]


def _in_vpc(region: str, vpc_id: str) -> dict[str, str | list[str]]:
    return {"ec2:Vpc": f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}:vpc/{vpc_id}"}


def _kubernetes(region: str, vpc_id: str, eks_cluster_arn: str) -> list[Statement]:
    """The permissions that the VPC CNI plug-in, the kubelet and the pod identity agent use."""
    ec2 = f"arn:{PARTITION}:ec2:{region}:{ACCOUNT_ID}"
    reason = reasons.INSTANCES
    repositories = f"arn:{PARTITION}:ecr:{region}:*:repository/*"
    return [
        Statement(
            actions=["ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeTags"],
            resources=["*"],
            wildcard_reason=reasons.NO_RESOURCE,
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
        # An instance has no key for its VPC.
        Statement(
            actions=["ec2:AttachNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute"],
            resources=[f"{ec2}:instance/*"],
            wildcard_reason=reason,
        ),
        Statement(actions=["ecr:GetAuthorizationToken"], resources=["*"], wildcard_reason=reasons.NO_RESOURCE),
        Statement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[repositories],
            wildcard_reason=reasons.IMAGES,
        ),
        Statement(actions=["eks-auth:AssumeRoleForPodIdentity"], resources=[eks_cluster_arn]),
    ]


def volume_key_statements(region: str, key_arns: Sequence[str]) -> list[Statement]:
    """EC2 decrypts a node's volumes through grants on their keys, which are created with the node's role."""
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
