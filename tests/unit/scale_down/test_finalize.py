"""finalize's one call, where CloudFormation's own handler left the group alone, and what it does when it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.findings import codes
from helpers.scale_down.scenarios import QUICK, ended
from helpers.scale_down.stack import LAMBDA, Behaviour, Stack, Template, group

WITH_OLD = Template(groups=(group("p5", 2), group("old", 1)))
WITHOUT = Template(groups=(group("p5", 2),), groups_to_delete=("old",))


def sent(train: Stack) -> list[dict[str, Any]]:
    """What the function asked of UpdateCluster, refused or not."""
    calls = [call for call in train.hyperpod.journal if call.principal == LAMBDA and call.operation == "UpdateCluster"]
    return [{key: value for key, value in call.params.items() if key != "ClusterName"} for call in calls]


@pytest.mark.parametrize("continuous", [True, False])
def test_a_deletion_is_sent_with_an_unchanged_group_if_hyperpod_requires_one(continuous: bool) -> None:
    train = Stack(
        replace(WITH_OLD, continuous=continuous),
        timings=QUICK,
        vanished="leave",
        behaviour=Behaviour(update_needs_groups_with_delete=True),
    )
    assert train.deploy(replace(WITHOUT, continuous=continuous)) == "complete", train.reasons
    alone, accompanied = sent(train)
    assert alone == {"InstanceGroupsToDelete": ["old"]}
    (unchanged,) = accompanied["InstanceGroups"]
    assert unchanged["InstanceGroupName"] == "controller"
    assert ("MinInstanceCount" in unchanged) is continuous, "standard provisioning has no minimum"
    assert {item.cause for item in train.hyperpod.terminations} == {"group-deleted"}


def test_group_that_is_gone_is_not_asked_for() -> None:
    train = Stack(WITH_OLD, timings=QUICK, vanished="delete_present")
    assert train.deploy(WITHOUT) == "complete", train.reasons
    assert sent(train) == []
    assert len(ended(train)) == 1


def test_group_that_waits_for_its_minimum_can_go() -> None:
    train = Stack(Template(groups=(group("p5", 2),)), timings=QUICK, vanished="leave")
    train.hyperpod.set_capacity("ml.p5.48xlarge", 3)
    spec = group("old", 4, minimum=4)
    train.hyperpod.client(principal="somebody").update_cluster(ClusterName="train", InstanceGroups=[spec])
    assert train.deploy(WITHOUT) == "complete", train.reasons
    assert train.hyperpod.changes(principal=LAMBDA) == {"UpdateCluster": 1}
    assert {item.group for item in train.hyperpod.terminations} == {"old"}


def test_missing_permission_fails_with_the_reason() -> None:
    train = Stack(WITH_OLD, timings=QUICK, vanished="leave")
    train.disturbance.denied_until["UpdateCluster"] = train.clock.now() + 100_000
    assert train.deploy(WITHOUT) != "complete"
    assert codes(train.reasons[0]) == ["group-deletion-rejected"]
    assert "AccessDeniedException: User: lambda is not authorized" in train.reasons[0]
