"""The durations of operations, and a switch for every behaviour that AWS does not document."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations in seconds.

    The defaults have the order of magnitude that users report. Only the 3 hours are documented.
    """

    create_cluster: float = 300.0
    """From CreateCluster until the cluster-level resources exist."""
    launch: float = 60.0
    """From the request of a node until it can get an instance, if there is capacity."""
    boot: float = 600.0
    """From the assignment of the instance id until Running: boot and lifecycle script."""
    deep_health_check: float = 3600.0
    """From DeepHealthCheckInProgress until Running."""
    shut_down: float = 900.0
    """From ShuttingDown until ListClusterNodes no longer shows the node."""
    count_lag: float = 120.0
    """From there until CurrentCount falls and the capacity is free. Meanwhile the two reads disagree."""
    software_update: float = 1800.0
    """From the replacement of a node's root volume until its lifecycle scripts have ended."""
    software_update_pending: float = 60.0
    """From UpdateClusterSoftware until the first node gets the image: SoftwareUpdateStatus is Pending."""
    lifecycle_retry: float = 360.0
    """Software update: from a failed lifecycle script until the next attempt ends. There are four attempts in about 18
    minutes (hyperpod-mental-model.md)."""
    requested_second: float = 1.0
    """The duration of a second in a request, such as one of WaitIntervalInSeconds."""
    patch_notice: float = 1_814_400.0
    """From the release of a patch until automatic patching: 21 days ("SageMaker HyperPod AMI automatic patching")."""
    idle_check: float = 300.0
    """Automatic patching: how often HyperPod looks for idle nodes."""
    repair: float = 120.0
    """From a fault that the health monitoring agent finds until HyperPod replaces the node (NodeRecovery Automatic)."""
    update_settle: float = 60.0
    """How long Behaviour.continuous_update_shows_updating shows Updating."""
    minimum_limit: float = 10_800.0
    """The 3 hours for MinInstanceCount, until the rollback (botocore:
    ClusterInstanceGroupSpecification$MinInstanceCount)."""
    standard_capacity_wait: float = 1800.0
    """Standard provisioning: how long an operation waits for missing capacity before all of it fails."""
    retry_failed: float = 300.0
    """Continuous provisioning: from the failed start of a node until the next attempt. Above 0."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"Timings.{field.name} must not be negative")
        if self.retry_failed <= 0:
            raise ValueError("Timings.retry_failed must be above 0: a group that always fails would retry for ever")

    def faster(self, factor: float) -> Timings:
        """Every duration divided by `factor` (above 0), including the 3 hours."""
        return replace(self, **{field.name: getattr(self, field.name) / factor for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One field per question that no public document answers. Code that calls HyperPod must handle every value.

    The defaults are the likelier answer, or the one in a guide that AWS engineers wrote.
    """

    batch_delete_lowers_target: Literal["at_once", "when_gone", "never"] = "at_once"
    """When BatchDeleteClusterNodes lowers TargetCount.

    At_once is reported (awsome-distributed-ai, hyperpod-mental-model.md), but not documented officially.
    """
    replaces_missing_nodes_after_batch_delete: bool = True
    """If the target was not lowered: whether HyperPod launches a replacement when the node has left the list."""
    all_fail_code: str = "ValidationException"
    """Code of BatchDelete's 400 when every node failed ("Scale down a cluster", API Response Codes, names no code)."""
    busy_code: Literal["ConflictException", "ValidationException"] = "ConflictException"
    """Code of a Batch* call that is refused because an operation is in progress ("Scale down a cluster",
    Validation)."""
    controller_code: Literal["NodeIdInUse", "NODE_ID_IN_USE"] = "NodeIdInUse"
    """Per-node code for a Slurm controller. The API's enum has the first, the CLI's help the second."""
    logical_not_found_code: Literal["NodeIdNotFound", "NodeLogicalIdNotFound"] = "NodeIdNotFound"
    """Per-node code of an unknown logical id. The enum and the field's documentation differ."""
    logical_ids_delete_launched_nodes: bool = True
    """Whether BatchDelete accepts the logical id of a node that already has an instance.

    Otherwise InvalidNodeStatus.
    """
    patched_once_required: Literal["never", "old_clusters", "always"] = "old_clusters"
    """Which clusters need one UpdateClusterSoftware before Batch* calls.

    The API says "an existing cluster"; community guides say those created before 2024-06-20 (ai-on-sagemaker-hyperpod,
    19-delete-cluster-nodes.md).
    """
    counts_shutting_down_nodes: Literal["never", "while_listed", "while_counted"] = "never"
    """Whether UpdateCluster counts nodes that are shutting down, and so terminates others at random although the count
    is already met: never, while ListClusterNodes shows them, or while CurrentCount contains them."""
    current_count_holds: Literal["booted", "launched"] = "booted"
    """Whether CurrentCount contains an instance from the end of its boot, or from its launch ("The number of instances
    that are currently in the instance group")."""
    random_spares_unlaunched: bool = True
    """A lower count cancels requests without an instance before it terminates nodes at random."""
    update_needs_groups_with_delete: bool = False
    """UpdateCluster with InstanceGroupsToDelete and without InstanceGroups is refused. The shape allows it."""
    delete_unknown_group: Literal["refuse", "ignore"] = "refuse"
    """InstanceGroupsToDelete contains a group that does not exist."""
    delete_deleting_group: Literal["accept", "conflict"] = "conflict"
    """InstanceGroupsToDelete contains a group that is being deleted."""
    absent_minimum_means: Literal["unchanged", "zero"] = "unchanged"
    """UpdateCluster contains an existing group without MinInstanceCount."""
    absent_scheduled_update_means: Literal["none", "unchanged"] = "none"
    """UpdateCluster contains an existing group without ScheduledUpdateConfig.

    Without AutoPatchConfig it disables automatic patching ("SageMaker HyperPod AMI automatic patching").
    """
    below_minimum: Literal["allow", "refuse", "lowers_minimum"] = "allow"
    """BatchDelete, or a lower InstanceCount without MinInstanceCount, brings the target below the group's minimum."""
    minimum_blocks: Literal["group", "cluster"] = "group"
    """What an unmet minimum blocks for BatchAdd, BatchDelete and UpdateClusterSoftware."""
    count_change_restarts_minimum: bool = False
    """A changed InstanceCount with the same minimum starts a new wait if the group has fallen below its minimum."""
    rollback_ends_newest: bool = True
    """The rollback of a minimum terminates the nodes that were launched last. Otherwise random ones."""
    rollback_group_status: Literal["InService", "Failed", "Degraded"] = "InService"
    """Status of a group after its minimum's rollback."""
    continuous_update_shows_updating: bool = False
    """Continuous: UpdateCluster sets the cluster to Updating for a moment, and other changes are refused meanwhile."""
    standard_batch_delete_shows_updating: bool = True
    """Standard: BatchDelete sets the cluster to Updating until the nodes are terminated."""
    standard_update_failure: Literal["rolls_back", "failed"] = "rolls_back"
    """Standard: the effect of missing capacity on an UpdateCluster."""
    standard_can_become_continuous: bool = False
    """UpdateCluster can change a cluster to Continuous ("Continuous provisioning on Slurm" says no, but the field
    exists)."""
    unlaunched_instance_id: Literal["absent", "empty"] = "absent"
    """InstanceId of a node without an instance in ListClusterNodes.

    The shape requires the member; the text says there is none.
    """
    failed_launch_events: Literal["one", "two"] = "two"
    """How many Error events one failed launch has. Two within a second are reported (hyperpod-mental-model.md)."""
    scaling_warnings: bool = True
    """Whether nodes that stop running, or are still missing, have a Warn event (hyperpod-mental-model.md)."""
    event_metadata_in_eventbridge: Literal["null", "filled"] = "null"
    """Whether EventBridge gets an event's metadata.

    AWS's reference shows it filled. Engineers report that every subtree is null (hyperpod-mental-model.md).
    """
    event_level_in_eventbridge: bool = True
    """Whether a Cluster Event has an EventLevel. A sample of April 2025 has none."""
    software_update_shows: Literal["SystemUpdating", "InService"] = "SystemUpdating"
    """Continuous: the cluster's status while the software of a group is updated.

    If it is InService, UpdateCluster and DeleteCluster are accepted meanwhile.
    """
    same_image_again: Literal["nothing", "re_images"] = "nothing"
    """The effect of UpdateClusterSoftware on a node that has the image already ("nothing" is documented for Slurm)."""
    update_cluster_re_images: bool = False
    """Whether UpdateCluster with another image updates the software of existing nodes. Otherwise new nodes get it."""
    changed_image_id_updates_software: bool = False
    """Whether CloudFormation updates software if ImageId has changed. For ImageReleaseVersion it does (the property's
    documentation)."""
    group_deletion_drops_auto_patch: bool = False
    """Whether UpdateCluster with InstanceGroupsToDelete alone turns off automatic patching of the other groups."""
    image_versions: Literal["eks_since_2026", "always"] = "always"
    """Which clusters show the versions of images. They are documented for EKS clusters created since 2026-01-01."""
    default_page_size: int = 10
    """Entries per page without MaxResults, from 1 to 100."""
