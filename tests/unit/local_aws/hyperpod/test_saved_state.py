"""State that outlives the process, and invariants of any history."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_hyperpod_local.hyperpod import ApiError, Behaviour, Faults, HyperPod, LostReplyError, ManualClock
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet, slurm


def busy_hyperpod() -> HyperPod:
    """A HyperPod with all kinds of operations in progress."""
    faults = Faults(undying_nodes={"i-1"}, failing_groups={"x"}, throttle_operations=frozenset({"ListTags"}))
    hyperpod = HyperPod(clock=ManualClock(), seed=5, faults=faults)
    hyperpod.call("CreateCluster", slurm(group("p5", 4, minimum=2), Tags=[{"Key": "a", "Value": "b"}]))
    hyperpod.call("CreateCluster", slurm(group("p5", 2), name="standard", continuous=False))
    run_until_quiet(hyperpod)
    hyperpod.set_capacity("ml.p5.48xlarge", 7)
    hyperpod.set_capacity("ml.p5.48xlarge", None, at=hyperpod.clock.now() + 9_000)
    hyperpod.set_quota("ml.g6.48xlarge", 3)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 9, minimum=8)]})
    hyperpod.call("UpdateCluster", {"ClusterName": "standard", "InstanceGroups": [group("p5", 1)]})
    hyperpod.call("DescribeCluster", {"ClusterName": "train"})
    return hyperpod


def test_a_restored_hyperpod_continues() -> None:
    hyperpod = busy_hyperpod()
    copy = HyperPod.from_json(hyperpod.to_json())
    assert copy.to_json() == hyperpod.to_json()
    for each in (hyperpod, copy):
        run_until_quiet(each)
        each.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 3, minimum=0)]})
        run_until_quiet(each)
    assert copy.to_json() == hyperpod.to_json()
    assert len(copy.random_terminations) == len(hyperpod.random_terminations) > 0
    assert copy.journal == hyperpod.journal


def test_the_saved_state_has_every_part_of_the_simulation() -> None:
    state = json.loads(busy_hyperpod().to_json())["world"]
    assert set(state["behaviour"]) == {field.name for field in fields(Behaviour)}
    assert state["clusters"] and state["terminations"] and state["capacity"] and state["quotas"]


@pytest.mark.parametrize("text", ["{}", "[]", "nope", '{"format": 99}', '{"format": 1, "world": {}, "journal": []}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        HyperPod.from_json(text)


BEHAVIOURS = st.builds(
    Behaviour,
    batch_delete_lowers_target=st.sampled_from(["at_once", "when_gone", "never"]),
    replaces_missing_nodes_after_batch_delete=st.booleans(),
    counts_shutting_down_nodes=st.sampled_from(["never", "while_listed", "while_counted"]),
    current_count_holds=st.sampled_from(["booted", "launched"]),
    random_spares_unlaunched=st.booleans(),
    rollback_ends_newest=st.booleans(),
    continuous_update_shows_updating=st.booleans(),
    below_minimum=st.sampled_from(["allow", "refuse", "lowers_minimum"]),
    standard_update_failure=st.sampled_from(["rolls_back", "failed"]),
    software_update_shows=st.sampled_from(["SystemUpdating", "InService"]),
    same_image_again=st.sampled_from(["nothing", "re_images"]),
    update_cluster_re_images=st.booleans(),
    group_deletion_drops_auto_patch=st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("capacity"), st.integers(0, 8)),
        st.tuples(st.just("wait"), st.integers(0, 20_000)),
        st.tuples(st.just("software"), st.integers(0, 3), st.sampled_from(["OK", "ALARM"])),
        st.tuples(st.just("release")),
        st.tuples(st.just("drop")),
        st.tuples(st.just("fail"), st.integers(0, 3)),
    ),
    max_size=20,
)


def act(hyperpod: HyperPod, step: tuple[Any, ...], node_type: str | None) -> None:
    clock = hyperpod.clock
    assert isinstance(clock, ManualClock)
    match step:
        case ("update", count, minimum):
            spec = group("p5", count, minimum=minimum or None, node_type=node_type)
            hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [spec]})
        case ("delete", positions):
            nodes = hyperpod.nodes("train")
            ids = {nodes[n].instance_id for n in positions if n < len(nodes) and nodes[n].launched}
            if ids:
                hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": sorted(filter(None, ids))})
        case ("add", count):
            add = [{"InstanceGroupName": "p5", "IncrementTargetCountBy": count}]
            hyperpod.call("BatchAddClusterNodes", {"ClusterName": "train", "NodesToAdd": add})
        case ("capacity", limit):
            hyperpod.set_capacity("ml.p5.48xlarge", limit)
        case ("wait", seconds):
            clock.advance(seconds)
            hyperpod.tick()
        case ("software", batch, alarm):
            hyperpod.outside.alarms["errors"] = alarm
            config = {
                "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": batch}},
                "WaitIntervalInSeconds": 600,
                "AutoRollbackConfiguration": [{"AlarmName": "errors"}],
            }
            hyperpod.call(
                "UpdateClusterSoftware", {"ClusterName": "train", **({"DeploymentConfig": config} if batch else {})}
            )
        case ("release",):
            major, minor, patch = hyperpod._state.image.split(".")
            hyperpod.release_image(f"{major}.{minor}.{int(patch) + 1}")
        case ("drop",):
            hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroupsToDelete": ["p5"]})
        case ("fail", count):
            hyperpod.faults.fail_start_next = count


@settings(max_examples=300, deadline=None)
@given(behaviour=BEHAVIOURS, steps=STEPS, kind=st.sampled_from(["slurm", "eks", "standard"]), lost=st.floats(0, 0.3))
def test_any_sequence_of_operations_ends_in_a_consistent_cluster(
    behaviour: Behaviour, steps: list[Any], kind: str, lost: float
) -> None:
    hyperpod = HyperPod(clock=ManualClock(), seed=1, behaviour=behaviour)
    node_type = None if kind == "eks" else "Compute"
    base = group("p5", 3, node_type=node_type)
    side = group("side", 1, node_type=None, instance_type="ml.m5.large")
    hyperpod.call("CreateCluster", eks(side, base) if kind == "eks" else slurm(base, continuous=kind == "slurm"))
    run_until_quiet(hyperpod)
    hyperpod.faults.lose_reply_probability = lost
    for step in steps:
        before = len(hyperpod.terminations)
        try:
            act(hyperpod, step, node_type)
        except ApiError:
            assert len(hyperpod.terminations) == before, "a refused call ends nothing"
        except LostReplyError:
            pass
        check_books(hyperpod)
    hyperpod.faults = Faults()
    hyperpod.set_capacity("ml.p5.48xlarge", None)
    run_until_quiet(hyperpod, at_most=200_000)
    assert hyperpod.next_event is None, "everything comes to rest"
    shown = hyperpod.call("DescribeCluster", {"ClusterName": "train"})
    assert shown["ClusterStatus"] in ("InService", "Failed")
    if behaviour.replaces_missing_nodes_after_batch_delete and shown["ClusterStatus"] == "InService":
        for each in shown["InstanceGroups"]:
            assert each["CurrentCount"] >= each["TargetCount"] and each["Status"] == "InService"


def check_books(hyperpod: HyperPod) -> None:
    cluster = hyperpod.cluster("train")
    ended = [t.node_id for t in hyperpod.terminations if t.node_id]
    assert len(ended) == len(set(ended)), "no node ends twice"
    launched = [node.instance_id for node in cluster.nodes.values() if node.launched]
    assert len(launched) == len(set(launched))
    for node in cluster.nodes.values():
        assert node.group in cluster.groups or not node.live
        assert node.status != "ShuttingDown" or node.instance_id in ended
    for each in cluster.groups.values():
        assert each.target >= 0 and each.minimum >= 0 and each.holes >= 0
    assert not any(t.group in ("controller", "side") for t in hyperpod.random_terminations)
    named = {t.call for t in hyperpod.terminations if t.cause in ("named", "random", "group-deleted")}
    assert None not in named and all(hyperpod.journal[(n or 1) - 1].changed for n in named), (
        "who ended it is in the journal"
    )
