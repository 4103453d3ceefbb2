"""`cdk-hyperpod drain` and `undrain`: write drain requests for the agent on a Slurm cluster's controller, and follow its status.

Both use the user's credentials and need no access to the cluster. `operator_channel` reads and writes the objects in S3.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import rich_click as click

from ..._lambda.hyperpod.kernel.drain_protocol import INSTANCE_ID, NodeRequest, NodeStatus, make_node_request
from ...config.slurm import DrainBackup
from .. import live, tables
from ..options import json_option, permissions
from ..tables import complain, say, say_json
from .operator_channel import DrainError, OperatorChannel, StatusReading, open_channel

POLL_S = 5.0
MOST_HOLD_S = 24 * 3600
ENDED = ("ready", "unknown", "refused", "timed-out", "backup-failed")
"""States that a node keeps until an operator acts."""
FAILED = ("timed-out", "backup-failed")
"""States after which the same drain request is sent anew."""
_START_AGENT = (
    "If it does not run, start it by `cdk-hyperpod lifecycle run drain | bash`. `journalctl -u cdk-hyperpod-drain` on the "
    "controller shows its errors"
)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([mh])")

_DRAIN = """\
Drain Slurm nodes, and save their data, before you delete, replace or reboot them.
The drain agent on the controller starts no new job on the nodes, waits until
their jobs end, saves what slurm.drain.backup of the file names, and drains them.

Examples:
    cdk-hyperpod drain i-0123456789abcdef0 --wait
    cdk-hyperpod drain --status

The nodes stay drained until --hold is over, or until `undrain`. Deploy in the
meantime. Nodes that an administrator or HyperPod has drained are left alone.
If a drain request for a node exists already, the two are merged: the later end of
the hold counts, the data is saved if either request says so, and the other
--force-after stays unless you give your own.
Under EKS use `kubectl drain`; the error message prints the command.

Exit code 0: the drain is requested. With --wait, every node is ready, and saved
unless you gave --no-backup or the file says on_failure: continue. 1: otherwise.
"""


@click.command(
    help=_DRAIN,
    epilog=permissions(
        *(
            "sagemaker:DescribeClusterNode",
            "s3:GetObject",
            "s3:PutObject",
            "s3:ListBucket",
            "kms:Decrypt",
            "kms:GenerateDataKey",
        ),
        besides="Those of S3 and KMS are needed on the drain bucket and its key (docs/drain-permissions.md). --cluster also needs "
        "sagemaker:DescribeCluster.",
    ),
)
@click.argument("nodes", nargs=-1, metavar="[NODE]…")
@click.option("--status", "status_only", is_flag=True, help="Show the state of every node that is being drained.")
@click.option("--release", is_flag=True, help="Release the nodes that a patch holds which is not running any more.")
@click.option("--wait", is_flag=True, help="Wait until every node is ready or has failed.")
@click.option(
    "--hold",
    default="12h",
    metavar="TIME",
    help="How long the nodes stay drained, such as 90m; default: 12h, at most 24h.",
)
@click.option(
    "--force-after",
    metavar="TIME",
    help="Requeue jobs that still run after TIME, and cancel those that cannot be requeued; default: never, the nodes are "
    "released when the hold is over.",
)
@click.option("--no-backup", is_flag=True, help="Do not save data, whatever the file says.")
@json_option
@live.target_options
def drain(
    nodes: Sequence[str],
    hold: str,
    force_after: str | None,
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    *,
    status_only: bool,
    release: bool,
    wait: bool,
    no_backup: bool,
    as_json: bool,
) -> int:
    """Write the drain request, or show the agent's status."""
    times = _parse_times(nodes, hold, force_after)
    _check_options(nodes, status_only=status_only, release=release, is_of_file=cluster is None, as_json=as_json)
    if wait and cluster is not None and not no_backup:
        raise click.UsageError(
            "--wait: cannot be combined with --cluster, because only the file says what is saved. Name the file by --config, "
            "or add --no-backup"
        )
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    if release:
        # By its name: `patch` is made of what the commands of this room are made of.
        import_module("...patch.release", __name__).release(target)
        return 0
    if status_only:
        return _show_status(open_channel(target, config, "kubectl get nodes"), as_json=as_json)
    by_kubectl = _kubectl("drain", nodes, "--ignore-daemonsets --delete-emptydir-data")
    channel = open_channel(target, config, by_kubectl)
    return _request_drain(channel, nodes, times, backup=not no_backup, wait=wait)


