"""The life of a cluster with the real CDK CLI, on an AWS of this machine: every step that a user takes, in order.

One test, because each step stands on the one before; what a step proves is in the name of its function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod_local.assemblies import stacks
from cdk_hyperpod_local.commands import run
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import TRN1, small
from helpers.local_aws.rehearsal import Rehearsal, resized, with_group

Json = Any

CLOUDFORMATION = "cloudformation.amazonaws.com"
BROKEN: Json = {**TRN1, "name": "broken", "instance_type": "ml.g5.48xlarge", "partition": "broken"}


def test_life_of_a_cluster(engine: LocalAws, tmp_path: Path) -> None:
    life = Rehearsal(engine, tmp_path, small("life"))
    first_deployment(life)
    nothing_changed(life)
    config = scale_up(life)
    config = add_a_group(life, config)
    failing_update_rolls_back(life, config)
    group_that_fails_to_come_up_is_rolled_back(life, config)
    drift_is_seen(life, config)
    destroy_leaves_what_the_config_retains(life, config)


def first_deployment(life: Rehearsal) -> None:
    since = life.mark()
    made = life.deploy()
    assert made.ok, made.reason
    assert (life.status(life.foundation), life.status(life.cluster)) == ("CREATE_COMPLETE", "CREATE_COMPLETE")
    assert life.groups() == {"controller": (1, 0, 1), "p5": (2, 1, 2)}
    assert life.calls(since) == {"CreateFileSystem": 1, "CreateCluster": 1}
    (created,) = life.aws.journal(since=since, operation="CreateCluster")
    assert created.who == CLOUDFORMATION
    # The lifecycle scripts are where every group's configuration says they are.
    source = created.request["InstanceGroups"][0]["LifeCycleConfig"]["SourceS3Uri"]
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    stored = life.aws.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    assert {group["LifeCycleConfig"]["OnInitComplete"] for group in created.request["InstanceGroups"]} <= {
        item["Key"].removeprefix(prefix).lstrip("/") for item in stored
    }


def nothing_changed(life: Rehearsal) -> None:
    since = life.mark()
    again = life.deploy()
    assert again.ok, again.reason
    assert again.output.count("(no changes)") == 2
    assert life.calls(since) == {}


def scale_up(life: Rehearsal) -> Json:
    since, config = life.mark(), resized(life.config, "p5", 3)
    made = life.deploy(config)
    assert made.ok, made.reason
    assert life.calls(since) == {"UpdateCluster": 1}
    # The minimum is met already, so the deployment does not wait for the new node.
    life.wait_for(lambda: life.groups()["p5"] == (3, 1, 3))
    assert life.ended() == []
    return config


def add_a_group(life: Rehearsal, config: Json) -> Json:
    config = with_group(config, TRN1)
    made = life.deploy(config)
    assert made.ok, made.reason
    assert life.groups() == {"controller": (1, 0, 1), "p5": (3, 1, 3), "trn1": (2, 2, 2)}
    return config


def failing_update_rolls_back(life: Rehearsal, config: Json) -> None:
    """HyperPod refuses the growth, and nothing of the cluster is touched."""
    before = life.groups()
    life.aws.change_hyperpod(quota={"ml.p5.48xlarge": 3})
    failed = life.deploy(resized(config, "p5", 5))
    life.aws.change_hyperpod(quota={"ml.p5.48xlarge": None})
    assert not failed.ok
    assert "(HandlerErrorCode: ServiceLimitExceeded)" in failed.reason
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert life.groups() == before
    assert life.ended() == []


def group_that_fails_to_come_up_is_rolled_back(life: Rehearsal, config: Json) -> None:
    """No capacity for its minimum: three hours later HyperPod gives up, and CloudFormation takes the group away again."""
    before = life.groups()
    life.aws.change_hyperpod(capacity={BROKEN["instance_type"]: 0})
    failed = life.deploy(with_group(config, BROKEN))
    assert not failed.ok
    assert "did not stabilize" in failed.reason
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert life.groups() == before
    assert [end for end in life.ended() if end["group"] != "broken"] == []


def drift_is_seen(life: Rehearsal, config: Json) -> None:
    """Somebody changes a count by hand: `cdk drift` tells, and deploying the same file again changes nothing."""
    assembly = life.synth(config)
    clean = life.cdk.drift(assembly, "--fail")
    assert clean.ok, clean.reason
    sagemaker = life.aws.client("sagemaker")
    (role,) = {
        group["ExecutionRole"]
        for group in sagemaker.describe_cluster(ClusterName=life.name)["InstanceGroups"]
        if group["InstanceGroupName"] == "trn1"
    }
    (trn1,) = (
        group
        for group in life.aws.journal(operation="UpdateCluster")[-1].request["InstanceGroups"]
        if group["InstanceGroupName"] == "trn1"
    )
    assert trn1["ExecutionRole"] == role
    sagemaker.update_cluster(ClusterName=life.name, InstanceGroups=[{**trn1, "InstanceCount": 3}])
    drifted = life.cdk.drift(assembly, "--fail")
    assert drifted.code == 1
    assert "InstanceCount" in drifted.output
    since = life.mark()
    again = life.cdk.deploy(assembly)
    assert again.output.count("(no changes)") == 2
    assert life.calls(since) == {}


def destroy_leaves_what_the_config_retains(life: Rehearsal, config: Json) -> None:
    assembly = life.synth(config)
    protected = life.cdk.destroy(assembly)
    assert not protected.ok
    assert "TerminationProtection is enabled" in protected.output
    kept = life.aws.client("cloudformation").list_stack_resources(StackName=life.foundation)["StackResourceSummaries"]
    (identifier,) = (item["PhysicalResourceId"] for item in kept if item["ResourceType"] == "AWS::FSx::FileSystem")
    run.destroy_assembly(life.aws.place, assembly)
    live = {stack["StackName"] for stack in life.aws.client("cloudformation").describe_stacks()["Stacks"]}
    assert live & {stack.name for stack in stacks(assembly)} == set()
    assert life.name not in {
        item["ClusterName"] for item in life.aws.client("sagemaker").list_clusters()["ClusterSummaries"]
    }
    roles = {role["RoleName"] for role in life.aws.client("iam").list_roles()["Roles"]}
    functions = {function["FunctionName"] for function in life.aws.client("lambda").list_functions()["Functions"]}
    assert {name for name in roles | functions if f"hyperpod-{life.name}" in name} == set()
    # The file system, and what it stands on, which cannot be deleted by hand either.
    (file_system,) = life.aws.client("fsx").describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert file_system["Lifecycle"] == "AVAILABLE"
    ec2 = life.aws.client("ec2")
    (interface,) = ec2.describe_network_interfaces(NetworkInterfaceIds=file_system["NetworkInterfaceIds"])[
        "NetworkInterfaces"
    ]
    with pytest.raises(ec2.exceptions.ClientError, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=interface["SubnetId"])
    for group in interface["Groups"]:
        with pytest.raises(ec2.exceptions.ClientError, match="DependencyViolation"):
            ec2.delete_security_group(GroupId=group["GroupId"])
