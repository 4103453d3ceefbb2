"""What the second HyperPod shows: DescribeCluster, lists of nodes, and the record of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from .clock import Clock
from .model import Ending, Group, Measure, Node, Operation, Pace, Refused
from .software import PATCHING, Software
from .switches import Switches

_DIFFERS = 0.2
"""Probability that a list has a wrong page, if pages may differ."""


class Shown:
    """The state of the only cluster of an account, and what calls that read it return."""

    software: Software

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
        self._differs_at = 0
        self._addresses = 0

    @property
    def has_versions(self) -> bool:
        """EKS: images have versions, and updates have batches."""
        return "Eks" in (self.orchestrator or {})

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

    def node(self, name: str) -> Node | None:
        return next(
            (node for group in self.groups.values() for node in group.nodes if name in (node.id, node.logical)), None
        )

    def measure(self, group: Group) -> Measure:
        unlaunched = leaving = 0
        for node in group.nodes:
            if node.status == "ShuttingDown":
                leaving += 1
            elif node.id is None:
                unlaunched += 1
        return Measure(len(group.nodes) - leaving, unlaunched, leaving, self._still_counted(group), group.target)

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append((self.clock.now, text))

    def _there(self) -> None:
        if not self.exists:
            raise Refused(self.switches.not_found, "Cluster not found.")
