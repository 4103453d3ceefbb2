"""The decision table, row by row, and every refusal with its values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.refuse import Refuse
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import notes, refusals, waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import DeleteGroup, DeleteNodes, Lower, Pick, Plan, Wait
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import ANY_CLUSTER, Cluster, Desired, Fixed, Network
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import State, with_plan
from helpers.scale_down.clusters import (
    CONTROLLER,
    P5,
    START,
    VPC,
    controller_nodes,
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

UPDATED = START - timedelta(hours=2)
BEFORE = desired(desired_group(count=8))


def taken(found: Plan) -> list[tuple[str, str]]:
    """(id, reason) of every node that a plan takes."""
    assert not found.refusals, [str(refusal) for refusal in found.refusals]
    return [
        (pick.node.name, pick.reason)
        for change in found.changes
        if isinstance(change, DeleteNodes)
        for pick in change.picks
    ]


def refusal(live: Cluster | None, wanted: Desired, **when: Any) -> Refuse:
    """The one refusal of a plan that holds nothing else."""
    found = plan(live, wanted, request_context(**when))
    assert (found.changes, found.waits, found.groups_to_delete) == ((), (), ())
    (only,) = found.refusals
    return only


# -- done -------------------------------------------------------------------------------------------------------------


def test_no_such_cluster_is_done() -> None:
    assert plan(None, desired(desired_group(count=3)), request_context()) == Plan()


def test_nothing_to_take_is_done_whatever_the_cluster_does() -> None:
    moving = live(group(status="Updating", minimum=8, current=2), nodes=nodes("p5", 2), status="Updating")
    assert plan(moving, desired(desired_group(count=8, minimum=8)), request_context()).done


def test_count_that_rises_is_nothing() -> None:
    assert plan(live(group(), nodes=nodes("p5", 8)), desired(desired_group(count=12)), request_context()) == Plan()


@pytest.mark.parametrize("hook", [{"OnCreate": "compute.sh"}, {"OnInitComplete": "compute.sh"}, None])
def test_other_lifecycle_scripts_or_another_hook_take_no_node(hook: dict[str, str] | None) -> None:
    wanted = desired_group(count=8)
    config = {} if hook is None else {"LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-x/other", **hook}}
    spec = {key: value for key, value in wanted.spec.items() if key != "LifeCycleConfig"}
    running = live(group(), nodes=nodes("p5", 8))
    assert plan(running, desired(replace(wanted, spec={**spec, **config})), request_context()) == Plan()


def test_named_node_that_is_not_there_is_done() -> None:
    wanted = desired(desired_group(count=8), nodes_to_delete=(node_id(77),))
    assert plan(live(group(), nodes=nodes("p5", 8)), wanted, request_context()).done


def test_new_group_that_is_not_live_is_nothing() -> None:
    wanted = desired(desired_group(count=8), desired_group("trn1", 4))
    assert plan(live(group(), nodes=nodes("p5", 8)), wanted, request_context()) == Plan()


def test_lowered_minimum_of_a_group_below_it_is_nothing() -> None:
    below = live(group(status="Updating", minimum=4, current=3), nodes=nodes("p5", 3))
    assert plan(below, desired(desired_group(count=8, minimum=2)), request_context()).done


# -- what is taken ----------------------------------------------------------------------------------------------------


def test_named_nodes_go_first() -> None:
    wanted = desired(desired_group(count=6), nodes_to_delete=(node_id(3),))
    assert taken(plan(live(group(), nodes=nodes("p5", 8)), wanted, request_context())) == [
        (node_id(3), "named"),
        (node_id(8), "newest"),
    ]


def test_order_of_unnamed_nodes() -> None:
    mixed = [
        *nodes("p5", 4),
        *nodes("p5", 1, first=5, outdated=True),
        *nodes("p5", 1, first=2_000, status="Failure"),
        *waiting("p5", 7),
    ]
    found = plan(live(group(target=7), nodes=mixed), desired(desired_group(count=2)), request_context())
    assert taken(found) == [
        (node_id(2_000), "failed"),
        ("p5-7", "not yet launched"),
        (node_id(5), "outdated image"),
        (node_id(4), "newest"),
        (node_id(3), "newest"),
    ]


def test_the_nodes_to_delete_are_live_minus_desired_and_not_target_minus_desired() -> None:
    short = live(group(target=8, current=6), nodes=nodes("p5", 6))
    assert taken(plan(short, desired(desired_group(count=5)), request_context())) == [(node_id(6), "newest")]


def test_nodes_shutting_down_are_not_live() -> None:
    leaving = [*nodes("p5", 6), *nodes("p5", 2, first=7, status="ShuttingDown")]
    found = plan(live(group(), nodes=leaving), desired(desired_group(count=5)), request_context())
    assert taken(found) == [(node_id(6), "newest")]


def test_named_nodes_of_a_group_short_of_capacity_all_go() -> None:
    short = live(group(target=8, current=6), nodes=nodes("p5", 6))
    wanted = desired(desired_group(count=5), nodes_to_delete=tuple(node_id(n) for n in (1, 2, 3)))
    assert taken(plan(short, wanted, request_context())) == [(node_id(n), "named") for n in (1, 2, 3)]


def test_to_zero_keeps_the_group() -> None:
    found = plan(live(group(target=2), nodes=nodes("p5", 2)), desired(desired_group(count=0)), request_context())
    assert taken(found) == [(node_id(2), "newest"), (node_id(1), "newest")]


def test_several_groups_are_one_plan() -> None:
    two = live(group(), group("trn1", 2), nodes=[*nodes("p5", 8), *nodes("trn1", 2, first=100)])
    found = plan(two, desired(desired_group(count=7), desired_group("trn1", 1)), request_context())
    assert taken(found) == [(node_id(8), "newest"), (node_id(101), "newest")]


def test_replacement_never_makes_an_older_node_go() -> None:
    # 3 of 8 were taken, the target stayed, and the service launched 9 and 10 instead.
    crowd = [*nodes("p5", 5), *late("p5", 9, 10)]
    found = plan(live(group(current=7), nodes=crowd), desired(desired_group(count=5)), request_context(first=False))
    assert taken(found) == [(node_id(9), "newest"), (node_id(10), "newest")] or taken(found) == [
        (node_id(10), "newest"),
        (node_id(9), "newest"),
    ]


def test_replacements_of_replacements_are_refused_at_last() -> None:
    """Where the target never falls, taking them would go on for ever."""
    again = [replace(node, launched=START + timedelta(minutes=11)) for node in nodes("p5", 3, first=9)]
    crowd = [*nodes("p5", 5), *again]
    assert refusal(live(group(), nodes=crowd), desired(desired_group(count=5)), first=False) == refusals.launched_again(
        "p5", target=8, count=5
    )
    fallen = plan(
        live(group(target=5, current=8), nodes=crowd), desired(desired_group(count=5)), request_context(first=False)
    )
    assert not fallen.refusals, "with the target down they are HyperPod's own business"
    leaving = live(group(), nodes=[*crowd, *nodes("p5", 1, first=12, status="ShuttingDown")])
    assert not plan(leaving, desired(desired_group(count=5)), request_context(first=False)).refusals, (
        "the target may fall with it yet"
    )
    # After a drain of so long they are the first of their kind.
    drained = request_context(first=False, drained_within=timedelta(minutes=5))
    assert taken(plan(live(group(), nodes=crowd), desired(desired_group(count=5)), drained))


def test_replacements_wait_for_the_nodes_they_replace() -> None:
    """The target may fall with those yet. The failed node 5 would go first of those that were there."""
    crowd = [
        *nodes("p5", 4),
        *nodes("p5", 1, first=5, status="Failure"),
        *nodes("p5", 1, first=6, status="ShuttingDown"),
        *waiting("p5", 9),
    ]
    found = plan(live(group(target=6), nodes=crowd), desired(desired_group(count=5)), request_context(first=False))
    assert [*found.waits] == [waits.shutting_down("p5", [node_id(6)])]
    assert [pick.node.name for pick in found.held] == ["p5-9"]
    gone = [node for node in crowd if not node.leaving]
    (take,) = plan(
        live(group(target=6, current=5), nodes=gone), desired(desired_group(count=5)), request_context(first=False)
    ).changes
    assert isinstance(take, DeleteNodes)
    assert [pick.node.name for pick in take.picks] == ["p5-9"]
    # At the first look it was there before, whatever somebody ended by hand: the order applies to it.
    assert taken(plan(live(group(target=6), nodes=crowd), desired(desired_group(count=5)), request_context())) == [
        (node_id(5), "failed")
    ]


def test_nodes_that_were_there_go_without_waiting_and_before_replacements() -> None:
    """One of the three was in use at first; the other two are replaced already."""
    crowd = [*nodes("p5", 6), *nodes("p5", 2, first=7, status="ShuttingDown"), *late("p5", 9, 10)]
    cluster = live(group(target=8, current=10), nodes=crowd)
    found = plan(cluster, desired(desired_group(count=5)), request_context(first=False))
    assert taken(found) == [(node_id(6), "newest")]


def test_replacements_stay_where_fewer_nodes_are_there_than_wanted() -> None:
    crowd = [*nodes("p5", 2), *late("p5", 9, 10)]
    found = plan(
        live(group(target=6, current=4), nodes=crowd), desired(desired_group(count=5)), request_context(first=False)
    )
    assert taken(found) == []


@pytest.mark.parametrize("target", [5, 4])
def test_replacement_under_a_fallen_target_ends_no_older_node_and_is_waited_for(target: int) -> None:
    """The cluster's own update would choose one of the six."""
    crowd = [*nodes("p5", 4), *nodes("p5", 1, first=5, status="Failure"), *late("p5", 9)]
    found = plan(
        live(group(target=target, current=6), nodes=crowd),
        desired(desired_group(count=5)),
        request_context(first=False),
    )
    (wait,) = found.waits
    listed = [*nodes("p5", 5), *late("p5", 9)]
    assert wait == waits.ahead_of_target("p5", [node.name for node in listed], target)


