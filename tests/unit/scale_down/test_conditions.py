"""Each condition by itself: what must be true before nodes are deleted, and before a count is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.decide import conditions
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.choice import find_group_plans
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.conditions import GroupView, first_unmet
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Lower, Wait
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import Cluster, Desired
from helpers.scale_down.clusters import (
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

BEFORE = desired(desired_group(count=8))
EIGHT = nodes("p5", 8)
ALL = frozenset(node.name for node in [*EIGHT, *nodes("controller", 1, first=900)])


def view_of(cluster: Cluster, wanted: Desired, **when: Any) -> GroupView:
    """The view of group p5."""
    context = request_context(**when)
    (group_plan,) = (each for each in find_group_plans(cluster, wanted, context) if each.group.name == "p5")
    return GroupView(cluster=cluster, group_plan=group_plan, context=context)


def wait_of(step: Wait | Lower | None) -> Wait | None:
    """What a condition waits for. None: it is true."""
    assert not isinstance(step, Lower)
    return step


# -- the tables -------------------------------------------------------------------------------------------------------


def test_order_before_nodes_are_deleted() -> None:
    """The order is the specification: a user reads the first condition that is not true."""
    assert [condition.__name__ for condition in conditions.BEFORE_NODES_ARE_DELETED] == [
        "names_fit_the_count",
        "cluster_accepts_changes",
        "minimum_is_met",
        "group_accepts_changes",
        "no_node_is_checked",
        "replaced_nodes_have_terminated",
        "minimum_does_not_block",
    ]


def test_order_before_a_minimum_is_sent() -> None:
    assert [condition.__name__ for condition in conditions.BEFORE_MINIMUM_IS_SENT] == [
        "list_is_not_above_target",
        "no_listed_node_is_leaving",
        "target_is_not_below_worst_case",
    ]


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (conditions.BEFORE_COUNT_IS_SENT, ["group_stays", "count_is_not_below_worst_case"]),
        (
            conditions.BEFORE_TARGET_IS_SENT,
            [
                "provisioning_is_continuous",
                "target_is_the_deployments",
                "target_had_time_to_fall",
                "cluster_accepts_changes",
            ],
        ),
        (conditions.BEFORE_GROUP_IS_DONE, ["list_is_not_above_count", "named_nodes_have_terminated"]),
    ],
    ids=["count", "target", "done"],
)
def test_order_where_no_node_is_to_be_deleted(table: tuple[conditions.Condition, ...], names: list[str]) -> None:
    assert [condition.__name__ for condition in table] == names


def test_first_unmet_condition_decides() -> None:
    view = view_of(live(group(), nodes=EIGHT), BEFORE)
    first, second = Wait(why="first"), Wait(why="second")
    assert first_unmet((lambda _: None, lambda _: first, lambda _: second), view) is first
    assert first_unmet((lambda _: None,), view) is None


def test_nodes_of_a_group_without_changes_in_progress_may_be_deleted() -> None:
    view = view_of(live(group(), nodes=EIGHT), desired(desired_group(count=6)))
    assert first_unmet(conditions.BEFORE_NODES_ARE_DELETED, view) is None


# -- before nodes are deleted -----------------------------------------------------------------------------------------


NAMED = desired(desired_group(count=7), nodes_to_delete=(node_id(1),))
SEVEN = live(group(target=7), nodes=nodes("p5", 7))


@pytest.mark.parametrize(
    ("cluster", "when", "blocked"),
    [
        pytest.param(SEVEN, {"chosen": frozenset({node_id(1)})}, True, id="lowered by another actor"),
        pytest.param(SEVEN, {"chosen": frozenset({node_id(1)}), "first": True}, False, id="first look"),
        pytest.param(SEVEN, {"chosen": frozenset({node_id(1), node_id(8)})}, False, id="a chosen node is gone"),
        pytest.param(SEVEN, {"chosen": frozenset()}, False, id="nothing chosen"),
        pytest.param(live(group(target=8), nodes=nodes("p5", 7)), {"chosen": ALL}, False, id="the target is as before"),
        pytest.param(live(group(target=7), nodes=EIGHT), {"chosen": ALL}, False, id="the list is as before"),
    ],
)
def test_names_fit_the_count(cluster: Cluster, when: dict[str, Any], blocked: bool) -> None:
    wait = wait_of(conditions.names_fit_the_count(view_of(cluster, NAMED, **{"first": False, **when})))
    assert (wait is not None) is blocked


def test_names_of_an_autoscaled_group_fit_any_count() -> None:
    wanted = replace(NAMED, groups=(desired_group(count=7, autoscaled=True),))
    view = view_of(SEVEN, wanted, first=False, chosen=frozenset({node_id(1)}))
    assert conditions.names_fit_the_count(view) is None


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        ("InService", None),
        ("Failed", None),
        ("Updating", waits.cluster_moving("Updating")),
        ("SystemUpdating", waits.cluster_moving("SystemUpdating")),
    ],
)
def test_a_cluster_that_is_updating_is_waited_for(status: str, wait: Wait | None) -> None:
    view = view_of(live(group(), nodes=EIGHT, status=status), BEFORE)
    assert wait_of(conditions.cluster_accepts_changes(view)) == wait


@pytest.mark.parametrize("status", ["Creating", "Updating"])
@pytest.mark.parametrize(("running", "current"), [(7, 8), (8, 7)])
def test_minimum_is_waited_for_during_a_transition(status: str, running: int, current: int) -> None:
    cluster = live(group(status=status, minimum=8, current=current), nodes=nodes("p5", running))
    view = view_of(cluster, desired(desired_group(count=7, minimum=8)))
    assert wait_of(conditions.minimum_is_met(view)) == waits.below_minimum("p5", running, 8)


@pytest.mark.parametrize(("status", "running"), [("InService", 7), ("Degraded", 7), ("Updating", 8)])
def test_minimum_blocks_a_transition_alone_and_only_below_it(status: str, running: int) -> None:
    cluster = live(group(status=status, minimum=8, current=running), nodes=nodes("p5", running))
    assert conditions.minimum_is_met(view_of(cluster, desired(desired_group(count=7, minimum=8)))) is None


def test_minimum_that_the_deployment_lowers_is_sent() -> None:
    cluster = live(group(status="Updating", minimum=6, current=4), nodes=nodes("p5", 4))
    view = view_of(cluster, desired(desired_group(count=3, minimum=3)), previous=BEFORE)
    assert conditions.minimum_is_met(view) == Lower(group="p5", count=8, minimum=3, spec=desired_group(count=8))


@pytest.mark.parametrize(("running", "minimum"), [(3, 3), (5, 4)])
def test_rollback_sends_a_minimum_that_the_group_has(running: int, minimum: int) -> None:
    """`running` nodes run, and the group goes back to a minimum of 4."""
    cluster = live(group(status="Updating", minimum=6, current=running), nodes=nodes("p5", running))
    wanted = desired(desired_group(count=8, minimum=4))
    step = conditions.minimum_is_met(view_of(cluster, wanted, rolling_back=True))
    assert step == Lower(group="p5", count=8, minimum=minimum, spec=wanted.groups[1])


@pytest.mark.parametrize(
    ("status", "wait"),
    [("InService", None), ("Degraded", None), ("Updating", waits.group_moving("p5", "Updating"))],
)
def test_a_group_that_is_updating_is_waited_for(status: str, wait: Wait | None) -> None:
    view = view_of(live(group(status=status), nodes=EIGHT), desired(desired_group(count=7)))
    assert wait_of(conditions.group_accepts_changes(view)) == wait


@pytest.mark.parametrize(
    ("status", "launched", "when", "never"),
    [
        pytest.param("Updating", False, {"doubting": True}, True, id="only requests"),
        pytest.param("Updating", True, {"doubting": True}, False, id="nodes, in doubt"),
        pytest.param("Updating", True, {"doubting": False}, True, id="nodes, half an hour later"),
        pytest.param("Creating", False, {"doubting": False}, False, id="another status"),
        pytest.param("Updating", False, {"rolling_back": False}, False, id="no rollback"),
    ],
)
def test_group_that_never_rests(status: str, launched: bool, when: dict[str, Any], never: bool) -> None:
    newcomers = late("p5", 9, 10) if launched else waiting("p5", 9, 10)
    cluster = live(group(target=10, current=8, status=status), nodes=[*EIGHT, *newcomers])
    view = view_of(cluster, desired(desired_group(count=8)), **{"rolling_back": True, **when})
    assert view.never_rests is never
    assert (conditions.group_accepts_changes(view) is None) is never


@pytest.mark.parametrize(("checked", "wait"), [(0, None), (2, waits.health_check("p5", 2))])
def test_no_node_is_checked(checked: int, wait: Wait | None) -> None:
    crowd = [*nodes("p5", 8 - checked), *nodes("p5", checked, first=20, status="DeepHealthCheckInProgress")]
    view = view_of(live(group(), nodes=crowd), desired(desired_group(count=7)))
    assert wait_of(conditions.no_node_is_checked(view)) == wait


def test_nodes_that_were_there_before_need_not_wait_for_others() -> None:
    crowd = [*nodes("p5", 7), *nodes("p5", 1, first=8, status="ShuttingDown")]
    view = view_of(live(group(), nodes=crowd), desired(desired_group(count=6)), first=False)
    assert conditions.replaced_nodes_have_terminated(view) is None


@pytest.mark.parametrize(
    ("leaving", "current", "doubting", "wait"),
    [
        (1, 7, False, waits.shutting_down("p5", [node_id(8)])),
        (0, 7, False, waits.still_counted("p5", 7, 6)),
        (0, 6, True, waits.maybe_counted("p5", 6, 5)),
        (0, 6, False, None),
        (0, 5, True, None),
    ],
)
def test_newcomers_wait_for_the_nodes_that_they_replace(
    leaving: int, current: int, doubting: bool, wait: Wait | None
) -> None:
    crowd = [*nodes("p5", 5), *waiting("p5", 9), *nodes("p5", leaving, first=8, status="ShuttingDown")]
    cluster = live(group(target=6, current=current), nodes=crowd)
    view = view_of(cluster, desired(desired_group(count=5)), first=False, doubting=doubting)
    assert not view.group_plan.picks_before_request
    assert wait_of(conditions.replaced_nodes_have_terminated(view)) == wait


@pytest.mark.parametrize(
    ("blocks", "minimum", "count", "lowers"),
    [
        pytest.param(True, 2, 3, True, id="below it"),
        pytest.param(False, 2, 3, False, id="nothing was rejected"),
        pytest.param(True, 4, 3, False, id="the deployment does not lower it"),
        pytest.param(True, 2, 4, False, id="the group stays at it"),
    ],
)
def test_minimum_does_not_block(blocks: bool, minimum: int, count: int, lowers: bool) -> None:
    cluster = live(group(target=5, minimum=4), nodes=nodes("p5", 5))
    wanted = desired(desired_group(count=count, minimum=minimum))
    view = view_of(cluster, wanted, previous=BEFORE, minimum_blocks=blocks)
    step = conditions.minimum_does_not_block(view)
    assert step == (Lower(group="p5", count=5, minimum=minimum, spec=desired_group(count=8)) if lowers else None)


# -- before a minimum is sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "wait"), [(8, None), (9, None), (7, waits.list_above_target("p5", 8, 7))])
def test_list_is_not_above_target(target: int, wait: Wait | None) -> None:
    view = view_of(live(group(target=target), nodes=EIGHT), BEFORE)
    assert wait_of(conditions.list_is_not_above_target(view)) == wait


@pytest.mark.parametrize(("leaving", "wait"), [(0, None), (1, waits.shutting_down("p5", [node_id(9)]))])
def test_no_listed_node_is_leaving(leaving: int, wait: Wait | None) -> None:
    crowd = [*nodes("p5", 5), *nodes("p5", leaving, first=9, status="ShuttingDown")]
    view = view_of(live(group(target=20), nodes=crowd), BEFORE)
    assert wait_of(conditions.no_listed_node_is_leaving(view)) == wait


@pytest.mark.parametrize(("current", "wait"), [(5, None), (7, waits.still_counted("p5", 7, 5))])
def test_target_is_not_below_worst_case(current: int, wait: Wait | None) -> None:
    view = view_of(live(group(target=6, current=current), nodes=nodes("p5", 5)), BEFORE)
    assert wait_of(conditions.target_is_not_below_worst_case(view)) == wait


def test_minimum_is_sent_with_the_live_target() -> None:
    view = view_of(live(group(minimum=5), nodes=EIGHT), BEFORE, previous=BEFORE)
    assert conditions.lower_minimum(view, 4) == Lower(group="p5", count=8, minimum=4, spec=BEFORE.groups[1])
    assert conditions.lower_minimum(view, 5) is None, "it is not lower"


def test_minimum_waits_for_its_conditions() -> None:
    view = view_of(live(group(target=7, minimum=5), nodes=EIGHT), BEFORE, previous=BEFORE)
    assert wait_of(conditions.lower_minimum(view, 4)) == waits.list_above_target("p5", 8, 7)


# -- where no node is to be deleted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "wait"), [("Deleting", waits.group_moving("p5", "Deleting")), ("Updating", None)])
def test_a_group_that_is_being_deleted_is_waited_for(status: str, wait: Wait | None) -> None:
    view = view_of(live(group(status=status), nodes=EIGHT), BEFORE)
    assert wait_of(conditions.group_stays(view)) == wait


@pytest.mark.parametrize(("count", "wait"), [(7, None), (6, waits.still_counted("p5", 7, 5))])
def test_count_is_not_below_worst_case(count: int, wait: Wait | None) -> None:
    view = view_of(live(group(target=5, current=7), nodes=nodes("p5", 5)), desired(desired_group(count=count)))
    assert wait_of(conditions.count_is_not_below_worst_case(view)) == wait


# -- where the target is above the count ------------------------------------------------------------------------------

FALLS_YET = waits.target_falls_yet("p5", 8)
FIVE = desired(desired_group(count=5))


@pytest.mark.parametrize(("continuous", "wait"), [(True, None), (False, FALLS_YET)])
def test_standard_provisioning_waits_for_the_target_to_fall(continuous: bool, wait: Wait | None) -> None:
    view = view_of(live(group(), nodes=nodes("p5", 5), continuous=continuous), FIVE)
    assert wait_of(conditions.provisioning_is_continuous(view)) == wait


@pytest.mark.parametrize(
    ("autoscaled", "rolling_back", "wait"),
    [(False, False, None), (True, False, FALLS_YET), (True, True, None), (False, True, None)],
)
def test_target_is_the_deployments(autoscaled: bool, rolling_back: bool, wait: Wait | None) -> None:
    wanted = desired(desired_group(count=5, autoscaled=autoscaled))
    view = view_of(live(group(), nodes=nodes("p5", 5)), wanted, rolling_back=rolling_back)
    assert wait_of(conditions.target_is_the_deployments(view)) == wait


@pytest.mark.parametrize(
    ("young", "newcomers", "previous", "wait"),
    [
        pytest.param(False, False, None, None, id="later"),
        pytest.param(True, False, BEFORE, FALLS_YET, id="soon"),
        pytest.param(True, True, BEFORE, None, id="HyperPod replaced nodes"),
        pytest.param(True, True, None, FALLS_YET, id="replaced, and nothing can be sent"),
    ],
)
def test_target_had_time_to_fall(young: bool, newcomers: bool, previous: Desired | None, wait: Wait | None) -> None:
    crowd = [*nodes("p5", 4), *(late("p5", 30) if newcomers else nodes("p5", 1, first=5))]
    view = view_of(live(group(current=5), nodes=crowd), FIVE, first=False, young=young, previous=previous)
    assert wait_of(conditions.target_had_time_to_fall(view)) == wait


@pytest.mark.parametrize(
    ("target", "autoscaled", "previous", "high"),
    [
        pytest.param(8, False, None, True, id="above"),
        pytest.param(5, False, None, False, id="equal"),
        pytest.param(8, True, desired(desired_group(count=5, autoscaled=True)), False, id="no count is sent"),
        pytest.param(8, True, None, True, id="autoscaled, and the count is sent"),
    ],
)
def test_a_target_above_the_wanted_count_is_high(
    target: int, autoscaled: bool, previous: Desired | None, high: bool
) -> None:
    wanted = desired(desired_group(count=5, autoscaled=autoscaled))
    view = view_of(live(group(target=target, current=5), nodes=nodes("p5", 5)), wanted, previous=previous)
    assert view.target_is_high is high


# -- where the target is right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "autoscaled", "blocked"), [(8, False, False), (7, False, True), (7, True, False), (9, False, False)]
)
def test_list_is_not_above_count(count: int, autoscaled: bool, blocked: bool) -> None:
    wanted = desired(desired_group(count=count, autoscaled=autoscaled))
    view = view_of(live(group(target=7), nodes=EIGHT), wanted, previous=wanted)
    wait = wait_of(conditions.list_is_not_above_count(view))
    assert (wait is not None) is blocked


@pytest.mark.parametrize("named", [True, False])
def test_named_nodes_have_terminated(named: bool) -> None:
    crowd = [*nodes("p5", 7), *nodes("p5", 1, first=8, status="ShuttingDown")]
    wanted = desired(desired_group(count=8), nodes_to_delete=(node_id(8 if named else 7),))
    wait = wait_of(conditions.named_nodes_have_terminated(view_of(live(group(target=7), nodes=crowd), wanted)))
    assert wait == (waits.shutting_down("p5", [node_id(8)]) if named else None)


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("previous", "rolling_back", "count"),
    [
        pytest.param(BEFORE, False, 8, id="as CloudFormation knows the live group"),
        pytest.param(BEFORE, True, 6, id="rollback: what the group goes back to"),
        pytest.param(None, True, 6, id="rollback of a first deployment"),
        pytest.param(None, False, None, id="CloudFormation knows no group"),
        pytest.param(desired(), False, None, id="CloudFormation knows other groups"),
    ],
)
def test_the_specification_to_send_is_the_one_that_cloudformation_knows(
    previous: Desired | None, rolling_back: bool, count: int | None
) -> None:
    wanted = desired(desired_group(count=6))
    view = view_of(live(group(), nodes=EIGHT), wanted, previous=previous, rolling_back=rolling_back)
    assert (view.spec.count if view.spec else None) == count


@pytest.mark.parametrize("shown", ["a role", "another role"])
def test_spec_that_the_record_does_not_confirm_is_sent_if_hyperpod_shows_it(shown: str) -> None:
    before = desired_group(count=8)
    cluster = live(
        group(shown={**before.spec, "ExecutionRole": before.spec["ExecutionRole"] if shown == "a role" else "other"}),
        nodes=EIGHT,
    )
    view = view_of(cluster, desired(desired_group(count=6)), previous=BEFORE, unconfirmed=frozenset({"p5"}))
    assert (view.spec is not None) is (shown == "a role")
