"""The nodes that end are exactly the plan's, whatever AWS answers and whatever fails; and then nothing is left to do."""

from __future__ import annotations

from typing import Any

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
    nothing_left,
    planned,
    stack,
)
from helpers.scale_down.stack import Behaviour, Template, group


@given(behaviour=behaviours(), groups=changes(), faults=FAULTS, data=st.data(), seed=SEEDS)
def test_exactly_the_plan_goes(
    behaviour: Behaviour, groups: list[Change], faults: dict[str, Any], data: st.DataObject, seed: int
) -> None:
    train = stack(before(groups), behaviour, seed)
    here = set(ids(train))
    template = after(groups, nodes_to_delete=named(train, groups, data))
    expected = planned(train, template)
    disturb(train, faults, expected)
    assert train.deploy(template) == "complete", train.reasons
    assert not train.model.random_terminations
    assert ended(train, "named") & here == expected
    assert ended(train) & here == expected
    assert set(template.nodes_to_delete) <= expected
    # Planning again finds nothing, and deploying again calls nothing that changes anything.
    assert nothing_left(train, template)
    changed = train.model.changes(principal="lambda")
    assert train.deploy(template) == "complete"
    assert train.model.changes(principal="lambda") == changed


@given(behaviour=behaviours(), groups=changes(continuous=False), data=st.data(), seed=SEEDS)
def test_exactly_the_plan_goes_under_standard_provisioning(
    behaviour: Behaviour, groups: list[Change], data: st.DataObject, seed: int
) -> None:
    train = stack(before(groups, False), behaviour, seed)
    here = set(ids(train))
    template = after(groups, False, nodes_to_delete=named(train, groups, data))
    expected = planned(train, template)
    ending = train.deploy(template)
    # Where the service holds on to its target, the deployment is refused rather than left to chance.
    if behaviour.batch_delete_lowers_target != "never" or not expected:
        assert ending == "complete", train.reasons
    assert not train.model.random_terminations
    assert ended(train, "named") & here == expected


@given(
    behaviour=behaviours(),
    have=st.integers(0, 5),
    missing=st.integers(1, 4),
    count=st.integers(0, 9),
    name_some=st.booleans(),
    arrives=st.none() | st.sampled_from([30, 200, 360]),
    seed=SEEDS,
)
def test_missing_capacity_ends_no_node_that_is_needed(
    behaviour: Behaviour, have: int, missing: int, count: int, name_some: bool, arrives: int | None, seed: int
) -> None:
    train = stack(Template(groups=(group("p5", have),)), behaviour, seed)
    here = set(ids(train, "p5"))
    train.model.set_capacity(P5, have)
    assert train.deploy(Template(groups=(group("p5", have + missing),))) == "complete", train.reasons
    assert len(ids(train, "p5")) == have
    if arrives is not None:
        train.model.set_capacity(P5, None, at=train.clock.now() + arrives)
    excess = max(0, have + missing - count)
    chosen = tuple(sorted(here)[: min(excess, have)]) if name_some else ()
    template = Template(groups=(group("p5", count),), nodes_to_delete=chosen)
    expected = planned(train, template)
    assert train.deploy(template) == "complete", train.reasons
    assert not train.model.random_terminations
    assert ended(train, "named") & here == expected & here
    if not chosen:
        assert len(expected & here) == max(0, have - count)


@given(behaviour=behaviours(), groups=changes(), limit=st.integers(0, 4), seed=SEEDS)
def test_never_more_than_the_limit_and_never_the_controller(
    behaviour: Behaviour, groups: list[Change], limit: int, seed: int
) -> None:
    train = stack(before(groups), behaviour, seed)
    here, controller = set(ids(train)), set(ids(train, "controller"))
    excess = sum(max(0, each.before - each.after) for each in groups)
    template = after(groups, max_nodes=limit)
    assert train.deploy(template) == ("rolled back" if excess > limit else "complete"), train.reasons
    assert len(ended(train) & here) == (0 if excess > limit else excess)
    named_too = after(groups, nodes_to_delete=tuple(controller))
    assert train.deploy(named_too) == "rolled back"
    assert "HyperPod never deletes" in train.reasons[0]
    assert not ended(train) & controller
