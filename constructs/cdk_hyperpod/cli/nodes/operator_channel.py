"""The operators' side of the drain bucket: the drain request that `drain` and `undrain` change, and the agent's status.

The request is an object in S3 that only operators write (docs/adr/0014). Several operators may write at once: a write succeeds
only if the object is as it was read, and otherwise is repeated.
"""

from __future__ import annotations

import email.utils
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..._lambda.hyperpod.common.drain_protocol import (
    AGENT,
    MAX_NODES,
    NO_TIME,
    SILENT_S,
    NodeStatus,
    Status,
    StatusError,
    make_request,
    parse_object,
    parse_status,
    request_key,
    status_key,
    wrong_member,
)
from ..._lambda.hyperpod.common.text import one_line
from ...config.slurm import DrainBackup
from ...errors import ConfigError, Finding, HyperPodError
from ...names import drain_bucket_name
from .. import aws, live
from ..live import Target
from ..tables import complain

NO_STATUS = "has not written a status yet. It writes one within a minute of its start"
NO_OBJECT = "not a JSON object"
"""What is wrong with a node's request that cannot be read at all."""
RUN = "patch"
"""The member of the request that only `cdk-hyperpod patch` reads: its unfinished run. The agent ignores it."""


_T = TypeVar("_T")
Run = dict[str, Any]
"""What RUN holds: data that another operator may have written."""
ChangeRun = Callable[[list[dict[str, Any]], Run | None, float], tuple[list[dict[str, Any]], Run | None]]
"""Makes the nodes' requests and the run anew, from what they are and S3's time."""


class DrainError(HyperPodError):
    """The drain request could not be written, or the agent could not drain."""

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        """`is_passing`: the same call may succeed later."""
        super().__init__(message)
        self.is_passing = is_passing


def open_channel(target: Target, path: str, by_kubectl: str) -> OperatorChannel:
    """The channel to a cluster's drain agent. Raises ConfigError if its file has no agent. `by_kubectl`: the command to use under EKS."""
    file = target.config
    if file is not None and file.orchestrator == "eks":
        is_eks = Finding(
            code="drain-agent-under-eks",
            path="orchestrator",
            problem="is eks, and an EKS cluster has no drain agent",
            remedy=f"run `{by_kubectl}`",
        )
        raise ConfigError([is_eks], path)
    if file is not None and (file.slurm is None or file.slurm.drain is None):
        without_agent = Finding(
            code="drain-agent-not-in-file",
            path="slurm.drain",
            problem="is missing, so the cluster has no drain agent",
            remedy="add `slurm: {drain: {}}` and deploy, or drain with scontrol (docs/drain-slurm.md)",
        )
        raise ConfigError([without_agent], path)
    return OperatorChannel(target)


@dataclass(frozen=True)
class StatusReading:
    """The agent's status, as it was read."""

    status: Status
    now: float
    """When it was read, by S3's clock, which the agent uses too."""
    unread: str = ""
    """Why there is no status; empty: there is one."""

    @property
    def silence(self) -> str:
        """Why the agent counts as silent; empty: it is alive."""
        if self.unread:
            return self.unread
        age = self.status.age(self.now)
        if age is None:
            return NO_TIME
        if age <= SILENT_S:
            return ""
        return f"has not written its status for {age / 60:.0f} minutes"

    def state(self, node: str) -> str:
        """The node's state; empty: the agent reports none."""
        return self.status.nodes.get(node, NodeStatus()).state


