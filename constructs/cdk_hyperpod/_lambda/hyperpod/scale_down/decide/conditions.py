"""What must be true of a group before its nodes are deleted, and before a count of it is sent. Pure.

Each condition is one function of a `GroupView`. It returns None if it is true, and otherwise what to do first: wait, or send
a lower minimum. The order of a table is the specification: the first condition that is not true decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...kernel.cluster_reading import MOVING
from .. import messages
from ..model.actions import Lower, Wait
from ..model.cluster import Cluster, DesiredGroup, Group, Node, RequestContext
from ..model.properties import spec_with
from .choice import GroupPlan
from .worst_case import wait_before_count, wait_while_terminating


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group at one poll: what is live, what the deployment wants, and the request that it plans for."""

    cluster: Cluster
    group_plan: GroupPlan
    context: RequestContext

    @property
    def group(self) -> Group:
        """The live group."""
        return self.group_plan.group

    @property
    def wanted(self) -> DesiredGroup:
        """The group as the deployment wants it."""
        return self.group_plan.wanted

    @property
    def staying(self) -> list[str]:
        """Names of the listed nodes that are not shutting down."""
        return _names(self.group_plan.staying)

    @property
    def leaving(self) -> list[str]:
        """Names of the listed nodes that are shutting down."""
        return _names(self.group_plan.leaving)

    @property
    def running(self) -> int:
        """How many nodes run jobs, or could."""
        return sum(node.status == "Running" for node in self.group_plan.staying)

    @property
    def falls_below_minimum(self) -> bool:
        """Whether deleting its nodes takes the group below a live minimum that the deployment lowers anyway."""
        remaining = len(self.group_plan.staying) - len(self.group_plan.picks)
        return remaining < self.group.minimum and self.wanted.minimum < self.group.minimum

    @property
    def target_is_high(self) -> bool:
        """Whether the target is above a count that the cluster's own update sends."""
        return self.group_plan.counted and self.group.target > self.wanted.count

    @property
    def never_rests(self) -> bool:
        """In a rollback: whether the group may be Updating for as long as capacity is missing, and keep the rollback from its
        end. It may if no node to delete is launched yet, or once the guard has stopped waiting for the counts
        (RequestContext.doubting)."""
        if not self.context.rolling_back or self.group.status != "Updating":
            return False
        only_unlaunched = all(pick.node.instance_id is None for pick in self.group_plan.picks)
        return only_unlaunched or not self.context.doubting

    @property
    def spec(self) -> DesiredGroup | None:
        """What to send with a count of the group: the group as CloudFormation knows the live one, because an update may still be
        cancelled before it reaches the cluster. None: CloudFormation does not know it, so no count is sent. Nor is one if neither
        CloudFormation's record nor HyperPod shows that the group is like that.

        In a rollback it is unknown which of the two the live group is. The group that it returns to is valid in either case.
        """
        if self.context.rolling_back:
            return self.wanted
        known = self.context.previous.groups if self.context.previous else ()
        before = next((each for each in known if each.name == self.group.name), None)
        if before is None or self.group.name not in self.context.unconfirmed:
            return before
        return before if self._is_shown(before) else None

    def _is_shown(self, before: DesiredGroup) -> bool:
        """Whether HyperPod shows all that is sent with a count, so that nothing but the count changes."""
        sent, wanted = (spec_with(each, count=0, minimum=0) for each in (before, self.wanted))
        names = (sent.keys() | wanted.keys()) - {"InstanceCount", "MinInstanceCount"}
        return all((self.group.shown.get(name) or None) == (sent.get(name) or None) for name in names)


Condition = Callable[[GroupView], Wait | Lower | None]


def first_unmet(conditions: tuple[Condition, ...], view: GroupView) -> Wait | Lower | None:
    """The step of the first condition that is not true. None: all are true."""
    for condition in conditions:
        step = condition(view)
        if step is not None:
            return step
    return None


# -- before nodes are deleted -----------------------------------------------------------------------------------------


