"""Nodes are drained before they go: when, whose, and what becomes of them where they cannot be."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import (
    NO_INSTANCE,
    NodeRequest,
    NodeStatus,
    make_node_request,
    make_request,
)
from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.aws.clients import READ_PATIENCE
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.channels import UnansweredError, parse
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.readiness import (
    AgentStatus,
    DrainRequest,
    Readiness,
    decide_readiness,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.requester import DrainRequester
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import DrainSettings, Node
from cdk_hyperpod_local.hyperpod import Call, CallerKilled
from helpers.findings import codes
from helpers.scale_down import clusters, eks
from helpers.scale_down.controller import SAVING_S, Controller
from helpers.scale_down.scenarios import QUICK, ended, failure, ids
from helpers.scale_down.stack import (
    DRAIN,
    FINALIZE,
    LAMBDA,
    PREPARE,
    Behaviour,
    Stack,
    Template,
    group,
    run_until_quiet,
)

FOUR = Template(groups=(group("p5", 4),), drain=DRAIN)
TWO = Template(groups=(group("p5", 2),), drain=DRAIN)
MINUTE = 60.0
ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
NODE = "i-0123456789abcdef0"


def four(**behaviour: Any) -> Stack:
    return Stack(FOUR, timings=QUICK, behaviour=Behaviour(**behaviour))


def drain(**changes: Any) -> dict[str, Any]:
    return {**DRAIN, **changes}


def runs(train: Stack, node: str, minutes: float) -> None:
    """A job runs there for this long from now."""
    train.agent.runs(node, minutes * MINUTE)


def running(train: Stack, group: str) -> set[str]:
    return {str(each.instance_id) for each in train.hyperpod.nodes("train", group) if each.status == "Running"}


def gone(train: Stack) -> dict[str, float]:
    return {str(item.node_id): item.at for item in train.hyperpod.terminations}


def node(*, days: float = 1, status: str = "Running") -> Node:
    """One that was launched so many days ago."""
    return Node(group="p5", instance_id=NODE, launched=NOW - timedelta(days=days), status=status)


def asking(
    *, minutes: float = 0, must: bool = False, force: bool = False, taken: str = "", rolling_back: bool = False
) -> DrainRequest:
    """A request of so many minutes ago, which gives nodes ten. `taken`: a group of whose nodes to take some are gone."""
    began = NOW - timedelta(minutes=minutes)
    wanted = DrainSettings(bucket="drains", minutes=10, force=force, must_be_saved=must)
    return DrainRequest(
        drain=wanted, began=began, now=NOW, partly_deleted=frozenset({taken}), rolling_back=rolling_back
    )


def judged(each: Node, ask: DrainRequest, state: str, message: str = "") -> Readiness:
    """Where the agent has read the request, and says this."""
    told = NodeStatus(state=state, message=message, requests={"deployment": ask.request_id})
    return decide_readiness([each], AgentStatus(silent=timedelta(0), nodes={NODE: told}, saves=True), ask)


def settled(agent: Controller) -> bool:
    """Nothing of the agent's is left on any node that stays."""
    agent.catch_up()
    return not agent.held


def test_a_node_that_a_patch_holds_is_waited_for_until_its_patch_ends() -> None:
    train = four()
    agent, newest, now = train.agent, ids(train, "p5")[-1], train.clock.now()
    address = train.client.describe_cluster_node(ClusterName="train", NodeId=newest)["NodeDetails"]["PrivatePrimaryIp"]
    held = NodeRequest(
        writer="operator",
        request_id="patch-1",
        instance=newest,
        address=str(address),
        deadline=now + 20 * MINUTE,
        expires=now + 20 * MINUTE,
        force=False,
        backup=False,
    )
    agent.bucket.put("requests/operator.json", json.dumps(make_request("one", [make_node_request(held)])).encode())
    agent.catch_up()
    template = Template(groups=(group("p5", 3),), nodes_to_delete=(newest,), drain=DRAIN)
    assert train.deploy(template) == "complete", train.reasons
    assert gone(train).keys() == {newest} and gone(train)[newest] >= now + 20 * MINUTE
    assert any("`cdk-hyperpod patch` holds" in line for line in train.log)


def test_nodes_go_when_every_one_is_ready_and_saved() -> None:
    train = four()
    agent, (_, _, *last) = train.agent, ids(train, "p5")
    for node in ids(train, "p5"):
        runs(train, node, 10)
    ends = agent.jobs[last[0]]
    assert train.deploy(TWO) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted(last)
    assert all(at >= ends + SAVING_S for at in when.values())
    assert not agent.ended
    assert dict(train.hyperpod.changes(principal=LAMBDA))["BatchDeleteClusterNodes"] == 1
    # They were held as long as they were there: nothing could start on a node that was about to go.
    assert all(agent.given_back.get(node, math.inf) >= when[node] for node in last)
    train.clock.advance(3 * 3600)
    assert settled(agent)


@pytest.mark.parametrize("count", [3, True, -1, "3 <script>", 2.5])
def test_files_that_a_backup_has_left_out_are_in_the_answer_after_the_node_is_gone(count: object) -> None:
    train = four()
    *_, last = ids(train, "p5")
    train.agent.bucket.distort = lambda status: status.update(left_out={last: count, "i-0": 7})
    assert train.deploy(TWO) == "complete", train.reasons
    told = train.attributes[PREPARE]["NodesTaken"]
    assert (f"{last} (newest; 3 files left out of its backup)" in told) is (count == 3)
    assert told.count("left out") == (count == 3)
    assert last in told


def test_one_node_that_is_not_ready_in_time_keeps_all_nodes() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    busy, idle = nodes[1], nodes[0]
    runs(train, busy, 60)
    reason = failure(train, replace(TWO, nodes_to_delete=(busy, idle)))
    assert codes(reason) == ["nodes-not-ready"]
    assert f"nothing was deleted{messages.failures.RELEASED} [nodes-not-ready]. {busy} is not ready: " in reason
    assert "jobs: 7 of alice" in reason
    assert "`cdk-hyperpod drain NODE --hold 12h --wait`" in reason
    assert not gone(train)
    assert not agent.ended
    train.clock.advance(MINUTE)
    assert settled(agent)
    assert agent.busy(busy)


