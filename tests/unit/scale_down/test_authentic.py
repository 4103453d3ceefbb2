"""Whoever may invoke the function writes its events: what CloudFormation's record does not confirm is not done."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.kernel.sentences import DENIED_HINT
from cdk_hyperpod._lambda.hyperpod.scale_down.aws.stack_events import (
    agrees,
    earlier_properties,
    read_record,
    template_properties,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.poll import stack
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import ScaleDownError
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import State
from cdk_hyperpod_local.hyperpod import Timings
from helpers.findings import codes
from helpers.scale_down.stack import DRAIN, FINALIZE, LAMBDA, PREPARE, STACK_ID, Stack, Template, group

Json = dict[str, Any]
Forge = Callable[[Stack, Json], Json]
MINUTES = [60.0 * n for n in range(11)]
QUICK = Timings(boot=60, shut_down=60, launch=10)
SIX = Template(groups=(group("p5", 6), group("old", 2)))
FIVE = Template(groups=(group("p5", 5), group("old", 2)))


def ids(train: Stack, name: str) -> list[str]:
    return [node.instance_id for node in train.hyperpod.nodes("train") if node.group == name and node.instance_id]


def ended(train: Stack) -> set[str]:
    return {str(item.node_id) for item in train.hyperpod.terminations}


def asks(event: Json, **properties: Any) -> Json:
    return {**event, "ResourceProperties": {**event["ResourceProperties"], **properties}}


def fewer(event: Json) -> Json:
    """One node of p5, and any number of deletions."""
    specs = [json.loads(text) for text in event["ResourceProperties"]["Groups"]]
    for spec in specs:
        if spec["InstanceGroupName"] == "p5":
            spec["InstanceCount"] = 1
    return asks(event, Groups=[json.dumps(spec) for spec in specs], MaxNodes="6000")


FORGED: dict[str, Forge] = {
    "a lower count": lambda _, event: fewer(event),
    "other names": lambda train, event: asks(fewer(event), NodesToDelete=ids(train, "p5")[:4]),
    "other old properties, too": lambda _, event: {
        **fewer(event),
        "OldResourceProperties": fewer(event)["ResourceProperties"],
    },
    "a rollback": lambda _, event: {
        **fewer(event),
        "RollingBack": True,
        "Reached": ["train"],
        "Pending": None,
        "Picked": [],
    },
    "a creation": lambda _, event: {**fewer(event), "RequestType": "Create"},
    "another stack": lambda _, event: {**fewer(event), "StackId": f"{STACK_ID}0"},
    "another resource": lambda _, event: {**fewer(event), "LogicalResourceId": "Another"},
    "the other resource": lambda _, event: {**asks(event, InstanceGroupsToDelete=["old"]), "ResourceType": FINALIZE},
    "other nodes of the first look": lambda train, event: {
        **event,
        "Picked": [["p5", node, "named", True] for node in ids(train, "p5")[:1]],
    },
    "no first look": lambda _, event: {**event, "Picked": [], "Planned": 0, "Pending": None, "Seal": None},
    "long ago": lambda _, event: {**event, "StartedAt": 1.0},
}


def attacked(train: Stack, forge: Forge) -> list[str]:
    """Let a forged poll come before each of CloudFormation's. Returns what they were answered."""
    poll, answers = train.provider.is_complete, list[str]()

    def is_complete(event: Mapping[str, Any]) -> Any:
        before = dict(train.hyperpod.changes(principal="lambda"))
        try:
            answers.append(str(poll(forge(train, copy.deepcopy(dict(event))))))
        except ScaleDownError as error:
            answers.append(str(error))
        except Exception as error:  # noqa: BLE001 - another stack may not be read
            answers.append(str(error))
        assert dict(train.hyperpod.changes(principal="lambda")) == before, "a forged event changes something"
        return poll(event)

    pytest.MonkeyPatch().setattr(train.provider, "is_complete", is_complete)
    return answers


@pytest.mark.parametrize("forged", FORGED)
def test_forged_event_changes_nothing_during_an_update(forged: str) -> None:
    train = Stack(SIX, timings=QUICK)
    newest = ids(train, "p5")[-1]
    answers = attacked(train, FORGED[forged])
    assert train.deploy(FIVE) == "complete", train.reasons
    assert answers
    assert ended(train) == {newest}


