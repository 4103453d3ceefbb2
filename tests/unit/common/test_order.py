"""What comes before the guard deletes nodes and groups: the rest of the stack, so that its failure costs none."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import jsii
import pytest
from aws_cdk import Aspects, CfnCondition, CfnResource, Fn, IAspect, NestedStack, Stack
from aws_cdk.assertions import Annotations, Match
from constructs import Construct, IConstruct

from cdk_hyperpod import ScaleDown
from cdk_hyperpod._common.order import order_around, order_before
from helpers.guard.clusters import cluster_in, guard
from helpers.synthesis import Template, folder_of, needs, new_app, of_stack

PREPARE, CLUSTER, FINALIZE = "Custom::HyperPodScaleDown", "AWS::SageMaker::Cluster", "Custom::HyperPodGroupRemoval"


def topic(scope: Construct, name: str, **properties: Any) -> CfnResource:
    return CfnResource(scope, name, type="AWS::SNS::Topic", properties=properties)


def before(template: Template, kind: str) -> set[str]:
    return needs(template, template.only_id(kind))


def warnings_of(build: Callable[[Stack], object]) -> list[str]:
    stack = Stack(new_app(), "Stack")
    build(stack)
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("cannot come before"))
    return [str(each.entry.data) for each in found]


@jsii.implements(IAspect)
class Adds:
    """A company's aspect that gives each stack a topic."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, Stack) and node.node.try_find_child("Late") is None:
            topic(node, "Late")


def test_nodes_go_after_everything_that_does_not_need_the_cluster_and_groups_after_everything() -> None:
    def build(stack: Stack) -> None:
        topic(stack, "Early")
        made = guard(stack)
        topic(Construct(stack, "Home"), "Topic")
        topic(stack, "Named", TopicName=made._cluster.attr_cluster_arn)
        topic(stack, "Substituted", TopicName=Fn.sub("of ${ScaleDown}", {"ScaleDown": made._cluster.ref}))
        topic(stack, "Told").add_resource_dependency(made._cluster)
        topic(stack, "AfterThat").node.add_dependency(stack.node.find_child("Told"))
        Aspects.of(stack).add(Adds())

    template = of_stack(build)
    first, last = before(template, PREPARE), before(template, FINALIZE)
    late = {"Named", "Substituted", "Told", "AfterThat"}
    assert {"Early", "Late"} <= first
    assert any(name.startswith("HomeTopic") for name in first)
    assert first.isdisjoint(late)
    assert last == template.resources.keys() - {template.only_id(FINALIZE)}
    assert warnings_of(build) == []


def test_a_nested_stack_comes_before_unless_it_needs_the_cluster() -> None:
    def build(stack: Stack) -> None:
        made = guard(stack)
        topic(NestedStack(stack, "Free"), "Topic")
        topic(NestedStack(stack, "Bound"), "Topic", TopicName=made._cluster.attr_cluster_arn)

    template = of_stack(build)
    nested = {name.split("Nested")[0]: name for name in template.of("AWS::CloudFormation::Stack")}
    first, last = before(template, PREPARE), before(template, FINALIZE)
    assert nested["Free"] in first
    assert nested["Bound"] in last - first


def test_a_guard_in_a_nested_stack_comes_after_its_parent_s_resources() -> None:
    app = new_app()
    outer = Stack(app, "Stack")
    nested = NestedStack(outer, "Nested")
    made = guard(nested)
    topic(nested, "Inside")
    topic(outer, "Free")
    topic(outer, "Bound", TopicName=made._cluster.attr_cluster_arn)
    folder = folder_of(app)
    template = Template(json.loads((folder / "Stack.template.json").read_text("utf-8")))
    inside = Template(json.loads(next(folder.glob("*Nested*.template.json")).read_text("utf-8")))
    assert before(template, "AWS::CloudFormation::Stack") >= {"Free"}
    assert before(inside, PREPARE) >= {"Inside"}
    (warning,) = Annotations.from_stack(outer).find_warning("*", Match.string_like_regexp("cannot come before"))
    assert str(warning.entry.data).startswith("Bound cannot come before ScaleDown; ")


@pytest.mark.parametrize(
    "waits",
    [
        lambda stack, made: topic(stack, "X").node.add_dependency(made.prepare),
        lambda stack, made: topic(stack, "X", TopicName=made.finalize.ref),
        lambda stack, made: topic(stack, "X").node.add_dependency(made),
        lambda stack, _: CfnResource(stack, "X", type="AWS::CloudFormation::WaitCondition"),
    ],
)
def test_a_resource_that_cannot_be_ordered_is_named_in_a_warning(waits: Callable[[Stack, ScaleDown], object]) -> None:
    (warning,) = warnings_of(lambda stack: waits(stack, guard(stack)))
    assert warning.startswith("X ") and warning.endswith(" [ack: cdk-hyperpod:unordered]")


