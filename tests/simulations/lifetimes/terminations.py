"""Nodes that HyperPod chose and terminated: because of a count, or because it lowered a target late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .causes import Cause, Rules
from .cloudformation import ClusterUpdate
from .exemptions import SentCount, is_anothers, not_called
from .function import Look, Request, Write
from .hyperpod import Ending, Lowering
from .properties import counts_of

if TYPE_CHECKING:
    from .lifetime import Lifetime


def by_function(sent: SentCount, write: Write, ending: Ending) -> Rules:
    """The function's count terminated a node."""
    of_update = ending.node.requested >= sent.request.deployment.began
    yield from sent.hidden()
    yield of_update and sent.autoscaler_acts_in_rollback(), Cause.AUTOSCALER_IN_ROLLBACK
    yield sent.is_visible(), "the function ends a node at random"
    yield sent.others_acted(), Cause.CHANGED_BEFORE_OUR_CALL
    yield sent.launched_unseen() or only_hyperpod_asked(sent, write), Cause.LAUNCHED_MEANWHILE
    yield True, "the function ends a node at random, with a stale count"


def only_hyperpod_asked(sent: SentCount, write: Write) -> bool:
    """Only nodes that HyperPod requested between the function's look and its call caused the termination."""
    then, ever = write.before[sent.name], sent.life.pod.ever.values()
    asked = [node.requested for node in ever if node.group == sent.name and node.by == "hyperpod"]
    new = sum(sent.look.since <= at <= write.at for at in asked)
    rest = then._replace(live=then.live - new, unlaunched=max(0, then.unlaunched - new))
    return new > 0 and not sent.ends(rest)


def last_look(prepare: Request, *, drains: bool) -> Look | None:
    """The look of prepare that CloudFormation's count follows. Absent: it was more than a minute ago."""
    first, look = prepare.first_look, prepare.look
    went_by_the_first = prepare.polls == 1 and not prepare.writes and first and prepare.answered - first.at <= 60
    if look and went_by_the_first and drains:
        look = first  # What it has read since was for releasing nodes.
    return look if look and prepare.answered - look.at <= 60 else None


def by_cloudformation(sent: SentCount, update: ClusterUpdate, ending: Ending) -> Rules:
    """The count of the cluster's own update terminated a node. The request is prepare's before it."""
    look, prepare, deeds = sent.look, sent.request, sent.deeds
    by_autoscaler = any(deed.by == "autoscaler" for deed in deeds)
    yield is_anothers(sent.life, update), Cause.ANOTHERS
    if sent.name not in look.measures:
        yield deeds, Cause.CHANGED_BEFORE_CLOUDFORMATION
        yield True, "CloudFormation ends a node at random, in a group that prepare did not see"
    yield update.rollback and counts_of(prepare.new).get(sent.name) != sent.count, Cause.BACK_TO_TWO
    yield from sent.hidden()
    yield update.rollback and _standard_target_stays(sent), Cause.STANDARD_TARGET
    yield sent.is_visible(), "CloudFormation ends a node at random, and prepare could know"
    yield update.rollback and by_autoscaler, Cause.AUTOSCALER_IN_ROLLBACK
    yield deeds, Cause.CHANGED_BEFORE_CLOUDFORMATION
    yield ending.group.lowered_since(look.since), Cause.LATE_OVERWRITES
    yield sent.others_ended("replaced"), Cause.REPLACED_BEFORE_CLOUDFORMATION
    yield sent.launched_unseen(), Cause.LAUNCHED_MEANWHILE
    yield sent.stale(), Cause.STALE_LIST  # What HyperPod requests to replace them did not exist yet.
    yield True, "CloudFormation ends a node at random"


def _standard_target_stays(sent: SentCount) -> bool:
    shown, late = sent.look.shown.get(sent.name), sent.request.answered - sent.request.began > 54 * 60
    return late and not sent.life.pod.continuous and shown is not None and shown["TargetCount"] > sent.count


@dataclass(frozen=True)
class LateLowering:
    """HyperPod lowers a target late, below a count that was sent meanwhile, and terminates a node."""

    life: Lifetime
    ending: Ending
    lowering: Lowering
    explicit: Sequence[tuple[float, object]]
    """Counts that were sent for the group, ever."""

    def rules(self) -> Rules:
        name, lowering = self.ending.node.group, self.lowering
        # A count that was sent after the node's termination did not cause it.
        sent = [call for at, call in self.explicit if lowering.at <= at <= self.ending.at]
        update = next((call for call in reversed(sent) if isinstance(call, ClusterUpdate)), None)
        others = [(at, other) for at, other in self.ending.group.lowered if other is not lowering]
        others = [(at, other) for at, other in others if lowering.at <= at <= self.ending.at]
        deeds = self.life.actors.counted_since(lowering.at, name)
        yield lowering.by != "function" or deeds, Cause.LATE_OVERWRITES
        yield any(other.by != "function" for _, other in others), Cause.LOWERED_TWICE
        yield self._meets_our_count(others), Cause.DOUBLE_LOWERING
        if update and update.before is None:
            yield True, not_called(self.life, update)
        yield update and self._is_left_over(update, name), Cause.LEFT_OVER
        yield others and self._grew_since(min(at for at, _ in others), name), Cause.LOWERED_TWICE
        yield update, "CloudFormation's count met a target that had not fallen yet"
        yield True, "a late lowering ends a node, and nobody sent a count"

    def _meets_our_count(self, others: Sequence[tuple[float, Lowering]]) -> bool:
        """Or another lowering did."""
        ours = [at for at, call in self.explicit if isinstance(call, Write)]
        spans = [(self.lowering.at, self.ending.at), *((other.at, when) for when, other in others)]
        return any(began <= at <= ended for began, ended in spans for at in ours)

    def _is_left_over(self, update: ClusterUpdate, name: str) -> bool:
        """An earlier deployment deleted the nodes, and ended before the target was lowered.

        This deployment's count was not below the target that its guard saw, so that it had no reason to wait.
        """
        writes = [write for write in self.life.writes if write.at == self.lowering.at]
        took = [write.request for write in writes if any(node.group == name for node in write.took)]
        failed = bool(took) and not any(made.succeeded or made.deployment is update.deployment for made in took)
        shown = update.before.look.shown.get(name) if update.before.look else None
        return failed and shown is not None and shown["TargetCount"] <= update.counts[name]

    def _grew_since(self, at: float, name: str) -> bool:
        """Another deletion's lowering took effect then, and set the target to its own result.

        HyperPod has since requested nodes, at least as many as this lowering terminates.
        """
        ended = sum(each.call is self.lowering for each in self.life.pod.endings)
        nodes = [node for node in self.life.pod.ever.values() if node.group == name and node.by == "hyperpod"]
        asked = sum(at <= node.requested < self.ending.at for node in nodes)
        return self.life.switches.lowering == "late, absolute" and asked >= ended
