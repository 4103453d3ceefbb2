"""`cdk-hyperpod why`: one sentence out of a stack's events, as CloudFormation and CDK's provider framework write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli.deployment.stack_failures import last_operation
from cdk_hyperpod.cli.deployment.why import NEXT_STEPS
from cdk_hyperpod.cli.main import main
from helpers.validating import ROOT, changed

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/hyperpod-train-cluster/0a1b2c"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
PREPARE = "Custom::HyperPodScaleDown"
SENTENCE = "Scaling down train was refused. It is so; do that."


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not wrapped."""
    monkeypatch.delenv("COLUMNS", raising=False)


def event(kind: str, status: str, reason: str = "", *, when: datetime = WHEN) -> dict[str, Any]:
    physical = STACK if kind == "AWS::CloudFormation::Stack" else "x"
    return {
        "StackId": STACK,
        "PhysicalResourceId": physical,
        "LogicalResourceId": "Mine",
        "ResourceType": kind,
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
        "Timestamp": when,
    }


def first_reason(events: list[dict[str, Any]], since: datetime | None = None) -> str | None:
    return last_operation(events, since).reason


BEGAN = event("AWS::CloudFormation::Stack", "UPDATE_IN_PROGRESS", "User Initiated")
BACK = event(
    "AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed to update: [P]."
)
CANCELLED = event("AWS::IAM::Role", "UPDATE_FAILED", "Resource update cancelled")


@pytest.mark.parametrize(
    "reason",
    [
        f"Error: {SENTENCE}\n\nLogs: /aws/lambda/hyperpod-train-onevent\n",
        (
            f"Received response status [FAILED] from custom resource. Message returned: Error: {SENTENCE}\n\nLogs: /aws/lambda/x\n"
            " (RequestId: 0a1b)"
        ),
        f"Received response status [FAILED] from custom resource. Message returned: {SENTENCE} (RequestId: 0a1b)",
        SENTENCE,
    ],
)
def test_why_prints_only_the_sentence_of_the_function(reason: str) -> None:
    failed = event(PREPARE, "UPDATE_FAILED", reason)
    earlier = event(PREPARE, "UPDATE_FAILED", "Something else, some time ago")
    assert first_reason([BACK, CANCELLED, failed, BEGAN, earlier, BEGAN]) == SENTENCE


def test_the_resource_that_failed_is_named() -> None:
    """A stack has dozens of resources, and AWS's sentence rarely says which one it is about."""
    failed = event("AWS::IAM::Role", "CREATE_FAILED", "No such boundary")
    assert first_reason([BACK, failed, BEGAN]) == "Mine (AWS::IAM::Role): No such boundary"


def test_the_first_failed_resource_is_the_reason() -> None:
    first, then = (event("AWS::FSx::FileSystem", status, status) for status in ("CREATE_FAILED", "DELETE_FAILED"))
    assert first_reason([then, BACK, first, BEGAN]) == "Mine (AWS::FSx::FileSystem): CREATE_FAILED"


def test_a_successful_deployment_has_no_reason() -> None:
    done = event("AWS::CloudFormation::Stack", "UPDATE_COMPLETE")
    assert first_reason([done, BEGAN, event("AWS::IAM::Role", "CREATE_FAILED", "long ago"), BEGAN]) is None


def test_failures_before_the_given_time_are_not_reported() -> None:
    """A deployment that did not even begin, say for want of an approval, has not failed for a reason of yesterday."""
    failed = event("AWS::IAM::Role", "UPDATE_FAILED", "of yesterday")
    assert first_reason([failed, BEGAN], WHEN) == "Mine (AWS::IAM::Role): of yesterday"
    assert first_reason([failed, BEGAN], WHEN + timedelta(seconds=1)) is None


def test_failures_after_the_given_time_are_reported_even_if_the_operation_began_earlier() -> None:
    """Say, a deployment that found another one of the stack on its way, or a clock that is ahead."""
    failed = event(PREPARE, "UPDATE_FAILED", SENTENCE, when=WHEN + timedelta(minutes=5))
    assert first_reason([failed, BEGAN], WHEN + timedelta(minutes=1)) == SENTENCE


