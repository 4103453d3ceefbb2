"""How many calls a job costs: no more changes than the API's limits make necessary, no more reads than pages."""

from __future__ import annotations

from collections import Counter
from math import ceil

from helpers.scale_down.scenarios import P5, QUICK, ids
from helpers.scale_down.stack import LAMBDA, Behaviour, Stack, Template, group


def make(*groups: tuple[str, int], behaviour: Behaviour | None = None) -> Stack:
    return Stack(Template(groups=tuple(group(*each) for each in groups)), timings=QUICK, poll=60, behaviour=behaviour)


def polls(train: Stack, since: int) -> list[Counter[str]]:
    """The function's calls, read by read: each look at the cluster lists its nodes and ends with DescribeCluster."""
    found: list[Counter[str]] = []
    for call in train.hyperpod.journal[since:]:
        if call.principal == LAMBDA:
            if call.operation == "ListClusterNodes" and (not found or found[-1]["DescribeCluster"]):
                found.append(Counter())
            found[-1][call.operation] += 1
    return found


def test_ids_travel_in_as_few_calls_as_the_limit_allows() -> None:
    train = make(("p5", 260))
    assert train.deploy(Template(groups=(group("p5", 10),))) == "complete", train.reasons
    assert train.hyperpod.changes(principal=LAMBDA) == {"BatchDeleteClusterNodes": ceil(250 / 99)}
    assert len(ids(train, "p5")) == 10


def test_unlaunched_nodes_are_deleted_in_calls_of_fifty_logical_ids() -> None:
    train = make(("p5", 10))
    train.hyperpod.set_capacity(P5, 10)
    assert train.deploy(Template(groups=(group("p5", 130),))) == "complete", train.reasons
    assert train.deploy(Template(groups=(group("p5", 5),))) == "complete", train.reasons
    assert train.hyperpod.changes(principal=LAMBDA) == {"BatchDeleteClusterNodes": ceil(5 / 99) + ceil(120 / 50)}


def test_nodes_of_several_groups_share_a_call() -> None:
    train = make(("p5", 40), ("trn1", 40))
    assert train.deploy(Template(groups=(group("p5", 10), group("trn1", 5)))) == "complete", train.reasons
    assert train.hyperpod.changes(principal=LAMBDA) == {"BatchDeleteClusterNodes": 1}


def test_groups_are_deleted_in_one_call() -> None:
    train = Stack(
        Template(groups=(group("p5", 2), group("a", 1), group("b", 1))), timings=QUICK, poll=60, vanished="leave"
    )
    template = Template(groups=(group("p5", 2),), groups_to_delete=("a", "b"))
    assert train.deploy(template) == "complete", train.reasons
    assert train.hyperpod.changes(principal=LAMBDA) == {"UpdateCluster": 1}


def test_reads_of_a_poll() -> None:
    train = make(("p5", 249))
    since = len(train.hyperpod.journal)
    assert train.deploy(Template(groups=(group("p5", 240),))) == "complete", train.reasons
    first, second, agrees, look, take, *later = polls(train, since)
    pages = {"DescribeCluster": 1, "ListClusterNodes": ceil(250 / 100)}
    assert first == second == agrees == pages | {"ListTags": 1}, (
        "the second when CloudFormation's reads are no longer old"
    )
    assert look == pages | {"ListClusterOperations": 1}, "somebody else may be lowering the group"
    assert take == pages | {"BatchDeleteClusterNodes": 1}, "another look agreed"
    assert len(later) > 3
    assert all(poll == pages for poll in later)


def test_nothing_to_take_costs_one_look() -> None:
    train = make(("p5", 3))
    since = len(train.hyperpod.journal)
    assert train.deploy(Template(groups=(group("p5", 4),))) == "complete", train.reasons
    assert polls(train, since) == [{"DescribeCluster": 1, "ListClusterNodes": 1, "ListTags": 1}]
