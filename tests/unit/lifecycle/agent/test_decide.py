"""What the drain agent decides, as pure functions of one look, and what it makes of requests. tests/real/slurm has it on real Slurm."""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.common import drain_protocol
from cdk_hyperpod._lambda.hyperpod.common.drain_protocol import MAX_NODES, MAX_STATUS_BYTES
from helpers.lifecycle.programs import load
from helpers.slurm.bucket import serve as serve_bucket

agent_loop = load("agent/loop.py")
decide = load("agent/decide.py")
hyperpod = load("agent/hyperpod.py")
release = load("agent/release.py")
slurm = load("agent/slurm.py")
SlurmState: Any = load("agent/slurm_state.py").SlurmState
NOW = 1_800_000_000.0
SETTINGS: dict[str, Any] = {"backup": {"paths": ["/data"], "to": "/fsx/backup", "on_failure": "fail"}}
ONE, TWO = "i-00000000000000001", "i-00000000000000002"
START = "2026-11-23T05:00:00"


def wish_json(**change: Any) -> dict[str, Any]:
    usual = {"id": ONE, "ip": "10.0.0.1", "request": "r1", "deadline": NOW + 60, "expires": NOW + 120}
    return {**usual, "on_timeout": "fail", "backup": True, **change}


def request(*nodes: Any, **change: Any) -> bytes:
    return json.dumps({"schema": 1, "id": "q1", "nodes": list(nodes), **change}).encode()


def wish(**change: Any) -> Any:
    usual = {"writer": "operator", "request": "r1", "instance": ONE, "address": "10.0.0.1", "deadline": NOW + 60}
    return drain_protocol.Wish(**{**usual, "expires": NOW + 120, "force": False, "backup": True, **change})


def slurm_node(name: str = "n1", state: str = "IDLE", reason: str = "", *, number: int = 1) -> Any:
    return slurm.SlurmNode(name, frozenset({f"10.0.0.{number}"}), frozenset(state.split("+")), False, reason, ("p5",))


def silent(state: str, reason: str) -> Any:
    return slurm_node(state=state, reason=reason)._replace(silent=True)


def held(node: str = "n1", start: str = START) -> Any:
    return slurm.Reservation((node,), start)


def slurm_state(*nodes: Any, **change: Any) -> Any:
    usual: dict[str, Any] = {"now": NOW, "instances": {ONE: "10.0.0.1", TWO: "10.0.0.2"}, "barred": {}}
    usual.update(nodes={node.name: node for node in nodes or (slurm_node(),)}, reservations={ONE: held()})
    return SlurmState(**{**usual, "jobs": {}, "naming": {}, "backups": {}, **change})


def job(number: int, user: str = "alice", state: str = "RUNNING") -> Any:
    return slurm.Job(str(number), user, state)


def backups(*states: str, said: str = "", was: str = "") -> dict[str, Any]:
    tries = tuple(slurm.Backup(str(i), state, said, was) for i, state in enumerate(states))
    return {slurm.backup_name(wish(), START): tries}


def saving(request: str = "r1") -> Any:
    """A node whose backup's job has begun."""
    return slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:{request}:saving")


def words(acts: Any) -> list[str]:
    return [" ".join(act.command) for act in acts]


# -- requests


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (request(wish_json())[:-9], "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is nested too deep"),
        (b"[]", "is not a JSON object"),
        (request(wish_json(), schema=2), "schema: this agent reads 1, got 2"),
        (request(wish_json(), schema=True), "schema: this agent reads 1, got true"),
        (request(wish_json(), id="a b"), "id: must be of the form"),
        (request(*[wish_json()] * 2), "nodes: an instance is duplicated"),
        (request(*[{}] * 6759), "nodes: must be a list of at most 6758"),
        (request(nodes={}), "nodes: must be a list"),
        (request("i-1"), "nodes[0]: must be an object"),
        (request(wish_json(id="i-0; reboot")), "nodes[0].id: must be of the form"),
        (request(wish_json(id=f"{ONE}\n")), "nodes[0].id: must be of the form"),
        (request(wish_json(request="$(reboot)")), "nodes[0].request: must be of the form"),
        (request(wish_json(ip="10.0.0.1 -j")), "nodes[0].ip: must be an address"),
        (request(wish_json(ip=167772161)), "nodes[0].ip: must be an address"),
        (request(wish_json(deadline=math.nan)), "nodes[0].deadline: must be a time"),
        (request(wish_json(expires=NOW * 10)), "nodes[0].expires: must be a time at most 26 h ahead"),
        (request(wish_json(expires=10**400)), "nodes[0].expires: must be a time"),
        (request(wish_json(expires=True)), "nodes[0].expires: must be a time"),
        (request(wish_json(limit=None)), "nodes[0].limit: must be a time"),
        (request(wish_json(limit=NOW * 10)), "nodes[0].limit: must be a time at most 26 h ahead"),
        (request(wish_json(on_timeout="kill")), 'nodes[0].on_timeout: must be "fail" or "force", got "kill"'),
        (request(wish_json(backup=1)), "nodes[0].backup: must be true or false, got 1"),
        (b" " * 3_000_000, "is larger than"),
    ],
)
def test_a_request_that_is_wrong_anywhere_is_refused_as_a_whole(content: bytes, says: str) -> None:
    with pytest.raises(drain_protocol.RequestError) as refused:
        drain_protocol.parse_request("operator", content, NOW)
    assert str(refused.value).startswith(says)
    assert len(str(refused.value)) < 300


def test_a_request() -> None:
    def read(writer: str, content: bytes) -> Any:
        found = drain_protocol.parse_request(writer, content, NOW)
        return found.id, found.wishes

    assert read("operator", request(wish_json(new="ignored"))) == ("q1", (wish(),))
    assert read("deployment", request()) == ("q1", ())
    assert read("operator", request(wish_json(limit=NOW + 90))) == ("q1", (wish(limit=NOW + 90),))


@pytest.mark.parametrize(
    "where", ['{"schema": %s}', '{"schema": 1, "nodes": [%s]}', '{"schema": 1, "nodes": [{"ip": %s}]}']
)
def test_a_request_that_is_nested_as_deep_as_it_can_be_read_is_refused(where: str) -> None:
    """Who shows what is wrong needs more of the stack than who reads it."""
    for depth in range(1000):
        with pytest.raises(drain_protocol.RequestError):
            drain_protocol.parse_request("operator", (where % ("[" * depth + "]" * depth)).encode(), NOW)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda of: (
            st.lists(of)
            | st.dictionaries(
                st.sampled_from(
                    ["schema", "id", "nodes", "ip", "request", "deadline", "expires", "on_timeout", "backup"]
                ),
                of,
            )
        ),
    )
)
def test_no_request_breaks_the_agent(found: Any) -> None:
    for content in (found, {"schema": 1, "id": "q", "nodes": [found]}, {"schema": 1, "id": "q", "nodes": found}):
        try:
            drain_protocol.parse_request("operator", json.dumps(content).encode(), NOW)
        except drain_protocol.RequestError as error:
            assert "\n" not in str(error)


# -- what Slurm says


def test_nodes_are_read_with_their_marks_and_whatever_a_reason_holds() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 OS=Linux 6.1 #1 SMP State=IDLE*+DRAIN+MAINTENANCE Partitions=p5,dev "
        "Reason=cdk-hyperpod:operator:r1:saved [root@2026-01-01T00:00:00]\n"
        "NodeName=n2 NodeAddr=10.0.0.2 State=DOWN+NOT_RESPONDING Reason=State=IDLE NodeName=n1 [slurm@2026-01-01T00:00:00]\n"
        "NodeName=n3 NodeAddr=10.0.0.3 State=IDLE+DRAIN Reason=Kill task failed [root@2026-01-01T00:00:00] Comment=[a] "
        "ReservationName=cdk-hyperpod-i-0\nNodeName=n4 NodeAddr=10.0.0.4 State=IDLE+DRAIN Reason=bad [a b] GPU\n"
    )
    nodes = slurm.parse_nodes(text)
    assert nodes["n1"].ours[2] == "r1"
    assert (nodes["n1"].silent, nodes["n1"].down, nodes["n1"].partitions) == (True, False, ("p5", "dev"))
    assert (nodes["n2"].silent, nodes["n2"].down, nodes["n2"].drained) == (True, True, False)
    assert nodes["n2"].reason == "State=IDLE NodeName=n1"
    # As 24.11 has it.
    assert (nodes["n3"].reason, nodes["n4"].reason) == ("Kill task failed", "bad [a b] GPU")


