"""What encrypts HyperPod's own log group, in the template: made before the cluster changes, and let at its one group alone."""

from __future__ import annotations

import pytest
from aws_cdk import Stack
from aws_cdk import aws_kms as kms

from cdk_hyperpod import ConfigError, HyperPodCluster, HyperPodNetwork, InstanceGroup
from helpers.synthesis import Template, needs, of_stack

KIND = "Custom::HyperPodClusterLog"
NODES = InstanceGroup(name="c", node_type="controller", instance_type="ml.m5.large", instance_count=1)


def cluster(stack: Stack, days: int | None = None) -> None:
    more = {} if days is None else {"log_retention_days": days}
    HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        instance_groups=[NODES],
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"]),
        encryption_key=kms.Key(stack, "Key"),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def template() -> Template:
    return of_stack(cluster)


def test_cluster_log_resources_that_can_fail_come_before_the_cluster_and_its_guard(template: Template) -> None:
    """A failure after the cluster's update would take back what was just deployed."""
    ours = {name for name in template.resources if name.startswith("ClusterLog")}
    kinds = {name: template.resources[name]["Type"] for name in ours}
    after = {name for name, kind in kinds.items() if kind in (KIND, "AWS::IAM::ManagedPolicy")}
    assert sorted(kinds[name] for name in ours - after) == [
        "AWS::IAM::Role",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
    ]
    made = template.only_id("AWS::SageMaker::Cluster")
    for waits in (made, template.only_id("Custom::HyperPodScaleDown")):
        assert ours - after <= needs(template, waits)
    assert all(made in needs(template, name) for name in after)


def test_it_may_change_the_clusters_group_and_no_other(template: Template) -> None:
    (policy,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in template.properties("AWS::IAM::ManagedPolicy")
        if "log group of" in properties.get("Description", "")
    )
    made = template.only_id("AWS::SageMaker::Cluster")
    identity = {"Fn::Select": [1, {"Fn::Split": ["/", {"Fn::GetAtt": [made, "ClusterArn"]}]}]}
    arns = [item["Fn::Join"][1] for item in policy[0]["Resource"]]
    assert [arn[-2:] if arn[-1] == identity else arn[-3:-1] for arn in arns] == [
        [":log-group:/aws/sagemaker/Clusters/train/", identity]
    ] * 2
    assert [arn[-1] == ":*" for arn in arns] == [False, True]


def test_a_year_and_the_clusters_key_by_default(template: Template) -> None:
    told = template.only(KIND)
    assert told["RetentionInDays"] == 365
    assert told["KmsKeyId"] == {"Fn::GetAtt": [template.only_id("AWS::KMS::Key"), "Arn"]}
    assert of_stack(lambda stack: cluster(stack, 30)).only(KIND)["RetentionInDays"] == 30


def test_a_log_retention_that_cloudwatch_refuses_is_an_error() -> None:
    with pytest.raises(ConfigError, match="log_retention_days: must be one of 1, 3, 5"):
        of_stack(lambda stack: cluster(stack, 31))
