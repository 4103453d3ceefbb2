"""`cfnresponse`. CloudFormation puts it beside a function's inline code only, and so does the engine.

This file is the module itself, so it imports nothing of the project's.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

SUCCESS = "SUCCESS"
FAILED = "FAILED"


def send(
    event: dict[str, Any],
    context: Any,
    responseStatus: str,
    responseData: dict[str, Any],
    physicalResourceId: str | None = None,
    noEcho: bool = False,
    reason: str | None = None,
) -> None:
    """Answer CloudFormation's request."""
    log = f"See the details in CloudWatch Log Stream: {context.log_stream_name}"
    answer = {
        "Status": responseStatus,
        "Reason": reason or log,
        "PhysicalResourceId": physicalResourceId or context.log_stream_name,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "NoEcho": noEcho,
        "Data": responseData,
    }
    request = urllib.request.Request(
        event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT", headers={"content-type": ""}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            print("Status code:", reply.status)
    except OSError as error:
        print("send(..) failed executing urlopen(..):", error)
