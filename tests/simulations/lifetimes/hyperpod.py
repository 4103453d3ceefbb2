"""A second HyperPod, written only from AWS's documents: not from this project's code, nor from its other simulation.

It records every node that is terminated: which call caused it, and whether the node was named or chosen at random.
Behaviour that AWS does not document is a switch (switches.py). Everything takes time: a call only starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple

from .clock import Clock
from .software import FIRST, PATCHING, Software, release_of
from .switches import Switches

Spec = dict[str, Any]
"""A group in the form of UpdateCluster."""

Who = Literal["function", "cloudformation", "person", "autoscaler", "hyperpod"]
How = Literal[
    "named", "at random", "with its group", "replaced", "with its cluster", "late lowering", "minimum's rollback"
]

_DIFFERS = 0.2
"""Probability that a list has a wrong page, if pages may differ."""

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


class HyperPod:
    """The only cluster of an account."""

    def __init__(self, clock: Clock, rng: Random, switches: Switches, pace: Pace, *, continuous: bool) -> None:
        self.clock, self.rng, self.switches, self.pace = clock, rng, switches, pace
        self.continuous = continuous
        self.exists = False
        self.name = ""
        self.arn = ""
        self.status = "InService"
        self.tags: dict[str, str] = {}
        self.network: Mapping[str, Any] | None = None
        self.orchestrator: Mapping[str, Any] | None = None
        self.groups: dict[str, Group] = {}
        self.endings: list[Ending] = []
        self.never_patched = False
        self.story: list[tuple[float, str]] | None = None
        self.failures = 0
        """Nodes that have failed so far."""
        self.ever: dict[str, Node] = {}
        """Every node that was ever requested, by its logical id."""
        self.watch: Callable[[Node], None] | None = None
        """Called for each node that is about to be terminated."""
        self.operations: list[Operation] = []
        """With continuous provisioning, oldest first."""
        self.reads = Random(f"{rng.getrandbits(32)} the reads")
        """Decides how pages differ from the list."""
        self.reads_operations = Random(f"{rng.getstate()[1][0]} the operations")
        self.software = Software(self, rng.getstate()[1][0])
        self._differs_at = 0
        self._addresses = 0

    @property
    def has_versions(self) -> bool:
        """EKS: images have versions, and updates have batches."""
        return "Eks" in (self.orchestrator or {})

    # -- what is seen --

    def describe(self) -> dict[str, Any]:
        self._there()
        found: dict[str, Any] = {
            "ClusterName": self.name,
            "ClusterArn": self.arn,
            "ClusterStatus": self.status,
            "InstanceGroups": [self._details(group) for group in self.groups.values()],
        }
        if self.network is not None:
            found["VpcConfig"] = self.network
        if self.orchestrator is not None:
            found["Orchestrator"] = self.orchestrator
        if self.continuous:
            found["NodeProvisioningMode"] = "Continuous"
        return found

    def _details(self, group: Group) -> dict[str, Any]:
        details: dict[str, Any] = {
            "InstanceGroupName": group.name,
            "InstanceType": group.spec["InstanceType"],
            "ExecutionRole": group.spec["ExecutionRole"],
            "CurrentCount": self.current_count(group),
            "TargetCount": group.target,
            "Status": self._shown_status(group),
        }
        if self.continuous:
            details["MinCount"] = group.minimum
        # Patching belongs to the specification: UpdateCluster without it disables it.
        for key in ("LifeCycleConfig", "SlurmConfig", "ThreadsPerCore", "OverrideVpcConfig", *PATCHING):
            if key in group.spec:
                details[key] = group.spec[key]
        return details | self.software.details(group)

    def _shown_status(self, group: Group) -> str:
        if group.status != "InService" or not self.continuous:
            return group.status
        if group.under_way:
            return "Updating"
        if self.switches.group_says_updating and (
            len(group.nodes) < group.target or any(node.id is None or node.leaving for node in group.nodes)
        ):
            return "Updating"
        return "InService"

    def _still_counted(self, group: Group) -> int:
        """Nodes that are terminated and still in CurrentCount."""
        if not group.ended:
            return 0
        since = self.clock.now - self.switches.current_lag
        group.ended = [at for at in group.ended if at > since]
        return len(group.ended)

    def current_count(self, group: Group) -> int:
        booting = self.switches.current_counts_booting
        held = sum(1 for node in group.nodes if node.id and (booting or node.status != "Pending"))
        return held + self._still_counted(group)

    def list_nodes(self, token: str | None, *, logical: bool, most: int) -> dict[str, Any]:
        self._there()
        # In the order of their requests, so that a page neither skips nor repeats a node that stays, unless `pages`
        # says so.
        seen = sorted(self._listed(logical), key=lambda node: node.logical)
        most, reply = min(most, self.switches.page), {}
        if self.switches.pages == "change":
            return self._changing_page(seen, int(token or 0), most)
        start = sum(node.logical <= token for node in seen) if token else 0
        shown = [self._summary(node) for node in seen[start : start + most]]
        if len(seen) > start + most:
            reply = {"NextToken": seen[start + most - 1].logical}
        if self._differs(start // most, len(seen)) and start < len(seen):
            shown = self._another_page(shown, seen[start - 1])
        return {"ClusterNodeSummaries": shown, **reply}

    def _listed(self, logical: bool) -> Iterator[Node]:
        since = self.clock.now - self.switches.list_lag
        lingering: list[Node] = []
        for ending in reversed(self.endings):
            if ending.at <= since:
                break
            if ending.node.gone and self.groups.get(ending.node.group) is ending.group:
                lingering.append(ending.node)
        for node in (*(node for group in self.groups.values() for node in group.nodes), *lingering):
            if node.id or (logical and self.continuous and self.switches.unlaunched_listed):
                yield node

    def _differs(self, page: int, number: int) -> bool:
        """Whether this page is wrong. At most one page of a list is."""
        if self.switches.pages == "whole" or not page:
            pages = number // self.switches.page
            rare = self.switches.pages == "whole" or self.reads.random() >= _DIFFERS
            self._differs_at = 0 if rare else self.reads.randint(1, max(1, pages))
        return page > 0 and page == self._differs_at

    def _another_page(self, shown: list[dict[str, Any]], before: Node) -> list[dict[str, Any]]:
        """The wrong page. `before`: the last node of the page before."""
        if self.switches.pages == "skip":
            return shown[1:]
        repeated = self._summary(before)
        if self.switches.pages == "repeat by the other id" and self.continuous:
            repeated = {key: value for key, value in repeated.items() if key not in ("InstanceId", "LaunchTime")}
        return [repeated, *shown]

    def _changing_page(self, seen: list[Node], start: int, most: int) -> dict[str, Any]:
        """By position: if the order changes between two pages, some nodes are repeated, and as many left out."""
        if self._differs(start // most, len(seen)):
            self.reads.shuffle(seen)
        more = {"NextToken": str(start + most)} if len(seen) > start + most else {}
        return {"ClusterNodeSummaries": [self._summary(node) for node in seen[start : start + most]], **more}

    def describe_node(self, node_id: str) -> dict[str, Any]:
        """DescribeClusterNode."""
        self._there()
        node = self.node(node_id)
        if node is None or node.id != node_id:
            raise Refused(self.switches.not_found, f"{node_id} is no node of the cluster.")
        details: dict[str, Any] = {"InstanceGroupName": node.group, "InstanceId": node.id}
        if node.launched is not None and self.clock.now > node.launched + 20:
            details["PrivatePrimaryIp"] = node.address
        return {"NodeDetails": details}

    def _summary(self, node: Node) -> dict[str, Any]:
        ended = node.leaving or (node.gone and node.id)
        shown = node.was if ended and self.clock.now < node.ends + self.switches.list_lag else node.status
        summary: dict[str, Any] = {
            "InstanceGroupName": node.group,
            "InstanceStatus": {"Status": shown},
            "InstanceType": self.groups[node.group].spec["InstanceType"],
        }
        if node.id:
            summary["InstanceId"] = node.id
            summary["LaunchTime"] = self.clock.datetime((node.launched or 0.0) + self.switches.clocks_apart)
            if node.outdated:
                summary["ImageVersionStatus"] = "UpdateAvailable"
            if self.has_versions:
                summary["CurrentImageReleaseVersion"] = node.image
        elif self.switches.empty_lists:
            summary["InstanceId"] = ""
        if self.continuous:
            summary["NodeLogicalId"] = node.logical
        return summary

    def list_operations(self) -> list[dict[str, Any]]:
        """ListClusterOperations: scaling in progress, newest first."""
        found = [self._operation(each) for each in reversed(self._told_operations())]
        return [each for each in found if each["Status"] == "InProgress"]

    def describe_operation(self, operation_id: str) -> dict[str, Any]:
        """DescribeClusterOperation."""
        for each in self._told_operations():
            if each.id == operation_id:
                details = [
                    {
                        "InstanceGroupName": name,
                        "Status": self.status_of(each, name),
                        "Original": {"TargetCount": before},
                        "Desired": {"TargetCount": after},
                    }
                    for name, (before, after) in each.targets.items()
                ]
                return {**self._operation(each), "ScalingDetails": details}
        raise Refused(self.switches.not_found, f"{operation_id} is no operation of the cluster.")

    def _told_operations(self) -> list[Operation]:
        self._there()
        if self.switches.operations == "denied":
            raise Refused("AccessDeniedException", "is not authorized to perform: sagemaker:ListClusterOperations")
        return [] if self.switches.operations == "empty" else self.operations

    def _operation(self, operation: Operation) -> dict[str, Any]:
        states = {self.status_of(operation, name) for name in operation.targets}
        return {
            "OperationId": operation.id,
            "ClusterArn": self.arn + ("0" if self.switches.operations == "another cluster's" else ""),
            "Type": "Scaling",
            "Status": "InProgress" if "InProgress" in states else "Superseded" if "Superseded" in states else "Done",
            "CreationTime": self.clock.datetime(operation.at),
        }

    def status_of(self, operation: Operation, name: str) -> str:
        """A node of one of its groups."""
        if [each for each in self.operations if name in each.targets][-1] is not operation:
            return "Superseded"
        nodes = self.groups[name].nodes if name in self.groups else []
        before, after = operation.targets[name]
        lately = self.clock.now < operation.at + self.switches.operations_lag
        leaves = any(node in nodes for node in operation.ended)
        comes = before < after and any(node.status == "Pending" for node in nodes)
        return "InProgress" if lately or leaves or comes else "Done"

    @contextmanager
    def _recorded(self, by: Who) -> Iterator[None]:
        """All changes inside are one operation, if they change targets."""
        before, ended = {name: group.target for name, group in self.groups.items()}, len(self.endings)
        yield
        now = {name: group.target for name, group in self.groups.items() if group.status != "Deleting"}
        changed = {name: (before.get(name, 0), target) for name, target in now.items() if target != before.get(name, 0)}
        if changed and self.continuous:
            number = len(self.operations)
            operation_id = f"{number:08x}-0000-4000-8000-{number:012x}"
            nodes = [ending.node for ending in self.endings[ended:]]
            self.operations.append(Operation(operation_id, self.clock.now, by, changed, nodes))

    # -- what is changed --

    def create(
        self,
        name: str,
        specs: Sequence[Spec],
        *,
        tags: Mapping[str, str],
        network: Mapping[str, Any] | None,
        orchestrator: Mapping[str, Any] | None,
        by: Who,
    ) -> None:
        if self.exists:
            raise Refused("ResourceInUse", "a cluster of this name exists")
        self.exists, self.name, self.tags = True, name, dict(tags)
        self.network, self.orchestrator = network, orchestrator
        self.arn = f"arn:aws:sagemaker:us-west-2:111122223333:cluster/{self.rng.randrange(36**11, 36**12):012d}"[:60]
        self.groups = {}
        for spec in specs:
            self._add_group(spec, by)
        if not self.continuous:
            self._keep_busy()

    def update(
        self, specs: Sequence[Spec], to_delete: Sequence[str] = (), *, by: Who, call: object = None, alone: bool = False
    ) -> None:
        """UpdateCluster. `alone`: the request has no InstanceGroups at all."""
        self._there()
        self._idle("UpdateCluster")
        if any(node.status == "DeepHealthCheckInProgress" for group in self.groups.values() for node in group.nodes):
            raise Refused(self.switches.busy, "The cluster cannot be updated while a deep health check is in progress.")
        self._check(specs, to_delete, alone=alone)
        if self.story is not None:
            counts = ", ".join(f"{spec['InstanceGroupName']}={spec['InstanceCount']}" for spec in specs)
            self.tell(f"UpdateCluster by {by}: {counts}" + (f" deletes {', '.join(to_delete)}" if to_delete else ""))
        before = {name: group.spec for name, group in self.groups.items()}
        with self._recorded(by):
            for name in to_delete:
                self._delete_group(self.groups[name], by, call)
            for spec in specs:
                group = self.groups.get(spec["InstanceGroupName"])
                if group is None:
                    self._add_group(spec, by)
                else:
                    self._resize(group, self.software.completed(group, spec), by, call)
                    self.software.take_image(group, spec, by=by, call=call)
        if to_delete and not specs and self.switches.deletion_drops_patching:
            for group in self.groups.values():
                group.spec = {key: value for key, value in group.spec.items() if key != "AutoPatchConfig"}
        self.software.note_update(before, by=by, call=call, alone=not specs)
        if not self.continuous:
            self._keep_busy()

    def batch_delete(
        self, ids: Sequence[str], logical: Sequence[str] = (), *, by: Who, call: object = None
    ) -> tuple[dict[str, Any], list[Node]]:
        """BatchDeleteClusterNodes: the reply, and the deleted nodes."""
        self._there()
        self._idle("BatchDeleteClusterNodes")
        if self.never_patched:
            raise Refused(
                "ValidationException", "The cluster's software must be updated first: call UpdateClusterSoftware."
            )
        if len(ids) > 99 or (logical and len(ids) + len(logical) > 50):
            raise Refused("ValidationException", "Too many nodes in one call.")
        known = {
            name: node
            for group in self.groups.values()
            for node in group.nodes
            for name in (node.id, node.logical)
            if name
        }
        wanted = [(name, "NodeId", known.get(name)) for name in ids]
        wanted += [(name, "NodeLogicalId", known.get(name)) for name in logical]
        self._above_minimum([node for _, _, node in wanted if node and not node.leaving])
        took: list[Node] = []
        failed: list[dict[str, str]] = []
        for name, key, node in wanted:
            if reason := self._why_not(node, key):
                failed.append({"Code": reason, "Message": f"{name}: {reason}", key: name})
            elif node is not None and node not in took:
                took.append(node)
        if failed and not took and self.switches.all_fail != "answered":
            raise Refused(self.switches.all_fail, f"None of the nodes can be deleted: {failed[0]['Code']}")
        with self._recorded(by) if self.switches.operations == "told, also of deletions" else nullcontext():
            for node in took:
                self._end(node, "named", by, call)
            self._lower_targets(took, by)
        if took and not self.continuous and self.switches.delete_keeps_busy:
            self._keep_busy()
        reply: dict[str, Any] = {
            "Successful": [name for name, key, node in wanted if node in took and key == "NodeId"],
            "Failed": [entry for entry in failed if "NodeId" in entry],
            "SuccessfulNodeLogicalIds": [name for name, key, node in wanted if node in took and key == "NodeLogicalId"],
            "FailedNodeLogicalIds": [entry for entry in failed if "NodeLogicalId" in entry],
        }
        return (reply if self.switches.empty_lists else {key: value for key, value in reply.items() if value}), took

    def add(self, name: str, number: int, *, by: Who) -> None:
        """BatchAddClusterNodes for one group."""
        self._there()
        self._idle("BatchAddClusterNodes")
        group = self.groups.get(name)
        if group is None or group.status == "Deleting" or not self.continuous or group.under_way:
            raise Refused("ValidationException", "InvalidInstanceGroupStatus")
        with self._recorded(by):
            group.target += number
        self.tell(f"BatchAddClusterNodes by {by}: {name} +{number}, target {group.target}")
        self._grow(group, by)

    def delete(self, *, by: Who) -> None:
        self._there()
        for group in self.groups.values():
            for node in group.live:
                self._end(node, "with its cluster", by, None)
        self.exists, self.groups = False, {}

    # -- what an update would do: the judge asks it too --

    def measure(self, group: Group) -> Measure:
        unlaunched = leaving = 0
        for node in group.nodes:
            if node.status == "ShuttingDown":
                leaving += 1
            elif node.id is None:
                unlaunched += 1
        return Measure(len(group.nodes) - leaving, unlaunched, leaving, self._still_counted(group), group.target)

    def ends_at_random(self, measure: Measure, count: int) -> int:
        """How many nodes with an instance UpdateCluster with this count may terminate, for a group with these
        counts."""
        chosen = self.surplus(measure, count)
        if chosen > 0 and self.switches.unlaunched_first:
            chosen -= measure.unlaunched
        return max(0, min(chosen, measure.live - measure.unlaunched))

    def surplus(self, measure: Measure, count: int) -> int:
        """How many nodes UpdateCluster with this count gives up."""
        if self.switches.only_on_a_fall and count >= measure.target:
            return 0
        counted = measure.live
        if self.switches.counts_leaving:
            counted += measure.leaving
        if self.switches.counts_ended:
            counted += measure.ended
        surplus = counted - count
        if self.switches.by_target and not self.continuous:
            surplus = max(surplus, measure.target - count)
        return max(0, min(surplus, measure.live))

    # -- what happens by itself, or because somebody else wants it --

    def fail(self, node: Node) -> None:
        """The hardware fails, and HyperPod replaces it after a while."""
        if node.gone or node.leaving or node.id is None:
            return
        node.status, node.failed = "Failure", True
        self.failures += 1
        self.tell(f"{node.name} fails")
        self.clock.later(self.rng.uniform(*self.pace.replaces_after), partial(self._replace, node))

    def check_health(self, nodes: Iterable[Node], seconds: float) -> None:
        """A deep health check. UpdateCluster is refused while it runs."""
        for node in nodes:
            if node.status == "Running":
                node.status = "DeepHealthCheckInProgress"
                self.clock.later(seconds, partial(self._healthy, node))

    def update_software(self, seconds: float) -> None:
        """UpdateClusterSoftware: the cluster is busy, and its nodes return with the new image."""
        if not self.exists or self.status in BUSY:
            return
        self.status = "SystemUpdating"
        nodes = [node for group in self.groups.values() for node in group.nodes if node.status == "Running"]
        for node in nodes:
            node.status = "SystemUpdating"

        def done() -> None:
            self.status = "InService"
            for node in nodes:
                if node.status == "SystemUpdating":
                    node.status, node.outdated = "Running", False

        self.clock.later(seconds, done)

    def give_instances(self) -> None:
        """All requested nodes have booted: the start of a lifetime."""
        for group in self.groups.values():
            for node in group.nodes:
                if node.id is None:
                    self._instance(node)
                node.status = "Running"
            group.under_way, group.settled = False, (group.target, group.minimum)
        self.status = "InService"

    def request_node(self, group: Group, by: Who) -> Node:
        """A node for which HyperPod will look for an instance."""
        node = Node(group=group.name, logical=f"n{len(self.ever) + 1:06d}", requested=self.clock.now, by=by)
        self.ever[node.logical] = node
        group.nodes.append(node)
        return node

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append((self.clock.now, text))

    def node(self, name: str) -> Node | None:
        return next(
            (node for group in self.groups.values() for node in group.nodes if name in (node.id, node.logical)), None
        )

    # -- inside --

    def _there(self) -> None:
        if not self.exists:
            raise Refused(self.switches.not_found, "Cluster not found.")

    def _idle(self, operation: str) -> None:
        # Batch* calls are refused while a group is patched, whatever the cluster's status shows.
        patched = self.software.in_progress and operation.startswith("Batch")
        if self.status in BUSY or patched:
            raise Refused(
                self.switches.busy,
                f"{operation} cannot be done: an operation on the cluster is in progress ({self.status}).",
            )

    def _check(self, specs: Sequence[Spec], to_delete: Sequence[str], *, alone: bool) -> None:
        if alone and to_delete and not self.switches.delete_alone:
            raise Refused("ValidationException", "InstanceGroups must not be empty.")
        names = [spec["InstanceGroupName"] for spec in specs]
        for name in to_delete:
            if name in names:
                raise Refused("ValidationException", f"{name} is in InstanceGroups and in InstanceGroupsToDelete.")
            if name not in self.groups:
                raise Refused("ValidationException", f"Instance group {name} does not exist.")
            if self.groups[name].status == "Deleting":
                raise Refused("ConflictException", f"Instance group {name} is being deleted.")
            if self.groups[name].controller:
                raise Refused(
                    "ValidationException", "Cluster must have exactly one InstanceGroup with Controller node type."
                )
        if to_delete and not (set(self.groups) | set(names)) - set(to_delete):
            raise Refused("ValidationException", "The last instance group cannot be deleted.")
        for spec in specs:
            name, count, minimum = spec["InstanceGroupName"], spec["InstanceCount"], spec.get("MinInstanceCount", 0)
            if not isinstance(count, int) or not isinstance(minimum, int) or minimum > count:
                raise Refused(
                    "ValidationException", f"{name}: MinInstanceCount {minimum} is above InstanceCount {count}."
                )
            if minimum and not self.continuous:
                raise Refused("ValidationException", "MinInstanceCount needs NodeProvisioningMode Continuous.")
            live = self.groups.get(name)
            if live is None:
                if count < 1:
                    raise Refused(
                        "ValidationException", f"{name}: a new instance group must have at least one instance."
                    )
                continue
            if live.status == "Deleting":
                raise Refused("ConflictException", f"Instance group {name} is being deleted.")
            if count < live.minimum and not self.switches.count_below_minimum:
                raise Refused("ValidationException", f"{name}: {count} is below the MinInstanceCount {live.minimum}.")
            for key in ("InstanceType", "ExecutionRole", "ThreadsPerCore"):
                if spec.get(key) != live.spec.get(key):
                    raise Refused("ValidationException", f"{name}: {key} cannot be changed.")

    def _add_group(self, spec: Spec, by: Who) -> None:
        name = spec["InstanceGroupName"]
        group = Group(name=name, spec=dict(spec), target=spec["InstanceCount"], minimum=spec.get("MinInstanceCount", 0))
        group.begun_by = by
        group.image = release_of(spec) or self.software.latest
        self.groups[name] = group
        self._guard(group)
        self._grow(group, by)

    def _resize(self, group: Group, spec: Spec, by: Who, call: object) -> None:
        count, minimum = spec["InstanceCount"], spec.get("MinInstanceCount", 0)
        surplus = self.surplus(self.measure(group), count)
        changed = (count, minimum) != (group.target, group.minimum)
        eased = group.under_way and minimum <= group.minimum
        group.spec, group.target, group.minimum = dict(spec), count, minimum
        if surplus > 0:
            self._end_at_random(group, surplus, "at random", by, call)
        if changed:
            if not eased:  # Otherwise the group waits for the same minimum, or a lower one.
                group.begun_by = by
            self._guard(group)
        self._grow(group, by)

    def _guard(self, group: Group) -> None:
        """A new minimum, or target, begins a transition, which ends when the minimum is met, after three hours at
        most."""
        group.changed += 1
        if not self._met(group):
            group.under_way = True
            self.clock.later(3 * 3600, partial(self._give_up, group, group.changed))
        else:
            group.under_way, group.settled = False, (group.target, group.minimum)

    def _met(self, group: Group) -> bool:
        return sum(1 for node in group.nodes if node.status == "Running") >= group.minimum

    def _look_at_minimum(self, group: Group) -> None:
        if group.under_way and self._met(group):
            group.under_way, group.settled = False, (group.target, group.minimum)

    def _give_up(self, group: Group, change: int) -> None:
        if not group.under_way or group.changed != change or self.groups.get(group.name) is not group:
            return
        group.under_way = False
        group.target, group.minimum = group.settled
        self.tell(f"{group.name}: minimum not met, back to {group.target}")
        if (surplus := len(group.live) - group.target) > 0:
            self._end_at_random(group, surplus, "minimum's rollback", "hyperpod", group.begun_by)

    def _end_at_random(self, group: Group, count: int, how: How, by: Who, call: object) -> None:
        live = group.live
        chosen: list[Node] = []
        if self.switches.unlaunched_first:
            chosen = [node for node in live if node.id is None][:count]
            live = [node for node in live if node not in chosen]
        chosen += self.rng.sample(live, min(count - len(chosen), len(live)))
        for node in chosen:
            self._end(node, how, by, call)

    def _delete_group(self, group: Group, by: Who, call: object) -> None:
        group.status = "Deleting"
        group.target = group.minimum = 0
        self.tell(f"group {group.name} is deleted by {by}")
        for node in group.live:
            self._end(node, "with its group", by, call)
        self.clock.later(5, partial(self._forget_group, group))

    def _forget_group(self, group: Group) -> None:
        if group.nodes:
            self.clock.later(15, partial(self._forget_group, group))
        elif self.groups.get(group.name) is group:
            del self.groups[group.name]

    def _above_minimum(self, nodes: Sequence[Node]) -> None:
        for group in {node.group: self.groups[node.group] for node in nodes}.values():
            if group.under_way:
                raise Refused(
                    self.switches.busy,
                    f"{group.name} has not reached its minimum: its update is in progress. Try again later.",
                )
            left = len(group.live) - sum(1 for node in nodes if node.group == group.name)
            if self.switches.minimum_blocks and group.minimum and left < group.minimum:
                raise Refused(
                    "ValidationException", f"{group.name} would fall below its MinInstanceCount {group.minimum}."
                )

    def _why_not(self, node: Node | None, key: str) -> str | None:
        if node is None or (key == "NodeId") != (node.id is not None):
            return f"{key}NotFound"
        if node.leaving or node.status in ("DeepHealthCheckInProgress", "SystemUpdating"):
            return "InvalidNodeStatus"
        if self.groups[node.group].controller:
            return self.switches.in_use
        if node.in_use_until == 0.0 and self.rng.random() < self.pace.in_use:
            node.in_use_until = self.clock.now + self.rng.uniform(30, 600)
        return self.switches.in_use if self.clock.now < node.in_use_until else None

    def _lower_targets(self, took: Sequence[Node], by: Who) -> None:
        way, cause = self.switches.lowering, Lowering(self.clock.now, by)
        for name in dict.fromkeys(node.group for node in took):
            group = self.groups[name]
            number = sum(1 for node in took if node.group == name)
            if way == "at once":
                group.target = max(0, group.target - number)
            elif way == "late, relative" or way == "late, absolute":
                group.lowering += number
                to = group.target - number if way == "late, absolute" else None
                self.clock.later(self.switches.lowering_delay, partial(self._lower, group, number, to, cause))
            elif way == "when gone":
                group.lowering += number
            else:
                self.clock.later(self.rng.uniform(3, 60), partial(self._grow, group, "hyperpod"))

    def _lower(self, group: Group, by: int, to: int | None, cause: Lowering) -> None:
        group.lowering -= by
        if group.status == "Deleting":
            return
        group.target = max(0, group.target - by if to is None else to)
        group.lowered.append((self.clock.now, cause))
        self.tell(f"{group.name}: target falls to {group.target} because nodes were deleted")
        surplus = len(group.live) - group.target
        if surplus > 0 and self.switches.late_lowering_ends:
            self._end_at_random(group, surplus, "late lowering", "hyperpod", cause)
        self._grow(group, "hyperpod")

    def _keep_busy(self) -> None:
        """Standard provisioning: the cluster is Updating until its nodes exist or are terminated, or ten minutes are
        over."""
        if self.status != "Updating":
            self.status = "Updating"
            self.clock.later(self.rng.uniform(*self.pace.update), partial(self._rest, self.clock.now + 600))

    def _rest(self, at_last: float) -> None:
        moving = any(
            node.leaving or node.id is None or node.status == "Pending"
            for group in self.groups.values()
            for node in group.nodes
        )
        if moving and self.clock.now < at_last:
            self.clock.later(20, partial(self._rest, at_last))
        elif self.status == "Updating":
            self.status = "InService"

    def _grow(self, group: Group, by: Who) -> None:
        if group.status == "Deleting" or not self.exists:
            return
        for _ in range(group.target - group.lowering - len(group.live)):
            node = self.request_node(group, by)
            self.clock.later(self.rng.uniform(*self.pace.launch), partial(self._launch, node))

    def _launch(self, node: Node) -> None:
        group = self.groups.get(node.group)
        if node.gone or node.leaving or group is None or node.id:
            return
        if self.clock.now < group.lacks_capacity_until:
            self.clock.later(self.rng.uniform(60, 200), partial(self._launch, node))
            return
        self._instance(node)
        self.tell(f"{node.name} is launched in {group.name}")
        self.clock.later(self.rng.uniform(*self.pace.boot), partial(self._boot, node))

    def _instance(self, node: Node) -> None:
        node.id = f"i-{self.rng.getrandbits(68):017x}"
        node.launched = self.clock.now
        group = self.groups[node.group]
        node.image = group.image
        if group.addresses:
            node.address = group.addresses.pop()
        else:
            self._addresses += 1
            node.address = f"10.1.{self._addresses // 250}.{self._addresses % 250 + 4}"

    def _boot(self, node: Node) -> None:
        if node.gone or node.status != "Pending":
            return
        if self.rng.random() < self.pace.boot_failures:
            self.fail(node)
            return
        node.status = "Running"
        if group := self.groups.get(node.group):
            self._look_at_minimum(group)

    def _healthy(self, node: Node) -> None:
        if node.status == "DeepHealthCheckInProgress":
            node.status = "Running"

    def _replace(self, node: Node) -> None:
        group = self.groups.get(node.group)
        if node.gone or node.leaving or node.status != "Failure" or group is None or self.status == "SystemUpdating":
            return
        self._end(node, "replaced", "hyperpod", None)
        group.addresses.append(node.address)
        self._grow(group, "hyperpod")

    def _end(self, node: Node, how: How, by: Who, call: object) -> None:
        if self.watch is not None:
            self.watch(node)
        group = self.groups[node.group]
        self.endings.append(Ending(node, self.clock.now, how, by, call, group))
        self.tell(f"{node.name} of {node.group} ends, {how}, by {by}")
        cause = Lowering(self.clock.now, by)
        if node.id is None:
            node.gone = True
            group.nodes.remove(node)
            if how == "named" and self.switches.lowering == "when gone":
                self.clock.later(1, partial(self._lower, group, 1, None, cause))
            return
        node.was, node.ends, node.status = node.status, self.clock.now, "ShuttingDown"
        self.clock.later(self.rng.uniform(*self.pace.shut_down), partial(self._leave, node, group, how, cause))

    def _leave(self, node: Node, group: Group, how: How, cause: Lowering) -> None:
        node.gone, node.left = True, self.clock.now
        if node in group.nodes:
            group.nodes.remove(node)
        group.ended.append(self.clock.now)
        if how == "named" and self.switches.lowering == "when gone":
            self._lower(group, 1, None, cause)