# -- waits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "wait"),
    [
        pytest.param(
            live(group(), nodes=nodes("p5", 8), status="Updating"), waits.cluster_moving("Updating"), id="cluster"
        ),
        pytest.param(
            live(group(status="SystemUpdating"), nodes=nodes("p5", 8)),
            waits.group_moving("p5", "SystemUpdating"),
            id="group",
        ),
        pytest.param(
            live(group(), nodes=[*nodes("p5", 7), *nodes("p5", 1, first=8, status="DeepHealthCheckInProgress")]),
            waits.health_check("p5", 1),
            id="deep health check",
        ),
        pytest.param(
            live(group(status="Updating", minimum=9, target=9, current=8), nodes=nodes("p5", 8)),
            waits.below_minimum("p5", 8, 9),
            id="below its minimum",
        ),
    ],
)
def test_a_deletion_waits_while_the_cluster_or_group_changes(cluster: Cluster, wait: Wait) -> None:
    minimum = cluster.groups[1].minimum
    found = plan(cluster, desired(replace(desired_group(count=7), minimum=minimum)), request_context())
    assert (found.changes, found.waits) == ((), (wait,))
    assert len(found.held) == len(cluster.nodes) - 1 - 7, "the nodes above the count go when the wait is over"


def test_one_group_is_taken_while_another_is_waited_for() -> None:
    two = live(group(), group("trn1", 2, status="Updating"), nodes=[*nodes("p5", 8), *nodes("trn1", 2, first=100)])
    found = plan(two, desired(desired_group(count=7), desired_group("trn1", 1)), request_context())
    assert taken(found) == [(node_id(8), "newest")]
    assert found.waits == (waits.group_moving("trn1", "Updating"),)
    assert [pick.node.name for pick in found.held] == [node_id(101)]


def test_unmet_minimum_that_the_file_lowers_is_lowered_first() -> None:
    below = live(group(status="Updating", minimum=6, target=8, current=4), nodes=nodes("p5", 4))
    found = plan(below, desired(desired_group(count=3, minimum=3)), request_context(previous=BEFORE))
    assert found.changes == (Lower(group="p5", count=8, minimum=3, spec=desired_group(count=8)),)


def test_target_that_stayed_up_is_lowered_without_ending_a_node() -> None:
    after = live(group(target=8, current=5), nodes=nodes("p5", 5))
    found = plan(after, desired(desired_group(count=5)), request_context(first=False, previous=BEFORE))
    assert found == Plan(changes=(Lower(group="p5", count=5, minimum=0, spec=desired_group(count=8)),))


@pytest.mark.parametrize("continuous", [True, False])
def test_target_is_given_time_to_fall_by_itself(continuous: bool) -> None:
    """Where HyperPod lowers it late, it would fall twice, and under standard provisioning a sound deployment would be refused."""
    after = live(group(target=8, current=5), nodes=nodes("p5", 5), continuous=continuous)
    when = request_context(first=False, previous=BEFORE, young=True)
    assert plan(after, desired(desired_group(count=5)), when) == Plan(waits=(waits.target_falls_yet("p5", 8),))
    assert not plan(after, desired(desired_group(count=5)), replace(when, young=False)).waits


def test_a_high_target_is_lowered_as_soon_as_other_requests_appear() -> None:
    """Then it does not fall by itself; the newcomer is dropped, and nothing is left to come."""
    asked = live(group(target=8, current=5), nodes=[*nodes("p5", 5), *waiting("p5", 30)])
    when = request_context(first=False, previous=BEFORE, young=True)
    assert taken(plan(asked, desired(desired_group(count=5)), when)) == [("p5-30", "not yet launched")]


def test_lowering_the_target_never_raises_the_minimum() -> None:
    after = live(group(target=8, current=5, minimum=2), nodes=nodes("p5", 5))
    found = plan(after, desired(desired_group(count=5, minimum=5)), request_context(first=False, previous=BEFORE))
    assert found == Plan(changes=(Lower(group="p5", count=5, minimum=2, spec=desired_group(count=8)),))


def test_nodes_shutting_down_are_waited_for() -> None:
    leaving = [*nodes("p5", 6), *nodes("p5", 2, first=7, status="ShuttingDown")]
    found = plan(
        live(group(target=6, current=8), nodes=leaving), desired(desired_group(count=6)), request_context(first=False)
    )
    assert found == Plan(waits=(waits.shutting_down("p5", [node_id(7), node_id(8)]),))


def test_nodes_shutting_down_below_the_count_are_not_waited_for() -> None:
    leaving = [*nodes("p5", 6), *nodes("p5", 1, first=7, status="ShuttingDown")]
    assert plan(live(group(target=7), nodes=leaving), desired(desired_group(count=8)), request_context()).done
    # Where the target asks for 8, those that are not listed yet may be there.
    assert plan(live(group(target=8), nodes=leaving), desired(desired_group(count=8)), request_context()).waits


def test_count_that_still_holds_nodes_that_left_the_list_is_waited_for() -> None:
    found = plan(
        live(group(target=6, current=8), nodes=nodes("p5", 6)),
        desired(desired_group(count=6)),
        request_context(first=False),
    )
    assert found == Plan(waits=(waits.still_counted("p5", 8, 6),))


