"""Doors beside the stacks: who else may change what is deployed, or act as an administrator. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from ...facts.s3_actions import WRITES
from .account_state import AccountState, NotRead, Read
from .preflight_row import PASSED, Outcome, Row, left_open, not_checked, row

_NEGATED = ("ArnNotEquals", "ArnNotLike", "StringNotEquals", "StringNotLike")
_CLOSE = "(docs/deploy-permissions.md, Close the doors beside the stacks)"


def doors(account: AccountState) -> Iterator[Row]:
    """Open doors do not stop a deployment."""
    for bucket, policy in account.assets_buckets.items():
        yield row("writers of CDK's assets", _decide_assets(bucket, policy))
    for arn, may_invoke in account.invokers.items():
        yield row(f"kubectl function: {arn.rpartition('/')[2]}", _decide_invoker(may_invoke))


def _decide_assets(bucket: str, policy: Read[str | None]) -> Outcome:
    if isinstance(policy, NotRead):
        return not_checked(policy.why)
    if is_walled(bucket, policy):
        return PASSED
    return left_open(
        f"whoever may write to {bucket} changes the code and the templates that you deploy. Let only the file-publishing role "
        f"write there {_CLOSE}"
    )


def _decide_invoker(may_invoke: Read[bool]) -> Outcome:
    if isinstance(may_invoke, NotRead):
        return not_checked(may_invoke.why)
    if not may_invoke:
        return PASSED
    return left_open(
        f"it may invoke CDK's kubectl function, which is administrator of the EKS cluster. Deny it if it need not {_CLOSE}"
    )


def is_walled(bucket: str, policy: str | None) -> bool:
    """Whether the bucket's policy denies every write to all but named principals (docs/bootstrap/doors/assets-bucket.json)."""
    try:
        found = json.loads(policy or "{}").get("Statement", [])
    except (ValueError, AttributeError):
        return False
    walls = [each for each in _listed(found) if isinstance(each, dict) and _is_wall(bucket, each)]
    return all(any(_is_among(action, wall.get("Action")) for wall in walls) for action in WRITES)


def _is_wall(bucket: str, statement: Mapping[str, object]) -> bool:
    """Whether a statement denies everybody but named principals something on all objects."""
    condition = statement.get("Condition")
    is_for_all = statement.get("Principal") in ("*", {"AWS": "*"}) and statement.get("Effect") == "Deny"
    if not is_for_all or not isinstance(condition, dict) or len(condition) != 1:
        return False
    ((operator, keys),) = condition.items()
    if operator not in _NEGATED or not isinstance(keys, dict) or [*keys] != ["aws:PrincipalArn"]:
        return False
    # A pattern such as role/* excepts everybody.
    names_somebody = all(
        re.fullmatch(r"arn:[^:*]+:(iam|sts)::[0-9]{12}:[^*?]+", str(arn)) for arn in _listed(keys["aws:PrincipalArn"])
    )
    resources = {str(each).partition(":::")[2] for each in _listed(statement.get("Resource"))}
    return names_somebody and not {"*", f"{bucket}/*", f"{bucket}*"}.isdisjoint(resources)


def _is_among(action: str, named: object) -> bool:
    return any(fnmatchcase(action.lower(), str(each).lower()) for each in _listed(named))


def _listed(value: object) -> list[object]:
    """IAM writes a list of one as the one."""
    return value if isinstance(value, list) else [value]
