"""Under EKS a function drains: how it is asked, and what becomes of nodes and deployments where it cannot."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NodeStatus
from cdk_hyperpod._lambda.hyperpod.scale_down import messages
from cdk_hyperpod._lambda.hyperpod.scale_down.aws import executor
from cdk_hyperpod._lambda.hyperpod.scale_down.drain.readiness import AgentStatus, DrainRequest, decide_readiness
from cdk_hyperpod._lambda.hyperpod.scale_down.model.cluster import DrainSettings, Node
from helpers.findings import codes
from helpers.scale_down.drainer import ARN, Drainer
from helpers.scale_down.eks import DRAIN, FOUR, TWO, drain, four
from helpers.scale_down.scenarios import QUICK, failure, ids
from helpers.scale_down.stack import LAMBDA, PREPARE, Stack, Template, group

MINUTE = 60.0
NOT_TOLD = "the nodes that it held"


def saving(train: Stack) -> dict[str, Any]:
    train.drainer.backup = "hyperpod-backup/save-node"
    return drain(MustBeSaved=True)


def gone(train: Stack) -> dict[str, float]:
    return {str(item.node_id): item.at for item in train.hyperpod.terminations}


def saving_began(drainer: Drainer, node: str) -> float:
    return min(at for (of, _), at in drainer.kubernetes.made.items() if of == node)


def no_node_is_held(drainer: Drainer, train: Stack) -> bool:
    here = {str(each.instance_id) for each in train.hyperpod.nodes("train")}
    return not here & drainer.held.keys()


def test_nodes_go_when_every_pod_has_left() -> None:
    train = four()
    drainer, (*_, slow, last) = train.drainer, ids(train, "p5")
    drainer.pods = dict.fromkeys(ids(train, "p5"), 2 * MINUTE) | {slow: 10 * MINUTE}
    assert train.deploy(TWO) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted([slow, last])
    assert min(when.values()) >= drainer.kubernetes.evictions[slow] + 10 * MINUTE
    assert dict(train.hyperpod.changes(principal=LAMBDA))["BatchDeleteClusterNodes"] == 1
    # Cordoned as long as they were there: nothing could start on a node that was about to go.
    assert all(drainer.kubernetes.given_back.get(node, math.inf) >= when[node] for node in when)
    assert no_node_is_held(drainer, train)


def test_under_eks_a_drain_needs_neither_the_bucket_nor_node_addresses() -> None:
    train = four()
    assert train.deploy(TWO) == "complete", train.reasons
    assert train.agent.request() is None
    assert "DescribeClusterNode" not in {each.operation for each in train.hyperpod.journal}
    assert all("ip" not in request for call in train.drainer.calls for request in _node_requests(call))


def _node_requests(call: dict[str, Any]) -> list[dict[str, Any]]:
    return call["requests"]["deployment"]["nodes"] if call["requests"] else []


def test_idle_nodes_go_before_busy_ones() -> None:
    train = four()
    oldest, *others = ids(train, "p5")
    train.drainer.pods = dict.fromkeys(others, 600 * MINUTE)
    began = train.clock.now()
    assert train.deploy(replace(FOUR, groups=(group("p5", 3),))) == "complete", train.reasons
    assert list(gone(train)) == [oldest]
    assert gone(train)[oldest] - began < 2 * MINUTE, "nothing is waited for"


def test_nodes_that_a_patch_holds_are_left_alone() -> None:
    """Others go, also busy ones."""
    train = four()
    *others, newest = ids(train, "p5")
    for node in (newest, others[-1]):
        train.drainer.hold(node)
    train.drainer.pods = dict.fromkeys(others, 2 * MINUTE)
    assert train.deploy(TWO) == "complete", train.reasons
    assert set(gone(train)) == set(others[:2])
    assert train.drainer.held == {newest: "patch-1", others[-1]: "patch-1"}


def test_a_node_that_must_go_is_waited_for_until_its_patch_ends() -> None:
    train = four()
    newest = ids(train, "p5")[-1]
    end = train.clock.now() + 20 * MINUTE
    train.drainer.hold(newest, end)
    assert train.deploy(Template(groups=(group("p5", 3),), nodes_to_delete=(newest,), drain=DRAIN)) == "complete", (
        train.reasons
    )
    assert gone(train).keys() == {newest} and gone(train)[newest] >= end
    assert any("`cdk-hyperpod patch` holds" in line for line in train.log)


def test_a_patch_that_does_not_end_fails_the_deployment_at_its_deadline_and_no_rollback() -> None:
    train = four()
    newest = ids(train, "p5")[-1]
    train.drainer.hold(newest)
    reason = failure(train, Template(groups=(group("p5", 3),), nodes_to_delete=(newest,), drain=DRAIN))
    assert "`cdk-hyperpod patch` holds" in reason and codes(reason) == ["scale-down-out-of-time"]
    assert not gone(train) and train.drainer.held, "its rollback has nothing to take"
    grown = Template(groups=(group("p5", 6),), drain=DRAIN)

    def hold_all() -> None:
        train.clock.advance(6 * MINUTE)
        for node in ids(train, "p5"):
            train.drainer.hold(node)

    began = train.clock.now()
    assert train.deploy(grown, fail="after", meanwhile=hold_all) == "rolled back", train.reasons
    assert len(gone(train)) == 2 and train.clock.now() - began < 60 * MINUTE


@pytest.mark.parametrize("asks", [True, False], ids=["while it is asked for nodes", "while it is asked what it holds"])
def test_a_count_raised_while_the_drainer_is_slow_terminates_no_random_node(
    monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """It may take minutes to answer. What was true before is not what CloudFormation's own count meets."""
    train = four()
    others, left = train.hyperpod.client(principal="somebody"), [group("p5", 3)]
    real = Drainer.invoke

    def slow(self: Drainer, *, FunctionName: str, Payload: bytes) -> Any:
        reply = real(self, FunctionName=FunctionName, Payload=Payload)
        # Both nodes and the controller are left, none is on its way out: this is the last poll.
        if left and len(list(train.hyperpod.nodes("train"))) == 3 and asks is bool(json.loads(Payload)["requests"]):
            others.update_cluster(ClusterName="train", InstanceGroups=[left.pop()])
            train.clock.advance(100)
        return reply

    monkeypatch.setattr(Drainer, "invoke", slow)
    assert train.deploy(TWO) == "complete", train.reasons
    assert not left
    assert not train.hyperpod.random_terminations
    assert len(ids(train, "p5")) == 2


