"""`plan_group_deletion`: what finalize does, once the cluster's own update is over. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ...kernel.cluster_reading import CONTROLLER, MOVING
from .. import messages
from ..model.actions import Wait
from ..model.cluster import FIRST, Cluster, Desired, RequestContext
from .refusals import owned


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """What finalize does: one UpdateCluster with these groups, or a wait. Neither: it is done."""

    groups: tuple[str, ...] = ()
    wait: Wait | None = None
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return not self.groups and self.wait is None


def plan_group_deletion(live: Cluster | None, desired: Desired, context: RequestContext = FIRST) -> GroupDeletion:
    """Which groups to delete now that the cluster's own update is over. Never the controller's, never the last one, and
    none that is being deleted already. Accepted is done: a group in status Deleting is not waited for."""
    if live is None:
        return GroupDeletion()
    if not owned(live, desired):
        return GroupDeletion(notes=(messages.notes.NOT_OURS,))
    existing = [group for group in live.groups if group.status != "Deleting"]
    names = _names_to_delete(live, desired, context)
    groups = [group for group in existing if group.name in names and group.fixed.node_type != CONTROLLER]
    if not groups:
        return GroupDeletion()
    if len(groups) == len(existing):
        return GroupDeletion(notes=(str(messages.refusals.last_group(group.name for group in groups)),))
    # Groups may be deleted while they wait for their minimum; the cluster as a whole must hold still.
    if live.status in MOVING:
        return GroupDeletion(wait=messages.waits.cluster_moving(live.status))
    return GroupDeletion(groups=tuple(group.name for group in groups))


def _names_to_delete(live: Cluster, desired: Desired, context: RequestContext) -> set[str]:
    """The groups that the deployment deletes and does not keep.

    A rollback also deletes the groups of the failed update, and those that the template before deleted: the failed update may
    have put them back, with new nodes. It keeps each group with nodes from before the failed update.
    """
    kept = {group.name for group in desired.groups}
    names = set(desired.groups_to_delete)
    if not context.rolling_back:
        return names - kept
    failed = context.previous.groups if context.previous else ()
    return (names | {group.name for group in failed}) - _older(live, context.updated) - kept


def groups_left(live: Cluster, desired: Desired) -> dict[str, list[str]]:
    """Groups that should be deleted and whose deletion was not requested yet, with the names of their nodes. Empty for another
    stack's cluster."""
    if not owned(live, desired):
        return {}
    names = set(desired.groups_to_delete) - {group.name for group in desired.groups}
    return {
        group.name: [node.name for node in live.nodes if node.group == group.name]
        for group in live.groups
        if group.name in names and group.status != "Deleting"
    }


def deleting(live: Cluster, desired: Desired, accepted: Collection[str] = ()) -> dict[str, list[str]]:
    """Groups that HyperPod is deleting, with the names of their nodes. `accepted`: those whose deletion it has just accepted."""
    kept = {group.name for group in desired.groups}
    return {
        group.name: [node.name for node in live.nodes if node.group == group.name]
        for group in live.groups
        if group.name in accepted or (group.status == "Deleting" and group.name not in kept and owned(live, desired))
    }


def _older(live: Cluster, updated: datetime | None) -> set[str]:
    """Groups that hold nodes from before the failed update; without its time, all that hold any."""
    return {
        node.group for node in live.nodes if updated is None or (node.launched is not None and node.launched < updated)
    }
