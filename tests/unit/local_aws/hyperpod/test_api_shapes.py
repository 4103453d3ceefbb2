"""Every operation's request and response against botocore's own model of the API."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from cdk_hyperpod_local.hyperpod import MUTATING, OPERATIONS, ApiError, Behaviour, HyperPod, ManualClock, Plan
from cdk_hyperpod_local.hyperpod.api_shapes import operation_model, request, response, service_model
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

Produced = dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]


def everything(behaviour: Behaviour) -> Produced:
    """Requests and responses of every operation, from a cluster's life with as many different members as possible."""
    produced: Produced = defaultdict(list)
    clock = ManualClock()
    hyperpod = HyperPod(clock=clock, behaviour=behaviour)

    def call(operation: str, **params: Any) -> dict[str, Any]:
        answer = hyperpod.call(operation, params)
        produced[operation].append((params, answer))
        return answer

    rich = group(
        "p5",
        3,
        minimum=2,
        node_type=None,
        ThreadsPerCore=2,
        InstanceStorageConfigs=[{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}],
        OnStartDeepHealthChecks=["InstanceStress"],
        TrainingPlanArn="arn:aws:sagemaker:us-west-2:000000000000:training-plan/plan",
        KubernetesConfig={"Labels": {"a": "b"}, "Taints": [{"Key": "k", "Value": "v", "Effect": "NoSchedule"}]},
        CapacityRequirements={"Spot": {}},
        NetworkInterface={"InterfaceType": "efa"},
        AutoPatchConfig={"PatchingStrategy": "WhenIdle", "PatchSchedule": {"NextPatchDate": 1.9e9}},
        ScheduledUpdateConfig={"ScheduleExpression": "cron(0 0 1 * ? *)"},
    )
    flexible = group("any", 2, node_type=None)
    del flexible["InstanceType"]
    flexible["InstanceRequirements"] = {"InstanceTypes": ["ml.p5.48xlarge", "ml.g6.48xlarge"]}
    arn = call(
        "CreateCluster", **eks(rich, flexible, NodeRecovery="Automatic", TieredStorageConfig={"Mode": "Enable"}),
        Tags=[{"Key": "a", "Value": "b"}], ClusterRole="arn:aws:iam::000000000000:role/r", AutoScaling={"Mode": "Enable"},
    )["ClusterArn"]  # fmt: skip
    call("CreateCluster", **slurm(group("cpu", 2, instance_type="ml.m5.large"), name="slurm", continuous=False))
    hyperpod.set_capacity("ml.p5.48xlarge", 5)
    for wait in (0, 30, 100, 700, 4_000, 20_000):
        clock.advance(wait)
        reads(call)
    call("ListTags", ResourceArn=arn)
    call("AddTags", ResourceArn=arn, Tags=[{"Key": "c", "Value": ""}])
    call("DeleteTags", ResourceArn=arn, TagKeys=["c"])
    call(
        "UpdateCluster",
        ClusterName="train",
        InstanceGroups=[rich | {"InstanceCount": 2}],
        InstanceGroupsToDelete=["any"],
    )
    (operation,) = call("ListClusterOperations", ClusterName="train")["ClusterOperationSummaries"]
    call("DescribeClusterOperation", ClusterName="train", OperationId=operation["OperationId"])
    reads(call)
    run_until_quiet(hyperpod)
    spare = [
        {"InstanceGroupName": "p5", "IncrementTargetCountBy": 9},
        {"InstanceGroupName": "x", "IncrementTargetCountBy": 1},
    ]
    call("BatchAddClusterNodes", ClusterName="train", NodesToAdd=spare)
    reads(call)
    nodes = hyperpod.nodes("train", "p5")
    ids = [node.instance_id for node in nodes if node.launched]
    waiting = [node.logical_id for node in nodes if not node.launched]
    gone = {"NodeIds": [ids[0], "i-00000000000000000"], "NodeLogicalIds": [waiting[0], "nobody"]}
    call("BatchDeleteClusterNodes", ClusterName="train", **gone)
    reads(call)
    call("BatchRebootClusterNodes", ClusterName="train", **gone | {"NodeIds": [ids[1], ids[0]]})
    call("BatchReplaceClusterNodes", ClusterName="slurm", NodeIds=[n.instance_id for n in hyperpod.nodes("slurm")])
    clock.advance(4_300)
    checks = [{"InstanceGroupName": "p5", "DeepHealthChecks": ["InstanceStress"]}]
    call("StartClusterHealthCheck", ClusterName="train", DeepHealthCheckConfigurations=checks)
    reads(call)
    run_until_quiet(hyperpod)
    call(
        "UpdateClusterSoftware",
        ClusterName="train",
        InstanceGroups=[{"InstanceGroupName": "p5", "ImageReleaseVersion": "9.9.9"}],
        DeploymentConfig={
            "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 50}},
            "WaitIntervalInSeconds": 60,
            "AutoRollbackConfiguration": [{"AlarmName": "nccl-errors"}],
        },
    )
    reads(call)
    clock.advance(100)
    reads(call)
    run_until_quiet(hyperpod)
    plan = "arn:aws:sagemaker:us-west-2:000000000000:training-plan/month"
    now = clock.now()
    hyperpod.set_plan(Plan(arn=plan, instance_type="ml.p5.48xlarge", total=8, available=8, zone="us-west-2a", start=now, end=now + 9e5))  # fmt: skip
    call("DescribeTrainingPlan", TrainingPlanName="month")
    call("ListTrainingPlans")
    call("DeleteCluster", ClusterName="train")
    reads(call)
    return produced