def test_a_count_raised_while_the_drainer_cannot_release_terminates_no_random_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look found nothing to do, and then a minute went by in which others act."""
    train = four()
    others, left = train.hyperpod.client(principal="somebody"), [group("p5", 5)]

    def away(self: Drainer, *, FunctionName: str, Payload: bytes) -> Any:
        if left:
            others.update_cluster(ClusterName="train", InstanceGroups=[left.pop()])
        train.clock.advance(30)
        raise ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}}, "Invoke")

    monkeypatch.setattr(Drainer, "invoke", away)
    template = replace(FOUR, tags={"a": "b"}, drain=drain(OnSilent="undrained"))
    assert "cluster-changed-meanwhile" in codes(failure(train, template))
    assert not left
    assert not train.hyperpod.terminations
    assert len(ids(train, "p5")) == 5
    monkeypatch.undo()
    assert train.deploy(template) == "complete", train.reasons
    assert not train.hyperpod.random_terminations
    assert len(ids(train, "p5")) == 4


@pytest.mark.parametrize("late", [0, 60], ids=["", "and the stack's status is late"])
def test_a_count_raised_while_a_rollback_cannot_release_terminates_no_older_node(
    monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """The first look found nothing to do, also where it took the rollback for an update. It goes on, and ends no older node."""
    template = replace(FOUR, drain=drain(OnSilent="undrained"))
    train = four()
    assert train.deploy(template) == "complete", train.reasons
    train.clock.advance(600)
    here = set(ids(train, "p5"))
    others, left = train.hyperpod.client(principal="somebody"), [group("p5", 5)]

    def away(self: Drainer, *, FunctionName: str, Payload: bytes) -> Any:
        if train.status == "UPDATE_ROLLBACK_IN_PROGRESS":
            if left:
                others.update_cluster(ClusterName="train", InstanceGroups=[left.pop()])
            train.clock.advance(30)
        raise ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}}, "Invoke")

    monkeypatch.setattr(Drainer, "invoke", away)
    train.status_late = late
    assert train.deploy(replace(template, tags={"a": "b"}), fail="after") == "rolled back", train.reasons
    assert not left
    assert not train.hyperpod.random_terminations
    assert set(ids(train, "p5")) == here


def test_a_rollback_that_goes_on_holds_its_nodes_from_poll_to_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given back and asked for again, a node would get new pods in between."""
    template = replace(FOUR, drain=drain(OnSilent="undrained"))
    train = Stack(FOUR, timings=replace(QUICK, boot=20))
    assert train.deploy(template) == "complete", train.reasons
    train.clock.advance(600)
    here = set(ids(train, "p5"))
    others, left, invoke = train.hyperpod.client(principal="somebody"), [group("p5", 5)], Drainer.invoke
    given_back: list[str] = []

    def late(self: Drainer, *, FunctionName: str, Payload: bytes) -> Any:
        if train.status == "UPDATE_ROLLBACK_IN_PROGRESS" and left:
            others.update_cluster(ClusterName="train", InstanceGroups=[left.pop()])
            train.clock.advance(60)
            self.pods = dict.fromkeys(set(ids(train, "p5")) - here, 3 * MINUTE)
            raise ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}}, "Invoke")
        before = set(self.held)
        reply = invoke(self, FunctionName=FunctionName, Payload=Payload)
        given_back.extend(sorted(before - set(self.held) - gone(train).keys()))
        return reply

    monkeypatch.setattr(Drainer, "invoke", late)
    assert train.deploy(replace(template, tags={"a": "b"}), fail="after") == "rolled back", train.reasons
    assert not left
    assert set(ids(train, "p5")) == here
    assert not given_back