def test_count_that_still_holds_nodes_beside_one_that_shuts_down_is_waited_for() -> None:
    crowd = [*nodes("p5", 5), *nodes("p5", 1, first=6, status="ShuttingDown")]
    found = plan(
        live(group(target=5, current=8), nodes=crowd), desired(desired_group(count=6)), request_context(first=False)
    )
    assert found == Plan(waits=(waits.still_counted("p5", 8, 6),))


def test_count_holds_nodes_that_left_beside_others_that_are_not_listed_yet() -> None:
    """Standard provisioning lists no node before it is launched: 5 run, 2 ended and are counted, 3 are asked for."""
    seen = live(group(target=8, current=7), nodes=nodes("p5", 5), continuous=False)
    found = plan(seen, desired(desired_group(count=8)), request_context(doubting=True))
    assert found == Plan(waits=(waits.still_counted("p5", 7, 5),))
    assert plan(seen, desired(desired_group(count=8)), request_context()).done
    assert with_plan(State(began=START), seen, found).settling, "half an hour of doubt"
    calm = live(group(target=8, current=5), nodes=nodes("p5", 5))
    assert not with_plan(State(began=START), calm, Plan()).settling


def test_count_that_may_hold_nodes_that_left_the_list_is_waited_for_while_in_doubt() -> None:
    # One of the 6 boots. CurrentCount 6 may hold it, or in its place a node that left the list and is not accounted for yet.
    booting = [*nodes("p5", 5), *nodes("p5", 1, first=6, status="Pending")]
    cluster = live(group(target=6, current=6), nodes=booting)
    found = plan(cluster, desired(desired_group(count=6)), request_context(first=False, doubting=True))
    assert found == Plan(waits=(waits.maybe_counted("p5", 6, 5),))
    assert plan(cluster, desired(desired_group(count=6)), request_context(first=False)).done
    assert plan(cluster, desired(desired_group(count=7)), request_context(first=False, doubting=True)).done, (
        "there is room for it"
    )


def test_target_is_lowered_once_nodes_on_their_way_out_are_gone() -> None:
    # An UpdateCluster that counts the leaving node would end another one for it.
    leaving = [*nodes("p5", 5), *nodes("p5", 1, first=6, status="ShuttingDown")]
    found = plan(
        live(group(target=7, current=6), nodes=leaving), desired(desired_group(count=5)), request_context(first=False)
    )
    assert found == Plan(waits=(waits.shutting_down("p5", [node_id(6)]),))


def test_kept_group_that_is_being_deleted_is_waited_for() -> None:
    found = plan(live(group(status="Deleting", target=0)), desired(desired_group(count=2)), request_context())
    assert found == Plan(waits=(waits.group_moving("p5", "Deleting"),))


# -- groups to delete -------------------------------------------------------------------------------------------------


def test_group_to_delete_is_left_to_the_end() -> None:
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *nodes("old", 3, first=100)])
    found = plan(two, desired(desired_group(), groups_to_delete=("old",)), request_context())
    assert found == Plan(groups_to_delete=(DeleteGroup(group="old", nodes=3),))
    assert found.done


def test_named_node_of_a_group_to_delete_goes_with_the_group() -> None:
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *nodes("old", 3, first=100)])
    found = plan(
        two, desired(desired_group(), groups_to_delete=("old",), nodes_to_delete=(node_id(100),)), request_context()
    )
    assert found.changes == ()
    assert found.done


def test_group_that_is_being_deleted_is_not_missed() -> None:
    going = live(group(), group("old", 0, status="Deleting"), nodes=nodes("p5", 8))
    assert plan(going, desired(desired_group()), request_context()) == Plan()
    assert plan(going, desired(desired_group(), groups_to_delete=("old",)), request_context()) == Plan()


def test_a_deletion_of_a_group_that_no_longer_exists_is_not_an_error() -> None:
    found = plan(
        live(group(), nodes=nodes("p5", 8)), desired(desired_group(), groups_to_delete=("gone",)), request_context()
    )
    assert found == Plan()


# -- refusals ---------------------------------------------------------------------------------------------------------

EIGHT = live(group(), nodes=nodes("p5", 8))


def test_a_plan_for_a_renamed_cluster_is_refused() -> None:
    assert refusal(None, desired(desired_group()), renamed_from="old") == refusals.renamed("old", "train")


@pytest.mark.parametrize("tags", [{}, {"cdk-hyperpod:stack-id": "another stack"}])
def test_a_plan_for_a_cluster_of_another_stack_is_refused(tags: dict[str, str]) -> None:
    assert refusal(replace(EIGHT, tags=tags), desired(desired_group(count=2))) == refusals.not_ours(
        "train", "cdk-hyperpod:stack-id", "arn:aws:cloudformation:us-west-2:111122223333:stack/train/0a1b"
    )


def test_cloudformations_own_tag_is_as_good() -> None:
    wanted = desired(desired_group())
    tagged = replace(EIGHT, tags={"aws:cloudformation:stack-id": wanted.owner or ""})
    assert plan(tagged, wanted, request_context()).done


def test_more_named_nodes_than_the_count_lets_go() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=tuple(node_id(n) for n in (1, 2, 3)))
    assert refusal(EIGHT, wanted) == refusals.beyond_count("p5", named=3, most=8, count=7)


def test_more_named_nodes_than_a_count_that_stays() -> None:
    assert refusal(EIGHT, desired(desired_group(count=8), nodes_to_delete=(node_id(1),))) == refusals.beyond_count(
        "p5", named=1, most=8, count=8
    )


def test_named_nodes_above_a_target_that_has_fallen_already_wait() -> None:
    """Two may be terminating, and then the names are more than the count allows."""
    wanted = desired(desired_group(count=6), nodes_to_delete=(node_id(1), node_id(2)))
    found = plan(live(group(target=6, current=8), nodes=nodes("p5", 8)), wanted, request_context())
    assert not found.changes
    assert [pick.node.name for pick in found.held] == [node_id(1), node_id(2)]


def test_named_nodes_are_counted_on_the_first_plan_only() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=(node_id(1), node_id(2)))
    some = [*nodes("p5", 7, first=2), *nodes("p5", 1, first=1, status="ShuttingDown")]
    found = plan(live(group(target=7), nodes=some), wanted, request_context(first=False))
    assert taken(found) == [(node_id(2), "named")]


def test_named_node_of_the_controller() -> None:
    assert refusal(EIGHT, desired(desired_group(), nodes_to_delete=(node_id(900),))) == refusals.named_controller(
        node_id(900), "controller"
    )


def test_named_node_of_a_group_of_another_kind() -> None:
    restricted = replace(EIGHT, nodes=(*EIGHT.nodes, *nodes("rig", 1, first=500)))
    assert refusal(restricted, desired(desired_group(), nodes_to_delete=(node_id(500),))) == refusals.named_elsewhere(
        node_id(500), "rig"
    )


def test_lower_count_of_the_controller() -> None:
    wanted = replace(
        desired(desired_group()), groups=(desired_group("controller", 0, fixed=CONTROLLER), desired_group())
    )
    assert refusal(EIGHT, wanted) == refusals.controller_count("controller", live=1, count=0)


def test_a_group_removed_from_the_file_without_a_deletion_is_refused() -> None:
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *nodes("old", 3, first=100)])
    assert refusal(two, desired(desired_group())) == refusals.unknown_group("old", nodes=3)


def test_a_deletion_of_the_last_group_is_refused() -> None:
    only = replace(EIGHT, groups=(group(),), nodes=tuple(nodes("p5", 8)))
    wanted = Desired(cluster="train", groups=(desired_group(),), groups_to_delete=("p5",))
    assert refusal(only, wanted) == refusals.last_group(["p5"])