def test_a_reason_of_ours_on_a_node_that_is_not_drained_is_no_drain() -> None:
    """Slurm 24.11 keeps the reason of a node that was resumed."""
    assert slurm_node(reason="cdk-hyperpod:operator:r1:saved").ours is None


def test_what_slurm_says_may_be_no_utf_8() -> None:
    assert slurm.run("printf", r"Reason=\377").stdout == "Reason=\N{REPLACEMENT CHARACTER}"


def test_jobs_are_counted_where_they_are_and_backups_are_none() -> None:
    text = (
        "1|alice|RUNNING|N/A|n[1-2]||1\n2|bob|PENDING|N/A||n2|2_[1-9%4]\n3|root|RUNNING|N/A|n1|n1|3\n"
        f"4|bob|COMPLETED|{START}|n1||4\nwords\n5|eve|COMPLETING|{START}|n2||5\n"
        # The node of their reservation has left slurm.conf, and came back.
        f"6|eve|RESV_DEL_HOLD|{START}|n2||6\n7|eve|RESV_DEL_HOLD|N/A||n1|7\n"
    )
    running, naming = slurm.parse_jobs(text, {"3"}, lambda names: ("n1", "n2") if "[" in names else (names,))
    assert running == {"n1": (job(1),), "n2": (job(1), job(5, "eve", "COMPLETING"))}
    assert naming == {"n2": (job(2, "bob", "PENDING"),), "n1": (job(7, "eve", "PENDING"),)}


def test_only_jobs_of_ours_are_backups() -> None:
    name = slurm.backup_name(wish(), START)
    text = (
        f"7|RUNNING|N/A|None|{name}|3 of 4 GB | more\n8|PENDING|N/A|Priority|{name}|(null)\n"
        f"9|RUNNING|N/A|None|wrap|{name}\n"
    )
    assert slurm.parse_backups(text) == {
        name: (slurm.Backup("7", "RUNNING", "3 of 4 GB | more"), slurm.Backup("8", "PENDING", "waits, Priority"))
    }


@pytest.mark.parametrize(
    ("listed", "cancelled"),
    [
        (f"RESV_DEL_HOLD|{START}|Reservation (null) is invalid", False),
        ("RESV_DEL_HOLD|N/A|Reservation (null) is invalid", True),
        (f"COMPLETING|{START}|None", False),
        ("PENDING|N/A|Priority", True),
    ],
)
def test_a_backup_that_nobody_wants_is_cancelled_while_it_has_not_ended(listed: str, cancelled: bool) -> None:
    """When a node leaves slurm.conf, Slurm purges its reservation and fails its job, and squeue says RESV_DEL_HOLD of the job."""
    found = slurm.parse_backups(f"7|{listed}|{slurm.backup_name(wish(), START)}|(null)\n")
    given_back = words(release.give_back(frozenset(), slurm_state(reservations={}, backups=found)))
    assert given_back == (["scancel 7"] if cancelled else [])


def test_only_reservations_of_ours_are_read() -> None:
    text = (
        f"ReservationName=cdk-hyperpod-{ONE} StartTime={START} Nodes=n1 Users=root Flags=MAINT\n"
        f"ReservationName=cdk-hyperpod-{TWO} Nodes=n2 Users=alice\nReservationName=theirs Nodes=n1 Users=root\n"
    )
    assert slurm.parse_reservations(text) == {ONE: held()}
    assert slurm.parse_reservations("No reservations in the system\n") == {}


# -- decisions


