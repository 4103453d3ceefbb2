"""`cdk-hyperpod plan`: what a deployment of a cluster file would take away from the live cluster.

The planner is the deployment's own, on the same pinned API model; only the credentials are the user's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import rich_click as click

from ...config.cluster import ClusterConfig, InstanceGroup, ScaleDownConfig
from ...config.rendering import Surroundings, guard_properties, network_spec, render_group
from ...errors import HyperPodError
from ...loader import load_config
from ...names import cluster_stack_name, drain_bucket_name, foundation_stack_name
from .. import aws
from ..aws import Clients, clients
from ..options import config_option, json_option, profile_option, rights, stack_option
from ..tables import ask, colour_wanted, say, say_json, wrapped

if TYPE_CHECKING:
    from ..._lambda.hyperpod.common.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.cluster import Cluster, Desired, Drain, Group, Node
    from ..._lambda.hyperpod.scale_down.drain.ready import Said
    from ...config.changes import Changed

__all__ = ["PlanError", "desired", "plan"]

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

_LATE = "arn:known-at-deployment-only"
"""Stands for what only a deployment knows, and nothing that a plan says depends on."""


class PlanError(HyperPodError):
    """The live cluster could not be read, or is not the file's."""


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
    name = stack or (None if confirm else tagged_stack(_tags(live))) or cluster_stack_name(cluster.name)
    wanted = desired(cluster, live, name)
    resources, unread = _template(live, name, client)
    deployed = None if live is None or resources is None else _deployed_ids(resources)
    said, unheard = _heard(cluster, live, client)
    found = planned(live, wanted, replace(FIRST, deployed_ids=deployed))
    drains = wanted.drain is not None or "Drain" in _guard(resources or {})
    held: tuple[str, ...] = ()
    unmanaged: Mapping[str, Sequence[str]] = {}
    if live is not None and live.eks_cluster and (drains or exit_code(found) == CHANGES):
        said, unheard, held, unmanaged = _pods(live.eks_cluster, stays=wanted.drain is not None)
    if said is not None and wanted.drain is not None:
        # Only a deployment that asks for them knows who is busy.
        found = planned(live, wanted, replace(FIRST, deployed_ids=deployed, busy=frozenset(said.busy)))
    found = _undrainable(found, live, wanted, said, resources)
    found = _unevictable(found, live, wanted, unmanaged)
    own = name == cluster_stack_name(cluster.name)
    refused, notes = _for_life(cluster, client) if own else ((), _of_another(cluster, name))
    if refused:
        found = Plan(refusals=(*refused, *found.refusals))
    changes = _changes(cluster, live, resources)
    if exit_code(found) != CHANGES:
        unheard = ()
    told = (*held, *unheard, *_left_out(found, live, said), *unread, *notes, *_standing(name, found, client))
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


def _left_out(found: Plan, live: Cluster | None, said: Said | None) -> tuple[str, ...]:
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


def _content(found: Plan, live: Cluster | None, notes: Sequence[str], said: Said | None) -> dict[str, Any]:
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


def _jobs(node: Node, said: Said | None) -> list[str] | None:
    """Some of its jobs with their users, `4711 of alice`, or of its pods, `research/train-0`; None: nobody knows."""
    from ..._lambda.hyperpod.scale_down.drain.ready import is_silent

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
    from ..._lambda.hyperpod.scale_down import calls

    try:
        live = calls.read_live(client("sagemaker"), config.name, tags=True)
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read cluster {config.name} in {config.region}: {aws.sentence(error)}") from None
    # Where no cluster tells the account, a deployment would make everything anew.
    refuse_another_account(config, client, None if live is None else live.arn.split(":")[4])
    return live


def refuse_another_account(config: ClusterConfig | None, client: Clients, account: str | None = None) -> None:
    """Raises PlanError where the file names another account than that of the credentials. `account`: theirs; None: not known."""
    if config is None or config.account is None:
        return
    if (why := aws.another_account(config.account, account or _callers_account(client))) is not None:
        raise PlanError(why)


