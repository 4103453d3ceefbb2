"""Validates requests and responses against botocore's own model of the SageMaker API.

botocore's client checks types, required members and lower bounds only. The service also checks maximum, pattern and
enum (botocore/validate.py, range_check), so the server side does it here, with the messages of AWS's validation.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from .botocore_imports import OperationModel, ServiceModel, Session, Shape, parse_timestamp
from .errors import ApiError, invalid
from .state import Json


@cache
def service_model() -> ServiceModel:
    """The SageMaker API in the installed botocore."""
    return Session().get_service_model("sagemaker")


@cache
def operation_model(operation: str) -> OperationModel:
    """The model of one operation."""
    return service_model().operation_model(operation)


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str] | None:
    """The compiled pattern; None if it uses Java's classes (\\p{L}), which Python's re lacks."""
    try:
        return re.compile(text)
    except re.error:
        return None


def request(operation: str, params: Mapping[str, Any]) -> Json:
    """A validated copy of a request's parameters. Timestamps become seconds since 1970.

    Raises ApiError ValidationException for invalid values, SerializationException for wrong types. Unlike AWS, it
    refuses an unknown name too, because here that is always our own mistake.
    """
    shape = operation_model(operation).input_shape
    if shape is None:
        return {}
    problems: list[str] = []
    checked: Json = _checked(shape, params, "", problems)
    if problems:
        noun = "error" if len(problems) == 1 else "errors"
        raise invalid(f"{len(problems)} validation {noun} detected: {'; '.join(problems)}")
    return checked


def _checked(shape: Shape, value: Any, path: str, problems: list[str]) -> Any:
    """A validated copy of one value."""
    match shape.type_name:
        case "structure":
            _want(isinstance(value, Mapping), shape, value, path)
            return _checked_structure(shape, value, path, problems)
        case "list":
            _want(isinstance(value, (list, tuple)), shape, value, path)
            _range(shape, len(value), value, path, problems, "length")
            return [_checked(shape.member, item, f"{path}.{n}.member", problems) for n, item in enumerate(value, 1)]
        case "map":
            _want(isinstance(value, Mapping), shape, value, path)
            _range(shape, len(value), value, path, problems, "length")
            return {
                str(key): _checked(shape.value, item, f"{path}.{key}.member", problems) for key, item in value.items()
            }
        case "string":
            _want(isinstance(value, str), shape, value, path)
            _range(shape, len(value), value, path, problems, "length")
            _string(shape, value, path, problems)
            return value
        case "integer" | "long":
            _want(isinstance(value, int) and not isinstance(value, bool), shape, value, path)
            _range(shape, value, value, path, problems, "value")
            return value
        case "float" | "double":
            _want(isinstance(value, (int, float)) and not isinstance(value, bool), shape, value, path)
            _range(shape, value, value, path, problems, "value")
            return value
        case "boolean":
            _want(isinstance(value, bool), shape, value, path)
            return value
        case "timestamp":
            return _seconds(value, shape, path)
        case other:  # pragma: no cover - no operation served here has another type
            raise AssertionError(f"{path}: type {other}")


def _checked_structure(shape: Shape, value: Mapping[str, Any], path: str, problems: list[str]) -> Json:
    names = {name: f"{path}.{name[0].lower()}{name[1:]}".lstrip(".") for name in shape.members}
    for unknown in sorted(set(value) - set(names)):
        problems.append(f"Unknown parameter '{unknown}' at '{path or 'request'}', must be one of: {', '.join(names)}")
    for name in shape.required_members:
        if value.get(name) is None:
            problems.append(f"Value null at '{names[name]}' failed to satisfy constraint: Member must not be null")
    present = {name: item for name, item in value.items() if name in names and item is not None}
    if shape.is_tagged_union and len(present) != 1:
        problems.append(
            f"Value at '{path}' failed to satisfy constraint: exactly one of {', '.join(names)} must be set"
        )
    return {name: _checked(shape.members[name], item, names[name], problems) for name, item in present.items()}


def _want(right: bool, shape: Shape, value: Any, path: str) -> None:
    if not right:
        raise ApiError(
            "SerializationException",
            f"'{path}': {type(value).__name__} value cannot be read as {shape.type_name}",
        )


def _range(shape: Shape, size: float, value: Any, path: str, problems: list[str], what: str) -> None:
    constraint = f"Value '{_short(value)}' at '{path}' failed to satisfy constraint: Member must have {what}"
    if "max" in shape.metadata and size > shape.metadata["max"]:
        problems.append(f"{constraint} less than or equal to {shape.metadata['max']}")
    if "min" in shape.metadata and size < shape.metadata["min"]:
        problems.append(f"{constraint} greater than or equal to {shape.metadata['min']}")


def _string(shape: Shape, value: str, path: str, problems: list[str]) -> None:
    enum = shape.metadata.get("enum")
    constraint = f"Value '{_short(value)}' at '{path}' failed to satisfy constraint:"
    if enum and value not in enum:
        problems.append(f"{constraint} Member must satisfy enum value set: [{', '.join(enum)}]")
    pattern = shape.metadata.get("pattern")
    compiled = _pattern(pattern) if pattern else None
    if compiled and not compiled.fullmatch(value):
        problems.append(f"{constraint} Member must satisfy regular expression pattern: {pattern}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _seconds(value: Any, shape: Shape, path: str) -> float:
    _want(not isinstance(value, bool), shape, value, path)
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(parse_timestamp(value).timestamp())
    except (ValueError, TypeError) as error:
        raise ApiError("SerializationException", f"'{path}': {value!r} cannot be read as timestamp") from error


def response(operation: str, answer: Mapping[str, Any]) -> Json:
    """A response in the types of boto3: seconds become datetimes (UTC), and members with the value None are left out.

    Raises AssertionError for a name or type that the API does not have: an error of the simulation, never of a caller.
    """
    shape = operation_model(operation).output_shape
    if shape is None or not shape.members:
        if answer:
            raise AssertionError(f"{operation} answers nothing, not {sorted(answer)}")
        return {}
    given: Json = _converted(shape, answer, operation)
    return given


def _converted(shape: Shape, value: Any, path: str) -> Any:
    match shape.type_name:
        case "structure":
            unknown = set(value) - set(shape.members)
            if unknown:
                raise AssertionError(f"{path} has no member {sorted(unknown)}")
            return {
                name: _converted(shape.members[name], item, f"{path}.{name}")
                for name, item in value.items()
                if item is not None
            }
        case "list":
            return [_converted(shape.member, item, path) for item in value]
        case "map":
            return {key: _converted(shape.value, item, path) for key, item in value.items()}
        case "timestamp":
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
        case "string":
            right = isinstance(value, str)
        case "boolean":
            right = isinstance(value, bool)
        case "float" | "double":
            right = isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            right = isinstance(value, int) and not isinstance(value, bool)
    if not right:
        raise AssertionError(f"{path}: {value!r} is no {shape.type_name}")
    return value