def names_fit_the_count(view: GroupView) -> Wait | None:
    """The count still allows the deletion of all named nodes, as it did at the first look.

    If it does not, another actor deleted nodes or lowered the target. With the named nodes the target would fall below the
    count that CloudFormation sends, and HyperPod would terminate a node at random. Once nodes of the first look are
    deleted, the difference is those nodes.
    """
    context, named = view.context, len(view.group_plan.named)
    if context.first or view.wanted.autoscaled:
        return None
    most = max(view.group.target, len(view.group_plan.staying))
    if named <= max(0, most - view.wanted.count):
        return None
    untouched = bool(context.chosen) and context.chosen <= view.cluster.staying
    if not untouched:
        return None
    return messages.waits.lowered_meanwhile(view.group.name, named, most, view.wanted.count)


def cluster_accepts_changes(view: GroupView) -> Wait | None:
    """HyperPod rejects changes while the cluster is moving."""
    return messages.waits.cluster_moving(view.cluster.status) if view.cluster.status in MOVING else None


def minimum_is_met(view: GroupView) -> Wait | Lower | None:
    """The group has reached its minimum, which blocks deletions during a transition only (botocore, MinInstanceCount).

    A minimum is editable while it blocks, so the guard lowers it if the deployment does. A rollback must not wait three hours
    for a minimum: the guard lowers it to the running nodes, and the cluster's own rollback sets it again.
    """
    if view.group.status not in ("Creating", "Updating"):
        return None
    if min(view.group.current, view.running) >= view.group.minimum:
        return None
    minimum = min(view.running, view.wanted.minimum) if view.context.rolling_back else view.wanted.minimum
    return lower_minimum(view, minimum) or messages.waits.below_minimum(
        view.group.name, view.running, view.group.minimum
    )


def group_accepts_changes(view: GroupView) -> Wait | None:
    """HyperPod rejects changes while the group is moving."""
    if view.group.status not in MOVING or view.never_rests:
        return None
    return messages.waits.group_moving(view.group.name, view.group.status)


def no_node_is_checked(view: GroupView) -> Wait | None:
    """HyperPod rejects changes during a deep health check."""
    checked = sum(node.status == "DeepHealthCheckInProgress" for node in view.group_plan.staying)
    return messages.waits.health_check(view.group.name, checked) if checked else None


def replaced_nodes_have_terminated(view: GroupView) -> Wait | None:
    """If only nodes that came since the request began would be deleted, none that they replace may be terminating: the target may
    fall with those yet."""
    if view.group_plan.picks_before_request:
        return None
    return wait_while_terminating(view.group_plan, view.context)


def minimum_does_not_block(view: GroupView) -> Wait | Lower | None:
    """If HyperPod has rejected the deletion, maybe because of the minimum, a minimum that the deployment lowers is sent first."""
    if not view.context.minimum_blocks or not view.falls_below_minimum:
        return None
    return lower_minimum(view, view.wanted.minimum)


BEFORE_NODES_ARE_DELETED: tuple[Condition, ...] = (
    names_fit_the_count,
    cluster_accepts_changes,
    minimum_is_met,
    group_accepts_changes,
    no_node_is_checked,
    replaced_nodes_have_terminated,
    minimum_does_not_block,
)
"""What must be true before nodes of a group are deleted."""


# -- before a minimum is sent -----------------------------------------------------------------------------------------


def list_is_not_above_target(view: GroupView) -> Wait | None:
    """The unchanged target is sent with the minimum, and HyperPod would terminate nodes down to it."""
    listed, target = len(view.group_plan.staying), view.group.target
    if listed <= target:
        return None
    return messages.waits.list_above_target(view.group.name, listed, target)


def no_listed_node_is_leaving(view: GroupView) -> Wait | None:
    """The target may fall with nodes that are shutting down, and may not be sent again as it was."""
    return messages.waits.shutting_down(view.group.name, view.leaving) if view.group_plan.leaving else None


