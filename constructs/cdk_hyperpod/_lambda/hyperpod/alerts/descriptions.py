"""What each Description of a cluster event means: progress, or a fault of a kind.

Source: "SageMaker HyperPod cluster events reference" (SageMaker AI developer guide), whose texts stand here word for word. The page has
no level for each event, so the words decide. An event that is not in the tables is passed on with its own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

PROGRESS = ""
"""The kind of an event that needs no message."""

REFERENCE: Mapping[str, str] = {
    # Cluster lifecycle
    "Cluster <cluster-name> <operation> started successfully": PROGRESS,
    "Failed to start Cluster <cluster-name> <operation>": "cluster-failure",
    "Cluster <cluster-name> <operation> completed successfully": PROGRESS,
    "Cluster <cluster-name> <operation> failed": "cluster-failure",
    # Instance group lifecycle
    "InstanceGroup <instance-group-name> <operation> started successfully in Cluster <cluster-name>": PROGRESS,
    "Failed to start InstanceGroup <instance-group-name> <operation> in Cluster <cluster-name>": "group-operation",
    "Instance Group <instance-group-name> <operation> in Cluster <cluster-name> completed successfully": PROGRESS,
    "Instance Group <instance-group-name> <operation> in Cluster <cluster-name> failed": "group-operation",
    # Instance group network configuration
    "Found Subnet <subnet-id> in AZ <availability-zone> with SecurityGroupIds <security-group-ids> for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Failed to process Instance Group Network Configuration details for IG <instance-group-name> in Cluster <cluster-name>": "group-configuration",
    "Found Custom AMI Override <ami-id> for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Failed to process Custom AMI Override details for IG <instance-group-name> in Cluster <cluster-name>": "group-configuration",
    "Using HyperPod Platform provided network configuration for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Instance Group network configuration successfully determined for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    # Instance creation. "Failed to provision" comes before its pair, because its reason is read first.
    "Instance <operation> started successfully in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to provision EC2 Instance in Cluster <cluster-name> and IG <instance-group-name>": "launch",
    "Failed to start Instance <operation> in Cluster <cluster-name> and IG <instance-group-name>": "node-operation",
    "Found CapacityReservation ID <reservation-id> for Cluster <cluster-name> and IG <instance-group-name>, using reserved capacity": PROGRESS,
    "No CapacityReservation found for Cluster <cluster-name> and IG <instance-group-name>, using on-demand pool": PROGRESS,
    "Failed to process CapacityReservationDetails for Cluster <cluster-name> and IG <instance-group-name>": "launch",
    "Successfully created Customer ENI for instance in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to create Customer ENI for instance in Cluster <cluster-name> and IG <instance-group-name>": "launch",
    "EC2 Instance <instance-id> successfully provisioned in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Instance lifecycle script execution for EC2 Instance <instance-id> has Failed. To view lifecycle script logs, visit log group...": "lifecycle-script",
    "Instance lifecycle script execution for EC2 Instance <instance-id> has <status>": PROGRESS,
    "Failed to update Instance lifecycle script execution status for EC2InstanceId <instance-id>": "lifecycle-script",
    "Successfully deleted unused Customer ENIs for EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to delete unused Customer ENIs for EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": "network-interface",
    # Instance deletion
    "Termination of EC2 Instance <instance-id> is currently in progress in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to terminate EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": "termination",
    "Customer ENI successfully deleted for EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to delete Customer ENI for EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": "network-interface",
    # Instance reboot
    "Reboot of EC2 Instance <instance-id> is currently in progress on Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to submit reboot request for EC2 Instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": "reboot",
    # Instance replacement. Before the generic operations, whose words are a part of these.
    "Instance <instance-id> is starting as part of instance replacement in Cluster <cluster-name> and IG <instance-group-name>": "replacement",
    "Instance <instance-id> failed to start as part of instance replacement in Cluster <cluster-name> and IG <instance-group-name>": "replacement-failure",
    "Instance <instance-id> <operation> completed successfully as part of instance replacement in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Instance <instance-id> <operation> failed as part of instance replacement in Cluster <cluster-name> and IG <instance-group-name>": "replacement-failure",
    # Instance operation (generic)
    "Instance <operation> <instance-id> in Cluster <cluster-name> and IG <instance-group-name> completed successfully": PROGRESS,
    "Instance <operation> <instance-id> in Cluster <cluster-name> and IG <instance-group-name> failed": "node-operation",
    # FSx filesystem lifecycle
    "FSx creation started for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Failed to create FSx for IG <instance-group-name> in Cluster <cluster-name>": "file-system",
    "FSx creation successfully completed for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "FSx deletion started for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Failed to delete FSx for IG <instance-group-name> in Cluster <cluster-name>": "file-system",
    "FSx deletion successfully completed for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "FSx update started for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    "Failed to update FSx for IG <instance-group-name> in Cluster <cluster-name>": "file-system",
    "FSx update successfully completed for IG <instance-group-name> in Cluster <cluster-name>": PROGRESS,
    # Patching (common steps)
    "InstanceGroup <instance-group-name> in Cluster <cluster-name> has been scheduled for UpdateClusterSoftware to latest.": PROGRESS,
    "Failed to schedule UpdateClusterSoftware for IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "UpdateClusterSoftware initiated for IG <instance-group-name> in Cluster <cluster-name> using <strategy> strategy.": PROGRESS,
    "Failed to initiate UpdateClusterSoftware for IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "Next update batch selected for IG <instance-group-name> in Cluster <cluster-name>.": PROGRESS,
    "Failed to select the next update batch for IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "Failed instances in IG <instance-group-name> in Cluster <cluster-name> queued for node replacement.": "patching",
    "Failed to queue instances for node replacement in IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "UpdateClusterSoftware completed successfully for IG <instance-group-name> in Cluster <cluster-name>.": PROGRESS,
    "Failed to complete UpdateClusterSoftware for IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "Root volume replacement started for Instance <instance-id> in IG <instance-group-name>.": PROGRESS,
    "Failed to start root volume replacement for Instance <instance-id> in IG <instance-group-name>.": "patching",
    "Instance <instance-id> in IG <instance-group-name> updated successfully.": PROGRESS,
    # EKS: access entries
    "SLR Access Entry <operation> successful for Cluster <cluster-name>": PROGRESS,
    "SLR Access Entry <operation> failed for Cluster <cluster-name>": "kubernetes",
    "EKS Access Entries <operation> successful for Cluster <cluster-name>": PROGRESS,
    "EKS Access Entries <operation> failed for Cluster <cluster-name>": "kubernetes",
    # EKS: Kubernetes configuration
    "Successfully updated Kubernetes config for instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": PROGRESS,
    "Failed to update Kubernetes config for instance <instance-id> in Cluster <cluster-name> and IG <instance-group-name>": "kubernetes",
    # EKS: Karpenter autoscaling
    "AutoScaling <operation> <status> successfully in Cluster <cluster-name>": PROGRESS,
    "Failed to <operation> AutoScaling in Cluster <cluster-name>": "kubernetes",
    "CustomResourceDefinition installation completed successfully in EKS Cluster <cluster-name>": PROGRESS,
    "CustomResourceDefinition installation failed for EKS Cluster <cluster-name>": "kubernetes",
    "Failed to <operation> access policies with AmazonSageMakerHyperPodServiceRole access entry in EKS cluster <cluster-name>": "kubernetes",
    "<operation> access policies with AmazonSageMakerHyperPodServiceRole access entry in EKS cluster <cluster-name> successfully": PROGRESS,
    # EKS: patching of an instance
    "Instance <instance-id> in IG <instance-group-name> cordoned and pods evicted.": PROGRESS,
    "UpdateClusterSoftware for Instance <instance-id> in IG <instance-group-name> skipped due to PodDisruptionBudget constraint.": "patching-skipped",
    "Failed to prepare instance <instance-id> in IG <instance-group-name> for UpdateClusterSoftware.": "patching",
    "Instance <instance-id> in IG <instance-group-name> restored to schedulable state.": PROGRESS,
    "Failed to restore instance <instance-id> in IG <instance-group-name> to schedulable state.": "patching",
    # EKS: rollback of a patch
    "Baking period started for IG <instance-group-name> in Cluster <cluster-name>. Monitoring alarms [<alarm-names>] for <duration> seconds.": PROGRESS,
    "Baking period completed for IG <instance-group-name> in Cluster <cluster-name>. No alarms triggered during the <duration>-second baking period.": PROGRESS,
    "Baking period failed for IG <instance-group-name> in Cluster <cluster-name>. Alarms [<alarm-names>] entered ALARM state. Initiating auto-rollback.": "patching",
    "Failed to evaluate alarms during baking period for IG <instance-group-name> in Cluster <cluster-name>.": "patching",
    "UpdateClusterSoftware failed for IG <instance-group-name> in Cluster <cluster-name>. Initiating rollback.": "patching",
    "Rollback failed for IG <instance-group-name> in Cluster <cluster-name>. Some instances may be in FailedMaintenance state.": "patching",
    "Instance <instance-id> in IG <instance-group-name> failed to update. Rollback initiated.": "patching",
    "Instance <instance-id> in IG <instance-group-name> rolled back successfully to previous AMI.": PROGRESS,
    "UpdateClusterSoftware rollback failed for instance <instance-id> in IG <instance-group-name>.": "patching",
    # Slurm. A cluster with a SlurmConfig in each group has no provisioning_parameters.json.
    "Found provisioning_parameters.json in LifeCycleScript S3 Path for controller group <instance-group-name>": PROGRESS,
    "No provisioning_parameters.json found in LifeCycleScript S3 Path for controller group <instance-group-name>": PROGRESS,
    "Successfully created and stored munge key": PROGRESS,
    "Slurm configuration drift validation passed": PROGRESS,
    "Slurm configuration drift detected: <drift-details>": "slurm-drift",
    "Cluster creation failed: controller and login nodes did not become ready within the expected time": "cluster-failure",
    "Slurm was reconfigured successfully. Slurm config updated to match desired state": PROGRESS,
}  # fmt: skip
"""Description of the page -> kind."""

SPECIAL: Mapping[str, str] = {
    # A status and an operation that decide what a row of the page means.
    "Instance lifecycle script execution for EC2 Instance <instance-id> has Failed": "lifecycle-script",
    "Failed to start Instance creation in Cluster <cluster-name> and IG <instance-group-name>": "launch",
    "Instance creation <instance-id> in Cluster <cluster-name> and IG <instance-group-name> failed": "launch",
    "Failed to start Instance deletion in Cluster <cluster-name> and IG <instance-group-name>": "termination",
    "Instance deletion <instance-id> in Cluster <cluster-name> and IG <instance-group-name> failed": "termination",
    "Failed to start Instance reboot in Cluster <cluster-name> and IG <instance-group-name>": "reboot",
    "Instance reboot <instance-id> in Cluster <cluster-name> and IG <instance-group-name> failed": "reboot",
    # The sample record of the page, and live clusters, have no instance id here.
    "Instance creation in Cluster <cluster-name> and IG <instance-group-name> failed": "launch",
    # The mental model of awslabs/awsome-distributed-ai, and its samples.
    "Instance <operation> is starting as part of instance replacement": "replacement",
    "<count> node(s) lost orchestration-ready status. Current: <ready>/<wanted> orchestration-ready across <groups> instance group(s).": "orchestration-ready",
    # "Minimum capacity requirements (MinCount)", from the pages on continuous provisioning.
    "Minimum capacity reached": PROGRESS,
    "Rollback initiated": "minimum",
}  # fmt: skip
"""Descriptions of other sources, and rows of the page whose meaning a word decides. They come first."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a Description means."""

    kind: str
    """A name of `kinds`, or PROGRESS."""
    rank: int
    """The place in the tables, the page's first. Of the events of an incident, the one with the lowest rank says most."""


