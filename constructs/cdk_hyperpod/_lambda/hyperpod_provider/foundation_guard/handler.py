"""The Lambda's entry point. CloudFormation invokes it itself, and waits for the answer at an address that is in the event.

Nothing of an event is logged: whoever reads that address could answer in the function's place. Nor is a refusal, which the
stack's events tell: the CDK CLI prints the log below it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from ..handler import client
from .guard import Guard, GuardError

PHYSICAL_ID = "hyperpod-foundation-guard"

_guard = Guard(client)


def handle(event: Mapping[str, Any], context: object) -> None:
    """Lambda entry point. What is not caught here makes Lambda invoke it again, twice."""
    answer(event, decide(event, _guard))


def decide(event: Mapping[str, Any], guard: Guard) -> dict[str, str]:
    """What CloudFormation is told."""
    told = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")} | {
        "PhysicalResourceId": event.get("PhysicalResourceId", PHYSICAL_ID)
    }
    try:
        guard.check(event)
    except GuardError as error:
        return {**told, "Status": "FAILED", "Reason": str(error)}
    return {**told, "Status": "SUCCESS"}


def answer(event: Mapping[str, Any], told: Mapping[str, str]) -> None:
    """Put the answer where CloudFormation reads it: a pre-signed address of S3, signed for an empty content type."""
    body = json.dumps(told).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""})
    with urllib.request.urlopen(request, timeout=30):
        pass
