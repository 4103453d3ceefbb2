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
            problem="is missing, and CloudFormation would make one up that nobody knows before the cluster exists",
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


Override = tuple[str, Any]
"""The path below the resource's properties, and what the template has there; None: nothing."""


def overrides(properties: Mapping[str, Any], rendered: Mapping[str, Any]) -> list[Override]:
    """Where a template says something else of the cluster than its properties, both by CloudFormation's names."""
    return [*_overrides(properties, rendered, "")]


def _overrides(said: Any, rendered: Any, path: str) -> Iterator[Override]:
    if isinstance(said, Mapping) and isinstance(rendered, Mapping):
        for key in sorted({*said, *rendered}):
            yield from _overrides(said.get(key), rendered.get(key), f"{path}.{key}".removeprefix("."))
    elif isinstance(said, list) and isinstance(rendered, list) and len(said) == len(rendered):
        for number, (mine, theirs) in enumerate(zip(said, rendered, strict=True)):
            yield from _overrides(mine, theirs, f"{path}.{number}")
    elif said != rendered and not (_empty(said) and _empty(rendered)):
        yield path, rendered


def _empty(value: Any) -> bool:
    """Whether a template leaves it out."""
    return value in (None, {}, [])


def check_overrides(found: Iterable[Override]) -> Iterator[Finding]:
    """Whether the template will say of the cluster what its guard goes by."""
    for path, _ in found:
        first = path.split(".")[0]
        # What a macro puts there nobody knows before the deployment.
        if first in _GUARDED or first.startswith("Fn::"):
            yield Finding(
                path="cluster",
                problem=f"an override of {path} goes past ScaleDown, which would take nodes by what it overrides",
                remedy=(
                    "set the property itself instead; one that CDK's class does not know needs a newer aws-cdk-lib"
                ),
            )


def check_order(resources: Mapping[str, Any], *, cluster: str, prepare: str, finalize: str) -> Iterator[Finding]:
    """Whether CloudFormation will call the guard before it touches the cluster, and after.

    `resources`: of the template, with every override. `cluster`, `prepare` and `finalize`: their logical ids.
    """
    for name, logical_id in (("prepare", prepare), ("finalize", finalize)):
        if logical_id not in resources:
            yield Finding(
                path=name,
                problem="is not in the template, and the cluster would change without ScaleDown",
                remedy=f"leave ScaleDown's {name} where it is",
            )
        elif resources[logical_id].get("Condition") not in (None, resources.get(cluster, {}).get("Condition")):
            yield Finding(
                path=name,
                problem="has a condition that the cluster does not have, which could change without ScaleDown",
                remedy="give the cluster the same condition, or none to either",
            )
    for path, of, waiting, needed in (
        ("cluster", "the cluster", cluster, prepare),
        ("finalize", "it", finalize, cluster),
    ):
        if needed in resources and waiting in resources and needed not in _waits_for(resources[waiting]):
            yield Finding(
                path=path,
                problem=f"an override of DependsOn takes {of} out of ScaleDown's order",
                remedy=f"use {path}.node.add_dependency(…) instead",
            )


def _waits_for(resource: Mapping[str, Any]) -> Sequence[str]:
    needed = resource.get("DependsOn") or []
    return [needed] if isinstance(needed, str) else needed


def check_sent(name: str, said: Mapping[str, Any], rendered: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether a resource of the guard's will be told what ScaleDown tells it. What somebody adds is no matter."""
    for path, _ in overrides(said, {key: value for key, value in rendered.items() if key in said}):
        yield Finding(
            path=name,
            problem=f"an override of {path} goes past ScaleDown, which would not be told what it has to do",
            remedy="say it in ScaleDown's arguments, or in the cluster's properties",
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
