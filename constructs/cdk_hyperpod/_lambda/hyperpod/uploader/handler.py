"""The Lambda's entry point. CloudFormation invokes it directly, and waits for the answer.

Nothing of an event is logged (../common/answer.py). A failure is not logged either: the stack's events show it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..common.answer import answer, identify
from ..common.clients import client
from .uploader import Settings, Uploader, UploadError

PHYSICAL_ID = "hyperpod-lifecycle-scripts"

_uploader = Uploader(lambda: client("s3"))


def handle(event: Mapping[str, Any], context: object) -> None:
    """Lambda entry point. After an error that is not caught here, Lambda invokes it twice more."""
    answer(event, decide(event, _uploader, os.environ))


def decide(event: Mapping[str, Any], uploader: Uploader, environment: Mapping[str, str]) -> dict[str, str]:
    """The answer to CloudFormation. A Delete does nothing, because earlier prefixes stay (docs/adr/0005)."""
    identity = {**identify(event, PHYSICAL_ID), "Status": "SUCCESS"}
    if event["RequestType"] == "Delete":
        return identity
    try:
        uploader.upload(event, Settings.of(environment))
    except UploadError as error:
        return {**identity, "Status": "FAILED", "Reason": str(error)}
    return identity