@pytest.mark.parametrize("forged", sorted(FORGED.keys() - {"no first look"}))
def test_forged_event_changes_nothing_during_a_rollback(forged: str) -> None:
    """One that says what CloudFormation says, and nothing of a first look, does what the rollback asks for."""
    train = Stack(SIX, timings=QUICK)
    here = set(ids(train, "p5"))
    answers: list[str] = []

    def later() -> None:
        answers.append("")
        attacked(train, FORGED[forged])

    raised = Template(groups=(group("p5", 8), group("old", 2)))
    assert train.deploy(raised, fail="after", meanwhile=later) == "rolled back", train.reasons
    assert answers
    assert not ended(train) & here


NO_TASK: Json = {"Pending": False, "Seal": None, "Picked": [], "Planned": 0}


@pytest.mark.parametrize("kind", [PREPARE, FINALIZE])
def test_forged_poll_without_a_task_releases_no_node_of_a_group_to_delete(kind: str) -> None:
    """finalize would delete them with the jobs that began meanwhile."""
    two = (group("p5", 4), group("old", 2))
    train = Stack(Template(groups=two, drain=DRAIN), timings=QUICK)
    going, forged = set(ids(train, "old")), list[str]()
    poll, look = train.provider.is_complete, train.provider.on_event

    def forge(event: Mapping[str, Any], state: Json) -> None:
        before = train.agent.request()
        if event["ResourceType"] != kind or before is None or {each["id"] for each in before["nodes"]} != going:
            return
        train.clock.advance(30)
        with contextlib.suppress(ScaleDownError):
            poll({**copy.deepcopy(dict(event)), **state, **NO_TASK, "ResourceType": PREPARE})
        forged.append(kind)
        assert {each["id"] for each in train.agent.request()["nodes"]} == going

    def is_complete(event: Mapping[str, Any]) -> Any:
        answer = poll(event)
        forge(event, {})
        return answer

    def on_event(event: Mapping[str, Any]) -> Any:
        forge(event, State(began=train.now(), looked=train.now()).write())
        return look(event)

    pytest.MonkeyPatch().setattr(train.provider, "is_complete", is_complete)
    pytest.MonkeyPatch().setattr(train.provider, "on_event", on_event)
    after = Template(groups=two[:1], groups_to_delete=("old",), drain=DRAIN)
    assert train.deploy(after) == "complete", train.reasons
    assert forged


def test_replays_through_on_event_neither_restart_a_drain_nor_delete_another_node() -> None:
    """They are the event in progress once more. The drain has CloudFormation's time, and not theirs."""
    train = Stack(Template(groups=(group("p5", 6),), drain=DRAIN), timings=QUICK)
    newest, looks = ids(train, "p5")[-1], list[Json]()
    train.agent.runs(newest, MINUTES[10])
    poll, look = train.provider.is_complete, train.provider.on_event
    requested = set[str]()

    def on_event(event: Mapping[str, Any]) -> Any:
        looks.extend([copy.deepcopy(dict(event))] if event["ResourceType"] == PREPARE else [])
        return look(event)

    def is_complete(event: Mapping[str, Any]) -> Any:
        answer = poll(event)
        if event["ResourceType"] == PREPARE:
            replayed = {**looks[-1], "OldResourceProperties": fewer(looks[-1])["ResourceProperties"]}
            with contextlib.suppress(ScaleDownError):
                replayed |= json.loads(json.dumps(look(replayed)))
                train.clock.advance(70)
                poll(replayed)
        requested.update(each["request"] for each in train.agent.request()["nodes"])
        return answer

    pytest.MonkeyPatch().setattr(train.provider, "is_complete", is_complete)
    pytest.MonkeyPatch().setattr(train.provider, "on_event", on_event)
    five = Template(groups=(group("p5", 5),), nodes_to_delete=(newest,), drain=DRAIN)
    assert train.deploy(five) == "complete", train.reasons
    assert len(looks) == 1
    assert len(requested) == 1
    assert ended(train) == {newest}


