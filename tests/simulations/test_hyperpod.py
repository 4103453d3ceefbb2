"""The second HyperPod follows AWS's documentation, and each undocumented answer follows its switch."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from simulations.lifetimes import switches
from simulations.lifetimes.clock import Clock
from simulations.lifetimes.hyperpod import HyperPod, Pace, Refused
from simulations.lifetimes.software import FIRST, ami
from simulations.lifetimes.switches import Operations, Pages, Switches

BASE = replace(
    switches.draw(Random("base")),
    lowering="at once",
    counts_leaving=False,
    counts_ended=False,
    only_on_a_fall=True,
    by_target=False,
    unlaunched_first=True,
    unlaunched_listed=True,
    current_counts_booting=True,
    current_lag=0.0,
    minimum_blocks=True,
    count_below_minimum=True,
    list_lag=0.0,
    in_use="NodeIdInUse",
    not_found="ResourceNotFound",
    delete_alone=True,
    all_fail="ValidationException",
    page=100,
    pages="whole",
    clocks_apart=0.0,
    operations="told",
    operations_lag=0.0,
)


def spec(count: int, *, name: str = "p5", minimum: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "InstanceGroupName": name,
        "InstanceType": "ml.p5.48xlarge",
        "ExecutionRole": "arn:aws:iam::111122223333:role/nodes",
        "InstanceCount": count,
        "MinInstanceCount": minimum,
        **more,
    }


def made(*specs: dict[str, Any], how: Switches = BASE, continuous: bool = True) -> HyperPod:
    pod = HyperPod(Clock(), Random(1), how, Pace(), continuous=continuous)
    pod.create("train", specs, tags={}, network=None, orchestrator=None, by="person")
    pod.give_instances()
    return pod


def ids(pod: HyperPod, group: str = "p5") -> list[str]:
    return [node.id for node in pod.groups[group].live if node.id]


def ended(pod: HyperPod) -> list[str]:
    return [ending.how for ending in pod.endings]


def test_a_lower_count_ends_nodes_at_random() -> None:
    pod = made(spec(4))
    pod.update([spec(2)], by="person")
    assert ended(pod) == ["at random", "at random"]
    assert len(ids(pod)) == 2


def test_a_higher_count_launches_and_boots() -> None:
    pod = made(spec(1))
    pod.update([spec(3)], by="person")
    assert [node.id is None for node in pod.groups["p5"].nodes] == [False, True, True]
    pod.clock.pass_time(3600)
    assert [node.status for node in pod.groups["p5"].nodes] == ["Running"] * 3


def test_deleted_nodes_shut_down_and_leave() -> None:
    pod = made(spec(3))
    chosen = ids(pod)[:1]
    reply, _ = pod.batch_delete(chosen, by="person")
    assert reply["Successful"] == chosen
    statuses = {
        node["InstanceStatus"]["Status"]
        for node in pod.list_nodes(None, logical=True, most=100)["ClusterNodeSummaries"]
    }
    assert "ShuttingDown" in statuses
    pod.clock.pass_time(3600)
    assert len(pod.groups["p5"].nodes) == 2


@pytest.mark.parametrize(
    ("way", "at_first", "at_last"),
    [("at once", 2, 2), ("late, relative", 4, 2), ("late, absolute", 4, 2), ("when gone", 4, 2), ("never", 4, 4)],
)
def test_the_target_falls_as_the_switch_says(way: Any, at_first: int, at_last: int) -> None:
    pod = made(spec(4), how=replace(BASE, lowering=way, lowering_delay=20.0))
    pod.batch_delete(ids(pod)[:2], by="person")
    assert pod.groups["p5"].target == at_first
    pod.clock.pass_time(3600)
    assert pod.groups["p5"].target == at_last
    assert len(ids(pod)) == at_last


def test_a_late_lowering_comes_on_top_of_an_explicit_count() -> None:
    pod = made(spec(4), how=replace(BASE, lowering="late, relative", lowering_delay=20.0, late_lowering_ends=True))
    pod.batch_delete(ids(pod)[:1], by="person")
    pod.update([spec(3)], by="person")
    pod.clock.pass_time(60)
    assert pod.groups["p5"].target == 2
    assert ended(pod) == ["named", "late lowering"]


@pytest.mark.parametrize(("counts", "more"), [(False, 0), (True, 1)])
def test_an_update_counts_nodes_on_their_way_out_or_not(counts: bool, more: int) -> None:
    pod = made(spec(4), how=replace(BASE, lowering="never", counts_leaving=counts))
    pod.batch_delete(ids(pod)[:1], by="person")
    pod.update([spec(3)], by="person")
    assert ended(pod).count("at random") == more


@pytest.mark.parametrize(("counts", "more"), [(False, 0), (True, 1)])
def test_an_update_counts_what_current_count_still_holds_or_not(counts: bool, more: int) -> None:
    pod = made(spec(4), how=replace(BASE, counts_ended=counts, current_lag=9000.0, only_on_a_fall=False))
    pod.batch_delete(ids(pod)[:1], by="person")
    pod.clock.pass_time(3600)
    assert pod.current_count(pod.groups["p5"]) == 4
    pod.update([spec(3)], by="person")
    assert ended(pod).count("at random") == more


def test_an_update_gives_up_nodes_that_were_not_launched_first() -> None:
    pod = made(spec(2))
    pod.groups["p5"].lacks_capacity_until = 1e9
    pod.update([spec(4)], by="person")
    pod.update([spec(2)], by="person")
    assert {ending.node.id for ending in pod.endings} == {None}


def test_a_minimum_blocks_deletions_while_it_is_not_met() -> None:
    pod = made(spec(2))
    pod.groups["p5"].lacks_capacity_until = 4 * 3600.0
    pod.update([spec(4, minimum=4)], by="person")
    assert pod.describe()["InstanceGroups"][0]["Status"] == "Updating"
    with pytest.raises(Refused):
        pod.batch_delete(ids(pod)[:1], by="person")
    pod.clock.pass_time(3 * 3600 + 1)
    assert (pod.groups["p5"].target, pod.groups["p5"].minimum) == (2, 0)


@pytest.mark.parametrize(("before", "by"), [(4, "cloudformation"), (3, "cloudformation"), (2, "function")])
def test_the_party_that_sent_an_unmet_minimum_owns_its_rollback(before: int, by: str) -> None:
    """The transition's owner: while one is in progress, the same minimum or a lower one begins no other."""
    pod = made(spec(1))
    pod.groups["p5"].lacks_capacity_until = 4 * 3600.0
    pod.update([spec(6, minimum=before)], by="cloudformation")
    pod.update([spec(5, minimum=3)], by="function")
    pod.clock.pass_time(3 * 3600 + 1)
    assert {ending.call for ending in pod.endings if ending.how == "minimum's rollback"} == {by}


