"""`cdk-hyperpod preflight`: check, before a deployment, whether the account can have the cluster of a file.

This module reads AWS; `preflight_checks`, `preflight_existing` and `preflight_doors` decide. What cannot be read is "not
checked", never "passed".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import rich_click as click

from ..._lambda.hyperpod.kernel.cluster_reading import all_groups, counts
from ..._lambda.hyperpod.kernel.topic_access import has_own_key, read_key_policy
from ...config.cluster import ClusterConfig
from ...errors import HyperPodError
from ...loader import load_config
from ...names import eks_stack_name
from .. import aws
from ..aws import Clients
from ..options import config_option, json_option, permissions, profile_option
from ..tables import GREEN, RED, WIDTH, YELLOW, colour_wanted, complain, say, say_json, table, wrapped
from .account_state import (
    AccountState,
    LiveCluster,
    LiveEksCluster,
    LiveFileSystem,
    LiveGroup,
    LivePlan,
    LiveTopic,
    NotRead,
    Read,
)
from .preflight_checks import INTERFACES, exit_code, rows
from .preflight_existing import eks_clusters, file_systems, topics
from .preflight_row import Row

__all__ = ["preflight", "read_account_state"]

_HELP = """\
Check whether the account and region can have the cluster of the file. For each check,
print what a deployment adds (needed), what the quotas allow, what all clusters use (in
use), the verdict, and what to do. Changes nothing.

Example:
    cdk-hyperpod preflight --days 30

Does not check capacity: a zone that offers an instance type may have none left.
Offers of the local AWS are made up, and the output says so.

"Open" means that the deployment is possible, and that somebody can do what the security
page names.

Exit code 0: everything passed or is open. 1: something is impossible, or the file has errors.
2: something was not checked, for example because a permission is missing. 3: AWS could
not be read: no credentials, expired ones, those of another account, or no network.
"""
_PERMISSIONS = (
    *("servicequotas:ListServiceQuotas", "servicequotas:ListAWSDefaultServiceQuotas"),
    *("sagemaker:ListClusters", "sagemaker:DescribeCluster", "sagemaker:DescribeTrainingPlan"),
    *("ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets"),
    *("ec2:DescribeNetworkInterfaces", "ssm:GetParameter", "iam:GetRole", "s3:ListBucket", "fsx:DescribeFileSystems"),
    *("eks:DescribeCluster", "sns:GetTopicAttributes", "kms:DescribeKey", "kms:GetKeyPolicy"),
    *("cloudwatch:DescribeAlarms", "s3:GetBucketPolicy", "iam:SimulatePrincipalPolicy"),
)
_BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
"""Where CDK's bootstrap writes its version, with CDK's default qualifier."""
_ASSETS = "cdk-hnb659fds-assets-{account}-{region}"
"""CDK's bucket of assets, with CDK's default qualifier."""
_COLOURS = {"passed": GREEN, "impossible": RED, "not checked": YELLOW, "open": YELLOW}

NOT_READ = 3
"""Exit code if AWS could not be read: it says nothing about the file."""

T = TypeVar("T")


class PreflightError(HyperPodError):
    """The account is not the file's, or cannot be read."""


def _finite(_: click.Context, __: click.Parameter, days: float) -> float:
    """Refuse "nan", which click's range accepts."""
    if not math.isfinite(days):
        raise click.BadParameter(f"{days} is not a number of days.")
    return days


