"""Each rule by itself, and their order: what happens to a node of which several rules could decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer import changes, rules
from cdk_hyperpod._lambda.hyperpod.drainer.backup_job import job_name
from cdk_hyperpod._lambda.hyperpod.drainer.cluster_snapshot import ClusterSnapshot, Hook
from cdk_hyperpod._lambda.hyperpod.drainer.mark import Mark
from cdk_hyperpod._lambda.hyperpod.drainer.objects import Job, Node, Pod
from cdk_hyperpod._lambda.hyperpod.drainer.rules import Decision
from cdk_hyperpod._lambda.hyperpod.drainer.view import NodeView, PendingBackup, Phase
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NodeRequest
from helpers.findings import codes

NOW = 1_800_000_000.0
INSTANCE = "i-00000001"
REQUEST = NodeRequest("deployment", "r-1", INSTANCE, "", NOW + 600, NOW + 600, force=False, backup=True)
MARK = Mark(REQUEST, ours=True, saved=False, since=NOW - 60, job="u-1")
NODE = Node("hyperpod-i-00000001", INSTANCE, "7", True, MARK, "", dead=False, no_instance=False, barred="")
POD = Pod("team", "web-1", "p-1", "ReplicaSet/web", 0, leaving=False)
ENDING = replace(POD, name="web-2", leaving=True)
LONE = replace(POD, name="debug", owner="")
JOB = Job("u-1", "drain-1", INSTANCE, "running", "")
HOOK = Hook("ops", "save-node", {"metadata": {"uid": "c"}, "spec": {"jobTemplate": {"spec": {"template": {}}}}}, {}, {})
PENDING = PendingBackup(HOOK, job=None, other_job=None)
RUNNING = replace(PENDING, job=JOB)
FAILED = replace(PENDING, job=replace(JOB, state="failed", message="BackoffLimitExceeded"))

HELD = NodeView(
    request=REQUEST,
    node=NODE,
    now=NOW,
    mark=MARK,
    held=True,
    phase=Phase.DRAINING,
    lost=False,
    pods=(),
    awaited_pods=(),
    rejected_pods=(),
    saved=False,
    pending_backup=None,
    note="",
)
"""A node that is held, empty, and has nothing to save."""
FREE = replace(HELD, node=replace(NODE, cordoned=False, mark=None), mark=None, held=False)


def with_pods(view: NodeView, *pods: Pod) -> NodeView:
    return replace(view, pods=pods, awaited_pods=pods)


def purposes(decision: Decision | None) -> list[str]:
    assert decision is not None
    return [change.purpose for change in decision.changes]


def test_a_node_of_karpenters_is_refused_and_released() -> None:
    decision = rules.reject_karpenter(replace(HELD, node=replace(NODE, karpenter="gpu")))
    assert decision is not None
    assert (decision.state, decision.release) == ("refused", True)
    assert codes(decision.message) == ["node-of-karpenter"] and "NodePool gpu" in decision.message
    assert rules.reject_karpenter(HELD) is None


@pytest.mark.parametrize(("view", "released"), [(FREE, True), (HELD, False)])
def test_pods_without_a_controller_are_refused_and_a_held_node_stays_held(view: NodeView, released: bool) -> None:
    decision = rules.reject_unmanaged_pods(replace(view, rejected_pods=(LONE,)))
    assert decision is not None
    assert (decision.state, decision.release, decision.changes) == ("refused", released, ())
    assert codes(decision.message) == ["pods-unmanaged"] and "team/debug" in decision.message
    assert rules.reject_unmanaged_pods(view) is None


@pytest.mark.parametrize(
    "view",
    [FREE, with_pods(HELD, POD), replace(HELD, pending_backup=PENDING)],
    ids=["not held", "waits for a pod", "not saved"],
)
def test_a_node_is_not_ready_yet(view: NodeView) -> None:
    assert rules.report_ready(view) is None


def test_a_ready_node_whose_backup_is_not_in_the_mark_is_marked_as_saved() -> None:
    decision = rules.report_ready(replace(HELD, saved=True, note="a note; "))
    assert decision is not None
    assert (decision.state, decision.message, decision.saved) == ("ready", "a note; is saved", True)
    (change,) = decision.changes
    assert '"saved": true' in change.body["metadata"]["annotations"]["cdk-hyperpod.dev/drain"]

    recorded = rules.report_ready(replace(HELD, saved=True, mark=replace(MARK, saved=True)))
    assert recorded == Decision("ready", "is saved", saved=True)


def test_a_ready_node_names_the_pods_that_end_with_it() -> None:
    decision = rules.report_ready(replace(HELD, pods=(POD, ENDING)))
    pods = "pods: team/web-1 of ReplicaSet/web, team/web-2 of ReplicaSet/web (ending)"
    assert decision == Decision("ready", f"what is left ends with the node; {pods}")


def test_a_lost_node_that_has_to_be_saved_is_given_up() -> None:
    decision = rules.give_up_lost_node(replace(HELD, lost=True))
    assert decision is not None
    assert (decision.state, codes(decision.message)) == ("backup-failed", ["node-lost"])
    assert "`kubectl delete node hyperpod-i-00000001`" in decision.message
    assert rules.give_up_lost_node(HELD) is None
    assert rules.give_up_lost_node(replace(FREE, lost=True)) is None


def test_at_its_deadline_a_node_goes_back_to_work_and_the_server_is_asked_what_keeps_its_pods() -> None:
    late = replace(with_pods(HELD, ENDING, POD), phase=Phase.TIMED_OUT)
    decision = rules.time_out(late)
    assert decision is not None
    assert (decision.state, decision.release) == ("timed-out", True)
    (change,) = decision.changes
    assert (change.path, change.begins_drain) == (f"{POD.path}/eviction?dryRun=All", False)

    waiting = replace(late, pending_backup=replace(RUNNING, hook=replace(HOOK, pods={"drain-1": "ImagePullBackOff"})))
    decided = rules.time_out(waiting)
    assert decided is not None
    assert decided.message.endswith("; Job ops/drain-1: ImagePullBackOff")


@pytest.mark.parametrize(
    ("events", "delay"),
    [({f"drain-{INSTANCE}-0": "E: quota"}, "; Job ops/drain-i-00000001-0: E: quota"), ({"drain-x": "E"}, "")],
)
def test_a_timed_out_node_reports_the_last_event_of_its_deleted_job(events: dict[str, str], delay: str) -> None:
    backup = replace(PENDING, hook=replace(HOOK, events=events))
    decision = rules.time_out(replace(HELD, phase=Phase.TIMED_OUT, pending_backup=backup))
    assert decision is not None
    assert decision.message == f"was released at its deadline{delay}"


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.FORCED])
def test_nothing_times_out_before_the_deadline_or_under_force(phase: Phase) -> None:
    assert rules.time_out(replace(HELD, phase=phase)) is None


@pytest.mark.parametrize(
    ("lasting", "state", "code"), [(True, "backup-failed", ["backup-impossible"]), (False, "draining", [])]
)
def test_a_backup_that_cannot_be_made_stops_the_drain_before_it_begins(
    lasting: bool, state: Any, code: list[str]
) -> None:
    hook = replace(HOOK, trouble="there is no CronJob", lasting=lasting)
    backup = replace(PENDING, hook=hook)
    decision = rules.reject_impossible_backup(replace(with_pods(FREE, POD), pending_backup=backup))
    assert decision is not None
    assert (decision.state, codes(decision.message), decision.changes) == (state, code, ())
    assert hook.trouble in decision.message
    # A Job that runs already needs no CronJob.
    assert rules.reject_impossible_backup(replace(HELD, pending_backup=replace(backup, job=JOB))) is None
    assert rules.reject_impossible_backup(replace(HELD, pending_backup=PENDING)) is None
    assert rules.reject_impossible_backup(HELD) is None


def test_a_free_node_is_cordoned_before_its_pods_are_evicted() -> None:
    decision = rules.drain(replace(with_pods(FREE, POD, ENDING), now=NOW - 59 * 60))
    assert decision is not None
    assert purposes(decision) == ["cordon hyperpod-i-00000001", "evict team/web-1"]
    assert [change.begins_drain for change in decision.changes] == [True, True]
    assert decision.message.endswith("; 69 minutes left")


def test_a_held_node_is_only_evicted_from_and_an_empty_one_is_drained() -> None:
    assert purposes(rules.drain(with_pods(HELD, POD))) == ["evict team/web-1"]
    assert purposes(rules.drain(FREE)) == ["cordon hyperpod-i-00000001"]
    assert rules.drain(HELD) is None


@pytest.mark.parametrize(
    ("node", "owner"),
    [
        (replace(NODE, cordoned=False, mark=None), "ours"),
        (replace(NODE, cordoned=True, mark=None), "another's"),
        (replace(NODE, cordoned=True, mark=MARK), "ours"),
        (replace(NODE, cordoned=True, mark=replace(MARK, ours=False)), "another's"),
        (replace(NODE, cordoned=False, mark=replace(MARK, ours=False)), "ours"),
    ],
)
def test_a_cordon_keeps_its_owner(node: Node, owner: str) -> None:
    decision = rules.drain(replace(FREE, node=node))
    assert decision is not None
    text = decision.changes[0].body["metadata"]["annotations"]["cdk-hyperpod.dev/drain"]
    assert f'"cordon": "{owner}"' in text


def test_a_failed_backup_is_reported_and_not_made_again() -> None:
    decision = rules.report_failed_backup(replace(HELD, pending_backup=FAILED))
    assert decision is not None
    assert (decision.state, codes(decision.message)) == ("backup-failed", ["node-backup-failed"])
    assert "Job ops/drain-1: BackoffLimitExceeded" in decision.message
    assert rules.report_failed_backup(replace(HELD, pending_backup=RUNNING)) is None
    assert rules.report_failed_backup(replace(HELD, pending_backup=PENDING)) is None


def test_a_backup_that_runs_is_awaited_and_its_delay_is_reported() -> None:
    hook = replace(HOOK, events={"drain-1": "FailedCreate: quota"})
    decision = rules.await_backup(replace(HELD, pending_backup=replace(RUNNING, hook=hook)))
    assert decision == Decision("backing-up", "Job ops/drain-1: has no pod; FailedCreate: quota")
    assert rules.await_backup(replace(HELD, pending_backup=PENDING)) is None


def test_a_backup_begins_and_another_job_of_its_name_is_deleted_first() -> None:
    view = replace(HELD, pending_backup=replace(PENDING, other_job=JOB))
    decision = rules.begin_backup(view)
    assert decision is not None
    assert purposes(decision) == ["stop its backup", "make its backup's Job"]
    assert decision.message == "deletes Job ops/drain-1, which is not in the mark"
    assert purposes(rules.begin_backup(replace(HELD, pending_backup=PENDING))) == ["make its backup's Job"]
    without = replace(PENDING, hook=replace(HOOK, cron_job=None))
    assert rules.begin_backup(replace(HELD, pending_backup=without)) == Decision("backing-up")


# -- their order ------------------------------------------------------------------------------------------------------

KARPENTERS = replace(NODE, karpenter="gpu")
ALL = replace(
    with_pods(HELD, LONE),
    node=KARPENTERS,
    rejected_pods=(LONE,),
    phase=Phase.TIMED_OUT,
    lost=True,
    awaited_pods=(),
    pending_backup=replace(PENDING, hook=replace(HOOK, trouble="none", lasting=True)),
)
"""Most rules apply to it."""


STEPS: list[tuple[dict[str, Any], str]] = [
    ({}, "reject_karpenter"),
    ({"node": NODE}, "reject_unmanaged_pods"),
    ({"rejected_pods": ()}, "give_up_lost_node"),
    ({"lost": False}, "time_out"),
    ({"phase": Phase.FORCED}, "reject_impossible_backup"),
    ({"awaited_pods": (POD,), "pending_backup": FAILED}, "drain"),
    ({"awaited_pods": ()}, "report_failed_backup"),
    ({"pending_backup": RUNNING}, "await_backup"),
    ({"pending_backup": PENDING}, "begin_backup"),
    ({"pending_backup": None}, "report_ready"),
]
"""What changes of the node from one row to the next, and the rule that decides then."""


def test_the_first_rule_that_applies_decides() -> None:
    view, found = ALL, []
    for changed, _ in STEPS:
        view = replace(view, **changed)
        first = next(rule for rule in rules.RULES if rule(view) is not None)
        decision = first(view)
        assert decision is not None
        assert (rules.decide_node(view).state, rules.decide_node(view).message) == (decision.state, decision.message)
        found.append(first.__name__)
    assert found == [rule for _, rule in STEPS]


def test_every_rule_has_its_place() -> None:
    assert {rule.__name__ for rule in rules.RULES} == {rule for _, rule in STEPS}


# -- an instance, and all of them -------------------------------------------------------------------------------------


def snapshot(*nodes: Node, **changed: Any) -> ClusterSnapshot:
    by_instance: dict[str, tuple[Node, ...]] = {}
    for node in nodes:
        by_instance[node.instance] = (*by_instance.get(node.instance, ()), node)
    return ClusterSnapshot(NOW, by_instance, **{"pods": {}, "busy": frozenset(), "hook": None, **changed})


@pytest.mark.parametrize(
    ("nodes", "message", "absent"),
    [
        ((), "Kubernetes has no such node; it lists no nodes", False),
        ((replace(NODE, instance="i-00000002"),), "Kubernetes has no such node", True),
        (
            (replace(NODE, instance="", name="odd"),),
            "Kubernetes has no such node; it may be one without an instance id: odd",
            False,
        ),
        ((replace(NODE, instance="", no_instance=True),), "Kubernetes has no such node", True),
        ((NODE, replace(NODE, name="twin")), "2 nodes have its instance id: hyperpod-i-00000001, twin", False),
    ],
)
def test_an_instance_without_one_node_is_unknown(nodes: Sequence[Node], message: str, absent: bool) -> None:
    assert rules.decide_instance(REQUEST, snapshot(*nodes)) == Decision("unknown", message, absent=absent)


@pytest.mark.parametrize(("seconds", "renewed"), [(300, []), (301, ["go on holding hyperpod-i-00000001"]), (-300, [])])
def test_a_lease_is_renewed_once_it_differs_enough(seconds: float, renewed: list[str]) -> None:
    request = replace(REQUEST, expires=REQUEST.expires + seconds)
    assert purposes(rules.decide_instance(request, snapshot(NODE))) == renewed


def test_a_request_with_a_refused_node_cordons_and_evicts_nothing() -> None:
    requests = {INSTANCE: REQUEST, "i-00000002": replace(REQUEST, instance="i-00000002")}
    free = replace(NODE, cordoned=False, mark=None)
    other = replace(free, instance="i-00000002", name="other", karpenter="gpu")
    decisions = rules.decide_all(requests, snapshot(free, other))
    assert [decision.state for decision in decisions.values()] == ["draining", "refused"]
    assert [decision.changes for decision in decisions.values()] == [(), ()]


def test_a_node_that_no_request_names_is_released_and_its_backup_stopped() -> None:
    hook = replace(HOOK, jobs={JOB.name: JOB, "done": replace(JOB, name="done", state="complete")})
    released = rules.release_unwanted({}, snapshot(NODE, hook=hook))
    assert [change.purpose for change in released] == ["release hyperpod-i-00000001", "stop its backup"]
    assert rules.release_unwanted({INSTANCE: REQUEST}, snapshot(NODE)) == ()


def test_a_backup_goes_on_only_under_the_name_that_its_request_gives_it() -> None:
    wanted = replace(JOB, name=job_name(REQUEST, NODE))
    hook = replace(HOOK, jobs={wanted.name: wanted, JOB.name: JOB})
    (stopped,) = rules.release_unwanted({INSTANCE: REQUEST}, snapshot(NODE, hook=hook))
    assert stopped.path.endswith(f"/jobs/{JOB.name}")


def test_each_look_begins_with_another_node_and_cordons_all_before_it_evicts() -> None:
    instances = ["i-00000001", "i-00000002", "i-00000003"]
    requests = {instance: replace(REQUEST, instance=instance) for instance in instances}
    decisions = {
        instance: Decision(
            "draining",
            changes=(changes.evict(instance, POD), changes.write_mark(NODE, replace(MARK, request=request), "cordon")),
        )
        for instance, request in requests.items()
    }
    for later, order in enumerate(([0, 1, 2], [1, 2, 0], [2, 0, 1])):
        seen = replace(snapshot(), now=NOW + later)
        found = [(change.instance, change.method) for change in rules.order_changes(requests, decisions, seen)]
        turn = [instances[at] for at in order]
        assert found == [*((each, "PATCH") for each in turn), *((each, "POST") for each in turn)]
    assert rules.order_changes({}, {}, snapshot()) == []