@pytest.mark.parametrize("blocks", [False, True])
def test_a_live_minimum_blocks_deletions_or_not(blocks: bool) -> None:
    pod = made(spec(2, minimum=2), how=replace(BASE, minimum_blocks=blocks))
    if blocks:
        with pytest.raises(Refused, match="MinInstanceCount"):
            pod.batch_delete(ids(pod)[:1], by="person")
    else:
        pod.batch_delete(ids(pod)[:1], by="person")


@pytest.mark.parametrize("below", [False, True])
def test_a_count_below_the_live_minimum_is_taken_or_not(below: bool) -> None:
    pod = made(spec(3, minimum=2), how=replace(BASE, count_below_minimum=below))
    if below:
        pod.update([spec(1, minimum=1)], by="person")
    else:
        with pytest.raises(Refused, match="MinInstanceCount"):
            pod.update([spec(1, minimum=1)], by="person")
        pod.update([spec(3, minimum=1)], by="person")
        pod.update([spec(1, minimum=1)], by="person")
    assert pod.groups["p5"].target == 1


@pytest.mark.parametrize(("lag", "shown"), [(0.0, "ShuttingDown"), (20.0, "Running")])
def test_the_list_lags_or_not(lag: float, shown: str) -> None:
    pod = made(spec(1), how=replace(BASE, list_lag=lag))
    pod.batch_delete(ids(pod), by="person")
    (node,) = pod.list_nodes(None, logical=True, most=100)["ClusterNodeSummaries"]
    assert node["InstanceStatus"]["Status"] == shown


@pytest.mark.parametrize("alone", [False, True])
def test_groups_are_deleted_without_naming_others_or_not(alone: bool) -> None:
    pod = made(spec(1), spec(2, name="old"), how=replace(BASE, delete_alone=alone))
    if not alone:
        with pytest.raises(Refused, match="InstanceGroups"):
            pod.update([], ["old"], by="person", alone=True)
        pod.update([spec(1)], ["old"], by="person")
    else:
        pod.update([], ["old"], by="person", alone=True)
    assert pod.groups["old"].status == "Deleting"
    with pytest.raises(Refused, match="being deleted"):
        pod.update([spec(1)], ["old"], by="person")
    pod.clock.pass_time(3600)
    assert list(pod.groups) == ["p5"]


