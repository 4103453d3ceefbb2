"""Where the CronJob of `scale_down.drain.backup_cron_job` may be: whoever may change Jobs there can forge a backup."""

from __future__ import annotations

import pytest

from cdk_hyperpod.config.cluster import ClusterConfig, InstanceGroup
from cdk_hyperpod.config.scale_down import ScaleDownConfig, ScaleDownDrain
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.rules.scale_down_drain import check_scale_down_drain
from cdk_hyperpod.rules.teams import check_teams


@pytest.mark.parametrize(
    ("namespace", "level"),
    [
        ("hyperpod-backup", None),
        ("reserch", "warning"),
        ("research", "error"),
        ("hyperpod-ns-research", "error"),
        ("hyperpod-ns-made-elsewhere", "error"),
        ("shared", "error"),
        ("inference", "error"),
        ("default", "error"),
        ("kube-system", "error"),
        ("kube-public", "error"),
        ("kube-node-lease", "error"),
    ],
)
def test_a_backup_is_in_no_namespace_of_a_team_or_of_kubernetes(namespace: str, level: str | None) -> None:
    config = ClusterConfig(
        name="train",
        region="us-west-2",
        orchestrator="eks",
        instance_groups=(InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=1),),
        teams=(Team(name="research"), Team(name="inference", namespace="shared")),
        scale_down=ScaleDownConfig(drain=ScaleDownDrain(backup_cron_job=f"{namespace}/save")),
    )
    found = list(check_scale_down_drain(config))
    assert [each.level for each in found] == ([level] if level else [])
    assert all("name hyperpod-backup/save" in each.remedy for each in found)


@pytest.mark.parametrize("task_governance", [True, False])
def test_no_team_has_the_name_of_the_backups_namespace(task_governance: bool) -> None:
    teams = (Team(name="hyperpod-backup"),)
    found = list(check_teams(teams, nodes=None, task_governance=task_governance, autoscaling=False))
    assert "teams[hyperpod-backup].name" in {each.path for each in found if each.level == "error"}
