"""Carries out a plan: the only module that writes.

A call's failure is sorted into one of three: done already, worth another poll, or definite. Only a definite one ends the
deployment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from . import api, messages
from .actions import LowerMinimum, LowerTarget, Plan, TakeNodes
from .model import MOVING, Cluster, Desired, Node
from .ready import ready_to_go
from .wire import spec_with

MAX_IDS = 99
"""Node ids in one BatchDeleteClusterNodes ("Scale down a SageMaker HyperPod cluster"; the shape allows 3,000)."""

MAX_LOGICAL_IDS = 50
"""Logical ids in one BatchDeleteClusterNodes, together with node ids (botocore: its NodeLogicalIds)."""

_DONE = frozenset({"nodeidnotfound", "nodelogicalidnotfound"})
_LATER = ("nodeidinuse", "invalidnodestatus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a plan."""

    accepted: frozenset[str] = frozenset()
    """Names of the nodes whose deletion the service accepted."""
    waits: tuple[str, ...] = ()
    """What another poll has to see to, node by node where nodes failed."""
    error: Exception | None = None
    """A definite refusal by the service. Absent: none."""
    call: str = ""
    """The call that was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Now, and when the request began."""

    now: datetime
    began: datetime

    def passing(self, error: Exception) -> bool:
        """Whether waiting may help."""
        return api.is_passing(error, now=self.now, began=self.began)


def execute(plan: Plan, live: Cluster, desired: Desired, sagemaker: api.SageMaker, moment: Moment) -> Outcome:
    """Make the plan's changes, which are of one kind."""
    takes = [change for change in plan.changes if isinstance(change, TakeNodes)]
    if takes:
        outcome = _take(takes, live, desired, sagemaker, moment)
        # With its target still up, the group would launch others in place of what was just taken. Under standard
        # provisioning lowering it ends nodes at random, so there the next poll sees what the service did.
        if outcome.accepted and not outcome.error and live.continuous:
            return _lower_after(takes, outcome, live, desired, sagemaker, moment)
        return outcome
    lowers = [change for change in plan.changes if isinstance(change, LowerTarget | LowerMinimum)]
    return _update_groups(lowers, live, desired, sagemaker, moment) if lowers else Outcome()


# -- nodes ------------------------------------------------------------------------------------------------------------


def _take(
    takes: Sequence[TakeNodes], live: Cluster, desired: Desired, sagemaker: api.SageMaker, moment: Moment
) -> Outcome:
    accepted: set[str] = set()
    waits: list[str] = []
    nodes = ready_to_go(pick.node for take in takes for pick in take.picks)
    for names, arguments in _calls(nodes):
        try:
            reply = sagemaker.batch_delete_cluster_nodes(ClusterName=live.name, **arguments)
        except api.CALL_ERRORS as error:
            if not _all_failed(error):
                outcome = _refused(error, names, takes, live, desired, sagemaker, moment)
                return replace(outcome, accepted=frozenset(accepted), waits=(*waits, *outcome.waits))
            if not _nodes_gone(error):
                waits.append(f"{messages.some(names)}: {api.reason(error)}")
            continue
        failures = dict(_failures(reply))
        accepted |= names - failures.keys()
        waits += [f"{name}: {why}" for name, (code, why) in failures.items() if code not in _DONE]
    return Outcome(accepted=frozenset(accepted), waits=tuple(waits))


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
            yield failure[name], (api.normal(code), messages.one_line(f"{code} {failure.get('Message', '')}"))


def _said(error: Exception) -> str:
    return api.normal(api.reason(error))


def _all_failed(error: Exception) -> bool:
    """A 400 because every node failed. Its code is undocumented, so a per-node code in its words decides."""
    said = _said(error)
    return any(code in said for code in (*_DONE, *_LATER))


def _nodes_gone(error: Exception) -> bool:
    said = _said(error)
    return any(code in said for code in _DONE) and not any(code in said for code in _LATER)


def _refused(
    error: Exception,
    names: frozenset[str],
    takes: Sequence[TakeNodes],
    live: Cluster,
    desired: Desired,
    sagemaker: api.SageMaker,
    moment: Moment,
) -> Outcome:
    """A call that took nothing, for a reason other than its nodes'."""
    if api.is_gone(error) or (not api.needs_software_update(error) and _worth_waiting(error, live, moment)):
        return Outcome(waits=(api.reason(error),))
    if not api.needs_software_update(error) and not api.is_denied(error):
        if _settled_meanwhile(names, live.name, sagemaker):
            return Outcome(waits=("the nodes went meanwhile",))
        ending = {node.group for node in live.nodes if node.leaving}
        blocking = [take for take in takes if take.minimum is not None and take.group not in ending]
        if blocking:
            # A live minimum may forbid it (undocumented); the file lowers that minimum anyway, so it goes first.
            targets = {group.name: group.target for group in live.groups}
            lowers = [
                LowerMinimum(group=take.group, count=targets[take.group], minimum=take.minimum or 0)
                for take in blocking
            ]
            return _update_groups(lowers, live, desired, sagemaker, moment)
    return Outcome(error=error, call="BatchDeleteClusterNodes")