def test_under_fail_a_blocking_disruption_budget_keeps_all_nodes() -> None:
    train = four()
    drainer, (idle, busy, *_) = train.drainer, ids(train, "p5")
    drainer.pods, drainer.budgets = {busy: MINUTE}, {busy: math.inf}
    reason = failure(train, replace(TWO, nodes_to_delete=(busy, idle)))
    assert codes(reason)[0] == "nodes-not-ready" and messages.failures.RELEASED in reason
    assert f"{busy} is not ready: was released at its deadline; pods: research/job-" in reason
    assert not gone(train)
    assert no_node_is_held(drainer, train)
    assert busy not in drainer.kubernetes.evictions


def test_under_force_its_pods_end_with_the_node_and_not_before() -> None:
    train = four()
    drainer, (busy, *_) = train.drainer, ids(train, "p5")
    drainer.pods, drainer.budgets = {busy: MINUTE}, {busy: math.inf}
    began = train.clock.now()
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(busy,), drain=drain(OnTimeout="force"))
    assert train.deploy(template) == "complete", train.reasons
    assert 25 * MINUTE <= gone(train)[busy] - began <= 27 * MINUTE
    assert busy not in drainer.kubernetes.evictions
    assert {request["deadline"] for call in drainer.calls for request in _node_requests(call)} == {began + 25 * MINUTE}


def test_a_required_backup_is_waited_for() -> None:
    train = four()
    drain_with = saving(train)
    train.drainer.saving_s = 5 * MINUTE
    assert train.deploy(replace(TWO, drain=drain_with)) == "complete", train.reasons
    assert all(at >= saving_began(train.drainer, node) + 5 * MINUTE for node, at in gone(train).items())


def test_under_force_there_is_time_left_to_save() -> None:
    train = four()
    drain_with = saving(train) | {"OnTimeout": "force"}
    drainer, (busy, *_) = train.drainer, ids(train, "p5")
    drainer.pods, drainer.budgets, drainer.saving_s = {busy: MINUTE}, {busy: math.inf}, 4 * MINUTE
    began = train.clock.now()
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(busy,), drain=drain_with)
    assert train.deploy(template) == "complete", train.reasons
    assert began + 20 * MINUTE <= saving_began(drainer, busy) <= gone(train)[busy] - 4 * MINUTE
    assert gone(train)[busy] <= began + 26 * MINUTE


