"""A second HyperPod, written only from AWS's documents: not from this project's code, nor from its other simulation.

It records every node that is terminated: which call caused it, and whether the node was named or chosen at random.
Behaviour that AWS does not document is a switch (switches.py). Everything takes time: a call only starts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any

from .clock import Clock
from .model import BUSY, Ending, Group, How, Lowering, Measure, Node, Operation, Pace, Refused, Spec, Who
from .software import Software, release_of
from .switches import Switches
from .transitions import Transitions

__all__ = [
    "BUSY",
    "Ending",
    "Group",
    "How",
    "HyperPod",
    "Lowering",
    "Measure",
    "Node",
    "Operation",
    "Pace",
    "Refused",
    "Spec",
    "Who",
]


class HyperPod(Transitions):
    """The calls that change the cluster."""

    def __init__(self, clock: Clock, rng: Random, switches: Switches, pace: Pace, *, continuous: bool) -> None:
        super().__init__(clock, rng, switches, pace, continuous=continuous)
        self.software = Software(self, rng.getstate()[1][0])

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
        wanted = [(name, "NodeId", self.node(name)) for name in ids]
        wanted += [(name, "NodeLogicalId", self.node(name)) for name in logical]
        self._above_minimum([node for _, _, node in wanted if node and not node.leaving])
        judged = [(name, key, node, self._why_not(node, key)) for name, key, node in wanted]
        took = [*dict.fromkeys(node for _, _, node, why in judged if node and not why)]
        failed = [{"Code": why, "Message": f"{name}: {why}", key: name} for name, key, _, why in judged if why]
        if failed and not took and self.switches.all_fail != "answered":
            raise Refused(self.switches.all_fail, f"None of the nodes can be deleted: {failed[0]['Code']}")
        self._take(took, by, call)
        return self._reply([(name, key) for name, key, node in wanted if node in took], failed), took

    def _take(self, took: Sequence[Node], by: Who, call: object) -> None:
        with self._recorded(by) if self.switches.operations == "told, also of deletions" else nullcontext():
            for node in took:
                self._end(node, "named", by, call)
            self._lower_targets(took, by)
        if took and not self.continuous and self.switches.delete_keeps_busy:
            self._keep_busy()

    def _reply(self, done: Sequence[tuple[str, str]], failed: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        reply: dict[str, Any] = {}
        for key, suffix in (("NodeId", ""), ("NodeLogicalId", "NodeLogicalIds")):
            reply[f"Successful{suffix}"] = [name for name, each in done if each == key]
            reply[f"Failed{suffix}"] = [entry for entry in failed if key in entry]
        return reply if self.switches.empty_lists else {key: value for key, value in reply.items() if value}

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

    def ends_at_random(self, measure: Measure, count: int) -> int:
        """How many nodes with an instance UpdateCluster with this count may terminate, for a group with these
        counts."""
        chosen = self.surplus(measure, count)
        if chosen > 0 and self.switches.unlaunched_first:
            chosen -= measure.unlaunched
        return max(0, min(chosen, measure.live - measure.unlaunched))

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

    def _delete_group(self, group: Group, by: Who, call: object) -> None:
        group.status = "Deleting"
        group.target = group.minimum = 0
        self.tell(f"group {group.name} is deleted by {by}")
        for node in group.live:
            self._end(node, "with its group", by, call)
        self.clock.later(5, partial(self._forget_group, group))

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
