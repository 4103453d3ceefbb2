"""The required result of a deployment if no party interferes, and whether it had it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .causes import FINE, Cause, Rules, verdict_of
from .cloudformation import CLUSTER, STACK, TAG, Deployment, Template
from .function import PREPARE, Request
from .hyperpod import Group, Node
from .properties import counts_of
from .software import IMAGES, PATCHING, moved_on, release_of

if TYPE_CHECKING:
    from .lifetime import Lifetime


class Expected:
    """The contract's table, for the state at its beginning."""

    def __init__(self, life: Lifetime, old: Template, new: Template) -> None:
        guard, groups = life.stack.known[PREPARE], life.pod.groups
        # The guard is new with this update, or came with one that failed. It sees no cluster, and CloudFormation's own
        # call fails.
        guard_is_new = new.name != old.name and (guard is None or guard.name == new.name)
        # A guard that is new in the stack does not get the cluster's earlier properties.
        changes = guard is None or old.properties(CLUSTER) != new.properties(CLUSTER)
        remaining = [group for group in groups.values() if group.status != "Deleting"]
        going = [group for group in remaining if group.name not in new.counts]
        staying = [Staying(life, old, new, group, changes) for group in remaining if group.name in new.counts]
        self.groups = [name for name in new.groups_to_delete if name in groups]
        self.exact = life.switches.lowering != "never"
        self.takes = {each.group.name: each.by_count + len(each.named) for each in staying}
        self.named = {node.name for each in staying for node in each.named}
        self.doubtful = guard_is_new or any(each.is_doubtful() for each in staying)
        """The contract does not specify the result."""
        number = sum(len(group.live) for group in going) + sum(self.takes.values())
        refusals = [
            (new.name != old.name and not guard_is_new, "the cluster has another name"),
            (new.name == old.name and life.pod.tags.get(TAG) != STACK, "the cluster is another stack's"),
            (new.vpc != life.pod.network, "the cluster has another network"),
            (number > new.max_nodes, f"{number} nodes, max_nodes {new.max_nodes}"),
            *_refused_of_groups(life, new, going, staying),
        ]
        self.refused = [why for applies, why in refusals if applies and why]


def _refused_of_groups(life: Lifetime, new: Template, going: Sequence[Group], staying: Sequence[Staying]) -> Rules:
    guard, by_count = life.stack.known[PREPARE], sum(each.by_count for each in staying)
    known = {node.name for group in life.pod.groups.values() for node in group.nodes}
    strangers = set(new.nodes_to_delete) - known - set(guard.nodes_to_delete if guard else ())
    yield strangers and by_count, f"a name is in no group, and {by_count} would go by count"
    for name in new.groups_to_delete:
        yield name in new.counts, f"{name} is in both lists"
    for group in going:
        why = verdict_of(_goes(life, new, group))
        yield why, why
    for each in staying:
        yield from each.refusals()


def _goes(life: Lifetime, new: Template, group: Group) -> Rules:
    """Why a group that the file does not have may not be deleted."""
    rest = (set(life.pod.groups) | set(new.counts)) - set(new.groups_to_delete)
    yield group.name not in new.groups_to_delete, f"{group.name} is in neither list"
    yield group.controller, f"{group.name} is the controller"
    yield not rest, f"{group.name} is the last one"


@dataclass(frozen=True)
class Staying:
    """A group that the file has."""

    life: Lifetime
    old: Template
    new: Template
    group: Group
    changes: bool
    """The cluster's own properties change."""

    @property
    def count(self) -> int:
        return self.new.counts[self.group.name]

    @property
    def spec(self) -> Mapping[str, Any]:
        return next(spec for spec in self.new.groups if spec["InstanceGroupName"] == self.group.name)

    @property
    def autoscaled(self) -> bool:
        return self.group.name in self.new.autoscaled

    @property
    def named(self) -> list[Node]:
        return [node for node in self.group.live if node.name in self.new.nodes_to_delete]

    @property
    def by_count(self) -> int:
        return 0 if self.autoscaled else max(0, len(self.group.live) - self.count - len(self.named))

    @property
    def too_many(self) -> bool:
        most = max(self.group.target, len(self.group.live)) - self.count
        return bool(self.named) and len(self.named) > most

    def refusals(self) -> Rules:
        """Each that applies counts."""
        group, spec, name = self.group, self.spec, self.group.name
        keys = ("InstanceType", "ExecutionRole", "ThreadsPerCore")
        lower = self.changes and self.count < group.target - len(self.named)
        yield any(spec.get(key) != group.spec.get(key) for key in keys), f"{name}: something that is for life differs"
        yield self.changes and self._turns_patching_off(), f"{name}: patching would be turned off"
        yield self._re_images() and self._goes_to_another_image(), f"{name}: an image would replace {group.image}"
        yield group.controller and self.named, f"{name}: a controller is named"
        yield self.too_many and not self.autoscaled, f"{name}: {len(self.named)} are named, which is too many"
        yield group.controller and self.by_count, f"{name}: the controller's count falls"
        yield self.autoscaled and lower, f"{name}: autoscaled, target {group.target}, count {self.count}"

    def is_doubtful(self) -> bool:
        going = len(self.named) + self.by_count
        blocked = self.life.switches.minimum_blocks and len(self.group.live) - going < self.group.minimum
        return (
            (self.too_many and self.autoscaled)
            # A partial patch, a later patch of the same minor version, or an image that is no longer named.
            or (self._re_images() and not self._goes_to_another_image())
            # A rollback left it. Its minimum cannot be sent, since CloudFormation does not know the group.
            or (going > 0 and blocked and self.group.name not in self.old.counts)
        )

    def _turns_patching_off(self) -> bool:
        off = [setting for setting in PATCHING if setting in self.group.spec and setting not in self.spec]
        return any((setting, self.group.name) not in self.new.patching_off for setting in off)

    @property
    def _images(self) -> set[str]:
        return {node.image for node in self.group.live if node.id}

    def _re_images(self) -> bool:
        """It may: the file names another image than was deployed, or than the group or a node has."""
        if not self.changes or not self.group.live:
            return False
        before = (spec for spec in self.old.groups if spec["InstanceGroupName"] == self.group.name)
        deployed: Mapping[str, Any] = next(before, {})
        image, same = release_of(self.spec), all(self.spec.get(key) == deployed.get(key) for key in IMAGES)
        if image is None:
            return not same
        return image != self.group.image or not (same or self._images == {image})

    def _goes_to_another_image(self) -> bool:
        image, live = release_of(self.spec), self.group.image
        return image is not None and image not in {live, *self._images} and not moved_on(image, live)


