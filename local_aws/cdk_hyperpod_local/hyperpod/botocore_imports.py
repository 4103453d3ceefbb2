"""All imports from botocore, which has no types, in one place."""

from botocore.errorfactory import ClientExceptionsFactory  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    ConnectionClosedError,
    ParamValidationError,
)
from botocore.model import OperationModel, ServiceModel, Shape  # type: ignore[import-untyped]
from botocore.parsers import create_parser  # type: ignore[import-untyped]
from botocore.serialize import create_serializer  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

__all__ = [
    "ClientError",
    "ClientExceptionsFactory",
    "ConnectionClosedError",
    "OperationModel",
    "ParamValidationError",
    "ParamValidator",
    "ServiceModel",
    "Session",
    "Shape",
    "create_parser",
    "create_serializer",
    "parse_timestamp",
]
