"""`cdk-hyperpod retained`: what remains after `cdk destroy`, and what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import rich_click as click

from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from ...loader import load_config
from ...names import cluster_stack_name, foundation_stack_name
from .. import aws
from ..options import config_option, json_option, permissions, profile_option
from ..tables import say, say_json, table, wrapped

# US dollars for a GB-month of PERSISTENT_2 SSD storage by MB/s/TiB: list prices of us-east-1, a guide and no quote.
# https://aws.amazon.com/fsx/lustre/pricing/
_LUSTRE_GB_MONTH = {125: 0.145, 250: 0.210, 500: 0.340, 1000: 0.600}
_KEY_MONTH = 1.0


@click.command(
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:ListTags"),
        besides="They are needed only to find the stack of another app. Without them, without credentials, and after the cluster "
        "was deleted, the output names the stack that it assumes.\n\n"
        "Exit code 0: printed, even if nothing remains. 1: the file has errors.",
    )
)
@config_option
@profile_option
@click.option(
    "--stack",
    metavar="NAME",
    help="The stack that has network and storage; default: hyperpod-NAME-foundation, or the other app's stack that the live "
    "cluster's tag names.",
)
@json_option
def retained(config: str, profile: str | None, stack: str | None, *, as_json: bool) -> None:
    """Show what remains after cdk destroy, and what it costs.

    Example:
        cdk-hyperpod retained

    Costs are by list prices of us-east-1.
    """
    cluster = load_config(config).config
    stays = what_stays(cluster)
    # If nothing remains, no stack has to be found.
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
    """The stack that has what remains, and why that is only assumed; None: the live cluster's tag names it."""
    # Only commands that call AWS need botocore.
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
        return own, f"in {config.region}, your credentials find no cluster {config.name} that a stack created"
    return (own if found == cluster_stack_name(config.name) else found), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """A resource that remains."""

    what: str
    why: str
    monthly_usd: float | None
    """US dollars per month at us-east-1 list prices. None: by use."""


def what_stays(config: ClusterConfig) -> tuple[Retained, ...]:
    """Everything that remains after both stacks are deleted, if they were deployed from this file."""
    if config.removal == "destroy":
        return ()
    storage = config.storage
    stays = [Retained(what="KMS key", why="to read what it encrypted", monthly_usd=_KEY_MONTH)]
    stays.append(Retained(what="Access log bucket", why="access records, for a year", monthly_usd=None))
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
        # Also without storage in the file: an earlier deployment may have left a file system (stacks/foundation_stack.py).
        why = "a kept file system is in it" if storage else "an earlier file system may be in it"
        stays.append(Retained(what="VPC and the cluster's subnet", why=why, monthly_usd=0))
    return tuple(stays)


_OF_SERVICES = (
    "Log groups of AWS services remain, too (/aws/sagemaker/Clusters/, /aws/lambda/).",
    "The last deployed removal counts. Deploy a changed one before you destroy.",
)


def retained_table(config: ClusterConfig, stack: str | None = None, supposed: str | None = None) -> str:
    """What remains, for a terminal of 80 columns. `stack`: the one that has network and storage; None: this app's own.
    `supposed`: why that is not certain; None: it is."""
    stays = what_stays(config)
    if not stays:
        return "\n".join(
            [
                f"After cdk destroy, no data of {config.name} remains (removal: destroy).",
                "AWS deletes the KMS key after a waiting period.",
                *_OF_SERVICES,
            ]
        )
    rows = [(item.what, _usd(item.monthly_usd), item.why) for item in stays]
    lines = [f"  {line}" for line in table(("what", "a month", "why"), rows, right=(1,))]
    return "\n".join(
        [
            f"After cdk destroy, this remains of {config.name} (removal: retain),",
            "at us-east-1 list prices:",
            *lines,
            f"Find them by the tag aws:cloudformation:stack-name = {stack or foundation_stack_name(config.name)};",
            "resources kept from an earlier version of the file have it too.",
            *(_supposed(supposed) if supposed else ()),
            *_OF_SERVICES,
            "docs/removal.md: how to use them again, or delete them.",
        ]
    )


def _supposed(why: str) -> list[str]:
    return wrapped(
        f"This stack's name is assumed: {why}. If network and storage were in another stack, name it by --stack NAME."
    )


def _usd(amount: float | None) -> str:
    if amount is None:
        return "by use"
    return "free" if amount == 0 else f"about ${amount:,.0f}"
