"""SNS calls KMS with the publisher's identity for a topic with a customer key. ministack does not."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from ministack import app  # type: ignore[import-not-found]
from ministack.services import sns  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.seam import policies
from cdk_hyperpod_local.engine.seam import services as requests

Json = Any
_NEEDED = ("kms:GenerateDataKey", "kms:Decrypt")
_PUBLISHING = ("Publish", "PublishBatch")


def install() -> None:
    handle = app.SERVICE_HANDLERS["sns"]

    async def checked(method: str, path: str, headers: Json, body: bytes, query: Json) -> requests.Reply:
        refusal = _refusal(headers, body, query)
        reply: requests.Reply = refusal or await handle(method, path, headers, body, query)
        return reply

    app.SERVICE_HANDLERS["sns"] = checked


def _refusal(headers: Json, body: bytes, query: Json) -> requests.Reply | None:
    given = {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    if given.get("Action") not in _PUBLISHING:
        return None
    key = policies.topic_key(given.get("TopicArn", ""))
    if key is None:
        return None
    context = {"kms:ViaService": f"sns.{seam.region()}.amazonaws.com"}
    messages = (requests.denied(headers, query, action, key, context) for action in _NEEDED)
    message = next((message for message in messages if message), None)
    reply: requests.Reply | None = sns._error("KMSAccessDenied", message, 400) if message else None
    return reply
