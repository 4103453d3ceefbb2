"""Nodes that go with a deployment: exactly those that are named, and of the others those that the documentation tells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import refusals, waits
from helpers.deployments.configs import STANDING, TRN1
from helpers.deployments.steps import Step, refused, settle, wait_until
from helpers.findings import codes
from helpers.local_aws.rehearsal import Rehearsal, resized, taking, with_group

Json = Any

P5 = "ml.p5.48xlarge"


def deploy(life: Rehearsal, config: Json) -> Step:
    """`cdk deploy` of the cluster's stack, which succeeds; what it did."""
    step = Step(life)
    made = life.deploy(config, only=life.cluster)
    assert made.ok, made.reason
    return step


def change(life: Rehearsal, config: Json) -> Step:
    """The same without the CLI, which adds nothing to what a template asks for and takes four times as long."""
    step = Step(life)
    changed = life.change(config)
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    return step


def one_more(life: Rehearsal) -> str:
    """The id of the P5 node that joins last."""
    before = life.nodes("p5")
    change(life, resized(STANDING, "p5", len(before) + 1))
    settle(life)
    (newest,) = life.nodes("p5").keys() - before
    return newest


# -- which nodes ------------------------------------------------------------------------------------------------------


def test_named_nodes_are_deleted(life: Rehearsal) -> None:
    named = list(life.nodes("p5"))[1:3]
    step = deploy(life, taking(resized(STANDING, "p5", 4), nodes=named))
    assert step.ended() == dict.fromkeys(named, "named")
    assert life.groups() == {"controller": (1, 0, 1), "p5": (4, 2, 4), "trn1": (4, 4, 4)}
    assert step.calls() == {"BatchDeleteClusterNodes": 1, "UpdateCluster": 1}
    assert step.callers("BatchDeleteClusterNodes") == ["ScaleDown"]
    assert step.callers("UpdateCluster") == ["CloudFormation"]


def test_a_lower_count_takes_the_newest_node(life: Rehearsal) -> None:
    newest = one_more(life)
    step = change(life, STANDING)
    assert step.ended() == {newest: "named"}
    assert step.calls() == {"BatchDeleteClusterNodes": 1, "UpdateCluster": 1}


def test_a_named_node_and_a_count_lower_by_two(life: Rehearsal) -> None:
    newest, named = one_more(life), next(iter(life.nodes("p5")))
    step = change(life, taking(resized(STANDING, "p5", 5), nodes=[named]))
    assert step.ended() == {named: "named", newest: "named"}
    assert step.calls() == {"BatchDeleteClusterNodes": 1, "UpdateCluster": 1}


def test_more_names_than_the_count_allows_are_refused(life: Rehearsal) -> None:
    step, named = Step(life), list(life.nodes("p5"))[:2]
    failed = life.deploy(taking(resized(STANDING, "p5", 5), nodes=named), only=life.cluster)
    refusal = refusals.beyond_count("p5", named=2, most=6, count=5)
    refused(life, step, refusal)
    assert not failed.ok
    assert str(refusal) in failed.reason


def test_more_nodes_than_the_limit_are_refused(life: Rehearsal) -> None:
    step = Step(life)
    life.change(taking(resized(STANDING, "p5", 2), max_nodes=3))
    refused(life, step, refusals.too_many(4, limit=3))


def test_a_group_whose_minimum_is_its_count(life: Rehearsal) -> None:
    """Four of four become three of three: the minimum falls with the count."""
    named = list(life.nodes("trn1"))[2]
    step = change(life, taking(resized(STANDING, "trn1", 3, 3), nodes=[named]))
    assert step.ended() == {named: "named"}
    assert life.groups()["trn1"] == (3, 3, 3)


def test_to_zero_and_back(life: Rehearsal) -> None:
    nodes = life.nodes("p5")
    step = change(life, resized(STANDING, "p5", 0, 0))
    assert step.ended() == dict.fromkeys(nodes, "named")
    assert life.groups()["p5"] == (0, 0, 0)
    step = change(life, STANDING)
    settle(life)
    assert step.ended() == {}
    assert life.groups()["p5"] == (6, 2, 6)
    assert not life.nodes("p5").keys() & nodes.keys()


def test_deploying_again_takes_nothing_more(life: Rehearsal) -> None:
    """The names of what is gone may stay in the file, whatever else changes in it."""
    named = list(life.nodes("p5"))[:2]
    config = taking(resized(STANDING, "p5", 4), nodes=named)
    change(life, config)
    step = deploy(life, config)
    assert step.calls() == {}
    step = change(life, {**config, "tags": {"team": "research"}})
    assert step.ended() == {}
    assert step.calls() == {"AddTags": 1, "UpdateCluster": 1}
    assert life.groups()["p5"] == (4, 2, 4)


def test_250_nodes_in_one_deployment(life: Rehearsal) -> None:
    many = {**TRN1, "name": "many", "instance_type": "ml.g5.8xlarge", "instance_count": 251, "min_instance_count": 0}
    config = with_group(STANDING, {**many, "partition": "many"})
    change(life, config)
    settle(life)
    keeps, *named = life.nodes("many")
    step = change(life, taking(resized(config, "many", 1), nodes=named, max_nodes=250))
    assert len(named) == 250
    assert step.ended() == dict.fromkeys(named, "named")
    assert list(life.nodes("many")) == [keeps]
    assert step.calls() == {"BatchDeleteClusterNodes": 3, "UpdateCluster": 1}
    change(life, taking(STANDING, groups=["many"]))


# -- what the cluster was before --------------------------------------------------------------------------------------


