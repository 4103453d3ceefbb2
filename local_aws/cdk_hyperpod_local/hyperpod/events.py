"""The event stream in AWS's words: "SageMaker HyperPod cluster events reference" (SageMaker AI developer guide).

The page has no level for each event. It says what levels mean: Error if an operation failed, Info if it continues or is
complete. It does not list the words for an operation; ours are those of its examples. Samples on the same page, and
live clusters, write InstanceGroup instead of the IG in its tables. The two events of a minimum are from the page
"Minimum capacity requirements".
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
PATCHING_COMPLETED = Kind(
    resource="InstanceGroup",
    description="UpdateClusterSoftware completed successfully for IG <instance-group-name> in Cluster <cluster-name>.",
)
INSTANCE_PATCHED = Kind(
    resource="Instance", description="Instance <instance-id> in IG <instance-group-name> updated successfully."
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
MINIMUM_REACHED = Kind(resource="InstanceGroup", description="Minimum capacity reached")
ROLLBACK = Kind(resource="InstanceGroup", description="Rollback initiated", level="Warn")

KINDS = tuple(value for value in vars().copy().values() if isinstance(value, Kind))
"""Every kind that the simulation reports."""


def add(
    state: HyperPodState,
    cluster: Cluster,
    kind: Kind,
    *,
    group: str | None = None,
    instance_id: str | None = None,
    operation: str = "",
    status: str = "",
    metadata: Json | None = None,
) -> None:
    """Add an event of this kind to the cluster's stream."""
    description = kind.description
    for name, value in (
        ("cluster-name", cluster.name),
        ("instance-group-name", group),
        ("instance-id", instance_id),
        ("operation", operation),
        ("status", status),
    ):
        description = description.replace(f"<{name}>", value or "")
    state.log(
        cluster, kind.resource, description, level=kind.level, group=group, instance_id=instance_id, metadata=metadata
    )


def capacity_message(instance_type: str) -> str:
    """The FailureMessage for missing capacity, from the reference's sample."""
    return f"We currently do not have sufficient capacity to launch new {instance_type} instances. Please try again."
