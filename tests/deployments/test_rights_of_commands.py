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

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import request_key, status_key
from cdk_hyperpod.cli import frame
from cdk_hyperpod.cli.aws import ATTEMPTS
from cdk_hyperpod.cli.commands import COMMANDS as TEXTS
from cdk_hyperpod.cli.deployment.preflight import NOT_READ
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.cli.nodes import watch
from cdk_hyperpod.cli.patch import patcher
from cdk_hyperpod.names import drain_bucket_name
from cdk_hyperpod_local import environment
from cdk_hyperpod_local.session import LocalAws
from helpers.cli.aws_errors import intercept
from helpers.local_aws.fixtures import running_engine
from helpers.validating import changed
from simulations.lifetimes.agent import status as agent_status

Json = Any

COMMANDS = {
    "nodes": ["nodes", "--config", "without-zones.yaml"],
    "connect": ["connect", "HOST", "--print"],
    "logs": ["logs", "NODE"],
    "watch": ["watch"],
    "patch": ["patch", "work", "--dry-run"],
    "replace": ["replace", "NODE", "--yes"],
    "reboot": ["reboot", "NODE", "--yes"],
    "plan": ["plan"],
    "why": ["why", "--cluster", "alone", "--region", "us-west-2"],  # no stack of this app has it
    "cost": ["cost", "--refresh"],
    "retained": ["retained"],
    "preflight": ["preflight", "--config", "account.yaml"],
    "drain": ["drain", "NODE"],
    "undrain": ["undrain", "NODE"],
}
EXIT_CODES = {"plan": 2, "preflight": 1, "why": 1}
"""Of those that end otherwise than with 0: a group would go; the training plan that the file names is not there; and no stack has the
cluster."""
OF_EKS = ["preflight", "--config", "eks.yaml"]
OF_THE_TEST = ("PutRolePolicy", "AssumeRole")
"""Calls of `operate` itself."""
OF_OPERATIONS = ("sagemaker:ListClusterOperations", "sagemaker:DescribeClusterOperation")
OF_THE_GUARD_S_LOG = ("cloudformation:ListStackResources", "logs:FilterLogEvents")
UNTRIED = {
    **dict.fromkeys(
        [("connect", "ssm:StartSession"), ("connect", "ssm:TerminateSession")], "the AWS CLI calls, and says so"
    ),
    ("watch", "cloudformation:DescribeStackEvents"): "of a stack that failed: tests/unit/cli/nodes/test_watch.py",
    (
        "preflight",
        "cloudwatch:DescribeAlarms",
    ): "of a group with rollback_alarms: tests/unit/cli/deployment/preflight/test_preflight.py",
    ("plan", "sagemaker:ListClusters"): "of a file without a cluster: tests/unit/cli/deployment/test_plan.py",
    **dict.fromkeys(
        [
            *(
                (command, f"cloudformation:{call}")
                for command in ("watch", "why")
                for call in ("ListChangeSets", "DescribeEvents")
            ),
            *((command, right) for command in ("watch", "why") for right in OF_THE_GUARD_S_LOG),
            *(("why", f"sagemaker:{call}") for call in ("ListClusterNodes", "ListClusterEvents")),
            ("watch", "sagemaker:ListTags"),
        ],
        "of a stack that failed: tests/unit/cli/deployment/test_why.py, test_deleted_nodes.py",
    ),
    **dict.fromkeys(
        [
            *(("patch", f"sagemaker:{call}") for call in ("UpdateClusterSoftware", "DescribeClusterNode", "ListTags")),
            *(("patch", f"sagemaker:{call}") for call in ("ListClusterEvents", "DescribeClusterEvent")),
            *(("patch", right) for right in ("s3:PutObject", "kms:GenerateDataKey")),
            *(("patch", right) for right in ("lambda:InvokeFunction", "cloudwatch:DescribeAlarms")),
            ("patch", "iam:SimulatePrincipalPolicy"),
            ("patch", "ec2:DescribeImages"),
        ],
        "only a patch that is carried out needs it: tests/unit/cli/patch/test_patch.py",
    ),
    ("connect", "sagemaker:DescribeClusterNode"): "of a node that is named by its id, as of `logs` here",
    ("logs", "sagemaker:ListClusterNodes"): "of a node that is named as in the VPC, as of `connect` here",
    **dict.fromkeys(
        [(command, right) for command in ("watch", "why") for right in OF_OPERATIONS],
        "without it a command does not say who superseded whom: tests/unit/cli/nodes/test_watch.py, deployment/test_why.py",
    ),
    **dict.fromkeys(
        [(command, "s3:ListBucket") for command in ("nodes", "plan", "drain", "undrain", "patch")],
        "the local S3 says without it too what is not there: tests/unit/cli/nodes/test_drain.py has the refusal",
    ),
}