def test_with_force_jobs_are_ended_and_saved_in_the_time_there_is() -> None:
    train = four()
    agent, (node, *_) = train.agent, ids(train, "p5")
    runs(train, node, 600)
    began = train.clock.now()
    template = Template(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout="force"))
    assert train.deploy(template) == "complete", train.reasons
    assert agent.ended[node] == pytest.approx(began + 20 * MINUTE, abs=30)
    assert agent.ended[node] + SAVING_S <= gone(train)[node] <= began + 25 * MINUTE


@pytest.mark.parametrize(("must", "goes"), [(True, False), (False, True)])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("slow", "is being saved"),
        ("draining", "does not respond"),
        ("deaf", "the drain agent has not read the request yet"),
        ("stranger", "has the address 10.0.0.1 on the controller"),
        ("refused", "may be a login node"),
    ],
)
def test_a_node_not_saved_in_time_is_deleted_only_if_it_need_not_be_saved(
    must: bool, goes: bool, how: str, why: str
) -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    if how == "slow":
        train.agent.temper.backup = 3600, 3600
    elif how == "deaf":
        train.agent.reads_nothing()
    elif how == "stranger":
        train.agent.strangers.add(node)
    else:
        train.agent.says(node, how, why)
    template = Template(
        groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout="force", MustBeSaved=must)
    )
    assert train.deploy(template) == ("complete" if goes else "rolled back")
    assert (node in gone(train)) is goes
    if not goes:
        assert why in train.reasons[0]


def test_a_node_that_cannot_be_saved_is_refused_at_once() -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.agent.temper.fails, train.agent.temper.backup = 1.0, (5, 5)
    began = train.clock.now()
    reason = failure(train, Template(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=DRAIN))
    assert f"{node} is not ready: could not be saved" in reason
    assert train.clock.now() - began < 5 * MINUTE


@pytest.mark.parametrize("ever", [True, False])
def test_a_silent_agent_fails_the_deployment_at_the_first_poll(ever: bool) -> None:
    train = four()
    if ever:
        train.agent.dies_in(1)
    else:
        train.agent.was_never_installed()
    train.clock.advance(10 * MINUTE)
    since = len(train.hyperpod.journal)
    reason = failure(train, TWO)
    heard = "has not reported for 11 minutes" if ever else "has never reported"
    assert str(messages.refusals.agent_is_silent(heard)) in reason
    assert "`cdk-hyperpod lifecycle run drain | bash`" in reason
    assert not gone(train)
    assert not train.hyperpod.changes(since=since, principal=LAMBDA)


def test_a_silent_agent_keeps_no_node_if_on_silent_is_undrained() -> None:
    train = four()
    train.agent.was_never_installed()
    for node in ids(train, "p5"):
        runs(train, node, 600)
    assert train.deploy(replace(TWO, drain=drain(OnSilent="undrained"))) == "complete", train.reasons
    assert len(gone(train)) == 2


def test_an_agent_that_dies_meanwhile_is_noticed_in_three_minutes() -> None:
    train = four()
    for node in ids(train, "p5"):
        runs(train, node, 600)
    train.agent.dies_in(2 * MINUTE)
    began = train.clock.now()
    assert codes(failure(train, TWO)) == ["nodes-not-ready", "drain-agent-silent"]
    assert train.clock.now() - began < 8 * MINUTE
    assert not gone(train)


UNREADABLE: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "cut off in transfer": lambda reply: {**reply, "Body": io.BytesIO(reply["Body"].read()[:-9])},
    "cut off in S3": lambda reply: with_content(reply, lambda text: text[: len(text) // 2]),
    "empty": lambda reply: with_content(reply, lambda text: b""),
    "half a character": lambda reply: with_content(reply, lambda text: text[:-1] + "é".encode()[:1]),
    "another version": lambda reply: with_content(reply, lambda text: text.replace(b'"schema": 1', b'"schema": 2')),
    "in the future": lambda reply: with_content(reply, lambda text: text.replace(b'"beat": ', b'"beat": 9')),
}


def with_content(reply: dict[str, Any], change: Callable[[bytes], bytes]) -> dict[str, Any]:
    content = change(reply["Body"].read())
    return {**reply, "Body": io.BytesIO(content), "ContentLength": len(content)}


def spoil(train: Stack, monkeypatch: pytest.MonkeyPatch, how: str, begins: float, lasts: float) -> None:
    """The status cannot be read from then on, for so many seconds."""
    read = Controller.get_object

    def get_object(self: Controller, **asked: Any) -> Any:
        reply = read(self, **asked)
        if not begins <= train.clock.now() < begins + lasts:
            return reply
        if how == "missing":
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
        return UNREADABLE[how](reply)

    monkeypatch.setattr(Controller, "get_object", get_object)


def goes_after_its_job(train: Stack, node: str, on_silent: str) -> None:
    """Deploy without this node: it alone goes, once its job has ended by itself and it is saved."""
    ends = train.agent.jobs[node]
    template = Template(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnSilent=on_silent))
    assert train.deploy(template) == "complete", train.reasons
    assert gone(train).keys() == {node} and gone(train)[node] >= ends + SAVING_S
    assert not train.agent.ended


@pytest.mark.parametrize("how", [*UNREADABLE, "missing"])
@pytest.mark.parametrize("on_silent", ["fail", "undrained"])
@pytest.mark.parametrize("minute", [0, 5])
def test_a_status_that_cannot_be_read_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, how: str, on_silent: str, minute: float
) -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    runs(train, node, 12)
    spoil(train, monkeypatch, how, train.clock.now() + minute * MINUTE, 150)
    goes_after_its_job(train, node, on_silent)


@pytest.mark.parametrize("how", [*UNREADABLE, "missing"])
@pytest.mark.parametrize("minute", [0, 5])
def test_a_status_that_cannot_be_read_for_three_minutes_counts_as_silence(
    monkeypatch: pytest.MonkeyPatch, how: str, minute: float
) -> None:
    train = four()
    for node in ids(train, "p5"):
        runs(train, node, 600)
    began = train.clock.now()
    spoil(train, monkeypatch, how, began + minute * MINUTE, 600)
    assert codes(failure(train, TWO)) == ["nodes-not-ready", "drain-agent-silent"]
    assert train.clock.now() - began >= (minute + 3) * MINUTE
    assert not gone(train)


