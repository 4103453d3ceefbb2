"""What the agent gives back, and in which order."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol
from helpers.lifecycle.agent import (
    HELD,
    KILL,
    ONE,
    SETTINGS,
    START,
    TWO,
    Acting,
    Bucket,
    Loop,
    backups,
    held,
    node_request,
    node_request_json,
    request,
    slurm_node,
    slurm_state,
    words,
)
from helpers.lifecycle.programs import load

agent_loop = load("agent/loop.py")
decide = load("agent/decide.py")
release = load("agent/release.py")
slurm = load("agent/slurm.py")


@pytest.mark.parametrize(
    ("listed", "cancelled"),
    [
        (f"RESV_DEL_HOLD|{START}|Reservation (null) is invalid", False),
        ("RESV_DEL_HOLD|N/A|Reservation (null) is invalid", True),
        (f"COMPLETING|{START}|None", False),
        ("PENDING|N/A|Priority", True),
    ],
)
def test_an_unrequested_backup_is_cancelled_unless_it_has_ended(listed: str, cancelled: bool) -> None:
    """When a node leaves slurm.conf, Slurm purges its reservation and fails its job, and squeue says RESV_DEL_HOLD of the job."""
    found = slurm.parse_backups(f"7|{listed}|{slurm.backup_name(node_request(), START)}|(null)\n")
    given_back = words(release.release_nodes(frozenset(), slurm_state(reservations={}, backups=found)))
    assert given_back == (["scancel 7"] if cancelled else [])


def test_a_node_that_slurm_drained_and_is_open_for_its_backup_goes_back_drained() -> None:
    look = slurm_state(slurm_node(), backups=backups("PENDING", was=KILL))
    assert words(release.release_nodes(frozenset(), look))[:2] == [
        "scancel 0",
        f"scontrol update nodename=n1 state=drain reason={KILL}",
    ]


def test_an_unrequested_node_is_released_and_its_reservation_is_deleted_last() -> None:
    look = slurm_state(
        slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved"),
        slurm_node("n2", "IDLE+DRAIN", "Action:Replace", number=2),
        reservations={ONE: held(), TWO: held("n2")},
        backups=backups("RUNNING"),
    )
    assert words(release.release_nodes(frozenset(), look)) == [
        "scontrol update nodename=n1 state=resume reason=",
        "scancel 0",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
        f"scontrol delete reservationname=cdk-hyperpod-{TWO}",
    ]
    assert release.release_nodes(frozenset({ONE, TWO}), look) == ()


def test_a_node_that_is_opened_loses_our_mark() -> None:
    """Else slurmctld's own drain, which leaves a reason that stands there, would pass for ours."""
    drained = slurm_state(slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:unsaved"))
    opened = "scontrol update nodename=n1 state=resume reason="
    waits = drained._replace(backups=backups("PENDING"))
    assert words(decide.decide_node([node_request()], waits, SETTINGS).acts) == [opened]
    assert opened in words(release.release_nodes(frozenset(), drained))


def test_a_node_that_is_ending_is_not_opened_and_its_replacement_is() -> None:
    drained = slurm_node(state="IDLE+DRAIN", reason="cdk-hyperpod:operator:r1:saved")
    assert release.release_nodes(frozenset({ONE}), slurm_state(drained, instances={})) == ()
    assert words(
        release.release_nodes(frozenset({ONE}), slurm_state(drained, instances={"i-00000000000000009": "10.0.0.1"}))
    ) == [
        "scontrol update nodename=n1 state=resume reason=",
        f"scontrol delete reservationname=cdk-hyperpod-{ONE}",
    ]


def test_a_drain_older_than_any_lease_is_released_although_requests_cannot_be_read(
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
    assert release.release_expired(frozenset(), slurm_state(reservations={ONE: held(start=start)})) == ()


def long_ago(seconds: float = 60) -> str:
    """When a lease began that is over by so many seconds, as Slurm writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - drain_protocol.MAX_AHEAD_S - seconds))


def test_an_old_drain_that_is_requested_is_kept_although_the_other_request_cannot_be_read(loop: Loop) -> None:
    """A deployment renews its lease. Its node was "ready, saved" in the status, and took jobs all the same."""
    loop.slurm = HELD._replace(reservations={ONE: held(start=long_ago())})
    loop.ask(agent_loop.S3Error("GET: AccessDenied"))
    loop.ask(request(node_request_json()), "deployment")
    loop.agent.began -= agent_loop.UNREAD_S + 1
    assert loop.look()["nodes"][ONE]["state"] == "ready"
    assert loop.done == []
    loop.bucket.time += 121
    loop.look()
    assert loop.done[0] == "scontrol update nodename=n1 state=resume reason="


@pytest.mark.parametrize(("seconds", "acts"), [(60, 1), (-600, 0)])
def test_an_old_drain_without_a_reservation_is_released_although_requests_cannot_be_read(
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
def test_a_backup_that_begins_during_the_release_leaves_no_drain_if_the_agent_is_killed(
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
    assert release.release_nodes(frozenset(), given.slurm) == ()
