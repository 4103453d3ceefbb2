"""What the status says of jobs and nodes, and how long it is."""

from __future__ import annotations

import json

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import MAX_NODES, MAX_STATUS_BYTES
from helpers.lifecycle.agent import (
    HELD,
    KILL,
    NOW,
    ONE,
    TWO,
    Acting,
    Loop,
    backups,
    job,
    node_request_json,
    request,
    slurm_node,
    slurm_state,
    words,
)
from helpers.lifecycle.programs import load

agent_loop = load("agent/loop.py")
release = load("agent/release.py")
slurm = load("agent/slurm.py")


def test_files_left_out_of_a_backup_stay_in_the_status_after_slurm_has_purged_the_job(loop: Loop) -> None:
    loop.ask(request(node_request_json()))
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
def test_a_restarted_agent_still_reports_how_many_files_a_backup_left_out(loop: Loop, was: str) -> None:
    """Slurm has forgotten the backup's job by then: the drain's reason has the count."""
    acting = Acting(slurm_node(state="IDLE+DRAIN", reason=f"cdk-hyperpod:operator:r1:saving{f':{was}' if was else ''}"))
    acting.tries(slurm.Backup("1", "COMPLETED", "saved 4 files, 3.0 MB; 2 files left out (alice 2): more", was))
    acting.look()
    assert acting.node.reason == f"cdk-hyperpod:operator:r1:saved-2{f':{was}' if was else ''}"
    loop.ask(request(node_request_json()))
    loop.slurm = acting.slurm._replace(backups={})
    status = loop.look()
    said = f"is saved; 2 files left out; {slurm.UNSAID}"
    assert (status["nodes"][ONE]["saved"], status["nodes"][ONE]["message"]) == (True, said)
    assert status["left_out"] == {ONE: 2}
    # The node is deleted.
    loop.slurm = loop.slurm._replace(instances={TWO: "10.0.0.2"}, nodes={}, reservations={})
    assert loop.look()["left_out"] == {ONE: 2}
    # It goes back to work instead.
    restored = f"state=drain reason={was}" if was else "state=resume reason="
    assert words(release.release_nodes(frozenset(), acting.slurm))[0] == f"scontrol update nodename=n1 {restored}"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("saved 1 file, 100.0 kB", "is saved"),
        ("saved 1 file, 100.0 kB: ended process 7 (cat) of alice", "is saved; ended process 7 (cat) of alice"),
        ("saved 1 file, 1.0 kB; 1 mount left out: mounted /a", "is saved; 1 mount left out: mounted /a"),
        ("3 files left out", f"is saved; {slurm.UNSAID}"),
        ("", f"is saved; {slurm.UNSAID}"),
    ],
)
def test_the_status_repeats_what_the_backup_job_reported(loop: Loop, said: str, message: str) -> None:
    loop.ask(request(node_request_json()))
    loop.slurm = HELD._replace(backups=backups("COMPLETED", said=said))
    status = loop.look()
    assert status["nodes"][ONE]["message"] == message
    assert status["left_out"] == {}


def test_a_status_says_of_a_job_whose_it_is_and_of_a_node_whether_it_is_saved(loop: Loop) -> None:
    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    loop.ask(request(node_request_json()))
    assert loop.look()["nodes"][ONE]["jobs"] == [{"id": "1", "user": "alice"}]
    loop.slurm = HELD
    assert loop.look()["nodes"][ONE]["saved"] is True


def test_a_status_says_who_has_jobs_and_names_some(loop: Loop) -> None:
    loop.slurm = slurm_state(jobs={"n1": tuple(job(number) for number in range(9)), "n9": (job(1),)})
    busy = loop.look()["busy"]
    assert list(busy) == [ONE]
    assert busy[ONE] == [{"id": str(number), "user": "alice"} for number in range(6)]


def test_the_longest_status_is_no_longer_than_the_guard_reads(loop: Loop) -> None:
    places = {f"i-{n:017x}": f"10.100.{100 + n // 100}.{100 + n % 100}" for n in range(MAX_NODES)}
    nodes = [slurm_node(f"n{name}")._replace(addresses=frozenset({ip})) for name, ip in places.items()]
    many = tuple(slurm.Job(f"4294967295_{n}", "u" * 64, "RUNNING") for n in range(4_000_000, 4_000_030))
    loop.slurm = slurm_state(*nodes, instances=places, reservations={}, jobs={node.name: many for node in nodes})
    for writer in drain_protocol.WRITERS:
        node_requests = (node_request_json(id=name, ip=ip, request="r" * 64) for name, ip in places.items())
        content = json.dumps(
            {"schema": 1, "id": "q" * 64, "nodes": list(node_requests)}, separators=(",", ":")
        ).encode()
        loop.ask(content, writer)
    said = loop.look()
    assert len(loop.bucket.objects["c/status.json"]) <= MAX_STATUS_BYTES  # type: ignore[arg-type]
    assert len(said["nodes"]) == len(said["busy"]) == MAX_NODES
    assert said["nodes"][ONE]["state"] == "draining"


def test_a_status_is_written_when_it_changes(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.look()
    del loop.bucket.objects["c/status.json"]
    loop.agent.look()
    assert "c/status.json" not in loop.bucket.objects
    monkeypatch.setattr(agent_loop.time, "monotonic", lambda: loop.agent.written_at + agent_loop.BEAT_S)
    assert loop.look()["beat"] == NOW
