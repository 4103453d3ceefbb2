"""What `make` would run, without running it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

from helpers.validating import ROOT

# `synth` and `check` tell what the file alone tells.
ASKS_AWS = re.compile(r"\b(cdk (?:diff|deploy|destroy)|cdk-hyperpod (?:plan|why|credentials|retained))\b([^|;\n]*)")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("target", "commands"),
    [
        ("plan", ["cdk-hyperpod plan"]),
        ("diff", ["cdk-hyperpod credentials", "cdk diff", "cdk-hyperpod plan"]),
        ("deploy", ["cdk-hyperpod plan", "cdk deploy", "cdk-hyperpod why"]),
        ("destroy", ["cdk-hyperpod credentials", "cdk destroy", "cdk-hyperpod retained"]),
    ],
)
def test_every_command_that_asks_aws_has_the_same_profile(target: str, commands: list[str]) -> None:
    found = ASKS_AWS.findall(make(target, "PROFILE=prod").stdout)
    assert [(command, '--profile "prod"' in rest) for command, rest in found] == [(each, True) for each in commands]
    assert "--profile" not in make(target, "PROFILE=").stdout


@pytest.mark.parametrize("name", ["CDK_FLAGS", "PLAN_FLAGS"])
def test_a_profile_for_one_of_them_alone_is_refused(name: str) -> None:
    """`make deploy` would plan in one account, and deploy to another."""
    done = make("deploy", f"{name}=--profile prod")
    assert done.returncode != 0
    assert "Use PROFILE=NAME instead" in done.stderr
    assert make("deploy", "CDK_FLAGS=--require-approval never", "PLAN_FLAGS=--yes").returncode == 0


def test_synth_leaves_out_the_hint_that_the_cdk_cli_prints(tmp_path: Path) -> None:
    said = "Supply a stack id (\x1b[32ma\x1b[39m, b) to display its template.\n"
    kept = "Successfully synthesized to cdk.out\n"
    script = (
        f"#!/bin/sh\necho template\ncat >&2 <<'EOF'\n{said}{kept}EOF\ntest -z \"$CI\" || printf '%s' '{said}'\nexit 3\n"
    )
    for path in ("tools", "node_modules/.bin"):
        (tmp_path / path).mkdir(parents=True)
    copy(ROOT / "tools" / "cdk", tmp_path / "tools")
    cdk = tmp_path / "node_modules" / ".bin" / "cdk"
    cdk.write_text(script, "utf-8")
    cdk.chmod(0o755)
    for command, err in [("synth", kept), ("deploy", said + kept)]:
        call = [str(tmp_path / "tools" / "cdk"), command]
        done = subprocess.run(call, env={**os.environ, "CI": ""}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (3, "template\n", err)
    done = subprocess.run(
        [*call[:1], "synth"], env={**os.environ, "CI": "true"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "template\n", kept)


@pytest.mark.parametrize("target", ["plan", "plan-local"])
def test_make_plan_succeeds_if_nodes_would_be_deleted(target: str) -> None:
    (line,) = [line for line in make(target).stdout.splitlines() if re.search(r"cdk-hyperpod (local )?plan ", line)]
    assert line.endswith("|| test $? -eq 2")


def test_a_soak_is_of_many_unless_one_is_named() -> None:
    """Another target's SEED, set for all of them, would make it one lifetime that finds nothing."""
    assert "--seed" not in make("soak", "LIFETIMES=5").stdout
    assert "--seed=17" in make("soak", "SEED=17").stdout


@pytest.mark.parametrize("target", ["kubernetes-apiserver", "slurm-parts"])
def test_targets_that_run_before_make_setup_find_their_modules(target: str) -> None:
    """Without the packages of the set-up, our own among them: -S leaves the environment's out."""
    ((path, file),) = re.findall(r"PYTHONPATH=(\S+) \S+ (\S+\.py)", make(target).stdout)
    code = f"import runpy; runpy.run_path({file!r})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