def test_group_to_delete_that_is_the_controller() -> None:
    wanted = replace(desired(desired_group()), groups=(desired_group(),), groups_to_delete=("controller",))
    assert refusal(EIGHT, wanted) == refusals.controller_group("controller")


def test_group_to_delete_that_is_still_in_the_file() -> None:
    assert refusal(EIGHT, desired(desired_group(), groups_to_delete=("p5",))) == refusals.kept_group("p5")


@pytest.mark.parametrize(
    ("fixed", "field", "found", "wanted"),
    [
        (
            replace(P5, instance_types=("ml.p4d.24xlarge",)),
            "instance_type",
            "ml.p5.48xlarge",
            "ml.p4d.24xlarge",
        ),
        (
            Fixed(instance_types=("ml.p5.48xlarge",), flexible=True),
            "instance_type",
            "ml.p5.48xlarge",
            "[ml.p5.48xlarge]",
        ),
        (replace(P5, node_type="Login"), "node_type", "Compute", "Login"),
        (
            replace(P5, execution_role="arn:aws:iam::111122223333:role/other"),
            "execution_role",
            "arn:aws:iam::111122223333:role/node",
            "arn:aws:iam::111122223333:role/other",
        ),
        (
            replace(P5, network=Network(subnets=frozenset({"subnet-2"}), security_groups=VPC.security_groups)),
            "availability_zone",
            "subnet-1 sg-1",
            "subnet-2 sg-1",
        ),
        (replace(P5, threads_per_core=1), "threads_per_core", "2", "1"),
    ],
    ids=["type", "flexible", "node type", "role", "subnet", "threads"],
)
def test_a_change_of_an_immutable_field_is_refused(fixed: Fixed, field: str, found: str, wanted: str) -> None:
    eight = live(group(fixed=replace(P5, threads_per_core=2)), nodes=nodes("p5", 8))
    assert refusal(eight, desired(desired_group(fixed=fixed))) == refusals.immutable("p5", field, found, wanted)


def test_flexible_group_may_lose_types_without_nodes_only() -> None:
    both = Fixed(instance_types=("ml.a", "ml.b"), flexible=True)
    wanted = desired(desired_group(count=1, fixed=replace(both, instance_types=("ml.a",))))
    fits = live(group(target=1, fixed=both, types_in_use=frozenset({"ml.a"})), nodes=nodes("p5", 1))
    assert plan(fits, wanted, request_context()).done
    used = live(group(target=1, fixed=both, types_in_use=frozenset({"ml.b"})), nodes=nodes("p5", 1))
    assert refusal(used, wanted) == refusals.immutable(
        "p5", "instance_type", live="[ml.a, ml.b] with nodes of ml.b", wanted="[ml.a]"
    )


def test_unknown_values_are_no_reason_to_refuse() -> None:
    silent = live(group(fixed=Fixed(instance_types=())), nodes=nodes("p5", 8))
    assert plan(silent, desired(desired_group(fixed=replace(P5, threads_per_core=1))), request_context()).done


def test_more_nodes_than_the_limit() -> None:
    assert refusal(EIGHT, desired(desired_group(count=5), max_nodes=2)) == refusals.too_many(3, limit=2)


def test_nodes_of_deleted_groups_count_towards_the_limit() -> None:
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *nodes("old", 3, first=100)])
    assert refusal(two, desired(desired_group(count=7), groups_to_delete=("old",), max_nodes=3)) == refusals.too_many(
        4, limit=3
    )


def test_nodes_shutting_down_in_a_deleted_group_do_not_count() -> None:
    leaving = [*nodes("old", 1, first=100), *nodes("old", 2, first=101, status="ShuttingDown")]
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *leaving])
    assert plan(two, desired(desired_group(), groups_to_delete=("old",), max_nodes=1), request_context()).done


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        (
            desired(
                desired_group(count=2), network=Network(subnets=frozenset({"subnet-9"}), security_groups=frozenset())
            ),
            "network",
        ),
        (desired(desired_group(count=2), eks_cluster="arn:aws:eks:us-west-2:111122223333:cluster/a"), "orchestrator"),
    ],
    ids=["network", "orchestrator"],
)
def test_replacement_of_the_cluster(wanted: Desired, path: str) -> None:
    assert refusal(EIGHT, wanted) == refusals.replaced(path)


def test_replacement_by_another_order_of_the_same_subnets() -> None:
    before = desired(desired_group(count=8), create_only="vpc in another order")
    assert refusal(EIGHT, desired(desired_group(count=8)), previous=before) == refusals.replaced("network")


def test_all_refusals_at_once() -> None:
    two = live(group(), group("old", 3), nodes=[*nodes("p5", 8), *nodes("old", 3, first=100)])
    wanted = desired(desired_group(count=2), nodes_to_delete=(node_id(900),), max_nodes=1)
    found = plan(two, wanted, request_context())
    assert [refusal.path for refusal in found.refusals] == [
        "instance_groups",
        "scale_down.nodes_to_delete",
        "scale_down.max_nodes",
    ]


# -- ids that are no node of the cluster ------------------------------------------------------------------------------

TYPO = "i-0badc0ffee0badc0f"


def test_new_id_that_is_no_node_costs_no_other_node() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=(TYPO,))
    assert refusal(EIGHT, wanted, deployed_ids=frozenset()) == refusals.not_here([TYPO], {"p5": 1})


def test_nodes_that_would_go_by_count_in_any_group_count() -> None:
    two = live(group(), group("trn1", 2), nodes=[*nodes("p5", 8), *nodes("trn1", 2, first=100)])
    wanted = desired(desired_group(count=7), desired_group("trn1", 0), nodes_to_delete=(node_id(1), TYPO, "i-0bad0bad"))
    assert refusal(two, wanted, deployed_ids=frozenset()) == refusals.not_here([TYPO, "i-0bad0bad"], {"trn1": 2})


def test_a_node_id_that_was_deployed_before_costs_no_other_node() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=(TYPO,))
    found = plan(EIGHT, wanted, request_context(deployed_ids=frozenset({TYPO})))
    assert taken(found) == [(node_id(8), "newest")]
    assert found.notes == ()


def test_new_id_that_is_no_node_is_reported_where_nothing_would_go_instead() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=(node_id(3), TYPO))
    found = plan(EIGHT, wanted, request_context(deployed_ids=frozenset()))
    assert taken(found) == [(node_id(3), "named")]
    assert found.notes == (notes.absent([TYPO]),)


def test_node_that_is_shutting_down_is_a_node_of_the_cluster() -> None:
    crowd = [*nodes("p5", 7), *nodes("p5", 1, first=8, status="ShuttingDown")]
    wanted = desired(desired_group(count=6), nodes_to_delete=(node_id(8),))
    found = plan(live(group(), nodes=crowd), wanted, request_context(deployed_ids=frozenset()))
    assert taken(found) == [(node_id(7), "newest")]


def test_ids_are_looked_at_first_and_not_when_they_are_gone() -> None:
    wanted = desired(desired_group(count=7), nodes_to_delete=(TYPO,))
    found = plan(EIGHT, wanted, request_context(first=False, deployed_ids=frozenset()))
    assert taken(found) == [(node_id(8), "newest")]
    assert found.notes == ()


def test_dry_run_reports_what_it_cannot_judge() -> None:
    found = plan(EIGHT, desired(desired_group(count=7), nodes_to_delete=(TYPO,)))
    assert taken(found) == [(node_id(8), "newest")]
    assert found.notes == (notes.absent([TYPO]),)


# -- the controller while HyperPod replaces it ------------------------------------------------------------------------


