"""Frozen values: one class for each action, and the plan that they make up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..common.refuse import Refuse
from .cluster import DesiredGroup, Node

Reason = Literal["named", "failed", "not yet launched", "outdated image", "newest", "launched by the failed update"]
"""Why a node goes, in the order in which nodes are chosen."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A node to take, and why this one."""

    node: Node
    reason: Reason


@dataclass(frozen=True, slots=True)
class Picked:
    """The same, as it travels from poll to poll."""

    group: str
    name: str
    reason: str
    launched_before: bool = True
    """Whether it was launched before the request began."""


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """End these nodes of a group with BatchDeleteClusterNodes."""

    group: str
    picks: tuple[Pick, ...]
    minimum: int | None = None
    """The minimum to set first, should the service reject the call because of the live one. Absent: the live one is no
    obstacle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """Lower a group's TargetCount to the nodes it has, so that it launches none; or, with its target as it is, the MinCount that
    blocks BatchDeleteClusterNodes. Ends no node.

    `minimum` is never above the live one: raising it would start a new wait, which is the cluster's own update's to start.
    """

    group: str
    count: int
    minimum: int
    spec: DesiredGroup
    """What is sent with them (GroupView.spec)."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group with all its nodes; prepare only makes them ready, finalize asks for it."""

    group: str
    nodes: int
    """How many nodes go with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done about this now; another poll will see."""

    why: str
    passing: bool = field(default=False, compare=False)
    """A status, or lists that differ: no node is on its way out that an UpdateCluster might count."""


Change = DeleteNodes | Lower
Action = Change | DeleteGroup | Wait | Refuse


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. A plan that holds a refusal holds nothing else; `changes` are of one kind of call."""

    refusals: tuple[Refuse, ...] = ()
    changes: tuple[Change, ...] = ()
    waits: tuple[Wait, ...] = ()
    held: tuple[Pick, ...] = ()
    """Nodes that go too, as soon as what they wait for is over."""
    deletions: tuple[DeleteGroup, ...] = ()
    """Groups that this deployment deletes, after the cluster's own update."""
    notes: tuple[str, ...] = ()
    """Worth knowing; changes nothing."""

    @property
    def done(self) -> bool:
        """Nothing is left to take, to wait for or to refuse ahead of the cluster's own update."""
        return not (self.refusals or self.changes or self.waits)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything, in the order of a report."""
        return (*self.refusals, *self.changes, *self.deletions, *self.waits)

    @property
    def taken(self) -> tuple[Pick, ...]:
        """The nodes that the plan ends now (deleted groups' nodes not included)."""
        return tuple(pick for change in self.changes if isinstance(change, DeleteNodes) for pick in change.picks)
