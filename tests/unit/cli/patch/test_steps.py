"""What `patch` does next, by what one look has read: each rule, their order, and what holds of all cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NodeStatus
from cdk_hyperpod.cli.live import Node
from cdk_hyperpod.cli.patch.images import LAUNCH_S, is_of_others, judge_images
from cdk_hyperpod.cli.patch.model import DrainedBy, Group, Hold, Options, Plan, Progress, Report
from cdk_hyperpod.cli.patch.steps import (
    HAS_FAILED,
    IS_ROLLED_BACK,
    JOIN_S,
    QUIET_S,
    SETTLE_S,
    SILENT_LIMIT_S,
    Case,
    Finish,
    Resume,
    Stop,
    Update,
    Wait,
    next_step,
)
from helpers.cli.patching import live_node

NOW = 1_800_000_000.0
ONE, TWO = "i-0123456789abcdef0", "i-0fedcba9876543210"
READY = NodeStatus(state="ready")
BUSY = NodeStatus(state="draining", message="jobs: 7 of alice")
DRAIN = Hold.to_drain(NOW - 600, Options(drain_for_s=4200))
SENT = Progress(sent=NOW - 300, accepted=True, seen=True)


def node(name: str = ONE, **more: Any) -> Node:
    return live_node(name, **more)


def group(**more: Any) -> Group:
    usual: dict[str, Any] = {"name": "work", "status": "InService", "software": None, "current": 2}
    return Group(**{**usual, "minimum": 0, "nodes": (node(ONE), node(TWO)), **more})


def case(**more: Any) -> Case:
    """All nodes are ready."""
    usual: dict[str, Any] = {
        "plan": Plan(group="work", wanted="latest", drained_by=DrainedBy.AGENT, node_type="Compute"),
        "group": group(),
        "progress": Progress(),
        "report": Report(nodes={ONE: READY, TWO: READY}),
        "hold": DRAIN,
        "now": NOW,
        "worked": NOW - 60,
    }
    return Case(**{**usual, **more})


def of_way(way: DrainedBy, **more: Any) -> Plan:
    return Plan(**{"group": "work", "wanted": "latest", "drained_by": way, **more})


def test_ready_nodes_are_updated() -> None:
    assert next_step(case()) == Update()


def test_a_group_that_was_patched_meanwhile_is_not_updated_again() -> None:
    new = (node(ONE, image_status="UpToDate"), node(TWO, image_status="UpToDate"))
    found = case(group=group(nodes=new, image_status="UpToDate"))
    assert isinstance(next_step(found), Finish)
    assert next_step(replace(found, group=group(nodes=new, image_status="UpdateAvailable"))) == Update()


@pytest.mark.parametrize("way", [DrainedBy.NONE, DrainedBy.HYPERPOD])
def test_without_a_drain_of_ours_it_updates_at_once(way: DrainedBy) -> None:
    assert next_step(case(plan=of_way(way), report=Report())) == Update()


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
def test_a_patch_stops_with_its_exit_code_and_reason(more: dict[str, Any], code: int, says: str) -> None:
    step = next_step(case(**more))
    assert isinstance(step, Stop) and step.code == code and says in step.why, step


def test_silence_is_not_an_empty_queue() -> None:
    found = case(needs_empty_queue=True, report=Report(queue=0, silence="is dead", silent_s=60))
    assert isinstance(next_step(found), Wait)
    assert isinstance(next_step(replace(found, report=Report(silence="is dead", silent_s=SILENT_LIMIT_S))), Stop)


@pytest.mark.parametrize("software", ["Pending", "InProgress", "RollbackInProgress"])
def test_its_own_update_is_followed_whatever_else_is(software: str) -> None:
    found = case(
        progress=SENT,
        group=group(software=software, status="SystemUpdating"),
        deployment="small",
        report=Report(silence="is dead", silent_s=9e9),
        now=NOW + 9e9,
    )
    assert isinstance(next_step(found), Wait)


def test_another_update_is_awaited_with_the_nodes_held_and_then_ends_it() -> None:
    for seen in (group(software="InProgress"), group(nodes=(node(ONE), node(TWO, status="SystemUpdating")))):
        step = next_step(case(group=seen, foreign="InProgress to 1.0.1", now=NOW + 9e9))
        assert isinstance(step, Wait) and "did not send (InProgress to 1.0.1)" in step.why
    step = next_step(case(foreign="InProgress to 1.0.1"))
    assert isinstance(step, Stop) and "an update that this command did not send (InProgress to 1.0.1)" in step.why


@pytest.mark.parametrize("status", ["Creating", "Updating", "Reticulating"])
def test_it_waits_while_hyperpod_is_at_work(status: str) -> None:
    found = case(group=group(status=status))
    assert next_step(found) == Wait(f"HyperPod is at work ({status})")
    assert isinstance(next_step(replace(found, now=NOW + 3600)), Stop)


# -- whether the update has arrived, and how it ended


ACCEPTED = Progress(sent=NOW - 9e3, accepted=True)
UNANSWERED = Progress(sent=NOW - 9e3)
NEW = (node(ONE, updated=NOW), node(TWO, updated=NOW))
HALF = (node(ONE, updated=NOW), node(TWO, image_status="UpdateAvailable"))


@pytest.mark.parametrize(
    ("progress", "more", "quiet", "step"),
    [
        # Accepted, and nothing is shown: 15 minutes, and then the evidence decides.
        (ACCEPTED, {"on_desired": 2}, SETTLE_S - 1, Wait),
        (ACCEPTED, {"on_desired": 2}, SETTLE_S, Finish),
        (ACCEPTED, {"nodes": NEW}, SETTLE_S, Finish),
        (ACCEPTED, {}, SETTLE_S, Stop),
        (ACCEPTED, {"on_desired": 1}, SETTLE_S, Stop),
        (ACCEPTED, {"on_desired": 2, "current": 3}, SETTLE_S, Stop),
        # The answer was lost, or the process killed.
        (UNANSWERED, {"on_desired": 2}, SETTLE_S, Stop),
        (UNANSWERED, {"nodes": HALF}, SETTLE_S - 1, Wait),
        (UNANSWERED, {"nodes": HALF}, SETTLE_S, Resume),
        (UNANSWERED, {"nodes": NEW}, SETTLE_S, Stop),
        (
            UNANSWERED,
            {"nodes": (node(ONE, image_status="UpToDate"), node(TWO, image_status="UpToDate"))},
            SETTLE_S,
            Finish,
        ),
        # HyperPod reports success.
        (SENT, {"software": "Succeeded", "nodes": NEW}, 0, Finish),
        (SENT, {"software": "Succeeded"}, SETTLE_S - 1, Wait),
        (SENT, {"software": "Succeeded"}, SETTLE_S, Stop),
        (SENT, {"software": "Succeeded", "nodes": HALF}, SETTLE_S - 1, Wait),
        (SENT, {"software": "Succeeded", "nodes": HALF}, SETTLE_S, Stop),
        # Only nodes or the cluster have shown it.
        (SENT, {"nodes": HALF}, QUIET_S - 1, Wait),
        (SENT, {"nodes": HALF}, QUIET_S, Stop),
        (SENT, {"on_desired": 2}, QUIET_S - 1, Wait),
        (SENT, {"on_desired": 2}, QUIET_S, Finish),
        (SENT, {"nodes": NEW}, SETTLE_S, Finish),
        # Bad ends, and words that this version does not know.
        (ACCEPTED, {"software": "RollbackComplete"}, 0, Stop),
        (SENT, {"software": "PartiallySucceeded", "nodes": NEW}, SETTLE_S - 1, Wait),
        (SENT, {"software": "PartiallySucceeded", "nodes": NEW}, SETTLE_S, Stop),
        # What ended before this call is another one's.
        (Progress(), {"software": "RollbackComplete"}, 0, Update),
        (Progress(), {"software": "Succeeded"}, 0, Update),
        (replace(ACCEPTED, before="Failed"), {"software": "Failed"}, 0, Wait),
        # Nor does it end this one, if only nodes have shown this one so far.
        (replace(SENT, before="Failed"), {"software": "Failed", "nodes": HALF}, QUIET_S - 1, Wait),
        (replace(SENT, before="RollbackComplete"), {"software": "RollbackComplete"}, QUIET_S - 1, Wait),
        (replace(SENT, before="Succeeded"), {"software": "Succeeded", "nodes": HALF}, QUIET_S - 1, Wait),
        (replace(SENT, before="Succeeded"), {"software": "Succeeded", "nodes": NEW}, SETTLE_S, Finish),
        (replace(SENT, before=""), {"software": "Failed", "nodes": HALF}, 0, Stop),
        (replace(SENT, before=""), {"software": "Succeeded", "nodes": NEW}, 0, Finish),
    ],
)
def test_the_step_after_an_update_follows_from_what_hyperpod_shows(
    progress: Progress, more: dict[str, Any], quiet: float, step: type
) -> None:
    found = case(progress=progress, group=group(**more), worked=NOW - quiet)
    assert type(next_step(found)) is step


@pytest.mark.parametrize(
    ("more", "may_go_on"),
    [
        ({}, True),
        ({"software": "InReview"}, True),
        ({"software": "Succeeded", "nodes": HALF}, False),
        ({"software": "RollbackComplete"}, False),
        ({"software": "Failed"}, False),
    ],
)
def test_while_no_end_is_known_the_nodes_stay_held(more: dict[str, Any], may_go_on: bool) -> None:
    step = next_step(case(progress=SENT, group=group(**more), worked=0))
    assert isinstance(step, Stop) and step.may_go_on is may_go_on


def test_an_unconfirmed_update_is_resumed_unless_its_result_is_known() -> None:
    found = case(progress=replace(SENT, unconfirmed=True), worked=0)
    assert next_step(found) == Resume()
    assert isinstance(next_step(replace(found, group=group(nodes=NEW))), Finish)
    assert next_step(replace(found, group=group(software="Completed"))) == Resume()
    assert isinstance(next_step(replace(found, group=group(software="InProgress"))), Wait)
    kept = Hold.to_drain(NOW, Options(), NOW + 9e3)
    assert kept.lease(NOW) == NOW + 9e3 and kept.lease(NOW + 9e3) > NOW + 9e3


@pytest.mark.parametrize(
    ("progress", "more", "is_anothers"),
    [
        (Progress(), {"software": "InProgress"}, True),
        (SENT, {"software": "InProgress"}, False),
        # A rollback is the end of an update.
        (replace(SENT, rolled_back=True), {"software": "InProgress"}, True),
        (replace(SENT, rolled_back=True), {"software": "RollbackInProgress"}, False),
        # The list is older than the end.
        (replace(SENT, rolled_back=True), {"software": "RollbackComplete", "status": "SystemUpdating"}, False),
    ],
)
def test_an_update_of_another_party_is_recognized(progress: Progress, more: dict[str, Any], is_anothers: bool) -> None:
    assert is_of_others("latest", group(**more), progress) is is_anothers


def test_an_unknown_update_status_stops_the_patch_and_is_named() -> None:
    step = next_step(case(progress=SENT, group=group(software="Completed"), worked=0))
    assert isinstance(step, Stop) and "reports the update as Completed, which this version does not know" in step.why


def test_another_image_than_the_named_one_is_no_success() -> None:
    named = of_way(DrainedBy.AGENT, wanted="1.3.0")
    coming = {"coming": ("ami-0", "1.4.0")}
    assert is_of_others("1.3.0", group(software="InProgress", **coming), SENT)
    assert not is_of_others("1.3.0", group(software="RollbackInProgress", **coming), SENT)
    done = group(software="Succeeded", on_desired=2, nodes=NEW, **coming)
    assert isinstance(next_step(case(plan=named, progress=SENT, group=done, worked=0)), Stop)


def test_nodes_that_hyperpod_skipped_are_named() -> None:
    nodes = (node(ONE, image="1.3.0"), node(TWO, image="1.2.0"))
    named = of_way(DrainedBy.DRAINER, wanted="1.3.0")
    step = next_step(case(plan=named, progress=SENT, group=group(software="Succeeded", nodes=nodes), worked=0))
    assert step == Stop(HAS_FAILED, "work: HyperPod has skipped 1 node", (TWO,))


@pytest.mark.parametrize(
    ("wanted", "nodes", "count", "old", "unknown"),
    [
        ("latest", (node(ONE), node(TWO)), None, (), (ONE, TWO)),
        ("latest", (node(ONE), node(TWO)), 2, (), ()),
        # A second run: the first one has patched ONE, and HyperPod updates only TWO.
        ("latest", (node(ONE, updated=NOW - 9e5), node(TWO, updated=NOW)), 2, (), ()),
        ("latest", (node(ONE, updated=NOW - 9e5), node(TWO, updated=NOW)), None, (), (ONE,)),
        # A node is skipped again: its count says so, also if nothing else does.
        ("latest", (node(ONE), node(TWO, updated=NOW)), 1, (ONE,), ()),
        ("latest", (node(ONE), node(TWO)), 1, (), (ONE, TWO)),
        ("latest", (node(ONE, image_status="UpToDate"), node(TWO, image_status="EndOfLife")), None, (TWO,), ()),
        # Evidence that contradicts itself proves nothing.
        ("1.3.0", (node(ONE, image="1.3.0"), node(TWO, image="1.2.0", updated=NOW)), 2, (TWO,), ()),
        ("latest", NEW, 1, (), (ONE, TWO)),
        # New nodes get the desired image; those that do not run are not counted.
        ("latest", (node(ONE, updated=NOW), node(TWO, launched=NOW)), None, (), ()),
        # The call was on its way when this one was launched.
        ("latest", (node(ONE, updated=NOW), node(TWO, launched=NOW - LAUNCH_S)), None, (), (TWO,)),
        ("latest", (node(ONE), node(TWO, status="Failure")), 1, (), (TWO,)),
    ],
)
def test_which_image_each_node_has(
    wanted: str, nodes: tuple[Node, ...], count: int | None, old: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    found = judge_images(wanted, group(nodes=nodes, on_desired=count), SENT)
    assert (found.old, found.unknown) == (old, unknown)
    assert found.all_new is (not old and not unknown)


def test_after_a_rollback_neither_times_nor_counts_prove_the_image() -> None:
    """They are of the old image, and an earlier update's RollbackComplete looks like this one's."""
    nodes = (node(ONE, updated=NOW), node(TWO, launched=NOW))
    found = judge_images("latest", group(nodes=nodes, on_desired=2, software="RollbackComplete"), SENT)
    assert (found.unknown, found.counted) == ((ONE, TWO), None)
    # The image itself does.
    named = (node(ONE, image="1.3.0"), node(TWO, image="1.3.0"))
    assert judge_images("1.3.0", group(nodes=named, software="RollbackComplete"), SENT).all_new


# -- nodes


@pytest.mark.parametrize("way", [DrainedBy.AGENT, DrainedBy.DRAINER])
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
def test_one_node_that_is_not_ready_keeps_the_group(way: DrainedBy, status: NodeStatus | None, step: type) -> None:
    nodes = {ONE: READY} if status is None else {ONE: READY, TWO: status}
    found = case(plan=of_way(way), report=Report(nodes=nodes))
    assert type(next_step(found)) is step
    late = replace(found, now=NOW + 3600)
    assert type(next_step(late)) is (Update if step is Update else Stop)


def test_a_node_that_must_be_saved_is_not_updated_without_a_backup() -> None:
    failed = Report(nodes={ONE: READY, TWO: NodeStatus(state="backup-failed", message="no space")})
    step = next_step(case(report=failed, must_save=True))
    assert step == Stop(HAS_FAILED, f"work: {TWO}: backup-failed: no space")
    assert isinstance(next_step(case(must_save=True)), Wait)
    waived = replace(READY, waived=True)
    assert next_step(case(report=Report(nodes={ONE: waived, TWO: waived}), must_save=True)) == Update()
    assert isinstance(next_step(case(plan=of_way(DrainedBy.DRAINER), must_save=True)), Wait)


def test_pods_that_end_with_the_node_have_their_time() -> None:
    runs = Report(nodes={ONE: READY, TWO: NodeStatus(state="ready", running=1)})
    found = case(plan=of_way(DrainedBy.DRAINER), report=runs)
    assert isinstance(next_step(found), Wait)
    over = replace(DRAIN, deadline=NOW)
    assert isinstance(next_step(replace(found, hold=over)), Wait), "a silent kubelet's pods may run, too"
    assert next_step(replace(found, hold=replace(over, force=True))) == Update()


def test_a_node_that_is_not_there_is_waited_for_only_as_long_as_it_may_come() -> None:
    absent = Report(nodes={ONE: READY, TWO: NodeStatus(state="unknown", absent=True)})
    assert next_step(case(report=absent)) == Update()
    found = case(plan=of_way(DrainedBy.DRAINER), report=absent, hold=replace(DRAIN, began=NOW - 10))
    assert isinstance(next_step(found), Wait)
    assert next_step(replace(found, hold=replace(DRAIN, began=NOW - JOIN_S))) == Update()
    pending = replace(found, group=group(nodes=(node(ONE), node(TWO, status="Pending"))), now=NOW + 3000)
    assert isinstance(next_step(pending), Wait), "it joins after the call, gets a job, and the image ends it"


def test_a_refusal_is_final_under_eks_and_after_a_while_under_slurm() -> None:
    refused = Report(nodes={ONE: READY, TWO: NodeStatus(state="refused", message="is Karpenter's")})
    young = replace(DRAIN, began=NOW - 10)
    assert isinstance(next_step(case(plan=of_way(DrainedBy.DRAINER), report=refused, hold=young)), Stop)
    assert isinstance(next_step(case(report=refused, hold=young)), Wait)
    assert isinstance(next_step(case(report=refused)), Stop)


@pytest.mark.parametrize("status", ["Running", "Failure", "Pending", "DeepHealthCheckInProgress", "Reticulating"])
def test_every_node_that_does_not_terminate_is_drained(status: str) -> None:
    nodes = (node(ONE), node(TWO, status=status), node("", status="Pending"))
    assert isinstance(next_step(case(group=group(nodes=nodes), report=Report(nodes={ONE: READY}))), Wait)
    assert next_step(case(group=group(nodes=nodes))) == Update()


def test_a_node_that_terminates_is_not_waited_for() -> None:
    nodes = (node(ONE), node(TWO, status="ShuttingDown"))
    assert next_step(case(group=group(nodes=nodes, current=1), report=Report(nodes={ONE: READY}))) == Update()


def test_a_list_has_to_account_for_the_count() -> None:
    found = case(group=group(nodes=(node(ONE),)))
    assert next_step(found) == Wait("HyperPod lists 1 of 2 nodes")
    assert isinstance(next_step(replace(found, now=NOW + 9e9)), Stop)


def test_a_node_missing_from_the_list_is_still_drained() -> None:
    found = case(group=group(nodes=(node(ONE),), current=1), earlier=[node(TWO)])
    assert isinstance(next_step(replace(found, report=Report(nodes={ONE: READY, TWO: BUSY}))), Wait)
    gone = NodeStatus(state="unknown", message="is no instance of this cluster: it was replaced")
    assert next_step(replace(found, report=Report(nodes={ONE: READY, TWO: gone}))) == Update()


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
        [None, "Pending", "InProgress", "Succeeded", "RollbackInProgress", "RollbackComplete", "Failed", "?"]
    ),
    nodes=NODES,
)
PROGRESS = st.builds(
    Progress,
    sent=st.sampled_from([None, NOW - 9, NOW - 900]),
    before=st.sampled_from([None, "Succeeded", "Failed"]),
    accepted=st.booleans(),
    seen=st.booleans(),
)
CASES = st.builds(
    case,
    plan=st.sampled_from([*DrainedBy]).map(of_way),
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
    must_save=st.booleans(),
).map(lambda found: replace(found, foreign=_foreign(found)))


def _foreign(found: Case) -> str:
    return "InProgress" if found.group and found.group.is_updating and found.progress.sent is None else ""


@given(CASES)
def test_it_updates_only_what_is_empty_and_no_ones_elses(found: Case) -> None:
    step = next_step(found)
    if not isinstance(step, Update):
        return
    assert found.group is not None and not found.group.is_updating and not found.deployment
    if found.plan.drained_by in (DrainedBy.AGENT, DrainedBy.DRAINER):
        assert not found.report.silence and not found.report.held_by_deployment
        reported = found.report.nodes
        assert all(reported[each.name].state in ("ready", "unknown") for each in found.group.with_jobs)


@given(CASES)
def test_it_never_waits_for_ever(found: Case) -> None:
    """Only HyperPod's own work has no end that is known."""
    if found.group is not None and found.group.is_updating:
        return
    assert not isinstance(next_step(replace(found, now=NOW + 9e9)), Wait)


@given(CASES)
def test_a_patch_finishes_only_if_every_image_is_new(found: Case) -> None:
    if isinstance(next_step(found), Finish):
        assert found.group is not None
        assert found.group.software in (None, "Succeeded", found.progress.before)
        assert judge_images(found.plan.wanted, found.group, found.progress).all_new