@pytest.mark.parametrize("of", ["the update before", "the failed update", "another stack", "a creation", "a deletion"])
def test_replays_through_on_event_change_nothing_of_a_rollback(of: str) -> None:
    train = Stack(SIX, timings=QUICK)
    poll, look, looks = train.provider.is_complete, train.provider.on_event, list[Json]()

    def on_event(event: Mapping[str, Any]) -> Any:
        looks.extend([copy.deepcopy(dict(event))] if event["ResourceType"] == PREPARE else [])
        return look(event)

    pytest.MonkeyPatch().setattr(train.provider, "on_event", on_event)
    assert train.deploy(FIVE) == "complete"
    assert train.deploy(SIX) == "complete"
    here, before = set(ids(train, "p5")), ended(train)
    answers: list[str] = []

    def forge(_: Stack, __: Json) -> Json:
        updates, other = [each for each in looks if each["RequestType"] == "Update"], {"StackId": f"{STACK_ID}0"}
        more = {
            "another stack": other,
            "a creation": {"RequestType": "Create"},
            "a deletion": {"RequestType": "Delete"},
        }
        replayed = {**updates[2 if of == "the failed update" else 0], **more.get(of, {})}
        answers.append("")
        return {**replayed, **json.loads(json.dumps(look(replayed)))}

    raised = Template(groups=(group("p5", 8), group("old", 2)))
    assert train.deploy(raised, fail="after", meanwhile=lambda: attacked(train, forge)) == "rolled back", train.reasons
    assert answers
    assert poll is not train.provider.is_complete
    assert set(ids(train, "p5")) == here
    assert not (ended(train) - before) & here


def test_replayed_event_changes_nothing() -> None:
    train = Stack(SIX, timings=QUICK)
    seen: list[Json] = []
    poll = train.provider.is_complete

    def noted(event: Mapping[str, Any]) -> Any:
        seen.append(copy.deepcopy(dict(event)))
        return poll(event)

    pytest.MonkeyPatch().setattr(train.provider, "is_complete", noted)
    assert train.deploy(FIVE) == "complete"
    replayed, before = [each for each in seen if each["ResourceType"] == PREPARE][-1], ended(train)
    pytest.MonkeyPatch().setattr(train.provider, "is_complete", poll)
    assert train.deploy(SIX) == "complete"
    attacked(train, lambda _, __: replayed)
    assert train.deploy(Template(groups=SIX.groups, tags={"team": "a"})) == "complete"
    with pytest.raises(ScaleDownError, match=r"."):
        for _ in range(2):
            train.provider.services.log("between deployments")
            poll(replayed)
            train.clock.advance(4_000)
    assert ended(train) == before


@pytest.mark.parametrize(
    "shows", [lambda _: None, lambda text: text[:40], lambda text: text], ids=["absent", "cut", "whole"]
)
def test_deployment_and_rollback_end_whatever_events_show(shows: Callable[[str], str | None]) -> None:
    train = Stack(SIX, timings=QUICK)
    train.shows = shows
    newest = ids(train, "p5")[-1]
    assert train.deploy(FIVE) == "complete", train.reasons
    assert ended(train) == {newest}
    here = set(ids(train, "p5"))
    assert train.deploy(SIX, fail="after") == "rolled back", train.reasons
    assert set(ids(train, "p5")) == here


@pytest.mark.parametrize("template", [False, True])
def test_a_record_may_show_question_marks_for_other_characters(template: bool) -> None:
    """GetTemplate does, and so a tag or `retry` with an umlaut differs from the request's."""

    def shows(text: str) -> str | None:
        return None if template else json.dumps(json.loads(text.replace("\\u00fc", "?")))

    train = Stack(replace(SIX, retry="f\u00fcr"), timings=QUICK)
    train.shows = shows
    get_template = train.get_template
    train.get_template = lambda **named: json.loads(json.dumps(get_template(**named)).replace("\\u00fc", "?"))  # type: ignore[method-assign]
    assert train.deploy(replace(FIVE, retry="f\u00fcr alle")) == "complete", train.reasons
    assert train.deploy(replace(SIX, retry="f\u00fcr"), fail="after") == "rolled back", train.reasons


OF_STACK = {"ResourceType": "AWS::CloudFormation::Stack", "LogicalResourceId": "train", "PhysicalResourceId": STACK_ID}
BETWEEN: dict[str, Json] = {
    "the stack's resources are configured": {**OF_STACK, "DetailedStatus": "CONFIGURATION_COMPLETE"},
    "a hook on the stack": {**OF_STACK, "ResourceStatus": None, "HookType": "AWS::EarlyValidation::Check"},
    "a resource with the stack's id": {**OF_STACK, "ResourceType": "Custom::AWS", "LogicalResourceId": "Theirs"},
}


