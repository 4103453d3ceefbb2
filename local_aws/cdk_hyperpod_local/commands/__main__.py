"""The command line of the local AWS: `cdk-hyperpod local`, or `python -m cdk_hyperpod_local.commands`."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import rich_click as click
from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
from click.exceptions import Exit

from cdk_hyperpod._lambda.hyperpod.common.text import printable
from cdk_hyperpod.errors import HyperPodError
from cdk_hyperpod_local import apps, daemon
from cdk_hyperpod_local.commands import run, spelling
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import DEFAULT_PORT, Place

_PROGRAM = "cdk-hyperpod local"

_DESCRIPTION = """\
Rehearse a deployment on this machine: the real CDK CLI deploys to an engine on 127.0.0.1 that plays AWS. The functions
run their real code, IAM answers each request, and HyperPod terminates nodes at random when you lower a count. You need
no account and no docker, and the network only once, for the set-up.

It is for apps that use the constructs of cdk-hyperpod, with one account and Region. Other apps and plain CloudFormation
templates (--app) may work too, without a promise.
What it proves, and what not: docs/local-aws-limits.md of cdk-hyperpod.
"""

_EXAMPLES = """\
\b
examples:
  deploy this folder's app, as its cdk.json says; after a change, update it
    cdk-hyperpod local deploy
  show what the next deployment would change, and which nodes it would take
    cdk-hyperpod local diff
  deploy a TypeScript app, another folder's, a synthesized one, a template
    cdk-hyperpod local deploy --app 'npx ts-node bin/app.ts'
    cdk-hyperpod local deploy --app ../training
    cdk-hyperpod local deploy --app cdk.out
    cdk-hyperpod local deploy --app cluster.template.yaml --parameters Count=4
  ask it as you would ask AWS, by aws, boto3, kubectl and helm
    cdk-hyperpod local shell
  take everything down and end the engine
    cdk-hyperpod local destroy
