"""What no party could know or prevent: the conditions that rules of several kinds share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .actors import Deed
from .causes import Cause, Rules
from .cloudformation import STACK, TAG, ClusterUpdate
from .function import Look, Request
from .hyperpod import How, Measure

if TYPE_CHECKING:
    from .lifetime import Lifetime


def not_called(life: Lifetime, update: ClusterUpdate) -> Cause:
    """Why the cluster's update came without prepare's."""
    backwards = update.rollback and life.switches.rollback_backwards
    return Cause.BACKWARDS if backwards else Cause.GUARD_NOT_CALLED


def is_anothers(life: Lifetime, update: ClusterUpdate) -> bool:
    return update.rollback and life.pod.tags.get(TAG) != STACK


@dataclass(frozen=True)
class Seen:
    """A group as a request saw it, and what happened to the group since."""

    life: Lifetime
    request: Request
    look: Look
    name: str

    @property
    def then(self) -> Measure:
        """The true state at the end of the look."""
        return self.look.measures[self.name]

    @property
    def deeds(self) -> list[Deed]:
        """Actions of others that changed its counts."""
        return self.life.actors.counted_since(self.look.since, self.name)

    def others_ended(self, how: How | None = None) -> bool:
        """Nodes that the function did not terminate."""
        endings = [ending for ending in self.life.pod.endings[-40:] if ending.node.group == self.name]
        endings = [ending for ending in endings if ending.at >= self.look.since and ending.by != "function"]
        return any(how in (None, ending.how) for ending in endings)

    def others_acted(self) -> bool:
        return bool(self.deeds) or self.others_ended()

    def autoscaler_acts_in_rollback(self) -> bool:
        deeds = self.life.actors.counted_since(self.request.began, self.name)
        return self.request.rollback and any(deed.by == "autoscaler" for deed in deeds)

    def launched_unseen(self) -> bool:
        """A node that was not launched when the function looked, and not listed."""
        pod = self.life.pod
        listed = pod.continuous and self.life.switches.unlaunched_listed
        nodes = [node for node in pod.ever.values() if node.group == self.name and node.requested <= self.look.at]
        return not listed and any(node.launched is not None and node.launched >= self.look.since for node in nodes)

    def listed(self, *, leaving: bool) -> list[dict[str, Any]]:
        nodes = [node for node in self.look.nodes if node["InstanceGroupName"] == self.name]
        return [node for node in nodes if (node["InstanceStatus"]["Status"] == "ShuttingDown") is leaving]

    def stale(self, *, ours: bool = False) -> int:
        """Nodes that were shutting down while the list showed them as before. `ours`: only those that this request
        deleted, otherwise only the others."""
        if not self.life.switches.list_lag:
            return 0
        shown = {node.get("InstanceId") for node in self.listed(leaving=False)} - {None}
        took = [node for write in self.request.writes for node in write.took]
        ended = [ending.node for ending in self.life.pod.endings[-40:] if ending.at <= self.look.at]
        return sum(node.id in shown and (node in took) is ours for node in ended)


@dataclass(frozen=True)
class SentCount(Seen):
    """A count that was sent to a group after a look."""

    count: int

    def ends(self, measure: Measure) -> bool:
        return self.life.pod.ends_at_random(measure, self.count) > 0

    def is_visible(self) -> bool:
        """This count may terminate nodes at random, at the beginning of the look and at its end."""
        looks = (self.look.before, self.look.measures)
        return all(self.ends(measures[self.name]) for measures in looks if self.name in measures)

    def hidden(self) -> Rules:
        """The only cause, which no party can see."""
        if self.ends(self.then):
            yield self._unlaunched_are_hidden(), Cause.HIDDEN_UNLAUNCHED
            yield self._terminated_are_listed(), Cause.STALE_LIST
            yield self._count_is_hidden(), Cause.HIDDEN_COUNT

    def _unlaunched_are_hidden(self) -> bool:
        """As the nodes were read, at the beginning of the look or at its end."""
        measures = (self.then, self.look.before.get(self.name, self.then))
        launched = [each._replace(live=each.live - each.unlaunched, unlaunched=0) for each in measures]
        unlisted = self.life.pod.continuous and not self.life.switches.unlaunched_listed
        return unlisted and not all(self.ends(each) for each in launched)

    def _terminated_are_listed(self) -> bool:
        """With standard provisioning, no list shows the requests that replace them."""
        stale, then = self.stale(), self.then
        asked = 0 if self.life.pod.continuous else min(stale, then.unlaunched)
        live, leaving = then.live + stale - asked, then.leaving - stale
        return stale > 0 and not self.ends(
            then._replace(live=live, leaving=leaving, unlaunched=then.unlaunched - asked)
        )

    def _count_is_hidden(self) -> bool:
        """It is not documented whether CurrentCount includes requested or booting nodes. If it does, what exceeds the
        list has been terminated, and no more."""
        shown, waited = self.look.shown.get(self.name), self.look.at - self.request.began > 290
        if not shown or not waited:
            return False
        told = max(0, shown["CurrentCount"] - sum(node["InstanceGroupName"] == self.name for node in self.look.nodes))
        return told < self.then.ended and not self.ends(self.then._replace(ended=told))
