"""Frozen values: one class for each action, and the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...kernel.refuse import Refuse
from .cluster import DesiredGroup, Node

Reason = Literal["named", "failed", "not yet launched", "outdated image", "newest", "launched by the failed update"]
"""Why a node is deleted, in the order in which nodes are chosen."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A node to delete, and why this one."""

    node: Node
    reason: Reason


@dataclass(frozen=True, slots=True)
class Picked:
    """The same, as the state between polls has it."""

    group: str
    name: str
    reason: str
    launched_before: bool = True
    """Whether it was launched before the request began."""


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """Delete these nodes of a group with BatchDeleteClusterNodes."""

    group: str
    picks: tuple[Pick, ...]
    minimum: int | None = None
    """The minimum to set first if HyperPod rejects the call because of the live minimum. None: the live minimum does not forbid
    the deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """Lower a group's TargetCount to the number of its nodes, so that HyperPod launches none. Or lower the MinCount that blocks
    BatchDeleteClusterNodes, and keep the target. Deletes no node.

    `minimum` is never above the live one. A raised minimum starts a wait, and only the cluster's own update may start it.
    """

    group: str
    count: int
    minimum: int
    spec: DesiredGroup
    """What is sent with them (GroupView.spec)."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group with all its nodes. prepare only drains the nodes, finalize deletes the group."""

    group: str
    nodes: int
    """How many nodes are deleted with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done about this now. Another poll tries again."""

    why: str
    passing: bool = field(default=False, compare=False)
    """It waits for a status or for lists that agree. No node is terminating that an UpdateCluster might count."""


Change = DeleteNodes | Lower
Action = Change | DeleteGroup | Wait | Refuse


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. A plan with a refusal has nothing else. `changes` are of one kind of call."""

    refusals: tuple[Refuse, ...] = ()
    changes: tuple[Change, ...] = ()
    waits: tuple[Wait, ...] = ()
    held: tuple[Pick, ...] = ()
    """Nodes that are deleted later, when nothing makes them wait any more."""
    groups_to_delete: tuple[DeleteGroup, ...] = ()
    """Groups that this deployment deletes, after the cluster's own update."""
    notes: tuple[str, ...] = ()
    """What a user should know. Notes change nothing."""

    @property
    def done(self) -> bool:
        """Nothing is left to delete, to wait for or to refuse before the cluster's own update."""
        return not (self.refusals or self.changes or self.waits)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions, in the order of a report."""
        return (*self.refusals, *self.changes, *self.groups_to_delete, *self.waits)

    @property
    def nodes_to_delete(self) -> tuple[Pick, ...]:
        """The nodes that the plan deletes now, without those of groups to delete."""
        return tuple(pick for change in self.changes if isinstance(change, DeleteNodes) for pick in change.picks)
