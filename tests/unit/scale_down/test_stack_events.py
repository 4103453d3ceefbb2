"""What a stack's events tell about a rollback: how far the failed update got."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.aws.stack_events import clusters_reached, is_left_over
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import ANY_CLUSTER

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/train/0a1b"
CLUSTER = "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"

CREATED = "stack CREATE_IN_PROGRESS, cluster CREATE_COMPLETE, stack CREATE_COMPLETE, "
UPDATED = CREATED + "stack UPDATE_IN_PROGRESS, cluster UPDATE_COMPLETE, stack UPDATE_COMPLETE, "
BEGUN = UPDATED + "stack UPDATE_IN_PROGRESS, prepare UPDATE_COMPLETE, "
BACK = "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS"

PHYSICAL = {"stack": STACK, "nested": f"{STACK}-nested", "cluster": CLUSTER, "other": "other", "prepare": "prepare"}
TYPES = {
    "stack": "AWS::CloudFormation::Stack",
    "nested": "AWS::CloudFormation::Stack",
    "prepare": "Custom::HyperPodScaleDown",
}


def events(told: str) -> list[dict[str, Any]]:
    """Newest first, from a story that is told oldest first."""
    return [
        {
            "ResourceType": TYPES.get(name, "AWS::SageMaker::Cluster"),
            **({"PhysicalResourceId": PHYSICAL[name]} if name in PHYSICAL else {}),
            "LogicalResourceId": name.replace("unnamed", "cluster"),
            "StackName": "stack",
            "ResourceStatus": status.partition("/")[0],
            **({"ResourceStatusReason": "Resource update cancelled"} if "/" in status else {}),
        }
        for name, status in (item.split() for item in reversed(told.split(", ")))
    ]


@pytest.mark.parametrize(
    ("told", "reached"),
    [
        pytest.param(BEGUN + BACK, set(), id="before the cluster"),
        pytest.param(BEGUN + "cluster UPDATE_IN_PROGRESS, cluster UPDATE_COMPLETE, " + BACK, {CLUSTER}, id="after it"),
        pytest.param(BEGUN + "cluster UPDATE_IN_PROGRESS, " + BACK, {CLUSTER}, id="in the middle of it"),
        pytest.param(BEGUN + "cluster UPDATE_FAILED/cancelled, " + BACK, set(), id="cancelled before it"),
        pytest.param(BEGUN + "cluster UPDATE_FAILED, " + BACK, {CLUSTER}, id="failed, and its beginning is not shown"),
        pytest.param(BEGUN + "cluster UPDATE_COMPLETE, " + BACK, {CLUSTER}, id="ended, and its beginning is not shown"),
        pytest.param(BEGUN + "unnamed UPDATE_IN_PROGRESS, " + BACK, {ANY_CLUSTER}, id="without a physical id"),
        pytest.param(BEGUN + "unnamed CREATE_IN_PROGRESS, " + BACK, set(), id="another one, which has no id yet"),
        pytest.param(BEGUN + "unnamed UPDATE_FAILED/cancelled, " + BACK, set(), id="cancelled, without a physical id"),
        pytest.param(
            BEGUN + "other UPDATE_IN_PROGRESS, unnamed UPDATE_IN_PROGRESS, cluster UPDATE_COMPLETE, " + BACK,
            {"other", CLUSTER},
            id="one of two without a physical id, which its end has",
        ),
        pytest.param(
            BEGUN + "other UPDATE_IN_PROGRESS, unnamed UPDATE_IN_PROGRESS, " + BACK,
            None,
            id="one of two without a physical id",
        ),
        pytest.param(
            BEGUN + "cluster UPDATE_IN_PROGRESS, cluster UPDATE_FAILED, " + BACK, {CLUSTER}, id="update cancelled"
        ),
        pytest.param(BEGUN + "other UPDATE_IN_PROGRESS, " + BACK, {"other"}, id="another cluster of the stack"),
        pytest.param(
            BEGUN + "cluster UPDATE_IN_PROGRESS, other CREATE_IN_PROGRESS, " + BACK, {CLUSTER, "other"}, id="replaced"
        ),
        pytest.param(
            BEGUN + "nested UPDATE_IN_PROGRESS, nested UPDATE_COMPLETE, " + BACK, set(), id="with a nested stack"
        ),
        pytest.param(
            BEGUN + "cluster UPDATE_IN_PROGRESS, stack UPDATE_COMPLETE, " + BACK, {CLUSTER}, id="in a nested stack"
        ),
        pytest.param(BEGUN + BACK + ", cluster UPDATE_COMPLETE", set(), id="on the way back"),
        pytest.param(
            BEGUN + BACK + ", cluster UPDATE_FAILED, stack UPDATE_ROLLBACK_FAILED, " + BACK,
            set(),
            id="continued, before",
        ),
        pytest.param(
            BEGUN + "cluster UPDATE_IN_PROGRESS, " + BACK + ", stack UPDATE_ROLLBACK_FAILED, " + BACK,
            {CLUSTER},
            id="continued, after",
        ),
        pytest.param(
            BEGUN + "cluster UPDATE_IN_PROGRESS, stack UPDATE_FAILED, stack UPDATE_IN_PROGRESS, " + BACK,
            {CLUSTER},
            id="left in failure by the deployment before",
        ),
        pytest.param(
            BEGUN + "stack UPDATE_FAILED, stack UPDATE_IN_PROGRESS, " + BACK,
            set(),
            id="left in failure before the cluster",
        ),
        pytest.param(
            BEGUN + "stack UPDATE_ROLLBACK_IN_PROGRESS, stack UPDATE_FAILED, stack UPDATE_IN_PROGRESS, "
            "cluster UPDATE_IN_PROGRESS, " + BACK,
            {CLUSTER},
            id="cancelled and left in failure by the deployment before",
        ),
        pytest.param(
            UPDATED + "stack UPDATE_ROLLBACK_COMPLETE, stack UPDATE_IN_PROGRESS, " + BACK, set(), id="after a rollback"
        ),
        pytest.param("stack UPDATE_IN_PROGRESS, " + BACK, set(), id="older events are gone"),
        pytest.param("cluster UPDATE_COMPLETE, " + BACK, None, id="its beginning is gone"),
        pytest.param(BACK, None, id="all of it is gone"),
    ],
)
def test_stack_events_show_which_clusters_an_update_reached(told: str, reached: set[str] | None) -> None:
    assert clusters_reached(events(told), STACK) == reached


def test_the_stacks_own_events_need_no_physical_id() -> None:
    story = events(BEGUN + "cluster UPDATE_IN_PROGRESS, nested UPDATE_COMPLETE, " + BACK)
    for event in story:
        if event["LogicalResourceId"] in ("stack", "nested"):
            del event["PhysicalResourceId"]
    assert clusters_reached(story, STACK) == frozenset({CLUSTER})


def test_no_more_events_are_read_than_necessary() -> None:
    story = iter(events(BEGUN + BACK))
    assert clusters_reached(story, STACK) == frozenset()
    assert len(list(story)) == UPDATED.count(",") - 1, "but for the end of the update before"


NOON = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def timed(told: str) -> list[dict[str, Any]]:
    """`events`, one every ten seconds from noon."""
    story = events(told)
    for number, event in enumerate(reversed(story)):
        event |= {"LogicalResourceId": event["PhysicalResourceId"], "Timestamp": NOON + timedelta(seconds=10 * number)}
    return story


@pytest.mark.parametrize(
    ("told", "heard", "left_over"),
    [
        pytest.param("prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS", 5, True, id="cancelled at once"),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_FAILED, prepare UPDATE_IN_PROGRESS",
            5,
            True,
            id="the way back has asked meanwhile",
        ),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_FAILED, prepare UPDATE_IN_PROGRESS",
            31,
            False,
            id="the way back",
        ),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS",
            19,
            False,
            id="clocks differ by a second",
        ),
        pytest.param(
            "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS",
            7,
            True,
            id="clocks differ by three seconds",
        ),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS",
            0,
            True,
            id="the way back asks twenty seconds later",
        ),
        pytest.param(
            "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_FAILED, "
            "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS",
            41,
            False,
            id="continued",
        ),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, other UPDATE_IN_PROGRESS",
            21,
            True,
            id="another resource is on its way back",
        ),
        pytest.param(
            "prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_FAILED",
            21,
            True,
            id="heard of when its end was told",
        ),
        pytest.param(
            "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_FAILED",
            11,
            False,
            id="the way back has failed meanwhile",
        ),
        pytest.param("cluster UPDATE_IN_PROGRESS", 41, False, id="the events are gone"),
        pytest.param("stack UPDATE_IN_PROGRESS, prepare UPDATE_IN_PROGRESS", 11, None, id="late, after its own event"),
        pytest.param("stack UPDATE_IN_PROGRESS", 11, None, id="late, before its own event"),
        pytest.param(
            "stack UPDATE_ROLLBACK_COMPLETE, stack UPDATE_IN_PROGRESS, other UPDATE_IN_PROGRESS",
            31,
            None,
            id="late, after another update",
        ),
    ],
)
def test_request_of_an_update_that_was_cancelled_before_anybody_looked(
    told: str, heard: int, left_over: bool | None
) -> None:
    assert is_left_over(timed(told), STACK, "prepare", NOON + timedelta(seconds=heard)) is left_over


@pytest.mark.parametrize("other", ["a-before-ours", "z-after-ours"])
def test_only_events_of_the_resource_and_its_stack_show_whose_a_request_is(other: str) -> None:
    of_update = timed("prepare UPDATE_IN_PROGRESS, stack UPDATE_ROLLBACK_IN_PROGRESS, other UPDATE_IN_PROGRESS")
    of_way_back = timed(
        "stack UPDATE_ROLLBACK_IN_PROGRESS, prepare UPDATE_IN_PROGRESS, other UPDATE_ROLLBACK_IN_PROGRESS"
    )
    of_update[0]["LogicalResourceId"] = other
    of_way_back[0]["PhysicalResourceId"] = f"arn:aws:{other}"  # a stack inside it
    assert is_left_over(of_update, STACK, "prepare", NOON + timedelta(seconds=21))
    assert not is_left_over(of_way_back, STACK, "prepare", NOON + timedelta(seconds=11))


@pytest.mark.parametrize("other", ["arn:aws:a-stack-before-ours", "arn:aws:z-stack-after-ours"])
def test_events_of_nested_stacks_do_not_begin_or_end_an_update(other: str) -> None:
    """Two stacks inside it: one ends, the next begins, in the middle of the update."""
    told = events(BEGUN + "cluster UPDATE_IN_PROGRESS, nested UPDATE_COMPLETE, nested UPDATE_IN_PROGRESS, " + BACK)
    story = [
        {**event, "PhysicalResourceId": event["PhysicalResourceId"].replace(f"{STACK}-nested", other)} for event in told
    ]
    assert clusters_reached(story, "".join(list(STACK))) == frozenset({CLUSTER})
