"""The calls of the scale-down, as protocols, and what it reads of a live cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...common.api import CALL_ERRORS, Reads, Reply, is_not_found, pages, read_tags
from ..model.cluster import Cluster
from ..model.live_cluster import read_cluster
from .stack_events import has_new_status

PAGE_SIZE = 100
"""Maximum of one ListClusterNodes (botocore: MaxResults)."""


class Writes(Protocol):
    """The write calls of a SageMaker client."""

    def batch_delete_cluster_nodes(
        self, *, ClusterName: str, NodeIds: Sequence[str] = ..., NodeLogicalIds: Sequence[str] = ...
    ) -> Reply: ...

    def update_cluster(
        self,
        *,
        ClusterName: str,
        InstanceGroups: Sequence[Mapping[str, Any]] = ...,
        InstanceGroupsToDelete: Sequence[str] = ...,
    ) -> Reply: ...


class SageMaker(Reads, Writes, Protocol):
    """Exactly the SageMaker calls of this package."""


class Nodes(Protocol):
    """The call that finds the address of a node that is drained."""

    def describe_cluster_node(self, *, ClusterName: str, NodeId: str) -> Reply: ...


class Operations(Protocol):
    """HyperPod's record of operations."""

    def list_cluster_operations(
        self,
        *,
        ClusterName: str,
        Status: str,
        Type: str,
        MaxResults: int,
        SortBy: str,
        SortOrder: str,
        NextToken: str = ...,
    ) -> Reply: ...

    def describe_cluster_operation(self, *, ClusterName: str, OperationId: str) -> Reply: ...


class Client(SageMaker, Nodes, Operations, Protocol):
    """A SageMaker client of a cluster whose nodes may be drained."""


class CloudFormation(Protocol):
    """Exactly the CloudFormation calls of this package."""

    def describe_stacks(self, *, StackName: str) -> Reply: ...

    def describe_stack_events(self, *, StackName: str, NextToken: str = ...) -> Reply: ...

    def get_template(self, *, StackName: str) -> Reply: ...


class S3(Protocol):
    """Exactly the S3 calls of this package."""

    def get_object(self, *, Bucket: str, Key: str) -> Reply: ...

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> Reply: ...


class Lambda(Protocol):
    """Exactly the Lambda calls of this package."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Reply: ...


def read_live(sagemaker: Reads, name: str, *, tags: bool = False) -> Cluster | None:
    """The live cluster. None: no cluster has that name, or it was deleted meanwhile.

    One ListClusterNodes for each 100 nodes, one DescribeCluster, with `tags` one ListTags. The counts come last: a node that
    boots or ends between the two calls makes them look too high, which is a reason to wait, and never too low.
    """
    try:
        nodes = read_nodes(sagemaker, name)
        cluster = sagemaker.describe_cluster(ClusterName=name)
        return read_cluster(
            cluster,
            nodes,
            read_tags(sagemaker, cluster["ClusterArn"]) if tags else None,
        )
    except CALL_ERRORS as error:
        if is_not_found(error):
            return None
        raise


def read_nodes(sagemaker: Reads, name: str) -> list[Reply]:
    """Every node, those not launched yet included."""
    arguments = {"ClusterName": name, "MaxResults": PAGE_SIZE, "IncludeNodeLogicalIds": True}
    return list(pages(sagemaker.list_cluster_nodes, "ClusterNodeSummaries", arguments))


def read_events(cloudformation: CloudFormation, stack: str) -> Iterator[Reply]:
    """The stack's events that report a new status, newest first."""
    return filter(has_new_status, pages(cloudformation.describe_stack_events, "StackEvents", {"StackName": stack}))
