"""What the template says about the guarded cluster. The guard's own properties are rendered from it at synthesis."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jsii
from aws_cdk import IAnyProducer, IResolvable, IResolveContext, Lazy, Stack
from aws_cdk import aws_sagemaker as sagemaker

from .._cdk_private import properties_of
from ..rules.guard import Override, overrides


class PropertiesSnapshot:
    """The cluster's properties at one point in time, and the values that the guard sends. Rendering a value calls Node, so each is kept."""

    def __init__(
        self,
        cluster: sagemaker.CfnCluster,
        stack: Stack,
        properties: dict[str, Any],
        overridden: Sequence[Override] = (),
    ) -> None:
        self._cluster = cluster
        self._stack = stack
        self.properties = properties
        """By CloudFormation's names, without the tags."""
        self.overridden = overridden
        """The template's overrides of these properties. Empty before synthesis."""
        self.groups = typing.cast(list[dict[str, Any]], properties.get("InstanceGroups") or [])

    @cached_property
    def group_texts(self) -> list[str]:
        """Each instance group as JSON, so that numbers and tokens survive."""
        return [self._stack.to_json_string(group) for group in self.groups]

    @cached_property
    def digest(self) -> str:
        """Everything else that makes CloudFormation update the cluster, the stack's tags included. A change of it runs prepare."""
        values = {key: value for key, value in self.properties.items() if key not in ("ClusterName", "InstanceGroups")}
        values["Tags"] = self._cluster.cdk_tag_manager.rendered_tags
        values["StackTags"] = self._stack.tags.rendered_tags
        if self.overridden:
            # As text: a reference in an override would become a reference of the guard.
            values["Overrides"] = json.dumps(self.overridden)
        return self._stack.to_json_string(values)

    @cached_property
    def create_only(self) -> str:
        """The properties that replace the cluster if they change."""
        values = {key: self.properties[key] for key in ("VpcConfig", "Orchestrator") if key in self.properties}
        return self._stack.to_json_string(values)


class ClusterTemplate:
    """Watches the cluster's properties, which an app may change until synthesis.

    Until `at_synth` is called, each token reads the properties again. `at_synth` reads them for the last time. `final` adds the
    overrides that the rendered template has.
    """

    def __init__(self, cluster: sagemaker.CfnCluster, stack: Stack, properties: dict[str, Any]) -> None:
        """Watch a cluster. `properties`: the current ones, without the tags."""
        self._cluster = cluster
        self._stack = stack
        self._snapshot = PropertiesSnapshot(cluster, stack, properties)
        self._changes_are_over = False

    def token(self, render: Callable[[PropertiesSnapshot], object]) -> IResolvable:
        """A token for a value that is rendered from the cluster's properties."""
        return Lazy.uncached_any(_Producer(lambda context: self._render(render, context)))

    def at_synth(self) -> dict[str, Any]:
        """Read the properties for the last time. Call it in a construct's validation, which runs after every change.

        Returns the properties with the tags.
        """
        properties = properties_of(self._cluster)
        self._update(properties)
        self._changes_are_over = True
        return properties

    def final(self, as_set: Mapping[str, Any], resource: Mapping[str, Any]) -> PropertiesSnapshot:
        """The snapshot with the overrides of the rendered template. Call it after `at_synth`.

        `as_set`: the resolved properties, tags included. `resource`: the cluster's resource in the rendered template.
        """
        found = overrides(as_set, resource.get("Properties", {}))
        # A macro beside the properties may replace them.
        found += [(key, value) for key, value in resource.items() if key.startswith("Fn::")]
        if found:
            self._snapshot = PropertiesSnapshot(self._cluster, self._stack, self._snapshot.properties, found)
        return self._snapshot

    def _render(self, render: Callable[[PropertiesSnapshot], object], context: IResolveContext) -> object:
        if self._changes_are_over:
            return render(self._snapshot)
        if context.preparing:
            # CDK only looks for references here. The cluster itself has all of them but those of the stack's tags.
            return self._stack.tags.rendered_tags
        self._update(properties_of(self._cluster))
        return render(self._snapshot)

    def _update(self, properties: Mapping[str, Any]) -> None:
        current = without_tags(properties)
        if current != self._snapshot.properties:
            self._snapshot = PropertiesSnapshot(self._cluster, self._stack, current)


@jsii.implements(IAnyProducer)
class _Producer:
    """Gives CDK the value of a token."""

    def __init__(self, produce: Callable[[IResolveContext], object]) -> None:
        self._produce = produce

    def produce(self, context: IResolveContext) -> object:
        """The value."""
        return self._produce(context)


def without_tags(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties without the tags, which CDK may still add while it prepares the app."""
    return {key: value for key, value in properties.items() if key != "Tags"}
