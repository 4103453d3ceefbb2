"""The Lambda's entry point. CloudFormation invokes it itself, and waits for the answer.

Nothing of an event is logged (../common/answer.py), nor is a refusal, which the stack's events tell: the CDK CLI prints the log below
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..common.answer import answer, whose
from ..common.clients import client
from .guard import Guard, GuardError

PHYSICAL_ID = "hyperpod-foundation-guard"

_guard = Guard(client)


def handle(event: Mapping[str, Any], context: object) -> None:
    """Lambda entry point. What is not caught here makes Lambda invoke it again, twice."""
    answer(event, decide(event, _guard))


def decide(event: Mapping[str, Any], guard: Guard) -> dict[str, str]:
    """What CloudFormation is told."""
    told = whose(event, PHYSICAL_ID)
    try:
        guard.check(event)
    except GuardError as error:
        return {**told, "Status": "FAILED", "Reason": str(error)}
    return {**told, "Status": "SUCCESS"}
