"""The interface of a HyperPod cluster, which this app or another one creates."""

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
from .typed.known import is_known
from .typed.validation import check_value

if TYPE_CHECKING:
    from aws_cdk import aws_events as events

    from .cluster.cluster_log import ClusterLog
    from .config.cluster import InstanceGroup, Orchestrator
    from .guard.drain_channel import DrainChannel, IEksDrainer

RoleName = Literal["controller", "login", "compute", "node"]
"""The node type of an execution role. Under EKS, all nodes have the type `node`."""
EventKind = Literal["state_change", "node_health", "event"]

# The developer guide's page "SageMaker HyperPod cluster events reference", "EventBridge integration".
DETAIL_TYPES: Mapping[EventKind, str] = {
    "state_change": "SageMaker HyperPod Cluster State Change",
    "node_health": "SageMaker HyperPod Cluster Node Health Event",
    "event": "SageMaker HyperPod Cluster Event",
}


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class IHyperPodCluster(Resource):
    """A HyperPod cluster: of this app (`HyperPodCluster`), or of another (`HyperPodCluster.from_cluster_attributes`).

    It is grantable: `bucket.grant_read(cluster)` gives a permission to all of its nodes, and
    `bucket.grant_read(cluster.roles["compute"])` to the nodes of one type. It is connectable:
    `database.connections.allow_default_port_from(cluster)` lets its nodes connect.
    """

    cluster_name: str
    """The cluster's name (`ClusterName`)."""
    cluster_arn: str
    """The cluster's ARN. HyperPod chooses the id at its end."""
    roles: Mapping[RoleName, iam.IRole]
    """The groups' execution roles by node type. Under EKS, there is one role for all nodes, `node`."""
    autoscaled_groups: Sequence[str] = ()
    """The groups whose counts an autoscaler owns."""
    encryption_key: kms.IKey | None = None
    """The key of the cluster's volumes, scripts and logs. None: it is not known."""
    resource: sagemaker.CfnCluster | None = None
    """CloudFormation's resource. None: another app creates the cluster."""
    orchestrator: Orchestrator | None = None
    """`slurm` or `eks`. None: another app creates the cluster, and it is not known."""
    node_provisioning_mode: Literal["continuous", "standard"] | None = None
    """How HyperPod creates nodes. None: another app creates the cluster, and it is not known."""
    log: ClusterLog | None = None
    """Sets up HyperPod's log group of the cluster. None: another app creates the cluster."""
    drain_channel: DrainChannel | None = None
    """The channel by which the drain agent on the controller receives drain requests. None: there is no agent, or this app does not
    know its channel."""
    drainer: IEksDrainer | None = None
    """The function that drains the cluster's nodes under EKS. None: there is no such function, or this app does not know it."""

    limits_metadata: bool = False
    """Whether jobs of some users cannot use the nodes' roles, as far as this app knows."""

    def __init__(self, scope: Construct, construct_id: str, *, environment_from_arn: str | None = None) -> None:
        """Create the construct without resources.

        :param environment_from_arn: the ARN whose account and region the cluster is in. Default: - those of its stack
        """
        super().__init__(scope, construct_id, environment_from_arn=environment_from_arn)
        without_traces(self)
        self._log_group: logs.ILogGroup | None = None
        self._connections: ec2.Connections | None = None
        self._principal: _AllNodes | None = None

    @property
    def instance_groups(self) -> tuple[InstanceGroup, ...]:
        """The instance groups, in order. Empty: another app creates the cluster."""
        return ()

    def _security_groups(self) -> list[ec2.ISecurityGroup]:
        raise NotImplementedError

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        """The nodes' security groups, by which other constructs allow connections from and to the nodes.

        Raises ConfigError if no security group is known, which CDK passes on as RuntimeError.
        """
        if self._connections is None:
            groups = self._security_groups()
            if not groups:
                finding = Finding(
                    code="security-groups-unknown",
                    path="security_groups",
                    problem="are not known, so no connection can be allowed",
                    remedy="give the security groups of the nodes",
                )
                raise_errors([finding], lambda: self.node.path)
            self._connections = ec2.Connections(security_groups=groups)
        return self._connections

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """All nodes: what is granted to it is granted to every execution role of the cluster, including roles of later groups.

        A resource policy names only the roles that exist at that time. Raises ConfigError if no role is known, which CDK's grants
        pass on as RuntimeError.
        """
        if not self.roles:
            finding = Finding(
                code="roles-unknown",
                path="roles",
                problem="are not known, so nothing can be granted to the nodes",
                remedy="give the roles by node type",
            )
            raise_errors([finding], lambda: self.node.path)
        if self.limits_metadata:
            Annotations.of(self).add_warning_v2(
                "cdk-hyperpod:metadata-users-block-others",
                "only jobs of users in metadata_users have permissions that are granted to the cluster; other users need "
                "credentials of their own",
            )
        if self._principal is None:
            self._principal = _AllNodes(self)
        return self._principal

    @property
    def cluster_id(self) -> str:
        """The id at the end of the ARN, which is also in the name of the cluster's log group."""
        return Fn.select(1, Fn.split("/", self.cluster_arn))

    @property
    def log_group_name(self) -> str:
        """`/aws/sagemaker/Clusters/NAME/ID`, which HyperPod's managed policy AmazonSageMakerClusterInstanceRolePolicy names."""
        return f"/aws/sagemaker/Clusters/{self.cluster_name}/{self.cluster_id}"

    @property
    def log_group(self) -> logs.ILogGroup:
        """The log group of the nodes. HyperPod creates it with the first node."""
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
        """Create a rule for the events that HyperPod sends to EventBridge about this cluster. Nodes do not change.

        Source: the developer guide's page "SageMaker HyperPod cluster events reference".

        :param target: what receives the events. Default: - nothing; add a target to the rule that is returned.
        :param kinds: `state_change` (the cluster's status), `node_health` (findings of the health monitoring agent, with the
            repair that it recommends), `event` (launches, scaling, patching; under continuous provisioning only). Default: - all.
        :param detail: limits the events, as in `{"EventDetails": {"EventLevel": ["Error"]}}`. Default: - all of these kinds.
        :param description: the rule's description. Default: - none.
        :raises ConfigError: for unknown kinds, an invalid target, or a cluster in another region.
        """
        from aws_cdk import aws_events as events  # imported here, since most apps do not use it

        findings = [
            *check_value(target, events.IRuleTarget | None, "target"),
            *check_value(kinds, Sequence[EventKind], "kinds"),
            *check_value(description, str | None, "description"),
        ]
        if not findings and not kinds:
            findings.append(
                Finding(
                    code="event-kinds-empty",
                    path="kinds",
                    problem="is empty",
                    remedy="remove it for all kinds, or name one",
                )
            )
        rule_region, cluster_region = Stack.of(self).region, self.env.region
        if is_known((rule_region, cluster_region)) and rule_region != cluster_region:
            findings.append(
                Finding(
                    code="rule-in-another-region",
                    path="cluster_arn",
                    problem=f"the cluster is in {cluster_region}, but the rule is in {rule_region}, which receives none of its events",
                    remedy=f"create the rule in a stack in {cluster_region}",
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
                detail_type=[DETAIL_TYPES[kind] for kind in kinds],
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
        # The same text as CDK uses for a resource's account. With another text, a grant would write both policies.
        return self._cluster.env.account

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        """The principals in a resource policy."""
        arns = [role.role_arn for role in self._cluster.roles.values()]
        return iam.PrincipalPolicyFragment({"AWS": arns})

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        return self.add_to_principal_policy(statement).statement_added

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """Add the statement to every role's policy, if CDK manages it."""
        added = DependencyGroup()
        results = [role.add_to_principal_policy(statement) for role in self._cluster.roles.values()]
        for result in results:
            if result.policy_dependable is not None:
                added.add(result.policy_dependable)
        self._given.append((statement, added))
        return iam.AddToPrincipalPolicyResult(
            statement_added=all(result.statement_added for result in results), policy_dependable=added
        )

    def add_role(self, role: iam.IRole) -> None:
        """Grant a later role what the other roles have been granted."""
        for statement, added in self._given:
            policy = role.add_to_principal_policy(statement).policy_dependable
            if policy is not None:
                added.add(policy)
