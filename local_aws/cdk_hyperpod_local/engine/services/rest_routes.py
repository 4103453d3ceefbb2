"""Finds the operation of a REST request: botocore's own table of methods and paths, read backwards."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NamedTuple

from cdk_hyperpod_local.hyperpod.botocore_imports import Session, Shape

Json = Any


class Route(NamedTuple):
    method: str
    path: re.Pattern[str]
    operation: str
    shape: Shape


@cache
def routes(service: str) -> tuple[Route, ...]:
    """The routes of a service, longest paths first, because an ARN in a path may contain slashes."""
    model = Session().get_service_model(service)
    found = []
    for name in model.operation_names:
        operation = model.operation_model(name)
        uri = operation.http["requestUri"].partition("?")[0]
        found.append((uri.count("/"), Route(operation.http["method"], _pattern(uri), name, operation.input_shape)))
    return tuple(route for _, route in sorted(found, key=lambda item: -item[0]))


def _pattern(uri: str) -> re.Pattern[str]:
    def group(found: re.Match[str]) -> str:
        name = found[1].rstrip("+")
        return f"(?P<{name}>{'.+' if name.lower().endswith('arn') else '[^/]+'})"

    return re.compile(re.sub(r"\{([^}]+)\}", group, uri) + "/?")


def read(service: str, method: str, path: str, body: bytes, query: Json) -> tuple[str, Json] | None:
    """Operation and request; None if the service has no such path. Raises ValueError if the body is not JSON."""
    for route in routes(service):
        found = route.path.fullmatch(path)
        if route.method == method and found:
            request = json.loads(body or b"{}")
            for name, shape in route.shape.members.items():
                where, wire = shape.serialization.get("location"), shape.serialization.get("name", name)
                if where == "uri":
                    request[name] = found[wire]
                elif where == "querystring" and wire in query:
                    request[name] = _from_query(shape, query[wire])
            return route.operation, request
    return None


def _from_query(shape: Shape, given: Json) -> Json:
    values = given if isinstance(given, list) else [given]
    match shape.type_name:
        case "list":
            return [str(value) for value in values]
        case "integer":
            return int(values[0])
        case "boolean":
            return str(values[0]).lower() == "true"
    return str(values[0])
