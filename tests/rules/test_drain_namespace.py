"""Where the CronJob of `scale_down.drain.backup_cron_job` may be without a warning."""

from __future__ import annotations

import pytest

from cdk_hyperpod.config.cluster import ClusterConfig, InstanceGroup, ScaleDownConfig, ScaleDownDrain
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.rules.drain import check_drain


@pytest.mark.parametrize(
    ("cron_job", "warned"),
    [
        ("research/backup", False),
        ("hyperpod-ns-research/backup", False),
        ("default/backup", False),
        ("reserch/backup", True),
    ],
)
def test_a_namespace_that_no_team_has_is_warned_of(cron_job: str, warned: bool) -> None:
    config = ClusterConfig(
        name="train",
        region="us-west-2",
        orchestrator="eks",
        instance_groups=(InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=1),),
        teams=(Team(name="research"),),
        scale_down=ScaleDownConfig(drain=ScaleDownDrain(backup_cron_job=cron_job)),
    )
    found = list(check_drain(config))
    assert [(each.level, each.topic) for each in found] == ([("warning", "backup-namespace")] if warned else [])
