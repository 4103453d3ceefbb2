"""`cdk-hyperpod preflight`: whether the account can have the cluster of a file, before anything is deployed.

The one place that asks AWS; `preflight_checks` decides. What may not be read is "not checked", and never "passed".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import rich_click as click

from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from ...loader import load_config
from .. import aws
from ..aws import Clients
from ..options import config_option, json_option, profile_option, rights
from ..tables import GREEN, RED, WIDTH, YELLOW, colour_wanted, complain, say, say_json, table, wrapped
from .account_state import AccountState, LiveCluster, LiveEksCluster, LiveFileSystem, LiveGroup, LivePlan, NotRead, Read
from .preflight_checks import INTERFACES, Row, eks_clusters, exit_code, file_systems, rows

__all__ = ["preflight", "read_account_state"]

_HELP = """\
Say whether the account and region can have the cluster of a file: what it needs, what the account's quotas allow, what is in
use already, the verdict, and what to do. Counts the account's other clusters. It changes nothing.

It cannot promise capacity: a zone that offers a type may have none left.

Exit code 0: everything passed; 1: something is impossible, as with a file that has errors; 2: something was not checked, for one
because a right is missing; 3: nothing was, since AWS could not be asked: no credentials, expired, of another account, no network.
"""
_RIGHTS = (
    *("servicequotas:ListServiceQuotas", "servicequotas:ListAWSDefaultServiceQuotas"),
    *("sagemaker:ListClusters", "sagemaker:DescribeCluster", "sagemaker:DescribeTrainingPlan"),
    *("ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets"),
    *("ec2:DescribeNetworkInterfaces", "ssm:GetParameter", "iam:GetRole", "s3:ListBucket", "fsx:DescribeFileSystems"),
    "eks:DescribeCluster",
)
_BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
"""Where CDK's bootstrap writes its version, with the qualifier that it has unless somebody chose another."""
_COLOURS = {"passed": GREEN, "impossible": RED, "not checked": YELLOW}

NOT_ASKED = 3
"""Exit code where AWS could not be asked: it says nothing of the file."""

T = TypeVar("T")


class PreflightError(HyperPodError):
    """The account is not the file's, or cannot be asked."""


def _finite(_: click.Context, __: click.Parameter, days: float) -> float:
    """A range takes "nan", which is neither too small nor too large."""
    if not math.isfinite(days):
        raise click.BadParameter(f"{days} is no number of days.")
    return days


@click.command(help=_HELP, epilog=rights(*_RIGHTS, besides="What a right is missing for is not checked; the rest is."))
@config_option
@profile_option
@click.option("--days", type=click.FloatRange(0, 3650), callback=_finite, default=1.0, metavar="N", help="How long training plans have to last; default: 1.")  # fmt: skip
@click.option("--endpoint-url", metavar="URL", help="Another endpoint than the region's own, for every service.")
@json_option
def preflight(config: str, profile: str | None, days: float, endpoint_url: str | None, *, as_json: bool) -> int:
    """Ask, check, print."""
    cluster = load_config(config).config
    try:
        state = read_account_state(cluster, aws.clients(cluster.region, profile, endpoint_url))
    except (aws.AwsError, PreflightError) as error:
        complain(*str(error).split("\n"))
        return NOT_ASKED
    found = rows(cluster, state, days)
    if as_json:
        content = {"cluster": cluster.name, "region": cluster.region, "checks": [asdict(row) for row in found]}
        say_json("preflight", 1, {**content, "exit_code": exit_code(found)})
    else:
        say(*lines(found, colour=colour_wanted()))
    return exit_code(found)


def lines(found: tuple[Row, ...], *, colour: bool = False) -> Iterator[str]:
    """The checks as a table of 80 columns, and under it what to do about each that did not pass."""
    cells = [(row.check, row.needed, row.allowed, row.in_use, row.verdict) for row in found]
    headings = ("check", "needed", "allowed", "in use", "verdict")
    yield from table(headings, cells, columns=WIDTH, cut=(0,), right=(1, 2, 3), paint=_COLOURS if colour else None)
    for verdict in ("impossible", "not checked"):
        of_verdict = [row for row in found if row.verdict == verdict]
        if of_verdict:
            yield ""
            yield f"{verdict[0].upper()}{verdict[1:]}:"
        # One missing right leaves several checks open, and is said once.
        for remedy in dict.fromkeys(row.remedy for row in of_verdict):
            checks = ", ".join(row.check for row in of_verdict if row.remedy == remedy)
            yield from wrapped(f"{checks}: {remedy}", "  ", "    ")


