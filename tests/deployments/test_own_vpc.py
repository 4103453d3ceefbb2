"""An app that names its account, looks zones and VPCs up there, and ends in a stack that cannot be deleted."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

ACCOUNT, REGION = "111122223333", "us-east-2"
APP = f"""\
from aws_cdk import App, CfnOutput, Environment, RemovalPolicy, Stack, aws_ec2 as ec2, aws_fsx as fsx

app = App()
stack = Stack(app, "own-vpc", env=Environment(account="{ACCOUNT}", region="{REGION}"), termination_protection=True)
vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0, max_azs=2)
looked_up = ec2.Vpc.from_lookup(stack, "Default", is_default=True)
CfnOutput(stack, "Zones", value=",".join(vpc.availability_zones))
CfnOutput(stack, "DefaultVpc", value=looked_up.vpc_id)
fsx.LustreFileSystem(
    stack,
    "Kept",
    vpc=vpc,
    vpc_subnet=vpc.isolated_subnets[0],
    storage_capacity_gib=1200,
    lustre_configuration={{"deployment_type": fsx.LustreDeploymentType.SCRATCH_2}},
    removal_policy=RemovalPolicy.RETAIN,
)
app.synth()
"""


@pytest.fixture
def place() -> Iterator[Place]:
    free = Place(daemon.free_port())
    yield free
    daemon.remove(free)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP, "utf-8")
    return tmp_path


def local(place: Place, app: Path, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("cdk-hyperpod")), "local", *words, f"--port={place.port}"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CDK_", "JSII_", "AWS_"))}
    return subprocess.run(
        command, cwd=app, env=clean, stdin=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def deploy(place: Place, app: Path) -> subprocess.CompletedProcess[str]:
    return local(place, app, "deploy", "--app", f"{sys.executable} app.py", "--speed=1200")


def answered(place: Place, app: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """`local reset` on a terminal on which the user types the answer."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return local(place, app, "reset", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_look_ups_are_those_of_the_app_s_account_and_reset_ends_what_destroy_cannot(place: Place, app: Path) -> None:
    for _ in ("the lookup role does not exist", "it exists, and there are two VPCs"):
        deployed = deploy(place, app)
        assert deployed.returncode == 0, deployed.stdout[-3000:] + deployed.stderr[-3000:]
        assert not (app / "cdk.context.json").exists()
    aws = LocalAws(place=place, region=REGION, account=ACCOUNT)
    cloudformation, ec2 = aws.client("cloudformation"), aws.client("ec2")
    (stack,) = cloudformation.describe_stacks(StackName="own-vpc")["Stacks"]
    (default,) = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert outputs == {"Zones": f"{REGION}a,{REGION}b", "DefaultVpc": default["VpcId"]}

    destroyed = local(place, app, "destroy")
    assert destroyed.returncode == 1
    assert "AWS would refuse to delete own-vpc, because of termination protection" in destroyed.stdout
    assert f"  cdk-hyperpod local reset --port={place.port} " in destroyed.stdout
    assert re.match(r"local AWS: own-vpc: VpcIsolatedSubnet1Subnet\w+ \(AWS::EC2::Subnet\): .+\n\Z", destroyed.stderr)
    assert daemon.running(place) is not None

    without_terminal = local(place, app, "reset")
    assert without_terminal.returncode == 1 and "there is no terminal to confirm on" in without_terminal.stderr
    declined = answered(place, app, "no")
    assert (declined.returncode, declined.stderr) == (1, "local AWS: nothing was deleted\n")
    assert f"  own-vpc in aws://{ACCOUNT}/{REGION}\n" in declined.stdout
    assert daemon.running(place) is not None

    assert answered(place, app, "yes").returncode == 0
    assert daemon.running(place) is None and not place.folder.exists()


def test_reset_without_an_engine_and_beside_another_command(place: Place, app: Path) -> None:
    nothing = local(place, app, "reset", "--yes")
    assert nothing.returncode == 0 and "there is nothing to delete" in nothing.stdout
    place.folder.mkdir(parents=True)
    with place.lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refused = local(place, app, "reset", "--yes")
    assert refused.returncode == 1 and "another command is using the engine" in refused.stderr
    assert place.folder.exists()
    assert local(place, app, "reset", "--yes").returncode == 0 and not place.folder.exists()
