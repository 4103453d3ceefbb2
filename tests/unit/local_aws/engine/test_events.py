"""Events of an update in the engine's CloudFormation: only resources that changed, with their physical ids."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any


def parameter(value: str) -> Json:
    return {"Type": "AWS::SSM::Parameter", "Properties": {"Name": "/events/changed", "Type": "String", "Value": value}}


def stack(value: str, **more: Json) -> Json:
    return {"Same": {"Type": "AWS::SNS::Topic", "Properties": {}}, "Changed": parameter(value), **more}


def events(aws: LocalAws, since: int = 0) -> list[tuple[str, str, str]]:
    """Oldest first: resource, physical id, status."""
    pages = aws.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName="events")
    found = [event for page in pages for event in page["StackEvents"]][::-1]
    keys = ("LogicalResourceId", "PhysicalResourceId", "ResourceStatus")
    return [(event[keys[0]], event.get(keys[1], ""), event[keys[2]]) for event in found[since:]]


def test_an_update_has_events_of_changed_resources_only(engine: LocalAws) -> None:
    assert templates.deploy(engine, "events", stack("1")).status == "CREATE_COMPLETE"
    made = len(events(engine))
    changed = templates.physical_id(engine, "events", "Changed")
    assert templates.deploy(engine, "events", stack("2")).status == "UPDATE_COMPLETE"
    recorded = events(engine, made)
    identity = recorded[0][1]
    assert recorded == [
        ("events", identity, "UPDATE_IN_PROGRESS"),
        ("Changed", changed, "UPDATE_IN_PROGRESS"),
        ("Changed", changed, "UPDATE_COMPLETE"),
        ("events", identity, "UPDATE_COMPLETE"),
    ]
    updated = made + len(recorded)
    broken = {"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}, "DependsOn": "Changed"}
    failed = templates.deploy(engine, "events", stack("3", Broken=broken))
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE"
    assert [event for event in events(engine, updated) if event[0] in ("Same", "Changed")] == [
        ("Changed", changed, "UPDATE_IN_PROGRESS"),
        ("Changed", changed, "UPDATE_COMPLETE"),
    ] * 2