ROLLBACK_FAILED = event(
    "AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_FAILED", "The following resource(s) failed to update: [S]."
)
CONTINUED = event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "User Initiated")
OUT_OF_TIME = event(
    "Custom::HyperPodScaleDown", "UPDATE_FAILED", "Error: It did not end in time. [out-of-time]\n\nLogs: x"
)
FIRST = event("AWS::CloudWatch::Alarm", "CREATE_FAILED", "The alarm is wrong")
FIRST_REASON = "Mine (AWS::CloudWatch::Alarm): The alarm is wrong"


def both_reasons(*events: dict[str, Any]) -> tuple[str | None, str | None]:
    last = last_operation(events)
    return last.reason, last.rollback_reason


def test_a_rollback_that_failed_has_a_reason_of_its_own() -> None:
    found = both_reasons(ROLLBACK_FAILED, CANCELLED, OUT_OF_TIME, BACK, FIRST, BEGAN)
    assert found == (FIRST_REASON, "It did not end in time. [out-of-time]")


def test_of_a_rollback_that_was_continued_the_last_failure_counts() -> None:
    denied = event("Custom::HyperPodScaleDown", "UPDATE_FAILED", "It may not delete nodes")
    found = both_reasons(ROLLBACK_FAILED, denied, CONTINUED, ROLLBACK_FAILED, OUT_OF_TIME, BACK, FIRST, BEGAN)
    assert found == (FIRST_REASON, "It may not delete nodes")


@pytest.mark.parametrize("status", ["UPDATE_ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_IN_PROGRESS"])
def test_a_rollback_that_did_not_fail_in_the_end_has_no_reason(status: str) -> None:
    end = event("AWS::CloudFormation::Stack", status)
    found = both_reasons(end, CONTINUED, ROLLBACK_FAILED, OUT_OF_TIME, BACK, FIRST, BEGAN)
    assert found == (FIRST_REASON, None)


def test_a_rollback_in_which_no_resource_failed_has_the_reason_of_the_stack() -> None:
    found = both_reasons(ROLLBACK_FAILED, BACK, FIRST, BEGAN)
    assert found == (FIRST_REASON, ROLLBACK_FAILED["ResourceStatusReason"])


def test_a_cancelled_update_whose_rollback_failed_has_only_the_reason_of_the_rollback() -> None:
    found = both_reasons(ROLLBACK_FAILED, OUT_OF_TIME, CONTINUED, BEGAN)
    assert found == (None, "It did not end in time. [out-of-time]")


@pytest.mark.parametrize("reason", ["Resource creation cancelled", "Resource update cancelled"])
def test_a_cancelled_resource_is_not_a_reason(reason: str) -> None:
    assert first_reason([event("AWS::IAM::Role", "CREATE_FAILED", reason), BEGAN]) is None


def test_a_reason_may_hold_the_word_cancelled() -> None:
    said = "The job was cancelled by an administrator"
    assert first_reason([CANCELLED, event(PREPARE, "CREATE_FAILED", said), BEGAN]) == said


class Operations:
    """HyperPod's record: a scaling that a later one superseded."""

    def list_cluster_operations(self, **_: object) -> dict[str, Any]:
        return {"ClusterOperationSummaries": self._operations()}

    def describe_cluster_operation(self, *, ClusterName: str, OperationId: str) -> dict[str, Any]:
        return next(each for each in self._operations() if each["OperationId"] == OperationId)

    def list_change_sets(self, **_: object) -> dict[str, Any]:
        return {"Summaries": []}

    def list_stack_resources(self, **_: object) -> dict[str, Any]:
        return {"StackResourceSummaries": []}

    def list_cluster_nodes(self, **_: object) -> dict[str, Any]:
        return {"ClusterNodeSummaries": []}

    def describe_cluster(self, *, ClusterName: str) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": "no"}}, "DescribeCluster")

    def _operations(self) -> list[dict[str, Any]]:
        return []


class Answers(Operations):
    """CloudFormation, with one stack that failed at a given time."""

    def __init__(self, when: datetime) -> None:
        self._when = when

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        failed = event(PREPARE, "UPDATE_FAILED", SENTENCE, when=self._when)
        return {"StackEvents": [failed, BEGAN] if StackName.endswith("-cluster") else []}