def _callers_account(client: Clients) -> str:
    """The account of the user's credentials: STS lets everybody ask who they are."""
    from ..._lambda.hyperpod.common import api

    try:
        return str(client("sts").get_caller_identity()["Account"])
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read the account of your credentials: {aws.sentence(error)}") from None


def _for_life(config: ClusterConfig, client: Clients) -> tuple[tuple[Refuse, ...], tuple[str, ...]]:
    """What the foundation's guard would refuse, in its words, and what is worth a note."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.foundation_guard.decision import differences
    from ..._lambda.hyperpod.foundation_guard.look import look
    from ...guard.for_life import wish

    wanted = wish(config, cluster_stack_name(config.name))
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


def _template(live: Cluster | None, stack: str, client: Clients) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The resources of the deployed template; None: nobody knows, with a note where there is a cluster."""
    from ..._lambda.hyperpod.common import api

    if live is None:
        return None, ()
    unread = "What was deployed before was not read"
    try:
        reply = client("cloudformation").get_template(StackName=stack)
        body = reply.get("TemplateBody", "")
        # botocore reads the text of a JSON template by itself (botocore.handlers.json_decode_template_body).
        resources: Mapping[str, Any] = (json.loads(body) if isinstance(body, str) else body)["Resources"]
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return {}, ()
        return None, (f"{unread}: {aws.sentence(error)}",)
    except (ValueError, KeyError, TypeError):
        return None, (f"{unread}: the stack's template is not JSON.",)
    return resources, ()


def _deployed_ids(resources: Mapping[str, Any]) -> frozenset[str]:
    """Ids that the deployed template names: tombstones, which a deployment refuses for nothing."""
    return frozenset(_guard(resources).get("NodesToDelete", ()))


