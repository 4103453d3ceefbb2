"""What DescribeCluster and ListClusterNodes say of groups and nodes: one reading for the functions and the commands. Pure.

botocore requires no member of a group, and of a node some that HyperPod leaves out until the node has an instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Reply = Mapping[str, Any]

CONTROLLER = "Controller"
"""SlurmConfig.NodeType of the group whose nodes BatchDeleteClusterNodes never deletes (botocore, its NodeIds)."""

MOVING = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
"""Statuses of a cluster or group during which HyperPod rejects changes. Failed and Degraded are not among them:
in both, HyperPod accepts the changes that repair the cluster."""

SOFTWARE_MOVING = frozenset({"Pending", "InProgress", "RollbackInProgress"})
"""SoftwareUpdateStatus while HyperPod replaces the image of nodes (botocore)."""

LEAVING = frozenset({"ShuttingDown", "NotFound"})
"""Statuses of a node that is shutting down already, or has no instance any more."""


def own_groups(cluster: Reply) -> list[Reply]:
    """The instance groups, in HyperPod's order. Restricted groups have no image, no minimum and no node type that is shown, and the
    guard's construct does not accept them, so guard and `patch` leave them alone."""
    return list(cluster.get("InstanceGroups") or ())


def all_groups(cluster: Reply) -> list[Reply]:
    """The instance groups, then the restricted ones: all that have nodes."""
    return [*own_groups(cluster), *(cluster.get("RestrictedInstanceGroups") or ())]


def counts(group: Reply, listed: int | None = None) -> tuple[int, int]:
    """CurrentCount and TargetCount. One that the reply lacks is unknown, and not 0: 0 would look as if nodes were missing, or the
    target had fallen. It counts as the nodes that are `listed`, or else as the other count."""
    current, target = group.get("CurrentCount"), group.get("TargetCount")
    if listed is None:
        listed = next((each for each in (current, target) if each is not None), 0)
    return int(listed if current is None else current), int(listed if target is None else target)


def group_status(group: Reply) -> str:
    """Without a status it counts as InService: HyperPod itself rejects a call while it is at work."""
    return str(group.get("Status") or "InService")


def node_type(group: Reply) -> str | None:
    """Controller, Login or Compute. None: no SlurmConfig (EKS, or Slurm set up by a file on the nodes)."""
    found: str | None = (group.get("SlurmConfig") or {}).get("NodeType")
    return found


def instance_id(node: Reply) -> str | None:
    """None: not launched yet. Then the reply has no InstanceId, or an empty one: the shape requires the member."""
    return node.get("InstanceId") or None


def node_status(node: Reply) -> str:
    """Without a status it counts as one that is still starting: then counts are not believed yet."""
    return str((node.get("InstanceStatus") or {}).get("Status") or "Pending")


def once(nodes: Iterable[Reply]) -> list[Reply]:
    """Each node once: pages may repeat one, also by only one of its ids. The last of them counts, but no node loses its
    instance or stops shutting down."""
    found: list[Reply] = []
    index: dict[str, int] = {}
    for node in nodes:
        ids = [each for each in (instance_id(node), node.get("NodeLogicalId")) if each]
        place = next((index[each] for each in ids if each in index), len(found))
        shown = [node, *found[place : place + 1]]
        found[place : place + 1] = [
            max(shown, key=lambda each: (instance_id(each) is not None, node_status(each) in LEAVING))
        ]
        index.update(dict.fromkeys(ids, place))
    return found
