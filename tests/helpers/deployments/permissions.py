"""Roles whose own policies allow everything, and whether a call is refused all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod_local.session import LocalAws

Json = Any
ANYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
Edit = Callable[[str, Callable[[Json], None]], None]
"""Changes the statement with this Sid in a bucket's policy."""


def document(statement: Json) -> Json:
    return {"Version": "2012-10-17", "Statement": [statement]}


def add_almighty_role(engine: LocalAws, name: str) -> None:
    """Every caller in the account can assume it."""
    add_role(engine, name, "*")


def add_role(engine: LocalAws, name: str, action: str) -> None:
    """A role that may do this with every resource. Every caller in the account can assume it."""
    iam = engine.client("iam")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": engine.account}}
    allowed = {**ANYTHING, "Action": action}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document(trust)))
    iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(document(allowed)))


def allowed_unless(*codes: str) -> Callable[..., bool]:
    """Whether a call with these arguments is allowed.

    `codes`: the service's codes of a refusal. Another error fails the test.
    """

    def may(call: Any, **arguments: Json) -> bool:
        try:
            call(**arguments)
        except ClientError as error:
            assert error.response["Error"]["Code"] in codes, error
            return False
        return True

    return may


may = allowed_unless("AccessDenied")
