"""Settings that cannot change after creation are refused before any stack changes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from cdk_hyperpod_local.cdk import Result
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import STANDING
from helpers.deployments.steps import Step
from helpers.findings import codes
from helpers.local_aws.rehearsal import Rehearsal

Json = Any


def moved(config: Json) -> Json:
    return {**deepcopy(config), "network": {"availability_zones": ["us-west-2a"]}}


def standing(aws: LocalAws) -> Json:
    """Every file system, VPC and subnet."""
    ec2 = aws.client("ec2")
    return {
        "file systems": {item["FileSystemId"] for item in aws.client("fsx").describe_file_systems()["FileSystems"]},
        "VPCs": {item["VpcId"] for item in ec2.describe_vpcs()["Vpcs"]},
        "subnets": {item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]},
    }


def is_refused(life: Rehearsal, failed: Result, *expected: tuple[str, str]) -> None:
    """`expected`: code and path of each refusal."""
    assert not failed.ok
    reason = " ".join(failed.reason.split())
    assert f"Changing the foundation of {life.name} was refused, and no stack was changed." in reason
    assert list(dict.fromkeys(codes(reason))) == [code for code, _ in expected]
    assert all(f". {path}: " in reason for _, path in expected)
    assert life.status(life.foundation) == "UPDATE_ROLLBACK_COMPLETE"


def test_another_first_zone_and_another_file_system_are_refused(life: Rehearsal) -> None:
    """Before a second file system is made; the file put back deploys as if nothing had been."""
    before, nodes, step = standing(life.aws), life.nodes(), Step(life)
    cluster_stack = life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"]
    wanted = moved(STANDING)
    wanted["storage"]["efa"] = True
    is_refused(
        life,
        life.deploy(wanted),
        ("zone-immutable", "network.availability_zones"),
        ("file-system-efa-immutable", "storage.efa"),
    )
    assert life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"] == cluster_stack
    assert (standing(life.aws), step.calls(), life.nodes()) == (before, {}, nodes)
    back = life.deploy({**STANDING, "tags": {"put": "back"}})
    assert back.ok, back.reason
    assert (standing(life.aws), step.ended(), life.nodes()) == (before, {}, nodes)