@pytest.mark.parametrize("runs", [True, False])
def test_under_force_a_backup_ends_no_pod_before_the_time_is_over(runs: bool) -> None:
    """A node on which no pod runs goes as soon as it is saved."""
    train = four()
    drain_with = saving(train) | {"OnTimeout": "force"}
    drainer, (node, *_) = train.drainer, ids(train, "p5")
    drainer.pods = {node: 600 * MINUTE} if runs else {}
    began = train.clock.now()
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain_with)
    assert train.deploy(template) == "complete", train.reasons
    went = gone(train)[node] - began
    assert node in drainer.kubernetes.saved
    assert 25 * MINUTE <= went <= 27 * MINUTE if runs else went < 5 * MINUTE


@pytest.mark.parametrize("on_timeout", ["fail", "force"])
def test_a_pod_that_no_controller_owns_fails_the_first_look(on_timeout: str) -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.drainer.pods, train.drainer.lone = {node: MINUTE}, {node}
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout=on_timeout))
    began = train.clock.now()
    reason = failure(train, template)
    assert codes(reason)[-1] == "pods-unmanaged" and "research/lone" in reason
    assert train.clock.now() - began < 5 * MINUTE
    assert not gone(train)
    assert not train.drainer.kubernetes.evictions

    evicts = replace(template, drain=drain(OnTimeout=on_timeout, UnmanagedPods="evict"))
    assert train.deploy(evicts) == "complete", train.reasons
    assert list(gone(train)) == [node] == list(train.drainer.kubernetes.evictions)


def test_a_rollback_evicts_what_no_controller_owns() -> None:
    """It is never refused, and an eviction gives a pod more time than the end of its node."""
    train = four()
    old = set(ids(train, "p5"))

    def busy() -> None:
        train.clock.advance(6 * MINUTE)
        made = {node for node in ids(train, "p5") if node not in old}
        train.drainer.pods, train.drainer.lone = dict.fromkeys(made, MINUTE), made

    assert train.deploy(replace(FOUR, groups=(group("p5", 6),)), fail="after", meanwhile=busy) == "rolled back"
    assert set(gone(train)) == set(train.drainer.kubernetes.evictions)
    assert not train.crashes


def test_a_node_that_cannot_be_saved_is_refused_at_once() -> None:
    train = four()
    drain_with = saving(train)
    (node, *_) = ids(train, "p5")
    train.drainer.kubernetes.unsavable.add(node)
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain_with)
    began = train.clock.now()
    assert f"{node} is not ready: could not be saved: Job hyperpod-backup/drain-{node}-" in failure(train, template)
    assert train.clock.now() - began < 5 * MINUTE
    assert not gone(train)


def test_a_drainer_without_the_cron_job_fails_the_deployment_before_any_change() -> None:
    train = four()
    since = len(train.hyperpod.journal)
    reason = failure(train, replace(TWO, drain=drain(MustBeSaved=True)))
    assert "the drainer knows no CronJob; deploy hyperpod-NAME-eks" in reason
    assert not train.hyperpod.changes(since=since, principal=LAMBDA)
    assert not train.drainer.held


@pytest.mark.parametrize("on_timeout", ["fail", "force"])
def test_a_node_of_karpenters_is_refused_at_once(on_timeout: str) -> None:
    train = four()
    (node, *_) = ids(train, "p5")
    train.drainer.karpenters.add(node)
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain(OnTimeout=on_timeout))
    began = train.clock.now()
    assert f"{node} is not ready: is a node of Karpenter (NodePool pool), which decides by itself" in failure(
        train, template
    )
    assert train.clock.now() - began < 5 * MINUTE
    assert not gone(train)


