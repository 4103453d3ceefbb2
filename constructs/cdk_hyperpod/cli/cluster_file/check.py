"""`cdk-hyperpod check`: every error and warning of a cluster file, or a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich_click as click
from click import get_current_context as current_context
from click.core import ParameterSource

from ...config.changes import Changed, changed, record
from ...errors import ConfigError, Finding, with_lines
from ...loader import LoadedConfig, load_config
from ...rules import what_closed_means
from ..changes import change_lines
from ..deployment.cost import figure
from ..options import config_option, json_option
from ..tables import say, say_json, shown, table, width


@click.command(
    epilog="Exit code 0: no errors; there may be warnings. 1: errors, all of which are listed, with --json on standard output "
    "too."
)
@click.argument("file", required=False, metavar="[FILE]", type=click.Path())
@config_option
@click.option(
    "--against",
    metavar="OLD",
    type=click.Path(),
    help="Compare with OLD, another version of the file, and show what each change does to running nodes.",
)
@json_option
def check(file: str | None, config: str, against: str | None, *, as_json: bool) -> None:
    """Check a cluster file, and list all errors and warnings at once. Needs no AWS account.

    Examples:
        cdk-hyperpod check
        cdk-hyperpod check cluster.yaml --against deployed.yaml

    FILE is the same as --config.
    """
    if file is not None and _is_named("config"):
        raise click.UsageError("FILE: cannot be combined with --config, which means the same")
    try:
        old = None if against is None else _old(against)
        loaded = load_config(file or config)
    except ConfigError as error:
        if as_json:
            say_json("check", 1, _refused(error))
        raise
    changes = None if old is None else changed(record(old.config), record(loaded.config))
    if as_json:
        say_json("check", 1, _content(loaded, changes))
        return
    say(*_lines(loaded))
    if changes is not None:
        say(*(change_lines(changes) or ["", f"No setting differs from {shown(against)}."]))


def _lines(loaded: LoadedConfig) -> Iterator[str]:
    """The warnings of a file without errors, and a summary of its cluster."""
    for warning in with_lines(loaded.warnings):
        yield f"warning: {warning}"
    note = what_closed_means(loaded.config.network)
    if note is not None:
        yield f"note: {note}"
    yield from _summary(loaded).split("\n")
    cost = figure(loaded.config)
    if cost is not None:
        yield cost


def _old(against: str) -> LoadedConfig:
    if not Path(against).exists():
        finding = Finding(
            code="file-to-compare-missing",
            path="",
            problem="does not exist",
            remedy="name an existing version of the cluster file after --against",
        )
        raise ConfigError([finding], shown(against))
    return load_config(against)


def _refused(error: ConfigError) -> dict[str, Any]:
    """What --json prints of a file with errors: the same members, empty except for `errors`."""
    nothing = dict.fromkeys(("cluster", "region", "orchestrator"))
    errors = [{"file": error.source, **_row(finding)} for finding in error.findings]
    return {**nothing, "errors": errors, "warnings": [], "groups": [], "changes": None}


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "path": finding.path,
        "line": finding.line,
        "message": f"{finding.problem}; {finding.remedy}",
    }


def _content(loaded: LoadedConfig, changes: Sequence[Changed] | None) -> dict[str, Any]:
    """What --json prints of a file without errors. `changes` is null without --against."""
    config = loaded.config
    return {
        "cluster": config.name,
        "region": config.region,
        "orchestrator": config.orchestrator,
        "errors": [],
        "warnings": [_row(warning) for warning in loaded.warnings],
        "groups": [
            {
                "group": group.name,
                "instance_types": [*group.all_instance_types],
                "count": group.instance_count,
                "minimum": group.min_instance_count,
                "node_type": group.node_type,
                "partition": group.partition,
            }
            for group in config.instance_groups
        ],
        "changes": None if changes is None else [asdict(each) for each in changes],
    }


def _is_named(option: str) -> bool:
    return current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _summary(loaded: LoadedConfig) -> str:
    config = loaded.config
    rows = [
        (
            group.name,
            ", ".join(group.all_instance_types),
            str(group.instance_count),
            str(group.min_instance_count),
            " ".join(filter(None, [group.node_type, group.partition and f"(partition {group.partition})"])),
        )
        for group in config.instance_groups
    ]
    terminal = width()
    columns = None if terminal is None else terminal - 2
    headings = ("group", "type", "count", "minimum", "role")
    lines = [f"  {line}" for line in table(headings, rows, columns=columns, cut=(1, 4, 0))]
    article = "an" if config.orchestrator == "eks" else "a"
    head = f"{config.name}: {article} {config.orchestrator} cluster in {config.region}, no errors"
    return "\n".join([head, *lines])
