"""Every undocumented behaviour can be switched: one row for each value of every field of Behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, Behaviour, BusEvent, ClusterHandler, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

P5 = "ml.p5.48xlarge"
Probe = Callable[[HyperPod, ManualClock], Any]


def start(hyperpod: HyperPod, count: int = 4, *, minimum: int | None = None, continuous: bool = True) -> list[str]:
    """A cluster with a group of p5; the ids of its nodes."""
    hyperpod.call("CreateCluster", slurm(group("p5", count, minimum=minimum), continuous=continuous))
    run_until_quiet(hyperpod)
    return ids(hyperpod)


def ids(hyperpod: HyperPod) -> list[str]:
    return [node.instance_id for node in hyperpod.nodes("train", "p5") if node.instance_id]


def update(hyperpod: HyperPod, *groups: dict[str, Any], **more: Any) -> None:
    hyperpod.call(
        "UpdateCluster", {"ClusterName": "train", **({"InstanceGroups": list(groups)} if groups else {}), **more}
    )


def delete(hyperpod: HyperPod, *node_ids: str, **more: Any) -> dict[str, Any]:
    return hyperpod.call(
        "BatchDeleteClusterNodes", {"ClusterName": "train", **({"NodeIds": list(node_ids)} if node_ids else {}), **more}
    )


def p5(hyperpod: HyperPod) -> dict[str, Any]:
    groups = hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return next(g for g in groups if g["InstanceGroupName"] == "p5")


def status(hyperpod: HyperPod) -> str:
    return str(hyperpod.call("DescribeCluster", {"ClusterName": "train"})["ClusterStatus"])


def refusal(action: Callable[[], Any]) -> str:
    """The code of the error, or "ok"."""
    try:
        action()
    except ApiError as error:
        return error.code
    return "ok"


def target_falls(hyperpod: HyperPod, clock: ManualClock) -> list[int]:
    delete(hyperpod, start(hyperpod)[0])
    targets = [p5(hyperpod)["TargetCount"]]
    for wait in (900, 10_000):
        clock.advance(wait)
        targets.append(p5(hyperpod)["TargetCount"])
    return targets


def replaces(hyperpod: HyperPod, clock: ManualClock) -> int:
    gone = start(hyperpod)[0]
    delete(hyperpod, gone)
    clock.advance(800)
    assert len(hyperpod.nodes("train", "p5")) == 4, "nothing before the node has left the list"
    run_until_quiet(hyperpod)
    return len(ids(hyperpod))


def all_fail(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    return refusal(lambda: delete(hyperpod, "i-00000000000000000"))


def busy(hyperpod: HyperPod, clock: ManualClock) -> str:
    first = start(hyperpod)[0]
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    return refusal(lambda: delete(hyperpod, first))


def controller(hyperpod: HyperPod, clock: ManualClock) -> str:
    first = start(hyperpod)[0]
    answer = delete(hyperpod, first, hyperpod.nodes("train", "controller")[0].instance_id or "")
    return str(answer["Failed"][0]["Code"])


def logical_missing(hyperpod: HyperPod, clock: ManualClock) -> str:
    answer = delete(hyperpod, start(hyperpod)[0], NodeLogicalIds=["nobody"])
    return str(answer["FailedNodeLogicalIds"][0]["Code"])


def logical_launched(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    return refusal(lambda: delete(hyperpod, NodeLogicalIds=[hyperpod.nodes("train", "p5")[0].logical_id]))


def patched(hyperpod: HyperPod, clock: ManualClock) -> str:
    first = start(hyperpod)[0]
    return refusal(lambda: delete(hyperpod, first))


def random_ends_after_named(hyperpod: HyperPod, clock: ManualClock) -> list[int]:
    """Random terminations by an update to the current count: right after BatchDelete, out of the list, out of the
    count."""
    ended = []
    for wait in (0, 950, 5_000):
        hyperpod.call("CreateCluster", slurm(group("p5", 4), name=f"c{wait}"))
        run_until_quiet(hyperpod)
        name = f"c{wait}"
        first = hyperpod.nodes(name, "p5")[0].instance_id
        hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": name, "NodeIds": [first]})
        clock.advance(wait)
        before = len(hyperpod.random_terminations)
        hyperpod.call("UpdateCluster", {"ClusterName": name, "InstanceGroups": [group("p5", 3)]})
        ended.append(len(hyperpod.random_terminations) - before)
        run_until_quiet(hyperpod)
        assert len(hyperpod.nodes(name, "p5")) == 3, "what was ended too much is launched again"
    return ended


def spares(hyperpod: HyperPod, clock: ManualClock) -> bool:
    hyperpod.set_capacity(P5, 10)
    start(hyperpod, 20)
    update(hyperpod, group("p5", 10))
    return hyperpod.random_terminations == ()


def delete_alone(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    return refusal(lambda: update(hyperpod, InstanceGroupsToDelete=["p5"]))


def delete_unknown(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    return refusal(lambda: update(hyperpod, InstanceGroupsToDelete=["nope"]))


def delete_twice(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    update(hyperpod, InstanceGroupsToDelete=["p5"])
    return refusal(lambda: update(hyperpod, InstanceGroupsToDelete=["p5"]))


def absent_minimum(hyperpod: HyperPod, clock: ManualClock) -> int:
    start(hyperpod, minimum=2)
    update(hyperpod, group("p5", 5))
    return int(p5(hyperpod)["MinCount"])


def absent_patching(hyperpod: HyperPod, clock: ManualClock) -> tuple[bool, bool]:
    start(hyperpod)
    update(
        hyperpod,
        {
            **group("p5", 4),
            "AutoPatchConfig": {"PatchingStrategy": "WhenIdle"},
            "ScheduledUpdateConfig": {"ScheduleExpression": "cron(0 0 1 * ? *)"},
        },
    )
    assert {"AutoPatchConfig", "ScheduledUpdateConfig"} <= p5(hyperpod).keys()
    update(hyperpod, group("p5", 4))
    return "AutoPatchConfig" in p5(hyperpod), "ScheduledUpdateConfig" in p5(hyperpod)


def under_minimum(hyperpod: HyperPod, clock: ManualClock) -> tuple[str, int, int, str]:
    nodes = start(hyperpod, minimum=4)
    code = refusal(lambda: delete(hyperpod, nodes[0]))
    after = p5(hyperpod)["TargetCount"], p5(hyperpod)["MinCount"]
    return code, *after, refusal(lambda: update(hyperpod, group("p5", 2)))


def blocks(hyperpod: HyperPod, clock: ManualClock) -> str:
    first = start(hyperpod)[0]
    hyperpod.set_capacity("ml.g6.48xlarge", 0)
    update(hyperpod, group("g6", 2, minimum=2, instance_type="ml.g6.48xlarge"))
    return refusal(lambda: delete(hyperpod, first))


def restarts(hyperpod: HyperPod, clock: ManualClock) -> str:
    nodes = start(hyperpod, minimum=4)
    hyperpod.set_capacity(P5, 0)
    delete(hyperpod, *nodes[:3])
    run_until_quiet(hyperpod)
    update(hyperpod, group("p5", 5, minimum=4))
    return str(p5(hyperpod)["Status"])


def rollback_victims(hyperpod: HyperPod, clock: ManualClock) -> bool:
    """Whether the earlier nodes survive a rollback."""
    before = set(start(hyperpod, 10))
    hyperpod.set_capacity(P5, 20)
    update(hyperpod, group("p5", 30, minimum=25))
    run_until_quiet(hyperpod)
    assert len(ids(hyperpod)) == 10
    return set(ids(hyperpod)) == before


def rolled_back_status(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod)
    hyperpod.set_capacity(P5, 4)
    update(hyperpod, group("p5", 9, minimum=8))
    run_until_quiet(hyperpod)
    return str(p5(hyperpod)["Status"])


def shows_updating(hyperpod: HyperPod, clock: ManualClock) -> tuple[str, str]:
    start(hyperpod)
    update(hyperpod, group("p5", 5))
    first = status(hyperpod)
    clock.advance(60)
    return first, status(hyperpod)


def standard_delete(hyperpod: HyperPod, clock: ManualClock) -> str:
    delete(hyperpod, start(hyperpod, continuous=False)[0])
    return status(hyperpod)


def standard_failure(hyperpod: HyperPod, clock: ManualClock) -> tuple[str, int]:
    start(hyperpod, continuous=False)
    hyperpod.set_capacity(P5, 4)
    update(hyperpod, group("p5", 9))
    run_until_quiet(hyperpod)
    return status(hyperpod), p5(hyperpod)["TargetCount"]


def migrates(hyperpod: HyperPod, clock: ManualClock) -> str:
    start(hyperpod, continuous=False)
    return refusal(lambda: update(hyperpod, NodeProvisioningMode="Continuous"))


def unlaunched_id(hyperpod: HyperPod, clock: ManualClock) -> Any:
    hyperpod.set_capacity(P5, 0)
    hyperpod.call("CreateCluster", eks(group("p5", 1, node_type=None)))
    run_until_quiet(hyperpod)
    listed = hyperpod.call("ListClusterNodes", {"ClusterName": "train", "IncludeNodeLogicalIds": True})
    return listed["ClusterNodeSummaries"][0].get("InstanceId")


def patch_status(hyperpod: HyperPod, clock: ManualClock) -> tuple[str, str, str]:
    """The cluster's status, and whether it can be updated and deleted meanwhile."""
    start(hyperpod)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})
    return (
        status(hyperpod),
        refusal(lambda: update(hyperpod, group("p5", 5))),
        refusal(lambda: hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train"})),
    )


def same_image(hyperpod: HyperPod, clock: ManualClock) -> int:
    start(hyperpod)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", "InstanceGroups": [{"InstanceGroupName": "p5"}]})
    run_until_quiet(hyperpod)
    assert p5(hyperpod)["SoftwareUpdateStatus"] == "Succeeded"
    return len(hyperpod.re_images)


def another_image(hyperpod: HyperPod, clock: ManualClock) -> list[str]:
    """The images of the nodes after an UpdateCluster with another one, and one more node."""
    start(hyperpod, 1)
    update(hyperpod, group("p5", 2, ImageId="ami-0123456789abcdef0"))
    run_until_quiet(hyperpod)
    return [node.image for node in hyperpod.nodes("train", "p5")]


def image_id_in_template(hyperpod: HyperPod, clock: ManualClock) -> tuple[int, int]:
    """How many nodes CloudFormation re-images for a changed ImageId, and for a changed ImageReleaseVersion."""
    handler = ClusterHandler(hyperpod)

    def deployed(old: dict[str, Any] | None, **image: Any) -> dict[str, Any]:
        new = eks(group("p5", 2, node_type=None, **image))
        verb: Any = "update" if old else "create"
        arn = hyperpod.cluster("train").arn if old else ""
        progress = handler.start(verb, properties=new, old_properties=old, physical_id=arn)
        while progress.status == "pending":
            clock.advance(600)
            progress = handler.poll(progress)
        assert progress.status == "done", progress
        return new

    first = deployed(None)
    second = deployed(first, ImageId="ami-0123456789abcdef0")
    by_id = len(hyperpod.re_images)
    third = deployed(second)
    hyperpod.call("UpdateClusterSoftware", {"ClusterName": "train", "ImageId": "default"})
    run_until_quiet(hyperpod)
    before = len(hyperpod.re_images)
    deployed(third, ImageReleaseVersion="1.3.7")
    return by_id, len(hyperpod.re_images) - before


def group_deleted_alone(hyperpod: HyperPod, clock: ManualClock) -> bool:
    start(hyperpod)
    patching = {"PatchingStrategy": "WhenIdle"}
    update(hyperpod, group("p5", 4, AutoPatchConfig=patching), group("c5", 1, instance_type="ml.c5.large"))
    update(hyperpod, InstanceGroupsToDelete=["c5"])
    return "AutoPatchConfig" in p5(hyperpod)


def versions(hyperpod: HyperPod, clock: ManualClock) -> tuple[bool, bool]:
    """Whether a cluster with Slurm, and one with EKS, show them."""
    start(hyperpod)
    slurm_shows = "CurrentImageReleaseVersion" in p5(hyperpod)
    hyperpod.call("DeleteCluster", {"ClusterName": "train"})
    run_until_quiet(hyperpod)
    hyperpod.call("CreateCluster", eks(group("p5", 1, node_type=None)))
    return slurm_shows, "CurrentImageReleaseVersion" in p5(hyperpod)


def page_size(hyperpod: HyperPod, clock: ManualClock) -> int:
    start(hyperpod, 30)
    return len(hyperpod.call("ListClusterNodes", {"ClusterName": "train"})["ClusterNodeSummaries"])


def failures(hyperpod: HyperPod, clock: ManualClock) -> int:
    start(hyperpod, 1)
    hyperpod.set_capacity("ml.p5.48xlarge", 1)
    update(hyperpod, group("p5", 2))
    run_until_quiet(hyperpod)
    return sum(event.level == "Error" for event in hyperpod.cluster("train").events)


def warnings(hyperpod: HyperPod, clock: ManualClock) -> int:
    start(hyperpod, 1)
    update(hyperpod, group("p5", 2))
    run_until_quiet(hyperpod)
    return sum(event.level == "Warn" for event in hyperpod.cluster("train").events)


def metadata_sent(hyperpod: HyperPod, clock: ManualClock) -> bool:
    start(hyperpod, 1)
    (provisioned, *_) = (each for each in sent(hyperpod) if "provisioned" in each["Description"])
    return provisioned["EventDetails"]["EventMetadata"]["Instance"] is not None


def level_sent(hyperpod: HyperPod, clock: ManualClock) -> Any:
    start(hyperpod, 1)
    return sent(hyperpod)[0].get("EventLevel")


def sent(hyperpod: HyperPod) -> list[dict[str, Any]]:
    """The Cluster Events that EventBridge got."""
    notices = [notice for notice in hyperpod.take_notices() if isinstance(notice, BusEvent)]
    return [notice.detail["EventDetails"] for notice in notices if "EventDetails" in notice.detail]


def count_while_booting(hyperpod: HyperPod, clock: ManualClock) -> Any:
    start(hyperpod)
    update(hyperpod, group("p5", 5))
    clock.advance(hyperpod.timings.launch + 1)
    return p5(hyperpod)["CurrentCount"]


NEVER = {"batch_delete_lowers_target": "never"}

# field -> probe, other required fields, and the probe's result for each value
ROWS: dict[str, tuple[Probe, dict[str, Any], dict[Any, Any]]] = {
    "batch_delete_lowers_target": (
        target_falls,
        {},
        {"at_once": [3, 3, 3], "when_gone": [4, 3, 3], "never": [4, 4, 4]},
    ),
    "replaces_missing_nodes_after_batch_delete": (replaces, NEVER, {True: 4, False: 3}),
    "all_fail_code": (all_fail, {}, {"ValidationException": "ValidationException", "BadRequest": "BadRequest"}),
    "busy_code": (busy, {}, {c: c for c in ("ConflictException", "ValidationException")}),
    "controller_code": (controller, {}, {c: c for c in ("NodeIdInUse", "NODE_ID_IN_USE")}),
    "logical_not_found_code": (logical_missing, {}, {c: c for c in ("NodeIdNotFound", "NodeLogicalIdNotFound")}),
    "logical_ids_delete_launched_nodes": (logical_launched, {}, {True: "ok", False: "ValidationException"}),
    "patched_once_required": (patched, {}, {"never": "ok", "old_clusters": "ok", "always": "ValidationException"}),
    "counts_shutting_down_nodes": (
        random_ends_after_named,
        {},
        {"never": [0, 0, 0], "while_listed": [1, 0, 0], "while_counted": [1, 1, 0]},
    ),
    "current_count_holds": (count_while_booting, {}, {"booted": 4, "launched": 5}),
    "random_spares_unlaunched": (spares, {}, {True: True, False: False}),
    "update_needs_groups_with_delete": (delete_alone, {}, {False: "ok", True: "ValidationException"}),
    "delete_unknown_group": (delete_unknown, {}, {"refuse": "ValidationException", "ignore": "ok"}),
    "delete_deleting_group": (delete_twice, {}, {"accept": "ok", "conflict": "ConflictException"}),
    "absent_minimum_means": (absent_minimum, {}, {"unchanged": 2, "zero": 0}),
    "absent_scheduled_update_means": (absent_patching, {}, {"none": (False, False), "unchanged": (False, True)}),
    "below_minimum": (
        under_minimum,
        {},
        {
            "allow": ("ok", 3, 4, "ok"),
            "refuse": ("ValidationException", 4, 4, "ValidationException"),
            "lowers_minimum": ("ok", 3, 3, "ok"),
        },
    ),
    "minimum_blocks": (blocks, {}, {"group": "ok", "cluster": "ConflictException"}),
    "count_change_restarts_minimum": (restarts, {}, {False: "InService", True: "Updating"}),
    "rollback_ends_newest": (rollback_victims, {}, {True: True, False: False}),
    "rollback_group_status": (rolled_back_status, {}, {s: s for s in ("InService", "Failed", "Degraded")}),
    "continuous_update_shows_updating": (
        shows_updating,
        {},
        {False: ("InService", "InService"), True: ("Updating", "InService")},
    ),
    "standard_batch_delete_shows_updating": (standard_delete, {}, {True: "Updating", False: "InService"}),
    "standard_update_failure": (standard_failure, {}, {"rolls_back": ("InService", 4), "failed": ("Failed", 9)}),
    "standard_can_become_continuous": (migrates, {}, {False: "ValidationException", True: "ok"}),
    "unlaunched_instance_id": (unlaunched_id, {}, {"absent": None, "empty": ""}),
    "failed_launch_events": (failures, {}, {"one": 1, "two": 2}),
    "scaling_warnings": (warnings, {}, {True: 1, False: 0}),
    "event_metadata_in_eventbridge": (metadata_sent, {}, {"null": False, "filled": True}),
    "event_level_in_eventbridge": (level_sent, {}, {True: "Info", False: None}),
    "software_update_shows": (
        patch_status,
        {},
        {
            "SystemUpdating": ("SystemUpdating", "ConflictException", "ConflictException"),
            "InService": ("InService", "ok", "ConflictException"),
        },
    ),
    "same_image_again": (same_image, {}, {"nothing": 0, "re_images": 4}),
    "update_cluster_re_images": (
        another_image,
        {},
        {False: ["1.4.0", "ami-0123456789abcdef0"], True: ["ami-0123456789abcdef0", "ami-0123456789abcdef0"]},
    ),
    "changed_image_id_updates_software": (image_id_in_template, {}, {False: (0, 2), True: (2, 2)}),
    "group_deletion_drops_auto_patch": (group_deleted_alone, {}, {False: True, True: False}),
    "image_versions": (versions, {}, {"eks_since_2026": (False, True), "always": (True, True)}),
    "default_page_size": (page_size, {}, {10: 10, 25: 25}),
}


def test_every_unknown_has_its_row() -> None:
    assert set(ROWS) == {field.name for field in fields(Behaviour)}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, row in ROWS.items() for value in row[2]])
