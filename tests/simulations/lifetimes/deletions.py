"""Which nodes BatchDeleteClusterNodes may delete: how many, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .causes import FINE, Cause, Rules
from .exemptions import Seen
from .function import Look, Request, Write
from .hyperpod import Measure, Node, Operation

if TYPE_CHECKING:
    from .lifetime import Lifetime

CLOCKS = 60.0
"""Seconds within which it is unknown whether a node was launched before an event: LaunchTime and the function's clock
may differ by 30 s, in either direction."""

Rank = tuple[Any, ...]


@dataclass(frozen=True)
class FromGroup(Seen):
    """Nodes of one group that a BatchDelete deleted."""

    write: Write
    count: int
    took: Sequence[Node]
    named: Collection[str]

    def __str__(self) -> str:
        took = ", ".join(node.name for node in self.took)
        numbers = f"{len(self.by_count)} by count, {self.by_name} by name of {self.before.live}, count {self.count}"
        return f"{self.request}: {self.name}: {took}; {numbers}"

    @property
    def before(self) -> Measure:
        return self.write.before[self.name]

    @property
    def by_count(self) -> list[Node]:
        return [node for node in self.took if node.name not in self.named]

    @property
    def by_name(self) -> int:
        return len(self.took) - len(self.by_count)

    @property
    def first(self) -> Look:
        return self.request.first_look or self.look

    @property
    def autoscaled(self) -> bool:
        return self.name in self.request.new["AutoscaledGroups"]

    def by_autoscaler(self) -> Rules:
        yield not (self.by_count and self.autoscaled), FINE
        yield self.request.rollback, Cause.AUTOSCALER_IN_ROLLBACK
        yield True, "a node of an autoscaled group that nobody named"

    def number_by_count(self) -> Rules:
        began, heard = self.request.deployment.began, self.request.heard
        requested = [node.requested for node in self.by_count]
        yield self._fits(self.before.live), FINE
        yield self._fits_what_was_listed(), Cause.STALE_LIST
        yield self._fitted_before_others_acted(), Cause.CHANGED_BEFORE_OUR_CALL
        # The list shows deleted nodes as they were, and the autoscaler keeps requesting more. No node from before the
        # failed update is deleted.
        yield self.autoscaler_acts_in_rollback() and min(requested) >= began, Cause.AUTOSCALER_IN_ROLLBACK
        # The same in an update, for nodes that HyperPod launches to replace the deleted ones.
        yield self.stale(ours=True) and min(requested) > heard, Cause.STALE_LIST
        yield True, "more nodes than the count allows"

    def _fits(self, live: int) -> bool:
        return len(self.by_count) <= max(0, live - self.count - self.by_name)

    def _fits_what_was_listed(self) -> bool:
        """If the target shows that nodes are terminated, an update waits. A rollback that has waited deletes what the
        failed update launched."""
        told = len(self.listed(leaving=False)) > self.look.shown[self.name]["TargetCount"]
        old = [node for node in self.by_count if node.requested < self.request.deployment.began]
        stale = 0 if told and (old or not self.request.rollback) else self.stale()
        return stale > 0 and self._fits(self.before.live + stale)

    def _fitted_before_others_acted(self) -> bool:
        """A list has pages, and a node of the first page may be terminated before the last is read."""
        live = max(self.then.live, len(self.listed(leaving=False)))
        same_look = [write for write in self.request.writes[:-1] if write.look and write.look.at == self.look.at]
        earlier = sum(node.group == self.name for write in same_look for node in write.took)
        return self.others_acted() and self._fits(live - earlier)

    def number_by_name(self) -> Rules:
        took = [node for write in self.request.writes for node in write.took]
        number = sum(node.group == self.name and node.name in self.named for node in took)
        most = [self.then.live + number - self.by_name, self.then.target, self.look.before[self.name].target]
        if self.name in self.first.measures:
            first = self.first.measures[self.name]
            most += [first.live, first.target, self.first.before[self.name].target]
        stale = Seen(self.life, self.request, self.first, self.name).stale()
        yield not self.by_name or self.autoscaled, FINE
        yield number <= max(most) + stale - self.count, FINE
        yield self.name in self.request.left_out, Cause.LEFT_OUT
        yield True, "more names than the count allows"

    def age(self) -> Rules:
        """In a rollback, everything that the failed update launched is newer than what existed before. Otherwise the
        function decides at its first look, a minute after the request: nodes launched between the two are neither old
        nor newer."""
        group, rollback = self.life.pod.groups.get(self.name), self.request.rollback
        since = self.request.deployment.began if rollback else self.request.heard
        until = since if rollback else max(since + CLOCKS, self.first.at)
        left = group.live if group else []
        newer = [node for node in left if not _launched_by(node, until) and self._is_newer(node, since)]
        took = [node for node in self.by_count if _launched_by(node, since)]
        yield all(node.failed and not rollback for node in took), FINE
        yield len([node for node in left if _launched_by(node, until)]) >= self.count, FINE
        yield not newer or self.others_acted() or self.stale(), FINE
        yield True, "an older node goes because of a newer one"

    def _is_newer(self, node: Node, since: float) -> bool:
        """In an update, a node that was requested before the request and launched by this look existed, and the
        documented order holds."""
        return self.request.rollback or node.requested > since or not _launched_by(node, self.look.at)


def _launched_by(node: Node, at: float) -> bool:
    return node.launched is not None and node.launched <= at


def limited(life: Lifetime, request: Request) -> int:
    """How many of the deleted nodes max_nodes counts.

    The replacement of a deleted node did not exist when they were counted. Nodes that are not launched are equivalent:
    if others requested more meanwhile, it deleted those.
    """
    by_request = life.switches.unlaunched_listed
    took = {node for write in request.writes for node in write.took}
    took = {node for node in took if _existed(node, request.heard, by_request=by_request)}
    total = len(took)
    for name in {node.group for node in took} & life.pod.groups.keys():
        later = [node for node in life.pod.groups[name].live if node.id is None and node.requested > request.heard]
        more = sum(node.by in ("person", "autoscaler") for node in later)
        total -= min(more, sum(node.group == name and node.id is None for node in took))
    return total


def _existed(node: Node, at: float, *, by_request: bool) -> bool:
    return node.requested <= at if by_request or node.launched is None else node.launched <= at


def overtaken(life: Lifetime, write: Write, name: str) -> list[str]:
    """For ten minutes no node is deleted while HyperPod's record shows another party's lower count for its group: the
    parties of such operations."""
    request, pod = write.request, life.pod
    told = pod.switches.operations.startswith("told") and not request.unwitnessed
    if not told or request.rollback or write.at - request.heard >= 600:
        return []
    lower = [each for each in pod.operations if each.at < request.began and _lowers(each, name)]
    return [operation.by for operation in lower if pod.status_of(operation, name) == "InProgress"]


def _lowers(operation: Operation, name: str) -> bool:
    before, after = operation.targets.get(name, (0, 0))
    return after < before


# -- the order --


@dataclass(frozen=True)
class Order:
    """The documented order of a group's nodes, by one look of a request."""

    life: Lifetime
    write: Write
    look: Look
    name: str
    known: Mapping[str, tuple[bool, bool]]
    """Nodes that the function knew as drained, or with jobs."""

    def ranks(self) -> dict[str, Rank]:
        """Each node of the group that may be deleted by count, and its place; the lowest is deleted first."""
        request = self.write.request
        ranks: dict[str, Rank] = {}
        named = set() if request.rollback else set(request.new["NodesToDelete"])
        nodes = {name: node for node in self.life.pod.ever.values() for name in (node.id, node.logical) if name}
        for shown in Seen(self.life, request, self.look, self.name).listed(leaving=False):
            node = nodes[str(shown.get("InstanceId") or shown["NodeLogicalId"])]
            launched = node.launched if shown.get("InstanceId") else None
            if request.rollback:
                ranks[node.name] = (launched is not None and launched < request.deployment.began,)
            elif node.name not in named and self._has_a_place(node, launched):
                known = self.known.get(node.name, (True, False))
                ranks[node.name] = (*known, _kind(shown, launched), -(launched or 0.0))
        return ranks

    def _has_a_place(self, node: Node, launched: float | None) -> bool:
        write, request = self.write, self.write.request
        if launched is not None:
            return launched <= request.heard - CLOCKS  # Perhaps before the request began, perhaps not: clocks differ.
        if node.requested > request.heard:
            return False  # It replaces a deleted node, and waits for its termination.
        # A node that is not launched may be cancelled with the target, after the others: the function got no further.
        return node in write.took or not (write.unheard or request.succeeded is False)


def _kind(shown: Mapping[str, Any], launched: float | None) -> int:
    if shown["InstanceStatus"]["Status"] == "Failure":
        return 0
    if launched is None:
        return 1
    return 2 if shown.get("ImageVersionStatus") == "UpdateAvailable" else 3


def out_of_order(took: Collection[str], now: Mapping[str, Rank], asked: Collection[str]) -> list[tuple[str, str]]:
    """A deleted node, and one that stays though it should have been deleted before. `asked`: it was, perhaps by another
    name."""
    went = now.keys() & set(took)
    pairs = [(gone, stays) for gone in sorted(went) for stays in sorted(now.keys() - went - set(asked))]
    return [(gone, stays) for gone, stays in pairs if now[stays] < now[gone]]


def was_chosen(
    pair: tuple[str, str], now: Mapping[str, Rank], first: Mapping[str, Rank], drained: Collection[str]
) -> bool:
    """By the first look: its nodes stay chosen. Or both were, and then fewer had to be deleted: whether they are being
    drained still does not matter."""
    gone, stays = pair
    if first.keys() >= set(pair) and first[gone] < first[stays]:
        return True
    return set(pair) <= set(drained) and now[gone][1:] < now[stays][1:]
