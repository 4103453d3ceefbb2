"""A new version of the library on a cluster that the previous one deployed: no node is deleted, and nothing is replaced.

previous_wheel/ has what the previous version synthesizes from previous_wheel/cluster.yaml. VERSION names its commit. There is no
release yet, so that commit stands for one. After a release, tools/pack_previous.py packs that release.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml
from aws_cdk import App, Stack
from aws_cdk.lambda_layer_awscli import AwsCliLayer

from cdk_hyperpod._lambda.hyperpod.uploader.content import KIND
from cdk_hyperpod_local import assemblies, environment
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.steps import Step, settle
from helpers.local_aws.rehearsal import Rehearsal, broken

Json = Any
PREVIOUS = Path(__file__).with_name("previous_wheel")
FILE = PREVIOUS / "cluster.yaml"
CDKS_UPLOAD = {
    "CustomCDKBucketDeployment",
    "CustomCDKBucketDeploymentServiceRole",
    "CustomCDKBucketDeploymentServiceRoleDefaultPolicy",
    "LifecycleScriptsUploadAwsCliLayer",
    "LifecycleScriptsUploadCustomResource",
}
"""What a version before the function of ours had, without CDK's hashes."""


def unpacked(folder: Path) -> Path:
    """The previous version's assembly, with the layer that CDK's own package brings."""
    with tarfile.open(PREVIOUS / "assembly.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    app = App(outdir=str(folder.with_name("layer")), analytics_reporting=False)
    AwsCliLayer(Stack(app, "Layer"), "Layer")
    (layer,) = Path(app.synth().directory).glob("asset.*.zip")
    for asset in assets(folder):
        path = folder / asset["source"]["path"]
        if not path.exists():
            assert "AwsCliLayer" in asset["displayName"]
            shutil.copy(layer, path)
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


def objects(life: Rehearsal) -> dict[tuple[str, str], str]:
    """Every version of every object in the bucket of scripts, and its content's digest."""
    bucket = f"sagemaker-{life.name}-{life.aws.account}-{life.aws.region}"
    versions = life.aws.client("s3").list_object_versions(Bucket=bucket)
    assert not versions.get("DeleteMarkers")
    return {(each["Key"], each["VersionId"]): each["ETag"] for each in versions["Versions"]}


def failing(life: Rehearsal) -> Path:
    """This version's assembly, with a resource of the foundation that fails once the scripts are uploaded."""
    edited = Path(shutil.copytree(life.synth(), life.synth().with_name("failing")))
    (upload,) = (
        name for name, item in assemblies.template(edited, life.foundation)["Resources"].items() if item["Type"] == KIND
    )
    wait = {"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}}
    assemblies.edit_template(edited, life.foundation, broken(wait, after=[upload]))
    return edited


def test_a_new_version_keeps_every_node_and_every_resource(engine: LocalAws, tmp_path: Path) -> None:
    """Also one whose deployment fails. Its own function uploads the scripts, and CDK's goes without its uploads."""
    life = Rehearsal(engine, tmp_path, yaml.safe_load(FILE.read_text("utf-8")))
    made = life.cdk.deploy(unpacked(tmp_path / "previous"), seconds=300)
    assert made.ok, made.reason
    settle(life)
    nodes, resources, scripts = life.nodes(), physical_ids(life), objects(life)
    assert len(nodes) == 4
    step = Step(life)

    shell = environment.complete(engine.place, region=engine.region, account=engine.account)
    plan = [str(Path(sys.executable).with_name("cdk-hyperpod")), "plan", "--config", str(FILE)]
    assert subprocess.run(plan, env=shell, check=False).returncode == 0, "nodes would be deleted"

    failed = life.cdk.deploy(failing(life), only=life.foundation, seconds=300)
    assert not failed.ok
    assert life.status(life.foundation) == "UPDATE_ROLLBACK_COMPLETE"
    assert physical_ids(life) == resources
    uploaded = objects(life)
    assert uploaded.items() > scripts.items()

    made = life.deploy()
    assert made.ok, made.reason
    settle(life)
    assert (step.ended(), life.nodes()) == ({}, nodes)
    assert not {"BatchDeleteClusterNodes", "DeleteCluster"} & set(step.calls())
    assert objects(life).items() >= uploaded.items()
    after = physical_ids(life)
    gone = {logical for (stack, logical), found in resources.items() if after.get((stack, logical)) != found}
    assert {re.sub(r"[0-9A-F]{8,}", "", name) for name in gone} == CDKS_UPLOAD, "a resource was replaced or deleted"
