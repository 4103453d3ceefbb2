"""What the commands print when something is wrong. tests/deployments runs them on a whole engine."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod.cli import tables
from cdk_hyperpod.cli.main import main as check_main
from cdk_hyperpod_local import apps, cdk, daemon, installation
from cdk_hyperpod_local.assemblies import Stack, stacks
from cdk_hyperpod_local.commands import __main__ as command_line
from cdk_hyperpod_local.commands import removal, report, run, spelling
from cdk_hyperpod_local.environment import ACCOUNT
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import DEFAULT_PORT, LAUNCHER, Place
from helpers.synthesis import ROOT

PORT = 4599
SECRETS = {"AWS_PROFILE": "production", "AWS_SESSION_TOKEN": "secret", "AWS_ENDPOINT_URL_S3": "https://s3.example.com"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The folder of the engine on PORT, which the commands use."""
    home = tmp_path / "home of engines"
    monkeypatch.setattr(command_line, "Place", partial(Place, home=home))
    return Place(PORT, home=home)


@pytest.fixture
def engine(place: Place) -> Iterator[Place]:
    """A process that `daemon` recognizes as the engine."""
    place.folder.mkdir(parents=True)
    command = [sys.executable, "-c", "import time; time.sleep(60)", str(LAUNCHER), str(place.folder)]
    with subprocess.Popen(command, start_new_session=True) as process:
        place.process.write_text(json.dumps({"pid": process.pid}), "utf-8")
        wait_for(lambda: daemon.running(place) is not None)
        yield place
        process.kill()


def call(*arguments: str) -> int:
    return command_line.main([*arguments, f"--port={PORT}"])


@pytest.mark.parametrize(
    ("option", "printed"),
    [(f"--port={port}", f"--port={port} is not a port") for port in ("0", "-1", "99999", "x")]
    + [
        (f"--speed={speed}", f"--speed={speed} is not a speed")
        for speed in ("0", "-5", "inf", "-inf", "nan", "", "fast")
    ],
)
def test_an_invalid_port_or_speed_creates_nothing(
    place: Place, option: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["deploy", f"--port={PORT}", option]) == 1
    assert capsys.readouterr().err.startswith(f"local AWS: {printed}")
    assert not place.home.exists()