def listed(command: str) -> list[str]:
    """The rights that the help of a command lists."""
    found = frame.tool.get_command(None, command)  # type: ignore[arg-type]
    assert found, command
    words = re.search(r"^IAM permissions: (.*)\.$", f"{found.help}\n{found.epilog}", re.MULTILINE)
    return words[1].split(", ") if words else []


CASES = [(command, right) for command in COMMANDS for right in listed(command) if (command, right) not in UNTRIED]


def test_every_command_that_lists_rights_is_tried() -> None:
    names = [name for group in TEXTS.values() for name in group if name != "local"]
    assert [*COMMANDS] == sorted((name for name in names if listed(name)), key=[*COMMANDS].index)
    assert UNTRIED.keys() <= {(command, right) for command in COMMANDS for right in listed(command)}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """An engine with a cluster where a node has failed, and a role to take rights from."""
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
    bucket = drain_bucket_name("small", engine.account, engine.region)
    for name in ("sagemaker-scripts", bucket):
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": engine.region})
    key = engine.client("kms").create_key()["KeyMetadata"]["Arn"]
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    s3.put_bucket_encryption(
        Bucket=bucket,
        ServerSideEncryptionConfiguration={"Rules": [{"ApplyServerSideEncryptionByDefault": by_default}]},
    )
    engine.client("sns").create_topic(Name="alerts", Attributes={"KmsMasterKeyId": key})
    ec2 = engine.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/20", AvailabilityZone="us-west-2b")["Subnet"]["SubnetId"]
    guard = ec2.create_security_group(VpcId=vpc, GroupName="g", Description="g")["GroupId"]
    among = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": guard}]}
    ec2.authorize_security_group_ingress(GroupId=guard, IpPermissions=[among])

    def group(name: str, kind: str) -> Json:
        return {
            "InstanceGroupName": name,
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 1,
            "ExecutionRole": role["Role"]["Arn"],
            "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-scripts", "OnCreate": "on_create.sh"},
            "SlurmConfig": {"NodeType": kind, **({"PartitionNames": [name]} if kind == "Compute" else {})},
        }

    stacks = {
        name: _stack(engine, name, resources)
        for name, resources in (
            ("hyperpod-small-cluster", {"Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}),
            ("hyperpod-small-foundation", {"Storage": _storage(subnet, guard)}),
        )
    }
    engine.change_hyperpod(faults={"failing_groups": ["bad"]})
    sagemaker = engine.client("sagemaker")
    sagemaker.create_cluster(
        ClusterName="alone",
        NodeProvisioningMode="Continuous",
        Orchestrator={"Slurm": {}},
        VpcConfig={"Subnets": [subnet], "SecurityGroupIds": [guard]},
        InstanceGroups=[group("head", "Controller")],
    )
    sagemaker.create_cluster(
        ClusterName="small",
        NodeProvisioningMode="Continuous",
        Orchestrator={"Slurm": {}},
        NodeRecovery="None",
        Tags=[{"Key": "cdk-hyperpod:stack-id", "Value": stacks["hyperpod-small-cluster"]}],
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


def _storage(subnet: str, guard: str) -> Json:
    properties = {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 1200,
        "SubnetIds": [subnet],
        "SecurityGroupIds": [guard],
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    }
    return {"Type": "AWS::FSx::FileSystem", "Properties": properties}


def _stack(engine: LocalAws, name: str, resources: Json) -> str:
    cloudformation = engine.client("cloudformation")
    made: str = cloudformation.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": resources}))[
        "StackId"
    ]
    for _ in range(600):
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        if not stack["StackStatus"].endswith("_IN_PROGRESS"):
            break
        time.sleep(0.1)
    reasons = [
        event.get("ResourceStatusReason")
        for event in cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    ]
    assert stack["StackStatus"] == "CREATE_COMPLETE", reasons
    return made


def _files(aws: LocalAws) -> Iterator[tuple[str, Json]]:
    """Files of the cluster: one that names no zone, and one from which a group goes; one that names what preflight looks for; and
    one under EKS."""
    yield (
        "without-zones.yaml",
        changed({"account": aws.account, "network.availability_zones": [], "slurm": {"drain": {}}}),
    )
    found = aws.client("ec2").describe_subnets(Filters=[{"Name": "cidr-block", "Values": ["10.9.0.0/20"]}])
    (subnet,) = found["Subnets"]
    first = {"subnet_id": subnet["SubnetId"], "availability_zone": subnet["AvailabilityZone"]}
    second = {"subnet_id": "subnet-0123456789abcdef0", "availability_zone": "us-west-2a"}
    work = {"name": "work", "instance_type": "ml.m5.xlarge", "instance_count": 1}
    slurm = {
        "account": aws.account,
        "network": {"vpc_id": subnet["VpcId"], "subnets": [first]},
        "instance_groups.1": {**work, "node_type": "compute", "partition": "work"},
    }
    yield (
        "cluster.yaml",
        changed({**slurm, "slurm": {"drain": {}}, "scale_down": {"instance_groups_to_delete": ["bad"]}}),
    )
    storage = {
        "capacity_gib": 1200,
        "data_repositories": [{"file_system_path": "/data", "bucket_name": "sagemaker-scripts"}],
        "openzfs": {"file_system_id": "fs-0123456789abcdef0"},
    }
    named = {
        "instance_groups.1.training_plan_arn": f"arn:aws:sagemaker:us-west-2:{aws.account}:training-plan/none",
        "lifecycle": {"writers": [f"arn:aws:iam::{aws.account}:role/operator"]},
        "storage": storage,
        "monitoring": {"topic_arn": f"arn:aws:sns:us-west-2:{aws.account}:alerts"},
    }
    yield "account.yaml", changed({**slurm, **named})
    shared = {
        "dependencies_chart": "installed",
        "existing_cluster": {"name": "none", "security_group_id": "sg-0123456789abcdef0"},
    }
    network = {"vpc_id": subnet["VpcId"], "subnets": [first, second]}
    yield (
        "eks.yaml",
        changed(
            {
                "account": aws.account,
                "orchestrator": "eks",
                "network": network,
                "instance_groups": [work],
                "eks": shared,
            }
        ),
    )


@pytest.fixture
def place(aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes running, the files, no price of before, no drain of before, a drain agent that is alive, and one look of `watch`,
    which lists the nodes only when each group has its count."""
    until_all_run(aws)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, file in _files(aws):
        Path(name).write_text(yaml.safe_dump(file))
    bucket = drain_bucket_name("small", aws.account, aws.region)
    s3 = aws.client("s3")
    s3.delete_object(Bucket=bucket, Key=request_key("small", "operator"))
    s3.put_object(Bucket=bucket, Key=status_key("small"), Body=agent_status(time.time()))

    def enough(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.Watcher, "wait", staticmethod(enough))


def operate(aws: LocalAws, monkeypatch: pytest.MonkeyPatch, words: list[str], actions: list[str]) -> int:
    """The command as the operator, who may do just this."""
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": actions or ["none:None"], "Resource": "*"}],
    }
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
    known = {"NODE": node["InstanceId"], "HOST": node["PrivateDnsHostname"].split(".")[0]}
    return main([known.get(word, word) for word in words])


def until_all_run(aws: LocalAws) -> None:
    """The node that failed is replaced, and what an earlier replacement or reboot has begun, has ended."""
    deadline = time.monotonic() + 60
    statuses: list[str] = []
    while statuses != ["Running"] * 3:  # one in each group
        assert time.monotonic() < deadline, statuses
        nodes = aws.client("sagemaker").list_cluster_nodes(ClusterName="small")["ClusterNodeSummaries"]
        statuses = [node["InstanceStatus"]["Status"] for node in nodes]
        time.sleep(0.1)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("command", "right"), CASES)
def test_a_missing_permission_of_a_command_is_one_sentence(
    command: str, right: str, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = OF_EKS if right in ("eks:DescribeCluster", "iam:SimulatePrincipalPolicy") else COMMANDS[command]
    operate(aws, monkeypatch, words, [each for each in listed(command) if each != right])
    out, err = capsys.readouterr()
    # Some wrap their sentences.
    said = " ".join(f"{out} {err}".split())
    assert said.count("your credentials lack the permission") == 1, out + err
    assert f"your credentials lack the permission {right}" in said, out + err
    assert "Traceback" not in err


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_listed_rights_are_enough(
    command: str, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = operate(aws, monkeypatch, COMMANDS[command], listed(command))
    out, err = capsys.readouterr()
    if command == "logs":
        # The local AWS writes what HyperPod would.
        assert " lifecycle Info: EC2 Instance i-" in out.splitlines()[0], out
    assert "lack the permission" not in out + err
    assert status == EXIT_CODES.get(command, 0), out + err
    assert ("no other stack has cluster alone. " in err) if command == "why" else err == "", out + err


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("missing", "codes"),
    # Without UpdateClusterSoftware: 1 where IAM can be simulated, and otherwise 4.
    [("s3:PutObject", {1}), ("kms:GenerateDataKey", {1}), ("sagemaker:UpdateClusterSoftware", {1, 4}), (None, {0})],
)
def test_a_patch_that_is_carried_out(
    missing: str | None,
    codes: set[int],
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The agent's part is played by the test. Without a permission the nodes are released, and none has another image."""
    until_all_run(aws)
    # As AWS documents it: under Slurm it is unknown which nodes run the latest image.
    aws.change_hyperpod(behaviour={"image_versions": "eks_since_2026"})
    s3, sagemaker = aws.client("s3"), aws.client("sagemaker")
    bucket = drain_bucket_name("small", aws.account, aws.region)

    def asked() -> Json:
        found = s3.list_objects_v2(Bucket=bucket, Prefix=request_key("small", "operator")).get("Contents")
        return json.loads(s3.get_object(Bucket=bucket, Key=found[0]["Key"])["Body"].read()) if found else {"nodes": []}

    def wait(_: float) -> None:
        held = {each["id"]: {"state": "ready", "requests": {"operator": each["request"]}} for each in asked()["nodes"]}
        s3.put_object(Bucket=bucket, Key=status_key("small"), Body=agent_status(time.time(), nodes=held))
        time.sleep(0.2)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(patcher.Patcher, "wait", staticmethod(wait))
    rights = [each for each in listed("patch") if each != missing]
    status = operate(aws, monkeypatch, ["patch", "work", "--yes"], rights)
    out, err = capsys.readouterr()
    assert status in codes, out + err
    assert err.count("your credentials lack the permission") == (0 if missing is None else 1), err
    assert asked()["nodes"] == [] and "patch" not in (asked() if status == 0 else {})
    (work,) = [
        group
        for group in sagemaker.describe_cluster(ClusterName="small")["InstanceGroups"]
        if group["InstanceGroupName"] == "work"
    ]
    assert work.get("SoftwareUpdateStatus") == (None if missing else "Succeeded")


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", COMMANDS)
def test_each_call_that_aws_throttles_is_made_again_and_then_said(
    command: str, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []
    throttled, times = "", 0

    def meet(call: str) -> str | None:
        made.append(call)
        return "throttled" if call == throttled and made.count(call) <= times else None

    def tried(refusals: int) -> int:
        nonlocal times
        times = 0
        until_all_run(aws)
        made.clear()
        times = refusals
        return operate(aws, monkeypatch, COMMANDS[command], listed(command))

    intercept(monkeypatch, meet)
    untouched = tried(0)
    said = capsys.readouterr()
    optional = [right.split(":")[1] for right in OF_OPERATIONS]
    mine = [call for call in dict.fromkeys(made) if call.split(".")[1] not in (*OF_THE_TEST, *optional)]
    assert mine, "it asks AWS nothing"
    for throttled in mine:
        assert tried(ATTEMPTS - 1) == untouched, throttled
        again = capsys.readouterr()
        assert "throttles" not in again.out + again.err and again.err.count("\n") == said.err.count("\n")
        assert tried(999) in (0, 1, untouched, NOT_READ)
        assert made.count(throttled) % ATTEMPTS == 0
        found = capsys.readouterr()
        told = " ".join(f"{found.out} {found.err}".split())
        sentence = f"AWS throttles {throttled.split('.')[1]}, 5 attempts failed. Try again in a few minutes"
        assert told.count(sentence) == 1 and told.count("throttles") == 1, told
        assert "Traceback" not in told and "internal error" not in told
