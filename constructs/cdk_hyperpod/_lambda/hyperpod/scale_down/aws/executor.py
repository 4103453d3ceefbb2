"""Carries out a plan: the only module that calls HyperPod to change the cluster.

A call's failure is sorted into one of three: done already, worth another poll, or definite. Only a definite one ends the
deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...common import api
from ...kernel import sentences
from ...kernel.cluster_reading import MOVING
from ...kernel.text import one_line
from .. import messages
from ..model.actions import DeleteNodes, Lower, Plan
from ..model.cluster import Cluster, Desired, Node, RequestContext
from ..model.live_cluster import carrying
from ..model.properties import spec_with
from . import clients

Look = Callable[[RequestContext], tuple[Cluster | None, Plan]]
"""Reads the live cluster and plans."""

MAX_IDS = 99
"""Node ids in one BatchDeleteClusterNodes ("Scale down a SageMaker HyperPod cluster"; the shape allows 3,000)."""

MAX_LOGICAL_IDS = 50
"""Logical ids in one BatchDeleteClusterNodes, together with node ids (botocore: its NodeLogicalIds)."""

_DONE = frozenset({"nodeidnotfound", "nodelogicalidnotfound"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan."""

    accepted: frozenset[str] = frozenset()
    """Names of the nodes whose deletion the service accepted."""
    maybe_deleted: frozenset[str] = frozenset()
    """Names of nodes in calls that may have acted although their last answer does not show it."""
    waits: tuple[str, ...] = ()
    """What another poll has to try again, node by node if nodes failed."""
    error: Exception | None = None
    """A definite error of the service. None: none."""
    call: str = ""
    """The call that failed."""
    unexplained: bool = False
    """It failed for an undocumented reason. A minimum may be the reason."""
    sent: bool = False
    """Counts were sent."""

    def after(self, earlier: Outcome) -> Outcome:
        """This outcome, with what earlier calls for the same plan did and left to wait for."""
        return replace(
            self,
            accepted=earlier.accepted | self.accepted,
            maybe_deleted=earlier.maybe_deleted | self.maybe_deleted,
            waits=(*earlier.waits, *self.waits),
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """Now, and when the request began."""

    now: datetime
    began: datetime

    def passing(self, error: Exception) -> bool:
        """Whether waiting may help."""
        return api.is_passing(error, now=self.now, began=self.began)


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the calls of one plan have in common."""

    live: Cluster
    """The cluster that the plan was made for."""
    look: Look
    context: RequestContext
    sagemaker: clients.SageMaker
    clock: Clock


def execute(
    plan: Plan, live: Cluster, look: Look, context: RequestContext, sagemaker: clients.SageMaker, clock: Clock
) -> Outcome:
    """Make the plan's changes, which are of one kind: delete nodes, or send counts."""
    calls = _Calls(live, look, context, sagemaker, clock)
    deletions = [change for change in plan.changes if isinstance(change, DeleteNodes)]
    if not deletions:
        return _send_counts(calls, context)
    deleted = _delete_nodes([pick.node for pick in plan.nodes_to_delete], calls)
    if deleted.error is not None:
        return _lower_minimums(deletions, deleted, calls)
    return _lower_targets_of_unlaunched([pick.node for pick in plan.nodes_to_delete], deleted, calls)


def _lower_minimums(deletions: Sequence[DeleteNodes], deleted: Outcome, calls: _Calls) -> Outcome:
    """After a rejected deletion: a live minimum may forbid it (undocumented). The deployment lowers that minimum anyway, so it
    is lowered first."""
    if not deleted.unexplained or all(deletion.minimum is None for deletion in deletions):
        return deleted
    deletion_requested = deleted.accepted | deleted.maybe_deleted
    sent = _send_counts(calls, replace(calls.context, minimum_blocks=True), deletion_requested=deletion_requested)
    if not (sent.sent or sent.error or sent.waits):
        return deleted
    return replace(sent, accepted=deleted.accepted, maybe_deleted=deleted.maybe_deleted)


def _lower_targets_of_unlaunched(nodes: Sequence[Node], deleted: Outcome, calls: _Calls) -> Outcome:
    """After the deletion of nodes that were not launched yet: with its target still up, HyperPod would launch nodes for the group
    again.

    Nodes that have an instance terminate for a while, and may be counted so long: a later poll lowers the target of their
    group.
    """
    unlaunched = [node for node in nodes if node.instance_id is None and node.name in deleted.accepted]
    if not calls.live.continuous or not unlaunched:
        return deleted
    deletion_requested = deleted.accepted | deleted.maybe_deleted
    groups = {node.group for node in unlaunched}
    return _send_counts(
        calls, replace(calls.context, young=False), deletion_requested=deletion_requested, only=groups
    ).after(deleted)


# -- nodes ------------------------------------------------------------------------------------------------------------


def _delete_nodes(nodes: Sequence[Node], calls: _Calls) -> Outcome:
    """Call after call. An error that is not about single nodes ends them."""
    done = Outcome()
    for names, arguments in _deletion_calls(nodes):
        try:
            reply = calls.sagemaker.batch_delete_cluster_nodes(ClusterName=calls.live.name, **arguments)
        except api.CALL_ERRORS as error:
            done = replace(
                done, maybe_deleted=done.maybe_deleted | _maybe_deleted(names, getattr(error, "response", None))
            )
            if not _all_failed(error):
                return _deleted_nothing(error, names, calls).after(done)
            done = Outcome(waits=(f"{sentences.some(sorted(names))}: {api.reason(error)}",)).after(done)
        else:
            done = _answered(names, reply).after(done)
    return done


def _answered(names: frozenset[str], reply: api.Reply) -> Outcome:
    """What HyperPod answered for these nodes, one by one."""
    failures = list(_failures(reply))
    failed = frozenset(failure.name for failure in failures)
    return Outcome(
        accepted=names - failed,
        maybe_deleted=_maybe_deleted(names, reply),
        waits=tuple(f"{failure.name}: {failure.why}" for failure in failures if failure.code not in _DONE),
    )


def _maybe_deleted(names: frozenset[str], answer: Mapping[str, Any] | None) -> frozenset[str]:
    """All of the names if the call may have deleted them whatever its answer is. Otherwise none."""
    return names if _may_have_acted(answer) else frozenset()


def _may_have_acted(answer: Mapping[str, Any] | None) -> bool:
    """Whether a call may have acted whatever its last answer is: there is no answer, or botocore had tried before."""
    if answer is None:
        return True
    metadata = answer.get("ResponseMetadata", {})
    retried = metadata.get("RetryAttempts", 0) > 0
    return bool(retried or metadata.get("HTTPStatusCode", 0) >= 500)


def _deletion_calls(nodes: Sequence[Node]) -> Iterator[tuple[frozenset[str], dict[str, Any]]]:
    """The fewest calls that the limits allow: names, and arguments."""
    ids = [node.instance_id for node in nodes if node.instance_id is not None]
    logical = [node.logical_id for node in nodes if node.instance_id is None and node.logical_id is not None]
    for key, names, size in (("NodeIds", ids, MAX_IDS), ("NodeLogicalIds", logical, MAX_LOGICAL_IDS)):
        for start in range(0, len(names), size):
            chunk = names[start : start + size]
            yield frozenset(chunk), {key: chunk}


@dataclass(frozen=True, slots=True)
class _Failure:
    """A node that HyperPod did not delete."""

    name: str
    code: str
    """Without case and underscores."""
    why: str


def _failures(reply: api.Reply) -> Iterator[_Failure]:
    """Both lists may be missing from a reply."""
    for key, name in (("Failed", "NodeId"), ("FailedNodeLogicalIds", "NodeLogicalId")):
        for failure in reply.get(key) or ():
            code = str(failure.get("Code", ""))
            yield _Failure(failure[name], api.normal(code), one_line(f"{code} {failure.get('Message', '')}"))


def _all_failed(error: Exception) -> bool:
    """A 400 because every node failed. Its code is undocumented, so a per-node code in its words decides; the next poll sees
    which of them are there."""
    reason = api.normal(api.reason(error))
    return any(code in reason for code in (*_DONE, "nodeidinuse", "invalidnodestatus"))


def _deleted_nothing(error: Exception, names: frozenset[str], calls: _Calls) -> Outcome:
    """A call that deleted nothing, for a reason other than its nodes'."""
    definite = Outcome(error=error, call="BatchDeleteClusterNodes")
    if api.is_not_found(error):
        return Outcome(waits=(api.reason(error),))
    if api.needs_software_update(error):
        return definite
    if _worth_waiting(error, calls.live, calls.clock):
        return Outcome(waits=(api.reason(error),))
    if api.is_denied(error):
        return definite
    if _all_deleted_meanwhile(names, calls.live.name, calls.sagemaker):
        return Outcome(waits=(messages.waits.ALREADY_DELETED.why,))
    return replace(definite, unexplained=True)


def _all_deleted_meanwhile(names: frozenset[str], cluster: str, sagemaker: clients.SageMaker) -> bool:
    """Whether none of these nodes is there any more: then "all failed" meant that nothing was left to do."""
    try:
        live = clients.read_live(sagemaker, cluster)
    except api.CALL_ERRORS:
        return False
    return live is None or not any(node.name in names and not node.leaving for node in live.nodes)


# -- counts -----------------------------------------------------------------------------------------------------------


def _send_counts(
    calls: _Calls,
    context: RequestContext,
    *,
    deletion_requested: frozenset[str] = frozenset(),
    only: Container[str] | None = None,
) -> Outcome:
    """The one place that lowers targets and minimums: one UpdateCluster for all these groups; others are left alone (botocore:
    UpdateCluster, its InstanceGroups).

    `deletion_requested`: nodes whose deletion was requested since `calls.live` was read. `only`: of these groups; None: of all.

    Between any two calls another actor may change the cluster, and a count that is no longer true ends nodes at random. So it
    plans once more, from what is there now, and sends only what that plan holds, for groups that nothing else has touched
    since.
    """
    try:
        live, plan = calls.look(context)
    except api.CALL_ERRORS as error:
        return Outcome(waits=(api.reason(error),))
    if live is None:
        return Outcome(waits=tuple(wait.why for wait in plan.waits))
    waits: list[str] = []
    specs: list[Mapping[str, Any]] = []
    for lower in _lowers(plan, only):
        if _overtaken(lower.group, calls.live, live, deletion_requested):
            waits.append(messages.waits.overtaken(lower.group).why)
        else:
            specs.append(carrying(spec_with(lower.spec, count=lower.count, minimum=lower.minimum), live))
    if not specs:
        return Outcome(waits=(*waits, *(wait.why for wait in plan.waits)))
    return _update(specs, calls).after(Outcome(waits=tuple(waits)))


def _lowers(plan: Plan, only: Container[str] | None) -> list[Lower]:
    """The counts of the plan, of these groups. None: of all."""
    lowers = [change for change in plan.changes if isinstance(change, Lower)]
    if only is None:
        return lowers
    return [lower for lower in lowers if lower.group in only]


def _update(specs: Sequence[Mapping[str, Any]], calls: _Calls) -> Outcome:
    try:
        calls.sagemaker.update_cluster(ClusterName=calls.live.name, InstanceGroups=specs)
    except api.CALL_ERRORS as error:
        if api.is_not_found(error) or _worth_waiting(error, calls.live, calls.clock):
            return Outcome(waits=(api.reason(error),))
        return Outcome(error=error, call="UpdateCluster")
    return Outcome(sent=True)


def _overtaken(name: str, seen: Cluster, live: Cluster, deletion_requested: frozenset[str]) -> bool:
    """Whether another actor changed the group between two looks, as far as anything shows it."""
    return (
        _target_rose(name, seen, live)
        or _nodes_came(name, seen, live)
        or _nodes_left(name, seen, live, deletion_requested)
    )


def _target_rose(name: str, seen: Cluster, live: Cluster) -> bool:
    targets = {group.name: group.target for group in seen.groups}
    return any(group.name == name and group.target > targets.get(name, 0) for group in live.groups)


def _nodes_came(name: str, seen: Cluster, live: Cluster) -> bool:
    known = {node.name for node in seen.nodes}
    return any(node.group == name and node.name not in known for node in live.nodes)


def _nodes_left(name: str, seen: Cluster, live: Cluster, deletion_requested: frozenset[str]) -> bool:
    """Nodes whose deletion was not requested left the list: a page may have left them out."""
    staying = {node.name for node in seen.nodes if node.group == name and not node.leaving}
    listed = {node.name for node in live.nodes if node.group == name}
    return not staying <= listed | deletion_requested


def _worth_waiting(error: Exception, live: Cluster, clock: Clock) -> bool:
    """Whether another poll may do better. The words and codes of most errors are undocumented, so one that comes while
    anything in the cluster changes counts as passing; a definite one comes back when all is still."""
    return clock.passing(error) or (api.code(error) == "ValidationException" and _changing(live))


def _changing(live: Cluster) -> bool:
    statuses = (live.status, *(group.status for group in live.groups))
    if any(status in MOVING for status in statuses):
        return True
    return any(node.status in ("DeepHealthCheckInProgress", "SystemUpdating") for node in live.nodes)


# -- groups -----------------------------------------------------------------------------------------------------------


def delete_groups(
    names: Sequence[str], live: Cluster, desired: Desired, sagemaker: clients.SageMaker, clock: Clock
) -> Outcome:
    """One UpdateCluster that deletes these groups with all their nodes. Accepted is done."""
    error = _delete(names, live, sagemaker)
    if error is None:
        return Outcome()
    if clock.passing(error):
        return Outcome(waits=(api.reason(error),))
    try:
        now = clients.read_live(sagemaker, live.name)
    except api.CALL_ERRORS as unread:
        return Outcome(waits=(api.reason(unread),))
    if now is None or _all_deleting(names, now):
        return Outcome()  # another actor requested it first
    if api.code(error) == "ValidationException":
        error = _delete_beside_another(names, now, desired, sagemaker, error)
    if error is None:
        return Outcome()
    if _worth_waiting(error, now, clock):
        return Outcome(waits=(api.reason(error),))
    return Outcome(error=error, call="UpdateCluster")


def _all_deleting(names: Sequence[str], live: Cluster) -> bool:
    return all(group.status == "Deleting" for group in live.groups if group.name in names)


def _delete_beside_another(
    names: Sequence[str], live: Cluster, desired: Desired, sagemaker: clients.SageMaker, error: Exception
) -> Exception | None:
    """The same call with a group beside the names, because whether they may travel alone is undocumented. A group that is sent
    unchanged has no effect. Returns the call's error, or `error` if there is no such group. None: accepted."""
    unchanged = _unchanged(live, desired)
    if unchanged is None:
        return error
    return _delete(names, live, sagemaker, InstanceGroups=[unchanged])


def _delete(names: Sequence[str], live: Cluster, sagemaker: clients.SageMaker, **more: Any) -> Exception | None:
    """The call's error. None: it was accepted, or the cluster does not exist any more."""
    try:
        sagemaker.update_cluster(ClusterName=live.name, InstanceGroupsToDelete=list(names), **more)
    except api.CALL_ERRORS as error:
        found: Exception = error
        return None if api.is_not_found(found) else found
    return None


def _unchanged(live: Cluster, desired: Desired) -> Mapping[str, Any] | None:
    """The specification of a group that is as the deployment wants it, with no node on its way in or out. None: there is no
    such group."""
    resting = _counts_at_rest(live)
    for group in desired.groups:
        if not group.autoscaled and resting.get(group.name) == (group.count, group.minimum):
            minimum = group.minimum if live.continuous else None
            return carrying(spec_with(group, count=group.count, minimum=minimum), live)
    return None


def _counts_at_rest(live: Cluster) -> dict[str, tuple[int, int]]:
    """Target and minimum of each group that has all its nodes, and none that boots or shuts down."""
    restless = {node.group for node in live.nodes if node.leaving or node.status == "Pending"}
    complete = [group for group in live.groups if group.status == "InService" and group.current == group.target]
    return {group.name: (group.target, group.minimum) for group in complete if group.name not in restless}
