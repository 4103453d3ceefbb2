"""What becomes of a plan where HyperPod answers in ways that the model of it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.aws.executor import Clock, Outcome, delete_groups, execute
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import DeleteNodes, Lower, Pick, Plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired, Node, RequestContext
from helpers.scale_down.clusters import (
    START,
    desired,
    desired_group,
    group,
    live,
    node_id,
    nodes,
    request_context,
    waiting,
)

WANTED = desired(desired_group(count=6, minimum=6))
BEFORE = desired(replace(desired_group(count=8), spec={"InstanceGroupName": "p5", "LifeCycleConfig": "the live one"}))
EIGHT = live(group(minimum=2), nodes=nodes("p5", 8))


class HyperPod:
    """Holds a cluster, and refuses or accepts; nothing ever changes in it, but for what `then` says."""

    def __init__(
        self, refusal: str = "", *, there: Sequence[Node] = (), then: Cluster | None = None, in_use: str = ""
    ) -> None:
        self.refusal = refusal
        self.in_use = in_use
        self.there = there
        self.then = then
        self.updates: list[Mapping[str, Any]] = []

    def batch_delete_cluster_nodes(self, *, NodeIds: Sequence[str] = (), **_: Any) -> dict[str, Any]:
        if self.refusal:
            raise ClientError({"Error": {"Code": "ValidationException", "Message": self.refusal}}, "BatchDelete")
        return {"Failed": [{"NodeId": name, "Code": "NodeIdInUse"} for name in NodeIds if name == self.in_use]}

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
                    "InstanceStatus": {"Status": each.status},
                }
                for each in self.there
            ]
        }

    def list_tags(self, **_: Any) -> dict[str, Any]:
        return {}


def carries_out(
    hyperpod: HyperPod,
    cluster: Cluster,
    found: Plan,
    *,
    previous: Desired | None = BEFORE,
    wanted: Desired = WANTED,
    minutes: float = 0,
) -> Outcome:
    """`hyperpod.then`: the cluster as the second look finds it. Absent: as before. `minutes`: since the request began."""
    when = request_context(first=False, previous=previous)

    def look(then: RequestContext) -> tuple[Cluster | None, Plan]:
        now = hyperpod.then or cluster
        return now, plan(now, wanted, then)

    return execute(found, cluster, look, when, hyperpod, Clock(now=START + timedelta(minutes=minutes), began=START))


def takes_two(hyperpod: HyperPod, cluster: Cluster, *, minimum: int | None = None, **more: Any) -> Outcome:
    picks = tuple(Pick(node=node, reason="newest") for node in nodes("p5", 2, first=7))
    take = DeleteNodes(group="p5", picks=picks, minimum=minimum)
    return carries_out(hyperpod, cluster, Plan(changes=(take,)), **more)


def counts(hyperpod: HyperPod) -> list[tuple[int, int]]:
    return [(each["InstanceCount"], each["MinInstanceCount"]) for each in hyperpod.updates]


# -- counts -----------------------------------------------------------------------------------------------------------

SIX = live(group(target=8, current=6, minimum=2), nodes=nodes("p5", 6))
LOWER = Plan(changes=(Lower(group="p5", count=6, minimum=2, spec=BEFORE.groups[1]),))


def test_target_is_lowered_with_the_live_specification() -> None:
    """The update may still be cancelled, and CloudFormation would not know of the new one."""
    hyperpod = HyperPod()
    assert carries_out(hyperpod, SIX, LOWER) == Outcome(sent=True)
    assert hyperpod.updates == [
        {"InstanceGroupName": "p5", "LifeCycleConfig": "the live one", "InstanceCount": 6, "MinInstanceCount": 2}
    ]


@pytest.mark.parametrize("previous", [None, desired(desired_group("other"))], ids=["a first deployment", "a new group"])
def test_no_count_is_sent_where_the_live_specification_is_not_known(previous: Desired | None) -> None:
    hyperpod = HyperPod()
    assert carries_out(hyperpod, SIX, LOWER, previous=previous) == Outcome()
    assert hyperpod.updates == []


@pytest.mark.parametrize(("code", "rejected"), [("ValidationException", True), ("ThrottlingException", False)])
def test_count_that_hyperpod_does_not_take(monkeypatch: pytest.MonkeyPatch, code: str, rejected: bool) -> None:
    def fails(**_: Any) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "No"}}, "UpdateCluster")

    hyperpod = HyperPod()
    monkeypatch.setattr(hyperpod, "update_cluster", fails)
    outcome = carries_out(hyperpod, SIX, LOWER)
    if rejected:
        assert (str(outcome.error)[-2:], outcome.call, outcome.waits) == ("No", "UpdateCluster", ())
    else:
        assert (outcome.error, outcome.waits) == (None, (f"{code}: No",))


SOMEBODY_ACTED = {
    "raised the target": live(group(target=9, current=6), nodes=nodes("p5", 6)),
    "added nodes": live(group(target=8, current=8), nodes=nodes("p5", 8)),
    "added a node in place of another": live(group(target=8, current=6), nodes=nodes("p5", 6, first=2)),
    "ended a node": live(
        group(target=8, current=6), nodes=[*nodes("p5", 6), *nodes("p5", 1, first=9, status="ShuttingDown")]
    ),
    "ended a node that left the list": live(group(target=8, current=7), nodes=nodes("p5", 6)),
    "lowered the target": live(group(target=6, current=6), nodes=nodes("p5", 6)),
}


@pytest.mark.parametrize("then", SOMEBODY_ACTED.values(), ids=SOMEBODY_ACTED.keys())
def test_no_count_is_sent_that_is_no_longer_true(then: Cluster) -> None:
    """Between the plan and the call."""
    hyperpod = HyperPod(then=then)
    assert carries_out(hyperpod, SIX, LOWER).error is None
    assert hyperpod.updates == []


def test_unlaunched_nodes_that_went_let_their_target_fall_in_the_same_step() -> None:
    """The group would ask for them again."""
    asked = live(group(target=8, current=6), nodes=[*nodes("p5", 6), *waiting("p5", 7, 8)])
    found = plan(asked, WANTED, request_context(previous=BEFORE))
    hyperpod = HyperPod(then=SIX)
    assert carries_out(hyperpod, asked, found) == Outcome(accepted=frozenset({"p5-7", "p5-8"}), sent=True)
    assert counts(hyperpod) == [(6, 2)]


@pytest.mark.parametrize("left_out", [6, 9])
def test_no_count_is_sent_while_a_list_leaves_out_a_node_that_was_there(left_out: int) -> None:
    """One node more than the count would end at random. 9 was in use, so its deletion failed."""
    asked = live(group(target=8, current=7), nodes=[*nodes("p5", 6), *nodes("p5", 1, first=9), *waiting("p5", 7)])
    found = plan(asked, WANTED, request_context(previous=BEFORE))
    rest = [node for node in asked.nodes if node.name not in (node_id(left_out), "p5-7")]
    hyperpod = HyperPod(then=replace(asked, groups=SIX.groups, nodes=tuple(rest)), in_use=node_id(9))
    outcome = carries_out(hyperpod, asked, found)
    assert outcome.accepted == {"p5-7"} and outcome.waits
    assert hyperpod.updates == []


def test_nodes_that_were_just_taken_may_be_counted_so_their_target_stays() -> None:
    hyperpod = HyperPod(then=SIX)
    assert takes_two(hyperpod, EIGHT) == Outcome(accepted=frozenset({node_id(7), node_id(8)}))
    assert hyperpod.updates == []


# -- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", ["NodeIdNotFound: i-7, NodeIdNotFound: i-8", "NodeIdNotFound: i-7, NODE_ID_IN_USE: i-8"]
)
def test_a_deletion_that_failed_for_all_nodes_waits_for_the_next_poll(said: str) -> None:
    outcome = takes_two(HyperPod(said), EIGHT)
    (wait,) = outcome.waits
    assert wait.endswith(said) and outcome.error is None and not outcome.accepted


def test_refusal_in_unknown_words_counts_while_the_nodes_are_there() -> None:
    assert takes_two(HyperPod("No", there=EIGHT.nodes), EIGHT).error is not None
    assert takes_two(HyperPod("No", there=nodes("p5", 6)), EIGHT) == Outcome(waits=(waits.ALREADY_DELETED.why,))


def test_refusal_in_unknown_words_counts_where_the_nodes_cannot_be_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "ListClusterNodes")

    hyperpod = HyperPod("No", there=EIGHT.nodes)
    monkeypatch.setattr(hyperpod, "list_cluster_nodes", fails)
    outcome = takes_two(hyperpod, EIGHT)
    assert outcome.error is not None and str(outcome.error).endswith("No")


@pytest.mark.parametrize("status", ["InService", "Updating"])
def test_a_missing_permission_is_reported_even_while_the_cluster_changes(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Permissions arrive within two minutes, or never."""

    def fails(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "No"}}, "BatchDeleteClusterNodes")

    hyperpod = HyperPod(there=EIGHT.nodes)
    monkeypatch.setattr(hyperpod, "batch_delete_cluster_nodes", fails)
    cluster = live(group(minimum=2, status=status), nodes=nodes("p5", 8))
    assert takes_two(hyperpod, cluster, minutes=1).error is None
    assert takes_two(hyperpod, cluster, minutes=3).error is not None


