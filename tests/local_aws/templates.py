"""Small stacks without CDK: a template in, a status and the reasons of what failed out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local_aws.session import LocalAws

Json = Any
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    status: str
    outputs: Mapping[str, str]
    reasons: tuple[str, ...]
    """Of this operation's failed resources, in order."""


def deploy(aws: LocalAws, name: str, resources: Json, **sections: Json) -> Outcome:
    """Create or update a stack and wait for its rest."""
    client = aws.client("cloudformation")
    exists = name in {stack["StackName"] for stack in client.describe_stacks()["Stacks"]}
    change = client.update_stack if exists else client.create_stack
    seen = _events(client, name) if exists else []
    change(StackName=name, TemplateBody=template(resources, **sections), Capabilities=["CAPABILITY_NAMED_IAM"])
    return _rest(client, name, len(seen))


def template(resources: Json, **sections: Json) -> str:
    return json.dumps({"Resources": resources, **sections})


def delete(aws: LocalAws, name: str) -> Outcome:
    """Delete a stack and wait; status DELETE_COMPLETE or DELETE_FAILED."""
    client = aws.client("cloudformation")
    (stack,) = client.describe_stacks(StackName=name)["Stacks"]
    seen = _events(client, stack["StackId"])
    client.delete_stack(StackName=name)
    return _rest(client, stack["StackId"], len(seen))


def physical_id(aws: LocalAws, name: str, logical_id: str) -> str:
    detail = aws.client("cloudformation").describe_stack_resource(StackName=name, LogicalResourceId=logical_id)
    return str(detail["StackResourceDetail"]["PhysicalResourceId"])


def _rest(client: Any, name: str, seen: int) -> Outcome:
    limit = time.monotonic() + _LONGEST_SECONDS
    while True:
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
        events = _events(client, name)[seen:]
        if events and not stack["StackStatus"].endswith("IN_PROGRESS"):
            break
        assert time.monotonic() < limit, f"{name} is {stack['StackStatus']} after {_LONGEST_SECONDS:.0f} s"
        time.sleep(0.1)
    failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
    return Outcome(
        status=stack["StackStatus"],
        outputs={output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])},
        reasons=tuple(event.get("ResourceStatusReason", "") for event in failed),
    )


def _events(client: Any, name: str) -> list[Json]:
    """Oldest first."""
    pages = client.get_paginator("describe_stack_events").paginate(StackName=name)
    return [event for page in pages for event in page["StackEvents"]][::-1]
