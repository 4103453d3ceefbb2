"""Small stacks without CDK: from a template to a status and the reasons of failures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from cdk_hyperpod_local.session import LocalAws

Json = Any
_LONGEST_SECONDS = 180.0
"""As long as the CLI's limit: a function that gives up after an hour of its own time does so within a minute."""

_LONGEST_BODY = 51_200
"""Maximum bytes that CloudFormation accepts in a call."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    status: str
    outputs: Mapping[str, str]
    failed: tuple[str, ...]
    """What failed in this operation, in order: resources, and the stack itself."""
    reasons: tuple[str, ...]
    """Their reasons."""


def deploy(aws: LocalAws, name: str, resources: Json, **sections: Json) -> Outcome:
    """Create or update a stack of these resources, and wait until the operation has ended."""
    return deploy_whole(aws, name, {"Resources": resources, **sections})


def deploy_whole(aws: LocalAws, name: str, whole: Json, *, role: str | None = None) -> Outcome:
    """Create or update a stack from its template, and wait until the operation has ended.

    `role`: the ARN of its execution role; absent: none (an update uses the last one's).
    """
    client = aws.client("cloudformation")
    exists = name in {stack["StackName"] for stack in client.describe_stacks()["Stacks"]}
    change = client.update_stack if exists else client.create_stack
    seen = _events(client, name) if exists else []
    capabilities = ["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
    by_role = {"RoleARN": role} if role else {}
    change(StackName=name, Capabilities=capabilities, **_given(aws, name, whole), **by_role)
    return _rest(client, name, len(seen))


def _given(aws: LocalAws, name: str, whole: Json) -> dict[str, str]:
    """The template itself, or its address: a longer one is uploaded to the bootstrap's bucket, as with the CLI."""
    body = json.dumps(whole, separators=(",", ":"))
    if len(body.encode()) <= _LONGEST_BODY:
        return {"TemplateBody": body}
    bucket = f"cdk-hnb659fds-assets-{aws.account}-{aws.region}"
    aws.client("s3").put_object(Bucket=bucket, Key=f"{name}.json", Body=body.encode())
    return {"TemplateURL": f"https://{bucket}.s3.{aws.region}.amazonaws.com/{name}.json"}


def template(resources: Json, **sections: Json) -> str:
    return json.dumps({"Resources": resources, **sections})


def delete(aws: LocalAws, name: str) -> Outcome:
    """Delete a stack and wait. The status is DELETE_COMPLETE or DELETE_FAILED."""
    client = aws.client("cloudformation")
    (stack,) = client.describe_stacks(StackName=name)["Stacks"]
    seen = _events(client, stack["StackId"])
    client.delete_stack(StackName=name)
    return _rest(client, stack["StackId"], len(seen))


def continue_rollback(aws: LocalAws, name: str) -> Outcome:
    """Continue the rollback of a stack that is in UPDATE_ROLLBACK_FAILED, and wait."""
    client = aws.client("cloudformation")
    seen = _events(client, name)
    client.continue_update_rollback(StackName=name)
    return _rest(client, name, len(seen))


def part(whole: Json, *resource_types: str) -> Json:
    """The template with the resources of these types, their dependencies, and the permissions for them."""
    resources = whole["Resources"]
    wanted = {name for name, item in resources.items() if item["Type"] in resource_types}
    while True:
        text = json.dumps([resources[name] for name in wanted])
        named = {name for name in resources if f'"{name}"' in text}
        # A policy refers to its role or bucket, not the reverse.
        of_them = {name for name, item in resources.items() if "Policy" in item["Type"] and _belongs(item, wanted)}
        if named | of_them <= wanted:
            break
        wanted |= named | of_them
    left = {name: deepcopy(resources[name]) for name in resources if name in wanted}
    return {**{key: value for key, value in whole.items() if key != "Outputs"}, "Resources": left}


def _belongs(policy: Json, names: set[str]) -> bool:
    properties = policy["Properties"]
    targets = [*properties.get("Roles", []), properties.get("Bucket")]
    return any({"Ref": name} in targets for name in names)


def physical_id(aws: LocalAws, name: str, logical_id: str) -> str:
    detail = aws.client("cloudformation").describe_stack_resource(StackName=name, LogicalResourceId=logical_id)
    return str(detail["StackResourceDetail"]["PhysicalResourceId"])


def _rest(client: Any, name: str, seen: int) -> Outcome:
    limit = time.monotonic() + _LONGEST_SECONDS
    while True:
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
        # A stack that many tests change has many events, so they are read once, when the operation has ended.
        if not stack["StackStatus"].endswith("IN_PROGRESS") and (events := _events(client, name)[seen:]):
            break
        assert time.monotonic() < limit, f"{name} is {stack['StackStatus']} after {_LONGEST_SECONDS:.0f} s"
        time.sleep(0.1)
    failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
    return Outcome(
        status=stack["StackStatus"],
        outputs={output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])},
        failed=tuple(event["LogicalResourceId"] for event in failed),
        reasons=tuple(event.get("ResourceStatusReason", "") for event in failed),
    )


def _events(client: Any, name: str) -> list[Json]:
    """Oldest first."""
    pages = client.get_paginator("describe_stack_events").paginate(StackName=name)
    return [event for page in pages for event in page["StackEvents"]][::-1]
