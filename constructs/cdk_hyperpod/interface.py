"""What other constructs may rely on of a HyperPod cluster, made by this app or by another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jsii
from aws_cdk import Annotations, Fn, Resource, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct, DependencyGroup

from ._common.acknowledge import without_traces
from .errors import Finding, raise_errors
from .typed.judge import check_value
from .typed.known import is_known

if TYPE_CHECKING:
    from aws_cdk import aws_events as events

    from .guard.drain_channel import DrainChannel, IEksDrainer

RoleName = Literal["controller", "login", "compute", "node"]
"""Whose execution role: of the nodes of one type; under EKS, where all nodes are of one, `node`."""
EventKind = Literal["state_change", "node_health", "event"]

# The developer guide's page "SageMaker HyperPod cluster events reference", "EventBridge integration".
_DETAIL_TYPES: Mapping[EventKind, str] = {
    "state_change": "SageMaker HyperPod Cluster State Change",
    "node_health": "SageMaker HyperPod Cluster Node Health Event",
    "event": "SageMaker HyperPod Cluster Event",
}


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class IHyperPodCluster(Resource):
    """A HyperPod cluster: of this app (`HyperPodCluster`), or of another (`HyperPodCluster.from_cluster_attributes`).

    It is grantable: `bucket.grant_read(cluster)` gives a right to all of its nodes, `bucket.grant_read(cluster.roles["compute"])`
    to those of one type. It is connectable: `database.connections.allow_default_port_from(cluster)` lets its nodes in.
    """

    cluster_name: str
    """The cluster's name (`ClusterName`)."""
    cluster_arn: str
    """The cluster's ARN, which ends in an id that HyperPod chooses."""
    roles: Mapping[RoleName, iam.IRole]
    """The groups' execution roles by node type; under EKS the one of all nodes, `node`."""
    autoscaled_groups: Sequence[str] = ()
    """The groups whose counts an autoscaler owns."""
    encryption_key: kms.IKey | None = None
    """The key of the cluster's volumes, scripts and logs. None: not known."""
    resource: sagemaker.CfnCluster | None = None
    """CloudFormation's resource. None: another app's."""
    drain_channel: DrainChannel | None = None
    """Where the agent on its controller is asked to drain nodes. None: there is no agent, or none that this app knows."""
    drainer: IEksDrainer | None = None
    """The function that drains its nodes under EKS. None: there is none, or none that this app knows."""

    limits_metadata: bool = False
    """Whether jobs of some users cannot take the nodes' roles, as far as this app knows."""

    def __init__(self, scope: Construct, construct_id: str, *, environment_from_arn: str | None = None) -> None:
        """Make the construct, without anything in it.

        :param environment_from_arn: the ARN whose account and region the cluster is in. Default: - those of its stack
        """
        super().__init__(scope, construct_id, environment_from_arn=environment_from_arn)
        without_traces(self)
        self._log_group: logs.ILogGroup | None = None
        self._connections: ec2.Connections | None = None
        self._principal: _AllNodes | None = None

    def _security_groups(self) -> list[ec2.ISecurityGroup]:
        raise NotImplementedError

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        """The nodes' security groups, for other constructs to let nodes in, or to be let in.

        Raises ConfigError where none is known, which CDK passes on as RuntimeError.
        """
        if self._connections is None:
            groups = self._security_groups()
            if not groups:
                finding = Finding(
                    path="security_groups", problem="none is known that could be let in", remedy="give the nodes' ones"
                )
                raise_errors([finding], lambda: self.node.path)
            self._connections = ec2.Connections(security_groups=groups)
        return self._connections

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """All nodes: what is granted to it, every execution role of the cluster gets, that of a later group too.

        A resource's own policy names the roles that are there by then. Raises ConfigError where no role is known,
        which a grant of CDK's passes on as RuntimeError.
        """
        if not self.roles:
            finding = Finding(
                path="roles", problem="none is known that a right could be given to", remedy="name them by node type"
            )
            raise_errors([finding], lambda: self.node.path)
        if self.limits_metadata:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:metadata-users",
                "jobs get what is granted to the cluster only if their users are in metadata_users; other users need credentials "
                "of their own",
            )
        if self._principal is None:
            self._principal = _AllNodes(self)
        return self._principal

    @property
    def cluster_id(self) -> str:
        """The id at the end of the ARN, by which HyperPod names the cluster's log group."""
        return Fn.select(1, Fn.split("/", self.cluster_arn))

    @property
    def log_group_name(self) -> str:
        """`/aws/sagemaker/Clusters/NAME/ID`, which HyperPod's managed policy AmazonSageMakerClusterInstanceRolePolicy names."""
        return f"/aws/sagemaker/Clusters/{self.cluster_name}/{self.cluster_id}"

    @property
    def log_group(self) -> logs.ILogGroup:
        """Where nodes log. HyperPod makes it with the first node, not this app."""
        if self._log_group is None:
            self._log_group = logs.LogGroup.from_log_group_name(self, "LogGroupReference", self.log_group_name)
        return self._log_group

    def on_event(
        self,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        kinds: Sequence[EventKind] = ("state_change", "node_health", "event"),
        detail: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> events.Rule:
        """A rule for what HyperPod tells EventBridge of this cluster. No node is touched.

        Source: the developer guide's page "SageMaker HyperPod cluster events reference".

        :param target: what is told. Default: - nothing; add it to the rule that is returned.
        :param kinds: `state_change` (the cluster's status), `node_health` (what the health monitoring agent finds, with the
            repair that it recommends), `event` (launches, scaling, patching; under continuous provisioning only). Default: - all.
        :param detail: narrows them, as in `{"EventDetails": {"EventLevel": ["Error"]}}`. Default: - all of these kinds.
        :param description: the rule's description. Default: - none.
        :raises ConfigError: for kinds that there are not, a target that is none, and a cluster of another region.
        """
        from aws_cdk import aws_events as events  # only here: most apps have no use for it

        findings = [
            *check_value(target, events.IRuleTarget | None, "target"),
            *check_value(kinds, Sequence[EventKind], "kinds"),
            *check_value(description, str | None, "description"),
        ]
        if not findings and not kinds:
            findings.append(Finding(path="kinds", problem="names no kind of event", remedy="leave it out for all"))
        here, there = Stack.of(self).region, self.env.region
        if is_known((here, there)) and here != there:
            findings.append(
                Finding(
                    path="cluster_arn",
                    problem=f"the cluster is in {there}, and no event of it reaches a rule in {here}",
                    remedy=f"make the rule in a stack of {there}",
                )
            )
        raise_errors(findings, f"{self.node.path}/{construct_id}")
        return events.Rule(
            self,
            construct_id,
            description=description,
            targets=None if target is None else [target],
            event_pattern=events.EventPattern(
                source=["aws.sagemaker"],
                detail_type=[_DETAIL_TYPES[kind] for kind in kinds],
                resources=[self.cluster_arn],
                detail=detail,
            ),
        )


@jsii.implements(iam.IPrincipal)
class _AllNodes:
    """Every execution role of a cluster, as one principal."""

    def __init__(self, cluster: IHyperPodCluster) -> None:
        self._cluster = cluster
        self._given: list[tuple[iam.PolicyStatement, DependencyGroup]] = []

    @property
    def grant_principal(self) -> iam.IPrincipal:
        return self

    @property
    def assume_role_action(self) -> str:
        return "sts:AssumeRole"

    @property
    def principal_account(self) -> str:
        # As CDK writes the account of a resource: another text for the same account has a grant write both policies.
        return self._cluster.env.account

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        """How a resource's own policy names them."""
        arns = [role.role_arn for role in self._cluster.roles.values()]
        return iam.PrincipalPolicyFragment({"AWS": arns})

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        return self.add_to_principal_policy(statement).statement_added

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """Give every role the statement, where CDK may."""
        added = DependencyGroup()
        results = [role.add_to_principal_policy(statement) for role in self._cluster.roles.values()]
        for result in results:
            if result.policy_dependable is not None:
                added.add(result.policy_dependable)
        self._given.append((statement, added))
        return iam.AddToPrincipalPolicyResult(
            statement_added=all(result.statement_added for result in results), policy_dependable=added
        )

    def welcome(self, role: iam.IRole) -> None:
        """Give a role that came later what all have."""
        for statement, added in self._given:
            policy = role.add_to_principal_policy(statement).policy_dependable
            if policy is not None:
                added.add(policy)