"""

_COMMANDS = (
    ("setup", "download what the engine needs into the cache folder; otherwise the first deploy does so"),
    ("deploy", "start the engine, deploy all stacks, show what exists and which nodes ended; run it again to update"),
    ("diff", "show what a deployment would change and, with a cluster file, what it would take away"),
    ("plan", "show what a deployment of a cluster file would take away, and why"),
    ("drift", "show what somebody changed without CloudFormation"),
    (
        "shell",
        "open a shell in which the aws CLI, boto3, kubectl and helm reach the engine; in a pipe: print its variables, to source",
    ),
    ("status", "say whether the engine runs"),
    ("stop", "end the engine and keep its state; the next command goes on from there"),
    ("destroy", "destroy everything that was deployed to this engine, end it, remove its folder"),
)
_EXIT_CODES = {
    "plan": "Exit code 0: nothing would be taken away; 2: nodes or groups would go; 1: the deployment would be refused, or "
    "the file is wrong, or no engine runs.",
    "status": "Exit code 0: it runs; 3: not.",
}
_EXIT_CODE = "Exit code 0: done; 1: not, and one line says why; 130 after Ctrl-C: the engine goes on where it runs."
_OF_AN_APP = ("deploy", "diff", "plan", "drift")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; what goes wrong is said in one line, with 1, and wrong usage with 2."""
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
    """What `cdk-hyperpod local` has. `kill` is heard like Ctrl-C, and ends the CLI that runs for it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _command(name: str, text: str) -> click.Command:
    """A command of the table, with its options."""
    given: list[click.Option] = []
    if name in _OF_AN_APP:
        given += [
            click.RichOption(
                ["--app"],
                metavar="APP",
                help="A command that synthesizes, a folder with a cdk.json, a cloud assembly (cdk.out) or a CloudFormation "
                "template; default: the app of this folder's cdk.json.",
            ),
            click.RichOption(
                ["-c", "--context"],
                multiple=True,
                metavar="KEY=VALUE",
                help="Context for the app, as with `cdk`; may be repeated.",
            ),
            click.RichOption(
                ["--config"],
                metavar="FILE",
                help="The cluster file, if the app reads one: it is checked first, given to the app as the context `config`, "
                "and compared with the live cluster.",
            ),
        ]
    if name == "deploy":
        given.append(
            click.RichOption(
                ["--parameters"],
                multiple=True,
                metavar="[STACK:]NAME=VALUE",
                help="A parameter of a template, as with `cdk deploy`; may be repeated.",
            )
        )
    given += [
        click.RichOption(
            ["--port"],
            default=str(DEFAULT_PORT),
            metavar="PORT",
            help=f"The engine's port; each port has an engine of its own. Default: {DEFAULT_PORT}.",
        ),
        click.RichOption(
            ["--speed"],
            default="200",
            metavar="TIMES",
            help="How many times faster AWS's long waits pass; a running engine keeps its speed. Default: 200.",
        ),
    ]
    return click.RichCommand(
        name=name,
        params=[*given],
        callback=lambda **options: _run(name, **options),
        help=f"{text[:1].upper()}{text[1:]}.",
        short_help=text,
        epilog=_EXIT_CODES.get(name, _EXIT_CODE),
    )


for _name, _text in _COMMANDS:
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
) -> int:
    """Run one command, with whatever goes wrong in one line."""
    try:
        place, times = Place(_port(port)), _speed(speed)
        _check_parameters(parameters)
        found = _app(app, context, config) if command in _OF_AN_APP else None
    except EngineError as error:
        return _failed(error)
    job = run.Job(place=place, given=found, speed=times, parameters=tuple(parameters))
    try:
        return run.COMMANDS[command](job)
    except EngineError as error:
        return _failed(error)
    except HyperPodError as error:  # of the cluster file, as `check` says it
        _complain(error)
        return 1
    except BotoCoreError as error:  # no refusal of the engine's, which answers those
        return _failed(f"{error}; the engine's log is {place.log}")
    except OSError as error:
        return _failed(_said(error, place))
    except KeyboardInterrupt:
        end = spelling.command("destroy", place)
        rest = f"the engine goes on, `{end}` ends it" if daemon.running(place) else "no engine runs"
        print(file=sys.stderr)
        _failed(f"interrupted; {rest}")
        return 130


def _said(error: OSError, place: Place) -> str:
    file = Path(str(error.filename))
    if file in (place.home, *place.home.parents):
        return f"cannot write to {file} ({error.strerror}); name another folder with XDG_CACHE_HOME or LOCAL_AWS_HOME"
    return (
        f"{error}; everything below {place.home} has to be yours to write" if place.home in file.parents else str(error)
    )


def _app(app: str | None, context: Sequence[str], config: str | None) -> apps.App:
    file = Path(config).absolute() if config else None
    return apps.find(app, folder=Path.cwd(), context=tuple(context), config=file)


def _check_parameters(given: Sequence[str]) -> None:
    wrong = [item for item in given if not item.partition("=")[0] or "=" not in item]
    if wrong:
        raise EngineError(
            f"--parameters {', '.join(wrong)}: lacks a name or a value; write NAME=VALUE, or STACK:NAME=VALUE"
        )


def _port(given: str) -> int:
    port = int(given) if given.isdecimal() and len(given) <= 5 else 0
    if not 1 <= port <= 65535:
        raise EngineError(f"{spelling.option('port', given)} is no port: choose one from 1 to 65535")
    return port


def _speed(given: str) -> float:
    try:
        speed = float(given)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise EngineError(f"{spelling.option('speed', given)} is no speed: choose a number above 0, as 100")
    return speed


def _complain(text: object) -> None:
    """On standard error; its lines are ours, and what is in them may be another program's."""
    for line in str(text).split("\n"):
        print(printable(line), file=sys.stderr)


def _failed(why: object) -> int:
    _complain(f"local AWS: {why}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