def why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failed: datetime, *options: str) -> str:
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: Answers(failed))
    assert main(["why", "--config", str(ROOT / "cluster.yaml"), *options]) == 0
    return str(capsys.readouterr().out)


class OfTraining(Operations):
    """An account with no stack of this app, in which a stack Training has the cluster."""

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        if StackName == "Training":
            return {"StackEvents": [event(PREPARE, "UPDATE_FAILED", SENTENCE), BEGAN]}
        error = {"Code": "ValidationError", "Message": f"Stack [{StackName}] does not exist"}
        raise ClientError({"Error": error}, "DescribeStackEvents")

    def describe_cluster(self, *, ClusterName: str) -> dict[str, Any]:
        arn = "arn:aws:sagemaker:us-west-2:111122223333:cluster/0a1b2c3d4e5f"
        return {"ClusterArn": arn, "ClusterName": ClusterName, "ClusterStatus": "InService", "InstanceGroups": []}

    def list_tags(self, **_: object) -> dict[str, Any]:
        stack = STACK.replace("hyperpod-train-cluster", "Training")
        return {"Tags": [{"Key": "aws:cloudformation:stack-id", "Value": stack}]}


@pytest.mark.parametrize("options", [[], ["--stack", "Training"]], ids=["by the cluster's tag", "named"])
def test_a_stack_of_another_app_is_asked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: OfTraining())
    assert main(["why", "--config", str(ROOT / "cluster.yaml"), *options]) == 0
    assert capsys.readouterr().out.startswith(f"Training: {SENTENCE}\n")


def test_a_stack_that_may_not_be_looked_up_is_not_a_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Denied(OfTraining):
        def list_tags(self, **_: object) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListTags")

    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: Denied())
    assert main(["why", "--config", str(ROOT / "cluster.yaml")]) == 1
    out, err = capsys.readouterr()
    assert (
        out == ""
        and err.startswith("your credentials find no stack hyperpod-llm-train-foundation or ")
        and err.count("\n") == 1
    )
    assert "your credentials lack the permission ListTags" in err and "--stack" in err


def test_where_nothing_was_deployed_nothing_has_succeeded_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Nobody(OfTraining):
        def describe_cluster(self, *, ClusterName: str) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": "no"}}, "DescribeCluster")

        def get_caller_identity(self) -> dict[str, Any]:
            return {"Account": "111122223333"}

    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: Nobody())
    for options, first in (([], "hyperpod-llm-train-foundation or "), (["--stack", "x"], "x. Deploy")):
        assert main(["why", "--config", str(ROOT / "cluster.yaml"), *options]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"your credentials find no stack {first}") and err.count("\n") == 1
        assert (", and no other stack has cluster llm-train." in err) == (not options)

    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(changed({"account": "999999999999"})))
    assert main(["why", "--config", str(tmp_path / "cluster.yaml")]) == 1
    assert capsys.readouterr().err.startswith(
        "account: the file says 999999999999, but your credentials are of 111122223333"
    )


def test_a_cluster_by_its_name_needs_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: Answers(WHEN))
    where = ["--cluster", "big", "--region", "us-west-2"]
    assert main(["why", *where]) == 0
    assert capsys.readouterr().out == f"hyperpod-big-cluster: {SENTENCE}\n{NEXT_STEPS}\n"
    assert main(["why", *where, "--since", str((WHEN + timedelta(hours=1)).timestamp())]) == 0
    assert capsys.readouterr().out.endswith(": cdk-hyperpod why --cluster big --region us-west-2\n")


def test_why_finds_a_failure_although_the_local_clock_is_a_minute_ahead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since = ("--since", str((WHEN + timedelta(seconds=100)).timestamp()))
    assert why(monkeypatch, capsys, WHEN, *since) == f"hyperpod-llm-train-cluster: {SENTENCE}\n{NEXT_STEPS}\n"


def test_where_nothing_is_found_it_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since = ("--since", str((WHEN + timedelta(hours=1)).timestamp()), "--profile", "prod")
    assert why(monkeypatch, capsys, WHEN, *since).endswith(
        f": cdk-hyperpod why --config {ROOT / 'cluster.yaml'} --profile prod\n"
    )


