"""A reader of a page with steps, at a terminal: each edit and each command of the page, in order, in a folder of one's own.

What only a reader can do, such as a session on a node, or an installation, has a stand-in in `_stand_ins`.
"""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

from cdk_hyperpod_local import environment, kubectl
from cdk_hyperpod_local.session import LocalAws
from helpers.pages import Block, Command, blocks, commands, edited, lines_of, missing, named
from helpers.synthesis import ROOT

_FOLLOWED = ("console", "yaml")
_ALLOWED = (*_FOLLOWED, "mermaid", "json", "text")
_LONGEST_SECONDS = 600
_PATIENCE = 10
"""Seconds that a reader watches."""

_NPX = """\
#!/usr/bin/env bash
# The CDK CLI that the clone has, if the page names that version. Its reader answers "y" to changes of permissions.
set -euo pipefail
[ "$1 $2" = "-y aws-cdk@{version}" ] || {{ echo "npx: the page has to name aws-cdk@{version}, not $2" >&2; exit 64; }}
shift 2
[ "$1" = deploy ] && set -- "$@" --require-approval never --progress events
exec cdk "$@"
"""
_AWS = """\
#!{python}
# What the pages and `lifecycle run` ask the AWS CLI for. A session on the controller starts the agent, and ends when it answers.
import json
import sys
import time
from pathlib import Path

sys.path[:0] = {tests!r}

import boto3
import jmespath

from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.callers import caller, kubeconfig


def start_session():
    Path("agent-started").touch()
    limit = time.monotonic() + 60
    while not Path("agent-answers").exists() and time.monotonic() < limit:
        time.sleep(0.2)
    print("lifecycle run drain: exit code 0")


def update_kubeconfig(name, role):
    aws = LocalAws(place=Place({port}), region={region!r})
    Path({kubeconfig!r}).write_text(json.dumps(kubeconfig(caller(aws, name, role))))
    print("Added new context")


def query():
    call = getattr(boto3.client(service), operation.replace("-", "_"))
    expression = given.pop("--query", "null")
    given.pop("--output", None)
    # The members of a request, except in CloudWatch Logs, begin with a capital letter.
    names = {{option: option[2:].title().replace("-", "") for option in given}}
    if service == "logs":
        names = {{option: name[0].lower() + name[1:] for option, name in names.items()}}
    found = jmespath.search(expression, call(**{{names[option]: value for option, value in given.items()}}))
    rows = found if isinstance(found, list) else [found]
    print("\\n".join(str(row[0] if isinstance(row, list) else row) for row in rows))


service, operation, *options = sys.argv[1:]
given = dict(zip(options[::2], options[1::2]))
if (service, operation) == ("ssm", "start-session"):
    start_session()
elif (service, operation) == ("eks", "update-kubeconfig"):
    update_kubeconfig(given["--name"], given["--role-arn"].rpartition("/")[2])
else:
    query()
"""
_PIP = """\
#!/usr/bin/env bash
# The library is installed already. The page has to name it with an extra that it has, or a file that exists.
set -euo pipefail
case "$*" in
  "install -r requirements.txt") test -f requirements.txt ;;
  "install "*"/cdk_hyperpod-0.1.0-py3-none-any.whl" | "install "*"/cdk_hyperpod-0.1.0-py3-none-any.whl[local]") ;;
  *) echo "pip: cannot follow $*" >&2; exit 64 ;;
esac
"""
_TOOL = """\
#!/usr/bin/env bash
# The real command. `local` gets an engine of the reader's own, and nothing of the AWS that the other commands ask. `watch` gets
# its reader's Ctrl-C.
[ "$1" != watch ] || exec timeout --preserve-status --signal=INT {patience} {tool} "$@"
[ "$1" = local ] || exec {tool} "$@"
for name in $(compgen -e AWS_); do unset "$name"; done
[ "$2" = deploy ] && set -- "$@" --speed 1200
exec {tool} "$@" --port {port}
"""


class Reader:
    """Somebody at a terminal. Their folder changes with `cd`, and their variables do not outlive a command."""

    def __init__(self, folder: Path, aws: LocalAws, *, local_port: int = 0) -> None:
        """`aws`: what their credentials are for. `local_port`: of the engine that `cdk-hyperpod local` starts."""
        self.folder = folder
        self._environment = environment.complete(aws.place, region=aws.region, account=aws.account)
        programs = folder / "stand-ins"
        programs.mkdir(exist_ok=True)
        config = folder / "kubeconfig"
        for name, text in _stand_ins(aws, config, local_port).items():
            (programs / name).write_text(text, "utf-8")
            (programs / name).chmod(0o755)
        self._at = programs / "at"
        self._environment["PATH"] = os.pathsep.join(
            [str(programs), *map(str, kubectl.programs()), self._environment["PATH"]]
        )
        self._environment["KUBECONFIG"] = str(config)
        self._environment["COLUMNS"] = "200"

    def follow(self, page: str, names: dict[str, str], *, section: str | None = None) -> None:
        """Do what the page shows, with the page's `names` replaced. `section`: only what is below this heading."""
        text = (ROOT / "docs" / page).read_text("utf-8")
        for block in blocks(text):
            if section is not None and block.line not in lines_of(text, section):
                continue
            where = f"docs/{page}:{block.line}"
            assert block.language in _ALLOWED, f"{where}: a {block.language} block is not followed; {_FOLLOWED} are"
            if block.language == "yaml":
                self.edit(named(block.text, names))
            if block.language == "console":
                self._run_all(page, block, names)

    def edit(self, part: str) -> None:
        file = self.folder / "cluster.yaml"
        file.write_text(edited(file.read_text("utf-8"), part), "utf-8")

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
                ["bash", "-c", f"{command}\ncode=$?; pwd >{shlex.quote(str(self._at))}; exit $code"],
                cwd=self.folder,
                env=self._environment,
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_LONGEST_SECONDS,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(terminal)
        self.folder = Path(self._at.read_text("utf-8").strip())
        return done.returncode, done.stdout


def _stand_ins(aws: LocalAws, config: Path, local_port: int) -> dict[str, str]:
    cli = json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"]
    folders = [str(ROOT / "tests")]
    return {
        "npx": _NPX.format(version=cli),
        "aws": _AWS.format(
            python=sys.executable, tests=folders, port=aws.place.port, region=aws.region, kubeconfig=str(config)
        ),
        "pip": _PIP,
        "cdk-hyperpod": _TOOL.format(
            tool=shlex.quote(str(Path(sys.executable).with_name("cdk-hyperpod"))), port=local_port, patience=_PATIENCE
        ),
    }
