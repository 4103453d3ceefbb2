"""CloudFormation's operations on a cluster, and three ways to treat a group that was removed from the template."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ClusterHandler, HyperPod, ManualClock, Progress, replacement_reasons
from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups, api_parameters
from cdk_hyperpod_local.hyperpod.samples import CONTROLLER, EKS_ARN, VPC, eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
STACK = {"aws:cloudformation:stack-name": "s"}


def finish(handler: ClusterHandler, hyperpod: HyperPod, progress: Progress) -> Progress:
    clock = hyperpod.clock
    assert isinstance(clock, ManualClock)
    for _ in range(2_000):
        progress = handler.poll(Progress(**json.loads(json.dumps(asdict(progress)))))  # as if saved in between
        if progress.status != "pending":
            return progress
        clock.advance(60)
    raise AssertionError(progress)


def created(hyperpod: HyperPod, properties: dict[str, Any]) -> Progress:
    handler = ClusterHandler(hyperpod)
    return finish(handler, hyperpod, handler.start("create", properties=properties, tags=STACK))


def updated(hyperpod: HyperPod, before: Progress, properties: dict[str, Any], **options: Any) -> Progress:
    handler = ClusterHandler(hyperpod, **options)
    begun = handler.start(
        "update", properties=properties, old_properties=before.properties, physical_id=before.physical_id, tags=STACK
    )
    return finish(handler, hyperpod, begun)


def targets(hyperpod: HyperPod) -> dict[str, int]:
    groups = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return {g["InstanceGroupName"]: g["TargetCount"] for g in groups}


def test_create_waits_for_the_cluster_and_its_groups(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    began = clock.now()
    done = created(hyperpod, slurm(group("p5", 2, minimum=2), Tags=[{"Key": "team", "Value": "a"}]))
    assert done.status == "done"
    assert clock.now() - began > 1200, "the group's minimum was waited for"
    assert done.physical_id == done.attributes["ClusterArn"] == hyperpod.cluster("train").arn
    assert (done.attributes["ClusterStatus"], done.attributes["FailureMessage"]) == ("InService", "")
    assert done.attributes["CreationTime"].endswith("Z")
    assert hyperpod.cluster("train").tags == {"aws:cloudformation:stack-name": "s", "team": "a"}
    assert {call.principal for call in hyperpod.journal if call.mutating} == {"cloudformation.amazonaws.com"}


def test_scalars_of_the_template_may_be_text() -> None:
    spec = group("p5", 2) | {"InstanceCount": "2", "ThreadsPerCore": 1.0, "CurrentCount": 5}
    params = api_parameters("CreateCluster", {"ClusterName": "train", "InstanceGroups": [spec], "ClusterArn": "x"})
    assert params["InstanceGroups"][0]["InstanceCount"] == 2
    assert params["InstanceGroups"][0]["ThreadsPerCore"] == 1
    assert "CurrentCount" not in params["InstanceGroups"][0] and "ClusterArn" not in params


def test_a_name_in_use_is_already_exists(make: Make) -> None:
    hyperpod = make()
    created(hyperpod, slurm(group("p5", 1)))
    again = created(hyperpod, slurm(group("p5", 1)))
    assert (again.status, again.error_code) == ("failed", "AlreadyExists")
    assert again.message == "Resource of type 'AWS::SageMaker::Cluster' with identifier 'train' already exists."


def test_a_cluster_that_fails_does_not_stabilise(make: Make) -> None:
    hyperpod = make()
    hyperpod.set_capacity("ml.m5.4xlarge", 0)
    failed = created(hyperpod, slurm(group("p5", 1)))
    assert (failed.status, failed.error_code) == ("failed", "NotStabilized")
    assert "did not stabilize. The controller instance group controller could not be provisioned" in failed.message
    assert failed.physical_id.startswith("arn:"), "what failed can still be deleted"


def test_an_update_sends_every_group_whatever_changed(make: Make) -> None:
    hyperpod = make()
    properties = slurm(group("a", 3), group("b", 2))
    first = created(hyperpod, properties)
    run_until_quiet(hyperpod)
    nodes = [node.instance_id for node in hyperpod.nodes("train", "a")]
    hyperpod.call(
        "BatchAddClusterNodes",
        {"ClusterName": "train", "NodesToAdd": [{"InstanceGroupName": "b", "IncrementTargetCountBy": 3}]},
    )
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [nodes[0]]})
    run_until_quiet(hyperpod)
    assert targets(hyperpod) == {"controller": 1, "a": 2, "b": 5}
    done = updated(hyperpod, first, properties | {"Tags": [{"Key": "cost", "Value": "1"}]})
    assert done.status == "done"
    assert targets(hyperpod) == {"controller": 1, "a": 3, "b": 2}, "a tag re-sends all counts"
    assert len(hyperpod.random_terminations) == 3, "and ends nodes at random"
    assert hyperpod.cluster("train").tags["cost"] == "1"
    updated(hyperpod, done, properties)
    assert hyperpod.cluster("train").tags == STACK


@pytest.mark.parametrize(
    ("way", "present", "gone_already"),
    [("delete_present", "deleted", "done"), ("leave", "kept", "done"), ("delete_blindly", "deleted", "failed")],
)
def test_three_ways_with_a_group_that_left_the_template(
    make: Make, way: VanishedGroups, present: str, gone_already: str
) -> None:
    hyperpod = make()
    both, one = slurm(group("a", 1), group("b", 1)), slurm(group("a", 1))
    first = created(hyperpod, both)
    done = updated(hyperpod, first, one, vanished_groups=way)
    assert done.status == "done"
    assert ("b" in targets(hyperpod)) == (present == "kept")

    hyperpod = make()
    first = created(hyperpod, both)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroupsToDelete": ["b"]})
    run_until_quiet(hyperpod)
    after = updated(hyperpod, first, one, vanished_groups=way)
    assert after.status == gone_already
    if gone_already == "failed":
        assert after.error_code == "InvalidRequest"
        assert after.message.startswith("Instance group(s) b specified in InstanceGroupsToDelete do not exist")


def test_a_new_group_below_its_minimum_does_not_stabilise(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    first = created(hyperpod, slurm(group("a", 1)))
    hyperpod.set_capacity("ml.g6.48xlarge", 1)
    began = clock.now()
    failed = updated(hyperpod, first, slurm(group("a", 1), group("b", 4, minimum=2, instance_type="ml.g6.48xlarge")))
    assert (failed.status, failed.error_code) == ("failed", "NotStabilized")
    assert clock.now() - began >= 3 * 3600
    assert "Rolled back to InstanceCount 0, MinInstanceCount 0." in failed.message
    back = updated(hyperpod, failed, slurm(group("a", 1)))
    assert back.status == "done" and targets(hyperpod) == {"controller": 1, "a": 1}, "the stack's rollback cleans up"


def test_a_busy_cluster_is_waited_for_or_fails(make: Make) -> None:
    hyperpod = make()
    first = created(hyperpod, slurm(group("a", 1)))
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    failed = updated(hyperpod, first, slurm(group("a", 2)), retries_conflicts=False)
    assert (failed.status, failed.error_code) == ("failed", "ResourceConflict")
    done = updated(hyperpod, first, slurm(group("a", 2)))
    assert done.status == "done" and targets(hyperpod)["a"] == 2


def test_throttling_is_waited_for(make: Make) -> None:
    hyperpod = make()
    hyperpod.faults.throttle_next = 3
    assert created(hyperpod, slurm(group("a", 1))).status == "done"


def test_a_refused_update_fails_with_the_sentence_of_the_service(make: Make) -> None:
    hyperpod = make()
    first = created(hyperpod, slurm(group("a", 1)))
    failed = updated(hyperpod, first, slurm(group("a", 1, instance_type="ml.g6.48xlarge")))
    assert (failed.status, failed.error_code) == ("failed", "InvalidRequest")
    assert failed.message.endswith("(Service: SageMaker, Status Code: 400) (HandlerErrorCode: InvalidRequest)")


def test_create_only_properties_mean_replacement(make: Make) -> None:
    old = eks(group("a", 1, node_type=None))
    assert replacement_reasons(old, old | {"NodeRecovery": "None"}) == ()
    assert replacement_reasons(old, old | {"ClusterName": "x"}) == ("ClusterName",)
    assert replacement_reasons(old, old | {"VpcConfig": VPC | {"Subnets": ["subnet-1"]}}) == ("VpcConfig",)
    assert replacement_reasons(old, old | {"Orchestrator": {"Eks": {"ClusterArn": EKS_ARN + "2"}}}) == (
        "Orchestrator/Eks",
    )
    assert replacement_reasons(slurm(), slurm() | {"Orchestrator": {"Slurm": {"AccountingDatabase": {}}}}) == ()
    handler = ClusterHandler(make())
    refused = handler.start("update", properties=old | {"ClusterName": "x"}, old_properties=old, physical_id="arn")
    assert (refused.status, refused.error_code) == ("failed", "NotUpdatable")
    assert refused.message == "createOnly properties differ: ClusterName"


def test_delete_waits_until_the_cluster_is_deleted(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    first = created(hyperpod, slurm(group("a", 2)))
    handler = ClusterHandler(hyperpod)
    for _ in range(2):  # the second: a retry while the first is in progress
        begun = handler.start("delete", properties=first.properties, physical_id=first.physical_id)
        assert (begun.status, begun.sent) == ("pending", True)
    assert finish(handler, hyperpod, begun).status == "done"
    again = handler.start("delete", properties=first.properties, physical_id=first.physical_id)
    assert again.status == "done", "gone is gone"


def test_a_handler_has_720_minutes(make: Make, clock: ManualClock) -> None:
    hyperpod = make()
    first = created(hyperpod, slurm(group("a", 1)))
    node_id = hyperpod.nodes("train", "a")[0].instance_id or ""
    hyperpod.faults.undying_nodes.add(node_id)
    handler = ClusterHandler(hyperpod)
    begun = handler.start("update", properties=slurm(), old_properties=first.properties, physical_id=first.physical_id)
    clock.advance(720 * 60 + 1)
    over = handler.poll(begun)
    assert (over.status, over.error_code, over.message) == ("failed", "NotStabilized", "Exceeded attempts to wait")
    assert handler.poll(over) == over


def test_a_controller_alone_is_valid(make: Make) -> None:
    assert created(make(), slurm()).properties["InstanceGroups"] == [CONTROLLER]
