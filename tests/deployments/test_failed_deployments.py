"""Deployments that fail half-way and roll back: no node that was there before ends, but for those that were named."""

from __future__ import annotations

import itertools
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import App, CfnResource, Stack

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import refusals
from cdk_hyperpod.cli.deployment.deleted_nodes import read_deleted
from cdk_hyperpod.cli.deployment.stack_failures import read_failure
from cdk_hyperpod.cli.live import Target
from cdk_hyperpod.loader import load_config
from cdk_hyperpod_local import assemblies
from helpers.deployments.configs import STANDING, TRN1
from helpers.deployments.steps import Step, refused, settle, wait_until
from helpers.local_aws import templates
from helpers.local_aws.rehearsal import Edit, Rehearsal, broken, resized, taking, with_group, without_group
from stacks import add_stacks

Json = Any


EXTRA: Json = {**TRN1, "name": "extra", "instance_type": "ml.g5.48xlarge", "partition": "extra"}

PREPARE, CLUSTER, FINALIZE = "Custom::HyperPodScaleDown", "AWS::SageMaker::Cluster", "Custom::HyperPodGroupRemoval"


def failing(*, after: str, before: str | None = None) -> Edit:
    """A resource that nobody can make, after the one of this type; the one of the other type waits for it."""

    def edit(template: Json) -> None:
        names = {resource["Type"]: name for name, resource in template["Resources"].items()}
        # It says that nobody will ever tell it how things went.
        broken({"Type": "AWS::CloudFormation::WaitCondition", "Properties": {}}, after=[names[after]])(template)
        if before is not None:
            waiting = template["Resources"][names[before]]
            waiting["DependsOn"] = [*waiting.get("DependsOn", []), "Broken"]

    return edit


def roll_back(life: Rehearsal, config: Json, edit: Edit | None = None) -> Step:
    """A deployment of the cluster's stack, which fails and rolls back without a second failure; what it did."""
    step = Step(life)
    failed = life.change(config, edit=edit)
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    assert len(step.failures()) == 1, step.failures()
    return step


def reported(life: Rehearsal) -> dict[str, list[str]]:
    """Group -> the nodes that `why` names as deleted."""
    failure = read_failure(life.cluster, life.aws.client("cloudformation"))
    assert failure.reason and failure.began
    found = read_deleted(
        Target(name=life.name, region=life.aws.region, client=life.aws.client, config=None), failure.began
    )
    assert found is not None and found.unread is None
    return {group: [*nodes] for group, nodes in found.by_group.items()}


# -- nodes and groups were to go --------------------------------------------------------------------------------------


def test_a_resource_fails_between_the_nodes_and_the_cluster(life: Rehearsal) -> None:
    """The named node has gone, the cluster's own update never began; deploying again does the rest."""
    named, trn1 = next(iter(life.nodes("p5"))), life.nodes("trn1")
    config = taking(resized(without_group(STANDING, "trn1"), "p5", 5), nodes=[named], groups=["trn1"])
    step = roll_back(life, config, failing(after=PREPARE, before=CLUSTER))
    assert step.ended() == {named: "named"}
    assert step.calls() == {"BatchDeleteClusterNodes": 1}
    assert reported(life) == {"p5": [named]}
    assert life.groups() == {"controller": (1, 0, 1), "p5": (5, 2, 5), "trn1": (4, 4, 4)}
    made = life.change(config)
    assert made.status == "UPDATE_COMPLETE", made.reasons
    assert step.ended() == {named: "named", **dict.fromkeys(trn1, "group-deleted")}


