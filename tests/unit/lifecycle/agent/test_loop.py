"""The agent's loop, with a bucket that has what a test puts there."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from helpers.lifecycle.agent import (
    HELD,
    NOW,
    ONE,
    SETTINGS,
    TWO,
    Bucket,
    Loop,
    held,
    job,
    node_request,
    node_request_json,
    request,
    slurm_node,
    slurm_state,
)
from helpers.lifecycle.programs import load
from helpers.slurm.bucket import serve as serve_bucket

agent_loop = load("agent/loop.py")
decide = load("agent/decide.py")
slurm = load("agent/slurm.py")


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
    (act,) = decide.decide_node(
        [node_request(deadline=NOW, force=True)], slurm_state(jobs={"n1": (job(1),)}), SETTINGS
    ).acts
    said = agent_loop.Agent({"cluster": "c"}, Bucket())._do(act)
    assert ran == ["scontrol", *(["scancel"] if cancelled else [])]
    assert (said == "") is cancelled


@pytest.mark.parametrize("trouble", [b"{half", agent_loop.S3Error("GET: 503")], ids=["broken", "away"])
def test_a_request_that_cannot_be_read_ends_no_drain_before_its_lease(loop: Loop, trouble: Any) -> None:
    loop.slurm = HELD
    loop.ask(request(node_request_json()))
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
def test_a_restarted_agent_releases_no_node_before_it_has_read_the_requests(loop: Loop, trouble: Any) -> None:
    loop.slurm = HELD
    loop.ask(trouble)
    loop.look()
    assert loop.done == []
    # An object is gone two days after it was written, at the latest.
    del loop.bucket.objects["c/requests/operator.json"]
    loop.look()
    assert len(loop.done) == 2


def test_an_answer_that_sets_the_clock_back_refuses_no_request(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard fails a deployment whose request the agent refuses."""
    get = loop.bucket.get

    def late(*asked: Any) -> Any:
        loop.bucket.time -= drain_protocol.MAX_AHEAD_S
        return get(*asked)

    loop.ask(request(node_request_json()), "deployment")
    monkeypatch.setattr(loop.bucket, "get", late)
    assert loop.look()["refused"] == {}
    loop.ask(request(node_request_json(expires=loop.bucket.time + 2 * drain_protocol.MAX_AHEAD_S)), "deployment")
    assert "26 h ahead" in loop.look()["refused"]["deployment"]


