"""What becomes of a plan where HyperPod answers in ways that the model of it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod_provider.actions import Pick, Plan, TakeNodes
from cdk_hyperpod._lambda.hyperpod_provider.executor import Moment, Outcome, execute
from cdk_hyperpod._lambda.hyperpod_provider.model import Cluster, Node
from provider.clusters import START, desired, group, live, node_id, nodes, wish

WANTED = desired(wish(count=6, minimum=6))


class HyperPod:
    """Holds a cluster of 8 nodes, and refuses or accepts; its target never falls."""

    def __init__(self, refusal: str = "", *, there: Sequence[Node] = ()) -> None:
        self.refusal = refusal
        self.there = there
        self.updates: list[Mapping[str, Any]] = []

    def batch_delete_cluster_nodes(self, **_: Any) -> dict[str, Any]:
        if self.refusal:
            raise ClientError({"Error": {"Code": "ValidationException", "Message": self.refusal}}, "BatchDelete")
        return {}

    def update_cluster(self, *, InstanceGroups: Sequence[Mapping[str, Any]] = (), **_: Any) -> dict[str, Any]:
        self.updates += InstanceGroups
        return {}

    def describe_cluster(self, **_: Any) -> dict[str, Any]:
        groups = [{"InstanceGroupName": "p5", "CurrentCount": 8, "TargetCount": 8}]
        return {"ClusterArn": "arn", "ClusterStatus": "InService", "InstanceGroups": groups}

    def list_cluster_nodes(self, **_: Any) -> dict[str, Any]:
        return {
            "ClusterNodeSummaries": [
                {
                    "InstanceGroupName": each.group,
                    "InstanceId": each.instance_id,
                    "InstanceStatus": {"Status": "Running"},
                }
                for each in self.there
            ]
        }

    def list_tags(self, **_: Any) -> dict[str, Any]:
        return {}


def takes_two(hyperpod: HyperPod, cluster: Cluster, *, minimum: int | None = None) -> Outcome:
    picks = tuple(Pick(node=node, reason="newest") for node in nodes("p5", 2, first=7))
    take = TakeNodes(group="p5", picks=picks, staying=8, keep=6, minimum=minimum)
    return execute(Plan(changes=(take,)), cluster, WANTED, hyperpod, Moment(now=START, began=START))


EIGHT = live(group(minimum=2), nodes=nodes("p5", 8))


def test_lowering_the_target_right_away_never_raises_the_minimum() -> None:
    hyperpod = HyperPod()
    assert takes_two(hyperpod, EIGHT).accepted == {node_id(7), node_id(8)}
    assert [(each["InstanceCount"], each["MinInstanceCount"]) for each in hyperpod.updates] == [(6, 2)]


def test_all_failed_because_none_is_there_any_more_is_done() -> None:
    assert takes_two(HyperPod("NodeIdNotFound: i-7, NodeIdNotFound: i-8"), EIGHT) == Outcome()


def test_all_failed_for_several_reasons_is_a_wait() -> None:
    (wait,) = takes_two(HyperPod("NodeIdNotFound: i-7, NODE_ID_IN_USE: i-8"), EIGHT).waits
    assert wait.endswith("NodeIdNotFound: i-7, NODE_ID_IN_USE: i-8")


def test_refusal_in_unknown_words_counts_while_the_nodes_are_there() -> None:
    assert takes_two(HyperPod("No", there=EIGHT.nodes), EIGHT).error is not None
    assert takes_two(HyperPod("No", there=nodes("p5", 6)), EIGHT) == Outcome(waits=("the nodes went meanwhile",))


def test_refusal_that_a_minimum_may_explain_lowers_it_unless_nodes_are_on_their_way_out() -> None:
    hyperpod = HyperPod("No", there=EIGHT.nodes)
    assert takes_two(hyperpod, EIGHT, minimum=1) == Outcome()
    assert [(each["InstanceCount"], each["MinInstanceCount"]) for each in hyperpod.updates] == [(8, 1)]
    # An UpdateCluster may count those, and end another one for each.
    leaving = live(group(minimum=2), nodes=[*nodes("p5", 8), *nodes("p5", 1, first=9, status="ShuttingDown")])
    hyperpod = HyperPod("No", there=EIGHT.nodes)
    assert takes_two(hyperpod, leaving, minimum=1).error is not None
    assert hyperpod.updates == []
