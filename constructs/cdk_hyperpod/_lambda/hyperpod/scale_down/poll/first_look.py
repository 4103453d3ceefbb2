"""on_event's first look: whether there is anything to do, and whether the deployment must be refused. It changes nothing.

What CloudFormation reports may be older than this request. So one look at once finds whether there is anything to do. If there
is, a second look decides, after LATE.
"""

from __future__ import annotations

from dataclasses import replace

from ...common import api
from .. import messages
from ..aws.clients import Services, read_failed
from ..decide.group_deletion import deleting, groups_left, plan_group_deletion
from ..decide.planner import plan
from ..drain.readiness import decide_first_look, nodes_to_drain
from ..drain.requester import DrainRequester
from ..model.actions import Plan
from ..model.cluster import Cluster, RequestContext
from ..model.properties import FINALIZE, PREPARE, MalformedError, read_properties
from .draining import find_requester, read_status, with_status
from .poll import Poll, ScaleDownError, log_plan, open_poll, previous_properties, read_until_agreed
from .request import Event, State, with_plan
from .stack import LATE, sealed, with_reached, with_stack_status


def first_look(event: Event, services: Services) -> State:
    """What every later poll knows. Raises ScaleDownError if the deployment must not go on."""
    state = State(began=services.now())
    if event.request != "Delete":
        state = _look(event, state, services)
    return sealed(event, replace(state, looked=services.now()), services)


def _look(event: Event, state: State, services: Services) -> State:
    if event.kind == FINALIZE and not _may_delete_groups(event):
        return state
    early = _look_early(event, with_stack_status(event, state, services), services)
    if early.pending is False and early.looked:
        return early
    services.wait_until(state.began + LATE)
    # What HyperPod launches meanwhile is no older than the request.
    state = replace(state, looked=early.looked, newest=early.newest, unlaunched=early.unlaunched)
    return _look_again(event, with_stack_status(event, state, services), services)


def _may_delete_groups(event: Event) -> bool:
    """Whether finalize has anything to look for, in an update or in a rollback."""
    try:
        desired = read_properties(event.properties, kind=event.kind)
    except MalformedError:
        return True
    previous = previous_properties(event)
    before = {group.name for group in previous.groups} if previous else set()
    removed = before - {group.name for group in desired.groups}
    return bool(desired.groups_to_delete or removed)


def _look_early(event: Event, state: State, services: Services) -> State:
    """The state after one look at once. Unchanged if nothing could be read: the look that decides reports what is wrong."""
    if state.rolling_back:
        return state
    try:
        poll = open_poll(event, state, services)
        context = poll.context(first=True)
        if context.renamed_from is not None:
            return state
        live = poll.read_cluster(tags=True)
    except Exception:  # noqa: BLE001 - the look that decides reports it
        return state
    if event.kind == FINALIZE:
        found = _with_group_deletion(poll, live, context)
    else:
        found = with_plan(state, live, plan(live, poll.desired, context))
    return replace(found, looked=services.now())


def _look_again(event: Event, state: State, services: Services) -> State:
    """The state after the look that decides."""
    try:
        if state.rolling_back:
            state = with_reached(event, state, services)
        return _decide(event, state, services)
    except ScaleDownError:
        raise
    except Exception as error:  # noqa: BLE001 - CDK's framework never polls once on_event has failed
        if event.kind == PREPARE and not state.rolling_back:
            raise ScaleDownError(messages.failures.failed(event.cluster, read_failed(error))) from None
        # The polls will see. A rollback must not end here, and finalize's failure would launch again what was just deleted.
        services.log(f"cannot look yet: {api.reason(error)}")
        return replace(state, pending=None)


def _decide(event: Event, state: State, services: Services) -> State:
    try:
        poll = open_poll(event, state, services)
    except MalformedError as error:
        services.log(f"malformed: {error}")
        if state.rolling_back:
            return state
        raise ScaleDownError(messages.failures.malformed(event.kind, error.problems)) from None
    context = poll.context(first=True)
    if event.kind == FINALIZE:
        return _with_group_deletion(poll, poll.read_cluster_patiently(tags=True), context)
    return _decide_prepare(poll, context)


def _with_group_deletion(poll: Poll, live: Cluster | None, context: RequestContext) -> State:
    # The last group cannot be deleted, and a poll's answer reports that it exists.
    left = live is not None and bool(groups_left(live, poll.desired) or deleting(live, poll.desired))
    done = plan_group_deletion(live, poll.desired, context).done
    return replace(poll.state, pending=left or not done)


def _decide_prepare(poll: Poll, context: RequestContext) -> State:
    if context.renamed_from is not None:
        _refuse(poll, plan(None, poll.desired, context))
    live = read_until_agreed(
        poll.read_cluster_patiently(tags=True),
        lambda seen: plan(seen, poll.desired, context).done,
        lambda: poll.read_cluster_patiently(tags=True),
    )
    found = plan(live, poll.desired, context)
    requester = find_requester(poll) if nodes_to_drain(found, live) else None
    if requester is not None:
        read_status(poll, requester)
        found = plan(live, poll.desired, with_status(context, requester))
    log_plan(poll.services, found)
    _refuse(poll, found)
    if requester is not None:
        _check_drainable(poll, requester, found, live)
    return with_plan(poll.state, live, found)


def _refuse(poll: Poll, found: Plan) -> None:
    if found.refusals:
        raise ScaleDownError(messages.failures.refused(poll.desired.cluster, found.refusals, first=True))


def _check_drainable(poll: Poll, requester: DrainRequester, found: Plan, live: Cluster | None) -> None:
    """Nodes that cannot be drained, however long the deployment waits, are reason enough to refuse it."""
    draining_is_new = not (poll.previous and poll.previous.drain)
    why = decide_first_look(found, live, requester.status, requester.drain_request, new=draining_is_new)
    if why:
        eks = requester.drain_request.drain.eks
        raise ScaleDownError(messages.failures.not_drained(poll.desired.cluster, [str(why)], first=True, eks=eks))