def test_a_changed_tag_deletes_the_newest_nodes_after_a_count_was_raised_by_hand(life: Rehearsal) -> None:
    """CloudFormation sends its own count with the tag, so the newest nodes go by name before it does."""
    old = life.nodes("p5")
    life.resize_by_hand("p5", 8, 2)
    settle(life)
    step = change(life, {**STANDING, "tags": {"team": "research"}})
    assert life.nodes("p5").keys() == old.keys()
    assert list(step.ended().values()) == ["named", "named"]
    assert step.ended().keys().isdisjoint(old)


def test_a_lower_count_removes_the_node_that_was_never_launched_for_lack_of_capacity(life: Rehearsal) -> None:
    """Two of eight nodes cannot be had: a tag changes, a named node goes, and then it is the missing one that goes."""
    nodes = list(life.nodes("p5"))
    life.leave_room(P5, 0)
    change(life, resized(STANDING, "p5", 8))
    assert life.groups()["p5"] == (6, 2, 8)
    step = change(life, {**resized(STANDING, "p5", 8), "tags": {"team": "research"}})
    assert step.ended() == {}
    step = change(life, taking(resized(STANDING, "p5", 7), nodes=nodes[:1]))
    assert step.ended() == {nodes[0]: "named"}
    wait_until(lambda: life.groups()["p5"] == (6, 2, 7))  # what has gone makes room for one of the two
    step = change(life, STANDING)
    (missing,) = step.ended()
    assert missing.startswith("p5-"), "it was never launched"
    assert life.nodes("p5").keys() >= set(nodes[1:])


def test_a_group_below_its_minimum_is_waited_for(life: Rehearsal) -> None:
    old = life.nodes("p5")
    life.aws.change_hyperpod(timings={"minimum_limit": 60})
    life.leave_room(P5, 1)
    life.resize_by_hand("p5", 9, 8)
    step = Step(life)
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(life.change, resized(STANDING, "p5", 8, 8))
        wait_until(lambda: step.polls() >= 4)
        assert step.ended() == {}
        assert step.calls() == {}
        life.aws.change_hyperpod(capacity={P5: None})
        made = deploying.result()
    assert made.status == "UPDATE_COMPLETE", made.reasons
    (gone,) = step.ended()
    assert gone not in old
    assert life.groups()["p5"] == (8, 8, 8)


def test_a_minimum_falls_below_what_the_group_has(life: Rehearsal) -> None:
    """Six of six cannot be had. With the lower minimum nothing has to be waited for, and no running node goes."""
    nodes = life.nodes("trn1")
    life.aws.change_hyperpod(timings={"minimum_limit": 60})
    life.leave_room("ml.trn1.32xlarge", 0)
    life.resize_by_hand("trn1", 6, 6)
    step = change(life, resized(STANDING, "trn1", 5, 3))
    (missing,) = step.ended()
    assert missing.startswith("trn1-"), "it was never launched"
    assert life.groups()["trn1"] == (4, 3, 5)
    assert life.nodes("trn1") == nodes


def autoscaled(template: Json) -> None:
    """An edit: an autoscaler owns the count of the P5 group, which nobody can say under Slurm."""
    for resource in template["Resources"].values():
        if "AutoscaledGroups" in resource.get("Properties", {}):
            resource["Properties"]["AutoscaledGroups"] = ["p5"]


@pytest.fixture
def scaled(life: Rehearsal) -> Rehearsal:
    """The autoscaler raised the P5 group's count from six to eight."""
    made = life.change(edit=autoscaled)
    assert made.status == "UPDATE_COMPLETE", made.reasons
    life.resize_by_hand("p5", 8, 2)
    settle(life)
    return life


def test_only_named_nodes_of_an_autoscaled_group_go(scaled: Rehearsal) -> None:
    step, named = Step(scaled), next(iter(scaled.nodes("p5")))
    config = taking(resized(STANDING, "p5", 7), nodes=[named])
    made = scaled.change(config, edit=autoscaled)
    assert made.status == "UPDATE_COMPLETE", made.reasons
    assert step.ended() == {named: "named"}
    assert scaled.groups()["p5"] == (7, 2, 7)


def test_a_lower_count_for_an_autoscaled_group_is_refused(scaled: Rehearsal) -> None:
    """CloudFormation would send the file's count with whatever else changes."""
    step = Step(scaled)
    scaled.change({**STANDING, "tags": {"team": "research"}}, edit=autoscaled)
    refused(scaled, step, refusals.autoscaled_count("p5", held=8, count=6))


def test_a_node_that_does_not_end_in_time(life: Rehearsal) -> None:
    """The deployment fails before CloudFormation's own limit and says how to go on, which takes no node more."""
    (stuck, *others) = life.nodes("p5")
    life.aws.change_hyperpod(faults={"undying_nodes": [stuck]})
    step, config = Step(life), taking(resized(STANDING, "p5", 5), nodes=[stuck])
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(life.deploy, config, only=life.cluster)
        wait_until(lambda: step.calls() == {"BatchDeleteClusterNodes": 1})
        polls = step.polls()
        wait_until(lambda: step.polls() > polls + 1)
        assert not deploying.done(), "it waits"
        life.aws.skip(54 * 60)
        failed = deploying.result()
    assert not failed.ok
    assert life.status() == "UPDATE_ROLLBACK_COMPLETE"
    (reason,) = step.failures()
    line = reason.splitlines()[0]
    assert codes(line) == ["scale-down-out-of-time"]
    assert waits.shutting_down("p5", [stuck]).why in line
    assert line.endswith(f" {stuck}.")
    life.aws.change_hyperpod(defaults=True)
    settle(life)
    deploy(life, config)
    assert step.ended() == {stuck: "named"}
    assert list(life.nodes("p5")) == others
