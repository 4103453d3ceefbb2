"""Which nodes a failed deployment deleted: by HyperPod's events and its list of nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import notes
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import DeleteNodes, Pick
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Node as PlannedNode
from cdk_hyperpod.cli import tables
from cdk_hyperpod.cli.deployment.deleted_nodes import MOST_EVENTS, deleted_nodes, read_deleted
from cdk_hyperpod.cli.live import Node, Target
from cdk_hyperpod_local.hyperpod.samples import group
from unit.cli.conftest import FakeAws

Json = Any
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ENDING = "Termination of EC2 Instance i-1 is currently in progress in Cluster train and IG p5"
LAUNCHED = "EC2 Instance i-1 successfully provisioned in Cluster train and IG p5"


def node(name: str, group: str = "p5", *, status: str = "Running", after: int = -60) -> Node:
    return Node(
        group=group,
        instance_id=name,
        logical_id=None,
        instance_type="ml.p5.48xlarge",
        status=status,
        message="",
        launched=BEGAN + timedelta(seconds=after),
        image=None,
        image_status=None,
        host=None,
    )


def event(name: str, description: str = ENDING, group: str = "p5") -> Json:
    return {"InstanceId": name, "InstanceGroupName": group, "Description": description}


def test_nodes_with_events_that_are_no_longer_listed_were_deleted() -> None:
    listed = [
        node("i-stays"),
        node("i-new", after=60),
        node("i-other", "trn1", after=60),
        node("i-ending", status="ShuttingDown"),
    ]
    events = [
        event("i-gone"),
        event("i-stays", "Reboot"),
        event("i-ending"),
        {"Description": "of the group", "InstanceGroupName": "p5"},
    ]
    found = deleted_nodes(listed, events, BEGAN)
    assert found.by_group == {"p5": ("i-ending", "i-gone")}
    assert found.launched == {"p5": ("i-new",)}
    assert found.unread is None


def test_a_node_that_the_deployment_launched_itself_is_no_loss() -> None:
    assert deleted_nodes([], [event("i-1"), event("i-1", LAUNCHED)], BEGAN).by_group == {}


def test_events_that_hyperpod_no_longer_keeps_may_be_missed() -> None:
    found = deleted_nodes([], [event(f"i-{number}") for number in range(MOST_EVENTS)], BEGAN)
    assert len(found.by_group["p5"]) == MOST_EVENTS
    assert found.unread is not None and str(MOST_EVENTS) in found.unread


def test_more_nodes_deleted_than_launched_have_no_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "width", lambda: 80)
    found = deleted_nodes([node("i-new", after=1)], [event("i-a"), event("i-b"), event("i-c", group="g" * 63)], BEGAN)
    heading, titles, *rows = found.lines()
    assert heading == "Deleted before it failed:" and titles.split()[:2] == ["GROUP", "DELETED"]
    assert [row.split()[1:] for row in rows] == [["i-c", "-"], ["i-a", "i-new"], ["i-b", "-"]]
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize("denied", ["sagemaker:list_cluster_events", "sagemaker:list_cluster_nodes"])
def test_a_missing_permission_is_named(fake_aws: FakeAws, denied: str) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.denied = {denied}
    found = read_deleted(Target(name="small", region="us-west-2", client=fake_aws.client, config=None), BEGAN)
    assert found is not None and found.unread is not None and f"the permission {denied}" in found.unread
    assert found.lines()[0].startswith("note: which nodes were deleted cannot be read: ")


def test_without_a_cluster_nothing_is_known(fake_aws: FakeAws) -> None:
    assert read_deleted(Target(name="none", region="us-west-2", client=fake_aws.client, config=None), BEGAN) is None


def test_of_a_cluster_without_events_the_guard_s_log_has_the_nodes(
    fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdk_hyperpod.cli.deployment.deleted_nodes.live_stack", lambda *_: "stack")
    fake_aws.cluster(group("work", 2), group("old", 1), continuous=False)
    fake_aws.quiet()
    (stays, goes), (old,) = fake_aws.nodes("work"), fake_aws.nodes("old")
    picked = [Pick(PlannedNode(group="work", instance_id=name), "newest") for name in (stays, goes)]
    fake_aws.guard_log = [
        notes.line(DeleteNodes("work", tuple(picked))),
        notes.next_group("old", [old]),
        f"released {stays}, and deleted nothing",
    ]
    fake_aws.model.call("BatchDeleteClusterNodes", {"ClusterName": "small", "NodeIds": [goes, old]})
    fake_aws.quiet()
    found = read_deleted(Target(name="small", region="us-west-2", client=fake_aws.client, config=None), BEGAN)
    assert found is not None and found.by_group == {"old": (old,), "work": (goes,)}
