"""`ScaleDown` with draining: what the functions may do in the channel, what they are told, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_sagemaker as sagemaker

from cdk_hyperpod import (
    DrainBackup,
    DrainChannel,
    DrainConfig,
    HyperPodCluster,
    HyperPodError,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    ScaleDown,
    ScaleDownConfig,
    ScaleDownDrain,
    encryption_key,
)
from synth.synthesis import Json, Template, flat, new_app, of_stack

BUCKET = "arn:<AWS::Partition>:s3:::hyperpod-drain-train-<AWS::AccountId>-us-west-2"
GROUPS = [
    InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="p5", node_type="compute", partition="p5", instance_type="ml.p5.48xlarge", instance_count=2),
]
BACKUP = DrainBackup(paths=("/data",), to="/fsx/backup")


def cluster(stack: Stack, *, channel: bool = True, drain: Any = None, on_failure: Any = None) -> HyperPodCluster:
    key = encryption_key(stack, "Key", removal="destroy")
    saved = None if on_failure is None else DrainBackup(paths=BACKUP.paths, to=BACKUP.to, on_failure=on_failure)
    asked = (
        DrainChannel(stack, "Drain", cluster_name="train", encryption_key=key, drain=DrainConfig(backup=saved))
        if channel
        else None
    )
    return HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        instance_groups=GROUPS,
        encryption_key=key,
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], log_encryption_key=key),
        lifecycle_scripts=LifecycleScripts(
            stack, "Scripts", cluster_name="train", encryption_key=key, drain=asked, mount_paths=("/fsx",)
        ),
        scale_down=ScaleDownConfig(drain=drain),
    )


def foreign(stack: Stack, **changes: Any) -> sagemaker.CfnCluster:
    group = sagemaker.CfnCluster.ClusterInstanceGroupProperty(
        instance_group_name="p5",
        instance_type="ml.p5.48xlarge",
        instance_count=2,
        execution_role="arn:aws:iam::111122223333:role/nodes",
    )
    return sagemaker.CfnCluster(stack, "Cluster", cluster_name="theirs", instance_groups=[group], **changes)


def rights(template: Template) -> list[tuple[Any, str]]:
    """What the functions may do that is about draining."""
    (found,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in template.properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description", "").startswith("Reading, for scaling down")
    )
    return [(each["Action"], flat(each["Resource"])) for each in found if isinstance(each["Resource"], dict)]


def told(template: Template, kind: str = "Custom::HyperPodScaleDown") -> Json:
    (properties,) = template.properties(kind)
    return json.loads(flat(properties["Drain"])) if "Drain" in properties else {}


@pytest.fixture(scope="module")
def template() -> Template:
    return of_stack(lambda stack: cluster(stack, drain=ScaleDownDrain(), on_failure="fail") and None)


def test_the_functions_write_one_request_and_read_one_status(template: Template) -> None:
    found = {resource: action for action, resource in rights(template) if "s3" in str(action)}
    assert found == {
        BUCKET: ["s3:ListBucket"],
        f"{BUCKET}/train/status.json": ["s3:GetObject"],
        f"{BUCKET}/train/requests/deployment.json": ["s3:PutObject"],
    }
    assert [action for action, _ in rights(template) if action == ["kms:Decrypt", "kms:GenerateDataKey"]]


@pytest.mark.parametrize("kind", ["Custom::HyperPodScaleDown", "Custom::HyperPodGroupRemoval"])
def test_both_resources_are_told_how_to_drain(template: Template, kind: str) -> None:
    assert told(template, kind) == {
        "Bucket": "hyperpod-drain-train-<AWS::AccountId>-us-west-2",
        "TimeoutMinutes": 25,
        "OnTimeout": "fail",
        "OnSilent": "fail",
        "MustBeSaved": True,
    }


def test_rights_and_bucket_come_before_the_first_request(template: Template) -> None:
    (prepare,) = template.of("Custom::HyperPodScaleDown").values()
    needed = prepare["DependsOn"]
    assert any("Reading" in name for name in needed)
    assert any(name.startswith("DrainBucket") for name in needed)


@pytest.mark.parametrize(("on_failure", "must"), [(None, False), ("continue", False), ("fail", True)])
def test_what_must_be_saved_is_said_in_one_place(on_failure: str | None, must: bool) -> None:
    drain = ScaleDownDrain(timeout_minutes=10, on_timeout="force", on_silent="undrained")
    made = told(of_stack(lambda stack: cluster(stack, drain=drain, on_failure=on_failure) and None))
    assert made == {**made, "TimeoutMinutes": 10, "OnTimeout": "force", "OnSilent": "undrained", "MustBeSaved": must}


def test_without_it_the_functions_know_nothing_of_the_channel() -> None:
    made = of_stack(lambda stack: cluster(stack) and None)
    assert told(made) == {}
    assert not [action for action, _ in rights(made) if "s3" in str(action)]


def test_a_cluster_of_another_app_gets_a_bucket_or_is_given_one() -> None:
    def alone(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal="destroy")
        drain = ScaleDownDrain(on_silent="undrained")
        ScaleDown(stack, "Guard", cluster=foreign(stack), drain=drain, encryption_key=key)

    def given(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal="destroy")
        channel = DrainChannel(stack, "Theirs", cluster_name="theirs", encryption_key=key)
        drain = ScaleDownDrain(on_silent="fail")
        ScaleDown(stack, "Guard", cluster=foreign(stack), drain=drain, drain_channel=channel)

    for make in (alone, given):
        made = of_stack(make)
        assert told(made)["Bucket"] == "hyperpod-drain-theirs-<AWS::AccountId>-us-west-2"
        names = [flat(each.get("BucketName", "")) for each in made.properties("AWS::S3::Bucket")]
        assert [name for name in names if "hyperpod-drain" in name] == [told(made)["Bucket"]]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda stack: cluster(stack, channel=False, drain=ScaleDownDrain()),
            "drain: asks an agent on the controller, and the cluster's lifecycle scripts start none; give LifecycleScripts",
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack),
                drain=ScaleDownDrain(),
                encryption_key=encryption_key(stack, "Key", removal="destroy"),
            ),
            "drain.on_silent: is missing, and nobody knows whether an agent runs on this cluster's controller",
        ),
        (
            lambda stack: ScaleDown(stack, "Guard", cluster=foreign(stack), drain=ScaleDownDrain(on_silent="fail")),
            "encryption_key: is missing, and the bucket in which an agent is asked",
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack),
                drain=ScaleDownDrain(on_silent="fail"),
                drain_channel=DrainChannel(
                    stack,
                    "Drain",
                    cluster_name="other",
                    encryption_key=encryption_key(stack, "Key", removal="destroy"),
                ),
            ),
            "drain_channel: is that of cluster other; give the one of this cluster",
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack, orchestrator={"eks": {"clusterArn": "arn:aws:eks:us-west-2:1:cluster/e"}}),
                drain=ScaleDownDrain(on_silent="fail"),
                encryption_key=encryption_key(stack, "Key", removal="destroy"),
            ),
            "drain: asks a function in the EKS cluster's VPC, and none is given; give drain_channel: an EksDrainer",
        ),
    ],
)
def test_what_nobody_could_drain_is_refused_at_synth(make: Any, says: str) -> None:
    with pytest.raises(HyperPodError) as caught:
        make(Stack(new_app(), "Stack"))
    assert says in str(caught.value)
