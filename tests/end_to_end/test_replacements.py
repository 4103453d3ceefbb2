"""What CloudFormation would replace: never the cluster; the file system, whose new address reaches the nodes' groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.configs import small
from end_to_end.steps import Step, refused, settle, turn
from local_aws.rehearsal import Rehearsal, taking
from local_aws.session import LocalAws

pytestmark = pytest.mark.slow
Json = Any

CONFIG = {**small("replacing"), "storage": {"capacity_gib": 19_200}}
"""A controller, two P5 nodes, and a file system as large as one with EFA has to be."""


@pytest.fixture(scope="module")
def cluster(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("replacing"), CONFIG)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    settle(rehearsal)
    return rehearsal


@pytest.fixture
def life(cluster: Rehearsal) -> Iterator[Rehearsal]:
    with turn(cluster, CONFIG):
        yield cluster


def test_a_renamed_cluster_is_refused(life: Rehearsal) -> None:
    def renamed(template: Json) -> None:
        for resource in template["Resources"].values():
            if resource["Properties"].get("ClusterName") == "replacing":
                resource["Properties"]["ClusterName"] = "renamed"

    step, before = Step(life), life.nodes()
    failed = life.deploy(edit=renamed, only=life.cluster)
    assert not failed.ok
    message = (
        'name: the deployed cluster is "replacing" and the file says "renamed", and a renamed cluster is a new one; keep '
        'the name "replacing", and deploy "renamed" beside it with a file of its own.'
    )
    refused(life, step, message, name="renamed")
    assert life.nodes() == before


def test_another_network_is_refused(life: Rehearsal) -> None:
    def moved(template: Json) -> None:
        network = {"Subnets": ["subnet-0123456789abcdef0"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
        for resource in template["Resources"].values():
            if "VpcConfig" in resource["Properties"]:
                resource["Properties"]["VpcConfig"] = network
            if "CreateOnly" in resource["Properties"]:
                resource["Properties"]["CreateOnly"] = json.dumps({"VpcConfig": network})

    step = Step(life)
    life.change(edit=moved)
    refused(
        life,
        step,
        "network: differs from the live cluster, and CloudFormation would replace the cluster: every node would end; "
        "undo this change, or deploy a new cluster under another name and move over.",
    )


def test_a_cluster_that_somebody_else_made_is_refused(life: Rehearsal, tmp_path: Path) -> None:
    """Someone has a cluster by the name in the file already, and the very nodes that the file names for deletion."""
    sagemaker = life.aws.client("sagemaker")
    (request,) = (
        entry.request
        for entry in life.aws.journal(operation="CreateCluster")
        if entry.request["ClusterName"] == life.name
    )
    sagemaker.create_cluster(**{key: value for key, value in request.items() if key != "Tags"} | {"ClusterName": "theirs"})
    theirs = Rehearsal(life.aws, tmp_path, small("theirs"))
    settle(theirs)
    before, since = theirs.nodes(), theirs.mark()
    config = taking(small("theirs"), nodes=list(theirs.nodes("p5"))[:1])
    del config["storage"]
    failed = theirs.deploy(config)
    assert not failed.ok
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=theirs.cluster)["Stacks"]
    message = (
        'Scaling down theirs was refused, nothing was changed. name: a cluster "theirs" lives that this stack did not '
        f"make: it lacks the tag cdk-hyperpod:stack-id = {stack['StackId']}; choose another name, or adopt that cluster "
        "in a deployment of its own, before scaling it down."
    )
    assert message in failed.reason
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert theirs.calls(since) == {}
    assert theirs.ended() == []
    assert theirs.nodes() == before


def test_another_file_system_reaches_every_group(life: Rehearsal) -> None:
    """Only the foundation's template says that there is another one; both stacks change, and no node ends."""
    before, old = life.nodes(), mounted(life)
    step = Step(life)
    made = life.deploy({**CONFIG, "storage": {**CONFIG["storage"], "efa": True}})
    assert made.ok, made.reason
    new = {system["DNSName"] for system in life.aws.client("fsx").describe_file_systems()["FileSystems"]}
    assert len(old) == len(mounted(life)) == 1
    assert old != mounted(life) < new
    assert step.calls() == {"CreateFileSystem": 1, "UpdateCluster": 1}
    assert life.nodes() == before
    back = life.deploy(CONFIG)
    assert back.ok, back.reason


def mounted(life: Rehearsal) -> set[str]:
    """The file systems that the cluster's groups name."""
    groups = life.aws.client("sagemaker").describe_cluster(ClusterName=life.name)["InstanceGroups"]
    storages = [storage for group in groups for storage in group["InstanceStorageConfigs"]]
    return {storage["FsxLustreConfig"]["DnsName"] for storage in storages if "FsxLustreConfig" in storage}
