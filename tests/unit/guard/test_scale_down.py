"""The guard of a cluster: which clusters it refuses, what it warns of, and the names of its functions."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsii
import pytest
from aws_cdk import Aspects, CfnCondition, CfnParameter, CfnResource, CustomResource, Fn, IAspect, NestedStack, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk.assertions import Annotations, Match
from aws_cdk.cloudformation_include import CfnInclude
from constructs import Construct, IConstruct

from cdk_hyperpod import ConfigError, Finding, ScaleDown
from helpers.findings import Found, found, refused
from helpers.guard.clusters import ROLE, Group, cluster_in, group, guard
from helpers.synthesis import Template, flat, folder_of, needs, new_app, of_stack, walk

RestrictedGroup = sagemaker.CfnCluster.ClusterRestrictedInstanceGroupProperty
NODES = [f"i-{number:017x}" for number in range(3_000)]


def refusals(arguments: dict[str, Any] | None = None, **properties: Any) -> Found:
    """Code and path of each finding about a cluster that ScaleDown refuses."""
    return found(refused_findings(arguments, **properties))


def refused_findings(arguments: dict[str, Any] | None = None, **properties: Any) -> Sequence[Finding]:
    with pytest.raises(ConfigError) as caught:
        guard(Stack(new_app(), "Stack"), arguments, **properties)
    assert caught.value.source == "Stack/ScaleDown"
    return caught.value.findings


# -- clusters that cannot be guarded ----------------------------------------------------------------------------------

NO_NAME = ("guard-cluster-unnamed", "cluster.cluster_name")
RESTRICTED = ("guard-restricted-groups", "cluster.restricted_instance_groups")


def restricted() -> list[RestrictedGroup]:
    return [
        RestrictedGroup(
            environment_config=sagemaker.CfnCluster.EnvironmentConfigProperty(),
            execution_role=ROLE,
            instance_count=4,
            instance_group_name="restricted",
            instance_type="ml.p5.48xlarge",
        )
    ]


def test_a_cluster_without_a_name_is_refused_with_all_else_that_is_wrong() -> None:
    assert refusals({"max_nodes": -1}, cluster_name=None, instance_groups=None) == [
        ("value-out-of-range", "scale_down.max_nodes"),
        NO_NAME,
    ]


def test_restricted_groups_are_refused() -> None:
    assert refusals(restricted_instance_groups=restricted()) == [RESTRICTED], "beside others"
    assert refusals(restricted_instance_groups=restricted(), instance_groups=None) == [RESTRICTED], "alone"


@pytest.mark.parametrize("groups", [None, []])
def test_a_cluster_without_groups_is_refused(groups: object) -> None:
    with pytest.raises(RuntimeError) as caught:
        of_stack(lambda stack: guard(stack, instance_groups=groups))
    assert "[Stack/ScaleDown] cluster.instance_groups: " in str(caught.value)
    assert "[guard-without-groups]" in str(caught.value)


def test_a_name_may_be_a_parameters() -> None:
    template = of_stack(lambda stack: guard(stack, cluster_name=CfnParameter(stack, "Name").value_as_string))
    assert template.only("Custom::HyperPodScaleDown")["ClusterName"] == {"Ref": "Name"}


# -- what can travel --------------------------------------------------------------------------------------------------


def test_more_than_a_deployment_can_carry_is_refused() -> None:
    (finding,) = refused_findings({"nodes_to_delete": NODES}, instance_groups=[group(number) for number in range(100)])
    assert (finding.code, finding.path) == ("guard-properties-too-large", "scale_down")
    assert bytes_in(finding) > 150_000


def bytes_in(finding: Finding) -> int:
    return int(re.findall(r"about ([0-9,]+) bytes", finding.problem)[0].replace(",", ""))


def size_in_event(template: Template) -> int:
    properties = template.only("Custom::HyperPodScaleDown")
    return len(json.dumps(properties, separators=(",", ":")))


@pytest.mark.parametrize(("groups", "nodes"), [(100, 0), (2, 3_000)])
def test_the_largest_clusters_that_fit_an_event_are_accepted(groups: int, nodes: int) -> None:
    """The most groups that a cluster has, or years of ids: an event holds twice as much as a template without tokens."""
    template = of_stack(
        lambda stack: guard(
            stack,
            {"nodes_to_delete": NODES[:nodes]},
            instance_groups=[group(number) for number in range(groups)],
        )
    )
    assert 60_000 < size_in_event(template) < 131_072


def test_values_known_only_at_deployment_count_towards_the_size() -> None:
    def sized(role: str) -> int:
        findings = refused_findings({"nodes_to_delete": NODES}, instance_groups=[group(n, role) for n in range(100)])
        return bytes_in(findings[0])

    unknown = CfnParameter(Stack(new_app(), "Other"), "Role").value_as_string
    assert sized(unknown) == sized("x" * 64)


# -- warnings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        pytest.param({}, False, id="nothing is named: counts may have fallen, and synthesis knows no live count"),
        pytest.param({"nodes_to_delete": NODES[:1]}, True, id="nodes"),
        pytest.param({"instance_groups_to_delete": ["old"]}, True, id="groups"),
    ],
)
def test_synthesis_warns_that_named_nodes_and_groups_are_not_drained(arguments: dict[str, Any], warned: bool) -> None:
    stack = Stack(new_app(), "Stack")
    guard(stack, arguments)
    found = Annotations.from_stack(stack).find_warning("/Stack/ScaleDown", Match.string_like_regexp("does not drain"))
    assert bool(found) is warned


# -- names of the functions -------------------------------------------------------------------------------------------


def functions(stack: Stack) -> Iterator[str]:
    for construct in stack.node.find_all():
        name = stack.resolve(construct.function_name) if isinstance(construct, lambda_.CfnFunction) else None
        if name is not None:
            yield str(name)


def test_a_renamed_cluster_keeps_its_functions() -> None:
    """Else CloudFormation would refuse the new function of an old resource, and the reason why names stay would not show."""

    def names(cluster_name: str) -> list[str]:
        stack = Stack(new_app(), "Stack")
        guard(stack, cluster_name=cluster_name)
        return sorted(functions(stack))

    assert names("train") == names("renamed")
    assert [re.sub("-[0-9a-f]{8}-", "-…-", name) for name in names("train")] == [
        "hyperpod-Stack-…-iscomplete",
        "hyperpod-Stack-…-onevent",
        "hyperpod-Stack-…-provider",
    ]


def test_no_two_guards_share_a_function() -> None:
    app = new_app()
    same = "a-stack-whose-name-is-as-long-as-names-of-stacks-may-be-" * 2
    stacks = [Stack(app, name) for name in ("hyperpod-train-cluster", f"{same}1", f"{same}2")]
    stacks += [NestedStack(stack, "Nested") for stack in stacks]
    for stack in stacks:
        for number in range(2):
            ScaleDown(stack, f"ScaleDown{number}", cluster=cluster_in(stack, f"Cluster{number}"))
    names = {stack.node.path: list(functions(stack)) for stack in stacks if not stack.nested}
    found = [name for each in names.values() for name in each]
    assert len(found) == len(set(found)) == 6 * 2 * 3
    assert all(re.fullmatch(r"hyperpod-[A-Za-z0-9-]{1,55}", name) for name in found), (
        "what the bootstrap policies allow"
    )
    assert sum(name.startswith("hyperpod-train-cluster-") for name in found) == 12, "hyperpod- stands once"


# -- what is changed after the guard was made -------------------------------------------------------------------------


def test_the_order_in_which_things_are_made_is_no_matter() -> None:
    """Groups, counts, roles, a plan and tags that come after the guard are what it guards and may pass on."""
    late = [Group(execution_role=f"{ROLE}{n}", instance_count=n, instance_group_name=f"late-{n}") for n in (1, 2)]
    planned = Group(execution_role=ROLE, instance_count=3, instance_group_name="planned", training_plan_arn=PLAN)

    def before(stack: Stack) -> None:
        cluster = cluster_in(stack, instance_groups=[*late, planned], node_recovery="None")
        cluster.cdk_tag_manager.set_tag("team", "research")
        ScaleDown(stack, "ScaleDown", cluster=cluster)

    def after(stack: Stack) -> None:
        cluster = cluster_in(stack, instance_groups=None)
        guard = ScaleDown(stack, "ScaleDown", cluster=cluster)
        # Whoever resolves too early freezes nothing.
        assert stack.resolve(guard._cluster_template.token(lambda cluster: cluster.group_texts)) == []
        cluster.instance_groups = [*late, planned]
        cluster.node_recovery = "None"
        cluster.cdk_tag_manager.set_tag("team", "research")

    assert of_stack(after).body == of_stack(before).body


def errors_of(build: Callable[[Stack], object]) -> list[str]:
    """What synthesis says against a stack, without the construct's path."""
    with pytest.raises(RuntimeError) as caught:
        of_stack(build)
    return re.findall(r"\[Stack/(?:Nested/)?ScaleDown\] (.*)", str(caught.value))


