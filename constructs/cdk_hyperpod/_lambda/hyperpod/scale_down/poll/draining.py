"""What the phases of a poll share about draining: the requester, its status, and a read of the cluster that has the nodes it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .. import messages
from ..aws.services import READ_PATIENCE
from ..drain.channels import BucketChannel, Channel, FunctionChannel
from ..drain.readiness import SILENT_AFTER, DrainRequest, is_silent
from ..drain.requester import DrainRequester, RetryBudget
from ..model.actions import Wait
from ..model.cluster import Cluster, DrainSettings, Node, RequestContext
from ..model.properties import PREPARE
from .poll import Poll, read_until_agreed


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
