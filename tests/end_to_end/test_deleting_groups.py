"""Groups that go on purpose, and groups that go by accident: the latter never."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from end_to_end.configs import TRN1, small
from end_to_end.steps import Step, refused, settle, turn, wait_until
from local_aws.rehearsal import Rehearsal, taking, with_group, without_group
from local_aws.session import LocalAws

pytestmark = pytest.mark.slow

CONFIG = with_group(small("deleting"), TRN1)
"""A controller, two P5 nodes and two Trn1 nodes."""

WITHOUT = without_group(CONFIG, "trn1")


@pytest.fixture(scope="module")
def cluster(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    rehearsal = Rehearsal(engine, tmp_path_factory.mktemp("deleting"), CONFIG)
    made = rehearsal.deploy()
    assert made.ok, made.reason
    settle(rehearsal)
    return rehearsal


@pytest.fixture
def life(cluster: Rehearsal) -> Iterator[Rehearsal]:
    with turn(cluster, CONFIG):
        yield cluster


def test_a_group_that_is_dropped_by_accident_is_refused(life: Rehearsal) -> None:
    step = Step(life)
    failed = life.deploy(WITHOUT, only=life.cluster)
    message = (
        'instance_groups: the live group "trn1" with 2 nodes is missing; dropping a group is not enough to delete it; '
        "put it back, or name it in scale_down.instance_groups_to_delete."
    )
    refused(life, step, message)
    assert not failed.ok
    assert message in failed.reason


def test_a_group_that_is_dropped_and_nodes_above_the_limit_are_told_together(life: Rehearsal) -> None:
    step = Step(life)
    life.change(taking(without_group(WITHOUT, "p5"), groups=["trn1"], max_nodes=1))
    refused(
        life,
        step,
        'instance_groups: the live group "p5" with 2 nodes is missing; dropping a group is not enough to delete it; put '
        "it back, or name it in scale_down.instance_groups_to_delete. scale_down.max_nodes: is 1, and this deployment "
        "would take 2 nodes; raise it to 2 if that is meant, or take them in several deployments.",
    )


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
    config = taking(WITHOUT, groups=["trn1"])
    made = life.deploy(config, only=life.cluster)
    assert made.ok, made.reason
    assert step.ended() == dict.fromkeys(nodes, "group-deleted")
    assert step.callers("UpdateCluster") == callers
    wait_until(lambda: life.groups() == {"controller": (1, 0, 1), "p5": (2, 1, 2)})

    step = Step(life)
    again = life.change({**config, "tags": {"team": "research"}})
    assert again.status == "UPDATE_COMPLETE", "its name may stay in the file"
    assert step.ended() == {}


def test_a_group_that_waits_for_its_minimum_is_deleted(life: Rehearsal) -> None:
    nodes = life.nodes("trn1")
    life.aws.change_hyperpod(timings={"minimum_limit": 60})
    life.leave_room("ml.trn1.32xlarge", 0)
    life.resize_by_hand("trn1", 4, 4)
    step = Step(life)
    made = life.deploy(taking(WITHOUT, groups=["trn1"]), only=life.cluster)
    assert made.ok, made.reason
    assert step.ended().keys() > nodes.keys()
    assert set(step.ended().values()) == {"group-deleted"}
    assert step.calls() == {"UpdateCluster": 1}
    wait_until(lambda: "trn1" not in life.groups())
