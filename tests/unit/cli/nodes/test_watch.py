"""`cdk-hyperpod watch`: what it says while a cluster comes up, and how it ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cdk_hyperpod.cli.nodes.watch_view import View, end_of, minimum_clock, state_lines
from cdk_hyperpod_local.hyperpod.samples import group
from unit.cli.conftest import FakeAws, Run, refused, write

Json = Any
STACK = "hyperpod-small-cluster"


@pytest.fixture
def slept(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waited each time; the model's clock goes on by as much, and more where nothing is new."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 2_000, "it never ends"
        fake_aws.model.clock.advance(seconds)  # type: ignore[attr-defined]

    monkeypatch.setattr("time.sleep", sleep)
    return waits


def stack(fake_aws: FakeAws, status: str, *events: tuple[str, str]) -> Json:
    when = datetime.fromtimestamp(fake_aws.model.clock.now(), UTC)
    kind = {
        "StackId": "id",
        "PhysicalResourceId": "x",
        "LogicalResourceId": "Own",
        "ResourceType": "AWS::SageMaker::Cluster",
        "Timestamp": when,
    }
    told = [{**kind, "ResourceStatus": state, "ResourceStatusReason": why} for state, why in events]
    return {"StackName": STACK, "StackStatus": status, "CreationTime": when, "events": told}


def test_a_cluster_comes_up(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 2, minimum=1))
    status, out, err = run("watch")
    lines = out.splitlines()

    assert (status, err, lines[-1]) == (0, "", "small: ready")
    assert lines[0].endswith(" cluster small: Creating")
    assert lines[1].split() == ["group", "status", "current", "minimum", "target"]
    assert any("work" in line and "rolls back at " in line and line.endswith("UTC or later") for line in lines)
    assert sum("Cluster small creation completed successfully" in line for line in lines) == 1
    assert sum("Instance creation i-" in line for line in lines) == 3
    assert max(map(len, lines)) <= 140 and "\033" not in out


def test_watch_makes_at_most_four_calls_a_minute_while_nothing_changes(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.model.set_capacity("ml.p5.48xlarge", 0)
    fake_aws.stack = stack(fake_aws, "UPDATE_IN_PROGRESS")
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    looks: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        looks.append((seconds, len(fake_aws.calls)))
        if len(looks) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    status, _, err = run("watch")
    assert (status, err) == (130, "\ninterrupted\n")
    for (wait, before), (_, after) in pairwise(looks[1:]):
        assert (after - before) * 60 / wait <= 4


def test_a_minimum_that_is_not_met_rolls_back_and_says_why(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.model.set_capacity("ml.p5.48xlarge", 0)
    fake_aws.cluster(group("work", 2, minimum=2))
    status, out, _ = run("watch")

    assert status == 3
    assert "\nsmall: rolled back: work: " in out
    assert "Warn  work: " in out


@pytest.mark.parametrize("continuous", [True, False], ids=["continuous", "standard"])
def test_watch_counts_a_failed_node_again_even_without_an_event(
    continuous: bool, fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.cluster(group("work", 2), continuous=continuous)
    fake_aws.quiet()
    first = fake_aws.nodes("work")[0]
    fake_aws.model.change_node(first, status="Failure")

    def mend(seconds: float) -> None:
        slept.append(seconds)
        assert len(slept) < 9, "it never ends"
        if len(slept) == 3:
            fake_aws.model.change_node(first, status="Running")

    slept.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", mend)
        status, out, _ = run("watch")
    assert (status, slept) == (0, [15, 60, 60])
    assert out.count("note: not ready: 1 Failure\n") == 1 and out.endswith("small: ready\n")
    # Four calls a minute: a look's three, or two without events, and one page of nodes.
    assert fake_aws.calls.count("sagemaker:list_cluster_nodes") == 3


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "CREATE_FAILED"])
def test_a_foundation_that_failed_is_the_end_and_says_why(
    status: str, fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.stack = {
        **stack(fake_aws, status, ("CREATE_FAILED", "no more VPCs")),
        "StackName": "hyperpod-small-foundation",
    }

    code, out, _ = run("watch")
    assert (code, slept) == (4 if status == "CREATE_FAILED" else 3, [])
    assert out.splitlines()[0][9:] == f"stack hyperpod-small-foundation: {status}; no cluster stack yet"
    assert f"({status})\nhyperpod-small-foundation: Own (AWS::SageMaker::Cluster): no more VPCs\n" in out


@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "UPDATE_COMPLETE"])
def test_after_the_foundation_it_waits_a_while_for_the_clusters_stack(
    status: str, fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.stack = {**stack(fake_aws, status), "StackName": "hyperpod-small-foundation"}

    code, out, err = run("watch")
    assert (code, out[9:]) == (1, f"stack hyperpod-small-foundation: {status}; no cluster stack yet\n")
    assert sum(slept) == pytest.approx(600, abs=60)
    assert f"stack hyperpod-small-foundation is in {status}, and there is no stack {STACK} yet" in err


def test_watch_stops_waiting_for_a_change_set_that_is_not_executed(
    fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.stack = stack(fake_aws, "REVIEW_IN_PROGRESS")

    status, _, err = run("watch")
    assert status == 1 and sum(slept) == pytest.approx(600, abs=60)
    assert f"stack {STACK} is in REVIEW_IN_PROGRESS, and there is no cluster small" in err


@pytest.mark.parametrize(("times", "code"), [(4, 0), (5, 1)])
@pytest.mark.parametrize("where", ["describe_cluster", "list_cluster_events", "list_cluster_nodes"])
def test_watch_notes_a_failed_read_and_ends_after_several_in_a_row(
    where: str, times: int, code: int, fake_aws: FakeAws, slept: list[float], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.model.clock.advance(60)  # type: ignore[attr-defined]
    # The first look has to succeed; nodes are counted in a later one.
    client, failing = fake_aws.model.client(), iter(range(1 if where == "list_cluster_nodes" else 0, 1 + times))
    works = getattr(client, where)

    def fail(**given: Any) -> Any:
        if next(failing, 0):
            raise refused("InternalFailure", "an error of ours", "DescribeCluster")
        return works(**given)

    monkeypatch.setattr(type(client), where, lambda _, **given: fail(**given), raising=False)
    status, out, err = run("watch")
    assert status == code
    assert out.count("note: a look failed") == 1
    assert ("InternalFailure" in err) is (code == 1) and err.count("\n") == code


def test_watch_ends_at_the_first_lasting_error(
    fake_aws: FakeAws, slept: list[float], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.model.set_capacity("ml.p5.48xlarge", 0)
    fake_aws.cluster(group("work", 1))
    monkeypatch.setattr("time.sleep", lambda _: fake_aws.denied.add("sagemaker:describe_cluster"))
    status, out, err = run("watch")
    assert status == 1 and err.startswith("your credentials lack the permission ") and "a look failed" not in out


def test_a_stack_that_rolls_back_says_why(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.stack = stack(fake_aws, "UPDATE_ROLLBACK_COMPLETE", ("UPDATE_FAILED", "no capacity for work"))

    status, out, _ = run("watch")
    assert (status, slept) == (3, [])
    assert (
        f"small: rolled back (UPDATE_ROLLBACK_COMPLETE)\n{STACK}: Own (AWS::SageMaker::Cluster): no capacity for work\n"
        in out
    )


@pytest.mark.parametrize("name", [STACK, "hyperpod-small-foundation"])
def test_a_refused_change_set_is_said_of_a_cluster_that_runs_as_before(
    name: str, fake_aws: FakeAws, slept: list[float], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every node runs, so the exit code is 0."""
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.stack = stack(fake_aws, "UPDATE_COMPLETE")
    updated = fake_aws.stack["LastUpdatedTime"] = fake_aws.stack["CreationTime"]
    refused_set = {"ChangeSetId": "id", "Status": "FAILED", "StatusReason": "the name is taken"}
    change_sets = {"before": updated - timedelta(hours=1), "after": updated + timedelta(hours=1)}
    described = {**fake_aws.stack, "StackName": name}
    monkeypatch.setattr(
        type(fake_aws.client("cloudformation")),
        "_describe_stacks",
        lambda self, StackName: {
            "Stacks": [described if StackName == name else {**fake_aws.stack, "StackName": StackName}]
        },
    )

    described["change_sets"] = [{**refused_set, "CreationTime": change_sets["before"]}]
    status, out, _ = run("watch")
    assert (status, out.splitlines()[-1]) == (0, "small: ready")

    described["change_sets"].append({**refused_set, "CreationTime": change_sets["after"]})
    status, out, _ = run("watch")
    end, reason = out.splitlines()[-2:]
    assert status == 0 and end.startswith("small: ready, but CloudFormation refused the last change set")
    assert reason == f"{name}: CloudFormation refused the change set: the name is taken"


