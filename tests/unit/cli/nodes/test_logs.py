"""`cdk-hyperpod logs`: a node's streams as one, also of a node that is gone, and following them."""

from __future__ import annotations

import json

import pytest

from cdk_hyperpod_local.hyperpod.samples import group
from unit.cli.conftest import FakeAws, Run

LIFECYCLE = "LifecycleConfig/work/{}"
HEALTH = "SagemakerHealthMonitoringAgent/work/{}"
MS = 1_780_000_000_000


@pytest.fixture
def node(fake_aws: FakeAws) -> str:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    found = fake_aws.nodes("work")[0]
    fake_aws.streams = {
        LIFECYCLE.format(found): [(MS, "step users\n"), (MS + 2_000, "exit code 1\x1b[31m")],
        HEALTH.format(found): [(MS + 1_000, "GPU 3: XID 79")],
        LIFECYCLE.format("i-0other"): [(MS, "another's")],
    }
    return found


def test_both_streams_in_order(fake_aws: FakeAws, node: str, run: Run) -> None:
    assert run("logs", node) == (
        0,
        (
            "2026-05-28 20:26:40 lifecycle step users\n"
            "2026-05-28 20:26:41 health    GPU 3: XID 79\n"
            "2026-05-28 20:26:42 lifecycle exit code 1?[31m\n"
        ),
        "",
    )
    assert run("logs", node, "--source", "health")[1].count("\n") == 1
    assert run("logs", node, "--lines", "1")[1].endswith("exit code 1?[31m\n")


def test_logs_prints_json(node: str, run: Run) -> None:
    told = json.loads(run("logs", node, "--json")[1])
    assert (told["command"], told["schema"], told["instance_id"]) == ("logs", 1, node)
    assert told["lines"][1] == {"time": "2026-05-28T20:26:41Z", "source": "health", "message": "GPU 3: XID 79"}


def test_logs_of_a_deleted_node_are_printed(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    fake_aws.streams = {LIFECYCLE.format("i-0123456789abcdef0"): [(MS, "the end")]}
    assert run("logs", "i-0123456789abcdef0")[1].endswith("lifecycle the end\n")


def test_logs_of_a_node_in_a_deleted_group_are_printed(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    gone = "i-0123456789abcdef0"
    others = {f"LifecycleConfig/old/i-{number:017x}": [(MS, "another's")] for number in range(120)}
    fake_aws.streams = {**others, f"LifecycleConfig/old/{gone}": [(MS, "the end")]}

    assert run("logs", gone) == (0, "2026-05-28 20:26:40 lifecycle the end\n", "")


@pytest.mark.parametrize("options", [[], ["--json"], ["--follow"]], ids=["", "json", "follow"])
def test_logs_refuses_an_id_that_never_existed(options: list[str], fake_aws: FakeAws, node: str, run: Run) -> None:
    status, out, err = run("logs", "i-0123456789abcdef0", *options)

    assert (status, out) == (1, "")
    assert err.startswith("i-0123456789abcdef0: is not a node of small, and no log stream of the cluster has this id")


def test_logs_says_that_nothing_was_logged_yet(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    status, out, _ = run("logs", fake_aws.nodes("work")[0])
    assert status == 0 and "nothing was logged yet in /aws/sagemaker/Clusters/small/" in out


def test_follow_says_each_line_once_until_ctrl_c(
    fake_aws: FakeAws, node: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter([[(MS + 3_000, "later")], [], [(MS + 4_000, "last")]])

    def sleep(_: float) -> None:
        more = next(rounds, None)
        if more is None:
            raise KeyboardInterrupt
        fake_aws.streams[LIFECYCLE.format(node)] += more

    monkeypatch.setattr("time.sleep", sleep)
    status, out, err = run("logs", node, "--follow", "--lines", "1")
    assert (status, err) == (130, "\ninterrupted\n")
    assert [line.split(None, 3)[3] for line in out.splitlines()] == ["exit code 1?[31m", "later", "last"]
