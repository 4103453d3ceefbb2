"""What stays after `cdk destroy`, and what it goes on costing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import rich_click as click

from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from ...loader import load_config
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws
from ..options import config_option, json_option, profile_option, rights
from ..tables import say, say_json, table, wrapped

# US dollars for a GB-month of PERSISTENT_2 SSD storage by MB/s/TiB: list prices of us-east-1, a guide and no quote.
# https://aws.amazon.com/fsx/lustre/pricing/
_LUSTRE_GB_MONTH = {125: 0.145, 250: 0.210, 500: 0.340, 1000: 0.600}
_KEY_MONTH = 1.0


@click.command(
    epilog=rights(
        *("sagemaker:DescribeCluster", "sagemaker:ListTags"),
        besides="They only find the stack of another app than cdk-hyperpod's own. Without them, without credentials, and after "
        "the cluster is gone, the output says which name it supposes.\n\n"
        "Exit code 0: printed, also if nothing stays; 1: the file is wrong.",
    )
)
@config_option
@profile_option
@click.option(
    "--stack",
    metavar="NAME",
    help="The stack that network and storage are in; default: the one that the live cluster's tag names, and where "
    "that is cdk-hyperpod's own or none: hyperpod-NAME-foundation.",
)
@json_option
def retained(config: str, profile: str | None, stack: str | None, *, as_json: bool) -> None:
    """Say what stays after cdk destroy, and what it costs."""
    cluster = load_config(config).config
    stays = what_stays(cluster)
    # Where nothing stays, there is nothing to find.
    name, supposed = (stack, None) if stack or not stays else _stack(cluster, config, profile)
    if as_json:
        where = {
            "cluster": cluster.name,
            "region": cluster.region,
            "stack": name or foundation_stack_name(cluster.name),
            "supposed": supposed,
        }
        say_json("retained", 1, {**where, "stays": [asdict(each) for each in stays]})
    else:
        say(*retained_table(cluster, name, supposed).split("\n"))


def _stack(config: ClusterConfig, file: str, profile: str | None) -> tuple[str, str | None]:
    """The stack that has what stays, and why that is only supposed; None: the live cluster's tag says it."""
    # Only what asks AWS needs botocore.
    from ..._lambda.hyperpod.common import api
    from .. import live
    from .deployed_stack import live_stack, refuse_another_account

    own = foundation_stack_name(config.name)
    try:
        target = live.find(config=file, cluster=None, region=None, profile=profile)
        refuse_another_account(config, target.client)
        found = live_stack(config.name, target.client)
    except HyperPodError as error:
        if profile is not None:
            raise
        return own, str(error)
    except api.CALL_ERRORS as error:
        return own, f"the cluster's tag cannot be read: {aws.sentence(error)}"
    if found is None:
        return own, f"in {config.region}, these credentials find no cluster {config.name} that a stack made"
    return (own if found == cluster_stack_name(config.name) else found), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """One thing that stays."""

    what: str
    why: str
    monthly_usd: float | None
    """US dollars a month at us-east-1 list prices. None: by use."""


def what_stays(config: ClusterConfig) -> tuple[Retained, ...]:
    """Everything that deleting both stacks leaves behind, if they were deployed from this very file."""
    if config.removal == "destroy":
        return ()
    storage = config.storage
    stays = [Retained(what="KMS key", why="what it encrypted can be read", monthly_usd=_KEY_MONTH)]
    stays.append(Retained(what="Access log bucket", why="who read what, for a year", monthly_usd=None))
    if storage is not None and storage.capacity_gib is not None:
        stays.insert(
            0,
            Retained(
                what=f"FSx for Lustre file system, {storage.capacity_gib:,} GiB",
                why="your data",
                monthly_usd=storage.capacity_gib * _LUSTRE_GB_MONTH[storage.throughput_mbps_per_tib],
            ),
        )
        if any(repository.bucket_name is None for repository in storage.data_repositories):
            stays.insert(1, Retained(what="Data bucket", why="your data", monthly_usd=None))
        stays.append(Retained(what="Security group of the file system", why="the file system uses it", monthly_usd=0))
    if config.network.vpc_id is None:
        # Also without one in the file: an earlier deployment may have left it there (stacks/foundation_stack.py).
        why = "a kept file system is in it" if storage else "an earlier file system may be in it"
        stays.append(Retained(what="VPC and the cluster's subnet", why=why, monthly_usd=0))
    return tuple(stays)


_OF_SERVICES = (
    "Log groups that AWS services made stay (/aws/sagemaker/Clusters/, /aws/lambda/).",
    "The file counts as it was last deployed: deploy a changed removal before destroying.",
)


def retained_table(config: ClusterConfig, stack: str | None = None, supposed: str | None = None) -> str:
    """What stays, for a terminal of 80 columns. `stack`: the one that network and storage are in; None: this app's own.
    `supposed`: why that is not certain; None: it is."""
    stays = what_stays(config)
    if not stays:
        return "\n".join(
            [
                f"After cdk destroy, no data of {config.name} stays (removal: destroy).",
                "The KMS key goes after AWS's waiting period.",
                *_OF_SERVICES,
            ]
        )
    rows = [(item.what, _usd(item.monthly_usd), item.why) for item in stays]
    lines = [f"  {line}" for line in table(("what", "a month", "why"), rows, right=(1,))]
    return "\n".join(
        [
            f"After cdk destroy, this stays of {config.name} (removal: retain),",
            "at us-east-1 list prices:",
            *lines,
            f"Find them by the tag aws:cloudformation:stack-name = {stack or foundation_stack_name(config.name)};",
            "what an earlier version of the file made and kept has it too.",
            *(_supposed(supposed) if supposed else ()),
            *_OF_SERVICES,
            "docs/removal.md says how to use them again or delete them.",
        ]
    )


def _supposed(why: str) -> list[str]:
    return wrapped(
        f"This stack's name is supposed: {why}. If network and storage were in another stack, name it: --stack NAME."
    )


def _usd(amount: float | None) -> str:
    if amount is None:
        return "by use"
    return "free" if amount == 0 else f"about ${amount:,.0f}"
