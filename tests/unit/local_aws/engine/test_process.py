"""The engine's process: its address, its state after a restart, and its complete end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from cdk_hyperpod_local import daemon, environment
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates
from helpers.local_aws.fixtures import SPEED, running_engine

PARAMETER = {"Type": "AWS::SSM::Parameter", "Properties": {"Name": "/kept", "Type": "String", "Value": "1"}}


def listening(pid: int) -> set[str]:
    """Addresses that the process listens on, as address:port, from the kernel's own tables."""
    sockets = {
        os.readlink(entry).removeprefix("socket:[").removesuffix("]")
        for entry in Path(f"/proc/{pid}/fd").iterdir()
        if os.path.islink(entry) and os.readlink(entry).startswith("socket:[")
    }
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text("utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[9] in sockets and fields[3] in ("0A", "07"):
                address, port = fields[1].split(":")
                text = socket.inet_ntoa(bytes.fromhex(address)[::-1]) if len(address) == 8 else address
                found.add(f"{text}:{int(port, 16)}")
    return found


def test_listens_on_loopback_and_one_port_only(engine: LocalAws) -> None:
    pid = daemon.running(engine.place)
    assert pid is not None
    assert listening(pid) == {f"127.0.0.1:{engine.place.port}"}


def test_two_engines_share_nothing(engine: LocalAws) -> None:
    with running_engine(bootstrap=False) as other:
        templates.deploy(other, "other", {"Parameter": PARAMETER})
        names = [item["Name"] for item in engine.client("ssm").describe_parameters()["Parameters"]]
        assert "/kept" not in names
        assert other.journal() == []
        with pytest.raises(EngineError, match="in use by another program"):
            daemon.start(Place(other.place.port, home=other.place.home / "elsewhere"), speed=1.0)


def test_state_outlives_the_process_and_nothing_else_does() -> None:
    with running_engine(bootstrap=False, keeps_state=True) as aws:
        bucket = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "sagemaker-kept"}}
        assert templates.deploy(aws, "kept", {"Parameter": PARAMETER, "Bucket": bucket}).status == "CREATE_COMPLETE"
        aws.client("s3").put_object(Bucket="sagemaker-kept", Key="k", Body=b"v")
        daemon.stop(aws.place)
        assert daemon.running(aws.place) is None
        assert daemon.start(aws.place, speed=SPEED)
        assert aws.client("ssm").get_parameter(Name="/kept")["Parameter"]["Value"] == "1"
        assert aws.client("s3").get_object(Bucket="sagemaker-kept", Key="k")["Body"].read() == b"v"
        assert templates.deploy(aws, "kept", {"Bucket": bucket}).status == "UPDATE_COMPLETE"
        pid = daemon.running(aws.place)
        assert pid is not None
        # As in a power cut: the engine saved its state when the stack operation had ended.
        time.sleep(1.5)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert daemon.start(aws.place, speed=SPEED)
        listed = aws.client("cloudformation").list_stack_resources(StackName="kept")["StackResourceSummaries"]
        assert [item["LogicalResourceId"] for item in listed] == ["Bucket"]
        pid = daemon.running(aws.place)
    assert not aws.place.folder.exists()
    assert pid is not None and not Path(f"/proc/{pid}").exists()


def test_ends_with_its_folder_and_with_its_owner() -> None:
    """After `make clean` with a running engine, and after a killed test run, no process and no folder remain."""
    with running_engine(bootstrap=False) as aws, subprocess.Popen(["sleep", "60"]) as owner:
        owned = Place(daemon.free_port())
        daemon.start(owned, speed=SPEED, owner=owner.pid)
        pids = [pid for place in (aws.place, owned) if (pid := daemon.running(place))]
        assert len(pids) == 2
        shutil.rmtree(aws.place.folder)
        owner.kill()
        owner.wait()
        deadline = time.monotonic() + 20
        while any(daemon.running(place) for place in (aws.place, owned)) or any(map(lives, pids)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert not owned.folder.exists()


def lives(pid: int) -> bool:
    """Not for a zombie of this process."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text("utf-8")
    except FileNotFoundError:
        return False


def test_ends_while_a_custom_resource_waits() -> None:
    """A function that never answers blocks a thread for an hour. The engine ends all the same."""
    with running_engine(bootstrap=False) as aws:
        role = {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Action": "sts:AssumeRole",
                            "Principal": {"Service": "lambda.amazonaws.com"},
                        }
                    ],
                }
            },
        }
        function = {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": "def handler(event, context):\n    return None\n"},
            },
        }
        silent = {"Type": "Custom::Silent", "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}}}
        client = aws.client("cloudformation")
        template = templates.template({"Role": role, "Function": function, "Silent": silent})
        client.create_stack(StackName="silent", TemplateBody=template, Capabilities=["CAPABILITY_IAM"])
        deadline = time.monotonic() + 20
        while "Silent" not in _started(client):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        began = time.monotonic()
        daemon.stop(aws.place)
        assert time.monotonic() - began < daemon.STOP_SECONDS
        assert daemon.running(aws.place) is None


def _started(client: object) -> set[str]:
    events = client.describe_stack_events(StackName="silent")["StackEvents"]  # type: ignore[attr-defined]
    return {event["LogicalResourceId"] for event in events}


def test_nothing_of_another_aws_reaches_the_engine() -> None:
    place = Place(4999)
    given = {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "secret",
        "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
        "CDK_DEFAULT_ACCOUNT": "123456789012",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    made = environment.complete(place, region="us-west-2", base=given)
    assert made.keys() & {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "CDK_DEFAULT_ACCOUNT"} == set()
    assert "HTTPS_PROXY" not in made
    assert made["AWS_ENDPOINT_URL"] == "https://127.0.0.1:4999"
    assert made["HOME"] == "/home/me" and made["PATH"].endswith("/usr/bin")


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is in use by another program"):
            daemon.start(Place(port, home=tmp_path), speed=1.0)


def test_another_process_is_not_treated_as_the_engine(tmp_path: Path) -> None:
    place = Place(4999, home=tmp_path)
    place.folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "30"]) as process:
        place.process.write_text(f'{{"pid": {process.pid}, "speed": 1.0}}', "utf-8")
        assert daemon.running(place) is None
        process.kill()
