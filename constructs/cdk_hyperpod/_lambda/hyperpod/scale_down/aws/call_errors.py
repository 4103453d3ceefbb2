"""Reasons from errors of AWS: what failed, and what to do about it. Pure."""

from __future__ import annotations

from ...common import api, sentences
from .. import messages

_READS = {
    "DescribeStacks": "Reading the stack's status (cloudformation:DescribeStacks)",
    "DescribeStackEvents": "Reading the stack's events (cloudformation:DescribeStackEvents)",
    "GetTemplate": "Reading the stack's template (cloudformation:GetTemplate)",
    "GetObject": "Reading the status of the drain agent",
    "PutObject": "Sending the drain request",
}


def read_failed(error: Exception) -> list[str]:
    """The reasons after a read that failed."""
    call = _READS.get(getattr(error, "operation_name", ""), "Reading the cluster")
    return _reasons(call, error, sentences.DENIED_HINT)


def change_failed(cluster: str, call: str, error: Exception, *, rolling_back: bool) -> list[str]:
    """The reasons after a change that AWS rejected."""
    if api.needs_software_update(error):
        then = "continue the rollback" if rolling_back else "deploy again"
        return messages.failures.as_reasons(messages.failures.software_update(cluster, then))
    hint = sentences.DENIED_HINT if rolling_back else messages.failures.FIRST_HINT
    return _reasons(call, error, hint)


def _reasons(call: str, error: Exception, hint: str) -> list[str]:
    """`hint`: what to do if a permission is missing."""
    reason = f"{call}: {api.reason(error)}"
    return [reason, hint] if api.is_denied(error) else [reason]