def codes_of(build: Callable[[Stack], object]) -> Found:
    """Code and path of each error of synthesis."""
    pairs = [re.fullmatch(r"(\S+): .* \[([a-z-]+)\]", line) for line in errors_of(build)]
    return [(pair[2], pair[1]) for pair in pairs if pair]


@pytest.mark.parametrize(
    ("override", "paths"),
    [
        (lambda l1: l1.add_property_override("InstanceGroups.0.InstanceCount", 1), ["InstanceGroups.0.InstanceCount"]),
        (lambda l1: l1.add_override("Properties.InstanceGroups", []), ["InstanceGroups"]),
        (lambda l1: l1.add_property_override("InstanceGroups.1", {"InstanceCount": 1}), ["InstanceGroups"]),
        (lambda l1: l1.add_property_deletion_override("InstanceGroups.0.MinInstanceCount"), ["InstanceGroups.0.MinInstanceCount"]),
        (lambda l1: l1.add_deletion_override("Properties.Tags"), ["Tags"]),
        (lambda l1: l1.add_property_override(value=1, property_path="InstanceGroups.0"), ["InstanceGroups.0"]),
        (lambda l1: l1.add_override("Properties", {"InstanceGroups": []}), ["InstanceGroups"]),
        (lambda l1: l1.add_deletion_override("Properties"), ["ClusterName", "InstanceGroups", "Tags"]),
        (lambda l1: Aspects.of(l1.stack).add(Lowers()), ["InstanceGroups.0.InstanceCount"]),
        (lambda l1: l1.add_property_override("Fn::Transform", {"Name": "AWS::Include"}), ["ClusterName", "Fn::Transform", "InstanceGroups", "Tags"]),
        (lambda l1: l1.add_override("Fn::Transform", {"Name": "AWS::Include"}), ["Fn::Transform"]),
        (lambda l1: l1.add_property_override("InstanceGroups.0.InstanceCount", 8), []),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "scope", [lambda stack: stack, pytest.param(lambda stack: NestedStack(stack, "Nested"), marks=pytest.mark.ci)]
)
def test_an_override_of_properties_that_the_guard_reads_is_an_error(
    override: Callable[[CfnResource], None], paths: list[str], scope: Callable[[Stack], Stack]
) -> None:
    """Whether it is older than the guard or younger, an Aspect's, or without an effect."""

    def before(stack: Stack) -> None:
        cluster = cluster_in(scope(stack))
        override(cluster)
        ScaleDown(cluster.stack, "ScaleDown", cluster=cluster)

    def after(stack: Stack) -> None:
        override(guard(scope(stack))._cluster)

    for build in (before, after) if paths else ():
        lines = errors_of(build)
        assert [line.partition(" is invisible")[0] for line in lines] == [
            f"cluster: an override of {path}" for path in paths
        ]
        assert all(line.endswith(" [guard-override-invisible]") for line in lines)
    if not paths:
        of_stack(before)


def resource_of(made: CustomResource) -> CfnResource:
    return typing.cast(CfnResource, made.node.default_child)


@pytest.mark.parametrize(
    "override",
    [
        lambda l1: l1.add_override("DependsOn", []),
        lambda l1: l1.add_deletion_override("DependsOn"),
        lambda l1: l1.add_override("DependsOn", ["X"]),
        lambda l1: l1.add_override("DependsOn", "X"),
        lambda l1: l1.add_override("DependsOn.0", "X"),
    ],
)
@pytest.mark.parametrize("scope", [lambda stack: stack, lambda stack: NestedStack(stack, "Nested")])
def test_an_override_that_takes_the_cluster_out_of_the_guards_order_is_an_error(
    override: Callable[[CfnResource], None], scope: Callable[[Stack], Stack]
) -> None:
    """Else CloudFormation updates the cluster while the guard looks, or before."""

    def build(stack: Stack) -> None:
        CfnResource(inner := scope(stack), "X", type="AWS::CloudFormation::WaitConditionHandle")
        override(guard(inner)._cluster)

    assert codes_of(build) == [("guard-order-overridden", "cluster")]


def test_an_override_that_keeps_the_order_is_accepted() -> None:
    def build(stack: Stack) -> None:
        made = guard(stack)
        made._cluster.add_override("DependsOn", stack.resolve(resource_of(made.prepare).logical_id))

    template = of_stack(build)
    (cluster,) = template.of("AWS::SageMaker::Cluster").values()
    assert cluster["DependsOn"] == template.only_id("Custom::HyperPodScaleDown"), "a text is as good as a list"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda made: resource_of(made.finalize).add_override("DependsOn", []),
            ("guard-order-overridden", "finalize"),
        ),
        (
            lambda made: resource_of(made.prepare).add_override("Condition", "Never"),
            ("guard-condition-differs", "prepare"),
        ),
        (
            lambda made: made.node.try_remove_child("Prepare"),
            ("guard-resource-missing", "prepare"),
        ),
        (
            lambda made: resource_of(made.prepare).add_property_override("MaxNodes", 6_000),
            ("guard-resource-override", "prepare"),
        ),
        (
            lambda made: resource_of(made.finalize).add_property_deletion_override("Groups"),
            ("guard-resource-override", "finalize"),
        ),
    ],
)
def test_an_override_of_the_guards_properties_or_order_is_an_error(
    change: Callable[[ScaleDown], object], said: tuple[str, str]
) -> None:
    def build(stack: Stack) -> None:
        CfnCondition(stack, "Never", expression=Fn.condition_equals("a", "b"))
        change(guard(stack))

    assert codes_of(build) == [said]


