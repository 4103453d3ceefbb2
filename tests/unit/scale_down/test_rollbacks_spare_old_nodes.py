"""The rollback of any update ends no node that was there before the update, but those that the update itself took."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from helpers.scale_down.scenarios import (
    FAULTS,
    P5,
    SEEDS,
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
from helpers.scale_down.stack import LAMBDA, Behaviour, Stack, Template, group


@given(
    behaviour=behaviours(),
    groups=changes(),
    faults=FAULTS,
    data=st.data(),
    fail=st.sampled_from(["before", "after"]),
    capacity=st.integers(0, 20),
    seed=SEEDS,
)
def test_no_node_but_the_plans(
    behaviour: Behaviour,
    groups: list[Change],
    faults: dict[str, Any],
    data: st.DataObject,
    fail: Any,
    capacity: int,
    seed: int,
) -> None:
    train = stack(before(groups), behaviour, seed)
    here = set(ids(train))
    train.model.set_capacity(P5, capacity)
    template = after(groups, nodes_to_delete=named(train, groups, data))
    expected = planned(train, template)
    disturb(train, faults, expected)
    train.deploy(template, fail=fail)
    # What was taken on purpose may be missing for the cluster's own way back, when capacity is short; we never stop it.
    assert train.status != "UPDATE_ROLLBACK_FAILED" or train.reasons[-1].startswith("cluster: "), train.reasons
    assert ended(train, "named", "random", "group-deleted", "cluster-deleted") & here == expected
    assert not {item.node_id for item in train.model.random_terminations} & here


@given(
    behaviour=behaviours(),
    have=st.integers(1, 4),
    added=st.integers(1, 20),
    capacity=st.integers(0, 20),
    new_group=st.booleans(),
    seed=SEEDS,
)
def test_scale_up_that_fails_leaves_what_was_there(
    behaviour: Behaviour, have: int, added: int, capacity: int, new_group: bool, seed: int
) -> None:
    train = stack(Template(groups=(group("p5", have),)), behaviour, seed)
    here = set(ids(train))
    train.model.set_capacity(P5, have + capacity)
    grown = (group("p5", have), group("new", added)) if new_group else (group("p5", have + added),)
    assert train.deploy(Template(groups=grown), fail="after") == "rolled back", train.reasons
    assert not ended(train) & here
    assert set(ids(train)) == here, "what the update added is gone"


@given(
    behaviour=behaviours(),
    count=st.integers(1, 4),
    drift=st.integers(1, 3),
    lower=st.integers(0, 8),
    accident=st.sampled_from(["names", "group", "limit"]),
    seed=SEEDS,
)
def test_refused_deployment_touches_nothing_on_its_way_back(
    behaviour: Behaviour, count: int, drift: int, lower: int, accident: str, seed: int
) -> None:
    old = Template(groups=(group("p5", count), group("cpu", 1)))
    train = stack(old, behaviour, seed)
    train.model.client(principal="somebody").batch_add_cluster_nodes(
        ClusterName="train", NodesToAdd=[{"InstanceGroupName": "p5", "IncrementTargetCountBy": drift}]
    )
    train.clock.advance(3_600)
    templates = {
        "names": Template(groups=(group("p5", max(lower, 1)), old.groups[1]), nodes_to_delete=tuple(ids(train, "p5"))),
        "group": Template(groups=(group("p5", lower),)),
        "limit": Template(groups=(group("p5", 0), old.groups[1]), max_nodes=0),
    }
    assert train.deploy(templates[accident]) == "rolled back"
    assert train.status == "UPDATE_ROLLBACK_COMPLETE", train.reasons
    assert not ended(train)
    assert not train.model.changes(principal="lambda")


@given(behaviour=behaviours(), count=st.integers(1, 4), more=st.integers(1, 4), seed=SEEDS)
def test_a_refusal_because_of_an_autoscaled_count_takes_none_back(
    behaviour: Behaviour, count: int, more: int, seed: int
) -> None:
    """The autoscaler has grown the group; the file's count would be sent with any other change, and is refused."""
    template = Template(groups=(group("p5", count),), autoscaled=("p5",))
    train = stack(template, behaviour, seed)
    train.model.call(
        "UpdateCluster",
        {"ClusterName": "train", "InstanceGroups": [{**group("p5", count), "InstanceCount": count + more}]},
        principal="autoscaler",
    )
    train.clock.advance(20_000)
    here = set(ids(train))
    assert train.deploy(replace(template, tags={"team": "research"})) == "rolled back", train.reasons
    assert set(ids(train)) == here


