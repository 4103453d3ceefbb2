"""A poll of prepare, which deletes nodes before CloudFormation updates the cluster.

It looks and refuses. Then come the PHASES in their order: the first that has a result ends the poll. A poll makes at most one
kind of change, and makes it last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from ...common import api
from ...kernel.cluster_reading import MOVING
from .. import messages
from ..aws.clients import change_failed
from ..aws.cluster_operations import PATIENCE as PATIENCE_FOR_OPERATIONS
from ..aws.cluster_operations import lowered_by_another, read_operations
from ..aws.executor import Clock, Outcome, execute
from ..decide.group_deletion import groups_left
from ..decide.planner import plan
from ..drain.readiness import Readiness, decide_readiness, nodes_to_drain
from ..drain.requester import DELETION_LEASE, DRAIN_LEASE, GROUP_LEASE, DrainRequester
from ..model.actions import Pick, Plan, Wait
from ..model.cluster import Cluster, Node, RequestContext
from .draining import read_with_held, requester_with_status, wait_for_patch, with_status
from .poll import Again, Done, Failed, Poll, Result, log_plan, partly_deleted_groups
from .stack import wait_unless_asked


@dataclass(frozen=True, slots=True)
class View:
    """What this poll found, and what there is to do."""

    live: Cluster
    plan: Plan
    context: RequestContext
    requester: DrainRequester | None
    """None: nodes are deleted without draining."""

    @property
    def pending(self) -> tuple[Pick, ...]:
        """Nodes that are still to be deleted, now or later."""
        return (*self.plan.nodes_to_delete, *self.plan.held)

    def again(self, *waits: Wait, left: tuple[Pick, ...] | None = None) -> Again:
        """Another poll. `left`: None: all that is pending."""
        return Again(waits=waits, live=self.live, left=self.pending if left is None else left)


def prepare(poll: Poll) -> Result:
    """One poll. Raises api.CALL_ERRORS if a read fails."""
    tags = poll.state.first_look_failed
    live = poll.read_cluster(tags=tags)
    requester = requester_with_status(poll)
    live = read_with_held(poll, live, requester, tags=tags)
    context = with_status(poll.context(first=False), requester)
    found = plan(live, poll.desired, context)
    log_plan(poll.services, found)
    if found.refusals:
        return Failed(reason=messages.failures.refused(poll.desired.cluster, found.refusals, first=False))
    if live is None:
        return complete(poll, None)
    return _first_result(poll, View(live, found, context, requester))


def _first_result(poll: Poll, view: View) -> Result:
    for phase in PHASES:
        if result := phase(poll, view):
            return result
    return carry_out(poll, view)


def still_wanted(poll: Poll, view: View) -> Result | None:
    """CloudFormation must still wait for this request, and ask for what it says, before anything is changed or drained."""
    acts = bool(view.plan.changes) or view.requester is not None
    over = wait_unless_asked(poll) if acts else None
    return view.again(over) if over else None


def leave_to_patch(poll: Poll, view: View) -> Result | None:
    """Nodes that `cdk-hyperpod patch` holds are its own until it ends. A rollback does not wait for it."""
    if view.requester is None or poll.rolling_back:
        return None
    wait = wait_for_patch(view.requester, nodes_to_drain(view.plan, view.live))
    return view.again(wait, *view.plan.waits) if wait else None


def make_ready(poll: Poll, view: View) -> Result | None:
    """Nodes must be drained before one of them is deleted."""
    requester, live = view.requester, view.live
    if requester is None:
        return None
    leaving = nodes_to_drain(view.plan, live)
    _renew_request(poll, requester, live, leaving)
    before = decide_readiness(leaving, requester.status, requester.drain_request)
    requester.hold(leaving, live, _lease(view, before))
    after = decide_readiness(leaving, requester.status, requester.drain_request)  # A drainer has answered by now.
    if after.never:
        return _never_drained(poll, requester, after)
    return view.again(*after.waits, *view.plan.waits) if after.waits else None


def _renew_request(poll: Poll, requester: DrainRequester, live: Cluster, leaving: Sequence[Node]) -> None:
    """Add what this poll has seen of the cluster to the drain request."""
    requester.drain_request = replace(
        requester.drain_request,
        partly_deleted=partly_deleted_groups(poll.state, live),
        nowhere=requester.locate(leaving),
    )


def _lease(view: View, readiness: Readiness) -> timedelta:
    """How long the nodes are held: longer if this poll may delete them."""
    return DELETION_LEASE if view.plan.changes and readiness.ready else DRAIN_LEASE


def _never_drained(poll: Poll, requester: DrainRequester, readiness: Readiness) -> Failed:
    request = requester.drain_request
    first = not (request.partly_deleted or poll.state.record.requested)
    reason = messages.failures.not_drained(poll.desired.cluster, readiness.never, first=first, eks=request.drain.eks)
    return Failed(reason=reason)


def no_other_operation(poll: Poll, view: View) -> Result | None:
    """No other operation may lower the same group, as far as HyperPod's record can be read."""
    if not view.plan.nodes_to_delete or not _may_wait_for_operations(poll, view):
        return None
    groups = {pick.node.group for pick in view.plan.nodes_to_delete}
    live, own_since = view.live, poll.state.began if _may_have_deleted(poll, view) else None
    try:
        wait = lowered_by_another(read_operations(poll.services.sagemaker(), live.name, live.arn), groups, own_since)
    except Exception as error:  # noqa: BLE001 - the permission is optional, and the record a second witness only
        poll.services.log(f"cannot read HyperPod's operations: {api.reason(error)}")
        return None
    return view.again(wait, *view.plan.waits) if wait else None


