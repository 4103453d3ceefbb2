"""Whether an account can have the cluster of a file, by what was read of the account: pure, an `AccountState` in, rows out.

Names of quotas: AWS documentation "Prerequisites for using SageMaker HyperPod" and Service Quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Literal, TypeVar

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.zones import plan_subnets
from ...facts.instance_types import catalogue
from .account_state import AccountState, LiveEksCluster, LiveFileSystem, LiveGroup, LivePlan, NotRead, Read

Verdict = Literal["passed", "impossible", "not checked"]

PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
TOTAL = "Total number of instances allowed across SageMaker HyperPod clusters"
TOTAL_SPOT = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
VOLUME_GB = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"
INTERFACES = "Network interfaces per Region"
"""Quotas of SageMaker, and the last of Amazon VPC."""
BOOTSTRAP_VERSION = 6
"""The least that CDK's stacks take (CheckBootstrapVersion in every template)."""

T = TypeVar("T")


def usage_quota(instance_type: str, *, spot: bool) -> str:
    """The quota of the nodes of a type."""
    return f"{instance_type} for cluster {'spot instance ' if spot else ''}usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check."""

    check: str
    needed: str
    allowed: str
    in_use: str
    verdict: Verdict
    remedy: str = ""
    """What to do, or why it was not checked; empty where it passed."""


def rows(config: ClusterConfig, account: AccountState, days: float = 0) -> tuple[Row, ...]:
    """Every check. `days`: for how long training plans have to last."""
    return tuple(_rows(config, account, timedelta(days=days)))


def exit_code(found: Sequence[Row]) -> int:
    """0: everything passed; 1: something is impossible; 2: something was not checked."""
    verdicts = {row.verdict for row in found}
    return 1 if "impossible" in verdicts else 2 if "not checked" in verdicts else 0


def _rows(config: ClusterConfig, account: AccountState, lasting: timedelta) -> Iterator[Row]:
    yield from _quotas(config, account)
    yield from _volume(config, account)
    yield _interfaces(config, account)
    yield from _zones(config, account)
    yield from _addresses(config, account)
    yield from _plans(config, account, lasting)
    yield from _standing(config, account)


# -- quotas -----------------------------------------------------------------------------------------------------------


