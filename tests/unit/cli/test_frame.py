"""What every command runs in: what is loaded, how errors end, completion, and the sentences about AWS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    PaginationError,
)

from cdk_hyperpod.cli import aws, frame, tables
from cdk_hyperpod.cli.cluster_file import check
from cdk_hyperpod.cli.commands import COMMANDS, overview
from cdk_hyperpod.cli.main import main

TOOL = Path(sys.executable).with_name("cdk-hyperpod")
HEAVY = ("click", "rich", "rich_click", "ruamel", "yaml", "botocore", "argparse", "aws_cdk", "jsii")


def test_the_overview_loads_nothing_that_takes_time() -> None:
    """Without these it takes about twice as long as an empty Python."""
    program = (
        "import sys; from cdk_hyperpod.cli.main import main; assert main(['--help']) == 0; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Usage: cdk-hyperpod COMMAND")
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_overview_fits_and_names_every_command_that_can_be_loaded() -> None:
    text = overview(colour=False)
    names = [name for group in COMMANDS.values() for name in group]

    assert max(map(len, text.splitlines())) <= 80 and "\033" not in text
    assert "\033[1mThe cluster file\033[0m" in overview(colour=True)
    for name in names:
        assert f"\n  {name} " in text
        command = frame.tool.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None and command.help, name


@pytest.mark.parametrize("name", [name for group in COMMANDS.values() for name in group])
def test_the_help_of_a_command_is_plain_text_without_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"Usage: cdk-hyperpod {name}" in out and "\033" not in out and err == ""


def test_a_fault_of_the_tool_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "load_config", lambda _: 1 // 0)

    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "ZeroDivisionError: integer division or modulo by zero\n" in err
    assert "CDK_HYPERPOD_DEBUG=1" in err and err.count("\n") == 2
    monkeypatch.setenv("CDK_HYPERPOD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["check"])


def test_ctrl_c_ends_it_with_130_and_no_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cluster.yaml")
    running = subprocess.Popen(
        [TOOL, "check"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who starts the tests in the background has them ignore it, and what they start, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - nothing here has threads
    )
    try:
        # It reads the pipe once somebody writes there; then it waits for the end of it.
        with (tmp_path / "cluster.yaml").open("w"):
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out, err) == (130, "", "\ninterrupted\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_CDK_HYPERPOD_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "at", "found"),
    [
        ("cdk-hyperpod un", "1", ["undrain"]),
        ("cdk-hyperpod plan --con", "2", ["--config", "--confirm"]),
        ("cdk-hyperpod lifecycle run sl", "3", ["slurm", "slurm_conf"]),
        ("cdk-hyperpod local de", "2", ["deploy", "destroy"]),
    ],
)
def test_bash_completion_returns_the_matching_words(words: str, at: str, found: list[str]) -> None:
    asked = {"_CDK_HYPERPOD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run([TOOL], env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == found


def refused(code: str, message: str = "no", operation: str = "ListClusterNodes") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoCredentialsError(), "no AWS credentials found. "),
        (refused("ExpiredTokenException"), "your AWS credentials have expired. "),
        (refused("UnrecognizedClientException"), "AWS does not know your credentials (UnrecognizedClientException). "),
        (
            refused(
                "AccessDeniedException",
                "User: arn:aws:iam::1:user/u is not authorized to perform: sagemaker:ListClusterNodes on resource: arn:x "
                "because no identity-based policy allows the sagemaker:ListClusterNodes action",
            ),
            "your credentials lack the permission sagemaker:ListClusterNodes on arn:x. ",
        ),
        (refused("AccessDenied"), "your credentials lack the permission ListClusterNodes. "),
        (refused("ThrottlingException"), "AWS throttles ListClusterNodes, 5 attempts"),
        (refused("ResourceNotFound", "Cluster x not found"), "ListClusterNodes: Cluster x not found"),
        (refused("Strange", "all\nthat"), "ListClusterNodes: Strange: all that"),
        (EndpointConnectionError(endpoint_url="https://a"), "AWS cannot be reached: Could not connect to the endpoint"),
        (
            EndpointConnectionError(endpoint_url="https://127.0.0.1:4599/"),
            'AWS cannot be reached: Could not connect to the endpoint URL: "https://127.0.0.1:4599/". The local AWS is not r',
        ),
    ],
)
def test_every_way_in_which_aws_cannot_be_asked_is_one_sentence(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(check, "load_config", fail)
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(said) and err.count("\n") == 1 and err == f"{aws.sentence(error)}\n"


def test_pages_whose_token_comes_again_end_with_one_sentence() -> None:
    asked = iter(range(10))

    def call(**arguments: str) -> dict[str, object]:
        assert next(asked, None) is not None, "for ever"
        return {"Items": [1], "NextToken": "x"}

    with pytest.raises(PaginationError) as why:
        list(aws.pages(call, "Items"))
    assert aws.sentence(why.value).startswith("AWS's answer is invalid: Error during pagination: ")


def test_a_table_is_cut_to_the_width_of_a_narrow_terminal() -> None:
    rows = [("a-group-with-a-long-name", "Running", "5"), ("b", "DeepHealthCheckInProgress", "12")]
    assert tables.table(("group", "status", "n"), rows, columns=40, cut=(0, 1), right=(2,)) == [
        "group      status                      n",
        "a-group-…  Running                     5",
        "b          DeepHealthCheckInProgress  12",
    ]
    assert tables.table(("group", "n"), rows[:0]) == ["group  n"]
