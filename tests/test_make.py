"""What `make` would run, without running it."""

from __future__ import annotations

import re
import subprocess

import pytest

from config.judging import ROOT

# `synth`, `check` and `retained` tell what the file alone tells.
ASKS_AWS = re.compile(r"\b(cdk (?:diff|deploy|destroy)|cdk-hyperpod (?:plan|why|credentials))\b([^|;\n]*)")


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
        ("destroy", ["cdk-hyperpod credentials", "cdk destroy"]),
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
    assert "Name the profile as PROFILE=NAME" in done.stderr
    assert make("deploy", "CDK_FLAGS=--require-approval never", "PLAN_FLAGS=--yes").returncode == 0


def test_what_the_cli_says_of_itself_is_left_out_of_a_synth() -> None:
    (sieve,) = re.findall(r"\| (sed .*?) >&2", make("synth").stdout)
    said = (
        "Supply a stack id (\x1b[32ma\x1b[39m, b) to display its template.\n\x1b[4m/tmp/x/lib/program.js:1:55\x1b[24m\n"
    )
    kept = "/tmp/x/lib/program.js:1:5591\nWARNING lib/program.js:3 is yours\nSuccessfully synthesized to cdk.out\n"
    done = subprocess.run(sieve, shell=True, input=said + kept, capture_output=True, text=True, check=True)
    assert done.stdout == kept.partition("\n")[2]


def test_a_soak_is_of_many_unless_one_is_named() -> None:
    """Another target's SEED, set for all of them, would make it one lifetime that finds nothing."""
    assert "--seed" not in make("soak", "LIFETIMES=5").stdout
    assert "--seed=17" in make("soak", "SEED=17").stdout
