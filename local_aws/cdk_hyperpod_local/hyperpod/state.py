"""What the simulated control plane remembers: frozen values in a few mutable holders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from .behaviour import Behaviour, Timings
from .faults import Faults

Json = dict[str, Any]

Cause = Literal[
    "named", "random", "group-deleted", "cluster-deleted", "rollback", "standard-rollback", "replaced", "failed"
]
"""Why a node ended: named by BatchDelete; random by a lower count; its group or cluster deleted; the rollback of an unmet
minimum or of a failed standard operation; replaced on request; failed to start and retried."""

EVENTS_KEPT = 500
"""ListClusterEvents keeps the last 500 (hyperpod-mental-model.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, from its request to its end. Its logical id is its key: unique in the cluster, kept when it is replaced."""

    logical_id: str
    group: str
    instance_type: str
    """Wanted type; for a flexible group the one it got, or the first choice until it has one."""
    number: int
    """Grows with every request: their order."""
    requested_at: float
    image: str
    """Release of the image it runs, or will run."""
    status: str = "Pending"
    instance_id: str | None = None
    """Absent until it has an instance: not launched yet."""
    launched_at: float | None = None
    updated_at: float | None = None
    """Last software update; absent: never."""
    due: float | None = None
    """When its next step happens by itself; absent: nothing is due, or it waits for capacity."""
    message: str = ""
    listed: bool = True
    """False: gone from ListClusterNodes, still in CurrentCount."""
    holds_place: bool = False
    """Shutting down by BatchDelete with the target not lowered (yet): no replacement before it has left the list."""
    lifecycle: Json | None = None
    """LifeCycleConfig at its launch: a later change reaches new nodes only ("Update a cluster")."""
    address: str | None = None
    """Its address in the VPC, where it stands for a machine that has one; absent: one of its own, by its logical id."""

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
    """The settings an instance group returns to when its minimum is not met in time."""

    spec: Json
    target: int
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One instance group."""

    name: str
    spec: Json
    """ClusterInstanceGroupSpecification as last accepted."""
    target: int
    minimum: int
    status: str
    image: str
    """Desired image release: what new nodes start with."""
    current_image: str
    awaiting: bool = False
    """Its minimum was never met since it was last set."""
    deadline: float | None = None
    """Until when the minimum has to be met; absent: nothing awaited."""
    good: Good | None = None
    """Where a rollback goes; absent: to 0/0, the group is new."""
    rolling: bool = False
    """A rollback is ending nodes."""
    holes: int = 0
    """Nodes below the target that nobody replaces (Behaviour.replaces_missing_nodes_after_batch_delete)."""
    short: bool = False
    """Some node waits for capacity, and the event log says so."""
    software: str | None = None
    """SoftwareUpdateStatus; absent: never updated."""

    @property
    def node_type(self) -> str | None:
        """SlurmConfig.NodeType; absent: no SlurmConfig."""
        slurm = self.spec.get("SlurmConfig")
        return None if slurm is None else str(slurm["NodeType"])

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Types in order of preference; one, unless the group is flexible."""
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
    """Of a group."""

    current: int
    target: int
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A request that changed targets or minimums, for ListClusterOperations."""

    operation_id: str
    at: float
    groups: dict[str, tuple[Counts, Counts]]
    """Name -> its counts before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """A node that was told to end, or a request for one that was cancelled."""

    at: float
    cluster: str
    group: str
    logical_id: str
    node_id: str | None
    """Absent: it had no instance yet, so nothing but a request ended."""
    cause: Cause
    call: int | None
    """Number of the call in the journal that did it; absent: the service by itself, later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """From `at` on, `limit` instances of the type can be had in all clusters, running ones included; None: any number."""

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
    """Instances that no cluster has yet: as it was told, and not counted here."""
    zone: str
    start: float
    end: float
    status: str = "Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A subnet, as far as HyperPod looks at it."""

    zone: str
    free: int
    """Addresses that nothing has."""
    offered: tuple[str, ...]
    """Instance types that its zone has."""
    addresses: dict[str, int] = field(default_factory=dict)
    """How many addresses a node of a type takes; of a type that is not here, one."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """One cluster. Everything in it is replaced, never changed in place, except its collections."""

    name: str
    arn: str
    account: str
    region: str
    created_at: float
    settings: Json
    """CreateCluster's parameters apart from ClusterName, InstanceGroups and Tags, as UpdateCluster changed them."""
    status: str = "Creating"
    failure: str = ""
    due: float | None = None
    """When the cluster's own operation is over; absent: it ends by its nodes, or there is none."""
    patched: bool = False
    """UpdateClusterSoftware ran once."""
    served: bool = False
    """It was InService once."""
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
        """Slurm is configured through the API rather than by provisioning_parameters.json."""
        return not self.eks and any(group.node_type for group in self.groups.values())


@dataclass(slots=True, kw_only=True)
class HyperPodState:
    """Everything that one simulated HyperPod remembers."""

    behaviour: Behaviour
    timings: Timings
    faults: Faults
    seed: int
    now: float
    """Up to when everything due has happened."""
    wake: float | None = None
    """When something is due next; absent: nothing is."""
    image: str = "1.4.0"
    """Newest image release."""
    counter: int = 0
    call: int | None = None
    """Number of the call being served; absent: time passes."""
    clusters: dict[str, Cluster] = field(default_factory=dict)
    """By ARN."""
    capacity: list[CapacityChange] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    """Name of a quota -> its value, in every account and region; absent: no quota."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """By ARN. None at all: every ARN is taken for a plan with room."""
    subnets: dict[str, Place] = field(default_factory=dict)
    """By id. One that is not here has room for everything."""
    terminations: list[Termination] = field(default_factory=list)

    def number(self) -> int:
        """The next number of the one sequence."""
        self.counter += 1
        return self.counter

    def random(self) -> Random:
        """A fresh stream of the seed: randomness whose whole state is one number, so that it survives with the rest."""
        return Random(f"{self.seed}:{self.number()}")

    def digits(self, length: int) -> str:
        """So many hexadecimal digits that nothing else has."""
        return hashlib.sha256(f"{self.seed}/{self.number()}".encode()).hexdigest()[:length]

    def uuid(self) -> str:
        """An id of the form of a UUID."""
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
        """Add an event to the cluster's stream, and forget the oldest."""
        event = Event(
            event_id=self.uuid(), at=self.now, resource=resource, level=level, description=description, group=group,
            instance_id=instance_id, metadata=metadata or {},
        )  # fmt: skip
        cluster.events.append(event)
        del cluster.events[:-EVENTS_KEPT]


def by_group(cluster: Cluster) -> dict[str, list[Node]]:
    """The cluster's nodes, group by group, in the order of their requests; a group without nodes has an empty list."""
    groups: dict[str, list[Node]] = {name: [] for name in cluster.groups}
    for node in cluster.nodes.values():
        groups.setdefault(node.group, []).append(node)
    return groups


def settings_now(cluster: Cluster) -> dict[str, Good]:
    """What a failed standard operation goes back to."""
    return {
        name: Good(spec=group.spec, target=group.target, minimum=group.minimum)
        for name, group in cluster.groups.items()
    }


def current_count(nodes: Iterable[Node], behaviour: Behaviour) -> int:
    """CurrentCount: instances in the group, until they are accounted as gone (Behaviour.current_count_holds)."""
    booting = behaviour.current_count_holds == "launched"
    return sum(node.launched and (booting or node.status != "Pending") for node in nodes)


def running_count(nodes: Iterable[Node]) -> int:
    """What a minimum counts."""
    return sum(node.status == "Running" for node in nodes)
