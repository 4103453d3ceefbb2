"""`cdk-hyperpod drain` and `undrain`: ask the agent on a Slurm cluster's controller for nodes, and follow what it does.

The request is an object in S3 that operators alone write (docs/adr/0014); with the user's credentials, and no way into the
cluster. Several operators may ask at once: each changes the request only as it has read it.
"""

from __future__ import annotations

import argparse
import email.utils
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..config.cluster import ClusterConfig
from ..errors import ConfigError, Finding, HyperPodError
from ..loader import load_config
from ..names import drain_bucket_name, request_key, status_key
from .plan import add_asking_options, user_session

SILENT_S = 180
"""The agent writes its status every minute; after this long it is taken for dead."""
POLL_S = 5.0
MOST_HOLD_S = 24 * 3600
ENDED = ("ready", "unknown", "refused", "timed-out", "backup-failed")
"""What a node stays in unless somebody does something."""
INSTALL = "install it with `cdk-hyperpod lifecycle run drain | bash`, or look at `journalctl -u cdk-hyperpod-drain` on the controller"
_SPAN = re.compile(r"([1-9][0-9]{0,5})([mh])")

_DRAIN = """\
Ask the agent on the controller for these nodes. It lets no new job start there,
waits until the jobs on them have ended, saves what the file's slurm.drain.backup
names, and drains them. They stay drained until the hold is over or `undrain`;
deploy meanwhile. What others have drained, and HyperPod has, is left as it is.

Exit code 0: asked for, and with --wait every node is ready; 1: not.
"""


class DrainError(HyperPodError):
    """The agent could not be asked, or could not do it."""


def add_drain_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `drain` and `undrain` to a tool's commands; each sets `run`, which takes the options."""
    drain = subparsers.add_parser(
        "drain",
        help="have Slurm nodes drained, and their data saved, before they go",
        description=_DRAIN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    drain.add_argument("nodes", nargs="*", metavar="NODE", help="instance ids, such as i-0123456789abcdef0")
    drain.add_argument("--status", action="store_true", help="only say what the agent does now")
    drain.add_argument("--wait", action="store_true", help="follow it until every node is ready, or cannot be")
    drain.add_argument("--hold", default="12h", metavar="TIME", help="such as 90m; default: 12h, at most 24h")
    drain.add_argument(
        "--force-after",
        metavar="TIME",
        help="then requeue the jobs that still run, or cancel those that cannot be; default: never, the nodes go back "
        "when the hold is over",
    )
    drain.add_argument("--no-backup", action="store_true", help="save nothing, whatever the file says")
    undrain = subparsers.add_parser(
        "undrain",
        help="give Slurm nodes back that `drain` asked for",
        description="Give nodes back that `drain` asked for. Drains of others, and of HyperPod, stay.",
    )
    undrain.add_argument("nodes", nargs="+", metavar="NODE", help="instance ids")
    for command in (drain, undrain):
        add_asking_options(command)
    drain.set_defaults(run=_drain)
    undrain.set_defaults(run=_undrain)


def _drain(options: argparse.Namespace) -> int:
    if options.status == bool(options.nodes):
        raise DrainError("name the nodes to drain, or say --status")
    channel, config = _open(options)
    if options.status:
        return _show_status(channel)
    hold_s = seconds(options.hold, "--hold")
    force_s = None if options.force_after is None else seconds(options.force_after, "--force-after")
    if force_s is not None and force_s > hold_s:
        raise DrainError(f"--force-after {options.force_after} is later than the end of --hold {options.hold}")
    found = channel.addresses(options.nodes, config)
    status, now = channel.status()
    expires = now + hold_s

    def add(wishes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        old = {wish["id"]: wish for wish in wishes}
        return [
            *(wish for wish in wishes if wish["id"] not in found),
            *(
                {
                    "id": node,
                    "ip": ip,
                    # The same wish for longer keeps what has been done for it; one that failed begins anew.
                    "request": old[node]["request"]
                    if node in old and _state(status, node) not in ("timed-out", "backup-failed")
                    else uuid.uuid4().hex[:12],
                    "deadline": expires if force_s is None else now + force_s,
                    "expires": expires,
                    "on_timeout": "fail" if force_s is None else "force",
                    "backup": not options.no_backup,
                }
                for node, ip in found.items()
            ),
        ]

    asked = channel.change(add)
    ends = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires))
    print(f"asked for {len(found)} nodes, which are held until {ends}")
    _check_awake(status, now)
    if options.wait:
        return _follow(channel, {wish["id"]: wish["request"] for wish in asked if wish["id"] in found}, expires)
    print("`cdk-hyperpod drain --status` says how far it is")
    return 0