# -- what is read -----------------------------------------------------------------------------------------------------


def read_account_state(config: ClusterConfig, client: Clients) -> AccountState:
    """What the checks need to know of the account. Raises PreflightError for another account than the file's, and where AWS
    cannot be asked at all; what the user may not read is a NotRead."""
    account = _account(client)
    if (why := aws.another_account(config.account, account)) is not None:
        raise PreflightError(why)
    names = {each.subnet_id for each in config.network.subnets}
    return AccountState(
        now=datetime.now(UTC),
        quotas=_try(partial(_quotas, client, "sagemaker")),
        interfaces=_try(partial(_interfaces, client)),
        clusters=_try(partial(_clusters, client, config.name)),
        zones=_try(partial(_zones, client)),
        offered=_try(partial(_offered, client, config)),
        free={name: _try(partial(_free, client, name)) for name in sorted(names)},
        plans={
            arn: _try(partial(_plan, client, arn))
            for arn in sorted({group.training_plan_arn for group in config.instance_groups if group.training_plan_arn})
        },
        bootstrap=_try(partial(_bootstrap, client)),
        needed={name: _try(look) for name, look in _named(config, client, account)},
        file_systems={name: _try(partial(_file_system, client, name)) for name in file_systems(config)},
        eks_clusters={name: _try(partial(_eks_cluster, client, name)) for name in eks_clusters(config)},
    )


def _account(client: Clients) -> str:
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        return str(client("sts").get_caller_identity()["Account"])
    except (ClientError, BotoCoreError) as error:
        raise PreflightError(aws.sentence(error)) from None


def _try(look: Callable[[], T | NotRead]) -> Read[T]:
    """What a look finds, or why it may not: one missing right hides one check, and not the others."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return look()
    except (ClientError, BotoCoreError) as error:
        return NotRead(why=aws.sentence(error))


def _quotas(client: Clients, service: str) -> Mapping[str, float]:
    """Applied quotas, and the defaults of those that have none applied."""
    asked = client("service-quotas")
    found: dict[str, float] = {}
    for call in (asked.list_aws_default_service_quotas, asked.list_service_quotas):
        for quota in aws.pages(call, "Quotas", ServiceCode=service, MaxResults=100):
            if "Value" in quota:
                found[quota["QuotaName"]] = quota["Value"]
    return found


def _interfaces(client: Clients) -> Read[tuple[float, int]]:
    quotas = _quotas(client, "vpc")
    if INTERFACES not in quotas:
        return NotRead(why=f'Service Quotas lists no quota "{INTERFACES}" here')
    there = aws.pages(client("ec2").describe_network_interfaces, "NetworkInterfaces", MaxResults=1000)
    return quotas[INTERFACES], sum(1 for _ in there)


def _clusters(client: Clients, name: str) -> tuple[LiveCluster, ...]:
    asked = client("sagemaker")
    found = []
    for summary in aws.pages(asked.list_clusters, "ClusterSummaries", MaxResults=100):
        try:
            cluster = asked.describe_cluster(ClusterName=summary["ClusterArn"])
        except Exception as error:
            if aws.is_gone(error):
                continue
            raise
        groups = [*cluster.get("InstanceGroups", ()), *cluster.get("RestrictedInstanceGroups", ())]
        found.append(
            LiveCluster(
                name=summary["ClusterName"],
                groups=tuple(_live(group, summary["ClusterName"] == name) for group in groups),
            )
        )
    return tuple(found)


def _live(group: Mapping[str, Any], own: bool) -> LiveGroup:
    """Of another cluster, nodes that are still there count too; the file's own may have as many as it was told to have."""
    types = (group.get("InstanceRequirements") or {}).get("DesiredInstanceTypes") or [""]
    return LiveGroup(
        name=group["InstanceGroupName"],
        instance_type=group.get("InstanceType") or types[0],
        count=max(group.get("TargetCount", 0), 0 if own else group.get("CurrentCount", 0)),
        spot="Spot" in (group.get("CapacityRequirements") or {}),
    )