def test_a_resource_fails_after_the_cluster(life: Rehearsal) -> None:
    """What has gone does not come back, so that HyperPod launches as much anew."""
    named, p5, trn1 = next(iter(life.nodes("p5"))), life.nodes("p5"), life.nodes("trn1")
    config = taking(resized(without_group(STANDING, "trn1"), "p5", 5), nodes=[named], groups=["trn1"])
    step = roll_back(life, config, failing(after=CLUSTER))
    assert step.ended() == {named: "named", **dict.fromkeys(trn1, "group-deleted")}
    assert reported(life) == {"p5": [named], "trn1": sorted(trn1)}
    settle(life)
    assert life.groups() == {"controller": (1, 0, 1), "p5": (6, 2, 6), "trn1": (4, 4, 4)}
    assert life.nodes("p5").keys() > p5.keys() - {named}


def test_a_resource_fails_after_the_cluster_and_before_its_groups_go(life: Rehearsal) -> None:
    """A group that only this library deletes has lost nothing by then."""
    life.aws.change_hyperpod(handler={"vanished_groups": "leave"})
    before = life.nodes()
    config = taking(without_group(STANDING, "trn1"), groups=["trn1"])
    step = roll_back(life, config, failing(after=CLUSTER, before=FINALIZE))
    assert step.ended() == {}
    assert life.nodes() == before


def test_a_resource_fails_after_groups_have_gone(life: Rehearsal) -> None:
    life.aws.change_hyperpod(handler={"vanished_groups": "leave"})
    p5, trn1 = life.nodes("p5"), life.nodes("trn1")
    config = taking(without_group(STANDING, "trn1"), groups=["trn1"])
    step = roll_back(life, config, failing(after=FINALIZE))
    assert step.ended() == dict.fromkeys(trn1, "group-deleted")
    settle(life)
    assert life.groups() == {"controller": (1, 0, 1), "p5": (6, 2, 6), "trn1": (4, 4, 4)}
    assert life.nodes("p5") == p5


def test_a_count_that_was_raised_by_hand_is_written_down_and_does_not_get_there(life: Rehearsal) -> None:
    """Nothing about the cluster tells whether it did: the stack's events do, and every node is still there."""
    life.resize_by_hand("p5", 8, 2)
    settle(life)
    before = life.nodes()
    step = roll_back(life, resized(STANDING, "p5", 8), failing(after=PREPARE, before=CLUSTER))
    assert step.ended() == {}
    assert step.calls() == {}
    assert life.nodes() == before


def test_a_count_that_was_raised_by_hand_is_written_down_and_gets_there(life: Rehearsal) -> None:
    """CloudFormation goes back to the old count, so the newest nodes go before it would choose some at random. Its event of the cluster
    has no physical id, which is optional."""
    life.aws.change_hyperpod(handler={"names_cluster_at_once": False})
    old = life.nodes("p5")
    life.resize_by_hand("p5", 8, 2)
    settle(life)
    added = life.nodes("p5").keys() - old.keys()
    step = roll_back(life, resized(STANDING, "p5", 8), failing(after=CLUSTER))
    assert step.ended() == dict.fromkeys(added, "named")
    assert life.nodes("p5") == old


# -- nodes and groups were to come ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vanished_groups", ["delete_present", "leave"])
def test_an_added_group_is_rolled_back(life: Rehearsal, vanished_groups: str) -> None:
    """It had come up before something else failed."""
    life.aws.change_hyperpod(handler={"vanished_groups": vanished_groups})
    before = life.nodes()
    step = roll_back(life, with_group(STANDING, EXTRA), failing(after=FINALIZE))
    assert set(step.ended().values()) == {"group-deleted"}
    wait_until(lambda: "extra" not in life.groups())
    assert life.nodes() == before


def test_an_added_group_that_does_not_come_up_is_rolled_back(life: Rehearsal) -> None:
    """Its lifecycle script fails on every node, until HyperPod gives up."""
    life.aws.change_hyperpod(timings={"minimum_limit": 3}, faults={"failing_groups": ["extra"]})
    before = life.nodes()
    step = roll_back(life, with_group(STANDING, EXTRA))
    assert reported(life) == {}, "its own nodes are no loss"
    assert "did not reach its minimum capacity of 2 instances" in step.failures()[0]
    assert step.ended().keys().isdisjoint(before)
    wait_until(lambda: "extra" not in life.groups())
    assert life.nodes() == before


