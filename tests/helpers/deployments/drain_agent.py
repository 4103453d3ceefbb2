"""The drain agent for readers of a page: every requested node is ready and saved at once. Slurm does not run."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol as protocol
from cdk_hyperpod.names import cluster_stack_name, drain_bucket_name
from cdk_hyperpod_local.session import LocalAws
from helpers.slurm.local_aws import take_on

_POLL_S = 0.3


@contextlib.contextmanager
def agent_after(started: Path, answers: Path, aws: LocalAws, cluster: str) -> Iterator[None]:
    """While the block runs, the agent answers once the file `started` exists.

    With its first answer it creates `answers`.
    """
    over = threading.Event()
    thread = threading.Thread(target=_serve, args=(started, answers, aws, cluster, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=30)


def _serve(started: Path, answers: Path, aws: LocalAws, cluster: str, over: threading.Event) -> None:
    while not started.exists():
        if over.wait(_POLL_S):
            return
    s3 = _controllers_s3(aws, cluster)
    bucket = drain_bucket_name(cluster, aws.account, aws.region)
    while not over.wait(_POLL_S):
        _answer(s3, bucket, cluster)
        answers.touch()


def _controllers_s3(aws: LocalAws, cluster: str) -> Any:
    """With the role that alone may write the status."""
    found = aws.client("cloudformation").describe_stack_resources(StackName=cluster_stack_name(cluster))
    (role,) = (
        each["PhysicalResourceId"]
        for each in found["StackResources"]
        if each["ResourceType"] == "AWS::IAM::Role" and "ControllerRole" in each["LogicalResourceId"]
    )
    take_on(aws, f"arn:aws:iam::{aws.account}:role/{role}")
    return aws.client_as(role, "s3")


def _answer(s3: Any, bucket: str, cluster: str) -> None:
    now = time.time()
    requests = [_read(s3, bucket, cluster, writer, now) for writer in protocol.WRITERS]
    known = [request for request in requests if request is not None]
    nodes: dict[str, protocol.NodeStatus] = {}
    for node in (node for request in known for node in request.nodes):
        wanted = {**(nodes[node.instance].requests if node.instance in nodes else {}), node.writer: node.request_id}
        nodes[node.instance] = protocol.NodeStatus(state="ready", requests=wanted, saved=True, address=node.address)
    status = protocol.Status(
        beat=now,
        requests={writer: request.id for writer, request in zip(protocol.WRITERS, requests, strict=True) if request},
        backup="/fsx/backup",
        nodes=nodes,
    )
    s3.put_object(
        Bucket=bucket, Key=protocol.status_key(cluster), Body=json.dumps(protocol.make_status(status)).encode()
    )


def _read(s3: Any, bucket: str, cluster: str, writer: str, now: float) -> protocol.Request | None:
    try:
        body = s3.get_object(Bucket=bucket, Key=protocol.request_key(cluster, writer))["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    return protocol.parse_request(writer, body, now)
