"""Condition keys of policies that ministack answers otherwise than IAM, or not at all.

`aws:PrincipalArn` of a role's session is the role's ARN; ministack says the session's. The key that an upload names is
`s3:x-amz-server-side-encryption-aws-kms-key-id`.
"""

from __future__ import annotations

from typing import Any

from ministack.core import iam_actions, iam_evaluator  # type: ignore[import-not-found]
from ministack.services import iam  # type: ignore[import-not-found]

Json = Any
_KEY = "x-amz-server-side-encryption-aws-kms-key-id"


def install() -> None:
    """Answer for these keys in every policy."""
    resolve, of_s3 = iam_evaluator._resolve_condition_key, iam_actions.s3_service_context

    def key_of(key: str, context: Any) -> Any:
        found = resolve(key, context)
        return _of_role(str(found)) if key.lower() == "aws:principalarn" and found else found

    def context_of(action: str, query: Json, path: str, headers: Json) -> Json:
        found = of_s3(action, query, path, headers) or {}
        return {**found, f"s3:{_KEY}": headers[_KEY]} if _KEY in headers else found

    iam_evaluator._resolve_condition_key = key_of
    iam_actions.s3_service_context = context_of


def _of_role(arn: str) -> str:
    if ":assumed-role/" not in arn:
        return arn
    role: Json = iam._roles.get(arn.split("/")[1])
    return arn if role is None else str(role["Arn"])
