"""No line of any command is longer than a terminal of 80 columns, but for what the user copies or a program reads."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_hyperpod.cli import tables
from cdk_hyperpod.cli.commands import COMMANDS
from cdk_hyperpod.cli.main import main
from helpers.validating import ROOT
from unit.cli.conftest import FakeAws, Run
from unit.cli.test_conventions import ALL
from unit.cli.test_sizes import FOLDER

PRINTED = {
    line.split()[2] for file in FOLDER.iterdir() for line in file.read_text("utf-8").splitlines() if line[:2] == "$ "
}
"""Commands of which tests/unit/cli/test_sizes.py keeps the output on such a terminal."""
FOR_PROGRAMS = {"schema": "JSON", "completion": "a script", "lifecycle": "a script", "docs": "a path"}
OF_THE_LOCAL_AWS = {"local": "tests/deployments"}
JOB = ("job", "render", "--name", "a", "--namespace", "b", "--image", "c", "--instance-type", "ml.p5.48xlarge")
MORE = {
    "check": (["check", "wrong.yaml"], ["check", "--against", "before.yaml"], ["check", "conflict.yaml"]),
    "plan": (["plan", "--config", "none.yaml"],),
    "init": (["init", "--name", "big", "--region", "us-west-2"], ["init", "--region", "moon"]),
    "job": ([*JOB, "--nodes", "9", "--quota-nodes", "8", "--", "t.py"], [*JOB, "--nodes", "2", "--min-replicas", "1"]),
    "credentials": (["credentials", "--profile", "nobody"],),
    "nodes": (
        ["nodes", "--group", "a-group-that-is-none"],
        ["nodes", "i-0bad0bad"],
        ["nodes", "--status", "no status"],
    ),
    "logs": (["logs", "i-0123456789abcdef0"],),
}
"""Command -> what else it may print, above all errors."""
WRONG = """\
name: a cluster with a name that is too long for HyperPod and has blanks
region: us-west-2
network: {vpc_id: vpc-0123456789abcdef0, subnets: [{subnet_id: subnet-0123456789abcdef0, availability_zone: us-west-2a, cidr: 10.20.1.0/20}]}
instance_groups:
  - {name: work, instance_type: ml.p5.48xlarge, instance_count: 100000, min_instance_counts: 1}
scale_down: {instance_groups_to_delete: [work, old], nodes_to_delete: [i-1]}
"""  # fmt: skip


def too_long(text: str) -> list[str]:
    """Lines of more than 80 columns. A word or a command that is longer by itself is not broken, so that it can be copied."""
    return [line for line in text.splitlines() if len(line) > 80 and len(tables._WORD.findall(line)) > 1]


def test_the_width_tests_cover_every_command() -> None:
    every = {name for group in COMMANDS.values() for name in group}
    assert every == PRINTED | {*MORE} | {*FOR_PROGRAMS} | {*OF_THE_LOCAL_AWS}


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("name", ["", *ALL, "job", "lifecycle", "local"])
def test_the_help_of_each_command_fits_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_command_outputs_for_all_cluster_sizes_fit_the_terminal(file: Path) -> None:
    whole = ("connect NODE --print", "connect NODE --ssh-config")
    outputs = [part.partition("\n") for part in file.read_text("utf-8").removeprefix("$ ").split("\n\n$ ")]
    assert len(outputs) > 10
    wide = {
        title: too_long("\n".join(line.removeprefix("stderr: ") for line in out.splitlines()))
        for title, _, out in outputs
        if not title.endswith(whole)
    }
    assert {title: lines for title, lines in wide.items() if lines} == {}


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("words", [words for each in MORE.values() for words in each], ids=" ".join)
def test_other_outputs_of_commands_fit_the_terminal(
    words: list[str], fake_aws: FakeAws, run: Run, tmp_path: Path
) -> None:
    fake_aws.cluster()
    fake_aws.quiet()
    Path("wrong.yaml").write_text(WRONG)
    Path("conflict.yaml").write_text("name: a\n<<<<<<< HEAD\nregion: us-west-2\n")
    Path("before.yaml").write_text((ROOT / "cluster.yaml").read_text("utf-8"))
    if words[0] == "init":
        folder = tmp_path / "new"
        folder.mkdir()
        os.chdir(folder)  # fake_aws goes back

    _, out, err = run(*words)

    assert out or err
    assert too_long(out) + too_long(err) == []


def test_a_line_is_whole_in_a_pipe_and_wrapped_on_a_terminal(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(WRONG)
    command = [str(Path(sys.executable).with_name("cdk-hyperpod")), "check", str(wrong)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stderr
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 80))
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=environment):
        os.close(slave)
        shown = b"".join(_until_its_end(master)).decode().replace("\r\n", "\n")
    os.close(master)

    assert too_long(piped) and too_long(shown) == []
    assert shown.split() == piped.split()


def _until_its_end(master: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # as Linux ends it
        while found := os.read(master, 65_536):
            yield found


def test_a_command_in_a_sentence_is_not_broken() -> None:
    text = "To delete the old cluster, which you no longer need, run `cdk destroy --all -c config=old.yaml` in this folder."

    assert (
        tables.fitted(text, 80)
        == tables.wrapped(text, "", "  ")
        == [
            "To delete the old cluster, which you no longer need, run",
            "  `cdk destroy --all -c config=old.yaml` in this folder.",
        ]
    )
    assert tables.fitted(text, None) == [text]
    assert tables.fitted(f"\033[31m{'a ' * 20}\033[0m", 40) == [f"\033[31m{'a ' * 20}\033[0m"]
