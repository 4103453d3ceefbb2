"""What the agent decides, as pure functions of one look. tests/real/slurm has it on real Slurm."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from helpers.lifecycle.agent import (
    CONTINUE,
    KILL,
    NOW,
    ONE,
    SETTINGS,
    TWO,
    Acting,
    Loop,
    backups,
    held,
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
release = load("agent/release.py")
slurm = load("agent/slurm.py")
submit = load("agent/submit.py")


@pytest.mark.parametrize(
    ("node_requests", "look", "state", "act"),
    [
        ([node_request()], slurm_state(reservations={}), "draining", "scontrol create reservation"),
        ([node_request()], slurm_state(jobs={"n1": (job(1),)}), "draining", None),
        ([node_request()], slurm_state(), "backing-up", "sbatch"),
        (
            [node_request(backup=False)],
            slurm_state(),
            "draining",
            "state=drain reason=cdk-hyperpod:operator:r1:unsaved",
        ),
        ([node_request()], slurm_state(backups=backups("RUNNING")), "backing-up", None),
        (
            [node_request()],
            slurm_state(saving(), backups=backups("COMPLETED")),
            "backing-up",
            "state=drain reason=cdk-hyperpod:operator:r1:saved",
        ),
        ([node_request(request_id="r2")], slurm_state(backups=backups("COMPLETED")), "backing-up", "sbatch"),
        (
            [node_request(writer="deployment", request_id="r2"), node_request()],
            slurm_state(saving(), backups=backups("COMPLETED")),
            "backing-up",
            "reason=cdk-hyperpod:deployment:r2:saved",
        ),
        ([node_request()], slurm_state(backups=backups("FAILED", "NODE_FAIL")), "backing-up", "sbatch"),
        # It went back to work since: the reservation is another.
        (
            [node_request()],
            slurm_state(backups=backups("COMPLETED"), reservations={ONE: held(start="2026-11-23T05:01:00")}),
            "backing-up",
            "05:01:00 --reservation",
        ),
        (
            [node_request()],
            slurm_state(backups=backups(*["FAILED"] * 3), reservations={ONE: held(start="2026-11-23T05:01:00")}),
            "backing-up",
            "sbatch",
        ),
        ([node_request()], slurm_state(backups=backups(*["FAILED"] * 3)), "backup-failed", None),
        ([node_request()], slurm_state(slurm_node(state="DOWN"), jobs={"n1": (job(1),)}), "backup-failed", None),
        (
            [node_request(backup=False)],
            slurm_state(slurm_node(state="DOWN"), jobs={"n1": (job(1),)}),
            "draining",
            ":lost",
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r0:saved")),
            "ready",
            None,
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r0:unsaved")),
            "backing-up",
            "sbatch",
        ),
        ([node_request()], slurm_state(slurm_node(state="IDLE+DRAIN", reason="Action:Replace")), "backup-failed", None),
        (
            [node_request()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod: a login node")),
            "backup-failed",
            None,
        ),
        ([node_request(deadline=NOW)], slurm_state(jobs={"n1": (job(1),)}), "timed-out", None),
        (
            [node_request(deadline=NOW), node_request(writer="deployment")],
            slurm_state(jobs={"n1": (job(1),)}),
            "draining",
            None,
        ),
        (
            [node_request(deadline=NOW, force=True)],
            slurm_state(jobs={"n1": (job(1),)}),
            "draining",
            "scontrol requeue 1",
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="IDLE+DRAIN+COMPLETING", reason="Action:Replace")),
            "draining",
            None,
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="MIXED+DRAIN", reason="cdk-hyperpod:operator:r1:saved")),
            "draining",
            None,
        ),
        ([node_request()], slurm_state(slurm_node(state="FAILING", reason="Action:Reboot")), "draining", None),
        ([node_request()], slurm_state(silent("DOWN", "Not responding")), "backup-failed", None),
        ([node_request(backup=False)], slurm_state(silent("DOWN", "Not responding")), "draining", ":lost"),
        ([node_request(backup=False)], slurm_state(slurm_node(state="POWERED_DOWN")), "draining", ":lost"),
        (
            [node_request()],
            slurm_state(slurm_node(state="DOWN", reason="cdk-hyperpod:operator:r1:saved")),
            "backup-failed",
            None,
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="DOWN+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "backup-failed",
            None,
        ),
        (
            [node_request()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "backing-up",
            "sbatch",
        ),
        (
            [node_request(backup=False)],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "ready",
            None,
        ),
        ([node_request()], slurm_state(instances={TWO: "10.0.0.1"}), "unknown", None),
        ([node_request(address="10.0.0.2")], slurm_state(), "unknown", None),
        ([node_request()], slurm_state(never_drained={"10.0.0.1": "a controller"}), "refused", None),
        ([node_request()], slurm_state(slurm_node(), slurm_node("n9")), "unknown", None),
        ([node_request()], slurm_state(slurm_node("n2", number=2)), "unknown", None),
    ],
)
def test_the_agent_decides_the_state_and_the_command_for_a_node(
    node_requests: Any, look: Any, state: str, act: str | None
) -> None:
    found = decide.decide_node(node_requests, look, SETTINGS)
    assert found.state == state
    said = words(found.acts)
    assert (said == []) if act is None else (len(said) == 1 and act in said[0]), said


@pytest.mark.parametrize(
    ("state", "reason", "how"),
    [
        ("MIXED+FAIL", "Action:Replace", "set to FAIL"),
        ("IDLE+FAIL", "Action:Replace", "set to FAIL"),
        ("IDLE+DRAIN+FAIL", "cdk-hyperpod:operator:r1:saved", "set to FAIL"),
        ("DOWN", "bad GPU, do not use", "set to DOWN"),
        ("IDLE+DRAIN", "Action:Replace", "drained"),
    ],
)
@pytest.mark.parametrize("reserved", [True, False])
def test_a_node_drained_or_failed_by_others_keeps_its_state_and_reason(
    state: str, reason: str, how: str, reserved: bool
) -> None:
    """HyperPod repairs a node by such a reason: it is neither renamed nor resumed, and its jobs are waited for."""
    node = slurm_node(state=state, reason=reason)
    ours = {ONE: held()} if reserved else {}
    busy = slurm_state(node, jobs={"n1": (job(1),)}, reservations=ours)
    free = slurm_state(node._replace(state=node.state - {"MIXED"}), reservations=ours)
    for look, said in ((busy, "draining"), (free, "backup-failed")):
        found = decide.decide_node([node_request()], look, SETTINGS)
        assert (found.state, found.acts, found.saved) == (said, (), False)
        assert f"was {how} by another" in found.message and f"({reason})" in found.message
        assert not any("update" in act.command for act in release.release_nodes(frozenset(), look))


@pytest.mark.parametrize(
    ("look", "absent", "says"),
    [
        (slurm_state(slurm_node("n2", number=2)), True, "Slurm has no node with the address 10.0.0.1"),
        (slurm_state()._replace(nodes={}), False, "no node at all"),
        (
            slurm_state(slurm_node("n2", number=2), slurm_node()._replace(addresses=frozenset())),
            False,
            "n1",
        ),
        (slurm_state(slurm_node(), slurm_node("n9")), False, "Slurm has 2 nodes"),
    ],
    ids=["none has it", "no nodes", "no DNS", "two have it"],
)
def test_a_node_is_absent_only_where_slurm_and_dns_leave_no_doubt(look: Any, absent: bool, says: str) -> None:
    """Whoever takes nodes takes what is absent at once, for nothing runs there."""
    found = decide.decide_node([node_request()], look._replace(jobs={"n1": (job(1),)}), SETTINGS)
    assert (found.state, found.absent) == ("unknown", absent)
    assert says in found.message


def test_a_ready_node_reports_whether_it_is_backed_up() -> None:
    for how, saved in (("saved", True), ("unsaved", False), ("lost", False)):
        look = slurm_state(slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:r1:{how}"))
        found = decide.decide_node([node_request(backup=False)], look, SETTINGS)
        assert (found.state, found.saved) == ("ready", saved)


def test_a_node_whose_backup_was_given_up_stays_ready() -> None:
    settings = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
    look = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost"))
    assert decide.decide_node([node_request()], look, settings).state == "ready"


def test_at_its_deadline_a_node_goes_back_or_its_jobs_and_those_that_ask_for_it_go_elsewhere() -> None:
    busy = slurm_state(jobs={"n1": (job(1),)})
    assert decide.decide_node([node_request(deadline=NOW)], busy, SETTINGS).holds is False
    free = slurm_state(saving(), backups=backups("COMPLETED"))._replace(jobs_naming={"n1": (job(7),)})
    acts = words(decide.decide_node([node_request(deadline=NOW, force=True)], free, SETTINGS).acts)
    assert acts[0] == "scontrol update jobid=7 reqnodelist="
    assert len(words(decide.decide_node([node_request()], free, SETTINGS).acts)) == 1


def test_a_completing_job_is_not_requeued_again() -> None:
    """A batch job that was requeued a moment ago completes, and scancel would keep it from the queue."""
    look = slurm_state(jobs={"n1": (job(1, state="COMPLETING"), job(2))})
    assert words(decide.decide_node([node_request(deadline=NOW, force=True)], look, SETTINGS).acts) == [
        "scontrol requeue 2"
    ]


def test_a_node_that_cannot_be_saved_is_drained_if_on_failure_is_continue() -> None:
    settings = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
    found = decide.decide_node(
        [node_request()], slurm_state(backups=backups(*["FAILED"] * 3, said="it is full")), settings
    )
    assert "it is full" in found.message
    assert words(found.acts)[0].endswith(":lost")


def test_a_node_that_others_drain_during_its_backup_is_not_saved() -> None:
    """A node's health check, for example. Whoever had drained it before is another's business, and a backup that need not be."""
    drained = slurm_node(state="IDLE+DRAIN", reason="NHC: check_fs_mount /fsx")
    look = slurm_state(drained, backups=backups("FAILED"))
    said = decide.decide_node([node_request()], look, SETTINGS)
    assert (said.state, said.saved, said.acts) == ("backup-failed", False, ())
    assert "NHC: check_fs_mount" in said.message
    assert decide.decide_node([node_request()], slurm_state(drained), SETTINGS).state == "backup-failed"
    assert decide.decide_node([node_request(backup=False)], look, SETTINGS).state == "ready"
    assert decide.decide_node([node_request()], look, CONTINUE).state == "ready"


@pytest.mark.parametrize(
    "reason",
    [
        *(KILL, f"{KILL} (JobId=7 StepId=7.batch)", "Prolog/Epilog failure"),
        *("Prolog error", "Epilog error: epilog 10-a failed with exit code 4: GPU 3 is lost"),
        *("Duplicate jobid", "batch job complete failure", "SlurmdSpoolDir is full", "Job env setup error"),
        *("Not responding", "Node unexpectedly rebooted", "Low RealMemory (reported:1 < 100.00% of configured:2)"),
        *("Low TmpDisk, CoreSpec differ", "gres/gpu count reported lower than configured (7 < 8)"),
    ],
)
def test_slurm_s_own_drain_is_no_person_s_decision(reason: str) -> None:
    """The reasons stand in slurmctld and slurmd of 22.05.8, 24.11.5 and 25.11."""
    drained = slurm_node(state="IDLE+DRAIN", reason=reason)
    assert (drained.foreign, drained.by_slurm) == ("", reason)
    assert words(decide.decide_node([node_request()], slurm_state(drained), SETTINGS).acts)[0].startswith("sbatch ")
    assert slurm_node(state="IDLE+DRAIN", reason=f"{reason} | ask Bob").by_slurm == ""
    assert slurm_node(state="IDLE+FAIL", reason=reason).by_slurm == ""
    assert slurm_node(state="IDLE", reason=reason).by_slurm == ""


@pytest.mark.parametrize(
    "reason", ["Action:Replace", "Action:Reboot", "reboot requested", "kill task failed", "", "mine"]
)
def test_a_drain_with_any_other_reason_is_a_persons_decision(reason: str) -> None:
    drained = slurm_node(state="IDLE+DRAIN", reason=reason)
    assert (drained.foreign, drained.by_slurm) == ("drained", "")
    found = decide.decide_node([node_request()], slurm_state(drained), SETTINGS)
    assert (found.state, found.acts) == ("backup-failed", ())
    assert "state=drain reason='delete unsaved'" in found.message
    assert decide.decide_node([node_request()], slurm_state(drained), CONTINUE).state == "ready"


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN", "IDLE+FAIL"])
def test_the_drain_reason_delete_unsaved_waives_the_backup_of_a_node(state: str) -> None:
    drained = slurm_node(state=state, reason="Delete unsaved: dead GPU")
    found = decide.decide_node([node_request()], slurm_state(drained), SETTINGS)
    assert (found.state, found.saved, found.waived) == ("ready", False, True)
    assert not slurm_node(state="IDLE", reason="delete unsaved").waived


def test_a_node_that_slurm_drained_is_opened_for_its_backup_alone_and_goes_back_drained() -> None:
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=KILL))
    assert acting.look()[0] == "backing-up"
    assert acting.look() == ("backing-up", ["scontrol state=resume reason="])
    acting.begin()
    assert acting.look() == ("backing-up", [])
    acting.end("COMPLETED")
    assert acting.look() == ("backing-up", [f"scontrol state=drain reason=cdk-hyperpod:operator:r1:saved:{KILL}"])
    found = decide.decide_node([node_request()], acting.slurm, SETTINGS)
    assert (found.state, found.saved) == ("ready", True)
    restored = f"scontrol update nodename=n1 state=drain reason={KILL}"
    assert words(release.release_nodes(frozenset(), acting.slurm))[0] == restored


@pytest.mark.parametrize("begins", [True, False], ids=["its hold worked", "it ended before"])
def test_a_node_drained_by_slurm_that_cannot_be_saved_is_not_ready_and_stays_drained(begins: bool) -> None:
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=KILL))
    for _ in range(submit.MOST_TRIES):
        while not any(each.live for tries in acting.slurm.backups.values() for each in tries):
            assert acting.look()[0] == "backing-up"
        acting.look()
        if begins:
            acting.begin()
        acting.end("FAILED")
    for _ in range(3):
        state, _ = acting.look()
    assert state == "backup-failed"
    assert (acting.node.drained, acting.node.reason) == (True, KILL)
    said = decide.decide_node([node_request()], acting.slurm, SETTINGS)
    assert said.acts == () and "3 tries: FAILED" in said.message and f"({KILL})" in said.message
    acting.settings = CONTINUE
    acting.look()
    assert acting.node.reason == f"cdk-hyperpod:operator:r1:lost:{KILL}"
    assert decide.decide_node([node_request()], acting.slurm, CONTINUE).state == "ready"


def test_a_node_that_slurm_set_down_and_that_answers_is_saved() -> None:
    acting = Acting(slurm_node(state="DOWN", reason="Node unexpectedly rebooted"))
    assert acting.look()[0] == "backing-up"
    assert acting.look() == ("backing-up", ["scontrol state=resume reason="])
    assert (
        decide.decide_node([node_request()], slurm_state(silent("DOWN", "Node unexpectedly rebooted")), SETTINGS).state
        == "backup-failed"
    )
    assert (
        decide.decide_node([node_request()], slurm_state(silent("DOWN", "Not responding")), CONTINUE)
        .acts[0]
        .command[-1]
        .endswith(":lost")
    )


def test_a_backup_may_run_in_each_partition_of_the_node() -> None:
    """The cluster file may close some of them (slurm.partitions), such as dev."""
    node = slurm_node()._replace(partitions=("dev", "p5"))
    (act,) = decide.decide_node([node_request()], slurm_state(node), SETTINGS).acts
    assert "--partition=dev,p5" in act.command


def test_a_backup_counts_only_while_the_node_is_drained_as_its_job_began() -> None:
    """Whoever has a MAINT reservation of his own, or opens the node, may have had a job there since."""
    for node in (slurm_node(), slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:unsaved")):
        found = decide.decide_node([node_request()], slurm_state(node, backups=backups("COMPLETED")), SETTINGS)
        assert [act.command[0] for act in found.acts] == ["sbatch"]
    # The drain is the second job's.
    again = decide.decide_node(
        [node_request()], slurm_state(saving(), backups=backups("COMPLETED", "RUNNING")), SETTINGS
    )
    assert (again.state, again.acts) == ("backing-up", ())
    gave_up = decide.decide_node([node_request()], slurm_state(backups=backups(*["COMPLETED"] * 3)), SETTINGS)
    assert (gave_up.state, gave_up.saved) == ("backup-failed", False)
    assert "opened meanwhile" in gave_up.message


def test_a_backup_that_failed_leaves_no_drain() -> None:
    acting = Acting(slurm_node())
    for _ in range(submit.MOST_TRIES):
        acting.look()
        acting.look()
        acting.begin()
        acting.end("FAILED")
    assert acting.look() == ("backup-failed", ["scontrol state=resume reason="])
    assert acting.look() == ("backup-failed", [])


def test_force_ends_one_task_and_of_a_heterogeneous_job_all_components() -> None:
    jobs = tuple(slurm.Job(name, "alice", "RUNNING") for name in ("7_2", "7_3", "9+1", "9+2", "12"))
    found = decide.decide_node([node_request(deadline=NOW, force=True)], slurm_state(jobs={"n1": jobs}), SETTINGS)
    assert [act.command for act in found.acts] == [("scontrol", "requeue", name) for name in ("7_2", "7_3", "9", "12")]
    assert [act.otherwise for act in found.acts] == [("scancel", name) for name in ("7_2", "7_3", "9", "12")]
    assert "heterogeneous job 9 " in found.message
    assert "heterogeneous" not in decide.decide_node([node_request()], slurm_state(jobs={"n1": jobs}), SETTINGS).message


def test_a_file_without_a_backup_saves_nothing() -> None:
    assert words(decide.decide_node([node_request()], slurm_state(), {"backup": None}).acts)[0].endswith(":unsaved")


def test_the_backup_s_order_is_data_in_its_script() -> None:
    settings = {"backup": {**SETTINGS["backup"], "paths": ["/a'b", '/c"d\\']}}
    (act,) = decide.decide_node([node_request()], slurm_state(), settings).acts
    (last,) = [node for node in ast.parse(act.stdin).body if isinstance(node, ast.Raise)]
    (text,) = [node.value for node in ast.walk(last) if isinstance(node, ast.Constant)]
    found = json.loads(str(text))
    assert found["paths"] == ["/a'b", '/c"d\\']
    assert found["instance"] == ONE


@pytest.mark.parametrize(
    ("on_unsavable", "last"),
    [("fail", [False, False, True]), ("skip", [False, True, True]), (None, [False, False, True])],
)
def test_only_the_last_try_ends_writers_and_leaves_files_out(on_unsavable: str | None, last: list[bool]) -> None:
    backup = {**SETTINGS["backup"], "paths": ["/data"], **({"on_unsavable": on_unsavable} if on_unsavable else {})}
    told = [submit.last_try(backup, tries) for tries in range(3)]
    assert told == [{"last": each, "skip": on_unsavable == "skip"} for each in last]


def test_an_owner_s_hook_is_the_backup(loop: Loop) -> None:
    hook = {"hook": "/fsx/admin/save-node", "timeout_minutes": 15, "on_failure": "fail"}
    (act,) = decide.decide_node([node_request()], slurm_state(), {"backup": hook}).acts
    order = json.loads(ast.literal_eval(act.stdin.rpartition("json.loads(")[2].rstrip().removesuffix(")))")))
    expected = {"hook": "/fsx/admin/save-node", "timeout_minutes": 15, "instance": ONE, "request": "r1", "seconds": 60}
    expected["hold"] = {"node": "n1", "reason": "cdk-hyperpod:operator:r1:saving"}
    assert order == expected
    loop.agent.settings = {**loop.agent.settings, "backup": hook}
    assert loop.look()["backup"] == "/fsx/admin/save-node"


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({}, 60),
        ({"limit": NOW + 90}, 60),
        ({"force": True}, 120),
        ({"force": True, "limit": NOW + 90}, 90),
        ({"force": True, "limit": NOW + 900}, 900),
    ],
)
def test_a_backup_has_the_time_that_is_left(change: dict[str, Any], seconds: int) -> None:
    """A deployment holds a node for ten minutes at a time, which says nothing of how long it waits."""
    (act,) = decide.decide_node([node_request(**change)], slurm_state(), SETTINGS).acts
    order = json.loads(ast.literal_eval(act.stdin.rpartition("json.loads(")[2].rstrip().removesuffix(")))")))
    assert order["seconds"] == seconds
