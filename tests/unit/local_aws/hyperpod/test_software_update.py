"""UpdateClusterSoftware from its request to its end: batches, waits, alarms, budgets, retries and rollbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, Behaviour, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
Json = dict[str, Any]
CUSTOM = "ami-0123456789abcdef0"


def shown(hyperpod: HyperPod, name: str = "p5") -> Json:
    groups = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return next(each for each in groups if each["InstanceGroupName"] == name)


def patch(hyperpod: HyperPod, *names: str, **more: Any) -> None:
    groups = {"InstanceGroups": [{"InstanceGroupName": name} for name in names]} if names else {}
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", **groups, **more})


def rolling(value: int, kind: str = "INSTANCE_COUNT", *, wait: int = 0, alarms: tuple[str, ...] = ()) -> Json:
    return {
        "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": kind, "Value": value}},
        "WaitIntervalInSeconds": wait,
        **({"AutoRollbackConfiguration": [{"AlarmName": name} for name in alarms]} if alarms else {}),
    }


def statuses(hyperpod: HyperPod) -> list[str]:
    """SoftwareUpdateStatus until the update is over, each once."""
    found = [shown(hyperpod)["SoftwareUpdateStatus"]]
    assert isinstance(hyperpod.clock, ManualClock)
    while hyperpod.next_event is not None:
        hyperpod.clock.advance(max(hyperpod.next_event - hyperpod.clock.now(), 0))
        status = shown(hyperpod)["SoftwareUpdateStatus"]
        if status != found[-1]:
            found.append(status)
    return found


def batches(hyperpod: HyperPod) -> list[int]:
    """How many nodes each batch had."""
    times = [each.at for each in hyperpod.re_images]
    return [times.count(at) for at in dict.fromkeys(times)]


@pytest.fixture
def four(ready: Make) -> HyperPod:
    """A group of four nodes under EKS, and a newer image."""
    hyperpod = ready(eks(group("p5", 4, node_type=None)))
    hyperpod.release_image("1.4.1")
    return hyperpod


def test_a_slurm_group_goes_at_once_and_keeps_its_nodes(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 3), group("c5", 1, instance_type="ml.c5.large")))
    before = {node.instance_id for node in hyperpod.nodes("train")}
    hyperpod.release_image("2.0.0")
    patch(hyperpod, "p5")
    assert (shown(hyperpod)["Status"], shown(hyperpod, "c5")["Status"]) == ("SystemUpdating", "InService")
    assert "SoftwareUpdateStatus" not in shown(hyperpod, "c5")
    clock.advance(61)
    assert [node.status for node in hyperpod.nodes("train", "p5")] == ["SystemUpdating"] * 3
    for operation in ("UpdateCluster", "DeleteCluster", "UpdateClusterSoftware"):
        with pytest.raises(ApiError, match="while it is in status SystemUpdating") as refused:
            hyperpod.call(operation, {"ClusterName": "train"})
        assert refused.value.code == "ConflictException"
    assert statuses(hyperpod) == ["InProgress", "Succeeded"]
    assert batches(hyperpod) == [3]
    assert {node.instance_id for node in hyperpod.nodes("train")} == before
    assert (
        shown(hyperpod)["CurrentImageId"]
        == shown(hyperpod)["DesiredImageId"]
        != shown(hyperpod, "c5")["CurrentImageId"]
    )
    assert shown(hyperpod)["TargetStateCount"] == 3
    assert hyperpod.cluster("train").status == "InService"


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        ({}, [4]),
        (rolling(1), [1, 1, 1, 1]),
        (rolling(3), [3, 1]),
        (rolling(50, "CAPACITY_PERCENTAGE"), [2, 2]),
        (rolling(1, "CAPACITY_PERCENTAGE"), [1, 1, 1, 1]),
        (rolling(100, "CAPACITY_PERCENTAGE"), [4]),
    ],
)
def test_a_rolling_update_patches_batches_of_the_given_size(
    four: HyperPod, deployment: Json, expected: list[int]
) -> None:
    patch(four, DeploymentConfig=deployment)
    assert statuses(four) == ["Pending", "InProgress", "Succeeded"]
    assert batches(four) == expected
    assert (shown(four)["CurrentImageReleaseVersion"], shown(four)["ImageVersionStatus"]) == ("1.4.1", "UpToDate")
    assert four.outside.cordoned == set()


def test_it_waits_between_batches(four: HyperPod, clock: ManualClock) -> None:
    began = clock.now()
    patch(four, DeploymentConfig=rolling(2, wait=600))
    assert shown(four)["ActiveSoftwareUpdateConfig"]["WaitIntervalInSeconds"] == 600
    statuses(four)
    first, second = dict.fromkeys(each.at for each in four.re_images)
    assert (first - began, second - first) == (60, 1800 + 600)
    assert clock.now() - second == 1800, "after the last batch there is nothing to wait for"


def test_an_alarm_in_the_third_batch_rolls_all_nodes_back(four: HyperPod, clock: ManualClock) -> None:
    four.outside.alarms = {"nccl": "OK"}
    patch(four, DeploymentConfig=rolling(1, wait=600, alarms=("nccl",)))
    while len(four.re_images) < 3:
        clock.advance(60)
        four.tick()
    clock.advance(1900)
    four.tick()
    four.outside.alarms = {"nccl": "ALARM"}
    assert statuses(four) == ["InProgress", "RollbackInProgress", "RollbackComplete"]
    assert [each.after for each in four.re_images] == ["1.4.1"] * 3 + ["1.4.0"] * 3
    assert (shown(four)["CurrentImageReleaseVersion"], shown(four)["DesiredImageReleaseVersion"]) == ("1.4.0", "1.4.0")
    assert shown(four)["TargetStateCount"] == 4


def test_an_alarm_that_cannot_be_read_rolls_back(four: HyperPod) -> None:
    patch(four, DeploymentConfig=rolling(2, wait=60, alarms=("none",)))
    assert statuses(four)[-1] == "RollbackComplete"


def test_a_budget_skips_its_nodes(four: HyperPod) -> None:
    kept = [str(node.instance_id) for node in four.nodes("train")[1:3]]
    four.outside.protected = set(kept)
    patch(four, DeploymentConfig=rolling(2))
    assert statuses(four)[-1] == "Succeeded"
    assert not {each.node_id for each in four.re_images} & set(kept)
    assert (shown(four)["TargetStateCount"], shown(four)["CurrentCount"]) == (2, 4)
    assert four.outside.cordoned == set()
    # All at once, nothing is drained, and no budget is asked.
    patch(four)
    statuses(four)
    assert shown(four)["TargetStateCount"] == 4


def test_scripts_that_fail_are_tried_four_times_and_then_rolled_back(four: HyperPod, clock: ManualClock) -> None:
    four.faults.failing_images = {"1.4.1"}
    patch(four, DeploymentConfig=rolling(1))
    clock.advance(60 + 1800 + 2 * 360)
    (node, *_) = four.nodes("train")
    assert (node.status, node.attempts) == ("SystemUpdating", 3)
    assert statuses(four) == ["InProgress", "RollbackInProgress", "RollbackComplete"]
    assert [each.after for each in four.re_images] == ["1.4.1", "1.4.0"]
    summary = four.call("ListClusterNodes", {"ClusterName": "train"})["ClusterNodeSummaries"][0]["InstanceStatus"]
    assert summary == {"Status": "Running", "Message": "Lifecycle scripts failed with exit code 1"}, "it is sticky"


def test_one_failed_attempt_is_no_failure(four: HyperPod) -> None:
    four.faults.fail_start_next = 3
    patch(four)
    assert statuses(four)[-1] == "Succeeded"


def test_nodes_whose_rollback_fails_too_are_replaced(four: HyperPod, clock: ManualClock) -> None:
    before = {node.instance_id for node in four.nodes("train")}
    four.faults.failing_images = {"1.4.0", "1.4.1"}
    patch(four)
    while shown(four)["SoftwareUpdateStatus"] in ("Pending", "InProgress", "RollbackInProgress"):
        clock.advance(60)
    assert shown(four)["SoftwareUpdateStatus"] == "Failed"
    assert {node.status for node in four.nodes("train")} == {"Failure"}
    four.faults.failing_images = set()
    run_until_quiet(four)
    assert {node.status for node in four.nodes("train")} == {"Running"}
    assert not {node.instance_id for node in four.nodes("train")} & before
    assert {node.image for node in four.nodes("train")} == {"1.4.0"}


def test_a_custom_image_must_be_named_again(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1, ImageId=CUSTOM)))
    assert shown(hyperpod)["CurrentImageId"] == CUSTOM
    with pytest.raises(ApiError, match="Instance group p5 uses a custom AMI"):
        patch(hyperpod, "p5")
    patch(hyperpod, "p5", ImageId="ami-0fedcba9876543210")
    run_until_quiet(hyperpod)
    assert shown(hyperpod)["CurrentImageId"] == "ami-0fedcba9876543210"
    patch(hyperpod, "p5", ImageId="default")
    run_until_quiet(hyperpod)
    assert shown(hyperpod)["CurrentImageId"] == shown(hyperpod, "controller")["CurrentImageId"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"DeploymentConfig": rolling(1)}, "DeploymentConfig is only supported"),
        (
            {"InstanceGroups": [{"InstanceGroupName": "p5", "ImageReleaseVersion": "1.4.1"}]},
            "ImageReleaseVersion is only",
        ),
        ({"InstanceGroups": [{"InstanceGroupName": "none"}]}, "Instance group none not found"),
    ],
)
def test_slurm_refuses_what_is_for_eks(ready: Make, more: Json, problem: str) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    with pytest.raises(ApiError, match=problem):
        patch(hyperpod, **more)
    assert hyperpod.re_images == ()


def test_an_eks_cluster_from_before_2026_has_no_versions() -> None:
    hyperpod = HyperPod(clock=ManualClock(1_760_000_000), behaviour=Behaviour(image_versions="eks_since_2026"))
    hyperpod.call("CreateCluster", eks(group("p5", 1, node_type=None)))
    run_until_quiet(hyperpod)
    assert "CurrentImageReleaseVersion" not in shown(hyperpod)
    with pytest.raises(ApiError, match="created on or after January 1, 2026"):
        patch(hyperpod, InstanceGroups=[{"InstanceGroupName": "p5", "ImageReleaseVersion": "1.4.1"}])


def test_a_node_that_hyperpod_replaces_meanwhile_starts_with_the_new_image(four: HyperPod, clock: ManualClock) -> None:
    patch(four, DeploymentConfig=rolling(2))
    clock.advance(100)
    node = four.nodes("train")[0]
    four.change_node(node.logical_id, faulty=True, due=clock.now())
    assert statuses(four)[-1] == "Succeeded"
    replaced = four.nodes("train")[0]
    assert replaced.instance_id != node.instance_id and replaced.image == "1.4.1"
    assert shown(four)["TargetStateCount"] == 4


def test_scripts_of_a_real_machine_decide(four: HyperPod, clock: ManualClock) -> None:
    """A node is SystemUpdating until its scripts have ended, however long that takes."""
    ended: dict[str, bool | None] = {}

    class Machines(type(four.outside)):  # type: ignore[misc]
        def scripts_ended(self, cluster: Any, node: Any) -> bool | None:
            return ended.get(node.instance_id)

    four.outside = Machines()
    patch(four)
    clock.advance(5000)
    assert {node.status for node in four.nodes("train")} == {"SystemUpdating"}
    ended.update({str(node.instance_id): True for node in four.nodes("train")})
    assert statuses(four)[-1] == "Succeeded"


def test_it_outlives_the_process(four: HyperPod, clock: ManualClock) -> None:
    patch(four, DeploymentConfig=rolling(1, wait=600))
    clock.advance(3000)
    again = HyperPod.from_json(four.to_json(), clock=clock)
    assert statuses(again) == ["InProgress", "Succeeded"]
    assert batches(again) == [1, 1, 1, 1]
