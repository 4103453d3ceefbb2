"""Faults on request, and their entries in the journal."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError  # type: ignore[import-untyped]

from cdk_hyperpod_local.hyperpod import (
    ApiError,
    Call,
    CallerKilled,
    Faults,
    HyperPod,
    LostReplyError,
    ManualClock,
    SystemClock,
    Timings,
)
from cdk_hyperpod_local.hyperpod.clock import ScaledClock
from cdk_hyperpod_local.hyperpod.samples import group, run_until_quiet, slurm

Make = Callable[..., HyperPod]
DESCRIBE = ("DescribeCluster", {"ClusterName": "train"})


def test_throttling_has_no_effect_and_passes(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.faults.throttle_next = 2
    for _ in range(2):
        with pytest.raises(ApiError, match="Rate exceeded") as slow:
            hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 1)]})
        assert slow.value.code == "ThrottlingException"
    assert hyperpod.terminations == ()
    hyperpod.call(*DESCRIBE)


def test_throttling_by_chance_and_by_operation(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.faults = Faults(throttle_probability=0.5, throttle_operations=frozenset({"ListClusterNodes"}))
    outcomes = set()
    for _ in range(40):
        hyperpod.call(*DESCRIBE)
        try:
            hyperpod.call("ListClusterNodes", {"ClusterName": "train"})
            outcomes.add("ok")
        except ApiError as error:
            outcomes.add(error.code)
    assert outcomes == {"ok", "ThrottlingException"}


def test_faults_do_not_change_which_nodes_end() -> None:
    def victims(probability: float) -> list[str | None]:
        hyperpod = HyperPod(clock=ManualClock(), seed=3)
        hyperpod.call("CreateCluster", slurm(group("p5", 20)))
        run_until_quiet(hyperpod)
        hyperpod.faults.throttle_probability = probability
        for _ in range(50):
            try:
                hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", 10)]})
                break
            except ApiError:
                pass
        return [t.node_id for t in hyperpod.random_terminations]

    assert victims(0.8) == victims(0.0) != []


def test_a_lost_reply_took_effect(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.faults.lose_reply_next = 1
    node = hyperpod.nodes("train", "p5")[0]
    hyperpod.call(*DESCRIBE)
    with pytest.raises(LostReplyError):
        hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [node.instance_id]})
    assert [t.node_id for t in hyperpod.terminations] == [node.instance_id]
    assert (hyperpod.journal[-1].outcome, hyperpod.journal[-1].reply, hyperpod.journal[-1].changed) == (
        "ok",
        "lost",
        True,
    )


def test_a_client_sees_a_lost_reply_as_a_closed_connection(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.faults.lose_reply_probability = 1.0
    with pytest.raises(ConnectionClosedError):
        hyperpod.client().update_cluster(ClusterName="train", InstanceGroups=[group("p5", 5)])
    hyperpod.client().describe_cluster(ClusterName="train")


def test_a_node_that_will_not_die(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    node_id = hyperpod.nodes("train", "p5")[0].instance_id or ""
    hyperpod.faults.undying_nodes.add(node_id)
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [node_id]})
    clock.advance(100_000)
    assert [node.status for node in hyperpod.nodes("train", "p5")] == ["ShuttingDown", "Running"]
    hyperpod.faults.undying_nodes.clear()
    clock.advance(2_000)
    assert len(hyperpod.nodes("train", "p5")) == 1


def test_a_node_in_use_is_free_later(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    node_id = hyperpod.nodes("train", "p5")[0].instance_id or ""
    hyperpod.faults.in_use_until[node_id] = clock.now() + 100
    with pytest.raises(ApiError, match=f"NodeIdInUse: Node {node_id} is in use by another process"):
        hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [node_id]})
    clock.advance(100)
    hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [node_id]})


def test_a_permission_can_take_effect_late(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    hyperpod.faults.denied_until["DescribeCluster"] = clock.now() + 30
    client = hyperpod.client(principal="arn:aws:sts::000000000000:assumed-role/r/s")
    with pytest.raises(
        ClientError, match="assumed-role/r/s is not authorized to perform: sagemaker:DescribeCluster"
    ) as denied:
        client.describe_cluster(ClusterName="train")
    assert denied.value.response["Error"]["Code"] == "AccessDeniedException"
    clock.advance(30)
    client.describe_cluster(ClusterName="train")


def test_the_caller_dies_half_way_and_nothing_catches_it(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 4)))
    hyperpod.faults.kill_after_changes = 2
    done = 0
    with pytest.raises(CallerKilled):
        for node in hyperpod.nodes("train", "p5"):
            try:
                hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": "train", "NodeIds": [node.instance_id]})
                done += 1
            except Exception:  # noqa: BLE001 - this is what must not catch it
                raise AssertionError("an ordinary handler caught it") from None
    assert done == 1
    assert len(hyperpod.terminations) == 2, "the second call took effect"
    assert hyperpod.journal[-1].reply == "killed"
    hyperpod.faults.kill_after_calls = 1
    with pytest.raises(CallerKilled):
        hyperpod.call(*DESCRIBE)
    hyperpod.call(*DESCRIBE)


def test_the_journal_records_caller_operation_time_and_result(ready: Make, clock: ManualClock) -> None:
    hyperpod = ready(slurm(group("p5", 2)))
    start = len(hyperpod.journal)
    clock.advance(10)
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "NodeRecovery": "None"}, principal="alice")
    with pytest.raises(ApiError):
        hyperpod.call("DeleteCluster", {"ClusterName": "other"}, principal="bob")
    hyperpod.call("DescribeCluster", {"ClusterName": "train"}, principal="bob")
    entries = [json.loads(call.line()) for call in hyperpod.journal[start:]]
    assert [(e["principal"], e["operation"], e["outcome"], e["mutating"]) for e in entries] == [
        ("alice", "UpdateCluster", "ok", True),
        ("bob", "DeleteCluster", "ResourceNotFound", True),
        ("bob", "DescribeCluster", "ok", False),
    ]
    assert [e["number"] for e in entries] == [start + 1, start + 2, start + 3]
    assert entries[0]["at"] == clock.now() and entries[0]["params"] == {"ClusterName": "train", "NodeRecovery": "None"}
    assert entries[1]["message"] == "Could not find the cluster 'other'"
    assert hyperpod.changes(since=start) == {"UpdateCluster": 1}
    assert hyperpod.changes(since=start, principal="bob") == {}


def test_on_call_gets_each_call_and_can_fail_it() -> None:
    heard: list[Call] = []
    hyperpod = HyperPod(clock=ManualClock(), on_call=heard.append)
    hyperpod.call("CreateCluster", slurm(group("p5", 1)))
    with pytest.raises(ApiError):
        hyperpod.call("DescribeCluster", {"ClusterName": "nope"})
    assert [(call.operation, call.outcome) for call in heard] == [
        ("CreateCluster", "ok"),
        ("DescribeCluster", "ResourceNotFound"),
    ]
    assert heard == hyperpod.journal


def test_clocks_and_timings_refuse_invalid_values() -> None:
    with pytest.raises(ValueError, match="a clock cannot go back 1 s"):
        ManualClock().advance(-1)
    with pytest.raises(ValueError, match="speed must be above 0, not 0"):
        ScaledClock(speed=0)
    assert ScaledClock(speed=1e6, start=5.0).now() >= 5.0
    assert SystemClock().now() > 1.7e9
    assert Timings().faster(60).minimum_limit == 180
    with pytest.raises(ValueError, match=r"Timings.boot must not be negative"):
        Timings(boot=-1)
    with pytest.raises(ValueError, match=r"Timings.retry_failed must be above 0"):
        Timings(retry_failed=0)


def test_a_hyperpod_without_durations_is_ready_at_once() -> None:
    none = Timings(create_cluster=0, launch=0, boot=0, shut_down=0, count_lag=0, software_update=0)
    hyperpod = HyperPod(clock=ManualClock(), timings=none)
    hyperpod.call("CreateCluster", slurm(group("p5", 3)))
    assert hyperpod.call(*DESCRIBE)["ClusterStatus"] == "InService"
    assert len(hyperpod.call("ListClusterNodes", {"ClusterName": "train"})["ClusterNodeSummaries"]) == 4
