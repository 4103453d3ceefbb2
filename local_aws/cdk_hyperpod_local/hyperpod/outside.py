"""What HyperPod asks of others while it updates software: CloudWatch's alarms, Kubernetes, and the nodes' own scripts.

Tests set the fields. An engine, and tests with real parts, replace the methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .state import Cluster, Node

AlarmState = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]


@dataclass(slots=True, kw_only=True)
class Outside:
    """Alarms that do not exist, pods that may be evicted, idle nodes, and scripts that succeed at once, unless it is set."""

    alarms: dict[str, AlarmState] = field(default_factory=dict)
    """Alarm name -> its state. An alarm that is not in it does not exist."""
    protected: set[str] = field(default_factory=set)
    """Instance ids of nodes with a pod that a PodDisruptionBudget keeps."""
    busy: set[str] = field(default_factory=set)
    """Instance ids of nodes on which a job runs."""
    cordoned: set[str] = field(default_factory=set)
    """Instance ids of nodes that HyperPod has cordoned."""

    def alarm_state(self, cluster: Cluster, group: str, name: str) -> AlarmState | None:
        """The state of an alarm, as the role of the group's nodes reads it; None if it cannot be read."""
        del cluster, group
        return self.alarms.get(name)

    def evict(self, cluster: Cluster, node: Node) -> bool:
        """Cordon a node and evict its pods. False if a PodDisruptionBudget does not allow that."""
        del cluster
        if node.instance_id in self.protected:
            return False
        self.cordoned.add(str(node.instance_id))
        return True

    def cordon(self, cluster: Cluster, node: Node) -> None:
        """No new pod is placed on the node."""
        del cluster
        self.cordoned.add(str(node.instance_id))

    def restore(self, cluster: Cluster, node: Node) -> None:
        """Uncordon a node that HyperPod has cordoned."""
        del cluster
        self.cordoned.discard(str(node.instance_id))

    def is_idle(self, cluster: Cluster, node: Node) -> bool:
        """Whether no job runs on the node."""
        del cluster
        return node.instance_id not in self.busy

    def replace_root(self, cluster: Cluster, node: Node) -> None:
        """The node gets the root volume of its image, and everything that runs on it ends. Its scripts begin."""

    def scripts_ended(self, cluster: Cluster, node: Node) -> bool | None:
        """Whether the lifecycle scripts succeeded after `replace_root`; None while they run."""
        return True
