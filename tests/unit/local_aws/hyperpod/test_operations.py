"""The record of scaling requests: in progress, done, or superseded by a later one."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock, store
from cdk_hyperpod_local.hyperpod.samples import group, run_until_quiet, slurm


def recorded(model: HyperPod, **asked: Any) -> list[Any]:
    found = model.call("ListClusterOperations", {"ClusterName": "train", **asked})["ClusterOperationSummaries"]
    return [
        model.call("DescribeClusterOperation", {"ClusterName": "train", "OperationId": each["OperationId"]})
        for each in found
    ]


def update(model: HyperPod, count: int) -> None:
    model.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", count)]})


def test_each_request_that_changes_counts_is_recorded_and_the_later_one_supersedes() -> None:
    clock = ManualClock()
    model = HyperPod(clock=clock)
    model.call("CreateCluster", slurm(group("p5", 4)))
    run_until_quiet(model)
    update(model, 4)
    assert recorded(model) == [], "nothing was changed"
    update(model, 6)
    clock.advance(1)
    update(model, 3)
    newest, older = recorded(model)
    assert (newest["Status"], older["Status"]) == ("InProgress", "Superseded")
    assert newest["ScalingDetails"][0]["Original"]["TargetCount"] == 6
    assert newest["ScalingDetails"][0]["Desired"]["TargetCount"] == 3
    assert recorded(model, Status="InProgress") == [newest]
    again = store.load(store.dump(model._state, model.journal))[0]
    assert again.clusters == model._state.clusters
    run_until_quiet(model)
    assert [each["Status"] for each in recorded(model)] == ["Done", "Superseded"]
    clock.advance(15 * 86_400)
    assert recorded(model) == []
