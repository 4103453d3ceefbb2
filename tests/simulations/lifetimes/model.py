"""What the second HyperPod consists of: groups, nodes, and the record of what happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .software import FIRST

Spec = dict[str, Any]
"""A group in the form of UpdateCluster."""

Who = Literal["function", "cloudformation", "person", "autoscaler", "hyperpod"]
How = Literal[
    "named", "at random", "with its group", "replaced", "with its cluster", "late lowering", "minimum's rollback"
]

BUSY = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")


class Refused(Exception):
    """An error reply of the API."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


@dataclass(slots=True, eq=False)
class Node:
    """One node, from its request to its termination."""

    group: str
    logical: str
    requested: float
    """When HyperPod began to look for an instance."""
    by: Who
    """Whose request it was."""
    id: str | None = None
    """Absent: not launched yet."""
    launched: float | None = None
    address: str = ""
    status: str = "Pending"
    outdated: bool = False
    image: str = FIRST
    failed: bool = False
    in_use_until: float = 0.0
    gone: bool = False
    ends: float = 0.0
    """When it began to shut down, and its status before."""
    was: str = ""
    left: float | None = None
    """When it left the list."""

    @property
    def leaving(self) -> bool:
        return self.status == "ShuttingDown"

    @property
    def name(self) -> str:
        return self.id or self.logical


@dataclass(slots=True, eq=False)
class Group:
    """One instance group."""

    name: str
    spec: Spec
    target: int
    minimum: int
    status: str = "InService"
    image: str = FIRST
    """The desired one, with which new nodes start."""
    image_before: str | None = None
    """The current one, while its software is updated."""
    software: str | None = None
    """SoftwareUpdateStatus."""
    nodes: list[Node] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    """When nodes left the list, for CurrentCount's lag."""
    lowered: list[tuple[float, Lowering]] = field(default_factory=list)
    """When its target was lowered late, and why."""
    lowering: int = 0
    """Nodes deleted by BatchDelete for which the target will still be lowered."""
    settled: tuple[int, int] = (0, 0)
    """Target and minimum when its minimum was last met."""
    under_way: bool = False
    """Its minimum has not been met since its last change: a transition."""
    changed: int = 0
    begun_by: Who = "person"
    """The caller of the UpdateCluster that began the current or last transition."""
    lacks_capacity_until: float = 0.0
    addresses: list[str] = field(default_factory=list)
    """The addresses of replaced nodes, for their replacements."""

    @property
    def live(self) -> list[Node]:
        return [node for node in self.nodes if node.status != "ShuttingDown"]

    def lowered_since(self, at: float) -> bool:
        return any(when >= at for when, _ in self.lowered)

    @property
    def controller(self) -> bool:
        return (self.spec.get("SlurmConfig") or {}).get("NodeType") == "Controller"


class Measure(NamedTuple):
    """A group's counts at one time."""

    live: int
    """Not shutting down, including nodes that are not launched yet."""
    unlaunched: int
    leaving: int
    ended: int
    """Terminated, and still in CurrentCount."""
    target: int


class Lowering(NamedTuple):
    """A target that is lowered late, because nodes were deleted."""

    at: float
    """When they were deleted."""
    by: Who


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The termination of one node."""

    node: Node
    at: float
    how: How
    by: Who
    call: object
    """Its cause: a call of the function, or a late lowering; absent: neither."""
    group: Group
    """The cause, which may no longer exist when the termination is examined."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A scaling request in HyperPod's record of operations."""

    id: str
    at: float
    by: Who
    targets: Mapping[str, tuple[int, int]]
    """The targets before and after, of each group whose target it changed."""
    ended: Sequence[Node]


@dataclass(slots=True)
class Pace:
    """Durations in seconds, and probabilities of failures."""

    launch: tuple[float, float] = (5, 90)
    boot: tuple[float, float] = (30, 300)
    shut_down: tuple[float, float] = (20, 400)
    boot_failures: float = 0.0
    replaces_after: tuple[float, float] = (60, 600)
    update: tuple[float, float] = (20, 200)
    """Standard provisioning: the minimum time for which the cluster is Updating."""
    in_use: float = 0.0
    """Probability that a node is "in use" for a while when it is to be deleted."""
