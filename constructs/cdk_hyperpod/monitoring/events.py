"""Which of HyperPod's events become messages: the patterns of EventBridge's rules. Pure.

Source: the developer guide's page "SageMaker HyperPod cluster events reference", "EventBridge integration".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..interface import EventKind

_REPLACEMENT = {"Description": [{"wildcard": "*instance replacement*"}]}
"""A replacement costs a running job, whatever level AWS gives its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """A rule: which events of a kind the function gets."""

    construct_id: str
    kind: EventKind
    description: str
    detail: Mapping[str, Any] | None
    """What limits the events of this kind. None: nothing."""


EVENT_RULES = (
    EventRule(
        construct_id="ClusterEvents",
        kind="event",
        description="failures, warnings and replacements",
        # Old events have no level.
        detail={
            "EventDetails": {
                "$or": [
                    {"EventLevel": [{"anything-but": "Info"}]},
                    {"EventLevel": [{"exists": False}]},
                    {"EventLevel": ["Info"], **_REPLACEMENT},
                ]
            }
        },
    ),
    EventRule(
        construct_id="StateChanges",
        kind="state_change",
        description="failures and rollbacks",
        detail={"ClusterStatus": ["Failed", "RollingBack"]},
    ),
    EventRule(construct_id="NodeHealth", kind="node_health", description="findings about nodes", detail=None),
)
