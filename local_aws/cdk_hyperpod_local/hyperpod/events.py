"""The event stream in AWS's words: "SageMaker HyperPod cluster events reference" (SageMaker AI developer guide).

The page has no level for each event. It says what levels mean: Error if an operation failed, Info if it continues or is
complete. It does not list the words for an operation; ours are those of its examples. Samples on the same page, and
live clusters, write InstanceGroup instead of the IG in its tables. The two events of a minimum are from the page
"Minimum capacity requirements". The warning about nodes that are not ready is from hyperpod-mental-model.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from .state import Cluster, HyperPodState, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of event."""

    resource: str
    """Cluster, InstanceGroup or Instance."""
    description: str
    """The text of the reference. Words in angle brackets are replaced."""
    level: str = "Info"


CLUSTER_STARTED = Kind(resource="Cluster", description="Cluster <cluster-name> <operation> started successfully")
CLUSTER_COMPLETED = Kind(resource="Cluster", description="Cluster <cluster-name> <operation> completed successfully")
CLUSTER_FAILED = Kind(resource="Cluster", description="Cluster <cluster-name> <operation> failed", level="Error")
GROUP_STARTED = Kind(
    resource="InstanceGroup",
    description="InstanceGroup <instance-group-name> <operation> started successfully in Cluster <cluster-name>",
)
GROUP_COMPLETED = Kind(
    resource="InstanceGroup",
    description="Instance Group <instance-group-name> <operation> in Cluster <cluster-name> completed successfully",
)
PATCHING_SCHEDULED = Kind(
    resource="InstanceGroup",
    description=(
        "InstanceGroup <instance-group-name> in Cluster <cluster-name> has been scheduled for UpdateClusterSoftware to latest."
    ),
)
PATCHING_NOT_SCHEDULED = Kind(
    resource="InstanceGroup",
    description="Failed to schedule UpdateClusterSoftware for IG <instance-group-name> in Cluster <cluster-name>.",
    level="Error",
)
PATCHING_INITIATED = Kind(
    resource="InstanceGroup",
    description=(
        "UpdateClusterSoftware initiated for IG <instance-group-name> in Cluster <cluster-name> using <strategy> strategy."
    ),
)
BATCH_SELECTED = Kind(
    resource="InstanceGroup",
    description="Next update batch selected for IG <instance-group-name> in Cluster <cluster-name>.",
)
FAILED_INSTANCES_QUEUED = Kind(
    resource="InstanceGroup",
    description=("Failed instances in IG <instance-group-name> in Cluster <cluster-name> queued for node replacement."),
    level="Error",
)
PATCHING_COMPLETED = Kind(
    resource="InstanceGroup",
    description="UpdateClusterSoftware completed successfully for IG <instance-group-name> in Cluster <cluster-name>.",
)
PATCHING_NOT_COMPLETED = Kind(
    resource="InstanceGroup",
    description="Failed to complete UpdateClusterSoftware for IG <instance-group-name> in Cluster <cluster-name>.",
    level="Error",
)
ROOT_REPLACED = Kind(
    resource="Instance",
    description="Root volume replacement started for Instance <instance-id> in IG <instance-group-name>.",
)
INSTANCE_PATCHED = Kind(
    resource="Instance", description="Instance <instance-id> in IG <instance-group-name> updated successfully."
)
EVICTED = Kind(
    resource="Instance", description="Instance <instance-id> in IG <instance-group-name> cordoned and pods evicted."
)
SKIPPED = Kind(
    resource="Instance",
    description=(
        "UpdateClusterSoftware for Instance <instance-id> in IG <instance-group-name> skipped due to PodDisruptionBudget "
        "constraint."
    ),
    level="Warn",
)
RESTORED = Kind(
    resource="Instance",
    description="Instance <instance-id> in IG <instance-group-name> restored to schedulable state.",
)
BAKING = Kind(
    resource="InstanceGroup",
    description=(
        "Baking period started for IG <instance-group-name> in Cluster <cluster-name>. Monitoring alarms [<alarm-names>] "
        "for <duration> seconds."
    ),
)
BAKED = Kind(
    resource="InstanceGroup",
    description=(
        "Baking period completed for IG <instance-group-name> in Cluster <cluster-name>. No alarms triggered during the "
        "<duration>-second baking period."
    ),
)
ALARM_RANG = Kind(
    resource="InstanceGroup",
    description=(
        "Baking period failed for IG <instance-group-name> in Cluster <cluster-name>. Alarms [<alarm-names>] entered ALARM "
        "state. Initiating auto-rollback."
    ),
    level="Error",
)
ALARMS_UNREADABLE = Kind(
    resource="InstanceGroup",
    description=(
        "Failed to evaluate alarms during baking period for IG <instance-group-name> in Cluster <cluster-name>."
    ),
    level="Error",
)
PATCHING_FAILED = Kind(
    resource="InstanceGroup",
    description=(
        "UpdateClusterSoftware failed for IG <instance-group-name> in Cluster <cluster-name>. Initiating rollback."
    ),
    level="Error",
)
PATCHING_ROLLBACK_FAILED = Kind(
    resource="InstanceGroup",
    description=(
        "Rollback failed for IG <instance-group-name> in Cluster <cluster-name>. Some instances may be in FailedMaintenance "
        "state."
    ),
    level="Error",
)
INSTANCE_NOT_PATCHED = Kind(
    resource="Instance",
    description="Instance <instance-id> in IG <instance-group-name> failed to update. Rollback initiated.",
    level="Error",
)
INSTANCE_ROLLED_BACK = Kind(
    resource="Instance",
    description="Instance <instance-id> in IG <instance-group-name> rolled back successfully to previous AMI.",
)
INSTANCE_NOT_ROLLED_BACK = Kind(
    resource="Instance",
    description=("UpdateClusterSoftware rollback failed for instance <instance-id> in IG <instance-group-name>."),
    level="Error",
)
PROVISIONED = Kind(
    resource="Instance",
    description="EC2 Instance <instance-id> successfully provisioned in Cluster <cluster-name> and IG <instance-group-name>",
)
NOT_PROVISIONED = Kind(
    resource="Instance",
    description="Failed to provision EC2 Instance in Cluster <cluster-name> and IG <instance-group-name>",
    level="Error",
)
NOT_CREATED = Kind(
    resource="Instance",
    description="Instance <operation> <instance-id> in Cluster <cluster-name> and IG <instance-group-name> failed",
    level="Error",
)
SCRIPTS_FAILED = Kind(
    resource="Instance",
    description="Instance lifecycle script execution for EC2 Instance <instance-id> has <status>",
    level="Error",
)
INSTANCE_COMPLETED = Kind(
    resource="Instance",
    description=(
        "Instance <operation> <instance-id> in Cluster <cluster-name> and IG <instance-group-name> completed successfully"
    ),
)
TERMINATING = Kind(
    resource="Instance",
    description=(
        "Termination of EC2 Instance <instance-id> is currently in progress in Cluster <cluster-name> and IG "
        "<instance-group-name>"
    ),
)
REPLACEMENT_STARTED = Kind(
    resource="Instance",
    description=(
        "Instance <instance-id> is starting as part of instance replacement in Cluster <cluster-name> and IG "
        "<instance-group-name>"
    ),
)
REPLACEMENT_COMPLETED = Kind(
    resource="Instance",
    description=(
        "Instance <instance-id> <operation> completed successfully as part of instance replacement in Cluster "
        "<cluster-name> and IG <instance-group-name>"
    ),
)
REPLACEMENT_FAILED = Kind(
    resource="Instance",
    description=(
        "Instance <instance-id> <operation> failed as part of instance replacement in Cluster <cluster-name> and IG "
        "<instance-group-name>"
    ),
    level="Error",
)
NOT_READY = Kind(
    resource="Cluster",
    description=(
        "<lost> node(s) lost orchestration-ready status. Current: <ready>/<target> orchestration-ready across <groups> "
        "instance group(s)."
    ),
    level="Warn",
)
MINIMUM_REACHED = Kind(resource="InstanceGroup", description="Minimum capacity reached")
ROLLBACK = Kind(resource="InstanceGroup", description="Rollback initiated", level="Warn")