def denied(train: Stack, monkeypatch: pytest.MonkeyPatch, begins: float, lasts: float) -> None:
    """S3 refuses the function's reads from then on, for so many seconds."""
    read = Controller.get_object

    def get_object(self: Controller, **asked: Any) -> Any:
        if begins <= train.clock.now() < begins + lasts:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no GetObject"}}, "GetObject")
        return read(self, **asked)

    monkeypatch.setattr(Controller, "get_object", get_object)


@pytest.mark.parametrize("on_silent", ["fail", "undrained"])
@pytest.mark.parametrize("minute", [0, 5])
@pytest.mark.parametrize("since", [0, 30])
def test_the_time_of_reads_that_s3_refuses_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, on_silent: str, minute: float, since: float
) -> None:
    """Reads are refused, for a minute and a half, and for a part of the three minutes the status cannot be read."""
    train = four()
    (node, *_) = ids(train, "p5")
    runs(train, node, 14)
    # The first look decides by what it reads after LATE.
    begins = train.clock.now() + max(minute * MINUTE, 60)
    spoil(train, monkeypatch, "cut off in transfer", begins, 200)
    denied(train, monkeypatch, begins + since, 90)
    goes_after_its_job(train, node, on_silent)


def deletion_of(node: str) -> Template:
    return Template(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=DRAIN)


def test_a_node_that_is_not_in_slurm_is_deleted_without_a_drain() -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.agent.slurm.absent.add(node)
    began = train.clock.now()
    assert train.deploy(deletion_of(node)) == "complete", train.reasons
    assert gone(train)[node] - began < 3 * MINUTE


def test_a_node_drained_by_others_is_not_deleted_without_a_backup() -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.agent.slurm.others[node] = "somebody's reason"
    assert train.deploy(deletion_of(node)) == "rolled back"
    assert node in ids(train, "p5")


def test_idle_nodes_go_before_busy_ones_and_stay_chosen() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    oldest, newest = nodes[0], nodes[-1]
    for node in nodes[1:-1]:
        runs(train, node, 600)
    runs(train, newest, 3)
    agent.catch_up()
    train.clock.advance(MINUTE)
    assert train.deploy(replace(FOUR, groups=(group("p5", 3),))) == "complete", train.reasons
    assert list(gone(train)) == [oldest]


def test_more_nodes_than_travel_by_name_stay_chosen_too() -> None:
    """Everybody works when they are chosen, and those that stay are idle soon after."""
    train = four()
    old = ids(train, "p5")
    assert train.deploy(replace(FOUR, groups=(group("p5", 60),))) == "complete", train.reasons
    run_until_quiet(train.hyperpod)
    rest = [each for each in ids(train, "p5") if each not in old]
    for nodes, minutes in ((old, 4), (rest, 600)):
        for each in nodes:
            runs(train, each, minutes)
    train.clock.advance(MINUTE)
    train.agent.catch_up()
    template = replace(FOUR, drain=drain(OnTimeout="force", TimeoutMinutes=15))
    assert train.deploy(template) == "complete", train.reasons
    assert gone(train).keys() == set(rest)


def test_a_group_is_held_until_it_is_deleted() -> None:
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK)
    agent, old = train.agent, ids(train, "old")
    runs(train, old[0], 10)
    ends = agent.jobs[old[0]]
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted(old)
    assert all(at >= ends + SAVING_S for at in when.values())
    assert not agent.ended
    assert all(agent.given_back.get(node, math.inf) >= when[node] for node in old)
    train.clock.advance(13 * 3600)
    assert settled(agent)


