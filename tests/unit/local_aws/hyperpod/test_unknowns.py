"""Every answer that AWS does not document can be had both ways: one row per value of every field of Behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from cdk_hyperpod_local.hyperpod import ApiError, Behaviour, HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm

P5 = "ml.p5.48xlarge"
Probe = Callable[[HyperPod, ManualClock], Any]


def start(model: HyperPod, count: int = 4, *, minimum: int | None = None, continuous: bool = True) -> list[str]:
    """A cluster with a group of p5; the ids of its nodes."""
    model.call("CreateCluster", slurm(group("p5", count, minimum=minimum), continuous=continuous))
    run_until_quiet(model)
    return ids(model)


def ids(model: HyperPod) -> list[str]:
    return [node.instance_id for node in model.nodes("train", "p5") if node.instance_id]


def update(model: HyperPod, *groups: dict[str, Any], **more: Any) -> None:
    model.call(
        "UpdateCluster", {"ClusterName": "train", **({"InstanceGroups": list(groups)} if groups else {}), **more}
    )


def delete(model: HyperPod, *node_ids: str, **more: Any) -> dict[str, Any]:
    return model.call(
        "BatchDeleteClusterNodes", {"ClusterName": "train", **({"NodeIds": list(node_ids)} if node_ids else {}), **more}
    )


def p5(model: HyperPod) -> dict[str, Any]:
    groups = model.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
    return next(g for g in groups if g["InstanceGroupName"] == "p5")


def status(model: HyperPod) -> str:
    return str(model.call("DescribeCluster", {"ClusterName": "train"})["ClusterStatus"])


def refusal(action: Callable[[], Any]) -> str:
    """The code of the error, or "ok"."""
    try:
        action()
    except ApiError as error:
        return error.code
    return "ok"


def target_falls(model: HyperPod, clock: ManualClock) -> list[int]:
    delete(model, start(model)[0])
    targets = [p5(model)["TargetCount"]]
    for wait in (900, 10_000):
        clock.advance(wait)
        targets.append(p5(model)["TargetCount"])
    return targets


def replaces(model: HyperPod, clock: ManualClock) -> int:
    gone = start(model)[0]
    delete(model, gone)
    clock.advance(800)
    assert len(model.nodes("train", "p5")) == 4, "nothing before the node has left the list"
    run_until_quiet(model)
    return len(ids(model))


def all_fail(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    return refusal(lambda: delete(model, "i-00000000000000000"))


def busy(model: HyperPod, clock: ManualClock) -> str:
    first = start(model)[0]
    model.call("UpdateClusterSoftware", {"ClusterName": "train"})
    return refusal(lambda: delete(model, first))


def controller(model: HyperPod, clock: ManualClock) -> str:
    first = start(model)[0]
    answer = delete(model, first, model.nodes("train", "controller")[0].instance_id or "")
    return str(answer["Failed"][0]["Code"])


def logical_missing(model: HyperPod, clock: ManualClock) -> str:
    answer = delete(model, start(model)[0], NodeLogicalIds=["nobody"])
    return str(answer["FailedNodeLogicalIds"][0]["Code"])


def logical_launched(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    return refusal(lambda: delete(model, NodeLogicalIds=[model.nodes("train", "p5")[0].logical_id]))


def patched(model: HyperPod, clock: ManualClock) -> str:
    first = start(model)[0]
    return refusal(lambda: delete(model, first))


def random_ends_after_named(model: HyperPod, clock: ManualClock) -> list[int]:
    """Random ends by an update to the count already met: right after BatchDelete, off the list, out of the count."""
    ended = []
    for wait in (0, 950, 5_000):
        model.call("CreateCluster", slurm(group("p5", 4), name=f"c{wait}"))
        run_until_quiet(model)
        name = f"c{wait}"
        first = model.nodes(name, "p5")[0].instance_id
        model.call("BatchDeleteClusterNodes", {"ClusterName": name, "NodeIds": [first]})
        clock.advance(wait)
        before = len(model.random_terminations)
        model.call("UpdateCluster", {"ClusterName": name, "InstanceGroups": [group("p5", 3)]})
        ended.append(len(model.random_terminations) - before)
        run_until_quiet(model)
        assert len(model.nodes(name, "p5")) == 3, "what was ended too much is launched again"
    return ended


def spares(model: HyperPod, clock: ManualClock) -> bool:
    model.set_capacity(P5, 10)
    start(model, 20)
    update(model, group("p5", 10))
    return model.random_terminations == ()


def delete_alone(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    return refusal(lambda: update(model, InstanceGroupsToDelete=["p5"]))


def delete_unknown(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    return refusal(lambda: update(model, InstanceGroupsToDelete=["nope"]))


def delete_twice(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    update(model, InstanceGroupsToDelete=["p5"])
    return refusal(lambda: update(model, InstanceGroupsToDelete=["p5"]))


def absent_minimum(model: HyperPod, clock: ManualClock) -> int:
    start(model, minimum=2)
    update(model, group("p5", 5))
    return int(p5(model)["MinCount"])


def absent_patching(model: HyperPod, clock: ManualClock) -> tuple[bool, bool]:
    start(model)
    update(
        model,
        {
            **group("p5", 4),
            "AutoPatchConfig": {"PatchingStrategy": "WhenIdle"},
            "ScheduledUpdateConfig": {"ScheduleExpression": "cron(0 0 1 * ? *)"},
        },
    )
    assert {"AutoPatchConfig", "ScheduledUpdateConfig"} <= p5(model).keys()
    update(model, group("p5", 4))
    return "AutoPatchConfig" in p5(model), "ScheduledUpdateConfig" in p5(model)


def under_minimum(model: HyperPod, clock: ManualClock) -> tuple[str, int, int, str]:
    nodes = start(model, minimum=4)
    said = refusal(lambda: delete(model, nodes[0]))
    after = p5(model)["TargetCount"], p5(model)["MinCount"]
    return said, *after, refusal(lambda: update(model, group("p5", 2)))


def blocks(model: HyperPod, clock: ManualClock) -> str:
    first = start(model)[0]
    model.set_capacity("ml.g6.48xlarge", 0)
    update(model, group("g6", 2, minimum=2, instance_type="ml.g6.48xlarge"))
    return refusal(lambda: delete(model, first))


def restarts(model: HyperPod, clock: ManualClock) -> str:
    nodes = start(model, minimum=4)
    model.set_capacity(P5, 0)
    delete(model, *nodes[:3])
    run_until_quiet(model)
    update(model, group("p5", 5, minimum=4))
    return str(p5(model)["Status"])


def rollback_victims(model: HyperPod, clock: ManualClock) -> bool:
    """Whether the nodes that were there before survive a rollback."""
    before = set(start(model, 10))
    model.set_capacity(P5, 20)
    update(model, group("p5", 30, minimum=25))
    run_until_quiet(model)
    assert len(ids(model)) == 10
    return set(ids(model)) == before


def rolled_back_status(model: HyperPod, clock: ManualClock) -> str:
    start(model)
    model.set_capacity(P5, 4)
    update(model, group("p5", 9, minimum=8))
    run_until_quiet(model)
    return str(p5(model)["Status"])


def shows_updating(model: HyperPod, clock: ManualClock) -> tuple[str, str]:
    start(model)
    update(model, group("p5", 5))
    first = status(model)
    clock.advance(60)
    return first, status(model)


def standard_delete(model: HyperPod, clock: ManualClock) -> str:
    delete(model, start(model, continuous=False)[0])
    return status(model)


def standard_failure(model: HyperPod, clock: ManualClock) -> tuple[str, int]:
    start(model, continuous=False)
    model.set_capacity(P5, 4)
    update(model, group("p5", 9))
    run_until_quiet(model)
    return status(model), p5(model)["TargetCount"]


def migrates(model: HyperPod, clock: ManualClock) -> str:
    start(model, continuous=False)
    return refusal(lambda: update(model, NodeProvisioningMode="Continuous"))


def unlaunched_id(model: HyperPod, clock: ManualClock) -> Any:
    model.set_capacity(P5, 0)
    model.call("CreateCluster", eks(group("p5", 1, node_type=None)))
    run_until_quiet(model)
    listed = model.call("ListClusterNodes", {"ClusterName": "train", "IncludeNodeLogicalIds": True})
    return listed["ClusterNodeSummaries"][0].get("InstanceId")


def page_size(model: HyperPod, clock: ManualClock) -> int:
    start(model, 30)
    return len(model.call("ListClusterNodes", {"ClusterName": "train"})["ClusterNodeSummaries"])


def count_while_booting(model: HyperPod, clock: ManualClock) -> Any:
    start(model)
    update(model, group("p5", 5))
    clock.advance(model.timings.launch + 1)
    return p5(model)["CurrentCount"]


NEVER = {"batch_delete_lowers_target": "never"}

# field -> probe, other fields it needs, and what the probe sees for each value
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
    "default_page_size": (page_size, {}, {10: 10, 25: 25}),
}


def test_every_unknown_has_its_row() -> None:
    assert set(ROWS) == {field.name for field in fields(Behaviour)}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, row in ROWS.items() for value in row[2]])
def test_both_answers(field: str, value: Any) -> None:
    probe, needs, expected = ROWS[field]
    clock = ManualClock()
    model = HyperPod(clock=clock, seed=11, behaviour=Behaviour(**{**needs, field: value}))
    assert probe(model, clock) == expected[value]
    assert len(set(map(repr, expected.values()))) > 1, "a row whose values look the same proves nothing"


def test_a_count_sent_while_nodes_go_is_the_last_word() -> None:
    """The target was lowered by hand: when the node leaves, nothing more comes off, and nobody replaces it."""
    for lowers in ("when_gone", "never"):
        model = HyperPod(clock=ManualClock(), behaviour=Behaviour(batch_delete_lowers_target=lowers))
        first = start(model)[0]
        delete(model, first)
        update(model, group("p5", 3))
        run_until_quiet(model)
        assert (p5(model)["TargetCount"], len(ids(model)), model.random_terminations) == (3, 3, ())


def test_a_replacement_is_a_node_launched_after_the_deletion() -> None:
    clock = ManualClock()
    model = HyperPod(clock=clock, behaviour=Behaviour(batch_delete_lowers_target="never"))
    first = start(model)[0]
    at = clock.now()
    delete(model, first)
    run_until_quiet(model)
    launched = [node.launched_at or 0 for node in model.nodes("train", "p5")]
    assert [when > at for when in launched] == [False, False, False, True]
