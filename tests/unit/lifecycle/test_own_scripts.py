"""The user's own scripts, run for real by the library's: in their order, with the node's facts, and whatever they do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_hyperpod._common.assets import pack_eks_lifecycle
from helpers.lifecycle.node_folder import CLUSTER, Node, messages, the_error

OWN = {"scripts": ["scripts_before", "scripts_after"], "minutes": 1, "on_failure": "fail", "region": "us-west-2"}
AFTER = "own/scripts_after/1/10-test.sh"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with own scripts of both kinds, and a second script of the group."""
    node = Node(tmp_path)
    settings(node)
    return node


def settings(node: Node, **changes: object) -> None:
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "own_scripts": {**OWN, **changes}}))


def add(node: Node, name: str, body: str, interpreter: str = "/bin/bash") -> None:
    file = node.scripts / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{interpreter}\n{body}\n")
    file.chmod(0o644)  # as S3 returns it


def said(output: str) -> list[str]:
    """The lines of the step, without its name."""
    return [line.replace("05_own_scripts.py: ", "") for line in messages(output) if "05_own_scripts.py: " in line]


def test_they_run_before_and_after_our_steps_in_order_of_name_the_group_s_last(node: Node) -> None:
    for name in (
        "scripts_before/1/20-b.sh",
        "scripts_before/1/10-a.sh",
        "scripts_before/2/05-group.sh",
        "scripts_after/1/10-z.sh",
    ):
        add(node, f"own/{name}", f"echo {name}")
    add(node, "own/scripts_before/1/data/40-not-run.sh", "echo never")
    result = node.provision()
    assert result.returncode == 0, result.stdout
    started = [
        line.split(" ")[2].rstrip(":")
        for line in messages(result.stdout)
        if ": started, for" in line or ": step mounts" in line
    ]
    assert started == ["10-a.sh", "20-b.sh", "05-group.sh", "step", "10-z.sh"]
    assert "INFO 10-a.sh: scripts_before/1/10-a.sh" in said(result.stdout)
    assert "never" not in result.stdout


def test_they_get_the_node_s_facts(node: Node) -> None:
    add(node, AFTER, "env | grep -E '^(HYPERPOD_|AWS_)' | grep -v SCRIPT_RUN | sort; pwd; ls data")
    add(node, "own/scripts_after/1/data/agent.conf", "")
    lines = said(node.provision().stdout)
    assert [line.removeprefix("INFO 10-test.sh: ") for line in lines[1:-1]] == [
        "AWS_DEFAULT_REGION=us-west-2",
        "AWS_REGION=us-west-2",
        "HYPERPOD_CLUSTER_NAME=llm-train",
        "HYPERPOD_CONTROLLER_ADDRESSES=10.1.0.10",
        "HYPERPOD_INSTANCE_GROUP=p5",
        "HYPERPOD_INSTANCE_ID=i-0bbbbbbbbbbbbbbb2",
        "HYPERPOD_INSTANCE_TYPE=ml.p5.48xlarge",
        "HYPERPOD_MOUNT_PATHS=/fsx",
        "HYPERPOD_NODE_ADDRESS=10.1.0.22",
        "HYPERPOD_NODE_TYPE=compute",
        "HYPERPOD_REGION=us-west-2",
        str(node.scripts / "own/scripts_after/1"),
        "agent.conf",
    ]


def test_one_step_runs_them_alone_and_other_steps_do_not(node: Node) -> None:
    add(node, "own/scripts_before/1/10-a.sh", "echo before")
    add(node, AFTER, "echo after")
    alone = node.provision("compute.sh", "scripts_after").stdout
    assert [line for line in said(alone) if line.endswith(("before", "after"))] == ["INFO 10-test.sh: after"]
    assert "step mounts" not in alone
    assert said(node.provision("compute.sh", "mounts").stdout) == []


