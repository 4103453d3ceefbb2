"""A boto3 client in this process: botocore validates, serializes and parses, and the simulated HyperPod answers."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from . import api_shapes
from .api import OPERATIONS
from .botocore_imports import (
    ClientExceptionsFactory,
    ConnectionClosedError,
    ParamValidationError,
    ParamValidator,
    create_parser,
    create_serializer,
)
from .errors import LostReplyError
from .json_protocol import handle_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import HyperPod


def snake_case(operation: str) -> str:
    """boto3's method name of an operation: ListClusterNodes -> list_cluster_nodes."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).lower()


METHODS = {snake_case(operation): operation for operation in OPERATIONS}
_EXCEPTIONS = ClientExceptionsFactory()


class Client:
    """A replacement of boto3.client("sagemaker"): the simulated operations, keyword arguments, plain responses.

    Errors are botocore's: ClientError with the modelled subclasses (`client.exceptions.ResourceNotFound`),
    ParamValidationError before anything is sent, ConnectionClosedError for a lost reply. It does not retry, so a test
    counts exactly the calls of the code under test.
    """

    def __init__(self, hyperpod: HyperPod, *, principal: str, account: str, region: str) -> None:
        """See HyperPod.client."""
        self._hyperpod = hyperpod
        self._as = {"principal": principal, "account": account, "region": region}
        self.exceptions = _EXCEPTIONS.create_client_exceptions(api_shapes.service_model())
        self.meta = SimpleNamespace(
            region_name=region, service_model=api_shapes.service_model(), method_to_api_mapping=METHODS
        )

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = METHODS.get(name)
        if operation is None:
            raise AttributeError(f"the simulated client has no {name}; it has {', '.join(sorted(METHODS))}")

        def method(**params: Any) -> dict[str, Any]:
            return self._call(operation, params)

        method.__name__ = name
        return method

    def _call(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        operation_model = api_shapes.operation_model(operation)
        report = ParamValidator().validate(params, operation_model.input_shape)
        if report.has_errors():
            raise ParamValidationError(report=report.generate_report())
        request = create_serializer("json", include_validation=False).serialize_to_request(params, operation_model)
        try:
            status, headers, body = handle_json(
                self._hyperpod, request["headers"]["X-Amz-Target"], request["body"], **self._as
            )
        except LostReplyError as error:
            raise ConnectionClosedError(endpoint_url="https://api.sagemaker.local") from error
        raw = {"status_code": status, "headers": headers, "body": body}
        parsed: dict[str, Any] = create_parser("json").parse(raw, operation_model.output_shape)
        if status >= 300:
            code = parsed.get("Error", {}).get("Code", "")
            kind: type[Exception] = self.exceptions.from_code(code)
            raise kind(parsed, operation)
        return parsed
