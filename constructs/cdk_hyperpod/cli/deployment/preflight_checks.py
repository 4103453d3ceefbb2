"""Whether an account can have the cluster of a file. Pure: an `AccountState` in, rows out.

Names of quotas: AWS documentation "Prerequisites for using SageMaker HyperPod" and Service Quotas.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, TypeVar

from ..._lambda.hyperpod.common.topic_access import problems
from ..._lambda.hyperpod.scale_down.model.images import VERSIONED, VERSIONED_SINCE
from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.zones import plan_subnets
from ...facts.instance_types import catalogue
from ...facts.kubernetes_versions import AS_OF, HYPERPOD, KUBECTL, minor
from ...facts.s3_actions import WRITES
from .account_state import (
    AccountState,
    LiveEksCluster,
    LiveFileSystem,
    LiveGroup,
    LivePlan,
    LiveTopic,
    NotRead,
    Read,
)

Verdict = Literal["passed", "impossible", "not checked", "open"]
"""Open: the deployment is possible, and somebody can do what docs/security.md names."""

PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
TOTAL = "Total number of instances allowed across SageMaker HyperPod clusters"
TOTAL_SPOT = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
VOLUME_GB = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"
INTERFACES = "Network interfaces per Region"
"""Quotas of SageMaker, and the last of Amazon VPC."""
BOOTSTRAP_VERSION = 6
"""The oldest version that CDK's stacks accept (CheckBootstrapVersion in every template)."""

T = TypeVar("T")


def usage_quota(instance_type: str, *, spot: bool) -> str:
    """The quota of the nodes of a type."""
    return f"{instance_type} for cluster {'spot instance ' if spot else ''}usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check. Numbers are texts: "?" if one was not read, "-" if the check has none."""

    check: str
    needed: str
    """What a deployment adds to what is in use; nothing for a cluster that has all nodes of the file already."""
    allowed: str
    in_use: str
    """By the whole account, also by the file's own cluster."""
    verdict: Verdict
    remedy: str = ""
    """What to do, or why it was not checked; empty if it passed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ends."""

    verdict: Verdict
    remedy: str = ""
    """As in Row."""


PASSED = Outcome("passed")
_WORST_FIRST: tuple[Verdict, ...] = ("impossible", "not checked", "open")


def _impossible(remedy: str) -> Outcome:
    return Outcome("impossible", remedy)


def _open(remedy: str) -> Outcome:
    return Outcome("open", remedy)


def _not_checked(why: str) -> Outcome:
    return Outcome("not checked", why)


def _row(check: str, outcome: Outcome, *, needed: str = "-", allowed: str = "-", in_use: str = "-") -> Row:
    return Row(
        check=check, needed=needed, allowed=allowed, in_use=in_use, verdict=outcome.verdict, remedy=outcome.remedy
    )


def rows(config: ClusterConfig, account: AccountState, days: float = 0) -> tuple[Row, ...]:
    """Every check. `days`: how long training plans must last."""
    return tuple(_rows(config, account, timedelta(days=days)))


def exit_code(found: Sequence[Row]) -> int:
    """0: everything passed, or is open; 1: something is impossible; 2: something was not checked."""
    verdicts = {row.verdict for row in found}
    if "impossible" in verdicts:
        return 1
    return 2 if "not checked" in verdicts else 0


def _rows(config: ClusterConfig, account: AccountState, lasting: timedelta) -> Iterator[Row]:
    yield from _quotas(config, account)
    yield from _volume(config, account)
    yield _interfaces(config, account)
    yield from _zones(config, account)
    yield from _addresses(config, account)
    yield from _plans(config, account, lasting)
    yield from _existing(config, account)
    yield from _versioned(config, account)
    yield from _doors(account)


# -- quotas -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quota:
    """A quota of nodes."""

    name: str
    groups: Sequence[InstanceGroup]
    """The file's groups whose nodes count in it."""
    counts: Callable[[str, LiveGroup], bool]
    """Whether a live group counts in it, by its cluster's name."""

    @property
    def check(self) -> str:
        return _CHECKS.get(self.name, self.name)

    @property
    def nodes(self) -> int:
        """Nodes of the file, also those that exist."""
        return sum(group.instance_count for group in self.groups)