def test_controller_that_is_being_replaced_is_waited_for() -> None:
    both = replace(EIGHT, nodes=(*EIGHT.nodes, *nodes("controller", 1, first=901)))
    found = plan(both, desired(desired_group(count=7)), request_context())
    assert taken(found) == [(node_id(8), "newest")]
    assert [*found.waits] == [waits.controller_replaced("controller", 2)]
    assert plan(both, desired(desired_group(count=8)), request_context()).waits == found.waits, (
        "its update would choose one of the two"
    )


def test_nodes_of_the_controller_do_not_count_towards_the_limit() -> None:
    both = replace(EIGHT, nodes=(*EIGHT.nodes, *nodes("controller", 1, first=901)))
    assert not plan(both, desired(desired_group(count=7), max_nodes=1), request_context()).refusals


def test_rollback_waits_for_the_controller_too() -> None:
    both = replace(EIGHT, nodes=(*EIGHT.nodes, *nodes("controller", 1, first=901)))
    found = plan(
        both, desired(desired_group(count=8)), request_context(rolling_back=True, reached=frozenset({EIGHT.arn}))
    )
    assert [*found.waits] == [waits.controller_replaced("controller", 2)]


# -- nodes that came half-way through ---------------------------------------------------------------------------------


def test_documented_order_holds_while_something_shuts_down() -> None:
    """A failed node and a request without an instance were there at the first look."""
    crowd = [
        *nodes("p5", 4),
        *nodes("p5", 1, first=5, status="Failure"),
        *nodes("p5", 1, first=6, status="ShuttingDown"),
        *waiting("p5", 7),
    ]
    found = plan(
        live(group(target=6), nodes=crowd),
        desired(desired_group(count=5)),
        request_context(first=False, unlaunched={"p5": 1}),
    )
    assert taken(found) == [(node_id(5), "failed")]


def test_node_that_is_launched_during_the_first_look_was_not_launched_when_the_request_began() -> None:
    """Beside it, one that is still without an instance was there before, and is no replacement of anything."""
    found = with_plan(
        State(began=START), live(group(), nodes=[*nodes("p5", 5), *late("p5", 6), *waiting("p5", 7)]), Plan()
    )
    assert found.unlaunched == {"p5": 2}
    again = live(group(target=7, current=6), nodes=[*nodes("p5", 5), *late("p5", 6), *waiting("p5", 7)])
    picks = plan(
        again, desired(desired_group(count=4)), request_context(first=False, unlaunched=found.unlaunched)
    ).nodes_to_delete
    assert [pick.node.name for pick in picks] == ["p5-7", node_id(5)], "the request goes before a node that runs"


@pytest.mark.parametrize("first", [True, False])
def test_node_that_is_launched_during_the_first_look_makes_no_older_one_go(first: bool) -> None:
    """Neither there nor afterwards, when what comes in its place is taken for the request that it was."""
    old = [*nodes("p5", 1, outdated=True), *nodes("p5", 4, first=2)]
    seen, wanted = live(group(target=6), nodes=[*old, *late("p5", 6)]), desired(desired_group(count=5))
    found = plan(seen, wanted, request_context(first=first, unlaunched={} if first else {"p5": 1}))
    assert taken(found) == [(node_id(6), "newest")]
    chosen = frozenset(pick.node.name for pick in found.nodes_to_delete)
    again = live(group(target=6, current=5), nodes=[*old, *waiting("p5", 7)])
    then = plan(again, wanted, request_context(first=False, unlaunched={"p5": 1}, chosen=chosen))
    assert taken(then) == [("p5-7", "not yet launched")]


def test_a_request_that_replaces_a_launched_and_deleted_one_is_not_an_earlier_request() -> None:
    """The first look chose two nodes. Another actor deleted a third one, so one of the two is enough."""
    seen, wanted = live(group(target=5), nodes=[*nodes("p5", 4), *late("p5", 5)]), desired(desired_group(count=3))
    state = with_plan(State(began=START), seen, plan(seen, wanted, request_context()))
    assert [pick.name for pick in state.picked if not pick.launched_before] == [node_id(5)]
    again = live(group(target=4, current=4), nodes=[*nodes("p5", 2), *nodes("p5", 1, first=4), *waiting("p5", 6)])
    then = plan(
        again,
        wanted,
        request_context(
            first=False,
            unlaunched=state.unlaunched,
            chosen=frozenset(pick.name for pick in state.picked),
            chosen_unlaunched={node_id(5): "p5"},
        ),
    )
    assert taken(then) == [("p5-6", "not yet launched")]


def test_a_chosen_node_that_is_launched_since_is_not_deleted() -> None:
    """It has another name then, and the nodes beside it that are still not launched were there before."""
    unlaunched = [*waiting("p5", 3), *waiting("p5", 4), *waiting("p5", 5)]
    seen, wanted = live(group(target=5), nodes=[*nodes("p5", 2), *unlaunched]), desired(desired_group(count=2))
    found = plan(seen, wanted, request_context())
    (started,) = (replace(node, logical_id="p5-3") for node in late("p5", 3))
    then = plan(
        live(group(target=5), nodes=[*nodes("p5", 2), started, *unlaunched[1:]]),
        wanted,
        request_context(
            first=False,
            unlaunched={"p5": 3},
            chosen=frozenset(pick.node.name for pick in found.nodes_to_delete),
            chosen_unlaunched={node.name: "p5" for node in unlaunched},
        ),
    )
    assert taken(then) == [("p5-4", "not yet launched"), ("p5-5", "not yet launched")]


def test_the_first_poll_lists_nodes_launched_meanwhile_with_the_others() -> None:
    seen, wanted = live(group(target=7), nodes=[*nodes("p5", 5), *late("p5", 6, 7)]), desired(desired_group(count=4))
    found = plan(seen, wanted, request_context())
    assert [name for name, _ in taken(found)] == [node_id(5), node_id(6), node_id(7)]
    assert taken(plan(seen, wanted, request_context(first=False, unlaunched={"p5": 2}))) == [(node_id(5), "newest")]


def test_standard_target_is_not_refused_for_a_node_that_is_launched_during_the_first_look() -> None:
    seen = live(group(target=6), nodes=[*nodes("p5", 5), *late("p5", 6)], continuous=False)
    assert taken(plan(seen, desired(desired_group(count=5)), request_context())) == [(node_id(6), "newest")]


def test_nodes_of_the_first_look_stay_chosen() -> None:
    """7 and 8 were taken, and the list shows them as they were for a while: node 3, which has failed since, must not go too."""
    crowd = [*nodes("p5", 2), *nodes("p5", 1, first=3, status="Failure"), *nodes("p5", 5, first=4)]
    chosen = frozenset({node_id(7), node_id(8)})
    found = plan(
        live(group(), nodes=crowd), desired(desired_group(count=6)), request_context(first=False, chosen=chosen)
    )
    assert taken(found) == [(node_id(8), "newest"), (node_id(7), "newest")]
    more = plan(
        live(group(), nodes=crowd), desired(desired_group(count=5)), request_context(first=False, chosen=chosen)
    )
    assert taken(more)[2:] == [(node_id(3), "failed")]


@pytest.mark.parametrize(("target", "running", "blocked"), [(8, 8, False), (8, 7, False), (7, 7, True), (6, 6, True)])
def test_named_nodes_wait_if_others_lowered_the_group_after_the_first_poll(
    target: int, running: int, blocked: bool
) -> None:
    """Node 1 may go from 8 to 7. With 7 and a target of 7 the target would fall to 6, behind CloudFormation's count of 7."""
    seen = live(group(target=target, current=running), nodes=nodes("p5", running))
    wanted = desired(desired_group(count=7), nodes_to_delete=(node_id(1),))
    found = plan(seen, wanted, request_context(first=False, chosen=frozenset({node_id(1)})))
    if blocked:
        assert not found.changes
        assert found.waits == (waits.lowered_meanwhile("p5", named=1, most=max(target, running), count=7),)
    else:
        assert taken(found) == [(node_id(1), "named")]


