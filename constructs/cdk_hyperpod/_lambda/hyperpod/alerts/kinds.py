"""The kinds of faults: how a subject names them, what HyperPod does by itself, and which kind explains which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

HOUR = timedelta(hours=1)
"""How long the same cause on the same nodes is not reported again."""
PAIR = timedelta(minutes=2)
"""Two events of one failed launch come within a second. The queue may put them into two batches."""
SOON = timedelta(minutes=15)
"""HyperPod begins to replace an unhealthy node within this time."""

RETRIED = "HyperPod tries again until the group has its target count."
RECOVERS = "With NodeRecovery Automatic, HyperPod reboots or replaces the node. With None it does nothing."
FOLLOWS = "If HyperPod finds the node unhealthy, too, a message about that follows."
_NOTHING = "HyperPod documents nothing that it does by itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    one: str
    """What follows `1 node`. Empty: the fault is the group's or the cluster's."""
    many: str = ""
    """What follows `3 nodes`. Absent: the same."""
    whole: str = ""
    """The headline if no node is concerned. Absent: events without a node still count as nodes."""
    itself: str = _NOTHING
    """What HyperPod does by itself."""
    retried: bool = False
    """Each attempt has another instance id, or none. So the group's missing nodes are compared, and not their ids."""
    other_ids: bool = False
    """The event may name the new instance, while the event that explains it names the old one."""
    explained_by: Mapping[str, timedelta] = field(default_factory=dict)
    """Kinds that say more about the same nodes. For this time after their message an event of this kind about as many nodes is no news;
    if it names the same nodes, for an hour."""


UNKNOWN_TYPE = "unknown-type"
"""An event whose detail type the function does not know."""
OTHER = "other"
"""A cluster event whose Description AWS has not published."""
UNHEALTHY = "unhealthy"
HEALTH_RECORD = "health-record"
CLUSTER = "cluster-failure"
CLUSTER_ROLLBACK = "cluster-rollback"
ORCHESTRATION_READY = "orchestration-ready"
WITHOUT_REASON = frozenset({ORCHESTRATION_READY})
"""Kinds whose FailureMessage misleads: "Request to service failed", whatever happened."""
RECOVERY = {
    "Automatic": "NodeRecovery is Automatic. HyperPod reboots or replaces the node.",
    "None": "NodeRecovery is None. HyperPod leaves the node as it is: cdk-hyperpod replace.",
}
"""By the live cluster's NodeRecovery."""
CONTROLLER = (
    "This is the Slurm controller: docs/controller-replaced.md says what is left of its jobs after a replacement."
)
OF_CONTROLLER = frozenset({UNHEALTHY, HEALTH_RECORD, "replacement", "replacement-failure"})
"""Kinds that lead to another controller, or report it."""

KINDS: Mapping[str, Kind] = {
    "launch": Kind(
        one="failed to launch", itself=RETRIED, retried=True, explained_by={"lifecycle-script": PAIR}
    ),
    "lifecycle-script": Kind(one="failed in the lifecycle scripts", itself=RETRIED, retried=True),
    UNHEALTHY: Kind(one="is unhealthy", many="are unhealthy", itself=RECOVERS),
    # It explains nothing: any process on a node can write one with the node's role.
    HEALTH_RECORD: Kind(one="wrote a health record", many="wrote health records", itself=FOLLOWS, explained_by={UNHEALTHY: SOON}),
    "replacement": Kind(
        one="is being replaced", many="are being replaced",
        itself="HyperPod replaces the instance and runs its lifecycle scripts again.",
        other_ids=True, explained_by={UNHEALTHY: SOON},
    ),
    "replacement-failure": Kind(one="could not be replaced", itself="With continuous provisioning HyperPod may try again."),
    "termination": Kind(one="failed to terminate"),
    "reboot": Kind(one="failed to reboot"),
    "node-operation": Kind(one="failed in an operation"),
    "network-interface": Kind(one="left a network interface behind", many="left network interfaces behind"),
    ORCHESTRATION_READY: Kind(one="", whole="nodes lost orchestration-ready status while no count changes"),
    "patching": Kind(
        one="failed to update its software", many="failed to update their software", whole="the software update failed",
        itself="A group with AutoRollbackConfiguration is rolled back. Other groups stay as they are.",
    ),
    "patching-skipped": Kind(
        one="was not updated because of a PodDisruptionBudget", many="were not updated because of a PodDisruptionBudget",
        whole="nodes were not updated because of a PodDisruptionBudget", itself="HyperPod skips the node in this update.",
    ),
    "minimum": Kind(
        one="", whole="the minimum was not reached, the group is rolled back",
        itself="HyperPod returns the group to its last settings. A new group goes to 0 nodes.",
    ),
    "group-operation": Kind(one="", whole="an operation on the group failed", explained_by={"minimum": PAIR}),
    "group-configuration": Kind(one="", whole="HyperPod could not use the group's configuration"),
    CLUSTER: Kind(one="", whole="an operation on the cluster failed"),
    CLUSTER_ROLLBACK: Kind(one="", whole="the cluster is rolled back", explained_by={"minimum": PAIR}),
    "file-system": Kind(one="", whole="an operation on the group's FSx file system failed"),
    "kubernetes": Kind(one="failed to get its Kubernetes configuration", many="failed to get their Kubernetes configuration",
                       whole="HyperPod could not change the EKS cluster"),
    "slurm-drift": Kind(one="", whole="the Slurm configuration has drifted"),
    OTHER: Kind(one="has a HyperPod event", many="have HyperPod events", whole="HyperPod reports an event"),
    UNKNOWN_TYPE: Kind(one="", whole="event of an unknown type"),
}  # fmt: skip
