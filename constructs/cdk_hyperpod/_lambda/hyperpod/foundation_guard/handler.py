"""The Lambda's entry point. CloudFormation invokes it directly, and waits for the answer.

Nothing of an event is logged (../common/answer.py). A refusal is not logged either: the stack's events show it, and the CDK CLI
prints the log below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..common.answer import answer, identify
from ..common.clients import client
from .guard import Guard, GuardError

PHYSICAL_ID = "hyperpod-foundation-guard"

_guard = Guard(client)


def handle(event: Mapping[str, Any], context: object) -> None:
    """Lambda entry point. After an error that is not caught here, Lambda invokes it twice more."""
    answer(event, decide(event, _guard))


def decide(event: Mapping[str, Any], guard: Guard) -> dict[str, str]:
    """The answer to CloudFormation."""
    identity = identify(event, PHYSICAL_ID)
    try:
        guard.check(event)
    except GuardError as error:
        return {**identity, "Status": "FAILED", "Reason": str(error)}
    return {**identity, "Status": "SUCCESS"}
