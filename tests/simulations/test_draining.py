"""The second agent follows docs/adr/0014 as the first does, on a simulated Slurm that behaves as the real one was
observed to."""

from __future__ import annotations

import email.utils
import io
import json
from math import inf
from random import Random
from typing import Any, get_args

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NO_INSTANCE
from cdk_hyperpod._lambda.hyperpod.scale_down.drain import channels
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.channels import UnansweredError
from helpers.simulations.scenarios import lifetime, request
from simulations.lifetimes.agent import STATUS, Agent, Bucket, Saves, Temper
from simulations.lifetimes.clock import Clock
from simulations.lifetimes.draining import ByAgent
from simulations.lifetimes.hyperpod import Node
from simulations.lifetimes.slurm import Habits, Job, Slurm
from simulations.lifetimes.switches import Spoilt, Statuses

NODE = "i-1"


class Site:
    """A cluster of two nodes, with its agent."""

    def __init__(self, saves: Saves = "or fails", **temper: Any) -> None:
        self.clock = Clock()
        rng = Random(0)
        nodes = [
            Node("p5", f"n{n}", 0.0, "person", id=f"i-{n}", launched=0.0, address=f"10.1.0.{n}", status="Running")
            for n in (1, 2)
        ]
        self.node = nodes[0]
        self.bucket = Bucket(self.clock, 0.0, Statuses(), rng)
        self.slurm = Slurm(self.clock, rng, lambda: nodes, Habits(arrivals=0))
        self.agent = Agent(self.clock, rng, self.bucket, self.slurm, Temper(saves=saves, **temper))
        self.agent.begin()

    def ask(self, who: str = "deployment", *, lease: float = 600, **more: Any) -> None:
        now = self.bucket.time
        node_request = {"id": NODE, "ip": "10.1.0.1", "request": "w", "deadline": now + 300, "expires": now + lease}
        node_request |= {"on_timeout": "fail", "backup": True} | more
        self.put({"schema": 1, "id": f"r-{now}", "nodes": [node_request]}, who)

    def put(self, request: Any, who: str = "deployment") -> None:
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        self.bucket.put(f"requests/{who}.json", body)
        self.agent.wake()

    def job(self, lasts: float, *nodes: str) -> Job:
        self.slurm.jobs.append(Job("job 1", frozenset(nodes or (NODE,)), self.clock.now + lasts))
        return self.slurm.jobs[-1]

    def after(self, seconds: float) -> dict[str, Any]:
        """Its report of the node at that time."""
        self.clock.pass_time(seconds)
        self.agent.beat()
        found: dict[str, dict[str, Any]] = json.loads(self.bucket.get(STATUS) or b"")["nodes"]
        return found.get(NODE, {})


def test_it_waits_for_jobs_then_saves_then_drains() -> None:
    site = Site(backup=(100.0, 100.0))
    site.job(200)
    site.ask()
    assert site.after(15)["state"] == "draining"
    assert not site.slurm.may_start(site.node)
    assert site.slurm.unready(site.node, must_be_saved=False) == "job 1 runs"
    assert site.after(200)["state"] == "backing-up"
    assert site.slurm.unready(site.node, must_be_saved=True) == "is not saved"
    told = site.after(120)
    assert (told["state"], told["saved"], told["requests"]) == ("ready", True, {"deployment": "w"})
    assert not site.slurm.unready(site.node, must_be_saved=True)


@pytest.mark.parametrize(("on_timeout", "state"), [("fail", "timed-out"), ("force", "ready")])
def test_at_the_deadline_a_node_times_out_or_its_jobs_end(on_timeout: str, state: str) -> None:
    site = Site(saves="nothing")
    job = site.job(inf, NODE, "i-2")
    site.ask(on_timeout=on_timeout)
    assert site.after(290)["state"] == "draining"
    assert site.after(100)["state"] == state
    # A job on two nodes ends on both, or on none.
    assert (job.ends < inf) == (on_timeout == "force")
    assert (NODE in site.slurm.holds) == (on_timeout == "force")


def test_an_expired_lease_or_an_empty_request_releases_the_node() -> None:
    site = Site()
    site.ask(lease=300)
    assert site.after(200)["state"] == "ready"
    site.after(200)
    assert NODE not in site.slurm.holds
    site.ask()
    site.after(200)
    site.put({"schema": 1, "id": "", "nodes": []})
    site.after(15)
    assert site.slurm.may_start(site.node)


def test_a_request_that_cannot_be_read_releases_no_node() -> None:
    site = Site()
    site.ask()
    site.ask("operator", lease=100)
    site.after(200)
    site.put(b'{"schema": 1, "no', "operator")
    assert site.after(15)["requests"] == {"deployment": "w"}
    site.put({"schema": 1, "id": "", "nodes": []})
    site.agent.begin()
    site.after(300)
    assert NODE in site.slurm.holds, "it began anew, and has not read both"
    site.put({"schema": 1, "id": "", "nodes": []}, "operator")
    site.after(100)
    assert NODE not in site.slurm.holds


