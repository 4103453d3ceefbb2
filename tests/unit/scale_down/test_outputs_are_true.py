"""NodesTaken and StillStanding, and the reasons of failures: every node that the deployment deleted, and no other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import Picked
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import DeletionRecords
from helpers.findings import codes
from helpers.scale_down.clusters import START
from helpers.scale_down.scenarios import QUICK, before_poll, ended, failure, ids
from helpers.scale_down.stack import FINALIZE, PREPARE, Behaviour, Faults, Stack, Template, group, run_until_quiet

FOUR = Template(groups=(group("p5", 4),))
TWO = Template(groups=(group("p5", 2),))
BOTH = Template(groups=(group("p5", 4), group("old", 2)))
WITHOUT_OLD = replace(FOUR, groups_to_delete=("old",))


def told(train: Stack, kind: str = PREPARE) -> str:
    (text,) = train.attributes[kind].values()
    assert isinstance(text, str)
    return text


def names(text: str) -> set[str]:
    return set(re.findall("i-[0-9a-f]{17}", text))


def test_a_node_that_a_person_deleted_before_is_not_claimed() -> None:
    train = Stack(FOUR, timings=QUICK)
    *_, second, first = ids(train, "p5")
    person = train.hyperpod.client(principal="somebody")
    before_poll(train, 0, lambda: person.batch_delete_cluster_nodes(ClusterName="train", NodeIds=[first]))
    assert train.deploy(replace(TWO, nodes_to_delete=(first, second))) == "complete", train.reasons
    assert {first, second} <= ended(train)
    assert first not in names(told(train)) and second in names(told(train))


def test_nodes_that_the_first_look_did_not_see_are_named() -> None:
    """The target stays, and HyperPod launches others for what was deleted: they go too, until the deployment is refused."""
    train = Stack(FOUR, timings=QUICK, behaviour=Behaviour(batch_delete_lowers_target="never"))
    gone: set[str | None] = set()
    train.deploy(TWO, meanwhile=lambda: gone.update(ended(train, "named")))
    assert len(gone) > 2
    assert names(train.reasons[0]) <= gone
    assert len(names(train.reasons[0])) == min(5, len(gone))


def test_a_deleted_node_that_is_still_listed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list shows it as it was, and a page leaves out another: their number is right."""
    train = Stack(FOUR, timings=QUICK)
    real = train.client.list_cluster_nodes
    _, left_out, still_listed, _ = ids(train, "p5")
    as_it_was = {node["InstanceId"]: node for node in real(ClusterName="train")["ClusterNodeSummaries"]}[still_listed]

    def list_cluster_nodes(**asked: Any) -> Any:
        reply = real(**asked)
        nodes = {node["InstanceId"]: node for node in reply["ClusterNodeSummaries"]}
        if still_listed not in nodes:
            del nodes[left_out]
            reply["ClusterNodeSummaries"] = [*nodes.values(), as_it_was]
        return reply

    monkeypatch.setattr(train.client, "list_cluster_nodes", list_cluster_nodes)
    assert train.deploy(TWO) == "complete", train.reasons
    assert names(told(train)) == ended(train)
    assert f"HyperPod still lists: {still_listed}." in told(train)


def test_a_whole_group_is_named_before_it_goes_and_while_it_goes() -> None:
    train = Stack(BOTH, timings=QUICK, vanished="leave")
    old = ids(train, "old")
    assert train.deploy(WITHOUT_OLD) == "complete", train.reasons
    assert told(train) == f'Group "old" is deleted next, with 2 nodes ({", ".join(old)}).'
    assert "HyperPod accepted the deletion of group" in told(train, FINALIZE)
    assert names(told(train, FINALIZE)) == set(old)


def test_a_group_that_cloudformation_deletes_is_not_finished_either() -> None:
    train = Stack(BOTH, timings=replace(QUICK, shut_down=3000), vanished="delete_present")
    old = set(ids(train, "old"))
    assert train.deploy(WITHOUT_OLD) == "complete", train.reasons
    if "old" in train.hyperpod.cluster("train").groups:
        assert names(told(train, FINALIZE)) == old


def test_a_rollback_whose_deletion_of_a_group_is_rejected_says_so() -> None:
    """The group that the failed update made stays."""
    train = Stack(FOUR, timings=QUICK, vanished="leave")

    def denied() -> None:
        train.disturbance.denied_until["UpdateCluster"] = train.clock.now() + 100_000

    assert train.deploy(BOTH, cancel=(FINALIZE, 0), meanwhile=denied) == "rolled back", train.reasons
    assert "old" in train.hyperpod.cluster("train").groups
    assert told(train, FINALIZE).startswith(
        "HyperPod rejected the deletion of old of train [group-deletion-rejected]. AccessDenied"
    )
    assert "accepted" not in told(train, FINALIZE)


