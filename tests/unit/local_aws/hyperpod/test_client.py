"""The protocol in bytes, and the replacement of boto3's client that uses it."""

from __future__ import annotations

import json
from collections.abc import Callable

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError, ParamValidationError  # type: ignore[import-untyped]
from botocore.stub import Stubber  # type: ignore[import-untyped]

from cdk_hyperpod_local.hyperpod import OPERATIONS, HyperPod, handle_json
from cdk_hyperpod_local.hyperpod.client import METHODS
from cdk_hyperpod_local.hyperpod.samples import group, slurm

Make = Callable[..., HyperPod]


def test_a_request_in_bytes_is_answered_in_bytes(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    status, headers, body = handle_json(
        hyperpod, "SageMaker.DescribeCluster", b'{"ClusterName": "train"}', principal="me"
    )
    answer = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/x-amz-json-1.1")
    assert isinstance(answer["CreationTime"], float) and answer["ClusterName"] == "train"
    assert hyperpod.journal[-1].principal == "me"


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("SageMaker.DescribeCluster", b'{"ClusterName": "nope"}', "ResourceNotFound"),
        ("SageMaker.DescribeCluster", b"{", "SerializationException"),
        ("SageMaker.DescribeCluster", b"[]", "SerializationException"),
        ("SageMaker.DescribeCluster", b"", "ValidationException"),
        ("SageMaker.CreateModel", b"{}", "UnknownOperationException"),
    ],
)
def test_errors_are_replies_with_a_code_and_a_message(make: Make, target: str, body: bytes, code: str) -> None:
    status, _, answer = handle_json(make(), target, body)
    assert status == 400
    assert json.loads(answer)["__type"] == code
    assert json.loads(answer)["message"] == json.loads(answer)["Message"] != ""


def test_method_names_are_those_of_boto3() -> None:
    real = boto3.client("sagemaker", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
    mapping = real.meta.method_to_api_mapping
    assert {name: mapping[name] for name in METHODS} == METHODS
    assert set(METHODS.values()) == set(OPERATIONS)


def test_responses_are_as_botocore_parses_them(ready: Make) -> None:
    client = ready(slurm(group("p5", 1))).client()
    shown = client.describe_cluster(ClusterName="train")
    assert shown["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert shown["CreationTime"].tzinfo is not None
    real = boto3.client("sagemaker", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
    nodes = client.list_cluster_nodes(ClusterName="train")
    with Stubber(real) as stub:
        stub.add_response("list_cluster_nodes", nodes)
        assert real.list_cluster_nodes(ClusterName="train") == nodes


def test_errors_are_botocores_own(ready: Make) -> None:
    client = ready(slurm(group("p5", 1))).client()
    with pytest.raises(client.exceptions.ResourceNotFound) as missing:
        client.describe_cluster(ClusterName="nope")
    assert isinstance(missing.value, ClientError)
    assert missing.value.response["Error"] == {
        "Code": "ResourceNotFound",
        "Message": "Could not find the cluster 'nope'",
    }
    assert missing.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert str(missing.value) == (
        "An error occurred (ResourceNotFound) when calling the DescribeCluster operation: Could not find the cluster 'nope'"
    )
    with pytest.raises(ClientError) as wrong:
        client.batch_delete_cluster_nodes(ClusterName="train", NodeIds=["i-00000000000000000"])
    assert wrong.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(AttributeError):
        _ = client.exceptions.ValidationException


def test_parameters_are_checked_before_anything_is_sent(ready: Make) -> None:
    hyperpod = ready(slurm(group("p5", 1)))
    before = len(hyperpod.journal)
    for params in (
        {},
        {"ClusterName": "train", "NodeIds": []},
        {"ClusterName": "train", "Ids": ["x"]},
        {"ClusterName": 5},
    ):
        with pytest.raises(ParamValidationError):
            hyperpod.client().batch_delete_cluster_nodes(**params)
    assert len(hyperpod.journal) == before


def test_an_operation_that_is_not_simulated_raises_attribute_error(make: Make) -> None:
    with pytest.raises(AttributeError, match="the simulated client has no create_model; it has add_tags, "):
        make().client().create_model()
