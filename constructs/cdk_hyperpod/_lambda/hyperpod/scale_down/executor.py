"""Carries out a plan: the only module that writes.

A call's failure is sorted into one of three: done already, worth another poll, or definite. Only a definite one ends the
deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..common import api, sentences
from ..common.text import one_line
from . import clients as calls
from . import messages
from .actions import Plan, TakeNodes
from .cluster import MOVING, Cluster, Desired, Node, Occasion
from .patching import carrying
from .properties import spec_with

Look = Callable[[Occasion], tuple[Cluster | None, Plan]]
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
    unheard: frozenset[str] = frozenset()
    """Names of nodes in calls that may have acted although their last answer does not say so."""
    waits: tuple[str, ...] = ()
    """What another poll has to see to, node by node where nodes failed."""
    error: Exception | None = None
    """A definite error of the service. Absent: none."""
    call: str = ""
    """The call that failed."""
    unexplained: bool = False
    """It failed for a reason that nobody documents; a minimum may be it."""
    sent: bool = False
    """Counts were sent."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, and when the request began."""

    now: datetime
    began: datetime

    def passing(self, error: Exception) -> bool:
        """Whether waiting may help."""
        return api.is_passing(error, now=self.now, began=self.began)


def execute(
    plan: Plan, live: Cluster, look: Look, occasion: Occasion, sagemaker: calls.SageMaker, moment: Moment
) -> Outcome:
    """Make the plan's changes, which are of one kind: take nodes, or send counts."""
    takes = [change for change in plan.changes if isinstance(change, TakeNodes)]
    if not takes:
        return _send_counts(live, look, occasion, sagemaker, moment)
    taken = _take(takes, live, sagemaker, moment)
    if taken.error is not None:
        if not taken.unexplained or all(take.minimum is None for take in takes):
            return taken
        # A live minimum may forbid it (undocumented); the file lowers that minimum anyway, so it goes first.
        gone = taken.accepted | taken.unheard
        sent = _send_counts(live, look, replace(occasion, minimum_blocks=True), sagemaker, moment, gone=gone)
        acted = sent.sent or sent.error or sent.waits
        return replace(sent, accepted=taken.accepted, unheard=taken.unheard) if acted else taken
    # With its target still up, a group would ask again for what was just dropped. Nodes that have an instance are on their
    # way out for a while, and may be counted so long: their group's target is for a later poll.
    picks = [pick.node for pick in plan.taken if pick.node.name in taken.accepted]
    dropped = {node.group for node in picks if node.instance_id is None}
    if not (live.continuous and dropped):
        return taken
    gone = taken.accepted | taken.unheard
    sent = _send_counts(live, look, replace(occasion, young=False), sagemaker, moment, gone=gone, only=dropped)
    return replace(sent, accepted=taken.accepted, unheard=taken.unheard, waits=(*taken.waits, *sent.waits))


# -- nodes ------------------------------------------------------------------------------------------------------------


def _take(takes: Sequence[TakeNodes], live: Cluster, sagemaker: calls.SageMaker, moment: Moment) -> Outcome:
    accepted: set[str] = set()
    unheard: set[str] = set()
    waits: list[str] = []
    nodes = [pick.node for take in takes for pick in take.picks]
    for names, arguments in _calls(nodes):
        try:
            reply = sagemaker.batch_delete_cluster_nodes(ClusterName=live.name, **arguments)
        except api.CALL_ERRORS as error:
            unheard |= names if _may_have_acted(getattr(error, "response", None)) else frozenset()
            if not _all_failed(error):
                outcome = _took_nothing(error, names, live, sagemaker, moment)
                outcome = replace(outcome, waits=(*waits, *outcome.waits))
                return replace(outcome, accepted=frozenset(accepted), unheard=frozenset(unheard))
            waits.append(f"{sentences.some(sorted(names))}: {api.reason(error)}")
            continue
        failures = dict(_failures(reply))
        accepted |= names - failures.keys()
        unheard |= names if _may_have_acted(reply) else frozenset()
        waits += [f"{name}: {why}" for name, (code, why) in failures.items() if code not in _DONE]
    return Outcome(accepted=frozenset(accepted), unheard=frozenset(unheard), waits=tuple(waits))