def target_is_not_below_worst_case(view: GroupView) -> Wait | None:
    """HyperPod cannot mistake terminating nodes for too many when the target is sent again."""
    return wait_before_count(view.group_plan, view.context, view.group.target)


BEFORE_MINIMUM_IS_SENT: tuple[Condition, ...] = (
    list_is_not_above_target,
    no_listed_node_is_leaving,
    target_is_not_below_worst_case,
)
"""What must be true before a lower minimum is sent, with an unchanged target."""


def lower_minimum(view: GroupView, minimum: int) -> Wait | Lower | None:
    """Send this minimum, or what must happen first. None: it is not lower, or nothing can be sent (GroupView.spec)."""
    if minimum >= view.group.minimum or view.spec is None:
        return None
    unmet = first_unmet(BEFORE_MINIMUM_IS_SENT, view)
    return unmet or Lower(group=view.group.name, count=view.group.target, minimum=minimum, spec=view.spec)


# -- if no node is to be deleted --------------------------------------------------------------------------------------


def group_stays(view: GroupView) -> Wait | None:
    """The group is not being deleted."""
    if view.group.status != "Deleting":
        return None
    return messages.waits.group_moving(view.group.name, view.group.status)


def count_is_not_below_worst_case(view: GroupView) -> Wait | None:
    """HyperPod cannot mistake terminating nodes for too many when it gets the count, from the guard or from CloudFormation."""
    return wait_before_count(view.group_plan, view.context, view.wanted.count)


BEFORE_COUNT_IS_SENT: tuple[Condition, ...] = (
    group_stays,
    count_is_not_below_worst_case,
)
"""What must be true before the guard or CloudFormation sends the count of a group."""


# -- if the target is above the count ---------------------------------------------------------------------------------


def provisioning_is_continuous(view: GroupView) -> Wait | None:
    """Under standard provisioning, HyperPod terminates nodes at random for a lower target."""
    return None if view.cluster.continuous else _target_falls_yet(view)


def target_is_the_deployments(view: GroupView) -> Wait | None:
    """The target is not an autoscaler's. A rollback sends the count of such a group, too."""
    if not view.wanted.autoscaled or view.context.rolling_back:
        return None
    return _target_falls_yet(view)


def target_had_time_to_fall(view: GroupView) -> Wait | None:
    """The target does not fall with the deleted nodes by itself any more. If it were sent before that, it would fall twice.

    HyperPod does not lower it for nodes that it has replaced, so with newcomers there is nothing to wait for. If the guard
    cannot send it, time is all there is.
    """
    if not view.context.young:
        return None
    replaced = bool(view.group_plan.newcomers)
    if replaced and view.spec is not None:
        return None
    return _target_falls_yet(view)


def _target_falls_yet(view: GroupView) -> Wait:
    return messages.waits.target_falls_yet(view.group.name, view.group.target)


BEFORE_TARGET_IS_SENT: tuple[Condition, ...] = (
    provisioning_is_continuous,
    target_is_the_deployments,
    target_had_time_to_fall,
    cluster_accepts_changes,
)
"""What must be true before the guard lowers a target that is above the count."""


# -- if the target is the count ----------------------------------------------------------------------------------------


def list_is_not_above_count(view: GroupView) -> Wait | None:
    """The list has no more nodes than the count. Of more nodes, the cluster's own update would choose some."""
    if len(view.group_plan.staying) <= view.wanted.count or not view.group_plan.counted:
        return None
    return messages.waits.ahead_of_target(view.group.name, view.staying, view.group.target)


def named_nodes_have_terminated(view: GroupView) -> Wait | None:
    """No named node is still shutting down."""
    return messages.waits.shutting_down(view.group.name, view.leaving) if view.group_plan.named_leaving else None


BEFORE_GROUP_IS_DONE: tuple[Condition, ...] = (
    list_is_not_above_count,
    named_nodes_have_terminated,
)
"""What must be true before nothing is left to do for a group."""


def _names(nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes]