def test_json_has_a_stack_and_a_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(why(monkeypatch, capsys, WHEN, "--json"))
    assert (told["command"], told["schema"], told["cluster"]) == ("why", 1, "llm-train")
    assert told["failures"] == [{"stack": "hyperpod-llm-train-cluster", "reason": SENTENCE, "rollback_reason": None}]


def test_the_superseding_operation_follows_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def operation(name: str, status: str, before: int, after: int) -> dict[str, Any]:
        counts = {"Original": {"TargetCount": before}, "Desired": {"TargetCount": after}}
        begun = datetime(2026, 1, 1, 12, tzinfo=UTC)
        details = [{"InstanceGroupName": "p5", **counts}]
        return {"OperationId": name, "Status": status, "CreationTime": begun, "ScalingDetails": details}

    both = [operation("b", "Done", 6, 3), operation("a", "Superseded", 4, 6)]
    monkeypatch.setattr(Operations, "_operations", lambda _: both)
    assert why(monkeypatch, capsys, datetime.now(UTC)).splitlines()[1:-1] == [
        "HyperPod's operation a of 2026-01-01 12:00:00 UTC (p5 4 -> 6) was superseded by operation b of 2026-01-01 12:00:00 UTC (p5 6 -> 3)"
    ]


VALIDATION = "Validation failed with 1 error(s). Call DescribeEvents to retrieve the full list of issues."
TAKEN = "Resource of type 'AWS::S3::Bucket' with identifier 'b' already exists."
REFUSED = f"CloudFormation refused the template and changed nothing. Bucket: {TAKEN[:-1]} [NAME_CONFLICT_VALIDATION]."
NO_CHANGES = "The submitted information didn't contain changes. Submit different information to create a change set."


class Refusing(Answers):
    """The cluster's stack, of which CloudFormation's early validation refused the template or the change set."""

    def __init__(self, *, events: list[dict[str, Any]], change_sets: list[dict[str, Any]], denied: str = "") -> None:
        self._events, self._change_sets, self._denied = events, change_sets, denied

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        return {"StackEvents": self._events if StackName.endswith("-cluster") else []}

    def list_change_sets(self, **given: Any) -> dict[str, Any]:
        self._check("ListChangeSets")
        return {"Summaries": self._change_sets if given["StackName"].endswith("-cluster") else []}

    def describe_events(self, *, Filters: object, **_: str) -> dict[str, Any]:
        self._check("DescribeEvents")
        error = {
            "OperationId": "1",
            "EventType": "VALIDATION_ERROR",
            "Timestamp": WHEN,
            "LogicalResourceId": "Bucket",
            "ValidationName": "NAME_CONFLICT_VALIDATION",
            "ValidationStatusReason": TAKEN,
        }
        warning = {**error, "ValidationFailureMode": "WARN", "ValidationStatusReason": "almost full"}
        return {"OperationEvents": [warning, error, {**error, "EventType": "PROVISIONING_ERROR"}]}

    def _check(self, operation: str) -> None:
        if operation == self._denied:
            message = f"User: u is not authorized to perform: cloudformation:{operation}"
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, operation)


ROLLED_BACK = [
    event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_COMPLETE"),
    event("AWS::CloudFormation::Stack", "UPDATE_ROLLBACK_IN_PROGRESS", "Validation failure detected."),
    event("AWS::CloudFormation::Stack", "UPDATE_FAILED", VALIDATION),
    BEGAN,
]
UPDATED = [event("AWS::CloudFormation::Stack", "UPDATE_COMPLETE"), BEGAN]


def change_set(reason: str, *, status: str = "FAILED", when: datetime = WHEN) -> dict[str, Any]:
    return {"ChangeSetId": "c", "Status": status, "StatusReason": reason, "CreationTime": when}


FAILED_SET = change_set("The following hook(s)/validation failed: [AWS::EarlyValidation::ResourceExistenceCheck].")


