"""What `patch` decides by: its options, the groups as they are live, what drains them, and an unfinished run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..._lambda.hyperpod.common.drain_protocol import NodeStatus

UPDATING = ("Pending", "InProgress", "RollbackInProgress")
"""SoftwareUpdateStatus while HyperPod works (botocore)."""
SUCCEEDED, ROLLED_BACK, FAILED = "Succeeded", "RollbackComplete", "Failed"
"""SoftwareUpdateStatus at the end (botocore)."""
LATEST = "latest"
"""The image that HyperPod takes if a request names none."""
SYSTEM_UPDATING = "SystemUpdating"
"""Status of a group, or of a node, during an update (botocore)."""


class Way(Enum):
    """How the nodes of a group are emptied before HyperPod replaces their image."""

    AGENT = "the drain agent"
    DRAINER = "the drainer"
    HYPERPOD = "HyperPod's own evictions"
    NONE = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user typed."""

    groups: tuple[str, ...] = ()
    """Empty: all groups, but the controller's only with `controller`."""
    release: str | None = None
    image_id: str | None = None
    drains: bool = True
    controller: bool = False
    drain_for_s: int = 24 * 3600
    force_s: int | None = None
    """Seconds after which jobs are ended. None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a group."""

    id: str
    """Its instance id. Empty: it has no instance yet."""
    status: str
    host: str | None = None
    image: str | None = None
    """Its release. None: not reported."""
    image_status: str | None = None
    updated: float | None = None
    """When HyperPod updated its software last, in seconds since 1970. None: not reported."""
    launched: float | None = None

    @property
    def runs(self) -> bool:
        """Whether jobs or pods may run there."""
        return bool(self.id) and self.status == "Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as it is live."""

    name: str
    status: str
    software: str | None
    """SoftwareUpdateStatus. None: there never was an update."""
    current: int
    target: int
    minimum: int
    node_type: str | None = None
    """Controller, Login or Compute. None: not under Slurm."""
    image_id: str | None = None
    image: str | None = None
    """Its release. None: not reported."""
    image_status: str | None = None
    coming: tuple[str, ...] = ()
    """The AMI and the release that it has after an update that is under way, as far as they are reported."""
    nodes: tuple[Node, ...] = ()
    """As they were listed last."""

    @property
    def is_updating(self) -> bool:
        """Whether HyperPod replaces the image of its nodes now, or puts the old one back."""
        return self.software in UPDATING or self.status == SYSTEM_UPDATING

    @property
    def running(self) -> tuple[Node, ...]:
        """Its nodes on which jobs or pods may run."""
        return tuple(node for node in self.nodes if node.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `patch` does with one group."""

    group: str
    wanted: str
    """A release, an AMI, DEFAULT or LATEST."""
    way: Way
    node_type: str | None = None
    rolling: Mapping[str, Any] | None = None
    """DeploymentConfig of UpdateClusterSoftware. None: all nodes at once."""
    due: bool = True
    """Its nodes run another image, or it is unknown which."""
    why_not: str = ""
    """Why it is not due."""
    older: str = ""
    """The live release, if the wanted one is older."""

    @property
    def is_controller(self) -> bool:
        """Whether it is the Slurm controller's group."""
        return self.node_type == "Controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the nodes are drained."""

    deadline: float
    """Until when jobs or pods may run, in seconds since 1970."""
    force: bool
    """At the deadline jobs are ended. Otherwise the nodes are released."""
    until: float
    """Until when they are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the drain agent or the drainer reports."""

    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    """By instance id: nodes for which it has seen the request."""
    silence: str = ""
    """Why it counts as silent. Empty: it answers."""
    silent_s: float = 0.0
    """For how long it has been silent, as far as this run has seen."""
    refused: str = ""
    """Why it refuses the request."""
    problem: str = ""
    """Why it does nothing."""
    held_by_deployment: tuple[str, ...] = ()
    """Nodes that it holds for a deployment."""
    other_run: str = ""
    """The id of another run of `patch` that holds nodes."""
    busy: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Instance id -> some of its jobs or pods."""
    queue: int | None = None
    """How many jobs run or wait in Slurm. None: unknown."""
    saves: bool = False
    """It backs nodes up."""
    is_read: bool = False
    """False: nobody was asked, so what runs on the nodes is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an unfinished run is with a group. It is all that the next process knows besides what is live."""

    began: float
    """When its drain began, in seconds since 1970."""
    sent: float | None = None
    """When UpdateClusterSoftware was about to be sent. None: it was not."""
    before: str | None = None
    """SoftwareUpdateStatus at that moment."""
    accepted: bool = False
    """HyperPod accepted the call."""
    seen: bool = False
    """HyperPod was seen at work since."""
    done: bool = False
    """The group is patched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An unfinished run: what its lock holds."""

    id: str
    by: str
    """Who goes on with it: user@host."""
    owner: str
    """The process that goes on with it: no other one may."""
    wanted: str
    """The image that its options name. Another one begins another run."""
    until: float
    """The end of its lease, in seconds since 1970. A process that lives renews it."""
    groups: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def updating(self) -> frozenset[str]:
        """The groups for which it has sent an update of which it has not seen the end."""
        return frozenset(name for name, each in self.groups.items() if each.sent is not None and not each.done)

    @property
    def request_id(self) -> str:
        """The id of its drain requests."""
        return f"{REQUEST_PREFIX}{self.id}"


REQUEST_PREFIX = "patch-"
"""How the ids of a run's drain requests begin. Those of `drain` and of deployments begin otherwise."""
