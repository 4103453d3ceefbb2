"""Task governance: the properties of AWS::SageMaker::ClusterSchedulerConfig and AWS::SageMaker::ComputeQuota.

Plain dicts in CloudFormation's words. AWS CDK has a class for the first and none for the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from .._constraints import check_kinds
from .._fields import Pattern, Range
from .._structure import is_known, item_paths, show
from ..errors import Finding
from . import quotas
from ._constraints import field_findings
from .teams import Team

__all__ = ["TaskClass", "TaskGovernance", "check_task_governance", "compute_quota_properties", "scheduler_properties"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClass:
    """How urgent a kind of work is: jobs name it by the label kueue.x-k8s.io/priority-class, with -priority behind it, such
    as training-priority (awsome-distributed-training, task-governance). Orders whole jobs, where a PriorityClass orders
    pods."""

    name: Annotated[
        str,
        Pattern(
            r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
            "1 to 40 lower-case letters, digits and hyphens, no hyphen at either end",
            length=40,
        ),
    ]
    """The name, such as training."""
    weight: Annotated[int, Range(0, 100)]
    """100 goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGovernance:
    """How the teams' jobs are queued. One for a cluster; a change acts on what is queued from then on."""

    priority_classes: tuple[TaskClass, ...] = ()
    """At most 10. Absent: jobs go in the order in which they came."""
    fair_share: bool = True
    """True: idle nodes go to the teams by their `fair_share_weight`. False: first come, first served."""
    idle_resource_sharing: bool = False
    """True: nodes that are in no team's share may be borrowed too, up to each team's ceiling."""


def scheduler_properties(policy: TaskGovernance, *, name: str, cluster_arn: str) -> dict[str, Any]:
    """Properties of the cluster's AWS::SageMaker::ClusterSchedulerConfig. Another name or cluster replaces it."""
    config: dict[str, Any] = {
        "FairShare": _switch(policy.fair_share),
        "IdleResourceSharing": _switch(policy.idle_resource_sharing),
    }
    if policy.priority_classes:
        config["PriorityClasses"] = [{"Name": item.name, "Weight": item.weight} for item in policy.priority_classes]
    return {"Name": name, "ClusterArn": cluster_arn, "SchedulerConfig": config}


def compute_quota_properties(team: Team, *, cluster_arn: str) -> dict[str, Any]:
    """Properties of the team's AWS::SageMaker::ComputeQuota: its share, and what it may borrow.

    It makes the namespace hyperpod-ns-<team> and its queues. A change of the team's name replaces it: the old one is
    deleted before the new one is made. A team without a quota has none (`check_teams` refuses it).
    """
    return {
        "Name": team.name,
        "ClusterArn": cluster_arn,
        "ComputeQuotaConfig": quotas.compute_quota_config(
            team.quota, borrow_limit=team.borrow_limit, absolute_borrow_limits=team.absolute_borrow_limits
        ),
        "ComputeQuotaTarget": {"TeamName": team.name, "FairShareWeight": team.fair_share_weight},
        "ActivationState": "Enabled",
    }


def check_task_governance(policy: TaskGovernance, path: str = "task_governance") -> Iterator[Finding]:
    """Everything that is wrong with the cluster's policy."""
    kinds = [*check_kinds(policy, TaskGovernance, path)]
    yield from kinds
    if kinds:
        return
    path = f"{path}.priority_classes"
    known = [item for item in policy.priority_classes if is_known(item)]
    for item_path, item in zip(item_paths(path, policy.priority_classes), policy.priority_classes, strict=True):
        if is_known(item):
            yield from field_findings(item, item_path)
    if len(policy.priority_classes) > 10:
        yield Finding(
            path=path, problem=f"there are {len(policy.priority_classes)}, and a policy holds 10", remedy="use fewer"
        )
    for name, count in Counter(item.name for item in known).items():
        if count > 1:
            yield Finding(path=path, problem=f"{count} classes have the name {show(name)}", remedy="keep one of them")


def _switch(on: bool) -> str:
    return "Enabled" if on else "Disabled"
