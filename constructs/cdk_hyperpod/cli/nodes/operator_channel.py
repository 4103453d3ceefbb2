"""The operators' side of the drain bucket: the drain request that `drain` and `undrain` change, and the agent's status.

The request is an object in S3 that only operators write (docs/adr/0014). Several operators may write at once: a write succeeds
only if the object is as it was read, and otherwise is repeated.
"""

from __future__ import annotations

import email.utils
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..._lambda.hyperpod.kernel.drain_protocol import (
    AGENT,
    MAX_NODES,
    NO_TIME,
    PATCH,
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
from ..._lambda.hyperpod.kernel.text import one_line
from ...config.slurm import DrainBackup
from ...errors import ConfigError, Finding, HyperPodError
from ...names import drain_bucket_name
from .. import aws, live
from ..live import Target
from ..tables import complain, now

NO_STATUS = "has not written a status yet. It writes one within a minute of its start"
NO_OBJECT = "not a JSON object"
"""What is wrong with a node's request that cannot be read at all."""
RUN = "patch"
"""The member of the request that only `cdk-hyperpod patch` reads: its unfinished run. The agent ignores it."""
APART = "apart"
"""The member with both requests for each node that `drain` and `patch` hold at once, as each has written its own. The agent ignores
it: it accepts one request for a node, which is made of both (`unite`)."""


_T = TypeVar("_T")
Run = dict[str, Any]
"""What RUN holds: data that another operator may have written."""
RequestOfNode = dict[str, Any]
"""A node's request, as it is written."""
ChangeRun = Callable[[list[RequestOfNode], Run | None, float], tuple[list[RequestOfNode], Run | None]]
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

        Requests of `cdk-hyperpod patch` stay as they are, and `do` does not get them. Existing parts that the agent would refuse are
        left out, with a note on standard error.
        """

        def change_own(
            existing: list[RequestOfNode], run: Run | None, _: float
        ) -> tuple[list[RequestOfNode], Run | None]:
            changed[:] = do([each for each in existing if not is_of_patch(each)])
            return [*changed, *(each for each in existing if is_of_patch(each))], run

        changed: list[RequestOfNode] = []
        self.change_run(change_own)
        return changed

    def change_run(self, do: ChangeRun) -> list[dict[str, Any]]:
        """The same, with the run of `cdk-hyperpod patch` that the request holds. Both change together, or neither does."""
        key = request_key(self.target.name, "operator")
        for _ in range(10):
            content, etag, now = self._read(key)
            existing, left_out = _unexpired(content, now)
            requests, run = do(existing, _run_in(content), now)
            count = len({each["id"] for each in requests})
            if count > MAX_NODES:
                raise DrainError(
                    f"nothing was changed: the drain request would name {count} nodes, and the agent accepts at most "
                    f"{MAX_NODES}. Release some by `cdk-hyperpod undrain`"
                )
            united, apart = unite(requests)
            request = make_request(uuid.uuid4().hex[:12], united)
            more = {name: value for name, value in ((RUN, run), (APART, apart)) if value}
            body = json.dumps({**request, **more}).encode()
            only: dict[str, str] = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
            try:
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **only)
            except self._errors as error:
                if aws.code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                    raise self._error("write", key, error) from None
                continue
            if left_out:
                others = f", and {len(left_out) - 10} more" if len(left_out) > 10 else ""
                shown = f"{', '.join(left_out[:10])}{others}. `cdk-hyperpod drain` requests them again"
                complain(f"note: left out of the drain request, because the agent refuses them: {shown}")
            return united
        raise DrainError(
            "nothing was changed: other operators change the drain request at the same time. Try again", is_passing=True
        )

    def requests(self) -> dict[str, dict[str, Any]]:
        """The requests that have not expired, by node: as the agent reads them."""
        content, _, now = self._read(request_key(self.target.name, "operator"))
        return {request["id"]: request for request in unite(_unexpired(content, now)[0])[0]}

    def read_run(self, parse: Callable[[object], _T]) -> tuple[_T, float]:
        """The run of `cdk-hyperpod patch` that the request holds, as `parse` understands it, and S3's time."""
        content, _, now = self._read(request_key(self.target.name, "operator"))
        return parse(_run_in(content)), now

    def _read(self, key: str) -> tuple[bytes, str, float]:
        try:
            reply = self._s3.get_object(Bucket=self._bucket, Key=key)
            return reply["Body"].read(), reply["ETag"], clock(reply)
        except self._errors as error:
            reply = getattr(error, "response", None) or {}
            if aws.code(error) == "NoSuchKey":
                return b"", "", clock(reply)
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


def is_of_patch(request: RequestOfNode) -> bool:
    """Whether a run of `cdk-hyperpod patch` has written a node's request."""
    return str(request["request"]).startswith(PATCH)


def unite(requests: Sequence[RequestOfNode]) -> tuple[list[RequestOfNode], list[RequestOfNode]]:
    """One request for each node, and both requests of nodes that have two: `drain`'s and `patch`'s.

    The one request has the id and the terms of `drain`, whoever came first, and holds the node as long as either of them.
    """
    of_patch = {each["id"]: each for each in requests if is_of_patch(each)}
    of_drain = {each["id"]: each for each in requests if not is_of_patch(each)}
    both = of_patch.keys() & of_drain.keys()
    united = [
        _made_of_both(of_drain[node], of_patch[node]) if node in both else request
        for node, request in {**of_patch, **of_drain}.items()
    ]
    return united, [each for each in requests if each["id"] in both]


def _made_of_both(drain: RequestOfNode, patch: RequestOfNode) -> RequestOfNode:
    united = {**drain, "expires": max(drain["expires"], patch["expires"]), "backup": drain["backup"] or patch["backup"]}
    if drain["on_timeout"] == "fail":
        united["deadline"] = max(drain["deadline"], patch["deadline"])
    # A backup gets this time, and not just the lease of the patch.
    limit = [each["limit"] for each in (drain, patch) if "limit" in each]
    return {**united, "limit": max([united["deadline"], *limit])} if limit else united


def _unexpired(content: bytes, now: float) -> tuple[list[RequestOfNode], list[str]]:
    """The nodes' requests that have not expired, as they were written; and those that the agent refuses, because of which it would
    refuse them all. A node may have two of them: of `drain`, and of `patch`.

    The object may be written by hand, or by another version.
    """
    found = parse_object(content)
    united, left_out = _unexpired_of(found.get("nodes"), content, now)
    apart = found.get(APART)
    written = [each for each in apart if _wrong(each, now) is None] if isinstance(apart, list) else []
    # `nodes` counts: another version may have changed it alone.
    held = {each["id"]: each for each in united}
    mine = {
        (each["id"], is_of_patch(each)): {name: each[name] for name in AGENT.members if name in each}
        for each in written
        if each["id"] in held
    }
    nodes = {node for node, _ in mine}
    rest = [each for each in united if each["id"] not in nodes]
    return [*rest, *(each for each in mine.values() if each["expires"] > now)], left_out


def _unexpired_of(nodes: object, content: bytes, now: float) -> tuple[list[RequestOfNode], list[str]]:
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


def clock(reply: Mapping[str, Any]) -> float:
    """The time of AWS's answer. This machine's clock may differ."""
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return email.utils.parsedate_to_datetime(date).timestamp() if date else now().timestamp()