def test_two_guards_in_a_stack_make_no_circle() -> None:
    def build(stack: Stack) -> None:
        for number in range(2):
            ScaleDown(stack, f"ScaleDown{number}", cluster=cluster_in(stack, f"Cluster{number}"))

    template = of_stack(build)
    assert not any(name in needs(template, name) for name in template.resources)


def test_a_condition_that_is_false_leaves_the_order_as_it_is() -> None:
    """What a resource that is left out waits for is named besides."""

    def build(stack: Stack) -> None:
        guard(stack)
        first, last = topic(stack, "First"), topic(stack, "Last")
        last.add_resource_dependency(first)
        last.cfn_options.condition = CfnCondition(stack, "Never", expression=Fn.condition_equals("a", "b"))

    template = of_stack(build)
    assert {"First", "Last"} <= set(template.resources[template.only_id(PREPARE)]["DependsOn"])


# -- templates as text ------------------------------------------------------------------------------------------------


def resources(**others: Any) -> dict[str, Any]:
    guarded = {"Prepare": {}, "Cluster": {"DependsOn": "Prepare"}, "Finalize": {"DependsOn": ["Cluster"]}}
    return {**guarded, **others}


def around(**others: Any) -> tuple[list[str], list[str], list[str]]:
    found = order_around(resources(**others), prepare="Prepare", cluster="Cluster", finalize="Finalize")
    return found.prepare, found.finalize, found.unordered


@pytest.mark.parametrize(
    "reference",
    [
        {"Ref": "Cluster"},
        {"Fn::GetAtt": ["Cluster", "ClusterArn"]},
        {"Fn::GetAtt": "Cluster.ClusterArn"},
        {"Fn::Sub": "${Cluster}"},
        {"Fn::Sub": "${Cluster.ClusterArn}"},
        {"Fn::Sub": ["${name}", {"name": {"Ref": "Cluster"}}]},
        {"Fn::If": ["Never", {"Fn::Join": ["", ["a", {"Ref": "Cluster"}]]}, "b"]},
    ],
)
def test_each_way_to_name_the_cluster_is_seen(reference: Any) -> None:
    assert around(X={"Properties": {"Name": reference}}) == ([], ["X"], [])


def test_only_what_is_not_waited_for_anyway_is_added() -> None:
    chain = {"A": {}, "B": {"DependsOn": ["A"]}, "C": {"Properties": {"Name": {"Ref": "B"}}}}
    assert around(**chain) == (["C"], [], [])


def test_a_macro_cannot_be_ordered() -> None:
    assert around(**{"Fn::ForEach::Topics": ["Name", ["A"], {}]}) == ([], [], ["Fn::ForEach::Topics"])


@pytest.mark.parametrize(
    "odd", [{"Ref": {"no": "name"}}, {"DependsOn": [{}]}, {"Fn::GetAtt": []}, {"Fn::Sub": 1}, None]
)
def test_malformed_references_name_no_resource(odd: Any) -> None:
    assert around(X={"Properties": odd}) == (["X"], [], [])


def test_no_order_makes_a_circle() -> None:
    """All ways in which three resources wait for each other and for the guard."""
    names = ["A", "B", "C"]
    possible = [
        [(), ("Prepare",), ("Cluster",), ("Finalize",)],
        [(), ("A",), ("Cluster",), ("A", "Prepare")],
        [(), ("A",), ("B",), ("A", "B"), ("Finalize",)],
    ]
    for waits, needed in itertools.product(itertools.product(*possible), [None, *names]):
        others = {name: {"DependsOn": list(each)} for name, each in zip(names, waits, strict=True)}
        stack = resources(**others)
        if needed and not any(set(each) & {"Prepare", "Cluster", "Finalize"} for each in waits):
            stack["Cluster"]["DependsOn"] = ["Prepare", needed]
        made = order_around(stack, prepare="Prepare", cluster="Cluster", finalize="Finalize")
        for name, added in (("Prepare", made.prepare), ("Finalize", made.finalize)):
            said = stack[name].get("DependsOn", [])
            stack[name]["DependsOn"] = [*([said] if isinstance(said, str) else said), *added]
        template = Template({"Resources": stack})
        assert not any(name in needs(template, name) for name in stack), stack
        for name in names:
            ordered = name in needs(template, "Finalize") or name in made.unordered
            assert ordered, (name, stack)


def test_order_before_names_the_rest() -> None:
    stack = {"Nested": {}, "Free": {}, "Bound": {"Properties": {"Name": {"Fn::GetAtt": ["Nested", "Outputs.Arn"]}}}}
    assert order_before(stack, "Nested") == (["Free"], ["Bound"])
