"""Validates the rendered template at synthesis, and orders the rest of the stack around the guard."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsii
from aws_cdk import Annotations, CfnResource, CustomResource, Stack
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct, IValidation

from .._cdk_private import properties_as_set
from .._common.order import order_around, order_before
from ..errors import Finding
from ..rules.guard import check_groups, check_guarded, check_order, check_overrides, check_sent, check_size
from .cluster_template import ClusterTemplate
from .rendered_template import template_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedCluster:
    """A cluster and the two custom resources around it."""

    name: str
    """The cluster's name when the guard was made."""
    cluster: sagemaker.CfnCluster
    template: ClusterTemplate
    prepare: CustomResource
    finalize: CustomResource
    names_to_delete: Sequence[str]
    """The nodes and groups that the guard's arguments name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """The three resources as their constructs have them. Overrides are only in the rendered template."""

    ids: Mapping[str, str]
    """Logical ids of `cluster`, `prepare` and `finalize`."""
    properties: Mapping[str, Any]
    """Their properties."""


@jsii.implements(IValidation)
class TemplateValidation:
    """Says at synthesis why the cluster, as it is by then, cannot be guarded."""

    def __init__(self, guard: Construct, guarded: GuardedCluster) -> None:
        self._guard = guard
        self._stack = Stack.of(guard)
        self._guarded = guarded

    def validate(self) -> list[str]:
        """One message for each error."""
        return [str(finding) for finding in self._findings()]

    def _findings(self) -> Iterator[Finding]:
        guarded = self._guarded
        properties = guarded.template.at_synth()
        resources = template_of(self._stack)["Resources"]
        resolved = self._resolve(properties)
        ids = resolved.ids
        yield from check_order(resources, **ids)
        for name in ("prepare", "finalize"):
            if ids[name] in resources:
                yield from check_sent(name, resolved.properties[name], resources[ids[name]].get("Properties", {}))
        if resources.keys() >= set(ids.values()):
            self._order_stack(resources, ids)
        snapshot = guarded.template.final(resolved.properties["cluster"], resources[ids["cluster"]])
        yield from check_overrides(snapshot.overridden)
        yield from check_guarded(snapshot.properties, name=guarded.name)
        yield from check_groups(snapshot.properties)
        yield from check_size(snapshot.properties, guarded.names_to_delete, ())

    def _resolve(self, properties: dict[str, Any]) -> _Resolved:
        """Resolve all of them in one call to Node. `properties`: the cluster's."""
        prepare = typing.cast(CfnResource, self._guarded.prepare.node.default_child)
        finalize = typing.cast(CfnResource, self._guarded.finalize.node.default_child)
        ids = {
            "prepare": prepare.logical_id,
            "finalize": finalize.logical_id,
            "cluster": self._guarded.cluster.logical_id,
        }
        as_set = {
            "prepare": properties_as_set(prepare),
            "finalize": properties_as_set(finalize),
            "cluster": properties,
        }
        resolved_ids, resolved_properties = self._stack.resolve([ids, as_set])
        return _Resolved(ids=resolved_ids, properties=resolved_properties)

    def _order_stack(self, resources: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        """Let the guard wait for the rest of the stack, so that no other resource can fail after the guard has deleted nodes."""
        around = order_around(resources, **ids)
        _depend_on(_resource_of(self._guarded.prepare), resources[ids["prepare"]], around.prepare)
        _depend_on(_resource_of(self._guarded.finalize), resources[ids["finalize"]], around.finalize)
        self._warn_of_unordered(around.unordered, resources)
        self._order_parents()

    def _order_parents(self) -> None:
        """Let each nested stack around the guard wait for its parent's other resources."""
        stack = self._stack
        while stack.nested_stack_resource is not None and stack.nested_stack_parent is not None:
            nested, stack = stack.nested_stack_resource, stack.nested_stack_parent
            resources = template_of(stack)["Resources"]
            nested_id = stack.resolve(nested.logical_id)
            added, unordered = order_before(resources, nested_id)
            _depend_on(nested, resources[nested_id], added)
            self._warn_of_unordered(unordered, resources)

    def _warn_of_unordered(self, unordered: Sequence[str], resources: Mapping[str, Any]) -> None:
        if not unordered:
            return
        paths = ", ".join(_path_of(name, resources[name]) for name in unordered)
        Annotations.of(self._guard).add_warning_v2(
            "cdk-hyperpod:unordered",
            f"{paths} cannot come before ScaleDown; if one of them fails, the "
            "deployment has deleted nodes already; remove what makes it wait for ScaleDown, or move it to another stack",
        )


def _resource_of(custom_resource: CustomResource) -> CfnResource:
    return typing.cast(CfnResource, custom_resource.node.default_child)


def _depend_on(resource: CfnResource, rendered: Mapping[str, Any], added: Sequence[str]) -> None:
    """Add to a resource's DependsOn. CDK has rendered it already, so only an override still counts."""
    if not added:
        return
    depends_on = rendered.get("DependsOn") or []
    if isinstance(depends_on, str):
        depends_on = [depends_on]
    resource.add_override("DependsOn", [*depends_on, *added])


def _path_of(logical_id: str, resource: Any) -> str:
    """A resource's path in the app, by which its author knows it. Without metadata: its logical id."""
    metadata = resource.get("Metadata", {}) if isinstance(resource, Mapping) else {}
    return str(metadata.get("aws:cdk:path", logical_id)).removesuffix("/Resource")
