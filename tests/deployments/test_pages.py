"""Pages with steps, followed as a new user does: each edit and each command, in order, in a folder of one's own.

To add a page, add it to PAGES with the cluster that its reader has; tests/helpers/pages.py says how its blocks are read. What
only a page's reader can do, such as a session on a node, has a stand-in in STAND_INS.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod_local import environment
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.drain_agent import agent_after
from helpers.deployments.steps import Step, settle, turn
from helpers.local_aws.rehearsal import Rehearsal
from helpers.pages import Block, Command, blocks, commands, edited, missing, named
from helpers.synthesis import ROOT

pytestmark = pytest.mark.slow

NAME = "llm-train"
IDS = ("i-0123456789abcdef0", "i-0fedcba9876543210")
"""Of the pages; they stand for two nodes of p5 that no rule would choose."""
FOLLOWED = ("console", "yaml")
ALLOWED = (*FOLLOWED, "mermaid")


@dataclass(frozen=True)
class Page:
    name: str
    ended: int
    """How many nodes its reader has deleted at its end; each by its id."""


PAGES = (Page("read-a-refusal.md", 0), Page("delete-nodes.md", 2), Page("drain-slurm.md", 2))

NPX = """\
#!/usr/bin/env bash
# The CDK CLI that the clone has, if the page names that version. Its reader answers "y" to changes of permissions.
set -euo pipefail
[ "$1 $2" = "-y aws-cdk@{version}" ] || {{ echo "npx: the page has to name aws-cdk@{version}, not $2" >&2; exit 64; }}
shift 2
exec cdk "$@" --require-approval never --progress events
"""
AWS = """\
#!{python}
# The AWS CLI's three commands of `lifecycle run`. A session on the controller starts the agent, and ends when it answers.
import sys
import time
from pathlib import Path

import boto3
import jmespath

service, operation, *options = sys.argv[1:]
given = dict(zip(options[::2], options[1::2]))
if (service, operation) == ("ssm", "start-session"):
    Path("agent-started").touch()
    limit = time.monotonic() + 60
    while not Path("agent-answers").exists() and time.monotonic() < limit:
        time.sleep(0.2)
    print("lifecycle run drain: exit code 0")
else:
    call = getattr(boto3.client(service), operation.replace("-", "_"))
    found = jmespath.search(given["--query"], call(ClusterName=given["--cluster-name"]))
    rows = found if isinstance(found, list) else [found]
    print("\\n".join(str(row[0] if isinstance(row, list) else row) for row in rows))
"""
STAND_INS = {
    "npx": NPX.format(
        version=json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"],
    ),
    "aws": AWS.format(python=sys.executable),
}


def first_file() -> str:
    """The README's cluster file, which its reader has deployed."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return next(block.text for block in blocks(readme) if block.language == "yaml")


class Reader:
    """Somebody at a terminal, in the folder of an app that `init` has written."""

    def __init__(self, folder: Path, aws: LocalAws) -> None:
        self.folder = folder
        self._file = folder / "cluster.yaml"
        self._environment = environment.complete(aws.place, region=aws.region, account=aws.account)
        programs = folder / "stand-ins"
        programs.mkdir(exist_ok=True)
        for name, text in STAND_INS.items():
            (programs / name).write_text(text, "utf-8")
            (programs / name).chmod(0o755)
        self._environment["PATH"] = f"{programs}:{self._environment['PATH']}"
        self._environment["COLUMNS"] = "200"

    def follow(self, page: str, names: dict[str, str]) -> None:
        for block in blocks((ROOT / "docs" / page).read_text("utf-8")):
            where = f"docs/{page}:{block.line}"
            assert block.language in ALLOWED, f"{where}: a {block.language} block is not followed; {FOLLOWED} are"
            if block.language == "yaml":
                self.edit(named(block.text, names))
            if block.language == "console":
                self._run_all(page, block, names)

    def edit(self, part: str) -> None:
        self._file.write_text(edited(self._file.read_text("utf-8"), part), "utf-8")

    def _run_all(self, page: str, block: Block, names: dict[str, str]) -> None:
        for command in commands(block):
            self._run_shown(f"docs/{page}:{command.line}", command, names)

    def _run_shown(self, where: str, command: Command, names: dict[str, str]) -> None:
        code, printed = self.run(named(command.words, names))
        assert code == command.code, f"{where}: {command.words}: exit code {code}\n{printed[-3000:]}"
        lost = missing([named(line, names) for line in command.shown], printed)
        assert lost is None, f"{where}: {command.words} does not print {lost!r}, but\n{printed[-3000:]}"

    def run(self, command: str) -> tuple[int, str]:
        """Its exit code, and what it prints. The reader says yes to whatever it asks."""
        ours, terminal = pty.openpty()
        try:
            os.write(ours, b"y\n")
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(terminal)
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def first(engine: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has deployed the README's file."""
    folder = tmp_path_factory.mktemp("first")
    reader = Reader(folder, engine)
    code, printed = reader.run(f"cdk-hyperpod init --name {NAME} --region {engine.region} --yes")
    assert code == 0, printed
    (folder / "cluster.yaml").write_text(first_file(), "utf-8")
    deploy = re.findall(r"`(npx -y aws-cdk@\S+ deploy --all)`", (ROOT / "README.md").read_text("utf-8"))[0]
    code, printed = reader.run(deploy)
    assert code == 0, printed[-3000:]
    return folder


@pytest.fixture
def life(engine: LocalAws, first: Path, tmp_path: Path) -> Iterator[Rehearsal]:
    """The reader's cluster as the README's file says; no node of it may end at random."""
    config = yaml.safe_load(first_file())
    context = json.loads((first / "cdk.json").read_text("utf-8"))["context"]
    found = Rehearsal(engine, tmp_path / "rehearsal", config, context)
    with turn(found, config):
        yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_step_of_the_page_does_what_it_says(
    page: Page, life: Rehearsal, engine: LocalAws, first: Path, tmp_path: Path
) -> None:
    settle(life)
    folder = shutil.copytree(first, tmp_path / "train", ignore=shutil.ignore_patterns("cdk.out"))
    reader, step = Reader(folder, engine), Step(life)
    names = dict(zip(IDS, list(life.nodes("p5"))[1:3], strict=True))
    with agent_after(folder / "agent-started", folder / "agent-answers", engine, NAME):
        reader.follow(page.name, names)
    gone = list(names.values())[: page.ended]
    assert step.ended() == dict.fromkeys(gone, "named")