@pytest.mark.parametrize("between", BETWEEN)
def test_deployment_and_rollback_end_with_events_that_are_no_new_operation(between: str) -> None:
    train = Stack(SIX, timings=QUICK)

    def before(call: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        def called(event: Mapping[str, Any]) -> Any:
            told = {"ResourceStatus": train.status, "Timestamp": train.now(), **BETWEEN[between]}
            told = {key: value for key, value in told.items() if value is not None}
            train.events.append({"EventId": f"event-{len(train.events)}", "StackName": "train", **told})
            return call(event)

        return called

    for name in ("on_event", "is_complete"):
        pytest.MonkeyPatch().setattr(train.provider, name, before(getattr(train.provider, name)))
    assert train.deploy(FIVE) == "complete", train.reasons
    assert train.deploy(SIX, fail="after") == "rolled back", train.reasons


@pytest.mark.parametrize("forged", ["a lower count", "other names"])
def test_template_confirms_where_events_show_nothing(forged: str) -> None:
    train = Stack(SIX, timings=QUICK)
    train.shows = lambda _: None
    newest = ids(train, "p5")[-1]
    attacked(train, FORGED[forged])
    assert train.deploy(FIVE) == "complete", train.reasons
    assert ended(train) == {newest}


# -- a record that is late, or cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "hint"), [("AccessDenied", DENIED_HINT), ("Throttling", "Find the cause, then deploy again")]
)
def test_events_that_cannot_be_read_fail_an_update_before_it_changes_anything(code: str, hint: str) -> None:
    train = Stack(SIX, timings=QUICK)
    began = train.clock.now()
    train.events_fail, train.events_fail_until = code, began + 400
    assert train.deploy(FIVE) == "rolled back"
    assert (
        f"Reading the stack's events (cloudformation:DescribeStackEvents): {code}: not now. {hint}" in train.reasons[0]
    )
    assert train.clock.now() - began < MINUTES[10]
    assert not ended(train)


def test_template_that_is_denied_fails_an_update_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Stack(SIX, timings=QUICK)
    train.shows = lambda _: None

    def denied(**_: str) -> Json:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetTemplate")

    monkeypatch.setattr(train, "get_template", denied)
    assert train.deploy(FIVE) == "rolled back"
    assert (
        f"Reading the stack's template (cloudformation:GetTemplate): AccessDenied: no. {DENIED_HINT}"
        in train.reasons[0]
    )
    assert not ended(train)


@pytest.mark.parametrize("late", [MINUTES[2], MINUTES[4]])
def test_deployment_ends_with_events_that_are_minutes_late(late: float) -> None:
    train = Stack(SIX, timings=QUICK)
    train.events_late = late
    newest = ids(train, "p5")[-1]
    assert train.deploy(FIVE) == "complete", train.reasons
    assert ended(train) == {newest}


def test_events_that_are_too_late_fail_an_update_within_minutes() -> None:
    """It cannot delete anything any more, so it does not wait for an hour."""
    train = Stack(SIX, timings=QUICK)
    train.clock.advance(MINUTES[10])
    train.events_late, began = MINUTES[10], train.clock.now()
    assert train.deploy(FIVE) == "rolled back"
    assert codes(train.reasons[0]) == ["scale-down-failed", "request-not-confirmed"]
    assert train.clock.now() - began < MINUTES[10]
    assert not ended(train)


