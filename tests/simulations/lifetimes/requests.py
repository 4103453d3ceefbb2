"""What is recorded of a request of CloudFormation: what the function saw, and what it changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from .hyperpod import Measure, Node

if TYPE_CHECKING:
    from .draining import Heard

PREPARE, FINALIZE = "Custom::HyperPodScaleDown", "Custom::HyperPodGroupRemoval"


class Killed(BaseException):
    """The process is killed: out of time or memory. Python cannot catch it."""


@dataclass(slots=True, eq=False)
class Look:
    """What the function saw when it last read all nodes."""

    since: float
    """When it began. An action after that may be visible in only one half of it."""
    at: float
    nodes: list[dict[str, Any]]
    """Each node that it was shown, once, however often and under which id."""
    measures: dict[str, Measure]
    """The true state then, seen or not."""
    before: dict[str, Measure]
    """The true state when it began."""
    shown: dict[str, dict[str, Any]]
    """Groups as DescribeCluster showed them."""
    wrote_since: bool = False
    heard: Heard | None = None
    """The drain agent's reports that the function read after this look."""
    left_out: frozenset[Node] = frozenset()
    """Nodes that its pages should have shown, and did not."""
    left_out_again: frozenset[Node] = frozenset()
    """Those of them that the look before did not show either."""


@dataclass(slots=True, eq=False)
class Write:
    """One change that the function made."""

    request: Request
    at: float
    kind: str
    """BatchDelete or Update."""
    look: Look | None
    """The last look of the same run of the function; absent: it changed something without a look."""
    over: bool
    """Its deployment was over, as CloudFormation reported at the function's last read (or would report now, if it did
    not read)."""
    before: dict[str, Measure]
    """The true state when the call arrived."""
    unheard: bool = False
    """Its reply was lost, so the function could not continue with what it had seen."""
    took: list[Node] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    specs: list[dict[str, Any]] = field(default_factory=list)
    groups: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Request:
    """One request of CloudFormation to one of the two resources, and its result."""

    kind: str
    type: str
    new: dict[str, Any]
    old: dict[str, Any] | None
    deployment: Any
    rollback: bool
    began: float = 0.0
    heard: float = 0.0
    """When the function got it."""
    looked: float | None = None
    """When the function first read its stack's status; absent: not yet."""
    over: bool = False
    """CloudFormation no longer waits for it."""
    over_at: float = inf
    """Since when."""
    succeeded: bool | None = None
    reason: str = ""
    error: BaseException | None = None
    answered: float = 0.0
    """When its result was known."""
    polls: int = 0
    first_look: Look | None = None
    look: Look | None = None
    """The last look of all."""
    left_out: set[str] = field(default_factory=set)
    """Groups with nodes that two looks in a row left out, at the first look or before a change."""
    described: float = 0.0
    """When the cluster was last read."""
    cluster_unread: bool = False
    """In the last run of the function a read of the cluster failed."""
    writes: list[Write] = field(default_factory=list)
    asked: dict[float, set[str]] = field(default_factory=dict)
    """Nodes that it requested to delete, whatever the answer, by the time of the look that it used."""
    unread: bool = False
    """At its last call, the actor that drains gave no readable answer."""
    silent: float = -inf
    """When the actor that drains had really been silent for three minutes, and the function had just called it."""
    unwitnessed: bool = False
    """It could not read HyperPod's record of operations."""
    ready: int = 0
    """How many times in a row the agent has reported all requested nodes as ready."""
    asked_agent: bool = False
    """It wrote to the drain agent."""
    drain_request_ids: set[str] = field(default_factory=set)
    """Ids of its drain requests."""
    drained: set[str] = field(default_factory=set)
    """Nodes that it requested to drain, at any time."""
    faults: int = 0
    """Faults that were put into its calls."""
    data: Any = None

    @property
    def done(self) -> bool:
        return self.succeeded is not None

    def __str__(self) -> str:
        name = "prepare" if self.kind == PREPARE else "finalize"
        return f"{name} ({'rollback' if self.rollback else self.type.lower()})"
