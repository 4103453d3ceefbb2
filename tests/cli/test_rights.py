"""Each right that a command's help lists: with all of them it works, and without one it says so in one sentence."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli import frame, watch
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.names import drain_bucket_name, status_key
from cdk_hyperpod_local import environment
from cdk_hyperpod_local.session import LocalAws
from config.judging import changed
from local_aws.fixtures import running_engine

pytestmark = pytest.mark.slow
Json = Any

COMMANDS = {
    "nodes": ["nodes"],
    "connect": ["connect", "HOST", "--print"],
    "logs": ["logs", "NODE"],
    "watch": ["watch"],
    "replace": ["replace", "NODE", "--yes"],
    "reboot": ["reboot", "NODE", "--yes"],
}
ELSEWHERE = {
    *("ssm:StartSession", "ssm:TerminateSession"),  # the AWS CLI's calls
    "cloudformation:DescribeStackEvents",  # of a stack that failed: tests/cli/test_watch.py
}
NOT_BY_ID = {("connect", "sagemaker:DescribeClusterNode"), ("logs", "sagemaker:ListClusterNodes")}
"""A node is looked up by its id, or by its name in the VPC."""


def listed(command: str) -> list[str]:
    """The rights that the help of a command lists."""
    found = frame.tool.get_command(None, command)  # type: ignore[arg-type]
    words = re.search(r"^IAM rights: (.*)\.$", str(found and found.epilog), re.MULTILINE)
    assert words, command
    return words[1].split(", ")


CASES = [
    (command, right)
    for command in COMMANDS
    for right in listed(command)
    if right not in ELSEWHERE and (command, right) not in NOT_BY_ID
]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """An engine with a cluster where a node has failed, the drain agent's status and a role to take rights from."""
    with running_engine(bootstrap=False) as engine:
        _prepare(engine)
        yield engine


def _prepare(engine: LocalAws) -> None:
    def trust(**principal: str) -> str:
        statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal}
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    iam = engine.client("iam")
    iam.create_role(RoleName="operator", AssumeRolePolicyDocument=trust(AWS=engine.account))
    role = iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=trust(Service="sagemaker.amazonaws.com"))
    s3 = engine.client("s3")
    for bucket in ("sagemaker-scripts", drain_bucket_name("small", engine.account, engine.region)):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": engine.region})
    s3.put_object(Bucket=bucket, Key=status_key("small"), Body=b'{"nodes": {}}')
    ec2 = engine.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/20", AvailabilityZone="us-west-2b")["Subnet"]["SubnetId"]
    guard = ec2.create_security_group(VpcId=vpc, GroupName="g", Description="g")["GroupId"]

    def group(name: str, kind: str) -> Json:
        return {
            "InstanceGroupName": name,
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 1,
            "ExecutionRole": role["Role"]["Arn"],
            "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-scripts", "OnCreate": "on_create.sh"},
            "SlurmConfig": {"NodeType": kind, **({"PartitionNames": [name]} if kind == "Compute" else {})},
        }

    engine.change_hyperpod(faults={"failing_groups": ["bad"]})
    sagemaker = engine.client("sagemaker")
    sagemaker.create_cluster(
        ClusterName="small",
        NodeProvisioningMode="Continuous",
        Orchestrator={"Slurm": {}},
        NodeRecovery="None",
        VpcConfig={"Subnets": [subnet], "SecurityGroupIds": [guard]},
        InstanceGroups=[group("head", "Controller"), group("work", "Compute"), group("bad", "Compute")],
    )
    for _ in range(600):
        events = sagemaker.list_cluster_events(ClusterName="small", MaxResults=100)["Events"]
        running = sagemaker.list_cluster_nodes(ClusterName="small", InstanceGroupNameContains="work")
        up = [node["InstanceStatus"]["Status"] for node in running["ClusterNodeSummaries"]]
        if up == ["Running"] and any(event["EventLevel"] == "Error" and event.get("InstanceId") for event in events):
            break
        time.sleep(0.1)
    engine.change_hyperpod(faults={"failing_groups": []})


@pytest.fixture
def place(aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of that cluster, and one look of `watch`."""
    monkeypatch.chdir(tmp_path)
    file = changed({"slurm": {"drain": {}}, "network.availability_zones": [], "account": aws.account})
    Path("cluster.yaml").write_text(yaml.safe_dump(file))

    def enough(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch._Watcher, "wait", staticmethod(enough))


def operate(aws: LocalAws, monkeypatch: pytest.MonkeyPatch, command: str, actions: list[str]) -> int:
    """The command as the operator, who may do just this."""
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}
    aws.client("iam").put_role_policy(RoleName="operator", PolicyName="may", PolicyDocument=json.dumps(document))
    arn = f"arn:aws:iam::{aws.account}:role/operator"
    keys = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    for name, value in environment.variables(aws.place, region=aws.region).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])
    nodes = aws.client("sagemaker").list_cluster_nodes(ClusterName="small", InstanceGroupNameContains="work")
    (node,) = nodes["ClusterNodeSummaries"]
    words = {"NODE": node["InstanceId"], "HOST": node["PrivateDnsHostname"].split(".")[0]}
    return main([words.get(word, word) for word in COMMANDS[command]])


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("command", "right"), CASES)
def test_a_right_less_is_one_sentence(
    command: str, right: str, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operate(aws, monkeypatch, command, [each for each in listed(command) if each != right])
    out, err = capsys.readouterr()
    told = [line for line in (out + err).splitlines() if f"your credentials lack the right {right}" in line]
    assert len(told) == 1, out + err
    assert "Traceback" not in err


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_listed_rights_are_enough(
    command: str, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(300):
        nodes = aws.client("sagemaker").list_cluster_nodes(ClusterName="small")["ClusterNodeSummaries"]
        if {node["InstanceStatus"]["Status"] for node in nodes} == {"Running"}:
            break
        time.sleep(0.1)
    status = operate(aws, monkeypatch, command, listed(command))
    out, err = capsys.readouterr()
    if command == "logs":
        # The local AWS writes what HyperPod would.
        assert " lifecycle Info: EC2 Instance i-" in out.splitlines()[0], out
    assert "lack the right" not in out + err
    assert (status, err) == (0, ""), out + err


@pytest.mark.usefixtures("place")
def test_throttling_is_retried_and_then_said(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    try:
        aws.change_hyperpod(faults={"throttle_next": 3, "throttle_operations": ["DescribeCluster"]})
        assert operate(aws, monkeypatch, "connect", listed("connect")) == 0
        aws.change_hyperpod(faults={"throttle_next": 9, "throttle_operations": ["DescribeCluster"]})
        assert operate(aws, monkeypatch, "connect", listed("connect")) == 1
    finally:
        aws.change_hyperpod(faults={"throttle_next": 0, "throttle_operations": []})
    assert (
        capsys.readouterr().err == "AWS throttles DescribeCluster, after 5 attempts still; try again in some minutes\n"
    )
