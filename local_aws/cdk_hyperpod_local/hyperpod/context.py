"""The arguments of every operation besides its parameters, and how it finds the named cluster."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ApiError, not_found
from .state import Cluster, Group, HyperPodState, Node, running_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The caller, its account and its region."""

    state: HyperPodState
    principal: str
    account: str
    region: str

    def clusters(self) -> list[Cluster]:
        """The clusters of this account and region."""
        return [c for c in self.state.clusters.values() if (c.account, c.region) == (self.account, self.region)]

    def cluster(self, name_or_arn: str) -> Cluster:
        """The cluster by name or ARN (botocore: ClusterNameOrArn). Raises ResourceNotFound."""
        for cluster in self.clusters():
            if name_or_arn in (cluster.name, cluster.arn):
                return cluster
        raise not_found(f"Could not find the cluster '{name_or_arn}'")


def below_minimum(cluster: Cluster) -> list[Group]:
    """The groups that still wait for their minimum."""
    return [group for group in cluster.groups.values() if group.awaiting and group.status in ("Creating", "Updating")]


def refuse_while_busy(context: Context, cluster: Cluster, action: str) -> None:
    """Refuse a Batch* call during a cluster-level operation ("Scale down a cluster", Validation and error handling).

    These are update, system update, patching and deletion. A continuous cluster stays InService while it scales, so its
    scaling blocks no call (botocore: CreateClusterRequest$NodeProvisioningMode).
    """
    if cluster.status in ("InService", "Failed") and not any(is_patched(group) for group in cluster.groups.values()):
        return
    raise ApiError(
        context.state.behaviour.busy_code,
        f"Cannot {action} while cluster {cluster.name} is in status {cluster.status}. Wait until no cluster operation is "
        f"in progress and try again",
    )


def is_patched(group: Group) -> bool:
    """Whether UpdateClusterSoftware, or a schedule, updates the group. Automatic patching waits for idle nodes."""
    return group.update is not None and group.update.step != "patching"


def refuse_below_minimum(context: Context, cluster: Cluster, groups: set[str], action: str) -> None:
    """An unmet minimum blocks BatchAdd, BatchDelete and UpdateClusterSoftware ("Minimum capacity requirements")."""
    waiting = {group.name for group in below_minimum(cluster)}
    blocked = waiting if context.state.behaviour.minimum_blocks == "cluster" else waiting & groups
    if blocked:
        raise ApiError(
            context.state.behaviour.busy_code,
            f"Cannot {action} while minimum capacity is not met for instance group {min(blocked)} of cluster "
            f"{cluster.name}",
        )


def refuse_unpatched(context: Context, cluster: Cluster, action: str) -> None:
    """Old clusters must be patched once before (botocore: BatchDeleteClusterNodes, important)."""
    required = context.state.behaviour.patched_once_required
    cutoff = 1_718_841_600.0  # 2024-06-20T00:00:00Z, ai-on-sagemaker-hyperpod 19-delete-cluster-nodes.md
    if cluster.patched or required == "never" or (required == "old_clusters" and cluster.created_at >= cutoff):
        return
    raise ApiError(
        "ValidationException",
        f"Cannot {action} on cluster {cluster.name} before its platform software was updated. Run UpdateClusterSoftware first",
    )


def running_in(cluster: Cluster, group: str) -> int:
    """Running nodes of a group."""
    return running_count(node for node in cluster.nodes.values() if node.group == group)


def find_node(cluster: Cluster, instance_id: str) -> Node | None:
    """The node by instance id, if ListClusterNodes would show it; None if it is not in the cluster."""
    return next((n for n in cluster.nodes.values() if n.instance_id == instance_id and n.listed), None)
