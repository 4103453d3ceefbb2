"""What is for life does not change, and nothing has changed when that is said; the stacks of yesterday get the guard."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.cdk import Result
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import STANDING, small
from helpers.deployments.steps import Step, settle
from helpers.findings import codes
from helpers.local_aws.rehearsal import Rehearsal, resized, taking

Json = Any
BEFORE = Path(__file__).with_name("before_the_guard")
"""The templates of `small("upgrade")`, as the app made them before it had this guard (commit 9e73e18)."""


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


def as_it_was(assembly: Path) -> Path:
    """The assembly with the templates of before, in a copy; their code is today's, which is all that is published."""
    assembly = shutil.copytree(assembly, assembly.with_name("as-it-was"))
    for path in sorted(BEFORE.glob("*.template.json")):
        old = json.loads(path.read_text("utf-8"))

        def edit(template: Json, old: Json = old) -> None:
            today = template["Resources"]
            for name, resource in old["Resources"].items():
                properties = resource.get("Properties", {})
                properties.update(
                    {key: today[name]["Properties"][key] for key in ("Code", "Handler") if key in properties}
                )
            template.clear()
            template.update(old)

        assemblies.edit_template(assembly, path.name.removesuffix(".template.json"), edit)
    return assembly


def test_stacks_of_before_get_the_guard_and_keep_everything(engine: LocalAws, tmp_path: Path) -> None:
    """First with a change that it refuses, which leaves them as they were; then with one that takes a node."""
    life = Rehearsal(engine, tmp_path, small("upgrade"))
    made = life.cdk.deploy(as_it_was(life.synth()), seconds=300)
    assert made.ok, made.reason
    settle(life)
    before, named = standing(engine), list(life.nodes("p5"))[1]
    is_refused(life, life.deploy(moved(small("upgrade"))), ("zone-immutable", "network.availability_zones"))
    assert standing(engine) == before
    step = Step(life)
    made = life.deploy(taking(resized(small("upgrade"), "p5", 1), nodes=[named]))
    assert made.ok, made.reason
    assert step.ended() == {named: "named"}, "the cluster's own guard was called as before"
    assert step.callers("BatchDeleteClusterNodes") == ["ScaleDown"]
    assert standing(engine) == before
    assert life.ended(at_random=True) == []
    physical = engine.client("cloudformation").list_stack_resources(StackName=life.foundation)["StackResourceSummaries"]
    assert "hyperpod-foundation-guard" in {resource["PhysicalResourceId"] for resource in physical}
