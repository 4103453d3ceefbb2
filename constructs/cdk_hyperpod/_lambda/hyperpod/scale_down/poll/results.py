"""How a poll ends: done, again, or failed."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.text import one_line
from ..model.actions import Pick, Wait
from ..model.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do for this request."""

    text: str
    """What a template may read of the resource (properties.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Another poll is needed. At the deadline, deadline.py decides what follows."""

    waits: tuple[Wait, ...]
    live: Cluster | None = None
    """The cluster as this poll read it. None: it could not be read, or does not matter."""
    left: tuple[Pick, ...] = ()
    """Nodes that are still to be deleted."""
    accepted: frozenset[str] = frozenset()
    """Names of nodes whose deletion HyperPod accepted after `live` was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The deployment must not go on."""

    reason: str
    """CloudFormation shows it."""
    accepted: frozenset[str] = frozenset()
    """Names of nodes whose deletion HyperPod accepted in this poll."""


Result = Done | Again | Failed


class ScaleDownError(Exception):
    """A refusal or failure. Its text is the reason that CloudFormation shows."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))
