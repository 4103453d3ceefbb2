"""What the phases of a poll share about draining: the requester, its status, and the release of drained nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from ...common import api
from .. import messages
from ..aws.clients import READ_PATIENCE, read_failed
from ..decide.planner import plan
from ..drain.channels import BucketChannel, Channel, FunctionChannel
from ..drain.readiness import SILENT_AFTER, DrainRequest, is_silent, nodes_to_drain
from ..drain.requester import DrainRequester, RetryBudget
from ..model.actions import Wait
from ..model.cluster import Cluster, DrainSettings, Node, RequestContext
from ..model.properties import PREPARE
from .poll import Again, Done, Failed, Poll, Result, ScaleDownError, read_until_agreed, with_state
from .request import Rollback
from .stack import LATE, STALE, wait_if_abandoned, wait_if_unconfirmed, with_reached, with_stack_status


def find_requester(poll: Poll, *, before: bool = False) -> DrainRequester | None:
    """None: nodes are deleted without draining. A rollback releases what the failed update requested. Neither a rollback nor
    finalize fails because of S3 or Lambda. `before`: the previous properties count, too."""
    drain = poll.desired.drain
    if poll.rolling_back or before:
        drain = drain or (poll.previous.drain if poll.previous else None)
    if drain is None:
        return None
    drain_request = DrainRequest(
        drain=drain,
        began=poll.state.began,
        now=poll.services.now(),
        recorded=poll.state.recorded,
        rolling_back=poll.rolling_back,
    )
    must = poll.event.kind == PREPARE and not poll.rolling_back
    return DrainRequester(drain_request, _channel(poll, drain), must=must)


def _channel(poll: Poll, drain: DrainSettings) -> Channel:
    services, cluster = poll.services, poll.desired.cluster
    if drain.eks:
        return FunctionChannel(drain.function, cluster, services.functions)
    return BucketChannel(drain.bucket, cluster, services.s3, services.sagemaker)


def requester_with_status(poll: Poll) -> DrainRequester | None:
    """The requester, after it has read the current status. None: nodes are deleted without draining."""
    requester = find_requester(poll)
    if requester is not None:
        read_status(poll, requester)
    return requester


def read_status(poll: Poll, requester: DrainRequester) -> None:
    """Read the status of the drain agent, or of the drainer. It counts as silent only after three minutes without an answer. A
    rollback reads once in each poll, because it waits for five minutes at most anyway."""
    services = poll.services
    if requester.drain_request.rolling_back:
        requester.read()
    else:
        budget = RetryBudget(requester.is_unanswered, services.now, unanswered=SILENT_AFTER, rejected=READ_PATIENCE)
        requester.read(lambda read: services.retry(read, budget.until))
    requester.drain_request = replace(requester.drain_request, now=services.now())


def with_status(context: RequestContext, requester: DrainRequester | None) -> RequestContext:
    """The request context with the busy nodes. Nodes that are being drained for this request stay chosen."""
    if requester is None:
        return context
    status, own = requester.status, requester.drain_request.request_id
    draining = {name for name, request_id in status.deployment_requests().items() if request_id == own}
    return replace(
        context, busy=frozenset(status.busy), patched=status.held_by_patch(), chosen=context.chosen | draining
    )


def wait_for_patch(requester: DrainRequester, leaving: Iterable[Node]) -> Wait | None:
    """A wait if `cdk-hyperpod patch` holds some of these nodes, as far as the agent or the drainer reports it."""
    if is_silent(requester.status):
        return None
    held = requester.status.held_by_patch() & {node.name for node in leaving}
    return messages.waits.held_by_patch(sorted(held)) if held else None


def read_with_held(poll: Poll, live: Cluster | None, requester: DrainRequester | None, *, tags: bool) -> Cluster | None:
    """The cluster, read again if its list leaves out a node that is held. A node that is no longer requested is released, so
    only two lists in a row show that it was deleted."""
    held = requester.status.deployment_requests().keys() if requester else set()
    return read_until_agreed(
        live,
        lambda seen: held <= {node.name for node in seen.nodes},
        lambda: poll.read_cluster(tags=tags),
    )


RELEASING = timedelta(seconds=45)
"""How long the release is repeated under EKS. After that only another call of prepare repeats it."""


class _UnconfirmedError(Exception):
    """Whoever sent this request may not release nodes."""


def release(poll: Poll, accepted: frozenset[str] = frozenset()) -> str:
    """End this request's drain, so that its nodes are released. Returns why some nodes stay held. Empty: none does, or only until its lease ends.

    `accepted`: names of nodes whose deletion HyperPod has accepted in this poll.
    """
    requester = find_requester(poll, before=True)
    if requester is None:
        return ""
    try:
        until = poll.services.now() + RELEASING
        poll.services.retry(lambda: _release_once(poll, requester, accepted), lambda _: until)
        poll.state.record.releases_again |= requester.released
    except _UnconfirmedError as error:
        poll.services.log(f"no nodes are released: {error}")
        is_held = requester.drain_request.drain.eks and requester.held
        return messages.failures.not_released(requester.held) if is_held else ""
    except Exception as error:  # noqa: BLE001 - it must not take the place of a refusal, nor end a rollback
        poll.services.log(f"cannot release nodes: {error}")
        return messages.failures.not_released(requester.held) if requester.drain_request.drain.eks else ""
    return ""


def _release_once(poll: Poll, requester: DrainRequester, accepted: frozenset[str]) -> None:
    def check() -> None:
        if unconfirmed := wait_if_unconfirmed(poll):
            # CloudFormation's events may be late.
            poll.state.record.releases_again = True
            raise _UnconfirmedError(unconfirmed.why)

    def look() -> Cluster | None:
        live = read_with_held(poll, poll.read_cluster(tags=False), requester, tags=False)
        _check_nothing_to_delete(poll, requester, live)
        return live

    if wait_if_abandoned(poll):
        poll.state.record.releases_again = True
    else:
        requester.release(check, look, accepted)


def _check_nothing_to_delete(poll: Poll, requester: DrainRequester, live: Cluster | None) -> None:
    """Raise _UnconfirmedError if the request has no task, but would delete nodes that are held: then another poll of it holds them."""
    if poll.state.pending is not False:
        return
    found = plan(live, poll.desired, poll.context(first=False))
    held = requester.status.deployment_requests()
    if any(node.name in held for node in nodes_to_drain(found, live)):
        raise _UnconfirmedError(messages.waits.NOT_SEALED.why)


def poll_without_a_task(poll: Poll) -> Result | Poll:
    """A poll of prepare whose first look found nothing to do: it releases what an earlier deployment's rollback had no permission
    to release.

    If others changed the cluster while S3 or the drainer did not respond, there may be something to do by now. An update fails
    then. A rollback does it: this returns the poll with that task. Raises ScaleDownError if the stack's status is needed and
    cannot be read.
    """
    if known := poll.state.record.resumed:
        rollback = replace(poll.state, rolling_back=True, updated=known.updated, reached=known.reached)
        return _with_task(with_state(poll, rollback))
    poll = _with_late_status(poll)
    released = Done(release(poll) or messages.attributes.NOTHING)
    if _has_to_release_again(poll):
        return Again(waits=())
    return _look_again(poll, released) if _may_be_overtaken(poll) else released


def _has_to_release_again(poll: Poll) -> bool:
    """The cancelled update's own polls may go on until LATE, and request the nodes again. Or this is a rollback, and only the
    second of two reads of the stack's status showed it."""
    return poll.state.record.releases_again and poll.age < LATE


