"""`cdk-hyperpod why`: one sentence out of a stack's events, as CloudFormation and CDK's provider framework write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli.deployment.why import first_reason
from cdk_hyperpod.cli.main import main
from helpers.validating import ROOT, changed

STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/hyperpod-train-cluster/0a1b2c"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
SENTENCE = "Scaling down train was refused. It is so; do that."


def event(kind: str, status: str, reason: str = "", *, when: datetime = WHEN) -> dict[str, Any]:
    physical = STACK if kind == "AWS::CloudFormation::Stack" else "x"
    return {
        "StackId": STACK,
        "PhysicalResourceId": physical,
        "ResourceType": kind,
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
        "Timestamp": when,
    }


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
def test_the_sentence_alone(reason: str) -> None:
    failed = event("Custom::HyperPodScaleDown", "UPDATE_FAILED", reason)
    earlier = event("Custom::HyperPodScaleDown", "UPDATE_FAILED", "Something else, some time ago")
    assert first_reason([BACK, CANCELLED, failed, BEGAN, earlier, BEGAN]) == SENTENCE


def test_what_failed_first_is_the_reason() -> None:
    first, then = (event("AWS::FSx::FileSystem", status, status) for status in ("CREATE_FAILED", "DELETE_FAILED"))
    assert first_reason([then, BACK, first, BEGAN]) == "CREATE_FAILED"


def test_what_succeeded_has_no_reason() -> None:
    done = event("AWS::CloudFormation::Stack", "UPDATE_COMPLETE")
    assert first_reason([done, BEGAN, event("AWS::IAM::Role", "CREATE_FAILED", "long ago"), BEGAN]) is None


def test_what_failed_before_is_not_told_where_somebody_asks_since_when() -> None:
    """A deployment that did not even begin, say for want of an approval, has not failed for a reason of yesterday."""
    failed = event("AWS::IAM::Role", "UPDATE_FAILED", "of yesterday")
    assert first_reason([failed, BEGAN], WHEN) == "of yesterday"
    assert first_reason([failed, BEGAN], WHEN + timedelta(seconds=1)) is None


def test_what_failed_since_then_is_told_also_where_the_operation_began_before() -> None:
    """Say, a deployment that found another one of the stack on its way, or a clock that is ahead."""
    failed = event("AWS::IAM::Role", "UPDATE_FAILED", SENTENCE, when=WHEN + timedelta(minutes=5))
    assert first_reason([failed, BEGAN], WHEN + timedelta(minutes=1)) == SENTENCE


@pytest.mark.parametrize("reason", ["Resource creation cancelled", "Resource update cancelled"])
def test_what_cloudformation_cancels_is_no_reason(reason: str) -> None:
    assert first_reason([event("AWS::IAM::Role", "CREATE_FAILED", reason), BEGAN]) is None


def test_a_reason_may_hold_the_word_cancelled() -> None:
    said = "The job was cancelled by an administrator"
    assert first_reason([CANCELLED, event("AWS::IAM::Role", "CREATE_FAILED", said), BEGAN]) == said


class Operations:
    """HyperPod's record: a scaling that a later one superseded."""

    def list_cluster_operations(self, **_: object) -> dict[str, Any]:
        return {"ClusterOperationSummaries": self._operations()}

    def describe_cluster_operation(self, *, ClusterName: str, OperationId: str) -> dict[str, Any]:
        return next(each for each in self._operations() if each["OperationId"] == OperationId)

    def _operations(self) -> list[dict[str, Any]]:
        return []


class Answers(Operations):
    """CloudFormation, with one stack that failed at a given time."""

    def __init__(self, when: datetime) -> None:
        self._when = when

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        failed = event("AWS::IAM::Role", "UPDATE_FAILED", SENTENCE, when=self._when)
        return {"StackEvents": [failed, BEGAN] if StackName.endswith("-cluster") else []}


def why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failed: datetime, *options: str) -> str:
    monkeypatch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: lambda _service: Answers(failed))
    assert main(["why", "--config", str(ROOT / "cluster.yaml"), *options]) == 0
    return str(capsys.readouterr().out)


class OfTraining(Operations):
    """An account with no stack of this app, in which a stack Training has the cluster."""

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        if StackName == "Training":
            return {"StackEvents": [event("AWS::IAM::Role", "UPDATE_FAILED", SENTENCE), BEGAN]}
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
    assert capsys.readouterr().out == f"Training: {SENTENCE}\n"


def test_a_stack_that_nobody_may_look_for_is_no_success(
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
    assert capsys.readouterr().out == f"hyperpod-big-cluster: {SENTENCE}\n"
    assert main(["why", *where, "--since", str((WHEN + timedelta(hours=1)).timestamp())]) == 0
    assert capsys.readouterr().out.endswith(": cdk-hyperpod why --cluster big --region us-west-2\n")


def test_a_clock_that_is_ahead_by_a_minute_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since = ("--since", str((WHEN + timedelta(seconds=100)).timestamp()))
    assert why(monkeypatch, capsys, WHEN, *since) == f"hyperpod-llm-train-cluster: {SENTENCE}\n"


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
    assert told["failures"] == [{"stack": "hyperpod-llm-train-cluster", "reason": SENTENCE}]


def test_who_superseded_whom_follows_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def operation(name: str, status: str, before: int, after: int) -> dict[str, Any]:
        counts = {"Original": {"TargetCount": before}, "Desired": {"TargetCount": after}}
        begun = datetime(2026, 1, 1, 12, tzinfo=UTC)
        details = [{"InstanceGroupName": "p5", **counts}]
        return {"OperationId": name, "Status": status, "CreationTime": begun, "ScalingDetails": details}

    both = [operation("b", "Done", 6, 3), operation("a", "Superseded", 4, 6)]
    monkeypatch.setattr(Operations, "_operations", lambda _: both)
    assert why(monkeypatch, capsys, datetime.now(UTC)).splitlines()[1:] == [
        "HyperPod's operation a of 2026-01-01 12:00:00 UTC (p5 4 -> 6) was superseded by operation b of 2026-01-01 12:00:00 UTC (p5 6 -> 3)"
    ]