def test_an_agent_that_is_killed_and_restarted_ends_with_the_same_result() -> None:
    site = Site(backup=(100.0, 100.0))
    site.ask()
    for _ in range(8):
        site.after(20)
        site.agent.begin()
    assert site.after(15)["state"] == "ready"
    assert site.slurm.holds[NODE].saved


def test_a_replacement_with_its_predecessors_address_is_not_meant() -> None:
    site = Site()
    site.ask(ip="10.1.0.2")
    assert site.after(15)["state"] == "unknown"
    site.node.id, site.node.address = "i-3", "10.1.0.1"
    site.ask()
    assert site.after(15)["message"].startswith(NO_INSTANCE)
    assert site.slurm.may_start(site.node)


@pytest.mark.parametrize(("saves", "state"), [("or fails", "backup-failed"), ("or goes on", "ready")])
def test_a_backup_that_fails(saves: Saves, state: str) -> None:
    site = Site(saves, fails=1.0, backup=(5.0, 5.0))
    site.ask()
    told = site.after(100)
    assert (told["state"], told["saved"]) == (state, False)


def test_a_node_that_was_drained_unsaved_is_saved_for_the_next_who_asks() -> None:
    site = Site(backup=(5.0, 5.0))
    site.ask("operator", backup=False)
    assert site.after(15)["saved"] is False
    site.ask()
    assert site.after(60)["saved"] is True
    assert site.slurm.holds[NODE].drained


def test_a_dead_node_is_waited_for_until_slurm_gives_it_up() -> None:
    site = Site("or goes on")
    site.job(inf)
    site.node.status = "Failure"
    site.ask()
    assert site.after(60)["state"] == "draining"
    assert site.after(320)["state"] == "ready"
    assert not site.slurm.unready(site.node, must_be_saved=True)


def test_a_dead_node_that_must_be_saved_is_not_ready() -> None:
    site = Site()
    site.node.status = "Failure"
    site.ask()
    assert site.after(380)["state"] == "backup-failed"


def test_anothers_drain_stays_as_it_is() -> None:
    site = Site()
    site.slurm.others[NODE] = "Action:Replace"
    site.ask()
    told = site.after(15)
    assert (told["state"], told["saved"], site.slurm.holds) == ("backup-failed", False, {})
    assert site.slurm.unready(site.node, must_be_saved=True) == "is not saved"


def test_it_says_nothing_while_it_is_dead_and_goes_by_s3s_time() -> None:
    site = Site()
    site.bucket.skew = 300.0
    site.ask()
    site.after(15)
    site.agent.die()
    site.after(600)
    found = json.loads(site.bucket.get(STATUS) or b"")
    assert 580 < site.bucket.time - found["beat"] < 700


def test_a_site_of_jobs_goes_on_by_itself() -> None:
    site = Site()
    site.slurm.habits.arrivals = 0.5
    site.slurm.begin()
    site.clock.pass_time(4000)
    assert site.slurm.jobs
    site.slurm.open = False
    site.slurm.jobs.clear()
    site.clock.pass_time(4000)
    assert not site.slurm.jobs


@pytest.mark.parametrize("way", get_args(Spoilt))
def test_a_spoilt_status_is_no_answer_and_no_silence(way: Spoilt) -> None:
    """The agent has just written a status. Such reads count as silence only after three minutes."""
    life = lifetime()
    made, draining = request(life), ByAgent(life, Random(0))
    draining.agent.begin()
    assert not draining.read(f"train/{STATUS}", made, life.clock.now)[1].silent
    draining.bucket.statuses = Statuses((way,), 1.0)
    for after, silent in ((0.0, False), (170.0, False), (15.0, True)):
        life.clock.pass_time(after)
        sent, heard = draining.read(f"train/{STATUS}", made, life.clock.now)
        assert (heard.found, heard.silent) == (None, silent)
        with pytest.raises(UnansweredError):
            channel(draining, sent).read()
    draining.bucket.statuses = Statuses()
    assert draining.read(f"train/{STATUS}", made, life.clock.now)[1].found


def channel(draining: ByAgent, sent: tuple[bytes, int] | None) -> channels.BucketChannel:
    """The function's reader, with the content of the status."""

    class S3:
        def get_object(self, **asked: Any) -> Any:
            if sent is None:
                raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
            date = email.utils.formatdate(draining.bucket.time, usegmt=True)
            more = {"ContentLength": sent[1], "ResponseMetadata": {"HTTPHeaders": {"date": date}}}
            return {"Body": io.BytesIO(sent[0]), **more}

    s3: Any = S3()
    return channels.BucketChannel("bucket", "train", lambda: s3, lambda: s3)


def test_an_agent_without_a_status_for_three_minutes_is_silent() -> None:
    life = lifetime()
    made, draining = request(life), ByAgent(life, Random(0))
    draining.agent.begin()
    draining.read(f"train/{STATUS}", made, life.clock.now)
    draining.agent.die()
    for after, silent in ((100.0, False), (100.0, True)):
        life.clock.pass_time(after)
        assert draining.read(f"train/{STATUS}", made, life.clock.now)[1].silent is silent
