"""The operators' side of the drain bucket: the request that `drain` and `undrain` change, and what the agent says.

The request is an object in S3 that operators alone write (docs/adr/0014). Several operators may ask at once: each changes the
request only as it has read it.
"""

from __future__ import annotations

import email.utils
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

NO_OBJECT = "not a JSON object"
"""Of a request that cannot be read at all."""


class DrainError(HyperPodError):
    """The agent could not be asked, or could not do it."""


def open_channel(target: Target, path: str, by_kubectl: str) -> OperatorChannel:
    """The channel to the agent of a cluster. Raises ConfigError where its file has none. `by_kubectl`: the command to use under EKS."""
    file = target.config
    if file is not None and file.orchestrator == "eks":
        problem = "is eks: no agent is asked there, and kubectl does it"
        raise ConfigError([Finding(path="orchestrator", problem=problem, remedy=f"run `{by_kubectl}`")], path)
    if file is not None and (file.slurm is None or file.slurm.drain is None):
        problem = "is absent, so the cluster has no agent that drains nodes"
        remedy = "add `slurm: {drain: {}}` and deploy, or drain by scontrol (docs/scale-down.md)"
        raise ConfigError([Finding(path="slurm.drain", problem=problem, remedy=remedy)], path)
    return OperatorChannel(target)


@dataclass(frozen=True)
class Heard:
    """What the agent said last."""

    status: Status
    now: float
    """The time by S3's clock, which is the agent's too."""
    unread: str = ""
    """Why there is no status."""

    @property
    def silence(self) -> str:
        """Why the agent is taken for dead; empty: it is alive."""
        age = self.status.age(self.now)
        if self.unread or age is None:
            return self.unread or NO_TIME
        return f"has not been heard of for {age / 60:.0f} minutes" if age > SILENT_S else ""

    def state(self, node: str) -> str:
        return self.status.nodes.get(node, NodeStatus()).state


class OperatorChannel:
    """The bucket, seen from the operator's side."""

    def __init__(self, target: Target) -> None:
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        self._errors = (ClientError, BotoCoreError)
        self.target = target
        self._s3 = target.client("s3")
        account = target.config.account if target.config else None
        self._bucket = drain_bucket_name(target.name, account or self._account(), target.region)

    @property
    def backup(self) -> DrainBackup | None:
        """What the file wants saved. Absent: nothing, or there is no file."""
        slurm = self.target.config.slurm if self.target.config else None
        return slurm.drain.backup if slurm and slurm.drain else None

    def _account(self) -> str:
        try:
            return str(self.target.client("sts").get_caller_identity()["Account"])
        except self._errors as error:
            raise DrainError(f"cannot read the account of your credentials: {aws.sentence(error)}") from None

    def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """The nodes' addresses, as HyperPod has them now. Raises DrainError for all that are none to drain."""
        sagemaker = self.target.client("sagemaker")
        # A file knows the groups; otherwise the cluster does.
        kinds = live.node_types(self.target, {} if self.target.config else live.describe(self.target))
        found, wrong = {}, []
        for node in dict.fromkeys(nodes):
            try:
                reply = sagemaker.describe_cluster_node(ClusterName=self.target.name, NodeId=node)["NodeDetails"]
            except self._errors as error:
                if not aws.is_gone(error):
                    raise DrainError(f"nothing was asked for: {aws.sentence(error)}") from None
                wrong.append(f"{node}: {aws.sentence(error)}")
                continue
            kind = (kinds.get(reply.get("InstanceGroupName")) or "Compute").lower()
            if kind != "compute":
                wrong.append(f"{node}: is a {kind} node, which is never drained")
            elif not reply.get("PrivatePrimaryIp"):
                wrong.append(f"{node}: has no address yet; wait until it runs")
            else:
                found[node] = str(reply["PrivatePrimaryIp"])
        if wrong:
            raise DrainError("\n".join(["nothing was asked for:", *wrong]))
        return found

    def listen(self) -> Heard:
        """What the agent said last."""
        content, etag, now = self._read(status_key(self.target.name))
        if not etag:
            return Heard(Status(), now, "has never been heard of")
        try:
            return Heard(parse_status(content, one_line), now)
        except StatusError as error:
            return Heard(Status(), now, str(error))

    def change(self, do: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Change what operators want, from what it is now; what they want then.

        What the agent would refuse of what is there is left out, and told.
        """
        key = request_key(self.target.name, "operator")
        for _ in range(10):
            content, etag, now = self._read(key)
            there, left_out = _live(content, now)
            requests = do(there)
            if len(requests) > MAX_NODES:
                problem = f"the request would name {len(requests)} nodes, and the agent takes {MAX_NODES} at most"
                raise DrainError(f"nothing was changed: {problem}; give some back by `undrain`")
            body = json.dumps(make_request(uuid.uuid4().hex[:12], requests)).encode()
            only: dict[str, str] = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
            try:
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **only)
            except self._errors as error:
                if aws.code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                    raise self._error("write", key, error) from None
                continue
            if left_out:
                more = f", and {len(left_out) - 10} more" if len(left_out) > 10 else ""
                shown = f"{', '.join(left_out[:10])}{more}; `cdk-hyperpod drain` asks for them again"
                complain(f"note: left out of the request, since the agent refuses it: {shown}")
            return requests
        raise DrainError("other operators change the request all the time; try again")

    def requests(self) -> dict[str, dict[str, Any]]:
        """What operators want now, by node."""
        content, _, now = self._read(request_key(self.target.name, "operator"))
        return {request["id"]: request for request in _live(content, now)[0]}

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
            problem = f"there is no bucket {self._bucket}, by which an agent is asked"
            kubectl = "; under EKS it is kubectl that drains" if self.target.config is None else ""
            remedy = "deploy a file that has slurm.drain first, or look at --region and --profile"
            return DrainError(f"{problem}: {remedy}{kubectl}")
        refused = verb == "write" and aws.code(error) == "AccessDenied"
        remedy = "; if the file has slurm.drain.operators, your role must be one of them" if refused else ""
        return DrainError(f"cannot {verb} s3://{self._bucket}/{key}: {aws.sentence(error)}{remedy}")


def _live(content: bytes, now: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The nodes of a request that it holds still; and what the agent refuses of it, for which it would refuse all of it.

    Somebody may have written it by hand, or with another version.
    """
    nodes = parse_object(content).get("nodes")
    if not isinstance(nodes, list):
        return [], ["all that stood there, which has no list of nodes"] if content else []
    found: dict[str, dict[str, Any]] = {}
    left_out = []
    for i, request in enumerate(nodes):
        wrong = _wrong(request, now)
        if wrong is None and request["expires"] <= now:
            continue
        if wrong is None and request["id"] in found:
            wrong = "once more"
        if wrong is None:
            # No more than is known: the agent refuses what is too large.
            found[request["id"]] = {name: request[name] for name in AGENT.members if name in request}
        else:
            left_out.append(f"{f'nodes[{i}]' if wrong in (NO_OBJECT, 'id') else request['id']} ({wrong})")
    return list(found.values()), left_out


def _wrong(request: object, now: float) -> str | None:
    """The first member of a node's request that the agent refuses."""
    if not isinstance(request, dict):
        return NO_OBJECT
    return wrong_member(AGENT, request, now)


def _clock(reply: Mapping[str, Any]) -> float:
    """The time of S3's answer: this machine's own clock may be another."""
    said = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return email.utils.parsedate_to_datetime(said).timestamp() if said else time.time()