@pytest.mark.parametrize("must_be_saved", [False, True])
def test_a_node_unknown_to_kubernetes_is_deleted_after_five_minutes(must_be_saved: bool) -> None:
    """There are no pods of its own that wrote anything to save."""
    train = four()
    drain_with = saving(train) if must_be_saved else DRAIN
    (node, *_) = ids(train, "p5")
    train.drainer.absent.add(node)
    began = train.clock.now()
    template = replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain_with)
    assert train.deploy(template) == "complete", train.reasons
    assert 5 * MINUTE <= gone(train)[node] - began < 7 * MINUTE


def test_a_node_that_came_later_has_five_minutes_of_its_own_to_join() -> None:
    began = datetime(2026, 11, 23, tzinfo=UTC)
    late = Node(group="p5", instance_id="i-0123456789abcdef0", launched=began + timedelta(minutes=8))
    told = NodeStatus(requests={"deployment": "20261123T000000"}, state="unknown", absent=True)
    said = AgentStatus(silent=timedelta(0), nodes={late.name: told})

    def may_go(minutes: int) -> bool:
        ask = DrainRequest(
            drain=DrainSettings(function=ARN, minutes=25), began=began, now=began + timedelta(minutes=minutes)
        )
        return decide_readiness([late], said, ask).ready

    assert [may_go(minutes) for minutes in (9, 12, 13)] == [False, False, True]


@pytest.mark.parametrize(
    "how", ["AccessDeniedException", "TooManyRequestsException", "function", "timeout", "garbage", "problem"]
)
def test_a_drainer_that_never_answers_fails_the_deployment_before_any_change(how: str) -> None:
    train = four()
    train.drainer.fails = how
    since = len(train.hyperpod.journal)
    reason = failure(train, TWO)
    assert "scale_down.drain: the drainer fails (" in reason
    assert "on_silent: undrained" in reason
    assert not train.hyperpod.changes(since=since, principal=LAMBDA)
    assert not train.crashes


def test_a_drainer_that_never_answers_keeps_no_node_if_on_silent_is_undrained() -> None:
    train = four()
    train.drainer.fails = "function"
    train.drainer.pods = dict.fromkeys(ids(train, "p5"), 600 * MINUTE)
    began = train.clock.now()
    assert train.deploy(replace(TWO, drain=drain(OnSilent="undrained"))) == "complete", train.reasons
    assert len(gone(train)) == 2
    assert 3 * MINUTE <= max(gone(train).values()) - began < 8 * MINUTE


@pytest.mark.parametrize("must_be_saved", [False, True])
@pytest.mark.parametrize("only_writes", [False, True])
def test_a_call_that_fails_while_pods_leave_is_no_silence(only_writes: bool, must_be_saved: bool) -> None:
    """Whatever on_silent says: in its tenth minute a drain goes on in good order."""
    train = four()
    drainer = train.drainer
    drain_with = (saving(train) if must_be_saved else DRAIN) | {"OnSilent": "undrained"}
    drainer.pods = dict.fromkeys(ids(train, "p5"), 15 * MINUTE)
    began, failed, invoke = train.clock.now(), list[float](), drainer.invoke

    def throttled_once(**arguments: Any) -> Any:
        asks = json.loads(arguments["Payload"])["requests"] is not None
        if train.clock.now() >= began + 10 * MINUTE and not failed and asks is only_writes:
            failed.append(train.clock.now())
            raise ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}}, "Invoke")
        return invoke(**arguments)

    train.provider.services.functions = lambda: type("Client", (), {"invoke": staticmethod(throttled_once)})()
    assert train.deploy(replace(TWO, drain=drain_with)) == "complete", train.reasons
    assert failed
    assert min(gone(train).values()) >= max(drainer.kubernetes.evictions.values()) + 15 * MINUTE


