"""`cdk-hyperpod plan`: what a deployment of a cluster file would take away from the live cluster.

The planner is the deployment's own, on the same pinned API models; only the credentials are the user's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.cluster import ClusterConfig, InstanceGroup, ScaleDownConfig
from ..errors import HyperPodError
from ..loader import load_config
from ..names import cluster_stack_name, foundation_stack_name

if TYPE_CHECKING:
    from .._lambda.hyperpod_provider.actions import Plan, Refuse
    from .._lambda.hyperpod_provider.model import Cluster, Desired, DesiredGroup

__all__ = ["PlanError", "add_plan_parser", "clients", "desired", "user_session"]

_DESCRIPTION = """\
Read the live cluster with your AWS credentials and say what a deployment of the
file would take away: which nodes, and why; and which settings change, and what
each change does. Nothing is changed. What is for life
(first zone, range, VPC, orchestrator, the file system's EFA) is compared with
what lives; the groups' roles and subnets are known to a deployment only: a
change of them is refused there. A group that an autoscaler owns is judged as if
the deployment changed something of the cluster; one that changes nothing of it
sends no count, and is not refused.

Exit code 0: nothing would be taken away; 2: nodes or groups would go, undrained;
1: the deployment would be refused, or the cluster could not be read. With
--confirm, 0: a deployment may go on; 1: it may not.
"""

Clients = Callable[[str], Any]
"""A client of each service, with the user's credentials."""


class PlanError(HyperPodError):
    """The live cluster could not be read, or is not the file's."""


def add_plan_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add `plan` to a tool's commands; it sets `run`, which takes the options."""
    plan = subparsers.add_parser(
        "plan",
        help="say what a deployment would take away from the live cluster",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_asking_options(plan)
    plan.add_argument("--endpoint-url", metavar="URL", help="another endpoint than the region's own, for every service")
    plan.add_argument("--confirm", action="store_true", help="ask before a deployment where something would go")
    plan.add_argument("--yes", action="store_true", help="with --confirm: do not ask, it is meant")
    plan.set_defaults(run=_run)
    return plan


def add_asking_options(command: argparse.ArgumentParser) -> None:
    """What every command that asks AWS about a file needs to know."""
    add_config_option(command)
    add_profile_option(command)
    command.add_argument(
        "--stack",
        metavar="NAME",
        help="the stack that has the cluster in it; default: the one that the live cluster's tag names",
    )


def add_config_option(command: argparse.ArgumentParser) -> None:
    """The file that a command is about."""
    command.add_argument("--config", default="cluster.yaml", metavar="PATH", help="default: cluster.yaml")


def add_profile_option(command: argparse.ArgumentParser) -> None:
    """Whose credentials a command uses."""
    command.add_argument(
        "--profile", metavar="NAME", help="of your AWS configuration; default: AWS_PROFILE, or default"
    )


def _run(options: argparse.Namespace) -> int:
    config = load_config(options.config).config
    from .._lambda.hyperpod_provider.actions import Plan
    from .._lambda.hyperpod_provider.model import FIRST
    from .._lambda.hyperpod_provider.planner import plan
    from .report import CHANGES, WIDTH, exit_code, report

    client = clients(config.region, options.profile, options.endpoint_url)
    live = _read(config, client)
    # `--confirm` comes before a deployment of this app's own stacks.
    stack = options.stack or (None if options.confirm else tagged_stack(live)) or cluster_stack_name(config.name)
    wanted = desired(config, live, stack)
    resources, unread = _template(live, stack, client)
    deployed = None if live is None or resources is None else _deployed_ids(resources)
    found = plan(live, wanted, replace(FIRST, deployed_ids=deployed))
    refused, notes = (
        _for_life(config, client) if stack == cluster_stack_name(config.name) else ((), _of_another(config, stack))
    )
    if refused:
        found = Plan(refusals=(*refused, *found.refusals))
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.write(report(found, live, wanted, colour=colour))
    for line in _changed(config, live, resources):
        print(line)
    for note in (*unread, *notes, *_standing(stack, found, client)):
        print("", *textwrap.wrap(note, WIDTH, break_long_words=False, break_on_hyphens=False), sep="\n")
    status = exit_code(found)
    return _confirmed(yes=options.yes) if options.confirm and status == CHANGES else status


def _confirmed(*, yes: bool) -> int:
    """0: the user wants it; 1: not, or nobody is there to be asked."""
    if yes:
        return 0
    if not sys.stdin.isatty():
        problem = "something would go, and there is no terminal to ask on"
        raise PlanError(f"{problem}: if it is meant, say --yes (make deploy PLAN_FLAGS=--yes)")
    sys.stdout.write("\nDeploy, and let them go? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return 0
    raise PlanError("nothing was deployed")


# -- what lives -------------------------------------------------------------------------------------------------------


def _read(config: ClusterConfig, client: Clients) -> Cluster | None:
    from .._lambda.hyperpod_provider import api

    try:
        live = api.read_live(client("sagemaker"), config.name, tags=True)
    except (*api.CALL_ERRORS, ValueError) as error:  # a ValueError is an endpoint that is no URL
        raise PlanError(f"cannot read cluster {config.name} in {config.region}: {api.reason(error)}") from None
    if config.account is not None:
        account = _callers_account(client) if live is None else live.arn.split(":")[4]
        if account != config.account:
            raise PlanError(
                f"account: the file says {config.account}, your credentials are of {account}; use others (--profile NAME, "
                "make deploy PROFILE=NAME)"
            )
    return live


def _callers_account(client: Clients) -> str:
    """The account of the user's credentials, where no cluster tells it: there, a deployment would make everything anew. STS
    lets everybody ask who they are."""
    from .._lambda.hyperpod_provider import api

    try:
        return str(client("sts").get_caller_identity()["Account"])
    except api.CALL_ERRORS as error:
        raise PlanError(f"cannot read the account of your credentials: {api.reason(error)}") from None


def _for_life(config: ClusterConfig, client: Clients) -> tuple[tuple[Refuse, ...], tuple[str, ...]]:
    """What the foundation's guard would refuse, in its words, and what is worth a note."""
    from .._lambda.hyperpod_provider import api
    from .._lambda.hyperpod_provider.foundation_guard.decision import refusals
    from .._lambda.hyperpod_provider.foundation_guard.look import look
    from ..for_life import wish

    wanted = wish(config, cluster_stack_name(config.name))
    try:
        return refusals(wanted, look(wanted, foundation_stack_name(config.name), client)), ()
    except api.CALL_ERRORS as error:
        # Not everybody who deploys may read this; the deployment's own guard may.
        return (), (f"What is for life was not compared: {api.reason(error)}",)


def _of_another(config: ClusterConfig, stack: str) -> tuple[str, ...]:
    """What to know of a plan for a stack that is not of this app."""
    said = (
        f"This is what a deployment of stack {stack} would take, which has the cluster. Stack {cluster_stack_name(config.name)}, which "
        "this file makes by itself, may not touch that cluster: its deployment would be refused."
    )
    return (said,)


def _template(live: Cluster | None, stack: str, client: Clients) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The resources of the deployed template; None: nobody knows, with a note where there is a cluster."""
    from .._lambda.hyperpod_provider import api

    if live is None:
        return None, ()
    unread = "What was deployed before was not read"
    try:
        reply = client("cloudformation").get_template(StackName=stack)
        resources: Mapping[str, Any] = json.loads(reply.get("TemplateBody", ""))["Resources"]
    except api.CALL_ERRORS as error:
        if "does not exist" in api.reason(error):
            return {}, ()
        return None, (f"{unread}: {api.reason(error)}",)
    except (ValueError, KeyError, TypeError):
        return None, (f"{unread}: the stack's template is no JSON.",)
    return resources, ()


def _deployed_ids(resources: Mapping[str, Any]) -> frozenset[str]:
    """Ids that the deployed template names: tombstones, which a deployment refuses for nothing."""
    from .._lambda.hyperpod_provider.wire import PREPARE

    (guard,) = [each for each in resources.values() if each["Type"] == PREPARE] or [{}]
    return frozenset(guard.get("Properties", {}).get("NodesToDelete", ()))


def _changed(config: ClusterConfig, live: Cluster | None, resources: Mapping[str, Any] | None) -> Iterator[str]:
    """What changes of the file that was deployed, setting by setting."""
    from ..config.changes import changed, record
    from .changes import change_lines, deployed_record

    deployed = deployed_record(resources or {})
    if live is None or not resources:
        return
    if deployed is None:
        yield from ("", "The stack keeps no record of its file: the next deployment writes one.")
    else:
        yield from change_lines(changed(deployed, record(config))) or ("", "No setting differs from what was deployed.")


def _standing(stack_name: str, found: Plan, client: Clients) -> Iterator[str]:
    """What an earlier deployment left, where it is still there and still to go."""
    from .._lambda.hyperpod_provider import api

    if not found.deletions:
        return
    try:
        (stack,) = client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"]
    except api.CALL_ERRORS as error:
        if "does not exist" not in api.reason(error):
            yield f"What the last deployment left standing was not read: {api.reason(error)}"
        return
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    if outputs.get("StillStanding", "nothing") != "nothing":
        yield (
            f"The last deployment left standing: {outputs['StillStanding']}. The same file again would change nothing: write "
            "another scale_down.retry (any text), and the deployment goes on."
        )


def user_session(profile: str | None = None) -> Any:
    """botocore's own session, with the user's credentials. Raises PlanError where there are none."""
    # Only what asks AWS needs botocore.
    try:
        import botocore.session  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise PlanError("this command reads AWS with boto3, which is not installed: pip install boto3") from None
    try:
        session = botocore.session.Session(profile=profile)
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise PlanError(f"your AWS credentials cannot be read: {error}") from None
    if credentials is None:
        raise PlanError(
            "there are no AWS credentials; name a profile of your AWS configuration: AWS_PROFILE=NAME, or --profile NAME "
            "(PROFILE=NAME with make)"
        )
    return session


def clients(region: str, profile: str | None = None, endpoint_url: str | None = None) -> Clients:
    """Clients with the user's credentials. Raises PlanError where there are none."""
    # The pinned models know no service that hands out credentials (SSO, STS), so botocore's own session gets them.
    session = user_session(profile)

    from .._lambda.hyperpod_provider import handler

    keys = session.get_credentials().get_frozen_credentials()
    made: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service == "sts":
            return session.create_client(service, region_name=region, endpoint_url=endpoint_url)
        if service not in made:
            made[service] = handler.make_client(
                service,
                profile=profile,
                region_name=region,
                endpoint_url=endpoint_url,
                aws_access_key_id=keys.access_key,
                aws_secret_access_key=keys.secret_key,
                aws_session_token=keys.token,
            )
        return made[service]

    return client


# -- the file ---------------------------------------------------------------------------------------------------------


def desired(config: ClusterConfig, live: Cluster | None, stack: str) -> Desired:
    """What a deployment of the file wants of the cluster, as far as the file alone tells. `stack`: the name of the stack that
    has the cluster in it."""
    from .._lambda.hyperpod_provider.model import Desired

    scale_down = config.scale_down or ScaleDownConfig()
    autoscaled = () if config.eks is None else config.eks.autoscaled_groups
    return Desired(
        cluster=config.name,
        groups=tuple(_group(group, live, autoscaled) for group in config.instance_groups),
        nodes_to_delete=scale_down.nodes_to_delete,
        groups_to_delete=scale_down.instance_groups_to_delete,
        max_nodes=scale_down.max_nodes,
        owner=_owner(stack, live),
    )


def _group(group: InstanceGroup, live: Cluster | None, autoscaled: Sequence[str]) -> DesiredGroup:
    from .._lambda.hyperpod_provider.model import DesiredGroup, Fixed

    # A deployment alone knows ids of subnets; an absent network would stand for the cluster's own.
    networks = {each.name: each.fixed.network for each in live.groups} if live else {}
    return DesiredGroup(
        name=group.name,
        count=group.instance_count,
        minimum=group.min_instance_count,
        fixed=Fixed(
            instance_types=group.all_instance_types,
            flexible=bool(group.instance_types),
            node_type=group.node_type and group.node_type.capitalize(),
            network=networks.get(group.name),
            threads_per_core=group.threads_per_core,
        ),
        autoscaled=group.name in autoscaled,
    )


def tagged_stack(live: Cluster | None) -> str | None:
    """The stack that the live cluster's tags name, in whatever app; None: there is no cluster, or no stack made it."""
    return next((stack_id.split("/")[1] for stack_id in _stack_ids(live)), None)


def _owner(stack: str, live: Cluster | None) -> str:
    """The id of the stack, where the live cluster's tags hold it; otherwise the stack's name, which is no id."""
    return next((found for found in _stack_ids(live) if f":stack/{stack}/" in found), f"the id of stack {stack}")


def _stack_ids(live: Cluster | None) -> Iterator[str]:
    from .._lambda.hyperpod_provider.refusals import OWNER_TAGS

    tags = (live.tags or {}) if live else {}
    return (tags[tag] for tag in OWNER_TAGS if ":stack/" in tags.get(tag, ""))