def test_rollback_whose_events_fail_after_its_first_look_ends_when_they_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = Stack(SIX, timings=QUICK)
    here = set(ids(train, "p5"))
    seals = stack._seal_once

    def throttled(*known: Any) -> Any:
        raise ClientError({"Error": {"Code": "Throttling", "Message": "not now"}}, "DescribeStackEvents")

    def fails() -> None:
        monkeypatch.setattr(stack, "_seal_once", throttled)

    assert train.deploy(Template(groups=(group("p5", 8),)), fail="after", meanwhile=fails) == "rolled back", (
        train.reasons
    )
    assert seals is not stack._seal_once
    assert set(ids(train, "p5")) == here


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shows", [lambda text: text, lambda _: None, lambda text: text[:40]], ids=["whole", "absent", "cut"]
)
def test_change_costs_one_call_more(shows: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """on_event has compared the properties, so a poll reads the events once before its change, and no template."""
    train = Stack(SIX, timings=QUICK)
    train.shows = shows
    events, templates, poll = list[int](), list[bool](), train.provider.is_complete
    get_template = train.get_template

    def read_template(**named: str) -> Json:
        templates.append(train.polling)
        return get_template(**named)

    def is_complete(event: Mapping[str, Any]) -> Any:
        before = train.looks_at_events
        answer = poll(event)
        events.append(train.looks_at_events - before)
        return answer

    monkeypatch.setattr(train, "get_template", read_template)
    monkeypatch.setattr(train.provider, "is_complete", is_complete)
    assert train.deploy(FIVE) == "complete", train.reasons
    assert sum(events) == train.hyperpod.changes(principal=LAMBDA)["BatchDeleteClusterNodes"] == 1
    assert templates == ([] if shows("{}") == "{}" and shows("x" * 50) == "x" * 50 else [False])


# -- the record -------------------------------------------------------------------------------------------------------


def event(resource: str, status: str, properties: object = None) -> Json:
    """As DescribeStackEvents shows it."""
    shown = {} if properties is None else {"ResourceProperties": json.dumps(properties)}
    named = {"LogicalResourceId": resource, "ResourceType": PREPARE, "EventId": f"{resource}-{status}"}
    return {**named, "ResourceStatus": status, **shown}


STACK = {"PhysicalResourceId": STACK_ID, "EventId": "0a1b", "ResourceStatus": "UPDATE_IN_PROGRESS"}


def test_record_ends_at_the_stacks_own_newest_event() -> None:
    events = iter([event("B", "UPDATE_COMPLETE"), STACK, event("A", "UPDATE_COMPLETE")])
    record = read_record(events, STACK_ID, PREPARE, "A")
    assert record is not None
    assert (record.status, record.operation, record.properties) == ("", "0a1b", None)
    assert read_record(iter([event("A", "UPDATE_IN_PROGRESS")]), STACK_ID, PREPARE, "A") is None


@pytest.mark.parametrize("kind", [FINALIZE, None])
def test_record_is_of_the_type_that_the_event_says(kind: str | None) -> None:
    """prepare releases the nodes that finalize deletes, and both have the same properties but for one."""
    shown = {**event("A", "UPDATE_IN_PROGRESS"), "ResourceType": kind}
    record = read_record(iter([shown, STACK]), STACK_ID, PREPARE, "A")
    assert record is not None
    assert not record.status


def test_old_properties_are_those_of_the_last_success_and_of_failures_since() -> None:
    older = [
        event("A", "UPDATE_FAILED", {"n": "3"}),
        event("A", "UPDATE_COMPLETE", {"n": "2"}),
        event("A", "CREATE_COMPLETE", {"n": "1"}),
    ]
    assert list(earlier_properties(iter(older), "A")) == [{"n": "3"}, {"n": "2"}]


@pytest.mark.parametrize(
    ("recorded", "sent", "same"),
    [
        ({"MaxNodes": 16, "Drain": True}, {"MaxNodes": "16", "Drain": "true"}, True),
        ({"ServiceToken": "a", "Names": []}, {"ServiceToken": "b", "Retry": ""}, True),
        ({"Names": ["a", "b"]}, {"Names": ["b", "a"]}, False),
        ({"Names": ["a"]}, {"Names": "a"}, False),
        ({"Retry": "{{resolve:ssm:/x}}-1"}, {"Retry": "ami-0-1"}, True),
        ({"Groups": ['{"Role":"****","Count":2}']}, {"Groups": ['{"Role":"arn:x","Count":2}']}, True),
        ({"Groups": ['{"Role":"****","Count":2}']}, {"Groups": ['{"Role":"x","Count":0,"Y":"","Count":2}']}, False),
        ({"G": {"Fn::Join": ["", ['{"R":"', {"Fn::GetAtt": ["R", "Arn"]}, '"}']]}}, {"G": '{"R":"arn:x"}'}, True),
        ({"G": {"Fn::Join": ["", ['{"R":"', {"Ref": "R"}, '"}']]}}, {"G": '{"R":"x","N":"1"}'}, False),
        ({"Names": {"Ref": "Parameter"}}, {"Names": ["i-1"]}, False),
        ({"Tag": "M?nchen?"}, {"Tag": "M\u00fcnchen?"}, True),
        ({"Groups": ['{"Tag":"?"}']}, {"Groups": ['{"Tag":""}']}, False),
        ({"MaxNodes": "1?"}, {"MaxNodes": "16"}, False),
    ],
)
def test_recorded_and_sent_properties_are_compared_by_their_meaning(recorded: Json, sent: Json, same: bool) -> None:
    assert agrees(recorded, sent) is same


def test_template_without_the_resource() -> None:
    assert template_properties("Resources: {}", "A") is None
    assert not agrees(None, {"n": "1"})
