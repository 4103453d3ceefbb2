"""The state of an account, as the guard's four clients return it, with optional errors; and CloudFormation's event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.foundation_guard.guard import Guard
from cdk_hyperpod._lambda.hyperpod.foundation_guard.settings import KIND, ImmutableSettings, write

Json = Any
STACK = "arn:aws:cloudformation:us-west-2:111122223333:stack/hyperpod-train-foundation/0a1b2c"
OWNER = "arn:aws:cloudformation:us-west-2:111122223333:stack/hyperpod-train-cluster/0a1b2c"
OURS = "subnet-00000000000000001"
"""Created by the foundation."""
THEIRS = "subnet-00000000000000002"
"""Created by another owner."""
SYSTEM = "fs-00000000000000001"


def immutable_settings(**more: Any) -> ImmutableSettings:
    """The contents of `FakeAccount()`."""
    given: dict[str, Any] = {"zone": "us-west-2c", "cidr": "10.0.64.0/19", "efa": False, **more}
    return ImmutableSettings(
        cluster="train", cluster_stack="hyperpod-train-cluster", **{"orchestrator": "slurm", **given}
    )


def error(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")


@dataclass
class FakeAccount:
    """A cluster and a file system without EFA, in the first subnet. The second subnet is in another VPC."""

    status: str = "UPDATE_IN_PROGRESS"
    orchestrator: Json = field(default_factory=lambda: {"Slurm": {}})
    """None: there is no cluster."""
    tags: dict[str, str] = field(default_factory=lambda: {"cdk-hyperpod:stack-id": OWNER})
    cluster_subnet: str = OURS
    efa: bool | None = False
    """None: the stack has no file system."""
    system_subnet: str = OURS
    system_status: str = "AVAILABLE"
    resource_status: str = "CREATE_COMPLETE"
    errors: dict[str, ClientError] = field(default_factory=dict)
    """By operation."""
    until: datetime | None = None
    """When the errors end. Absent: never."""
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    calls: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def guard(self) -> Guard:
        return Guard(lambda _service: self, now=lambda: self.now, sleep=self._pass, log=self.said.append)

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.errors and (self.until is None or self.now < self.until):
            raise self.errors[operation]

    def describe_stacks(self, *, StackName: str) -> Json:
        assert StackName == STACK
        self._called("describe_stacks")
        return {"Stacks": [{"StackStatus": self.status}]}

    def list_stack_resources(self, *, StackName: str, NextToken: str = "") -> Json:
        assert StackName == STACK
        self._called("list_stack_resources")
        pages = [
            [("AWS::EC2::Subnet", OURS), ("AWS::IAM::Role", "")],
            [("AWS::FSx::FileSystem", SYSTEM)] if self.efa is not None else [],
        ]
        rows = [
            {"ResourceType": kind, "PhysicalResourceId": id, "ResourceStatus": self.resource_status}
            for kind, id in pages[len(NextToken)]
        ]
        return {"StackResourceSummaries": rows, **({} if NextToken else {"NextToken": "x"})}

    def describe_cluster(self, *, ClusterName: str) -> Json:
        self._called("describe_cluster")
        if self.orchestrator is None:
            raise error("ResourceNotFound")
        return {
            "ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abc",
            "Orchestrator": self.orchestrator,
            "VpcConfig": {"Subnets": [self.cluster_subnet], "SecurityGroupIds": ["sg-1"]},
        }

    def list_tags(self, *, ResourceArn: str, NextToken: str = "") -> Json:
        self._called("list_tags")
        return {"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]}

    def describe_subnets(self, *, SubnetIds: Sequence[str]) -> Json:
        self._called("describe_subnets")
        (id,) = SubnetIds
        zone = {"AvailabilityZone": "us-west-2c", "AvailabilityZoneId": "usw2-az3"}
        vpc = "vpc-1" if id == OURS else "vpc-2"
        return {"Subnets": [{"SubnetId": id, **zone, "CidrBlock": "10.0.64.0/19", "VpcId": vpc}]}

    def describe_file_systems(self, *, FileSystemIds: Sequence[str]) -> Json:
        self._called("describe_file_systems")
        assert list(FileSystemIds) == [SYSTEM]
        lustre = {"EfaEnabled": True} if self.efa else {}
        found = {"Lifecycle": self.system_status, "SubnetIds": [self.system_subnet], "LustreConfiguration": lustre}
        return {"FileSystems": [found]}


def event(wanted: ImmutableSettings, request: str = "Update") -> Json:
    return {
        "RequestType": request,
        "ResponseURL": "https://secret.example.com",
        "StackId": STACK,
        "RequestId": "request",
        "LogicalResourceId": "Guard",
        "ResourceType": KIND,
        "ResourceProperties": {"ServiceToken": "function", "ServiceTimeout": "1200", **write(wanted)},
    }
