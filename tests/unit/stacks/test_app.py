"""The front door: app.py and the CDK CLI as people use them, with good files and bad ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aws_cdk
import pytest
import yaml
from aws_cdk import App

import app
import stacks
from cdk_hyperpod import HyperPodError
from helpers.findings import refused, reported
from helpers.synthesis import assembly_of_file
from stacks.boundary import BOUNDARY, read_permissions_boundary

ROOT = Path(__file__).resolve().parents[3]
CLUSTER_YAML = ROOT / "cluster.yaml"
# Assets are hashed and not copied: the copies are large, and nothing here reads them.
NO_COPIES = {"aws:cdk:disable-asset-staging": True}
STACKS = ["hyperpod-llm-train-foundation", "hyperpod-llm-train-cluster"]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without AWS's and CDK's variables, and with the project's tools on the PATH."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AWS_", "CDK_", "JSII_")) or key in ("CDK_VALIDATION", "JSII_RUNTIME_PACKAGE_CACHE_ROOT")
    }
    tools = [str(ROOT / ".venv" / "bin"), str(ROOT / "node_modules" / ".bin"), inherited["PATH"]]
    # No file with credentials, no instance metadata: a look-up would fail.
    nobody = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    return {**inherited, **nobody, "PATH": os.pathsep.join(tools), "CDK_DISABLE_CLI_TELEMETRY": "true", **more}


def run(*command: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False)


def run_app(
    outdir: Path, *, cwd: Path = ROOT, context: Mapping[str, object] | None = None
) -> subprocess.CompletedProcess[str]:
    handed = {} if context is None else {"CDK_CONTEXT_JSON": json.dumps({**context, **NO_COPIES})}
    return run(sys.executable, str(ROOT / "app.py"), cwd=cwd, CDK_OUTDIR=str(outdir), **handed)


def run_cdk(*arguments: str, outdir: Path) -> subprocess.CompletedProcess[str]:
    return run("cdk", *arguments, "--no-staging", "--output", str(outdir))


def templates(outdir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(outdir.glob("*.template.json"))}


class Answer(NamedTuple):
    """What app.py answered."""

    returncode: int
    stderr: str
    outdir: Path


RunHere = Callable[..., Answer]


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunHere:
    """app.py in this process, with the context that the CLI hands over."""
    outdir = tmp_path / "out"

    def run_here(**handed: object) -> Answer:
        def given(*, context: Mapping[str, object], **more: Any) -> App:
            return App(context={**context, **NO_COPIES, **handed}, **{**more, "outdir": str(outdir)})

        monkeypatch.setattr(aws_cdk, "App", given)
        return Answer(app.main(), capsys.readouterr().err, outdir)

    return run_here


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that app.py synthesizes into by itself, from another folder."""
    folder = tmp_path_factory.mktemp("alone")
    done = run_app(folder / "out", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (folder / "cdk.out").exists()
    return folder / "out"


@pytest.fixture
def other_file(tmp_path: Path) -> Path:
    """A good cluster file somewhere else."""
    data = {**yaml.safe_load(CLUSTER_YAML.read_text("utf-8")), "name": "other"}
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    return path


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    """A cluster file with three mistakes."""
    data = yaml.safe_load(CLUSTER_YAML.read_text("utf-8"))
    data["instance_groups"][2] |= {"min_instance_count": 9, "instance_type": "ml.p5.48xlarg"}
    data["storage"]["capacity_gib"] = 4801
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    return path


def assert_reports_the_three_mistakes(done: subprocess.CompletedProcess[str] | Answer) -> None:
    assert done.returncode == 1
    assert "bad.yaml: 3 errors" in done.stderr
    assert {*reported(done.stderr)} >= {
        ("instance-type-unknown", "instance_groups[p5].instance_type"),
        ("minimum-above-count", "instance_groups[p5].min_instance_count"),
        ("capacity-not-supported", "storage.capacity_gib"),
    }
    assert "Traceback" not in done.stderr


# -- app.py by itself -------------------------------------------------------------------------------------------------


def test_app_py_synthesizes_where_cdk_outdir_says(alone: Path) -> None:
    assert sorted(templates(alone)) == sorted(f"{name}.template.json" for name in STACKS)


def test_where_and_when_it_runs_changes_no_byte(alone: Path, tmp_path: Path) -> None:
    elsewhere = {
        "AWS_PROFILE": "somebody-else",
        "AWS_REGION": "eu-west-1",
        "CDK_DEFAULT_ACCOUNT": "999999999999",
        "CDK_DEFAULT_REGION": "eu-west-1",
        "CDK_OUTDIR": str(tmp_path / "out"),
        "LC_ALL": "C",
        "PYTHONHASHSEED": "4711",
        "PYTHONUTF8": "0",
        "TMPDIR": str(tmp_path),
        "TZ": "Pacific/Kiritimati",
        "USER": "somebody-else",
    }
    assert run(sys.executable, str(ROOT / "app.py"), cwd=tmp_path, **elsewhere).returncode == 0
    assert templates(tmp_path / "out") == templates(alone)
    for name in ("manifest.json", *(f"{stack}.assets.json" for stack in STACKS)):
        there, here = (json.loads((folder / name).read_text("utf-8")) for folder in (tmp_path / "out", alone))
        assert there == here, name


def test_this_process_makes_what_the_app_makes(alone: Path) -> None:
    here = assembly_of_file(CLUSTER_YAML)
    assert templates(here) == templates(alone)


def test_app_py_reads_the_context_that_the_cli_hands_over(run_here: RunHere, other_file: Path) -> None:
    done = run_here(config=str(other_file))
    assert done.returncode == 0, done.stderr
    assert sorted(templates(done.outdir)) == [
        "hyperpod-other-cluster.template.json",
        "hyperpod-other-foundation.template.json",
    ]


def test_app_py_says_everything_that_is_wrong_with_a_file(tmp_path: Path, bad_file: Path) -> None:
    assert_reports_the_three_mistakes(run_app(tmp_path / "out", context={"config": str(bad_file)}))
    assert not templates(tmp_path / "out")


def test_a_file_that_does_not_exist_is_a_message(run_here: RunHere) -> None:
    done = run_here(config="no-such.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{ROOT / 'no-such.yaml'}: 1 error\n")
    assert reported(done.stderr) == [("file-not-found", "")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(None, "lifecycle.scripts: there is no folder 'scripts'; ", id="no folder"),
        pytest.param({"controller.sh": "", "login.sh": ""}, "compute.sh", id="no script for compute nodes"),
    ],
)
def test_a_wrong_folder_of_scripts_is_a_message(
    files: dict[str, str] | None, message: str, tmp_path: Path, run_here: RunHere, other_file: Path
) -> None:
    other_file.write_text(other_file.read_text("utf-8") + "lifecycle: {scripts: scripts}\n", "utf-8")
    if files is not None:
        (tmp_path / "scripts").mkdir()
        for name, text in files.items():
            (tmp_path / "scripts" / name).write_text(text, "utf-8")
    done = run_here(config=str(other_file))
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_an_error_of_the_constructs_is_a_message_too(run_here: RunHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the loader lets through, the constructs validate again, and app.py must not show a stack trace."""

    def refuse(*_: object) -> None:
        raise HyperPodError("lifecycle.scripts: the folder is gone; put it back")

    monkeypatch.setattr(stacks, "add_stacks", refuse)
    done = run_here()
    assert (done.returncode, done.stderr) == (1, "lifecycle.scripts: the folder is gone; put it back\n")


def test_a_boundary_that_cdk_would_leave_out_in_silence_is_a_message(run_here: RunHere) -> None:
    done = run_here(**{BOUNDARY: "our-boundary"})
    assert done.returncode == 1
    assert re.fullmatch(rf"context: 1 error\n  {BOUNDARY}: .*'our-boundary'.* \[boundary-invalid\]\n", done.stderr)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('{"name": 1}', id="a number"),
        pytest.param('{"Name": "our-boundary"}', id="another key"),
        pytest.param({"name": "our-boundary", "arn": "arn:aws:iam::1:policy/our-boundary"}, id="two"),
        pytest.param("", id="nothing"),
    ],
)
def test_no_boundary_is_left_out_in_silence(value: object) -> None:
    with refused(("boundary-invalid", BOUNDARY)):
        read_permissions_boundary(App(context={BOUNDARY: value}))


# -- the CDK CLI ------------------------------------------------------------------------------------------------------


def test_cdk_synth_makes_what_app_py_makes_without_an_account_and_without_looking_anything_up(
    tmp_path: Path, alone: Path
) -> None:
    """And it has nothing to say about the default cluster."""
    done = run("cdk", "synth", "--quiet", "--output", str(tmp_path), CDK_VALIDATION="true")
    assert done.returncode == 0, done.stderr
    assert templates(tmp_path) == templates(alone)
    manifest = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    assert "missing" not in manifest
    assert not (ROOT / "cdk.context.json").exists()
    assert "warning" not in (done.stdout + done.stderr).lower()
    assert "feature flags" not in done.stdout + done.stderr
    assert "program.js" not in done.stdout + done.stderr, "a line of CDK's own code above a note"


@pytest.mark.ci
def test_the_cli_names_another_file_and_lists_its_stacks_in_the_order_of_deployment(
    tmp_path: Path, other_file: Path
) -> None:
    """By a relative path; the bad file below has an absolute one."""
    done = run_cdk("ls", "-c", f"config={os.path.relpath(other_file, ROOT)}", outdir=tmp_path / "out")
    assert (done.returncode, done.stdout.split()) == (0, ["hyperpod-other-foundation", "hyperpod-other-cluster"])


def test_the_cli_fails_with_everything_that_is_wrong_with_a_file(tmp_path: Path, bad_file: Path) -> None:
    assert_reports_the_three_mistakes(run_cdk("synth", "-c", f"config={bad_file}", outdir=tmp_path / "out"))


def test_a_boundary_that_the_cli_hands_over_as_text_reaches_every_role_and_warnings_reach_whoever_synthesizes(
    tmp_path: Path,
) -> None:
    boundary = '@aws-cdk/core:permissionsBoundary={"name": "our-boundary"}'
    file = "config=tests/helpers/configs/existing.yaml"
    done = run_cdk("synth", "--quiet", "-c", boundary, "-c", file, outdir=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cdk-hyperpod:file-system-in-another-zone" in done.stderr
    resources = [
        resource for text in templates(tmp_path).values() for resource in json.loads(text)["Resources"].values()
    ]
    roles = [resource["Properties"] for resource in resources if resource["Type"] == "AWS::IAM::Role"]
    assert len(roles) >= 5
    assert all("policy/our-boundary" in json.dumps(role.get("PermissionsBoundary")) for role in roles)


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda path: path.parent.name)
def test_the_examples_name_the_cli_that_is_pinned(path: Path) -> None:
    pinned = json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"]
    assert f"aws-cdk@{pinned}" in path.read_text("utf-8")
