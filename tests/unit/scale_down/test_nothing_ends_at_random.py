"""After prepare, UpdateCluster never ends a node at random: whatever the deployment changes, and whatever was changed outside
CloudFormation before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.scale_down.provider import PATIENCE
from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups
from helpers.scale_down.scenarios import (
    FAULTS,
    P5,
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
    stack,
)
from helpers.scale_down.stack import PREPARE, Behaviour, Stack, Template, group

MOMENTS = st.sampled_from([0, 1, 60, 120, 310, 400, 3_600])
"""Seconds: while nodes are requested, boot, shut down, are counted although they are gone, and long afterwards."""


@given(
    behaviour=behaviours(),
    groups=changes(),
    drift=st.integers(1, 4),
    moment=MOMENTS,
    data=st.data(),
    vanished=VANISHED,
    seed=SEEDS,
)
def test_tag_that_changes_after_a_count_did_by_hand(
    behaviour: Behaviour,
    groups: list[Change],
    drift: int,
    moment: int,
    data: st.DataObject,
    vanished: VanishedGroups,
    seed: int,
) -> None:
    old = before(groups)
    train = stack(old, behaviour, seed, vanished=vanished)
    name = data.draw(st.sampled_from([each.name for each in groups]))
    train.model.client(principal="somebody").batch_add_cluster_nodes(
        ClusterName="train", NodesToAdd=[{"InstanceGroupName": name, "IncrementTargetCountBy": drift}]
    )
    train.clock.advance(moment)
    assert train.deploy(Template(groups=old.groups, tags={"team": "research"})) == "complete", train.reasons
    assert not train.model.random_terminations
    count = next(each.before for each in groups if each.name == name)
    assert sum(node.live for node in train.model.nodes("train", name)) == count


def test_target_that_somebody_raised_while_a_node_was_going() -> None:
    """It is lowered only when the nodes on their way out, which UpdateCluster may count, are gone."""
    behaviour = Behaviour(counts_shutting_down_nodes="while_counted", random_spares_unlaunched=False)
    train = stack(Template(groups=(group("p5", 4),)), behaviour, seed=0)
    _act(train, "p5", "delete", 1)
    _act(train, "p5", "set", 4)
    assert train.deploy(Template(groups=(group("p5", 2),))) == "complete", train.reasons
    assert not train.model.random_terminations
    assert len(ids(train, "p5")) == 2


ACTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(1, 3)),
    st.tuples(st.just("set"), st.integers(0, 6)),
    st.tuples(st.just("fail"), st.integers(1, 2)),
    st.tuples(st.just("capacity"), st.none() | st.integers(0, 12)),
    st.tuples(st.just("wait"), MOMENTS),
)
"""What somebody does by hand, or what happens by itself."""


@given(
    behaviour=behaviours(),
    groups=changes(),
    acts=st.lists(st.tuples(st.integers(0, 2), ACTS), max_size=5),
    faults=FAULTS,
    fail=st.sampled_from(["", "", "before", "after"]),
    data=st.data(),
    vanished=VANISHED,
    seed=SEEDS,
)
def test_whatever_happened_before(
    behaviour: Behaviour,
    groups: list[Change],
    acts: list[tuple[int, tuple[str, Any]]],
    faults: dict[str, Any],
    fail: Any,
    data: st.DataObject,
    vanished: VanishedGroups,
    seed: int,
) -> None:
    train = stack(before(groups), behaviour, seed, vanished=vanished)
    for number, (act, value) in acts:
        with contextlib.suppress(ClientError):
            _act(train, groups[number % len(groups)].name, act, value)
    at_random, gone = len(train.model.random_terminations), ended(train)
    names = data.draw(st.lists(st.sampled_from(ids(train)), max_size=2, unique=True), label="named")
    doomed = data.draw(st.sets(st.sampled_from([each.name for each in groups])), label="groups to delete")
    kept = [each for each in groups if each.name not in doomed]
    controller = set(ids(train, "controller"))
    disturb(train, faults, set())
    train.deploy(after(kept, nodes_to_delete=tuple(names), groups_to_delete=tuple(sorted(doomed))), fail=fail)
    assert len(train.model.random_terminations) == at_random, train.reasons
    assert not (ended(train) - gone) & controller
    # A deployment may fail; a rollback does so only where HyperPod itself cannot go back.
    assert train.status != "UPDATE_ROLLBACK_FAILED" or train.reasons[-1].startswith("cluster: "), train.reasons


def _act(train: Stack, name: str, act: str, value: Any) -> None:
    ops = train.model.client(principal="somebody")
    match act:
        case "add":
            ops.batch_add_cluster_nodes(
                ClusterName="train", NodesToAdd=[{"InstanceGroupName": name, "IncrementTargetCountBy": value}]
            )
        case "delete":
            if some := ids(train, name)[:value]:
                ops.batch_delete_cluster_nodes(ClusterName="train", NodeIds=some)
        case "set":
            spec = {**train.model.cluster("train").groups[name].spec, "InstanceCount": value, "MinInstanceCount": 0}
            ops.update_cluster(ClusterName="train", InstanceGroups=[spec])
        case "fail":
            running = [node for node in train.model.nodes("train", name) if node.status == "Running"]
            for node in running[:value]:
                train.model.change_node(node.logical_id, status="Failure", due=train.clock.now() + 300)
        case "capacity":
            train.model.set_capacity(P5, value)
        case "wait":
            train.clock.advance(value)


def test_target_is_given_time_also_if_the_first_look_found_no_node_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a group was to go. Then somebody raises the target, and the guard takes what comes: the target may fall late, below what
    CloudFormation would have sent by then."""
    never = Behaviour(batch_delete_lowers_target="never", replaces_missing_nodes_after_batch_delete=False)
    train = Stack(Template(groups=(group("p5", 4), group("old", 1))), behaviour=never, timings=QUICK)
    first_look: Callable[[Mapping[str, Any]], Any] = train.provider.on_event

    def on_event(event: Mapping[str, Any]) -> Any:
        answer = first_look(event)
        train.model.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[group("p5", 5)])
        return answer

    monkeypatch.setattr(train.provider, "on_event", on_event)
    train.updated = began = train.clock.now()
    train._is("UPDATE_IN_PROGRESS")
    here = set(ids(train))
    train.custom(PREPARE, Template(groups=(group("p5", 4),), groups_to_delete=("old",)).prepare, None)
    assert not ended(train) & here
    assert train.clock.now() - began >= PATIENCE.total_seconds()
