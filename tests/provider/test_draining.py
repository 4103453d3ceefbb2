"""Nodes are drained before they go: when, whose, and what becomes of them where they cannot be."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from provider.agent import REQUEST, Agent
from provider.scenarios import QUICK, ended, ids
from provider.stack import DRAIN, LAMBDA, Behaviour, Stack, Wish, group

FOUR = Wish(groups=(group("p5", 4),), drain=DRAIN)
TWO = Wish(groups=(group("p5", 2),), drain=DRAIN)
MINUTE = 60.0


def four(**behaviour: Any) -> Stack:
    return Stack(FOUR, timings=QUICK, behaviour=Behaviour(**behaviour))


def drain(**changes: Any) -> dict[str, Any]:
    return {**DRAIN, **changes}


def runs(train: Stack, node: str, minutes: float) -> None:
    """A job runs there for this long from now."""
    train.agent.jobs[node] = train.clock.now() + minutes * MINUTE


def gone(train: Stack) -> dict[str, float]:
    return {str(item.node_id): item.at for item in train.model.terminations}


def settled(agent: Agent) -> bool:
    """Nothing of the agent's is left on any node that stays."""
    agent.catch_up()
    return not agent.held


def failure(train: Stack, wish: Wish) -> str:
    assert train.deploy(wish) == "rolled back", train.reasons
    (reason,) = train.reasons
    assert len(reason) <= 1_000
    assert "\n" not in reason
    return reason


def test_nodes_go_when_every_one_is_ready_and_saved() -> None:
    train = four()
    agent, (_, _, *last) = train.agent, ids(train, "p5")
    for node in ids(train, "p5"):
        runs(train, node, 10)
    ends = agent.jobs[last[0]]
    assert train.deploy(TWO) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted(last)
    assert all(at >= ends + agent.saving_s for at in when.values())
    assert not agent.ended
    assert dict(train.model.changes(principal=LAMBDA))["BatchDeleteClusterNodes"] == 1
    # They were held as long as they were there: nothing could start on a node that was about to go.
    assert all(agent.given_back.get(node, math.inf) >= when[node] for node in last)
    train.clock.advance(3 * 3600)
    assert settled(agent)


def test_one_that_is_not_ready_in_time_keeps_all_of_them() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    busy, idle = nodes[1], nodes[0]
    runs(train, busy, 60)
    reason = failure(train, replace(TWO, nodes_to_delete=(busy, idle)))
    assert reason.startswith(
        f"Nodes of train were not ready to go: nothing was deleted, and they go back to work. {busy} is not ready to go: "
    )
    assert "jobs: 7 of alice" in reason
    assert "`cdk-hyperpod drain NODE --hold 12h --wait`" in reason
    assert not gone(train)
    assert not agent.ended
    train.clock.advance(MINUTE)
    assert settled(agent)
    assert agent.busy(busy)


def test_with_force_jobs_are_ended_and_saved_in_the_time_there_is() -> None:
    train = four()
    agent, (node, *_) = train.agent, ids(train, "p5")
    runs(train, node, 600)
    began = train.clock.now()
    wish = Wish(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout="force"))
    assert train.deploy(wish) == "complete", train.reasons
    assert agent.ended[node] == pytest.approx(began + 20 * MINUTE, abs=30)
    assert agent.ended[node] + agent.saving_s <= gone(train)[node] <= began + 25 * MINUTE


@pytest.mark.parametrize(("must", "goes"), [(True, False), (False, True)])
def test_what_is_not_saved_in_time_goes_only_where_it_may(must: bool, goes: bool) -> None:
    train = four()
    train.agent.saving_s = 3600
    (node, *_) = ids(train, "p5")
    wish = Wish(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout="force", MustBeSaved=must))
    assert train.deploy(wish) == ("complete" if goes else "rolled back")
    assert (node in gone(train)) is goes
    if not goes:
        assert "job 8, running: 0.1 of 0.2 GB" in train.reasons[0]


def test_what_cannot_be_saved_is_refused_at_once() -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.agent.unsavable.add(node)
    began = train.clock.now()
    reason = failure(train, Wish(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=DRAIN))
    assert f"{node} is not ready to go: could not be saved, 3 tries: the disk is full" in reason
    assert train.clock.now() - began < 5 * MINUTE


SILENT = "deploy without taking anything before that; or write on_silent: undrained"


@pytest.mark.parametrize("ever", [True, False])
def test_a_silent_agent_is_told_of_at_the_first_look(ever: bool) -> None:
    train = four()
    train.agent.dead_since = train.clock.now() + (1 if ever else -math.inf)
    train.agent.catch_up()
    train.clock.advance(10 * MINUTE)
    since = len(train.model.journal)
    reason = failure(train, TWO)
    heard = "has said nothing for 10 minutes" if ever else "has never been heard of"
    assert f"scale_down.drain: the agent that drains nodes {heard}; start it" in reason
    assert "`cdk-hyperpod lifecycle run drain | bash`" in reason
    assert not gone(train)
    assert not train.model.changes(since=since, principal=LAMBDA)