def test_a_group_left_behind_by_a_rollback_is_reported_and_can_be_deleted(life: Rehearsal) -> None:
    """CloudFormation's handler gives up on it and leaves it: the next deployment says so, and deletes it on demand."""
    life.aws.change_hyperpod(
        handler={"vanished_groups": "leave"}, timings={"minimum_limit": 3}, capacity={EXTRA["instance_type"]: 0}
    )
    roll_back(life, with_group(STANDING, EXTRA))
    assert life.groups()["extra"] == (0, 0, 0)
    step = Step(life)
    life.change({**STANDING, "tags": {"team": "research"}})
    refused(life, step, refusals.unknown_group("extra", nodes=0))
    made = life.change(taking(STANDING, groups=["extra"]))
    assert made.status == "UPDATE_COMPLETE", made.reasons
    wait_until(lambda: "extra" not in life.groups())


def test_a_scale_up_by_20_is_rolled_back(life: Rehearsal) -> None:
    """Twenty nodes came, and these very nodes go again, more than a deployment may take otherwise."""
    before = life.nodes()
    step = roll_back(life, resized(STANDING, "p5", 26), failing(after=CLUSTER))
    assert len(step.ended()) == 20
    assert set(step.ended().values()) == {"named"}
    assert life.nodes() == before
    assert step.calls() == {"UpdateCluster": 2, "BatchDeleteClusterNodes": 1}


def test_a_scale_up_by_20_without_capacity_is_rolled_back(life: Rehearsal) -> None:
    """Each of the 26 is wanted and ten of the new ones come: HyperPod gives up, and CloudFormation goes back."""
    before = life.nodes()
    life.aws.change_hyperpod(timings={"minimum_limit": 3})
    life.leave_room("ml.p5.48xlarge", 10)
    step = roll_back(life, resized(STANDING, "p5", 26, 26))
    assert "did not reach its minimum capacity of 26 instances" in step.failures()[0]
    assert step.ended().keys().isdisjoint(before)
    settle(life)
    assert life.nodes() == before
    assert life.groups()["p5"] == (6, 2, 6)


# -- another resource of the stack ------------------------------------------------------------------------------------


def test_an_alarm_that_does_not_need_the_cluster_fails_before_anything_goes(life: Rehearsal, tmp_path: Path) -> None:
    """It was added to the cluster's stack behind everything else, and comes late: no node and no group has been deleted."""
    before, groups = life.nodes(), life.groups()
    named = next(iter(life.nodes("p5")))
    config = taking(resized(without_group(STANDING, "trn1"), "p5", 5), nodes=[named], groups=["trn1"])
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config), "utf-8")
    app = App(outdir=str(tmp_path / "cdk.out"), analytics_reporting=False)
    add_stacks(app, load_config(tmp_path / "cluster.yaml"))
    stack = typing.cast(Stack, app.node.find_child(life.cluster))
    slow = [CfnResource(stack, f"Slow{n}", type="AWS::CloudFormation::WaitConditionHandle") for n in range(20)]
    for one, other in itertools.pairwise(slow):
        other.add_dependency(one)
    properties = {"ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriods": 1, "Metrics": [{"Id": "m1"}]}
    alarm = CfnResource(stack, "Alarm", type="AWS::CloudWatch::Alarm", properties=properties)
    alarm.add_dependency(slow[-1])
    step = Step(life)
    template = assemblies.template(Path(app.synth().directory), life.cluster)
    failed = templates.deploy_whole(life.aws, life.cluster, template)
    assert failed.status == "UPDATE_ROLLBACK_COMPLETE", failed.reasons
    (reason,) = step.failures()
    assert "metrics of an expression" in reason
    assert step.ended() == {}
    assert step.calls() == {}
    assert (life.nodes(), life.groups()) == (before, groups)
