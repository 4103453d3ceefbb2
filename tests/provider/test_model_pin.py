"""The pinned API models: what the tool makes now, and as good as the stock client for every call that is made."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.stub import Stubber  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod_provider import api, handler
from cdk_hyperpod._lambda.hyperpod_provider.foundation_guard import look
from tools import trim_model

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("sagemaker", "describe_cluster", {"ClusterName": "train"}),
    (
        "sagemaker",
        "list_cluster_nodes",
        {"ClusterName": "train", "MaxResults": 100, "IncludeNodeLogicalIds": True, "NextToken": "t"},
    ),
    ("sagemaker", "describe_cluster_node", {"ClusterName": "train", "NodeId": "i-0123456789abcdef0"}),
    ("sagemaker", "list_cluster_operations", {"ClusterName": "train", "Status": "InProgress", "NextToken": "t"}),
    (
        "sagemaker",
        "describe_cluster_operation",
        {"ClusterName": "train", "OperationId": "0a1b2c3d-0000-1111-2222-333344445555"},
    ),
    ("sagemaker", "list_tags", {"ResourceArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"}),
    (
        "sagemaker",
        "batch_delete_cluster_nodes",
        {"ClusterName": "train", "NodeIds": ["i-0123456789abcdef0"], "NodeLogicalIds": ["p5-1"]},
    ),
    (
        "sagemaker",
        "update_cluster",
        {
            "ClusterName": "train",
            "InstanceGroups": [
                {
                    "InstanceGroupName": "p5",
                    "InstanceCount": 3,
                    "MinInstanceCount": 1,
                    "InstanceType": "ml.p5.48xlarge",
                    "ExecutionRole": "arn:aws:iam::111122223333:role/node",
                    "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["p5"]},
                    "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}],
                }
            ],
            "InstanceGroupsToDelete": ["old"],
        },
    ),
    (
        "lambda",
        "invoke",
        {"FunctionName": "arn:aws:lambda:us-west-2:111122223333:function:hyperpod-train-drainer", "Payload": b"{}"},
    ),
    ("s3", "get_object", {"Bucket": "hyperpod-drain-train-111122223333-us-west-2", "Key": "train/status.json"}),
    (
        "s3",
        "put_object",
        {
            "Bucket": "hyperpod-drain-train-111122223333-us-west-2",
            "Key": "train/requests/deployment.json",
            "Body": b"{}",
            "ContentType": "application/json",
        },
    ),
    ("cloudformation", "describe_stacks", {"StackName": "train"}),
    ("cloudformation", "describe_stack_events", {"StackName": "train", "NextToken": "t"}),
    ("cloudformation", "get_template", {"StackName": "train"}),
    ("cloudformation", "list_stack_resources", {"StackName": "train", "NextToken": "t"}),
    ("ec2", "describe_subnets", {"SubnetIds": ["subnet-0123456789abcdef0"]}),
    ("fsx", "describe_file_systems", {"FileSystemIds": ["fs-0123456789abcdef0"]}),
]


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def request(client: Any, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the client would send: address, body and the headers that carry meaning."""
    sent: list[Any] = []

    class Stop(Exception):
        pass

    def stop(request: Any, **_: Any) -> None:
        sent.append(request)
        raise Stop

    client.meta.events.register("before-send", stop)
    with pytest.raises(Stop):
        getattr(client, method)(**arguments)
    (found,) = sent
    authorization = found.headers["Authorization"]
    authorization = authorization.decode() if isinstance(authorization, bytes) else authorization
    scope = re.search(r"Credential=none/\d+/([^,]+)", authorization)
    assert scope
    names = ("X-Amz-Target", "Content-Type")
    return {
        "url": found.url,
        "method": found.method,
        "body": found.body.read() if hasattr(found.body, "read") else found.body,
        "scope": scope[1],
        **{name: found.headers.get(name) for name in names},
    }


def test_committed_files_are_what_the_tool_makes() -> None:
    made = trim_model.make()
    committed = {
        str(path.relative_to(trim_model.FOLDER)): path.read_text(encoding="utf-8")
        for path in trim_model.FOLDER.rglob("*")
        if path.is_file()
    }
    assert committed.keys() == made.keys(), "run python tools/trim_model.py"
    assert committed == made, "run python tools/trim_model.py"


def test_the_commands_pin_is_what_the_tool_makes() -> None:
    committed = {
        str(path.relative_to(trim_model.CLI_FOLDER)): path.read_text(encoding="utf-8")
        for path in trim_model.CLI_FOLDER.rglob("*.json")
    }
    assert committed == trim_model.make_for_commands(), "run python tools/trim_model.py"


def test_pin_holds_every_call_that_the_package_declares() -> None:
    declared = {
        "".join(part.capitalize() for part in name.split("_"))
        for protocol in (
            *(api.Reads, api.Writes, api.Nodes, api.Operations, api.S3, api.Lambda, api.CloudFormation),
            *(look.Stack, look.Network, look.Storage),
        )
        for name, _ in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }
    asked_by_plan = {"GetTemplate"}
    assert declared | asked_by_plan == {name for names in trim_model.OPERATIONS.values() for name in names}


def test_members_that_older_runtimes_lack_are_pinned() -> None:
    shapes = json.loads(trim_model.make()["sagemaker/2017-07-24/service-2.json"])["shapes"]
    assert "MinInstanceCount" in shapes["ClusterInstanceGroupSpecification"]["members"]
    assert "MinCount" in shapes["ClusterInstanceGroupDetails"]["members"]
    assert "InstanceGroupsToDelete" in shapes["UpdateClusterRequest"]["members"]
    assert "NodeLogicalIds" in shapes["BatchDeleteClusterNodesRequest"]["members"]


@pytest.mark.parametrize("place", ["us-west-2", "cn-north-1", "us-gov-west-1", "xx-new-9"])
@pytest.mark.parametrize(("service", "method", "arguments"), CALLS, ids=[call[1] for call in CALLS])
def test_same_request_as_the_stock_client(
    service: str, method: str, arguments: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", place)
    stock = botocore.session.Session().create_client(service)
    ours = handler.make_client(service)
    assert request(ours, method, arguments) == request(stock, method, arguments)


def test_endpoint_of_the_environment_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:4566")
    for service in trim_model.OPERATIONS:
        assert handler.make_client(service).meta.endpoint_url == "https://127.0.0.1:4566"


def test_client_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_clients", {})
    assert handler.client("sagemaker") is handler.client("sagemaker")


def test_errors_come_with_their_codes() -> None:
    client = handler.make_client("sagemaker")
    with Stubber(client) as stub:
        stub.add_client_error("list_cluster_nodes", "ResourceNotFound", "no such cluster", 400)
        assert api.read_live(client, "train") is None
