"""The cluster among other constructs of CDK: granted to, connected to, given roles, known by its attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aws_cdk import CfnParameter, CfnResource, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    ConfigError,
    HyperPodCluster,
    HyperPodNetwork,
    IHyperPodCluster,
    InstanceGroup,
    LifecycleScripts,
    ScaleDown,
)
from cdk_hyperpod.config import SlurmConfig
from helpers.findings import Found, refused
from helpers.synthesis import Template, flat, folder_of, needs, new_app, of_stack, templates_in

HEAD = InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1)
WORK = InstanceGroup(
    name="work", node_type="compute", partition="work", instance_type="ml.p5.48xlarge", instance_count=2
)
ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab"
EKS_ARN = "arn:aws:eks:us-west-2:111122223333:cluster/train"
ROLE = "arn:aws:iam::111122223333:role/nodes"


def cluster_in(stack: Stack, **more: Any) -> HyperPodCluster:
    network = more.get("network") or HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"])
    arguments: dict[str, Any] = {"cluster_name": "train", "network": network, "instance_groups": [HEAD, WORK], **more}
    return HyperPodCluster(stack, "Cluster", **arguments)


def policies(template: Template, action: str) -> dict[str, set[str]]:
    """The policies with an action, each with the roles that have it."""
    return {
        name: {flat(role) for role in resource["Properties"]["Roles"]}
        for name, resource in template.of("AWS::IAM::Policy").items()
        if name.startswith("Cluster") and action in str(resource["Properties"]["PolicyDocument"])
    }


# -- grants -----------------------------------------------------------------------------------------------------------


def test_a_grant_to_the_cluster_is_one_to_every_role_and_comes_before_its_nodes() -> None:
    template = of_stack(lambda stack: s3.Bucket(stack, "Bucket").grant_read(cluster_in(stack)))
    granted = policies(template, "s3:GetObject*")
    roles = {
        flat({"Ref": name}) for name in template.of("AWS::IAM::Role") if name.startswith(("ClusterCon", "ClusterCom"))
    }
    assert len(roles) == 2
    assert set.union(*granted.values()) == roles
    for kind in ("AWS::SageMaker::Cluster", "Custom::HyperPodScaleDown"):
        assert granted.keys() <= needs(template, template.only_id(kind)), kind


@pytest.mark.parametrize(("metadata_users", "warned"), [(None, 0), ((), 1), (("alice",), 1)])
def test_a_grant_says_whose_jobs_it_does_not_reach(metadata_users: tuple[str, ...] | None, warned: int) -> None:
    app = new_app()
    stack = Stack(app, "Stack")
    key = kms.Key(stack, "Key")
    scripts = LifecycleScripts(
        stack, "Scripts", cluster_name="train", encryption_key=key, slurm=SlurmConfig(metadata_users=metadata_users)
    )
    cluster = cluster_in(stack, encryption_key=key, lifecycle_scripts=scripts)
    for name in ("Bucket", "Other"):
        s3.Bucket(stack, name).grant_read(cluster)
    found = Annotations.from_stack(stack).find_warning(
        "*", Match.string_like_regexp("only jobs of users in metadata_users")
    )
    assert len(found) == warned


@pytest.mark.parametrize("env", [None, Environment(region="us-west-2", account="111122223333")])
def test_a_grant_in_the_clusters_own_account_leaves_the_resources_policies_alone(env: Environment | None) -> None:
    """A key that named the roles, whose policies name the key, would be a circle that CloudFormation refuses."""
    app = new_app()
    stack = Stack(app, "Stack", env=env)
    key = kms.Key(stack, "Key")
    cluster = cluster_in(stack, encryption_key=key)
    s3.Bucket(stack, "Bucket", encryption_key=key).grant_read(cluster)
    template = templates_in(folder_of(app))["Stack"]
    assert not [name for name in template.of("AWS::S3::BucketPolicy") if name.startswith("Bucket")]
    (key_id,) = (name for name in template.of("AWS::KMS::Key") if name.startswith("Key"))
    assert "Role" not in str(template.resources[key_id]["Properties"]["KeyPolicy"])
    assert not needs(template, key_id) & template.of("AWS::IAM::Role").keys()


@pytest.mark.parametrize("account", [None, "444455556666"])
def test_a_grant_to_a_cluster_of_another_account_is_in_the_resources_policy_too(account: str | None) -> None:
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2", account=account))
    known = HyperPodCluster.from_cluster_attributes(
        stack,
        "Known",
        cluster_name="train",
        cluster_arn=ARN,
        roles={"compute": iam.Role.from_role_arn(stack, "Nodes", ROLE)},
    )
    s3.Bucket(stack, "Bucket").grant_read(known)
    policy = templates_in(folder_of(app))["Stack"].only("AWS::S3::BucketPolicy")
    assert ROLE in str(policy)


def test_a_grant_to_one_node_type_does_not_reach_another() -> None:
    def build(stack: Stack) -> None:
        s3.Bucket(stack, "Bucket", encryption_key=kms.Key(stack, "Key")).grant_read_write(
            cluster_in(stack).roles["compute"]
        )

    template = of_stack(build)
    (roles,) = policies(template, "s3:PutObject").values()
    assert len(roles) == 1 and next(iter(roles)).startswith("<ClusterComputeRole")


def test_a_node_type_without_a_group_has_no_role_yet() -> None:
    cluster = cluster_in(Stack())
    with pytest.raises(KeyError, match="no group of node type login yet; add it first"):
        cluster.roles["login"]
    assert cluster.roles.get("login") is None


def test_a_cluster_without_grants_has_no_extra_policy_or_rule() -> None:
    before = of_stack(cluster_in)
    assert not [name for name in before.of("AWS::IAM::Policy") if "Reference" in name]
    assert not before.of("AWS::Events::Rule")


def test_a_resources_own_policy_names_every_role() -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack)
        s3.Bucket(stack, "Bucket").add_to_resource_policy(
            iam.PolicyStatement(actions=["s3:GetObject"], principals=[cluster.grant_principal], resources=["*"])
        )

    (policy,) = (
        properties["PolicyDocument"]["Statement"]
        for name, properties in ((n, r["Properties"]) for n, r in of_stack(build).of("AWS::S3::BucketPolicy").items())
        if name.startswith("Bucket")
    )
    assert len(policy[-1]["Principal"]["AWS"]) == 2


def describe(cluster: HyperPodCluster) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=["sagemaker:DescribeCluster"], resources=[cluster.cluster_arn])


def to_all(_: Stack, cluster: HyperPodCluster) -> None:
    cluster.grant_principal.add_to_principal_policy(describe(cluster))


def its_log(_: Stack, cluster: HyperPodCluster) -> None:
    cluster.log_group.grant_read(cluster.roles["controller"])


def by_another(stack: Stack, cluster: HyperPodCluster) -> None:
    ssm.StringParameter(stack, "Arn", string_value=cluster.cluster_arn).grant_read(cluster)


def to_ones_own(_: Stack, cluster: HyperPodCluster) -> None:
    cluster.roles["compute"].add_to_principal_policy(describe(cluster))


@pytest.mark.parametrize("grant", [to_all, its_log, by_another, to_ones_own])
def test_a_right_to_the_cluster_itself_comes_after_it(grant: Callable[[Stack, HyperPodCluster], None]) -> None:
    """CloudFormation refuses a template in which each of the two waits for the other."""

    def build(stack: Stack) -> None:
        own = {"compute": made_role(stack)} if grant is to_ones_own else {}
        grant(stack, cluster_in(stack, roles=own))

    template = of_stack(build)
    cluster = template.only_id("AWS::SageMaker::Cluster")
    assert cluster not in needs(template, cluster)
    assert [name for name in template.of("AWS::IAM::Policy") if cluster in needs(template, name)]


def told(stack: Stack) -> list[str]:
    """The warnings that permissions are late."""
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("nodes start before"))
    return [str(each.entry.data) for each in found]


def function(stack: Stack, construct_id: str, **environment: str) -> lambda_.Function:
    return lambda_.Function(
        stack,
        construct_id,
        code=lambda_.Code.from_inline("pass"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        environment=environment,
    )


def late_grants(stack: Stack, cluster: HyperPodCluster) -> None:
    s3.Bucket(stack, "Bucket").grant_read(cluster.roles["compute"])
    function(stack, "Late", CLUSTER=cluster.cluster_arn).grant_invoke(cluster.roles["compute"])


def grants_of_one_action(stack: Stack, cluster: HyperPodCluster) -> None:
    for name, environment in {"Early": {}, "Late": {"CLUSTER": cluster.cluster_arn}}.items():
        function(stack, name, **environment).grant_invoke(cluster.roles["compute"])


def grants_of_ones_own(stack: Stack, cluster: HyperPodCluster) -> None:
    s3.Bucket(stack, "Bucket").grant_read(cluster.roles["controller"])
    cluster.log_group.grant_read(cluster.roles["controller"])


@pytest.mark.parametrize(
    ("grant", "policy", "about"),
    [
        (late_grants, "Stack/Cluster/ComputeRoleReference/Policy", "Stack/Late, which comes after the cluster;"),
        (grants_of_one_action, "Stack/Cluster/ComputeRoleReference/Policy", "Stack/Late, which comes after"),
        (grants_of_ones_own, "Stack/Nodes/DefaultPolicy", "the cluster; put that one into an iam.Policy of its own"),
    ],
)
def test_permissions_that_a_grant_delays_are_a_warning(
    grant: Callable[[Stack, HyperPodCluster], None], policy: str, about: str
) -> None:
    stack = Stack(app := new_app(), "Stack")
    grant(stack, cluster_in(stack, roles={"controller": made_role(stack)}))
    template = templates_in(folder_of(app))["Stack"]
    cluster = template.only_id("AWS::SageMaker::Cluster")
    assert [name for name in template.of("AWS::IAM::Policy") if cluster in needs(template, name)]
    (said,) = told(stack)
    assert said.startswith(f"nodes start before they have any permission of {policy}")
    assert f"because one of them is on {about}" in said
    assert said.endswith(" [ack: cdk-hyperpod:late-permissions]")


def only_late(stack: Stack, cluster: HyperPodCluster) -> None:
    function(stack, "Late", CLUSTER=cluster.cluster_arn).grant_invoke(cluster)


def apart(stack: Stack, cluster: HyperPodCluster) -> None:
    s3.Bucket(stack, "Bucket").grant_read(cluster)
    late = function(stack, "Late", CLUSTER=cluster.cluster_arn)
    statement = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[late.function_arn])
    iam.Policy(stack, "Apart", statements=[statement], roles=[cluster.roles["compute"]])


@pytest.mark.parametrize("grant", [to_all, its_log, by_another, only_late, apart])
def test_permissions_without_a_delay_raise_no_warning(grant: Callable[[Stack, HyperPodCluster], None]) -> None:
    stack = Stack(app := new_app(), "Stack")
    grant(stack, cluster_in(stack))
    template = templates_in(folder_of(app))["Stack"]
    assert not told(stack)
    granted = policies(template, "s3:GetObject*").keys()
    assert granted <= needs(template, template.only_id("AWS::SageMaker::Cluster"))
    assert bool(granted) == (grant is apart)


def test_nodes_wait_for_a_users_policy_if_the_cluster_depends_on_it() -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack)
        statement = iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"])
        policy = iam.Policy(stack, "Own", statements=[statement], roles=[cluster.roles["compute"]])
        cluster.resource.node.add_dependency(policy)

    template = of_stack(build)
    (policy,) = (name for name in template.of("AWS::IAM::Policy") if name.startswith("Own"))
    for kind in ("AWS::SageMaker::Cluster", "Custom::HyperPodScaleDown"):
        before = needs(template, template.only_id(kind))
        assert policy in before and template.only_id(kind) not in before, kind


def test_a_right_to_the_cluster_itself_takes_nothing_away_that_nodes_need_to_start() -> None:
    def build(stack: Stack) -> None:
        role = made_role(stack)
        cluster_in(stack, roles={"compute": role}).log_group.grant_read(role)

    template = of_stack(build)
    (policy,) = (name for name in template.of("AWS::IAM::Policy") if name.startswith("ClusterComputeNeeds"))
    assert policy in needs(template, template.only_id("AWS::SageMaker::Cluster"))


@pytest.mark.parametrize("later", [False, True])
def test_a_role_of_ones_own_may_do_what_it_was_granted_before_its_nodes_start(later: bool) -> None:
    def build(stack: Stack) -> None:
        role = made_role(stack)
        s3.Bucket(stack, "Bucket").grant_read(role)
        groups = [HEAD, WORK] if later else [HEAD, WORK, LOGIN]
        cluster = cluster_in(stack, roles={"login": role}, instance_groups=groups)
        if later:
            cluster.add_instance_group(LOGIN)

    template = of_stack(build)
    own = {name for name in template.of("AWS::IAM::Policy") if name.startswith(("Nodes", "ClusterLoginNeeds"))}
    assert len(own) == 2
    assert own <= needs(template, template.only_id("AWS::SageMaker::Cluster"))


LOGIN = InstanceGroup(name="login", node_type="login", instance_type="ml.m5.large", instance_count=1)


def test_a_group_that_comes_later_has_what_the_cluster_was_granted() -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack)
        s3.Bucket(stack, "Bucket").grant_read(cluster)
        cluster.add_instance_group(LOGIN)

    template = of_stack(build)
    granted = policies(template, "s3:GetObject*")
    assert len(set.union(*granted.values())) == 3
    assert granted.keys() <= needs(template, template.only_id("AWS::SageMaker::Cluster"))


# -- connections, events, logs ----------------------------------------------------------------------------------------


def test_a_connection_from_the_cluster_adds_an_ingress_rule_for_its_nodes() -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack)
        group = ec2.SecurityGroup.from_security_group_id(stack, "Database", "sg-0123456789abcdef0")
        group.connections.allow_from(cluster, ec2.Port.tcp(5432), "Nodes")

    template = of_stack(build)
    (rule,) = (r for r in template.properties("AWS::EC2::SecurityGroupIngress") if r.get("FromPort") == 5432)
    assert rule["GroupId"] == "sg-0123456789abcdef0"
    assert flat(rule["SourceSecurityGroupId"]).startswith("<NetworkNodes")


@pytest.mark.parametrize("egress", [False, True])
def test_a_connection_from_a_closed_network_adds_an_egress_rule_too(egress: bool) -> None:
    def build(stack: Stack) -> None:
        network = HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], internet_egress=egress)
        cluster = cluster_in(stack, network=network)
        database = ec2.SecurityGroup.from_security_group_id(stack, "Database", "sg-0123456789abcdef0")
        database.connections.allow_from(cluster, ec2.Port.tcp(5432))
        endpoint = ec2.SecurityGroup.from_security_group_id(stack, "Endpoint", "sg-0fedcba9876543210")
        network.security_group.connections.allow_to(endpoint, ec2.Port.tcp(443))

    rules = of_stack(build).properties("AWS::EC2::SecurityGroupEgress")
    out = {rule["DestinationSecurityGroupId"]: rule for rule in rules if "sg-" in str(rule)}
    assert set(out) == (set() if egress else {"sg-0123456789abcdef0", "sg-0fedcba9876543210"})
    assert all(flat(rule["GroupId"]).startswith("<NetworkNodes") for rule in out.values())


def test_events_of_this_cluster_reach_their_target() -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack)
        queue = sqs.Queue(stack, "Queue", retention_period=Duration.days(1))
        cluster.on_event("All", target=targets.SqsQueue(queue))
        cluster.on_event("Errors", kinds=["event"], detail={"EventDetails": {"EventLevel": ["Error"]}})

    template = of_stack(build)
    every, errors = template.properties("AWS::Events::Rule")
    arn = {"Fn::GetAtt": [template.only_id("AWS::SageMaker::Cluster"), "ClusterArn"]}
    assert every["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": [
            "SageMaker HyperPod Cluster State Change",
            "SageMaker HyperPod Cluster Node Health Event",
            "SageMaker HyperPod Cluster Event",
        ],
        "resources": [arn],
    }
    assert len(every["Targets"]) == 1
    assert errors["EventPattern"]["detail-type"] == ["SageMaker HyperPod Cluster Event"]
    assert errors["EventPattern"]["detail"] == {"EventDetails": {"EventLevel": ["Error"]}}


@pytest.mark.parametrize(
    ("kinds", "code", "path"),
    [
        (["foo"], "value-not-a-choice", "kinds[0]"),
        ("event", "argument-not-a-list", "kinds"),
        ((), "event-kinds-empty", "kinds"),
    ],
)
def test_kinds_of_events_that_there_are_not(kinds: Any, code: str, path: str) -> None:
    known = known_cluster(Stack(new_app(), "Stack"))
    with refused((code, path)):
        known.on_event("Rule", kinds=kinds)
    known.on_event("Rule")


def test_events_of_another_region_reach_no_rule_here() -> None:
    app = new_app()
    with refused(("rule-in-another-region", "cluster_arn")):
        known_cluster(Stack(app, "Other", env=Environment(region="eu-west-1"))).on_event("Rule")
    known_cluster(Stack(app, "Same", env=Environment(region="us-west-2"))).on_event("Rule")
    known_cluster(Stack(app, "Unknown")).on_event("Rule")
    arn = CfnParameter(stack := Stack(app, "Late", env=Environment(region="eu-west-1")), "Arn").value_as_string
    late = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="train", cluster_arn=arn)
    late.on_event("Rule")


def test_on_event_refuses_an_invalid_target() -> None:
    known = known_cluster(Stack(new_app(), "Stack"))
    with refused(("argument-without-interface", "target")):
        known.on_event("Rule", target="queue")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        pytest.param(
            {"computee": None},
            [("value-misspelled", "roles"), ("value-missing", "roles['computee']")],
            id="key",
        ),
        pytest.param({"compute": ROLE}, [("argument-without-interface", "roles['compute']")], id="value"),
    ],
)
def test_invalid_roles_are_refused(roles: Any, expected: Found) -> None:
    with refused(*expected):
        cluster_in(Stack(new_app(), "Stack"), roles=roles)


def test_its_log_group_is_the_one_that_hyperpod_makes() -> None:
    stack = Stack(new_app(), "Stack")
    known = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="train", cluster_arn=ARN)
    assert known.log_group.log_group_name == "/aws/sagemaker/Clusters/train/0123456789ab"
    assert known.log_group is known.log_group


# -- a cluster of another app -----------------------------------------------------------------------------------------


def known_cluster(stack: Stack) -> IHyperPodCluster:
    return HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="train", cluster_arn=ARN)


def test_a_grant_to_a_cluster_with_unknown_roles_is_an_error() -> None:
    stack = Stack(new_app(), "Stack")
    known = known_cluster(stack)
    said = r"Stack/Known: 1 error\n  roles: .* \[roles-unknown\]"
    with pytest.raises(ConfigError, match=said):
        _ = known.grant_principal
    with pytest.raises(RuntimeError, match=said):  # what Python raises within CDK comes back as this
        s3.Bucket(stack, "Bucket").grant_read(known)


def test_its_name_and_arn_are_those_of_a_cluster() -> None:
    with pytest.raises(ConfigError) as caught:
        HyperPodCluster.from_cluster_attributes(
            Stack(new_app(), "Stack"), "Known", cluster_name="not ok!", cluster_arn="nonsense"
        )
    assert [finding.path for finding in caught.value.findings] == ["cluster_name", "cluster_arn"]


def test_a_cluster_of_another_app_is_granted_to_by_its_attributes() -> None:
    def build(stack: Stack) -> None:
        known: IHyperPodCluster = HyperPodCluster.from_cluster_attributes(
            stack,
            "Cluster",
            cluster_name="train",
            cluster_arn=ARN,
            roles={"compute": iam.Role.from_role_arn(stack, "Nodes", ROLE)},
            security_groups=[ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")],
        )
        s3.Bucket(stack, "Bucket").grant_read(known)
        known.on_event("Health", kinds=["node_health"])
        assert known.connections.security_groups[0].security_group_id == "sg-0123456789abcdef0"

    template = of_stack(build)
    assert not template.of("AWS::SageMaker::Cluster")
    assert template.only("AWS::IAM::Policy")["Roles"] == ["nodes"]
    assert template.only("AWS::Events::Rule")["EventPattern"]["resources"] == [ARN]


def test_a_cluster_of_another_app_is_guarded_where_it_is_made() -> None:
    stack = Stack(new_app(), "Stack")
    known = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="train", cluster_arn=ARN)
    with refused(("guard-in-another-app", "cluster")):
        ScaleDown(stack, "ScaleDown", cluster=known)
    with pytest.raises(ConfigError, match="cluster_arn: must be text, got 5"):
        HyperPodCluster.from_cluster_attributes(stack, "Wrong", cluster_name="train", cluster_arn=5)  # type: ignore[arg-type]


def test_a_guard_stands_in_the_stack_of_its_cluster() -> None:
    app = new_app()
    cluster = cluster_in(Stack(app, "Stack"), unguarded=True)
    with refused(("guard-in-another-stack", "cluster")):
        ScaleDown(Stack(app, "Other"), "ScaleDown", cluster=cluster)


# -- roles ------------------------------------------------------------------------------------------------------------


def made_role(stack: Stack) -> iam.IRole:
    return iam.Role(stack, "Nodes", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))


def lazy_role(stack: Stack) -> iam.IRole:
    return iam.LazyRole(stack, "Nodes", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))


def mutable_role(stack: Stack) -> iam.IRole:
    return iam.Role.from_role_arn(stack, "Nodes", ROLE)


@pytest.mark.parametrize("make", [made_role, lazy_role, mutable_role])
def test_a_role_of_ones_own_gets_what_its_nodes_need_before_the_cluster(make: Callable[[Stack], iam.IRole]) -> None:
    def build(stack: Stack) -> None:
        cluster = cluster_in(stack, roles={"compute": make(stack)})
        assert len(cluster.roles) == 2
        Annotations.from_stack(stack).has_no_warning("/Stack/Cluster", Match.string_like_regexp("role given"))

    template = of_stack(build)
    groups = template.groups()
    assert flat(groups["head"]["ExecutionRole"]).startswith("<ClusterControllerRole")
    assert "ClusterComputeRole" not in str(template.body)
    (policy,) = (name for name in template.of("AWS::IAM::Policy") if name.startswith("ClusterComputeNeeds"))
    document = template.resources[policy]["Properties"]["PolicyDocument"]
    made = of_stack(cluster_in)
    (known,) = (
        properties["PolicyDocument"]
        for properties in made.properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description") == "What the compute nodes of HyperPod cluster train may do"
    )

    def actions(found: dict[str, Any]) -> list[str]:
        listed = [statement["Action"] for statement in found["Statement"]]
        return sorted(action for each in listed for action in ([each] if isinstance(each, str) else each))

    assert actions(document) == actions(known)
    assert policy in needs(template, template.only_id("AWS::SageMaker::Cluster"))
    passed = [s for p in template.properties("AWS::IAM::ManagedPolicy") for s in p["PolicyDocument"]["Statement"]]
    (pass_role,) = (statement for statement in passed if statement["Action"] == ["iam:PassRole"])
    assert groups["work"]["ExecutionRole"] in pass_role["Resource"]


def test_a_role_of_another_stack_gets_its_policy_in_the_clusters() -> None:
    app = new_app()
    env = Environment(region="us-west-2", account="111122223333")
    other, stack = Stack(app, "Other", env=env), Stack(app, "Stack", env=env)
    cluster = cluster_in(stack, roles={"compute": made_role(other)})
    s3.Bucket(stack, "Bucket").grant_read(cluster)
    templates = templates_in(folder_of(app))
    assert not templates["Other"].of("AWS::IAM::Policy")
    template = templates["Stack"]
    first = needs(template, template.only_id("AWS::SageMaker::Cluster"))
    for name, action in (
        ("ClusterComputeNeeds", "cloudwatch:PutMetricData"),
        ("ClusterComputeRoleReference", "s3:GetObject*"),
    ):
        (policy,) = (each for each in template.of("AWS::IAM::Policy") if each.startswith(name))
        assert action in str(template.resources[policy])
        assert policy in first


@pytest.mark.parametrize("more", [{}, {"role_name": "nodes"}])
def test_a_role_of_another_stack_keeps_its_path(more: dict[str, Any]) -> None:
    """The ARN without it is that of another role, or of none, and a bucket's policy may name either."""
    app = new_app()
    env = Environment(region="us-west-2", account="111122223333")
    other, stack = Stack(app, "Other", env=env), Stack(app, "Stack", env=env)
    trust = iam.ServicePrincipal("sagemaker.amazonaws.com")
    cluster = cluster_in(stack, roles={"compute": iam.Role(other, "Nodes", assumed_by=trust, path="/hp/", **more)})
    arn = cluster.roles["compute"].role_arn
    s3.Bucket(stack, "Bucket").add_to_resource_policy(
        iam.PolicyStatement(actions=["s3:GetObject"], principals=[cluster.grant_principal], resources=["*"])
    )
    assert flat(stack.resolve(arn)).startswith("arn:aws:iam::111122223333:role/hp/<Nodes")
    template = templates_in(folder_of(app))["Stack"]
    (policy,) = (each for name, each in template.of("AWS::S3::BucketPolicy").items() if name.startswith("Bucket"))
    named = [flat(each) for each in policy["Properties"]["PolicyDocument"]["Statement"][-1]["Principal"]["AWS"]]
    assert len([each for each in named if each.startswith("arn:aws:iam::111122223333:role/hp/<")]) == 1
    # A policy is attached by the name, which has no path.
    attached = [flat(role) for each in template.properties("AWS::IAM::Policy") for role in each.get("Roles", [])]
    assert not [role for role in attached if "/" in role or role == "hp"]


