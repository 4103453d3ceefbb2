"""`cdk-hyperpod replace` and `reboot`: BatchReplaceClusterNodes and BatchRebootClusterNodes for named nodes, never for a controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import rich_click as click

from .. import live, tables
from ..live import LiveError, Node
from ..options import json_option, rights, yes_option

SCHEMA = 1
BATCH = 25
"""Most nodes of one call (botocore: BatchReplaceClusterNodesRequest$NodeIds)."""
_SHOWN = 20


def _command(action: str, text: str, cost: str) -> click.Command:
    """What both commands are. `cost`: what the nodes lose by it."""

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
    needs = rights(
        *(
            "sagemaker:DescribeCluster",
            "sagemaker:ListClusterNodes",
            f"sagemaker:Batch{action.capitalize()}ClusterNodes",
        ),
        besides="Exit code 0: asked for all of them; 1: not for all; a message says for which not. `cdk-hyperpod watch` follows it.",
    )
    return click.command(name=action, help=f"{text}\n\n{_NODES}", epilog=needs)(run)


_NODES = "NODE is an instance id or a name such as ip-10-1-2-3. Drain a Slurm node first (cdk-hyperpod drain)."

replace = _command(
    "replace",
    "Give nodes new instances. Their jobs stop, and what is on their root and secondary volumes is lost.",
    "their jobs stop and their volumes are lost",
)
reboot = _command(
    "reboot",
    "Reboot nodes. Their jobs stop; their volumes stay, and lifecycle scripts do not run again.",
    "their jobs stop",
)


def _repair(action: str, cost: str, target: live.Target, names: Sequence[str], *, yes: bool, as_json: bool) -> int:
    described = live.describe(target)
    nodes = live.chosen(live.nodes(target, described), names)
    _refuse(nodes, slurm="Eks" not in (described.get("Orchestrator") or {}))
    ids = [str(node.instance_id) for node in nodes]
    if not yes:
        _confirm(action, cost, target.name, nodes)
    call = getattr(target.client("sagemaker"), f"batch_{action}_cluster_nodes")
    asked, failed, unsent = _send(call, target.name, ids)
    if as_json:
        rows = [{"instance_id": node, "code": code, "message": message} for node, code, message in failed]
        tables.say_json(action, SCHEMA, {"cluster": target.name, "asked": asked, "failed": rows, "not_sent": unsent[0]})
    else:
        tables.say(f"{target.name}: asked to {action} {len(asked)} of {len(ids)} nodes")
        for node, code, message in failed:
            tables.complain(f"{node}: not: {code}: {tables.shown(message)}")
    if unsent[0]:
        # Only what AWS has answered was surely not heard.
        sure = "" if hasattr(unsent[1], "response") else f", or the first {BATCH} of them were without an answer"
        tables.complain(f"not asked for{sure}: {', '.join(unsent[0])}")
    if unsent[1] is not None:
        raise unsent[1]
    return 1 if failed else 0


def _refuse(nodes: Sequence[Node], *, slurm: bool) -> None:
    """All that cannot be, before anything is asked for. `slurm`: one of the groups is a controller's, told or not: with standard
    provisioning the lifecycle scripts may be the only ones to know (hence no SlurmConfig)."""
    wrong = [
        f"{node.name}: is a controller, whose loss stops the whole cluster; nothing of this tool touches it"
        for node in nodes
        if node.node_type == "Controller"
    ]
    wrong += [
        f"{node.name}: nobody tells which group is the controller; name the cluster file by --config, with {node.group}'s node_type "
        "in it, and no --cluster"
        for node in nodes
        if slurm and node.node_type is None
    ]
    wrong += [f"{node.name}: is {node.status} and has no instance yet" for node in nodes if not node.instance_id]
    if wrong:
        raise LiveError("\n".join(["nothing was done:", *wrong]))


def _confirm(action: str, cost: str, cluster: str, nodes: Sequence[Node]) -> None:
    """Raises LiveError unless the user types the cluster's name."""
    if not sys.stdin.isatty():
        raise LiveError("nothing was done: there is no terminal to confirm on; if it is meant, say --yes")
    for node in nodes[:_SHOWN]:
        tables.say(f"  {node.name}  {node.group}  {node.status}")
    if len(nodes) > _SHOWN:
        tables.say(f"  and {len(nodes) - _SHOWN} more")
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    tables.ask(f"{action.capitalize()} {count} of {cluster}: {cost}. Type the cluster's name to go on: ")
    if sys.stdin.readline().strip() != cluster:
        raise LiveError("nothing was done")


def _send(
    call: Callable[..., live.Reply], cluster: str, ids: Sequence[str]
) -> tuple[list[str], list[tuple[str, str, str]], tuple[list[str], BaseException | None]]:
    """What was accepted, what was refused and why, and what was not sent because a call before it failed or was interrupted, with
    that error."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    asked: list[str] = []
    failed: list[tuple[str, str, str]] = []
    for start in range(0, len(ids), BATCH):
        batch = list(ids[start : start + BATCH])
        try:
            reply = call(ClusterName=cluster, NodeIds=batch)
        except (ClientError, BotoCoreError, KeyboardInterrupt) as error:
            return asked, failed, (list(ids[start:]), error)
        failed += [
            (str(one["NodeId"]), str(one["ErrorCode"]), str(one.get("Message", "")))
            for one in reply.get("Failed") or []
        ]
        refused = {node for node, _, _ in failed}
        asked += [node for node in batch if node not in refused]
    return asked, failed, ([], None)
