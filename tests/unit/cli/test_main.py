"""The command-line tool: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli.deployment.retained import retained_table
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.loader import load_config
from helpers.findings import reported
from helpers.validating import REMOVED, ROOT, changed

TOOL = Path(sys.executable).with_name("cdk-hyperpod")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own to run in, with the small cluster as its cluster.yaml, and a cache without prices."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write("cluster.yaml", {})
    return tmp_path


def write(name: str, changes: dict[str, object]) -> None:
    Path(name).write_text(yaml.safe_dump(changed(changes), sort_keys=False))


def test_check_sums_a_valid_cluster_up(capsys: pytest.CaptureFixture[str]) -> None:
    write("cluster.yaml", {"instance_groups.1.min_instance_count": 1, "network": REMOVED})

    assert main(["check"]) == 0
    assert capsys.readouterr() == (
        """\
warning: line 1  network.availability_zones: is missing, so the cluster uses the account's first zone, which may not offer ml.p5.48xlarge; \
name a zone that has the capacity, such as network: {availability_zones: [us-west-2c]} [zone-unnamed]
note: nodes cannot reach the internet, but data can still leave: a program on a node that has keys of another account can \
copy data through the VPC endpoints to any bucket of the region; set network.endpoint_policies: account to prevent that \
(try it first: docs/closed-networks.md)
small: a slurm cluster in us-west-2, no errors
  group  type            count  minimum  role
  head   ml.m5.xlarge    1      0        controller
  work   ml.p5.48xlarge  2      1        compute (partition p5)
""",
        "",
    )


def test_check_takes_the_file_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    write("other.yaml", {"removal": "keep"})

    assert main(["check", "other.yaml"]) == 1
    assert capsys.readouterr().err.startswith("other.yaml: 1 error\n")


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("cdk-hyperpod 0.")


@pytest.mark.parametrize("command", ["check", "retained"])
def test_errors_of_an_invalid_file_go_to_stderr(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("other.yaml", {"removal": "keep", "name": REMOVED})

    assert main([command, "--config", "other.yaml"]) == 1
    assert capsys.readouterr() == (
        "",
        (
            "other.yaml: 2 errors\n"
            "  line 1   name: is missing; add `name:` [setting-missing]\n"
            "  line 15  removal: must be one of retain, destroy, got 'keep'; use one of these [value-not-a-choice]\n"
        ),
    )


def test_retained_lists_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    write("cluster.yaml", {"removal": "destroy"})

    assert main(["retained"]) == 0
    table, err = capsys.readouterr()
    assert table == retained_table(load_config("cluster.yaml").config) + "\n"
    assert table.startswith("After cdk destroy, no data of small remains (removal: destroy).\n")
    assert err == ""


def test_docs_prints_the_folder_of_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    assert capsys.readouterr() == (f"{ROOT / 'docs'}\n", "")


def test_schema_prints_the_committed_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr() == ((ROOT / "cluster.schema.json").read_text("utf-8"), "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "Missing command.", id="nothing"),
        pytest.param(["chekc"], "No such command 'chekc'. Did you mean 'check'?\n", id="a slip of the pen"),
        pytest.param(["local", "deplyo"], "No such command 'deplyo'. Did you mean 'deploy'?\n", id="a word after it"),
        pytest.param(["xyz"], "No such command 'xyz'.\n", id="no such command"),
        pytest.param(["check", "--config"], "Option '--config' requires an argument.", id="no path"),
        pytest.param(["schema", "--config", "x"], "No such option '--config'.", id="an option too much"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2

    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Usage: cdk-hyperpod") and message in err


@pytest.mark.parametrize("arguments", [[], ["check"], ["retained"], ["schema"], ["plan"]], ids=" ".join)
def test_help_exits_with_0(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--help"]) == 0

    out, err = capsys.readouterr()
    assert out.strip().startswith(" ".join(["Usage: cdk-hyperpod", *arguments])) and err == ""


def test_the_installed_tool_refuses_a_wrong_file_without_a_stack_trace(folder: Path) -> None:
    write("cluster.yaml", {"name": 5})

    done = subprocess.run([TOOL, "check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cluster.yaml: 1 error\n  line 1  name: ") and done.stderr.count("\n") == 2
    assert reported(done.stderr) == [("value-of-wrong-type", "name")]


@pytest.mark.parametrize("command", ["schema", "check"])
def test_a_reader_that_leaves_early_is_no_crash(command: str) -> None:
    """`schema` fails while it prints, `check` when what it printed is flushed."""
    read, write_end = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([TOOL, command], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write_end)

    assert (done.returncode, done.stderr) == (1, "")


def test_the_tool_needs_neither_cdk_nor_node() -> None:
    program = (
        "import sys; from cdk_hyperpod.cli.main import main; status = main(['check']); "
        "print(status, sorted({'aws_cdk', 'jsii'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "0 []"


def test_check_says_what_changes_against_another_version_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "cluster.yaml").read_text("utf-8")
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(text, "utf-8")
    new.write_text(f"{text}\nlog_retention_days: 30\n", "utf-8")

    assert main(["check", str(new), "--against", str(old)]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "\nIn place: running nodes stay, except those that a line below names\n  log_retention_days: 365 → 30\n"
    )
    assert main(["check", str(new), "--against", str(new)]) == 0
    assert "No setting differs from" in capsys.readouterr().out
    assert main(["check", str(new), "--against", "none.yaml"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("none.yaml: 1 error\n") and reported(err) == [("file-to-compare-missing", "")]


def test_ctrl_c_while_the_tool_is_still_loading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "cdk_hyperpod.cli.frame":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "cdk_hyperpod.cli.frame", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    assert main(["check"]) == 130
    assert capsys.readouterr() == ("", "\ninterrupted\n")


HELPS = (["--help"], ["nodes", "--help"], ["plan", "--help"])


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_a_help_comes_in_whatever_encoding(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "Usage: cdk-hyperpod" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [*HELPS, ["schema"]], ids=" ".join)
def test_a_full_output_is_one_message_and_a_closed_output_is_no_error(
    arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        done = subprocess.run([TOOL, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")

    closed = ["sh", "-c", 'exec "$@" >&-', "sh", str(TOOL), *arguments]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("group", ["job", "lifecycle"])
def test_a_group_without_its_command_is_wrong_usage_in_three_lines(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([group]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"cdk-hyperpod {group}: error: Missing command.\n") and err.count("\n") == 3


def test_json_of_check_has_groups_and_changes(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "cluster.yaml")
    assert main(["check", file, "--json", "--against", file]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["schema"], told["cluster"], told["changes"]) == ("check", 1, "llm-train", [])
    assert {"group", "instance_types", "count", "minimum"} <= told["groups"][0].keys()
    assert told["errors"] == []


def test_json_of_check_has_the_errors_of_a_wrong_file(capsys: pytest.CaptureFixture[str]) -> None:
    good = str(ROOT / "cluster.yaml")
    write("other.yaml", {"removal": "keep"})
    for words in (["other.yaml"], [good, "--against", "other.yaml"]):
        assert main(["check", *words, "--json"]) == 1
        out, err = capsys.readouterr()
        told = json.loads(out)
        (error,) = told["errors"]
        assert (error["file"], error["path"], told["groups"]) == ("other.yaml", "removal", [])
        assert error["code"] == "value-not-a-choice"
        assert error["line"] > 0 and "'keep'" in error["message"] and "'keep'" in err
    assert main(["check", good, "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == told.keys()
