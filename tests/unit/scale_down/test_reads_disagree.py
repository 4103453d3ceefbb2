"""Lists that repeat or skip nodes, lag behind the counts, or have another clock: no other node is deleted for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.live_cluster import read_cluster
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import State, read_state, with_plan
from helpers.scale_down.clusters import (
    START,
    desired,
    desired_group,
    group,
    late,
    live,
    node_id,
    nodes,
    request_context,
    waiting,
)
from helpers.scale_down.scenarios import ended, ids
from helpers.scale_down.stack import Stack, Template
from helpers.scale_down.stack import group as spec

Summaries = list[dict[str, Any]]
Change = Callable[[Summaries], Summaries]


class Listing:
    """A client whose ListClusterNodes shows the nodes otherwise: `change` gets each page after the first."""

    def __init__(self, client: Any, change: Change) -> None:
        self._client, self._change = client, change
        self._last: Summaries = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def list_cluster_nodes(self, **arguments: Any) -> Mapping[str, Any]:
        page = self._client.list_cluster_nodes(**{**arguments, "MaxResults": 4})
        shown = page["ClusterNodeSummaries"]
        if "NextToken" in arguments:
            shown = self._change([*self._last[-1:], *shown])
        self._last = page["ClusterNodeSummaries"]
        return {**page, "ClusterNodeSummaries": shown}


def _repeated(shown: Summaries) -> Summaries:
    return shown


def _under_the_other_id(shown: Summaries) -> Summaries:
    return [{**shown[0], "InstanceId": ""}, *shown[1:]]


def _without_logical_id(shown: Summaries) -> Summaries:
    return [{key: value for key, value in shown[0].items() if key != "NodeLogicalId"}, *shown[1:]]


@pytest.mark.parametrize("change", [_repeated, _under_the_other_id, _without_logical_id])
def test_node_that_two_pages_show_counts_once(change: Change) -> None:
    train = Stack(Template(groups=(spec("p5", 12),)))
    doomed = ids(train, "p5")[3]
    train.client = Listing(train.client, change)  # type: ignore[assignment]
    assert train.deploy(Template(groups=(spec("p5", 11),), nodes_to_delete=(doomed,))) == "complete", train.reasons
    assert ended(train) == {doomed}


def test_node_is_as_its_last_page_shows_it_with_every_id_that_it_has() -> None:
    shown: Summaries = [
        {"InstanceGroupName": "p5", "NodeLogicalId": "n-1"},
        {
            "InstanceGroupName": "p5",
            "InstanceId": "i-1",
            "NodeLogicalId": "n-1",
            "InstanceStatus": {"Status": "Running"},
        },
        {
            "InstanceGroupName": "p5",
            "InstanceId": "i-2",
            "NodeLogicalId": "n-2",
            "InstanceStatus": {"Status": "ShuttingDown"},
        },
        {"InstanceGroupName": "p5", "InstanceId": "i-2", "InstanceStatus": {"Status": "Running"}},
        {"InstanceGroupName": "p5", "NodeLogicalId": "n-2"},
    ]
    cluster = {"ClusterArn": "arn", "ClusterStatus": "InService"}
    first, second = read_cluster(cluster, shown).nodes
    assert (first.name, first.status) == ("i-1", "Running")
    assert (second.name, second.status) == ("i-2", "ShuttingDown")


def test_node_that_only_one_of_two_looks_chooses_stays() -> None:
    """A page skips the newest node, which would have gone, in every other list."""
    train = Stack(Template(groups=(spec("p5", 12),)))
    newest = ids(train, "p5")[-1]
    looks = iter(range(1_000))

    def skips(shown: Summaries) -> Summaries:
        return [each for each in shown[1:] if each["InstanceId"] != newest or next(looks) % 2]

    train.client = Listing(train.client, skips)  # type: ignore[assignment]
    train.deploy(Template(groups=(spec("p5", 11),)))
    assert ended(train) <= {newest}


# -- a list that lags behind the target -------------------------------------------------------------------------------


def test_no_other_node_is_deleted_for_one_that_the_list_still_shows() -> None:
    """Somebody deleted a node, and the target is down already."""
    found = plan(live(group(target=4), nodes=nodes("p5", 5)), desired(desired_group(count=4)), request_context())
    assert (found.changes, found.held) == ((), ())
    assert found.waits == (waits.ahead_of_target("p5", [node_id(number) for number in range(1, 6)], target=4),)


def test_list_that_lags_costs_no_other_node() -> None:
    train = Stack(Template(groups=(spec("p5", 5),)))
    gone, *_ = ids(train, "p5")
    stale = train.client.list_cluster_nodes(ClusterName="train", IncludeNodeLogicalIds=True, MaxResults=100)
    train.hyperpod.client(principal="person").batch_delete_cluster_nodes(ClusterName="train", NodeIds=[gone])
    until = train.clock.now() + 100

    class Lagging(Listing):
        def list_cluster_nodes(self, **arguments: Any) -> Mapping[str, Any]:
            now = self._client.list_cluster_nodes(**arguments)
            return stale if train.clock.now() < until else now

    train.client = Lagging(train.client, list)  # type: ignore[assignment]
    assert train.deploy(Template(groups=(spec("p5", 4),))) == "complete", train.reasons
    assert ended(train) == {gone}


def test_list_that_never_meets_its_target_fails_the_deployment_and_deletes_nothing() -> None:
    train = Stack(Template(groups=(spec("p5", 5),)))

    class Low(Listing):
        def describe_cluster(self, **arguments: Any) -> Mapping[str, Any]:
            found = self._client.describe_cluster(**arguments)
            return {**found, "InstanceGroups": [_with_target(each, 4) for each in found["InstanceGroups"]]}

    train.client = Low(train.client, list)  # type: ignore[assignment]
    assert train.deploy(Template(groups=(spec("p5", 4),))) == "rolled back"
    assert ended(train) == set()
    (reason,) = train.reasons
    assert "did not finish within 55 minutes" in reason
    assert "HyperPod lists 5 nodes" in reason and all(node in reason for node in ids(train, "p5"))
    assert "`aws sagemaker update-cluster`" in reason


def _with_target(details: dict[str, Any], target: int) -> dict[str, Any]:
    return {**details, "TargetCount": target} if details["InstanceGroupName"] == "p5" else details


def test_named_and_chosen_nodes_stay_held_while_the_list_lags() -> None:
    """They were asked for: whoever drains them goes on."""
    seen, wanted = (
        live(group(target=5), nodes=nodes("p5", 7)),
        desired(desired_group(count=4), nodes_to_delete=(node_id(1),)),
    )
    found = plan(seen, wanted, request_context(first=False, chosen=frozenset({node_id(7)})))
    assert [pick.node.name for pick in found.held] == [node_id(1), node_id(7)]


@pytest.mark.parametrize(("doubting", "chosen"), [(True, []), (False, [node_id(5)])])
def test_rollback_deletes_only_what_its_update_launched_if_the_list_never_meets_the_target(
    doubting: bool, chosen: list[str]
) -> None:
    crowd = [*nodes("p5", 4), *late("p5", 5)]
    updated = START - timedelta(minutes=5)
    back = request_context(
        first=False, rolling_back=True, updated=updated, reached=frozenset({"train"}), doubting=doubting
    )
    found = plan(live(group(target=4), nodes=crowd), desired(desired_group(count=3)), back)
    assert [pick.node.name for pick in found.nodes_to_delete] == chosen


def test_no_node_of_another_group_goes_while_a_list_lags() -> None:
    """Should it lag until the time is over, the deployment has deleted nothing."""
    seen = live(group(target=4), group("trn1", 4), nodes=[*nodes("p5", 5), *nodes("trn1", 4, first=11)])
    found = plan(seen, desired(desired_group(count=4), desired_group("trn1", 3)), request_context(first=False))
    assert found.changes == ()
    assert [pick.node.name for pick in found.held] == [node_id(14)]
    assert ["p5" in wait.why for wait in found.waits] == [True]


def test_max_nodes_counts_no_node_that_a_lagging_list_may_show_only() -> None:
    """Somebody lowered the group from 25 nodes to 5, and the file says so."""
    seen = live(group(target=5), nodes=nodes("p5", 25))
    found = plan(seen, desired(desired_group(count=5), max_nodes=3), request_context())
    assert (found.refusals, found.changes) == ((), ())
    (wait,) = found.waits
    assert "HyperPod lists 25 nodes" in wait.why
    caught_up = live(group(target=9), nodes=nodes("p5", 9))
    (refusal,) = plan(caught_up, desired(desired_group(count=5), max_nodes=3), request_context(first=False)).refusals
    assert refusal.path == "scale_down.max_nodes"


def test_rollback_that_finds_only_older_nodes_above_the_target_waits() -> None:
    back = request_context(first=False, rolling_back=True, updated=START, reached=frozenset({"train"}))
    found = plan(live(group(target=4), nodes=nodes("p5", 5)), desired(desired_group(count=4)), back)
    assert (found.changes, found.held) == ((), ())
    assert not found.done


def test_node_launched_half_a_minute_before_the_update_is_not_of_it() -> None:
    """HyperPod's clock and CloudFormation's may be as far apart."""
    crowd = [*nodes("p5", 4), replace(nodes("p5", 1, first=5)[0], launched=START + timedelta(seconds=29))]
    back = request_context(first=False, rolling_back=True, updated=START, reached=frozenset({"train"}))
    assert plan(live(group(target=4), nodes=crowd), desired(desired_group(count=3)), back).nodes_to_delete == ()


def test_autoscaled_group_is_not_waited_for() -> None:
    wanted = desired(desired_group(count=6, autoscaled=True), nodes_to_delete=(node_id(1),))
    same = request_context(first=False, previous=wanted)
    found = plan(live(group(target=5), nodes=nodes("p5", 7)), wanted, same)
    assert [pick.node.name for pick in found.nodes_to_delete] == [node_id(1)]


# -- two clocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [-30, 0, 30])
def test_replacement_is_known_by_the_nodes_before_it_whatever_the_clocks_say(apart: int) -> None:
    """LaunchTime is HyperPod's, the request's beginning the function's."""
    clocks = timedelta(seconds=apart)
    old = [*nodes("p5", 2, outdated=True), *nodes("p5", 2, first=3)]
    young = replace(nodes("p5", 1, first=5)[0], launched=START - timedelta(seconds=10) + clocks)
    first = live(group(target=5), nodes=[*old, young])
    state = with_plan(State(began=START), first, plan(first, desired(desired_group(count=4)), request_context()))
    came = replace(nodes("p5", 1, first=6)[0], launched=START + timedelta(seconds=20) + clocks)
    again = read_state(state.write())
    then = plan(
        live(group(target=5), nodes=[*old[1:], young, came]),
        desired(desired_group(count=4)),
        request_context(first=False, newest=again.newest, unlaunched=again.unlaunched),
    )
    assert [pick.node.name for pick in then.nodes_to_delete] == [came.instance_id]


