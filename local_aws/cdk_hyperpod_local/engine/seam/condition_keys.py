"""Corrections of ministack's IAM: condition keys that it answers differently or not at all, and variables in policies.

`aws:PrincipalArn` of a role's session is the role's ARN; ministack returns the session's. The key name of an upload is
`s3:x-amz-server-side-encryption-aws-kms-key-id`. `iam:PermissionsBoundary` is the boundary that a request sets, or
otherwise that of the request's role. `cloudwatch:namespace` is that of PutMetricData. Variables such as `${aws:PrincipalAccount}` are replaced by their values.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from ministack.core import iam_actions, iam_evaluator  # type: ignore[import-not-found]
from ministack.services import iam  # type: ignore[import-not-found]

Json = Any
_KEY = "x-amz-server-side-encryption-aws-kms-key-id"
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9:/._-]+)\}")


def install() -> None:
    """Answer these keys for every policy."""
    resolve, of_s3 = iam_evaluator._resolve_condition_key, iam_actions.s3_service_context
    of_request, first_match = iam_actions.request_tag_context, iam_evaluator._first_match

    def key_of(key: str, context: Any) -> Any:
        found = resolve(key, context)
        return _of_role(str(found)) if key.lower() == "aws:principalarn" and found else found

    def context_of(action: str, query: Json, path: str, headers: Json) -> Json:
        found = of_s3(action, query, path, headers) or {}
        return {**found, f"s3:{_KEY}": headers[_KEY]} if _KEY in headers else found

    def request_context(service: str, action: str, body: bytes, parameters: Json) -> Json:
        found = of_request(service, action, body, parameters)
        if action == "cloudwatch:PutMetricData":
            return {**found, "cloudwatch:namespace": _namespace(body, parameters)}
        return {**found, "iam:PermissionsBoundary": _boundary(parameters)} if service == "iam" else found

    def matched(context: Any, statements: Json, effect: str) -> Any:
        return first_match(context, [_filled(statement, context) for statement in statements], effect)

    iam_evaluator._resolve_condition_key = key_of
    iam_evaluator._first_match = matched
    iam_actions.s3_service_context = context_of
    iam_actions.request_tag_context = request_context


def _of_role(arn: str) -> str:
    if ":assumed-role/" not in arn:
        return arn
    role: Json = iam._roles.get(arn.split("/")[1])
    return arn if role is None else str(role["Arn"])


def _boundary(parameters: Json) -> str | None:
    given = {name: value[0] if isinstance(value, list) else value for name, value in parameters.items()}
    role = iam._roles.get(given.get("RoleName", "")) or {}
    boundary: str | None = given.get("PermissionsBoundary") or role.get("PermissionsBoundary")
    return boundary


def _namespace(body: bytes, parameters: Json) -> str | None:
    """The namespace of PutMetricData, in the query protocol or in JSON."""
    given = parameters.get("Namespace")
    if given is None and body[:1] == b"{":
        given = json.loads(body).get("Namespace")
    return str(given[0] if isinstance(given, list) else given)


def _filled(statement: Any, context: Any) -> Any:
    """A statement with the values of its variables. A variable without a value stays, and matches nothing."""

    def value_of(found: re.Match[str]) -> str:
        value = iam_evaluator._resolve_condition_key(found[1], context)
        return found[0] if value is None else str(value)

    def filled(item: Json) -> Json:
        if isinstance(item, dict):
            return {key: filled(value) for key, value in item.items()}
        if isinstance(item, list):
            return [filled(value) for value in item]
        return _VARIABLE.sub(value_of, item) if isinstance(item, str) else item

    if "${" not in str(statement):
        return statement
    parts = ("resources", "not_resources", "conditions")
    return dataclasses.replace(statement, **{name: filled(getattr(statement, name)) for name in parts})
