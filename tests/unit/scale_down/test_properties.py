"""What a deployment wants, and everything that can be wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Fixed
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import (
    FINALIZE,
    PREPARE,
    MalformedError,
    read_properties,
    spec_with,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider, ScaleDownError

ROLE = "arn:aws:iam::111122223333:role/node"
GROUP: dict[str, Any] = {
    "InstanceGroupName": "p5",
    "InstanceCount": 8,
    "MinInstanceCount": 4,
    "InstanceType": "ml.p5.48xlarge",
    "ExecutionRole": ROLE,
    "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["p5"]},
    "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-x/base", "OnCreate": "on_create.sh"},
}
VPC = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}


def properties(*groups: object, **more: object) -> dict[str, object]:
    texts = [group if isinstance(group, str) else json.dumps(group) for group in groups or (GROUP,)]
    return {"ServiceToken": "arn", "ClusterName": "train", "Groups": texts, **more}


def problems(values: object, kind: str = PREPARE) -> list[str]:
    with pytest.raises(MalformedError) as caught:
        read_properties(values, kind=kind)
    return list(caught.value.problems)


def test_scalars_arrive_as_text() -> None:
    text = json.dumps({**GROUP, "InstanceCount": "8", "MinInstanceCount": "4", "ThreadsPerCore": "1"})
    found = read_properties(properties(text, MaxNodes="30", ServiceTimeout="3600"), kind=PREPARE)
    (group,) = found.groups
    assert (group.count, group.minimum, group.fixed.threads_per_core, found.max_nodes) == (8, 4, 1, 30)
    assert group.spec["ThreadsPerCore"] == 1


@pytest.mark.parametrize("name", ["a", "a" * 63, "a-" * 31 + "a"])
def test_names_may_be_as_long_as_hyperpod_takes_them(name: str) -> None:
    found = read_properties(properties(GROUP | {"InstanceGroupName": name}, ClusterName=name), kind=PREPARE)
    assert (found.cluster, found.groups[0].name) == (name, name)


def test_absent_properties_have_their_defaults() -> None:
    found = read_properties(properties(), kind=PREPARE)
    assert (found.nodes_to_delete, found.groups_to_delete, found.max_nodes) == ((), (), 16)
    assert (found.network, found.eks_cluster, found.create_only) == (None, None, "")


def test_create_only_is_vpc_and_eks_alone() -> None:
    def read(orchestrator: object) -> str:
        text = json.dumps({"VpcConfig": VPC, "Orchestrator": orchestrator})
        return read_properties(properties(CreateOnly=text), kind=PREPARE).create_only

    assert read({"Slurm": {}}) == read({"Slurm": {"SlurmConfigStrategy": "Managed"}})
    assert read({"Slurm": {}}) != read({"Eks": {"ClusterArn": "arn"}})


def test_any_other_change_of_the_cluster_is_seen() -> None:
    def read(**more: object) -> Any:
        return read_properties(properties(**more), kind=PREPARE)

    one = read(Digest="a", CreateOnly=json.dumps({"Orchestrator": {"Slurm": {}}}))
    assert one.same_cluster(read(Digest="a", CreateOnly=json.dumps({"Orchestrator": {"Slurm": {}}}), MaxNodes="1"))
    assert not one.same_cluster(read(Digest="b", CreateOnly=json.dumps({"Orchestrator": {"Slurm": {}}})))
    assert not one.same_cluster(read(Digest="a", CreateOnly=json.dumps({"Orchestrator": {"Slurm": {"x": 1}}})))


def test_specification_keeps_everything_and_sets_its_counts() -> None:
    spec = {**GROUP, "OnStartDeepHealthChecks": ["InstanceStress"], "CurrentCount": 7}
    (group,) = read_properties(properties(spec), kind=PREPARE).groups
    sent = spec_with(group, count=5, minimum=2)
    expected = {**spec, "InstanceCount": 5, "MinInstanceCount": 2}
    del expected["CurrentCount"]
    assert sent == expected


def test_a_flexible_group_is_read_with_its_instance_types() -> None:
    spec = {key: value for key, value in GROUP.items() if key != "InstanceType"}
    spec["InstanceRequirements"] = {"InstanceTypes": ["ml.a", "ml.b"]}
    (group,) = read_properties(properties(spec), kind=PREPARE).groups
    assert group.fixed == Fixed(
        instance_types=("ml.a", "ml.b"), flexible=True, node_type="Compute", execution_role=ROLE
    )


@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
def test_the_retry_property_changes_nothing(kind: str) -> None:
    """It only makes CloudFormation call."""
    assert read_properties(properties(Retry="x" * 256), kind=kind) == read_properties(properties(), kind=kind)


BAD: list[tuple[object, str]] = [
    (properties(PatchingOff="none"), "PatchingOff"),
    (properties(PatchingOff='{"AutoPatch": ["p5"]}'), "PatchingOff.AutoPatch"),
    (properties(PatchingOff='{"AutoPatchConfig": "p5"}'), "PatchingOff.AutoPatchConfig"),
    (properties(Retry="x" * 257), "Retry"),
    (properties(Retry=["x"]), "Retry"),
    (None, "ResourceProperties"),
    (properties(NodeToDelete=[]), "NodeToDelete"),
    (properties(ClusterName="-x"), "ClusterName"),
    (properties(ClusterName="a-" * 39 + "a"), "ClusterName"),
    (properties(Groups=[]), "Groups"),
    (properties(Groups="x"), "Groups"),
    (properties("{"), "Groups[0]"),
    (properties("[]"), "Groups[0]"),
    (properties(GROUP, GROUP), "Groups"),
    (
        properties({**GROUP, "InstanceCount": -1}),
        "Groups[0].InstanceCount",
    ),
    (
        properties({**GROUP, "InstanceCount": True}),
        "Groups[0].InstanceCount",
    ),
    (
        properties({**GROUP, "MinInstanceCount": 9}),
        "Groups[0].MinInstanceCount",
    ),
    (
        properties({**GROUP, "ExecutionRole": None}),
        "Groups[0].ExecutionRole",
    ),
    (
        properties({**GROUP, "InstanceType": None}),
        "Groups[0]",
    ),
    (
        properties({**GROUP, "InstanceRequirements": {"InstanceTypes": ["ml.a"]}}),
        "Groups[0]",
    ),
    (
        properties({**GROUP, "SlurmConfig": "Compute"}),
        "Groups[0].SlurmConfig",
    ),
    (
        properties({**GROUP, "ThreadsPerCore": 3}),
        "Groups[0].ThreadsPerCore",
    ),
    (
        properties({**GROUP, "OverrideVpcConfig": {"Subnets": "subnet-1"}}),
        "Groups[0].OverrideVpcConfig.Subnets",
    ),
    (
        properties(NodesToDelete=["i-xyz"]),
        "NodesToDelete[0]",
    ),
    (properties(NodesToDelete="i-0123456789abcdef0"), "NodesToDelete"),
    (
        properties(InstanceGroupsToDelete=[7]),
        "InstanceGroupsToDelete[0]",
    ),
    (properties(MaxNodes="many"), "MaxNodes"),
    (properties(MaxNodes="99999999999"), "MaxNodes"),
    (properties(AutoscaledGroups=["other"]), "AutoscaledGroups"),
    (properties(CreateOnly="{"), "CreateOnly"),
    (
        properties(CreateOnly=json.dumps({"Orchestrator": {"Eks": "arn"}})),
        "CreateOnly.Orchestrator.Eks",
    ),
    (
        properties(CreateOnly=json.dumps({"Orchestrator": {"Eks": {"ClusterArn": 7}}})),
        "CreateOnly.Orchestrator.Eks.ClusterArn",
    ),
    (
        properties(CreateOnly=json.dumps({"Vpc": {}})),
        "CreateOnly.Vpc",
    ),
    (
        properties(CreateOnly=json.dumps({"VpcConfig": {"SecurityGroupIds": 1}})),
        "CreateOnly.VpcConfig.SecurityGroupIds",
    ),
    (
        properties({**GROUP, "SlurmConfig": {"NodeType": "Worker"}}),
        "Groups[0].SlurmConfig.NodeType",
    ),
    (
        properties({**GROUP, "ExecutionRole": "node"}),
        "Groups[0].ExecutionRole",
    ),
    (
        properties({**GROUP, "InstanceCount": 8.0}),
        "Groups[0].InstanceCount",
    ),
    (
        properties({**GROUP, "InstanceGroupName": None}),
        "Groups[0].InstanceGroupName",
    ),
    (
        properties({**GROUP, "InstanceRequirements": []}),
        "Groups[0].InstanceRequirements",
    ),
    (properties(AutoscaledGroups="p5"), "AutoscaledGroups"),
    (properties(AutoscaledGroups=[{}]), "AutoscaledGroups[0]"),
    (properties("[" * 100_000), "Groups[0]"),
    (properties('{"a":' * 100_000), "Groups[0]"),
]


@pytest.mark.parametrize(("values", "path"), BAD)
def test_an_invalid_property_is_reported_with_its_path(values: object, path: str) -> None:
    (only,) = problems(values)
    assert only.startswith(f"{path}: ")


@pytest.mark.parametrize("request_type", ["Create", "Update"])
@pytest.mark.parametrize(("values", "path"), BAD)
def test_bad_property_is_refused_before_anything_is_called(values: object, path: str, request_type: str) -> None:
    """Also where somebody uses the resource by hand, with whatever it was before."""

    def nothing() -> Any:
        raise AssertionError("called")

    class Stacks:
        def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
            return {"Stacks": [{"StackStatus": "UPDATE_IN_PROGRESS"}]}

        def describe_stack_events(self, *, StackName: str, NextToken: str = "") -> dict[str, Any]:
            raise AssertionError("nothing rolls back")

        def get_template(self, *, StackName: str) -> dict[str, Any]:
            raise AssertionError("the events have all")

    event = {
        "RequestType": request_type,
        "ResourceType": PREPARE,
        "StackId": "stack",
        "ResourceProperties": values,
        "OldResourceProperties": values,
    }
    with pytest.raises(ScaleDownError) as caught:
        Provider(nothing, Stacks, s3=nothing, functions=nothing, sleep=lambda _: None, log=lambda _: None).on_event(
            event
        )
    text = str(caught.value)
    assert text.startswith(f"The properties of {PREPARE} are invalid")
    assert f"[scale-down-properties-invalid]. {path}: " in text
    assert "\n" not in text and len(text) <= 1_000


def test_all_problems_at_once() -> None:
    found = problems({"ClusterName": 7, "Groups": ["{"], "MaxNodes": "-1", "Other": ""})
    assert [problem.split(":")[0] for problem in found] == ["Other", "ClusterName", "Groups[0]", "MaxNodes"]


def test_finalize_refuses_the_properties_of_prepare() -> None:
    (only,) = problems(properties(CreateOnly="{}"), FINALIZE)
    assert only.startswith("CreateOnly: ") and FINALIZE in only


@pytest.mark.parametrize("minutes", [0, 31, -1, True, 1.5])
def test_draining_takes_one_to_thirty_minutes(minutes: object) -> None:
    told = {"Bucket": "drains", "OnTimeout": "fail", "OnSilent": "fail", "MustBeSaved": True}
    assert problems(properties(Drain=json.dumps({**told, "TimeoutMinutes": minutes}))) == [
        f"Drain.TimeoutMinutes: must be a whole number from 1 to 30, got {json.dumps(minutes)}"
    ]


FUNCTION = "arn:aws:lambda:us-west-2:111122223333:function:hyperpod-train-drainer"


def drained(**told: object) -> str:
    return json.dumps(
        {"TimeoutMinutes": 25, "OnTimeout": "fail", "OnSilent": "fail", "MustBeSaved": True, **told}, sort_keys=True
    )


def test_draining_is_by_a_bucket_or_a_function() -> None:
    drain = read_properties(properties(Drain=drained(Function=FUNCTION)), kind=PREPARE).drain
    assert drain is not None
    assert (drain.function, drain.bucket) == (FUNCTION, "")
    assert problems(properties(Drain=drained(Function=FUNCTION, Bucket="drains"))) == [
        "Drain: has both Bucket, which is for Slurm, and Function, which is for EKS; keep one"
    ]
    for wrong in ("hyperpod-train-drainer", f"{FUNCTION}:1", 7):
        assert problems(properties(Drain=drained(Function=wrong))) == [
            f"Drain.Function: must be a function's ARN, got {json.dumps(wrong)}"
        ]


def test_groups_that_turn_patching_off() -> None:
    off = read_properties(properties(PatchingOff='{"AutoPatchConfig": ["p5"]}'), kind=FINALIZE).patching_off
    assert off == {"AutoPatchConfig": frozenset({"p5"}), "ScheduledUpdateConfig": frozenset()}