def test_each_behaviour_switch_changes_the_observed_result(field: str, value: Any) -> None:
    probe, needs, expected = ROWS[field]
    clock = ManualClock()
    hyperpod = HyperPod(clock=clock, seed=11, behaviour=Behaviour(**{**needs, field: value}))
    assert probe(hyperpod, clock) == expected[value]
    assert len(set(map(repr, expected.values()))) > 1, "a row whose values look the same proves nothing"


def test_a_count_sent_while_nodes_go_is_the_last_word() -> None:
    """The target was lowered manually. When the node leaves, it is not lowered again, and no replacement comes."""
    for lowers in ("when_gone", "never"):
        hyperpod = HyperPod(clock=ManualClock(), behaviour=Behaviour(batch_delete_lowers_target=lowers))
        first = start(hyperpod)[0]
        delete(hyperpod, first)
        update(hyperpod, group("p5", 3))
        run_until_quiet(hyperpod)
        assert (p5(hyperpod)["TargetCount"], len(ids(hyperpod)), hyperpod.random_terminations) == (3, 3, ())


def test_a_replacement_is_a_node_launched_after_the_deletion() -> None:
    clock = ManualClock()
    hyperpod = HyperPod(clock=clock, behaviour=Behaviour(batch_delete_lowers_target="never"))
    first = start(hyperpod)[0]
    at = clock.now()
    delete(hyperpod, first)
    run_until_quiet(hyperpod)
    launched = [node.launched_at or 0 for node in hyperpod.nodes("train", "p5")]
    assert [when > at for when in launched] == [False, False, False, True]
