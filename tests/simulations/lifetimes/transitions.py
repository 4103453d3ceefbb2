"""What happens in the second HyperPod by itself, or because a call has begun it: everything takes time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from .model import BUSY, Ending, Group, How, Lowering, Measure, Node, Who
from .shown import Shown


class Transitions(Shown):
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

    def _forget_group(self, group: Group) -> None:
        if group.nodes:
            self.clock.later(15, partial(self._forget_group, group))
        elif self.groups.get(group.name) is group:
            del self.groups[group.name]

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