def test_a_script_in_python_does_not_import_the_library_s_modules(node: Node) -> None:
    add(node, AFTER, "import partitions", interpreter="/usr/bin/env python3")
    assert "No module named 'partitions'" in the_error(node.provision())


def test_a_node_without_own_scripts_has_no_such_step(tmp_path: Path) -> None:
    result = Node(tmp_path).provision("compute.sh", "scripts_after")
    assert result.returncode == 0
    assert "this node has no step scripts_after: it is without scripts of yours on a compute node" in result.stdout


FAILURES = [
    pytest.param("echo one; echo the disk is full >&2; exit 3", "ended with exit code 3: the disk is full", id="fails"),
    pytest.param("exit 4", "ended with exit code 4: it printed nothing", id="fails silently"),
    pytest.param("kill -9 $$", "ended with signal 9: it printed nothing", id="is killed"),
    pytest.param(
        "/bin/sleep 60", "did not end within 1 min (script_minutes), and was killed with all its processes", id="hangs"
    ),
    pytest.param(
        "while :; do :; done",
        "did not end within 1 min (script_minutes), and was killed with all its processes",
        id="loops",
    ),
]


@pytest.mark.parametrize(("body", "how"), FAILURES)
def test_a_script_that_fails_fails_the_node_and_the_log_names_it(node: Node, body: str, how: str) -> None:
    add(node, AFTER, body)
    add(node, "own/scripts_after/1/20-next.sh", "echo the next one")
    result = node.provision(PROVISION_MINUTE_S="0.5")
    assert the_error(result) == (
        f"ERROR provision.py: step scripts_after failed with exit code 1: your script 10-test.sh of scripts_after {how}; "
        f"correct it, and deploy; then run `bash {node.scripts}/compute.sh` again on this node"
    )
    assert "the next one" not in result.stdout


@pytest.mark.parametrize(("body", "how"), FAILURES[2:4])
def test_after_a_script_that_fails_the_node_goes_on_if_the_file_says_so(node: Node, body: str, how: str) -> None:
    settings(node, on_failure="continue")
    add(node, AFTER, body)
    add(node, "own/scripts_after/1/20-next.sh", "echo the next one")
    result = node.provision(PROVISION_MINUTE_S="0.5")
    assert result.returncode == 0
    where = f"your script 10-test.sh of scripts_after {how}"
    assert f"WARNING {where}; the node goes on (on_script_failure: continue)" in said(result.stdout)
    assert "INFO 20-next.sh: the next one" in said(result.stdout)


def test_a_script_that_fails_before_our_steps_stops_them(node: Node) -> None:
    add(node, "own/scripts_before/1/10-a.sh", "exit 1")
    result = node.provision()
    assert the_error(result).startswith(
        "ERROR provision.py: step scripts_before failed with exit code 1: your script 10-a.sh"
    )
    assert "step mounts" not in result.stdout


def test_a_program_that_is_absent_is_named(node: Node) -> None:
    add(node, AFTER, "", interpreter="/usr/bin/no-such-program")
    assert (
        "10-test.sh of scripts_after cannot be started: No such file or directory (#!/usr/bin/no-such-program)"
        in the_error(node.provision())
    )


@pytest.fixture
def left_running(tmp_path: Path) -> Iterator[Path]:
    """A file to which processes of a test write their ids. They end with the test."""
    file = tmp_path / "pids"
    yield file
    for pid in ids_in(file):
        subprocess.run(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL, check=False)


