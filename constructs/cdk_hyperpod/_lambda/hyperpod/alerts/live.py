"""The live cluster: what DescribeCluster says of its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common.text import one_line

_CHANGING = frozenset({"Creating", "Updating", "SystemUpdating", "Deleting"})
_UPDATING = frozenset({"Pending", "InProgress", "RollbackInProgress"})


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
    groups = [*(reply.get("InstanceGroups") or ()), *(reply.get("RestrictedInstanceGroups") or ())]
    return Live(
        name=one_line(reply["ClusterName"]),
        groups=tuple(map(_group, groups)),
        recovery=one_line(reply.get("NodeRecovery") or ""),
        controller=next((one_line(group["InstanceGroupName"]) for group in groups if _is_controller(group)), ""),
    )


def _is_controller(reply: Mapping[str, Any]) -> bool:
    return (reply.get("SlurmConfig") or {}).get("NodeType") == "Controller"


def _group(reply: Mapping[str, Any]) -> Group:
    current, target = int(reply.get("CurrentCount") or 0), int(reply.get("TargetCount") or 0)
    states = (current != target, reply.get("Status") in _CHANGING, reply.get("SoftwareUpdateStatus") in _UPDATING)
    return Group(
        name=one_line(reply["InstanceGroupName"]),
        current=current,
        target=target,
        minimum=int(reply.get("MinCount") or 0),
        changing=any(states),
        plan=str(reply.get("TrainingPlanArn") or ""),
        image_status=str(reply.get("ImageVersionStatus") or ""),
    )