@pytest.mark.parametrize(
    ("wishes", "look", "state", "act"),
    [
        ([wish()], slurm_state(reservations={}), "draining", "scontrol create reservation"),
        ([wish()], slurm_state(jobs={"n1": (job(1),)}), "draining", None),
        ([wish()], slurm_state(), "backing-up", "sbatch"),
        ([wish(backup=False)], slurm_state(), "draining", "state=drain reason=cdk-hyperpod:operator:r1:unsaved"),
        ([wish()], slurm_state(backups=backups("RUNNING")), "backing-up", None),
        (
            [wish()],
            slurm_state(saving(), backups=backups("COMPLETED")),
            "backing-up",
            "state=drain reason=cdk-hyperpod:operator:r1:saved",
        ),
        ([wish(request="r2")], slurm_state(backups=backups("COMPLETED")), "backing-up", "sbatch"),
        (
            [wish(writer="deployment", request="r2"), wish()],
            slurm_state(saving(), backups=backups("COMPLETED")),
            "backing-up",
            "reason=cdk-hyperpod:deployment:r2:saved",
        ),
        ([wish()], slurm_state(backups=backups("FAILED", "NODE_FAIL")), "backing-up", "sbatch"),
        # It went back to work since: the reservation is another.
        (
            [wish()],
            slurm_state(backups=backups("COMPLETED"), reservations={ONE: held(start="2026-11-23T05:01:00")}),
            "backing-up",
            "05:01:00 --reservation",
        ),
        (
            [wish()],
            slurm_state(backups=backups(*["FAILED"] * 3), reservations={ONE: held(start="2026-11-23T05:01:00")}),
            "backing-up",
            "sbatch",
        ),
        ([wish()], slurm_state(backups=backups(*["FAILED"] * 3)), "backup-failed", None),
        ([wish()], slurm_state(slurm_node(state="DOWN"), jobs={"n1": (job(1),)}), "backup-failed", None),
        ([wish(backup=False)], slurm_state(slurm_node(state="DOWN"), jobs={"n1": (job(1),)}), "draining", ":lost"),
        ([wish()], slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r0:saved")), "ready", None),
        (
            [wish()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r0:unsaved")),
            "backing-up",
            "sbatch",
        ),
        ([wish()], slurm_state(slurm_node(state="IDLE+DRAIN", reason="Action:Replace")), "ready", None),
        ([wish()], slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod: a login node")), "ready", None),
        ([wish(deadline=NOW)], slurm_state(jobs={"n1": (job(1),)}), "timed-out", None),
        ([wish(deadline=NOW), wish(writer="deployment")], slurm_state(jobs={"n1": (job(1),)}), "draining", None),
        ([wish(deadline=NOW, force=True)], slurm_state(jobs={"n1": (job(1),)}), "draining", "scontrol requeue 1"),
        ([wish()], slurm_state(slurm_node(state="IDLE+DRAIN+COMPLETING", reason="Action:Replace")), "draining", None),
        (
            [wish()],
            slurm_state(slurm_node(state="MIXED+DRAIN", reason="cdk-hyperpod:operator:r1:saved")),
            "draining",
            None,
        ),
        ([wish()], slurm_state(slurm_node(state="FAILING", reason="Action:Reboot")), "draining", None),
        ([wish()], slurm_state(silent("DOWN", "Not responding")), "backup-failed", None),
        ([wish(backup=False)], slurm_state(silent("DOWN", "Not responding")), "draining", ":lost"),
        ([wish(backup=False)], slurm_state(slurm_node(state="POWERED_DOWN")), "draining", ":lost"),
        (
            [wish()],
            slurm_state(slurm_node(state="DOWN", reason="cdk-hyperpod:operator:r1:saved")),
            "backup-failed",
            None,
        ),
        (
            [wish()],
            slurm_state(slurm_node(state="DOWN+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "ready",
            None,
        ),
        (
            [wish()],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "backing-up",
            "sbatch",
        ),
        (
            [wish(backup=False)],
            slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost")),
            "ready",
            None,
        ),
        ([wish()], slurm_state(instances={TWO: "10.0.0.1"}), "unknown", None),
        ([wish(address="10.0.0.2")], slurm_state(), "unknown", None),
        ([wish()], slurm_state(barred={"10.0.0.1": "a controller"}), "refused", None),
        ([wish()], slurm_state(slurm_node(), slurm_node("n9")), "unknown", None),
        ([wish()], slurm_state(slurm_node("n2", number=2)), "unknown", None),
    ],
)
def test_what_becomes_of_a_node(wishes: Any, look: Any, state: str, act: str | None) -> None:
    found = decide.judge(wishes, look, SETTINGS)
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
def test_what_somebody_else_took_out_of_work_keeps_state_and_reason(
    state: str, reason: str, how: str, reserved: bool
) -> None:
    """HyperPod repairs a node by such a reason: it is neither renamed nor resumed, and its jobs are waited for."""
    node = slurm_node(state=state, reason=reason)
    ours = {ONE: held()} if reserved else {}
    busy = slurm_state(node, jobs={"n1": (job(1),)}, reservations=ours)
    free = slurm_state(node._replace(state=node.state - {"MIXED"}), reservations=ours)
    for look, said in ((busy, "draining"), (free, "ready")):
        found = decide.judge([wish()], look, SETTINGS)
        assert (found.state, found.acts, found.saved) == (said, (), False)
        assert f"was {how} by somebody else ({reason}); nothing is saved" in found.message
        assert not any("update" in act.command for act in release.give_back(frozenset(), look))


@pytest.mark.parametrize(
    ("look", "absent", "says"),
    [
        (slurm_state(slurm_node("n2", number=2)), True, "Slurm has no node with the address 10.0.0.1"),
        (slurm_state()._replace(nodes={}), False, "it lists no node at all"),
        (
            slurm_state(slurm_node("n2", number=2), slurm_node()._replace(addresses=frozenset())),
            False,
            "whose name has no address now: n1",
        ),
        (slurm_state(slurm_node(), slurm_node("n9")), False, "Slurm has 2 nodes"),
    ],
    ids=["none has it", "no nodes", "no DNS", "two have it"],
)
def test_a_node_is_absent_only_where_slurm_and_dns_leave_no_doubt(look: Any, absent: bool, says: str) -> None:
    """Whoever takes nodes takes what is absent at once, for nothing runs there."""
    found = decide.judge([wish()], look._replace(jobs={"n1": (job(1),)}), SETTINGS)
    assert (found.state, found.absent) == ("unknown", absent)
    assert says in found.message


def test_a_name_without_an_address_is_a_node_without_one() -> None:
    (node,) = slurm.parse_nodes("NodeName=n1 NodeAddr=n1.invalid State=IDLE Partitions=dev,p5").values()
    assert node.addresses == frozenset()


def test_what_is_ready_says_whether_it_is_saved() -> None:
    for how, saved in (("saved", True), ("unsaved", False), ("lost", False)):
        look = slurm_state(slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:r1:{how}"))
        found = decide.judge([wish(backup=False)], look, SETTINGS)
        assert (found.state, found.saved) == ("ready", saved)


def test_what_was_given_up_after_its_tries_stays_so() -> None:
    settings = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
    look = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:lost"))
    assert decide.judge([wish()], look, settings).state == "ready"


def test_at_its_deadline_a_node_goes_back_or_its_jobs_and_those_that_ask_for_it_go_elsewhere() -> None:
    busy = slurm_state(jobs={"n1": (job(1),)})
    assert decide.judge([wish(deadline=NOW)], busy, SETTINGS).keep is False
    free = slurm_state(saving(), backups=backups("COMPLETED"))._replace(naming={"n1": (job(7),)})
    acts = words(decide.judge([wish(deadline=NOW, force=True)], free, SETTINGS).acts)
    assert acts[0] == "scontrol update jobid=7 reqnodelist="
    assert len(words(decide.judge([wish()], free, SETTINGS).acts)) == 1


def test_what_completes_is_not_ended_again() -> None:
    """A batch job that was requeued a moment ago completes, and scancel would keep it from the queue."""
    look = slurm_state(jobs={"n1": (job(1, state="COMPLETING"), job(2))})
    assert words(decide.judge([wish(deadline=NOW, force=True)], look, SETTINGS).acts) == ["scontrol requeue 2"]


@pytest.mark.parametrize(
    ("says", "cancelled"),
    [
        ("Only batch jobs are accepted or processed", True),
        ("Requested operation is presently disabled for job 1", True),
        ("Job is pending execution", False),
        ("slurm_requeue error: Socket timed out on send/recv operation", False),
    ],
)
def test_a_job_is_cancelled_only_where_slurm_cannot_requeue_it(
    monkeypatch: pytest.MonkeyPatch, says: str, cancelled: bool
) -> None:
    ran: list[str] = []

    def run(*command: str, **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[0])
        return subprocess.CompletedProcess(command, command[0] == "scontrol", says)

    monkeypatch.setattr(agent_loop, "run", run)
    (act,) = decide.judge([wish(deadline=NOW, force=True)], slurm_state(jobs={"n1": (job(1),)}), SETTINGS).acts
    said = agent_loop.Agent({"cluster": "c"}, Bucket())._do(act)
    assert ran == ["scontrol", *(["scancel"] if cancelled else [])]
    assert (said == "") is cancelled


def test_what_cannot_be_saved_goes_all_the_same_where_the_file_says_so() -> None:
    settings = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
    found = decide.judge([wish()], slurm_state(backups=backups(*["FAILED"] * 3, said="it is full")), settings)
    assert "it is full" in found.message
    assert words(found.acts)[0].endswith(":lost")


def test_what_somebody_drains_while_it_is_saved_is_not_saved() -> None:
    """A node's health check, for example. Whoever had drained it before is another's business, and a backup that need not be."""
    drained = slurm_node(state="IDLE+DRAIN", reason="NHC: check_fs_mount /fsx")
    look = slurm_state(drained, backups=backups("FAILED"))
    said = decide.judge([wish()], look, SETTINGS)
    assert (said.state, said.saved, said.acts) == ("backup-failed", False, ())
    assert said.message.startswith("could not be saved: was drained by somebody else (NHC")
    assert decide.judge([wish()], slurm_state(drained), SETTINGS).state == "ready"
    assert decide.judge([wish(backup=False)], look, SETTINGS).state == "ready"
    assert decide.judge([wish()], look, CONTINUE).state == "ready"


CONTINUE: dict[str, Any] = {"backup": {**SETTINGS["backup"], "on_failure": "continue"}}
KILL = "Kill task failed"


@pytest.mark.parametrize(
    "reason",
    [
        *(KILL, f"{KILL} (JobId=7 StepId=7.batch)", "Prolog error", "Epilog error", "Prolog/Epilog failure"),
        *("Duplicate jobid", "batch job complete failure", "SlurmdSpoolDir is full", "Job env setup error"),
        *("Not responding", "Node unexpectedly rebooted", "Low RealMemory (reported:1 < 100.00% of configured:2)"),
        *("Low TmpDisk, CoreSpec differ", "gres/gpu count reported lower than configured (7 < 8)"),
    ],
)
def test_slurm_s_own_drain_is_no_person_s_decision(reason: str) -> None:
    """The reasons stand in slurmctld and slurmd of 22.05.8, 24.11.5 and 25.11."""
    drained = slurm_node(state="IDLE+DRAIN", reason=reason)
    assert (drained.foreign, drained.by_slurm) == ("", reason)
    assert words(decide.judge([wish()], slurm_state(drained), SETTINGS).acts)[0].startswith("sbatch ")
    assert slurm_node(state="IDLE+DRAIN", reason=f"{reason}: ask Bob").by_slurm == ""
    assert slurm_node(state="IDLE+FAIL", reason=reason).by_slurm == ""
    assert slurm_node(state="IDLE", reason=reason).by_slurm == ""


@pytest.mark.parametrize(
    "reason", ["Action:Replace", "Action:Reboot", "reboot requested", "kill task failed", "", "mine"]
)
def test_any_other_drain_is(reason: str) -> None:
    drained = slurm_node(state="IDLE+DRAIN", reason=reason)
    assert (drained.foreign, drained.by_slurm) == ("drained", "")
    assert decide.judge([wish()], slurm_state(drained), SETTINGS).state == "ready"


class Acting:
    """A node of Slurm's that does what the agent says, and no more. Backups begin when a test says so."""

    def __init__(self, node: Any, settings: Any = SETTINGS) -> None:
        self.slurm = slurm_state(node)
        self.settings = settings

    @property
    def node(self) -> Any:
        return self.slurm.nodes["n1"]

    def set(self, state: str, reason: str) -> None:
        self.slurm = self.slurm._replace(
            nodes={"n1": self.node._replace(state=frozenset(state.split("+")), reason=reason)}
        )

    def tries(self, *tries: Any) -> None:
        self.slurm = self.slurm._replace(backups={slurm.backup_name(wish(), START): tries})

    def look(self) -> tuple[str, list[str]]:
        """The state, and what is done."""
        found = decide.judge([wish()], self.slurm, self.settings)
        for act in found.acts:
            self.do(act)
        return found.state, [" ".join(act.command[:1] + act.command[3:]) for act in found.acts]

    def do(self, act: Any) -> None:
        said = dict(word.split("=", 1) for word in act.command if "=" in word)
        if act.command[0] == "sbatch":
            name, _, was = said["--job-name"].partition("@")
            tries = self.slurm.backups.get(name, ())
            self.tries(*tries, slurm.Backup(str(len(tries)), "PENDING", "", was))
            self.hold = json.loads(
                ast.literal_eval(act.stdin.rpartition("json.loads(")[2].rstrip().removesuffix(")))"))
            )["hold"]
        elif said.get("state") == "drain":
            self.set("IDLE+DRAIN", said["reason"])
        elif said.get("state") == "resume":
            self.set("IDLE", "")

    def begin(self) -> None:
        """The backup's job, and what it does first."""
        assert not self.node.drained
        self.set("ALLOCATED+DRAIN", self.hold["reason"])
        self.end("RUNNING")

    def end(self, state: str) -> None:
        (tries,) = self.slurm.backups.values()
        self.tries(*tries[:-1], tries[-1]._replace(state=state))
        if state != "RUNNING" and self.node.drained:
            self.set("IDLE+DRAIN", self.node.reason)


def test_a_node_that_slurm_drained_is_opened_for_its_backup_alone_and_goes_back_drained() -> None:
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=KILL))
    assert acting.look()[0] == "backing-up"
    assert acting.look() == ("backing-up", ["scontrol state=resume reason="])
    acting.begin()
    assert acting.look() == ("backing-up", [])
    acting.end("COMPLETED")
    assert acting.look() == ("backing-up", [f"scontrol state=drain reason=cdk-hyperpod:operator:r1:saved:{KILL}"])
    found = decide.judge([wish()], acting.slurm, SETTINGS)
    assert (found.state, found.saved) == ("ready", True)
    restored = f"scontrol update nodename=n1 state=drain reason={KILL}"
    assert words(release.give_back(frozenset(), acting.slurm))[0] == restored


@pytest.mark.parametrize("begins", [True, False], ids=["its hold worked", "it ended before"])
def test_what_slurm_drained_and_cannot_be_saved_is_not_ready_and_stays_drained(begins: bool) -> None:
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=KILL))
    for _ in range(decide.MOST_TRIES):
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
    said = decide.judge([wish()], acting.slurm, SETTINGS)
    assert (
        said.acts == ()
        and "could not be saved in 3 tries: FAILED; was drained by Slurm (Kill task failed)" in said.message
    )
    acting.settings = CONTINUE
    acting.look()
    assert acting.node.reason == f"cdk-hyperpod:operator:r1:lost:{KILL}"
    assert decide.judge([wish()], acting.slurm, CONTINUE).state == "ready"


def test_a_node_that_slurm_drained_and_is_open_for_its_backup_goes_back_drained() -> None:
    look = slurm_state(slurm_node(), backups=backups("PENDING", was=KILL))
    assert words(release.give_back(frozenset(), look))[:2] == [
        "scancel 0",
        f"scontrol update nodename=n1 state=drain reason={KILL}",
    ]


def test_a_node_that_slurm_set_down_and_that_answers_is_saved() -> None:
    acting = Acting(slurm_node(state="DOWN", reason="Node unexpectedly rebooted"))
    assert acting.look()[0] == "backing-up"
    assert acting.look() == ("backing-up", ["scontrol state=resume reason="])
    assert (
        decide.judge([wish()], slurm_state(silent("DOWN", "Node unexpectedly rebooted")), SETTINGS).state
        == "backup-failed"
    )
    assert (
        decide.judge([wish()], slurm_state(silent("DOWN", "Not responding")), CONTINUE)
        .acts[0]
        .command[-1]
        .endswith(":lost")
    )


def test_a_backup_counts_only_while_the_node_is_drained_as_its_job_began() -> None:
    """Whoever has a MAINT reservation of his own, or opens the node, may have had a job there since."""
    for node in (slurm_node(), slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:unsaved")):
        found = decide.judge([wish()], slurm_state(node, backups=backups("COMPLETED")), SETTINGS)
        assert [act.command[0] for act in found.acts] == ["sbatch"]
    # The drain is the second job's.
    again = decide.judge([wish()], slurm_state(saving(), backups=backups("COMPLETED", "RUNNING")), SETTINGS)
    assert (again.state, again.acts) == ("backing-up", ())
    gave_up = decide.judge([wish()], slurm_state(backups=backups(*["COMPLETED"] * 3)), SETTINGS)
    assert (gave_up.state, gave_up.saved) == ("backup-failed", False)
    assert "but the node was opened meanwhile" in gave_up.message


def test_a_backup_that_failed_leaves_no_drain() -> None:
    acting = Acting(slurm_node())
    for _ in range(decide.MOST_TRIES):
        acting.look()
        acting.look()
        acting.begin()
        acting.end("FAILED")
    assert acting.look() == ("backup-failed", ["scontrol state=resume reason="])
    assert acting.look() == ("backup-failed", [])


def test_force_ends_one_task_and_of_a_heterogeneous_job_all_components() -> None:
    jobs = tuple(slurm.Job(name, "alice", "RUNNING") for name in ("7_2", "7_3", "9+1", "9+2", "12"))
    found = decide.judge([wish(deadline=NOW, force=True)], slurm_state(jobs={"n1": jobs}), SETTINGS)
    assert [act.command for act in found.acts] == [("scontrol", "requeue", name) for name in ("7_2", "7_3", "9", "12")]
    assert [act.otherwise for act in found.acts] == [("scancel", name) for name in ("7_2", "7_3", "9", "12")]
    assert "all components of heterogeneous job 9 end with it" in found.message
    assert "heterogeneous" not in decide.judge([wish()], slurm_state(jobs={"n1": jobs}), SETTINGS).message


def test_a_task_is_named_by_its_array_and_never_by_the_number_of_the_last_one() -> None:
    text = (
        "8|al|RUNNING|N/A|n1||7_0\n7|al|RUNNING|N/A|n2||7_3\n9|al|PENDING|N/A||n2|9_[1-9999]\n"
        "11|al|RUNNING|N/A|n1||10+1\n"
    )
    running, naming = slurm.parse_jobs(text, (), lambda names: (names,))
    assert {name: [each.id for each in jobs] for name, jobs in running.items()} == {
        "n1": ["7_0", "10+1"],
        "n2": ["7_3"],
    }
    assert [each.id for each in naming["n2"]] == ["9"]


def test_a_file_without_a_backup_saves_nothing() -> None:
    assert words(decide.judge([wish()], slurm_state(), {"backup": None}).acts)[0].endswith(":unsaved")


def test_the_backup_s_order_is_data_in_its_script() -> None:
    settings = {"backup": {**SETTINGS["backup"], "paths": ["/a'b", '/c"d\\']}}
    (act,) = decide.judge([wish()], slurm_state(), settings).acts
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
    told = [decide.last_try(backup, tries) for tries in range(3)]
    assert told == [{"last": each, "skip": on_unsavable == "skip"} for each in last]


def test_an_owner_s_hook_is_the_backup(loop: Loop) -> None:
    hook = {"hook": "/fsx/admin/save-node", "timeout_minutes": 15, "on_failure": "fail"}
    (act,) = decide.judge([wish()], slurm_state(), {"backup": hook}).acts
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
    (act,) = decide.judge([wish(**change)], slurm_state(), SETTINGS).acts
    order = json.loads(ast.literal_eval(act.stdin.rpartition("json.loads(")[2].rstrip().removesuffix(")))")))
    assert order["seconds"] == seconds


def test_what_nobody_wants_is_given_back_and_the_reservation_last() -> None:
    look = slurm_state(
        slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved"),
        slurm_node("n2", "IDLE+DRAIN", "Action:Replace", number=2),
        reservations={ONE: held(), TWO: held("n2")},
        backups=backups("RUNNING"),
    )
    assert words(release.give_back(frozenset(), look)) == [
        "scontrol update nodename=n1 state=resume reason=",
        "scancel 0",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
        f"scontrol delete reservationname=cdk-hyperpod-{TWO}",
    ]
    assert release.give_back(frozenset({ONE, TWO}), look) == ()


def test_a_node_that_is_opened_loses_our_mark() -> None:
    """Else slurmctld's own drain, which leaves a reason that stands there, would pass for ours."""
    drained = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:unsaved"))
    opened = "scontrol update nodename=n1 state=resume reason="
    waits = drained._replace(backups=backups("PENDING"))
    assert words(decide.judge([wish()], waits, SETTINGS).acts) == [opened]
    assert opened in words(release.give_back(frozenset(), drained))


def test_a_node_that_is_ending_is_not_opened_and_its_replacement_is() -> None:
    drained = slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved")
    assert release.give_back(frozenset({ONE}), slurm_state(drained, instances={})) == ()
    assert words(
        release.give_back(frozenset({ONE}), slurm_state(drained, instances={"i-00000000000000009": "10.0.0.1"}))
    ) == [
        "scontrol update nodename=n1 state=resume reason=",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
    ]


# -- which nodes are never drained


class Files:
    """HyperPod's files on the agent's node, and its address there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "opt/ml/config"
        self.folder.mkdir(parents=True)
        self.write("resource_config.json", InstanceGroups=[self.group(name, n) for n, name in enumerate(self.NAMES, 1)])

    NAMES = ("head", "login", "work")

    @staticmethod
    def group(name: str, number: int) -> dict[str, Any]:
        instance = {"InstanceId": f"i-{number:017x}", "CustomerIpAddress": f"10.0.0.{number}"}
        return {"Name": name, "Instances": [instance]}

    def write(self, name: str, **content: Any) -> None:
        file = self.folder / name
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**before, **content}))

    @staticmethod
    def judge() -> list[str]:
        """What becomes of the three, where all are in Slurm and a login node is in the partition of all alone."""
        instances, barred, untold = hyperpod.read_instances()
        nodes = [slurm_node(f"n{n}", number=n)._replace(partitions=("dev", "p5")[: 1 + (n == 3)]) for n in (1, 2, 3)]
        look = slurm_state(*nodes, instances=instances, barred=barred, untold=untold, reservations={})
        wishes = [wish(instance=each, address=address) for each, address in instances.items()]
        return [decide.judge([each], look, SETTINGS).state for each in wishes]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    monkeypatch.delenv("SAGEMAKER_RESOURCE_CONFIG_PATH", raising=False)
    own = json.dumps([{"addr_info": [{"local": "127.0.0.1"}, {"local": "10.0.0.1"}]}])
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 0, own))
    hyperpod.own_addresses.cache_clear()
    return Files(tmp_path)


WORKERS = [{"instance_group_name": "work"}]


@pytest.mark.parametrize(
    ("slurm_config", "parameters"),
    [
        (None, None),
        ({"PrimaryControllerIp": "10.0.0.1"}, None),
        (None, {"controller_group": "head", "login_group": "login", "worker_groups": WORKERS}),
        ({"PrimaryControllerIp": "10.0.0.1"}, {"controller_group": "head", "worker_groups": WORKERS}),
    ],
)
def test_neither_the_controller_nor_a_login_node_is_drained_whatever_the_files_tell(
    files: Files, slurm_config: Any, parameters: Any
) -> None:
    if slurm_config:
        files.write("resource_config.json", SlurmConfig=slurm_config)
    if parameters:
        files.write("provisioning_parameters.json", **parameters)
    assert files.judge() == ["refused", "refused", "draining"]


def test_an_agent_that_cannot_tell_its_own_node_drains_nothing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 127, "no ip"))
    with pytest.raises(slurm.SlurmError, match="no ip"):
        files.judge()


# -- the loop, with a bucket that has what a test puts there


class Bucket:
    def __init__(self) -> None:
        self.objects: dict[str, bytes | Exception] = {}
        self.time = NOW
        self.short: int | None = None
        """After how many bytes a read ends."""

    def now(self) -> float:
        return self.time

    def get(self, key: str, etag: str, most_bytes: int) -> Any:
        found = self.objects.get(key)
        if isinstance(found, Exception):
            raise found
        if found is not None and etag == str(hash(found)):
            return None
        return load("agent/s3.py").Object(None if found is None else found[: self.short], str(hash(found)))

    def put(self, key: str, content: bytes) -> None:
        self.objects[key] = content


class Loop:
    """An agent to which Slurm shows `slurm`; it notes what it would do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket, self.slurm = Bucket(), slurm_state(reservations={})
        self.done: list[str] = []
        self.agent = agent_loop.Agent({"cluster": "c", **SETTINGS}, self.bucket)
        monkeypatch.setattr(agent_loop, "read_slurm", lambda now: self.slurm._replace(now=now))
        monkeypatch.setattr(self.agent, "_do", self._do)

    def _do(self, act: Any) -> str:
        self.done.append(" ".join(act.command))
        return ""

    def ask(self, content: Any, writer: str = "operator") -> None:
        self.bucket.objects[f"c/requests/{writer}.json"] = content

    def look(self) -> dict[str, Any]:
        self.done.clear()
        self.agent.look()
        found: dict[str, Any] = json.loads(self.bucket.objects["c/status.json"])  # type: ignore[arg-type]
        return found


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


HELD = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved"))


def test_what_a_backup_has_left_out_is_in_the_status_also_when_slurm_and_hyperpod_know_no_more(loop: Loop) -> None:
    loop.ask(request(wish_json()))
    names = 'absent /no/such; 2 files not saved: "/w/a: b" of alice (3.0 kB) was written while it was saved'
    said = f"saved 4 files, 3.0 MB; 2 files left out (alice 2); 1 path absent: {names}"
    loop.slurm = HELD._replace(backups=backups("FAILED", "COMPLETED", said=said))
    status = loop.look()
    assert status["left_out"] == {ONE: 2}
    message = f"is saved; 2 files left out (alice 2); 1 path absent: {names}"
    assert status["nodes"][ONE]["message"] == message
    # Slurm has forgotten the job.
    loop.slurm = HELD
    assert loop.look()["nodes"][ONE]["message"] == message
    # The node is deleted.
    loop.slurm = HELD._replace(instances={TWO: "10.0.0.2"})
    assert loop.look()["left_out"] == {ONE: 2}
    loop.ask(request())
    assert loop.look()["left_out"] == {ONE: 2}
    # It went back to work instead.
    loop.slurm = slurm_state(reservations={})
    assert loop.look()["left_out"] == {}


@pytest.mark.parametrize("was", ["", KILL])
def test_an_agent_that_starts_anew_still_says_how_many_files_a_backup_has_left_out(loop: Loop, was: str) -> None:
    """Slurm has forgotten the backup's job by then: the drain's reason has the count."""
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:r1:saving{f':{was}' if was else ''}"))
    acting.tries(slurm.Backup("1", "COMPLETED", "saved 4 files, 3.0 MB; 2 files left out (alice 2): more", was))
    acting.look()
    assert acting.node.reason == f"cdk-hyperpod:operator:r1:saved-2{f':{was}' if was else ''}"
    loop.ask(request(wish_json()))
    loop.slurm = acting.slurm._replace(backups={})
    status = loop.look()
    said = "is saved; 2 files left out; manifest.json at the target says what was left out"
    assert (status["nodes"][ONE]["saved"], status["nodes"][ONE]["message"]) == (True, said)
    assert status["left_out"] == {ONE: 2}
    # The node is deleted.
    loop.slurm = loop.slurm._replace(instances={TWO: "10.0.0.2"}, nodes={}, reservations={})
    assert loop.look()["left_out"] == {ONE: 2}
    # It goes back to work instead.
    restored = f"state=drain reason={was}" if was else "state=resume reason="
    assert words(release.give_back(frozenset(), acting.slurm))[0] == f"scontrol update nodename=n1 {restored}"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("saved 1 file, 100.0 kB", "is saved"),
        ("saved 1 file, 100.0 kB: ended process 7 (cat) of alice", "is saved; ended process 7 (cat) of alice"),
        ("saved 1 file, 1.0 kB; 1 mount left out: mounted /a", "is saved; 1 mount left out: mounted /a"),
        ("3 files left out", "is saved; manifest.json at the target says what was left out"),
        ("", "is saved; manifest.json at the target says what was left out"),
    ],
)
def test_what_is_not_in_a_backup_is_what_its_job_said(loop: Loop, said: str, message: str) -> None:
    loop.ask(request(wish_json()))
    loop.slurm = HELD._replace(backups=backups("COMPLETED", said=said))
    status = loop.look()
    assert status["nodes"][ONE]["message"] == message
    assert status["left_out"] == {}


@pytest.mark.parametrize("trouble", [b"{half", agent_loop.S3Error("GET: 503")], ids=["broken", "away"])
def test_what_cannot_be_read_ends_no_drain_before_its_lease_does(loop: Loop, trouble: Any) -> None:
    loop.slurm = HELD
    loop.ask(request(wish_json()))
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    loop.ask(trouble)
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    assert loop.done == []
    loop.bucket.time += 121
    loop.look()
    assert loop.done == [
        "scontrol update nodename=n1 state=resume reason=",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
    ]


@pytest.mark.parametrize("trouble", [b"{half", agent_loop.S3Error("GET: 503")], ids=["broken", "away"])
def test_an_agent_that_starts_anew_gives_nothing_back_before_it_knows_what_is_wanted(loop: Loop, trouble: Any) -> None:
    loop.slurm = HELD
    loop.ask(trouble)
    loop.look()
    assert loop.done == []
    # An object is gone two days after it was written, at the latest.
    del loop.bucket.objects["c/requests/operator.json"]
    loop.look()
    assert len(loop.done) == 2


def test_what_is_older_than_any_lease_is_given_back_though_nobody_can_be_asked(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent started while it may not read, and stays so. A few failures at its start prove nothing."""
    began = time.time()
    starts = {ONE: began - drain_protocol.MAX_AHEAD_S - 60, TWO: began - drain_protocol.MAX_AHEAD_S + 600}
    ours = {
        name: held(f"n{number}", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start)))
        for number, (name, start) in enumerate(starts.items(), 1)
    }
    state, reason = "IDLE+DRAIN", "cdk-hyperpod:operator:r1:saved"
    loop.slurm = slurm_state(
        slurm_node("n1", state, reason), slurm_node("n2", state, reason, number=2), reservations=ours
    )
    for writer in drain_protocol.WRITERS:
        loop.ask(agent_loop.S3Error("GET: AccessDenied"), writer)
    loop.look()
    assert loop.done == []
    loop.agent.began -= agent_loop.UNREAD_S + 1
    loop.look()
    assert loop.done == [
        "scontrol update nodename=n1 state=resume reason=",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
    ]


@pytest.mark.parametrize("start", ["", "Unknown", "2026-13-45T00:00:00"])
def test_a_reservation_without_a_beginning_is_of_no_age(start: str) -> None:
    assert release.release_old(frozenset(), slurm_state(reservations={ONE: held(start=start)})) == ()


def long_ago(seconds: float = 60) -> str:
    """When a lease began that is over by so many seconds, as Slurm writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - drain_protocol.MAX_AHEAD_S - seconds))