_CHECKS = {PER_CLUSTER: "nodes per cluster", TOTAL: "nodes of all clusters", TOTAL_SPOT: "Spot nodes of all clusters"}
"""Quotas whose own names are too long for the table."""


def _quotas(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    groups = [group for group in config.instance_groups if group.instance_count]
    by_type: dict[tuple[str, bool], list[InstanceGroup]] = {}
    for group in groups:
        by_type.setdefault((group.all_instance_types[0], group.spot), []).append(group)
    quotas = [
        _Quota(name=usage_quota(kind, spot=spot), groups=members, counts=_of_type(kind, spot))
        for (kind, spot), members in by_type.items()
    ]
    quotas.append(_Quota(name=PER_CLUSTER, groups=groups, counts=lambda cluster, _: cluster == config.name))
    quotas.append(_Quota(name=TOTAL, groups=groups, counts=lambda _, __: True))
    spots = [group for group in groups if group.spot]
    if spots:
        quotas.append(_Quota(name=TOTAL_SPOT, groups=spots, counts=lambda _, live: live.spot))
    for quota in quotas:
        yield _quota_row(config, account, quota)


def _of_type(kind: str, spot: bool) -> Callable[[str, LiveGroup], bool]:
    return lambda _, live: (live.instance_type, live.spot) == (kind, spot)


def _quota_row(config: ClusterConfig, account: AccountState, quota: _Quota) -> Row:
    allowed = _allowed(account, quota.name)
    usage = _usage(config, account, quota)
    return _row(
        quota.check,
        _decide_quota(quota, allowed, usage),
        needed=_shown(usage if isinstance(usage, NotRead) else usage.added),
        allowed=_shown(allowed),
        in_use=_shown(usage if isinstance(usage, NotRead) else usage.in_use),
    )


def _allowed(account: AccountState, name: str) -> Read[float | None]:
    """The quota's value; None: Service Quotas does not list it."""
    return account.quotas if isinstance(account.quotas, NotRead) else account.quotas.get(name)


def _decide_quota(quota: _Quota, allowed: Read[float | None], usage: Read[_Usage]) -> Outcome:
    if isinstance(allowed, NotRead):
        return _not_checked(allowed.why)
    if allowed is None:
        return _unlisted(quota.name)
    if isinstance(usage, NotRead):
        return _short(quota, quota.nodes, allowed) if quota.nodes > allowed else _not_checked(usage.why)
    total = usage.in_use + usage.added
    # AWS refuses growth only.
    if usage.added and total > allowed:
        return _short(quota, total, allowed)
    return PASSED


def _unlisted(quota: str) -> Outcome:
    return _not_checked(f'Service Quotas lists no quota "{quota}" here')


def _short(quota: _Quota, total: int, allowed: float) -> Outcome:
    """The quota is too small for `total` nodes, unless AWS counts them in a way that it does not document."""
    request = f'request {total} in Service Quotas: SageMaker, "{quota.name}"'
    mixed = [group.name for group in quota.groups if len(group.all_instance_types) > 1]
    if mixed and quota.name not in _CHECKS:
        return _not_checked(
            f"{', '.join(mixed)} may get other types, and AWS does not document how it counts them; or {request}"
        )
    planned = [group.name for group in quota.groups if group.training_plan_arn]
    without_plan = sum(group.instance_count for group in quota.groups if not group.training_plan_arn)
    if planned and without_plan <= allowed:
        return _not_checked(
            f"AWS does not document whether nodes of a training plan ({', '.join(planned)}) count here; if they do, {request}"
        )
    return _impossible(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    """How many nodes count in a quota."""

    in_use: int
    """Nodes of all clusters, also of this one."""
    added: int
    """How many nodes more the file has than its groups have now; 0: not more."""


def _usage(config: ClusterConfig, account: AccountState, quota: _Quota) -> Read[_Usage]:
    if isinstance(account.clusters, NotRead):
        return account.clusters
    own_groups = {group.name for group in config.instance_groups}
    own = in_use = 0
    for cluster in account.clusters:
        for group in cluster.groups:
            if not quota.counts(cluster.name, group):
                continue
            in_use += group.count
            if cluster.name == config.name and group.name in own_groups:
                own += group.count
    return _Usage(in_use=in_use, added=max(0, quota.nodes - own))


def _volume(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    sizes = [volume.volume_size_gib or 0 for group in config.instance_groups for volume in group.ebs_volumes]
    largest = max(sizes, default=0)
    if not largest:
        return
    allowed = _allowed(account, VOLUME_GB)
    outcome = _decide_volume(largest, allowed)
    yield _row("GB of the largest volume", outcome, needed=str(largest), allowed=_shown(allowed))


def _decide_volume(largest: int, allowed: Read[float | None]) -> Outcome:
    if isinstance(allowed, NotRead):
        return _not_checked(allowed.why)
    if allowed is None:
        return _unlisted(VOLUME_GB)
    if largest > allowed:
        return _impossible(f'request {largest} in Service Quotas: SageMaker, "{VOLUME_GB}"')
    return PASSED


def _interfaces(config: ClusterConfig, account: AccountState) -> Row:
    """A network interface for each network card of each new node: AWS documents that for P5, the rest is assumed."""
    check = "network interfaces"
    if isinstance(account.interfaces, NotRead):
        return _row(check, _not_checked(account.interfaces.why), needed="?", allowed="?", in_use="?")
    allowed, used = account.interfaces
    growth = _growth(config, account)
    if isinstance(growth, NotRead):
        return _row(check, _not_checked(growth.why), needed="?", allowed=_shown(allowed), in_use=str(used))
    needed = sum(count * _cards(group) for group, count in growth)
    total = used + needed
    request = f'request {total} in Service Quotas: Amazon VPC, "{INTERFACES}"'
    outcome = PASSED if total <= allowed else _impossible(request)
    return _row(check, outcome, needed=str(needed), allowed=_shown(allowed), in_use=str(used))


def _growth(config: ClusterConfig, account: AccountState) -> Read[list[tuple[InstanceGroup, int]]]:
    """How many new nodes each group gets."""
    if isinstance(account.clusters, NotRead):
        return account.clusters
    own = [group for cluster in account.clusters if cluster.name == config.name for group in cluster.groups]
    counts = {group.name: group.count for group in own}
    return [(group, max(0, group.instance_count - counts.get(group.name, 0))) for group in config.instance_groups]


def _cards(group: InstanceGroup) -> int:
    kinds = [catalogue()[name] for name in group.all_instance_types if name in catalogue()]
    return max((kind.network_cards for kind in kinds), default=1)


# -- places -----------------------------------------------------------------------------------------------------------


def _zone_of(config: ClusterConfig, group: InstanceGroup) -> str | None:
    own = plan_subnets(
        config.network, [each.availability_zone for each in config.instance_groups if each.availability_zone]
    )
    return group.availability_zone or own[0].availability_zone


def _zones(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    places = dict.fromkeys(
        (kind, _zone_of(config, group)) for group in config.instance_groups for kind in group.all_instance_types
    )
    for kind, zone in places:
        yield _row(f"{kind} in {zone or 'the first zone'}", _decide_zone(kind, zone, account))


def _decide_zone(kind: str, zone: str | None, account: AccountState) -> Outcome:
    """Whether EC2 has the type in the zone, a name or an id. `zone`: None: the account's first one."""
    if isinstance(account.offered, NotRead):
        return _not_checked(account.offered.why)
    if isinstance(account.zones, NotRead):
        return _not_checked(account.zones.why)
    offered = account.offered.get(kind, frozenset())
    if zone is None:
        return _decide_first_zone(offered, account.zones.keys())
    names = {name for name, number in account.zones.items() if zone in (name, number)}
    if not names:
        return _impossible("your account has no such zone in the region")
    if offered & names:
        return PASSED
    return _impossible(f"EC2 has it in {_list(offered)} only") if offered else _NOT_OFFERED


def _decide_first_zone(offered: AbstractSet[str], zones: AbstractSet[str]) -> Outcome:
    """Which zone is the first is unknown, so only a type that is in all zones passes."""
    is_everywhere = bool(zones) and offered >= zones
    if is_everywhere:
        return PASSED
    if not offered:
        return _NOT_OFFERED
    return _not_checked(f"name a zone in network.availability_zones: EC2 has it in {_list(offered)}")


_NOT_OFFERED = _impossible("EC2 has it in no zone of the region. Use another region")


def _list(names: AbstractSet[str]) -> str:
    return ", ".join(sorted(names))


def _addresses(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    """Free addresses of existing subnets. For a new network, `check` compares the file's own ranges."""
    growth = _growth(config, account)
    for subnet in config.network.subnets:
        free = account.free.get(subnet.subnet_id, NotRead(why="not read"))
        check = f"free addresses in {subnet.subnet_id}"
        missing = _first_unread(growth, free)
        if missing is not None:
            yield _row(check, _not_checked(missing.why), needed="?", allowed="?")
            continue
        assert not isinstance(growth, NotRead) and not isinstance(free, NotRead)
        needed = sum(
            count * _addresses_of_node(config, group)
            for group, count in growth
            if _subnet_of(config, group) == subnet.subnet_id
        )
        yield _row(
            check, _decide_addresses(needed, free), needed=str(needed), allowed="none" if free is None else str(free)
        )


def _decide_addresses(needed: int, free: int | None) -> Outcome:
    if free is None:
        return _impossible("there is no such subnet in this account and region")
    if needed > free:
        return _impossible("release addresses in the subnet, or place groups in another one")
    return PASSED


def _addresses_of_node(config: ClusterConfig, group: InstanceGroup) -> int:
    orchestrator: Literal["slurm", "eks"] = config.orchestrator
    return max(catalogue()[kind].ip_addresses(orchestrator) for kind in group.all_instance_types)


def _first_unread(*facts: object) -> NotRead | None:
    return next((fact for fact in facts if isinstance(fact, NotRead)), None)


def _subnet_of(config: ClusterConfig, group: InstanceGroup) -> str:
    """A group that names its zone is in that zone's first subnet."""
    zone = _zone_of(config, group)
    return next(
        (each.subnet_id for each in config.network.subnets if each.availability_zone == zone),
        config.network.subnets[0].subnet_id,
    )


# -- training plans ---------------------------------------------------------------------------------------------------


def _plans(config: ClusterConfig, account: AccountState, lasting: timedelta) -> Iterator[Row]:
    growth = _growth(config, account)
    needed = _needed_by_plan(growth)
    for group in config.instance_groups:
        arn = group.training_plan_arn
        if arn is None:
            continue
        plan = account.plans.get(arn, NotRead(why="not read"))
        check = f"training plan of {group.name}"
        if isinstance(plan, NotRead):
            yield _row(check, _not_checked(plan.why), needed="?", allowed="?")
            continue
        allowed = "none" if plan is None else str(plan.available)
        if isinstance(growth, NotRead):
            yield _row(check, _not_checked(growth.why), needed="?", allowed=allowed)
            continue
        outcome = _decide_plan(config, account, group, plan, needed[arn], lasting)
        yield _row(check, outcome, needed=str(needed[arn]), allowed=allowed)


def _needed_by_plan(growth: Read[list[tuple[InstanceGroup, int]]]) -> Counter[str]:
    """New nodes of each training plan, by its ARN."""
    counts: Counter[str] = Counter()
    if not isinstance(growth, NotRead):
        for group, count in growth:
            counts[group.training_plan_arn or ""] += count
    return counts


def _decide_plan(
    config: ClusterConfig,
    account: AccountState,
    group: InstanceGroup,
    plan: LivePlan | None,
    needed: int,
    lasting: timedelta,
) -> Outcome:
    if plan is None:
        return _impossible("there is no such plan in this account and region")
    end = f"{plan.end:%Y-%m-%d %H:%M} UTC"
    if plan.status in ("Expired", "Failed") or plan.end <= account.now:
        return _impossible(f"the plan is {plan.status}, and ends {end}. Use another one")
    fits_type = {plan.instance_type} == {*group.all_instance_types}
    lasts = plan.end >= account.now + lasting
    is_active = plan.status == "Active"
    return _all_of(
        PASSED if fits_type else _impossible(f"the plan is for {plan.instance_type}"),
        PASSED if lasts else _impossible(f"the plan ends {end}, which is less than --days from now"),
        PASSED
        if needed <= plan.available
        else _impossible(f"only {plan.available} instances of the plan are available. Lower the count"),
        _decide_plan_zone(config, account, group, plan),
        PASSED if is_active else _not_checked(f"the plan is {plan.status}. HyperPod launches nodes when it is Active"),
    )


def _all_of(*outcomes: Outcome) -> Outcome:
    """The worst verdict, and the remedies of every outcome that has it."""
    verdicts = {each.verdict for each in outcomes}
    worst = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), PASSED.verdict)
    remedies = [each.remedy for each in outcomes if each.verdict == worst and each.remedy]
    return Outcome(worst, ". ".join([*remedies[:1], *(each[:1].upper() + each[1:] for each in remedies[1:])]))


def _decide_plan_zone(config: ClusterConfig, account: AccountState, group: InstanceGroup, plan: LivePlan) -> Outcome:
    """Whether the group is in a zone of the plan. Both name zones by their names or by their ids."""
    zone = _zone_of(config, group)
    if zone is None:
        return _not_checked(f"the plan is in {_list(plan.zones)}. Name that zone in network.availability_zones")
    if zone in plan.zones:
        return PASSED
    if isinstance(account.zones, NotRead):
        return _not_checked(account.zones.why)
    same_zone = {each for pair in account.zones.items() if zone in pair for each in pair}
    if same_zone & plan.zones:
        return PASSED
    return _impossible(f"the plan is in {_list(plan.zones)}, and the group in {zone}")


# -- what has to exist ------------------------------------------------------------------------------------------------


def _existing(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    yield _bootstrap_row(account.bootstrap)
    for name, exists in account.needed.items():
        yield _existing_row(name, exists, lambda _: PASSED)
    for name, system in account.file_systems.items():
        yield _existing_row(f"file system {name}", system, partial(_decide_file_system, config, name))
    for name, cluster in account.eks_clusters.items():
        yield _existing_row(f"EKS cluster {name}", cluster, partial(_decide_eks_cluster, config, name))
    for arn, topic in account.topics.items():
        yield _existing_row(f"topic {arn.rpartition(':')[2]}", topic, partial(_decide_topic, arn, account.account))


def _bootstrap_row(version: Read[int | None]) -> Row:
    check, needed = "CDK's bootstrap", str(BOOTSTRAP_VERSION)
    if isinstance(version, NotRead):
        return _row(check, _not_checked(version.why), needed=needed, allowed="?")
    if version is None or version < BOOTSTRAP_VERSION:
        outcome = _impossible("run cdk bootstrap in this account and region (docs/deploying.md)")
        return _row(check, outcome, needed=needed, allowed=str(version or "none"))
    return _row(check, PASSED, needed=needed, allowed=str(version))


def _existing_row(check: str, found: Read[T | None], decide: Callable[[T], Outcome]) -> Row:
    """Whether something exists, and if so, whether it fits."""
    if isinstance(found, NotRead):
        return _row(check, _not_checked(found.why))
    if not found:
        return _row(check, _impossible("it does not exist, or is not yours. Create it, or name another one"))
    return _row(check, decide(found))


def file_systems(config: ClusterConfig) -> tuple[str, ...]:
    """Ids of existing file systems that the file uses."""
    if config.storage is None:
        return ()
    found = (config.storage.file_system_id, config.storage.openzfs.file_system_id if config.storage.openzfs else None)
    return tuple(filter(None, found))


def eks_clusters(config: ClusterConfig) -> tuple[str, ...]:
    """Names of existing EKS clusters that the file uses: one at most."""
    existing = config.eks.existing_cluster if config.eks else None
    return () if existing is None else (existing.name,)


def _decide_file_system(config: ClusterConfig, name: str, found: LiveFileSystem) -> Outcome:
    # A file system in UPDATING can be used (FSx API Reference, FileSystem: Lifecycle).
    if found.lifecycle not in ("AVAILABLE", "UPDATING"):
        return _impossible(f"it is {found.lifecycle}. Nodes can mount it when it is AVAILABLE")
    storage = config.storage
    if storage is not None and storage.file_system_id == name and found.mount_name != storage.mount_name:
        return _impossible(f"its mount name is {found.mount_name}. Write that in storage.mount_name")
    if found.vpc is None:
        return _not_checked("FSx does not report its VPC")
    if found.vpc != config.network.vpc_id:
        nodes = f"in {config.network.vpc_id}" if config.network.vpc_id else "in a VPC of the file's own"
        return _not_checked(
            f"it is in {found.vpc} and the nodes are {nodes}. Make sure that a peering connects the two"
        )
    return PASSED


def _decide_eks_cluster(config: ClusterConfig, name: str, found: LiveEksCluster) -> Outcome:
    """EKS prerequisites of HyperPod: AWS documentation "Prerequisites for using SageMaker HyperPod with Amazon EKS"."""
    if found.status not in ("ACTIVE", "UPDATING"):
        return _impossible(f"it is {found.status}. HyperPod needs one that is ACTIVE")
    if found.vpc is None:
        return _not_checked("EKS does not report its VPC")
    if found.authentication_mode is None:
        return _not_checked("EKS does not report its authentication mode")
    if found.vpc != config.network.vpc_id:
        return _impossible(f"it is in {found.vpc}. Write that in network.vpc_id")
    if found.authentication_mode == "CONFIG_MAP":
        # Existing access stays (EKS User Guide, "Change authentication mode to use access entries").
        command = (
            f"aws eks update-cluster-config --region {config.region} --name {name}"
            " --access-config authenticationMode=API_AND_CONFIG_MAP"
        )
        return _impossible(
            f"its authentication mode is CONFIG_MAP, which allows no access entries. Change it by `{command}` (cannot be undone)"
        )
    return _decide_version(found.version)


def _decide_version(version: str | None) -> Outcome:
    """Whether HyperPod, and the kubectl that the deployment runs, support the version of an existing EKS cluster."""
    if version is None or not re.fullmatch(r"1\.[0-9]{2}", version):
        return _not_checked("EKS does not report its Kubernetes version")
    oldest, newest = HYPERPOD[0], HYPERPOD[-1]
    if minor(version) < minor(oldest):
        return _impossible(
            f"its Kubernetes version is {version}, and HyperPod supports {oldest} to {newest} ({AS_OF}). Upgrade it"
        )
    if minor(version) > minor(newest):
        return _not_checked(
            f"its Kubernetes version is {version}, and HyperPod supported {oldest} to {newest} on {AS_OF}. Make sure that it "
            f"supports {version} today"
        )
    if version not in KUBECTL:
        return _not_checked(
            f"its Kubernetes version is {version}, and the kubectl of this release supports {KUBECTL[0]} to {KUBECTL[-1]}. "
            "Upgrade it, or expect that a deployment may fail"
        )
    return PASSED


def _versioned(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    """Whether the file's own cluster under EKS is new enough for releases of images and for automatic patching."""
    used = [
        f"instance_groups[{group.name}].{setting}"
        for group in config.instance_groups
        for setting in VERSIONED.values()
        if getattr(group, setting) not in (None, "none")
    ]
    if not used:
        return
    check = "cluster created in 2026 or later"
    if isinstance(account.clusters, NotRead):
        yield _row(check, _not_checked(account.clusters.why))
    for cluster in () if isinstance(account.clusters, NotRead) else account.clusters:
        if cluster.name == config.name:
            yield _row(check, _decide_age(cluster.created, used))


def _decide_age(created: datetime | None, used: Sequence[str]) -> Outcome:
    if created is None:
        return _not_checked("HyperPod does not report when the cluster was created")
    if created >= VERSIONED_SINCE:
        return PASSED
    return _impossible(f"it was created on {created:%Y-%m-%d}, and has no releases of images. Remove {', '.join(used)}")


def topics(config: ClusterConfig) -> tuple[str, ...]:
    """ARNs of existing SNS topics that the file uses: one at most."""
    arn = None if config.monitoring is None else config.monitoring.topic_arn
    return () if arn is None else (arn,)


def _decide_topic(arn: str, account: str, found: LiveTopic) -> Outcome:
    """Whether its policy and its key let alarms publish, and whose it is."""
    policy = found.key_policy
    wrong = problems(arn, found.attributes, None if isinstance(policy, NotRead) else policy)
    if wrong:
        return _impossible(". ".join(f"{each.problem}; {each.remedy}" for each in wrong))
    owner = arn.split(":")[4]
    is_ours = owner == account
    return _all_of(
        _not_checked(policy.why) if isinstance(policy, NotRead) else PASSED,
        PASSED if is_ours else _open(f"it is in account {owner}, whose people read the messages"),
    )


# -- doors ------------------------------------------------------------------------------------------------------------

_NEGATED = ("ArnNotEquals", "ArnNotLike", "StringNotEquals", "StringNotLike")
_CLOSE = "(docs/deploy-permissions.md, Close the doors beside the stacks)"


def _doors(account: AccountState) -> Iterator[Row]:
    for bucket, policy in account.assets_buckets.items():
        yield _row("writers of CDK's assets", _decide_assets(bucket, policy))
    for arn, may_invoke in account.invokers.items():
        yield _row(f"kubectl function: {arn.rpartition('/')[2]}", _decide_invoker(may_invoke))


def _decide_assets(bucket: str, policy: Read[str | None]) -> Outcome:
    if isinstance(policy, NotRead):
        return _not_checked(policy.why)
    if is_walled(bucket, policy):
        return PASSED
    return _open(
        f"whoever may write to {bucket} changes the code and the templates that you deploy. Let only the file-publishing role "
        f"write there {_CLOSE}"
    )


def _decide_invoker(may_invoke: Read[bool]) -> Outcome:
    if isinstance(may_invoke, NotRead):
        return _not_checked(may_invoke.why)
    if not may_invoke:
        return PASSED
    return _open(
        f"it may invoke CDK's kubectl function, which is administrator of the EKS cluster. Deny it if it need not {_CLOSE}"
    )


def is_walled(bucket: str, policy: str | None) -> bool:
    """Whether the bucket's policy denies every write to all but named principals (docs/bootstrap/doors/assets-bucket.json)."""
    try:
        found = json.loads(policy or "{}").get("Statement", [])
    except (ValueError, AttributeError):
        return False
    walls = [each for each in _listed(found) if isinstance(each, dict) and _is_wall(bucket, each)]
    return all(any(_is_among(action, wall.get("Action")) for wall in walls) for action in WRITES)


def _is_wall(bucket: str, statement: Mapping[str, object]) -> bool:
    """Whether a statement denies everybody but named principals something on all objects."""
    condition = statement.get("Condition")
    is_for_all = statement.get("Principal") in ("*", {"AWS": "*"}) and statement.get("Effect") == "Deny"
    if not is_for_all or not isinstance(condition, dict) or len(condition) != 1:
        return False
    ((operator, keys),) = condition.items()
    if operator not in _NEGATED or not isinstance(keys, dict) or [*keys] != ["aws:PrincipalArn"]:
        return False
    # A pattern such as role/* excepts everybody.
    names_somebody = all(
        re.fullmatch(r"arn:[^:*]+:(iam|sts)::[0-9]{12}:[^*?]+", str(arn)) for arn in _listed(keys["aws:PrincipalArn"])
    )
    resources = {str(each).partition(":::")[2] for each in _listed(statement.get("Resource"))}
    return names_somebody and not {"*", f"{bucket}/*", f"{bucket}*"}.isdisjoint(resources)


def _is_among(action: str, named: object) -> bool:
    return any(fnmatchcase(action.lower(), str(each).lower()) for each in _listed(named))


def _listed(value: object) -> list[object]:
    """IAM writes a list of one as the one."""
    return value if isinstance(value, list) else [value]


def _shown(value: Read[float | None]) -> str:
    if value is None or isinstance(value, NotRead):
        return "?"
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