def test_a_rollback_whose_first_look_failed_names_what_it_deleted() -> None:
    train = Stack(FOUR, timings=QUICK)
    here = set(ids(train, "p5"))

    def throttled() -> None:
        train.hyperpod.faults = Faults(throttle_operations=frozenset({"DescribeCluster"}), throttle_next=9)

    assert train.deploy(Template(groups=(group("p5", 6),)), fail="after", meanwhile=throttled) == "rolled back"
    assert ended(train) and ended(train).isdisjoint(here)
    assert names(told(train)) == ended(train)


def test_a_call_whose_answer_was_lost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Stack(FOUR, timings=QUICK)
    real, lost = train.client.batch_delete_cluster_nodes, list[str]()

    def batch_delete_cluster_nodes(**asked: Any) -> Any:
        reply = real(**asked)
        if lost:
            return reply
        lost.extend(asked["NodeIds"])
        raise ReadTimeoutError(endpoint_url="https://api.sagemaker")

    monkeypatch.setattr(train.client, "batch_delete_cluster_nodes", batch_delete_cluster_nodes)
    assert train.deploy(TWO) == "complete", train.reasons
    assert names(told(train)) == set(lost) == ended(train)


def test_another_process_does_not_know_what_the_first_one_deleted_and_says_so() -> None:
    train = Stack(FOUR, timings=QUICK)
    before_poll(train, 2, lambda: setattr(train.provider, "records", DeletionRecords()))
    assert train.deploy(TWO) == "complete", train.reasons
    text = told(train)
    assert text.startswith("The log has all: another process of the function may have deleted more. No longer listed")
    assert names(text) == ended(train)


def test_a_failure_names_what_was_deleted_by_then() -> None:
    train = Stack(FOUR, timings=QUICK)
    first, second = ids(train, "p5")[-2:]
    train.disturbance = Faults(in_use_until={second: train.clock.now() + 100_000})
    reason = failure(train, replace(TWO, nodes_to_delete=(first, second)))
    assert reason.endswith(f" The guard has requested the deletion of {first}.")
    assert len(reason) <= 1000


def test_a_failure_that_deleted_nothing_names_nothing() -> None:
    train = Stack(FOUR, timings=QUICK)
    train.disturbance = Faults(throttle_operations=frozenset({"BatchDeleteClusterNodes"}), throttle_next=10_000)
    assert "requested the deletion" not in failure(train, TWO)


def test_a_rollback_whose_target_stays_says_what_to_do() -> None:
    train = Stack(FOUR, timings=QUICK, behaviour=Behaviour(batch_delete_lowers_target="never"))
    assert train.deploy(Template(groups=(group("p5", 6),)), fail="after") == "rollback failed"
    reason = train.reasons[-1]
    assert codes(reason) == ["rollback-target-does-not-fall"]
    assert 'a target of 6 for group "p5"' in reason
    assert "set its InstanceCount to 4 at once (`aws sagemaker update-cluster`" in reason
    assert len(reason) <= 1000
    run_until_quiet(train.hyperpod)


def test_an_output_with_many_nodes_says_what_it_leaves_out() -> None:
    gone = [Picked("p5", f"i-{number:017x}", "launched by the failed update") for number in range(64)]
    old = [f"i-{number:017x}" for number in range(100, 200)]
    text = messages.attributes.deleted_nodes(START, gone, {"old": old}, ["i-1"], {})
    assert len(text) <= messages.attributes.ATTRIBUTE_LIMIT
    shown = text.partition("And ")[0].count("(launched")
    assert f"And {64 - shown} more, in the log." in text
    assert 'Group "old" is deleted next, with 100 nodes' in text
    assert text.endswith(" deleted by this deployment: i-1.")


def test_still_standing_with_many_nodes_names_every_group() -> None:
    groups = {name: [f"i-{number:017x}" for number in range(60)] for name in ("old", "older", "oldest")}
    text = messages.attributes.existing_groups({}, groups)
    assert len(text) <= messages.attributes.ATTRIBUTE_LIMIT
    assert all(f'group "{name}" with 60 nodes' in text for name in groups)
    assert text.endswith("change scale_down.retry and deploy.")
