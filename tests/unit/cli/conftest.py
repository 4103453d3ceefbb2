"""A served HyperPod in this process, and what stands beside it, in place of the user's AWS."""

from __future__ import annotations

import email.utils
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import status_key
from cdk_hyperpod.cli import live, tables
from cdk_hyperpod.cli.deployment import plan
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.config.changes import METADATA, record
from cdk_hyperpod.loader import load_config
from cdk_hyperpod.names import drain_bucket_name
from cdk_hyperpod_local.hyperpod import HyperPod, ManualClock
from cdk_hyperpod_local.hyperpod.samples import VPC, group, run_until_quiet, slurm
from helpers.validating import changed

Json = Any


@dataclass
class FakeAws:
    """HyperPod's model, and the few replies of other services that the commands read."""

    model: HyperPod
    calls: list[str] = field(default_factory=list)
    """Every call as SERVICE:method, in order."""
    streams: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Log stream -> (milliseconds since 1970, line)."""
    stack: Json = None
    """The cluster's stack, as DescribeStacks tells it. Absent: there is none."""
    guard_log: list[str] = field(default_factory=list)
    """Lines of the guard's log, which is the only one of the cluster's stack."""
    status: bytes | None = None
    """What the drain agent has written. Absent: nothing."""
    asked: dict[str, bytes] = field(default_factory=dict)
    """What the drain agent is asked for."""
    denied: set[str] = field(default_factory=set)
    """SERVICE:method that are refused."""
    alarms: set[str] = field(default_factory=set)
    """Names of the alarms that CloudWatch has."""
    architecture: str | None = "x86_64"
    """Of every AMI. Absent: EC2 has none of them."""
    drainer: Callable[[Json], Json] | None = None
    """The drainer's answer to an event. Absent: there is no such function."""

    def client(self, service: str) -> Any:
        return _Client(self, service)

    def cluster(self, *groups: Json, continuous: bool = True) -> None:
        """Make the small cluster with these groups besides the controller, and wait until nothing moves."""
        head = group("head", 1, instance_type="ml.m5.xlarge", node_type="Controller")
        request = {**slurm(name="small", continuous=continuous), "InstanceGroups": [head, *groups]}
        self.model.call("CreateCluster", request)

    def quiet(self) -> None:
        run_until_quiet(self.model)

    def nodes(self, group: str | None = None) -> list[str]:
        return [str(node.instance_id) for node in self.model.nodes("small", group)]