def _look_again(poll: Poll, released: Done) -> Result | Poll:
    """After a release that took so long that others may have acted."""
    why = _changes_since(poll)
    if not (why or poll.state.record.requested):
        return released
    poll = _with_certain_status(poll)
    if not poll.rolling_back:
        return Failed(reason=messages.failures.failed(poll.desired.cluster, why))
    poll.state.record.resumed = Rollback(poll.state.updated, poll.state.reached)
    return _with_task(poll)


def _with_task(poll: Poll) -> Poll:
    return with_state(poll, replace(poll.state, pending=None))


def _with_late_status(poll: Poll) -> Poll:
    """A first look that found nothing to do did not wait until CloudFormation's status was this request's. A rollback releases
    what its update requested, and must not be mistaken for that update."""
    if poll.rolling_back or poll.event.request != "Update" or find_requester(poll, before=True) is None:
        return poll
    try:
        state = with_stack_status(poll.event, poll.state, poll.services)
        if not state.rolling_back:
            return poll
        return with_state(poll, with_reached(poll.event, state, poll.services))
    except (ScaleDownError, *api.CALL_ERRORS) as error:
        poll.services.log(f"cannot look yet: {error}")
        return poll


def _with_certain_status(poll: Poll) -> Poll:
    """The poll with CloudFormation's status, read once it can no longer be that of an earlier request."""
    if poll.rolling_back:
        return poll
    poll.services.wait_until(poll.state.began + LATE)
    return with_state(poll, with_stack_status(poll.event, poll.state, poll.services))


def _may_be_overtaken(poll: Poll) -> bool:
    """Whether the release took so long that others may have acted."""
    looked = poll.state.looked or poll.state.began
    return find_requester(poll, before=True) is not None and poll.services.now() - looked >= STALE


def _changes_since(poll: Poll) -> list[str]:
    """Why there may be something to do, after a first look that found nothing. Empty: there is nothing."""
    try:
        live = poll.read_cluster_patiently(tags=False)
    except api.CALL_ERRORS as error:
        return read_failed(error)
    found = plan(live, poll.desired, poll.context(first=False))
    if found.done and not found.groups_to_delete:
        return []
    return messages.failures.as_reasons(messages.failures.OVERTAKEN_FIRST)