def test_properties_added_to_the_guard_and_a_shared_condition_are_accepted() -> None:
    def build(stack: Stack) -> None:
        wanted = CfnCondition(stack, "Wanted", expression=Fn.condition_equals("a", "a"))
        made = guard(stack)
        resource_of(made.prepare).add_property_override("ServiceTimeout", "3600")
        for each in (made._cluster, resource_of(made.prepare), resource_of(made.finalize)):
            each.cfn_options.condition = wanted

    assert of_stack(build).only("Custom::HyperPodScaleDown")["ServiceTimeout"] == "3600"


@jsii.implements(IAspect)
class Lowers:
    """A rule of a company that overrides counts."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, sagemaker.CfnCluster):
            node.add_property_override("InstanceGroups.0.InstanceCount", 1)


def test_another_override_is_a_change_that_the_guard_is_called_for() -> None:
    """What CDK's class does not know yet can only be overridden: it must not slip past prepare."""

    def build(stack: Stack) -> None:
        cluster = guard(stack)._cluster
        cluster.add_override("DeletionPolicy", "Retain")
        cluster.add_property_override("AutoPatch.Role", CfnParameter(stack, "Role").value_as_string)

    digest = json.loads(flat(of_stack(build).only("Custom::HyperPodScaleDown")["Digest"]))
    assert json.loads(digest["Overrides"]) == [["AutoPatch", {"Role": {"Ref": "Role"}}]]
    plain = of_stack(lambda stack: guard(stack)).only("Custom::HyperPodScaleDown")["Digest"]
    assert "Overrides" not in json.dumps(plain)