@dataclass
class _Client:
    fake_aws: FakeAws
    service: str

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(f"the fake AWS has no {self.service} that knows {method[1:]}")

        def call(**given: Any) -> Any:
            name = f"{self.service}:{method}"
            self.fake_aws.calls.append(name)
            if name in self.fake_aws.denied:
                raise refused("AccessDenied", f"not authorized to perform: {name}", method)
            if self.service == "sagemaker":
                return getattr(self.fake_aws.model.client(), method)(**given)
            return getattr(self, f"_{method}")(**given)

        return call

    def _describe_subnets(self, SubnetIds: Sequence[str]) -> Json:
        assert [*SubnetIds] == VPC["Subnets"]
        place = {"AvailabilityZone": "us-west-2b", "CidrBlock": "10.0.0.0/18", "VpcId": "vpc-0123456789abcdef0"}
        return {"Subnets": [{"SubnetId": each, **place} for each in SubnetIds]}

    def _get_object(self, Bucket: str, Key: str) -> Json:
        assert Bucket == drain_bucket_name("small", "000000000000", "us-west-2")
        found = self.fake_aws.status if Key == status_key("small") else self.fake_aws.asked.get(Key)
        if found is None:
            raise refused("NoSuchKey", "not there", "GetObject")
        sent = email.utils.formatdate(self.fake_aws.model.clock.now(), usegmt=True)
        headers = {"HTTPHeaders": {"date": sent}}
        return {"Body": io.BytesIO(found), "ContentLength": len(found), "ETag": "e", "ResponseMetadata": headers}

    def _put_object(self, Key: str, Body: bytes, **_: object) -> Json:
        self.fake_aws.asked[Key] = Body
        return {}

    def _describe_alarms(self, AlarmNames: Sequence[str], **_: object) -> Json:
        return {"MetricAlarms": [{"AlarmName": name} for name in AlarmNames if name in self.fake_aws.alarms]}

    def _describe_images(self, ImageIds: Sequence[str]) -> Json:
        if self.fake_aws.architecture is None:
            raise refused("InvalidAMIID.NotFound", f"The image ids '{ImageIds}' do not exist", "DescribeImages")
        return {"Images": [{"ImageId": each, "Architecture": self.fake_aws.architecture} for each in ImageIds]}

    def _invoke(self, FunctionName: str, Payload: bytes) -> Json:
        if self.fake_aws.drainer is None:
            raise refused("ResourceNotFoundException", f"Function not found: {FunctionName}", "Invoke")
        answer = json.dumps(self.fake_aws.drainer(json.loads(Payload))).encode()
        return {"StatusCode": 200, "Payload": io.BytesIO(answer)}

    def _get_caller_identity(self) -> Json:
        return {"Account": "000000000000", "Arn": "arn:aws:sts::000000000000:assumed-role/Operator/alice"}

    def _simulate_principal_policy(self, PolicySourceArn: str, ActionNames: Sequence[str], **_: object) -> Json:
        assert PolicySourceArn == "arn:aws:iam::000000000000:role/Operator"
        method = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in ActionNames[0].split(":")[1]
        )
        denied = f"sagemaker:{method[1:]}" in self.fake_aws.denied
        return {"EvaluationResults": [{"EvalDecision": "implicitDeny" if denied else "allowed"}]}

    def _describe_stacks(self, StackName: str) -> Json:
        if self.fake_aws.stack is None or self.fake_aws.stack["StackName"] != StackName:
            raise refused("ValidationError", f"Stack with id {StackName} does not exist", "DescribeStacks")
        return {"Stacks": [self.fake_aws.stack]}

    def _describe_stack_events(self, StackName: str) -> Json:
        if self.fake_aws.stack is None or self.fake_aws.stack["StackName"] != StackName:
            raise refused("ValidationError", f"Stack [{StackName}] does not exist", "DescribeStackEvents")
        return {"StackEvents": self.fake_aws.stack.get("events", [])}

    def _list_change_sets(self, StackName: str) -> Json:
        described = self._describe_stacks(StackName)["Stacks"]
        return {"Summaries": described[0].get("change_sets", [])}

    def _describe_events(self, StackName: str, **_: object) -> Json:
        return {"OperationEvents": []}

    def _list_stack_resources(self, StackName: str) -> Json:
        log = {"ResourceType": "AWS::Logs::LogGroup", "PhysicalResourceId": "guard"}
        return {"StackResourceSummaries": [{"ResourceType": "AWS::SageMaker::Cluster", "PhysicalResourceId": "x"}, log]}

    def _filter_log_events(self, logGroupName: str, nextToken: str = "0", **_: object) -> Json:
        """A line a page."""
        assert logGroupName == "guard"
        lines, number = self.fake_aws.guard_log, int(nextToken)
        more = {"nextToken": str(number + 1)} if number + 1 < len(lines) else {}
        return {"events": [{"message": line} for line in lines[number : number + 1]], **more}

    def _describe_log_streams(self, logGroupName: str, logStreamNamePrefix: str, nextToken: str = "0") -> Json:
        assert logGroupName.startswith("/aws/sagemaker/Clusters/small/")
        found = [name for name in self.fake_aws.streams if name.startswith(logStreamNamePrefix)]
        begin, end = int(nextToken), int(nextToken) + 50
        more = {"nextToken": str(end)} if end < len(found) else {}
        return {"logStreams": [{"logStreamName": name} for name in found[begin:end]], **more}

    def _get_log_events(
        self, logGroupName: str, logStreamName: str, limit: int, startFromHead: bool, nextToken: str = "0"
    ) -> Json:
        lines = self.fake_aws.streams[logStreamName]
        shown = lines[int(nextToken) :] if startFromHead else lines[-limit:]
        events = [{"timestamp": when, "message": text} for when, text in shown]
        return {"events": events, "nextForwardToken": str(len(lines))}


def deployed(fake_aws: FakeAws, patch: pytest.MonkeyPatch) -> None:
    """`plan` finds the stack that cluster.yaml, as it is now, has made."""
    settings = {
        "Type": "AWS::CloudFormation::WaitConditionHandle",
        "Metadata": {METADATA: record(load_config("cluster.yaml").config)},
    }

    class Deployed:
        def get_template(self, **_: object) -> Json:
            return {"TemplateBody": {"Resources": {"Settings": settings}}}

        def __getattr__(self, name: str) -> Callable[..., Json]:
            def absent(**_: object) -> Json:
                raise refused("ValidationError", "Stack does not exist", name)

            return absent

    patch.setattr(
        plan,
        "clients",
        lambda *_: lambda service: Deployed() if service == "cloudformation" else fake_aws.client(service),
    )


def refused(code: str, message: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def write(**changes: object) -> None:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    Path("cluster.yaml").write_text(yaml.safe_dump(changed(dotted), sort_keys=False))


@pytest.fixture
def fake_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """No cluster yet; the small file is in the folder."""
    found = FakeAws(HyperPod(clock=ManualClock()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "clients", lambda *_: found.client)
    monkeypatch.setattr(tables, "now", lambda: datetime.fromtimestamp(found.model.clock.now(), UTC))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write()
    return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """Standard output and standard error are a terminal; its columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_terminal", lambda _: 80)
    return 80


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: its exit code, what it printed, and what it said."""

    def tool(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return tool
