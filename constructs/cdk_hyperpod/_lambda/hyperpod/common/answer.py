"""Answers CloudFormation if it invokes a function directly, without CDK's framework: at an address in the event.

Nothing of an event is logged, because a reader of that address could answer in the function's place.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any


def identify(event: Mapping[str, Any], physical_id: str) -> dict[str, str]:
    """The part of every answer that names the request and the resource. `physical_id`: the id of a resource that has none yet."""
    reply: dict[str, str] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    return {**reply, "PhysicalResourceId": event.get("PhysicalResourceId", physical_id)}


def answer(event: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    """Send the answer to where CloudFormation reads it: a pre-signed address of S3, signed for an empty content type."""
    body = json.dumps(reply).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""})
    with urllib.request.urlopen(request, timeout=30):
        pass
