"""`cdk-hyperpod replace` and `reboot`: consent, batches of 25, no controller, and what was refused by name."""

from __future__ import annotations

import io
import json

import pytest

from cdk_hyperpod_local.hyperpod.samples import eks, group, slurm
from unit.cli.conftest import FakeAws, Run, refused


@pytest.fixture
def many(fake_aws: FakeAws) -> list[str]:
    fake_aws.cluster(group("work", 60))
    fake_aws.quiet()
    return fake_aws.nodes("work")


def sent(fake_aws: FakeAws, operation: str) -> list[int]:
    return [len(call.params["NodeIds"]) for call in fake_aws.model.journal if call.operation == operation]


def answer(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    terminal = io.StringIO(typed)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)


def test_sixty_nodes_are_three_calls(fake_aws: FakeAws, many: list[str], run: Run) -> None:
    assert run("replace", *many, "--yes") == (0, "small: replace requested for 60 of 60 nodes\n", "")
    assert sent(fake_aws, "BatchReplaceClusterNodes") == [25, 25, 10]
    assert not set(fake_aws.nodes("work")) & set(many)


def test_a_reboot_keeps_the_instances(fake_aws: FakeAws, many: list[str], run: Run) -> None:
    assert run("reboot", many[0], many[0], "--yes")[1] == "small: reboot requested for 1 of 1 nodes\n"
    assert fake_aws.nodes("work") == many


def test_it_asks_and_takes_only_the_name(
    fake_aws: FakeAws, many: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for typed in ("y\n", "", "Small\n"):
        answer(monkeypatch, typed)
        status, out, err = run("replace", many[0])
        assert (status, err, sent(fake_aws, "BatchReplaceClusterNodes")) == (1, "nothing was done\n", [])
        assert out == (
            f"  {many[0]}  work  Running\n"
            "Replace 1 node of small: their jobs stop and their volumes are lost.\n"
            "Type the cluster's name to go on: "
        )
    answer(monkeypatch, "small\n")
    assert run("replace", many[0])[0] == 0
    assert sent(fake_aws, "BatchReplaceClusterNodes") == [1]


def test_a_reboot_without_a_terminal_needs_yes(
    many: list[str], run: Run, fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("reboot", many[0]) == (
        1,
        "",
        "nothing was done: there is no terminal to confirm on. To go on without confirmation, add --yes\n",
    )
    assert sent(fake_aws, "BatchRebootClusterNodes") == []


def test_replace_and_reboot_refuse_a_controller(fake_aws: FakeAws, many: list[str], run: Run) -> None:
    (head,) = fake_aws.nodes("head")
    for action in ("replace", "reboot"):
        status, out, err = run(action, many[0], head, "--yes")
        assert (status, out) == (1, "")
        assert err.startswith(f"nothing was done:\n{head}: is a controller")
    assert fake_aws.model.changes().keys() == {"CreateCluster"}


def test_no_node_is_replaced_until_the_file_names_the_controller(fake_aws: FakeAws, run: Run) -> None:
    """With standard provisioning the lifecycle scripts may tell, and no group has a SlurmConfig."""
    specs = [group("head", 1, instance_type="ml.m5.xlarge", node_type=None), group("work", 2, node_type=None)]
    request = {**slurm(name="small", continuous=False), "InstanceGroups": specs}
    del request["Orchestrator"]
    fake_aws.model.call("CreateCluster", request)
    fake_aws.quiet()
    (head,), work = fake_aws.nodes("head"), fake_aws.nodes("work")[0]

    by_name = ("--cluster", "small", "--region", "us-west-2", "--yes")
    for action in ("replace", "reboot"):
        status, out, err = run(action, head, work, *by_name)
        assert (status, out) == (1, "")
        assert err.count("may be a controller") == 2
    status, _, err = run("replace", head, "--yes")
    assert (status, err.count("is a controller")) == (1, 1), "the file tells"
    assert fake_aws.model.changes().keys() == {"CreateCluster"}
    assert run("replace", work, "--yes")[0] == 0


def test_under_eks_there_is_no_controller(fake_aws: FakeAws, run: Run) -> None:
    fake_aws.model.call("CreateCluster", eks(group("work", 1, node_type=None), name="small"))
    fake_aws.quiet()
    assert run("reboot", *fake_aws.nodes("work"), "--cluster", "small", "--region", "us-west-2", "--yes")[0] == 0


def test_replace_reports_refused_nodes_and_requests_the_others(fake_aws: FakeAws, many: list[str], run: Run) -> None:
    fake_aws.model.change_node(many[1], status="ShuttingDown")
    status, out, err = run("replace", *many[:3], "--yes")
    assert (status, out) == (1, "small: replace requested for 2 of 3 nodes\n")
    assert err.startswith(f"{many[1]}: refused: InvalidInstanceStatus: ")

    told = json.loads(run("replace", *many[1:2], "--yes", "--json")[1])
    assert (told["asked"], told["not_sent"]) == ([], []) and told["failed"][0]["code"] == "InvalidInstanceStatus"


def test_a_call_that_fails_on_the_way_says_what_was_not_sent(
    fake_aws: FakeAws, many: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake_aws.model.client().batch_reboot_cluster_nodes
    calls: list[int] = []

    def second_fails(_: object, **given: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise refused("ThrottlingException", "slow down", "BatchRebootClusterNodes")
        return real(**given)

    monkeypatch.setattr(
        "cdk_hyperpod_local.hyperpod.client.Client.batch_reboot_cluster_nodes", second_fails, raising=False
    )
    status, out, err = run("reboot", *many, "--yes")
    assert (status, out) == (1, "small: reboot requested for 25 of 60 nodes\n")
    unsent, why = err.splitlines()
    assert unsent == f"not requested: {', '.join(many[25:])}" and "BatchRebootClusterNodes" in why


def test_ctrl_c_on_the_way_says_what_was_asked_for(
    fake_aws: FakeAws, many: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake_aws.model.client().batch_reboot_cluster_nodes
    calls: list[int] = []

    def second_is_too_long(_: object, **given: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(**given)

    monkeypatch.setattr(
        "cdk_hyperpod_local.hyperpod.client.Client.batch_reboot_cluster_nodes", second_is_too_long, raising=False
    )
    status, out, err = run("reboot", *many, "--yes")
    assert (status, out) == (130, "small: reboot requested for 25 of 60 nodes\n")
    assert err.startswith("not requested (of the first 25, ")
    assert err.endswith(f": {', '.join(many[25:])}\n\ninterrupted\n")