def _guard(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of the deployed guard; empty: there is none."""
    from ..._lambda.hyperpod.scale_down.wire import PREPARE

    (guard,) = [each for each in resources.values() if each["Type"] == PREPARE] or [{}]
    found: Mapping[str, Any] = guard.get("Properties", {})
    return found


def _changes(
    config: ClusterConfig, live: Cluster | None, resources: Mapping[str, Any] | None
) -> Sequence[Changed] | None:
    """What changes of the file that was deployed, setting by setting; None: nothing is deployed, or nobody knows what."""
    from ...config.changes import changed, record
    from ..cluster_file.changes import deployed_record

    deployed = None if live is None else deployed_record(resources or {})
    return None if deployed is None else changed(deployed, record(config))


def _changed(changes: Sequence[Changed] | None, *, known: bool) -> Iterator[str]:
    """The changes in words. `known`: the deployed template was read."""
    from ..cluster_file.changes import change_lines

    if changes is not None:
        yield from change_lines(changes) or ("", "No setting differs from what was deployed.")
    elif known:
        yield from ("", "The stack keeps no record of its file: the next deployment writes one.")


def _standing(stack_name: str, found: Plan, client: Clients) -> Iterator[str]:
    """What an earlier deployment left, where it is still there and still to go."""
    from ..._lambda.hyperpod.common import api

    if not found.deletions:
        return
    try:
        (stack,) = client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"]
    except api.CALL_ERRORS as error:
        if "does not exist" not in api.reason(error):
            yield f"What the last deployment left standing was not read: {aws.sentence(error)}"
        return
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    if outputs.get("StillStanding", "nothing") != "nothing":
        yield (
            f"The last deployment left standing: {outputs['StillStanding']}. The same file again would change nothing: write "
            "another scale_down.retry (any text), and the deployment goes on."
        )


# -- jobs ---------------------------------------------------------------------------------------------------------------


def _heard(config: ClusterConfig, live: Cluster | None, client: Clients) -> tuple[Said | None, tuple[str, ...]]:
    """What the agent that drains nodes says; absent: there is none, or it cannot be read, or is silent, with a note."""
    from ..._lambda.hyperpod.common import api
    from ..._lambda.hyperpod.scale_down.drain.channels import Bucket, NoStatusError, UnansweredError
    from ..._lambda.hyperpod.scale_down.drain.ready import Said, is_silent

    if live is None or config.slurm is None or config.slurm.drain is None:
        return None, ()
    try:
        bucket = drain_bucket_name(config.name, live.arn.split(":")[4], config.region)
        said = Bucket(bucket, config.name, lambda: client("s3"), lambda: client("sagemaker")).read()
    except api.CALL_ERRORS as error:
        unread = "Which jobs run on them was not read"
        if not isinstance(error, NoStatusError) and aws.code(error) != "NoSuchBucket":
            unanswered = isinstance(error, UnansweredError)
            return None, (f"{unread}: {f'the drain agent {error}.' if unanswered else aws.sentence(error)}",)
        said = Said(unreachable="has never been heard of")
    if is_silent(said):
        return said, ("It is not known which jobs run on them: the drain agent on the controller is silent.",)
    return said, ()


def _pods(
    eks_cluster: str, *, stays: bool
) -> tuple[Said | None, tuple[str, ...], tuple[str, ...], Mapping[str, Sequence[str]]]:
    """What kubectl says of the nodes, as the drainer would; a note where it does not; what is still held, in one; and the pods
    that no controller owns, by node.

    `stays`: the file has scale_down.drain, so the next deployment has a drainer.
    """
    from ..._lambda.hyperpod.scale_down.drain.ready import Said
    from ..nodes import kubernetes

    seen, why = kubernetes.look(eks_cluster)
    if seen is None:
        whether = "" if stays else ", nor whether a drainer still holds nodes"
        return None, (f"Which pods run on them was not read{whether}: {why}.",), (), {}
    said = Said(silent=timedelta(), saves=True, busy=seen.busy)
    if not seen.held:
        return said, (), (), seen.unmanaged
    names = ", ".join(seen.held)
    if stays:
        way = "A deployment that changes the cluster gives back what it does not take (another scale_down.retry is a change)."
    else:
        way = (
            "Its drainer goes with scale_down.drain, so give them back first, each by `kubectl uncordon NODE && "
            "kubectl annotate node NODE cdk-hyperpod.dev/drain-`."
        )
    return said, (), (f"Held for a deployment, one that runs or one that died: {names}. {way}",), seen.unmanaged


def _undrainable(
    found: Plan, live: Cluster | None, wanted: Desired, said: Said | None, resources: Mapping[str, Any] | None
) -> Plan:
    """The plan, refused where a deployment would find at its first look that it can drain nothing."""
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.drain.ready import Ask, Said, judge_first

    if wanted.drain is None or found.refusals:
        return found
    now = datetime.now(UTC)
    # Of a status or a template that could not be read, the deployment tells.
    said = said or Said(silent=timedelta(), saves=True)
    new = resources is not None and "Drain" not in _guard(resources)
    why = judge_first(found, live, said, Ask(drain=wanted.drain, began=now, now=now), new=new)
    return found if why is None else Plan(refusals=(why,))


def _unevictable(found: Plan, live: Cluster | None, wanted: Desired, unmanaged: Mapping[str, Sequence[str]]) -> Plan:
    """The plan, refused where a deployment would find pods that no controller owns."""
    from ..._lambda.hyperpod.common.refuse import Refuse
    from ..._lambda.hyperpod.scale_down.actions import Plan
    from ..._lambda.hyperpod.scale_down.drain.ready import going

    if wanted.drain is None or wanted.drain.evict_unmanaged or found.refusals:
        return found
    refusals = tuple(
        Refuse(
            path="scale_down.drain.unmanaged_pods",
            why=f"{node.name} has pods that no controller owns, so nothing would create them again: "
            + ", ".join(unmanaged[node.name]),
            fix="end them, or set it to evict",
        )
        for node in going(found, live)
        if node.name in unmanaged
    )
    return Plan(refusals=refusals) if refusals else found


# -- the file ---------------------------------------------------------------------------------------------------------


def desired(config: ClusterConfig, live: Cluster | None, stack: str) -> Desired:
    """What a deployment of the file wants of the cluster, as far as the file alone tells: what the guard reads of the template.
    `stack`: the name of the stack that has the cluster in it."""
    from ..._lambda.hyperpod.scale_down.wire import PREPARE, read_properties

    scale_down = config.scale_down or ScaleDownConfig()
    surroundings = Surroundings(
        continuous=config.node_provisioning_mode == "continuous",
        encrypts_root_volumes=config.encrypts_root_volumes,
        lifecycle_mode=config.lifecycle_mode,
        scripts_uri=_LATE,
    )
    lives = {group.name: group for group in live.groups} if live else {}
    groups = [json.dumps(_rendered(group, surroundings, lives.get(group.name))) for group in config.instance_groups]
    autoscaled = () if config.eks is None else config.eks.autoscaled_groups
    properties = guard_properties(config.name, groups, scale_down, autoscaled_groups=autoscaled, digest="")
    read = read_properties(properties, kind=PREPARE, owner=_owner(stack, live))
    return replace(read, drain=_drain(config, scale_down))


def _drain(config: ClusterConfig, scale_down: ScaleDownConfig) -> Drain | None:
    from ..._lambda.hyperpod.scale_down.cluster import Drain

    if (drain := scale_down.drain) is None:
        return None
    agent = config.slurm.drain if config.slurm else None
    return Drain(
        minutes=drain.timeout_minutes,
        force=drain.on_timeout == "force",
        undrained=drain.on_silent == "undrained",
        must_be_saved=agent is not None and agent.backup is not None and agent.backup.on_failure == "fail",
        evict_unmanaged=drain.unmanaged_pods == "evict",
    )


def _rendered(group: InstanceGroup, cluster: Surroundings, live: Group | None) -> dict[str, Any]:
    """The group as the template has it. Roles and subnets have ids that only a deployment knows: they are what lives."""
    there = None if live is None else live.fixed.network
    return render_group(
        group,
        cluster,
        role_arn=_LATE if live is None else live.fixed.execution_role or _LATE,
        network=None
        if there is None
        else network_spec(subnets=sorted(there.subnets), security_groups=sorted(there.security_groups)),
    )


def live_stack(cluster: str, client: Clients) -> str | None:
    """The stack that has the cluster of this name; None: there is no such cluster, or none made it. Raises api.CALL_ERRORS."""
    from ..._lambda.hyperpod.common import api

    sagemaker = client("sagemaker")
    try:
        return tagged_stack(api.read_tags(sagemaker, sagemaker.describe_cluster(ClusterName=cluster)["ClusterArn"]))
    except api.CALL_ERRORS as error:
        if aws.is_gone(error):
            return None
        raise


def tagged_stack(tags: Mapping[str, str] | None) -> str | None:
    """The stack that a live cluster's tags name, in whatever app; None: no stack made it."""
    return next((stack_id.split("/")[1] for stack_id in _stack_ids(tags)), None)


def _owner(stack: str, live: Cluster | None) -> str:
    """The id of the stack, where the live cluster's tags hold it; otherwise the stack's name, which is no id."""
    return next((found for found in _stack_ids(_tags(live)) if f":stack/{stack}/" in found), f"the id of stack {stack}")


def _tags(live: Cluster | None) -> Mapping[str, str] | None:
    return None if live is None else live.tags


def _stack_ids(tags: Mapping[str, str] | None) -> Iterator[str]:
    from ..._lambda.hyperpod.common.owner import OWNER_TAGS

    return (tags[tag] for tag in OWNER_TAGS if ":stack/" in tags.get(tag, "")) if tags else iter(())