def test_refusal_that_a_minimum_may_explain_lowers_it() -> None:
    hyperpod = HyperPod("No", there=EIGHT.nodes)
    lower = desired(desired_group(count=1, minimum=1))
    assert takes_two(hyperpod, EIGHT, minimum=1, wanted=lower) == Outcome(sent=True)
    assert counts(hyperpod) == [(8, 1)]


def test_refusal_that_says_why_lowers_no_minimum() -> None:
    hyperpod = HyperPod("Run UpdateClusterSoftware first", there=EIGHT.nodes)
    outcome = takes_two(hyperpod, EIGHT, minimum=1, wanted=desired(desired_group(count=1, minimum=1)))
    assert outcome.error is not None
    assert hyperpod.updates == []


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(
            live(group(minimum=2), nodes=[*nodes("p5", 8), *nodes("p5", 1, first=9, status="ShuttingDown")]),
            id="listed",
        ),
        pytest.param(live(group(minimum=2, current=9), nodes=nodes("p5", 8)), id="counted"),
        pytest.param(live(group(minimum=2, target=9), nodes=nodes("p5", 8)), id="the target has risen"),
        pytest.param(live(group(minimum=2, target=7), nodes=nodes("p5", 8)), id="the target has fallen"),
    ],
)
def test_minimum_stays_while_its_count_might_end_a_node(then: Cluster) -> None:
    hyperpod = HyperPod("No", there=EIGHT.nodes, then=then)
    outcome = takes_two(hyperpod, EIGHT, minimum=1, wanted=desired(desired_group(count=1, minimum=1)))
    assert outcome.error is None and outcome.waits, "the next poll tries again"
    assert hyperpod.updates == []