def test_a_drainer_that_falls_silent_delays_nodes_by_minutes_if_on_silent_is_undrained() -> None:
    train = four()
    drainer = train.drainer
    drainer.pods = dict.fromkeys(ids(train, "p5"), 600 * MINUTE)
    invoke, silent = drainer.invoke, list[float]()

    def later(**arguments: Any) -> Any:
        if len(drainer.calls) == 6 and not silent:
            drainer.fails = "function"
            silent.append(train.clock.now())
        return invoke(**arguments)

    train.provider.services.functions = lambda: type("Client", (), {"invoke": staticmethod(later)})()
    assert train.deploy(replace(TWO, drain=drain(OnSilent="undrained"))) == "complete", train.reasons
    assert 2.5 * MINUTE <= min(gone(train).values()) - silent[0] < 6 * MINUTE


def test_the_release_of_nodes_is_retried_for_a_minute() -> None:
    train = four()
    drain_with, drainer, (held, unsaved, *_) = saving(train), train.drainer, ids(train, "p5")
    drainer.kubernetes.unsavable.add(unsaved)
    failed, invoke = list[float](), drainer.invoke

    def throttled(**arguments: Any) -> Any:
        asked = json.loads(arguments["Payload"])["requests"]
        if asked and not asked["deployment"]["nodes"] and len(failed) < 3:
            failed.append(train.clock.now())
            raise ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}}, "Invoke")
        return invoke(**arguments)

    train.provider.services.functions = lambda: type("Client", (), {"invoke": staticmethod(throttled)})()
    reason = failure(train, replace(TWO, nodes_to_delete=(held, unsaved), drain=drain_with))
    assert len(failed) == 3
    assert drainer.kubernetes.given_back[held] - failed[0] < MINUTE
    assert messages.failures.RELEASED in reason
    assert codes(reason) == ["nodes-not-ready", "node-backup-failed"]


def test_nodes_that_the_drainer_does_not_release_are_named() -> None:
    train = four()
    drain_with, drainer, (held, unsaved, *_) = saving(train), train.drainer, ids(train, "p5")
    drainer.stuck, drainer.kubernetes.unsavable = {held}, {unsaved}
    reason = failure(train, replace(TWO, nodes_to_delete=(held, unsaved), drain=drain_with))
    assert f"The drainer did not release {held}, which stay cordoned" in reason and "nodes-not-released" in codes(
        reason
    )
    assert messages.failures.RELEASED not in reason
    drainer.stuck = set()
    assert train.deploy(replace(FOUR, retry="2")) == "complete", train.reasons
    assert no_node_is_held(drainer, train)


@pytest.mark.parametrize("one_list_leaves_it_out", [False, True])
def test_a_node_whose_deletion_was_accepted_before_a_failure_is_not_released(
    monkeypatch: pytest.MonkeyPatch, one_list_leaves_it_out: bool
) -> None:
    """Of two calls the second is refused: the node of the first is on its way out, whatever HyperPod says of it yet."""
    train = four()
    monkeypatch.setattr(executor, "MAX_IDS", 1)
    first, second = ids(train, "p5")[:2]
    real, deleted, hidden = train.client, list[str](), list[str]()

    def delete(**arguments: Any) -> Any:
        if deleted:
            # Not the next list, which tells of the refused call, but the one that is read to give nodes back.
            hidden.extend([deleted[0], ""] if one_list_leaves_it_out else ())
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "no"}}, "BatchDeleteClusterNodes")
        deleted.extend(arguments["NodeIds"])
        return real.batch_delete_cluster_nodes(**arguments)

    def list_late(**arguments: Any) -> Any:
        reply = copy.deepcopy(real.list_cluster_nodes(**arguments))
        for each in reply["ClusterNodeSummaries"] if train.status == "UPDATE_IN_PROGRESS" else ():
            each["InstanceStatus"] = {"Status": "Running"}
        left_out = hidden.pop() if hidden else ""
        shown = [each for each in reply["ClusterNodeSummaries"] if each.get("InstanceId") != left_out]
        return {**reply, "ClusterNodeSummaries": shown}

    late = {"batch_delete_cluster_nodes": delete, "list_cluster_nodes": list_late}
    train.client = type("Late", (), {"__getattr__": lambda _, name: late.get(name) or getattr(real, name)})()
    train.deploy(replace(TWO, nodes_to_delete=(first, second)))
    (gone_first,) = deleted
    (other,) = {first, second} - {gone_first}
    assert other in train.drainer.kubernetes.given_back
    assert gone_first not in train.drainer.kubernetes.given_back


