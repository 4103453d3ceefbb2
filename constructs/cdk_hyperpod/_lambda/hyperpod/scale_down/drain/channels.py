"""How a drain request is sent and its status read: by a bucket that an agent reads (docs/adr/0014), or by a function
(docs/adr/0015).

Both take the same request and report the same status. The agent answers later, by an object that stays. The drainer of an EKS
cluster answers at once, and knows of an earlier request only what is written on the nodes.
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

from ...common import api
from ...kernel.drain_protocol import (
    MAX_STATUS_BYTES,
    NO_TIME,
    NOT_RELEASED,
    SCHEMA,
    Status,
    StatusError,
    check_status,
    parse_object,
    parse_status,
    request_key,
    status_key,
)
from ...kernel.text import one_line
from ..aws import clients
from .readiness import AgentStatus

Request = Mapping[str, Any]


class Channel(Protocol):
    """The channel of one cluster, during one run of the function. Its calls raise api.CALL_ERRORS."""

    def read(self) -> AgentStatus:
        """The current status. Raises UnansweredError if there is no usable status."""

    def write(self, request: Request) -> AgentStatus | None:
        """Replace the request before. None: the status comes by a later read."""

    def find(self, node: str, status: AgentStatus) -> str | None:
        """The address of a node for a request; empty: it needs none. None: the node cannot be requested yet, or not any more."""

    def excuse(self, error: Exception) -> AgentStatus | None:
        """The status if a call failed because nothing answers. None: AWS rejected it."""


class UnansweredError(BotoCoreError):  # type: ignore[misc]
    """A read without an answer. Only after readiness.SILENT_AFTER without one, the agent or the drainer counts as silent."""

    fmt = "{why}"


class NoStatusError(UnansweredError):
    """The agent has never written a status, or S3 does not show it just now."""


class BucketChannel:
    """The channel to the agent on a Slurm controller."""

    def __init__(
        self, bucket: str, cluster: str, s3: Callable[[], clients.S3], sagemaker: Callable[[], clients.Nodes]
    ) -> None:
        self._bucket, self._cluster, self._s3, self._sagemaker = bucket, cluster, s3, sagemaker
        self._addresses: dict[str, str] = {}

    def read(self) -> AgentStatus:
        try:
            reply = self._s3().get_object(Bucket=self._bucket, Key=status_key(self._cluster))
        except api.CALL_ERRORS as error:
            if api.code(error) != "NoSuchKey":
                raise
            raise NoStatusError(why="has never reported") from None
        content = reply["Body"].read(MAX_STATUS_BYTES)
        # botocore does not compare the two if read() has an amount.
        if len(content) != reply["ContentLength"]:
            raise UnansweredError(why=f"has a status of which only {len(content)} bytes came")
        sent = reply["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parse(content, email.utils.parsedate_to_datetime(sent).timestamp())

    def write(self, request: Request) -> None:
        self._s3().put_object(
            Bucket=self._bucket,
            Key=request_key(self._cluster, "deployment"),
            Body=json.dumps(request).encode(),
            ContentType="application/json",
        )

    def find(self, node: str, status: AgentStatus) -> str | None:
        """The address by which the agent knows the node."""
        reported = status.nodes.get(node)
        if reported and reported.address:
            return reported.address
        if node not in self._addresses:
            self._addresses[node] = self._look_up(node)
        return self._addresses[node] or None

    def _look_up(self, node: str) -> str:
        try:
            found = self._sagemaker().describe_cluster_node(ClusterName=self._cluster, NodeId=node)
        except api.CALL_ERRORS as error:
            if api.is_not_found(error) or api.code(error) == "ValidationException":
                return ""  # it was deleted meanwhile
            raise
        return str(found["NodeDetails"].get("PrivatePrimaryIp") or "")

    def excuse(self, error: Exception) -> AgentStatus | None:
        """Errors of S3 itself do not show that the agent is silent."""
        return AgentStatus(unreachable=str(error)) if isinstance(error, UnansweredError) else None


class FunctionChannel:
    """The channel to the drainer of an EKS cluster."""

    def __init__(self, arn: str, cluster: str, functions: Callable[[], clients.Lambda]) -> None:
        self._arn, self._cluster, self._functions = arn, cluster, functions

    def read(self) -> AgentStatus:
        return _status_of(self.ask(None), timedelta(0))

    def write(self, request: Request) -> AgentStatus:
        return _status_of(self.ask({"deployment": request}), timedelta(0))

    def ask(self, requests: Mapping[str, Request] | None, **more: object) -> Status:
        """The drainer's answer. `more`: members of its event that only `cdk-hyperpod patch` sends."""
        event = {"schema": SCHEMA, "cluster": self._cluster, "requests": requests, **more}
        reply = self._functions().invoke(FunctionName=self._arn, Payload=json.dumps(event).encode())
        found = parse_object(reply["Payload"].read(MAX_STATUS_BYTES))
        if reply.get("FunctionError"):
            raise UnansweredError(why=one_line(found.get("errorMessage") or "it failed"))
        try:
            status = check_status(found, one_line)
        except StatusError:
            raise UnansweredError(why="its answer is not one of this version") from None
        if status.problem and not status.problem.startswith(NOT_RELEASED):
            # If it cannot read Kubernetes, its answer does not have what it holds.
            raise UnansweredError(why=status.problem)
        return status

    def find(self, node: str, status: AgentStatus) -> str:
        """Needs none: a node's name in Kubernetes has its id in it."""
        return ""

    def excuse(self, error: Exception) -> AgentStatus:
        """Every error means that it is silent."""
        return AgentStatus(unreachable=api.reason(error) if api.code(error) else one_line(error))


def parse(content: bytes, now: float) -> AgentStatus:
    """The agent's status. Raises UnansweredError if it cannot be one; of its members, invalid ones are ignored."""
    try:
        status = parse_status(content, one_line)
    except StatusError as error:
        raise UnansweredError(why=str(error)) from None
    age = status.age(now)
    if age is None:
        raise UnansweredError(why=NO_TIME)
    return _status_of(status, timedelta(seconds=age))


def _status_of(status: Status, silent: timedelta) -> AgentStatus:
    return AgentStatus(
        silent=silent,
        beat=status.beat,
        rejected=status.refused.get("deployment", ""),
        problem=status.problem,
        nodes=status.nodes,
        busy={name: tuple(job.title for job in jobs) for name, jobs in status.busy.items()},
        saves=status.backup is not None,
        left_out=status.left_out,
    )
