"""`cdk-hyperpod lifecycle run STEP`: what it prints is run, with a stand-in for the AWS CLI that notes its calls."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.nodes.lifecycle import RUN_AGAIN, STEPS, has_step
from cdk_hyperpod.config.cluster import ENTRY_SCRIPTS
from cdk_hyperpod.config.slurm import SlurmConfig
from cdk_hyperpod.loader import load_config
from helpers.findings import reported
from helpers.lifecycle.node_folder import CLUSTER, Node
from helpers.validating import ROOT, changed
from lifecycle import lib, provision

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
elif words[:2] == ["ssm", "start-session"]:
    target = words[words.index("--target") + 1]
    if "UNREACHED" in os.environ and os.environ["UNREACHED"] in target:
        sys.exit("TargetNotConnected")
    if "BUSY" in os.environ and os.environ["BUSY"] in target:
        print("2026-11-23T10:00:00Z WARNING 60_system.py: slurmd waits: run this step again when they have ended\r")
    # As it ends whatever its command ended with. The plug-in's lines end as a terminal's do.
    code = 1 if "FAILS" in os.environ and os.environ["FAILS"] in target else 0
    step = words[words.index("--parameters") + 1].split("exit code")[0].split()[-1]
    print(f"lifecycle run {step} exit code {code}", end="\r\n")
"""


def write(folder: Path, **settings: object) -> str:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(changed({"instance_groups.2": LOGIN, **settings})))
    return str(file)