@click.command(
    help=_HELP,
    epilog=permissions(*_PERMISSIONS, besides='Without a permission, the checks that need it are "not checked".'),
)
@config_option
@profile_option
@click.option("--days", type=click.FloatRange(0, 3650), callback=_finite, default=1.0, metavar="N", help="How long training plans must last from now; default: 1.")  # fmt: skip
@click.option("--endpoint-url", metavar="URL", help="AWS endpoint for every service; default: the region's.")
@json_option
def preflight(config: str, profile: str | None, days: float, endpoint_url: str | None, *, as_json: bool) -> int:
    """Read, check, print."""
    cluster = load_config(config).config
    try:
        state = read_account_state(cluster, aws.clients(cluster.region, profile, endpoint_url))
    except (aws.AwsError, PreflightError) as error:
        complain(*str(error).split("\n"))
        return NOT_READ
    found = rows(cluster, state, days)
    made_up_by = aws.local_endpoint("ec2", profile, endpoint_url)
    if as_json:
        content = {"cluster": cluster.name, "region": cluster.region, "checks": [asdict(row) for row in found]}
        say_json("preflight", 1, {**content, "made_up_by": made_up_by, "exit_code": exit_code(found)})
    else:
        say(*lines(found, colour=colour_wanted(), made_up_by=made_up_by))
    return exit_code(found)


def lines(found: tuple[Row, ...], *, colour: bool = False, made_up_by: str | None = None) -> Iterator[str]:
    """The checks as a table of 80 columns, and under it what to do about each that did not pass. `made_up_by`: the local AWS's
    endpoint; None: AWS has answered."""
    cells = [(row.check, row.needed, row.allowed, row.in_use, row.verdict) for row in found]
    headings = ("check", "needed", "allowed", "in use", "verdict")
    yield from table(headings, cells, columns=WIDTH, cut=(0,), right=(1, 2, 3), paint=_COLOURS if colour else None)
    for verdict in ("impossible", "not checked", "open"):
        of_verdict = [row for row in found if row.verdict == verdict]
        if of_verdict:
            yield ""
            yield f"{verdict[0].upper()}{verdict[1:]}:"
        # A missing permission may prevent several checks, and is named once.
        for remedy in dict.fromkeys(row.remedy for row in of_verdict):
            checks = ", ".join(row.check for row in of_verdict if row.remedy == remedy)
            yield from wrapped(f"{checks}: {remedy}", "  ", "    ")
    if made_up_by is not None:
        yield ""
        yield from wrapped(
            f"The local AWS on {made_up_by} has answered. Its offers are made up: every zone has every type. So are the "
            "quotas that were not set. AWS may answer differently."
        )


# -- what is read -----------------------------------------------------------------------------------------------------


def read_account_state(config: ClusterConfig, client: Clients) -> AccountState:
    """Read the account. Raises PreflightError for another account than the file's, and if AWS cannot be read at all. A part
    without permission is a NotRead."""
    caller = _caller(client)
    account = caller.split(":")[4]
    if (why := aws.another_account(config.account, account)) is not None:
        raise PreflightError(why)
    names = {each.subnet_id for each in config.network.subnets}
    return AccountState(
        now=datetime.now(UTC),
        account=account,
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
        topics={arn: _try(partial(_topic, client, arn)) for arn in topics(config)},
        assets_buckets=_assets_buckets(client, account, config.region),
        invokers=dict(_invokers(config, client, caller)) if config.orchestrator == "eks" else {},
    )


def _caller(client: Clients) -> str:
    """The ARN of the caller."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        return str(client("sts").get_caller_identity()["Arn"])
    except (ClientError, BotoCoreError) as error:
        raise PreflightError(aws.sentence(error)) from None


def _try(look: Callable[[], T | NotRead]) -> Read[T]:
    """The fact, or why it could not be read: a missing permission prevents some checks and not the others."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return look()
    except (ClientError, BotoCoreError) as error:
        return NotRead(why=aws.sentence(error))


def _quotas(client: Clients, service: str) -> Mapping[str, float]:
    """Applied quotas, and the defaults of all others."""
    service_quotas = client("service-quotas")
    found: dict[str, float] = {}
    for call in (service_quotas.list_aws_default_service_quotas, service_quotas.list_service_quotas):
        for quota in aws.pages(call, "Quotas", ServiceCode=service, MaxResults=100):
            if "Value" in quota:
                found[quota["QuotaName"]] = quota["Value"]
    return found


