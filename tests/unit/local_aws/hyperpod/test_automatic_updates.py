"""Software updates that HyperPod begins itself, by a schedule or by automatic patching."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, HyperPod, ManualClock, cron
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
DAY = 86_400


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()


def shown(hyperpod: HyperPod) -> dict[str, Any]:
    groups = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return next(each for each in groups if each["InstanceGroupName"] == "p5")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cron(30 12 15 * ? *)", "2026-06-15T12:30"),
        ("cron(0 0 * * ? *)", "2026-05-29T00:00"),
        ("cron(45 20 28 5 ? 2026)", "2026-05-28T20:45"),
        ("cron(0/15 * * * ? *)", "2026-05-28T20:30"),
        ("cron(0 4 ? * SUN *)", "2026-05-31T04:00"),
        ("cron(0 4 ? JAN-MAR MON-TUE *)", "2027-01-04T04:00"),
        ("cron(0,30 9-10 1 7,8 ? 2027)", "2027-07-01T09:00"),
        ("cron(0 0 31 2 ? *)", None),
        ("cron(0 0 1 1 ? 2020)", None),
    ],
)
def test_the_next_time_of_a_schedule(expression: str, expected: str | None) -> None:
    after = ManualClock().now()  # Thursday, 2026-05-28T20:26:40
    assert cron.next_time(expression, after) == (None if expected is None else seconds(expected))


@pytest.mark.parametrize(
    "expression",
    ["", "rate(1 day)", "cron(0 0 * * ?)", "cron(0 0 1 * 1 *)", "cron(0 0 ? * ? *)", "cron(60 0 1 * ? *)", "cron(0 x 1 * ? *)", "cron(0/0 0 1 * ? *)"],
)  # fmt: skip
def test_an_invalid_schedule_is_refused(make: Make, expression: str) -> None:
    with pytest.raises(ValueError, match=r"cron|value"):
        cron.parse(expression)
    with pytest.raises(ApiError) as refused:
        make().call("CreateCluster", slurm(group("p5", 1, ScheduledUpdateConfig={"ScheduleExpression": expression})))
    assert refused.value.code == "ValidationException"


@pytest.mark.parametrize("batch", [None, 1])
def test_a_schedule_updates_its_group_with_its_own_batches(ready: Make, clock: ManualClock, batch: int | None) -> None:
    """Without batches, it goes at once: under Slurm it always does, and ends all jobs of the group."""
    config: dict[str, Any] = {"ScheduleExpression": "cron(0 0 * * ? *)"}
    if batch:
        config["DeploymentConfig"] = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": batch}}}  # fmt: skip
    request = eks(group("p5", 2, node_type=None, ScheduledUpdateConfig=config)) if batch else slurm(group("p5", 2, ScheduledUpdateConfig=config))  # fmt: skip
    hyperpod = ready(request)
    hyperpod.release_image("1.5.0")
    clock.advance(DAY - clock.now() % DAY + 7200)
    assert shown(hyperpod)["SoftwareUpdateStatus"] == "Succeeded"
    times = [each.at for each in hyperpod.re_images]
    assert len(times) == 2 and len(set(times)) == (2 if batch else 1)
    assert all(each.call is None for each in hyperpod.re_images)
    # The next day there is no newer image, so nothing happens.
    clock.advance(DAY)
    hyperpod.tick()
    assert len(hyperpod.re_images) == 2


@pytest.fixture
def patched(ready: Make) -> Callable[..., HyperPod]:
    def build(strategy: str, **more: Any) -> HyperPod:
        config = {"PatchingStrategy": strategy, **more}
        return ready(eks(group("p5", 3, node_type=None, AutoPatchConfig=config)))

    return build


def test_only_a_patch_of_the_same_minor_version_is_planned(
    patched: Callable[..., HyperPod], clock: ManualClock
) -> None:
    hyperpod = patched("WhenIdle")
    assert "CurrentPatchSchedule" not in shown(hyperpod)["AutoPatchConfig"]
    hyperpod.release_image("1.5.0")
    assert "CurrentPatchSchedule" not in shown(hyperpod)["AutoPatchConfig"]
    hyperpod.release_image("1.4.2")
    date = shown(hyperpod)["AutoPatchConfig"]["CurrentPatchSchedule"]["NextPatchDate"]
    assert date.timestamp() == clock.now() + 21 * DAY
    later = datetime.datetime.fromtimestamp(clock.now() + 50 * DAY, datetime.UTC)
    config = {"PatchingStrategy": "WhenIdle", "PatchSchedule": {"NextPatchDate": later}}
    moved = group("p5", 3, node_type=None, AutoPatchConfig=config)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [moved]})
    assert shown(hyperpod)["AutoPatchConfig"]["DesiredPatchSchedule"]["NextPatchDate"] == later
    clock.advance(49 * DAY)
    hyperpod.tick()
    assert not hyperpod.re_images
    clock.advance(2 * DAY)
    hyperpod.tick()
    assert [each.after for each in hyperpod.re_images] == ["1.4.2"] * 3


def test_when_idle_patches_each_node_and_leaves_busy_ones(patched: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = patched("WhenIdle")
    first, second, third = (str(node.instance_id) for node in hyperpod.nodes("train"))
    hyperpod.outside.busy = {second, third}
    hyperpod.release_image("1.4.1")
    clock.advance(21 * DAY + 3600)
    hyperpod.tick()
    assert [each.node_id for each in hyperpod.re_images] == [first]
    assert hyperpod.outside.cordoned == {second, third}, "a patched node is uncordoned at once"
    assert hyperpod.cluster("train").status == "InService"
    hyperpod.outside.busy = {third}
    clock.advance(DAY)
    hyperpod.tick()
    assert [each.node_id for each in hyperpod.re_images] == [first, second]
    assert hyperpod.outside.cordoned == set()
    assert shown(hyperpod)["TargetStateCount"] == 2, "a partial patch"
    assert shown(hyperpod)["SoftwareUpdateStatus"] == "Failed"


@pytest.mark.parametrize(("busy", "expected"), [(0, 3), (1, 0)])
def test_when_all_idle_patches_all_or_none(
    patched: Callable[..., HyperPod], clock: ManualClock, busy: int, expected: int
) -> None:
    hyperpod = patched("WhenAllIdle", IdleWaitWindowInSeconds=7200)
    hyperpod.outside.busy = {str(node.instance_id) for node in hyperpod.nodes("train")[:busy]}
    hyperpod.release_image("1.4.1")
    clock.advance(21 * DAY + 4 * 3600)
    hyperpod.tick()
    assert len(hyperpod.re_images) == expected
    version = shown(hyperpod)["CurrentImageReleaseVersion"], shown(hyperpod)["DesiredImageReleaseVersion"]
    assert version == (("1.4.1", "1.4.1") if expected else ("1.4.0", "1.4.0"))
    assert hyperpod.outside.cordoned == set()


def test_an_update_with_an_older_patch_reverts_nothing(ready: Make) -> None:
    p5 = group("p5", 1, node_type=None, ImageReleaseVersion="1.4.0")
    hyperpod = ready(eks(p5), update_cluster_re_images=True)
    hyperpod.release_image("1.4.2")
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    for image, live in (("1.4.0", "1.4.2"), ("1.3.9", "1.3.9")):
        hyperpod.call(
            "UpdateCluster", {"ClusterName": "train", "InstanceGroups": [p5 | {"ImageReleaseVersion": image}]}
        )
        run_until_quiet(hyperpod)
        assert {node.image for node in hyperpod.nodes("train")} == {live}
        assert shown(hyperpod)["DesiredImageReleaseVersion"] == live


def test_patching_that_was_turned_off_never_begins(patched: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = patched("WhenIdle")
    hyperpod.release_image("1.4.1")
    without = group("p5", 3, node_type=None)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [without]})
    assert "AutoPatchConfig" not in shown(hyperpod)
    clock.advance(60 * DAY)
    hyperpod.tick()
    assert hyperpod.re_images == ()


def test_patching_rolls_nothing_back(patched: Callable[..., HyperPod], clock: ManualClock) -> None:
    hyperpod = patched("WhenIdle")
    before = {node.instance_id for node in hyperpod.nodes("train")}
    hyperpod.release_image("1.4.1")
    hyperpod.faults.failing_images = {"1.4.1"}
    clock.advance(21 * DAY + 2900)
    hyperpod.tick()
    assert {each.after for each in hyperpod.re_images} == {"1.4.1"}
    hyperpod.faults.failing_images = set()
    run_until_quiet(hyperpod, at_most=2 * DAY)
    assert {node.image for node in hyperpod.nodes("train")} == {"1.4.1"}
    assert not {node.instance_id for node in hyperpod.nodes("train")} & before, "failed nodes are replaced"
