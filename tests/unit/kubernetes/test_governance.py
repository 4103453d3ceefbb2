"""Task governance: properties that CloudFormation's own schema accepts, and what is refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cdk_hyperpod.config.governance import TaskClass, TaskGovernance
from cdk_hyperpod.config.teams import AcceleratorPartition, Share, Team
from cdk_hyperpod.kubernetes.governance import compute_quota_properties, scheduler_properties
from cdk_hyperpod.rules.governance import check_task_governance
from helpers.findings import found
from helpers.kubernetes.samples import BORROWER, NEURON, RESEARCH

ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghij01"
POLICY = TaskGovernance(
    priority_classes=(TaskClass(name="inference", weight=90), TaskClass(name="training", weight=50)), fair_share=False
)


@cache
def schema_of(type_name: str) -> dict[str, Any]:
    """CloudFormation's registry schema of a type, as cfn-lint ships it."""
    import cfnlint  # type: ignore[import-untyped]

    for file in (Path(cfnlint.__file__).parent / "data" / "schemas" / "resources").glob("*.json"):
        if f'"{type_name}"' in (text := file.read_text("utf-8")):
            schema: dict[str, Any] = json.loads(text, object_hook=readable)
            if schema.get("typeName") == type_name:
                kept = {"properties", "definitions", "required"}
                return {key: schema[key] for key in kept} | {"additionalProperties": False}
    raise LookupError(type_name)


def readable(part: dict[str, Any]) -> dict[str, Any]:
    """Without the patterns that Python cannot read; they are those of descriptions and tags."""
    return {key: value for key, value in part.items() if not (key == "pattern" and "\\p{" in str(value))}


def check(type_name: str, properties: dict[str, Any]) -> None:
    jsonschema.validate(properties, schema_of(type_name))


@pytest.mark.parametrize("team", [RESEARCH, NEURON, BORROWER], ids=lambda team: team.name)
def test_cloudformation_accepts_a_compute_quota(team: Any) -> None:
    check("AWS::SageMaker::ComputeQuota", compute_quota_properties(team, cluster_arn=ARN))


@pytest.mark.parametrize("policy", [TaskGovernance(), POLICY], ids=["default", "all"])
def test_cloudformation_accepts_a_scheduler_config(policy: TaskGovernance) -> None:
    check("AWS::SageMaker::ClusterSchedulerConfig", scheduler_properties(policy, name="llm-train", cluster_arn=ARN))


def test_cloudformation_refuses_what_is_not_there() -> None:
    """Otherwise the tests above would prove nothing."""
    with pytest.raises(jsonschema.ValidationError, match="Additional properties are not allowed"):
        check("AWS::SageMaker::ComputeQuota", compute_quota_properties(RESEARCH, cluster_arn=ARN) | {"Team": "x"})


def test_a_team_becomes_a_compute_quota() -> None:
    assert compute_quota_properties(BORROWER, cluster_arn=ARN) == {
        "Name": "borrower",
        "ClusterArn": ARN,
        "ComputeQuotaConfig": {
            "ComputeQuotaResources": [
                {"InstanceType": "ml.p5.48xlarge", "Count": 2},
                {"InstanceType": "ml.g6.12xlarge", "Count": 3},
            ],
            "ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 50},
        },
        "ComputeQuotaTarget": {"TeamName": "borrower", "FairShareWeight": 0},
        "ActivationState": "Enabled",
    }


PARTS = Team(
    name="parts",
    quota={
        "ml.p5.48xlarge": Share(accelerators=4),
        "ml.m5.4xlarge": Share(vcpus=8, memory_gib=20),
        "ml.p4d.24xlarge": Share(accelerator_partition=AcceleratorPartition(type="mig-1g.5gb", count=14)),
    },
    lend=False,
    preempt_team_tasks="never",
)


def test_a_compute_quota_of_parts_of_nodes() -> None:
    properties = compute_quota_properties(PARTS, cluster_arn=ARN)
    check("AWS::SageMaker::ComputeQuota", properties)
    assert properties["ComputeQuotaConfig"] == {
        "ComputeQuotaResources": [
            {"InstanceType": "ml.p5.48xlarge", "Accelerators": 4},
            {"InstanceType": "ml.m5.4xlarge", "VCpu": 8, "MemoryInGiB": 20},
            {"InstanceType": "ml.p4d.24xlarge", "AcceleratorPartition": {"Type": "mig-1g.5gb", "Count": 14}},
        ],
        "ResourceSharingConfig": {"Strategy": "DontLend"},
        "PreemptTeamTasks": "Never",
    }


def test_a_team_may_borrow_parts_of_nodes() -> None:
    team = Team(name="t", quota={"ml.p5.48xlarge": 1}, absolute_borrow_limits={"ml.p5.48xlarge": Share(accelerators=2)})
    properties = compute_quota_properties(team, cluster_arn=ARN)
    check("AWS::SageMaker::ComputeQuota", properties)
    limits = properties["ComputeQuotaConfig"]["ResourceSharingConfig"]["AbsoluteBorrowLimits"]
    assert limits == [{"InstanceType": "ml.p5.48xlarge", "Accelerators": 2}]


def test_a_policy_becomes_a_scheduler_config() -> None:
    assert scheduler_properties(POLICY, name="llm-train", cluster_arn=ARN) == {
        "Name": "llm-train",
        "ClusterArn": ARN,
        "SchedulerConfig": {
            "FairShare": "Disabled",
            "IdleResourceSharing": "Disabled",
            "PriorityClasses": [{"Name": "inference", "Weight": 90}, {"Name": "training", "Weight": 50}],
        },
    }


CLASSES = "task_governance.priority_classes"


@pytest.mark.parametrize(
    ("classes", "code", "path"),
    [
        pytest.param([("Training", 1)], "value-malformed", f"{CLASSES}[Training].name", id="name"),
        pytest.param([("training", 101)], "value-out-of-range", f"{CLASSES}[training].weight", id="weight"),
        pytest.param([("a", 1), ("a", 2)], "priority-class-duplicated", CLASSES, id="name twice"),
        pytest.param([(f"c{n}", n) for n in range(11)], "priority-classes-too-many", CLASSES, id="too many"),
    ],
)
def test_a_policy_that_is_refused(classes: list[tuple[str, int]], code: str, path: str) -> None:
    policy = TaskGovernance(priority_classes=tuple(TaskClass(name=name, weight=weight) for name, weight in classes))
    assert found(check_task_governance(policy)) == [(code, path)]


def test_a_policy_that_is_fine() -> None:
    assert not [*check_task_governance(POLICY)]
