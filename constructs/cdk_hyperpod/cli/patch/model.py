"""What `patch` decides by: its options, the groups as they are live, what drains them, and an unfinished run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..._lambda.hyperpod.kernel.cluster_reading import LEAVING, SOFTWARE_MOVING
from ..._lambda.hyperpod.kernel.drain_protocol import NodeStatus
from ..._lambda.hyperpod.kernel.images import DEFAULT, is_release
from ..live import Node

SUCCEEDED, ROLLED_BACK, FAILED = "Succeeded", "RollbackComplete", "Failed"
"""SoftwareUpdateStatus at the end (botocore)."""
ENDS = (SUCCEEDED, ROLLED_BACK, FAILED)
LEASE_S = 600.0
"""How long a node is held, and a run counts as alive, after the last sign of life: many looks long."""
UPDATE_LIMIT_S = 24 * 3600.0
"""How long nodes are held for an update from the call on, or from a later look that still sees it at work."""
LATEST = "latest"
"""The image that HyperPod takes if a request names none."""
SYSTEM_UPDATING = "SystemUpdating"
"""Status of a group, or of a node, during an update (botocore)."""


class DrainedBy(Enum):
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

    @property
    def image(self) -> str:
        """The image that they name. Empty: that of the file, or the latest."""
        return self.release or self.image_id or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as it is live."""

    name: str
    status: str
    software: str | None
    """SoftwareUpdateStatus. None: there never was an update."""
    current: int
    """CurrentCount, or else TargetCount."""
    minimum: int
    node_type: str | None = None
    """Controller, Login or Compute. None: not under Slurm."""
    image_id: str | None = None
    image: str | None = None
    """Its release. None: not reported."""
    image_status: str | None = None
    on_desired: int | None = None
    """TargetStateCount: how many running nodes have the desired image. None: not reported."""
    coming: tuple[str, ...] = ()
    """The desired AMI and release, as far as they are reported: those of the nodes after an update that is under way."""
    nodes: tuple[Node, ...] = ()

    @property
    def is_updating(self) -> bool:
        """Whether HyperPod replaces the image of its nodes now, or puts the old one back."""
        shown = {self.status, *(node.status for node in self.nodes)}
        return self.software in SOFTWARE_MOVING or SYSTEM_UPDATING in shown

    @property
    def is_rolling_back(self) -> bool:
        """Whether HyperPod puts the old image back."""
        return self.software == "RollbackInProgress"

    @property
    def with_jobs(self) -> tuple[Node, ...]:
        """Its nodes that may have jobs or pods, or get some: all that exist and do not terminate."""
        return tuple(node for node in self.nodes if node.instance_id and node.status not in LEAVING)

    def contradicts(self, wanted: str) -> bool:
        """Whether HyperPod reports that it installs another image than the one that was named."""
        if wanted in (LATEST, DEFAULT):
            return False
        like = [image.lower() for image in self.coming if is_release(image) == is_release(wanted)]
        return bool(like) and wanted.lower() not in like


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `patch` does with one group."""

    group: str
    wanted: str
    """A release, an AMI, DEFAULT or LATEST."""
    drained_by: DrainedBy
    node_type: str | None = None
    instance_types: tuple[str, ...] = ()
    rolling: Mapping[str, Any] | None = None
    """DeploymentConfig of UpdateClusterSoftware. None: all nodes at once."""
    why_not: str = ""
    """Why it needs no update. Empty: its nodes run another image, or it is unknown which."""
    older: str = ""
    """The live release, if the wanted one is older."""

    @property
    def is_needed(self) -> bool:
        """Whether the group is patched."""
        return not self.why_not

    @property
    def is_controller(self) -> bool:
        """Whether it is the Slurm controller's group."""
        return self.node_type == "Controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How long the nodes of a group are held: made once when a run begins to drain it, and once when it sends the update.

    All times are seconds since 1970, by the clock of whoever drains.
    """

    began: float
    deadline: float
    """Until when jobs or pods may run."""
    force: bool
    """At the deadline jobs are ended. Otherwise the nodes are released."""
    until: float
    """Until when the nodes are waited for. While HyperPod updates them: until when they are held, whatever becomes of this process."""
    updates: bool = False
    kept: float | None = None
    """Until when they are held at least, because an earlier call may still end jobs."""

    @staticmethod
    def to_drain(now: float, options: Options, kept: float | None = None) -> Hold:
        """From now on, as the options say."""
        until, force = now + options.drain_for_s, options.force_s
        return Hold(
            began=now, deadline=until if force is None else now + force, force=force is not None, until=until, kept=kept
        )

    @staticmethod
    def to_update(now: float, until: float | None = None) -> Hold:
        """As long as an update may take, whatever --drain-for says. `until`: as it was written before."""
        end = now + UPDATE_LIMIT_S if until is None else until
        return Hold(began=now, deadline=end, force=False, until=end, updates=True)

    def lease(self, now: float) -> float:
        """Until when a request holds a node that is written now."""
        return self.until if self.updates else max(now + LEASE_S, self.kept or 0.0)


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

    sent: float | None = None
    """When UpdateClusterSoftware was about to be sent. None: it was not."""
    before: str | None = None
    """SoftwareUpdateStatus at that moment: of an earlier update as long as HyperPod reports the same. Empty: it has reported another one
    since, so that each end is this update's."""
    accepted: bool = False
    """HyperPod accepted the call."""
    seen: bool = False
    """HyperPod was seen at work since."""
    rolled_back: bool = False
    """HyperPod was seen putting the old image back since: then it is over with this update."""
    until: float | None = None
    """Until when its nodes are held for the update, or for an earlier one that may still be at work. None: neither."""
    unconfirmed: bool = False
    """A process has waited for evidence in vain. The next one sends the update again."""
    done: bool = False
    """The group is patched."""

    @property
    def has_arrived(self) -> bool:
        """Whether it is known that HyperPod got the call. A process that was killed may not have seen its answer."""
        return self.accepted or self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An unfinished run: what its lock holds."""

    id: str
    by: str
    """Who goes on with it: user@host."""
    owner: str
    """The process that goes on with it: no other one may."""
    wanted: str
    """The images that its options or the file name (plans.named_images). Others begin another run."""
    until: float
    """The end of its lease, in seconds since 1970. A process that lives renews it."""
    typed: tuple[str, ...] = ()
    """The groups that the user has named."""
    groups: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def updating(self) -> frozenset[str]:
        """The groups for which it has sent an update of which it has not seen the end."""
        return frozenset(name for name, each in self.groups.items() if each.sent is not None and not each.done)

    def held(self, now: float) -> Iterator[str]:
        """The groups whose nodes it holds for an update."""
        return (name for name, each in self.groups.items() if (each.until or 0.0) > now and not each.done)

    @property
    def request_id(self) -> str:
        """The id of its drain requests."""
        return f"{REQUEST_PREFIX}{self.id}"


REQUEST_PREFIX = "patch-"
"""How the ids of a run's drain requests begin. Those of `drain` and of deployments begin otherwise."""
