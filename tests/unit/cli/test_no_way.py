"""What is said where AWS is never reached (no credentials, no profile of that name, no network), and where it refuses to talk."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from helpers.cli.aws_errors import intercept
from helpers.validating import changed

COMMANDS = [["nodes"], ["connect", "i-0123456789abcdef0", "--print"], ["logs", "i-0123456789abcdef0"], ["watch"]]
COMMANDS += [["replace", "i-0123456789abcdef0", "--yes"], ["reboot", "i-0123456789abcdef0", "--yes"]]
COMMANDS += [
    ["plan"],
    ["why"],
    ["cost", "--refresh"],
    ["preflight"],
    ["drain", "i-0123456789abcdef0"],
    ["drain", "--status"],
]
COMMANDS += [["patch", "--yes"], ["patch", "--dry-run"], ["undrain", "i-0123456789abcdef0"]]
EXIT_CODES = {"preflight": 3}
"""Which has 1 for what is impossible."""
REFUSED = {
    "expired": "your AWS credentials have expired. ",
    "unknown": "AWS does not know your credentials (",
    "denied": "your credentials lack the permission ",
    "throttled": "AWS throttles ",
    "broken": ": AWS has an internal error (",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small file, and nothing of the user's own AWS."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("cluster.yaml").write_text(yaml.safe_dump(changed({"slurm": {"drain": {}}})))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_credentials(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == EXIT_CODES.get(words[0], 1)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("no AWS credentials found. ") and err.count("\n") == 1
    assert main([*words, "--profile", "nobody"]) == EXIT_CODES.get(words[0], 1)
    assert capsys.readouterr().err.startswith("your AWS credentials cannot be read: The config profile (nobody)")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_network(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert main(words) == EXIT_CODES.get(words[0], 1)
    out, err = capsys.readouterr()
    assert out == "" and "AWS cannot be reached: " in err and err.count("\n") == 1


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_any_error_of_aws_is_one_sentence(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    intercept(monkeypatch, lambda _: why)
    assert main(words) == EXIT_CODES.get(words[0], 1)
    out, err = capsys.readouterr()
    assert out == "" and REFUSED[why] in err and err.count("\n") == 1


def test_a_cluster_by_name_needs_a_region(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    assert main(["nodes", "--cluster", "small"]) == 1
    assert capsys.readouterr().err.startswith("--cluster: the region is unknown. Add --region")