def test_a_cluster_of_a_template_s_own_is_guarded_with_what_cdk_does_not_know(tmp_path: Path) -> None:
    """CDK overrides by itself, and not in Python, what its class of a resource lacks."""

    def build(group: dict[str, Any], **properties: Any) -> Template:
        resource = {
            "Type": "AWS::SageMaker::Cluster",
            "Properties": {
                "ClusterName": "train",
                "InstanceGroups": [
                    {
                        "InstanceGroupName": "work",
                        "InstanceCount": 2,
                        "InstanceType": "ml.g6.12xlarge",
                        "ExecutionRole": ROLE,
                        **group,
                    }
                ],
                **properties,
            },
        }
        file = tmp_path / "template.json"
        file.write_text(json.dumps({"Resources": {"Cluster": resource}}), "utf-8")

        def included(stack: Stack) -> None:
            template = CfnInclude(stack, "Template", template_file=str(file))
            ScaleDown(stack, "ScaleDown", cluster=typing.cast(sagemaker.CfnCluster, template.get_resource("Cluster")))

        return of_stack(included)

    assert json.loads(flat(build({}).only("Custom::HyperPodScaleDown")["Groups"][0]))["InstanceCount"] == 2
    newer = build({}, NewerThanCdk={"Mode": "Enable"}).only("Custom::HyperPodScaleDown")
    assert json.loads(json.loads(flat(newer["Digest"]))["Overrides"]) == [["NewerThanCdk", {"Mode": "Enable"}]]
    with pytest.raises(
        RuntimeError, match=r"an override of InstanceGroups.0.NewerThanCdk .* \[guard-override-invisible\]"
    ):
        build({"NewerThanCdk": 1})