def ids_in(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_at_the_limit_all_its_processes_end(node: Node, left_running: Path) -> None:
    """Also those that ignore SIGTERM, left the session, or have another parent."""
    add(
        node,
        AFTER,
        f"trap '' TERM\nsleep 300 & echo $! >>{left_running}\n"
        f"setsid bash -c 'trap \"\" TERM; echo $$ >>{left_running}; /bin/sleep 300' & disown\n"
        f"(setsid nohup /bin/sleep 300 >/dev/null 2>&1 & echo $! >>{left_running})\nwhile :; do /bin/sleep 300; done",
    )
    # On a busy machine the limit may be over before all three have begun.
    for limit_s in ("1", "10", "50"):
        left_running.write_text("")
        the_error(node.provision(PROVISION_MINUTE_S=limit_s, PROVISION_TERM_S="0.5"))
        if len(pids := ids_in(left_running)) == 3:
            break
    assert len(pids) == 3
    assert not [pid for pid in pids if is_running(pid)]


def test_a_service_that_it_leaves_running_is_neither_waited_for_nor_ended(node: Node, left_running: Path) -> None:
    add(node, AFTER, f"/bin/sleep 300 & echo $! >{left_running}; echo installed")
    result = node.provision()
    assert result.returncode == 0
    assert is_running(*ids_in(left_running))
    assert "INFO 10-test.sh: installed" in said(result.stdout)


@pytest.mark.parametrize("program", ["yes filling the disk", "cat /dev/zero"], ids=["lines", "one line"])
def test_a_script_that_prints_for_ever_fills_neither_log_nor_disk(node: Node, program: str) -> None:
    add(node, AFTER, f"{program} | head -c 100000000; echo; echo the end")
    result = node.provision()
    assert result.returncode == 0
    assert len(result.stdout) < 3_000_000
    assert "bytes of its output were not logged; the last lines are" in result.stdout
    assert "INFO 10-test.sh: the end" in said(result.stdout)


def test_each_output_line_of_an_own_script_is_logged_as_one_printable_line(node: Node) -> None:
    add(node, AFTER, r"printf '\033[31mred\033[0m\rX\xff\n\n'; printf 'no end'")
    lines = [line for line in said(node.provision().stdout) if ": started" not in line and ": ended" not in line]
    assert lines == ["INFO 10-test.sh: ?[31mred?[0m X\ufffd", "INFO 10-test.sh: no end"]


# -- under EKS --------------------------------------------------------------------------------------------------------


def under_eks(node: Node, **environment: str) -> str:
    """Run EKS's script in the folder of a node. It has no disk for containers."""
    own = node.scripts / "own"
    kept = node.root / "own"
    if own.exists():
        own.rename(kept)
    cluster = (node.scripts / "cluster.json").read_text()
    pack_eks_lifecycle(node.scripts)
    if kept.exists():
        kept.rename(own)
    (node.scripts / "cluster.json").write_text(cluster)
    node.command("mountpoint", "exit 1")
    node.command("lsblk", "echo '{\"blockdevices\": []}'")
    return node.provision("node.sh", **environment).stdout


def test_under_eks_they_run_before_and_after_the_script(node: Node) -> None:
    add(node, "own/scripts_before/1/10-a.sh", "echo $HYPERPOD_INSTANCE_GROUP $HYPERPOD_NODE_TYPE")
    add(node, AFTER, "echo after")
    output = under_eks(node)
    lines = [line.split(" ", 1)[1] for line in output.splitlines()]
    before, ours, after = (
        next(number for number, line in enumerate(lines) if text in line)
        for text in ("10-a.sh: p5 node", "nothing to do on", "10-test.sh: after")
    )
    assert before < ours < after


def test_under_eks_a_failure_fails_the_node_and_names_the_script(node: Node) -> None:
    add(node, "own/scripts_before/1/10-a.sh", "exit 9")
    assert "your script 10-a.sh of scripts_before ended with exit code 9" in under_eks(node).splitlines()[-1]


def test_under_eks_a_node_that_hyperpod_does_not_list_runs_them_without_facts(node: Node) -> None:
    node.addresses("10.9.9.9")
    add(node, AFTER, 'echo "group=<$HYPERPOD_INSTANCE_GROUP> region=$HYPERPOD_REGION"')
    output = under_eks(node)
    assert "WARNING provision.py: the scripts do not get this node's id, group and type: no instance in" in output
    assert "10-test.sh: group=<> region=us-west-2" in output
