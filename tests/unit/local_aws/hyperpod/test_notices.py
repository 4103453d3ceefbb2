"""What EventBridge and the cluster's log group get of HyperPod, in the shapes of AWS's samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cdk_hyperpod_local.hyperpod import BusEvent, Fault, HyperPod, LogRecord, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

Json = dict[str, Any]
P5 = "ml.p5.48xlarge"
ENVELOPE_OF_AN_EVENT = {
    "EventId", "ClusterArn", "ClusterName", "InstanceGroupName", "ResourceType", "EventTime", "EventLevel", "Description",
    "EventDetails",
}  # fmt: skip


def kinds(hyperpod: HyperPod) -> list[str]:
    return [notice.detail_type for notice in hyperpod.take_notices() if isinstance(notice, BusEvent)]


def statuses(hyperpod: HyperPod) -> list[str]:
    taken = hyperpod.take_notices()
    return [
        item.detail["ClusterStatus"] for item in taken if isinstance(item, BusEvent) and "ClusterStatus" in item.detail
    ]


def node(hyperpod: HyperPod) -> str:
    (found,) = (node.instance_id for node in hyperpod.nodes("train", "p5"))
    assert found
    return found


def test_a_failed_launch_is_sent_twice_within_a_second(ready: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 1)), event_metadata_in_eventbridge="filled")
    hyperpod.set_capacity(P5, 1)
    hyperpod.take_notices()
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 2)]})
    run_until_quiet(hyperpod)

    taken = [item for item in hyperpod.take_notices() if isinstance(item, BusEvent)]
    errors = [item for item in taken if item.detail["EventDetails"]["EventLevel"] == "Error"]
    assert {item.cluster_arn for item in taken} == {hyperpod.cluster("train").arn}
    first, second = (item.detail["EventDetails"] for item in errors)
    assert set(first) == ENVELOPE_OF_AN_EVENT
    assert first["Description"] == "Failed to provision EC2 Instance in Cluster train and IG p5"
    assert second["Description"] == "Instance creation in Cluster train and IG p5 failed"
    assert isinstance(first["EventTime"], int) and 0 <= second["EventTime"] - first["EventTime"] < 1000
    assert first["EventDetails"]["EventMetadata"]["Instance"]["FailureMessage"].startswith("We currently do not have")
    described = hyperpod.call("DescribeClusterEvent", {"ClusterName": "train", "EventId": first["EventId"]})
    assert described["EventDetails"]["EventDetails"] == first["EventDetails"]


def test_metadata_is_null_in_every_subtree_but_not_in_the_api(ready: Callable[..., HyperPod]) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    (event, *_) = (
        item.detail["EventDetails"]
        for item in hyperpod.take_notices()
        if isinstance(item, BusEvent) and "provisioned" in json.dumps(item.detail)
    )
    assert set(event["EventDetails"]["EventMetadata"].values()) == {None}
    described = hyperpod.call("DescribeClusterEvent", {"ClusterName": "train", "EventId": event["EventId"]})
    assert described["EventDetails"]["EventDetails"]["EventMetadata"]["Instance"]["NodeLogicalId"]


def test_each_status_is_sent_once(make: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = make()
    hyperpod.call("CreateCluster", slurm(group("p5", 2)))
    run_until_quiet(hyperpod)
    hyperpod.set_capacity(P5, 2)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 4, minimum=4)]})
    clock.advance(10_900)
    hyperpod.tick()
    hyperpod.call("DeleteCluster", {"ClusterName": "train"})
    run_until_quiet(hyperpod)

    taken = [item for item in hyperpod.take_notices() if isinstance(item, BusEvent)]
    changes = [item.detail for item in taken if item.detail_type == "SageMaker HyperPod Cluster State Change"]
    assert [each["ClusterStatus"] for each in changes] == [
        "Creating",
        "InService",
        "RollingBack",
        "InService",
        "Deleting",
    ]
    assert all(isinstance(each["CreationTime"], int) for each in changes)
    assert {"InstanceGroups", "ClusterArn", "ClusterName", "Orchestrator"} <= set(changes[1])
    assert json.loads(json.dumps(changes)) == changes, "it is JSON"
    assert not hyperpod.take_notices(), "each is taken once"


def test_standard_provisioning_sends_its_status_and_no_event(ready: Callable[..., HyperPod]) -> None:
    hyperpod = ready(slurm(group("p5", 1), continuous=False))
    assert set(kinds(hyperpod)) == {"SageMaker HyperPod Cluster State Change"}


def test_a_fault_under_slurm_is_in_the_log_only(ready: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 1), NodeRecovery="None"))
    hyperpod.take_notices()
    hyperpod.report_fault(node(hyperpod), Fault(reason="NvidiaErrorReplace", message="Xid 79"))
    clock.advance(86_400)

    (record,) = hyperpod.take_notices()
    assert isinstance(record, LogRecord)
    cluster = hyperpod.cluster("train")
    assert record.group == f"/aws/sagemaker/Clusters/train/{cluster.arn.rpartition('/')[2]}"
    assert record.stream == f"SagemakerHealthMonitoringAgent/p5/{node(hyperpod)}"
    line = json.loads(record.message)
    assert line["HealthMonitoringAgentDetectionEvent"] == "HealthEvent"
    assert line["details"] == {"severity": "error", "reason": "NvidiaErrorReplace", "message": "Xid 79"}


def test_a_fault_under_eks_is_a_health_event_too(ready: Callable[..., HyperPod]) -> None:
    hyperpod = ready(eks(group("p5", 1, node_type=None)))
    hyperpod.take_notices()
    hyperpod.report_fault(node(hyperpod), Fault(reason="NvidiaErrorTerminate"))
    _, health = hyperpod.take_notices()
    assert isinstance(health, BusEvent) and health.detail_type == "SageMaker HyperPod Cluster Node Health Event"
    assert health.detail["InstanceId"] == node(hyperpod)
    assert health.detail["HealthSummary"]["HealthStatus"] == "Unhealthy"
    assert "NvidiaErrorTerminate" in health.detail["HealthSummary"]["HealthStatusReason"]


def test_automatic_recovery_replaces_the_node(ready: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    hyperpod.take_notices()
    before = node(hyperpod)
    hyperpod.report_fault(before, Fault())
    run_until_quiet(hyperpod)

    after = node(hyperpod)
    assert after != before and [item.cause for item in hyperpod.terminations] == ["replaced"]
    texts = [
        item.detail["EventDetails"]["Description"]
        for item in hyperpod.take_notices()
        if isinstance(item, BusEvent) and "replacement" in json.dumps(item.detail)
    ]
    assert texts == [
        f"Instance {after} is starting as part of instance replacement in Cluster train and IG p5",
        f"Instance {after} creation completed successfully as part of instance replacement in Cluster train and IG p5",
    ]
