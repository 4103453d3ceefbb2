"""The key of the foundation: whom its policy lets use it."""

from __future__ import annotations

import json

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_kms as kms

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, InstanceGroup, encryption_key
from helpers.synthesis import ROOT, of_file, of_stack


def test_the_foundation_has_one_key_and_logs_may_use_it() -> None:
    foundation = of_file(ROOT / "cluster.yaml")["hyperpod-llm-train-foundation"]
    ((_, key),) = foundation.of("AWS::KMS::Key").items()
    (logs,) = (item for item in key["Properties"]["KeyPolicy"]["Statement"] if item.get("Sid") == "Logs")
    assert "logs." in json.dumps(logs["Principal"])
    assert "kms:EncryptionContext:aws:logs:arn" in logs["Condition"]["ArnLike"]


def test_logs_may_use_a_key_of_ones_own() -> None:
    """CloudWatch refuses a log group with a key that it may not use."""

    def build(stack: Stack) -> None:
        own = encryption_key(stack, "Allowed", removal_policy=RemovalPolicy.DESTROY)
        HyperPodCluster(
            stack,
            "Cluster",
            cluster_name="train",
            encryption_key=kms.Key(stack, "Plain"),
            network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"], log_encryption_key=own),
            instance_groups=[
                InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1)
            ],
        )

    template = of_stack(build)
    keys = template.of("AWS::KMS::Key")
    used = {group["KmsKeyId"]["Fn::GetAtt"][0] for group in template.properties("AWS::Logs::LogGroup")}
    assert used == set(keys) and len(used) == 2
    for key in keys.values():
        policy = key["Properties"]["KeyPolicy"]["Statement"]
        assert len([item for item in policy if item.get("Sid") == "Logs"]) == 1
