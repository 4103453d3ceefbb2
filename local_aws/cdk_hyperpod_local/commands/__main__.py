"""The command line of the local AWS: `cdk-hyperpod local`, or `python -m cdk_hyperpod_local.commands`."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rich_click as click
from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
from click.exceptions import Exit

from cdk_hyperpod.cli import tables
from cdk_hyperpod.errors import HyperPodError
from cdk_hyperpod_local import apps, daemon
from cdk_hyperpod_local.commands import run, spelling
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import DEFAULT_PORT, Place

_PROGRAM = "cdk-hyperpod local"

_DESCRIPTION = """\
Rehearse a deployment on this machine, without an AWS account. The real CDK CLI deploys to an engine on 127.0.0.1 that
simulates AWS. The Lambda functions run their real code, IAM checks each request, and HyperPod terminates nodes at random
when you lower a count. The first run downloads about 100 MB. Docker is not needed.

Supported are apps that use the constructs of cdk-hyperpod, with one account and Region. Other apps and plain
CloudFormation templates (--app) may work too.
docs/local-aws-limits.md of cdk-hyperpod lists what a rehearsal proves, and what it does not prove.
"""

_EXAMPLES = """\
\b
Examples:
  Deploy the app of this folder's cdk.json. Run it again to update.
    cdk-hyperpod local deploy
  Show what the next deployment changes, and which nodes it deletes.
    cdk-hyperpod local diff
  Call the engine with aws, boto3, kubectl and helm.
    cdk-hyperpod local shell
  Delete everything, and end the engine.
    cdk-hyperpod local destroy
