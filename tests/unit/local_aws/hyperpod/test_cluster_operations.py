"""The record of scaling requests: in progress, done, or superseded by a later one."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock, saved_state
from cdk_hyperpod_local.hyperpod.samples import group, run_until_quiet, slurm


def recorded(hyperpod: HyperPod, **filters: Any) -> list[Any]:
    found = hyperpod.call("ListClusterOperations", {"ClusterName": "train", **filters})["ClusterOperationSummaries"]
    return [
        hyperpod.call("DescribeClusterOperation", {"ClusterName": "train", "OperationId": each["OperationId"]})
        for each in found
    ]


def update(hyperpod: HyperPod, count: int) -> None:
    hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", count)]})


def test_each_request_that_changes_counts_is_recorded_and_the_later_one_supersedes() -> None:
    clock = ManualClock()
    hyperpod = HyperPod(clock=clock)
    hyperpod.call("CreateCluster", slurm(group("p5", 4)))
    run_until_quiet(hyperpod)
    update(hyperpod, 4)
    assert recorded(hyperpod) == [], "nothing was changed"
    update(hyperpod, 6)
    clock.advance(1)
    update(hyperpod, 3)
    newest, older = recorded(hyperpod)
    assert (newest["Status"], older["Status"]) == ("InProgress", "Superseded")
    assert newest["ScalingDetails"][0]["Original"]["TargetCount"] == 6
    assert newest["ScalingDetails"][0]["Desired"]["TargetCount"] == 3
    assert recorded(hyperpod, Status="InProgress") == [newest]
    again = saved_state.load(saved_state.dump(hyperpod._state, hyperpod.journal))[0]
    assert again.clusters == hyperpod._state.clusters
    run_until_quiet(hyperpod)
    assert [each["Status"] for each in recorded(hyperpod)] == ["Done", "Superseded"]
    clock.advance(15 * 86_400)
    assert recorded(hyperpod) == []