def _quotas(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    groups = [group for group in config.instance_groups if group.instance_count]
    by_type: dict[tuple[str, bool], list[InstanceGroup]] = {}
    for group in groups:
        by_type.setdefault((group.all_instance_types[0], group.spot), []).append(group)
    for (kind, spot), members in by_type.items():
        yield _quota(config, account, usage_quota(kind, spot=spot), members, _of_type(kind, spot))
    yield _quota(config, account, PER_CLUSTER, groups, None)
    yield _quota(config, account, TOTAL, groups, lambda _: True)
    if spots := [group for group in groups if group.spot]:
        yield _quota(config, account, TOTAL_SPOT, spots, lambda live: live.spot)


def _of_type(kind: str, spot: bool) -> Callable[[LiveGroup], bool]:
    return lambda live: (live.instance_type, live.spot) == (kind, spot)


def _quota(
    config: ClusterConfig,
    account: AccountState,
    name: str,
    groups: Sequence[InstanceGroup],
    counts: Callable[[LiveGroup], bool] | None,
) -> Row:
    """One quota. `counts`: which live groups count in it beside the file's own; None: only those of this very cluster."""
    needed = sum(group.instance_count for group in groups)
    allowed: Read[float | None] = (
        account.quotas if isinstance(account.quotas, NotRead) else account.quotas.get(name)
    )  # fmt: skip
    used = _used(config, account, counts)
    check = {PER_CLUSTER: "nodes per cluster", TOTAL: "nodes of all clusters", TOTAL_SPOT: "Spot nodes of all clusters"}.get(name, name)  # fmt: skip
    shown = {"check": check, "needed": str(needed), "allowed": _shown(allowed), "in_use": _shown(used if isinstance(used, NotRead) else used[0])}  # fmt: skip
    if isinstance(allowed, NotRead):
        return Row(**shown, verdict="not checked", remedy=allowed.why)
    if allowed is None:
        return Row(**shown, verdict="not checked", remedy=f'Service Quotas lists no quota "{name}" here')
    if isinstance(used, NotRead):
        if needed > allowed:
            return _short(shown, name, needed, groups, allowed)
        return Row(**shown, verdict="not checked", remedy=used.why)
    elsewhere, grows = used
    if grows and elsewhere + needed > allowed:
        return _short(shown, name, elsewhere + needed, groups, allowed)
    return Row(**shown, verdict="passed")


def _short(shown: dict[str, str], name: str, enough: int, groups: Sequence[InstanceGroup], allowed: float) -> Row:
    ask = f'ask for {enough} in Service Quotas: SageMaker, "{name}"'
    mixed = [group.name for group in groups if len(group.all_instance_types) > 1]
    planned = [group.name for group in groups if group.training_plan_arn]
    if mixed and name not in (PER_CLUSTER, TOTAL, TOTAL_SPOT):
        why = f"{', '.join(mixed)} may take other types, and AWS does not document how it counts those; or {ask}"
        return Row(**shown, verdict="not checked", remedy=why)
    if planned and sum(group.instance_count for group in groups if not group.training_plan_arn) <= allowed:
        why = f"AWS does not document whether nodes of a training plan ({', '.join(planned)}) count here; if they do, {ask}"
        return Row(**shown, verdict="not checked", remedy=why)
    return Row(**shown, verdict="impossible", remedy=ask)


def _used(
    config: ClusterConfig, account: AccountState, counts: Callable[[LiveGroup], bool] | None
) -> Read[tuple[int, bool]]:
    """Nodes that count beside the file's own, and whether the file wants more nodes than its groups have: AWS refuses nothing
    else."""
    if isinstance(account.clusters, NotRead):
        return account.clusters
    here = {group.name: group for group in config.instance_groups}
    others = live = 0
    for cluster in account.clusters:
        for group in cluster.groups:
            own = cluster.name == config.name
            if counts is None and not own:
                continue
            if counts is not None and not counts(group):
                continue
            if own and group.name in here:
                live += group.count
            else:
                others += group.count
    wanted = sum(
        group.instance_count
        for group in config.instance_groups
        if counts is None
        or counts(LiveGroup(name=group.name, instance_type=group.all_instance_types[0], count=0, spot=group.spot))
    )
    return others, wanted > live


def _volume(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    sizes = [volume.volume_size_gib or 0 for group in config.instance_groups for volume in group.ebs_volumes]
    largest = max(sizes, default=0)
    if not largest:
        return
    allowed: Read[float | None] = (
        account.quotas if isinstance(account.quotas, NotRead) else account.quotas.get(VOLUME_GB)
    )  # fmt: skip
    shown = {"check": "GB of the largest volume", "needed": str(largest), "allowed": _shown(allowed), "in_use": "-"}
    if isinstance(allowed, NotRead):
        yield Row(**shown, verdict="not checked", remedy=allowed.why)
    elif allowed is None:
        yield Row(**shown, verdict="not checked", remedy=f'Service Quotas lists no quota "{VOLUME_GB}" here')
    elif largest > allowed:
        remedy = f'ask for {largest} in Service Quotas: SageMaker, "{VOLUME_GB}"'
        yield Row(**shown, verdict="impossible", remedy=remedy)
    else:
        yield Row(**shown, verdict="passed")


def _interfaces(config: ClusterConfig, account: AccountState) -> Row:
    """A network interface for each network card of each node that comes: AWS documents that of P5, the rest is assumed."""
    more = _growth(config, account)
    check = "network interfaces"
    if isinstance(account.interfaces, NotRead):
        return Row(
            check=check, needed="?", allowed="?", in_use="?", verdict="not checked", remedy=account.interfaces.why
        )
    allowed, used = account.interfaces
    if isinstance(more, NotRead):
        return Row(
            check=check, needed="?", allowed=_shown(allowed), in_use=str(used), verdict="not checked", remedy=more.why
        )
    needed = sum(count * _cards(group) for group, count in more)
    shown = {"check": check, "needed": str(needed), "allowed": _shown(allowed), "in_use": str(used)}
    if used + needed > allowed:
        ask = f'ask for {used + needed} in Service Quotas: Amazon VPC, "{INTERFACES}"'
        return Row(**shown, verdict="impossible", remedy=ask)
    return Row(**shown, verdict="passed")


def _growth(config: ClusterConfig, account: AccountState) -> Read[list[tuple[InstanceGroup, int]]]:
    """How many nodes each group gets that it does not have."""
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
    places = dict.fromkeys((kind, _zone_of(config, group)) for group in config.instance_groups for kind in group.all_instance_types)  # fmt: skip
    for kind, zone in places:
        shown = {"check": f"{kind} in {zone or 'the first zone'}", "needed": "-", "allowed": "-", "in_use": "-"}
        if isinstance(account.offered, NotRead) or isinstance(account.zones, NotRead):
            missing = account.offered if isinstance(account.offered, NotRead) else account.zones
            assert isinstance(missing, NotRead)
            yield Row(**shown, verdict="not checked", remedy=missing.why)
            continue
        where = account.offered.get(kind, frozenset())
        names = {name for name, number in account.zones.items() if zone in (name, number)}
        if zone is not None and not names:
            yield Row(**shown, verdict="impossible", remedy="your account has no such zone in the region")
        elif where & names or (zone is None and account.zones and where >= account.zones.keys()):
            yield Row(**shown, verdict="passed")
        elif not where:
            yield Row(**shown, verdict="impossible", remedy="EC2 has it in no zone of the region: take another region")
        elif zone is None:
            remedy = f"name a zone in network.availability_zones: EC2 has it in {_list(where)}"
            yield Row(**shown, verdict="not checked", remedy=remedy)
        else:
            yield Row(**shown, verdict="impossible", remedy=f"EC2 has it in {_list(where)} only")


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _addresses(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    """Free addresses of subnets that exist; those of a new network are the file's own arithmetic, which `check` has done."""
    more = _growth(config, account)
    for subnet in config.network.subnets:
        free = account.free.get(subnet.subnet_id, NotRead(why="nobody asked"))
        check = f"free addresses in {subnet.subnet_id}"
        if isinstance(more, NotRead) or isinstance(free, NotRead):
            missing = more if isinstance(more, NotRead) else free
            assert isinstance(missing, NotRead)
            yield Row(check=check, needed="?", allowed="?", in_use="-", verdict="not checked", remedy=missing.why)
            continue
        orchestrator: Literal["slurm", "eks"] = config.orchestrator
        needed = sum(
            count * max(catalogue()[kind].ip_addresses(orchestrator) for kind in group.all_instance_types)
            for group, count in more
            if _subnet_of(config, group) == subnet.subnet_id
        )
        shown = {"check": check, "needed": str(needed), "allowed": "none" if free is None else str(free), "in_use": "-"}
        if free is None:
            yield Row(**shown, verdict="impossible", remedy="there is no such subnet in this account and region")
        elif needed > free:
            remedy = "make room in the subnet, or place groups in another one"
            yield Row(**shown, verdict="impossible", remedy=remedy)
        else:
            yield Row(**shown, verdict="passed")


def _subnet_of(config: ClusterConfig, group: InstanceGroup) -> str:
    """A group that names its zone stands in that zone's first subnet."""
    zone = _zone_of(config, group)
    return next(
        (each.subnet_id for each in config.network.subnets if each.availability_zone == zone),
        config.network.subnets[0].subnet_id,
    )


# -- training plans ---------------------------------------------------------------------------------------------------


def _plans(config: ClusterConfig, account: AccountState, lasting: timedelta) -> Iterator[Row]:
    more = _growth(config, account)
    counts: Counter[str] = Counter()
    if not isinstance(more, NotRead):
        for group, count in more:
            counts[group.training_plan_arn or ""] += count
    for group in config.instance_groups:
        arn = group.training_plan_arn
        if arn is None:
            continue
        plan = account.plans.get(arn, NotRead(why="nobody asked"))
        check = f"training plan of {group.name}"
        if isinstance(plan, NotRead):
            yield Row(check=check, needed="?", allowed="?", in_use="-", verdict="not checked", remedy=plan.why)
            continue
        shown = {"check": check, "needed": str(counts[arn]), "allowed": "none" if plan is None else str(plan.available), "in_use": "-"}  # fmt: skip
        if isinstance(more, NotRead):
            yield Row(**{**shown, "needed": "?"}, verdict="not checked", remedy=more.why)
            continue
        verdict, remedy = _of_plan(config, account, group, plan, counts[arn], lasting)
        yield Row(**shown, verdict=verdict, remedy=remedy)


def _of_plan(
    config: ClusterConfig,
    account: AccountState,
    group: InstanceGroup,
    plan: LivePlan | None,
    needed: int,
    lasting: timedelta,
) -> tuple[Verdict, str]:
    if plan is None:
        return "impossible", "there is no such plan in this account and region"
    if {plan.instance_type} != {*group.all_instance_types}:
        return "impossible", f"the plan is of {plan.instance_type}"
    if plan.status in ("Expired", "Failed") or plan.end <= account.now:
        return "impossible", f"the plan is {plan.status}, and ends {plan.end:%Y-%m-%d %H:%M} UTC: take another one"
    if plan.end < account.now + lasting:
        return "impossible", f"the plan ends {plan.end:%Y-%m-%d %H:%M} UTC, before the days that you asked for are over"
    if needed > plan.available:
        return "impossible", f"{plan.available} of the plan's instances are available: lower the count"
    zone = _zone_of(config, group)
    if zone is None:
        return "not checked", f"the plan is in {_list(plan.zones)}: name that zone in network.availability_zones"
    pairs = {} if isinstance(account.zones, NotRead) else dict(account.zones)
    same = {zone, *(number for name, number in pairs.items() if name == zone), *(name for name, number in pairs.items() if number == zone)}  # fmt: skip
    if not same & plan.zones:
        if isinstance(account.zones, NotRead):
            return "not checked", account.zones.why
        return "impossible", f"the plan is in {_list(plan.zones)}, and the group in {zone}"
    if plan.status != "Active":
        return "not checked", f"the plan is {plan.status}: nodes come when it is Active"
    return "passed", ""


# -- what has to stand ------------------------------------------------------------------------------------------------


def _standing(config: ClusterConfig, account: AccountState) -> Iterator[Row]:
    shown = {"check": "CDK's bootstrap", "needed": str(BOOTSTRAP_VERSION), "in_use": "-"}
    if isinstance(account.bootstrap, NotRead):
        yield Row(**shown, allowed="?", verdict="not checked", remedy=account.bootstrap.why)
    elif account.bootstrap is None or account.bootstrap < BOOTSTRAP_VERSION:
        remedy = "run cdk bootstrap in this account and region (docs/deploying.md)"
        yield Row(**shown, allowed=str(account.bootstrap or "none"), verdict="impossible", remedy=remedy)
    else:
        yield Row(**shown, allowed=str(account.bootstrap), verdict="passed")
    for name, there in account.needed.items():
        yield _standing_row(name, there, lambda _: ("passed", ""))
    for name, system in account.file_systems.items():
        yield _standing_row(f"file system {name}", system, partial(_of_file_system, config, name))
    for name, cluster in account.eks_clusters.items():
        yield _standing_row(f"EKS cluster {name}", cluster, partial(_of_eks_cluster, config, name))


def _standing_row(check: str, found: Read[T | None], decide: Callable[[T], tuple[Verdict, str]]) -> Row:
    """Whether something is there, and what there is to say of it then."""
    verdict: Verdict
    if isinstance(found, NotRead):
        verdict, remedy = "not checked", found.why
    elif not found:
        verdict, remedy = "impossible", "it is not there, or not yours: make it, or name another one"
    else:
        verdict, remedy = decide(found)
    return Row(check=check, needed="-", allowed="-", in_use="-", verdict=verdict, remedy=remedy)


def file_systems(config: ClusterConfig) -> tuple[str, ...]:
    """Ids of those that the file names and does not make."""
    if config.storage is None:
        return ()
    found = (config.storage.file_system_id, config.storage.openzfs.file_system_id if config.storage.openzfs else None)
    return tuple(filter(None, found))


def eks_clusters(config: ClusterConfig) -> tuple[str, ...]:
    """Names of those that the file names and does not make: one at most."""
    there = config.eks.existing_cluster if config.eks else None
    return () if there is None else (there.name,)


def _of_file_system(config: ClusterConfig, name: str, found: LiveFileSystem) -> tuple[Verdict, str]:
    # UPDATING it can be used (FSx API Reference, FileSystem: Lifecycle).
    if found.lifecycle not in ("AVAILABLE", "UPDATING"):
        return "impossible", f"it is {found.lifecycle}, and nodes mount it when it is AVAILABLE"
    storage = config.storage
    if storage is not None and storage.file_system_id == name and found.mount_name != storage.mount_name:
        return "impossible", f"its mount name is {found.mount_name}: write that in storage.mount_name"
    if found.vpc is None:
        return "not checked", "FSx does not tell in which VPC it is"
    if found.vpc != config.network.vpc_id:
        own = f"in {config.network.vpc_id}" if config.network.vpc_id else "in a VPC of the file's own"
        return (
            "not checked",
            f"it is in {found.vpc} and the nodes {own}: whether a peering joins the two is yours to know",
        )
    return "passed", ""


def _of_eks_cluster(config: ClusterConfig, name: str, found: LiveEksCluster) -> tuple[Verdict, str]:
    """EKS prerequisites of HyperPod: AWS documentation "Prerequisites for using SageMaker HyperPod with Amazon EKS"."""
    if found.status not in ("ACTIVE", "UPDATING"):
        return "impossible", f"it is {found.status}, and HyperPod takes one that is ACTIVE"
    if found.vpc is None or found.authentication_mode is None:
        what = "in which VPC it is" if found.vpc is None else "its authentication mode"
        return "not checked", f"EKS does not tell {what}"
    if found.vpc != config.network.vpc_id:
        return "impossible", f"it is in {found.vpc}: write that in network.vpc_id"
    if found.authentication_mode == "CONFIG_MAP":
        # Nobody who has access loses it (EKS User Guide, "Change authentication mode to use access entries").
        command = (
            f"aws eks update-cluster-config --region {config.region} --name {name}"
            " --access-config authenticationMode=API_AND_CONFIG_MAP"
        )
        return (
            "impossible",
            f"its authentication mode is CONFIG_MAP, which takes no access entries: `{command}` adds them (no way back)",
        )
    return "passed", ""


def _shown(value: Read[float | None]) -> str:
    return (
        "?" if value is None or isinstance(value, NotRead) else f"{value:.0f}" if value == int(value) else f"{value:g}"
    )
