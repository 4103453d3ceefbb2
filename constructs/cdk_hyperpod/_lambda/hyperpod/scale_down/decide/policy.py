"""The fields of a live group that cannot change, and how a change is found. Source: "Update a SageMaker HyperPod cluster"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...common.refuse import Refuse
from .. import messages
from ..model.cluster import Cluster, DesiredGroup, Fixed, Group, Network


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of a group, as the user reads it."""

    live: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Immutable:
    """A field that only a new group can have with another value. `difference` gives None if both sides agree, or if one of them is
    unknown: an unknown value is no reason to refuse a deployment."""

    field: str
    difference: Callable[[Group, DesiredGroup, Cluster], Difference | None]


def _types(live: Group, wanted: DesiredGroup, _: Cluster) -> Difference | None:
    have, want = live.fixed, wanted.fixed
    if not have.instance_types or not want.instance_types:
        return None
    if have.flexible and want.flexible:
        return _flexible_types(live, want)
    if have.flexible == want.flexible and have.instance_types == want.instance_types:
        return None
    return Difference(live=_list(have), wanted=_list(want))


def _flexible_types(live: Group, want: Fixed) -> Difference | None:
    """A flexible group may change its list, as long as it keeps each type of which it has nodes."""
    lost = live.types_in_use - set(want.instance_types)
    if not lost:
        return None
    return Difference(live=f"{_list(live.fixed)} with nodes of {', '.join(sorted(lost))}", wanted=_list(want))


def _list(fixed: Fixed) -> str:
    text = ", ".join(fixed.instance_types)
    return f"[{text}]" if fixed.flexible else text


def _network(live: Group, wanted: DesiredGroup, cluster: Cluster) -> Difference | None:
    # Whether DescribeCluster repeats the cluster's network in each group is undocumented, so both sides fall back to it.
    have = live.fixed.network or cluster.network
    want = wanted.fixed.network or cluster.network
    if have == want:
        return None
    return Difference(live=_place(have), wanted=_place(want))


def _place(network: Network | None) -> str:
    if network is None:
        return "HyperPod's own network"
    return " ".join([*sorted(network.subnets), *sorted(network.security_groups)])


def _differ(have: object, want: object) -> Difference | None:
    if have is None or want is None or have == want:
        return None
    return Difference(live=str(have), wanted=str(want))


IMMUTABLE = (
    Immutable(field="instance_type", difference=_types),
    Immutable(field="node_type", difference=lambda live, want, _: _differ(live.fixed.node_type, want.fixed.node_type)),
    Immutable(
        field="execution_role",
        difference=lambda live, want, _: _differ(live.fixed.execution_role, want.fixed.execution_role),
    ),
    Immutable(field="availability_zone", difference=_network),
    Immutable(
        field="threads_per_core",
        difference=lambda live, want, _: _differ(live.fixed.threads_per_core, want.fixed.threads_per_core),
    ),
)


def check_group(live: Group, wanted: DesiredGroup, cluster: Cluster) -> Iterator[Refuse]:
    """Every immutable field of one group that the deployment would change."""
    for policy in IMMUTABLE:
        found = policy.difference(live, wanted, cluster)
        if found is not None:
            yield messages.refusals.immutable(live.name, policy.field, found.live, found.wanted)
