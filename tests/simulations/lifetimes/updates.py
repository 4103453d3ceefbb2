"""What UpdateCluster may send: counts, specifications, and groups to delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .causes import FINE, Cause, Rules
from .cloudformation import CLUSTER, ClusterUpdate, Template
from .exemptions import Seen
from .function import PREPARE, Request, Write
from .properties import but_counts, counts_of, specs_of

if TYPE_CHECKING:
    from .lifetime import Lifetime


@dataclass(frozen=True)
class FunctionsCount(Seen):
    """A count that the function sent. It must obey what was true when the function looked."""

    write: Write
    count: int

    def __str__(self) -> str:
        nodes = f"{self._taken} taken, {len(self.listed(leaving=True))} shut down"
        return f"{self.request}: {self.name}={self.count}, target {self.then.target}, {nodes}"

    def raised(self) -> Rules:
        fell = self.life.pod.groups[self.name].lowered_since(self.look.since)
        saw = max(self.look.before[self.name].target, self.then.target)
        yield self.count > saw, "the function raises a target"
        yield self.count <= self.write.before[self.name].target, FINE
        yield self.deeds or fell, Cause.CHANGED_BEFORE_OUR_CALL
        yield True, "the function raises a target"

    def stale_count(self) -> Rules:
        wanted = counts_of(self.request.new).get(self.name, 0)
        yield self.count >= self.then.target - self._taken, FINE
        yield self.count < wanted or self._autoscaled, "a stale count"

    def leaving_nodes(self) -> Rules:
        leaving, staying = len(self.listed(leaving=True)), len(self.listed(leaving=False))
        yield leaving and leaving + staying > self.count, "UpdateCluster while nodes are on their way out"

    def autoscaler(self) -> Rules:
        first = self.request.first_look
        yield not self._autoscaled or self.count >= self.then.target or first is None, FINE
        deeds = self.life.actors.counted_since(first.at if first else 0.0, self.name)
        raised = any(deed.raises for deed in deeds if deed.at < self.look.since)
        yield raised, "UpdateCluster where an autoscaler added nodes"

    @property
    def _taken(self) -> int:
        return sum(node.group == self.name for write in self.request.writes for node in write.took)

    @property
    def _autoscaled(self) -> bool:
        """A rollback sends a count to every group, including an autoscaler's."""
        return self.name in self.request.new["AutoscaledGroups"] and not self.request.rollback


def specification(life: Lifetime, request: Request, sent: Mapping[str, Any], live: Mapping[str, Any] | None) -> Rules:
    """The function sends the live specification of a group, or in a rollback the one that it goes back to."""
    name = sent["InstanceGroupName"]
    yield live is None or but_counts(sent) == but_counts(live), FINE
    yield request.rollback and but_counts(sent) == but_counts(specs_of(request.new).get(name, {})), FINE
    guard, cluster = (life.stack.known[each] for each in (PREPARE, CLUSTER))
    yield guard and cluster and _spec_in(guard, name) != _spec_in(cluster, name), Cause.BACK_TO_TWO
    yield True, "UpdateCluster with another specification than the live one"


def _spec_in(template: Template, name: str) -> list[dict[str, Any]]:
    return [but_counts(spec) for spec in template.groups if spec["InstanceGroupName"] == name]


def group_deletion(life: Lifetime, write: Write, name: str) -> Rules:
    """A group that the function deletes."""
    request = write.request
    wanted = set(request.new["InstanceGroupsToDelete"])
    if request.rollback and request.old is not None:
        wanted |= set(counts_of(request.old))
    made = [deed.at for deed in life.actors.deeds if deed.what == "makes the group" and deed.group == name]
    asked = [earlier.at for earlier in request.writes if earlier is not write and name in earlier.groups]
    yield name not in wanted - counts_of(request.new).keys(), "a group by accident"
    yield asked and not any(at > asked[-1] for at in made), "a group is deleted twice"
    yield made, Cause.BY_HAND


def left_out(life: Lifetime, update: ClusterUpdate, name: str) -> Rules:
    """A group that the cluster's own update leaves out, which deletes it."""
    yield name in update.deployment.new.groups_to_delete or name not in life.pod.groups, FINE
    yield update.before is None, Cause.GUARD_NOT_CALLED
    look = update.before.look
    made = look is not None and name not in look.measures and life.actors.since(look.since, name)
    yield made, Cause.CHANGED_BEFORE_CLOUDFORMATION
    yield True, "a group by accident"