def test_a_node_of_a_group_that_one_list_leaves_out_is_held_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that is the last one, since every node is ready, does not show it."""
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK)
    agent, old = train.agent, ids(train, "old")
    real, updates, skipped = train.client.list_cluster_nodes, Stack._cluster, list[str]()

    def cluster(self: Stack, progress: Any) -> Any:
        train.clock.advance(30 * MINUTE)
        assert skipped
        assert not any(agent.may_start(node) for node in old)
        return updates(self, progress)

    def list_cluster_nodes(**arguments: Any) -> Any:
        page = real(**arguments)
        agent.catch_up()
        if skipped or not all(node in agent.held and agent.held[node].saved for node in old):
            return page
        skipped.append(old[0])
        left = [each for each in page["ClusterNodeSummaries"] if each["InstanceId"] != old[0]]
        return {**page, "ClusterNodeSummaries": left}

    monkeypatch.setattr(Stack, "_cluster", cluster)
    monkeypatch.setattr(train.client, "list_cluster_nodes", list_cluster_nodes)
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    assert sorted(gone(train)) == sorted(old)


def left_out(
    train: Stack, monkeypatch: pytest.MonkeyPatch, node: str, when: Callable[[], bool], *, lists: int = 1
) -> list[float]:
    """As soon as `when` holds, so many lists in a row leave out the node. The answer fills with their times."""
    real, times = train.client.list_cluster_nodes, list[float]()

    def list_cluster_nodes(**arguments: Any) -> Any:
        page = real(**arguments)
        if len(times) == lists or not (times or when()):
            return page
        times.append(train.clock.now())
        shown = [each for each in page["ClusterNodeSummaries"] if each.get("InstanceId") != node]
        return {**page, "ClusterNodeSummaries": shown}

    monkeypatch.setattr(train.client, "list_cluster_nodes", list_cluster_nodes)
    return times


class First(dict[str, float]):
    """Keeps the first value of each key."""

    def __setitem__(self, key: str, value: float) -> None:
        self.setdefault(key, value)


@pytest.mark.parametrize("drain", [DRAIN, eks.DRAIN], ids=["slurm", "eks"])
@pytest.mark.parametrize("what", ["nodes", "group"])
@pytest.mark.parametrize("lists", [1, 2])
def test_a_held_node_goes_back_to_work_only_if_two_lists_leave_it_out(
    monkeypatch: pytest.MonkeyPatch, drain: dict[str, Any], what: str, lists: int
) -> None:
    """It is ready, and another node is waited for."""
    train = Stack(Template(groups=(group("p5", 2), group("old", 4)), drain=drain), timings=QUICK)
    ready, busy, *_ = ids(train, "old")
    runs(train, busy, 10)
    train.drainer.pods = {busy: 10 * MINUTE}
    began = train.clock.now()
    times = left_out(train, monkeypatch, ready, lambda: train.clock.now() > began + 5 * MINUTE, lists=lists)
    fewer = Template(groups=(group("p5", 2), group("old", 2)), nodes_to_delete=(ready, busy), drain=drain)
    template = fewer if what == "nodes" else replace(TWO, groups_to_delete=("old",), drain=drain)
    train.agent.given_back = train.drainer.kubernetes.given_back = given_back = First()
    train.deploy(template)
    assert len(times) == lists
    if lists == 1:
        assert given_back.get(ready, math.inf) >= gone(train)[ready]
    else:
        assert given_back[ready] < times[0] + MINUTE


@pytest.mark.parametrize("drain", [DRAIN, eks.DRAIN], ids=["slurm", "eks"])
def test_a_node_that_was_drained_is_held_while_finalize_waits_though_one_list_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch, drain: dict[str, Any]
) -> None:
    template = Template(groups=(group("p5", 2), group("old", 2)), drain=drain)
    train = Stack(template, timings=QUICK, vanished="leave")
    before, real, came, times = set(ids(train, "old")), Stack._cluster, list[str](), list[float]()
    drained = min(before)

    def cluster(self: Stack, progress: Any) -> Any:
        if not came:
            others = train.hyperpod.client(principal="somebody")
            others.update_cluster(ClusterName="train", InstanceGroups=[group("old", 3)])
            train.clock.advance(30 * MINUTE)
            came.extend(set(ids(train, "old")) - before)
            runs(train, came[0], 10)
            train.drainer.pods[came[0]] = 10 * MINUTE
            begins = train.clock.now() + 5 * MINUTE
            times.append(begins)
            left_out(train, monkeypatch, drained, lambda: train.clock.now() > begins)
        return real(self, progress)

    monkeypatch.setattr(Stack, "_cluster", cluster)
    train.agent.given_back = train.drainer.kubernetes.given_back = given_back = First()
    assert train.deploy(replace(TWO, groups_to_delete=("old",), drain=drain)) == "complete", train.reasons
    when = gone(train)
    assert when.keys() == {*before, *came} and when[came[0]] > times[0]
    assert given_back.get(drained, math.inf) >= when[drained]


@pytest.mark.parametrize(("minutes", "goes"), [(10, True), (10_000, False)])
def test_a_node_that_comes_to_a_group_to_delete_keeps_its_job(
    monkeypatch: pytest.MonkeyPatch, minutes: float, goes: bool
) -> None:
    """The cluster's own update may take hours, and finalize deletes the group behind it."""
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK, vanished="leave")
    agent, before, real, came = train.agent, set(ids(train, "old")), Stack._cluster, list[str]()

    def cluster(self: Stack, progress: Any) -> Any:
        if not came:
            others = train.hyperpod.client(principal="somebody")
            others.update_cluster(ClusterName="train", InstanceGroups=[group("old", 3)])
            train.clock.advance(30 * MINUTE)
            came.extend(set(ids(train, "old")) - before)
            runs(train, came[0], minutes)
        return real(self, progress)

    monkeypatch.setattr(Stack, "_cluster", cluster)
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    assert gone(train).keys() == ({*before, *came} if goes else set())
    assert not agent.ended
    told = train.attributes[FINALIZE]["StillStanding"]
    if goes:
        assert gone(train)[came[0]] >= agent.jobs[came[0]] + SAVING_S
    else:
        assert f"{came[0]} is not ready: " in told and "at its deadline; jobs: " in told
        train.clock.advance(MINUTE)
        assert settled(agent)


def test_a_node_deleted_by_others_during_a_slow_read_of_s3_counts_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    others, read, late = train.hyperpod.client(principal="somebody"), Controller.get_object, list[str]()

    def slow(self: Controller, **asked: Any) -> Any:
        reply = read(self, **asked)
        body = reply["Body"].read()
        reply["Body"] = io.BytesIO(body)
        told = json.loads(body)["nodes"]
        if len(told) == 2 and all(each["state"] == "ready" for each in told.values()) and not late:
            train.clock.advance(45)
            late.extend(node for node in ids(train, "p5") if node not in told)
            others.batch_delete_cluster_nodes(ClusterName="train", NodeIds=late[:1])
        return reply

    monkeypatch.setattr(Controller, "get_object", slow)
    assert train.deploy(TWO) == "complete", train.reasons
    assert len(gone(train)) == 2 and late[0] in gone(train)
    assert len(ids(train, "p5")) == 2


@pytest.mark.parametrize("drain", [DRAIN, eks.DRAIN])
def test_a_rollback_releases_nodes_even_if_its_stack_status_was_late_at_first(drain: dict[str, Any]) -> None:
    """By its first look it is an update that has nothing to do, and by the next that update is over."""
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=drain), timings=QUICK)
    real, late = train.provider.is_complete, list[bool]()

    def is_complete(event: Mapping[str, Any]) -> Any:
        if train.status == "UPDATE_ROLLBACK_IN_PROGRESS":
            late.append(not event["RollingBack"])
            train.status_late = 0
        return real(event)

    def fails() -> None:
        train.status_late = 10

    train.provider.is_complete = is_complete  # type: ignore[method-assign]
    template = Template(groups=(group("p5", 4),), drain=drain, groups_to_delete=("old",))
    assert train.deploy(template, fail="before", meanwhile=fails) == "rolled back"
    train.clock.advance(MINUTE)
    assert any(late)
    assert settled(train.agent)
    assert not train.drainer.held