def meaning(description: str) -> Meaning | None:
    """None: AWS has published no such Description."""
    words = _spelled(description)
    return next((each for pattern, each in _patterns() if pattern.fullmatch(words)), None)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Meaning], ...]:
    meanings = {text: Meaning(kind, rank) for rank, (text, kind) in enumerate([*REFERENCE.items(), *SPECIAL.items()])}
    return tuple((_pattern(text), meanings[text]) for text in [*SPECIAL, *REFERENCE])


_WITH_SPACES = frozenset({"alarm-names", "drift-details", "operation", "security-group-ids", "status"})
"""What stands for more than one word. Everything else is a name or an id."""


def _pattern(description: str) -> re.Pattern[str]:
    words, end = (description.removesuffix("..."), ".*") if description.endswith("...") else (description, "")
    parts = re.split(r"<([a-z-]+)>", _spelled(words))
    texts = [re.escape(part) for part in parts[::2]]
    places = [".+?" if name in _WITH_SPACES else r"\S+" for name in parts[1::2]]
    return re.compile("".join(text + place for text, place in zip(texts, [*places, end], strict=True)))


def _spelled(description: str) -> str:
    """The page writes IG, InstanceGroup and Instance Group, or EC2InstanceId and EC2 Instance, for the same thing; its samples too."""
    words = " ".join(description.split()).rstrip(".")
    words = re.sub(r"\bInstance ?Group\b|\bIG\b", "IG", words)
    return re.sub(r"\bEC2 ?InstanceId\b|\bEC2 Instance\b", "EC2 Instance", words)
