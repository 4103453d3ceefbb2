"""Each rule of the agent's decision has a look here at which it decides; and rules that apply together, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.lifecycle.agent import (
    CONTINUE,
    KILL,
    NOW,
    SETTINGS,
    TWO,
    backups,
    job,
    node_request,
    saving,
    silent,
    slurm_node,
    slurm_state,
    words,
)
from helpers.lifecycle.programs import load

decide = load("agent/decide.py")
identity = load("agent/identity.py")
view = load("agent/view.py")

PAST = {"deadline": NOW}
"""Of a request whose deadline has passed."""
JOBS = {"n1": (job(1),)}
NO_ADDRESS = slurm_node("n9")._replace(addresses=frozenset())


def ours(mark: str, state: str = "IDLE+DRAIN") -> Any:
    return slurm_node(state=state, reason=f"cdk-hyperpod:operator:r1:{mark}")


def foreign(state: str = "IDLE+DRAIN") -> Any:
    return slurm_node(state=state, reason="bad GPU")


def by_slurm(state: str = "IDLE+DRAIN") -> Any:
    return slurm_node(state=state, reason=KILL)


IDENTITY: dict[str, tuple[Any, Any, str]] = {
    "_is_not_in_cluster": ({}, slurm_state(instances={TWO: "10.0.0.2"}), "unknown"),
    "_has_another_address": ({"address": "10.0.0.7"}, slurm_state(), "unknown"),
    "_is_never_drained": ({}, slurm_state(never_drained={"10.0.0.1": "a controller"}), "refused"),
    "_slurm_has_no_nodes": ({}, slurm_state()._replace(nodes={}), "unknown"),
    "_may_be_a_node_without_address": ({}, slurm_state(NO_ADDRESS), "unknown"),
    "_is_absent_from_slurm": ({}, slurm_state(slurm_node("n2", number=2)), "unknown"),
    "_is_several_nodes": ({}, slurm_state(slurm_node("n1"), slurm_node("n9")), "unknown"),
    "_may_be_a_login_node": (
        {},
        slurm_state(slurm_node()._replace(partitions=("dev",)), unknown_types=frozenset({"10.0.0.1"})),
        "refused",
    ),
}
"""The rule that decides -> what its request has, the look, and the state."""

RULES: dict[str, tuple[Any, Any, Any, str, list[str]]] = {
    "_is_drained_but_busy": ({}, slurm_state(ours("saved", "MIXED+DRAIN")), SETTINGS, "draining", []),
    "_is_dead_and_unsaved": ({}, slurm_state(ours("lost", "DOWN+DRAIN")), SETTINGS, "backup-failed", []),
    "_is_ready": ({}, slurm_state(ours("saved")), SETTINGS, "ready", []),
    "_is_kept_by_a_foreign_drain": (
        {},
        slurm_state(foreign()),
        SETTINGS,
        "backup-failed",
        [],
    ),
    "_is_ready_by_a_foreign_drain": ({}, slurm_state(foreign()), CONTINUE, "ready", []),
    "_is_busy_under_a_foreign_drain": ({}, slurm_state(foreign(), jobs=JOBS), SETTINGS, "draining", []),
    "_timed_out_under_a_foreign_drain": (PAST, slurm_state(foreign(), jobs=JOBS), SETTINGS, "timed-out", []),
    "_timed_out": (PAST, slurm_state(jobs=JOBS), SETTINGS, "timed-out", []),
    "_is_not_reserved": (
        {},
        slurm_state(reservations={}),
        SETTINGS,
        "draining",
        ["scontrol create"],
    ),
    "_has_jobs_past_their_deadline": (
        {**PAST, "force": True},
        slurm_state(jobs=JOBS),
        SETTINGS,
        "draining",
        ["scontrol requeue"],
    ),
    "_has_jobs": ({}, slurm_state(jobs=JOBS), SETTINGS, "draining", []),
    "_is_down_and_kept": ({}, slurm_state(silent("DOWN", "Not responding")), SETTINGS, "backup-failed", []),
    "_is_down": ({}, slurm_state(silent("DOWN", "Not responding")), CONTINUE, "draining", ["scontrol update"]),
    "_is_silent": ({}, slurm_state(silent("IDLE", "")), SETTINGS, "draining", []),
    "_needs_only_a_drain": ({"backup": False}, slurm_state(), SETTINGS, "draining", ["scontrol update"]),
    "_is_busy_under_a_drain_of_slurm": (
        {"backup": False},
        slurm_state(by_slurm("MIXED+DRAIN")),
        SETTINGS,
        "draining",
        [],
    ),
    "_is_ready_by_a_drain_of_slurm": ({"backup": False}, slurm_state(by_slurm()), SETTINGS, "ready", []),
    "_backup_waits_for_an_open_node": (
        {},
        slurm_state(by_slurm(), backups=backups("PENDING")),
        SETTINGS,
        "backing-up",
        ["scontrol update"],
    ),
    "_is_being_saved": ({}, slurm_state(saving(), backups=backups("RUNNING")), SETTINGS, "backing-up", []),
    "_was_saved": (
        {},
        slurm_state(saving(), backups=backups("COMPLETED")),
        SETTINGS,
        "backing-up",
        ["scontrol update"],
    ),
    "_was_left_open": (
        {},
        slurm_state(backups=backups("FAILED", was=KILL)),
        SETTINGS,
        "backing-up",
        ["scontrol update"],
    ),
    "_has_tries_left": ({}, slurm_state(), SETTINGS, "backing-up", ["sbatch --parsable"]),
    "_is_drained_unsaved": (
        {},
        slurm_state(backups=backups(*["FAILED"] * 3)),
        CONTINUE,
        "backup-failed",
        ["scontrol update"],
    ),
}
"""The rule that decides -> what its request has, the look, the settings; the state, and the beginning of each command."""


def names(rules: Any) -> list[str]:
    return [rule.__name__ for rule in rules]


def applying(rules: Any, facts: Any) -> list[str]:
    """The rules that would decide, in their order."""
    return [rule.__name__ for rule in rules if rule(facts) is not None]


def view_of(change: Any, look: Any, settings: Any = SETTINGS) -> Any:
    return view.view_node([node_request(**change)], look.nodes["n1"], look, settings)


def test_every_rule_has_a_look_at_which_it_decides() -> None:
    assert (list(IDENTITY), list(RULES)) == (names(identity.RULES), names(decide.RULES))


@pytest.mark.parametrize("rule", IDENTITY)
def test_a_rule_of_which_node_it_is(rule: str) -> None:
    change, look, state = IDENTITY[rule]
    request = node_request(**change)
    assert applying(identity.RULES, identity.find_candidates([request], look))[0] == rule
    found = decide.decide_node([request], look, SETTINGS)
    assert (found.state, found.acts, found.absent) == (state, (), rule == "_is_absent_from_slurm")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_what_happens_to_it(rule: str) -> None:
    change, look, settings, state, commands = RULES[rule]
    assert applying(decide.RULES, view_of(change, look, settings))[0] == rule
    found = decide.decide_node([node_request(**change)], look, settings)
    assert (found.state, found.holds) == (state, rule != "_timed_out")
    assert [" ".join(command.split()[:2]) for command in words(found.acts)] == commands


def test_where_no_rule_applies_the_agent_gives_up() -> None:
    look = slurm_state(saving(), backups=backups(*["FAILED"] * 3))
    assert applying(decide.RULES, view_of({}, look)) == []
    found = decide.decide_node([node_request()], look, SETTINGS)
    assert (found.state, words(found.acts)) == (
        "backup-failed",
        ["scontrol update nodename=n1 state=resume reason="],
    )


@pytest.mark.parametrize(
    ("first", "second", "change", "look"),
    [
        # A node that is ready stays so at its deadline, and while it does not respond.
        ("_is_ready", "_timed_out", PAST, slurm_state(ours("saved"))),
        ("_is_ready", "_is_silent", {}, slurm_state(ours("saved")._replace(silent=True))),
        # What a person has drained is not reserved.
        ("_is_kept_by_a_foreign_drain", "_is_not_reserved", {}, slurm_state(foreign(), reservations={})),
        ("_is_dead_and_unsaved", "_is_ready", {}, slurm_state(ours("lost", "DOWN+DRAIN"))),
        ("_timed_out_under_a_foreign_drain", "_timed_out", PAST, slurm_state(foreign(), jobs=JOBS)),
        # Nothing is reserved that went back to work.
        ("_timed_out", "_is_not_reserved", PAST, slurm_state(jobs=JOBS, reservations={})),
        # No job ends on a node that other jobs can still get.
        (
            "_is_not_reserved",
            "_has_jobs_past_their_deadline",
            {**PAST, "force": True},
            slurm_state(jobs=JOBS, reservations={}),
        ),
        # A node with jobs is not drained, and no backup begins.
        ("_has_jobs", "_needs_only_a_drain", {"backup": False}, slurm_state(jobs=JOBS)),
        ("_has_jobs", "_has_tries_left", {}, slurm_state(jobs=JOBS)),
        # No backup is submitted to a node that is dead or silent.
        ("_is_down_and_kept", "_has_tries_left", {}, slurm_state(silent("DOWN", "Not responding"))),
        ("_is_silent", "_has_tries_left", {}, slurm_state(silent("IDLE", ""))),
        # One backup at a time.
        ("_is_being_saved", "_has_tries_left", {}, slurm_state(saving(), backups=backups("RUNNING"))),
        ("_was_saved", "_has_tries_left", {}, slurm_state(saving(), backups=backups("COMPLETED"))),
        # Slurm's own drain is restored before the next try opens the node again.
        ("_was_left_open", "_has_tries_left", {}, slurm_state(backups=backups("FAILED", was=KILL))),
    ],
)
def test_of_two_rules_that_apply_the_first_decides(first: str, second: str, change: Any, look: Any) -> None:
    found = applying(decide.RULES, view_of(change, look))
    assert found[0] == first
    assert second in found


def test_an_instance_is_absent_only_if_no_rule_before_doubts_it() -> None:
    for look in (slurm_state()._replace(nodes={}), slurm_state(NO_ADDRESS)):
        found = applying(identity.RULES, identity.find_candidates([node_request()], look))
        assert found.index("_is_absent_from_slurm") > 0