def _may_have_acted(answer: Mapping[str, Any] | None) -> bool:
    """Whether a call may have acted whatever its last answer says: there is none, or botocore had tried before."""
    metadata = (answer or {}).get("ResponseMetadata", {})
    return answer is None or metadata.get("RetryAttempts", 0) > 0 or metadata.get("HTTPStatusCode", 0) >= 500


def _calls(nodes: Sequence[Node]) -> Iterator[tuple[frozenset[str], dict[str, Any]]]:
    """The fewest calls that the limits allow: names, and arguments."""
    ids = [node.instance_id for node in nodes if node.instance_id is not None]
    logical = [node.logical_id for node in nodes if node.instance_id is None and node.logical_id is not None]
    for key, names, size in (("NodeIds", ids, MAX_IDS), ("NodeLogicalIds", logical, MAX_LOGICAL_IDS)):
        for start in range(0, len(names), size):
            chunk = names[start : start + size]
            yield frozenset(chunk), {key: chunk}


def _failures(reply: api.Reply) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name -> (normal code, what the service says). Both lists may be missing from a reply."""
    for key, name in (("Failed", "NodeId"), ("FailedNodeLogicalIds", "NodeLogicalId")):
        for failure in reply.get(key) or ():
            code = str(failure.get("Code", ""))
            yield failure[name], (api.normal(code), one_line(f"{code} {failure.get('Message', '')}"))


def _all_failed(error: Exception) -> bool:
    """A 400 because every node failed. Its code is undocumented, so a per-node code in its words decides; the next poll sees
    which of them are there."""
    said = api.normal(api.reason(error))
    return any(code in said for code in (*_DONE, "nodeidinuse", "invalidnodestatus"))


def _took_nothing(
    error: Exception, names: frozenset[str], live: Cluster, sagemaker: calls.SageMaker, moment: Moment
) -> Outcome:
    """A call that took nothing, for a reason other than its nodes'."""
    outdated = api.needs_software_update(error)
    if api.is_gone(error) or (not outdated and _worth_waiting(error, live, moment)):
        return Outcome(waits=(api.reason(error),))
    known = outdated or api.is_denied(error)
    if not known and _settled_meanwhile(names, live.name, sagemaker):
        return Outcome(waits=("the nodes went meanwhile",))
    return Outcome(error=error, call="BatchDeleteClusterNodes", unexplained=not known)


def _settled_meanwhile(names: frozenset[str], cluster: str, sagemaker: calls.SageMaker) -> bool:
    """Whether none of these nodes is there any more: then "all failed" meant that nothing was left to do."""
    try:
        live = calls.read_live(sagemaker, cluster)
    except api.CALL_ERRORS:
        return False
    return live is None or not any(node.name in names and not node.leaving for node in live.nodes)


# -- counts -----------------------------------------------------------------------------------------------------------


def _send_counts(
    seen: Cluster,
    look: Look,
    occasion: Occasion,
    sagemaker: calls.SageMaker,
    moment: Moment,
    *,
    gone: frozenset[str] = frozenset(),
    only: Container[str] | None = None,
) -> Outcome:
    """The one place that lowers targets and minimums: one UpdateCluster for all these groups; others are left alone (botocore:
    UpdateCluster, its InstanceGroups). `gone`: nodes that were asked for since `seen`. `only`: of these groups; absent: of all.

    Between any two calls somebody else may act, and a count that is no longer true ends nodes at random. So it plans once
    more, from what is there now, and sends only what that plan holds, for groups that nobody else has touched since.
    """
    try:
        live, plan = look(occasion)
    except api.CALL_ERRORS as error:
        return Outcome(waits=(api.reason(error),))
    waits: list[str] = []
    specs: list[Mapping[str, Any]] = []
    for lower in plan.changes:
        if isinstance(lower, TakeNodes) or live is None or not (only is None or lower.group in only):
            continue
        if _overtaken(lower.group, seen, live, gone):
            waits.append(messages.overtaken(lower.group).why)
        else:
            specs.append(carrying(spec_with(lower.spec, count=lower.count, minimum=lower.minimum), live))
    if not specs:
        return Outcome(waits=(*waits, *(wait.why for wait in plan.waits)))
    try:
        sagemaker.update_cluster(ClusterName=seen.name, InstanceGroups=specs)
    except api.CALL_ERRORS as error:
        if api.is_gone(error) or _worth_waiting(error, seen, moment):
            return Outcome(waits=(*waits, api.reason(error)))
        return Outcome(error=error, call="UpdateCluster", waits=tuple(waits))
    return Outcome(waits=tuple(waits), sent=True)


