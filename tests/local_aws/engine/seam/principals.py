"""`aws:PrincipalArn` as IAM has it: of a role's session it is the role's ARN, and not the session's as ministack says."""

from __future__ import annotations

from typing import Any

from ministack.core import iam_evaluator  # type: ignore[import-not-found]
from ministack.services import iam  # type: ignore[import-not-found]

Json = Any


def install() -> None:
    """Answer for the key in every policy."""
    resolve = iam_evaluator._resolve_condition_key

    def key_of(key: str, context: Any) -> Any:
        found = resolve(key, context)
        return _of_role(str(found)) if key.lower() == "aws:principalarn" and found else found

    iam_evaluator._resolve_condition_key = key_of


def _of_role(arn: str) -> str:
    if ":assumed-role/" not in arn:
        return arn
    role: Json = iam._roles.get(arn.split("/")[1])
    return arn if role is None else str(role["Arn"])
