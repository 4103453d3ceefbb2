"""The state that travels from on_event to every poll, and what the first look writes into it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Picked, Plan
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import State, read_state, with_plan
from helpers.scale_down.clusters import START, group, late, live, nodes, waiting


def test_the_poll_state_is_read_back_unchanged() -> None:
    state = State(
        began=datetime(2026, 1, 1, 12, tzinfo=UTC),
        looked=datetime(2026, 1, 1, 12, 1, tzinfo=UTC),
        rolling_back=True,
        updated=datetime(2026, 1, 1, 11, tzinfo=UTC),
        pending=None,
        reached=frozenset({"arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"}),
        planned=7,
        picked=(Picked("p5", "i-0123456789abcdef0", "newest"),),
        unlaunched={"p5": 2},
        newest=START,
        settling=True,
    )
    assert read_state(json.loads(json.dumps(state.write()))) == state


def test_first_look_counts_the_nodes_that_were_not_launched_when_the_request_began() -> None:
    """A node that is launched while it looks is one of them, but for half a minute: clocks differ."""
    crowd = [*nodes("p5", 3), *late("p5", 4), *waiting("p5", 5), *nodes("trn1", 2, first=6)]
    crowd.append(replace(crowd[0], instance_id="i-7", launched=START + timedelta(seconds=30)))
    state = with_plan(State(began=START), live(group("p5", 5), group("trn1", 2), nodes=crowd), Plan())
    assert (state.unlaunched, state.newest) == ({"p5": 2}, START + timedelta(seconds=30))
