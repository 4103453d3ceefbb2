"""The drain channel: who may write what in it, and that nothing of it is there where the file does not ask for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack

from cdk_hyperpod import (
    DrainBackup,
    DrainChannel,
    DrainConfig,
    HyperPodCluster,
    HyperPodError,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    encryption_key,
)
from cdk_hyperpod.names import drain_bucket_name, request_key, status_key
from synth.synthesis import CONFIGS, ROOT, Json, Template, flat, of_file, of_stack

BUCKET = "arn:<AWS::Partition>:s3:::hyperpod-drain-train-<AWS::AccountId>-us-west-2"
GROUPS = [
    InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="login", node_type="login", instance_type="ml.m5.large", instance_count=1),
    InstanceGroup(name="p5", node_type="compute", partition="p5", instance_type="ml.p5.48xlarge", instance_count=2),
]


def cluster(stack: Stack) -> None:
    key = encryption_key(stack, "Key", removal="destroy")
    channel = DrainChannel(stack, "Drain", cluster_name="train", encryption_key=key)
    HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        instance_groups=GROUPS,
        encryption_key=key,
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], log_encryption_key=key),
        lifecycle_scripts=LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, drain=channel),
    )


@pytest.fixture(scope="module")
def template() -> Template:
    return of_stack(cluster)


def statements(template: Template, node_type: str) -> list[tuple[list[str], list[str]]]:
    """Actions and resources of a node type's policy that are about the channel."""
    (found,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in template.properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description") == f"What the {node_type} nodes of HyperPod cluster train may do"
    )
    allowed = [(statement["Action"], [flat(arn) for arn in statement["Resource"]]) for statement in found]
    return [each for each in allowed if any("hyperpod-drain" in arn for arn in each[1])]


def test_the_controller_reads_requests_and_writes_the_status_and_nothing_else(template: Template) -> None:
    assert statements(template, "controller") == [
        (["s3:ListBucket"], [BUCKET]),
        (["s3:GetObject"], [f"{BUCKET}/train/requests/deployment.json", f"{BUCKET}/train/requests/operator.json"]),
        (["s3:PutObject"], [f"{BUCKET}/train/status.json"]),
    ]


@pytest.mark.parametrize("node_type", ["login", "compute"])
def test_nobody_forges_a_request_from_another_node(template: Template, node_type: str) -> None:
    assert statements(template, node_type) == []


def channel_bucket(template: Template) -> Json:
    (found,) = (
        properties
        for properties in template.properties("AWS::S3::Bucket")
        if "hyperpod-drain" in flat(properties.get("BucketName", ""))
    )
    return found


def test_the_bucket_is_private_encrypted_and_empty_after_a_day(template: Template) -> None:
    bucket = channel_bucket(template)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"] is True
    (expires,) = (rule for rule in bucket["LifecycleConfiguration"]["Rules"] if rule["Id"] == "NothingStays")
    assert (expires["ExpirationInDays"], expires["NoncurrentVersionExpiration"]["NoncurrentDays"]) == (1, 1)
    policies = json.dumps(template.properties("AWS::S3::BucketPolicy"))
    assert policies.count('"aws:SecureTransport": "false"') == len(template.of("AWS::S3::Bucket"))


def test_a_file_that_asks_for_no_agent_has_nothing_of_it() -> None:
    for name, template in of_file(ROOT / "cluster.yaml").items():
        assert "hyperpod-drain" not in json.dumps(template.body), name


def test_the_file_s_stacks_agree_on_the_bucket() -> None:
    stacks = of_file(CONFIGS / "closed.yaml")
    name = drain_bucket_name("closed", "<AWS::AccountId>", "ap-southeast-3")
    assert flat(channel_bucket(stacks["hyperpod-closed-foundation"])["BucketName"]) == name
    cluster_text = json.dumps([flat(each) for each in strings(stacks["hyperpod-closed-cluster"].body)])
    assert f"{name}/{status_key('closed')}" in cluster_text
    assert f"{name}/{request_key('closed', 'operator')}" in cluster_text


def strings(value: Any) -> list[Any]:
    """Every ARN of a template, joined or not."""
    if isinstance(value, dict):
        return [value] if set(value) == {"Fn::Join"} else [found for each in value.values() for found in strings(each)]
    return [found for each in value for found in strings(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("region", ["us-west-2", "ap-southeast-3", "us-gov-west-1"])
@pytest.mark.parametrize("name", ["a", "llm-train", "A-Cluster-With-63-Characters-" + "x" * 34])
def test_the_bucket_s_name_is_one_that_s3_takes(name: str, region: str) -> None:
    found = drain_bucket_name(name, "111122223333", region)
    assert 3 <= len(found) <= 63
    assert found == found.lower()


@pytest.mark.parametrize(
    ("more", "backup", "says"),
    [
        ({}, DrainBackup(paths=("/data",), to="/fsx/backup"), "drain.backup.to: /fsx/backup is on no storage"),
        ({"orchestrator": "eks"}, None, "drain: the library's own scripts for Slurm start the agent"),
    ],
)
def test_an_agent_that_could_not_work_is_refused(more: dict[str, Any], backup: DrainBackup | None, says: str) -> None:
    def build(stack: Stack) -> None:
        key = encryption_key(stack, "Key", removal="destroy")
        channel = DrainChannel(
            stack, "Drain", cluster_name="train", encryption_key=key, drain=DrainConfig(backup=backup)
        )
        LifecycleScripts(stack, "Scripts", cluster_name="train", encryption_key=key, drain=channel, **more)

    with pytest.raises(HyperPodError, match=says):
        of_stack(build)
