"""The error responses of AWS's services, each in its own protocol, from which botocore makes its errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]

# Reason -> protocol, or service if it has its own codes -> HTTP status and code.
# Sources: "Common error types" of SageMaker's and CloudFormation's API references, "Error codes for the Amazon EC2 API", S3's "Error
# responses", EKS' "Common errors", SNS' "Publish", Errors.
ANSWERS: dict[str, dict[str, tuple[int, str]]] = {
    "expired": {
        "json": (400, "ExpiredTokenException"),
        "query": (403, "ExpiredToken"),
        "ec2": (400, "RequestExpired"),
        "rest-xml": (400, "ExpiredToken"),
        "rest-json": (403, "ExpiredTokenException"),
    },
    "unknown": {
        "json": (400, "UnrecognizedClientException"),
        "query": (403, "InvalidClientTokenId"),
        "ec2": (401, "AuthFailure"),
        "rest-xml": (403, "InvalidAccessKeyId"),
        "rest-json": (403, "UnrecognizedClientException"),
    },
    "denied": {
        "json": (400, "AccessDeniedException"),
        "query": (403, "AccessDenied"),
        "ec2": (403, "UnauthorizedOperation"),
        "sns": (403, "AuthorizationError"),
        "rest-xml": (403, "AccessDenied"),
        "rest-json": (403, "AccessDeniedException"),
    },
    "throttled": {
        "json": (400, "ThrottlingException"),
        "query": (400, "Throttling"),
        "ec2": (503, "RequestLimitExceeded"),
        "rest-xml": (503, "SlowDown"),
        "rest-json": (429, "TooManyRequestsException"),
        "service-quotas": (400, "TooManyRequestsException"),
    },
    "broken": {
        "json": (500, "InternalFailure"),
        "query": (500, "InternalFailure"),
        "ec2": (500, "InternalError"),
        "rest-xml": (500, "InternalError"),
        "rest-json": (500, "InternalFailure"),
    },
}
MESSAGE = "Rate exceeded"


def answer(why: str, service: str, protocol: str) -> AWSResponse:
    """The response of a service that refuses."""
    kinds = ANSWERS[why]
    status, code = kinds.get(service, kinds[protocol])
    headers = {"x-amzn-RequestId": "0a1b2c3d"}
    match protocol:
        case "json":
            body = json.dumps({"__type": f"com.amazonaws.{service}#{code}", "message": MESSAGE})
        case "rest-json":
            headers["x-amzn-ErrorType"] = f"{code}:http://internal.amazon.com/"
            body = json.dumps({"message": MESSAGE})
        case "query":
            body = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{MESSAGE}</Message></Error>"
                "<RequestId>0a1b2c3d</RequestId></ErrorResponse>"
            )
        case "ec2":
            body = (
                f"<Response><Errors><Error><Code>{code}</Code><Message>{MESSAGE}</Message></Error></Errors>"
                "<RequestID>0a1b2c3d</RequestID></Response>"
            )
        case _:
            body = f"<Error><Code>{code}</Code><Message>{MESSAGE}</Message><RequestId>0a1b2c3d</RequestId></Error>"
    return AWSResponse("https://aws", status, headers, _Raw(body.encode()))


class _Raw(io.BytesIO):
    """A body in the form of urllib3."""

    def stream(self, **_: object) -> Any:
        yield self.read()


def intercept(patch: pytest.MonkeyPatch, meet: Callable[[str], str | None]) -> None:
    """From now on, call `meet` with each attempt, as SERVICE.Operation. It returns the reason of a refusal; None: the
    request is served.

    The attempts, the waits between them and the errors are botocore's own, but no wait takes time.
    """
    patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))  # only botocore's time.sleep
    make = botocore.session.Session.create_client

    def create(session: Any, service: str, *arguments: Any, **more: Any) -> Any:
        client = make(session, service, *arguments, **more)
        protocol = client.meta.service_model.metadata["protocol"]

        def before(event_name: str, **_: object) -> AWSResponse | None:
            operation = event_name.rpartition(".")[2]
            why = meet(f"{service}.{operation}")
            return None if why is None else answer(why, service, protocol)

        client.meta.events.register("before-send", before)
        return client

    patch.setattr(botocore.session.Session, "create_client", create)
