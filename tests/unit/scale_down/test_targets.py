"""Targets that another party raises while the guard waits for nodes to go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.poll.poll import PATIENCE
from helpers.scale_down.scenarios import QUICK, ended, ids
from helpers.scale_down.stack import PREPARE, Behaviour, Stack, Template, group


def test_a_target_raised_during_a_termination_is_lowered_without_random_terminations() -> None:
    """It is lowered only when the nodes on their way out, which UpdateCluster may count, are gone."""
    behaviour = Behaviour(counts_shutting_down_nodes="while_counted", random_spares_unlaunched=False)
    train = Stack(Template(groups=(group("p5", 4),)), behaviour=behaviour, timings=QUICK, poll=60)
    by_hand = train.hyperpod.client(principal="somebody")
    by_hand.batch_delete_cluster_nodes(ClusterName="train", NodeIds=ids(train, "p5")[:1])
    spec = {**train.hyperpod.cluster("train").groups["p5"].spec, "InstanceCount": 4, "MinInstanceCount": 0}
    by_hand.update_cluster(ClusterName="train", InstanceGroups=[spec])
    assert train.deploy(Template(groups=(group("p5", 2),))) == "complete", train.reasons
    assert not train.hyperpod.random_terminations
    assert len(ids(train, "p5")) == 2


def test_target_is_given_time_also_if_the_first_look_found_no_node_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a group was to go. Then somebody raises the target, and the guard takes what comes: the target may fall late, below what
    CloudFormation would have sent by then."""
    never = Behaviour(batch_delete_lowers_target="never", replaces_missing_nodes_after_batch_delete=False)
    train = Stack(Template(groups=(group("p5", 4), group("old", 1))), behaviour=never, timings=QUICK)
    first_look: Callable[[Mapping[str, Any]], Any] = train.provider.on_event

    def on_event(event: Mapping[str, Any]) -> Any:
        answer = first_look(event)
        train.hyperpod.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[group("p5", 5)])
        return answer

    monkeypatch.setattr(train.provider, "on_event", on_event)
    train.updated = began = train.clock.now()
    train._is("UPDATE_IN_PROGRESS")
    here = set(ids(train))
    train.custom(PREPARE, Template(groups=(group("p5", 4),), groups_to_delete=("old",)).prepare, None)
    assert not ended(train) & here
    assert train.clock.now() - began >= PATIENCE.total_seconds()
