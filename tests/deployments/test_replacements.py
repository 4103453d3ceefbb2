"""What CloudFormation would replace: never the cluster; the file system, whose new address reaches the nodes' groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import refusals
from helpers.deployments.configs import STANDING, small
from helpers.deployments.steps import Step, refused, settle
from helpers.local_aws.rehearsal import Rehearsal, taking

Json = Any


def test_a_renamed_cluster_is_refused(life: Rehearsal) -> None:
    def renamed(template: Json) -> None:
        for resource in template["Resources"].values():
            if resource.get("Properties", {}).get("ClusterName") == "standing":
                resource["Properties"]["ClusterName"] = "renamed"

    step, before = Step(life), life.nodes()
    failed = life.deploy(edit=renamed, only=life.cluster)
    assert not failed.ok
    refused(life, step, refusals.renamed("standing", "renamed"), name="renamed")
    assert life.nodes() == before


def test_another_network_is_refused(life: Rehearsal) -> None:
    def moved(template: Json) -> None:
        network = {"Subnets": ["subnet-0123456789abcdef0"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
        for resource in template["Resources"].values():
            if "VpcConfig" in resource.get("Properties", {}):
                resource["Properties"]["VpcConfig"] = network
            if "CreateOnly" in resource.get("Properties", {}):
                resource["Properties"]["CreateOnly"] = json.dumps({"VpcConfig": network})

    step = Step(life)
    life.change(edit=moved)
    refused(life, step, refusals.replaced("network"))


def test_a_cluster_that_another_party_created_is_refused_and_keeps_its_nodes(life: Rehearsal, tmp_path: Path) -> None:
    """Someone has a cluster by the name in the file already, and the very nodes that the file names for deletion."""
    sagemaker = life.aws.client("sagemaker")
    (request,) = (
        entry.request
        for entry in life.aws.journal(operation="CreateCluster")
        if entry.request.get("ClusterName") == life.name
    )
    sagemaker.create_cluster(
        **{key: value for key, value in request.items() if key != "Tags"} | {"ClusterName": "theirs"}
    )
    theirs = Rehearsal(life.aws, tmp_path, small("theirs"))
    settle(theirs)
    before, since = theirs.nodes(), theirs.mark()
    config = taking(small("theirs"), nodes=list(theirs.nodes("p5"))[:1])
    del config["storage"]
    failed = theirs.deploy(config)
    assert not failed.ok
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=theirs.cluster)["Stacks"]
    assert str(refusals.not_ours("theirs", "cdk-hyperpod:stack-id", stack["StackId"])) in failed.reason
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert theirs.calls(since) == {}
    assert theirs.ended() == []
    assert theirs.nodes() == before


def test_another_file_system_reaches_every_group(life: Rehearsal) -> None:
    """The old one leaves the file in a deployment of its own and is kept. Then only the foundation's template says that there
    is another one; both stacks change, and no node ends."""
    before, old = life.nodes(), mounted(life)
    step = Step(life)
    without = life.deploy({key: value for key, value in STANDING.items() if key != "storage"})
    assert without.ok, without.reason
    assert mounted(life) == set()
    made = life.deploy({**STANDING, "storage": {**STANDING["storage"], "efa": True}})
    assert made.ok, made.reason
    new, systems = mounted(life), life.aws.client("fsx").describe_file_systems()["FileSystems"]
    assert len(old) == len(new) == 1
    assert old.isdisjoint(new)
    assert old | new <= {system["DNSName"] for system in systems}, "the old one is kept, as the file says"
    assert (step.calls()["CreateFileSystem"], step.calls()["UpdateCluster"]) == (1, 2)
    assert step.ended() == {}
    assert life.nodes() == before
    back = life.deploy({key: value for key, value in STANDING.items() if key != "storage"})
    assert back.ok, back.reason
    back = life.deploy(STANDING)
    assert back.ok, back.reason


def mounted(life: Rehearsal) -> set[str]:
    """The file systems that the cluster's groups name."""
    groups = life.aws.client("sagemaker").describe_cluster(ClusterName=life.name)["InstanceGroups"]
    storages = [storage for group in groups for storage in group.get("InstanceStorageConfigs", [])]
    return {storage["FsxLustreConfig"]["DnsName"] for storage in storages if "FsxLustreConfig" in storage}
