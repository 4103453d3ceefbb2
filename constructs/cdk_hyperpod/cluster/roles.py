"""The execution roles of nodes, one for each node type, and the role of the autoscaler.

The policies are customer-managed and are created before their role, and so before the cluster. They are deleted after it, because
HyperPod needs them to delete its network interfaces.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from aws_cdk import Annotations, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards, wildcard
from .._common.pseudo import ACCOUNT_ID, PARTITION
from ..config.cluster import InstanceGroup, NodeType
from ..errors import Finding, raise_errors
from ..interface import RoleName
from ..typed.known import is_known
from .permissions import Statement, volume_key_statements


class InstanceRole:
    """An execution role that is made here for the instance groups of one node type, with a policy of what their nodes need."""

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
        """Replace its permissions."""
        self._policy.policy_document = _document(statements)
        acknowledge(self._policy, _wildcard_reasons(self._policy, statements))

    @cached_property
    def role(self) -> iam.IRole:
        """The role, for grants. CDK puts them into a policy of their own."""
        role = iam.Role.from_role_name(self._scope, self._reference_id, self._role.ref)
        attach = role.add_managed_policy

        def add_managed_policy(policy: iam.IManagedPolicy) -> None:
            """CDK sees an imported role, so it attaches policies of this app only. The others are added to the role's list."""
            arns = self._role.managed_policy_arns or []
            if isinstance(policy, iam.ManagedPolicy):
                attach(policy)
            elif policy.managed_policy_arn not in arns:
                self._role.managed_policy_arns = [*arns, policy.managed_policy_arn]

        role.add_managed_policy = add_managed_policy  # type: ignore[method-assign]
        return role


class GivenRole:
    """An execution role that the caller gives. It must trust sagemaker.amazonaws.com."""

    def __init__(
        self, scope: Construct, node_type: NodeType | Literal["node"], role: iam.IRole, *, statements: list[Statement]
    ) -> None:
        self._scope = scope
        self._node_type = node_type
        self.role_arn = role.role_arn
        if isinstance(role, iam.Role) and Stack.of(role) is not Stack.of(scope):
            # The role's default policy would be in the role's stack, and each of the two stacks would wait for the other.
            role = _reference(scope, node_type, role)
        self.role = role
        self._allowed: list[dict[str, Any]] = []
        # Not the role's default policy, which CDK uses for grants. If one grant names the cluster, that whole policy comes after
        # the cluster, and nodes would start without these permissions.
        policy = iam.Policy(scope, f"{node_type.capitalize()}Needs")
        role.attach_inline_policy(policy)
        # CDK accepts the policy silently for a role that it may not change.
        resource = typing.cast(iam.CfnPolicy, policy.node.default_child)
        self.policy = policy if Stack.of(scope).resolve(resource.roles) else None
        """The policy of what its nodes need. None: CDK may not change the role."""
        if self.policy is not None and Stack.of(role) is not Stack.of(scope):
            finding = Finding(
                code="role-imported-elsewhere",
                path=f"roles[{node_type}]",
                problem="is imported in another stack, so its grants would come after the cluster",
                remedy="import it in the cluster's stack",
            )
            raise_errors([finding], scope.node.path)
        self.allow(statements)

    def allow(self, statements: list[Statement]) -> None:
        """Add permissions. If CDK may not change the role, a warning lists them."""
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
    """A role of another stack, imported into this one.

    Imported by its name, CDK would omit the path from its ARN. Imported by an ARN that is known at deployment only, CDK would take the
    path for the name. So the ARN is built here.
    """
    path = getattr(role.node.default_child, "path", None) or "/"
    if not is_known(path):
        finding = Finding(
            code="role-path-unknown",
            path=f"roles[{node_type}]",
            problem="is made in another stack, and its path is known at deployment only",
            remedy="write its path as text, or make the role in the cluster's stack",
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
    """The ids of cdk-nag's findings for one resource. Only a resource of another construct, such as an app's bucket, has to be
    resolved, which calls Node."""
    finding = wildcard("Resource", resource)
    return [finding] if is_known(finding) else policy_wildcards([{"Resource": Stack.of(scope).resolve(resource)}])


def autoscaling_role(scope: Construct, *, cluster_name: str, volume_key_arns: Sequence[str]) -> iam.CfnRole:
    """The role with which HyperPod's autoscaler adds and deletes nodes (the cluster's ClusterRole)."""
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
            "Statement": [item.to_json() for item in [statement, *volume_key_statements(region, volume_key_arns)]],
        },
    )
    acknowledge(policy, {wildcard("Resource", clusters): statement.wildcard_reason})
    return iam.CfnRole(
        scope,
        "AutoscalingRole",
        description=f"Adds and deletes nodes of HyperPod cluster {cluster_name}",
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


class RolesByNodeType(Mapping[RoleName, iam.IRole]):
    """The roles for other constructs. Each is imported on first use, because most apps grant nothing."""

    def __init__(
        self, made: Mapping[RoleName, InstanceRole | GivenRole], come_after: Callable[[iam.IRole], None]
    ) -> None:
        self._made = made
        self._come_after = come_after

    def __getitem__(self, name: RoleName) -> iam.IRole:
        if name not in self._made:
            raise KeyError(f"no group of node type {name} yet; add it first")
        role = self._made[name].role
        # A node may need a granted permission as soon as it starts.
        self._come_after(role)
        return role

    def __iter__(self) -> Iterator[RoleName]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def node_type_of(group: InstanceGroup) -> RoleName:
    """The group's node type. Under EKS all nodes have the type `node`."""
    return group.node_type or "node"
