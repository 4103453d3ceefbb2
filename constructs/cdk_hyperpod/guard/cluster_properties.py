"""The properties of the guarded cluster: what the guard sends is made from them when the template is, after every change."""

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


class ClusterProperties:
    """The cluster's properties: looked up whenever they are asked for, until synthesis has judged them."""

    def __init__(self, cluster: sagemaker.CfnCluster, stack: Stack, seen: dict[str, Any]) -> None:
        self._cluster = cluster
        self._stack = stack
        self.judged: PropertiesSnapshot | None = None
        self._last = PropertiesSnapshot(cluster, stack, seen)

    def late(self, make: Callable[[PropertiesSnapshot], object]) -> IResolvable:
        """A token of what is made of the properties."""
        return Lazy.uncached_any(_Late(self, make))

    def keep(self) -> dict[str, Any]:
        """As they are now, for all that is asked from now on: only synthesis says so, after every change.

        Returns all of them, tags included.
        """
        every = properties_of(self._cluster)
        self.judged = self._seen(without_tags(every))
        return every

    def stack_tags(self) -> object:
        """What the guard is told besides the properties."""
        return self._stack.tags.rendered_tags

    def look(self) -> PropertiesSnapshot:
        """As they are now."""
        return self._seen(without_tags(properties_of(self._cluster)))

    def judge(self, said: Mapping[str, Any], resource: Mapping[str, Any]) -> PropertiesSnapshot:
        """As they are kept, with what goes into the template instead.

        `said`: what was set, tags included. `resource`: the cluster as CloudFormation will get it.
        """
        assert self.judged is not None
        seen = self.judged
        found = overrides(said, resource.get("Properties", {}))
        # Beside the properties a macro may stand, which replaces them.
        found += [(key, value) for key, value in resource.items() if key.startswith("Fn::")]
        if found:
            seen = self.judged = PropertiesSnapshot(self._cluster, self._stack, seen.properties, found)
        return seen

    def _seen(self, properties: dict[str, Any]) -> PropertiesSnapshot:
        if properties != self._last.properties:
            self._last = PropertiesSnapshot(self._cluster, self._stack, properties)
        return self._last


@jsii.implements(IAnyProducer)
class _Late:
    """A value that is made from the cluster's properties when the template is."""

    def __init__(self, properties: ClusterProperties, make: Callable[[PropertiesSnapshot], object]) -> None:
        self._properties = properties
        self._make = make

    def produce(self, context: IResolveContext) -> object:
        """The value as it is now. While CDK only looks for references: the stack's tags, for of the others the cluster has the same."""
        seen = self._properties.judged
        if seen is None:
            if context.preparing:
                return self._properties.stack_tags()
            seen = self._properties.look()
        return self._make(seen)


class PropertiesSnapshot:
    """The cluster's properties at one moment, with what was made of them. Each text is a call to Node, so it is kept."""

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
        self.overridden = overridden
        self.groups = typing.cast(list[dict[str, Any]], properties.get("InstanceGroups") or [])

    @cached_property
    def group_texts(self) -> list[str]:
        return [self._stack.to_json_string(group) for group in self.groups]

    @cached_property
    def digest(self) -> str:
        """Whatever makes CloudFormation update the cluster must run prepare first, a stack's tag included."""
        rest = {key: value for key, value in self.properties.items() if key not in ("ClusterName", "InstanceGroups")}
        return self._stack.to_json_string(
            {
                **rest,
                "Tags": self._cluster.cdk_tag_manager.rendered_tags,
                "StackTags": self._stack.tags.rendered_tags,
                # As a text: what refers to other resources is no reference of the guard's.
                **({"Overrides": json.dumps(self.overridden)} if self.overridden else {}),
            }
        )

    @cached_property
    def create_only(self) -> str:
        values = {key: self.properties[key] for key in ("VpcConfig", "Orchestrator") if key in self.properties}
        return self._stack.to_json_string(values)


def without_tags(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Without what may still come while the app is made."""
    return {key: value for key, value in properties.items() if key != "Tags"}
