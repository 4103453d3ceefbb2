"""A role that may invoke functions (lambda:InvokeFunction, as in AWSLambdaRole), and nothing else.

Whoever may invoke a function can write its event. This party knows more than it could: the properties of the real requests.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import PREPARE
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import STANDING
from helpers.deployments.permissions import add_role
from helpers.deployments.steps import Step
from helpers.local_aws.rehearsal import Rehearsal, broken, resized, taking

Json = Any
ROLE = "only-invokes-the-guard"


@dataclass(frozen=True)
class Party:
    """The role, and the functions that it finds."""

    functions: Any
    """A client with its session."""
    names: tuple[str, ...]

    def invoke(self, suffix: str, event: Json) -> Json:
        """What the function with this ending answers."""
        (name,) = (name for name in self.names if name.endswith(suffix))
        reply = self.functions.invoke(FunctionName=name, Payload=json.dumps(event).encode())
        return json.loads(reply["Payload"].read())


@pytest.fixture(scope="module")
def party(standing: Rehearsal) -> Party:
    aws: LocalAws = standing.aws
    add_role(aws, ROLE, "lambda:InvokeFunction")
    pages = aws.client("lambda").get_paginator("list_functions").paginate()
    names = tuple(function["FunctionName"] for page in pages for function in page["Functions"])
    return Party(aws.client_as(ROLE, "lambda"), tuple(name for name in names if standing.cluster[9:40] in name))


# -- the guard --------------------------------------------------------------------------------------------------------

STATE: Json = {
    "RollingBack": False,
    "StackUpdatedAt": None,
    "Reached": None,
    "Pending": True,
    "Planned": 0,
    "Picked": [],
    "Unlaunched": {},
    "Newest": None,
    "Settling": False,
    "Seal": "0" * 64,
}


def forged(life: Rehearsal, real: Json) -> Iterator[Json]:
    """Events that would delete all P5 nodes but one. `real`: what CloudFormation sent prepare last."""
    properties = copy.deepcopy(real["ResourceProperties"])
    specs = [json.loads(text) for text in properties["Groups"]]
    for spec in specs:
        if spec["InstanceGroupName"] == "p5":
            spec["InstanceCount"], spec["MinInstanceCount"] = 1, 0
    others = {**properties, "Groups": [json.dumps(spec) for spec in specs], "MaxNodes": "6000"}
    named = {**others, "NodesToDelete": list(life.nodes("p5"))[:3]}

    def now() -> Json:
        return {**STATE, "StartedAt": time.time(), "LookedAt": time.time()}

    event = real | {"OldResourceProperties": properties, "PhysicalResourceId": "hyperpod-scale-down"}
    update = {**event, "RequestType": "Update"}
    for wanted in (others, named):
        yield {**update, **now(), "ResourceProperties": wanted}
    yield {**update, **now(), "ResourceProperties": others, "RollingBack": True, "Reached": [life.name]}
    yield {**event, **now(), "ResourceProperties": others, "RequestType": "Create"}
    yield {**update, **now(), "ResourceProperties": others, "StackId": f"{real['StackId']}0"}
    yield {**update, **now(), "ResourceProperties": others, "LogicalResourceId": "Another"}
    yield {**update, **now()}


def replay(life: Rehearsal, party: Party) -> None:
    """The last event of prepare once more, through both functions."""
    real = real_event(life)
    old = {"OldResourceProperties": real["ResourceProperties"], "PhysicalResourceId": "hyperpod-scale-down"}
    replayed = {**real, **old, "RequestType": "Update"}
    party.invoke("-iscomplete", {**replayed, **party.invoke("-onevent", replayed)})


def real_event(life: Rehearsal) -> Json:
    """The last event of prepare, as the stack's events show it."""
    events = life.aws.client("cloudformation").describe_stack_events(StackName=life.cluster)["StackEvents"]
    # Tests of other files have the same cluster, and some deploy prepare with other properties.
    found = next(
        event
        for event in events
        if event["ResourceType"] == PREPARE and '"Groups"' in event.get("ResourceProperties", "")
    )
    return {
        "ResourceType": PREPARE,
        "StackId": found["StackId"],
        "LogicalResourceId": found["LogicalResourceId"],
        "RequestId": "forged",
        "ResponseURL": "https://localhost:9/forged",
        "ResourceProperties": json.loads(found["ResourceProperties"]),
    }


def fails_after_the_cluster(template: Json) -> None:
    names = {resource["Type"]: name for name, resource in template["Resources"].items()}
    broken({"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}}, after=[names["AWS::SageMaker::Cluster"]])(
        template
    )


def test_a_forged_event_deletes_nothing_between_deployments(life: Rehearsal, party: Party) -> None:
    step, real = Step(life), real_event(life)
    for event in forged(life, real):
        party.invoke("-iscomplete", event)
    replay(life, party)
    assert step.calls() == {}
    assert step.ended() == {}


@pytest.mark.parametrize("failing", [False, True], ids=["update", "rollback"])
def test_a_forged_event_changes_nothing_of_a_deployment(life: Rehearsal, party: Party, failing: bool) -> None:
    """The named node is deleted, or in a rollback launched ones, and no other."""
    named = next(iter(life.nodes("p5")))
    before = set(life.nodes())
    wanted = resized(STANDING, "p5", 8) if failing else taking(resized(STANDING, "p5", 5), nodes=[named])
    life.aws.change_hyperpod(timings={"shut_down": 8})
    step, during = Step(life), 0
    edit = fails_after_the_cluster if failing else None
    with ThreadPoolExecutor() as pool:
        deployment = pool.submit(life.change, wanted, edit=edit)
        while not deployment.done():
            for event in forged(life, real_event(life)):
                party.invoke("-iscomplete", event)
                during += life.status().endswith("_IN_PROGRESS")
            replay(life, party)
        outcome = deployment.result()
    assert outcome.status == ("UPDATE_ROLLBACK_COMPLETE" if failing else "UPDATE_COMPLETE"), outcome.reasons
    assert during
    assert step.ended().keys() & before == (set() if failing else {named})


@pytest.mark.parametrize("shows", ["absent", "cut", "late"])
def test_a_deployment_ends_whatever_the_events_show(life: Rehearsal, shows: str) -> None:
    life.aws.change_hyperpod(handler={"events_show": shows})
    named = next(iter(life.nodes("p5")))
    step = Step(life)
    outcome = life.change(taking(resized(STANDING, "p5", 5), nodes=[named]))
    assert outcome.status == "UPDATE_COMPLETE", outcome.reasons
    assert step.ended() == {named: "named"}