def test_a_node_that_does_not_respond_does_not_count_as_saved() -> None:
    train = four()
    drain_with = saving(train)
    (node, *_) = ids(train, "p5")
    train.drainer.dead.add(node)
    template = replace(
        FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain_with | {"OnTimeout": "force"}
    )
    assert f"{node} is not ready: does not respond; cannot be saved" in failure(train, template)
    assert not gone(train)


def test_a_group_is_saved_once() -> None:
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK, vanished="leave")
    drain_with, drainer, old = saving(train), train.drainer, ids(train, "old")
    drainer.saving_s = 5 * MINUTE
    assert train.deploy(replace(TWO, groups_to_delete=("old",), drain=drain_with)) == "complete", train.reasons
    assert sorted(gone(train)) == sorted(old)
    assert sorted(node for node, _ in drainer.kubernetes.made) == sorted(old)
    # By another request the mark would be written anew, and say that nothing is saved.
    assert len({request["request"] for call in drainer.calls for request in _node_requests(call)}) == 1


def test_a_node_that_does_not_go_back_keeps_no_other() -> None:
    train = four()
    stuck, going = ids(train, "p5")[:2]
    train.drainer.stuck = {stuck}
    train.drainer.hold(stuck, request="20260101T000000")
    train.drainer.pods = {going: 5 * MINUTE}
    assert train.deploy(replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(going,))) == "complete", train.reasons
    assert list(gone(train)) == [going]
    assert any(line.startswith("not yet: the drainer fails: not released") for line in train.log)


def test_a_forbidden_backup_names_the_permission_of_the_teams_stack() -> None:
    train = four()
    drain_with = saving(train)
    (node, *_) = ids(train, "p5")
    train.drainer.forbidden.add(node)
    reason = failure(train, replace(FOUR, groups=(group("p5", 3),), nodes_to_delete=(node,), drain=drain_with))
    assert messages.failures.SAVING_HINT in reason


def test_a_drainer_that_fails_for_a_while_is_asked_again() -> None:
    train = four()
    drainer = train.drainer
    drainer.pods = dict.fromkeys(ids(train, "p5"), 10 * MINUTE)
    drainer.budgets = dict.fromkeys(drainer.pods, train.clock.now() + 15 * MINUTE)

    def away() -> None:
        drainer.fails, drainer.fails_until = "TooManyRequestsException", train.clock.now() + 8 * MINUTE

    train.clock.advance(1)
    away_at = iter([away])
    invoke = drainer.invoke

    def later(**arguments: Any) -> Any:
        if len(drainer.calls) == 6 and (strike := next(away_at, None)):
            strike()
        return invoke(**arguments)

    train.provider.services.functions = lambda: type("Client", (), {"invoke": staticmethod(later)})()
    assert train.deploy(TWO) == "complete", train.reasons
    assert drainer.fails
    assert len(gone(train)) == 2
    assert min(gone(train).values()) >= max(drainer.kubernetes.evictions.values()) + 10 * MINUTE


def test_a_drainer_that_stays_away_fails_the_deployment_and_no_node_is_deleted() -> None:
    train = four()
    drainer = train.drainer
    drainer.pods = dict.fromkeys(ids(train, "p5"), 20 * MINUTE)
    began = train.clock.now()
    invoke = drainer.invoke

    def later(**arguments: Any) -> Any:
        if len(drainer.calls) == 6:
            drainer.fails = "function"
        return invoke(**arguments)

    train.provider.services.functions = lambda: type("Client", (), {"invoke": staticmethod(later)})()
    reason = failure(train, TWO)
    assert "the drainer fails (no way to the API)" in reason
    assert f"The drainer did not release {NOT_TOLD}, which stay cordoned" in reason
    assert "`kubectl uncordon hyperpod-ID && kubectl annotate node hyperpod-ID cdk-hyperpod.dev/drain-`" in reason
    assert messages.failures.RELEASED not in reason
    assert 25 * MINUTE <= train.clock.now() - began < 35 * MINUTE
    assert not gone(train)
    # What it could not give back, the next deployment's first call does.
    assert drainer.held
    drainer.fails = ""
    train.provider.services.functions = lambda: drainer
    assert train.deploy(replace(FOUR, tags={"a": "b"})) == "complete", train.reasons
    assert no_node_is_held(drainer, train)


