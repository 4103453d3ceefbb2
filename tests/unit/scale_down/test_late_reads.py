"""What CloudFormation tells of a stack may be a minute old. Whose a request is, and how far the failed update got, is decided by
what it tells a minute later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError
from helpers.scale_down.scenarios import QUICK, ended, ids
from helpers.scale_down.stack import LAMBDA, PREPARE, Stack, Template, group, run_until_quiet

FOUR = Template(groups=(group("p5", 4),))
SIX = Template(groups=(group("p5", 6),))


def late(status: float, events: float) -> Stack:
    train = Stack(FOUR, timings=QUICK)
    train.clock.advance(600)
    train.status_late, train.events_late = status, events
    return train


LATE = pytest.mark.parametrize(("status", "events"), [(0, 60), (60, 0), (60, 60), (10, 40)])


@LATE
@pytest.mark.parametrize("fail", ["before", "after"])
def test_a_rollback_is_recognized_and_deletes_the_nodes_that_the_update_added(
    status: float, events: float, fail: Literal["before", "after"]
) -> None:
    train = late(status, events)
    here = set(ids(train, "p5"))
    assert train.deploy(SIX, fail=fail) == "rolled back", train.reasons
    run_until_quiet(train.hyperpod)
    assert set(ids(train, "p5")) == here
    assert not train.hyperpod.random_terminations
    assert ended(train).isdisjoint(here)


@LATE
def test_nodes_added_by_others_stay_if_the_rollback_does_not_update_the_cluster(status: float, events: float) -> None:
    train = late(status, events)
    spec = {**group("p5", 6), "LifeCycleConfig": FOUR.groups[0]["LifeCycleConfig"]}
    train.hyperpod.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[spec])
    run_until_quiet(train.hyperpod)
    assert len(ids(train, "p5")) == 6
    template = replace(FOUR, groups=(group("p5", 7),))
    assert train.deploy(template, fail="before") == "rolled back", train.reasons
    assert not ended(train)


@LATE
def test_an_update_soon_after_a_rollback_is_not_treated_as_a_rollback(status: float, events: float) -> None:
    train = late(status, events)
    assert train.deploy(SIX, fail="before") == "rolled back", train.reasons
    first = ids(train, "p5")[0]
    three = Template(groups=(group("p5", 3),), nodes_to_delete=(first,), max_nodes=1)
    assert train.deploy(three) == "complete", train.reasons
    assert ended(train) == {first}


@pytest.mark.parametrize("events", [0, 30, 60])
def test_an_update_that_is_cancelled_during_its_first_poll_deletes_no_node(
    monkeypatch: pytest.MonkeyPatch, events: float
) -> None:
    """The status tells of the way back before the events do: the update's own request is not the way back's."""
    train = late(0, events)
    before: Callable[[float], None] = train.provider.services.sleep

    def sleep(seconds: float) -> None:
        if train.status == "UPDATE_IN_PROGRESS":
            before(15)
            train._is("UPDATE_ROLLBACK_IN_PROGRESS")
            seconds -= 15
        before(seconds)

    monkeypatch.setattr(train.provider.services, "sleep", sleep)
    train.updated = train.clock.now()
    train._is("UPDATE_IN_PROGRESS")
    train._event(PREPARE, "prepare", "UPDATE_IN_PROGRESS")
    train._cancel = (PREPARE, 3)
    three = replace(FOUR, groups=(group("p5", 3),))
    with pytest.raises(ScaleDownError, match=r"cancelled|do not show"):
        train.custom(PREPARE, three.prepare, FOUR.prepare)
    assert train.status == "UPDATE_ROLLBACK_IN_PROGRESS"
    assert not train.hyperpod.changes(principal=LAMBDA)


def test_a_guard_that_is_new_in_an_update_that_is_cancelled_takes_nothing() -> None:
    """The update is over before its first look, and the status does not tell yet."""
    train = late(30, 0)
    train._is("UPDATE_IN_PROGRESS")
    train.clock.advance(40)
    train._is("UPDATE_ROLLBACK_IN_PROGRESS")
    train._cancel = (PREPARE, 3)
    with pytest.raises(ScaleDownError, match=r"cancelled|do not show"):
        train.custom(PREPARE, replace(FOUR, groups=(group("p5", 3),)).prepare, None)
    assert not train.hyperpod.changes(principal=LAMBDA)


def test_a_deployment_that_deletes_nothing_is_not_delayed() -> None:
    train = late(0, 0)
    began = train.clock.now()
    train.custom(PREPARE, SIX.prepare, FOUR.prepare)
    assert train.clock.now() - began < 30
    assert not train.hyperpod.changes(principal=LAMBDA)
