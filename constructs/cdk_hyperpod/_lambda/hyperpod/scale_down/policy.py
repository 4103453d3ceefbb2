"""Which fields of a live group cannot change, and how a change shows. Source: "Update a SageMaker HyperPod cluster"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..common.refuse import Refuse
from . import messages
from .cluster import Cluster, DesiredGroup, Fixed, Group, Network


@dataclass(frozen=True, slots=True)
class Immutable:
    """A field that only a new group can have otherwise. `values` gives (live, wanted), or None where both agree or one
    side does not say: an unknown value is no reason to refuse a deployment."""

    field: str
    values: Callable[[Group, DesiredGroup, Cluster], tuple[str, str] | None]


def _types(live: Group, wanted: DesiredGroup, _: Cluster) -> tuple[str, str] | None:
    have, want = live.fixed, wanted.fixed
    if not (have.instance_types and want.instance_types):
        return None
    if have.flexible != want.flexible:
        return _list(have), _list(want)
    if not have.flexible:
        return None if have.instance_types == want.instance_types else (_list(have), _list(want))
    # A flexible group may change its list, as long as no type goes of which it has nodes.
    lost = live.types_in_use - set(want.instance_types)
    return (f"{_list(have)} with nodes of {', '.join(sorted(lost))}", _list(want)) if lost else None


def _list(fixed: Fixed) -> str:
    text = ", ".join(fixed.instance_types)
    return f"[{text}]" if fixed.flexible else text


def _network(live: Group, wanted: DesiredGroup, cluster: Cluster) -> tuple[str, str] | None:
    # Nobody documents whether DescribeCluster repeats the cluster's network in each group, so both sides fall back to it.
    have, want = live.fixed.network or cluster.network, wanted.fixed.network or cluster.network
    return None if have == want else (_place(have), _place(want))


def _place(network: Network | None) -> str:
    if network is None:
        return "HyperPod's own network"
    return " ".join([*sorted(network.subnets), *sorted(network.security_groups)])


def _differ(have: object, want: object) -> tuple[str, str] | None:
    return None if have is None or want is None or have == want else (str(have), str(want))


IMMUTABLE = (
    Immutable(field="instance_type", values=_types),
    Immutable(field="node_type", values=lambda live, want, _: _differ(live.fixed.node_type, want.fixed.node_type)),
    Immutable(
        field="execution_role",
        values=lambda live, want, _: _differ(live.fixed.execution_role, want.fixed.execution_role),
    ),
    Immutable(field="availability_zone", values=_network),
    Immutable(
        field="threads_per_core",
        values=lambda live, want, _: _differ(live.fixed.threads_per_core, want.fixed.threads_per_core),
    ),
)


def check_group(live: Group, wanted: DesiredGroup, cluster: Cluster) -> Iterator[Refuse]:
    """Every immutable field of one group that the deployment would change."""
    for policy in IMMUTABLE:
        if values := policy.values(live, wanted, cluster):
            yield messages.immutable(live.name, policy.field, *values)
