"""The command-line tool: questions about a cluster file. None needs CDK, and only `plan` and `why` an AWS account."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from ..config.schema import json_schema
from ..errors import HyperPodError, with_lines
from ..loader import LoadedConfig, load_config
from ..rules import what_closed_means
from .denied import denied_table
from .drain import add_drain_parsers
from .init import add_init_parser
from .job import add_job_parser
from .lifecycle import add_lifecycle_parser
from .local import add_local_parser, run_local
from .plan import add_config_option, add_plan_parser, add_profile_option, clients
from .retained import retained_table
from .why import add_why_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool. Returns what the command does, mostly 0, or 1 where something was wrong; usage errors exit with 2."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given[:1] == ["local"]:
        return run_local(given[1:])
    options = _parser().parse_args(given)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except HyperPodError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Somebody piped into head. What is left to write goes nowhere, or Python would complain when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cdk-hyperpod",
        description="Questions about a SageMaker HyperPod cluster file.",
        epilog=(
            "Deploying is CDK's part: cdk diff, cdk deploy --all, cdk destroy --all; -c config=PATH names another "
            "cluster file than cluster.yaml."
        ),
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_init_parser(commands)
    check = _command(commands, "check", "say everything that is wrong with a cluster file", _check)
    retained = _command(commands, "retained", "say what stays after cdk destroy, and what it costs", _retained)
    check.add_argument("file", nargs="?", metavar="FILE", help="the cluster file; the same as --config")
    for command in (check, retained):
        add_config_option(command)
    retained.add_argument(
        "--stack", metavar="NAME", help="the stack that network and storage are in; default: hyperpod-NAME-foundation"
    )
    denied = _command(
        commands, "denied", "say what VPC endpoints refused, from a folder of CloudTrail's files", _denied
    )
    denied.add_argument("folder", metavar="FOLDER", help="a copy of what a trail has written")
    _command(commands, "schema", "print the JSON schema of cluster files, for editors", _schema)
    add_plan_parser(commands)
    add_drain_parsers(commands)
    credentials = _command(
        commands, "credentials", "say whether there are AWS credentials to deploy with", _credentials
    )
    add_profile_option(credentials)
    add_lifecycle_parser(commands)
    add_why_parser(commands)
    add_job_parser(commands)
    add_local_parser(commands)
    return parser


class _Version(argparse.Action):
    """Prints the version; looked up only when it is asked for, since that reads every installed package."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{parser.prog} {version('cdk-hyperpod')}")
        parser.exit()


def _command(commands: argparse._SubParsersAction, name: str, text: str, run: object) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[:1].upper()}{text[1:]}."
    )
    command.set_defaults(run=run)
    return command


def _check(options: argparse.Namespace) -> int:
    loaded = load_config(options.file or options.config)
    for warning in with_lines(loaded.warnings):
        print(f"warning: {warning}")
    note = what_closed_means(loaded.config.network)
    if note is not None:
        print(f"note: {note}")
    print(_summary(loaded))
    return 0


def _summary(loaded: LoadedConfig) -> str:
    config = loaded.config
    rows = [("group", "type", "count", "minimum", "role")]
    rows += [
        (
            group.name,
            ", ".join(group.all_instance_types),
            str(group.instance_count),
            str(group.min_instance_count),
            " ".join(filter(None, [group.node_type, group.partition and f"(partition {group.partition})"])),
        )
        for group in config.instance_groups
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    article = "an" if config.orchestrator == "eks" else "a"
    head = f"{config.name}: {article} {config.orchestrator} cluster in {config.region}, no errors"
    return "\n".join([head, *lines])


def _retained(options: argparse.Namespace) -> int:
    print(retained_table(load_config(options.config).config, options.stack))
    return 0


def _credentials(options: argparse.Namespace) -> int:
    # Nothing is called, so any region will do.
    clients("us-east-1", options.profile)
    print("There are AWS credentials.")
    return 0


def _denied(options: argparse.Namespace) -> int:
    print(denied_table(Path(options.folder)))
    return 0


def _schema(options: argparse.Namespace) -> int:
    del options
    print(json.dumps(json_schema(), indent=1))
    return 0
