"""The live cluster: what DescribeCluster says of its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..kernel.cluster_reading import CONTROLLER, MOVING, SOFTWARE_MOVING, all_groups, counts, group_status, node_type
from ..kernel.text import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An instance group, restricted or not."""

    name: str
    current: int
    target: int
    minimum: int
    """0: it has none."""
    changing: bool
    """Its counts, its settings or its software are changing."""
    plan: str
    """The ARN of its training plan. Empty: it has none."""
    image_status: str
    """ImageVersionStatus. Empty: HyperPod reports none, as under Slurm."""

    @property
    def missing(self) -> int:
        """Nodes that it should have, and has not."""
        return max(0, self.target - self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A cluster at one time."""

    name: str
    groups: Sequence[Group]
    recovery: str = ""
    """NodeRecovery: Automatic or None. Empty: unknown."""
    controller: str = ""
    """The group of the Slurm controller. Empty: EKS, or HyperPod does not report it."""

    @property
    def changing(self) -> bool:
        """Whether any group is."""
        return any(group.changing for group in self.groups)

    def group(self, name: str) -> Group | None:
        """The group of this name. None: it does not exist."""
        return next((group for group in self.groups if group.name == name), None)


def read(reply: Mapping[str, Any]) -> Live:
    """The cluster in an answer of DescribeCluster."""
    groups = all_groups(reply)
    return Live(
        name=one_line(reply["ClusterName"]),
        groups=tuple(map(_group, groups)),
        recovery=one_line(reply.get("NodeRecovery") or ""),
        controller=next((one_line(each["InstanceGroupName"]) for each in groups if node_type(each) == CONTROLLER), ""),
    )


def _group(reply: Mapping[str, Any]) -> Group:
    current, target = counts(reply)
    states = (current != target, group_status(reply) in MOVING, reply.get("SoftwareUpdateStatus") in SOFTWARE_MOVING)
    return Group(
        name=one_line(reply["InstanceGroupName"]),
        current=current,
        target=target,
        minimum=int(reply.get("MinCount") or 0),
        changing=any(states),
        plan=str(reply.get("TrainingPlanArn") or ""),
        image_status=str(reply.get("ImageVersionStatus") or ""),
    )