def _check_options(nodes: Sequence[str], *, status_only: bool, release: bool, is_of_file: bool, as_json: bool) -> None:
    """Raises UsageError for the first rule that the options break."""
    rules = (
        (not (nodes or status_only or release), "NODE: is missing. Name the nodes to drain, or add --status"),
        (nodes and status_only, "NODE: cannot be combined with --status"),
        (nodes and release, "NODE: cannot be combined with --release. Name nodes to `cdk-hyperpod undrain`"),
        (release and status_only, "--release: cannot be combined with --status"),
        (release and not is_of_file, "--release: cannot be combined with --cluster. Name the file by --config"),
        (as_json and not status_only, "--json: needs --status"),
    )
    for is_broken, message in rules:
        if is_broken:
            raise click.UsageError(message)


def _request_drain(channel: OperatorChannel, nodes: Sequence[str], times: _Times, *, backup: bool, wait: bool) -> int:
    addresses = channel.addresses(nodes)
    reading = channel.read_status()
    fresh = _node_requests(addresses, times, reading.now, backup=backup)
    failed = {node for node in fresh if reading.state(node) in FAILED}
    requests = channel.change(lambda existing: merge(existing, fresh, failed))
    written = {request["id"]: request for request in requests if request["id"] in fresh}
    _say_requested(fresh, written)
    _check_awake(reading)
    if wait:
        return _follow(channel, written)
    say("`cdk-hyperpod drain --status` shows the progress")
    return 0


def _node_requests(
    addresses: Mapping[str, str], times: _Times, now: float, *, backup: bool
) -> dict[str, dict[str, Any]]:
    """What this command requests, by node."""
    expires = now + times.hold_s
    deadline = expires if times.force_s is None else now + times.force_s
    return {
        node: make_node_request(
            NodeRequest(
                writer="operator",
                request_id=uuid.uuid4().hex[:12],
                instance=node,
                address=address,
                deadline=deadline,
                expires=expires,
                force=times.force_s is not None,
                backup=backup,
            )
        )
        for node, address in addresses.items()
    }


def merge(
    existing: Sequence[dict[str, Any]], fresh: Mapping[str, Mapping[str, Any]], failed: Container[str]
) -> list[dict[str, Any]]:
    """The request with these nodes; those of other nodes stay. `failed`: nodes whose last drain failed."""
    of_node = {request["id"]: request for request in existing}
    others = [request for request in existing if request["id"] not in fresh]
    return others + [unite(of_node.get(node), request, anew=node in failed) for node, request in fresh.items()]


def _say_requested(fresh: Mapping[str, Mapping[str, Any]], written: Mapping[str, Mapping[str, Any]]) -> None:
    count = "1 node" if len(fresh) == 1 else f"{len(fresh)} nodes"
    (expires,) = {request["expires"] for request in fresh.values()}
    say(f"requested a drain of {count}, held until {_time(expires)}")
    for node, request in written.items():
        differs = any(request[member] != fresh[node][member] for member in _TERMS)
        if differs:
            say(f"{node}: merged with an existing drain request: {_terms(request)}")


_TERMS = ("expires", "deadline", "on_timeout", "backup")
"""Members of a node's request that an existing request may change."""


def unite(old: Mapping[str, Any] | None, new: Mapping[str, Any], *, anew: bool) -> dict[str, Any]:
    """Merge a node's request with an operator's existing one: no hold ends earlier, and no backup is left out.

    If only the hold changes, the existing id in `request` stays, and with it the agent's progress. Otherwise the new id is
    used, since the agent's status of the old one does not apply. `anew`: use the new id in any case, since the old one failed.
    """
    if old is None:
        return dict(new)
    expires = max(old["expires"], new["expires"])
    united = {**new, "expires": expires, "backup": new["backup"] or old.get("backup") is True}
    if new["on_timeout"] == "fail":
        # A request without --force-after does not remove that of another operator.
        is_forced = old.get("on_timeout") == "force"
        united |= {"on_timeout": "force", "deadline": old.get("deadline")} if is_forced else {"deadline": expires}
    is_same = all(united[name] == old.get(name) for name in ("on_timeout", "backup", "ip"))
    keeps_id = is_same and not anew
    return {**united, "request": old["request"] if keeps_id else new["request"]}


def _terms(request: Mapping[str, Any]) -> str:
    terms = [f"held until {_time(request['expires'])}", "saved" if request["backup"] else "not saved"]
    if request["on_timeout"] == "force":
        terms.append(f"its jobs end at {_time(request['deadline'])}")
    return ", ".join(terms)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


