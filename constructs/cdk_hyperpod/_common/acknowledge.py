"""Acknowledges findings of cdk-nag and of CDK's own template checks, each with its reason.

An acknowledgement is metadata of the cloud assembly; an app that does not run these checks pays nothing for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from .pseudo import ACCOUNT_ID, PARTITION, REGION

_PSEUDO_PARAMETERS = {PARTITION: "AWS::Partition", ACCOUNT_ID: "AWS::AccountId", REGION: "AWS::Region"}


def acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """Acknowledge rules on a construct and all that is in it."""
    if reasons:
        Validations.of(construct).acknowledge(
            *[Acknowledgment(id=rule, reason=reason) for rule, reason in reasons.items()]
        )


def without_traces(construct: IConstruct) -> None:
    """Omit stack traces from the notes and warnings of a construct, and of what is added to it later.

    A trace would show a line of CDK's own code in Node, because Python's lines are unknown there.
    """
    construct.node.set_context("aws:cdk:disable-stack-trace", True)


def wildcard(kind: str, text: str) -> str:
    """The id of cdk-nag's finding for one wildcard. `kind`: Action or Resource. `text`: contains no tokens but pseudo parameters."""
    for token, name in _PSEUDO_PARAMETERS.items():
        text = text.replace(token, f"<{name}>")
    return f"AwsSolutions-IAM5[{kind}::{text}]"


def managed_policy_finding(name: str) -> str:
    """The id of cdk-nag's finding for a service-role policy of AWS."""
    return f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/{name}]"


def policy_wildcards(statements: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of cdk-nag's findings for every wildcard of a resolved policy document's statements."""
    found = []
    for statement in statements:
        for kind in ("Action", "Resource"):
            values = statement.get(kind, [])
            texts = [_flat(value) for value in (values if isinstance(values, list) else [values])]
            found += [f"AwsSolutions-IAM5[{kind}::{text}]" for text in texts if "*" in text]
    return list(dict.fromkeys(found))


def wildcards_of_cdk(scope: IConstruct) -> list[str]:
    """The same for every policy that CDK makes in a construct of its own."""
    stack = Stack.of(scope)
    documents = [child.document for child in scope.node.find_all() if isinstance(child, iam.Policy)]
    return policy_wildcards(each for document in stack.resolve(documents) for each in document["Statement"])


def _flat(value: Any) -> str:
    """A resolved value as cdk-nag writes it: references in angle brackets, any other function as JSON."""
    match value:
        case {"Fn::Join": [str(separator), [*parts]]}:
            return separator.join(_flat(part) for part in parts)
        case {"Fn::Sub": str(text)}:
            return text.replace("${", "<").replace("}", ">")
        case {"Ref": str(name)}:
            return f"<{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{name}.{attribute}>"
        case dict():
            return json.dumps(value, separators=(",", ":"))
        case _:
            return str(value)
