"""The pinned API model of SageMaker: what the tool makes now, and as good as the stock client for every call that is made."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore import xform_name
from botocore.stub import Stubber  # type: ignore[import-untyped]

from cdk_hyperpod._common.assets import models_dir
from cdk_hyperpod._lambda.hyperpod.common import api, clients
from cdk_hyperpod._lambda.hyperpod.foundation_guard import look
from cdk_hyperpod._lambda.hyperpod.scale_down.aws import clients as scale_down
from cdk_hyperpod.cli import frame
from cdk_hyperpod.cli.commands import COMMANDS
from tools import trim_model

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("describe_cluster", {"ClusterName": "train"}),
    (
        "list_cluster_nodes",
        {"ClusterName": "train", "MaxResults": 100, "IncludeNodeLogicalIds": True, "NextToken": "t"},
    ),
    ("describe_cluster_node", {"ClusterName": "train", "NodeId": "i-0123456789abcdef0"}),
    ("list_cluster_operations", {"ClusterName": "train", "Status": "InProgress", "NextToken": "t"}),
    (
        "describe_cluster_operation",
        {"ClusterName": "train", "OperationId": "0a1b2c3d-0000-1111-2222-333344445555"},
    ),
    ("list_tags", {"ResourceArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"}),
    (
        "batch_delete_cluster_nodes",
        {"ClusterName": "train", "NodeIds": ["i-0123456789abcdef0"], "NodeLogicalIds": ["p5-1"]},
    ),
    (
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
    ("batch_reboot_cluster_nodes", {"ClusterName": "train", "NodeIds": ["i-0123456789abcdef0"]}),
    ("batch_replace_cluster_nodes", {"ClusterName": "train", "NodeIds": ["i-0123456789abcdef0"]}),
    ("describe_cluster_event", {"ClusterName": "train", "EventId": "0a1b2c3d-0000-1111-2222-333344445555"}),
    ("describe_training_plan", {"TrainingPlanName": "plan"}),
    ("list_cluster_events", {"ClusterName": "train", "NodeId": "i-0123456789abcdef0", "NextToken": "t"}),
    ("list_clusters", {"NextToken": "t"}),
    ("update_cluster_software", {"ClusterName": "train", "InstanceGroups": [{"InstanceGroupName": "p5"}]}),
]


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    clients.client.cache_clear()
    yield
    clients.client.cache_clear()


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


def test_the_committed_file_is_what_the_tool_makes() -> None:
    assert trim_model.FILE.read_text(encoding="utf-8") == trim_model.make(), "run python tools/trim_model.py"
    assert [path for path in models_dir().rglob("*") if path.is_file()] == [trim_model.FILE]


def test_the_pin_holds_every_call_that_the_function_and_the_commands_make() -> None:
    commands = [frame.tool.get_command(None, name) for names in COMMANDS.values() for name in names]  # type: ignore[arg-type]
    helps = [f"{command.help} {command.epilog}" for command in commands if command]
    documented = {name for text in helps for name in re.findall(r"\bsagemaker:(\w+)", text)}
    asked = operations(api.Reads, scale_down.Writes, scale_down.Nodes, scale_down.Operations) | documented
    assert sorted(asked) == sorted(trim_model.OPERATIONS)


def test_the_test_tries_every_call() -> None:
    assert sorted(method for method, _ in CALLS) == sorted(xform_name(name) for name in trim_model.OPERATIONS)


@pytest.mark.parametrize(
    ("service", "protocols"),
    [
        ("cloudformation", [scale_down.CloudFormation, look.Stack]),
        ("ec2", [look.Network]),
        ("fsx", [look.Storage]),
        ("lambda", [scale_down.Lambda]),
        ("s3", [scale_down.S3]),
    ],
)
def test_the_other_services_are_botocores_own(service: str, protocols: list[type]) -> None:
    model = clients.client(service).meta.service_model
    assert operations(*protocols) <= {*model.operation_names}
    assert len(model.operation_names) > 40


def operations(*protocols: type) -> set[str]:
    """The API's names of what protocols declare."""
    return {
        "".join(part.capitalize() for part in name.split("_"))
        for protocol in protocols
        for name, _ in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }


def test_members_that_older_runtimes_lack_are_pinned() -> None:
    shapes = json.loads(trim_model.make())["shapes"]
    assert "MinInstanceCount" in shapes["ClusterInstanceGroupSpecification"]["members"]
    assert "MinCount" in shapes["ClusterInstanceGroupDetails"]["members"]
    assert "InstanceGroupsToDelete" in shapes["UpdateClusterRequest"]["members"]
    assert "NodeLogicalIds" in shapes["BatchDeleteClusterNodesRequest"]["members"]


@pytest.mark.parametrize(("method", "arguments"), CALLS, ids=[call[0] for call in CALLS])
def test_same_request_as_the_stock_client(method: str, arguments: dict[str, Any]) -> None:
    stock = botocore.session.Session().create_client("sagemaker")
    ours = clients.client("sagemaker")
    assert request(ours, method, arguments) == request(stock, method, arguments)


@pytest.mark.parametrize("service", ["sagemaker", "cloudformation", "ec2", "fsx", "lambda", "s3"])
def test_endpoint_of_the_environment_is_honoured(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:4566")
    assert clients.client(service).meta.endpoint_url == "https://127.0.0.1:4566"


def test_client_is_made_once() -> None:
    assert clients.client("sagemaker") is clients.client("sagemaker")


def test_errors_come_with_their_codes() -> None:
    client = clients.client("sagemaker")
    with Stubber(client) as stub:
        stub.add_client_error("list_cluster_nodes", "ResourceNotFound", "no such cluster", 400)
        assert scale_down.read_live(client, "train") is None
