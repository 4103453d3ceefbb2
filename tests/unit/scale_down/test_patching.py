"""Automatic patching that somebody enabled by the API or in the console: no deployment turns it off unsaid."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.refuse import Refuse
from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.planner import plan
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import FIRST, Desired
from cdk_hyperpod._lambda.hyperpod.scale_down.model.live_cluster import carrying, patching
from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import spec_with
from cdk_hyperpod_local.hyperpod.samples import run_until_quiet
from helpers.findings import codes
from helpers.scale_down.clusters import desired, desired_group, group, live, nodes, request_context
from helpers.scale_down.scenarios import QUICK
from helpers.scale_down.stack import Stack, Template
from helpers.scale_down.stack import group as in_stack

SCHEDULE = {"NextPatchDate": datetime(2026, 12, 1, tzinfo=UTC)}
AUTO: dict[str, Any] = {
    "PatchingStrategy": "DrainFirst",
    "DrainPolicy": {"DrainTimeoutInSeconds": 600, "OnDrainTimeout": "Skip"},
}
CRON = {"ScheduleExpression": "cron(0 0 1 * ? *)"}
BOTH = {"AutoPatchConfig": AUTO, "ScheduledUpdateConfig": CRON}


def dropped(setting: str) -> Refuse:
    return messages.refusals.patching_dropped(["p5"], setting)


def refusals(settings: dict[str, Any], wanted: Desired, **when: Any) -> list[Refuse]:
    patched = live(group(patching=settings), nodes=nodes("p5", 8))
    return [*plan(patched, wanted, request_context(**when)).refusals]


def sending(**settings: Any) -> Desired:
    wanted = desired_group(count=8)
    return desired(replace(wanted, spec={**wanted.spec, **settings}))


@pytest.mark.parametrize("setting", BOTH)
def test_a_deployment_that_would_turn_it_off_is_refused(setting: str) -> None:
    assert refusals({setting: BOTH[setting]}, desired(desired_group(count=7))) == [dropped(setting)]


def test_each_setting_is_named() -> None:
    assert refusals(BOTH, desired(desired_group(count=8))) == [dropped(setting) for setting in BOTH]


def test_a_dry_run_refuses_it_too() -> None:
    patched = live(group(patching=BOTH), nodes=nodes("p5", 8))
    assert [*plan(patched, desired(desired_group(count=8)), FIRST).refusals] == [dropped(setting) for setting in BOTH]


def test_a_template_that_has_it_turns_nothing_off() -> None:
    assert refusals({"AutoPatchConfig": AUTO}, sending(AutoPatchConfig=AUTO)) == []
    assert refusals({"AutoPatchConfig": AUTO}, sending(AutoPatchConfig={"PatchingStrategy": "WhenIdle"})) == []
    assert refusals(BOTH, sending(AutoPatchConfig=AUTO)) == [dropped("ScheduledUpdateConfig")]


def test_a_request_that_does_not_change_the_cluster_is_not_refused() -> None:
    assert refusals(BOTH, desired(desired_group(count=8)), previous=desired(desired_group(count=8))) == []


def test_a_rollback_is_not_refused() -> None:
    assert refusals(BOTH, desired(desired_group(count=8)), rolling_back=True) == []


def test_a_group_that_is_deleted_needs_no_patches() -> None:
    two = live(group(), group("old", 1, patching=BOTH), nodes=[*nodes("p5", 8), *nodes("old", 1, first=90)])
    assert plan(two, desired(desired_group(count=8), groups_to_delete=("old",)), request_context()).refusals == ()


@pytest.mark.parametrize("shown", [{}, {"AutoPatchConfig": None}, {"AutoPatchConfig": {}, "ScheduledUpdateConfig": {}}])
def test_empty_patch_settings_are_absent(shown: dict[str, Any]) -> None:
    assert patching(shown) == {}


@pytest.mark.parametrize("schedules", [("CurrentPatchSchedule",), ("CurrentPatchSchedule", "DesiredPatchSchedule")])
def test_live_patch_settings_are_read_in_the_form_in_which_they_are_sent(schedules: tuple[str, ...]) -> None:
    shown = {**AUTO, "CurrentPatchSchedule": {"NextPatchDate": "earlier"}, **dict.fromkeys(schedules, SCHEDULE)}
    found = patching({"AutoPatchConfig": shown, "ScheduledUpdateConfig": CRON})
    assert found == {"AutoPatchConfig": {**AUTO, "PatchSchedule": SCHEDULE}, "ScheduledUpdateConfig": CRON}


def test_a_specification_that_the_guard_sends_keeps_the_live_patch_settings() -> None:
    patched = live(group(patching=BOTH))
    spec = {"InstanceGroupName": "p5", "InstanceCount": 3}
    assert carrying(spec, patched) == {**BOTH, **spec}
    own = {**spec, "AutoPatchConfig": {"PatchingStrategy": "WhenIdle"}}
    assert carrying(own, patched) == {"ScheduledUpdateConfig": CRON, **own}
    assert carrying({"InstanceGroupName": "new"}, patched) == {"InstanceGroupName": "new"}


def test_no_deployment_turns_patching_off_until_it_is_removed_by_the_api() -> None:
    """On the local AWS's HyperPod, with CloudFormation's own update after the guard."""
    cluster = Template(groups=(in_stack("p5", 4),))
    train = Stack(cluster, timings=QUICK, poll=60)

    def by_hand(**settings: Any) -> None:
        spec = {**in_stack("p5", 4), **settings}
        train.hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [spec]})
        run_until_quiet(train.hyperpod)

    def shown() -> list[Any]:
        groups = train.hyperpod.call("DescribeCluster", {"ClusterName": "train"})["InstanceGroups"]
        found = next(each for each in groups if each["InstanceGroupName"] == "p5")
        return [found.get(name) for name in BOTH]

    by_hand(**BOTH)
    assert train.deploy(Template(groups=(in_stack("p5", 3),))) != "complete"
    assert {*codes(train.reasons[0])} == {"patching-turned-off"}
    assert None not in shown()
    by_hand()
    assert shown() == [None, None]
    assert train.deploy(Template(groups=(in_stack("p5", 3),))) == "complete", train.reasons


def test_the_value_none_in_the_file_allows_patching_to_be_turned_off() -> None:
    off = {"AutoPatchConfig": frozenset({"p5"})}
    wanted = desired(desired_group(count=8), patching_off=off)
    assert refusals({"AutoPatchConfig": AUTO}, wanted) == []
    assert refusals(BOTH, wanted) == [dropped("ScheduledUpdateConfig")]
    assert refusals(
        {"AutoPatchConfig": AUTO}, replace(wanted, patching_off={"AutoPatchConfig": frozenset({"other"})})
    ) == [dropped("AutoPatchConfig")]


def test_a_specification_that_the_guard_sends_names_no_image() -> None:
    own = replace(desired_group(), spec={"InstanceGroupName": "p5", "ImageId": "ami-1", "ImageReleaseVersion": "1.3.0"})
    assert spec_with(own, count=3, minimum=0) == {"InstanceGroupName": "p5", "InstanceCount": 3, "MinInstanceCount": 0}