def test_minimum_of_a_group_that_cloudformation_does_not_know_stays() -> None:
    hyperpod = HyperPod("No", there=EIGHT.nodes)
    found = takes_two(hyperpod, EIGHT, minimum=1, wanted=desired(desired_group(count=1, minimum=1)), previous=None)
    assert found.error is not None
    assert hyperpod.updates == []


def test_minimum_goes_first_also_where_other_groups_have_nodes_to_take() -> None:
    both = live(group(minimum=2), group("trn1", 2), nodes=[*nodes("p5", 8), *nodes("trn1", 2, first=50)])
    hyperpod = HyperPod("No", there=both.nodes)
    wanted = desired(desired_group(count=1, minimum=1), desired_group("trn1", 1))
    assert takes_two(hyperpod, both, minimum=1, wanted=wanted).error is None
    assert counts(hyperpod) == [(8, 1)]


def test_a_dropped_request_does_not_lower_the_target_of_another_group() -> None:
    """The other group's nodes just went with their instances: its target may fall by itself yet."""
    wanted, before = (
        desired(desired_group(count=6), desired_group("trn1", 1)),
        desired(desired_group(count=8), desired_group("trn1", 2)),
    )
    other, rest = group("trn1", 2, current=1), nodes("trn1", 1, first=50)
    asked = live(group(target=8, current=6), other, nodes=[*nodes("p5", 6), *rest, *waiting("p5", 7, 8)])
    when = request_context(first=False, previous=before, young=True)
    then = live(group(target=8, current=6), other, nodes=[*nodes("p5", 6), *rest])
    hyperpod = HyperPod()
    found = plan(asked, wanted, when)
    execute(found, asked, lambda now: (then, plan(then, wanted, now)), when, hyperpod, Clock(now=START, began=START))
    assert [each["InstanceGroupName"] for each in hyperpod.updates] == ["p5"]


# -- groups -----------------------------------------------------------------------------------------------------------


class WantsAGroupBeside(HyperPod):
    """HyperPod that takes no deletion without a group that stays."""

    def __init__(self, **of_p5: Any) -> None:
        super().__init__(there=EIGHT.nodes)
        self.of_p5 = of_p5
        self.old, self.code = "InService", "ValidationException"

    def describe_cluster(self, **_: Any) -> dict[str, Any]:
        p5 = {"InstanceGroupName": "p5", "CurrentCount": 8, "TargetCount": 8, "Status": "InService", **self.of_p5}
        groups = [p5, {"InstanceGroupName": "old", "Status": self.old}]
        return {"ClusterArn": "arn", "ClusterStatus": "InService", "InstanceGroups": groups}

    def update_cluster(self, *, InstanceGroups: Sequence[Mapping[str, Any]] = (), **_: Any) -> dict[str, Any]:
        if not InstanceGroups:
            raise ClientError({"Error": {"Code": self.code, "Message": "No"}}, "UpdateCluster")
        return super().update_cluster(InstanceGroups=InstanceGroups)


