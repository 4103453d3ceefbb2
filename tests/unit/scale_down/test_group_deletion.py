"""Which groups finalize asks to delete, row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from cdk_hyperpod._lambda.hyperpod.scale_down.decide.group_deletion import (
    GroupDeletion,
    groups_left,
    plan_group_deletion,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Wait
from helpers.scale_down.clusters import START, desired, desired_group, group, live, nodes, request_context

TWO = live(group(), group("old", 2), nodes=[*nodes("p5", 8), *nodes("old", 2, first=100)])
KEEP = desired(desired_group(), groups_to_delete=("old",))


def from_the_wire(word: str) -> str:
    """An equal text that is none of the code's constants."""
    return "".join(list(word))


def test_a_named_group_is_deleted() -> None:
    assert plan_group_deletion(TWO, KEEP) == GroupDeletion(groups=("old",))


def test_nothing_without_a_name_a_group_or_a_cluster() -> None:
    assert plan_group_deletion(TWO, desired(desired_group())) == GroupDeletion()
    assert plan_group_deletion(live(group()), KEEP) == GroupDeletion()
    assert plan_group_deletion(None, KEEP) == GroupDeletion()


def test_group_that_is_being_deleted_is_not_asked_for_again() -> None:
    going = replace(TWO, groups=(*TWO.groups[:2], replace(TWO.groups[2], status="Deleting")))
    assert plan_group_deletion(going, KEEP) == GroupDeletion()


def test_never_the_controller_a_kept_group_or_the_last_one() -> None:
    assert plan_group_deletion(TWO, desired(desired_group(), groups_to_delete=("controller", "p5"))) == GroupDeletion()
    bare = replace(desired(desired_group()), groups=(), groups_to_delete=("controller", "p5", "old"))
    assert plan_group_deletion(TWO, bare) == GroupDeletion(groups=("p5", "old")), (
        "the controller stays, so neither is the last one"
    )
    alone = replace(TWO, groups=TWO.groups[1:2])
    refused = plan_group_deletion(alone, bare)
    assert refused.done and "a cluster keeps at least one" in refused.notes[0]


def test_a_cluster_of_another_stack_is_left_alone() -> None:
    assert plan_group_deletion(replace(TWO, tags={}), KEEP).groups == ()


def test_a_group_deletion_waits_for_an_updating_cluster() -> None:
    assert plan_group_deletion(replace(TWO, status="Updating"), KEEP) == GroupDeletion(
        wait=Wait(why="the cluster is Updating")
    )


def test_rollback_deletes_what_only_the_failed_update_knew() -> None:
    updated = START - timedelta(days=60)

    def back(**more: Any) -> GroupDeletion:
        failed = desired(desired_group(), desired_group("old", 2))
        return plan_group_deletion(
            TWO, desired(desired_group()), request_context(rolling_back=True, previous=failed, **more)
        )

    assert back(updated=updated) == GroupDeletion(groups=("old",)), "all its nodes are younger than the update"
    assert back(updated=TWO.nodes[8].launched) == GroupDeletion(groups=("old",)), "its oldest came with the update"
    assert back(updated=START) == GroupDeletion(), "it has nodes from before the update"
    assert back() == GroupDeletion(), "nobody says when the update began"


def test_rollback_spares_old_nodes_of_a_group_that_the_failed_update_took_back_in() -> None:
    """The old file names it, but it stood all the same."""
    failed = desired(desired_group(), desired_group("old", 2))
    for previous in (failed, None):
        back = request_context(rolling_back=True, previous=previous, updated=START)
        assert plan_group_deletion(TWO, KEEP, back) == GroupDeletion()
        assert plan_group_deletion(TWO, KEEP, replace(back, updated=START - timedelta(days=60))) == GroupDeletion(
            groups=("old",)
        )


def test_groups_left_are_those_whose_deletion_was_not_requested_yet() -> None:
    names = [node.name for node in nodes("old", 2, first=100)]
    assert groups_left(TWO, KEEP) == {"old": names}
    assert groups_left(TWO, desired(desired_group(), groups_to_delete=("p5", "gone", "old"))) == {"old": names}, (
        "kept, absent"
    )
    assert groups_left(TWO, desired(desired_group())) == {}
    going = replace(TWO, groups=(*TWO.groups[:2], replace(TWO.groups[2], status=from_the_wire("Deleting"))))
    assert groups_left(going, KEEP) == {}
    assert plan_group_deletion(going, KEEP) == GroupDeletion()
    assert groups_left(replace(TWO, tags={}), KEEP) == {}, "another stack's"


def test_controller_is_known_by_its_type_as_it_comes_from_the_wire() -> None:
    fixed = replace(TWO.groups[0].fixed, node_type=from_the_wire("Controller"))
    named = replace(TWO, groups=(replace(TWO.groups[0], fixed=fixed), *TWO.groups[1:]))
    bare = replace(desired(desired_group()), groups_to_delete=("controller",), groups=())
    assert plan_group_deletion(named, bare) == GroupDeletion()
