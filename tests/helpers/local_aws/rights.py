"""A template's functions without one of their permissions."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from typing import Any

Json = Any
_POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")


def without(action: str) -> Callable[[Json], None]:
    """An edit: no function of the template may do `action` any more. It fails if none was allowed to."""

    def edit(template: Json) -> None:
        found = False
        for statement in _statements(template["Resources"]):
            granted = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            left = [entry for entry in granted if not fnmatch.fnmatchcase(action.lower(), entry.lower())]
            found |= left != granted
            # A statement must have an action, and this one has no effect.
            statement["Action"] = left or ["none:Nothing"]
        assert found, f"no function of the template may do {action}"

    return edit


def _statements(resources: Json) -> Iterator[Json]:
    """The policies that allow something to a function's role: its own, and those of resources that name it."""
    roles = [name for name, item in resources.items() if _is_of_a_function(item)]
    for item in resources.values():
        properties = item.get("Properties", {})
        if item["Type"] in _POLICIES and any({"Ref": role} in properties.get("Roles", []) for role in roles):
            documents = [properties["PolicyDocument"]]
        elif _is_of_a_function(item):
            documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
        elif item["Type"] == "AWS::S3::BucketPolicy":
            documents = [{"Statement": [s for s in properties["PolicyDocument"]["Statement"] if _names(s, roles)]}]
        else:
            continue
        yield from (s for document in documents for s in document["Statement"] if s["Effect"] == "Allow")


def _is_of_a_function(resource: Json) -> bool:
    if resource["Type"] != "AWS::IAM::Role":
        return False
    trusted = resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    return any(statement["Principal"] == {"Service": "lambda.amazonaws.com"} for statement in trusted)


def _names(statement: Json, roles: list[str]) -> bool:
    named = statement["Principal"].get("AWS") if isinstance(statement["Principal"], dict) else None
    return any({"Fn::GetAtt": [role, "Arn"]} in (named if isinstance(named, list) else [named]) for role in roles)
