"""Rules of `ScaleDown`: refuses at synthesis what the guard could not read or would not be called for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import Finding

MOST_BYTES = 120_000
"""The maximum for one set of properties. A waiter's event has at most 262,144 bytes (a quota of Step Functions) and contains
the properties before and after the change. The rest is for tags, which are known last, and for the request's own data."""

_UNKNOWN = "x" * 64
"""Stands for a value that is known at deployment only. An ARN may be longer, most ids and names are much shorter."""
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
"""The properties from which the guard decides. It does not see an override of them, and would delete other nodes than the template
requests."""


def check_guarded(cluster: Mapping[str, Any], *, name: str | None = None) -> Iterator[Finding]:
    """Why a cluster with these properties, by CloudFormation's names, cannot be guarded.

    `name`: the name that it had when its guard was created. None: the guard is being created.
    """
    if name is not None and cluster.get("ClusterName") != name:
        yield Finding(
            code="guard-cluster-renamed",
            path="cluster.cluster_name",
            problem="was changed after ScaleDown was created",
            remedy="set the name when you create the cluster",
        )
    elif not cluster.get("ClusterName"):
        yield Finding(
            code="guard-cluster-unnamed",
            path="cluster.cluster_name",
            problem=("is missing: CloudFormation would generate a name, which is not known before the cluster exists"),
            remedy="give the cluster a name",
        )
    if cluster.get("RestrictedInstanceGroups"):
        yield Finding(
            code="guard-restricted-groups",
            path="cluster.restricted_instance_groups",
            problem="are not guarded: HyperPod terminates random nodes when you lower a count there",
            remedy="give them a cluster of their own, without ScaleDown",
        )


def check_groups(cluster: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether there is a group to guard. An app may add groups until synthesis."""
    if not cluster.get("InstanceGroups") and not cluster.get("RestrictedInstanceGroups"):
        yield Finding(
            code="guard-without-groups",
            path="cluster.instance_groups",
            problem="are missing, so ScaleDown has nothing to guard",
            remedy="set them, or remove ScaleDown",
        )


Override = tuple[str, Any]
"""The path below the resource's properties, and the value in the template. None: the template has no value."""


def overrides(properties: Mapping[str, Any], rendered: Mapping[str, Any]) -> list[Override]:
    """The differences between the cluster's properties and the template, both by CloudFormation's names."""
    return [*_overrides(properties, rendered, "")]


def _overrides(own: Any, rendered: Any, path: str) -> Iterator[Override]:
    if isinstance(own, Mapping) and isinstance(rendered, Mapping):
        for key in sorted({*own, *rendered}):
            yield from _overrides(own.get(key), rendered.get(key), f"{path}.{key}".removeprefix("."))
    elif isinstance(own, list) and isinstance(rendered, list) and len(own) == len(rendered):
        for number, (mine, theirs) in enumerate(zip(own, rendered, strict=True)):
            yield from _overrides(mine, theirs, f"{path}.{number}")
    elif own != rendered and not (_empty(own) and _empty(rendered)):
        yield path, rendered


def _empty(value: Any) -> bool:
    """Whether a template leaves the value out."""
    return value in (None, {}, [])


def check_overrides(found: Iterable[Override]) -> Iterator[Finding]:
    """Overrides of properties from which the guard decides."""
    for path, _ in found:
        first = path.split(".")[0]
        # The result of a macro is not known before the deployment.
        if first in _GUARDED or first.startswith("Fn::"):
            yield Finding(
                code="guard-override-invisible",
                path="cluster",
                problem=(
                    f"an override of {path} is invisible to ScaleDown, which would delete other nodes than the "
                    "template requests"
                ),
                remedy="set the property itself. If CDK's class does not know it, use a newer aws-cdk-lib",
            )


def check_order(resources: Mapping[str, Any], *, cluster: str, prepare: str, finalize: str) -> Iterator[Finding]:
    """Whether CloudFormation will call the guard before and after it changes the cluster.

    `resources`: the template's resources, with every override. `cluster`, `prepare` and `finalize`: their logical ids.
    """
    for name, logical_id in (("prepare", prepare), ("finalize", finalize)):
        if logical_id not in resources:
            yield Finding(
                code="guard-resource-missing",
                path=name,
                problem="is not in the template, so the cluster would change without ScaleDown",
                remedy=f"keep ScaleDown's {name} in the template",
            )
        elif resources[logical_id].get("Condition") not in (None, resources.get(cluster, {}).get("Condition")):
            yield Finding(
                code="guard-condition-differs",
                path=name,
                problem=(
                    "has a condition that the cluster does not have, so the cluster could change without ScaleDown"
                ),
                remedy="give the cluster the same condition, or remove both",
            )
    for path, waiting, needed in (("cluster", cluster, prepare), ("finalize", finalize, cluster)):
        if needed in resources and waiting in resources and needed not in _waits_for(resources[waiting]):
            yield Finding(
                code="guard-order-overridden",
                path=path,
                problem="an override of DependsOn changes the order in which ScaleDown is called",
                remedy=f"use {path}.node.add_dependency(…) instead",
            )


def _waits_for(resource: Mapping[str, Any]) -> Sequence[str]:
    needed = resource.get("DependsOn") or []
    return [needed] if isinstance(needed, str) else needed


def check_sent(name: str, sent: Mapping[str, Any], rendered: Mapping[str, Any]) -> Iterator[Finding]:
    """Overrides of what ScaleDown sends to one of its resources. Additional properties do no harm."""
    for path, _ in overrides(sent, {key: value for key, value in rendered.items() if key in sent}):
        yield Finding(
            code="guard-resource-override",
            path=name,
            problem=f"an override of {path} changes what ScaleDown receives",
            remedy="use ScaleDown's arguments, or the cluster's properties",
        )


def check_size(
    cluster: Mapping[str, Any], nodes_to_delete: Sequence[str], instance_groups_to_delete: Sequence[str]
) -> Iterator[Finding]:
    """Whether the custom resource's event can hold the old and the new properties, in a rollback as well."""
    groups = [_text(group) for group in cluster.get("InstanceGroups", ())]
    rest = _text({key: value for key, value in cluster.items() if key != "InstanceGroups"})
    names = [*nodes_to_delete, *instance_groups_to_delete]
    size = len(_TOKEN.sub(_UNKNOWN, _text([groups, rest, names])))
    size_text = f"{size:,}"
    if size > MOST_BYTES:
        yield Finding(
            code="guard-properties-too-large",
            path="scale_down",
            problem=(
                f"the cluster's groups and the {len(names)} nodes and groups to delete need about {size_text} "
                f"bytes ({len(_UNKNOWN)} for each value that is known at deployment only), but a deployment "
                f"has room for {MOST_BYTES:,}"
            ),
            remedy=(
                "remove nodes that are already deleted from nodes_to_delete, and deleted groups from "
                "instance_groups_to_delete. If that is not enough, use fewer instance groups"
            ),
        )


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda _: _UNKNOWN)
