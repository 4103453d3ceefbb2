"""What every command has alike: where to look, whose credentials, JSON for programs, and exit codes that its help tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rich_click as click

from cdk_hyperpod.cli import frame
from cdk_hyperpod.cli.commands import COMMANDS
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.nodes.nodes import IMAGES, STATUSES

# Option -> command -> why it has none. Whatever is not here has the option, and whatever is here has not.
_OF_THE_TOOL = "is about the tool"
_NO_FILE = "reads no cluster file"
_THE_FILE = "compares the file, or is made from it"
_ASKS_NOBODY = "asks AWS nothing"
_LOCAL = dict.fromkeys(
    [
        f"local {word}"
        for word in ("setup", "deploy", "diff", "plan", "drift", "shell", "status", "stop", "destroy", "reset")
    ],
    "rehearses on this machine: an engine is named by its port, and what is on it is asked through `local shell`",
)
_OF_AN_APP = ("local deploy", "local diff", "local plan", "local drift")
WITHOUT: dict[str, dict[str, str]] = {
    "--config": {
        "init": "writes the file",
        **dict.fromkeys(("schema", "docs", "completion"), _OF_THE_TOOL),
        "credentials": _NO_FILE,
        **{name: why for name, why in _LOCAL.items() if name not in _OF_AN_APP},
    },
    "--profile": {
        **dict.fromkeys(("init", "check", "schema", "docs", "completion", "job render", "lifecycle run"), _ASKS_NOBODY),
        **_LOCAL,
    },
    "--cluster": {
        **_LOCAL,
        **dict.fromkeys(("init", "schema", "docs", "completion"), _OF_THE_TOOL),
        "credentials": "is about no cluster",
        **dict.fromkeys(
            ("check", "preflight", "cost", "plan", "retained", "patch", "job render", "lifecycle run"), _THE_FILE
        ),
    },
    "--json": {
        **_LOCAL,
        "init": "writes files, and names them",
        "schema": "prints JSON already",
        "docs": "prints a folder",
        "completion": "prints a script",
        "lifecycle run": "prints a script",
        "job render": "prints YAML",
        "connect": "becomes a session",
        "credentials": "its exit code is all there is",
        "undrain": "its exit code, and the ids that it was given",
    },
}
WITHOUT["--region"] = {name: why for name, why in WITHOUT["--cluster"].items() if name != "init"}
_OF_THEIR_OWN = {("init", "--region"), ("job render", "--config"), *((name, "--config") for name in _OF_AN_APP)}
"""What the new file says; a file that is only needed with other options; and one that is passed on to any app."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command of the tool by its words."""
    for name in (name for group in COMMANDS.values() for name in group):
        command = frame.tool.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {word}", each) for word, each in inner.items())


ALL = dict(commands())


@pytest.mark.parametrize("option", WITHOUT)
def test_every_command_has_the_option_or_a_reason(option: str) -> None:
    without = {
        name for name, command in ALL.items() if not any(option in parameter.opts for parameter in command.params)
    }
    assert without == set(WITHOUT[option])


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_a_command_names_exit_codes_and_iam_permissions(name: str) -> None:
    command = ALL[name]
    told = " ".join(f"{command.help} {command.epilog or ''}".split())
    assert "xit code" in told, "no exit code"
    asks = any("--profile" in parameter.opts for parameter in command.params)
    assert ("IAM permissions: " in told) == (asks and name != "credentials"), "which asks nobody whether they are valid"


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("local ")])
def test_its_help_has_an_example_and_fits_a_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert f"    cdk-hyperpod {name}" in out or f'cdk-hyperpod {name} bash)"' in out or f"$(cdk-hyperpod {name})" in out


@pytest.mark.parametrize("name", ["job", "lifecycle"])
def test_the_help_of_commands_with_subcommands_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Example:\n     cdk-hyperpod {name} " in "\n".join(map(str.rstrip, capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("column", ["80", "200"])
def test_the_help_of_nodes_breaks_no_status(
    column: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", column)
    assert main(["nodes", "--help"]) == 0
    out = capsys.readouterr().out
    assert [word for word in (*STATUSES, *IMAGES) if word not in out] == []


def test_an_option_says_the_same_everywhere() -> None:
    helps: dict[str, set[str]] = {option: set() for option in WITHOUT}
    for name, command in ALL.items():
        for parameter in command.params:
            for option in parameter.opts:
                if option in WITHOUT and (name, option) not in _OF_THEIR_OWN:
                    helps[option].add(str(getattr(parameter, "help", "")))
    assert {option: len(texts) for option, texts in helps.items()} == dict.fromkeys(WITHOUT, 1)