def _settled_meanwhile(names: frozenset[str], cluster: str, sagemaker: api.SageMaker) -> bool:
    """Whether none of these nodes is there any more: then "all failed" meant that nothing was left to do."""
    try:
        live = api.read_live(sagemaker, cluster)
    except api.CALL_ERRORS:
        return False
    return live is None or not any(node.name in names and not node.leaving for node in live.nodes)


# -- counts -----------------------------------------------------------------------------------------------------------


def _lower_after(
    takes: Sequence[TakeNodes],
    outcome: Outcome,
    live: Cluster,
    desired: Desired,
    sagemaker: api.SageMaker,
    moment: Moment,
) -> Outcome:
    """Lower the targets that did not fall with the nodes, never below the nodes that stay. One that did fall and is still too
    high is in no hurry: the planner lowers it once nobody can mistake the nodes on their way out for nodes too many."""
    try:
        after = api.read_live(sagemaker, live.name, nodes=False)
    except api.CALL_ERRORS as error:
        return replace(outcome, waits=(*outcome.waits, api.reason(error)))
    targets = {group.name: group.target for group in after.groups} if after else {}
    before = {group.name: group for group in live.groups}
    gone = Counter(pick.node.group for take in takes for pick in take.picks if pick.node.name in outcome.accepted)
    minimums = {group.name: group.minimum for group in desired.groups}
    lowers = []
    for take in takes:
        old = before[take.group]
        left = take.staying - gone[take.group]
        fallen = old.target - gone[take.group]
        aim = fallen if take.keep is None else max(take.keep, left)
        if gone[take.group] and targets.get(take.group, 0) > max(aim, fallen):
            lowers.append(LowerTarget(group=take.group, count=aim, minimum=min(aim, old.minimum, minimums[take.group])))
    if not lowers:
        return outcome
    lowered = _update_groups(lowers, live, desired, sagemaker, moment)
    return replace(outcome, waits=(*outcome.waits, *lowered.waits), error=lowered.error, call=lowered.call)


def _update_groups(
    lowers: Sequence[LowerTarget | LowerMinimum],
    live: Cluster,
    desired: Desired,
    sagemaker: api.SageMaker,
    moment: Moment,
) -> Outcome:
    """One UpdateCluster for all these groups; others are left alone (botocore: UpdateCluster, its InstanceGroups)."""
    groups = {group.name: group for group in desired.groups}
    specs = [spec_with(groups[lower.group], count=lower.count, minimum=lower.minimum) for lower in lowers]
    try:
        sagemaker.update_cluster(ClusterName=live.name, InstanceGroups=specs)
    except api.CALL_ERRORS as error:
        if api.is_gone(error) or _worth_waiting(error, live, moment):
            return Outcome(waits=(api.reason(error),))
        return Outcome(error=error, call="UpdateCluster")
    return Outcome()


def _worth_waiting(error: Exception, live: Cluster, moment: Moment) -> bool:
    """Whether another poll may do better. The words and codes of most refusals are undocumented, so one that comes while
    anything in the cluster changes counts as passing; a definite one comes back when all is still."""
    return moment.passing(error) or (api.code(error) == "ValidationException" and _changing(live))


def _changing(live: Cluster) -> bool:
    moving = any(status in MOVING for status in (live.status, *(group.status for group in live.groups)))
    return moving or any(node.status in ("DeepHealthCheckInProgress", "SystemUpdating") for node in live.nodes)


# -- groups -----------------------------------------------------------------------------------------------------------


def delete_groups(
    names: Sequence[str], live: Cluster, desired: Desired, sagemaker: api.SageMaker, moment: Moment
) -> Outcome:
    """One UpdateCluster that deletes these groups with all their nodes. Accepted is done."""
    error = _delete(names, live, sagemaker)
    if error is not None and api.code(error) == "ValidationException" and not moment.passing(error):
        # Nobody documents whether the names may travel alone. A group that is sent as it is changes nothing.
        unchanged = _unchanged(live, desired)
        if unchanged and not _going_meanwhile(names, live.name, sagemaker):
            error = _delete(names, live, sagemaker, InstanceGroups=[unchanged])
    if error is None or api.is_gone(error):
        return Outcome()
    if _worth_waiting(error, live, moment):
        return Outcome(waits=(api.reason(error),))
    if _going_meanwhile(names, live.name, sagemaker):
        return Outcome()
    return Outcome(error=error, call="UpdateCluster")


def _delete(names: Sequence[str], live: Cluster, sagemaker: api.SageMaker, **more: Any) -> Exception | None:
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
        if still.get(group.name) == (group.count, group.minimum):
            return spec_with(group, count=group.count, minimum=group.minimum if live.continuous else None)
    return None


def _going_meanwhile(names: Sequence[str], cluster: str, sagemaker: api.SageMaker) -> bool:
    """Whether all these groups are gone or being deleted: somebody else asked first."""
    try:
        live = api.read_live(sagemaker, cluster, nodes=False)
    except api.CALL_ERRORS:
        return False
    return live is None or not any(group.name in names and group.status != "Deleting" for group in live.groups)
