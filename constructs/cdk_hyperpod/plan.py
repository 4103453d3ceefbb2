"""`cdk-hyperpod plan`: what a deployment of a cluster file would take away from the live cluster.

The planner is the deployment's own, on the same pinned API models; only the credentials are the user's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .config import ClusterConfig, InstanceGroup, ScaleDownConfig
from .errors import HyperPodError
from .loader import load_config

if TYPE_CHECKING:
    from ._lambda.hyperpod_provider.model import Cluster, Desired, DesiredGroup

__all__ = ["PlanError", "add_plan_parser", "desired"]

_DESCRIPTION = """\
Read the live cluster with your AWS credentials and say what a deployment of the
file would take away: which nodes, and why. Nothing is changed. The network, the
orchestrator and the groups' roles and subnets are known to a deployment only:
they are not compared here, and a change of them is refused there. A group that
an autoscaler owns is judged as if the deployment changed something of the
cluster; one that changes nothing of it sends no count, and is not refused.

Exit code 0: nothing would be taken away; 2: nodes or groups would go, undrained;
1: the deployment would be refused, or the cluster could not be read.
"""


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
    plan.add_argument("--config", default="cluster.yaml", metavar="PATH", help="default: cluster.yaml")
    plan.add_argument("--profile", metavar="NAME", help="of your AWS configuration; default: AWS_PROFILE, or default")
    plan.add_argument("--endpoint-url", metavar="URL", help="another SageMaker endpoint than the region's own")
    plan.set_defaults(run=_run)
    return plan


def _run(options: argparse.Namespace) -> int:
    config = load_config(options.config).config
    from ._lambda.hyperpod_provider.plan_report import exit_code, report
    from ._lambda.hyperpod_provider.planner import plan

    live = _read(config, options.profile, options.endpoint_url)
    wanted = desired(config, live)
    found = plan(live, wanted)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.write(report(found, live, wanted, colour=colour))
    return exit_code(found)


# -- the live cluster -------------------------------------------------------------------------------------------------


def _read(config: ClusterConfig, profile: str | None, endpoint_url: str | None) -> Cluster | None:
    # Nothing else in the library needs botocore.
    try:
        from ._lambda.hyperpod_provider import api
    except ModuleNotFoundError:
        raise PlanError("plan reads the live cluster with boto3, which is not installed: pip install boto3") from None
    try:
        live = api.read_live(_client(config.region, profile, endpoint_url), config.name, tags=True)
    except (*api.CALL_ERRORS, ValueError) as error:  # a ValueError is an endpoint that is no URL
        raise PlanError(f"cannot read cluster {config.name} in {config.region}: {api.reason(error)}") from None
    if live is not None and config.account is not None and f":{config.account}:cluster/" not in live.arn:
        account = live.arn.split(":")[4]
        raise PlanError(f"account: the file says {config.account}, your credentials are of {account}; use others")
    return live


def _client(region: str, profile: str | None, endpoint_url: str | None) -> Any:
    import botocore.session  # type: ignore[import-untyped]

    from ._lambda.hyperpod_provider import handler

    # The pinned models know no service that hands out credentials (SSO, STS), so botocore's own session gets them.
    credentials = botocore.session.Session(profile=profile).get_credentials()
    if credentials is None:
        raise PlanError(
            "there are no AWS credentials to read the live cluster with; name a profile of your AWS configuration: "
            "AWS_PROFILE=NAME, or --profile NAME"
        )
    keys = credentials.get_frozen_credentials()
    return handler.make_client(
        "sagemaker",
        profile=profile,
        region_name=region,
        endpoint_url=endpoint_url,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
    )


# -- the file ---------------------------------------------------------------------------------------------------------


def desired(config: ClusterConfig, live: Cluster | None) -> Desired:
    """What a deployment of the file wants of the cluster, as far as the file alone tells."""
    from ._lambda.hyperpod_provider.model import Desired

    scale_down = config.scale_down or ScaleDownConfig()
    autoscaled = () if config.eks is None else config.eks.autoscaled_groups
    return Desired(
        cluster=config.name,
        groups=tuple(_group(group, live, autoscaled) for group in config.instance_groups),
        nodes_to_delete=scale_down.nodes_to_delete,
        groups_to_delete=scale_down.instance_groups_to_delete,
        max_nodes=scale_down.max_nodes,
        owner=_owner(f"hyperpod-{config.name}-cluster", live),
    )


def _group(group: InstanceGroup, live: Cluster | None, autoscaled: Sequence[str]) -> DesiredGroup:
    from ._lambda.hyperpod_provider.model import DesiredGroup, Fixed

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


def _owner(stack: str, live: Cluster | None) -> str:
    """The id of the file's stack, where the live cluster's tags hold it; otherwise the stack's name, which is no id."""
    from ._lambda.hyperpod_provider.refusals import OWNER_TAGS

    ids = ((live.tags or {}).get(tag, "") for tag in OWNER_TAGS) if live else ()
    return next((found for found in ids if f":stack/{stack}/" in found), f"the id of stack {stack}")
