"""`cdk-hyperpod plan`: what a deployment of a cluster file would take away from the live cluster.

The planner is the deployment's own, on the same pinned API model; only the credentials are the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from ...config.cluster import ClusterConfig
from ...loader import load_config
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws
from ..aws import Clients, clients
from ..options import config_option, json_option, profile_option, rights, stack_option
from ..tables import ask, colour_wanted, say, say_json, wrapped
from .deployed_stack import (
    PlanError,
    deployed_guard,
    deployed_ids,
    deployed_template,
    refuse_another_account,
    still_standing,
    tagged_stack,
    tags_of,
)
from .desired import desired
from .plan_drain import agent_status, pods_on_nodes, refuse_undrainable, refuse_unevictable

if TYPE_CHECKING:
    from ..._lambda.hyperpod.common.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.cluster import Cluster, Node
    from ..._lambda.hyperpod.scale_down.drain.readiness import AgentStatus
    from ...config.changes import Changed

__all__ = ["plan"]

_DESCRIPTION = """\
Read the live cluster with your AWS credentials, and say what a deployment of the
file would take away: which nodes, and why. Say also which settings differ from the
file that was deployed, and what each change does. It changes nothing.

It also compares what you cannot change later (first zone, range, VPC,
orchestrator, the file system's EFA) with the live cluster. Only a deployment
knows the groups' roles and subnets, and refuses a change of them. For a group
that an autoscaler owns, plan assumes that the deployment changes something in
the cluster: one that changes nothing there sends no count, and is not refused.

Exit code 0: nothing would be taken away; 2: nodes or groups would go;
1: the deployment would be refused, or the cluster could not be read. With
--confirm, 0: a deployment may go on; 1: it may not.
"""


@click.command(
    help=_DESCRIPTION,
    epilog=rights(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:ListTags"),
        *("cloudformation:GetTemplate", "cloudformation:DescribeStacks", "cloudformation:ListStackResources"),
        *("ec2:DescribeSubnets", "fsx:DescribeFileSystems"),
        *("s3:GetObject", "s3:ListBucket", "kms:Decrypt"),
        besides="Without those of CloudFormation, EC2 and FSx, a note says what was not compared. Those of S3 and KMS are for "
        "slurm.drain: what jobs run on what would go. Under EKS kubectl says what pods do, if it may list nodes and pods.",
    ),
)
@config_option
@profile_option
@stack_option
@click.option("--endpoint-url", metavar="URL", help="Another endpoint than the region's own, for every service.")
@click.option("--confirm", is_flag=True, help="Ask before a deployment where something would go.")
@click.option("--yes", is_flag=True, help="With --confirm: do not ask, it is meant.")
@json_option
def plan(
    config: str,
    profile: str | None,
    stack: str | None,
    endpoint_url: str | None,
    *,
    confirm: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Say what a deployment would take away; the exit codes are in its help."""
    if as_json and confirm:
        raise click.UsageError("--json asks nobody: leave --confirm out")
    cluster = load_config(config).config
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.cluster import FIRST
    from ..._lambda.hyperpod.scale_down.planner import plan as planned
    from .report import CHANGES, exit_code, report

    client = clients(cluster.region, profile, endpoint_url)
    live = _read(cluster, client)
    # `--confirm` comes before a deployment of this app's own stacks.
    name = stack or (None if confirm else tagged_stack(tags_of(live))) or cluster_stack_name(cluster.name)
    wanted = desired(cluster, live, name)
    resources, unread = deployed_template(live, name, client)
    deployed = None if live is None or resources is None else deployed_ids(resources)
    said, unheard = agent_status(cluster, live, client)
    found = planned(live, wanted, replace(FIRST, deployed_ids=deployed))
    drains = wanted.drain is not None or "Drain" in deployed_guard(resources or {})
    held: tuple[str, ...] = ()
    unmanaged: Mapping[str, Sequence[str]] = {}
    if live is not None and live.eks_cluster and (drains or exit_code(found) == CHANGES):
        said, unheard, held, unmanaged = pods_on_nodes(live.eks_cluster, stays=wanted.drain is not None)
    if said is not None and wanted.drain is not None:
        # Only a deployment that asks for them knows who is busy.
        found = planned(live, wanted, replace(FIRST, deployed_ids=deployed, busy=frozenset(said.busy)))
    found = refuse_undrainable(found, live, wanted, said, resources)
    found = refuse_unevictable(found, live, wanted, unmanaged)
    own = name == cluster_stack_name(cluster.name)
    refused, notes = _for_life(cluster, client) if own else ((), _of_another(cluster, name))
    if refused:
        found = Plan(refusals=(*refused, *found.refusals))
    changes = _changes(cluster, live, resources)
    if exit_code(found) != CHANGES:
        unheard = ()
    told = (*held, *unheard, *_left_out(found, live, said), *unread, *notes, *still_standing(name, found, client))
    status = exit_code(found)
    if as_json:
        of_settings = {"changes": None if changes is None else [asdict(each) for each in changes]}
        content = {"cluster": cluster.name, "region": cluster.region, "stack": name, "exit_code": status}
        say_json("plan", 1, {**content, **_content(found, live, told, said), **of_settings})
        return status
    say(*report(found, live, wanted, said, colour=colour_wanted()))
    say(*_changed(changes, known=live is not None and bool(resources)))
    for note in told:
        say("", *wrapped(note))
    return _confirmed(yes=yes) if confirm and status == CHANGES else status


def _left_out(found: Plan, live: Cluster | None, said: AgentStatus | None) -> tuple[str, ...]:
    """Which nodes that would go are saved without some of their files."""
    if said is None:
        return ()
    doomed = {deletion.group for deletion in found.deletions}
    going = [pick.node for pick in (*found.taken, *found.held)]
    going += [node for node in (live.nodes if live else ()) if node.group in doomed and not node.leaving]
    names = sorted({node.name for node in going} & said.left_out.keys())
    if not names:
        return ()
    counts = ", ".join(f"{name} {said.left_out[name]}" for name in names[:20])
    more = f", and {len(names) - 20} more nodes" if len(names) > 20 else ""
    return (f"Files left out of backups: {counts}{more}. manifest.json beside each backup lists them by owner.",)


def _content(found: Plan, live: Cluster | None, notes: Sequence[str], said: AgentStatus | None) -> dict[str, Any]:
    """What --json prints: whoever would go, and why; what a deployment would refuse, wait for, or say besides."""
    doomed = [deletion.group for deletion in found.deletions]
    going = [(pick.node, str(pick.reason)) for pick in (*found.taken, *found.held)]
    going += [
        (node, "group deleted") for node in (live.nodes if live else ()) if node.group in doomed and not node.leaving
    ]
    return {
        "nodes": [
            {
                "node": node.name,
                "group": node.group,
                "status": node.status,
                "launch_time": node.launched,
                "reason": why,
                "jobs": _jobs(node, said),
            }
            for node, why in going
        ],
        "deleted_groups": doomed,
        "refusals": [{"path": each.path, "problem": each.why, "remedy": each.fix} for each in found.refusals],
        "waits": [wait.why for wait in found.waits],
        "notes": [*found.notes, *notes],
    }


def _jobs(node: Node, said: AgentStatus | None) -> list[str] | None:
    """Some of its jobs with their users, `4711 of alice`, or of its pods, `research/train-0`; None: nobody knows."""
    from ..._lambda.hyperpod.scale_down.drain.readiness import is_silent

    return None if said is None or is_silent(said) else list(said.busy.get(node.name, ()))


def _confirmed(*, yes: bool) -> int:
    """0: the user wants it; 1: not, or nobody is there to be asked."""
    if yes:
        return 0
    if not sys.stdin.isatty():
        problem = "something would go, and there is no terminal to ask on"
        raise PlanError(f"{problem}: if it is meant, say --yes (make deploy PLAN_FLAGS=--yes)")
    say("")
    ask("Deploy, and let them go? [y/N] ")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return 0
    raise PlanError("nothing was deployed")


# -- what lives -------------------------------------------------------------------------------------------------------


def _read(config: ClusterConfig, client: Clients) -> Cluster | None:
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down import clients

    try:
        live = clients.read_live(client("sagemaker"), config.name, tags=True)
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read cluster {config.name} in {config.region}: {aws.sentence(error)}") from None
    # Where no cluster tells the account, a deployment would make everything anew.
    refuse_another_account(config, client, None if live is None else live.arn.split(":")[4])
    return live


def _for_life(config: ClusterConfig, client: Clients) -> tuple[tuple[Refuse, ...], tuple[str, ...]]:
    """What the foundation's guard would refuse, in its words, and what is worth a note."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.foundation_guard.decision import differences
    from ..._lambda.hyperpod.foundation_guard.look import look
    from ...guard.for_life import immutable_settings

    wanted = immutable_settings(config, cluster_stack_name(config.name))
    try:
        return tuple(differences(wanted, look(wanted, foundation_stack_name(config.name), client))), ()
    except api.CALL_ERRORS as error:
        # Not everybody who deploys may read this; the deployment's own guard may.
        return (), (f"What you cannot change later was not compared: {aws.sentence(error)}",)


def _of_another(config: ClusterConfig, stack: str) -> tuple[str, ...]:
    """What to know of a plan for a stack that is not of this app."""
    said = (
        f"This is what a deployment of stack {stack} would take, which has the cluster. Stack {cluster_stack_name(config.name)}, which "
        "this file makes by itself, may not touch that cluster: its deployment would be refused."
    )
    return (said,)


def _changes(
    config: ClusterConfig, live: Cluster | None, resources: Mapping[str, Any] | None
) -> Sequence[Changed] | None:
    """What changes of the file that was deployed, setting by setting; None: nothing is deployed, or nobody knows what."""
    from ...config.changes import changed, record
    from ..changes import deployed_record

    deployed = None if live is None else deployed_record(resources or {})
    return None if deployed is None else changed(deployed, record(config))


def _changed(changes: Sequence[Changed] | None, *, known: bool) -> Iterator[str]:
    """The changes in words. `known`: the deployed template was read."""
    from ..changes import change_lines

    if changes is not None:
        yield from change_lines(changes) or ("", "No setting differs from what was deployed.")
    elif known:
        yield from ("", "The stack keeps no record of its file: the next deployment writes one.")
