"""`cdk-hyperpod connect`: the target string, what it would run, what it prints for ssh, and what is missing."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from cdk_hyperpod_local.hyperpod.samples import group
from unit.cli.conftest import FakeAws, Run


@pytest.fixture
def node(fake_aws: FakeAws) -> str:
    fake_aws.cluster(group("work", 1))
    fake_aws.quiet()
    return fake_aws.nodes("work")[0]


def target(fake_aws: FakeAws, node: str) -> str:
    arn = fake_aws.model.client().describe_cluster(ClusterName="small")["ClusterArn"]
    return f"sagemaker-cluster:{arn.rpartition('/')[2]}_work-{node}"


def test_print_says_the_command_and_runs_nothing(fake_aws: FakeAws, node: str, run: Run) -> None:
    status, out, err = run("connect", node, "--print")
    assert (status, err) == (0, "")
    assert out == f"aws ssm start-session --target {target(fake_aws, node)} --region us-west-2\n"
    assert fake_aws.calls == ["sagemaker:describe_cluster", "sagemaker:describe_cluster_node"]


def test_a_node_has_slurms_name_too(fake_aws: FakeAws, node: str, run: Run) -> None:
    host = fake_aws.model.client().describe_cluster_node(ClusterName="small", NodeId=node)["NodeDetails"][
        "PrivateDnsHostname"
    ]
    assert run("connect", host.split(".")[0], "--print")[1] == run("connect", node, "--print")[1]


@pytest.mark.parametrize(
    ("ports", "parameters"),
    [
        ("8888", '{"portNumber": ["8888"], "localPortNumber": ["8888"]}'),
        ("9000:22", '{"portNumber": ["22"], "localPortNumber": ["9000"]}'),
    ],
)
def test_a_port_of_the_node(ports: str, parameters: str, node: str, run: Run) -> None:
    words = shlex.split(run("connect", node, "--forward", ports, "--profile", "p", "--print")[1])
    assert words[5:] == [
        *("--region", "us-west-2", "--profile", "p"),
        *("--document-name", "AWS-StartPortForwardingSession", "--parameters", parameters),
    ]


@pytest.mark.parametrize("ports", ["0", "65536", "x", "1:2:3", "", "-1", "²"])
def test_connect_refuses_an_invalid_port(ports: str, fake_aws: FakeAws, run: Run) -> None:
    status, out, err = run("connect", "i-0123456789abcdef0", "--forward", ports)
    assert (status, out, fake_aws.calls) == (2, "", [])
    assert "cdk-hyperpod connect: error: --forward: must be a port" in err and f"got {ports}" in err


@pytest.mark.parametrize("user", ["ana\nProxyCommand touch x", "ana bob", "-l", "", "ana\n", "a\rb", '"ana"'])
def test_connect_refuses_a_user_that_is_not_a_login_name(user: str, fake_aws: FakeAws, run: Run) -> None:
    status, out, err = run("connect", "i-0123456789abcdef0", "--ssh-config", "--user", user)
    assert (status, out, fake_aws.calls) == (2, "", [])
    assert "cdk-hyperpod connect: error: --user: must be a login name" in err and err.count("\n") == 3


def test_a_block_for_ssh(fake_aws: FakeAws, node: str, run: Run) -> None:
    status, out, _ = run("connect", node, "--ssh-config", "--user", "ana", "--profile", "p")
    lines = out.splitlines()
    assert status == 0 and lines[0].startswith(f"Host {node} ip-10-")
    assert lines[1:] == [
        f"    HostName {target(fake_aws, node)}",
        "    User ana",
        (
            "    ProxyCommand aws --region us-west-2 --profile p ssm start-session --target %h --document-name "
            "AWS-StartSSHSession --parameters portNumber=%p"
        ),
    ]


def test_connect_replaces_itself_with_the_aws_cli(
    fake_aws: FakeAws, node: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda program, words: ran.append([program, *words[1:]]))
    folder = Path("bin")
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    status, out, err = run("connect", node)
    assert (status, out, ran) == (1, "", [])
    assert err.startswith("aws and session-manager-plugin: not found. ")

    for program in ("aws", "session-manager-plugin"):
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    fake_aws.model.change_node(node, status="Failure")
    status, out, err = run("connect", node)
    assert (status, err) == (0, f"note: {node} is Failure, so the session may fail\n")
    assert ran == [["aws", "ssm", "start-session", "--target", target(fake_aws, node), "--region", "us-west-2"]]
    assert os.environ["PATH"] == str(folder)


def test_connect_refuses_an_id_that_is_not_a_node_of_the_cluster(fake_aws: FakeAws, node: str, run: Run) -> None:
    for name in ("i-0bad0bad", "ip-1-2-3-4", "x\x1b"):
        status, out, err = run("connect", name, "--print")
        assert (status, out) == (1, "") and err.startswith(f"{ascii(name)[1:-1]}: is not a node of "), err


def test_connect_works_with_cluster_and_region_instead_of_a_file(fake_aws: FakeAws, node: str, run: Run) -> None:
    Path("cluster.yaml").unlink()
    status, out, _ = run("connect", node, "--print", "--cluster", "small", "--region", "us-west-2")
    assert status == 0 and target(fake_aws, node) in out
