"""A rehearsal from the wheel alone, in a folder outside of the clone: of an app that `init` wrote, and of others' own."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pytest

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.places import Place
from helpers.from_wheel import ROOT, run

PLAIN = """\
Parameters: {Count: {Type: Number, Default: 3}}
Resources:
  Scripts: {Type: AWS::S3::Bucket}
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Version: 2012-10-17
        Statement: [{Effect: Allow, Principal: {Service: sagemaker.amazonaws.com}, Action: "sts:AssumeRole"}]
  Cluster:
    Type: AWS::SageMaker::Cluster
    Properties:
      ClusterName: plain
      InstanceGroups:
        - InstanceGroupName: workers
          InstanceType: ml.m5.xlarge
          InstanceCount: !Ref Count
          ExecutionRole: !GetAtt Role.Arn
          LifeCycleConfig: {SourceS3Uri: !Sub "s3://${Scripts}/scripts", OnCreate: on_create.sh}
"""


@pytest.fixture
def local(environment: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """local(command, option, …) -> what `cdk-hyperpod local` of the wheel prints in an empty folder; its engine ends."""
    place = Place(daemon.free_port())

    def call(command: str, *options: str, code: int = 0, stdin: int | None = None, **more: str) -> str:
        tool = environment / "cdk-hyperpod"
        # The environment of the tests names an environment of theirs, and switches CDK's checks off.
        words: list[str | Path] = [tool, "local", command, f"--port={place.port}", *options]
        return run(*words, cwd=tmp_path, code=code, stdin=stdin, CDK_VALIDATION="", **more)

    try:
        yield call
    finally:
        daemon.remove(place)


def in_a_shell(local: Callable[..., str], command: str) -> str:
    """What a command prints in `cdk-hyperpod local shell`, which stands on a terminal, and which `exit` leaves."""
    terminal, its_end = pty.openpty()
    try:
        os.write(terminal, f"{command}\nexit\n".encode())
        return local("shell", stdin=its_end, SHELL="/bin/sh")
    finally:
        os.close(its_end)
        os.close(terminal)


def test_a_new_app_is_rehearsed_from_the_wheel_alone(
    local: Callable[..., str], environment: Path, tmp_path: Path
) -> None:
    run(environment / "cdk-hyperpod", "init", "--name", "new", "--region", "us-west-2", "--yes", cwd=tmp_path)
    assert re.search(
        r"^new +compute +ml\.m5\.xlarge +2 +1 +2 +InService$", local("deploy", "--speed=1200"), re.MULTILINE
    )
    node = re.findall(r"i-[0-9a-f]{17}", in_a_shell(local, "cdk-hyperpod nodes --group compute"))[1]
    in_a_shell(local, f"cdk-hyperpod nodes {node} --write")
    assert [node] == list(set(re.findall(r"i-[0-9a-f]{17}", local("plan", code=2))))
    after = local("deploy")
    assert re.search(rf"^new +compute +{node} +deleted by its id$", after, re.MULTILINE)
    assert re.search(r"^new +compute +ml\.m5\.xlarge +1 +1 +1 +InService$", after, re.MULTILINE)
    assert "hyperpod-new-cluster: DELETE_COMPLETE" in local("destroy")


def test_the_readme_begins_an_app_line_by_line(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (start,) = re.findall(r"^```\nwheel=.*?\n(mkdir .*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (rehearsal,) = re.findall(r"^pip install '.*\[local\]'$", readme, re.MULTILINE)
    said = run(
        *("bash", "-ec", start + rehearsal + "\ncdk-hyperpod local --help\n"),
        cwd=tmp_path,
        wheel=str(wheel),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        CDK_VALIDATION="",
    )
    assert "cdk-hyperpod local deploy" in said
    made = {path.name for path in (tmp_path / "train" / "cdk.out").glob("*.template.json")}
    assert made == {"hyperpod-llm-train-cluster.template.json", "hyperpod-llm-train-foundation.template.json"}


def unpack(folder: Path) -> None:
    """CDK for Node, into the folder: npm's own packages, out of the wheels that requirements/dev.lock pins."""
    for package, module in [
        ("aws-cdk-lib", "aws_cdk"),
        ("constructs", "constructs"),
        ("@aws-cdk/cloud-assembly-schema", "aws_cdk/cloud_assembly_schema"),
    ]:
        (archive,) = (Path(sysconfig.get_path("purelib")) / module / "_jsii").glob("*.tgz")
        target = folder / "node_modules" / package
        target.mkdir(parents=True)
        subprocess.run(["tar", "-xzf", archive, "-C", target, "--strip-components=1"], check=True)


def test_a_template_and_an_app_that_are_not_ours_are_rehearsed_from_the_wheel_alone(
    local: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "plain.yaml").write_text(PLAIN, "utf-8")
    app = "--app=plain.yaml"
    assert re.search(
        r"^plain +workers +ml\.m5\.xlarge +3 +- +3 +InService$", local("deploy", app, "--speed=1200"), re.MULTILINE
    )
    after = local("deploy", app, "--parameters=Count=1")
    assert len(re.findall(r"^plain +workers +i-[0-9a-f]{17} +at random: ", after, re.MULTILINE)) == 2
    assert "Number of stacks with differences: 0" in local("diff", app)
    assert [path.name for path in tmp_path.iterdir()] == ["plain.yaml"]

    # With a bucket name that is taken: the reason is the last line.
    bucket = "Resources: {Bucket: {Type: AWS::S3::Bucket, Properties: {BucketName: only-one-has-it}}}\n"
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(bucket, "utf-8")
    local("deploy", "--app=first.yaml")
    refused = " ".join(local("deploy", "--app=second.yaml", code=1).split())
    assert "Deleted before it failed: no node." in refused
    assert refused.endswith("'only-one-has-it' already exists [NAME_CONFLICT_VALIDATION].")

    # In TypeScript, as its cdk.json says.
    copytree(ROOT / "tests" / "deployments" / "typescript_app", tmp_path, dirs_exist_ok=True)
    unpack(tmp_path)
    assert re.search(r"^typescript +workers +ml\.m5\.xlarge +3 +- +3 +InService$", local("deploy"), re.MULTILINE)
    after = local("deploy", "-c", "count=2")
    assert len(re.findall(r"^typescript +workers +i-[0-9a-f]{17} +at random: ", after, re.MULTILINE)) == 1
    destroyed = local("destroy")
    assert "plain: DELETE_COMPLETE" in destroyed and "Training: DELETE_COMPLETE" in destroyed
