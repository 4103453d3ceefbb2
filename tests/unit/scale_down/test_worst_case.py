"""The most nodes that HyperPod may believe a group has, case by case."""

from __future__ import annotations

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.decide.choice import GroupPlan, find_group_plans
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.worst_case import (
    possible_cases,
    wait_before_count,
    wait_while_terminating,
    worst_case_count,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Wait
from helpers.scale_down.clusters import desired, desired_group, group, live, node_id, nodes, request_context

CALM, DOUBTING = request_context(), request_context(doubting=True)
SHUTTING_DOWN = waits.shutting_down("p5", [node_id(100)])


def group_plan(*, running: int, leaving: int = 0, booting: int = 0, current: int, target: int) -> GroupPlan:
    """A group with these nodes in the list, and these counts."""
    listed = [
        *nodes("p5", running),
        *nodes("p5", leaving, first=100, status="ShuttingDown"),
        *nodes("p5", booting, first=200, status="Pending"),
    ]
    wanted = desired(desired_group(count=running))
    found = find_group_plans(live(group(target=target, current=current), nodes=listed), wanted, CALM)
    return next(group_plan for group_plan in found if group_plan.group.name == "p5")


@pytest.mark.parametrize(
    ("group_plan", "calm", "doubting"),
    [
        pytest.param(group_plan(running=5, current=5, target=5), 0, 0, id="nothing terminates"),
        pytest.param(group_plan(running=5, current=5, target=8), 0, 0, id="only requests"),
        pytest.param(group_plan(running=5, current=4, target=5), 0, 0, id="counted late"),
        pytest.param(group_plan(running=5, leaving=1, current=6, target=5), 6, 6, id="listed as leaving"),
        pytest.param(group_plan(running=5, leaving=1, current=5, target=5), 6, 6, id="leaving, not counted any more"),
        pytest.param(group_plan(running=5, leaving=1, current=6, target=7), 8, 8, id="replacements of a leaving node"),
        pytest.param(group_plan(running=5, leaving=1, current=6, target=2), 6, 6, id="target below the list"),
        pytest.param(group_plan(running=5, current=7, target=5), 7, 7, id="counted beyond the list"),
        pytest.param(group_plan(running=5, leaving=1, current=8, target=5), 8, 8, id="leaving and counted beyond"),
        pytest.param(group_plan(running=5, current=7, target=8), 7, 10, id="counted beyond, and replacements"),
        pytest.param(group_plan(running=5, booting=1, current=6, target=6), 0, 7, id="one boots"),
        pytest.param(group_plan(running=5, booting=1, current=5, target=6), 0, 0, id="one boots and is not counted"),
        pytest.param(group_plan(running=5, booting=2, leaving=1, current=7, target=7), 8, 9, id="boots and leaves"),
        pytest.param(group_plan(running=5, booting=1, current=6, target=9), 0, 7, id="boots under a high target"),
    ],
)
def test_the_worst_case_count_includes_nodes_that_may_be_terminating(
    group_plan: GroupPlan, calm: int, doubting: int
) -> None:
    assert worst_case_count(group_plan, CALM) == calm
    assert worst_case_count(group_plan, DOUBTING) == doubting


@pytest.mark.parametrize(
    ("group_plan", "expected"),
    [
        pytest.param(group_plan(running=5, current=5, target=5), [], id="none"),
        pytest.param(group_plan(running=5, leaving=1, current=6, target=5), [SHUTTING_DOWN], id="list"),
        pytest.param(
            group_plan(running=5, current=7, target=5),
            [waits.still_counted("p5", 7, 5), waits.maybe_counted("p5", 7, 5)],
            id="count",
        ),
        pytest.param(
            group_plan(running=5, booting=1, current=6, target=6), [waits.maybe_counted("p5", 6, 5)], id="boot"
        ),
        pytest.param(
            group_plan(running=5, leaving=1, booting=1, current=8, target=6),
            [SHUTTING_DOWN, waits.still_counted("p5", 8, 7), waits.maybe_counted("p5", 8, 6)],
            id="all",
        ),
    ],
)
def test_cases_explain_a_wait_in_order(group_plan: GroupPlan, expected: list[Wait]) -> None:
    assert [case.wait for case in possible_cases(group_plan, DOUBTING)] == expected
    assert wait_while_terminating(group_plan, DOUBTING) == next(iter(expected), None)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, SHUTTING_DOWN),
        (6, waits.still_counted("p5", 8, 6)),
        (7, waits.still_counted("p5", 8, 6)),
        (8, None),
        (9, None),
    ],
)
def test_count_below_the_worst_case_waits_for_the_first_case_above_it(count: int, expected: Wait | None) -> None:
    """One node is listed as leaving, and two more are counted."""
    assert wait_before_count(group_plan(running=5, leaving=1, current=8, target=5), CALM, count) == expected


def test_no_count_waits_where_no_node_can_be_terminating() -> None:
    """Five nodes run. Whether they are too many is not a question of the worst case."""
    assert wait_before_count(group_plan(running=5, current=5, target=5), DOUBTING, 0) is None
