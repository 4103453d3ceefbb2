"""A request that CloudFormation gave up, because its update was cancelled or another resource failed meanwhile, goes on being
polled. Nothing that it still asks for happens, whatever happened since."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import FINALIZE, PREPARE
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError
from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups
from helpers.scale_down.scenarios import (
    FAULTS,
    QUICK,
    SEEDS,
    VANISHED,
    Change,
    after,
    before,
    behaviours,
    changes,
    disturb,
    ended,
    ids,
    named,
    planned,
    stack,
)
from helpers.scale_down.stack import STACK_ID, Behaviour, Stack, Template, group, run_until_quiet

FOUR = Template(groups=(group("p5", 4),))

SINCE = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([30, 600, 3_000])),
        st.tuples(st.just("tag"), st.sampled_from(["", "before", "after"])),
        st.tuples(st.just("scale"), st.integers(0, 5)),
    ),
    max_size=3,
)
"""What happens after the way back, while polls of the request that was given up may go on."""


@given(
    behaviour=behaviours(),
    groups=changes(),
    delete_old=st.booleans(),
    vanished=VANISHED,
    cancel=st.tuples(st.sampled_from([PREPARE, PREPARE, FINALIZE]), st.integers(0, 5)),
    faults=FAULTS,
    since=SINCE,
    data=st.data(),
    seed=SEEDS,
)
def test_a_request_that_was_given_up_does_nothing_whatever_happened_since(
    behaviour: Behaviour,
    groups: list[Change],
    delete_old: bool,
    vanished: VanishedGroups,
    cancel: tuple[str, int],
    faults: dict[str, Any],
    since: list[tuple[str, Any]],
    data: st.DataObject,
    seed: int,
) -> None:
    old = before(groups)
    old = replace(old, groups=(*old.groups, group("old", 2)))
    train = stack(old, behaviour, seed, vanished=vanished)
    here = set(ids(train))
    left = after(groups).groups
    template = Template(
        groups=left if delete_old else (*left, group("old", 2)),
        nodes_to_delete=named(train, groups, data),
        groups_to_delete=("old",) if delete_old else (),
    )
    expected = planned(train, template)
    disturb(train, faults, expected)
    ending = train.deploy(template, cancel=cancel)
    if ending == "complete":
        return  # it was quicker
    # What was taken on purpose may be missing for the cluster's own way back, when capacity is short; we never stop it.
    assert ending == "rolled back" or train.reasons[-1].startswith("cluster: "), train.reasons
    assert ended(train, "named", "random") & here <= expected
    train.poll_given_up()
    for what, value in since:
        match what:
            case "wait":
                train.clock.advance(value)
            case "tag":
                train.deploy(replace(old, tags={"team": str(train.clock.now())}), fail=value)
            case "scale":
                train.deploy(replace(old, groups=(*(group(each.name, value) for each in groups), group("old", 2))))
        train.poll_given_up()


def test_nodes_that_had_to_wait_stay() -> None:
    """The update is cancelled while a node is under a deep health check; then the check is over."""
    train = Stack(FOUR, timings=QUICK)
    first, second, *_ = ids(train, "p5")
    (checked,) = (node for node in train.hyperpod.nodes("train", "p5") if node.instance_id == second)
    train.hyperpod.change_node(checked.logical_id, status="DeepHealthCheckInProgress", due=train.clock.now() + 300)
    template = Template(groups=(group("p5", 3),), nodes_to_delete=(first,))
    assert train.deploy(template, cancel=(PREPARE, 1)) == "rolled back", train.reasons
    train.clock.advance(600)
    assert train.given_up
    train.poll_given_up()
    assert not ended(train)
    assert train.log[-1] == f"not yet: {waits.OVER.why}"


def test_group_stays_that_the_way_back_keeps() -> None:
    both = Template(groups=(group("p5", 4), group("old", 3)))
    train = Stack(both, timings=QUICK, vanished="leave")
    template = replace(FOUR, groups_to_delete=("old",))
    assert train.deploy(template, cancel=(FINALIZE, 0)) == "rolled back", train.reasons
    run_until_quiet(train.hyperpod)
    train.poll_given_up()
    assert not ended(train)


def test_a_request_that_was_given_up_does_not_touch_the_next_deployment() -> None:
    """A later update looks the same, but for when it began. Here it means another node."""
    train = Stack(FOUR, timings=QUICK)
    first, *_, last = ids(train, "p5")
    three = Template(groups=(group("p5", 3),))
    assert train.deploy(replace(three, nodes_to_delete=(first,)), cancel=(PREPARE, 0)) == "rolled back"
    assert train.given_up
    train.clock.advance(60)
    assert train.deploy(replace(three, nodes_to_delete=(last,))) == "complete", train.reasons
    assert ended(train) == {last}


@pytest.mark.parametrize(
    "status", ["UPDATE_FAILED", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE", "DELETE_IN_PROGRESS"]
)
def test_nothing_happens_when_the_stack_has_gone_on(status: str) -> None:
    """Right after the update failed: on its way back or not (`--no-rollback`)."""
    train = Stack(FOUR, timings=QUICK)

    def goes_on() -> None:
        train.status = status
        train.poll_given_up()

    three = Template(groups=(group("p5", 3),))
    assert train.deploy(three, cancel=(PREPARE, 0), meanwhile=goes_on) == "rolled back", train.reasons
    assert not ended(train)


def test_clocks_that_differ_are_no_later_update() -> None:
    """The function's clock is behind CloudFormation's: what the first look read is what counts."""
    train = Stack(FOUR, timings=QUICK)
    behind = train.provider.services.now
    train.provider.services.now = lambda: behind() - timedelta(minutes=1)
    first = ids(train, "p5")[0]
    assert train.deploy(Template(groups=(group("p5", 3),), nodes_to_delete=(first,))) == "complete", train.reasons
    assert ended(train) == {first}


def test_status_that_cannot_be_read_before_a_change_is_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Stack(FOUR, timings=QUICK)
    answer, until = train.describe_stacks, train.clock.now() + 400

    def describe_stacks(*, StackName: str) -> Any:
        if train.polling and train.clock.now() < until:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "DescribeStacks")
        return answer(StackName=StackName)

    monkeypatch.setattr(train, "describe_stacks", describe_stacks)
    assert train.deploy(Template(groups=(group("p5", 3),))) == "complete", train.reasons
    (item,) = train.hyperpod.terminations
    assert item.cause == "named" and item.at >= until


EMPTY = Template(groups=(group("p5", 4), group("old", 0)))


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        # A rollback would take nodes down to the other template's count.
        pytest.param(PREPARE, FOUR, Template(groups=(group("p5", 1),)), id="prepare"),
        # A rollback would delete a group of the other template that holds no older node.
        pytest.param(FINALIZE, EMPTY, replace(FOUR, groups_to_delete=("old",)), id="finalize"),
    ],
)
def test_update_that_is_cancelled_before_the_first_look_is_not_its_rollback(
    kind: str, old: Template, new: Template
) -> None:
    train = Stack(old, timings=QUICK)
    groups = {each.name for each in train.hyperpod.cluster("train").groups.values()}
    train._is("UPDATE_IN_PROGRESS")
    train._event(kind, "physical", "UPDATE_IN_PROGRESS")
    train.clock.advance(5)
    told = train.provider.services.read_stack

    def cancelled(stack: str) -> Any:
        train.provider.services.read_stack = told  # type: ignore[method-assign]
        train._is("UPDATE_ROLLBACK_IN_PROGRESS")
        return told(stack)

    train.provider.services.read_stack = cancelled  # type: ignore[method-assign]
    prepare = kind == PREPARE
    event = {
        "RequestType": "Update",
        "StackId": STACK_ID,
        "ResourceType": kind,
        "LogicalResourceId": kind.rpartition(":")[2],
        "PhysicalResourceId": "physical",
        "ResourceProperties": new.prepare if prepare else new.finalize,
        "OldResourceProperties": old.prepare if prepare else old.finalize,
    }
    if prepare:
        with pytest.raises(ScaleDownError, match="do not show that CloudFormation waits for this request"):
            train.provider.on_event(event)
    else:
        event |= train.provider.on_event(event)
        train.given_up.append(event)
    for _ in range(3):
        train.clock.advance(60)
        train.poll_given_up()
        train._event(kind, "physical", "UPDATE_IN_PROGRESS")  # the way back asks
    assert train.given_up or prepare, "it waits"
    assert not ended(train)
    assert {each.name for each in train.hyperpod.cluster("train").groups.values()} == groups


def test_an_update_that_was_cancelled_at_once_still_refuses_more_than_max_nodes() -> None:
    """A rollback would take all, without a limit."""
    train = Stack(FOUR, timings=QUICK)
    train._is("UPDATE_IN_PROGRESS")
    train._event(PREPARE, "physical", "UPDATE_IN_PROGRESS")
    train._is("UPDATE_ROLLBACK_IN_PROGRESS")
    with pytest.raises(ScaleDownError, match="max_nodes: is 1"):
        train.custom(PREPARE, Template(groups=(group("p5", 1),), max_nodes=1).prepare, FOUR.prepare, recorded=False)
    assert not ended(train)