def _interfaces(client: Clients) -> Read[tuple[float, int]]:
    quotas = _quotas(client, "vpc")
    if INTERFACES not in quotas:
        return NotRead(why=f'Service Quotas lists no quota "{INTERFACES}" here')
    interfaces = aws.pages(client("ec2").describe_network_interfaces, "NetworkInterfaces", MaxResults=1000)
    return quotas[INTERFACES], sum(1 for _ in interfaces)


def _clusters(client: Clients, name: str) -> tuple[LiveCluster, ...]:
    sagemaker = client("sagemaker")
    found = []
    for summary in aws.pages(sagemaker.list_clusters, "ClusterSummaries", MaxResults=100):
        try:
            cluster = sagemaker.describe_cluster(ClusterName=summary["ClusterArn"])
        except Exception as error:
            if aws.is_gone(error):
                continue
            raise
        groups = all_groups(cluster)
        found.append(
            LiveCluster(
                name=summary["ClusterName"],
                groups=tuple(_live(group, summary["ClusterName"] == name) for group in groups),
                created=cluster.get("CreationTime"),
            )
        )
    return tuple(found)


def _live(group: Mapping[str, Any], own: bool) -> LiveGroup:
    """Nodes of other clusters count until they are terminated. The file's own cluster counts by its target."""
    current, target = counts(group)
    types = (group.get("InstanceRequirements") or {}).get("DesiredInstanceTypes") or [""]
    return LiveGroup(
        name=group["InstanceGroupName"],
        instance_type=group.get("InstanceType") or types[0],
        count=target if own else max(target, current),
        spot="Spot" in (group.get("CapacityRequirements") or {}),
    )


def _zones(client: Clients) -> Mapping[str, str]:
    zones = client("ec2").describe_availability_zones()["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}


def _offered(client: Clients, config: ClusterConfig) -> Mapping[str, frozenset[str]]:
    kinds = sorted({kind.removeprefix("ml.") for group in config.instance_groups for kind in group.all_instance_types})
    found: dict[str, set[str]] = {}
    # A filter has at most 200 values.
    for start in range(0, len(kinds), 200):
        filters = [{"Name": "instance-type", "Values": kinds[start : start + 200]}]
        for offer in aws.pages(
            client("ec2").describe_instance_type_offerings, "InstanceTypeOfferings",
            LocationType="availability-zone", Filters=filters,
        ):  # fmt: skip
            found.setdefault(f"ml.{offer['InstanceType']}", set()).add(offer["Location"])
    return {kind: frozenset(zones) for kind, zones in found.items()}


def _free(client: Clients, subnet: str) -> int | None:
    found = _found(partial(client("ec2").describe_subnets, SubnetIds=[subnet]), "InvalidSubnetID.NotFound")
    if found is None:
        return None
    (described,) = found["Subnets"]
    return int(described["AvailableIpAddressCount"])


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
        version=cluster.get("version"),
    )


def _topic(client: Clients, arn: str) -> LiveTopic | None:
    found = _found(partial(client("sns").get_topic_attributes, TopicArn=arn), "NotFound", "NotFoundException")
    if found is None:
        return None
    attributes = found["Attributes"]
    if not has_own_key(attributes):
        return LiveTopic(attributes=attributes)
    key = attributes["KmsMasterKeyId"]
    return LiveTopic(attributes=attributes, key_policy=_try(lambda: read_key_policy(client("kms"), key)))


def _role(client: Clients, arn: str) -> bool:
    found = _found(partial(client("iam").get_role, RoleName=arn.rpartition("/")[2]), "NoSuchEntity")
    # The same name with another path is another ARN, and that role does not exist.
    return found is not None and bool(found["Role"]["Arn"] == arn)


