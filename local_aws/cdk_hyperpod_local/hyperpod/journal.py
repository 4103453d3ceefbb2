"""Every call: caller, operation, parameters, time and outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

MUTATING = frozenset(
    {
        "AddTags",
        "BatchAddClusterNodes",
        "BatchDeleteClusterNodes",
        "BatchRebootClusterNodes",
        "BatchReplaceClusterNodes",
        "CreateCluster",
        "DeleteCluster",
        "DeleteTags",
        "StartClusterHealthCheck",
        "UpdateCluster",
        "UpdateClusterSoftware",
    }
)
"""Operations that change something if they succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as the service saw it, even if its caller never got the reply."""

    number: int
    """1 for the first call, without gaps."""
    at: float
    """Seconds since 1970."""
    principal: str
    """The caller: an ARN or a service's name, as the server passed it on."""
    operation: str
    params: dict[str, Any]
    """The parameters as they were sent, in JSON types; also of a refused request."""
    outcome: str
    """"ok", or the error's code."""
    message: str = ""
    """The error's message; empty if ok."""
    reply: str = "delivered"
    """"delivered", "lost" (connection dropped) or "killed" (the caller was killed first)."""

    @property
    def mutating(self) -> bool:
        """Whether this operation can change anything."""
        return self.operation in MUTATING

    @property
    def changed(self) -> bool:
        """Whether it is a mutating operation that took effect."""
        return self.mutating and self.outcome == "ok"

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps({**asdict(self), "mutating": self.mutating}, separators=(",", ":"))


def count_changes(calls: Iterable[Call], *, since: int = 0, principal: str | None = None) -> Counter[str]:
    """Mutating calls that took effect, by operation: with a number above `since`, of `principal` (absent: of all)."""
    return Counter(
        call.operation for call in calls if call.changed and call.number > since and principal in (None, call.principal)
    )