@pytest.mark.parametrize("drain", [DRAIN, eks.DRAIN])
def test_a_rollback_releases_nodes_even_if_its_stack_status_was_unreadable_at_first(drain: dict[str, Any]) -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=drain), timings=QUICK)
    real, throttled = train.provider.is_complete, list[float]()

    def is_complete(event: Mapping[str, Any]) -> Any:
        if event["RollingBack"] and not throttled:
            throttled.append(train.clock.now())
            train.status_fails, train.status_fails_until = "Throttling", train.clock.now() + 5
        return real(event)

    train.provider.is_complete = is_complete  # type: ignore[method-assign]
    template = Template(groups=(group("p5", 4),), drain=drain, groups_to_delete=("old",))
    assert train.deploy(template, fail="before") == "rolled back"
    train.clock.advance(MINUTE)
    assert throttled
    assert settled(train.agent)
    assert not train.drainer.held


def test_a_rollback_releases_the_nodes_that_it_does_not_delete() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)
    agent = train.agent
    template = replace(FOUR, groups_to_delete=("old",))
    held: list[float] = []

    def look() -> None:
        node_requests = agent.request()["nodes"]
        held.extend(each["expires"] - train.clock.now() for each in node_requests)

    assert train.deploy(template, fail="before", meanwhile=look) == "rolled back"
    assert len(held) == 2 and min(held) > 12 * 3600, "as long as CloudFormation may wait for the cluster"
    assert not gone(train)
    train.clock.advance(MINUTE)
    assert settled(agent)
    assert set(ids(train, "old")) <= agent.given_back.keys()


@pytest.mark.parametrize(
    ("of_group", "of_node", "kept"),
    [
        ("InService", "Running", False),
        ("Degraded", "Running", False),
        ("Deleting", "Running", True),
        ("InService", "ShuttingDown", True),
    ],
)
def test_a_node_that_is_being_deleted_is_not_released(of_group: str, of_node: str, kept: bool) -> None:
    """Nothing may start on it, whoever asked for it."""

    class Controller:
        asked: Mapping[str, Any]

        def read(self) -> AgentStatus:
            return AgentStatus(silent=timedelta(0), nodes={NODE: NodeStatus(requests={"deployment": "of yesterday"})})

        def write(self, request: Mapping[str, Any]) -> None:
            self.asked = request

        def find(self, node: str, said: AgentStatus) -> str:
            return "10.0.0.1"

        def excuse(self, error: Exception) -> None: ...

    controller = Controller()
    cluster = clusters.live(clusters.group("p5", 1, status=of_group), nodes=[node(status=of_node)])
    DrainRequester(asking(), controller, must=False).release(lambda: None, lambda: cluster, frozenset())
    assert [node["id"] for node in controller.asked["nodes"]] == ([NODE] if kept else [])


def test_a_rollback_waits_five_minutes_for_jobs_at_most_and_never_refuses() -> None:
    train = four()
    agent, old = train.agent, set(ids(train, "p5"))
    made: list[str] = []

    def busy() -> None:
        run_until_quiet(train.hyperpod)
        made.extend(node for node in ids(train, "p5") if node not in old)
        for node in (*old, *made):
            runs(train, node, 600)

    template = replace(FOUR, groups=(group("p5", 6),))
    train.updated = None
    assert train.deploy(template, fail="after", meanwhile=busy) == "rolled back", train.reasons
    assert sorted(gone(train)) == sorted(made)
    assert agent.ended.keys() == set(made)
    assert max(gone(train).values()) - max(agent.ended.values()) <= 3 * MINUTE


@pytest.mark.parametrize("on_silent", ["fail", "undrained"])
@pytest.mark.parametrize("call", ["GetObject", "PutObject"])
def test_a_right_that_is_missing_is_named_and_is_no_silence_of_the_agent(call: str, on_silent: str) -> None:
    train = four()
    train.agent.denied.add(call)
    reason = failure(train, replace(TWO, drain=drain(OnSilent=on_silent)))
    what = "Reading the status of the drain agent" if call == "GetObject" else "Sending the drain request"
    assert f"{what}: AccessDenied: no {call}" in reason
    assert "The drainer" not in reason, "that is of EKS; here a lease ends"
    assert not gone(train)


def test_a_lasting_refusal_by_s3_is_no_silence_in_finalize(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node came to the group to delete during the cluster's own update, and nobody can read whether it has jobs."""
    undrained = drain(OnSilent="undrained")
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=undrained), timings=QUICK, vanished="leave")
    before, real, came = set(ids(train, "old")), Stack._cluster, list[str]()

    def cluster(self: Stack, progress: Any) -> Any:
        if not came:
            others = train.hyperpod.client(principal="somebody")
            others.update_cluster(ClusterName="train", InstanceGroups=[group("old", 3)])
            train.clock.advance(30 * MINUTE)
            came.extend(set(ids(train, "old")) - before)
            runs(train, came[0], 10_000)
            train.agent.denied.add("GetObject")
        return real(self, progress)

    monkeypatch.setattr(Stack, "_cluster", cluster)
    assert train.deploy(replace(TWO, groups_to_delete=("old",), drain=undrained)) == "complete", train.reasons
    assert not gone(train)
    told = train.attributes[FINALIZE]["StillStanding"]
    assert "The drain agent has a status that cannot be read (AccessDenied: no GetObject)" in told


def test_a_rollback_goes_on_without_a_bucket() -> None:
    train = four()

    def away() -> None:
        train.agent.denied |= {"GetObject", "PutObject"}

    template = replace(FOUR, groups=(group("p5", 6),))
    assert train.deploy(template, fail="after", meanwhile=away) == "rolled back", train.reasons
    assert len(ids(train, "p5")) == 4


def test_a_function_that_dies_holds_no_node_for_long() -> None:
    train = four()
    agent, nodes = train.agent, ids(train, "p5")
    for node in nodes:
        runs(train, node, 600)
    train.deploy(TWO, cancel=("Custom::HyperPodScaleDown", 3))
    train.given_up.clear()
    train.clock.advance(11 * MINUTE)
    assert settled(agent)


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_rollback_releases_nodes_whichever_read_of_its_stack_status_shows_it_first(reads: int) -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)
    real, left = train.provider.services.read_stack, iter(range(reads, -1, -1))

    def read_stack(stack: str) -> Any:
        if train.status == "UPDATE_ROLLBACK_IN_PROGRESS":
            train.status_late = 50 if next(left, 0) else 0
        return real(stack)

    train.provider.services.read_stack = read_stack  # type: ignore[method-assign]
    template = Template(groups=(group("p5", 4),), drain=DRAIN, groups_to_delete=("old",))
    assert train.deploy(template, fail="before") == "rolled back"
    train.clock.advance(MINUTE)
    assert settled(train.agent)


