"""How long things take, and every answer that AWS does not document, as switches."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations in seconds. The defaults have the order of magnitude that users report; only the 3 hours are documented."""

    create_cluster: float = 300.0
    """CreateCluster until the cluster-level resources stand."""
    launch: float = 60.0
    """Request of a node until it may take an instance, if there is capacity."""
    boot: float = 600.0
    """Instance id assigned until Running: boot and lifecycle script."""
    deep_health_check: float = 3600.0
    """DeepHealthCheckInProgress until Running."""
    shut_down: float = 900.0
    """ShuttingDown until the node leaves ListClusterNodes."""
    count_lag: float = 120.0
    """A node left ListClusterNodes until CurrentCount falls and its capacity is free: the two reads disagree meanwhile."""
    software_update: float = 1800.0
    """UpdateClusterSoftware, start to end."""
    update_settle: float = 60.0
    """How long Behaviour.continuous_update_shows_updating shows Updating."""
    minimum_limit: float = 10_800.0
    """3 hours for MinInstanceCount, then rollback (botocore: ClusterInstanceGroupSpecification$MinInstanceCount)."""
    standard_capacity_wait: float = 1800.0
    """Standard provisioning: how long missing capacity is waited for before the whole operation fails."""
    retry_failed: float = 300.0
    """Continuous provisioning: a node whose start failed until another is tried. Above 0."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"Timings.{field.name} must not be negative")
        if self.retry_failed <= 0:
            raise ValueError("Timings.retry_failed must be above 0: a group that always fails would retry for ever")

    def faster(self, factor: float) -> Timings:
        """Every duration divided by `factor` (above 0), the 3 hours included."""
        return replace(self, **{field.name: getattr(self, field.name) / factor for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One field per question that no public document answers. Code that talks to HyperPod has to cope with every value.

    The defaults are the likelier answer, or the one that a guide written by AWS engineers reports.
    """

    batch_delete_lowers_target: Literal["at_once", "when_gone", "never"] = "at_once"
    """When BatchDeleteClusterNodes lowers TargetCount. Reported for at_once (awsome-distributed-ai,
    hyperpod-mental-model.md), never stated officially."""
    replaces_missing_nodes_after_batch_delete: bool = True
    """Target not lowered: whether the service launches a replacement once the node has left the list."""
    all_fail_code: str = "ValidationException"
    """Code of BatchDelete's 400 when every node failed ("Scale down a cluster", API Response Codes: no code named)."""
    busy_code: Literal["ConflictException", "ValidationException"] = "ConflictException"
    """Code of a Batch* call refused because of an operation in progress ("Scale down a cluster", Validation)."""
    controller_code: Literal["NodeIdInUse", "NODE_ID_IN_USE"] = "NodeIdInUse"
    """Per-node code for a Slurm controller: the API's enum says the first, the CLI's help the second."""
    logical_not_found_code: Literal["NodeIdNotFound", "NodeLogicalIdNotFound"] = "NodeIdNotFound"
    """Per-node code of an unknown logical id: enum against field documentation."""
    logical_ids_delete_launched_nodes: bool = True
    """Whether BatchDelete takes the logical id of a node that has an instance already; else InvalidNodeStatus."""
    patched_once_required: Literal["never", "old_clusters", "always"] = "old_clusters"
    """Which clusters need one UpdateClusterSoftware before Batch* calls: the API says "an existing cluster", community
    guides say those created before 2024-06-20 (ai-on-sagemaker-hyperpod, 19-delete-cluster-nodes.md)."""
    counts_shutting_down_nodes: Literal["never", "while_listed", "while_counted"] = "never"
    """Whether UpdateCluster counts nodes that are shutting down, and so ends others at random for a count already met:
    not, while ListClusterNodes shows them, or while CurrentCount holds them."""
    current_count_holds: Literal["booted", "launched"] = "booted"
    """Whether CurrentCount holds an instance from the end of its boot, or from its launch ("The number of instances that are
    currently in the instance group")."""
    random_spares_unlaunched: bool = True
    """A lower count drops requests that have no instance yet before it ends nodes at random."""
    update_needs_groups_with_delete: bool = False
    """UpdateCluster with InstanceGroupsToDelete and no InstanceGroups is refused. The shape allows it."""
    delete_unknown_group: Literal["refuse", "ignore"] = "refuse"
    """InstanceGroupsToDelete names a group that is not there."""
    delete_deleting_group: Literal["accept", "conflict"] = "conflict"
    """InstanceGroupsToDelete names a group that is being deleted."""
    absent_minimum_means: Literal["unchanged", "zero"] = "unchanged"
    """UpdateCluster sends a known group without MinInstanceCount."""
    absent_scheduled_update_means: Literal["none", "unchanged"] = "none"
    """UpdateCluster sends a known group without ScheduledUpdateConfig. Without AutoPatchConfig it disables automatic patching
    ("SageMaker HyperPod AMI automatic patching")."""
    below_minimum: Literal["allow", "refuse", "lowers_minimum"] = "allow"
    """BatchDelete, or a lower InstanceCount without MinInstanceCount, brings the target below the group's minimum."""
    minimum_blocks: Literal["group", "cluster"] = "group"
    """What an unmet minimum blocks for BatchAdd, BatchDelete and UpdateClusterSoftware."""
    count_change_restarts_minimum: bool = False
    """A changed InstanceCount with the same minimum starts a new wait when the group has fallen below it."""
    rollback_ends_newest: bool = True
    """A minimum's rollback ends the nodes launched last; else random ones."""
    rollback_group_status: Literal["InService", "Failed", "Degraded"] = "InService"
    """Status of a group after its minimum's rollback."""
    continuous_update_shows_updating: bool = False
    """Continuous: UpdateCluster puts the cluster in Updating for a moment, and other changes are refused meanwhile."""
    standard_batch_delete_shows_updating: bool = True
    """Standard: BatchDelete puts the cluster in Updating until the nodes are gone."""
    standard_update_failure: Literal["rolls_back", "failed"] = "rolls_back"
    """Standard: what missing capacity does to an UpdateCluster."""
    standard_can_become_continuous: bool = False
    """UpdateCluster may move a cluster to Continuous ("Continuous provisioning on Slurm" says no, the field exists)."""
    unlaunched_instance_id: Literal["absent", "empty"] = "absent"
    """InstanceId of a node without one in ListClusterNodes. The shape requires the member, the prose says there is none."""
    default_page_size: int = 10
    """Entries per page without MaxResults, from 1 to 100."""