class OperatorChannel:
    """The drain bucket, for operators."""

    def __init__(self, target: Target, account: str | None = None) -> None:
        """`account`: the cluster's, if it is known. None: the file's, or that of the credentials."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        self._errors = (ClientError, BotoCoreError)
        self.target = target
        self._s3 = target.client("s3")
        account = account or (target.config.account if target.config else None)
        self._bucket = drain_bucket_name(target.name, account or self._account(), target.region)

    @property
    def backup(self) -> DrainBackup | None:
        """The file's backup settings. None: the file has none, or there is no file."""
        slurm = self.target.config.slurm if self.target.config else None
        return slurm.drain.backup if slurm and slurm.drain else None

    def _account(self) -> str:
        try:
            return str(self.target.client("sts").get_caller_identity()["Account"])
        except self._errors as error:
            raise DrainError(f"cannot read the account of your credentials: {aws.sentence(error)}") from None

    def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """The nodes' addresses, as HyperPod reports them now. Raises DrainError with every node that cannot be drained."""
        sagemaker = self.target.client("sagemaker")
        # Without a file, the groups come from the cluster.
        kinds = live.node_types(self.target, {} if self.target.config else live.describe(self.target))
        found, wrong = {}, []
        for node in dict.fromkeys(nodes):
            try:
                reply = sagemaker.describe_cluster_node(ClusterName=self.target.name, NodeId=node)["NodeDetails"]
            except self._errors as error:
                if not aws.is_gone(error):
                    why = f"no drain was requested: {aws.sentence(error)}"
                    raise DrainError(why, is_passing=aws.is_passing(error)) from None
                wrong.append(f"{node}: {aws.sentence(error)}")
                continue
            kind = (kinds.get(reply.get("InstanceGroupName")) or "Compute").lower()
            if kind != "compute":
                wrong.append(f"{node}: is a {kind} node, which is never drained")
            elif not reply.get("PrivatePrimaryIp"):
                wrong.append(f"{node}: has no address yet. Wait until it is Running")
            else:
                found[node] = str(reply["PrivatePrimaryIp"])
        if wrong:
            raise DrainError("\n".join(["no drain was requested:", *wrong]))
        return found

    def read_status(self) -> StatusReading:
        """Read the agent's status."""
        content, etag, now = self._read(status_key(self.target.name))
        if not etag:
            return StatusReading(Status(), now, NO_STATUS)
        try:
            return StatusReading(parse_status(content, one_line), now)
        except StatusError as error:
            return StatusReading(Status(), now, str(error))

    def change(self, do: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Change the operators' drain request. Returns the nodes' requests as they are then.

        Existing parts that the agent would refuse are left out, with a note on standard error.
        """
        return self.change_run(lambda existing, run, _: (do(existing), run))

    def change_run(self, do: ChangeRun) -> list[dict[str, Any]]:
        """The same, with the run of `cdk-hyperpod patch` that the request holds. Both change together, or neither does."""
        key = request_key(self.target.name, "operator")
        for _ in range(10):
            content, etag, now = self._read(key)
            existing, left_out = _unexpired(content, now)
            requests, run = do(existing, _run_in(content), now)
            if len(requests) > MAX_NODES:
                raise DrainError(
                    f"nothing was changed: the drain request would name {len(requests)} nodes, and the agent accepts at most "
                    f"{MAX_NODES}. Release some by `cdk-hyperpod undrain`"
                )
            request = make_request(uuid.uuid4().hex[:12], requests)
            body = json.dumps(request if run is None else {**request, RUN: run}).encode()
            only: dict[str, str] = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
            try:
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **only)
            except self._errors as error:
                if aws.code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                    raise self._error("write", key, error) from None
                continue
            if left_out:
                more = f", and {len(left_out) - 10} more" if len(left_out) > 10 else ""
                shown = f"{', '.join(left_out[:10])}{more}. `cdk-hyperpod drain` requests them again"
                complain(f"note: left out of the drain request, because the agent refuses them: {shown}")
            return requests
        raise DrainError(
            "nothing was changed: other operators change the drain request at the same time. Try again", is_passing=True
        )

    def requests(self) -> dict[str, dict[str, Any]]:
        """The operators' requests that have not expired, by node."""
        content, _, now = self._read(request_key(self.target.name, "operator"))
        return {request["id"]: request for request in _unexpired(content, now)[0]}

    def read_run(self, parse: Callable[[object], _T]) -> _T:
        """The run of `cdk-hyperpod patch` that the request holds, as `parse` understands it."""
        content, _, _ = self._read(request_key(self.target.name, "operator"))
        return parse(_run_in(content))

    def _read(self, key: str) -> tuple[bytes, str, float]:
        try:
            reply = self._s3.get_object(Bucket=self._bucket, Key=key)
            return reply["Body"].read(), reply["ETag"], _clock(reply)
        except self._errors as error:
            reply = getattr(error, "response", None) or {}
            if aws.code(error) == "NoSuchKey":
                return b"", "", _clock(reply)
            raise self._error("read", key, error) from None

    def _error(self, verb: str, key: str, error: Exception) -> DrainError:
        if aws.code(error) == "NoSuchBucket":
            kubectl = ". Under EKS, drain by kubectl" if self.target.config is None else ""
            return DrainError(
                f"there is no drain bucket {self._bucket}. Deploy a file that has slurm.drain first, or check --region and "
                f"--profile{kubectl}"
            )
        is_refused = verb == "write" and aws.code(error) == "AccessDenied"
        remedy = ". If the file has slurm.drain.operators, it must list your role" if is_refused else ""
        return DrainError(
            f"cannot {verb} s3://{self._bucket}/{key}: {aws.sentence(error)}{remedy}", is_passing=aws.is_passing(error)
        )


def _run_in(content: bytes) -> Run | None:
    found = parse_object(content).get(RUN)
    return found if isinstance(found, dict) else None


def _unexpired(content: bytes, now: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The nodes' requests that have not expired; and those that the agent refuses, because of which it would refuse them all.

    The object may be written by hand, or by another version.
    """
    nodes = parse_object(content).get("nodes")
    if not isinstance(nodes, list):
        return [], ["the whole object, which has no list of nodes"] if content else []
    found: dict[str, dict[str, Any]] = {}
    left_out = []
    for i, request in enumerate(nodes):
        wrong = _wrong(request, now)
        if wrong is None and request["expires"] <= now:
            continue
        if wrong is None and request["id"] in found:
            wrong = "duplicated"
        if wrong is None:
            # Unknown members are dropped: the agent refuses an object that is too large.
            found[request["id"]] = {name: request[name] for name in AGENT.members if name in request}
        else:
            left_out.append(f"{f'nodes[{i}]' if wrong in (NO_OBJECT, 'id') else request['id']} ({wrong})")
    return list(found.values()), left_out


def _wrong(request: object, now: float) -> str | None:
    """The first member of a node's request that the agent refuses; None: it accepts all."""
    if not isinstance(request, dict):
        return NO_OBJECT
    return wrong_member(AGENT, request, now)


def _clock(reply: Mapping[str, Any]) -> float:
    """The time of S3's answer. This machine's clock may differ."""
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return email.utils.parsedate_to_datetime(date).timestamp() if date else time.time()
