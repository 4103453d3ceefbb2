"""A new version of the library on a cluster that the previous one deployed: no node is deleted, and nothing is replaced.

previous_wheel/ has what the previous version synthesizes from previous_wheel/cluster.yaml. VERSION names its commit. There is no
release yet, so that commit stands for one. After a release, tools/pack_previous.py packs that release.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod_local import environment
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.steps import Step, settle
from helpers.local_aws.rehearsal import Rehearsal

pytestmark = pytest.mark.slow
Json = Any
PREVIOUS = Path(__file__).with_name("previous_wheel")
FILE = PREVIOUS / "cluster.yaml"


def unpacked(folder: Path, today: Path) -> Path:
    """The previous version's assembly, with the layers that CDK's own packages bring from `today`'s."""
    with tarfile.open(PREVIOUS / "assembly.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    layers = {asset["displayName"]: today / asset["source"]["path"] for asset in assets(today)}
    for asset in assets(folder):
        path = folder / asset["source"]["path"]
        if not path.exists():
            shutil.copy(layers[asset["displayName"]], path)
    return folder


def assets(assembly: Path) -> list[Json]:
    manifests = [json.loads(path.read_text("utf-8")) for path in assembly.glob("*.assets.json")]
    return [asset for manifest in manifests for asset in manifest["files"].values()]


def physical_ids(life: Rehearsal) -> dict[tuple[str, str], str]:
    """Of the resources of both stacks, by stack and logical id. IAM replaces a policy whose description changes."""
    pages = life.aws.client("cloudformation").get_paginator("list_stack_resources")
    return {
        (stack, resource["LogicalResourceId"]): resource["PhysicalResourceId"]
        for stack in (life.foundation, life.cluster)
        for page in pages.paginate(StackName=stack)
        for resource in page["StackResourceSummaries"]
        if resource["ResourceType"] != "AWS::IAM::ManagedPolicy"
    }


def test_a_new_version_keeps_every_node_and_every_resource(engine: LocalAws, tmp_path: Path) -> None:
    life = Rehearsal(engine, tmp_path, yaml.safe_load(FILE.read_text("utf-8")))
    today = life.synth()
    made = life.cdk.deploy(unpacked(tmp_path / "previous", today), seconds=300)
    assert made.ok, made.reason
    settle(life)
    nodes, resources = life.nodes(), physical_ids(life)
    assert len(nodes) == 4
    step = Step(life)

    shell = environment.complete(engine.place, region=engine.region, account=engine.account)
    plan = [str(Path(sys.executable).with_name("cdk-hyperpod")), "plan", "--config", str(FILE)]
    assert subprocess.run(plan, env=shell, check=False).returncode == 0, "nodes would be deleted"

    made = life.deploy()
    assert made.ok, made.reason
    settle(life)
    assert (step.ended(), life.nodes()) == ({}, nodes)
    assert not {"BatchDeleteClusterNodes", "DeleteCluster"} & set(step.calls())
    after = physical_ids(life)
    assert {name: after.get(name) for name in resources} == resources, "a resource was replaced or deleted"