BY_HAND = st.lists(st.integers(0, 8), max_size=2)
"""Counts that somebody sets, one after the other."""


def set_by_hand(train: Stack, counts: list[int]) -> None:
    """Each gets there or not, in an hour; where HyperPod refuses it, it is not done."""
    for count in counts:
        with contextlib.suppress(ClientError):
            train.model.client(principal="somebody").update_cluster(
                ClusterName="train", InstanceGroups=[group("p5", count)]
            )
        train.clock.advance(3_600)


@given(
    behaviour=behaviours(),
    counts=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    earlier=BY_HAND,
    meanwhile=BY_HAND,
    capacity=st.integers(4, 20),
    max_nodes=st.sampled_from([0, 1_000]),
    seed=SEEDS,
)
def test_a_deployment_that_never_got_to_the_cluster_takes_none_back(
    behaviour: Behaviour,
    counts: tuple[int, int],
    earlier: list[int],
    meanwhile: list[int],
    capacity: int,
    max_nodes: int,
    seed: int,
) -> None:
    """Whatever was changed by hand, before or while it failed, and whether prepare refused it or had done its part."""
    before, after = counts
    train = stack(Template(groups=(group("p5", before),)), behaviour, seed)
    train.model.set_capacity(P5, capacity)
    set_by_hand(train, earlier)
    so_far: list[Any] = []

    def fails() -> None:
        set_by_hand(train, meanwhile)
        so_far.append(train.model.changes(principal=LAMBDA))

    template = Template(groups=(group("p5", after),), max_nodes=max_nodes, tags={"team": "a"})
    assert train.deploy(template, fail="before", meanwhile=fails) == "rolled back", train.reasons
    assert train.model.changes(principal=LAMBDA) == so_far[0]


@given(
    behaviour=behaviours(),
    counts=st.tuples(st.integers(0, 4), st.integers(0, 8)),
    earlier=BY_HAND,
    meanwhile=BY_HAND,
    capacity=st.integers(4, 20),
    seed=SEEDS,
)
def test_a_deployment_that_got_to_the_cluster_is_taken_back_newest_first(
    behaviour: Behaviour,
    counts: tuple[int, int],
    earlier: list[int],
    meanwhile: list[int],
    capacity: int,
    seed: int,
) -> None:
    """Whatever was changed by hand, before or since."""
    before, after = counts
    train = stack(Template(groups=(group("p5", before),)), behaviour, seed)
    train.model.set_capacity(P5, capacity)
    set_by_hand(train, earlier)
    launched: dict[str, float] = {}
    random: list[Any] = []

    def fails() -> None:
        set_by_hand(train, meanwhile)
        launched.update(
            {
                node.instance_id: node.launched_at
                for node in train.model.nodes("train", "p5")
                if node.instance_id and node.launched_at and node.live
            }
        )
        random.extend(train.model.random_terminations)

    template = Template(groups=(group("p5", after),), tags={"team": "a"})
    assert train.deploy(template, fail="after", meanwhile=fails) == "rolled back", train.reasons
    assert list(train.model.random_terminations) == random
    kept = launched.keys() & set(ids(train, "p5"))
    assert len(kept) == min(before, len(launched))
    assert sorted(launched[each] for each in kept) == sorted(launched.values())[: len(kept)], "the newest went"
