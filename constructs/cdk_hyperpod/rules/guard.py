"""What `ScaleDown` must know before it can guard a cluster: properties that it could not read are refused at synthesis."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import Finding

MOST_BYTES = 120_000
"""Of one set of properties. A waiter's event has 262,144 bytes (a quota of Step Functions), and holds the properties before
the change and after it; what is left is for tags, which are known last, and for the request's own data."""

_UNKNOWN = "x" * 64
"""Stands for a value that is known at deployment only: an ARN may be longer, most ids and names are far shorter."""
_TOKEN = re.compile(r"[$#]\{Token\[[^\]]*\]\}")


_GUARDED = frozenset(
    {
        "ClusterName",
        "InstanceGroups",
        "NodeProvisioningMode",
        "Orchestrator",
        "RestrictedInstanceGroups",
        "Tags",
        "VpcConfig",
    }
)
"""What the guard goes by. It does not see an override of these, and would take other nodes than the template asks for."""


def check_guarded(cluster: Mapping[str, Any], *, name: str | None = None) -> Iterator[Finding]:
    """Why a cluster with these properties, by CloudFormation's names, cannot be guarded.

    `name`: the name that it had when its guard was made; None: it is being made.
    """
    if name is not None and cluster.get("ClusterName") != name:
        yield Finding(
            path="cluster.cluster_name",
            problem="was changed after ScaleDown was made",
            remedy="set the name where the cluster is made",
        )
    elif not cluster.get("ClusterName"):
        yield Finding(
            path="cluster.cluster_name",
            problem="is missing, and CloudFormation would make one up that nobody knows before the cluster is there",
            remedy="give the cluster a name",
        )
    if cluster.get("RestrictedInstanceGroups"):
        yield Finding(
            path="cluster.restricted_instance_groups",
            problem="are not guarded: HyperPod terminates nodes at random when you lower a count there",
            remedy="give them a cluster of their own, without ScaleDown",
        )


def check_groups(cluster: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether there is anything to guard: the groups may come until synthesis."""
    if not cluster.get("InstanceGroups") and not cluster.get("RestrictedInstanceGroups"):
        yield Finding(
            path="cluster.instance_groups",
            problem="are missing, and there is nothing else that ScaleDown guards",
            remedy="set them, or leave ScaleDown out",
        )


def check_overrides(overrides: Iterable[tuple[str, object]]) -> Iterator[Finding]:
    """Whether the template will say of the cluster what its guard goes by."""
    for path, _ in overrides:
        # One of all properties replaces or deletes those that the guard goes by, whatever it holds.
        if not path or path.split(".")[0] in _GUARDED:
            yield Finding(
                path="cluster",
                problem=f"an override of {path or 'Properties'} goes past ScaleDown, which would take nodes by what it overrides",
                remedy="set the property itself instead",
            )


def check_size(
    cluster: Mapping[str, Any], nodes_to_delete: Sequence[str], instance_groups_to_delete: Sequence[str]
) -> Iterator[Finding]:
    """Whether what the custom resource gets can travel, the old and the new together, in a rollback as well."""
    groups = [_text(group) for group in cluster.get("InstanceGroups", ())]
    rest = _text({key: value for key, value in cluster.items() if key != "InstanceGroups"})
    names = [*nodes_to_delete, *instance_groups_to_delete]
    size = len(_TOKEN.sub(_UNKNOWN, _text([groups, rest, names])))
    if size > MOST_BYTES:
        yield Finding(
            path="scale_down",
            problem=(
                f"the groups of the cluster, and the {len(names)} nodes and groups to delete, come to about {size:,} bytes "
                f"({len(_UNKNOWN)} for each value that is known at deployment only), and a deployment has room for "
                f"{MOST_BYTES:,}"
            ),
            remedy=(
                "take the ids of nodes that are gone out of nodes_to_delete, and the names of groups that are gone out of "
                "instance_groups_to_delete; where that is not enough, have fewer instance groups"
            ),
        )


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda _: _UNKNOWN)