def test_a_cluster_name_changed_after_the_guard_was_made_is_an_error() -> None:
    def build(stack: Stack) -> None:
        guard(stack)._cluster.cluster_name = "other"

    assert codes_of(build) == [("guard-cluster-renamed", "cluster.cluster_name")]


def test_two_guards_in_a_stack_are_a_warning() -> None:
    app = new_app()
    stack, other = Stack(app, "Stack"), Stack(app, "Other")
    for number in range(2):
        ScaleDown(stack, f"ScaleDown{number}", cluster=cluster_in(stack, f"Cluster{number}"))
    guard(other)
    (warning,) = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("guards another cluster"))
    assert warning.id == "/Stack/ScaleDown1"
    text = str(warning.entry.data)
    assert text.startswith("Stack/ScaleDown0 ") and text.endswith(" [ack: cdk-hyperpod:two-guards]")
    assert not Annotations.from_stack(other).find_warning("*", Match.any_value())


def test_a_guard_in_a_nested_stack_is_another_one_of_its_parent() -> None:
    """The parent's update is over for all that is nested in it."""
    stack = Stack(new_app(), "Stack")
    guard(NestedStack(stack, "Nested"))
    guard(stack)
    (warning,) = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("guards another cluster"))
    text = str(warning.entry.data)
    assert text.startswith("Stack/Nested/ScaleDown ") and text.endswith(" [ack: cdk-hyperpod:two-guards]")


# -- what comes before the cluster ------------------------------------------------------------------------------------


def test_the_guard_has_every_dependency_of_the_cluster() -> None:
    """Else it could fail after nodes were taken, and before the cluster is told. Added before and after the guard, to the
    resource, to its node, and to a construct around it."""

    def build(stack: Stack) -> None:
        home = Construct(stack, "Home")
        cluster = sagemaker.CfnCluster(home, "Cluster", cluster_name="train", instance_groups=[group()])
        wanted = [CfnResource(stack, name, type="AWS::CloudFormation::WaitConditionHandle") for name in "ABCD"]
        CfnResource(outer := Construct(stack, "Outer"), "E", type="AWS::CloudFormation::WaitConditionHandle")
        cluster.node.add_dependency(wanted[0])
        cluster.add_resource_dependency(wanted[1])
        ScaleDown(stack, "ScaleDown", cluster=cluster)
        cluster.add_resource_dependency(wanted[2])
        cluster.node.add_dependency(outer)
        home.node.add_dependency(wanted[3])

    template = of_stack(build)
    cluster, prepare = (
        needs(template, template.only_id(kind)) for kind in ("AWS::SageMaker::Cluster", "Custom::HyperPodScaleDown")
    )
    assert cluster - prepare == {template.only_id("Custom::HyperPodScaleDown")}
    assert {"A", "B", "C", "D"} <= prepare and any(name.startswith("OuterE") for name in prepare)


