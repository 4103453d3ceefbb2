"""What `local destroy` shows while it deletes stacks, and how it ends if that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod_local import cdk, daemon
from cdk_hyperpod_local.commands import run
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

Json = Any
NAMES = ("foundation", "cluster")


class Stacks:
    """CloudFormation. As on AWS, it lists no deleted stack, and describes it by its id only."""

    def __init__(self) -> None:
        self.statuses = dict.fromkeys(NAMES, "CREATE_COMPLETE")
        self.protected = {"foundation"}
        self.events: dict[str, list[Json]] = {}

    def get_paginator(self, operation: str) -> Stacks:
        self.operation = operation
        return self

    def paginate(self, **which: str) -> Iterator[Json]:
        if self.operation == "describe_stack_events":
            yield {"StackEvents": []}
            return
        yield {"Stacks": [self._stack(name) for name, status in self.statuses.items() if status != "DELETE_COMPLETE"]}

    def describe_stacks(self, *, StackName: str) -> Json:
        return {"Stacks": [self._stack(StackName.removeprefix("id-of-"))]}

    def _stack(self, name: str) -> Json:
        return {
            "StackName": name,
            "StackId": f"id-of-{name}",
            "StackStatus": self.statuses[name],
            "EnableTerminationProtection": name in self.protected,
        }

    def update_termination_protection(self, *, StackName: str, EnableTerminationProtection: bool) -> None:
        assert not EnableTerminationProtection
        self.protected.remove(StackName)

    def describe_stack_events(self, *, StackName: str, **_: str) -> Json:
        return {"StackEvents": self.events.get(StackName, [])}

    def list_change_sets(self, **_: str) -> Json:
        return {"Summaries": []}


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Stacks:
    made = Stacks()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(LocalAws, "client", lambda self, service: made)
    monkeypatch.setattr(daemon, "running", lambda place: 1)
    return made


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    artifacts = {
        name: {
            "type": "aws:cloudformation:stack",
            "environment": "aws://111122223333/us-west-2",
            "properties": {"templateFile": f"{name}.json"},
        }
        for name in NAMES
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), "utf-8")
    return tmp_path


def test_a_deleted_stack_has_one_line_and_the_cli_s_output_is_in_the_log(
    stacks: Stacks, assembly: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = Place(4599, home=assembly / "engines")

    def destroy(self: cdk.Cdk, assembly: Path) -> cdk.Result:
        assert (self.show, self.log, stacks.protected) == (False, place.destroy_log, set())
        stacks.statuses = dict.fromkeys(NAMES, "DELETE_COMPLETE")
        return cdk.Result(code=0, output="events", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "destroy", destroy)
    run.destroy_assembly(place, assembly)
    warning, rest, heading, *lines = capfd.readouterr().out.splitlines()
    assert warning.startswith("· AWS would refuse to delete foundation, because of termination protection.")
    assert rest.startswith("  ") and heading.endswith("destroy.log")
    assert lines == ["cluster: DELETE_COMPLETE after 0:00", "foundation: DELETE_COMPLETE after 0:00"]


def test_a_failure_names_the_ways_out_and_ends_with_the_reason(
    stacks: Stacks, assembly: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def destroy(self: cdk.Cdk, assembly: Path) -> cdk.Result:
        stacks.statuses = {"cluster": "DELETE_COMPLETE", "foundation": "DELETE_FAILED"}
        event = {
            "Timestamp": datetime.now(UTC),
            "StackId": "id-of-foundation",
            "ResourceType": "AWS::EC2::Subnet",
            "LogicalResourceId": "Subnet",
            "ResourceStatus": "DELETE_FAILED",
            "ResourceStatusReason": "it has dependencies",
        }
        stacks.events = {"foundation": [event]}
        return cdk.Result(code=1, output="events", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "destroy", destroy)
    with pytest.raises(EngineError) as failed:
        run.destroy_assembly(Place(4599, home=assembly / "engines"), assembly)
    assert str(failed.value) == "foundation: Subnet (AWS::EC2::Subnet): it has dependencies"
    printed = capfd.readouterr().out
    assert "foundation: DELETE_FAILED after 0:00\n" in printed
    assert "  cdk-hyperpod local reset --port=4599 " in printed


def test_a_failure_of_an_engine_that_has_ended_says_so(
    stacks: Stacks, assembly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "running", lambda place: None)
    monkeypatch.setattr(cdk.Cdk, "destroy", lambda self, assembly: cdk.Result(code=1, output="events", seconds=0))
    with pytest.raises(EngineError, match="the engine has ended"):
        run.destroy_assembly(Place(4599, home=assembly / "engines"), assembly)