def test_a_role_of_another_stack_has_the_account_of_that_stack() -> None:
    app = new_app()
    trust = iam.ServicePrincipal("sagemaker.amazonaws.com")
    other = Stack(app, "Other", env=Environment(region="us-west-2", account="444455556666"))
    stack = Stack(app, "Stack", env=Environment(region="us-west-2", account="111122223333"))
    role = iam.Role(other, "Nodes", role_name="nodes", assumed_by=trust)
    cluster = cluster_in(stack, roles={"compute": role})
    assert stack.resolve(cluster.roles["compute"].role_arn) == "arn:aws:iam::444455556666:role/nodes"
    Annotations.from_stack(stack).has_warning("/Stack/Cluster", Match.string_like_regexp("role given for compute"))


def test_a_role_of_another_stack_with_an_unknown_path_is_an_error() -> None:
    app = new_app()
    other = Stack(app, "Other")
    path = CfnParameter(other, "Path").value_as_string
    role = iam.Role(other, "Nodes", path=path, assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    with refused(("role-path-unknown", "roles[compute]")):
        cluster_in(Stack(app, "Stack"), roles={"compute": role})


def test_a_role_that_is_imported_in_another_stack_is_an_error() -> None:
    app = new_app()
    env = Environment(region="us-west-2", account="111122223333")
    with refused(("role-imported-elsewhere", "roles[compute]")):
        cluster_in(Stack(app, "Stack", env=env), roles={"compute": mutable_role(Stack(app, "Other", env=env))})


def test_groups_of_karpenters_under_slurm_are_an_error() -> None:
    with refused(("autoscaled-groups-under-slurm", "autoscaled_groups")):
        cluster_in(Stack(), autoscaled_groups=["work"])


def test_an_imported_cluster_without_security_groups_lets_nothing_in_in_silence() -> None:
    stack = Stack()
    known = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name="train", cluster_arn=ARN)
    with pytest.raises(ConfigError, match=r"security_groups: .* \[security-groups-unknown\]"):
        _ = known.connections