def run_printed(
    folder: Path, step: str, capsys: pytest.CaptureFixture[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run what is printed."""
    assert main(["lifecycle", "run", step, "--config", write(folder)]) == 0
    aws = folder / "bin" / "aws"
    aws.parent.mkdir()
    aws.write_text(AWS)
    aws.chmod(0o755)
    path = f"{aws.parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash"],
        input=capsys.readouterr().out,
        text=True,
        env={**os.environ, "PATH": path, "CALLS": str(folder / "calls"), **environment},
        check=False,
        capture_output=True,
    )


def sessions(folder: Path, step: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Run what is printed: each node's target, and the command that it gets."""
    done = run_printed(folder, step, capsys)
    assert done.returncode == 0, done.stderr
    words = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
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
        "rm -rf $d; echo lifecycle run users: exit code $s; exit $s'"
    )


def test_a_node_that_is_not_reached_or_fails_is_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_printed(tmp_path, "users", capsys, UNREACHED="head-", FAILS="i-0aaaaaaaaaaaaaaa1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "FAILED: step users on head i-0bbbbbbbbbbbbbbb1",
        "FAILED: step users on work i-0aaaaaaaaaaaaaaa1",
    ]
    assert (tmp_path / "calls").read_text().count("start-session") == 4
    assert "TargetNotConnected" in done.stdout, "why is told where it happens"


def test_a_node_whose_jobs_kept_the_step_from_its_work_is_named_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_printed(tmp_path, "system", capsys, BUSY="i-0aaaaaaaaaaaaaaa2")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == (
        "Jobs kept a part of step system from being done on work i-0aaaaaaaaaaaaaaa2: run it again when they have ended."
    )
    assert RUN_AGAIN == lib.RUN_AGAIN


NOBODY = pwd.getpwnam("nobody").pw_uid
"""ssh-keygen makes a key for a user alone whom the machine knows."""
# What the accounts' own commands would change is this machine.
ACCOUNTS = """
case $(basename "$0") in
getent) [[ $1 == shadow ]] && echo 'root:*:1:::::::' || echo root:x:0:0:root:/root:/bin/bash ;;
*) ;;
esac
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "ssh-keygen"))) or not Path("/usr/bin/python3").exists(),
    reason="becoming another user needs root, setpriv, ssh-keygen and a Python that everybody may run",
)
@pytest.mark.parametrize("umask", ["022", "077"])
def test_the_command_of_a_node_makes_homes_from_a_folder_that_root_alone_may_enter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], umask: str
) -> None:
    """The printed command itself, on a folder that stands for the node; only `sudo`, S3 and the accounts do not."""
    command = sessions(tmp_path, "users", capsys)[0][1]
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    node = Node(tmp_path / "node")
    node.addresses("10.1.0.10")
    user = {"name": "alice", "uid": NOBODY, "group": "research", "home": "/fsx/home/alice"}
    cluster = {**CLUSTER, "steps": {}, "groups": [{"name": "research", "gid": 5000}], "users": [user]}
    node.write("scripts/cluster.json", json.dumps(cluster))
    node.command("sudo", '"$@"')
    node.command("aws", f'[[ $1 == s3 ]] && cp -r {node.scripts}/. "${{!#}}"')
    node.command("python3", 'exec /usr/bin/python3 "$@"')
    for name in ("getent", "groupadd", "useradd", "systemctl", "nft", "sshd"):
        node.command(name, ACCOUNTS)
    done = subprocess.run(
        ["bash", "-c", f"umask {umask}; {command}"],
        env={
            "PATH": f"{node.root / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
            "SAGEMAKER_RESOURCE_CONFIG_PATH": str(node.root / "resource_config.json"),
            "PROVISION_ROOT": str(node.root),
            "PROVISION_LOG": str(node.log),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "lifecycle run users: exit code 0", done.stdout
    assert " WARNING " not in done.stdout
    key = node.root / "fsx/home/alice/.ssh/id_ed25519"
    assert (key.stat().st_uid, key.stat().st_mode & 0o777) == (NOBODY, 0o600)
    assert key.parents[2].stat().st_mode & 0o777 == 0o755


def test_a_step_of_the_controller_reaches_it_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [target.split("_")[1][:4] for target, _ in sessions(tmp_path, "accounting", capsys)] == ["head"]


def test_the_nodes_that_are_asked_are_those_that_have_the_step(tmp_path: Path) -> None:
    """As provision.py decides it: the two must not drift apart."""
    mounts = (provision.Mount("/fsx", "lustre"),)
    own = ("scripts_after",)
    cluster = provision.Cluster(
        "small", mounts, has_accounts=True, drains=True, efa=True, own_scripts=own, keeps_state=True
    )
    assert (*provision.STEPS, *provision.OWN_SCRIPTS) == STEPS
    agent = tmp_path / "after" / "10-agent.sh"
    agent.parent.mkdir()
    agent.write_text("#!/bin/bash\n")
    agent.chmod(0o755)
    config = load_config(write(tmp_path, lifecycle={"scripts_after": "after"})).config
    hooked = dataclasses.replace(config, slurm=SlurmConfig(epilog="epilog.d"))
    for group in config.instance_groups:
        assert group.node_type is not None
        node = provision.Node(group.node_type, provision.Instance("g", "i", frozenset()))
        on_node = {step.name for step in provision.steps_for(cluster, node)}
        assert {step for step in STEPS if has_step(group, step, config)} == on_node
        with_hooks = dataclasses.replace(cluster, slurm={"epilog": 1, "hook_seconds": 60})
        on_node = {step.name for step in provision.steps_for(with_hooks, node)}
        assert {step for step in STEPS if has_step(group, step, hooked)} == on_node


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lifecycle": {"mode": "bootstrap"}}, ("lifecycle-run-without-scripts", "lifecycle.mode")),
        ({"lifecycle": {"steps": {"users": False}}}, ("lifecycle-run-of-disabled-step", "lifecycle.steps.users")),
    ],
)
def test_nodes_without_the_step_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, object], expected: tuple[str, str]
) -> None:
    assert main(["lifecycle", "run", "users", "--config", write(tmp_path, **settings)]) == 1
    assert reported(capsys.readouterr().err) == [expected]


def test_own_scripts_run_on_the_nodes_of_the_group_that_has_them_and_by_their_name_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = tmp_path / "after" / "10-agent.sh"
    agent.parent.mkdir()
    agent.write_text("#!/bin/bash\n")
    agent.chmod(0o755)
    file = write(tmp_path, **{"instance_groups.1.scripts_after": "after"})
    assert main(["lifecycle", "run", "scripts_after", "--config", file]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("run_on ")] == ["run_on work compute.sh"]
    assert main(["lifecycle", "run", "scripts_before", "--config", file]) == 1
    assert reported(capsys.readouterr().err) == [("lifecycle-run-without-own-scripts", "lifecycle.scripts_before")]


def test_under_eks_no_step_can_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    eks = str(ROOT / "tests/helpers/configs/eks.yaml")
    assert main(["lifecycle", "run", "users", "--config", eks]) == 1
    assert reported(capsys.readouterr().err) == [("lifecycle-run-under-eks", "orchestrator")]


def test_lifecycle_run_refuses_a_cluster_with_scripts_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tmp_path / "mine"
    scripts.mkdir()
    for name in ENTRY_SCRIPTS.values():
        (scripts / name).touch()
    path = write(tmp_path, lifecycle={"scripts": "mine"})
    assert main(["lifecycle", "run", "users", "--config", path]) == 1
    assert reported(capsys.readouterr().err) == [("lifecycle-run-of-own-scripts", "lifecycle.scripts")]
