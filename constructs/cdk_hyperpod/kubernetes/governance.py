"""Task governance: the properties of AWS::SageMaker::ClusterSchedulerConfig and AWS::SageMaker::ComputeQuota.

Plain dicts in CloudFormation's words. AWS CDK has a class for the first and none for the second.
"""

from __future__ import annotations

from typing import Any

from ..config.governance import TaskGovernance
from ..config.teams import Team
from . import quotas


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
            team.quota,
            borrow_limit=team.borrow_limit,
            absolute_borrow_limits=team.absolute_borrow_limits,
            lend=team.lend,
            preempt_team_tasks=team.preempt_team_tasks,
        ),
        "ComputeQuotaTarget": {"TeamName": team.name, "FairShareWeight": team.fair_share_weight},
        "ActivationState": "Enabled",
    }


def _switch(on: bool) -> str:
    return "Enabled" if on else "Disabled"
