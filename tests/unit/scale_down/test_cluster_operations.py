"""HyperPod's record of operations: whose it waits for, and that nothing depends on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, PaginationError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.scale_down.aws.cluster_operations import (
    Operation,
    lowered_by_another,
    read_operation,
    read_operations,
)
from cdk_hyperpod._lambda.hyperpod.scale_down.messages import waits
from helpers.scale_down.clusters import START
from helpers.scale_down.scenarios import QUICK, before_poll, ended, ids
from helpers.scale_down.stack import Stack, Template, group

ARN = "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl"
ID = "0a1b2c3d-0000-1111-2222-333344445555"


def detail(group: str = "p5", before: int | None = 8, after: int | None = 6, status: str = "InProgress") -> Any:
    return {
        "InstanceGroupName": group,
        "Status": status,
        "Original": {"TargetCount": before},
        "Desired": {"TargetCount": after},
    }


def described(*details: Any, status: str = "InProgress", **more: Any) -> Any:
    return {
        "OperationId": ID,
        "ClusterArn": ARN,
        "Type": "Scaling",
        "Status": status,
        "CreationTime": START,
        "ScalingDetails": list(details),
        **more,
    }


class Record:
    """What HyperPod says of its operations."""

    def __init__(self, *operations: Any, error: Exception | None = None, endless: bool = False) -> None:
        self.operations, self.error, self.endless, self.calls = operations, error, endless, 0

    def list_cluster_operations(self, **_: Any) -> Any:
        self.calls += 1
        if self.error:
            raise self.error
        summaries = [{key: each[key] for key in ("OperationId", "ClusterArn")} for each in self.operations]
        return {
            "ClusterOperationSummaries": summaries,
            **({"NextToken": f"after {self.calls}"} if self.endless else {}),
        }

    def describe_cluster_operation(self, *, ClusterName: str, OperationId: str) -> Any:
        self.calls += 1
        return next(each for each in self.operations if each["OperationId"] == OperationId)


class Denied:
    """A client whose principal may not read the record."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return self._no if name.endswith(("_operations", "_operation")) else getattr(self._client, name)

    def _no(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListClusterOperations")


def test_an_operation_that_lowers_the_same_group_is_waited_for_and_named() -> None:
    found = read_operations(Record(described(detail(), detail("trn1", 2, 4))), "train", ARN)
    assert found == [Operation(ID, START, {"p5": (8, 6)})]
    assert lowered_by_another(found, {"p5"}, None) == waits.operation_in_progress(ID, START, "p5", 8, 6)


@pytest.mark.parametrize(
    "reply",
    [
        described(detail(before=6, after=8)),
        described(detail(before=6, after=6)),
        described(detail("other")),
        described(detail(status="Done")),
        described(detail(status="Superseded")),
        described(detail(before=None)),
        described(detail(), status="Done"),
        described(detail(), status="Superseded"),
        described(),
        described(detail(), CreationTime=None),
        described(detail(), OperationId="\x1b[2J"),
        described({"InstanceGroupName": "p5"}),
    ],
)
def test_an_operation_of_another_kind_delays_nothing(reply: Any) -> None:
    found = read_operation(reply)
    assert lowered_by_another([found] if found else [], {"p5"}, None) is None


def test_the_guards_own_operations_are_those_begun_after_its_own_call() -> None:
    operation = Operation(ID, START, {"p5": (8, 6)})
    assert lowered_by_another([operation], {"p5"}, START) is None
    assert lowered_by_another([operation], {"p5"}, START + timedelta(seconds=1)) is not None


def test_an_operation_of_another_cluster_is_not_read() -> None:
    assert read_operations(Record(described(detail(), ClusterArn=f"{ARN}x")), "train", ARN) == []


def test_an_empty_record_says_nothing() -> None:
    assert read_operations(Record(), "train", ARN) == []


def test_reading_endless_pages_of_operations_ends() -> None:
    record = Record(described(detail()), endless=True)
    assert len(read_operations(record, "train", ARN)) == 3
    assert record.calls == 6


def test_a_token_that_comes_again_ends_the_pages() -> None:
    record = Record(described(detail()), endless=True)
    record.list_cluster_operations = lambda **_: {"NextToken": "more"}  # type: ignore[method-assign]
    with pytest.raises(PaginationError):
        read_operations(record, "train", ARN)


def test_a_denied_record_is_the_callers() -> None:
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListClusterOperations")
    with pytest.raises(ClientError):
        read_operations(Record(error=denied), "train", ARN)


# -- on the local AWS's HyperPod ---------------------------------------------------------------------------------------


def lowering(train: Stack, count: int) -> None:
    """Somebody lowers the group of eight by hand."""
    train.hyperpod.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": [group("p5", count)]})


def took(train: Stack, began: float) -> float:
    """Seconds until the function's own call."""
    calls = [each.at for each in train.hyperpod.journal if each.operation == "BatchDeleteClusterNodes"]
    return calls[0] - began


@pytest.mark.parametrize("denied", [False, True])
def test_a_deployment_waits_ten_minutes_at_most_and_takes_the_same_nodes(denied: bool) -> None:
    train = Stack(Template(groups=(group("p5", 8),)), timings=QUICK, poll=60)
    lowering(train, 7)
    client = train.client
    if denied:
        train.client = Denied(client)  # type: ignore[assignment]
    began = train.hyperpod.clock.now()
    assert train.deploy(Template(groups=(group("p5", 5),))) == "complete", train.reasons
    assert len([node for node in train.hyperpod.nodes("train", "p5") if node.live]) == 5
    said = [line for line in train.log if "lowers group" in line]
    assert bool(said) is not denied
    assert took(train, began) <= 12 * 60


def tells(train: Stack, reply: Any) -> None:
    """HyperPod's record has this one operation from now on."""
    arn = train.client.describe_cluster(ClusterName="train")["ClusterArn"]
    record: Any = Record({**reply, "ClusterArn": arn})
    client: Any = train.client
    client.list_cluster_operations = record.list_cluster_operations
    client.describe_cluster_operation = record.describe_cluster_operation


def test_an_operation_begun_before_the_guards_first_call_belongs_to_another_party() -> None:
    """A person deletes one of the nodes that the guard was about to delete."""
    train = Stack(Template(groups=(group("p5", 8),)), timings=QUICK, poll=60)
    *_, second, first = ids(train, "p5")

    def deletes() -> None:
        train.hyperpod.client(principal="somebody").batch_delete_cluster_nodes(ClusterName="train", NodeIds=[first])
        tells(train, described(detail(before=8, after=7), CreationTime=train.now()))

    before_poll(train, 0, deletes)
    assert train.deploy(Template(groups=(group("p5", 6),), nodes_to_delete=(first, second))) == "complete", (
        train.reasons
    )
    assert ended(train) == {first, second}
    assert any('lowers group "p5" from 8 to 7' in line for line in train.log)


@pytest.mark.parametrize(
    "reply",
    [
        described("text"),
        described({"InstanceGroupName": "p5", "Original": "text", "Desired": {}}),
        described({"InstanceGroupName": "p5", "Original": {"TargetCount": "8"}, "Desired": {"TargetCount": 6}}),
        described(detail(), CreationTime=START.replace(tzinfo=None)),
    ],
)
def test_a_record_that_makes_no_sense_ends_no_deployment(reply: Any) -> None:
    train = Stack(Template(groups=(group("p5", 8),)), timings=QUICK)
    tells(train, reply)
    assert train.deploy(Template(groups=(group("p5", 7),))) == "complete", train.reasons