def test_node_that_the_first_look_left_out_is_as_old_as_it_is() -> None:
    """It is newer than all that the look saw, and older than the request: what somebody adds since costs it nothing."""
    old = nodes("p5", 4)
    left_out = replace(nodes("p5", 1, first=5, outdated=True)[0], launched=START - timedelta(minutes=17))
    first = live(group(target=5), nodes=old)
    state = with_plan(State(began=START), first, plan(first, desired(desired_group(count=5)), request_context()))
    came = replace(nodes("p5", 1, first=6)[0], launched=START + timedelta(minutes=10))
    then = plan(
        live(group(target=6), nodes=[*old, left_out, came]),
        desired(desired_group(count=5)),
        request_context(first=False, newest=state.newest, unlaunched=state.unlaunched),
    )
    assert [pick.node.name for pick in then.nodes_to_delete] == [came.instance_id]


def test_time_of_the_newest_node_travels_with_the_state() -> None:
    crowd = [*nodes("p5", 2), *waiting("p5", 3)]
    state = with_plan(State(began=START), live(group(), nodes=crowd), Plan())
    newest = max(node.launched for node in live(nodes=crowd).nodes if node.launched)
    assert read_state(state.write()).newest == newest
    assert with_plan(State(began=START), None, Plan()).newest is None
    assert newest < datetime.now(UTC)


def test_rollback_whose_lists_never_agree_goes_on_when_none_has_a_node_left_to_take() -> None:
    """What the failed update added is gone. From then on each list leaves out another node than the one before."""
    train = Stack(Template(groups=(spec("p5", 12),)))
    old = set(ids(train, "p5"))
    looks = iter(range(10_000))

    def skips(shown: Summaries) -> Summaries:
        left_out = next(looks) % 2 + 1 if ended(train) else 0
        return [each for n, each in enumerate(shown) if n not in (0, left_out)]

    train.client = Listing(train.client, skips)  # type: ignore[assignment]
    assert train.deploy(Template(groups=(spec("p5", 13),)), fail="after") == "rolled back", train.reasons
    assert not ended(train) & old