def test_a_role_that_no_group_has_is_an_error() -> None:
    def build(stack: Stack, more: Sequence[InstanceGroup] = ()) -> None:
        cluster = cluster_in(stack, roles={"login": made_role(stack)})
        for group in more:
            cluster.add_instance_group(group)

    with pytest.raises(RuntimeError, match=r"roles\[login\]: .* \[role-without-group\]"):
        of_stack(build)
    of_stack(lambda stack: build(stack, [LOGIN]))


@pytest.mark.parametrize(("name", "eks"), [("node", None), ("compute", EKS_ARN)])
def test_a_role_of_the_other_orchestrator_is_an_error(name: str, eks: str | None) -> None:
    groups = [InstanceGroup(name="work", instance_type="ml.p5.48xlarge", instance_count=2)] if eks else [HEAD, WORK]

    def build(stack: Stack) -> None:
        cluster_in(stack, roles={name: made_role(stack)}, eks_cluster_arn=eks, instance_groups=groups)

    with pytest.raises(RuntimeError, match=rf"roles\[{name}\]: .* \[role-without-group\]"):
        of_stack(build)


@pytest.mark.parametrize(
    "make",
    [
        lambda stack: iam.Role.from_role_arn(stack, "Nodes", ROLE, mutable=False),
        lambda stack: iam.Role.from_role_arn(stack, "Nodes", ROLE.replace("111122223333", "444455556666")),
        lambda stack: iam.Role(
            stack, "Made", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com")
        ).without_policy_updates(),
    ],
)
def test_a_warning_lists_the_permissions_that_an_immutable_role_needs(make: Callable[[Stack], iam.IRole]) -> None:
    """As a policy's statements, with references as Fn::Sub writes them."""
    app = new_app()
    stack = Stack(app, "Stack", env=Environment(region="us-west-2", account="111122223333"))
    cluster_in(stack, roles={"compute": make(stack)})
    (warning,) = Annotations.from_stack(stack).find_warning("/Stack/Cluster", Match.string_like_regexp("role given"))
    text = str(warning.entry.data).removesuffix(" [ack: cdk-hyperpod:role-needs-compute]")
    said = "CDK may not change the role given for compute; make sure that it trusts sagemaker.amazonaws.com and allows "
    assert text.startswith(said)
    statements = json.loads(text.removeprefix(said))
    assert ["cloudwatch:PutMetricData"] in [statement["Action"] for statement in statements]
    (logs,) = (statement["Resource"] for statement in statements if statement["Action"] == ["logs:CreateLogGroup"])
    assert logs == ["arn:${AWS::Partition}:logs:us-west-2:${AWS::AccountId}:log-group:/aws/sagemaker/Clusters/train/*"]
    assert "Fn::" not in text and "Token[" not in text
    assert not [child for child in stack.node.find_all() if isinstance(child, CfnResource) and child.cfn_resource_type == "AWS::IAM::Policy" and "Nodes" in child.node.path]  # fmt: skip


