"""Before a deployment, what would go; after it, what went; after a failure, why, and that last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from cdk_hyperpod._lambda.hyperpod.scale_down.messages import failures, refusals
from cdk_hyperpod.cli.deployment.why import NEXT_STEPS
from cdk_hyperpod_local import environment
from helpers.deployments.configs import STANDING
from helpers.deployments.steps import Step
from helpers.findings import codes
from helpers.local_aws.rehearsal import Rehearsal, resized, taking, without_group
from helpers.synthesis import ROOT

Json = Any


def run(life: Rehearsal, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of the project, with the life's file for FILE, and nobody at a terminal."""
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(life.config), "utf-8")
    aws = life.aws
    return subprocess.run(
        [part.replace("FILE", str(path)) for part in command],
        cwd=ROOT,
        env=environment.complete(aws.place, region=aws.region, account=aws.account)
        | {"CDK_OUTDIR": str(folder / "out")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def test_the_reason_of_a_failure_is_read_last(life: Rehearsal, tmp_path: Path) -> None:
    failed = life.deploy(without_group(STANDING, "trn1"), only=life.cluster)
    assert not failed.ok
    sentence = failures.refused("standing", [refusals.unknown_group("trn1", nodes=4)], first=True)
    told = failed.output[failed.output.rindex("Failed resources:") :]
    assert sentence in " ".join(told.split())
    assert len(told.splitlines()) < 25, "nothing of the framework's log comes after it"
    why = run(life, tmp_path, tool("cdk-hyperpod"), "why", "--config", "FILE")
    assert why.returncode == 0
    lines = [f"{life.cluster}: {sentence}", "Deleted before it failed: no node.", NEXT_STEPS]
    assert why.stdout.split() == " ".join(lines).split()


def test_make_deploy_asks_for_confirmation_and_outputs_the_deleted_nodes(life: Rehearsal, tmp_path: Path) -> None:
    named = list(life.nodes("p5"))[2]
    life.config = taking(resized(STANDING, "p5", 5), nodes=[named])
    step, before = Step(life), life.nodes()
    asked = run(life, tmp_path, "make", "--no-print-directory", "deploy", "CONFIG=FILE")
    assert asked.returncode != 0
    assert named in asked.stdout and "there is no terminal to confirm on" in asked.stderr
    assert (step.calls(), life.nodes()) == ({}, before), "nothing has changed"
    flags = ("PLAN_FLAGS=--yes", "CDK_FLAGS=--require-approval never")
    meant = run(life, tmp_path, "make", "--no-print-directory", "deploy", "CONFIG=FILE", *flags)
    assert meant.returncode == 0, meant.stdout[-3000:] + meant.stderr[-3000:]
    assert step.ended() == {named: "named"}
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert named in outputs["NodesTaken"] and outputs["StillStanding"] == "nothing"


def test_a_wrong_id_costs_no_other_node(life: Rehearsal, tmp_path: Path) -> None:
    """Mistyped, say: the file lowers the count for it, and a healthy node would have gone instead."""
    config, step, before = taking(resized(STANDING, "p5", 5), nodes=["i-0123456789abcdef0"]), Step(life), life.nodes()
    failed = life.deploy(config, only=life.cluster)
    assert not failed.ok
    reason = " ".join(failed.reason.split())
    assert "nodes-not-in-cluster" in codes(reason) and "i-0123456789abcdef0" in reason
    assert (step.ended(), step.calls(), life.nodes()) == ({}, {}, before)
    planned = run(life, tmp_path, tool("cdk-hyperpod"), "plan", "--config", "FILE")
    assert planned.returncode == 1, planned.stdout + planned.stderr
    assert codes(" ".join(planned.stdout.split()))[0] == "nodes-not-in-cluster"
