"""`ScaleDown` with draining: what the functions may do in the channel, what they are told, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    DrainChannel,
    EksControlPlane,
    EksDrainer,
    HyperPodCluster,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    LustreMount,
    ScaleDown,
    encryption_key,
)
from cdk_hyperpod.config import (
    DrainAgentConfig,
    DrainBackup,
    EksConfig,
    ScaleDownConfig,
    ScaleDownDrain,
)
from helpers.findings import refused
from helpers.synthesis import Json, Template, flat, new_app, of_stack

BUCKET = "arn:<AWS::Partition>:s3:::hyperpod-drain-train-<AWS::AccountId>-us-west-2"
GROUPS = [
    InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="p5", node_type="compute", partition="p5", instance_type="ml.p5.48xlarge", instance_count=2),
]
BACKUP = DrainBackup(paths=("/data",), to="/fsx/backup")


def cluster(stack: Stack, *, channel: bool = True, drain: Any = None, on_failure: Any = None) -> HyperPodCluster:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    saved = None if on_failure is None else DrainBackup(paths=BACKUP.paths, to=BACKUP.to, on_failure=on_failure)
    asked = (
        DrainChannel(stack, "Drain", cluster_name="train", encryption_key=key, drain=DrainAgentConfig(backup=saved))
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
            stack,
            "Scripts",
            cluster_name="train",
            encryption_key=key,
            drain=asked,
            file_system=LustreMount(dns_name="a", mount_name="b"),
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
def test_both_resources_get_the_drain_settings(template: Template, kind: str) -> None:
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
def test_must_be_saved_follows_from_on_failure_of_the_backup(on_failure: str | None, must: bool) -> None:
    drain = ScaleDownDrain(timeout_minutes=10, on_timeout="force", on_silent="undrained")
    made = told(of_stack(lambda stack: cluster(stack, drain=drain, on_failure=on_failure) and None))
    assert made == {**made, "TimeoutMinutes": 10, "OnTimeout": "force", "OnSilent": "undrained", "MustBeSaved": must}


def test_without_it_the_functions_know_nothing_of_the_channel() -> None:
    made = of_stack(lambda stack: cluster(stack) and None)
    assert told(made) == {}
    assert not [action for action, _ in rights(made) if "s3" in str(action)]


def test_a_cluster_of_another_app_gets_a_bucket_or_is_given_one() -> None:
    def alone(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        drain = ScaleDownDrain(on_silent="undrained")
        ScaleDown(stack, "Guard", cluster=foreign(stack), drain=drain, encryption_key=key)

    def given(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        channel = DrainChannel(stack, "Theirs", cluster_name="theirs", encryption_key=key)
        drain = ScaleDownDrain(on_silent="fail")
        ScaleDown(stack, "Guard", cluster=foreign(stack), drain=drain, drain_channel=channel)

    for make in (alone, given):
        made = of_stack(make)
        assert told(made)["Bucket"] == "hyperpod-drain-theirs-<AWS::AccountId>-us-west-2"
        names = [flat(each.get("BucketName", "")) for each in made.properties("AWS::S3::Bucket")]
        assert [name for name in names if "hyperpod-drain" in name] == [told(made)["Bucket"]]


def drainer(stack: Stack, *, cluster_name: str = "theirs", **more: Any) -> EksDrainer:
    key = encryption_key(stack, "DrainerKey", removal_policy=RemovalPolicy.DESTROY)
    network = HyperPodNetwork(
        stack, "Network", availability_zones=["us-west-2c", "us-west-2a"], internet_egress=True, log_encryption_key=key
    )
    control_plane = EksControlPlane(
        stack,
        "Eks",
        cluster_name="eks",
        eks_config=EksConfig(dependencies_chart="installed"),
        network=network,
        encryption_key=key,
    )
    return EksDrainer(
        stack, "Drainer", cluster_name=cluster_name, control_plane=control_plane, encryption_key=key, **more
    )


UNDER_EKS = {"orchestrator": {"eks": {"clusterArn": "arn:aws:eks:us-west-2:1:cluster/eks"}}}


def test_a_cluster_of_another_app_under_eks_is_given_a_drainer() -> None:
    def make(stack: Stack) -> None:
        made = drainer(stack, backup_cron_job="hyperpod-backup/save")
        made.allow_backup(stack, "Backup")
        ScaleDown(stack, "Guard", cluster=foreign(stack, **UNDER_EKS), drain=ScaleDownDrain(), drain_channel=made)

    made = of_stack(make)
    assert told(made)["Function"].endswith(":function:hyperpod-theirs-drainer")
    assert told(made)["MustBeSaved"] is True
    assert not [each for each in made.properties("AWS::S3::Bucket") if "drain" in flat(each.get("BucketName", ""))]
    # In one stack it is whole before it is asked.
    (prepare,) = made.of("Custom::HyperPodScaleDown").values()
    for part in ("DrainerFunction", "DrainerAccess", "DrainerRights"):
        assert any(name.startswith(part) for name in prepare["DependsOn"]), part


@pytest.mark.parametrize(("namespace", "warns"), [("hyperpod-backup", False), ("platform", True)])
def test_a_drainer_warns_of_a_namespace_that_is_not_the_librarys(namespace: str, warns: bool) -> None:
    stack = Stack(new_app(), "Stack", env=Environment(region="us-west-2"))
    drainer(stack, backup_cron_job=f"{namespace}/save")
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("backup-namespace-unprotected"))
    assert bool(found) == warns


def test_a_cluster_under_eks_gives_its_drainer_to_its_guard() -> None:
    def make(stack: Stack) -> None:
        made = drainer(stack, cluster_name="train")
        HyperPodCluster(
            stack,
            "Cluster",
            cluster_name="train",
            instance_groups=[InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=2)],
            network=stack.node.find_child("Network"),  # type: ignore[arg-type]
            eks_cluster_arn=made.eks_cluster_arn,
            drainer=made,
            scale_down=ScaleDownConfig(drain=ScaleDownDrain(timeout_minutes=10)),
        )

    found = told(of_stack(make))
    assert (found["TimeoutMinutes"], found["MustBeSaved"]) == (10, False)
    assert found["Function"].endswith(":function:hyperpod-train-drainer")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack),
                drain=ScaleDownDrain(on_silent="fail"),
                drain_channel=drainer(stack),
            ),
            ("eks-drainer-under-slurm", "drain_channel"),
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack, **UNDER_EKS),
                drain=ScaleDownDrain(backup_cron_job="hyperpod-backup/save"),
                drain_channel=drainer(stack),
            ),
            ("backup-cron-job-differs", "drain.backup_cron_job"),
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack, **UNDER_EKS),
                drain=ScaleDownDrain(),
                drain_channel=drainer(stack, cluster_name="other"),
            ),
            ("drain-channel-of-other-cluster", "drain_channel"),
        ),
        (
            lambda stack: cluster(stack, channel=False, drain=ScaleDownDrain()),
            ("drain-agent-missing", "drain"),
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack),
                drain=ScaleDownDrain(),
                encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY),
            ),
            ("drain-on-silent-missing", "drain.on_silent"),
        ),
        (
            lambda stack: ScaleDown(stack, "Guard", cluster=foreign(stack), drain=ScaleDownDrain(on_silent="fail")),
            ("drain-key-missing", "encryption_key"),
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
                    encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY),
                ),
            ),
            ("drain-channel-of-other-cluster", "drain_channel"),
        ),
        (
            lambda stack: ScaleDown(
                stack,
                "Guard",
                cluster=foreign(stack, orchestrator={"eks": {"clusterArn": "arn:aws:eks:us-west-2:1:cluster/e"}}),
                drain=ScaleDownDrain(on_silent="fail"),
                encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY),
            ),
            ("eks-drainer-missing", "drain"),
        ),
    ],
)
def test_a_cluster_whose_nodes_could_not_be_drained_is_refused_at_synth(make: Any, expected: tuple[str, str]) -> None:
    with refused(expected):
        make(Stack(new_app(), "Stack"))