def test_a_role_made_here_gets_a_policy_of_aws() -> None:
    """CDK takes the role for an imported one, and drops the policy with a warning."""
    app = new_app()
    stack = Stack(app, "Stack")
    role = cluster_in(stack).roles["compute"]
    for name in ("AmazonSSMPatchAssociation", "AmazonSSMPatchAssociation"):
        role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(name))
    statement = iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"])
    role.add_managed_policy(iam.ManagedPolicy(stack, "Own", statements=[statement]))
    assert not Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("Can't combine"))
    template = templates_in(folder_of(app))["Stack"]
    (name,) = (name for name in template.of("AWS::IAM::Role") if name.startswith("ClusterComputeRole"))
    needed, attached = template.resources[name]["Properties"]["ManagedPolicyArns"]
    assert needed["Ref"].startswith("ClusterComputePolicy")
    assert flat(attached) == "arn:<AWS::Partition>:iam::aws:policy/AmazonSSMPatchAssociation"
    (own,) = (each for name, each in template.of("AWS::IAM::ManagedPolicy").items() if name.startswith("Own"))
    assert own["Properties"]["Roles"] == [{"Ref": name}]


def test_an_app_whose_roles_are_made_by_others_is_synthesized() -> None:
    """`Role.customize_roles`: CDK makes no role of its own, and no policy."""

    def build(stack: Stack) -> None:
        iam.Role.customize_roles(stack, prevent_synthesis=False)
        cluster_in(stack)

    assert not of_stack(build).of("AWS::IAM::Policy")