def test_names_do_not_wait_once_nodes_of_the_first_look_went() -> None:
    wanted = desired(desired_group(count=6), nodes_to_delete=(node_id(1), node_id(8)))
    seen = live(group(target=6, current=6), nodes=nodes("p5", 6))
    found = plan(seen, wanted, request_context(first=False, chosen=frozenset({node_id(1), node_id(8)})))
    assert taken(found) == [(node_id(1), "named")]


def test_request_that_was_launched_meanwhile_leaves_no_place_for_a_replacement() -> None:
    """One of the two requests of the first look has its instance now; of the other two, one is new."""
    crowd = [*nodes("p5", 4), *late("p5", 9), *waiting("p5", 7, 8)]
    cluster = live(group(target=7, current=5), nodes=crowd)
    found = plan(cluster, desired(desired_group(count=5)), request_context(first=False, unlaunched={"p5": 2}))
    assert len(taken(found)) == 2
    assert not {each for each, _ in taken(found)} & {node_id(number) for number in range(1, 5)}


def test_replacements_do_not_count_towards_the_limit() -> None:
    crowd = [*nodes("p5", 5), *late("p5", 9), *waiting("p5", 10, 11)]
    cluster = live(group(target=8, current=6), nodes=crowd)
    found = plan(cluster, desired(desired_group(count=5), max_nodes=0), request_context(first=False))
    assert len(taken(found)) == 3
    assert plan(cluster, desired(desired_group(count=5), max_nodes=1), request_context()).refusals


# -- a minimum guards a transition only -------------------------------------------------------------------------------


def test_group_in_service_below_its_minimum_is_taken_from() -> None:
    below = live(group(minimum=8, target=8, current=7), nodes=nodes("p5", 7))
    found = plan(below, desired(desired_group(count=6, minimum=6)), request_context())
    assert taken(found) == [(node_id(7), "newest")]
    (take,) = found.changes
    assert isinstance(take, DeleteNodes) and take.minimum == 6, "should HyperPod mind after all"


@pytest.mark.parametrize("status", ["Pending", "SystemUpdating", "Failure"])
@pytest.mark.parametrize(("current", "running"), [(7, 8), (8, 7)])
def test_group_in_transition_below_its_minimum_is_waited_for(current: int, running: int, status: str) -> None:
    boots = nodes("p5", 8 - running, first=20, status=status)
    below = live(group(status="Creating", minimum=8, target=8, current=current), nodes=[*nodes("p5", running), *boots])
    found = plan(below, desired(desired_group(count=7, minimum=8)), request_context())
    assert [*found.waits] == [waits.below_minimum("p5", running, 8)]


def test_minimum_is_not_sent_with_a_target_that_may_be_falling() -> None:
    """HyperPod refused the second call of two, because of the minimum; the first one's node still counts."""
    crowd = [*nodes("p5", 5), *nodes("p5", 1, first=6, status="ShuttingDown")]
    found = plan(
        live(group(target=6, minimum=5), nodes=crowd),
        desired(desired_group(count=4, minimum=4)),
        request_context(first=False, previous=BEFORE, minimum_blocks=True),
    )
    assert found.changes == ()
    assert [*found.waits] == [waits.shutting_down("p5", [node_id(6)])]


# -- standard provisioning --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("current", [6, 5])
def test_standard_target_that_does_not_fall_is_refused(current: int) -> None:
    """Also where the count leaves out a node that boots."""
    after = live(group(target=8, current=current), nodes=nodes("p5", 6), continuous=False)
    assert refusal(after, desired(desired_group(count=6)), first=False) == refusals.target_stays(
        "p5", target=8, nodes=6, count=6
    )


def test_standard_target_may_fall_while_the_count_still_holds_nodes_that_left() -> None:
    after = live(group(target=8, current=7), nodes=nodes("p5", 6), continuous=False)
    found = plan(after, desired(desired_group(count=6)), request_context(first=False))
    assert [*found.waits] == [waits.still_counted("p5", 7, 6)]


def test_standard_replacements_are_refused() -> None:
    crowd = [*nodes("p5", 6), *late("p5", 9)]
    after = live(group(target=8, current=7), nodes=crowd, continuous=False)
    assert refusal(after, desired(desired_group(count=6)), first=False) == refusals.target_stays(
        "p5", target=8, nodes=7, count=6
    )


def test_standard_target_may_fall_when_the_nodes_are_gone() -> None:
    leaving = [*nodes("p5", 6), *nodes("p5", 2, first=7, status="ShuttingDown")]
    after = live(group(target=8), nodes=leaving, continuous=False, status="Updating")
    found = plan(after, desired(desired_group(count=6)), request_context(first=False))
    assert [*found.waits] == [waits.shutting_down("p5", [node_id(7), node_id(8)])]


# -- autoscaled groups ------------------------------------------------------------------------------------------------


def test_autoscaled_group_loses_named_nodes_only() -> None:
    wanted = desired(desired_group(count=2, autoscaled=True), nodes_to_delete=(node_id(3),))
    found = plan(EIGHT, wanted, request_context(previous=desired(desired_group(count=2, autoscaled=True))))
    pick = Pick(node=nodes("p5", 1, first=3)[0], reason="named")
    assert found == Plan(changes=(DeleteNodes(group="p5", picks=(pick,)),))


def test_autoscaled_group_whose_lower_count_would_be_sent_again() -> None:
    before = desired(desired_group(count=2, autoscaled=True), digest="before")
    assert refusal(
        EIGHT, desired(desired_group(count=2, autoscaled=True)), previous=before
    ) == refusals.autoscaled_count("p5", held=8, count=2)


def test_a_raised_count_of_an_autoscaled_group_deletes_no_node() -> None:
    before = desired(desired_group(count=2, autoscaled=True), digest="before")
    assert plan(EIGHT, desired(desired_group(count=9, autoscaled=True)), request_context(previous=before)) == Plan()


def test_autoscaled_group_with_the_count_that_it_holds() -> None:
    before = desired(desired_group(count=2, autoscaled=True))
    wanted = desired(desired_group(count=7, autoscaled=True), nodes_to_delete=(node_id(3),))
    assert taken(plan(EIGHT, wanted, request_context(previous=before))) == [(node_id(3), "named")]


def test_autoscaled_group_whose_target_stays_when_its_node_goes() -> None:
    wanted = desired(desired_group(count=7, autoscaled=True), nodes_to_delete=(node_id(8),))
    crowd = [*nodes("p5", 7), *nodes("p5", 1, first=8, status="ShuttingDown")]
    when = request_context(first=False, previous=desired(desired_group(count=8, autoscaled=True)), young=True)
    found = plan(live(group(), nodes=crowd), wanted, when)
    assert [*found.waits] == [waits.shutting_down("p5", [node_id(8)])]
    # Gone, and what the target asks for may be there and not listed: the cluster's own update would end others for it.
    gone = live(group(target=8, current=7), nodes=nodes("p5", 7))
    assert plan(gone, wanted, when).waits == (waits.target_falls_yet("p5", 8),)
    assert plan(gone, wanted, replace(when, young=False)).refusals == (
        refusals.autoscaled_count("p5", held=8, count=7),
    )
    # An update that leaves the cluster alone sends no count.
    assert plan(gone, wanted, replace(when, previous=wanted)).done