@pytest.mark.parametrize(
    ("aws", "printed"),
    [
        (Refusing(events=ROLLED_BACK, change_sets=[]), REFUSED),
        (Refusing(events=UPDATED, change_sets=[FAILED_SET]), REFUSED),
        (
            Refusing(events=ROLLED_BACK, change_sets=[], denied="DescribeEvents"),
            f"UPDATE_ROLLBACK_COMPLETE: {VALIDATION}",
        ),
        (
            Refusing(events=UPDATED, change_sets=[FAILED_SET], denied="DescribeEvents"),
            f"CloudFormation refused the change set: {FAILED_SET['StatusReason']}",
        ),
        (
            Refusing(events=[ROLLED_BACK[0], BEGAN], change_sets=[], denied="DescribeEvents"),
            "UPDATE_ROLLBACK_COMPLETE, and its events give no reason",
        ),
    ],
    ids=["at the update", "of a change set", "denied", "of a change set, denied", "without a reason"],
)
def test_a_refusal_by_early_validation_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], aws: Refusing, printed: str
) -> None:
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: aws)
    assert main(["why", "--config", str(ROOT / "cluster.yaml")]) == 0
    reason, *more = capsys.readouterr().out.splitlines()
    assert reason == f"hyperpod-llm-train-cluster: {printed}"
    is_denied = any("the permission cloudformation:DescribeEvents" in line for line in more)
    assert is_denied == (printed != REFUSED)


@pytest.mark.parametrize(
    ("update", "first"),
    [([FIRST], FIRST_REASON), ([], f"UPDATE_ROLLBACK_FAILED: {BACK['ResourceStatusReason']}")],
    ids=["a resource failed", "it was cancelled"],
)
def test_a_failed_rollback_is_printed_after_the_first_failure(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    update: list[dict[str, Any]],
    first: str,
) -> None:
    aws = Refusing(events=[ROLLBACK_FAILED, OUT_OF_TIME, BACK, *update, BEGAN], change_sets=[], denied="DescribeEvents")
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: aws)
    assert main(["why", "--config", str(ROOT / "cluster.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"hyperpod-llm-train-cluster: {first}",
        "hyperpod-llm-train-cluster: The rollback failed: It did not end in time. [out-of-time]",
    ]


@pytest.mark.parametrize(
    "made",
    [
        change_set(NO_CHANGES),
        change_set("", status="CREATE_COMPLETE"),
        {**FAILED_SET, "CreationTime": WHEN - timedelta(seconds=1)},
    ],
    ids=["no changes", "succeeded", "before the last deployment"],
)
def test_a_change_set_that_did_not_fail_the_last_deployment_is_no_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: dict[str, Any]
) -> None:
    aws = Refusing(events=UPDATED, change_sets=[made])
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: aws)
    assert main(["why", "--config", str(ROOT / "cluster.yaml")]) == 0
    assert capsys.readouterr().out.startswith(
        "Nothing failed in the last deployment of hyperpod-llm-train-foundation, "
    )


def test_change_sets_that_cannot_be_read_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws = Refusing(events=UPDATED, change_sets=[], denied="ListChangeSets")
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: aws)
    assert main(["why", "--config", str(ROOT / "cluster.yaml")]) == 0
    assert "note: hyperpod-llm-train-cluster: " in (out := capsys.readouterr().out)
    assert "the permission cloudformation:ListChangeSets" in out


@pytest.mark.parametrize(("hours", "says"), [(200, True), (2, False), (100, False)])
def test_a_controller_that_was_replaced_within_a_day_is_noted(
    monkeypatch: pytest.MonkeyPatch, hours: int, says: bool
) -> None:
    """The cluster was created 201 hours ago, and the controller launched so many hours later."""
    now = datetime(2026, 1, 10, tzinfo=UTC)
    created = now - timedelta(hours=201)
    node = SimpleNamespace(
        node_type="Controller", launched=created + timedelta(hours=hours), name="i-0aaaaaaaaaaaaaaa1"
    )
    module = import_module("cdk_hyperpod.cli.deployment.why")
    monkeypatch.setattr(module.live, "describe", lambda _: {"CreationTime": created})
    monkeypatch.setattr(
        module.live, "nodes", lambda *_: [node, SimpleNamespace(node_type="Compute", launched=now, name="i-1")]
    )
    monkeypatch.setattr(module.tables, "now", lambda: now)
    notes = module._new_controller(None)
    assert [note.split(" was launched")[0] for note in notes] == (
        ["note: the Slurm controller was replaced: i-0aaaaaaaaaaaaaaa1"] if says else []
    )
