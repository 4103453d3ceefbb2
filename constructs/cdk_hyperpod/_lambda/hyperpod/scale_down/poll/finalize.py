"""A poll of finalize, which deletes groups after CloudFormation has updated the cluster. It never fails for what AWS answers late:
its failure would start a rollback, which launches again what was just deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...common import api
from .. import messages
from ..aws.executor import Clock, delete_groups
from ..decide.group_deletion import GroupDeletion, deleting, groups_left, plan_group_deletion
from ..drain.readiness import JOIN_TIME, decide_readiness
from ..drain.requester import DELETION_LEASE, DrainRequester
from ..model.actions import Wait
from ..model.cluster import Cluster, Node
from .draining import read_with_held, requester_with_status, wait_for_patch
from .poll import Again, Done, Failed, Poll, Result, log_notes
from .request import State
from .stack import wait_unless_asked


def finalize(poll: Poll) -> Result:
    """One poll. Raises api.CALL_ERRORS if a read fails."""
    live = poll.read_cluster(tags=poll.state.first_look_failed)
    deletion = plan_group_deletion(live, poll.desired, poll.context(first=False))
    log_notes(poll.services, deletion.notes)
    if live is None or deletion.done:
        return complete(poll, live)
    if deletion.wait is not None and poll.desired.drain is None:
        return Again(waits=(deletion.wait,), live=live)
    requester = None if poll.rolling_back else requester_with_status(poll)
    if over := wait_unless_asked(poll):
        return Again(waits=(over,), live=live)
    if requester is None:
        return _wait_or_delete(poll, live, deletion, ())
    return _drain_and_delete(poll, requester, live, deletion)


def _drain_and_delete(poll: Poll, requester: DrainRequester, seen: Cluster, deletion: GroupDeletion) -> Result:
    live = read_with_held(poll, seen, requester, tags=False)
    if live is None:
        return complete(poll, None)
    return _wait_or_delete(poll, live, deletion, _make_ready(poll, requester, live))


def _make_ready(poll: Poll, requester: DrainRequester, live: Cluster) -> tuple[Wait, ...]:
    """Hold the nodes of groups to delete, which prepare had drained, and drain those that came since, during the cluster's own
    update. Returns what the deletion still waits for: until the time is up, and then the group stays."""
    groups = groups_left(live, poll.desired)
    nodes = [node for node in live.nodes if node.group in groups]
    if patch := wait_for_patch(requester, nodes):
        return (patch,)
    came = _not_drained_by_prepare(nodes, requester, poll.state)
    requester.drain_request = replace(requester.drain_request, nowhere=requester.locate(came))
    drained = frozenset(node.name for node in nodes) - {node.name for node in came}
    requester.hold(nodes, live, DELETION_LEASE, drained=drained)
    verdict = decide_readiness(came, requester.status, requester.drain_request)
    return (*verdict.waits, *(Wait(why=why) for why in verdict.never))


def _not_drained_by_prepare(nodes: Sequence[Node], requester: DrainRequester, state: State) -> list[Node]:
    drained = _held_for_other_requests(requester)
    return [node for node in nodes if node.name not in drained and _is_young(node, state)]


def _held_for_other_requests(requester: DrainRequester) -> frozenset[str]:
    """Names of nodes that an earlier request of a deployment holds, prepare's for example."""
    requests, own = requester.status.deployment_requests(), requester.drain_request.request_id
    return frozenset(name for name, request_id in requests.items() if request_id != own)


def _is_young(node: Node, state: State) -> bool:
    """Whether the node may have come after prepare's last look: since the update of the stack began, or so shortly before that it
    had not joined."""
    return node.launched is not None and state.updated is not None and node.launched > state.updated - JOIN_TIME


def _wait_or_delete(poll: Poll, live: Cluster, deletion: GroupDeletion, drain_waits: tuple[Wait, ...]) -> Result:
    waits = drain_waits if deletion.wait is None else (*drain_waits, deletion.wait)
    return Again(waits=waits, live=live) if waits else _delete(poll, live, deletion.groups)


def _delete(poll: Poll, live: Cluster, groups: Sequence[str]) -> Result:
    services, cluster = poll.services, poll.desired.cluster
    services.log(f"delete groups: {', '.join(groups)}")
    clock = Clock(now=services.now(), began=poll.state.began)
    outcome = delete_groups(groups, live, poll.desired, services.sagemaker(), clock)
    if outcome.error is not None:
        return _rejected(
            poll, live, messages.failures.group_deletion_failed(cluster, groups, api.reason(outcome.error))
        )
    if outcome.waits:
        return Again(waits=tuple(Wait(why=why) for why in outcome.waits), live=live)
    return complete(poll, live, accepted=groups)


def _rejected(poll: Poll, live: Cluster, reason: str) -> Result:
    """A rollback must not fail for it: the groups stay."""
    if poll.rolling_back:
        return complete(poll, live, [reason])
    return Failed(reason=reason)


def complete(poll: Poll, live: Cluster | None, waits: Sequence[str] = (), accepted: Collection[str] = ()) -> Done:
    """Done, with the groups that should be deleted and still exist. `live`: None: there is no cluster. `accepted`: groups whose deletion
    HyperPod has just accepted."""
    if live is None:
        return Done(messages.attributes.existing_groups({}, {}, waits))
    left = {name: nodes for name, nodes in groups_left(live, poll.desired).items() if name not in accepted}
    return Done(messages.attributes.existing_groups(left, deleting(live, poll.desired, accepted), waits))
