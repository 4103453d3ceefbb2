"""What CloudFormation tells of a stack may be a minute old. Whose a request is, and how far the failed update got, is decided by
what it tells a minute later."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from provider.scenarios import QUICK, ended, ids
from provider.stack import LAMBDA, PREPARE, Stack, Wish, group, run_until_quiet

FOUR = Wish(groups=(group("p5", 4),))
SIX = Wish(groups=(group("p5", 6),))


def late(status: float, events: float) -> Stack:
    train = Stack(FOUR, timings=QUICK)
    train.clock.advance(600)
    train.status_late, train.events_late = status, events
    return train


LATE = pytest.mark.parametrize(("status", "events"), [(0, 60), (60, 0), (60, 60), (10, 40)])


@LATE
@pytest.mark.parametrize("fail", ["before", "after"])
def test_a_rollback_is_one_and_takes_what_the_update_added(
    status: float, events: float, fail: Literal["before", "after"]
) -> None:
    train = late(status, events)
    here = set(ids(train, "p5"))
    assert train.deploy(SIX, fail=fail) == "rolled back", train.reasons
    run_until_quiet(train.model)
    assert set(ids(train, "p5")) == here
    assert not train.model.random_terminations
    assert ended(train).isdisjoint(here)


@LATE
def test_nodes_that_somebody_added_stay_where_the_cluster_is_not_sent_back(status: float, events: float) -> None:
    train = late(status, events)
    spec = {**group("p5", 6), "LifeCycleConfig": FOUR.groups[0]["LifeCycleConfig"]}
    train.model.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[spec])
    run_until_quiet(train.model)
    assert len(ids(train, "p5")) == 6
    wish = replace(FOUR, groups=(group("p5", 7),))
    assert train.deploy(wish, fail="before") == "rolled back", train.reasons
    assert not ended(train)


@LATE
def test_an_update_soon_after_a_rollback_is_none(status: float, events: float) -> None:
    train = late(status, events)
    assert train.deploy(SIX, fail="before") == "rolled back", train.reasons
    first = ids(train, "p5")[0]
    three = Wish(groups=(group("p5", 3),), nodes_to_delete=(first,), max_nodes=1)
    assert train.deploy(three) == "complete", train.reasons
    assert ended(train) == {first}


def test_a_deployment_that_takes_nothing_is_not_kept() -> None:
    train = late(0, 0)
    began = train.clock.now()
    train.custom(PREPARE, SIX.prepare, FOUR.prepare)
    assert train.clock.now() - began < 30
    assert not train.model.changes(principal=LAMBDA)