def test_what_a_known_request_wants_stays_though_it_is_old_and_the_other_request_cannot_be_read(loop: Loop) -> None:
    """A deployment renews its lease. Its node was "ready, saved" in the status, and took jobs all the same."""
    loop.slurm = HELD._replace(reservations={ONE: held(start=long_ago())})
    loop.ask(agent_loop.S3Error("GET: AccessDenied"))
    loop.ask(request(wish_json()), "deployment")
    loop.agent.began -= agent_loop.UNREAD_S + 1
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    assert loop.done == []
    loop.bucket.time += 121
    loop.look()
    assert loop.done[0] == "scontrol update nodename=n1 state=resume reason="


@pytest.mark.parametrize(("seconds", "acts"), [(60, 1), (-600, 0)])
def test_an_old_drain_without_a_reservation_goes_back_though_nobody_can_be_asked(
    loop: Loop, seconds: float, acts: int
) -> None:
    text = (
        "NodeName=n1 NodeAddr=10.0.0.1 State=IDLE+DRAIN Partitions=p5 "
        f"Reason=cdk-hyperpod:operator:r1:saving [root@{long_ago(seconds)}] Comment=a"
    )
    loop.slurm = slurm_state(reservations={}, nodes=slurm.parse_nodes(text))
    loop.ask(agent_loop.S3Error("GET: AccessDenied"))
    loop.agent.began -= agent_loop.UNREAD_S + 1
    loop.look()
    assert loop.done == ["scontrol update nodename=n1 state=resume reason="] * acts