@pytest.mark.parametrize(
    "words", [["--parameters", "Count"], ["--parameters", "=4"], ["--app", "../nothere"]], ids=" ".join
)
def test_an_invalid_option_sets_nothing_up(place: Place, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("deploy", *words) == 1
    assert f"local AWS: {' '.join(words)}: " in (printed := capsys.readouterr().err) and printed.count("\n") == 1
    assert not place.home.exists()


@pytest.mark.parametrize("command", ["deploy", "diff"])
def test_an_invalid_cluster_file_starts_nothing(
    place: Place, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: x\nregion: us-west-2\nfleet: []\n", "utf-8")
    assert call(command, "--config", str(wrong)) == 1
    assert (printed := capsys.readouterr().err).startswith(f"{wrong}: ") and "  fleet: " in printed
    assert not place.home.exists()


@pytest.mark.parametrize("command", ["deploy", "diff", "plan"])
def test_an_invalid_file_of_cdk_json_prints_what_check_prints_and_starts_nothing(
    place: Place, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdk.json").write_text('{"app": "python app.py", "context": {"config": "cluster.yaml"}}', "utf-8")
    right = (ROOT / "cluster.yaml").read_text("utf-8")
    (tmp_path / "cluster.yaml").write_text(right.replace("min_instance_count", "min_count"), "utf-8")
    assert check_main(["check", str(tmp_path / "cluster.yaml")]) == 1
    as_check = capsys.readouterr().err
    assert "did you mean min_instance_count" in as_check
    assert call(command) == 1
    assert capsys.readouterr().err == as_check
    assert not place.home.exists()


@pytest.mark.parametrize(("of_plan", "of_diff"), [(0, 0), (1, 1), (2, 0)])
def test_plan_returns_the_tool_s_exit_code_and_a_diff_that_deletes_nodes_succeeds(
    engine: Place, tmp_path: Path, of_plan: int, of_diff: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_run_tool", lambda job, command: of_plan)
    monkeypatch.setattr(run, "_start", lambda job: None)
    monkeypatch.setattr(run, "_synthesize", lambda job, assembly: assembly)
    stack = Stack(name="a", template=tmp_path, region="us-west-2", account="000000000000")
    monkeypatch.setattr(run, "_stacks", lambda job, assembly: (stack,))
    monkeypatch.setattr(cdk.Cdk, "diff", lambda self, assembly: cdk.Result(code=0, output="", seconds=0))
    file = str(ROOT / "cluster.yaml")
    command = ("--app", "true", "--config", file)
    assert (call("plan", *command), call("diff", *command)) == (of_plan, of_diff)


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.lock.mkdir(parents=True)
    assert call("stop") == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and f"Make everything below {place.home} writable" in printed
    place.lock.rmdir()
    place.home.rmdir()
    place.home.write_text("no folder", "utf-8")
    assert call("stop") == 1
    assert capsys.readouterr().err.startswith(
        f"local AWS: cannot write to {place.home} (File exists). Set XDG_CACHE_HOME"
    )
    monkeypatch.setattr(command_line, "Place", partial(Place, home=Path("/proc/x/cdk-hyperpod/local")))
    assert call("stop") == 1
    assert capsys.readouterr().err.startswith("local AWS: cannot write to /proc/x (No such file or directory)")


@pytest.mark.parametrize("command", ["deploy", "diff"])
def test_an_app_whose_folder_cannot_be_written_starts_nothing(
    place: Place, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Root can write to a folder of any mode, so os.access answers instead.
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    monkeypatch.setattr(run, "_start", lambda job: pytest.fail("an engine was started"))
    assert call(command, "--app", "node app.js") == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"local AWS: the app's folder {tmp_path} is not writable") and printed.count("\n") == 1
    assert not place.home.exists()


class NoGroups:
    """A client of an account with one cluster, of no groups, and one stack with these outputs."""

    def __init__(self, **outputs: str) -> None:
        self._outputs = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]

    def client(self, service: str) -> NoGroups:
        return self

    def list_clusters(self) -> dict[str, list[dict[str, str]]]:
        return {"ClusterSummaries": [{"ClusterArn": "arn"}], "clusters": []}

    def describe_cluster(self, **of: str) -> dict[str, object]:
        return {"ClusterName": "a", "InstanceGroups": []}

    def describe_stacks(self, **of: str) -> dict[str, list[dict[str, object]]]:
        return {"Stacks": [{"Outputs": self._outputs}]}

    def describe_file_systems(self) -> dict[str, list[str]]:
        return {"FileSystems": []}


def test_empty_tables_are_left_out(tmp_path: Path) -> None:
    stack = Stack(name="a", template=tmp_path, region="us-west-2", account="000000000000")
    none: Any = NoGroups()
    assert report.summary(none, [stack], []) == ""
    terminated = {"cluster": "a", "group": "b", "node_id": "i-0123456789abcdef0", "cause": "named"}
    assert "\n\n" not in report.summary(none, [stack], [terminated])


def test_an_interruption_reports_whether_the_engine_keeps_running(
    engine: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(job: run.Job) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(run.COMMANDS, "diff", interrupted)
    assert call("diff") == 130
    ends = f"`cdk-hyperpod local destroy --port={PORT}` ends it"
    assert capsys.readouterr().err == f"\nlocal AWS: interrupted; the engine keeps running. {ends}\n"
    daemon.stop(engine)
    assert call("diff") == 130
    assert capsys.readouterr().err == "\nlocal AWS: interrupted; no engine is running\n"


def test_a_command_in_a_message_is_for_the_same_engine(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("drift") == 1
    assert f"`cdk-hyperpod local deploy --port={PORT}`" in capsys.readouterr().err
    assert spelling.command("deploy", Place(DEFAULT_PORT)) == "cdk-hyperpod local deploy"
    monkeypatch.setenv("LOCAL_AWS_BY_MAKE", "yes")
    assert (
        spelling.command("deploy", place, config="a b.yaml") == f"make deploy-local CONFIG='a b.yaml' LOCAL_PORT={PORT}"
    )
    assert spelling.option("speed", "0") == "LOCAL_SPEED=0"


def test_stop_reports_what_it_did(engine: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("stop") == 0
    ended = f"the engine on port {PORT} was ended. Its state is kept in {engine.folder}"
    assert ended in " ".join(capsys.readouterr().out.split())
    assert call("stop") == 0
    assert f"the engine on port {PORT} was not running. Its state" in capsys.readouterr().out


def test_reset_asks_and_without_a_terminal_refuses(
    engine: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_assembly(engine.assemblies / "app", Training="111122223333/us-west-2")
    (engine.assemblies / "damaged").mkdir()
    (engine.assemblies / "damaged" / "manifest.json").write_text("{", "utf-8")
    monkeypatch.setattr(tables, "_terminal", lambda _: 80)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert call("reset") == 1
    assert f"use `cdk-hyperpod local reset --port={PORT} --yes`" in capsys.readouterr().err
    for answer in ("", "\n", "n\n", "Training\n"):
        monkeypatch.setattr(sys, "stdin", answered := io.StringIO(answer))
        monkeypatch.setattr(answered, "isatty", lambda: True)
        assert call("reset") == 1
        assert capsys.readouterr().err == "local AWS: nothing was deleted\n"
    assert daemon.running(engine) is not None
    monkeypatch.setattr(sys, "stdin", answered := io.StringIO("y\n"))
    monkeypatch.setattr(answered, "isatty", lambda: True)
    assert call("reset") == 0
    printed = capsys.readouterr().out
    assert "  Training in aws://111122223333/us-west-2\n" in printed and "[y/N]" in printed
    assert max(map(len, printed.partition("Delete them?")[0].splitlines())) <= 80
    assert daemon.running(engine) is None and not engine.folder.exists()


@pytest.mark.parametrize("state", ["{", "", None], ids=["damaged", "empty", "missing"])
def test_reset_deletes_what_no_engine_can_read(place: Place, state: str | None) -> None:
    damaged = place.assemblies / "app" / "manifest.json"
    damaged.parent.mkdir(parents=True)
    if state is not None:
        damaged.write_text(state, "utf-8")
    assert call("reset", "--yes") == 0
    assert not place.folder.exists()
    assert call("reset", "--yes") == 0


def test_the_messages_of_destroy_fit_the_terminal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert removal.refused_by_aws([]) == []
    said = removal.refused_by_aws(["training-foundation", "training-cluster"])
    assert "AWS would refuse to delete training-foundation, training-cluster," in " ".join(map(str.strip, said))
    ways = removal.ways_out(place)
    assert f"  cdk-hyperpod local reset --port={PORT} " in ways
    monkeypatch.setenv("LOCAL_AWS_BY_MAKE", "yes")
    by_make = removal.ways_out(place)
    assert f"  make reset-local LOCAL_PORT={PORT} " in by_make
    assert max(map(len, [*said, *ways.splitlines(), *by_make.splitlines()])) <= 80


@pytest.mark.parametrize("command", ["diff", "drift"])
def test_the_help_says_whose_text_a_command_prints(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([command, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "printed by the CDK CLI itself, whose lines may be wider than the terminal" in printed


def test_printed_variables_replace_those_of_another_aws(engine: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell sources them whose own variables lead to AWS, through a proxy."""
    program = f"""\
import sys
from functools import partial
from cdk_hyperpod_local.commands import __main__ as command_line
from cdk_hyperpod_local.places import Place
from pathlib import Path
command_line.Place = partial(Place, home=Path({str(engine.home)!r}))
sys.exit(command_line.main(["shell", "--port={PORT}"]))
"""
    own = {
        "PATH": os.environ["PATH"],
        "HTTPS_PROXY": "http://proxy:3128",
        "no_proxy": "intranet",
    }
    lines = subprocess.run(
        ["bash", "-c", 'source <("$0" -c "$1" </dev/null) && env', sys.executable, program],
        cwd=ROOT,
        env=own | SECRETS,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    made = dict(line.split("=", 1) for line in lines)
    assert not made.keys() & SECRETS.keys()
    assert made["AWS_ENDPOINT_URL"] == engine.url and made["AWS_CA_BUNDLE"] == str(engine.authority)
    assert made["no_proxy"] == made["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert made["HTTPS_PROXY"] == own["HTTPS_PROXY"], "the shell is the caller's own"


def test_the_exit_code_of_the_shell_is_ignored(engine: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("SHELL", "/bin/false")
    assert call("shell") == 0


def test_a_narrow_terminal_gets_whole_values_and_a_plain_one_no_bold_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stack = Stack(name="a", template=Path(), region="us-west-2", account="000000000000")
    arn = f"arn:aws:sagemaker:us-west-2:000000000000:cluster/{'a' * 60}"
    aws: Any = NoGroups(ClusterName="train", ClusterArn=arn, PublishOutputFnGetAttKeyArn="internal")
    heading, *rows = report.outputs(aws, [stack]).splitlines()
    assert heading == "\033[1mOUTPUTS OF a\033[0m"
    assert rows == ["  ClusterName  train", "  ClusterArn", f"    {arn}"]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert report.outputs(aws, [stack]).startswith("OUTPUTS OF a\n")


def test_the_companion_loads_from_a_path_with_blanks(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / 'a \\ check"out'
    checkout.mkdir()
    companion = checkout / cdk.COMPANION.name
    companion.write_bytes(cdk.COMPANION.read_bytes())
    # The companion removes itself from the environment of the programs that the CLI starts.
    cli = checkout / "cdk"
    cli.write_text(
        "#!/usr/bin/env node\nconsole.log(process.env.NODE_OPTIONS, process.env.NODE_COMPILE_CACHE);\n", "utf-8"
    )
    cli.chmod(cli.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(cdk, "COMPANION", companion)
    monkeypatch.setattr(installation.Installation, "cdk", cli)
    result = cdk.Cdk(place=place, region="us-west-2").diff(checkout)
    assert (result.code, result.output) == (0, "undefined undefined\n")


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"pid": null}', '{"pid": "x"}', '{"pid": -1}', "7", "\0"])
def test_a_damaged_process_file_is_ignored(place: Place, damaged: str) -> None:
    place.folder.mkdir(parents=True)
    for command in ("stop", "destroy"):
        place.folder.mkdir(exist_ok=True)
        place.process.write_text(damaged, "utf-8")
        assert call(command) == 0
        assert not place.process.exists()


@pytest.mark.parametrize("end", [daemon.stop, daemon.remove])
def test_functions_end_with_an_engine_that_was_killed(place: Place, end: Callable[[Place], None]) -> None:
    place.folder.mkdir(parents=True)
    # Two processes of the engine's process group. Only the first one is a function.
    script = f"TMPDIR='{place.temporary}' sleep 60 & echo $!; sleep 61 & echo $!; wait"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as killed:
        assert killed.stdout is not None
        function, other = (int(killed.stdout.readline()) for _ in range(2))
        place.process.write_text(json.dumps({"pid": killed.pid}), "utf-8")
        killed.kill()
    try:
        wait_for(lambda: command_of(function) == b"sleep\x0060\0" and command_of(other) == b"sleep\x0061\0")
        end(place)
        wait_for(lambda: not command_of(function))
        assert command_of(other)
    finally:
        os.kill(other, signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    """A process shows another command for a moment after its start, and its own for a moment after its end."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def command_of(pid: int) -> bytes:
    """Empty if the process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def write_assembly(folder: Path, **environments: str) -> Path:
    """A cloud assembly with a stack in each environment."""
    folder.mkdir(parents=True)
    of = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "a.template.json"}}
    stacks = {name: {**of, "environment": f"aws://{where}"} for name, where in environments.items()}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": stacks}), "utf-8")
    (folder / "a.template.json").write_text("{}", "utf-8")
    return folder


SEVERAL = [
    {"One": "111122223333/us-east-1", "Two": "111122223333/us-west-2"},
    {"One": "111122223333/us-west-2", "Two": "444455556666/us-west-2"},
]


@pytest.mark.parametrize("environments", SEVERAL)
@pytest.mark.parametrize("command", ["deploy", "diff"])
def test_an_assembly_of_several_environments_is_refused_and_starts_nothing(
    place: Place,
    tmp_path: Path,
    command: str,
    environments: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "_start", lambda job: pytest.fail("an engine was started"))
    out = write_assembly(tmp_path / "cdk.out", **environments)
    assert call(command, "--app", str(out)) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    where = ", ".join(f"{name} in aws://{environment}" for name, environment in environments.items())
    assert printed.startswith(f"local AWS: reading {out}: ") and f"several accounts or regions: {where}. " in printed
    assert not place.home.exists()


def test_an_app_of_several_environments_keeps_the_deployed_assembly(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run.Job(place=place, given=apps.App(folder=tmp_path, command="true"), speed=1)
    write_assembly(job.assembly, One="111122223333/us-west-2")
    before = (job.assembly / "manifest.json").read_text("utf-8")

    def synth(self: cdk.Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> cdk.Result:
        write_assembly(assembly, **SEVERAL[0])
        return cdk.Result(code=0, output="", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    with pytest.raises(EngineError, match="One in aws://111122223333/us-east-1, Two in "):
        run._synthesize(job, job.assembly)
    assert (job.assembly / "manifest.json").read_text("utf-8") == before, "`destroy` needs it"


def test_look_ups_in_several_accounts_are_refused_as_several_environments(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run.Job(place=place, given=apps.App(folder=tmp_path, command="true"), speed=1)

    def synth(self: cdk.Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> cdk.Result:
        write_assembly(assembly, **SEVERAL[1])
        return cdk.Result(code=1, output="the role cannot be assumed", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    with pytest.raises(EngineError, match="the stacks have several accounts or regions"):
        run._synthesize(job, job.assembly)


def test_an_app_is_synthesized_in_the_account_to_which_it_was_deployed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run.Job(place=place, given=apps.App(folder=tmp_path, command="true"), speed=1)
    accounts: list[str] = []

    def synth(self: cdk.Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> cdk.Result:
        accounts.append(self.account)
        write_assembly(assembly, One="111122223333/us-west-2")
        return cdk.Result(code=0, output="", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    for _ in range(2):
        run._synthesize(job, job.assembly)
    assert accounts == [ACCOUNT, "111122223333"]


@pytest.mark.parametrize("account", ["111122223333", "unknown-account"])
def test_a_stack_without_an_environment_gets_that_of_the_others(tmp_path: Path, account: str) -> None:
    environments = {"Anywhere": "unknown-account/unknown-region", "Here": f"{account}/us-west-2"}
    found = stacks(write_assembly(tmp_path / "cdk.out", **environments))
    assert {(stack.account, stack.region) for stack in found} == {
        (account.replace("unknown-account", ACCOUNT), "us-west-2")
    }


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An app with the template `template`. `checked` gets a letter for each synthesis: y with CDK's checks, n without."""
    known = {"template": "1", "checked": ""}

    def synth(self: cdk.Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> cdk.Result:
        known["checked"] += "y" if validate else "n"
        assembly.mkdir(parents=True)
        (assembly / "manifest.json").write_text('{"artifacts": {}}')
        (assembly / "one.template.json").write_text(known["template"])
        (assembly / "validation-report.json").write_text(known["checked"])
        return cdk.Result(code=0, output="", seconds=0)

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    yield known


def test_an_unchanged_app_is_not_checked_again(place: Place, tmp_path: Path, app: dict[str, str]) -> None:
    file = tmp_path / "cluster.yaml"
    job = run.Job(place=place, given=apps.App(folder=tmp_path, config=file), speed=1)

    def checked(content: str, template: str) -> str:
        file.write_text(content)
        app.update(template=template, checked="")
        run._synthesize(job, job.assembly)
        assert (job.assembly / "one.template.json").read_text() == template
        assert not job.assembly.with_name(f"{job.assembly.name}.new").exists()
        return app["checked"]

    assert checked("a file", "1") == "y"
    assert checked("a file", "1") == "n"
    assert checked("another", "2") == "y", "the file has changed"
    assert checked("another", "3") == "ny", "the app has changed"
    assert checked("another", "3") == "n"
    assert (job.assembly / "validation-report.json").read_text() == "ny", "the report of the checks stays"