def reads(call: Any) -> None:
    call("ListClusters", MaxResults=1)
    for name in ("train", "slurm"):
        call("DescribeCluster", ClusterName=name)
        for logical in (False, True):
            shown = call("ListClusterNodes", ClusterName=name, IncludeNodeLogicalIds=logical)["ClusterNodeSummaries"]
            for node in shown:
                key = {"NodeLogicalId": node["NodeLogicalId"]} if logical and "NodeLogicalId" in node else None
                if key or node.get("InstanceId"):
                    call("DescribeClusterNode", ClusterName=name, **(key or {"NodeId": node["InstanceId"]}))
    for event in call("ListClusterEvents", ClusterName="train", MaxResults=20)["Events"]:
        call("DescribeClusterEvent", ClusterName="train", EventId=event["EventId"])


def problems(shape: Any, value: Any, path: str) -> Iterator[str]:
    """All differences between a response and its shape."""
    match shape.type_name:
        case "structure":
            yield from (f"{path}: no member {name}" for name in set(value) - set(shape.members))
            yield from (f"{path}: {name} is missing" for name in shape.required_members if name not in value)
            if shape.is_tagged_union and len(value) != 1:
                yield f"{path}: not exactly one member"
            for name, item in value.items():
                yield from problems(shape.members[name], item, f"{path}.{name}")
        case "list":
            yield from bounds(shape, len(value), path)
            for item in value:
                yield from problems(shape.member, item, f"{path}[]")
        case "map":
            for item in value.values():
                yield from problems(shape.value, item, f"{path}{{}}")
        case "timestamp":
            if not (isinstance(value, datetime.datetime) and value.tzinfo):
                yield f"{path}: {value!r} is no time"
        case "string":
            yield from bounds(shape, len(value), path)
            if "enum" in shape.metadata and value not in shape.metadata["enum"]:
                yield f"{path}: {value!r} is not in the enum"
            pattern = shape.metadata.get("pattern")
            if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
                yield f"{path}: {value!r} does not match {pattern}"
        case "boolean":
            if not isinstance(value, bool):
                yield f"{path}: {value!r} is no boolean"
        case _:
            yield from bounds(shape, value, path)