@pytest.mark.parametrize("code", ["ValidationException", "BadRequestException", "answered"])
def test_where_no_node_can_go(code: Any) -> None:
    pod = made(spec(1), how=replace(BASE, all_fail=code, empty_lists=False))
    if code == "answered":
        reply, _ = pod.batch_delete(["i-00000000"], by="person")
        assert [entry["Code"] for entry in reply["Failed"]] == ["NodeIdNotFound"]
        assert set(reply) == {"Failed"}
    else:
        with pytest.raises(Refused) as refused:
            pod.batch_delete(["i-00000000"], by="person")
        assert refused.value.code == code


def test_a_controller_cannot_be_deleted() -> None:
    pod = made(spec(1, SlurmConfig={"NodeType": "Controller"}), spec(1, name="work"))
    reply, took = pod.batch_delete([*ids(pod), *ids(pod, "work")], by="person")
    assert [node.group for node in took] == ["work"]
    assert [entry["Code"] for entry in reply["Failed"]] == ["NodeIdInUse"]


def test_standard_provisioning_is_busy_while_it_changes() -> None:
    pod = made(spec(2), how=replace(BASE, busy="ConflictException"), continuous=False)
    pod.update([{**spec(3)}], by="person")
    with pytest.raises(Refused, match="in progress"):
        pod.batch_delete(ids(pod)[:1], by="person")
    pod.clock.pass_time(3600)
    assert pod.describe()["ClusterStatus"] == "InService"
    assert "NodeProvisioningMode" not in pod.describe()


def test_updates_are_refused_during_a_deep_health_check() -> None:
    pod = made(spec(2))
    pod.check_health(pod.groups["p5"].nodes, 600)
    with pytest.raises(Refused, match="deep health check"):
        pod.update([spec(3)], by="person")


def test_a_failed_node_is_replaced() -> None:
    pod = made(spec(2))
    broken = pod.groups["p5"].nodes[0]
    pod.fail(broken)
    pod.clock.pass_time(3600)
    assert broken.gone
    assert len(ids(pod)) == 2


def test_pages_neither_skip_nor_repeat_nodes_while_some_leave() -> None:
    pod = made(spec(5), how=replace(BASE, page=2))
    before = ids(pod)
    page = pod.list_nodes(None, logical=True, most=100)
    seen = [node["InstanceId"] for node in page["ClusterNodeSummaries"]]
    pod.batch_delete(before[:1], by="person")
    pod.clock.pass_time(3600)
    while token := page.get("NextToken"):
        page = pod.list_nodes(token, logical=True, most=100)
        seen += [node["InstanceId"] for node in page["ClusterNodeSummaries"]]
    assert seen == before


PAGES: dict[Pages, tuple[list[int], bool]] = {
    "whole": ([0, 1, 2, 3], True),
    "repeat": ([0, 1, 1, 2, 3], True),
    "repeat by the other id": ([0, 1, 1, 2, 3], False),
    "skip": ([0, 1, 3], True),
}


