"""`cdk-hyperpod lifecycle run STEP`: what it prints is run, with a stand-in for the AWS CLI that notes its calls."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli import main
from cdk_hyperpod.lifecycle_command import STEPS, has_step
from cdk_hyperpod.loader import load_config
from config.judging import changed
from lifecycle import provision

LOGIN = {"name": "door", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "login"}
AWS = r"""#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(words) + "\n")
query = words[words.index("--query") + 1] if "--query" in words else ""
if "ClusterArn" in query:
    print("arn:aws:sagemaker:us-west-2:111122223333:cluster/abc123abc123")
elif "SourceS3Uri" in query:
    print("s3://sagemaker-small-111122223333-us-west-2/lifecycle/0123456789abcdef")
elif "ClusterNodeSummaries" in query:
    print("i-0aaaaaaaaaaaaaaa1\ni-0aaaaaaaaaaaaaaa2" if "'work'" in query else "i-0bbbbbbbbbbbbbbb1")
"""


def write(folder: Path, **settings: object) -> str:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(changed({"instance_groups.2": LOGIN, **settings})))
    return str(file)


def sessions(folder: Path, step: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Run what is printed: each node's target, and the command that it gets."""
    assert main(["lifecycle", "run", step, "--config", write(folder)]) == 0
    aws = folder / "bin" / "aws"
    aws.parent.mkdir()
    aws.write_text(AWS)
    aws.chmod(0o755)
    calls = folder / "calls"
    environment = {**os.environ, "PATH": f"{aws.parent}:{os.environ['PATH']}", "CALLS": str(calls)}
    script = capsys.readouterr().out
    subprocess.run(["bash"], input=script, text=True, env=environment, check=True, capture_output=True)
    words = [json.loads(line) for line in calls.read_text().splitlines()]
    started = [call for call in words if call[:2] == ["ssm", "start-session"]]
    return [
        (call[call.index("--target") + 1], json.loads(call[call.index("--parameters") + 1])["command"][0])
        for call in started
    ]


def test_a_step_reaches_every_running_node_by_the_scripts_that_are_deployed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sessions(tmp_path, "users", capsys)
    assert [target for target, _ in found] == [
        "sagemaker-cluster:abc123abc123_head-i-0bbbbbbbbbbbbbbb1",
        "sagemaker-cluster:abc123abc123_door-i-0bbbbbbbbbbbbbbb1",
        "sagemaker-cluster:abc123abc123_work-i-0aaaaaaaaaaaaaaa1",
        "sagemaker-cluster:abc123abc123_work-i-0aaaaaaaaaaaaaaa2",
    ]
    assert found[3][1] == (
        "sudo bash -c 'd=$(mktemp -d) && aws s3 cp --recursive --only-show-errors "
        "s3://sagemaker-small-111122223333-us-west-2/lifecycle/0123456789abcdef/ $d && bash $d/compute.sh users; s=$?; "
        "rm -rf $d; exit $s'"
    )


def test_a_step_of_the_controller_reaches_it_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [target.split("_")[1][:4] for target, _ in sessions(tmp_path, "accounting", capsys)] == ["head"]


def test_the_nodes_that_are_asked_are_those_that_have_the_step(tmp_path: Path) -> None:
    """As provision.py decides it: the two must not drift apart."""
    cluster = provision.Cluster("small", (provision.Mount("/fsx", "lustre"),), has_accounts=True)
    assert STEPS == provision.STEPS
    for group in load_config(write(tmp_path)).config.instance_groups:
        assert group.node_type is not None
        node = provision.Node(group.node_type, provision.Instance("g", "i", frozenset()))
        on_node = {step.name for step in provision.steps_for(cluster, node)}
        assert {step for step in STEPS if has_step(group, step)} == on_node


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lifecycle": {"mode": "bootstrap"}}, "lifecycle.mode: is bootstrap: the nodes have no scripts; change it"),
        ({"lifecycle": {"steps": {"users": False}}}, "lifecycle.steps.users: is false; remove it, and deploy"),
    ],
)
def test_nodes_without_the_step_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, object], words: str
) -> None:
    assert main(["lifecycle", "run", "users", "--config", write(tmp_path, **settings)]) == 1
    assert words in capsys.readouterr().err
