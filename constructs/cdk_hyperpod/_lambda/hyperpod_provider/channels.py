"""How nodes are asked for and who answers: a bucket that an agent reads (docs/adr/0014), or a function (docs/adr/0015).

Both take the same request and say the same things. The agent answers later, by a status that stays; the drainer of an EKS
cluster at once, and it knows nothing of an earlier request but what stands on the nodes.
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

from . import api
from .drain_protocol import MAX_STATUS_BYTES, SCHEMA, request_key, status_key
from .ready import SILENT, Said
from .text import one_line

NOT_GIVEN_BACK = "not given back"
"""How the drainer's problem begins where it answers, and only nodes that nobody wants stay held."""

Request = Mapping[str, Any]


class Channel(Protocol):
    """One cluster's, during one run of the function. Its calls raise api.CALL_ERRORS."""

    def read(self) -> Said:
        """What is said now. Raises UnansweredError if one look found nothing that can be used."""

    def write(self, request: Request) -> Said | None:
        """Ask for what is in the request, and for nothing else any more. Absent: the answer comes by a later look."""

    def find(self, node: str, said: Said) -> str | None:
        """The address that a wish has to say of a node; empty: none. Absent: nobody can be asked for it yet, or no more."""

    def excuse(self, error: Exception) -> Said | None:
        """What it means that a call failed. Absent: it is for the caller to judge."""


class UnansweredError(BotoCoreError):  # type: ignore[misc]
    """One look without an answer. Only if there is none for ready.SILENT, nobody drains."""

    fmt = "{why}"


class NoStatusError(UnansweredError):
    """The agent has never written a status, or S3 does not show it just now."""


class Bucket:
    """The agent's on a Slurm controller."""

    def __init__(self, bucket: str, cluster: str, s3: Callable[[], api.S3], sagemaker: Callable[[], api.Nodes]) -> None:
        self._bucket, self._cluster, self._s3, self._sagemaker = bucket, cluster, s3, sagemaker
        self._addresses: dict[str, str] = {}

    def read(self) -> Said:
        try:
            reply = self._s3().get_object(Bucket=self._bucket, Key=status_key(self._cluster))
        except api.CALL_ERRORS as error:
            if api.code(error) != "NoSuchKey":
                raise
            raise NoStatusError(why="has never been heard of") from None
        content = reply["Body"].read(MAX_STATUS_BYTES)
        # botocore does not compare the two where it is told how much to read.
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

    def find(self, node: str, said: Said) -> str | None:
        """By the address the agent knows it."""
        told = said.nodes.get(node, {}).get("ip")
        if isinstance(told, str) and told:
            return told
        if node not in self._addresses:
            self._addresses[node] = self._look_up(node)
        return self._addresses[node] or None

    def _look_up(self, node: str) -> str:
        try:
            found = self._sagemaker().describe_cluster_node(ClusterName=self._cluster, NodeId=node)
        except api.CALL_ERRORS as error:
            if api.is_gone(error) or api.code(error) == "ValidationException":
                return ""  # it went meanwhile
            raise
        return str(found["NodeDetails"].get("PrivatePrimaryIp") or "")

    def excuse(self, error: Exception) -> Said | None:
        """The bucket's own errors are not the agent's silence."""
        return Said(unreachable=str(error)) if isinstance(error, UnansweredError) else None


class Function:
    """The drainer's of an EKS cluster."""

    def __init__(self, arn: str, cluster: str, functions: Callable[[], api.Lambda]) -> None:
        self._arn, self._cluster, self._functions = arn, cluster, functions

    def read(self) -> Said:
        return self._invoke(None)

    def write(self, request: Request) -> Said:
        return self._invoke({"deployment": request})

    def _invoke(self, requests: Mapping[str, Request] | None) -> Said:
        event = {"schema": SCHEMA, "cluster": self._cluster, "requests": requests}
        reply = self._functions().invoke(FunctionName=self._arn, Payload=json.dumps(event).encode())
        found = _object(reply["Payload"].read(MAX_STATUS_BYTES))
        if reply.get("FunctionError"):
            raise UnansweredError(why=one_line(found.get("errorMessage") or "it failed"))
        if found.get("schema") != SCHEMA:
            raise UnansweredError(why="its answer is not one of this version")
        problem = one_line(found.get("problem") or "")
        if problem and not problem.startswith(NOT_GIVEN_BACK):
            # Where it cannot read Kubernetes, what it holds is not in its answer.
            raise UnansweredError(why=problem)
        return _said(found, timedelta(0))

    def find(self, node: str, said: Said) -> str:
        """A node's name in Kubernetes has its id in it."""
        return ""

    def excuse(self, error: Exception) -> Said:
        """Whatever keeps it from answering, it is silent."""
        return Said(unreachable=api.reason(error) if api.code(error) else one_line(error))


def parse(content: bytes, now: float) -> Said:
    """The agent's status. Raises UnansweredError if it cannot be one; of its members, invalid ones are ignored."""
    found = _object(content)
    beat = found.get("beat")
    if not found:
        raise UnansweredError(why="has a status that is not a JSON object")
    if found.get("schema") != SCHEMA:
        raise UnansweredError(why="has a status of another version")
    # One that is ahead would never be silent. NaN is not between anything.
    if isinstance(beat, bool) or not isinstance(beat, int | float) or not 0 <= beat <= now + SILENT.total_seconds():
        raise UnansweredError(why="has a status whose time is missing or in the future")
    return _said(found, timedelta(seconds=max(0.0, now - beat)))


def _said(found: Mapping[str, Any], silent: timedelta) -> Said:
    return Said(
        silent=silent,
        rejected=one_line(_mapping(found.get("refused")).get("deployment") or ""),
        problem=one_line(found.get("problem") or ""),
        nodes={name: _told(each) for name, each in _mapping(found.get("nodes")).items() if isinstance(each, dict)},
        busy=_busy(found.get("busy")),
        saves=bool(found.get("backup")),
        left_out=_counts(found.get("left_out")),
    )


def _told(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one_line(value) if isinstance(value, str) else value for name, value in node.items()}


def _object(content: bytes) -> dict[str, Any]:
    """What is in a JSON text; empty where that is no object."""
    try:
        return _mapping(json.loads(content))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _counts(told: object) -> dict[str, int]:
    return {name: count for name, count in _mapping(told).items() if type(count) is int and 0 < count < 2**53}


def _busy(told: object) -> dict[str, tuple[str, ...]]:
    """Id -> some of its jobs. The drainer, and an agent of version 2, tell a list of ids alone."""
    if isinstance(told, list):
        return {name: () for name in told if isinstance(name, str)}
    return {
        name: tuple(one_line(f"{job.get('id')} of {job.get('user')}") for job in jobs if isinstance(job, dict))
        for name, jobs in _mapping(told).items()
        if isinstance(jobs, list)
    }