"""


@dataclass(frozen=True, kw_only=True)
class _Text:
    """What the help prints about one command. `short`: its line in the list of commands."""

    short: str
    details: str
    examples: tuple[str, ...]
    exit_codes: str = "Exit code 0: done. 1: failed, and the last line is the reason. 130: interrupted; a running engine keeps running."

    def help(self) -> str:
        examples = "\n".join(f"    {example}" for example in self.examples)
        return f"{self.details}\n\nExamples:\n{examples}\n\n{self.exit_codes}\n"


_COMMANDS: Mapping[str, _Text] = {
    "setup": _Text(
        short="download what the engine needs, once",
        details="Download what the engine needs into the cache folder, once (about 100 MB). Otherwise the first deploy does it.",
        examples=("cdk-hyperpod local setup",),
    ),
    "deploy": _Text(
        short="deploy the app to the engine; run it again to update",
        details="Start the engine, bootstrap it, and deploy all stacks of the app. Then list the stacks' outputs, the clusters, "
        "and the nodes that this deployment terminated. Run it again to update.",
        examples=(
            "cdk-hyperpod local deploy",
            "cdk-hyperpod local deploy --app 'npx ts-node bin/app.ts'",
            "cdk-hyperpod local deploy --app ../training",
            "cdk-hyperpod local deploy --app cluster.template.yaml --parameters Count=4",
        ),
    ),
    "diff": _Text(
        short="show what a deployment would change and delete",
        details="Show how the app's templates differ from the deployed stacks. If the app has a cluster file, show also which "
        "nodes and groups the deployment would delete. The differences are printed by the CDK CLI itself, whose lines may be wider "
        "than the terminal. Starts the engine if none is running.",
        examples=("cdk-hyperpod local diff", "cdk-hyperpod local diff --config other.yaml"),
    ),
    "plan": _Text(
        short="show which nodes a deployment would delete, and why",
        details="Show which nodes and groups a deployment of the cluster file would delete, and why. The engine must be running.",
        examples=("cdk-hyperpod local plan", "cdk-hyperpod local plan --config other.yaml"),
        exit_codes="Exit code 0: nothing would be deleted. 2: nodes or groups would be deleted. 1: the deployment would be "
        "refused, the file is invalid, or no engine is running.",
    ),
    "drift": _Text(
        short="show changes that were made without CloudFormation",
        details="Show which resources differ from their templates, because they were changed without CloudFormation. They "
        "are printed by the CDK CLI itself, whose lines may be wider than the terminal. The engine must be running.",
        examples=("cdk-hyperpod local drift",),
    ),
    "shell": _Text(
        short="open a shell whose aws, boto3, kubectl and helm use the engine",
        details="Open a shell in which the aws CLI, boto3, kubectl and helm use the engine. `exit` leaves it. Without a "
        "terminal, print the shell's variables, for `source`. The engine must be running.",
        examples=("cdk-hyperpod local shell", "source <(cdk-hyperpod local shell </dev/null)"),
    ),
    "status": _Text(
        short="show whether the engine is running",
        details="Show whether the engine of this port is running, and its process id.",
        examples=("cdk-hyperpod local status", "cdk-hyperpod local status --port 4599"),
        exit_codes="Exit code 0: the engine is running. 3: it is not.",
    ),
    "stop": _Text(
        short="end the engine and keep its state",
        details="End the engine and keep its state. The next deploy, diff or destroy continues with that state.",
        examples=("cdk-hyperpod local stop",),
    ),
    "destroy": _Text(
        short="delete everything that was deployed, and end the engine",
        details="Delete all stacks that were deployed to the engine, list what AWS would have retained, end the engine, and "
        "remove its folder. Say which stacks AWS would have refused to delete, because of termination protection.",
        examples=("cdk-hyperpod local destroy",),
        exit_codes="Exit code 0: done. 1: a stack cannot be deleted. The last line is the reason, and the engine keeps "
        "running. `cdk-hyperpod local reset` deletes it with all that is left. 130: interrupted; a running engine keeps running.",
    ),
    "reset": _Text(
        short="delete the engine and its state, without deleting stacks",
        details="Delete the engine of this port with all of its state, after a question. Deletes no stack one by one, so it "
        "also ends what `destroy` cannot delete. Nothing on AWS is changed.",
        examples=("cdk-hyperpod local reset", "cdk-hyperpod local reset --yes"),
        exit_codes="Exit code 0: done, or there was nothing to delete. 1: nothing was deleted, because you answered no or "
        "there is no terminal to answer on.",
    ),
}
_OF_AN_APP = ("deploy", "diff", "plan", "drift")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A failure prints one line and returns 1; wrong usage returns 2."""
    try:
        with local.make_context(_PROGRAM, [*(sys.argv[1:] if arguments is None else arguments)]) as context:
            return int(local.invoke(context))
    except Exit as end:
        return end.exit_code
    except click.UsageError as error:
        print(f"{error.ctx.command_path if error.ctx else _PROGRAM}: error: {error.format_message()}", file=sys.stderr)
        return 2