def _undrain(options: argparse.Namespace) -> int:
    channel, _ = _open(options)
    nodes = _instance_ids(options.nodes)
    gone: list[str] = []

    def remove(wishes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        gone[:] = [wish["id"] for wish in wishes if wish["id"] in nodes]
        return [wish for wish in wishes if wish["id"] not in nodes]

    channel.change(remove)
    for node in nodes:
        print(f"{node}: {'is given back' if node in gone else 'nobody had asked for it'}")
    status, now = channel.status()
    _check_awake(status, now)
    return 0


def seconds(text: str, option: str) -> int:
    """A span of time, as it is typed. Raises DrainError."""
    found = _SPAN.fullmatch(text)
    span = int(found[1]) * (60 if found[2] == "m" else 3600) if found else 0
    if not 0 < span <= MOST_HOLD_S:
        raise DrainError(f"{option}: must be minutes or hours such as 90m or 12h, at most 24h, got {text!r}")
    return span


def _instance_ids(nodes: Sequence[str]) -> list[str]:
    wrong = [node for node in nodes if not re.fullmatch(r"i-[0-9a-f]{8,17}", node)]
    if wrong:
        shown = ", ".join(ascii(node) for node in wrong[:10])
        raise DrainError(
            f"{shown}: no instance id, such as i-0123456789abcdef0; `aws sagemaker list-cluster-nodes` has them"
        )
    return list(dict.fromkeys(nodes))


# -- the channel ------------------------------------------------------------------------------------------------------


def _open(options: argparse.Namespace) -> tuple[Channel, ClusterConfig]:
    config = load_config(options.config).config
    if config.slurm is None or config.slurm.drain is None:
        problem = "is absent, so the cluster has no agent that drains nodes"
        remedy = "add `slurm: {drain: {}}` and deploy, or drain by scontrol (docs/scale-down.md)"
        raise ConfigError([Finding(path="slurm.drain", problem=problem, remedy=remedy)], options.config)
    return Channel(config, user_session(options.profile)), config


class Channel:
    """The bucket, seen from the operator's side."""

    def __init__(self, config: ClusterConfig, session: Any) -> None:
        from .._lambda.hyperpod_provider import api

        self._errors = api.CALL_ERRORS
        self._reason = api.reason
        self._session = session
        self._cluster = config.name
        self._region = config.region
        self._s3 = session.create_client("s3", region_name=config.region)
        self._bucket = drain_bucket_name(config.name, config.account or self._account(), config.region)

    def _account(self) -> str:
        try:
            return str(self._session.create_client("sts", region_name=self._region).get_caller_identity()["Account"])
        except self._errors as error:
            raise DrainError(f"cannot read the account of your credentials: {self._reason(error)}") from None

    def addresses(self, nodes: Sequence[str], config: ClusterConfig) -> dict[str, str]:
        """The nodes' addresses, as HyperPod has them now. Raises DrainError for all that are none to drain."""
        sagemaker = self._session.create_client("sagemaker", region_name=self._region)
        kinds = {group.name: group.node_type for group in config.instance_groups}
        found, wrong = {}, []
        for node in _instance_ids(nodes):
            try:
                reply = sagemaker.describe_cluster_node(ClusterName=self._cluster, NodeId=node)["NodeDetails"]
            except self._errors as error:
                wrong.append(f"{node}: {self._reason(error)}")
                continue
            kind = kinds.get(reply.get("InstanceGroupName"), "compute")
            if kind != "compute":
                wrong.append(f"{node}: is a {kind} node, which is never drained")
            elif not reply.get("PrivatePrimaryIp"):
                wrong.append(f"{node}: has no address yet; wait until it runs")
            else:
                found[node] = str(reply["PrivatePrimaryIp"])
        if wrong:
            raise DrainError("\n".join(["nothing was asked for:", *wrong]))
        return found

    def status(self) -> tuple[dict[str, Any], float]:
        """What the agent said last, nothing if it never did; and the time by S3's clock, which is the agent's too."""
        content, _, now = self._read(status_key(self._cluster))
        return _object(content), now

    def change(self, do: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Change what operators want, from what it is now; what they want then."""
        key = request_key(self._cluster, "operator")
        for _ in range(10):
            content, etag, now = self._read(key)
            old = [
                wish
                for wish in _object(content).get("nodes") or []
                if isinstance(wish, dict) and "id" in wish and "request" in wish and _after(wish.get("expires"), now)
            ]
            wishes = do(old)
            body = json.dumps({"schema": 1, "id": uuid.uuid4().hex[:12], "nodes": wishes}).encode()
            only: dict[str, str] = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
            try:
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **only)
                return wishes
            except self._errors as error:
                code = getattr(error, "response", {}).get("Error", {}).get("Code")
                if code not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                    raise self._error("write", key, error) from None
        raise DrainError("other operators change the request all the time; try again")

    def _read(self, key: str) -> tuple[bytes, str, float]:
        try:
            reply = self._s3.get_object(Bucket=self._bucket, Key=key)
            return reply["Body"].read(), reply["ETag"], _clock(reply)
        except self._errors as error:
            reply = getattr(error, "response", None) or {}
            if reply.get("Error", {}).get("Code") == "NoSuchKey":
                return b"", "", _clock(reply)
            raise self._error("read", key, error) from None

    def _error(self, verb: str, key: str, error: Exception) -> DrainError:
        hint = "; deploy the file first" if "NoSuchBucket" in self._reason(error) else ""
        return DrainError(f"cannot {verb} s3://{self._bucket}/{key}: {self._reason(error)}{hint}")


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _after(moment: object, now: float) -> bool:
    return isinstance(moment, (int, float)) and moment > now


def _clock(reply: Mapping[str, Any]) -> float:
    """The time of S3's answer: this machine's own clock may be another."""
    said = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return email.utils.parsedate_to_datetime(said).timestamp() if said else time.time()


# -- what the agent says ----------------------------------------------------------------------------------------------


def _check_awake(status: Mapping[str, Any], now: float) -> None:
    """Raise DrainError where nobody does what is asked."""
    beat = status.get("beat")
    if not _after(beat, now - SILENT_S):
        since = f"for {(now - float(beat)) / 60:.0f} minutes" if isinstance(beat, (int, float)) else "ever"
        heard = "has not been heard of " if since != "ever" else "has never been heard of"
        raise DrainError(
            f"the request stands, but the agent on the controller {heard}{'' if since == 'ever' else since}: {INSTALL}"
        )


def _show_status(channel: Channel) -> int:
    status, now = channel.status()
    for node, one in sorted(_nodes(status).items()):
        print(_line(node, one))
    if not _nodes(status):
        print("nobody asks for a node")
    for problem in (*_refusals(status), status.get("problem")):
        if problem:
            print(f"problem: {_clean(problem)}")
    _check_awake(status, now)
    return 0


def _follow(channel: Channel, wanted: Mapping[str, str], expires: float) -> int:
    """Print what changes until every node is at an end; 0 where each is ready."""
    shown: dict[str, str] = {}
    while True:
        status, now = channel.status()
        nodes = {
            node: one
            for node, one in _nodes(status).items()
            if node in wanted and (one.get("requests") or {}).get("operator") == wanted[node]
        }
        for node, one in sorted(nodes.items()):
            line = _line(node, one)
            if shown.get(node) != line:
                shown[node] = line
                print(line, flush=True)
        for refusal in _refusals(status):
            raise DrainError(f"the agent refuses it: {_clean(refusal)}")
        _check_awake(status, now)
        if len(nodes) == len(wanted) and all(one.get("state") in ENDED for one in nodes.values()):
            failed = [node for node, one in nodes.items() if one.get("state") != "ready"]
            if failed:
                print(f"not ready: {', '.join(sorted(failed))}", file=sys.stderr)
            return 1 if failed else 0
        if now > expires:
            late = sorted(node for node in wanted if nodes.get(node, {}).get("state") != "ready")
            raise DrainError(f"the hold is over, and the nodes go back to work; not ready in time: {', '.join(late)}")
        time.sleep(POLL_S)


def _nodes(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = status.get("nodes")
    return {node: one for node, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def _refusals(status: Mapping[str, Any]) -> list[str]:
    refused = status.get("refused")
    return [str(refused["operator"])] if isinstance(refused, dict) and "operator" in refused else []


def _state(status: Mapping[str, Any], node: str) -> str:
    return str(_nodes(status).get(node, {}).get("state"))


def _line(node: str, one: Mapping[str, Any]) -> str:
    message = _clean(one.get("message") or "")
    return f"{node}  {_clean(one.get('slurm') or '-')}  {_clean(one.get('state'))}{f': {message}' if message else ''}"


def _clean(text: object) -> str:
    """What a node says is shown on a terminal, which takes some characters for orders."""
    return "".join(character if character.isprintable() else "?" for character in str(text))[:1000]
