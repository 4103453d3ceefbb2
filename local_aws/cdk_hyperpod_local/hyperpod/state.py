"""The state of the simulated control plane: frozen values in a few mutable containers."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from .behaviour import Behaviour, Timings
from .faults import Faults
from .outside import Outside

Json = dict[str, Any]

Cause = Literal[
    "named", "random", "group-deleted", "cluster-deleted", "rollback", "standard-rollback", "replaced", "failed"
]
"""Why a node was terminated: named by BatchDelete; random by a lower count; its group or cluster deleted; the rollback
of an unmet minimum or of a failed standard operation; replaced on request; failed to start and retried."""

EVENTS_KEPT = 500
"""ListClusterEvents keeps the last 500 (hyperpod-mental-model.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, from its request to its termination.

    Its logical id is its key: unique in the cluster, and kept if it is replaced.
    """

    logical_id: str
    group: str
    instance_type: str
    """The requested type. For a flexible group, the type it got, or the first choice until it has an instance."""
    number: int
    """Increases with every request: their order."""
    requested_at: float
    image: str
    """The image that it runs, or will run (`images`)."""
    status: str = "Pending"
    instance_id: str | None = None
    """Absent until it has an instance, so before its launch."""
    launched_at: float | None = None
    updated_at: float | None = None
    """Last software update; absent: never."""
    due: float | None = None
    """When its next step happens by itself. Absent: nothing is due, or it waits for capacity."""
    message: str = ""
    listed: bool = True
    """False: not in ListClusterNodes any more, but still in CurrentCount."""
    holds_place: bool = False
    """BatchDelete terminates it and has not lowered the target (yet): no replacement before it has left the list."""
    lifecycle: Json | None = None
    """LifeCycleConfig at its launch. A later change reaches new nodes only ("Update a cluster")."""
    faulty: bool = False
    """HyperPod replaces it when its next step is due."""
    replaces: str | None = None
    """The instance that this one replaces, until it runs."""
    address: str | None = None
    """Its address in the VPC, if it represents a real machine. Absent: an address made from its logical id."""
    attempts: int = 0
    """How often its lifecycle scripts have failed since its root volume was replaced."""

    @property
    def live(self) -> bool:
        """Not shutting down: requested, starting, running or failed."""
        return self.status != "ShuttingDown"

    @property
    def launched(self) -> bool:
        """It has an instance."""
        return self.instance_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """The settings to which an instance group returns if its minimum is not met in time."""

    spec: Json
    target: int
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareUpdate:
    """A software update of an instance group that is in progress."""

    image: str
    """The image that nodes get: during a rollback, the former one."""
    former: str
    """The image of the group before: during a rollback, the one that failed."""
    step: Literal["pending", "batch", "waiting", "patching"] = "pending"
    """Before its start; while a batch of nodes gets the image; between two batches; automatic patching."""
    due: float | None = None
    """When something happens by itself. Absent: when the nodes of the batch have ended their scripts."""
    ends: float = 0.0
    """When the wait between two batches, or the wait for idle nodes, ends."""
    deployment: Json = field(default_factory=dict)
    """DeploymentConfig."""
    rolls_back: bool = False
    everything: bool = False
    """Nodes that have the image already get it again (Behaviour.same_image_again)."""
    chosen: tuple[str, ...] = ()
    """Logical ids of the nodes whose turn has come, including skipped ones."""
    batch: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Nodes whose scripts failed with the image, at every attempt."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """The names of the alarms that roll it back."""
        return tuple(each["AlarmName"] for each in self.deployment.get("AutoRollbackConfiguration", ()))

    @property
    def wait_seconds(self) -> int:
        """WaitIntervalInSeconds."""
        return int(self.deployment.get("WaitIntervalInSeconds", 0))

    @property
    def rolling(self) -> Json | None:
        """RollingUpdatePolicy; None: all nodes at once."""
        return self.deployment.get("RollingUpdatePolicy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One instance group."""

    name: str
    spec: Json
    """The last accepted ClusterInstanceGroupSpecification."""
    target: int
    minimum: int
    status: str
    image: str
    """The desired image (`images`), with which new nodes start."""
    current_image: str
    awaiting: bool = False
    """Its minimum has not been met since it was last set."""
    deadline: float | None = None
    """Until when the minimum must be met. Absent: it is not awaited."""
    good: Good | None = None
    """The settings of a rollback. Absent: 0/0, because the group is new."""
    rolling: bool = False
    """A rollback is terminating nodes."""
    holes: int = 0
    """Nodes below the target that are not replaced (Behaviour.replaces_missing_nodes_after_batch_delete)."""
    short: bool = False
    """A node waits for capacity, and the event log contains that."""
    software: str | None = None
    """SoftwareUpdateStatus; absent: never updated."""
    update: SoftwareUpdate | None = None
    """Absent: no software update is in progress."""
    next_update: float | None = None
    """When ScheduledUpdateConfig updates its software next."""
    next_patch: float | None = None
    """When automatic patching begins. Absent: there is no patch, or no AutoPatchConfig."""

    @property
    def node_type(self) -> str | None:
        """SlurmConfig.NodeType; absent: no SlurmConfig."""
        slurm = self.spec.get("SlurmConfig")
        return None if slurm is None else str(slurm["NodeType"])

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Types in order of preference. One, unless the group is flexible."""
        if "InstanceType" in self.spec:
            return (str(self.spec["InstanceType"]),)
        return tuple(self.spec["InstanceRequirements"]["InstanceTypes"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of ListClusterEvents."""

    event_id: str
    at: float
    resource: str
    level: str
    description: str
    group: str | None = None
    instance_id: str | None = None
    metadata: Json = field(default_factory=dict)
    """EventMetadata of DescribeClusterEvent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of a group."""

    current: int
    target: int
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A request that changed targets or minimums, for ListClusterOperations."""

    operation_id: str
    at: float
    groups: dict[str, tuple[Counts, Counts]]
    """Group name -> its counts before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """A node that was terminated, or a cancelled request for a node."""

    at: float
    cluster: str
    group: str
    logical_id: str
    node_id: str | None
    """Absent: the node had no instance, so only a request was cancelled."""
    cause: Cause
    call: int | None
    """The number in the journal of the call that caused it. Absent: the service did it by itself, later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReImage:
    """A node whose root volume was replaced. Everything that ran on it ended."""

    at: float
    cluster: str
    group: str
    node_id: str
    before: str
    after: str
    """Images (`images`)."""
    call: int | None
    """The number in the journal of the call that began the update. Absent: a schedule, or automatic patching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """From `at` on, `limit` instances of the type are available in all clusters, including running ones.

    None: no limit.
    """

    at: float
    instance_type: str
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A training plan of the account."""

    arn: str
    instance_type: str
    total: int
    available: int
    """Instances that no cluster uses. This number is set, and not counted here."""
    zone: str
    start: float
    end: float
    status: str = "Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A subnet, as far as HyperPod uses it."""

    zone: str
    free: int
    """Free addresses."""
    offered: tuple[str, ...]
    """Instance types that its zone has."""
    addresses: dict[str, int] = field(default_factory=dict)
    """How many addresses a node of a type uses. For a type that is not in it, one."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """One cluster. Everything in it is replaced, never changed in place, except its collections."""

    name: str
    arn: str
    account: str
    region: str
    created_at: float
    settings: Json
    """CreateCluster's parameters apart from ClusterName, InstanceGroups and Tags, with the changes of UpdateCluster."""
    status: str = "Creating"
    failure: str = ""
    due: float | None = None
    """When the cluster's own operation ends. Absent: it ends with its nodes, or there is none."""
    patched: bool = False
    """UpdateClusterSoftware ran once."""
    served: bool = False
    """It was InService once."""
    announced: str = ""
    """The status that EventBridge was told last."""
    ready: int = 0
    """Running nodes at the last look (provisioning)."""
    missing: int = 0
    """Nodes below the target at the last look."""
    before: dict[str, Good] | None = None
    """Standard provisioning: the groups before the running operation."""
    groups: dict[str, Group] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)
    """Oldest first."""
    tokens: dict[str, Json] = field(default_factory=dict)
    """ClientToken of BatchAdd -> {at, request, logical_ids}."""

    @property
    def continuous(self) -> bool:
        """NodeProvisioningMode is Continuous; otherwise standard provisioning."""
        return self.settings.get("NodeProvisioningMode") == "Continuous"

    @property
    def eks(self) -> bool:
        """Orchestrated by EKS; otherwise by Slurm."""
        return "Eks" in self.settings.get("Orchestrator", {})

    @property
    def slurm_configured(self) -> bool:
        """Slurm is configured through the API and not by provisioning_parameters.json."""
        return not self.eks and any(group.node_type for group in self.groups.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What HyperPod sends to EventBridge, or writes to the cluster's log group. `notices.py` writes it out."""

    at: float
    cluster: Cluster
    event: Event | None = None
    """A Cluster Event."""
    status: str | None = None
    """A Cluster State Change."""
    node: Node | None = None
    """The node of a fault."""
    fault: Fault | None = None
    """What the health monitoring agent found on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that the health monitoring agent finds on a node."""

    reason: str = "NvidiaErrorReplace"
    message: str = "NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus."
    severity: str = "error"


NOTICES_KEPT = 20_000
"""The most notices that wait for a reader. Without a reader, the oldest are dropped."""


@dataclass(slots=True, kw_only=True)
class HyperPodState:
    """The whole state of one simulated HyperPod."""

    behaviour: Behaviour
    timings: Timings
    faults: Faults
    seed: int
    now: float
    """Everything that was due up to this time has happened."""
    wake: float | None = None
    """When the next change is due; absent: none."""
    image: str = "1.4.0"
    """Newest image release."""
    older_images: str = "UpdateAvailable"
    """ImageVersionStatus of all older ones: UpdateAvailable, SecurityUpdateRequired or EndOfLife."""
    counter: int = 0
    call: int | None = None
    """Number of the call being served. Absent: time passes without a call."""
    clusters: dict[str, Cluster] = field(default_factory=dict)
    """By ARN."""
    capacity: list[CapacityChange] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    """Name of a quota -> its value, in every account and region; absent: no quota."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """By ARN. Empty: every ARN counts as a plan with free instances."""
    subnets: dict[str, Place] = field(default_factory=dict)
    """By id. A subnet that is not in it is not checked."""
    terminations: list[Termination] = field(default_factory=list)
    re_images: list[ReImage] = field(default_factory=list)
    outside: Outside = field(default_factory=Outside, repr=False)
    """It is not saved."""
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT), repr=False)
    """Oldest first. They are not saved."""

    def number(self) -> int:
        """The next number of the sequence that all parts share."""
        self.counter += 1
        return self.counter

    def random(self) -> Random:
        """A new random stream of the seed. Its whole state is one number, so it is saved with the rest."""
        return Random(f"{self.seed}:{self.number()}")

    def digits(self, length: int) -> str:
        """This many hexadecimal digits, unique in this state."""
        return hashlib.sha256(f"{self.seed}/{self.number()}".encode()).hexdigest()[:length]

    def uuid(self) -> str:
        """An id in the form of a UUID."""
        raw = self.digits(32)
        return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    def log(
        self,
        cluster: Cluster,
        resource: str,
        description: str,
        *,
        level: str = "Info",
        group: str | None = None,
        instance_id: str | None = None,
        metadata: Json | None = None,
    ) -> None:
        """Add an event to the cluster's stream, and drop the oldest."""
        event = Event(
            event_id=self.uuid(), at=self.now, resource=resource, level=level, description=description, group=group,
            instance_id=instance_id, metadata=metadata or {},
        )  # fmt: skip
        cluster.events.append(event)
        del cluster.events[:-EVENTS_KEPT]
        if cluster.continuous:
            self.notices.append(Notice(at=self.now, cluster=cluster, event=event))


def by_group(cluster: Cluster) -> dict[str, list[Node]]:
    """The cluster's nodes by group, in the order of their requests. A group without nodes has an empty list."""
    groups: dict[str, list[Node]] = {name: [] for name in cluster.groups}
    for node in cluster.nodes.values():
        groups.setdefault(node.group, []).append(node)
    return groups


def settings_now(cluster: Cluster) -> dict[str, Good]:
    """The groups to which a failed standard operation returns."""
    return {
        name: Good(spec=group.spec, target=group.target, minimum=group.minimum)
        for name, group in cluster.groups.items()
    }


def current_count(nodes: Iterable[Node], behaviour: Behaviour) -> int:
    """CurrentCount: the group's instances, until they count as terminated (Behaviour.current_count_holds)."""
    booting = behaviour.current_count_holds == "launched"
    return sum(node.launched and (booting or node.status != "Pending") for node in nodes)


def running_count(nodes: Iterable[Node]) -> int:
    """The nodes that count for a minimum."""
    return sum(node.status == "Running" for node in nodes)