def test_a_deployment_that_rolls_back_names_the_nodes_it_deleted(
    fake_aws: FakeAws, slept: list[float], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.cluster(group("work", 3))
    fake_aws.quiet()
    fake_aws.model.clock.advance(60)  # type: ignore[attr-defined]
    fake_aws.stack = stack(fake_aws, "UPDATE_IN_PROGRESS")
    deleted, *kept = fake_aws.nodes("work")

    def fail(_: float) -> None:
        fake_aws.model.call("BatchDeleteClusterNodes", {"ClusterName": "small", "NodeIds": [deleted]})
        fake_aws.quiet()
        fake_aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroups": [group("work", 3)]})
        fake_aws.quiet()
        fake_aws.stack["StackStatus"] = "UPDATE_ROLLBACK_COMPLETE"

    monkeypatch.setattr("time.sleep", fail)
    status, out, _ = run("watch")
    (launched,) = {*fake_aws.nodes("work")} - {*kept}
    assert status == 3
    *_, heading, titles, row, _ = out.splitlines()
    assert heading == "Deleted before it failed:"
    assert titles.split() == ["GROUP", "DELETED", "LAUNCHED", "SINCE"]
    assert row.split() == ["work", deleted, launched]


def test_a_controller_whose_scripts_fail_comes_with_its_log(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.model.clock.advance(3_600)  # type: ignore[attr-defined]
    fake_aws.model.tick()
    (head,) = fake_aws.nodes("head")
    fake_aws.streams = {f"LifecycleConfig/head/{head}": [(1_780_000_000_000 + n, f"line {n}") for n in range(9)]}
    cluster = fake_aws.model.cluster("small")
    fake_aws.model._state.log(
        cluster, "Instance", "Lifecycle scripts failed", level="Error", group="head", instance_id=head
    )
    cluster.status, cluster.failure = "Failed", "The controller could not be provisioned."

    status, out, _ = run("watch")
    assert status == 4
    assert "\nsmall: cluster failed: The controller could not be provisioned.\n" in out
    told = [line for line in out.splitlines() if line.startswith(f"    {head} ")]
    assert [line.rpartition(" ")[2] for line in told] == ["4", "5", "6", "7", "8"]


def test_a_standard_cluster_has_no_events_and_says_so(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 1), continuous=False)
    status, out, _ = run("watch")
    assert status == 0 and out.count("note: HyperPod keeps no events of this cluster") == 1
    assert "sagemaker:list_cluster_events" not in fake_aws.calls


def test_nothing_to_watch_and_a_cluster_that_goes(fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("watch") == (
        1,
        "",
        f"there is nothing to watch: there is no cluster small in us-west-2, and no stack {STACK}\n",
    )
    fake_aws.model.set_capacity("ml.p5.48xlarge", 0)
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()

    def sleep(_: float) -> None:
        fake_aws.model.call("DeleteCluster", {"ClusterName": "small"})
        fake_aws.quiet()

    monkeypatch.setattr("time.sleep", sleep)
    status, _, err = run("watch")
    assert (status, err) == (
        1,
        f"the cluster was deleted: there is no cluster small in us-west-2, and no stack {STACK}\n",
    )


def test_json_is_a_document_a_line(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    status, out, _ = run("watch", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and {(each["command"], each["schema"]) for each in told} == {("watch", 1)}
    assert told[0]["kind"] == "state" and told[0]["groups"][1]["target"] == 1
    besides = ("active_operations", "software_update_status", "training_plan_status")
    told_of = [[each["groups"][1][name] for name in besides] for each in told if each["kind"] == "state"]
    assert told_of[0] == [{"Scaling": 1}, None, None] and told_of[-1] == [{}, None, None]
    assert told[-1] == {"command": "watch", "schema": 1, "kind": "end", "exit_code": 0, "text": "ready", "reasons": []}


def test_the_reason_of_a_stack_may_be_out_of_reach(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.stack = stack(fake_aws, "UPDATE_ROLLBACK_COMPLETE", ("UPDATE_FAILED", "why"))
    fake_aws.denied = {"cloudformation:describe_stack_events"}
    status, out, _ = run("watch")
    assert status == 3 and "note: the reason is unknown: cannot read the events of hyperpod-small-cluster" in out
    assert "\nsmall: rolled back (UPDATE_ROLLBACK_COMPLETE)\n" in out


@pytest.mark.parametrize("right", ["sagemaker:list_cluster_events", "cloudformation:describe_stacks"])
def test_a_right_that_is_missing_is_a_note_and_the_rest_goes_on(
    right: str, fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.denied = {right}
    fake_aws.cluster(group("work", 1))
    status, out, _ = run("watch")
    assert status == 0 and out.count(f"your credentials lack the permission {right}") == 1


def live_cluster(status: str = "InService", current: int = 2, group_status: str = "InService") -> Json:
    one = {"InstanceGroupName": "w", "Status": group_status, "CurrentCount": current, "TargetCount": 2, "MinCount": 1}
    return {"ClusterName": "c", "ClusterStatus": status, "InstanceGroups": [one]}


@pytest.mark.parametrize(
    ("stack_status", "cluster", "rolled_back", "code"),
    [
        (None, live_cluster(), "", 0),
        ("CREATE_COMPLETE", live_cluster(), "", 0),
        ("UPDATE_IN_PROGRESS", live_cluster(), "", None),
        ("UPDATE_ROLLBACK_IN_PROGRESS", live_cluster("Failed"), "", None),
        ("CREATE_COMPLETE", live_cluster(current=1), "", None),
        ("CREATE_COMPLETE", live_cluster(group_status="Degraded"), "", None),
        ("CREATE_COMPLETE", live_cluster("Updating"), "", None),
        ("CREATE_COMPLETE", live_cluster(), "w: why", 3),
        ("ROLLBACK_COMPLETE", None, "", 3),
        ("UPDATE_ROLLBACK_FAILED", live_cluster(), "", 4),
        ("CREATE_FAILED", None, "", 4),
        (None, live_cluster("Failed"), "", 4),
        ("CREATE_IN_PROGRESS", None, "", None),
        ("REVIEW_IN_PROGRESS", None, "", None),
        ("REVIEW_IN_PROGRESS", live_cluster(), "", 0),
    ],
)
def test_watch_ends_with_the_exit_code_of_the_stack_and_cluster_status(
    stack_status: str | None, cluster: Json, rolled_back: str, code: int | None
) -> None:
    found = None if stack_status is None else {"StackName": "s", "StackStatus": stack_status}
    end = end_of(View(stack=found, cluster=cluster, rolled_back=rolled_back))
    assert (end and end.code) == code


def test_watch_says_when_an_unmet_minimum_rolls_back() -> None:
    waiting = {"Status": "Creating", "CurrentCount": 0, "MinCount": 2}
    began = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)
    assert minimum_clock(waiting, began) == f"rolls back at {began + timedelta(hours=3):%H:%M} UTC or later"
    assert minimum_clock(waiting, None) == "rolls back 3 hours after the change began"
    assert (
        minimum_clock({**waiting, "CurrentCount": 2}, began)
        == minimum_clock({**waiting, "Status": "InService"}, began)
        == ""
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"SoftwareUpdateStatus": "Succeeded", "TrainingPlanStatus": "Applied", "ActiveOperations": {}}, ""),
        ({"SoftwareUpdateStatus": None, "TrainingPlanStatus": "Active"}, ""),
        ({"SoftwareUpdateStatus": "InProgress"}, "software update InProgress"),
        ({"SoftwareUpdateStatus": "RollbackComplete"}, "software update RollbackComplete"),
        ({"TrainingPlanStatus": "Expired"}, "training plan Expired"),
        ({"ActiveOperations": {"Scaling": 1}}, "Scaling"),
        ({"ActiveOperations": {"Scaling": 1}, "CurrentCount": 1}, ""),
        (
            {"SoftwareUpdateStatus": "Pending", "TrainingPlanStatus": "Of tomorrow", "ActiveOperations": {"New": 1}},
            "software update Pending; training plan Of tomorrow; New",
        ),
        (
            {"Status": "Updating", "CurrentCount": 0, "SoftwareUpdateStatus": "Failed"},
            "software update Failed; rolls back 3 hours after the change began",
        ),
    ],
    ids=str,
)
def test_watch_shows_the_unusual_states_of_a_group(said: Json, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = live_cluster()
    cluster["InstanceGroups"][0] |= said
    monkeypatch.setenv("COLUMNS", "120")
    _, headings, row, *below = state_lines(View(stack=None, cluster=cluster), None)
    assert row[len(headings) :].strip() == shown
    assert [line for line in below if "docs/at-3-am.md" not in line] == []
    assert bool(below) is ("rolls back" in shown)

    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, state_lines(View(stack=None, cluster=cluster), None))) <= 80


def test_a_file_of_its_own_stack(fake_aws: FakeAws, slept: list[float], run: Run) -> None:
    write(name="small")
    fake_aws.cluster(group("work", 1))
    fake_aws.stack = {**stack(fake_aws, "CREATE_COMPLETE"), "StackName": "mine"}
    assert (
        run("watch", "--stack", "mine")[1].splitlines()[0][9:].startswith("stack mine: CREATE_COMPLETE; cluster small:")
    )


def test_watch_does_not_count_nodes_that_it_may_not_list(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.model.change_node(fake_aws.nodes("work")[0], status="Failure")
    fake_aws.denied = {"sagemaker:list_cluster_nodes"}
    status, out, _ = run("watch")
    assert status == 0 and "note: nodes are not counted: your credentials lack the permission" in out
    assert out.endswith("small: ready by the counts of its groups; the nodes were not read\n")


def test_a_cluster_that_goes_while_its_nodes_are_counted_is_not_ready(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()

    def gone(*_: object, **__: object) -> Json:
        monkeypatch.setattr("cdk_hyperpod_local.hyperpod.client.Client.describe_cluster", gone, raising=False)
        raise refused("ResourceNotFound", "Cluster small not found", "ListClusterNodes")

    monkeypatch.setattr("cdk_hyperpod_local.hyperpod.client.Client.list_cluster_nodes", gone, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: None)
    status, _, err = run("watch")
    assert (status, err) == (
        1,
        "the cluster was deleted: there is no cluster small in us-west-2, and no stack hyperpod-small-cluster\n",
    )


@pytest.mark.parametrize("denied", [False, True])
def test_watch_notes_a_superseded_operation_if_it_may_read_it(
    denied: bool, fake_aws: FakeAws, slept: list[float], run: Run
) -> None:
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()
    for count in (6, 3):
        fake_aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroups": [group("work", count)]})
        fake_aws.model.clock.advance(1)  # type: ignore[attr-defined]
    if denied:
        fake_aws.denied.add("sagemaker:list_cluster_operations")
    status, out, _ = run("watch")
    said = [line for line in out.splitlines() if "superseded" in line]
    assert status == 0
    assert len(said) == (0 if denied else 1)
    assert denied or ("(work 4 -> 6) was superseded by operation" in said[0] and "(work 6 -> 3)" in said[0])