def test_an_answer_that_sets_the_clock_back_refuses_no_request(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard fails a deployment whose request the agent refuses."""
    get = loop.bucket.get

    def late(*asked: Any) -> Any:
        loop.bucket.time -= drain_protocol.MAX_AHEAD_S
        return get(*asked)

    loop.ask(request(wish_json()), "deployment")
    monkeypatch.setattr(loop.bucket, "get", late)
    assert loop.look()["refused"] == {}
    loop.ask(request(wish_json(expires=loop.bucket.time + 2 * drain_protocol.MAX_AHEAD_S)), "deployment")
    assert "26 h ahead" in loop.look()["refused"]["deployment"]


class Killed(BaseException):
    """The agent is, between two commands."""


class GivenBack(Acting):
    """A node whose backup's job is about to drain it while nobody wants it any more. Slurm deletes no reservation of a live job."""

    def __init__(self, was: str, begins: int, dies: int) -> None:
        super().__init__(slurm_node())
        self.tries(slurm.Backup("1", "RUNNING", "", was))
        self.was, self.begins, self.dies, self.count = was, begins, dies, 0

    def drain(self) -> None:
        """What the job asked of slurmctld, be it ended since or not."""
        if self.count == self.begins:
            self.set("IDLE+DRAIN", f"cdk-hyperpod:operator:r1:saving{f':{self.was}' if self.was else ''}")

    def command(self, act: Any) -> str:
        if self.count == self.dies:
            self.dies = -1
            raise Killed
        live = any(job.live for tries in self.slurm.backups.values() for job in tries)
        if act.command[0] == "scancel":
            self.end("CANCELLED")
        elif act.command[:2] == ("scontrol", "delete"):
            if live:
                return "Requested reservation is in use"
            self.slurm = self.slurm._replace(reservations={})
        else:
            self.do(act)
        self.count += 1
        self.drain()
        return ""


@pytest.mark.parametrize("was", ["", KILL])
@pytest.mark.parametrize("begins", range(5))
@pytest.mark.parametrize("dies", range(5))
def test_a_backup_that_begins_while_its_node_is_given_back_leaves_no_drain_whenever_the_agent_is_killed(
    monkeypatch: pytest.MonkeyPatch, was: str, begins: int, dies: int
) -> None:
    """Its request is gone. The drain takes effect after so many commands of the agent's, which is killed after so many."""
    given = GivenBack(was, begins, dies)
    given.drain()
    monkeypatch.setattr(agent_loop, "read_slurm", lambda now: given.slurm._replace(now=now))
    for _ in range(6):
        looking = agent_loop.Agent({"cluster": "c", **SETTINGS}, Bucket())
        monkeypatch.setattr(looking, "_do", given.command)
        with contextlib.suppress(Killed):
            looking.look()
        if given.count < begins and not given.slurm.reservations:
            given.count = begins
            given.drain()
    assert given.slurm.reservations == {}
    assert (given.node.drained, given.node.reason) == (bool(was), was)
    assert release.give_back(frozenset(), given.slurm) == ()


def test_a_job_that_a_look_had_no_time_to_end_is_not_still_there(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 10,000 tasks, for example."""
    clock = [0.0]
    monkeypatch.setattr(agent_loop.time, "monotonic", lambda: clock[0])

    def slow(act: Any) -> str:
        clock[0] += agent_loop.ACT_S + 1
        return loop._do(act)

    monkeypatch.setattr(loop.agent, "_do", slow)
    loop.ask(request(wish_json(deadline=NOW - 1, on_timeout="force")))
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2))})
    loop.look()
    assert loop.done == ["scontrol requeue 1"]
    loop.slurm = slurm_state(jobs={"n1": (job(2),)})
    assert "still there" not in loop.look()["nodes"][ONE]["message"]
    assert "job 2 is still there" in loop.look()["nodes"][ONE]["message"]


def test_a_job_that_does_not_end_is_told_of_once(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """22.05 takes the number of a task for done, and ends nothing."""
    monkeypatch.setattr(agent_loop, "run", lambda *command, **_: subprocess.CompletedProcess(command, 0, ""))
    monkeypatch.setattr(loop.agent, "_do", functools.partial(agent_loop.Agent._do, loop.agent))
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2))})
    loop.ask(request(wish_json(deadline=NOW - 1, on_timeout="force")))
    assert "still" not in loop.look()["nodes"][ONE]["message"]
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2, state="COMPLETING"))})
    for _ in range(5):
        said = loop.look()["nodes"][ONE]["message"]
        assert "job 1 is still there after it was requeued or cancelled" in said and "job 2 is" not in said
    lines = [line for line in capsys.readouterr().err.splitlines() if "job 1" in line]
    assert len(lines) == 2 and "job 1 is still there" in lines[1]
    assert loop.agent.look() is False  # nobody looks every second
    loop.slurm = slurm_state()
    loop.look()
    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    assert "still" not in loop.look()["nodes"][ONE]["message"]


def test_a_job_on_several_nodes_is_ended_once(loop: Loop) -> None:
    nodes = slurm_node(), slurm_node("n2", number=2)
    loop.slurm = slurm_state(
        *nodes, reservations={ONE: held(), TWO: held("n2")}, jobs={"n1": (job(1),), "n2": (job(1),)}
    )
    late = {"deadline": NOW - 1, "on_timeout": "force"}
    loop.ask(request(wish_json(**late), wish_json(id=TWO, ip="10.0.0.2", **late)))
    loop.look()
    assert loop.done == ["scontrol requeue 1"]


@pytest.mark.parametrize(
    "said",
    [
        'error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": gone\nProtocol authentication error\n',
        "scontrol: error: Munge decode failed: Expired credential\nslurm_load_node error: Protocol authentication error\n",
    ],
)
def test_without_munge_the_problem_names_it(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 1, said))
    with pytest.raises(slurm.SlurmError, match=r"Munge .*; look at `systemctl status munge`, and start it again"):
        slurm.run_slurm("scontrol", "show", "node")


@pytest.mark.parametrize("trouble", [b"{half", agent_loop.S3Error("GET: 503")], ids=["broken", "away"])
@pytest.mark.parametrize("writer", drain_protocol.WRITERS)
def test_an_agent_that_gives_nothing_back_says_so(loop: Loop, trouble: Any, writer: str) -> None:
    other = next(each for each in drain_protocol.WRITERS if each != writer)
    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    loop.ask(request(wish_json(deadline=NOW - 1)), other)
    loop.ask(trouble, writer)
    said = loop.look()
    assert loop.done == []
    assert said["nodes"][ONE]["state"] == "timed-out"
    assert said["nodes"][ONE]["message"] == "is past its deadline, and still held; jobs: 1 of alice"
    mend = f"gives nothing back until the {writer}'s request is written anew, by "
    assert said["problem"].startswith(mend if trouble == b"{half" else "GET: 503")
    loop.ask(request(), writer)
    said = loop.look()
    assert loop.done == [f"scontrol delete reservationname=cdk-hyperpod-{ONE}"]
    assert said["nodes"][ONE]["message"] == "went back to work at its deadline; jobs: 1 of alice"
    assert said["problem"] == ""
    # What was understood before a request broke stands, and all else is given back.
    loop.ask(b"{half", writer)
    assert loop.look()["problem"] == ""
    assert len(loop.done) == 1


def test_a_request_that_was_read_in_part_is_read_again(loop: Loop) -> None:
    loop.slurm = slurm_state(reservations={})
    whole = request(wish_json())
    loop.bucket.short = len(whole) - 9
    loop.ask(whole)
    assert "is not JSON" in loop.look()["refused"]["operator"]
    loop.bucket.short = None
    said = loop.look()
    assert said["refused"] == {}
    assert said["nodes"][ONE]["state"] == "draining"
    # And what was understood once may come back with the etag that it had.
    loop.ask(b"{half")
    assert "is not JSON" in loop.look()["refused"]["operator"]
    loop.ask(whole)
    assert loop.look()["refused"] == {}


def test_a_status_says_of_a_job_whose_it_is_and_of_a_node_whether_it_is_saved(loop: Loop) -> None:
    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    loop.ask(request(wish_json()))
    assert loop.look()["nodes"][ONE]["jobs"] == [{"id": "1", "user": "alice"}]
    loop.slurm = HELD
    assert loop.look()["nodes"][ONE]["saved"] is True


def test_a_status_says_who_has_jobs_and_names_some(loop: Loop) -> None:
    loop.slurm = slurm_state(jobs={"n1": tuple(job(number) for number in range(9)), "n9": (job(1),)})
    busy = loop.look()["busy"]
    assert list(busy) == [ONE]
    assert busy[ONE] == [{"id": str(number), "user": "alice"} for number in range(6)]


def test_sixteen_nodes_are_the_work_of_one_look(loop: Loop) -> None:
    names = {f"i-{number:017x}": f"10.0.0.{number}" for number in range(1, 17)}
    nodes = [slurm_node(f"n{number}", number=number) for number in range(1, 17)]
    loop.slurm = slurm_state(*nodes, instances=names, reservations={})
    loop.ask(request(*(wish_json(id=name, ip=ip) for name, ip in names.items())), "deployment")
    said = loop.look()
    assert {one["state"] for one in said["nodes"].values()} == {"draining"} and len(said["nodes"]) == 16
    assert len(loop.done) == len(set(loop.done)) == 16
    ours = {name: held(f"n{number}") for number, name in enumerate(names, 1)}
    loop.slurm = slurm_state(*nodes, instances=names, reservations=ours)
    loop.look()
    assert len(loop.done) == 16 and all(command.startswith("sbatch ") for command in loop.done)


class Addresses(frozenset[str]):
    """Of a node that must not be asked whether an address is its own: whoever asks one asks all, for each of them."""

    def __contains__(self, address: object) -> bool:
        raise AssertionError("all nodes are gone through for each node")


def test_as_many_nodes_as_a_deployment_may_take_are_the_work_of_one_look(loop: Loop) -> None:
    places = {f"i-{n:017x}": f"10.100.{100 + n // 100}.{100 + n % 100}" for n in range(MAX_NODES)}
    nodes = [slurm_node(f"n{name}")._replace(addresses=Addresses({ip})) for name, ip in places.items()]
    loop.slurm = slurm_state(*nodes, instances=places, reservations={}, jobs={node.name: (job(1),) for node in nodes})
    exact = NOW + 0.123456
    longest = {"request": "r" * 64, "deadline": exact, "expires": exact + 1, "limit": exact, "on_timeout": "force"}
    asked = request(*(wish_json(id=name, ip=ip, **longest, backup=False) for name, ip in places.items()))
    loop.ask(asked, "deployment")
    said = loop.look()
    assert len(loop.done) == len(said["nodes"]) == MAX_NODES
    # Whoever reads the status reads 8 MiB of it.
    assert len(json.dumps(said)) < 6 * 1024**2


def test_the_longest_status_is_no_longer_than_the_guard_reads(loop: Loop) -> None:
    places = {f"i-{n:017x}": f"10.100.{100 + n // 100}.{100 + n % 100}" for n in range(MAX_NODES)}
    nodes = [slurm_node(f"n{name}")._replace(addresses=frozenset({ip})) for name, ip in places.items()]
    many = tuple(slurm.Job(f"4294967295_{n}", "u" * 64, "RUNNING") for n in range(4_000_000, 4_000_030))
    loop.slurm = slurm_state(*nodes, instances=places, reservations={}, jobs={node.name: many for node in nodes})
    for writer in drain_protocol.WRITERS:
        wishes = (wish_json(id=name, ip=ip, request="r" * 64) for name, ip in places.items())
        content = json.dumps({"schema": 1, "id": "q" * 64, "nodes": list(wishes)}, separators=(",", ":")).encode()
        loop.ask(content, writer)
    said = loop.look()
    assert len(loop.bucket.objects["c/status.json"]) <= MAX_STATUS_BYTES  # type: ignore[arg-type]
    assert len(said["nodes"]) == len(said["busy"]) == MAX_NODES
    assert said["nodes"][ONE]["state"] == "draining"


def test_a_look_at_as_many_nodes_as_there_may_be_needs_less_memory_than_the_unit_gives() -> None:
    """In a process of its own: the agent reads what scontrol and squeue say of 6,758 nodes with two jobs each."""
    limit_mib = int(re.findall(r"MemoryMax=(\d+)M", load("steps/45_drain.py").SERVICE)[0])
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root}/tests"}
    command = [sys.executable, "-m", "helpers.lifecycle.large"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    # scontrol and squeue run beside it, one at a time, and have as many nodes or jobs in memory.
    assert int(done.stdout) < limit_mib * 0.6


def test_a_look_that_has_much_to_do_tells_before_it_is_taken_for_dead(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"i-{number:017x}": f"10.0.0.{number}" for number in range(1, 17)}
    nodes = [slurm_node(f"n{number}", number=number) for number in range(1, 17)]
    loop.slurm = slurm_state(*nodes, instances=names, reservations={})
    loop.ask(request(*(wish_json(id=name, ip=ip) for name, ip in names.items())), "deployment")
    clock = [0.0]
    monkeypatch.setattr(agent_loop.time, "monotonic", lambda: clock[0])

    def slow(act: Any) -> str:
        clock[0] += 10
        return loop._do(act)

    monkeypatch.setattr(loop.agent, "_do", slow)
    assert len(loop.look()["nodes"]) == 16
    assert clock[0] == len(loop.done) * 10 == 40
    assert loop.agent.look() is True


@pytest.mark.parametrize("off_s", [-300, 300])
def test_a_clock_that_is_five_minutes_off_changes_nothing(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    """The controller's. Deadlines and leases are counted by S3's, and the status says the time by it."""
    server = serve_bucket(0, tmp_path, clock_offset_s=-off_s)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in (("ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}"), ("ACCESS_KEY_ID", "none")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    loop.agent.bucket = load("agent/s3.py").Bucket("b", "us-west-2")
    asked = tmp_path / "c/requests/operator.json"
    asked.parent.mkdir(parents=True)

    def look(deadline: float, expires: float) -> Any:
        """What becomes of a node with a job whose times are so many seconds away, truly."""
        now = time.time() - off_s
        asked.write_bytes(request(wish_json(deadline=now + deadline, expires=now + expires)))
        loop.done.clear()
        loop.agent.look()
        said = json.loads((tmp_path / "c/status.json").read_text())
        assert abs(said["beat"] - now) < 30
        return said["nodes"].get(ONE, {}).get("state")

    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    assert look(60, 120) == "draining" and loop.done == []
    assert look(-60, 120) == "timed-out"
    assert look(-120, -60) is None
    assert loop.done[-1] == f"scontrol delete reservationname=cdk-hyperpod-{ONE}"
    server.shutdown()
    server.server_close()


def test_a_status_is_written_when_it_changes(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.look()
    del loop.bucket.objects["c/status.json"]
    loop.agent.look()
    assert "c/status.json" not in loop.bucket.objects
    monkeypatch.setattr(agent_loop.time, "monotonic", lambda: loop.agent.written_at + agent_loop.BEAT_S)
    assert loop.look()["beat"] == NOW


def test_an_idle_agent_asks_fourteen_times_a_minute_at_most(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty looks are ten minutes, for somebody has jobs that come and go all the time."""
    asked: list[str] = []

    def counted(call: Any) -> Any:
        def count(key: str, *given: Any) -> Any:
            asked.append(key)
            return call(key, *given)

        return count

    for name in ("get", "put"):
        monkeypatch.setattr(loop.bucket, name, counted(getattr(loop.bucket, name)))
    began = agent_loop.time.monotonic()
    for look in range(60):
        monkeypatch.setattr(agent_loop.time, "monotonic", lambda now=began + look * agent_loop.POLL_S: now)
        loop.slurm = slurm_state(reservations={}, jobs={"n1": (job(look),)})
        loop.agent.look()
    assert agent_loop.POLL_S == 10
    assert asked.count("c/status.json") == 10
    assert len(asked) <= 14 * 10


def test_an_agent_that_ends_before_it_tells_says_the_same_when_it_begins_anew(loop: Loop) -> None:
    class Ended(BaseException):
        pass

    def end(key: str, content: bytes) -> None:
        raise Ended

    loop.slurm = HELD
    loop.ask(request(wish_json()))
    put, loop.bucket.put = loop.bucket.put, end  # type: ignore[method-assign]
    with pytest.raises(Ended):
        loop.look()
    loop.bucket.put = put  # type: ignore[method-assign]
    loop.agent = agent_loop.Agent({"cluster": "c", **SETTINGS}, loop.bucket)
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    assert loop.done == []


def test_while_slurm_is_silent_nodes_stay_what_they_were(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.slurm = HELD
    loop.ask(request(wish_json()))
    before = loop.look()["nodes"]

    def away(now: float) -> Any:
        raise slurm.SlurmError("`scontrol`: Unable to contact slurm controller")

    monkeypatch.setattr(agent_loop, "read_slurm", away)
    said = loop.look()
    assert said["nodes"] == before
    assert "Unable to contact" in said["problem"]
