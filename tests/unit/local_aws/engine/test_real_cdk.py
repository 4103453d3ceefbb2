"""The real CDK CLI with CDK's own custom resources, and IAM for everything that the functions do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdk_hyperpod_local.cdk import Cdk
from cdk_hyperpod_local.session import LocalAws
from helpers.local_aws import templates

Json = Any


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    path = Path(__file__).parent / "app" / "app.py"
    spec = importlib.util.spec_from_file_location("sample_app", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def left(aws: LocalAws) -> dict[str, set[str]]:
    """Everything in the account that a stack of the sample could leave."""
    ec2, lists = aws.client("ec2"), {}
    lists["vpcs"] = {item["VpcId"] for item in ec2.describe_vpcs()["Vpcs"]}
    lists["subnets"] = {item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]}
    lists["groups"] = {item["GroupId"] for item in ec2.describe_security_groups()["SecurityGroups"]}
    lists["interfaces"] = {i["NetworkInterfaceId"] for i in ec2.describe_network_interfaces()["NetworkInterfaces"]}
    lists["addresses"] = {item["PublicIp"] for item in ec2.describe_addresses()["Addresses"]}
    lists["gateways"] = {item["NatGatewayId"] for item in ec2.describe_nat_gateways()["NatGateways"]}
    lists["flow logs"] = {item["FlowLogId"] for item in ec2.describe_flow_logs()["FlowLogs"]}
    lists["file systems"] = {item["FileSystemId"] for item in aws.client("fsx").describe_file_systems()["FileSystems"]}
    lists["clusters"] = {item["ClusterArn"] for item in aws.client("sagemaker").list_clusters()["ClusterSummaries"]}
    lists["buckets"] = {item["Name"] for item in aws.client("s3").list_buckets()["Buckets"]}
    lists["functions"] = {item["FunctionName"] for item in aws.client("lambda").list_functions()["Functions"]}
    lists["machines"] = {item["name"] for item in aws.client("stepfunctions").list_state_machines()["stateMachines"]}
    lists["roles"] = {item["RoleName"] for item in aws.client("iam").list_roles()["Roles"]}
    lists["policies"] = {item["PolicyName"] for item in aws.client("iam").list_policies(Scope="Local")["Policies"]}
    lists["parameters"] = {item["Name"] for item in aws.client("ssm").describe_parameters()["Parameters"]}
    return lists


@pytest.fixture(scope="module")
def before(engine: LocalAws) -> dict[str, set[str]]:
    return left(engine)


@pytest.fixture(scope="module")
def foundation(
    engine: LocalAws, sample: ModuleType, before: dict[str, set[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The sample's assembly, with its first stack deployed."""
    assembly: Path = sample.build(tmp_path_factory.mktemp("sample"))
    made = Cdk(place=engine.place, region=engine.region).deploy(assembly, only="sample-foundation", seconds=120)
    assert made.ok, made.reason
    return assembly


@pytest.mark.parametrize("action", ["sagemaker:DescribeCluster", "sagemaker:ListClusterNodes"])
@pytest.mark.usefixtures("foundation")
def test_every_right_is_needed(engine: LocalAws, sample: ModuleType, tmp_path: Path, action: str) -> None:
    assert action in sample.ACTIONS
    since = len(engine.journal())
    assembly = sample.build(tmp_path / "cdk.out", denied=action)
    failed = Cdk(place=engine.place, region=engine.region).deploy(assembly, only="sample-cluster", seconds=120)
    assert not failed.ok
    assert f"is not authorized to perform: {action}" in " ".join(failed.reason.split())
    refused = engine.journal(since=since, operation=action.partition(":")[2])
    assert {entry.outcome for entry in refused} == {"AccessDeniedException"}
    assert all(":assumed-role/" in entry.who for entry in refused)
    assert templates.delete(engine, "sample-cluster").status == "DELETE_COMPLETE"


def test_deploy_and_destroy_leave_nothing(engine: LocalAws, foundation: Path, before: dict[str, set[str]]) -> None:
    since = len(engine.journal())
    made = Cdk(place=engine.place, region=engine.region).deploy(foundation, only="sample-cluster", seconds=120)
    assert made.ok, made.reason
    assert "sample-cluster.Running = 3" in made.output
    calls = [(entry.who, entry.operation) for entry in engine.journal(since=since)]
    assert [operation for who, operation in calls if who == "cloudformation.amazonaws.com"] == ["CreateCluster"]
    asking = {who.split("/")[1][:29] for who, operation in calls if operation == "ListClusterNodes"}
    assert asking == {"sample-cluster-iscompleteServ"}, "the function's own role asks, nobody else"
    # Without the CLI, which polls every five seconds. tests/deployments destroys with it.
    cloudformation = engine.client("cloudformation")
    for name in ("sample-cluster", "sample-foundation"):
        cloudformation.update_termination_protection(StackName=name, EnableTerminationProtection=False)
        gone = templates.delete(engine, name)
        assert gone.status == "DELETE_COMPLETE", gone.reasons
    after = left(engine)
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] - before[kind]} == {}
