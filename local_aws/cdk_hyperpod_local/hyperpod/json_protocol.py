"""The JSON 1.1 protocol of the SageMaker API: bytes to bytes, without a server."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

from .api import ACCOUNT, REGION
from .errors import ApiError

if TYPE_CHECKING:
    from .api import HyperPod

CONTENT_TYPE = "application/x-amz-json-1.1"

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


def handle_json(
    hyperpod: HyperPod,
    target: str,
    body: bytes,
    *,
    principal: str = "arn:aws:iam::000000000000:root",
    account: str = ACCOUNT,
    region: str = REGION,
) -> Reply:
    """Serve one request.

    `target`: the X-Amz-Target header ("SageMaker.CreateCluster"), or only the operation. Never raises ApiError: errors
    become replies. LostReplyError and CallerKilled are raised: close the connection without a reply.
    """
    operation = target.rpartition(".")[2]
    try:
        try:
            params = json.loads(body or b"{}")
        except ValueError as error:
            raise ApiError("SerializationException", f"The request body is no JSON: {error}") from error
        if not isinstance(params, dict):
            raise ApiError("SerializationException", "The request body is no JSON object")
        response = hyperpod.call(operation, params, principal=principal, account=account, region=region)
    except ApiError as error:
        # Modelled exceptions have the member "Message", the others "message" (botocore: shape ResourceNotFound).
        # Clients read both.
        answer = {"__type": error.code, "message": error.message, "Message": error.message}
        return error.http_status, _headers(hyperpod), json.dumps(answer).encode()
    return 200, _headers(hyperpod), json.dumps(response, default=_timestamp).encode()


def _headers(hyperpod: HyperPod) -> dict[str, str]:
    request_id = f"00000000-0000-4000-8000-{len(hyperpod.journal):012x}"
    return {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id}


def _timestamp(value: Any) -> float:
    """Seconds since 1970: the protocol's form of timestamps."""
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    raise TypeError(f"{value!r} has no JSON form")  # pragma: no cover