def test_a_group_is_held_until_it_is_deleted() -> None:
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK)
    drainer, old = train.drainer, ids(train, "old")
    drainer.pods = {old[0]: 10 * MINUTE}
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    when = gone(train)
    assert sorted(when) == sorted(old)
    assert min(when.values()) >= drainer.kubernetes.evictions[old[0]] + 10 * MINUTE
    assert all(drainer.kubernetes.given_back.get(node, math.inf) >= when[node] for node in old)


def test_a_node_that_comes_to_a_group_to_delete_keeps_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a replacement of one that was drained, and is not cordoned."""
    train = Stack(Template(groups=(group("p5", 2), group("old", 2)), drain=DRAIN), timings=QUICK, vanished="leave")
    before, real, came = set(ids(train, "old")), Stack._cluster, list[str]()

    def cluster(self: Stack, progress: Any) -> Any:
        if not came:
            hyperpod = train.hyperpod.client(principal="hyperpod")
            hyperpod.batch_replace_cluster_nodes(ClusterName="train", NodeIds=[min(before)])
            train.clock.advance(40 * MINUTE)
            came.extend(set(ids(train, "old")) - before)
            train.drainer.pods[came[0]] = 10 * MINUTE
        return real(self, progress)

    monkeypatch.setattr(Stack, "_cluster", cluster)
    assert train.deploy(replace(TWO, groups_to_delete=("old",))) == "complete", train.reasons
    assert gone(train)[came[0]] >= train.drainer.kubernetes.evictions[came[0]] + 10 * MINUTE


def test_a_rollback_that_cannot_release_nodes_reports_them() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)

    def away() -> None:
        train.drainer.fails = "TooManyRequestsException"

    assert train.deploy(replace(FOUR, groups_to_delete=("old",)), fail="before", meanwhile=away) == "rolled back"
    assert "[nodes-not-released]" in train.attributes[PREPARE]["NodesTaken"]


def test_a_rollback_releases_the_nodes_that_it_does_not_delete() -> None:
    train = Stack(Template(groups=(group("p5", 4), group("old", 2)), drain=DRAIN), timings=QUICK)
    old = ids(train, "old")
    assert train.deploy(replace(FOUR, groups_to_delete=("old",)), fail="before") == "rolled back"
    assert not gone(train)
    assert set(old) <= train.drainer.kubernetes.given_back.keys()
    assert no_node_is_held(train.drainer, train)


@pytest.mark.parametrize("how", ["", "function", "AccessDeniedException"])
def test_a_rollback_waits_five_minutes_at_most_and_goes_on_without_the_drainer(how: str) -> None:
    train = four()
    old = set(ids(train, "p5"))
    made: list[str] = []
    began: list[float] = []

    def busy() -> None:
        made.extend(node for node in ids(train, "p5") if node not in old)
        train.drainer.pods = dict.fromkeys([*old, *made], 600 * MINUTE)
        train.drainer.fails = how
        began.append(train.clock.now())

    template = replace(FOUR, groups=(group("p5", 6),))
    assert train.deploy(template, fail="after", meanwhile=busy) == "rolled back", train.reasons
    assert sorted(gone(train)) == sorted(made)
    assert max(gone(train).values()) - began[0] < 8 * MINUTE
    assert not train.crashes


def test_nodes_held_by_a_deployment_that_stopped_are_released_by_the_next_one() -> None:
    train = four()
    train.drainer.pods = dict.fromkeys(ids(train, "p5"), 600 * MINUTE)
    train.deploy(TWO, cancel=("Custom::HyperPodScaleDown", 3))
    train.given_up.clear()
    train.drainer.pods = {}
    assert train.deploy(replace(FOUR, tags={"a": "b"})) == "complete", train.reasons
    assert no_node_is_held(train.drainer, train)