@pytest.mark.parametrize("pages", PAGES)
def test_pages_that_are_not_as_the_list_is(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = made(spec(4), how=replace(BASE, page=2, pages=pages))
    monkeypatch.setattr(pod.reads, "random", lambda: 0.0)
    places, launched = PAGES[pages]
    shown = every_page(pod)
    assert [each["NodeLogicalId"] for each in shown] == [f"n{place + 1:06d}" for place in places]
    assert all("InstanceId" in each for each in shown) is launched


def test_pages_that_change_repeat_as_many_nodes_as_they_skip() -> None:
    pod = made(spec(9), how=replace(BASE, page=2, pages="change"))
    found = [[each["InstanceId"] for each in every_page(pod)] for _ in range(20)]
    assert {len(each) for each in found} == {9}
    assert any(set(each) != set(ids(pod)) for each in found)


def every_page(pod: HyperPod) -> list[dict[str, Any]]:
    page = pod.list_nodes(None, logical=True, most=100)
    shown = list(page["ClusterNodeSummaries"])
    while token := page.get("NextToken"):
        page = pod.list_nodes(token, logical=True, most=100)
        shown += page["ClusterNodeSummaries"]
    return shown


def test_list_shows_a_node_as_it_was_for_a_while_also_if_it_has_left() -> None:
    pod = made(spec(2), how=replace(BASE, list_lag=100.0))
    first, other = ids(pod)
    pod.pace.shut_down = (20, 20)
    pod.batch_delete([first], by="person")
    for seconds, shown in ((50, {first: "Running", other: "Running"}), (60, {other: "Running"})):
        pod.clock.pass_time(seconds)
        listed = every_page(pod)
        assert {each["InstanceId"]: each["InstanceStatus"]["Status"] for each in listed} == shown


def test_launch_time_is_by_another_clock() -> None:
    pod = made(spec(1), how=replace(BASE, clocks_apart=-30.0))
    (node,) = pod.groups["p5"].nodes
    (shown,) = every_page(pod)
    assert (shown["LaunchTime"] - pod.clock.datetime(node.launched)).total_seconds() == -30


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"InstanceType": "ml.p5e.48xlarge"}, "InstanceType"),
        ({"ExecutionRole": "arn:aws:iam::111122223333:role/other"}, "ExecutionRole"),
        ({"MinInstanceCount": 3}, "MinInstanceCount"),
    ],
)
def test_an_update_with_an_immutable_or_invalid_field_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        made(spec(2)).update([{**spec(2), **wrong}], by="person")


def test_an_update_without_patching_turns_it_off() -> None:
    pod = made(spec(3, AutoPatchConfig={"PatchingStrategy": "WhenIdle"}))
    assert "AutoPatchConfig" in pod.describe()["InstanceGroups"][0]
    pod.update([spec(3)], by="cloudformation")
    assert "AutoPatchConfig" not in pod.describe()["InstanceGroups"][0]


EKS = {"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:111122223333:cluster/train"}}
PATCH = replace(
    BASE, patch_shows="SystemUpdating", same_image_again=False, update_re_images=False, deletion_drops_patching=False
)


def patched(pod: HyperPod, image: str = "1.5.0", **more: Any) -> list[str]:
    """SoftwareUpdateStatus, each once, until the update of p5 is over."""
    pod.software.update(["p5"], image, by="person", **more)
    found: list[str] = []
    while True:
        status = pod.describe()["InstanceGroups"][0]["SoftwareUpdateStatus"]
        found += [status] if status not in found[-1:] else []
        if not pod.software.in_progress:
            return found
        pod.clock.pass_time(20)


def batches(pod: HyperPod) -> list[int]:
    times = [each.at for each in pod.software.re_images]
    return [times.count(at) for at in dict.fromkeys(times)]


def test_a_software_update_keeps_nodes_and_refuses_everything_else() -> None:
    pod = made(spec(3), how=PATCH)
    before = ids(pod)
    pod.software.update(["p5"], "1.5.0", by="person")
    assert pod.describe()["ClusterStatus"] == pod.describe()["InstanceGroups"][0]["Status"] == "SystemUpdating"
    with pytest.raises(Refused, match="in progress"):
        pod.update([spec(4)], by="person")
    pod.clock.pass_time(4000)
    assert (pod.describe()["ClusterStatus"], ids(pod), batches(pod)) == ("InService", before, [3])
    assert {node.image for node in pod.groups["p5"].nodes} == {"1.5.0"}


def test_the_cluster_may_stay_in_service_and_batch_calls_are_refused_all_the_same() -> None:
    pod = made(spec(3), how=replace(PATCH, patch_shows="InService"))
    pod.software.update(["p5"], "1.5.0", by="person")
    assert pod.describe()["ClusterStatus"] == "InService"
    with pytest.raises(Refused, match="in progress"):
        pod.batch_delete(ids(pod)[:1], by="person")
    pod.update([spec(4)], by="person")
    with pytest.raises(Refused, match="ConflictException"):
        pod.software.update(["p5"], "1.6.0", by="person")


@pytest.mark.parametrize(("eks", "expected"), [(True, [1, 1, 1]), (False, [3])])
def test_batches_are_for_eks(eks: bool, expected: list[int]) -> None:
    pod = made(spec(3), how=PATCH)
    pod.orchestrator = EKS if eks else None
    assert patched(pod, batch=1) == ["Pending", "InProgress", "Succeeded"]
    assert batches(pod) == expected
    assert ("CurrentImageReleaseVersion" in pod.describe()["InstanceGroups"][0]) is eks


