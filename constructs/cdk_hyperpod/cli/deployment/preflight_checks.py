"""Whether an account can have the cluster of a file. Pure: an `AccountState` in, rows out.

Names of quotas: AWS documentation "Prerequisites for using SageMaker HyperPod" and Service Quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ...config.cluster import ClusterConfig, InstanceGroup
from ...config.zones import plan_subnets
from ...facts.instance_types import catalogue
from .account_state import (
    AccountState,
    LiveGroup,
    LivePlan,
    NotRead,
    Read,
)
from .preflight_doors import doors
from .preflight_existing import existing, versioned
from .preflight_row import PASSED, Outcome, Row, all_of, impossible, not_checked, row, shown

PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
TOTAL = "Total number of instances allowed across SageMaker HyperPod clusters"
TOTAL_SPOT = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
VOLUME_GB = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"
INTERFACES = "Network interfaces per Region"
"""Quotas of SageMaker, and the last of Amazon VPC."""


def usage_quota(instance_type: str, *, spot: bool) -> str:
    """The quota of the nodes of a type."""
    return f"{instance_type} for cluster {'spot instance ' if spot else ''}usage"


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
    yield from existing(config, account)
    yield from versioned(config, account)
    yield from doors(account)


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
    return row(
        quota.check,
        _decide_quota(quota, allowed, usage),
        needed=shown(usage if isinstance(usage, NotRead) else usage.added),
        allowed=shown(allowed),
        in_use=shown(usage if isinstance(usage, NotRead) else usage.in_use),
    )


def _allowed(account: AccountState, name: str) -> Read[float | None]:
    """The quota's value; None: Service Quotas does not list it."""
    return account.quotas if isinstance(account.quotas, NotRead) else account.quotas.get(name)


def _decide_quota(quota: _Quota, allowed: Read[float | None], usage: Read[_Usage]) -> Outcome:
    if isinstance(allowed, NotRead):
        return not_checked(allowed.why)
    if allowed is None:
        return _unlisted(quota.name)
    if isinstance(usage, NotRead):
        return _short(quota, quota.nodes, allowed) if quota.nodes > allowed else not_checked(usage.why)
    total = usage.in_use + usage.added
    # AWS refuses growth only.
    if usage.added and total > allowed:
        return _short(quota, total, allowed)
    return PASSED


def _unlisted(quota: str) -> Outcome:
    return not_checked(f'Service Quotas lists no quota "{quota}" here')


def _short(quota: _Quota, total: int, allowed: float) -> Outcome:
    """The quota is too small for `total` nodes, unless AWS counts them in a way that it does not document."""
    request = f'request {total} in Service Quotas: SageMaker, "{quota.name}"'
    mixed = [group.name for group in quota.groups if len(group.all_instance_types) > 1]
    if mixed and quota.name not in _CHECKS:
        return not_checked(
            f"{', '.join(mixed)} may get other types, and AWS does not document how it counts them; or {request}"
        )
    planned = [group.name for group in quota.groups if group.training_plan_arn]
    without_plan = sum(group.instance_count for group in quota.groups if not group.training_plan_arn)
    if planned and without_plan <= allowed:
        return not_checked(
            f"AWS does not document whether nodes of a training plan ({', '.join(planned)}) count here; if they do, {request}"
        )
    return impossible(request)


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
    yield row("GB of the largest volume", outcome, needed=str(largest), allowed=shown(allowed))


def _decide_volume(largest: int, allowed: Read[float | None]) -> Outcome:
    if isinstance(allowed, NotRead):
        return not_checked(allowed.why)
    if allowed is None:
        return _unlisted(VOLUME_GB)
    if largest > allowed:
        return impossible(f'request {largest} in Service Quotas: SageMaker, "{VOLUME_GB}"')
    return PASSED


def _interfaces(config: ClusterConfig, account: AccountState) -> Row:
    """A network interface for each network card of each new node: AWS documents that for P5, the rest is assumed."""
    check = "network interfaces"
    if isinstance(account.interfaces, NotRead):
        return row(check, not_checked(account.interfaces.why), needed="?", allowed="?", in_use="?")
    allowed, used = account.interfaces
    growth = _growth(config, account)
    if isinstance(growth, NotRead):
        return row(check, not_checked(growth.why), needed="?", allowed=shown(allowed), in_use=str(used))
    needed = sum(count * _cards(group) for group, count in growth)
    total = used + needed
    request = f'request {total} in Service Quotas: Amazon VPC, "{INTERFACES}"'
    outcome = PASSED if total <= allowed else impossible(request)
    return row(check, outcome, needed=str(needed), allowed=shown(allowed), in_use=str(used))


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
        yield row(f"{kind} in {zone or 'the first zone'}", _decide_zone(kind, zone, account))