@pytest.mark.parametrize("late", [0, 10, 30, 60])
def test_a_rollback_releases_nodes_that_the_cancelled_update_requests_again_on_a_late_status(late: float) -> None:
    train = four()
    for node in ids(train, "p5"):
        runs(train, node, 30 * MINUTE)

    def is_late() -> None:
        train.status_late = late

    assert train.deploy(TWO, cancel=("Custom::HyperPodScaleDown", 2), meanwhile=is_late) == "rolled back"
    train.poll_given_up()
    train.clock.advance(MINUTE)
    assert settled(train.agent)


class Dying:
    """Ends the function at one of its calls of the cluster's API or of the bucket, counted from now on; once."""

    def __init__(self, train: Stack, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = call
        began = len(train.hyperpod.journal)

        def on_call(call: Call) -> None:
            if call.principal == LAMBDA and call.number > began and train.polling:
                self.count(call.operation)

        train.hyperpod.on_call = on_call
        for name in ("get_object", "put_object"):
            monkeypatch.setattr(Controller, name, self._then(getattr(Controller, name), name))

    def count(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise CallerKilled(f"killed after {what}")

    def _then(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(agent: Controller, **arguments: Any) -> Any:
            answer = call(agent, **arguments)
            self.count(name)
            return answer

        return counted


def test_killed_after_any_call_of_a_drain_it_comes_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deployed is deployed again. No node goes under its job, and none is held for ever."""
    killed: set[str] = set()
    for call in itertools.count(1):
        train = Stack(FOUR, timings=replace(QUICK, boot=60, shut_down=60, count_lag=30), poll=60)
        here = ids(train, "p5")
        for number, node in enumerate(here):
            runs(train, node, 1 + number)
        busy = dict(train.agent.jobs)
        with monkeypatch.context() as patch:
            dying = Dying(train, call, patch)
            endings = [train.deploy(TWO)]
            while endings[-1] != "complete":
                assert len(endings) < 6, (call, endings, train.reasons)
                endings.append(train.roll_back() if endings[-1] == "rollback failed" else train.deploy(TWO))
        if dying.left > 0:
            break
        killed |= {str(crash) for crash in train.crashes}
        assert len(ids(train, "p5")) == 2
        assert not train.hyperpod.random_terminations
        assert all(at >= busy.get(node, 0) for node, at in gone(train).items()), call
        train.clock.advance(121 * MINUTE)  # the longest lease of a node
        assert settled(train.agent), call
    assert {"killed after get_object", "killed after put_object", "killed after BatchDeleteClusterNodes"} <= killed


def test_an_agent_without_a_backup_fails_the_deployment_at_the_first_poll() -> None:
    train = four()
    train.agent.temper.saves = "nothing"
    since = len(train.hyperpod.journal)
    reason = failure(train, TWO)
    assert codes(reason) == ["nodes-not-ready", "drain-agent-without-backup"]
    assert not gone(train)
    assert not train.hyperpod.changes(since=since, principal=LAMBDA)
    assert train.deploy(replace(TWO, drain=drain(MustBeSaved=False))) == "complete", train.reasons


def test_no_agent_status_makes_a_rollback_fail() -> None:
    train = four()

    def broken() -> None:
        train.agent.bucket.distort = lambda status: status.update(nodes={"i-1": {"requests": ["deployment"]}})

    template = replace(FOUR, groups=(group("p5", 6),))
    assert train.deploy(template, fail="after", meanwhile=broken) == "rolled back", train.reasons
    assert not train.crashes


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["state", "requests", "deployment", "ip", "absent", NODE]), inner, max_size=4)
    ),
    max_leaves=8,
)
MEMBERS = ["beat", "busy", "backup", "problem", "refused", "nodes"]
STATUSES = st.fixed_dictionaries(
    {"schema": st.just(1), "nodes": st.dictionaries(st.just(NODE), JSON)},
    optional=dict.fromkeys(MEMBERS[1:-1], JSON) | {"beat": st.just(NOW.timestamp()) | JSON},
)


@given(STATUSES | JSON, st.booleans())
def test_any_status_of_the_agent_leads_to_a_decision(status: object, rolling_back: bool) -> None:
    try:
        said = parse(json.dumps(status).encode(), NOW.timestamp())
    except UnansweredError:
        return
    assert said.silent is not None and timedelta(0) <= said.silent
    assert all(isinstance(request_id, str) for request_id in said.deployment_requests().values())
    ask = asking(rolling_back=rolling_back, minutes=60)
    assert not (decide_readiness([node()], said, ask).never and rolling_back)


@pytest.mark.parametrize("beat", [math.inf, -math.inf, math.nan, 10**400, -1e300, NOW.timestamp() + 181, True, "1"])
def test_a_status_with_an_invalid_time_counts_as_no_answer(beat: object) -> None:
    with pytest.raises(UnansweredError, match="time is missing or in the future"):
        parse(json.dumps({"schema": 1, "beat": beat}).encode(), NOW.timestamp())


def test_an_older_agent_reports_busy_nodes_without_jobs() -> None:
    for told, heard in (
        ([NODE, 1], {NODE: ()}),
        ({NODE: [{"id": "1", "user": "alice"}, 2], "i-2": "jobs"}, {NODE: ("1 of alice",)}),
    ):
        status = {"schema": 1, "beat": NOW.timestamp(), "busy": told}
        assert parse(json.dumps(status).encode(), NOW.timestamp()).busy == heard


def test_an_agent_whose_clock_is_a_little_ahead_is_heard() -> None:
    status = {"schema": 1, "beat": NOW.timestamp() + 179}
    assert parse(json.dumps(status).encode(), NOW.timestamp()).silent == timedelta(0)


def test_a_node_that_was_booting_is_no_replacement_and_keeps_its_jobs() -> None:
    train = four()
    busy = ids(train, "p5")[0]
    (logical,) = [each.logical_id for each in train.hyperpod.nodes("train") if each.instance_id == busy]
    train.hyperpod.change_node(logical, launched_at=train.clock.now() + 20)
    runs(train, busy, 600)
    assert "jobs: 7 of alice" in failure(
        train, Template(groups=(group("p5", 3),), nodes_to_delete=(busy,), drain=DRAIN)
    )
    assert not gone(train)
    assert not train.agent.ended


def test_a_node_added_to_a_group_without_deletions_is_not_a_replacement_and_keeps_its_jobs() -> None:
    """The only node to take went by somebody else's hand, and an autoscaler had raised another group."""
    before = replace(FOUR, groups=(group("p5", 4), group("more", 1)))
    train = Stack(before, timings=replace(QUICK, boot=0), behaviour=Behaviour())
    busy, there = ids(train, "p5")[0], set(ids(train, "more"))
    began, others = train.clock.now(), train.hyperpod.client(principal="somebody")
    runs(train, busy, 600)
    deeds = {
        1: lambda: others.update_cluster(ClusterName="train", InstanceGroups=[group("more", 3)]),
        4: lambda: others.batch_delete_cluster_nodes(ClusterName="train", NodeIds=[busy]),
    }

    def meddle() -> None:
        for each in running(train, "more") - there - train.agent.jobs.keys():
            runs(train, each, 600)
        for minute in [each for each in deeds if train.clock.now() >= began + each * MINUTE]:
            deeds.pop(minute)()

    train.agent.meanwhile(meddle)
    template = replace(before, groups=(group("p5", 3), group("more", 1)), nodes_to_delete=(busy,))
    assert "jobs: 7 of alice" in failure(train, template)
    assert not deeds
    assert set(gone(train)) == {busy}
    assert not train.agent.ended


@pytest.mark.parametrize(
    ("age", "policy", "taken", "minutes", "jobs"),
    [
        (40, {}, "p5", 10, 10),  # It was there before.
        (28, {}, "more", 10, 10),  # It was booting, or HyperPod's own repair.
        (22, {}, "more", 13, 13),
        (22, {}, "p5", 55, 55),
        (28, {"force": True}, "p5", 10, 8),
        (22, {"force": True}, "p5", 13, 12),
        (22, {"force": True, "must": True}, "p5", 55, 12),
        (22, {"force": True, "rolling_back": True}, "p5", 5, 4),
    ],
)
def test_a_node_launched_meanwhile_has_five_minutes_and_needs_force_or_a_rollback(
    age: float, policy: dict[str, bool], taken: str, minutes: float, jobs: float
) -> None:
    """The request began half an hour ago; age, minutes and jobs are of the node: since when, and until when after that beginning."""
    came, ask = node(days=age / 1440), asking(minutes=30, taken=taken, **policy)
    assert ask.limit(came) == ask.began + timedelta(minutes=minutes)
    assert ask.deadline(came) == ask.began + timedelta(minutes=jobs)
    goes = policy == {"force": True} or "rolling_back" in policy
    verdict = judged(came, ask, "draining", "jobs: 7 of alice")
    assert (verdict.ready, bool(verdict.never)) == (goes, not goes and minutes < 30)


def test_a_node_in_place_of_one_that_hyperpod_replaced_keeps_its_job() -> None:
    """The only node to take is replaced, and the group has one too many: the newcomer, which works already."""
    train = Stack(FOUR, timings=replace(QUICK, boot=0))
    named, there = ids(train, "p5")[0], set(ids(train, "p5"))
    runs(train, named, 600)
    began = train.clock.now()
    operator, repairs = train.hyperpod.client(principal="somebody"), [named]

    def meddle() -> None:
        if repairs and train.clock.now() >= began + 2 * MINUTE:
            operator.batch_replace_cluster_nodes(ClusterName="train", NodeIds=[repairs.pop()])
        for each in running(train, "p5") - there - train.agent.jobs.keys():
            runs(train, each, 600)

    train.agent.meanwhile(meddle)
    reason = failure(train, Template(groups=(group("p5", 3),), nodes_to_delete=(named,), drain=DRAIN))
    (came,) = set(ids(train, "p5")) - there
    assert f"{came} is not ready: " in reason and "jobs: 7 of alice" in reason
    assert 54 * MINUTE < train.clock.now() - began < 60 * MINUTE
    assert set(gone(train)) == {named}
    assert not train.agent.ended


@pytest.mark.parametrize(
    ("status", "message", "goes"),
    [
        ("Failure", "is no instance of this cluster: it is gone, was replaced, or is another cluster's", True),
        ("Running", "is no instance of this cluster: it is gone, was replaced, or is another cluster's", False),
        ("Failure", "has the address 10.0.0.1 on the controller, and 10.0.0.2 in the request", False),
        ("Failure", "Slurm has 2 nodes with the address 10.0.0.1", False),
    ],
)
def test_a_node_that_the_agent_cannot_identify_may_have_jobs(status: str, message: str, goes: bool) -> None:
    assert judged(node(status=status), asking(), "unknown", message).ready is goes


@pytest.mark.parametrize(("minutes", "never"), [(0, False), (0.5, False), (2, True)])
def test_a_rejected_request_is_final_only_after_the_agent_had_time_to_read_it(minutes: float, never: bool) -> None:
    """It has read this one after ten seconds, or some tens where it is slow."""
    said = AgentStatus(silent=timedelta(0), rejected="deployment: is of another version", saves=True)
    verdict = decide_readiness([node()], said, asking(minutes=minutes))
    assert verdict.never == ((said.rejected,) if never else ())
    assert not verdict.ready


def test_the_agent_has_the_words_by_which_a_node_is_no_instance() -> None:
    assert f'"unknown", "{NO_INSTANCE}' in (ROOT / "lifecycle" / "agent" / "identity.py").read_text("utf-8")


def test_a_possible_login_node_is_waited_for_and_then_refused() -> None:
    assert judged(node(), asking(), "refused", "may be a login node").waits
    assert judged(node(), asking(minutes=60), "refused", "may be a login node").never


def test_a_failed_node_without_an_address_is_deleted_without_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    failed = ids(train, "p5")[0]
    (logical,) = [each.logical_id for each in train.hyperpod.nodes("train") if each.instance_id == failed]
    train.hyperpod.change_node(logical, status="Failure", due=train.clock.now() + 7200)
    monkeypatch.setattr(train.client, "describe_cluster_node", lambda **_: {"NodeDetails": {}}, raising=False)
    began = train.clock.now()
    template = Template(groups=(group("p5", 3),), nodes_to_delete=(failed,), drain=DRAIN)
    assert train.deploy(template) == "complete", train.reasons
    assert gone(train)[failed] - began < 3 * MINUTE


def test_nodes_that_a_rollback_could_not_release_are_released_by_the_next_deployment() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)
    template = replace(FOUR, groups_to_delete=("old",))
    assert train.deploy(template, fail="before", meanwhile=lambda: train.agent.denied.add("PutObject")) == "rolled back"
    train.clock.advance(3600)
    assert not settled(train.agent)
    train.agent.denied.clear()
    again = Template(groups=(group("p5", 5), group("old", 2)), drain=DRAIN)
    assert train.deploy(again) == "complete", train.reasons
    train.clock.advance(MINUTE)
    assert settled(train.agent)
    assert not gone(train)


def test_a_deployment_that_brings_draining_may_take_nodes() -> None:
    train = Stack(replace(FOUR, drain=None), timings=QUICK)
    train.agent.catch_up()
    train.clock.advance(MINUTE)
    assert train.deploy(TWO) == "complete", train.reasons
    assert len(gone(train)) == 2


def test_a_deployment_that_brings_draining_deletes_no_group() -> None:
    before = Template(groups=(group("p5", 4), group("old", 2)))
    train = Stack(before, timings=QUICK)
    train.agent.catch_up()
    train.clock.advance(MINUTE)
    assert codes(failure(train, replace(FOUR, groups_to_delete=("old",))))[-1] == "drain-new-with-group-deletion"
    assert settled(train.agent)
    assert train.deploy(replace(before, drain=DRAIN)) == "complete", train.reasons
    assert train.deploy(replace(FOUR, groups_to_delete=("old",))) == "complete", train.reasons
    assert len(gone(train)) == 2


def test_a_poll_that_fails_finally_releases_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    train = four()
    busy = ids(train, "p5")[0]
    runs(train, busy, 600)
    read, polls, until = train.agent.get_object, iter(range(100)), list[float]()

    def away(**asked: Any) -> Any:
        if next(polls) == 5:
            until.append(train.clock.now() + READ_PATIENCE.total_seconds())
        if until and train.clock.now() <= until[0]:
            raise ClientError({"Error": {"Code": "NoSuchBucket", "Message": "no"}}, "GetObject")
        return read(**asked)

    monkeypatch.setattr(Controller, "get_object", lambda _, **asked: away(**asked))
    monkeypatch.setattr(Stack, "roll_back", lambda _: "rolled back")
    assert "NoSuchBucket" in failure(train, Template(groups=(group("p5", 3),), nodes_to_delete=(busy,), drain=DRAIN))
    train.clock.advance(MINUTE)
    assert settled(train.agent)


def test_a_missing_permission_blocks_no_deployment_that_deletes_nothing() -> None:
    train = four()
    train.agent.denied |= {"GetObject", "PutObject"}
    assert train.deploy(replace(FOUR, groups=(group("p5", 5),))) == "complete", train.reasons


def test_the_request_says_what_the_agent_needs() -> None:
    train = four()
    began = train.clock.now()
    node = ids(train, "p5")[0]
    runs(train, node, 600)
    failure(train, Template(groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(TimeoutMinutes=1)))
    assert train.agent.request()["nodes"] == []
    assert train.clock.now() - began < 10 * MINUTE
    assert not ended(train)


def test_a_target_has_its_time_to_fall_after_nodes_were_drained_for_long() -> None:
    """Counted from the request's beginning, half an hour would be over as soon as they are gone."""
    train = four(batch_delete_lowers_target="never", replaces_missing_nodes_after_batch_delete=False)
    began = train.clock.now()
    for each in ids(train, "p5"):
        runs(train, each, 17)
    assert train.deploy(TWO) == "complete", train.reasons
    taken = max(gone(train).values())
    assert taken > began + 17 * MINUTE
    sent = [call.at for call in train.hyperpod.journal if (call.principal, call.operation) == (LAMBDA, "UpdateCluster")]
    assert len(sent) == 1
    assert sent[0] > taken + 15 * MINUTE


def test_a_target_has_its_time_to_fall_in_the_rollback_of_what_brought_draining() -> None:
    """The template that comes back has none; what it takes is drained all the same, for five minutes."""
    late = Behaviour(batch_delete_lowers_target="never", replaces_missing_nodes_after_batch_delete=False)
    train = Stack(replace(FOUR, drain=None), timings=QUICK, behaviour=late)
    began: list[float] = []

    def busy() -> None:
        run_until_quiet(train.hyperpod)
        began.append(train.clock.now())
        for each in ids(train, "p5"):
            runs(train, each, 600)

    template = replace(FOUR, groups=(group("p5", 6),))
    assert train.deploy(template, fail="after", meanwhile=busy) == "rolled back", train.reasons
    assert min(gone(train).values()) > began[0] + 4 * MINUTE
    sent = [call.at for call in train.hyperpod.journal if (call.principal, call.operation) == (LAMBDA, "UpdateCluster")]
    assert len(sent) == 1
    assert sent[0] > began[0] + 34 * MINUTE


def test_where_nothing_is_held_nothing_is_read_for_it() -> None:
    """It decides by its first look, and the request is emptied without another."""
    train = four()
    since = len(train.hyperpod.journal)
    assert train.deploy(replace(FOUR, max_nodes=50)) == "complete", train.reasons
    lists = [
        call
        for call in train.hyperpod.journal[since:]
        if (call.principal, call.operation) == (LAMBDA, "ListClusterNodes")
    ]
    assert len(lists) == 1
    assert train.agent.request()["nodes"] == []