# -- rights of a training plan ----------------------------------------------------------------------------------------

PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/winter"


def writing(template: Template) -> list[dict[str, Any]]:
    """The statements of what the functions may change."""
    (found,) = (
        item["PolicyDocument"]["Statement"]
        for item in template.properties("AWS::IAM::ManagedPolicy")
        if item["Description"].startswith("Writing")
    )
    return list(found)


def test_a_training_plan_brings_the_rights_that_sending_it_takes() -> None:
    """UpdateCluster is authorised on the plan and on its capacity as well; each plan stands there once."""

    def planned(number: int) -> dict[str, Any]:
        return {"instance_group_name": f"p5-{number}", "instance_type": "ml.p5.48xlarge", "training_plan_arn": PLAN}

    plain = of_stack(lambda stack: guard(stack))
    groups = [Group(execution_role=ROLE, instance_count=1, **planned(number)) for number in range(2)]
    using = of_stack(lambda stack: guard(stack, instance_groups=[*groups, group()]))
    assert not any("training-plan" in json.dumps(each) or "reserved" in json.dumps(each) for each in writing(plain))
    (added,) = (each for each in writing(using) if each not in writing(plain))
    plan, capacity = added["Resource"]
    assert (added["Action"], plan) == (["sagemaker:UpdateCluster"], PLAN)
    assert json.dumps(capacity).endswith(':reserved-capacity/*"]]}')


# -- what is told afterwards ------------------------------------------------------------------------------------------


def test_the_outputs_of_a_deployment_show_deleted_nodes_and_remaining_groups() -> None:
    """Both resources always have `Retry`, so that stacks of before call them, and get the attributes that the outputs read."""
    kinds = {"NodesTaken": "Custom::HyperPodScaleDown", "StillStanding": "Custom::HyperPodGroupRemoval"}
    for arguments, text in ({}, ""), ({"retry": "on Monday"}, "on Monday"):
        template = of_stack(lambda stack, given=arguments: guard(stack, dict(given)))  # type: ignore[misc]
        values = [output["Value"] for output in template.body["Outputs"].values()]
        assert values == [{"Fn::GetAtt": [template.only_id(kind), name]} for name, kind in kinds.items()]
        assert {template.only(kind)["Retry"] for kind in kinds.values()} == {text}
    assert refusals({"retry": "x" * 257}) == [("value-malformed", "scale_down.retry")]


def test_a_cluster_has_one_guard() -> None:
    stack = Stack()
    cluster = sagemaker.CfnCluster(stack, "Cluster", cluster_name="train", instance_groups=[group()])
    ScaleDown(stack, "First", cluster=cluster)

    with refused(("guard-duplicated", "cluster")):
        ScaleDown(stack, "Second", cluster=cluster)


def test_references_in_the_tags_of_a_nested_stack_reach_the_guard() -> None:
    """The cluster need not have the tag: CDK finds the reference at the guard alone."""
    app = new_app()
    outer = Stack(app, "Stack")
    nested = NestedStack(outer, "Nested")
    guard(nested)
    nested.tags.set_tag("topic", CfnResource(outer, "Topic", type="AWS::SNS::Topic").ref)
    (path,) = folder_of(app).glob("*Nested*.template.json")
    template = Template(json.loads(path.read_text("utf-8")))
    referred = {each["Ref"] for each in walk(template.body) if isinstance(each, dict) and "Ref" in each}
    assert referred - {"AWS::Partition", "AWS::AccountId", "AWS::Region", "AWS::StackId", "AWS::URLSuffix"} <= (
        template.resources.keys() | template.body["Parameters"].keys()
    )
