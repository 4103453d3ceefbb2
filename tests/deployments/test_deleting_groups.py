"""Groups that go on purpose, and groups that go by accident: the latter never."""

from __future__ import annotations

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import refusals
from helpers.deployments.configs import STANDING
from helpers.deployments.steps import Step, refused, wait_until
from helpers.local_aws.rehearsal import Rehearsal, taking, without_group

WITHOUT = without_group(STANDING, "trn1")


def test_a_group_that_is_dropped_by_accident_is_refused(life: Rehearsal) -> None:
    step = Step(life)
    failed = life.deploy(WITHOUT, only=life.cluster)
    refusal = refusals.unknown_group("trn1", nodes=4)
    refused(life, step, refusal)
    assert not failed.ok
    assert str(refusal) in failed.reason


def test_a_removed_group_and_nodes_above_the_limit_are_reported_together(life: Rehearsal) -> None:
    step = Step(life)
    life.change(taking(without_group(WITHOUT, "p5"), groups=["trn1"], max_nodes=1))
    refused(life, step, refusals.unknown_group("p5", nodes=6), refusals.too_many(4, limit=1))


@pytest.mark.parametrize(
    ("vanished_groups", "callers"),
    [
        ("delete_present", ["CloudFormation"]),
        ("delete_blindly", ["CloudFormation"]),
        ("leave", ["CloudFormation", "ScaleDown"]),
    ],
)
def test_a_group_is_deleted(life: Rehearsal, vanished_groups: str, callers: list[str]) -> None:
    """Whatever CloudFormation's own handler does about a group that its template no longer has."""
    nodes = life.nodes("trn1")
    life.aws.change_hyperpod(handler={"vanished_groups": vanished_groups})
    step = Step(life)
    made = life.deploy(taking(WITHOUT, groups=["trn1"]), only=life.cluster)
    assert made.ok, made.reason
    assert step.ended() == dict.fromkeys(nodes, "group-deleted")
    assert step.callers("UpdateCluster") == callers
    wait_until(lambda: life.groups() == {"controller": (1, 0, 1), "p5": (6, 2, 6)})


def test_a_group_that_waits_for_its_minimum_is_deleted(life: Rehearsal) -> None:
    nodes = life.nodes("trn1")
    life.aws.change_hyperpod(timings={"minimum_limit": 60})
    life.leave_room("ml.trn1.32xlarge", 0)
    life.resize_by_hand("trn1", 6, 6)
    step, config = Step(life), taking(WITHOUT, groups=["trn1"])
    made = life.deploy(config, only=life.cluster)
    assert made.ok, made.reason
    assert step.ended().keys() > nodes.keys()
    assert set(step.ended().values()) == {"group-deleted"}
    assert step.calls() == {"UpdateCluster": 1}
    wait_until(lambda: "trn1" not in life.groups())

    step = Step(life)
    again = life.change({**config, "tags": {"team": "research"}})
    assert again.status == "UPDATE_COMPLETE", "its name may stay in the file"
    assert step.ended() == {}


def test_a_group_that_was_created_again_is_deleted_even_if_only_the_guard_changes(life: Rehearsal) -> None:
    """NodesTaken says that it goes next; CloudFormation calls what deletes it only for a change of its own properties."""
    config = taking(WITHOUT, groups=["trn1"])
    deleted = life.deploy(config, only=life.cluster)
    assert deleted.ok, deleted.reason
    wait_until(lambda: "trn1" not in life.groups())
    life.resize_by_hand("trn1", 2, 0)
    wait_until(lambda: len(life.nodes("trn1")) == 2)
    nodes, step = life.nodes("trn1"), Step(life)
    changed = life.change(taking(WITHOUT, groups=["trn1"], max_nodes=20))
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    assert step.ended() == dict.fromkeys(nodes, "group-deleted")
    wait_until(lambda: "trn1" not in life.groups())