@pytest.mark.parametrize(
    ("of_p5", "sent"),
    [
        pytest.param({}, ["p5"], id="as the file wants it"),
        pytest.param({"Status": "Updating"}, [], id="in transition"),
        pytest.param({"Status": "Failed"}, [], id="failed"),
        pytest.param({"CurrentCount": 7}, [], id="on its way up"),
        pytest.param({"TargetCount": 9, "CurrentCount": 9}, [], id="with another target"),
        pytest.param({"MinCount": 1}, [], id="with another minimum"),
    ],
)
def test_a_group_is_sent_with_a_deletion_only_if_it_is_as_the_file_wants_it(
    of_p5: dict[str, Any], sent: list[str]
) -> None:
    hyperpod = WantsAGroupBeside(**of_p5)
    delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, Clock(now=START, began=START))
    assert [each["InstanceGroupName"] for each in hyperpod.updates] == sent


@pytest.mark.parametrize("status", ["Pending", "ShuttingDown"])
def test_group_with_a_node_on_its_way_travels_with_no_deletion(status: str) -> None:
    hyperpod = WantsAGroupBeside()
    hyperpod.there = [*nodes("p5", 7), *nodes("p5", 1, first=8, status=status)]
    delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, Clock(now=START, began=START))
    assert hyperpod.updates == []


@pytest.mark.parametrize(
    ("code", "status", "waits"),
    [
        pytest.param("ConflictException", "Running", True, id="busy"),
        pytest.param("ValidationException", "DeepHealthCheckInProgress", True, id="deep health check"),
        pytest.param("ValidationException", "SystemUpdating", True, id="software update"),
        pytest.param("ValidationException", "Running", False, id="all is still"),
    ],
)
def test_deletion_that_is_refused_with_a_group_beside_it_too(
    monkeypatch: pytest.MonkeyPatch, code: str, status: str, waits: bool
) -> None:
    """While a node changes, an error that nobody documents may pass; a definite one comes back when all is still."""
    codes = iter(["ValidationException", code])

    def refuses(**_: Any) -> None:
        raise ClientError({"Error": {"Code": next(codes), "Message": "No"}}, "UpdateCluster")

    hyperpod = WantsAGroupBeside()
    hyperpod.there = [*nodes("p5", 7), *nodes("p5", 1, first=8, status=status)]
    monkeypatch.setattr(hyperpod, "update_cluster", refuses)
    outcome = delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, Clock(now=START, began=START))
    assert (bool(outcome.waits), outcome.error is None) == (waits, waits)
    assert next(codes, None) is None, "the second call was made"


@pytest.mark.parametrize(("status", "waits"), [("Updating", True), ("Failed", False)])
def test_deletion_that_is_refused_while_a_group_changes_is_tried_again(status: str, waits: bool) -> None:
    outcome = delete_groups(
        ("old",), EIGHT, desired(desired_group()), WantsAGroupBeside(Status=status), Clock(now=START, began=START)
    )
    assert (bool(outcome.waits), outcome.error is None) == (waits, waits)


def test_other_refusals_of_a_deletion_send_no_count() -> None:
    hyperpod = WantsAGroupBeside()
    hyperpod.code = "AccessDeniedException"
    late = Clock(now=START + timedelta(minutes=3), began=START)
    assert delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, late).error is not None
    assert hyperpod.updates == []


def test_a_group_whose_deletion_others_requested_is_done() -> None:
    hyperpod = WantsAGroupBeside()
    hyperpod.old = "Deleting"
    assert (
        delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, Clock(now=START, began=START)) == Outcome()
    )
    assert hyperpod.updates == []


def test_an_autoscaled_group_is_never_sent_with_a_deletion() -> None:
    """It may be another one by the time the call arrives."""
    hyperpod = WantsAGroupBeside()
    wanted = desired(desired_group(autoscaled=True))
    delete_groups(("old",), EIGHT, wanted, hyperpod, Clock(now=START, began=START))
    assert hyperpod.updates == []


def test_refused_deletion_is_no_failure_while_the_cluster_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have asked first, and failing would launch again what was taken."""

    def fails(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "DescribeCluster")

    hyperpod = WantsAGroupBeside()
    monkeypatch.setattr(hyperpod, "describe_cluster", fails)
    outcome = delete_groups(("old",), EIGHT, desired(desired_group()), hyperpod, Clock(now=START, began=START))
    assert outcome.error is None and outcome.waits