KINDS = tuple(value for value in vars().copy().values() if isinstance(value, Kind))
"""Every kind that the simulation reports."""


NO_SERVICE = "Request to service failed. If failure persists after retry, contact customer support."
"""The FailureMessage of NOT_READY. No service has failed: it stands there whenever counts change."""


def add(
    state: HyperPodState,
    cluster: Cluster,
    kind: Kind,
    *,
    group: str | None = None,
    instance_id: str | None = None,
    metadata: Json | None = None,
    **words: object,
) -> None:
    """Add an event of this kind to the cluster's stream. `words`: the description's other words, such as operation."""
    description = kind.description
    known = {"cluster-name": cluster.name, "instance-group-name": group, "instance-id": instance_id, **words}
    for name, value in known.items():
        description = description.replace(f"<{name}>", "" if value is None else str(value))
    state.log(
        cluster,
        kind.resource,
        " ".join(description.split()),  # a node without an instance has no id
        level=kind.level,
        group=group,
        instance_id=instance_id,
        metadata=metadata,
    )


def add_failed_launch(
    state: HyperPodState,
    cluster: Cluster,
    kind: Kind,
    *,
    group: str,
    instance_id: str | None = None,
    metadata: Json,
    **words: object,
) -> None:
    """Add the event of a failed launch, and the second one that comes with it (Behaviour.failed_launch_events)."""
    add(state, cluster, kind, group=group, instance_id=instance_id, metadata=metadata, **words)
    if state.behaviour.failed_launch_events == "two":
        add(state, cluster, NOT_CREATED, group=group, instance_id=instance_id, metadata=metadata, operation="creation")


def capacity_message(instance_type: str) -> str:
    """The FailureMessage for missing capacity, from the reference's sample."""
    return f"We currently do not have sufficient capacity to launch new {instance_type} instances. Please try again."
