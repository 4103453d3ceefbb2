"""A function that dies between any two calls is a failed resource, which CDK's framework never polls again. Continuing the
rollback and deploying again puts everything right."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod_local.hyperpod import Call, CallerKilled
from helpers.scale_down.scenarios import (
    SEEDS,
    Change,
    after,
    before,
    behaviours,
    changes,
    ended,
    ids,
    named,
    nothing_left,
    planned,
    stack,
)
from helpers.scale_down.stack import LAMBDA, Behaviour, Stack, Template, group


def dies_after(train: Stack, calls: set[int]) -> None:
    """The function dies at these of its calls, counted from now on, once they took effect. While it only looks, nothing can
    be left half-done."""
    began = len(train.model.journal)
    seen = 0

    def on_call(call: Call) -> None:
        nonlocal seen
        if call.principal == LAMBDA and call.number > began and train.polling:
            seen += 1
            if seen in calls:
                raise CallerKilled(f"killed after {call.operation}")

    train.model.on_call = on_call


@given(
    behaviour=behaviours(),
    groups=changes(),
    delete_old=st.booleans(),
    calls=st.sets(st.integers(1, 20), min_size=1, max_size=8),
    data=st.data(),
    seed=SEEDS,
)
def test_same_nodes_go_as_without_the_crash(
    behaviour: Behaviour, groups: list[Change], delete_old: bool, calls: set[int], data: st.DataObject, seed: int
) -> None:
    train = stack(Template(groups=(*before(groups).groups, group("old", 2))), behaviour, seed)
    here = set(ids(train))
    left = after(groups).groups
    template = Template(
        groups=left if delete_old else (*left, group("old", 2)),
        nodes_to_delete=named(train, groups, data),
        groups_to_delete=("old",) if delete_old else (),
    )
    expected = planned(train, template) | (set(ids(train, "old")) if delete_old else set())
    dies_after(train, calls)
    endings = [train.deploy(template)]
    while endings[-1] != "complete":
        assert len(endings) < 30, train.reasons
        if endings[-1] == "rollback failed":
            endings.append(train.roll_back())
        else:
            # What an earlier deployment took is in the cluster no more, and new ids that are not cost no other node.
            named_still = tuple(each for each in template.nodes_to_delete if each in ids(train))
            endings.append(train.deploy(replace(template, nodes_to_delete=named_still)))
    assert all(isinstance(crash, CallerKilled) for crash in train.crashes)
    assert not train.model.random_terminations
    assert nothing_left(train, template)
    assert ended(train) & here == expected