@click.group(help=f"{_DESCRIPTION}\n{_EXAMPLES}", no_args_is_help=False)
def local() -> None:
    """The command group. SIGTERM acts like Ctrl-C: it also ends the CDK CLI that the command started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _command(name: str, text: _Text) -> click.Command:
    """A command of the table, with its options."""
    given: list[click.Option] = []
    if name in _OF_AN_APP:
        given += [
            click.RichOption(
                ["--app"],
                metavar="APP",
                help="A command that synthesizes, a folder with a cdk.json, a cloud assembly (cdk.out) or a CloudFormation "
                "template. Default: the app of this folder's cdk.json.",
            ),
            click.RichOption(
                ["-c", "--context"],
                multiple=True,
                metavar="KEY=VALUE",
                help="Context for the app, as with `cdk`. Can be repeated.",
            ),
            click.RichOption(
                ["--config"],
                metavar="FILE",
                help="The cluster file, if the app reads one. It is checked first, passed to the app as the context "
                "`config`, and compared with the live cluster. Default: the file that cdk.json names.",
            ),
        ]
    if name == "deploy":
        given.append(
            click.RichOption(
                ["--parameters"],
                multiple=True,
                metavar="[STACK:]NAME=VALUE",
                help="A parameter of a template, as with `cdk deploy`. Can be repeated.",
            )
        )
    if name == "reset":
        given.append(click.RichOption(["--yes"], is_flag=True, help="Do not ask."))
    given += [
        click.RichOption(
            ["--port"],
            default=str(DEFAULT_PORT),
            metavar="PORT",
            help=f"The engine's port. Each port has its own engine and state. Default: {DEFAULT_PORT}.",
        ),
        click.RichOption(
            ["--speed"],
            default="200",
            metavar="TIMES",
            help="How many times faster than AWS the waits pass. A running engine keeps its speed. Default: 200.",
        ),
    ]
    return click.RichCommand(
        name=name,
        params=[*given],
        callback=lambda **options: _run(name, **options),
        help=text.help(),
        short_help=text.short,
    )


for _name, _text in _COMMANDS.items():
    local.add_command(_command(_name, _text))


def _run(
    command: str,
    *,
    port: str,
    speed: str,
    app: str | None = None,
    context: Sequence[str] = (),
    config: str | None = None,
    parameters: Sequence[str] = (),
    yes: bool = False,
) -> int:
    """Run one command. Every expected failure becomes one line on standard error, and an exit code."""
    try:
        place, times = Place(_port(port)), _speed(speed)
        _check_parameters(parameters)
        found = _app(app, context, config) if command in _OF_AN_APP else None
    except EngineError as error:
        return _failed(error)
    job = run.Job(place=place, given=found, speed=times, parameters=tuple(parameters), confirmed=yes)
    try:
        return run.COMMANDS[command](job)
    except EngineError as error:
        return _failed(error)
    except HyperPodError as error:  # errors of the cluster file, in the words of `check`
        _complain(error)
        return 1
    except BotoCoreError as error:  # the engine did not answer; its refusals are ClientErrors
        return _failed(f"{error}; the engine's log is {place.log}")
    except OSError as error:
        return _failed(_file_problem(error, place))
    except KeyboardInterrupt:
        end = spelling.command("destroy", place)
        engine = f"the engine keeps running. `{end}` ends it" if daemon.running(place) else "no engine is running"
        print(file=sys.stderr)
        _failed(f"interrupted; {engine}")
        return 130


def _file_problem(error: OSError, place: Place) -> str:
    file = Path(str(error.filename))
    if file in (place.home, *place.home.parents):
        return f"cannot write to {file} ({error.strerror}). Set XDG_CACHE_HOME or LOCAL_AWS_HOME to another folder"
    if place.home in file.parents:
        return f"{error}. Make everything below {place.home} writable for your user"
    return str(error)


def _app(app: str | None, context: Sequence[str], config: str | None) -> apps.App:
    file = Path(config).absolute() if config else None
    return apps.find(app, folder=Path.cwd(), context=tuple(context), config=file)


def _check_parameters(given: Sequence[str]) -> None:
    wrong = [item for item in given if not item.partition("=")[0] or "=" not in item]
    if wrong:
        raise EngineError(
            f"--parameters {', '.join(wrong)}: has no name or no value. Write NAME=VALUE, or STACK:NAME=VALUE"
        )


def _port(given: str) -> int:
    port = int(given) if given.isdecimal() and len(given) <= 5 else 0
    if not 1 <= port <= 65535:
        raise EngineError(f"{spelling.option('port', given)} is not a port. Use a number from 1 to 65535")
    return port


def _speed(given: str) -> float:
    try:
        speed = float(given)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise EngineError(f"{spelling.option('speed', given)} is not a speed. Use a number above 0, such as 100")
    return speed


def _complain(text: object) -> None:
    """Print to standard error. Control characters are escaped, because parts of the text come from other programs."""
    tables.complain(*str(text).split("\n"))


def _failed(why: object) -> int:
    _complain(f"{spelling.FAILED}{why}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
