"""The facts of one node, from what one look has read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer.backup_job import job_name
from cdk_hyperpod._lambda.hyperpod.drainer.cluster_snapshot import ClusterSnapshot, Hook
from cdk_hyperpod._lambda.hyperpod.drainer.mark import Mark
from cdk_hyperpod._lambda.hyperpod.drainer.objects import Job, Node, Pod
from cdk_hyperpod._lambda.hyperpod.drainer.view import NodeView, PendingBackup, Phase, view_node
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NodeRequest

NOW = 1_800_000_000.0
INSTANCE = "i-00000001"
REQUEST = NodeRequest("deployment", "r-1", INSTANCE, "", NOW + 600, NOW + 600, force=False, backup=True)
MARK = Mark(REQUEST, ours=True, saved=False, since=NOW - 60, job="u-1")
NODE = Node("hyperpod-i-00000001", INSTANCE, "7", True, MARK, "", dead=False, no_instance=False, barred="")
POD = Pod("team", "web-1", "p-1", "ReplicaSet/web", 0, leaving=False)
LONE = replace(POD, name="debug", owner="")
OWN = Job("u-1", job_name(REQUEST, NODE), INSTANCE, "running", "")
LATE = replace(REQUEST, deadline=NOW)


def view(
    request: NodeRequest = REQUEST, node: Node = NODE, *pods: Pod, jobs: tuple[Job, ...] = (), **changed: Any
) -> NodeView:
    hook = Hook("ops", "save-node", None, {job.name: job for job in jobs}, {})
    return view_node(
        request, node, ClusterSnapshot(NOW, {}, {NODE.name: pods}, frozenset(), **{"hook": hook, **changed})
    )


@pytest.mark.parametrize(
    ("node", "held"),
    [
        (NODE, True),
        (replace(NODE, cordoned=False), False),
        (replace(NODE, mark=None), False),
        (replace(NODE, mark=replace(MARK, request=replace(REQUEST, request_id="r-0"))), False),
    ],
)
def test_a_node_is_held_by_a_cordon_and_a_mark_of_this_request(node: Node, held: bool) -> None:
    assert view(node=node).held is held


@pytest.mark.parametrize(
    ("request_", "phase"),
    [
        (replace(REQUEST, deadline=NOW + 0.1), Phase.DRAINING),
        (LATE, Phase.TIMED_OUT),
        (replace(LATE, force=True), Phase.FORCED),
    ],
)
def test_the_phase_is_of_the_deadline(request_: NodeRequest, phase: Phase) -> None:
    assert view(request_).phase is phase


@pytest.mark.parametrize(
    ("request_", "dead", "cut_off", "lost"),
    [(LATE, True, False, True), (REQUEST, True, False, False), (LATE, False, False, False), (LATE, True, True, False)],
)
def test_a_silent_node_is_lost_at_its_deadline_unless_most_nodes_are_silent(
    request_: NodeRequest, dead: bool, cut_off: bool, lost: bool
) -> None:
    found = view(request_, replace(NODE, dead=dead), POD, cut_off=cut_off)
    assert found.lost is lost
    assert found.awaited_pods == (() if lost else (POD,))


def test_under_force_no_pod_is_awaited_past_the_deadline() -> None:
    assert view(replace(LATE, force=True), NODE, POD).awaited_pods == ()
    assert view(replace(LATE, force=True), NODE, POD).pods == (POD,)


def test_pods_that_nothing_creates_again_are_refused_unless_the_request_evicts_them() -> None:
    pods = (POD, LONE, replace(LONE, name="ending", leaving=True))
    assert view(REQUEST, NODE, *pods).rejected_pods == (LONE,)
    assert view(replace(REQUEST, evict_unmanaged=True), NODE, *pods).rejected_pods == ()


def test_only_the_job_in_the_mark_of_a_held_node_counts() -> None:
    other = replace(OWN, uid="u-2", state="complete")
    assert _backup(view(jobs=(OWN,))) == (OWN, None)
    assert _backup(view(jobs=(other,))) == (None, other)
    assert _backup(view(node=replace(NODE, cordoned=False), jobs=(OWN,))) == (None, None)
    assert not view(jobs=(other,)).saved


def _backup(found: NodeView) -> tuple[Job | None, Job | None]:
    assert isinstance(found.pending_backup, PendingBackup)
    return found.pending_backup.job, found.pending_backup.other_job


@pytest.mark.parametrize(
    "found",
    [
        view(jobs=(replace(OWN, state="complete"),)),
        view(node=replace(NODE, mark=replace(MARK, saved=True))),
    ],
    ids=["its Job is complete", "the mark says so"],
)
def test_a_backed_up_node_has_no_pending_backup(found: NodeView) -> None:
    assert found.saved
    assert found.pending_backup is None


def test_without_a_hook_or_a_request_for_it_nothing_has_to_be_saved() -> None:
    for found in (view(replace(REQUEST, backup=False)), view(hook=None)):
        assert (found.pending_backup, found.saved) == (None, False)


@pytest.mark.parametrize(
    ("node", "cut_off", "note"),
    [
        (NODE, False, ""),
        (
            replace(NODE, mark=replace(MARK, ours=False)),
            False,
            "was cordoned by another client, which has to uncordon it; ",
        ),
        (replace(NODE, cordoned=False, mark=replace(MARK, ours=False)), False, ""),
        (replace(NODE, dead=True), False, "does not respond; "),
        (replace(NODE, dead=True), True, "does not respond, as most nodes; "),
    ],
)
def test_a_message_begins_with_whose_cordon_it_is_and_whether_the_node_responds(
    node: Node, cut_off: bool, note: str
) -> None:
    assert view(node=node, cut_off=cut_off).note == note