# -- minimum ----------------------------------------------------------------------------------------------------------


def test_a_minimum_is_never_raised_to_take_nodes() -> None:
    """To raise it would begin a transition, which is the cluster's own update's to begin."""
    wanted = desired(desired_group(count=6, minimum=5), nodes_to_delete=(node_id(1), node_id(2)))
    four = nodes("p5", 4)
    (change,) = plan(live(group(minimum=3, current=4), nodes=four), wanted, request_context(previous=BEFORE)).changes
    assert isinstance(change, DeleteNodes)
    assert change.minimum is None
    unmet = live(group(minimum=3, current=2, status="Updating"), nodes=[*nodes("p5", 2), *waiting("p5", 9)])
    assert [*plan(unmet, wanted, request_context(previous=BEFORE)).waits] == [waits.below_minimum("p5", 2, 3)]


def test_taking_below_a_live_minimum_knows_what_to_lower_first() -> None:
    four = live(group(target=4, minimum=4), nodes=nodes("p5", 4))
    (change,) = plan(four, desired(desired_group(count=3, minimum=3)), request_context()).changes
    assert isinstance(change, DeleteNodes)
    assert change.minimum == 3


# -- rollback ---------------------------------------------------------------------------------------------------------


HERE, ELSEWHERE = EIGHT.arn, "arn:aws:sagemaker:us-west-2:111122223333:cluster/zzzzzzzzzzzz"


def rollback(**more: Any) -> Any:
    """Of an update that got to the cluster."""
    return request_context(**{"rolling_back": True, "updated": UPDATED, "reached": frozenset({HERE}), **more})


def since(group: str, *numbers: int) -> list[Any]:
    """Nodes that the failed update launched."""
    return [
        replace(node, launched=UPDATED + timedelta(minutes=number))
        for number in numbers
        for node in nodes(group, 1, first=number)
    ]


def test_rollback_takes_what_the_failed_update_launched() -> None:
    # 8 old nodes, one of them failed; the update to 12 launched three and waits for one.
    crowd = [*nodes("p5", 7), *nodes("p5", 1, first=8, status="Failure"), *since("p5", 20, 21, 22), *waiting("p5", 23)]
    failed = desired(desired_group(count=12))
    found = plan(
        live(group(target=12), nodes=crowd), desired(desired_group(count=8), max_nodes=0), rollback(previous=failed)
    )
    assert taken(found) == [
        ("p5-23", "not yet launched"),
        (node_id(22), "launched by the failed update"),
        (node_id(21), "launched by the failed update"),
        (node_id(20), "launched by the failed update"),
    ]


def test_rollback_takes_what_the_failed_update_launched_after_the_rollback_began() -> None:
    """And no older node in its place."""
    crowd = [*nodes("p5", 8), *late("p5", 20, 21), *since("p5", 19)]
    when = replace(rollback(previous=desired(desired_group(count=11))), first=False)
    assert taken(plan(live(group(target=11, current=11), nodes=crowd), desired(desired_group(count=8)), when)) == [
        (node_id(20), "launched by the failed update"),
        (node_id(21), "launched by the failed update"),
        (node_id(19), "launched by the failed update"),
    ]


def test_rollback_takes_no_replacement_for_nodes_that_the_list_shows_as_they_were() -> None:
    """20 and 21 were taken; 22 came in their place, and must not go below the count. An old node has no such claim."""
    crowd = [*nodes("p5", 8), *since("p5", 20, 21), *since("p5", 22)]
    when = replace(rollback(chosen=frozenset({node_id(20), node_id(21), node_id(8)})), first=False)
    found = plan(live(group(target=10, current=11), nodes=crowd), desired(desired_group(count=9)), when)
    assert [name for name, _ in taken(found)] == [node_id(21), node_id(20)]
    fewer = plan(live(group(target=10, current=11), nodes=crowd), desired(desired_group(count=8)), when)
    assert [name for name, _ in taken(fewer)] == [node_id(21), node_id(20), node_id(22)]


@pytest.mark.parametrize(("target", "before", "takes"), [(6, 0, []), (6, 1, ["p5-9"]), (7, 0, ["p5-9"])])
def test_rollback_takes_no_request_in_place_of_a_node_that_may_be_ending(
    target: int, before: int, takes: list[str]
) -> None:
    """Node 6 has ended, and the list shows it as it was. `before`: requests that the first look found."""
    crowd = live(group(target=target, current=7), nodes=[*nodes("p5", 6), *waiting("p5", 9)])
    when = replace(rollback(unlaunched={"p5": before}), first=False)
    found = plan(crowd, desired(desired_group(count=6)), when)
    assert [name for name, _ in taken(found)] == takes
    assert bool(found.waits) is not bool(takes)


def test_a_rollback_is_never_refused() -> None:
    two = live(
        group(target=12), group("other", 1), nodes=[*nodes("p5", 8), *since("p5", 20), *nodes("other", 1, first=50)]
    )
    failed = desired(desired_group(count=12), desired_group("other", 1))
    found = plan(
        two, desired(desired_group(count=8), max_nodes=0, nodes_to_delete=(node_id(1),)), rollback(previous=failed)
    )
    assert taken(found) == [(node_id(20), "launched by the failed update")]
    assert found.notes == (notes.left_behind("other", nodes=1),)


@pytest.mark.parametrize(
    "failed",
    [
        None,
        desired(desired_group(count=6)),
        desired(desired_group(count=4), max_nodes=3),
        desired(desired_group("other")),
    ],
    ids=["malformed", "nodes left to take", "nothing to send", "refused by looks"],
)
def test_rollback_of_what_cloudformation_got_to_takes_the_excess_whatever_it_looks_like(failed: Desired | None) -> None:
    found = plan(EIGHT, desired(desired_group(count=6)), rollback(previous=failed, reached=frozenset({HERE})))
    assert taken(found) == [(node_id(8), "newest"), (node_id(7), "newest")]


@pytest.mark.parametrize(
    ("reached", "takes"),
    [
        pytest.param({HERE, ELSEWHERE}, 4, id="another as well"),
        pytest.param({"train"}, 4, id="by its name"),
        pytest.param({ELSEWHERE}, 0, id="another alone"),
        pytest.param({ANY_CLUSTER}, 4, id="one without an id"),
        pytest.param(set(), 0, id="none"),
    ],
)
def test_rollback_does_nothing_to_a_cluster_that_cloudformation_did_not_get_to(reached: set[str], takes: int) -> None:
    # Somebody raised 4 to 8 by hand, which the failed update says too: no look at the cluster could tell.
    when = rollback(previous=desired(desired_group(count=8)), reached=frozenset(reached))
    found = plan(EIGHT, desired(desired_group(count=4)), when)
    assert len(taken(found)) == takes
    assert (notes.NOT_REACHED in found.notes) is not takes


def test_rollback_that_has_nodes_to_take_must_know_how_far_the_failed_update_got() -> None:
    found = plan(
        EIGHT, desired(desired_group(count=4)), rollback(previous=desired(desired_group(count=8)), reached=None)
    )
    assert found == Plan(refusals=(refusals.NOT_KNOWN,))
    busy = plan(replace(EIGHT, status="Updating"), desired(desired_group(count=4)), rollback(reached=None))
    assert busy == Plan(refusals=(refusals.NOT_KNOWN,))


def test_rollback_that_has_nothing_to_take_need_not_know() -> None:
    assert plan(EIGHT, desired(desired_group(count=8)), rollback(reached=None)).done
    leaving = live(group(), nodes=[*nodes("p5", 7), *nodes("p5", 1, first=8, status="ShuttingDown")])
    assert plan(leaving, desired(desired_group(count=8)), rollback(reached=None)).waits