@click.command(
    epilog=permissions(
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket", "kms:Decrypt", "kms:GenerateDataKey"),
        besides="Exit code 0: released, or not requested before. 1: the request could not be changed, or the agent is silent.",
    )
)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE…")
@live.target_options
def undrain(nodes: Sequence[str], config: str, cluster: str | None, region: str | None, profile: str | None) -> None:
    """Release nodes that `drain` requested, so that Slurm starts jobs on them again.

    Example:
        cdk-hyperpod undrain i-0123456789abcdef0

    Drains of administrators and of HyperPod stay. Under EKS use `kubectl uncordon`.
    """
    _check_ids(nodes)
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    channel = open_channel(target, config, _kubectl("uncordon", nodes))
    named = list(dict.fromkeys(nodes))
    released: list[str] = []

    def remove(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        released[:] = [request["id"] for request in requests if request["id"] in named]
        return [request for request in requests if request["id"] not in named]

    channel.change(remove)
    still = channel.requests()
    for node in named:
        done = "released" if node in released else "no operator requested a drain"
        say(f"{node}: {done}{_OF_A_PATCH if node in still else ''}")
    _check_awake(channel.read_status())


_OF_A_PATCH = ", but `cdk-hyperpod patch` holds it until its end. If that command was lost, run it again, or `cdk-hyperpod drain --release`"


@dataclass(frozen=True, slots=True)
class _Times:
    """The times of a drain, in seconds."""

    hold_s: int
    force_s: int | None
    """None: jobs are never ended."""


def _parse_times(nodes: Sequence[str], hold: str, force_after: str | None) -> _Times:
    """The times of the options. Raises UsageError for everything that is wrong with them and with the ids of the nodes."""
    hold_s = parse_span(hold)
    force_s = None if force_after is None else parse_span(force_after)
    problems = [
        f"{option}: must be minutes or hours such as 90m or 12h, at most 24h, got {text!r}"
        for option, text, span in (("--hold", hold, hold_s), ("--force-after", force_after, force_s))
        if span == 0
    ]
    if not problems and force_s is not None and force_s > hold_s:
        problems.append(f"--force-after: is {force_after}, which is later than the end of --hold {hold}")
    problems += _wrong_ids(nodes)
    if problems:
        raise click.UsageError("\n".join(problems))
    return _Times(hold_s, force_s)


def _check_ids(nodes: Sequence[str]) -> None:
    """Raises UsageError for names that are not instance ids."""
    problems = _wrong_ids(nodes)
    if problems:
        raise click.UsageError("\n".join(problems))


def _wrong_ids(nodes: Sequence[str]) -> list[str]:
    wrong = [ascii(node) for node in nodes if not re.fullmatch(INSTANCE_ID, node)]
    if not wrong:
        return []
    return [
        f"{', '.join(wrong[:10])}: is not an instance id such as i-0123456789abcdef0. `cdk-hyperpod nodes` lists them"
    ]


def parse_span(text: str) -> int:
    """A span of time as it is typed; 0: invalid, or too long."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return 0
    span = int(found[1]) * _UNITS_S[found[2]]
    return span if span <= MOST_HOLD_S else 0


_UNITS_S = {"m": 60, "h": 3600}


def _kubectl(verb: str, nodes: Sequence[str], options: str = "") -> str:
    """The command for the same under EKS, where HyperPod names its nodes hyperpod-INSTANCE."""
    return " ".join(["kubectl", verb, *(f"hyperpod-{node}" for node in dict.fromkeys(nodes)), *options.split()])


# -- the agent's status -----------------------------------------------------------------------------------------------


def _check_awake(reading: StatusReading, *, is_requested: bool = True) -> None:
    """Raises DrainError if the agent is silent. `is_requested`: there is a drain request, which then waits for the agent."""
    if reading.silence:
        kept = "the drain request is kept, but " if is_requested else ""
        raise DrainError(f"{kept}the agent on the controller {reading.silence}. {_START_AGENT}")


def _show_status(channel: OperatorChannel, *, as_json: bool) -> int:
    reading = channel.read_status()
    status = reading.status
    nodes = sorted(status.nodes.items())
    problems = [problem for problem in (status.refused.get("operator"), status.problem) if problem]
    if as_json:
        say_json(
            "drain",
            1,
            {
                "cluster": channel.target.name,
                "region": channel.target.region,
                "nodes": [_node_content(node, one) for node, one in nodes],
                "problems": problems,
            },
        )
    else:
        say(*(_line(node, one) for node, one in nodes))
        if not nodes:
            say("no node is being drained")
        say(*(f"problem: {tables.shown(problem)}" for problem in problems))
    _check_awake(reading, is_requested=bool(nodes))
    return 0


def _node_content(node: str, one: NodeStatus) -> dict[str, str | None]:
    return {"instance_id": node, "host": one.host, "state": one.state, "message": one.message or None}


def _follow(channel: OperatorChannel, requested: Mapping[str, Mapping[str, Any]]) -> int:
    """Wait for the end. Ctrl-C leaves the request, and says how to withdraw it."""
    try:
        return _wait_until_ended(channel, requested)
    except KeyboardInterrupt:
        complain("", f"the drain request is kept. cdk-hyperpod undrain {' '.join(requested)} releases the nodes")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look at the drain request and the agent's status, for the nodes that are followed."""

    requests: Mapping[str, Mapping[str, Any]]
    """By node, as operators have written them last."""
    withdrawn: Sequence[str]
    """Nodes whose request was removed before it expired."""
    reading: StatusReading
    nodes: Mapping[str, NodeStatus]
    """The agent's status, of nodes for which it has seen this very request."""

    @property
    def all_ended(self) -> bool:
        """Whether every node is in its last state."""
        return self.nodes.keys() == self.requests.keys() and all(one.state in ENDED for one in self.nodes.values())

    @property
    def unready(self) -> list[str]:
        return sorted(node for node in self.requests if node not in self.nodes or self.nodes[node].state != "ready")


def _wait_until_ended(channel: OperatorChannel, requested: Mapping[str, Mapping[str, Any]]) -> int:
    """Print what changes until every node has ended. Returns 0 if each is ready, and saved if it has to be.

    If another operator changes a request meanwhile, the changed one counts. Raises DrainError if there is no use in waiting.
    """
    lines: dict[str, str] = {}
    requests = requested
    began = math.inf
    while True:
        look = _look(channel, requests)
        requests = look.requests
        began = min(began, look.reading.now)
        _refuse_withdrawn(look)
        _say_changes(look, lines)
        _refuse_rejected(look, began)
        _check_awake(look.reading)
        if look.all_ended:
            return _sum_up(look, channel.backup)
        _refuse_late(look)
        time.sleep(POLL_S)


def _look(channel: OperatorChannel, known: Mapping[str, Mapping[str, Any]]) -> _Look:
    current = channel.requests()
    reading = channel.read_status()
    requests = {node: current.get(node, request) for node, request in known.items()}
    return _Look(
        requests=requests,
        withdrawn=sorted(
            node for node, request in requests.items() if node not in current and request["expires"] > reading.now
        ),
        reading=reading,
        nodes={
            node: one
            for node, one in reading.status.nodes.items()
            if node in requests and one.requests.get("operator") == requests[node]["request"]
        },
    )


def _refuse_withdrawn(look: _Look) -> None:
    if look.withdrawn:
        raise DrainError(f"another operator released them by `cdk-hyperpod undrain`: {', '.join(look.withdrawn)}")


def _say_changes(look: _Look, lines: dict[str, str]) -> None:
    """Print the nodes whose line differs from the one in `lines`, and keep the new ones there."""
    for node, one in sorted(look.nodes.items()):
        line = _line(node, one)
        if lines.get(node) != line:
            lines[node] = line
            say(line)


def _refuse_rejected(look: _Look, began: float) -> None:
    status = look.reading.status
    # Times are full seconds. An older status may be about the request before this one.
    is_newer = status.beat is not None and status.beat > began + 1
    if "operator" in status.refused and is_newer:
        raise DrainError(f"the agent refuses the drain request: {tables.shown(status.refused['operator'])}")


def _refuse_late(look: _Look) -> None:
    is_over = any(look.reading.now > look.requests[node]["expires"] for node in look.unready)
    if is_over:
        raise DrainError(
            f"the hold is over, and the agent releases the nodes. Not ready in time: {', '.join(look.unready)}"
        )


def _sum_up(look: _Look, backup: DrainBackup | None) -> int:
    """Name the nodes that are not ready or not saved. Returns the exit code."""
    failed = sorted(node for node, one in look.nodes.items() if one.state != "ready")
    unsaved = [] if backup is None else _unsaved(look)
    for state, nodes in (("ready", failed), ("saved", unsaved)):
        if nodes:
            complain(f"not {state}: {', '.join(nodes)}")
    must_be_saved = backup is not None and backup.on_failure == "fail"
    return 1 if failed or (unsaved and must_be_saved) else 0


def _unsaved(look: _Look) -> list[str]:
    """Nodes that are ready without a backup: drained by an administrator, down, or drained by an agent without backup settings."""
    return sorted(
        node
        for node, one in look.nodes.items()
        if one.state == "ready" and look.requests[node].get("backup") and not one.saved
    )


def _line(node: str, one: NodeStatus) -> str:
    state = tables.shown(one.state)
    message = tables.shown(one.message)
    return f"{node}  {tables.shown(one.host or '-')}  {f'{state}: {message}' if message else state}"
