"""What `local deploy` shows while it deploys, and how it ends if that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod_local.assemblies import Stack, warnings
from cdk_hyperpod_local.commands import failure
from cdk_hyperpod_local.commands.progress import Progress

Json = Any
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


class Stacks:
    """CloudFormation, whose stacks a test changes."""

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}

    def get_paginator(self, operation: str) -> Stacks:
        assert operation == "describe_stacks"
        return self

    def paginate(self) -> Iterator[Json]:
        stacks = [{"StackName": name, "StackId": name, "StackStatus": status} for name, status in self.statuses.items()]
        yield {"Stacks": stacks}


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_stack_s_line_has_its_status_and_its_time(plain: None, capsys: pytest.CaptureFixture[str]) -> None:
    stacks, times = Stacks(), iter(range(0, 6000, 30))
    stacks.statuses = {"network": "UPDATE_COMPLETE", "other": "CREATE_COMPLETE"}
    progress = Progress(stacks, ["network", "cluster", "teams"], now=lambda: next(times))
    progress.look()
    assert [line.split() for line in progress.lines()[1:]] == [
        ["network", "waiting", "-"],
        ["cluster", "waiting", "-"],
        ["teams", "waiting", "-"],
    ]
    with progress:
        stacks.statuses["cluster"] = "CREATE_IN_PROGRESS"
        progress.look()
        assert [line.split()[1] for line in progress.lines()[1:]] == ["waiting", "CREATE_IN_PROGRESS", "waiting"]
        stacks.statuses["cluster"] = "ROLLBACK_COMPLETE"
        progress.look()
        assert capsys.readouterr().out == "cluster: ROLLBACK_COMPLETE after 1:00\n"
    assert capsys.readouterr().out == "network: not changed\nteams: not changed\n"


def test_a_stack_whose_change_set_was_refused_is_shown_as_refused(
    plain: None, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = Stacks()
    stacks.statuses = {"network": "UPDATE_COMPLETE"}
    with Progress(stacks, ["network", "cluster", "teams"], now=lambda: 0.0) as progress:
        stacks.statuses["cluster"] = "REVIEW_IN_PROGRESS"
        progress.look()
        progress.refuse(["network", "cluster"])
    assert capsys.readouterr().out == "network: refused\ncluster: refused\nteams: not changed\n"


def test_a_long_name_leaves_room_for_the_status(plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stacks = Stacks()
    progress = Progress(stacks, ["n" * 128])
    stacks.statuses = {"n" * 128: "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS"}
    progress.look()
    assert max(map(len, progress.lines())) == 80


def test_a_failure_names_the_nodes_that_are_gone_and_those_that_came() -> None:
    def nodes(**groups: str) -> dict[str, failure.Node]:
        return {node: failure.Node(node_id=node, cluster="train", group=group) for node, group in groups.items()}

    before, after = nodes(a="p5", b="p5", c="trn1", d="login"), nodes(d="login", e="p5", f="login")
    heading, titles, *rows = failure.deleted(before, after, [{"node_id": "a", "cause": "named"}])
    assert heading == "Deleted before it failed:"
    assert titles.split() == ["GROUP", "DELETED", "WHY", "LAUNCHED", "SINCE"]
    assert [row.split() for row in rows] == [
        ["p5", "a", "deleted", "by", "its", "id", "e"],
        ["p5", "b", "-", "-"],
        ["trn1", "c", "-", "-"],
    ]
    assert failure.deleted(before, before, []) == ["Deleted before it failed: no node."]
    assert failure.deleted({}, after, []) == []


class Silent:
    """CloudFormation without a failed stack."""

    def client(self, service: str) -> Silent:
        return self

    def describe_stack_events(self, **_: str) -> Json:
        return {"StackEvents": []}

    def list_change_sets(self, **_: str) -> Json:
        return {"Summaries": []}


def test_without_a_failed_stack_the_cli_s_last_lines_are_the_reason(tmp_path: Path) -> None:
    stack = Stack(name="a", template=tmp_path, region="us-west-2", account="000000000000")
    aws: Any = Silent()
    output = "\n".join(f"line {number}" for number in range(9))
    assert failure.reason(aws, [stack], WHEN, output).splitlines() == [f"line {number}" for number in range(4, 9)]
    assert "printed nothing" in failure.reason(aws, [stack], WHEN, " \n")


def test_warnings_name_their_construct_and_not_their_ids(tmp_path: Path) -> None:
    warning = {"type": "aws:cdk:warning", "data": "rename it [ack: cdk-hyperpod:name]"}
    inline = {"/a/Network": [warning, {"type": "aws:cdk:info", "data": "all is well"}]}
    (tmp_path / "b.json").write_text(json.dumps({"/b": [warning, {"type": "aws:cdk:warning", "data": "move it"}]}))
    kind = {"type": "aws:cloudformation:stack"}
    artifacts = {"a": {**kind, "metadata": inline}, "b": {**kind, "additionalMetadataFile": "b.json"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    assert warnings(tmp_path) == ["a/Network: rename it", "b: rename it", "b: move it"]