def _named(config: ClusterConfig, client: Clients, account: str) -> Iterator[tuple[str, Callable[[], Read[bool]]]]:
    """Existing roles, buckets and alarms that the file uses, and how to find out whether they exist."""
    for role in _roles(config):
        name = role.rpartition("/")[2]
        if (owner := role.split(":")[4]) != account:
            # GetRole takes a name, and would look for it in this account.
            yield (
                f"role {name} of {owner}",
                partial(NotRead, why=f"it is in another account than your credentials, {account}. Check it there"),
            )
        else:
            yield f"role {name}", partial(_role, client, role)
    for alarm in sorted(
        {alarm for group in config.instance_groups if group.rolling for alarm in group.rolling.rollback_alarms}
    ):
        yield f"alarm {alarm}", partial(_alarm, client, alarm)
    storage = config.storage
    if storage is not None:
        for bucket in sorted({each.bucket_name for each in storage.data_repositories if each.bucket_name}):
            yield f"bucket {bucket}", _exists(partial(client("s3").head_bucket, Bucket=bucket), "404", "NoSuchBucket")


def _roles(config: ClusterConfig) -> list[str]:
    """The existing roles that the file names."""
    roles = {
        *(config.lifecycle.writers if config.lifecycle else ()),
        *(config.slurm.drain.operators if config.slurm and config.slurm.drain else ()),
        *(config.eks.admin_role_arns if config.eks else ()),
    }
    for team in config.teams:
        roles |= {*team.role_arns, *filter(None, [team.pod_role_arn])}
    return sorted(roles)


def _assets_buckets(client: Clients, account: str, region: str) -> dict[str, Read[str | None]]:
    """CDK's bucket of assets and its policy. Without a bootstrap there is none."""
    bucket = _ASSETS.format(account=account, region=region)

    missing = object()

    def read() -> Any:
        try:
            return client("s3").get_bucket_policy(Bucket=bucket)["Policy"]
        except Exception as error:
            if (code := aws.code(error)) not in ("NoSuchBucket", "NoSuchBucketPolicy"):
                raise
            return missing if code == "NoSuchBucket" else None

    policy = _try(read)
    return {} if policy is missing else {bucket: policy}


def _invokers(config: ClusterConfig, client: Clients, caller: str) -> Iterator[tuple[str, Read[bool]]]:
    """The caller and the file's roles of this account, and whether each may invoke a function of the EKS cluster's stack."""
    _, partition, _, _, account, name = caller.split(":", 5)
    function = f"arn:{partition}:lambda:{config.region}:{account}:function:{eks_stack_name(config.name)}-Handler"
    own: Read[str] = caller
    if name.startswith("assumed-role/"):
        own = _try(lambda: str(client("iam").get_role(RoleName=name.split("/")[1])["Role"]["Arn"]))
    if isinstance(own, NotRead):
        yield name.split("/")[1], own
    for arn in dict.fromkeys([*([own] if isinstance(own, str) else []), *_roles(config)]):
        if arn.split(":")[4] == account and not arn.endswith(":root"):
            yield arn, _try(partial(_may_invoke, client, arn, function))


def _may_invoke(client: Clients, arn: str, function: str) -> bool:
    """By the policies of the caller and, where IAM knows them, of the organization."""
    asked = {"PolicySourceArn": arn, "ActionNames": ["lambda:InvokeFunction"], "ResourceArns": [function]}
    found = _found(partial(client("iam").simulate_principal_policy, **asked), "NoSuchEntity")
    return found is not None and any(each["EvalDecision"] == "allowed" for each in found["EvaluationResults"])


def _alarm(client: Clients, name: str) -> bool:
    found = client("cloudwatch").describe_alarms(AlarmNames=[name], AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    return bool(found.get("MetricAlarms") or found.get("CompositeAlarms"))


def _exists(look: Callable[[], T], *missing: str) -> Callable[[], Read[bool]]:
    return lambda: _found(look, *missing) is not None


def _found(look: Callable[[], T], *missing: str) -> T | None:
    """The reply; None: AWS answers with one of these codes, so the resource does not exist."""
    try:
        return look()
    except Exception as error:
        if aws.code(error) in missing:
            return None
        raise