def _overtaken(name: str, seen: Cluster, live: Cluster, gone: frozenset[str]) -> bool:
    """Whether, between two looks, the group's target has risen, nodes have come to it, or others than the `gone` ones have left
    the list: a page may have left them out."""
    targets = {group.name: group.target for group in seen.groups}
    known = {node.name for node in seen.nodes}
    risen = any(group.name == name and group.target > targets.get(name, 0) for group in live.groups)
    here = {node.name for node in live.nodes if node.group == name}
    staying = {node.name for node in seen.nodes if node.group == name and not node.leaving}
    return risen or bool(here - known) or bool(staying - here - gone)


def _worth_waiting(error: Exception, live: Cluster, moment: Moment) -> bool:
    """Whether another poll may do better. The words and codes of most errors are undocumented, so one that comes while
    anything in the cluster changes counts as passing; a definite one comes back when all is still."""
    return moment.passing(error) or (api.code(error) == "ValidationException" and _changing(live))


def _changing(live: Cluster) -> bool:
    moving = any(status in MOVING for status in (live.status, *(group.status for group in live.groups)))
    return moving or any(node.status in ("DeepHealthCheckInProgress", "SystemUpdating") for node in live.nodes)


# -- groups -----------------------------------------------------------------------------------------------------------


def delete_groups(
    names: Sequence[str], live: Cluster, desired: Desired, sagemaker: calls.SageMaker, moment: Moment
) -> Outcome:
    """One UpdateCluster that deletes these groups with all their nodes. Accepted is done."""
    error = _delete(names, live, sagemaker)
    if error is None or api.is_gone(error):
        return Outcome()
    if moment.passing(error):
        return Outcome(waits=(api.reason(error),))
    try:
        now = calls.read_live(sagemaker, live.name)
    except api.CALL_ERRORS as unread:
        return Outcome(waits=(api.reason(unread),))
    if now is None or not any(group.name in names and group.status != "Deleting" for group in now.groups):
        return Outcome()  # somebody else asked first
    if api.code(error) == "ValidationException" and (unchanged := _unchanged(now, desired)):
        # Nobody documents whether the names may travel alone. A group that is sent as it is changes nothing.
        error = _delete(names, live, sagemaker, InstanceGroups=[unchanged])
        if error is None or api.is_gone(error):
            return Outcome()
    if _worth_waiting(error, now, moment):
        return Outcome(waits=(api.reason(error),))
    return Outcome(error=error, call="UpdateCluster")


def _delete(names: Sequence[str], live: Cluster, sagemaker: calls.SageMaker, **more: Any) -> Exception | None:
    try:
        sagemaker.update_cluster(ClusterName=live.name, InstanceGroupsToDelete=list(names), **more)
    except api.CALL_ERRORS as error:
        found: Exception = error
        return found
    return None


def _unchanged(live: Cluster, desired: Desired) -> Mapping[str, Any] | None:
    """The specification of a group that stands as the file wants it, with no node on its way in or out."""
    restless = {node.group for node in live.nodes if node.leaving or node.status == "Pending"}
    still = {
        group.name: (group.target, group.minimum)
        for group in live.groups
        if group.status == "InService" and group.current == group.target and group.name not in restless
    }
    for group in desired.groups:
        if not group.autoscaled and still.get(group.name) == (group.count, group.minimum):
            return carrying(
                spec_with(group, count=group.count, minimum=group.minimum if live.continuous else None), live
            )
    return None
