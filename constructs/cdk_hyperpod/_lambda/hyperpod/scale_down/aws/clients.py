"""The calls of the scale-down, as protocols; what it reads by them, and what it says of their errors; and Services: all that it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from ...common import api
from ...common.api import Reads, Reply
from ...kernel import sentences
from ...kernel.text import one_line
from .. import messages
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
            api.read_tags(sagemaker, cluster["ClusterArn"]) if tags else None,
        )
    except api.CALL_ERRORS as error:
        if api.is_not_found(error):
            return None
        raise


def read_nodes(sagemaker: Reads, name: str) -> list[Reply]:
    """Every node, those not launched yet included."""
    arguments = {"ClusterName": name, "MaxResults": PAGE_SIZE, "IncludeNodeLogicalIds": True}
    return list(api.pages(sagemaker.list_cluster_nodes, "ClusterNodeSummaries", arguments))


def read_events(cloudformation: CloudFormation, stack: str) -> Iterator[Reply]:
    """The stack's events that report a new status, newest first."""
    return filter(has_new_status, api.pages(cloudformation.describe_stack_events, "StackEvents", {"StackName": stack}))


READ_PATIENCE = timedelta(minutes=2)
"""How long a read is repeated, because AWS throttles or a permission is on its way. The function has ten minutes."""

_Found = TypeVar("_Found")


@dataclass(kw_only=True)
class Services:
    """Clients are made when they are needed: most polls need no CloudFormation, and only draining needs S3 and Lambda
    (`functions`)."""

    sagemaker: Callable[[], Client]
    cloudformation: Callable[[], CloudFormation]
    s3: Callable[[], S3]
    functions: Callable[[], Lambda]
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    """Takes seconds."""
    write_line: Callable[[str], None]

    def log(self, text: str) -> None:
        """One line in the log."""
        self.write_line(one_line(text))

    def read_cluster(self, name: str, *, tags: bool) -> Cluster | None:
        """The live cluster. None: no cluster has that name. Raises api.CALL_ERRORS."""
        return read_live(self.sagemaker(), name, tags=tags)

    def read_stack(self, stack: str) -> Mapping[str, Any]:
        """The stack as DescribeStacks shows it. Raises api.CALL_ERRORS."""
        found: Mapping[str, Any] = self.cloudformation().describe_stacks(StackName=stack)["Stacks"][0]
        return found

    def read_events(self, stack: str) -> Iterator[Mapping[str, Any]]:
        """The stack's events, newest first; pages are read when they are needed. Raises api.CALL_ERRORS."""
        return read_events(self.cloudformation(), stack)

    def read_template(self, stack: str) -> object:
        """The stack's template. Raises api.CALL_ERRORS."""
        return self.cloudformation().get_template(StackName=stack)["TemplateBody"]

    def retry(self, read: Callable[[], _Found], until: Callable[[Exception], datetime]) -> _Found:
        """What `read` finds, repeated with growing pauses. `until`: the end of the time for reads that fail with this error."""
        return api.again(read, until, now=self.now, sleep=self.sleep, log=self.log)

    def read_patiently(self, read: Callable[[], _Found], *, began: datetime) -> _Found:
        """The same for READ_PATIENCE, and for at most twice that after the request began. Every error is repeated."""
        until = min(self.now() + READ_PATIENCE, began + 2 * READ_PATIENCE)
        return self.retry(read, lambda _: until)

    def wait_until(self, time: datetime) -> None:
        """Returns at once if the time is over."""
        self.sleep(max(0.0, (time - self.now()).total_seconds()))


_READS = {
    "DescribeStacks": "Reading the stack's status (cloudformation:DescribeStacks)",
    "DescribeStackEvents": "Reading the stack's events (cloudformation:DescribeStackEvents)",
    "GetTemplate": "Reading the stack's template (cloudformation:GetTemplate)",
    "GetObject": "Reading the status of the drain agent",
    "PutObject": "Sending the drain request",
}


def read_failed(error: Exception) -> list[str]:
    """The reasons after a read that failed."""
    call = _READS.get(getattr(error, "operation_name", ""), "Reading the cluster")
    return _reasons(call, error, sentences.DENIED_HINT)


def change_failed(cluster: str, call: str, error: Exception, *, rolling_back: bool) -> list[str]:
    """The reasons after a change that AWS rejected."""
    if api.needs_software_update(error):
        then = "continue the rollback" if rolling_back else "deploy again"
        return messages.failures.as_reasons(messages.failures.software_update(cluster, then))
    hint = sentences.DENIED_HINT if rolling_back else messages.failures.FIRST_HINT
    return _reasons(call, error, hint)


def _reasons(call: str, error: Exception, hint: str) -> list[str]:
    """`hint`: what to do if a permission is missing."""
    reason = f"{call}: {api.reason(error)}"
    return [reason, hint] if api.is_denied(error) else [reason]