def test_rollback_on_a_cluster_that_is_not_ours_does_nothing() -> None:
    found = plan(
        replace(EIGHT, tags={}), desired(desired_group(count=4)), rollback(previous=desired(desired_group(count=8)))
    )
    assert found == Plan(notes=(notes.NOT_OURS,))


def test_rollback_without_a_cluster_is_done() -> None:
    assert plan(None, desired(desired_group()), rollback(previous=desired(desired_group(count=9)))) == Plan()


def test_rollback_lowers_an_unmet_minimum_first() -> None:
    below = live(
        group(target=28, minimum=28, current=8, status="Updating"), nodes=[*nodes("p5", 8), *waiting("p5", 30)]
    )
    found = plan(
        below,
        desired(desired_group(count=8, minimum=4)),
        rollback(previous=desired(desired_group(count=28, minimum=28))),
    )
    assert found.changes == (Lower(group="p5", count=28, minimum=4, spec=desired_group(count=8, minimum=4)),)


def test_rollback_does_not_wait_for_a_minimum() -> None:
    below = live(
        group(target=28, minimum=4, current=3, status="Updating"),
        nodes=[*nodes("p5", 3), *waiting("p5", *range(30, 55))],
    )
    found = plan(
        below,
        desired(desired_group(count=8, minimum=4)),
        rollback(previous=desired(desired_group(count=28, minimum=4))),
    )
    assert found.changes == (Lower(group="p5", count=28, minimum=3, spec=desired_group(count=8, minimum=4)),)


def test_rollback_takes_back_requests_for_which_there_is_no_capacity() -> None:
    """The group says Updating until it has them."""
    short = live(group(target=11, current=8, status="Updating"), nodes=[*nodes("p5", 8), *waiting("p5", 9, 10, 11)])
    back = rollback(reached=frozenset({short.arn}))
    assert [name for name, _ in taken(plan(short, desired(desired_group(count=8)), back))] == ["p5-10", "p5-11", "p5-9"]
    booting = replace(short, nodes=(*nodes("p5", 8), *late("p5", 9, 10, 11), *controller_nodes()))
    first = plan(booting, desired(desired_group(count=8)), replace(back, doubting=True))
    assert [*first.waits] == [waits.group_moving("p5", "Updating")]
    later = taken(plan(booting, desired(desired_group(count=8)), back))
    assert sorted(name for name, _ in later) == [node_id(9), node_id(10), node_id(11)], (
        "half an hour later it has come to no rest"
    )


def test_rollback_spares_the_controller() -> None:
    two = replace(EIGHT, nodes=(*EIGHT.nodes, *since("controller", 901)))
    two = replace(two, groups=(group("controller", 2, fixed=CONTROLLER), *two.groups[1:]))
    failed = replace(
        desired(desired_group(count=9)),
        groups=(desired_group("controller", 2, fixed=CONTROLLER), desired_group(count=9)),
    )
    found = plan(two, desired(desired_group(count=8)), rollback(previous=failed))
    assert found == Plan(notes=(notes.controller_excess("controller"),))


def test_rollback_sends_what_the_group_goes_back_to() -> None:
    """Nobody knows whether the failed update's own specification ever got to the group."""
    high = live(group(target=10, current=8), nodes=nodes("p5", 8))
    old, new = (replace(desired_group(count=8), spec={"LifeCycleConfig": which}) for which in ("old", "new"))
    found = plan(high, desired(old), rollback(previous=desired(replace(new, count=10))))
    assert found.changes == (Lower(group="p5", count=8, minimum=0, spec=old),)


def test_rollback_lowers_a_target_that_an_autoscaler_raised() -> None:
    """The cluster's own way back sends the count in any case; until then, what the target still asks for may come."""
    raised = live(group(target=10, current=8), nodes=nodes("p5", 8))
    wanted = desired(desired_group(count=8, autoscaled=True))
    found = plan(raised, wanted, rollback(previous=desired(desired_group(count=9, autoscaled=True))))
    assert [change.count for change in found.changes if isinstance(change, Lower)] == [8]
    assert plan(raised, wanted, request_context(previous=wanted)).done


def test_rollback_under_standard_provisioning_waits_for_a_target_that_may_fall_yet() -> None:
    """It would fall below what the cluster's own way back has sent; and what it asks for may be there, and is not listed."""
    settled = live(group(target=12, current=8), nodes=nodes("p5", 8), continuous=False)
    found = plan(settled, desired(desired_group(count=8)), rollback(previous=desired(desired_group(count=12))))
    assert [*found.waits] == [waits.target_falls_yet("p5", 12)]
    assert all(wait.passing for wait in found.waits), "at the deadline the rollback goes on"


def test_target_that_may_not_be_sent_is_given_time_too() -> None:
    """The guard is new in the stack: CloudFormation's own count would meet a target that falls afterwards."""
    after = live(group(target=8, current=5), nodes=nodes("p5", 5))
    replaced = replace(after, nodes=(*nodes("p5", 4), *late("p5", 30), *controller_nodes()))
    for seen in (after, replaced):
        assert plan(seen, desired(desired_group(count=5)), request_context(first=False, young=True)).waits
        assert plan(seen, desired(desired_group(count=5)), request_context(first=False)).done


@pytest.mark.parametrize(("status", "refused"), [("Deleting", False), ("Creating", True), ("InService", True)])
def test_nodes_of_a_group_that_is_being_deleted_do_not_count(status: str, refused: bool) -> None:
    """Somebody asked for that before."""
    going = live(group(), group("old", 3, status=status), nodes=[*nodes("p5", 8), *nodes("old", 3, first=50)])
    found = plan(going, desired(desired_group(), groups_to_delete=("old",), max_nodes=2), request_context())
    assert bool(found.refusals) is refused


def test_named_nodes_are_no_part_of_what_an_autoscaler_holds() -> None:
    seen = live(group(target=10), nodes=nodes("p5", 10))
    wanted = desired(desired_group(count=8, autoscaled=True), nodes_to_delete=(node_id(1),), digest="new")
    before = desired(desired_group(count=10, autoscaled=True))
    assert refusal(seen, wanted, previous=before) == refusals.autoscaled_count("p5", held=9, count=8)


@pytest.mark.parametrize("young", [True, False])
def test_autoscalers_target_falls_with_nodes_that_take_long_to_shut_down(young: bool) -> None:
    """The service may lower it with the last of them, after half an hour too. Once all are gone, it is the autoscaler's."""
    wanted = desired(desired_group(count=4, autoscaled=True), nodes_to_delete=(node_id(5),), digest="new")
    when = request_context(first=False, young=young, previous=desired(desired_group(count=5, autoscaled=True)))
    last = nodes("p5", 1, first=5, status="ShuttingDown")
    going = plan(live(group(target=5), nodes=[*nodes("p5", 4), *last]), wanted, when)
    assert not going.refusals
    assert [*going.waits] == [waits.shutting_down("p5", [node_id(5)])]
    raised = plan(live(group(target=6), nodes=[*nodes("p5", 4), *late("p5", 6), *last]), wanted, when)
    assert raised.refusals, "nodes that came are held whatever the target does"
    gone = plan(live(group(target=5, current=4), nodes=nodes("p5", 4)), wanted, when)
    assert bool(gone.refusals) is not young


def test_a_raised_count_under_standard_provisioning_needs_no_plan() -> None:
    """A target below the count is CloudFormation's to raise."""
    seen = live(group(target=6), nodes=nodes("p5", 6), continuous=False)
    assert plan(seen, desired(desired_group(count=8)), request_context()) == Plan()