def test_a_silent_agent_keeps_nobody_where_the_file_says_so() -> None:
    train = four()
    train.agent.dead_since = -math.inf
    for node in ids(train, "p5"):
        runs(train, node, 600)
    assert train.deploy(replace(TWO, drain=drain(OnSilent="undrained"))) == "complete", train.reasons
    assert len(gone(train)) == 2


def test_an_agent_that_dies_meanwhile_is_noticed_in_three_minutes() -> None:
    train = four()
    for node in ids(train, "p5"):
        runs(train, node, 600)
    train.agent.catch_up()
    train.agent.dead_since = train.clock.now() + 2 * MINUTE
    began = train.clock.now()
    assert "has said nothing for" in failure(train, TWO)
    assert train.clock.now() - began < 8 * MINUTE
    assert not gone(train)


@pytest.mark.parametrize("how", ["foreign", "unknown"])
def test_nodes_that_nobody_can_drain_keep_nobody(how: str) -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    getattr(train.agent, how).add(node)
    began = train.clock.now()
    wish = Wish(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=DRAIN)
    assert train.deploy(wish) == "complete", train.reasons
    assert gone(train)[node] - began < 3 * MINUTE


def test_idle_nodes_go_before_busy_ones_and_stay_chosen() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    oldest, newest = nodes[0], nodes[-1]
    for node in nodes[1:-1]:
        runs(train, node, 600)
    runs(train, newest, 3)
    agent.catch_up()
    train.clock.advance(MINUTE)
    assert train.deploy(replace(FOUR, groups=(group("p5", 3),))) == "complete", train.reasons
    assert list(gone(train)) == [oldest]


def test_a_group_is_held_until_it_is_deleted() -> None:
    train = Stack(Wish(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK)
    agent, old = train.agent, ids(train, "old")
    runs(train, old[0], 10)
    ends = agent.jobs[old[0]]
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted(old)
    assert all(at >= ends + agent.saving_s for at in when.values())
    assert not agent.ended
    assert all(agent.given_back.get(node, math.inf) >= when[node] for node in old)
    train.clock.advance(13 * 3600)
    assert settled(agent)


def test_a_rollback_gives_back_what_it_does_not_take() -> None:
    train = Stack(Wish(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)
    agent = train.agent
    wish = replace(FOUR, groups_to_delete=("old",))
    assert train.deploy(wish, fail="before") == "rolled back"
    assert not gone(train)
    train.clock.advance(MINUTE)
    assert settled(agent)
    assert set(ids(train, "old")) <= agent.given_back.keys()


def test_a_rollback_waits_five_minutes_for_jobs_at_most_and_never_refuses() -> None:
    train = four()
    agent, old = train.agent, set(ids(train, "p5"))
    made: list[str] = []

    def busy() -> None:
        made.extend(node for node in ids(train, "p5") if node not in old)
        for node in (*old, *made):
            runs(train, node, 600)

    wish = replace(FOUR, groups=(group("p5", 6),))
    train.updated = None
    assert train.deploy(wish, fail="after", meanwhile=busy) == "rolled back", train.reasons
    assert sorted(gone(train)) == sorted(made)
    assert agent.ended.keys() == set(made)
    assert max(gone(train).values()) - max(agent.ended.values()) <= 3 * MINUTE


@pytest.mark.parametrize("call", ["GetObject", "PutObject"])
def test_a_right_that_is_missing_is_named(call: str) -> None:
    train = four()
    train.agent.denied.add(call)
    reason = failure(train, TWO)
    what = "Reading what the drain agent says" if call == "GetObject" else "Asking the drain agent"
    assert f"{what}: AccessDenied: no {call}" in reason
    assert not gone(train)


def test_a_rollback_goes_on_without_a_bucket() -> None:
    train = four()

    def away() -> None:
        train.agent.denied |= {"GetObject", "PutObject"}

    wish = replace(FOUR, groups=(group("p5", 6),))
    assert train.deploy(wish, fail="after", meanwhile=away) == "rolled back", train.reasons
    assert len(ids(train, "p5")) == 4


def test_a_function_that_dies_holds_no_node_for_long() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    for node in nodes:
        runs(train, node, 600)
    train.deploy(TWO, cancel=("Custom::HyperPodScaleDown", 3))
    train.given_up.clear()
    train.clock.advance(11 * MINUTE)
    assert settled(agent)


def test_nothing_is_asked_where_nothing_goes() -> None:
    train = four()
    train.agent.denied |= {"GetObject", "PutObject"}
    assert train.deploy(replace(FOUR, groups=(group("p5", 5),))) == "complete", train.reasons


def test_the_request_says_what_the_agent_needs() -> None:
    train = four()
    began = train.clock.now()
    node = ids(train, "p5")[0]
    runs(train, node, 600)
    failure(train, Wish(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(TimeoutMinutes=1)))
    assert json.loads(train.agent.objects[REQUEST])["nodes"] == []
    assert train.clock.now() - began < 10 * MINUTE
    assert not ended(train)
