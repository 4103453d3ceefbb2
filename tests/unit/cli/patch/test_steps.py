"""What `patch` does next, by what one look has read: each rule, their order, and what holds of all cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.common.drain_protocol import NodeStatus
from cdk_hyperpod.cli.patch.model import Group, Node, Plan, Progress, Report, Terms, Way
from cdk_hyperpod.cli.patch.steps import (
    HAS_FAILED,
    IS_ROLLED_BACK,
    JOIN_S,
    SETTLE_S,
    SILENT_LIMIT_S,
    Case,
    Finish,
    Relist,
    Stop,
    Update,
    Wait,
    next_step,
)

NOW = 1_800_000_000.0
ONE, TWO = "i-0123456789abcdef0", "i-0fedcba9876543210"
READY = NodeStatus(state="ready")
BUSY = NodeStatus(state="draining", message="jobs: 7 of alice")
SENT = Progress(began=NOW - 600, sent=NOW - 300, accepted=True, seen=True)


def node(name: str = ONE, **more: Any) -> Node:
    return Node(**{"id": name, "status": "Running", **more})


def group(**more: Any) -> Group:
    usual: dict[str, Any] = {"name": "work", "status": "InService", "software": None, "current": 2, "target": 2}
    return Group(**{**usual, "minimum": 0, "nodes": (node(ONE), node(TWO)), **more})


def case(**more: Any) -> Case:
    """All nodes are ready, and were listed just now."""
    usual: dict[str, Any] = {
        "plan": Plan(group="work", wanted="latest", way=Way.AGENT, node_type="Compute"),
        "group": group(),
        "progress": Progress(began=NOW - 600),
        "report": Report(nodes={ONE: READY, TWO: READY}),
        "terms": Terms(deadline=NOW + 3600, force=False, until=NOW + 3600),
        "now": NOW,
        "fresh": True,
    }
    return Case(**{**usual, **more})


def of_way(way: Way, **more: Any) -> Plan:
    return Plan(**{"group": "work", "wanted": "latest", "way": way, **more})


def test_ready_nodes_are_updated_once_they_are_listed_again() -> None:
    assert next_step(case()) == Update()
    assert next_step(case(fresh=False)) == Relist()


@pytest.mark.parametrize("way", [Way.NONE, Way.HYPERPOD])
def test_without_a_drain_of_ours_it_updates_at_once(way: Way) -> None:
    assert next_step(case(plan=of_way(way), report=Report(), fresh=False)) == Update()


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ({"group": None}, HAS_FAILED, "work: the group was deleted meanwhile"),
        ({"group": group(status="Deleting")}, HAS_FAILED, "work: the group was deleted meanwhile"),
        ({"deployment": "small (UPDATE_IN_PROGRESS)"}, HAS_FAILED, "a deployment of stack small"),
        ({"report": Report(held_by_deployment=(ONE,))}, HAS_FAILED, f"a deployment drains {ONE}"),
        ({"report": Report(silence="is dead", silent_s=SILENT_LIMIT_S)}, HAS_FAILED, "work: the drain agent is dead"),
        ({"report": Report(refused="is no JSON")}, HAS_FAILED, "the drain agent refuses the request: is no JSON"),
        ({"progress": SENT, "group": group(software="RollbackComplete")}, IS_ROLLED_BACK, "put the old image back"),
        ({"progress": SENT, "group": group(software="Failed")}, HAS_FAILED, "so did HyperPod's rollback"),
        ({"needs_empty_queue": True, "report": Report(queue=2)}, HAS_FAILED, "the queue has 2 jobs"),
        ({"needs_empty_queue": True, "report": Report()}, HAS_FAILED, "the queue is unknown"),
    ],
)
def test_what_ends_it(more: dict[str, Any], code: int, says: str) -> None:
    step = next_step(case(**more))
    assert isinstance(step, Stop) and step.code == code and says in step.why, step


@pytest.mark.parametrize("software", ["Pending", "InProgress", "RollbackInProgress"])
def test_an_update_under_way_is_followed_whatever_else_is(software: str) -> None:
    found = case(
        group=group(software=software, status="SystemUpdating"),
        deployment="small",
        report=Report(silence="is dead", silent_s=9e9),
        now=NOW + 9e9,
    )
    assert isinstance(next_step(found), Wait)


@pytest.mark.parametrize("status", ["Creating", "Updating"])
def test_it_waits_while_hyperpod_scales(status: str) -> None:
    found = case(group=group(status=status))
    assert next_step(found) == Wait(f"HyperPod is at work ({status})")
    assert isinstance(next_step(replace(found, now=NOW + 3600)), Stop)


# -- whether the update has arrived, and how it ended


@pytest.mark.parametrize(
    ("progress", "software", "step"),
    [
        # Accepted, and not shown yet.
        (Progress(began=0, sent=NOW - 10, accepted=True), None, Wait),
        # It had nothing to do.
        (Progress(began=0, sent=NOW - SETTLE_S, accepted=True), None, Finish),
        (Progress(began=0, sent=NOW - SETTLE_S, accepted=True, before="Succeeded"), "Succeeded", Finish),
        # Killed before the answer: it did not arrive, or it did.
        (Progress(began=0, sent=NOW - 9, before="Succeeded"), "Succeeded", Update),
        (Progress(began=0, sent=NOW - 9), "Succeeded", Finish),
        (Progress(began=0, sent=NOW - 9, before="Failed"), "RollbackComplete", Stop),
        # What ended before this run is another run's.
        (Progress(began=0), "RollbackComplete", Update),
        (Progress(began=0), "Failed", Update),
        (Progress(began=0), "Succeeded", Update),
        (SENT, "Succeeded", Finish),
    ],
)
def test_what_became_of_the_call(progress: Progress, software: str | None, step: type) -> None:
    assert type(next_step(case(progress=progress, group=group(software=software)))) is step


def test_a_killed_process_knows_by_the_nodes_that_its_call_arrived() -> None:
    updated = tuple(node(name, updated=NOW - 5) for name in (ONE, TWO))
    found = group(software="Succeeded", nodes=updated)
    progress = Progress(began=0, sent=NOW - 9, before="Succeeded")
    assert isinstance(next_step(case(progress=progress, group=found)), Finish)


def test_nodes_that_hyperpod_skipped_end_it() -> None:
    for nodes in (
        (node(ONE, updated=NOW), node(TWO, updated=NOW - 9e6)),
        (node(ONE, image_status="UpToDate"), node(TWO, image_status="SecurityUpdateRequired")),
    ):
        once = case(progress=SENT, group=group(software="Succeeded", nodes=nodes))
        step = next_step(once)
        assert isinstance(step, Wait) and step.doubts, "reports of HyperPod may differ for a moment"
        assert next_step(replace(once, doubted=True)) == Stop(HAS_FAILED, "work: HyperPod has skipped 1 node", (TWO,))
    named = of_way(Way.DRAINER, wanted="1.3.0")
    nodes = (node(ONE, image="1.3.0"), node(TWO, image="1.2.0"))
    step = next_step(case(plan=named, progress=SENT, group=group(software="Succeeded", nodes=nodes), doubted=True))
    assert isinstance(step, Stop) and step.left == (TWO,)


def test_a_node_that_hyperpod_replaced_during_the_update_is_no_old_one() -> None:
    nodes = (node(ONE, updated=NOW), node(TWO, launched=NOW - 100))
    assert isinstance(next_step(case(progress=SENT, group=group(software="Succeeded", nodes=nodes))), Finish)


# -- nodes


@pytest.mark.parametrize("way", [Way.AGENT, Way.DRAINER])
@pytest.mark.parametrize(
    ("status", "step"),
    [
        (None, Wait),
        (BUSY, Wait),
        (NodeStatus(state="backing-up"), Wait),
        (NodeStatus(state="timed-out"), Wait),
        (NodeStatus(state="backup-failed"), Wait),
        (NodeStatus(state="unknown", message="it may be another"), Wait),
        (NodeStatus(state="a new word"), Wait),
        (READY, Update),
    ],
)
def test_one_node_that_is_not_ready_keeps_the_group(way: Way, status: NodeStatus | None, step: type) -> None:
    nodes = {ONE: READY} if status is None else {ONE: READY, TWO: status}
    found = case(plan=of_way(way), report=Report(nodes=nodes))
    assert type(next_step(found)) is step
    late = replace(found, now=NOW + 3600, terms=Terms(deadline=NOW + 3600, force=False, until=NOW + 3600))
    assert type(next_step(late)) is (Update if step is Update else Stop)


def test_what_must_be_saved_stays_if_it_is_not() -> None:
    failed = Report(nodes={ONE: READY, TWO: NodeStatus(state="backup-failed", message="no space")})
    step = next_step(case(report=failed, must_save=True))
    assert step == Stop(HAS_FAILED, f"work: {TWO}: backup-failed: no space")
    # Drained by a person, or dead: the agent saves nothing there. The guard deletes such a node too.
    assert next_step(case(must_save=True)) == Update()
    assert isinstance(next_step(case(plan=of_way(Way.DRAINER), must_save=True)), Wait)


def test_pods_that_end_with_the_node_have_their_time() -> None:
    runs = Report(nodes={ONE: READY, TWO: NodeStatus(state="ready", running=1)})
    found = case(plan=of_way(Way.DRAINER), report=runs)
    assert isinstance(next_step(found), Wait)
    assert next_step(replace(found, terms=Terms(deadline=NOW, force=True, until=NOW + 9))) == Update()


def test_a_node_that_is_not_there_is_waited_for_only_as_long_as_it_may_come() -> None:
    absent = Report(nodes={ONE: READY, TWO: NodeStatus(state="unknown", absent=True)})
    assert next_step(case(report=absent)) == Update()
    found = case(plan=of_way(Way.DRAINER), report=absent, progress=Progress(began=NOW - 10))
    assert isinstance(next_step(found), Wait)
    assert next_step(replace(found, progress=Progress(began=NOW - JOIN_S))) == Update()


def test_a_refusal_is_final_under_eks_and_after_a_while_under_slurm() -> None:
    refused = Report(nodes={ONE: READY, TWO: NodeStatus(state="refused", message="is Karpenter's")})
    young = Progress(began=NOW - 10)
    assert isinstance(next_step(case(plan=of_way(Way.DRAINER), report=refused, progress=young)), Stop)
    assert isinstance(next_step(case(report=refused, progress=young)), Wait)
    assert isinstance(next_step(case(report=refused)), Stop)


def test_nodes_that_do_not_run_are_not_waited_for() -> None:
    for status in ("Failure", "Pending", "ShuttingDown"):
        nodes = (node(ONE), node(TWO, status=status), node("", status="Pending"))
        assert next_step(case(group=group(nodes=nodes), report=Report(nodes={ONE: READY}))) == Update()


def test_a_list_is_asked_for_when_a_node_was_replaced_or_counts_changed() -> None:
    gone = NodeStatus(state="unknown", message="is no instance of this cluster: it was replaced")
    found = case(report=Report(nodes={ONE: BUSY, TWO: gone}), fresh=False)
    assert next_step(found) == Relist()
    assert isinstance(next_step(replace(found, may_list=False)), Wait), "lists of large groups cost many calls"
    assert next_step(case(report=Report(nodes={ONE: BUSY, TWO: BUSY}), fresh=False, is_resized=True)) == Relist()


# -- what holds of every case

STATES = st.sampled_from(["ready", "draining", "backing-up", "unknown", "refused", "timed-out", "backup-failed", "?"])
STATUSES = st.builds(
    NodeStatus, state=STATES, absent=st.booleans(), saved=st.booleans(), running=st.sampled_from([None, 0, 1])
)
NODES = st.sampled_from([(), (node(ONE),), (node(ONE), node(TWO)), (node(ONE), node(TWO, status="Failure"))])
GROUPS = st.none() | st.builds(
    group,
    status=st.sampled_from(["InService", "Updating", "SystemUpdating", "Deleting", "Failed"]),
    software=st.sampled_from(
        [None, "Pending", "InProgress", "Succeeded", "RollbackInProgress", "RollbackComplete", "Failed"]
    ),
    nodes=NODES,
)
PROGRESS = st.builds(
    Progress,
    began=st.just(NOW - 600),
    sent=st.sampled_from([None, NOW - 9, NOW - 900]),
    before=st.sampled_from([None, "Succeeded", "Failed"]),
    accepted=st.booleans(),
    seen=st.booleans(),
)
CASES = st.builds(
    case,
    plan=st.sampled_from([*Way]).map(of_way),
    group=GROUPS,
    progress=PROGRESS,
    report=st.builds(
        Report,
        nodes=st.dictionaries(st.sampled_from([ONE, TWO]), STATUSES),
        silence=st.sampled_from(["", "", "", "is silent"]),
        silent_s=st.sampled_from([0.0, 9e9]),
        held_by_deployment=st.sampled_from([(), (), (), (ONE,)]),
    ),
    now=st.sampled_from([NOW, NOW + 3600]),
    deployment=st.sampled_from(["", "", "small"]),
    fresh=st.booleans(),
    must_save=st.booleans(),
)


@given(CASES)
def test_it_updates_only_what_is_empty_and_no_ones_elses(found: Case) -> None:
    step = next_step(found)
    if found.fresh:
        assert not isinstance(step, Relist), "a list is asked for once a look"
    if not isinstance(step, Update):
        return
    assert found.group is not None and not found.group.is_updating and not found.deployment
    if found.plan.way in (Way.AGENT, Way.DRAINER):
        assert found.fresh and not found.report.silence and not found.report.held_by_deployment
        reported = found.report.nodes
        assert all(reported[each.id].state in ("ready", "unknown") for each in found.group.running)


@given(CASES)
def test_it_never_waits_for_ever(found: Case) -> None:
    """Only HyperPod's own work has no end that is known."""
    if found.group is not None and found.group.is_updating:
        return
    assert not isinstance(next_step(replace(found, now=NOW + 9e9, doubted=True)), Wait)


@given(CASES)
def test_what_it_finishes_was_updated(found: Case) -> None:
    if isinstance(next_step(found), Finish):
        assert found.progress.sent is not None and found.group is not None
        assert found.group.software in (None, "Succeeded")