def bounds(shape: Any, size: int, path: str) -> Iterator[str]:
    if not shape.metadata.get("min", size) <= size <= shape.metadata.get("max", size):
        yield f"{path}: {size} is out of bounds"


@pytest.fixture(scope="module")
def produced() -> Produced:
    return everything(Behaviour(unlaunched_instance_id="empty"))


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_requests_and_responses_fit_the_api(produced: Produced, operation: str) -> None:
    assert operation in service_model().operation_names
    assert produced[operation], "the life above never calls it"
    model = operation_model(operation)
    for params, answer in produced[operation]:
        report = ParamValidator().validate(params, model.input_shape)
        assert not report.has_errors(), report.generate_report()
        if model.output_shape is None:
            assert answer == {}
        else:
            assert list(problems(model.output_shape, answer, operation)) == []


def test_the_life_above_shows_what_matters(produced: Produced) -> None:
    clusters = {answer["ClusterStatus"] for _, answer in produced["DescribeCluster"]}
    assert clusters == {"Creating", "InService", "SystemUpdating", "Deleting"}
    summaries = [node for _, answer in produced["ListClusterNodes"] for node in answer["ClusterNodeSummaries"]]
    assert {node["InstanceStatus"]["Status"] for node in summaries} == {
        "Pending", "Running", "ShuttingDown", "SystemUpdating", "DeepHealthCheckInProgress",
    }  # fmt: skip


def test_without_an_instance_only_the_instance_id_may_be_missing() -> None:
    model = operation_model("ListClusterNodes")
    found = {
        problem
        for _, answer in everything(Behaviour())["ListClusterNodes"]
        for problem in problems(model.output_shape, answer, "")
    }
    assert found == {".ClusterNodeSummaries[]: InstanceId is missing"}


def test_error_codes_are_declared_or_common() -> None:
    """`client.exceptions` has the modelled ones. ValidationException is not one of them, and NotFound has no suffix."""
    modelled = {shape.name for shape in service_model().error_shapes}
    assert {"ResourceNotFound", "ConflictException", "ResourceInUse", "ResourceLimitExceeded"} <= modelled
    assert "ValidationException" not in modelled


def test_every_operation_except_describe_and_list_is_mutating() -> None:
    assert set(OPERATIONS) >= MUTATING
    assert {name for name in OPERATIONS if name not in MUTATING} == {
        name for name in OPERATIONS if name.startswith(("Describe", "List"))
    }


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"Nme": "x"}, "DescribeCluster has no member"),
        ({"ClusterArn": 5}, "DescribeCluster.ClusterArn: 5 is no string"),
        ({"InstanceGroups": [{"CurrentCount": "5"}]}, "CurrentCount: '5' is no integer"),
    ],
)
def test_a_response_that_the_api_does_not_have_is_an_error_of_the_simulation(
    answer: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        response("DescribeCluster", answer)


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"ClusterName": 5}, "SerializationException", "'clusterName': int value cannot be read as string"),
        (
            {"ClusterName": "x", "MaxResults": "5"},
            "SerializationException",
            "'maxResults': str value cannot be read as integer",
        ),
        (
            {"ClusterName": "x", "CreationTimeAfter": "yesterday?"},
            "SerializationException",
            "cannot be read as timestamp",
        ),
        ({"ClusterName": "x", "SortBy": "SIZE"}, "ValidationException", r"enum value set: \[CREATION_TIME, NAME\]"),
        ({"MaxResults": 0}, "ValidationException", "2 validation errors detected"),
    ],
)
def test_requests_are_checked_as_the_service_does(params: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        request("ListClusterNodes", params)
    assert refused.value.code == code


def test_times_come_in_any_form() -> None:
    at = datetime.datetime(2026, 5, 27, tzinfo=datetime.UTC)
    for form in (at, at.timestamp(), int(at.timestamp()), "2026-05-27T00:00:00Z"):
        assert request("ListClusters", {"CreationTimeAfter": form}) == {"CreationTimeAfter": at.timestamp()}
