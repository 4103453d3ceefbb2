"""Answers that CloudFormation waits for. Their senders do not sign them, but send them to an address that cannot be
guessed.

On AWS these are presigned addresses of S3. Here the last part of the path is a random UUID.
"""

from __future__ import annotations

import json
from typing import Any

from ministack.services.cloudformation import custom_resource, wait_conditions  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.gate import Reply, Request

RESOURCES = "/_ministack/cfn-response/"
SIGNALS = str(wait_conditions.SIGNAL_PATH)
Json = Any


async def of_a_resource(request: Request) -> Reply:
    """A custom resource's answer. The reply does not show whether the address was known."""
    custom_resource.deliver_response(request.path.removeprefix(RESOURCES), _object(request.body))
    return 200, {}, b""


async def of_a_wait_condition(request: Request) -> Reply:
    """A wait condition's signal."""
    token = request.path.removeprefix(SIGNALS)
    if not wait_conditions.has_handle(token):
        return _refused(404, "unknown wait condition handle")
    if request.content_type:
        return _refused(403, "the Content-Type header must be an empty string or omitted")
    try:
        wait_conditions.deliver_signal(token, _object(request.body))
    except ValueError as error:
        return _refused(400, str(error))
    return 200, {}, b""


def _object(body: bytes) -> Json:
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _refused(status: int, message: str) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps({"message": message}).encode()
