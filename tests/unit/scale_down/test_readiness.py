"""When nodes may be deleted: each rule for all of them, and each rule for one, in their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NO_INSTANCE, NodeStatus
from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.readiness import (
    READY,
    AgentStatus,
    DrainRequest,
    NodeReadiness,
    Outcome,
    Readiness,
    decide_node,
    decide_readiness,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import DrainSettings, Node

BEGAN = datetime(2026, 11, 23, tzinfo=UTC)
NODE = Node(group="p5", instance_id="i-0123456789abcdef0", launched=BEGAN - timedelta(days=1))
SLURM = DrainSettings(bucket="drain-bucket", minutes=25)
EKS = DrainSettings(function="arn", minutes=25)
ANSWERED = AgentStatus(silent=timedelta(0), saves=True)
SILENT = AgentStatus(unreachable="has never reported")


def ask(drain: DrainSettings = SLURM, minutes: float = 10, **changed: Any) -> DrainRequest:
    return DrainRequest(drain=drain, began=BEGAN, now=BEGAN + timedelta(minutes=minutes), **changed)


def reported(state: str, message: str = "", **changed: Any) -> AgentStatus:
    status = NodeStatus(state=state, message=message, requests={"deployment": "20261123T000000"}, **changed)
    return replace(ANSWERED, nodes={NODE.name: status})


# -- all nodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes",
    [[], [replace(NODE, status="ShuttingDown")], [replace(NODE, instance_id=None, logical_id="n-1")]],
    ids=["none", "on its way out", "not launched"],
)
def test_nodes_that_are_absent_or_terminating_need_no_drain(nodes: list[Node]) -> None:
    assert decide_readiness(nodes, SILENT, ask()) == READY


def test_a_node_without_an_address_that_does_not_run_needs_no_drain() -> None:
    assert decide_readiness([NODE], SILENT, ask(nowhere=frozenset({NODE.name}))) == READY


@pytest.mark.parametrize(
    ("drain", "silent", "minutes", "rolling_back", "awaited"),
    [
        (SLURM, timedelta(0), 10, False, True),
        (SLURM, timedelta(0), 30, False, True),
        (SLURM, None, 10, False, False),
        (EKS, None, 10, False, True),
        (EKS, None, 30, False, False),
        (replace(EKS, undrained=True), None, 10, False, False),
        (SLURM, None, 4, True, True),
        (SLURM, None, 6, True, False),
    ],
)
def test_an_agent_that_does_not_answer_is_asked_again(
    drain: DrainSettings, silent: timedelta | None, minutes: float, rolling_back: bool, awaited: bool
) -> None:
    said = AgentStatus(silent=silent, unreachable="cannot be heard", saves=True)
    stuck = messages.waits.drainer_is_stuck if drain.eks else messages.waits.agent_is_unreachable
    verdict = decide_readiness([NODE], said, ask(drain, minutes, rolling_back=rolling_back))
    assert (verdict.waits == (stuck("cannot be heard"),)) is awaited


def test_an_agent_that_cannot_do_it_keeps_all_nodes() -> None:
    assert "[drain-agent-silent]" in decide_readiness([NODE], SILENT, ask()).never[0]
    must = ask(replace(SLURM, must_be_saved=True))
    assert decide_readiness([NODE], replace(ANSWERED, saves=False), must).never == (
        str(messages.refusals.AGENT_SAVES_NOTHING),
    )


def test_silence_stops_no_rollback_and_nothing_if_the_file_says_so() -> None:
    assert decide_readiness([NODE], SILENT, ask(replace(SLURM, undrained=True))) == READY
    assert decide_readiness([NODE], SILENT, ask(rolling_back=True)) == READY


@pytest.mark.parametrize(("minutes", "stops"), [(1, False), (1.1, True)])
def test_a_rejected_request_stops_the_deployment_after_a_minute(minutes: float, stops: bool) -> None:
    said = replace(ANSWERED, rejected="is not JSON")
    assert (decide_readiness([NODE], said, ask(minutes=minutes)).never == ("is not JSON",)) is stops
    assert decide_readiness([NODE], said, ask(minutes=minutes, rolling_back=True)).never == ()


def test_a_problem_of_the_agent_follows_what_is_waited_for() -> None:
    said = replace(reported("draining", "jobs: 7"), problem="slurmctld is down")
    wait = messages.waits.not_ready(NODE.name, "jobs: 7")
    assert decide_readiness([NODE], said, ask()) == Readiness(
        waits=(wait, messages.waits.agent_is_stuck("slurmctld is down"))
    )
    assert decide_readiness([NODE], replace(reported("ready"), problem="slurmctld is down"), ask()) == READY


# -- one node ---------------------------------------------------------------------------------------------------------

SAVED_EKS = replace(EKS, must_be_saved=True)
SAVED_SLURM = replace(SLURM, must_be_saved=True)


@pytest.mark.parametrize(
    ("said", "drain", "minutes", "outcome", "message"),
    [
        pytest.param(ANSWERED, SLURM, 10, Outcome.WAIT, messages.waits.UNREAD, id="not read yet"),
        pytest.param(ANSWERED, EKS, 10, Outcome.WAIT, messages.waits.UNREPORTED, id="not reported yet"),
        pytest.param(ANSWERED, SLURM, 30, Outcome.NEVER, messages.waits.UNREAD, id="never read"),
        pytest.param(reported("ready"), SLURM, 10, Outcome.READY, "", id="ready"),
        pytest.param(reported("ready", running=2), EKS, 10, Outcome.WAIT, "ready", id="pods run"),
        pytest.param(reported("ready", running=2), EKS, 30, Outcome.READY, "", id="pods run and the time is over"),
        pytest.param(reported("ready", "m"), SAVED_EKS, 10, Outcome.WAIT, "it was not saved (m)", id="unsaved"),
        pytest.param(reported("ready"), SAVED_EKS, 30, Outcome.NEVER, "it was not saved", id="never saved"),
        pytest.param(reported("ready", saved=True), SAVED_EKS, 10, Outcome.READY, "", id="saved"),
        pytest.param(
            reported("ready", "m"), SAVED_SLURM, 30, Outcome.NEVER, "it was not saved (m)", id="unsaved, Slurm"
        ),
        pytest.param(reported("ready", waived=True), SAVED_SLURM, 10, Outcome.READY, "", id="given up by a person"),
        pytest.param(reported("unknown", absent=True), SLURM, 10, Outcome.READY, "", id="Slurm has no such node"),
        pytest.param(reported("unknown", absent=True), EKS, 4.9, Outcome.WAIT, "unknown", id="may join"),
        pytest.param(reported("unknown", absent=True), EKS, 5, Outcome.READY, "", id="did not join"),
        pytest.param(reported("unknown", NO_INSTANCE), SLURM, 10, Outcome.WAIT, NO_INSTANCE, id="may be listed yet"),
        pytest.param(reported("unknown", "two"), SLURM, 10, Outcome.WAIT, "two", id="may be another's"),
        pytest.param(reported("refused", "k"), EKS, 10, Outcome.NEVER, "k", id="Karpenter's"),
        pytest.param(reported("refused", "login"), SLURM, 10, Outcome.WAIT, "login", id="may be a login node"),
        pytest.param(reported("backup-failed", "full"), SAVED_EKS, 10, Outcome.NEVER, "full", id="cannot be saved"),
        pytest.param(reported("backup-failed", "full"), EKS, 10, Outcome.WAIT, "full", id="need not be saved"),
        pytest.param(reported("draining", "jobs"), SLURM, 24.9, Outcome.WAIT, "jobs", id="in time"),
        pytest.param(reported("draining", "jobs"), SLURM, 25, Outcome.NEVER, "jobs", id="too late"),
        pytest.param(reported("draining"), replace(SLURM, force=True), 25, Outcome.READY, "", id="too late by force"),
    ],
)
def test_the_first_rule_that_applies_decides_for_a_node(
    said: AgentStatus, drain: DrainSettings, minutes: float, outcome: Outcome, message: str
) -> None:
    assert decide_node(NODE, said, ask(drain, minutes)) == NodeReadiness(outcome, message)


def test_a_node_that_the_controller_does_not_list_is_ready_if_it_does_not_run() -> None:
    said = reported("unknown", NO_INSTANCE)
    assert decide_node(replace(NODE, status="Pending"), said, ask()).outcome is Outcome.READY


@pytest.mark.parametrize(("minutes", "outcome"), [(4, Outcome.WAIT), (5, Outcome.READY)])
def test_a_rollback_waits_for_five_minutes_and_keeps_no_node(minutes: float, outcome: Outcome) -> None:
    for said in (reported("refused", "k"), reported("backup-failed", "full")):
        assert decide_node(NODE, said, ask(SAVED_EKS, minutes, rolling_back=True)).outcome is outcome


def test_a_status_for_another_request_does_not_count() -> None:
    of_another = NodeStatus(state="ready", requests={"deployment": "20261122T000000"})
    said = replace(ANSWERED, nodes={NODE.name: of_another})
    assert decide_node(NODE, said, ask()) == NodeReadiness(Outcome.WAIT, messages.waits.UNREAD)