def _may_wait_for_operations(poll: Poll, view: View) -> bool:
    return view.live.continuous and not poll.rolling_back and poll.age < PATIENCE_FOR_OPERATIONS


def _may_have_deleted(poll: Poll, view: View) -> bool:
    """Whether this request may have requested the deletion of nodes: in this process, or in another one."""
    if poll.state.record.requested:
        return True
    return not poll.state.record.complete and bool(partly_deleted_groups(poll.state, view.live))


def nothing_to_wait_for(poll: Poll, view: View) -> Result | None:
    """Without a change, the cluster must have come to rest."""
    if view.plan.changes:
        return None
    waits = view.plan.waits or _until_the_cluster_accepts(poll, view.live)
    return view.again(*waits, left=view.plan.held) if waits else None


def _until_the_cluster_accepts(poll: Poll, live: Cluster) -> tuple[Wait, ...]:
    """After nodes were deleted, the cluster must accept its own update. If none was, there is nothing to wait for."""
    if poll.state.planned and live.status in MOVING:
        return (messages.waits.not_accepting(live.status),)
    return ()


def hold_groups(_: Poll, view: View) -> Result | None:
    """Nodes of groups to delete stay drained until finalize deletes them, after the cluster's own update."""
    if view.requester is not None and not view.plan.changes:
        view.requester.hold(nodes_to_drain(view.plan, view.live), view.live, GROUP_LEASE)
    return None


def still_true(poll: Poll, view: View) -> Result | None:
    """A second read must give the same nodes and the same plan.

    Pages of a list may leave a node out, and others may have acted while S3 or the drainer took minutes to answer. So no node is
    deleted because of one list, and CloudFormation sends no count after one. The wait is a passing one if both lists together
    leave nothing to do: a rollback does not fail because pages of a list differ.
    """
    live = poll.read_cluster(tags=False)
    if _is_unchanged(poll, view, live):
        return None
    nodes = {node.name: node for seen in (view.live, live) if seen is not None for node in seen.nodes}
    together = plan(replace(live or view.live, nodes=tuple(nodes.values())), poll.desired, view.context)
    return view.again(replace(messages.waits.OVERTAKEN, passing=together.done))


def _is_unchanged(poll: Poll, view: View, live: Cluster | None) -> bool:
    if live is None or live.staying != view.live.staying:
        return False
    return plan(live, poll.desired, view.context) == view.plan


def nothing_to_change(poll: Poll, view: View) -> Result | None:
    """Without a change, prepare is done."""
    if view.plan.changes:
        return None
    left_out = view.requester.status.left_out if view.requester else {}
    return complete(poll, view.live, left_out)


PHASES: tuple[Callable[[Poll, View], Result | None], ...] = (
    still_wanted,
    leave_to_patch,
    make_ready,
    no_other_operation,
    nothing_to_wait_for,
    hold_groups,
    still_true,
    nothing_to_change,
)
"""The phases before the change, in this order. Nodes are drained before HyperPod's record of operations is read. The second read
of the cluster comes last."""


def carry_out(poll: Poll, view: View) -> Result:
    """Make one kind of change."""
    outcome = _execute(poll, view)
    poll.state.record.add(view.plan.nodes_to_delete, outcome.accepted | outcome.maybe_deleted)
    failures = _failures(poll, outcome)
    # Only time can help a rollback, and failing it is worse than waiting.
    if failures and not poll.rolling_back:
        return Failed(reason=messages.failures.failed(poll.desired.cluster, failures), accepted=outcome.accepted)
    waits = tuple(Wait(why=why) for why in (*failures, *outcome.waits))
    return Again(
        waits=(*waits, *view.plan.waits),
        live=view.live,
        left=tuple(pick for pick in view.pending if pick.node.name not in outcome.accepted),
        accepted=outcome.accepted,
    )


def _execute(poll: Poll, view: View) -> Outcome:
    def look(context: RequestContext) -> tuple[Cluster | None, Plan]:
        live = poll.read_cluster(tags=False)
        return live, plan(live, poll.desired, context)

    clock = Clock(now=poll.services.now(), began=poll.state.began)
    return execute(view.plan, view.live, look, view.context, poll.services.sagemaker(), clock)


def _failures(poll: Poll, outcome: Outcome) -> list[str]:
    """Why AWS rejected the change for good. Empty: it did not."""
    if outcome.error is None:
        return []
    poll.services.log(f"{outcome.call} failed: {api.reason(outcome.error)}")
    return change_failed(poll.desired.cluster, outcome.call, outcome.error, rolling_back=poll.rolling_back)


def complete(poll: Poll, live: Cluster | None, left_out: Mapping[str, int] = MappingProxyType({})) -> Done:
    """Done, with the nodes that were deleted. `live`: None: there is no cluster. `left_out`: node -> files that are not in its
    backup."""
    state, record = poll.state, poll.state.record
    here = live.staying if live else frozenset()
    deleted = record.deleted(here)
    elsewhere = [pick.name for pick in state.picked if pick.name not in {*here, *record.requested}]
    next_groups = groups_left(live, poll.desired) if live else {}
    for name, nodes in next_groups.items():
        poll.services.log(messages.notes.next_group(name, nodes))
    text = messages.attributes.deleted_nodes(
        when=state.began,
        deleted=deleted,
        next_groups=next_groups,
        unsure=None if record.complete else elsewhere,
        left_out=left_out,
        listed=[pick for pick in record.requested.values() if pick not in deleted],
    )
    return Done(text)
