"""What a node may do: one execution role for each node type, and nothing in it that a node of that type does not use.

Sources: the policy AmazonSageMakerClusterInstanceRolePolicy, and the developer guide's page "IAM for HyperPod", which
adds the permissions for a VPC of one's own. The policies are customer-managed and come before their role, and so
before the cluster; they outlive it too, because HyperPod removes its network interfaces with them.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from aws_cdk import Annotations, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards, wildcard
from .._common.pseudo import ACCOUNT_ID, PARTITION, URL_SUFFIX
from .._lambda.hyperpod.common.drain_protocol import WRITERS, request_key, status_key
from ..config.cluster import NodeType
from ..errors import Finding, raise_errors
from ..typed.known import is_known


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNeeds:
    """What the nodes of one type, and HyperPod in their name, have to reach; under EKS all nodes are of one: `node`."""

    cluster_name: str
    scripts_bucket_arn: str
    scripts_folder: str
    scripts_key_arn: str | None
    """None: no key of KMS encrypts them, or none that is known."""
    vpc_id: str
    subnet_ids: Sequence[str]
    security_group_id: str
    volume_key_arns: Sequence[str] = ()
    """The keys of the groups' EBS volumes, for which EC2 needs grants; empty: none is named."""
    eks_cluster_arn: str | None = None
    """The EKS cluster that the nodes join; None: they are under Slurm."""
    secret_arn: str | None = None
    """The secret of the accounting database, which HyperPod reads with the role; None: there is none."""
    drain_arns: tuple[str, str] | None = None
    """The bucket of the agent that drains nodes, which runs on the controller, and its key; None: not on these."""

    def statements(self, region: str) -> list[Statement]:
        """What the execution role of these nodes must allow."""
        return [
            *_logs(region, self.cluster_name),
            _metrics(),
            *_scripts(region, self.scripts_bucket_arn, self.scripts_folder, self.scripts_key_arn),
            _sessions(),
            *_network_interfaces(region, self.vpc_id, self.subnet_ids, self.security_group_id),
            *_volume_keys(region, self.volume_key_arns),
            *([] if self.eks_cluster_arn is None else _kubernetes(region, self.vpc_id, self.eks_cluster_arn)),
            *(
                []
                if self.secret_arn is None
                else [Statement(actions=["secretsmanager:GetSecretValue"], resources=[self.secret_arn])]
            ),
            *([] if self.drain_arns is None else _drains(region, self.drain_arns, self.cluster_name)),
        ]


class InstanceRole:
    """The execution role of the instance groups of one node type, made here, with a policy of what they need."""

    def __init__(
        self, scope: Construct, node_type: NodeType | Literal["node"], *, cluster_name: str, statements: list[Statement]
    ) -> None:
        title = node_type.capitalize()
        nodes = "nodes" if node_type == "node" else f"{node_type} nodes"
        self._policy = iam.CfnManagedPolicy(
            scope,
            f"{title}Policy",
            description=f"What the {nodes} of HyperPod cluster {cluster_name} may do",
            policy_document=_document(statements),
        )
        acknowledge(self._policy, _wildcard_reasons(self._policy, statements))
        self._role = iam.CfnRole(
            scope,
            f"{title}Role",
            description=f"Execution role of the {nodes} of HyperPod cluster {cluster_name}",
            assume_role_policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
                ],
            },
            managed_policy_arns=[self._policy.ref],
        )
        self._scope = scope
        self._reference_id = f"{title}RoleReference"
        self.role_arn = self._role.attr_arn

    def allow(self, statements: list[Statement]) -> None:
        """Let it do this, and nothing that it could do before besides."""
        self._policy.policy_document = _document(statements)
        acknowledge(self._policy, _wildcard_reasons(self._policy, statements))

    @cached_property
    def role(self) -> iam.IRole:
        """The role, for grants: what is granted is a policy of its own."""
        role = iam.Role.from_role_name(self._scope, self._reference_id, self._role.ref)
        attach = role.add_managed_policy

        def add_managed_policy(policy: iam.IManagedPolicy) -> None:
            """CDK takes the role for one of another app, to which it attaches policies of this app alone."""
            arns = self._role.managed_policy_arns or []
            if isinstance(policy, iam.ManagedPolicy):
                attach(policy)
            elif policy.managed_policy_arn not in arns:
                self._role.managed_policy_arns = [*arns, policy.managed_policy_arn]

        role.add_managed_policy = add_managed_policy  # type: ignore[method-assign]
        return role