def test_an_update_that_fails_is_rolled_back() -> None:
    pod = made(spec(3), how=PATCH)
    pod.software.failures = 1.0
    assert patched(pod) == ["Pending", "InProgress", "RollbackInProgress", "RollbackComplete"]
    assert {node.image for node in pod.groups["p5"].nodes} == {FIRST}
    assert pod.describe()["InstanceGroups"][0]["CurrentImageId"] == ami(FIRST)


@pytest.mark.parametrize("again", [True, False])
def test_the_same_image_again(again: bool) -> None:
    pod = made(spec(3), how=replace(PATCH, same_image_again=again))
    assert patched(pod, FIRST)[-1] == "Succeeded"
    assert len(pod.software.re_images) == (3 if again else 0)


@pytest.mark.parametrize("again", [True, False])
def test_another_image_in_an_update(again: bool) -> None:
    pod = made(spec(3), how=replace(PATCH, update_re_images=again))
    pod.update([spec(3, ImageReleaseVersion="1.5.0")], by="cloudformation")
    pod.clock.pass_time(4000)
    assert len(pod.software.re_images) == (3 if again else 0)
    pod.update([spec(4, ImageReleaseVersion="1.5.0")], by="cloudformation")
    pod.clock.pass_time(4000)
    assert [node.image for node in pod.groups["p5"].nodes][-1] == "1.5.0", "new nodes get it"


def test_automatic_patching_leaves_busy_nodes_and_reverts_by_no_update() -> None:
    pod = made(spec(4, AutoPatchConfig={"PatchingStrategy": "WhenIdle"}), how=replace(PATCH, update_re_images=True))
    pod.software.latest = "1.4.3"
    pod.software.patch(pod.groups["p5"], idle=0.5)
    pod.clock.pass_time(9000)
    assert 0 < len(pod.software.re_images) < 4
    pod.update([spec(4, ImageReleaseVersion="1.4.0")], by="cloudformation")
    assert pod.groups["p5"].image == "1.4.3"


@pytest.mark.parametrize("drops", [True, False])
def test_a_deletion_alone_may_turn_patching_of_others_off(drops: bool) -> None:
    auto: dict[str, Any] = {"AutoPatchConfig": {"PatchingStrategy": "WhenIdle"}}
    pod = made(spec(1), spec(1, name="kept", **auto), how=replace(PATCH, deletion_drops_patching=drops))
    pod.update([], ["p5"], by="person", alone=True)
    assert ("AutoPatchConfig" in pod.groups["kept"].spec) is not drops
    assert len(pod.software.dropped) == drops


def test_list_operations_shows_what_is_in_progress() -> None:
    """The last operation of a group. Those before it are superseded."""
    pod = made(spec(4))
    pod.update([spec(3)], by="person")
    found = pod.list_operations()
    assert [each["ClusterArn"] for each in found] == [pod.arn]
    (detail,) = pod.describe_operation(found[0]["OperationId"])["ScalingDetails"]
    assert (detail["Original"], detail["Desired"]) == ({"TargetCount": 4}, {"TargetCount": 3})
    pod.update([spec(2)], by="autoscaler")
    assert [pod.status_of(each, "p5") for each in pod.operations] == ["Superseded", "InProgress"]
    pod.clock.pass_time(1000)
    assert not pod.list_operations()
    assert pod.describe_operation(pod.operations[1].id)["Status"] == "Done"


@pytest.mark.parametrize(
    ("operations", "told"),
    [("told", 0), ("told, also of deletions", 1), ("empty", 0), ("another cluster's", 0)],
)
def test_whether_a_deletion_is_an_operation_is_a_switch(operations: Operations, told: int) -> None:
    pod = made(spec(4), how=replace(BASE, operations=operations))
    pod.batch_delete(ids(pod)[:1], by="person")
    assert len(pod.list_operations()) == told


def test_operations_may_be_denied_and_anothers() -> None:
    pod = made(spec(4), how=replace(BASE, operations="denied"))
    with pytest.raises(Refused, match="AccessDenied"):
        pod.list_operations()
    pod = made(spec(4), how=replace(BASE, operations="another cluster's"))
    pod.update([spec(3)], by="person")
    assert pod.list_operations()[0]["ClusterArn"] != pod.arn
    assert not made(spec(4), continuous=False).list_operations()
