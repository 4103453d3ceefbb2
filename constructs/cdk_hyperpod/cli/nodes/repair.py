"""`cdk-hyperpod replace` and `reboot`: BatchReplaceClusterNodes and BatchRebootClusterNodes for named nodes, never for a controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import rich_click as click

from .. import live, tables
from ..live import LiveError, Node
from ..options import json_option, permissions, yes_option

SCHEMA = 1
BATCH = 25
"""Nodes of one call at most (botocore: BatchReplaceClusterNodesRequest$NodeIds)."""
_SHOWN = 20


def _command(action: str, text: str, cost: str) -> click.Command:
    """Both commands. `cost`: what the nodes lose."""

    def run(
        names: Sequence[str],
        config: str,
        cluster: str | None,
        region: str | None,
        profile: str | None,
        *,
        yes: bool,
        as_json: bool,
    ) -> int:
        target = live.find(config=config, cluster=cluster, region=region, profile=profile)
        return _repair(action, cost, target, names, yes=yes, as_json=as_json)

    for option in (live.target_options, json_option, yes_option):
        run = option(run)
    run = click.argument("names", nargs=-1, required=True, metavar="NODE…")(run)
    needs = permissions(
        *(
            "sagemaker:DescribeCluster",
            "sagemaker:ListClusterNodes",
            f"sagemaker:Batch{action.capitalize()}ClusterNodes",
        ),
        besides="Exit code 0: requested for all nodes. 1: not for all, and a message names the others. `cdk-hyperpod watch` shows "
        "the progress.",
    )
    return click.command(name=action, help=f"{text}\n\n{_NODES}", epilog=needs)(run)


_NODES = "NODE is an instance id or a name such as ip-10-1-2-3. Drain a Slurm node first (cdk-hyperpod drain)."

replace = _command(
    "replace",
    "Replace nodes with new instances. Their jobs stop, and the data on their root and secondary volumes is lost.\n\n"
    "Example:\n    cdk-hyperpod replace i-0123456789abcdef0",
    "their jobs stop and their volumes are lost",
)
reboot = _command(
    "reboot",
    "Reboot nodes. Their jobs stop. Their volumes stay, and lifecycle scripts do not run again.\n\n"
    "Example:\n    cdk-hyperpod reboot i-0123456789abcdef0",
    "their jobs stop",
)


def _repair(action: str, cost: str, target: live.Target, names: Sequence[str], *, yes: bool, as_json: bool) -> int:
    described = live.describe(target)
    nodes = live.chosen(live.nodes(target, described), names)
    _refuse(nodes, slurm=live.is_slurm(described))
    ids = [str(node.instance_id) for node in nodes]
    if not yes:
        _confirm(action, cost, target.name, nodes)
    call = getattr(target.client("sagemaker"), f"batch_{action}_cluster_nodes")
    sent = _send(call, target.name, ids)
    if as_json:
        _show_json(action, target.name, sent)
    else:
        _show(action, target.name, len(ids), sent)
    if sent.unsent:
        # Without an answer from AWS, the first call that failed may have arrived.
        is_sure = hasattr(sent.error, "response")
        unsure = "" if is_sure else f" (of the first {BATCH}, AWS did not confirm the request)"
        tables.complain(f"not requested{unsure}: {', '.join(sent.unsent)}")
    if sent.error is not None:
        raise sent.error
    return 1 if sent.failed else 0


@dataclass(frozen=True, slots=True)
class _Failed:
    """A node that AWS refused."""

    node: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What became of the request."""

    accepted: Sequence[str]
    failed: Sequence[_Failed]
    unsent: Sequence[str] = ()
    """Nodes that were not sent because a call failed or was interrupted. The first ones may be sent without an answer."""
    error: BaseException | None = None
    """Why they were not sent."""


def _show_json(action: str, cluster: str, sent: _Sent) -> None:
    failed = [{"instance_id": each.node, "code": each.code, "message": each.message} for each in sent.failed]
    content = {"cluster": cluster, "asked": sent.accepted, "failed": failed, "not_sent": sent.unsent}
    tables.say_json(action, SCHEMA, content)


def _show(action: str, cluster: str, total: int, sent: _Sent) -> None:
    tables.say(f"{cluster}: {action} requested for {len(sent.accepted)} of {total} nodes")
    for each in sent.failed:
        tables.complain(f"{each.node}: refused: {each.code}: {tables.shown(each.message)}")


def _refuse(nodes: Sequence[Node], *, slurm: bool) -> None:
    """Raises LiveError with every node that cannot be repaired, before anything is requested.

    `slurm`: one of the groups is a controller's, even if no group says so: with standard provisioning only the lifecycle scripts
    may know it, and there is no SlurmConfig.
    """
    problems = [problem for node in nodes for problem in _problems(node, slurm=slurm)]
    if problems:
        raise LiveError("\n".join(["nothing was done:", *problems]))


def _problems(node: Node, *, slurm: bool) -> Iterator[str]:
    if node.node_type == "Controller":
        yield f"{node.name}: is a controller. Without it the whole cluster stops, so this tool never touches it"
    elif slurm and node.node_type is None:
        yield (
            f"{node.name}: may be a controller, because no group has a node_type. Add the node_type of {node.group} to the "
            "cluster file, and use --config instead of --cluster"
        )
    if not node.instance_id:
        yield f"{node.name}: is {node.status} and has no instance yet"


def _confirm(action: str, cost: str, cluster: str, nodes: Sequence[Node]) -> None:
    """Raises LiveError unless the user types the cluster's name."""
    if not sys.stdin.isatty():
        raise LiveError(
            "nothing was done: there is no terminal to confirm on. To go on without confirmation, add --yes"
        )
    for node in nodes[:_SHOWN]:
        tables.say(f"  {node.name}  {node.group}  {node.status}")
    if len(nodes) > _SHOWN:
        tables.say(f"  and {len(nodes) - _SHOWN} more")
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    tables.say(f"{action.capitalize()} {count} of {cluster}: {cost}.")
    tables.print_question("Type the cluster's name to go on: ")
    if sys.stdin.readline().strip() != cluster:
        raise LiveError("nothing was done")


def _send(call: Callable[..., live.Reply], cluster: str, ids: Sequence[str]) -> _Sent:
    """Send the nodes in batches, until a call fails."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    accepted: list[str] = []
    failed: list[_Failed] = []
    for start in range(0, len(ids), BATCH):
        batch = list(ids[start : start + BATCH])
        try:
            reply = call(ClusterName=cluster, NodeIds=batch)
        except (ClientError, BotoCoreError, KeyboardInterrupt) as error:
            return _Sent(accepted=accepted, failed=failed, unsent=list(ids[start:]), error=error)
        failed += [
            _Failed(str(one["NodeId"]), str(one["ErrorCode"]), str(one.get("Message", "")))
            for one in reply.get("Failed") or []
        ]
        refused = {each.node for each in failed}
        accepted += [node for node in batch if node not in refused]
    return _Sent(accepted=accepted, failed=failed)
