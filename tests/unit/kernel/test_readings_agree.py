"""The readers of DescribeCluster and ListClusterNodes: the guard, the alerts, the commands and `patch`. They agree on every answer,
except where a test says by its name who differs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.alerts import live as alerts
from cdk_hyperpod._lambda.hyperpod.scale_down.model.live_cluster import read_cluster
from cdk_hyperpod.cli import live as commands
from cdk_hyperpod.cli.deployment.other_clusters import _count
from cdk_hyperpod.cli.nodes import watch_view
from cdk_hyperpod.cli.patch.reading import Reader

Json = dict[str, Any]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def group(name: str = "work", **members: Any) -> Json:
    return {"InstanceGroupName": name, **members}


def node(number: int, status: str | None = "Running", name: str = "work", **members: Any) -> Json:
    shown = {} if status is None else {"InstanceStatus": {"Status": status}}
    always = {"InstanceGroupName": name, "InstanceId": f"i-0a1b2c3{number}", "InstanceType": "ml.c5.large"}
    return {**always, "LaunchTime": BEGAN, **shown, **members}


def cluster(*groups: Json, **members: Any) -> Json:
    return {
        "ClusterArn": "arn:aws:sagemaker:eu-west-1:111122223333:cluster/abcdefabcdef",
        "ClusterName": "train",
        "ClusterStatus": "InService",
        "InstanceGroups": list(groups),
        **members,
    }


def target(*nodes: Json) -> commands.Target:
    class SageMaker:
        def list_cluster_nodes(self, **_: Any) -> Json:
            return {"ClusterNodeSummaries": list(nodes)}

    return commands.Target(name="train", region="eu-west-1", client=lambda _: SageMaker(), config=None)


COMPLETE: Json = {"Status": "InService", "CurrentCount": 2, "TargetCount": 2}
RUNNING = (node(1), node(2))


@pytest.mark.parametrize(
    ("shown", "nodes", "counts"),
    [
        pytest.param(COMPLETE, RUNNING, (2, 2), id="complete"),
        pytest.param({**COMPLETE, "TargetCount": 0}, RUNNING, (2, 0), id="target 0"),
        pytest.param({**COMPLETE, "CurrentCount": 0}, (), (0, 2), id="current 0"),
        pytest.param({"Status": "InService"}, (), (0, 0), id="neither count, and no node"),
        pytest.param({"TargetCount": 2}, RUNNING, (2, 2), id="no current count"),
        pytest.param({"CurrentCount": 2}, RUNNING, (2, 2), id="no target"),
    ],
)
def test_counts(shown: Json, nodes: tuple[Json, ...], counts: tuple[int, int]) -> None:
    reply = cluster(group(**shown))
    (guarded,), (alerted,) = read_cluster(reply, nodes).groups, alerts.read(reply).groups
    (patched,) = Reader(target(*nodes)).groups(reply)
    assert (guarded.current, guarded.target) == (alerted.current, alerted.target) == counts
    assert patched.current == _count(reply) == counts[0]


def test_without_a_count_the_guard_alone_counts_the_nodes_that_it_lists() -> None:
    # Alerts list no nodes. `patch` waits until as many are listed as are wanted.
    reply = cluster(group(TargetCount=3))
    assert read_cluster(reply, RUNNING).groups[0].current == 2
    assert alerts.read(reply).groups[0].missing == 0
    assert Reader(target(*RUNNING)).groups(reply)[0].current == 3


def test_watch_alone_shows_that_a_count_is_unknown() -> None:
    (shown,) = watch_view.state_content(watch_view.View(stack=None, cluster=cluster(group(TargetCount=2))))["groups"]
    assert (shown["status"], shown["current"], shown["target"]) == ("InService", None, 2)


@pytest.mark.parametrize("update", [None, "Pending", "InProgress", "RollbackInProgress", "Succeeded", "Failed", "New"])
@pytest.mark.parametrize(
    ("status", "moves"),
    [
        *((status, True) for status in ("Creating", "Updating", "SystemUpdating", "Deleting")),
        *((status, False) for status in (None, "InService", "Failed", "Degraded", "Undocumented")),
    ],
)
def test_alerts_and_patch_alone_see_a_software_update(status: str | None, moves: bool, update: str | None) -> None:
    # The guard leaves that to the status: HyperPod shows SystemUpdating while it rejects changes.
    given = {key: value for key, value in {"Status": status, "SoftwareUpdateStatus": update}.items() if value}
    reply = cluster(group(CurrentCount=2, TargetCount=2, **given))
    (guarded,), (alerted,) = read_cluster(reply).groups, alerts.read(reply).groups
    (patched,) = Reader(target()).groups(reply)
    updates = update in ("Pending", "InProgress", "RollbackInProgress")
    assert guarded.status == patched.status == (status or "InService")
    assert alerted.changing == (moves or updates)
    assert patched.is_updating == (updates or status == "SystemUpdating")


def test_the_guard_and_patch_alone_leave_restricted_groups_out() -> None:
    restricted = group("nova", CurrentCount=1, TargetCount=2)
    reply = cluster(group(**COMPLETE), RestrictedInstanceGroups=[restricted])
    of_nova = node(3, name="nova")
    assert [each.name for each in read_cluster(reply, (*RUNNING, of_nova)).groups] == ["work"]
    assert [each.name for each in Reader(target(*RUNNING, of_nova)).groups(reply)] == ["work"]
    assert [each.name for each in alerts.read(reply).groups] == ["work", "nova"]
    assert [each["InstanceGroupName"] for each in commands.groups(reply)] == ["work", "nova"]
    assert _count(reply) == 3
    # A deployment is not ready while nodes of one are missing.
    assert watch_view.end_of(watch_view.View(stack=None, cluster=reply)) is None


@pytest.mark.parametrize(
    ("nodes", "read"),
    [
        pytest.param((node(1, None),), [("i-0a1b2c31", "Pending")], id="no status"),
        pytest.param((node(1, "Undocumented"),), [("i-0a1b2c31", "Undocumented")], id="unknown status"),
        pytest.param(
            (node(1, None, InstanceId="", NodeLogicalId="work-1"),), [("work-1", "Pending")], id="not launched"
        ),
        pytest.param(
            (node(1), node(2, name="other")), [("i-0a1b2c31", "Running"), ("i-0a1b2c32", "Running")], id="group"
        ),
        pytest.param((node(1), node(1)), [("i-0a1b2c31", "Running")], id="twice"),
        pytest.param((node(1, "ShuttingDown"), node(1)), [("i-0a1b2c31", "ShuttingDown")], id="twice, leaving"),
        pytest.param(
            (node(1, NodeLogicalId="work-1"), node(1, "Pending", InstanceId="", NodeLogicalId="work-1")),
            [("i-0a1b2c31", "Running")],
            id="twice, by its logical id",
        ),
    ],
)
def test_nodes(nodes: tuple[Json, ...], read: list[tuple[str, str]]) -> None:
    reply = cluster(group(**COMPLETE))
    guarded, listed = read_cluster(reply, nodes).nodes, commands.nodes(target(*nodes), reply)
    assert [(each.name, each.status) for each in guarded] == [(each.name, each.status) for each in listed] == read
    assert [each.launched for each in guarded] == [each.launched for each in listed]
    (patched,) = Reader(target(*nodes)).groups(reply)
    assert list(patched.nodes) == [each for each in listed if each.group == "work"]


@pytest.mark.parametrize("status", ["Running", "Failure", "Pending", "ShuttingDown", "SystemUpdating", "NotFound"])
def test_a_node_that_leaves_for_the_guard_has_no_jobs_for_patch(status: str) -> None:
    reply = cluster(group(**COMPLETE))
    (guarded,) = read_cluster(reply, (node(1, status),)).nodes
    (patched,) = Reader(target(node(1, status))).groups(reply)
    assert guarded.is_there == bool(patched.with_jobs)