class GivenRole:
    """An execution role that somebody else made. It must trust sagemaker.amazonaws.com."""

    def __init__(
        self, scope: Construct, node_type: NodeType | Literal["node"], role: iam.IRole, *, statements: list[Statement]
    ) -> None:
        self._scope = scope
        self._node_type = node_type
        self.role_arn = role.role_arn
        if isinstance(role, iam.Role) and Stack.of(role) is not Stack.of(scope):
            # Its own policy is in its own stack, which would wait for the cluster's, as the cluster's waits for the role.
            role = _reference(scope, node_type, role)
        self.role = role
        self._allowed: list[dict[str, Any]] = []
        # Not the role's own policy, in which CDK puts what an app grants: if one grant names the cluster, all of them come
        # after it, and nodes would start without what they need.
        policy = iam.Policy(scope, f"{node_type.capitalize()}Needs")
        role.attach_inline_policy(policy)
        # A role that CDK must not change says that all is well.
        resource = typing.cast(iam.CfnPolicy, policy.node.default_child)
        self.policy = policy if Stack.of(scope).resolve(resource.roles) else None
        """What allows its nodes what they need; None where CDK may not change the role."""
        if self.policy is not None and Stack.of(role) is not Stack.of(scope):
            finding = Finding(
                path=f"roles[{node_type}]",
                problem="is imported in another stack, where what you grant to it would come after the cluster",
                remedy="import it in the cluster's stack",
            )
            raise_errors([finding], scope.node.path)
        self.allow(statements)

    def allow(self, statements: list[Statement]) -> None:
        """Let it do this too; where CDK may not change the role, say what it needs."""
        new = [statement for statement in statements if statement.to_json() not in self._allowed]
        documents = [statement.to_json() for statement in new]
        self._allowed += documents
        if self.policy is not None:
            self.policy.add_statements(*map(iam.PolicyStatement.from_json, documents))
            acknowledge(self.policy, _wildcard_reasons(self._scope, new))
        elif new:
            Annotations.of(self._scope).add_warning_v2(
                f"cdk-hyperpod:role-needs-{self._node_type}",
                f"CDK may not change the role given for {self._node_type}; make sure that it trusts sagemaker.amazonaws.com and "
                f"allows {_as_sub(Stack.of(self._scope).resolve(documents))}",
            )


def _reference(scope: Construct, node_type: str, role: iam.Role) -> iam.IRole:
    """A role of another stack as one of this. Told its name alone, CDK leaves the path out of its ARN; told an ARN that is
    known at deployment only, it takes the path for the name."""
    path = getattr(role.node.default_child, "path", None) or "/"
    if not is_known(path):
        finding = Finding(
            path=f"roles[{node_type}]",
            problem="is made in another stack, and its path is known at deployment only",
            remedy="write its path out, or make it in the cluster's stack",
        )
        raise_errors([finding], scope.node.path)
    role_arn = Stack.of(scope).format_arn(
        service="iam",
        region="",
        account=role.env.account,
        resource="role",
        resource_name=path.removeprefix("/") + role.role_name,
    )
    return iam.Role.from_role_arn(scope, f"{node_type.capitalize()}RoleReference", role_arn)


def _as_sub(value: object) -> str:
    """A resolved value as JSON, references as Fn::Sub writes them: `${AWS::AccountId}`."""
    return json.dumps(_sub(value), separators=(",", ":"))


def _sub(value: Any) -> Any:
    match value:
        case {"Ref": str(name)}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"${{{name}.{attribute}}}"
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(str, map(_sub, parts)))
        case dict():
            return {key: _sub(item) for key, item in value.items()}
        case list():
            return [_sub(item) for item in value]
        case _:
            return value


def _document(statements: Sequence[Statement]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [statement.to_json() for statement in statements]}


def _wildcard_reasons(scope: Construct, statements: Sequence[Statement]) -> dict[str, str]:
    return {
        finding: statement.wildcard_reason
        for statement in statements
        for resource in statement.resources
        if "*" in resource
        for finding in _wildcard_findings(scope, resource)
    }


def _wildcard_findings(scope: Construct, resource: str) -> list[str]:
    """The ids of cdk-nag's findings for one resource. Only what another construct made, a bucket of an app's own, has to be
    resolved, which is a call to Node."""
    finding = wildcard("Resource", resource)
    return [finding] if is_known(finding) else policy_wildcards([{"Resource": Stack.of(scope).resolve(resource)}])


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
    return [
        Statement(actions=["s3:ListBucket"], resources=[bucket_arn], conditions=ours),
        Statement(
            actions=["s3:GetObject"],
            resources=[f"{bucket_arn}/{folder}/*"],
            conditions=ours,
            wildcard_reason=reasons.SCRIPTS,
        ),
        *(
            []
            if key_arn is None
            else [
                Statement(
                    actions=["kms:Decrypt"],
                    resources=[key_arn],
                    conditions={"StringEquals": {"kms:ViaService": f"s3.{region}.{URL_SUFFIX}"}},
                )
            ]
        ),
    ]


def _drains(region: str, arns: tuple[str, str], cluster_name: str) -> list[Statement]:
    """What the agent reads and writes, object by object."""
    bucket_arn, key_arn = arns
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
        wildcard_reason=reasons.NO_RESOURCE,
    )


def _network_interfaces(region: str, vpc_id: str, subnet_ids: Sequence[str], security_group_id: str) -> list[Statement]:
    """HyperPod plugs its nodes into our subnets with the node's own role.

    What is limited to the VPC and not to its subnets has to work after a zone has left the file: nodes are still ending.
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
        # An instance has no key of its VPC.
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


def autoscaling_role(scope: Construct, *, cluster_name: str, volume_key_arns: Sequence[str]) -> iam.CfnRole:
    """What HyperPod's autoscaler adds and ends nodes with (the cluster's ClusterRole)."""
    region = Stack.of(scope).region
    clusters = f"arn:{PARTITION}:sagemaker:{region}:{ACCOUNT_ID}:cluster/*"
    statement = Statement(
        actions=["sagemaker:BatchAddClusterNodes", "sagemaker:BatchDeleteClusterNodes"],
        resources=[clusters],
        conditions={"StringEquals": {"aws:ResourceAccount": ACCOUNT_ID}},
        wildcard_reason=reasons.AUTOSCALED_CLUSTER,
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