@dataclass(frozen=True)
class Result:
    """A deployment that nothing interfered with. `first`: the request of prepare."""

    life: Lifetime
    deployment: Deployment
    expected: Expected
    first: Request

    def __str__(self) -> str:
        return f"{self.deployment.what}: {self.first.reason[:300] or '; '.join(self.expected.refused)}"

    def rules(self) -> Rules:
        first, refused, readiness = self.first, bool(self.expected.refused), self.life.judge.readiness
        writes = [write for request in self.deployment.requests for write in request.writes]
        yield first.left_out, Cause.LEFT_OUT
        yield refused and first.succeeded, "not refused"
        yield refused and any(not write.request.rollback for write in writes), "a refusal after a change"
        yield refused or first.succeeded, FINE
        yield self._target_stays(), Cause.STAYS
        yield self._nodes_left_late(), Cause.SLOW
        yield readiness and readiness.explains(first), FINE
        yield True, "a sound deployment fails"

    def _target_stays(self) -> bool:
        """The target of a group whose nodes it deleted has not fallen, and will not: never, or one of two late
        lowerings undid the other."""
        pod, switches, counts = self.life.pod, self.life.switches, counts_of(self.first.new)
        took = {node.group for write in self.first.writes for node in write.took}
        if switches.lowering == "never":
            return bool(took)
        last = max((write.at for write in self.first.writes if write.took), default=0.0)
        over = switches.lowering == "late, absolute" and self.life.clock.now > last + switches.lowering_delay
        return over and any(name in pod.groups and pod.groups[name].target > counts.get(name, 0) for name in took)

    def _nodes_left_late(self) -> bool:
        """A node that it deleted existed for most of the hour, or still exists."""
        late = self.first.answered - self.first.began > 54 * 60
        since = self.first.answered - self.life.switches.current_lag - 60
        took = [node for write in self.first.writes for node in write.took if node.id]
        return late and any(node.left is None or node.left > since for node in took)

    def faults_of_success(self) -> Iterator[tuple[str, str]]:
        if not self.first.succeeded or self.first.left_out or self.expected.refused:
            return
        yield from self._wrong_nodes()
        if not any(self.expected.takes.values()):
            yield from self._needless()
        if self.deployment.outcome == "succeeded":
            yield from self._remaining_groups()

    def _wrong_nodes(self) -> Iterator[tuple[str, str]]:
        what, expected = self.deployment.what, self.expected
        took = [node for write in self.first.writes for node in write.took]
        # Later nodes are HyperPod's own replacements of the deleted ones.
        groups = {node.name: node.group for node in took if node.requested <= self.first.heard}
        found = Counter(groups.values())
        for name, number in expected.takes.items():
            if expected.exact and found[name] != number:
                yield "not the expected number of nodes", f"{what}: {found[name]} of {name}, not {number}"
        for name in sorted(expected.named - groups.keys()):
            yield "a named node was not taken", f"{what}: {name}"

    def _needless(self) -> Iterator[tuple[str, str]]:
        what, first, waited = self.deployment.what, self.first, self.first.answered - self.first.began
        if first.writes:
            yield "a change where nothing was to change", f"{what}: {first.writes[0].kind}"
        drained = self.life.judge.readiness is not None and self.expected.groups
        if waited > 330 + self.life.switches.current_lag and not drained:
            yield "waits with nothing to take", f"{what}: {waited:.0f} s"

    def _remaining_groups(self) -> Iterator[tuple[str, str]]:
        for name in self.expected.groups:
            group = self.life.pod.groups.get(name)
            if group is not None and group.status != "Deleting":
                yield "a group that should have gone still stands", f"{self.deployment.what}: {name}"
