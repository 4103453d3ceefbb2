"""`cdk-hyperpod drain` and `undrain`: ask the agent on a Slurm cluster's controller for nodes, and follow what it does.

With the user's credentials, and no way into the cluster. `operator_channel` reads and writes the objects by which they speak.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import rich_click as click

from ..._lambda.hyperpod.common.drain_protocol import INSTANCE_ID, NodeRequest, NodeStatus, make_node_request
from ...config.slurm import DrainBackup
from .. import live, tables
from ..options import json_option, rights
from ..tables import complain, say, say_json
from .operator_channel import DrainError, Heard, OperatorChannel, open_channel

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
deploy meanwhile. It leaves nodes alone that somebody else, or HyperPod, has drained.
If somebody has asked for a node already, the later end of the two holds counts, it
is saved if either wants so, and their --force-after stays unless you give yours.
For Slurm; under EKS `kubectl drain` does it, and the refusal prints the command.

Exit code 0: asked for, and with --wait every node is ready, and saved unless you
say --no-backup or the file says on_failure: continue; 1: not.
"""


@click.command(
    help=_DRAIN,
    epilog=rights(
        *(
            "sagemaker:DescribeClusterNode",
            "s3:GetObject",
            "s3:PutObject",
            "s3:ListBucket",
            "kms:Decrypt",
            "kms:GenerateDataKey",
        ),
        besides="Those of S3 and KMS on the drain bucket and its key (docs/scale-down.md). With --cluster also "
        "sagemaker:DescribeCluster.",
    ),
)
@click.argument("nodes", nargs=-1, metavar="[NODE]…")
@click.option("--status", "status_only", is_flag=True, help="Only say what the agent does now.")
@click.option("--wait", is_flag=True, help="Follow it until every node is ready, or cannot be.")
@click.option("--hold", default="12h", metavar="TIME", help="Such as 90m; default: 12h, at most 24h.")
@click.option(
    "--force-after",
    metavar="TIME",
    help="Then requeue the jobs that still run, or cancel those that cannot be; default: never, the nodes go back when the "
    "hold is over.",
)
@click.option("--no-backup", is_flag=True, help="Save nothing, whatever the file says.")
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
    wait: bool,
    no_backup: bool,
    as_json: bool,
) -> int:
    """Ask for the nodes, or say what the agent does."""
    hold_s, force_s = _words(nodes, hold, force_after)
    if status_only == bool(nodes):
        raise click.UsageError("name the nodes to drain, or say --status")
    if as_json and not status_only:
        raise click.UsageError("--json is for --status")
    if wait and cluster is not None and not no_backup:
        raise click.UsageError(
            "--wait with --cluster does not know what the file wants saved: name the file by --config, or say --no-backup"
        )
    by_kubectl = (
        "kubectl get nodes" if status_only else _kubectl("drain", nodes, "--ignore-daemonsets --delete-emptydir-data")
    )
    channel = open_channel(
        live.find(config=config, cluster=cluster, region=region, profile=profile), config, by_kubectl
    )
    if status_only:
        return _show_status(channel, as_json=as_json)
    found = channel.addresses(nodes)
    heard = channel.listen()
    now, expires = heard.now, heard.now + hold_s
    fresh = {
        node: make_node_request(
            NodeRequest(
                writer="operator",
                request_id=uuid.uuid4().hex[:12],
                instance=node,
                address=ip,
                deadline=expires if force_s is None else now + force_s,
                expires=expires,
                force=force_s is not None,
                backup=not no_backup,
            )
        )
        for node, ip in found.items()
    }
    failed = {node for node in found if heard.state(node) in ("timed-out", "backup-failed")}

    def add(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        old = {request["id"]: request for request in requests}
        return [
            *(request for request in requests if request["id"] not in found),
            *(unite(old.get(node), request, anew=node in failed) for node, request in fresh.items()),
        ]

    asked = {request["id"]: request for request in channel.change(add) if request["id"] in found}
    count = "1 node, which is" if len(found) == 1 else f"{len(found)} nodes, which are"
    say(f"asked for {count} held until {_moment(expires)}")
    for node, request in asked.items():
        if any(request[name] != fresh[node][name] for name in ("expires", "deadline", "on_timeout", "backup")):
            say(f"{node}: somebody had asked for it already, so it is {_terms(request)}")
    _check_awake(heard)
    if wait:
        return _follow(channel, asked)
    say("`cdk-hyperpod drain --status` says how far it is")
    return 0


def unite(old: Mapping[str, Any] | None, new: Mapping[str, Any], *, anew: bool) -> dict[str, Any]:
    """What is wanted of a node that an operator has asked for before: nobody's hold ends earlier, and nobody's backup is
    left out.

    The same request for longer keeps its `request`, and with it what has been done for it. Another one gets its own, since
    what the agent said of the old one says nothing of it; `anew`: also the same one, which has failed.
    """
    if old is None:
        return dict(new)
    expires = max(old["expires"], new["expires"])
    united = {**new, "expires": expires, "backup": new["backup"] or old.get("backup") is True}
    if new["on_timeout"] == "fail":
        # Who says nothing of force does not take another's back.
        forced = old.get("on_timeout") == "force"
        united |= {"on_timeout": "force", "deadline": old.get("deadline")} if forced else {"deadline": expires}
    same = all(united[name] == old.get(name) for name in ("on_timeout", "backup", "ip"))
    return {**united, "request": old["request"] if same and not anew else new["request"]}


def _terms(request: Mapping[str, Any]) -> str:
    jobs = f", its jobs are ended at {_moment(request['deadline'])}" if request["on_timeout"] == "force" else ""
    return f"held until {_moment(request['expires'])}, {'saved' if request['backup'] else 'not saved'}{jobs}"


def _moment(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


@click.command(
    epilog=rights(
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket", "kms:Decrypt", "kms:GenerateDataKey"),
        besides="Exit code 0: given back, or nobody had asked for it; 1: the agent was not asked, or is silent.",
    )
)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE…")
@live.target_options
def undrain(nodes: Sequence[str], config: str, cluster: str | None, region: str | None, profile: str | None) -> None:
    """Give nodes back that `drain` asked for. Drains of others, and of HyperPod, stay. For Slurm; under EKS it is `kubectl uncordon`."""
    _words(nodes)
    found = live.find(config=config, cluster=cluster, region=region, profile=profile)
    channel = open_channel(found, config, _kubectl("uncordon", nodes))
    named = list(dict.fromkeys(nodes))
    gone: list[str] = []

    def remove(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        gone[:] = [request["id"] for request in requests if request["id"] in named]
        return [request for request in requests if request["id"] not in named]

    channel.change(remove)
    for node in named:
        say(f"{node}: {'is given back' if node in gone else 'nobody had asked for it'}")
    _check_awake(channel.listen())


def _words(nodes: Sequence[str], hold: str = "12h", force_after: str | None = None) -> tuple[int, int | None]:
    """How long the hold is, and when jobs end. Raises UsageError for all words that are wrong, before anybody is asked."""
    hold_s, force_s = _seconds(hold), None if force_after is None else _seconds(force_after)
    strange = [node for node in nodes if not re.fullmatch(INSTANCE_ID, node)]
    wrong = [
        f"{option}: must be minutes or hours such as 90m or 12h, at most 24h, got {text!r}"
        for option, text, span in (("--hold", hold, hold_s), ("--force-after", force_after, force_s))
        if span == 0
    ]
    if not wrong and force_s is not None and force_s > hold_s:
        wrong.append(f"--force-after {force_after} is later than the end of --hold {hold}")
    if strange:
        shown = ", ".join(ascii(node) for node in strange[:10])
        wrong.append(f"{shown}: is not an instance id such as i-0123456789abcdef0; `cdk-hyperpod nodes` lists them")
    if wrong:
        raise click.UsageError("\n".join(wrong))
    return hold_s, force_s


def _seconds(text: str) -> int:
    """A span of time, as it is typed; 0: it is none, or too long."""
    found = _SPAN.fullmatch(text)
    span = int(found[1]) * (60 if found[2] == "m" else 3600) if found else 0
    return span if span <= MOST_HOLD_S else 0


def _kubectl(verb: str, nodes: Sequence[str], options: str = "") -> str:
    """What does it under EKS, where HyperPod calls its nodes hyperpod-INSTANCE."""
    return " ".join(["kubectl", verb, *(f"hyperpod-{node}" for node in dict.fromkeys(nodes)), *options.split()])


# -- what the agent says ----------------------------------------------------------------------------------------------


def _check_awake(heard: Heard, *, stands: bool = True) -> None:
    """Raise DrainError where nobody does what is asked. `stands`: somebody has asked for something."""
    if heard.silence:
        but = "the request stands, but " if stands else ""
        raise DrainError(f"{but}the agent on the controller {heard.silence}: {INSTALL}")


def _show_status(channel: OperatorChannel, *, as_json: bool) -> int:
    heard = channel.listen()
    status = heard.status
    problems = [problem for problem in (status.refused.get("operator"), status.problem) if problem]
    if as_json:
        nodes = [
            {
                "instance_id": node,
                "host": one.host,
                "state": one.state,
                "message": one.message or None,
            }
            for node, one in sorted(status.nodes.items())
        ]
        where = {"cluster": channel.target.name, "region": channel.target.region}
        content = {**where, "nodes": nodes, "problems": problems}
        say_json("drain", 1, content)
    else:
        for node, one in sorted(status.nodes.items()):
            say(_line(node, one))
        if not status.nodes:
            say("nobody asks for a node")
        for problem in problems:
            say(f"problem: {tables.shown(problem)}")
    _check_awake(heard, stands=bool(status.nodes))
    return 0


def _follow(channel: OperatorChannel, asked: Mapping[str, Mapping[str, Any]]) -> int:
    """`_until_the_end`; who does not wait for it is told what goes on."""
    try:
        return _until_the_end(channel, asked)
    except KeyboardInterrupt:
        complain("", f"the request stands; cdk-hyperpod undrain {' '.join(asked)} gives them back")
        raise


def _until_the_end(channel: OperatorChannel, asked: Mapping[str, Mapping[str, Any]]) -> int:
    """Print what changes until every node is at an end; 0 where each is ready, and saved where it is to be.

    What others change of the requests meanwhile counts from then on.
    """
    shown: dict[str, str] = {}
    wanted = dict(asked)
    began = math.inf
    while True:
        current = channel.requests()
        heard = channel.listen()
        status, now = heard.status, heard.now
        began = min(began, now)
        wanted = {node: current.get(node, request) for node, request in wanted.items()}
        gone = sorted(node for node, request in wanted.items() if node not in current and request["expires"] > now)
        if gone:
            raise DrainError(f"somebody has given them back by `undrain`: {', '.join(gone)}")
        nodes = {
            node: one
            for node, one in status.nodes.items()
            if node in wanted and one.requests.get("operator") == wanted[node]["request"]
        }
        for node, one in sorted(nodes.items()):
            line = _line(node, one)
            if shown.get(node) != line:
                shown[node] = line
                say(line)
        # What it said before, to the second, may be of what stood in the request before.
        if "operator" in status.refused and status.beat is not None and status.beat > began + 1:
            raise DrainError(f"the agent refuses it: {tables.shown(status.refused['operator'])}")
        _check_awake(heard)
        if len(nodes) == len(wanted) and all(one.state in ENDED for one in nodes.values()):
            return _sum_up(nodes, wanted, channel.backup)
        late = sorted(node for node in wanted if node not in nodes or nodes[node].state != "ready")
        if any(now > wanted[node]["expires"] for node in late):
            raise DrainError(f"the hold is over, and the nodes go back to work; not ready in time: {', '.join(late)}")
        time.sleep(POLL_S)


def _sum_up(
    nodes: Mapping[str, NodeStatus], wanted: Mapping[str, Mapping[str, Any]], backup: DrainBackup | None
) -> int:
    failed = sorted(node for node, one in nodes.items() if one.state != "ready")
    # Drained by another, dead, or by an agent whose file has no backup yet: ready, and its data goes with it.
    unsaved = sorted(
        node
        for node, one in nodes.items()
        if backup is not None and node not in failed and wanted[node].get("backup") and not one.saved
    )
    for what, which in (("ready", failed), ("saved", unsaved)):
        if which:
            complain(f"not {what}: {', '.join(which)}")
    return 1 if failed or (unsaved and backup is not None and backup.on_failure == "fail") else 0


def _line(node: str, one: NodeStatus) -> str:
    message = tables.shown(one.message)
    return f"{node}  {tables.shown(one.host or '-')}  {tables.shown(one.state)}{f': {message}' if message else ''}"