def _zones(client: Clients) -> Mapping[str, str]:
    zones = client("ec2").describe_availability_zones()["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}


def _offered(client: Clients, config: ClusterConfig) -> Mapping[str, frozenset[str]]:
    kinds = sorted({kind.removeprefix("ml.") for group in config.instance_groups for kind in group.all_instance_types})
    found: dict[str, set[str]] = {}
    # A filter takes 200 values.
    for start in range(0, len(kinds), 200):
        wanted = [{"Name": "instance-type", "Values": kinds[start : start + 200]}]
        for offer in aws.pages(
            client("ec2").describe_instance_type_offerings, "InstanceTypeOfferings",
            LocationType="availability-zone", Filters=wanted,
        ):  # fmt: skip
            found.setdefault(f"ml.{offer['InstanceType']}", set()).add(offer["Location"])
    return {kind: frozenset(zones) for kind, zones in found.items()}


def _free(client: Clients, subnet: str) -> int | None:
    found = _found(partial(client("ec2").describe_subnets, SubnetIds=[subnet]), "InvalidSubnetID.NotFound")
    if found is None:
        return None
    (there,) = found["Subnets"]
    return int(there["AvailableIpAddressCount"])


def _plan(client: Clients, arn: str) -> LivePlan | None:
    try:
        plan = client("sagemaker").describe_training_plan(TrainingPlanName=arn.rpartition("/")[2])
    except Exception as error:
        if aws.is_gone(error):
            return None
        raise
    if plan["TrainingPlanArn"] != arn:
        return None
    parts = plan.get("ReservedCapacitySummaries", ())
    return LivePlan(
        status=plan["Status"],
        instance_type=next((part["InstanceType"] for part in parts), "nothing"),
        available=plan.get("AvailableInstanceCount", 0),
        zones=frozenset(
            part[key] for part in parts for key in ("AvailabilityZone", "AvailabilityZoneId") if key in part
        ),
        end=plan.get("EndTime", datetime.min.replace(tzinfo=UTC)),
    )


def _bootstrap(client: Clients) -> int | None:
    found = _found(partial(client("ssm").get_parameter, Name=_BOOTSTRAP), "ParameterNotFound")
    return None if found is None else int(found["Parameter"]["Value"])


def _file_system(client: Clients, name: str) -> LiveFileSystem | None:
    found = _found(partial(client("fsx").describe_file_systems, FileSystemIds=[name]), "FileSystemNotFound")
    if found is None:
        return None
    (system,) = found["FileSystems"]
    return LiveFileSystem(
        lifecycle=system.get("Lifecycle"),
        vpc=system.get("VpcId"),
        mount_name=(system.get("LustreConfiguration") or {}).get("MountName"),
    )


def _eks_cluster(client: Clients, name: str) -> LiveEksCluster | None:
    found = _found(partial(client("eks").describe_cluster, name=name), "ResourceNotFoundException")
    if found is None:
        return None
    cluster = found["cluster"]
    return LiveEksCluster(
        status=cluster.get("status"),
        vpc=(cluster.get("resourcesVpcConfig") or {}).get("vpcId"),
        authentication_mode=(cluster.get("accessConfig") or {}).get("authenticationMode"),
    )


def _role(client: Clients, arn: str) -> bool:
    found = _found(partial(client("iam").get_role, RoleName=arn.rpartition("/")[2]), "NoSuchEntity")
    # With another path it is another ARN, which nobody has.
    return found is not None and bool(found["Role"]["Arn"] == arn)


def _named(config: ClusterConfig, client: Clients, account: str) -> Iterator[tuple[str, Callable[[], Read[bool]]]]:
    """What else the file names and does not make, and how to look whether it is there."""
    roles = {
        *(config.lifecycle.writers if config.lifecycle else ()),
        *(config.eks.admin_role_arns if config.eks else ()),
    }
    for team in config.teams:
        roles |= {*team.role_arns, *filter(None, [team.pod_role_arn])}
    for role in sorted(roles):
        name = role.rpartition("/")[2]
        if (owner := role.split(":")[4]) != account:
            # GetRole takes a name, and finds another role of that name here, or none.
            yield (
                f"role {name} of {owner}",
                partial(NotRead, why=f"it is in another account than yours, {account}: ask there"),
            )
        else:
            yield f"role {name}", partial(_role, client, role)
    storage = config.storage
    if storage is not None:
        for bucket in sorted({each.bucket_name for each in storage.data_repositories if each.bucket_name}):
            yield f"bucket {bucket}", _there(partial(client("s3").head_bucket, Bucket=bucket), "404", "NoSuchBucket")


def _there(look: Callable[[], T], *gone: str) -> Callable[[], Read[bool]]:
    return lambda: _found(look, *gone) is not None


def _found(look: Callable[[], T], *gone: str) -> T | None:
    """What a look finds; None: AWS says by one of these codes that there is no such thing."""
    try:
        return look()
    except Exception as error:
        if aws.code(error) in gone:
            return None
        raise