def _decide_zone(kind: str, zone: str | None, account: AccountState) -> Outcome:
    """Whether EC2 has the type in the zone, a name or an id. `zone`: None: the account's first one."""
    if isinstance(account.offered, NotRead):
        return not_checked(account.offered.why)
    if isinstance(account.zones, NotRead):
        return not_checked(account.zones.why)
    offered = account.offered.get(kind, frozenset())
    if zone is None:
        return _decide_first_zone(offered, account.zones.keys())
    names = {name for name, number in account.zones.items() if zone in (name, number)}
    if not names:
        return impossible("your account has no such zone in the region")
    if offered & names:
        return PASSED
    return impossible(f"EC2 has it in {_list(offered)} only") if offered else _NOT_OFFERED


def _decide_first_zone(offered: AbstractSet[str], zones: AbstractSet[str]) -> Outcome:
    """Which zone is the first is unknown, so only a type that is in all zones passes."""
    is_everywhere = bool(zones) and offered >= zones
    if is_everywhere:
        return PASSED
    if not offered:
        return _NOT_OFFERED
    return not_checked(f"name a zone in network.availability_zones: EC2 has it in {_list(offered)}")


_NOT_OFFERED = impossible("EC2 has it in no zone of the region. Use another region")


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
            yield row(check, not_checked(missing.why), needed="?", allowed="?")
            continue
        assert not isinstance(growth, NotRead) and not isinstance(free, NotRead)
        needed = sum(
            count * _addresses_of_node(config, group)
            for group, count in growth
            if _subnet_of(config, group) == subnet.subnet_id
        )
        yield row(
            check, _decide_addresses(needed, free), needed=str(needed), allowed="none" if free is None else str(free)
        )


def _decide_addresses(needed: int, free: int | None) -> Outcome:
    if free is None:
        return impossible("there is no such subnet in this account and region")
    if needed > free:
        return impossible("release addresses in the subnet, or place groups in another one")
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
            yield row(check, not_checked(plan.why), needed="?", allowed="?")
            continue
        allowed = "none" if plan is None else str(plan.available)
        if isinstance(growth, NotRead):
            yield row(check, not_checked(growth.why), needed="?", allowed=allowed)
            continue
        outcome = _decide_plan(config, account, group, plan, needed[arn], lasting)
        yield row(check, outcome, needed=str(needed[arn]), allowed=allowed)


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
        return impossible("there is no such plan in this account and region")
    end = f"{plan.end:%Y-%m-%d %H:%M} UTC"
    if plan.status in ("Expired", "Failed") or plan.end <= account.now:
        return impossible(f"the plan is {plan.status}, and ends {end}. Use another one")
    fits_type = {plan.instance_type} == {*group.all_instance_types}
    lasts = plan.end >= account.now + lasting
    is_active = plan.status == "Active"
    return all_of(
        PASSED if fits_type else impossible(f"the plan is for {plan.instance_type}"),
        PASSED if lasts else impossible(f"the plan ends {end}, which is less than --days from now"),
        PASSED
        if needed <= plan.available
        else impossible(f"only {plan.available} instances of the plan are available. Lower the count"),
        _decide_plan_zone(config, account, group, plan),
        PASSED if is_active else not_checked(f"the plan is {plan.status}. HyperPod launches nodes when it is Active"),
    )


def _decide_plan_zone(config: ClusterConfig, account: AccountState, group: InstanceGroup, plan: LivePlan) -> Outcome:
    """Whether the group is in a zone of the plan. Both name zones by their names or by their ids."""
    zone = _zone_of(config, group)
    if zone is None:
        return not_checked(f"the plan is in {_list(plan.zones)}. Name that zone in network.availability_zones")
    if zone in plan.zones:
        return PASSED
    if isinstance(account.zones, NotRead):
        return not_checked(account.zones.why)
    same_zone = {each for pair in account.zones.items() if zone in pair for each in pair}
    if same_zone & plan.zones:
        return PASSED
    return impossible(f"the plan is in {_list(plan.zones)}, and the group in {zone}")