def test_a_job_that_a_look_had_no_time_to_end_is_not_still_there(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 10,000 tasks, for example."""
    clock = [0.0]
    monkeypatch.setattr(agent_loop.time, "monotonic", lambda: clock[0])

    def slow(act: Any) -> str:
        clock[0] += agent_loop.ACT_S + 1
        return loop._do(act)

    monkeypatch.setattr(loop.agent, "_do", slow)
    loop.ask(request(node_request_json(deadline=NOW - 1, on_timeout="force")))
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2))})
    loop.look()
    assert loop.done == ["scontrol requeue 1"]
    loop.slurm = slurm_state(jobs={"n1": (job(2),)})
    assert "still exists" not in loop.look()["nodes"][ONE]["message"]
    assert "job 2 still exists" in loop.look()["nodes"][ONE]["message"]


def test_a_job_that_does_not_end_is_reported_once(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """22.05 takes the number of a task for done, and ends nothing."""
    monkeypatch.setattr(agent_loop, "run", lambda *command, **_: subprocess.CompletedProcess(command, 0, ""))
    monkeypatch.setattr(loop.agent, "_do", functools.partial(agent_loop.Agent._do, loop.agent))
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2))})
    loop.ask(request(node_request_json(deadline=NOW - 1, on_timeout="force")))
    assert "still" not in loop.look()["nodes"][ONE]["message"]
    loop.slurm = slurm_state(jobs={"n1": (job(1), job(2, state="COMPLETING"))})
    for _ in range(5):
        said = loop.look()["nodes"][ONE]["message"]
        assert "job 1 still exists" in said and "job 2 " not in said
    lines = [line for line in capsys.readouterr().err.splitlines() if "job 1" in line]
    assert len(lines) == 2 and "job 1 still exists" in lines[1]
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
    loop.ask(request(node_request_json(**late), node_request_json(id=TWO, ip="10.0.0.2", **late)))
    loop.look()
    assert loop.done == ["scontrol requeue 1"]


@pytest.mark.parametrize("trouble", [b"{half", agent_loop.S3Error("GET: 503")], ids=["broken", "away"])
@pytest.mark.parametrize("writer", drain_protocol.WRITERS)
def test_an_agent_that_gives_nothing_back_says_so(loop: Loop, trouble: Any, writer: str) -> None:
    other = next(each for each in drain_protocol.WRITERS if each != writer)
    loop.slurm = slurm_state(jobs={"n1": (job(1),)})
    loop.ask(request(node_request_json(deadline=NOW - 1)), other)
    loop.ask(trouble, writer)
    said = loop.look()
    assert loop.done == []
    assert said["nodes"][ONE]["state"] == "timed-out"
    assert "still reserved" in said["nodes"][ONE]["message"]
    mend = f"releases no nodes until the {writer}'s request "
    assert said["problem"].startswith(mend if trouble == b"{half" else "GET: 503")
    loop.ask(request(), writer)
    said = loop.look()
    assert loop.done == [f"scontrol delete reservationname=cdk-hyperpod-{ONE}"]
    assert "released" in said["nodes"][ONE]["message"]
    assert said["problem"] == ""
    # What was understood before a request broke stands, and all else is given back.
    loop.ask(b"{half", writer)
    assert loop.look()["problem"] == ""
    assert len(loop.done) == 1


def test_a_request_that_was_read_in_part_is_read_again(loop: Loop) -> None:
    loop.slurm = slurm_state(reservations={})
    whole = request(node_request_json())
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


def test_sixteen_nodes_are_the_work_of_one_look(loop: Loop) -> None:
    names = {f"i-{number:017x}": f"10.0.0.{number}" for number in range(1, 17)}
    nodes = [slurm_node(f"n{number}", number=number) for number in range(1, 17)]
    loop.slurm = slurm_state(*nodes, instances=names, reservations={})
    loop.ask(request(*(node_request_json(id=name, ip=ip) for name, ip in names.items())), "deployment")
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
    asked = request(*(node_request_json(id=name, ip=ip, **longest, backup=False) for name, ip in places.items()))
    loop.ask(asked, "deployment")
    said = loop.look()
    assert len(loop.done) == len(said["nodes"]) == MAX_NODES
    # Whoever reads the status reads 8 MiB of it.
    assert len(json.dumps(said)) < 6 * 1024**2


def test_a_look_at_as_many_nodes_as_there_may_be_needs_less_memory_than_the_unit_gives() -> None:
    """In a process of its own: the agent reads what scontrol and squeue say of 6,758 nodes with two jobs each."""
    limit_mib = int(re.findall(r"MemoryMax=(\d+)M", load("steps/45_drain.py").SERVICE)[0])
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root}/tests"}
    command = [sys.executable, "-m", "helpers.lifecycle.large"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    # scontrol and squeue run beside it, one at a time, and have as many nodes or jobs in memory.
    assert int(done.stdout) < limit_mib * 0.6


def test_a_long_run_writes_its_status_before_the_agent_counts_as_silent(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"i-{number:017x}": f"10.0.0.{number}" for number in range(1, 17)}
    nodes = [slurm_node(f"n{number}", number=number) for number in range(1, 17)]
    loop.slurm = slurm_state(*nodes, instances=names, reservations={})
    loop.ask(request(*(node_request_json(id=name, ip=ip) for name, ip in names.items())), "deployment")
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
        asked.write_bytes(request(node_request_json(deadline=now + deadline, expires=now + expires)))
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


def test_an_agent_killed_before_it_writes_its_status_writes_the_same_after_a_restart(loop: Loop) -> None:
    class Ended(BaseException):
        pass

    def end(key: str, content: bytes) -> None:
        raise Ended

    loop.slurm = HELD
    loop.ask(request(node_request_json()))
    put, loop.bucket.put = loop.bucket.put, end  # type: ignore[method-assign]
    with pytest.raises(Ended):
        loop.look()
    loop.bucket.put = put  # type: ignore[method-assign]
    loop.agent = agent_loop.Agent({"cluster": "c", **SETTINGS}, loop.bucket)
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    assert loop.done == []


def test_while_slurm_is_silent_nodes_stay_what_they_were(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.slurm = HELD
    loop.ask(request(node_request_json()))
    before = loop.look()["nodes"]

    def away(now: float) -> Any:
        raise slurm.SlurmError("`scontrol`: Unable to contact slurm controller")

    monkeypatch.setattr(agent_loop, "read_slurm", away)
    said = loop.look()
    assert said["nodes"] == before
    assert "Unable to contact" in said["problem"]
