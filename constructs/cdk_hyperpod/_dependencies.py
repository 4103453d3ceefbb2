"""What a resource waits for, looked up when the template is made, so that what came last counts too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsii
from aws_cdk import CfnResource, Stack
from constructs import Dependable, IConstruct, IDependable

_IN_SUB = re.compile(r"\$\{([A-Za-z0-9]+)")


@jsii.implements(IDependable)
class AtSynth(Dependable):
    """Constructs that are known at synthesis only."""

    def __init__(self, roots: Callable[[], Sequence[IConstruct]]) -> None:
        super().__init__()
        self._roots = roots
        Dependable.implement(self, self)

    @property
    @jsii.member(jsii_name="dependencyRoots")
    def dependency_roots(self) -> list[IConstruct]:
        """What there is by now."""
        return list(self._roots())


def without_circle(needed: IConstruct, resource: CfnResource) -> list[IConstruct]:
    """The resources of a construct that a resource can wait for: those that do not refer to it, nor to what does."""
    stack = Stack.of(resource)
    here = [child for child in needed.node.find_all() if CfnResource.is_cfn_resource(child)]
    known: dict[str, IConstruct] = {}

    def refer(names: set[str]) -> bool:
        """Whether one of the resources is the one asked about, or leads to it."""
        if own in names:
            return True
        if names and not known:
            for each in stack.node.find_all():
                if CfnResource.is_cfn_resource(each) and Stack.of(each) is stack:
                    known[stack.resolve(each.logical_id)] = each  # type: ignore[attr-defined]
        new = {name for name in names if name in known} - seen
        seen.update(new)
        return any(refer(_references(known[name])) for name in sorted(new))

    own = stack.resolve(resource.logical_id)
    found = []
    for child in here:
        seen: set[str] = set()
        if not refer(_references(child)):
            found.append(child)
    return found


def _references(resource: Any) -> set[str]:
    """The logical ids that a resource names."""
    named = set(_names(Stack.of(resource).resolve(resource._cfn_properties)))
    return named | {Stack.of(other).resolve(other.logical_id) for other in resource.obtain_dependencies()}


def _names(value: Any) -> Iterator[str]:
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case {"Fn::Sub": said}:
            yield from _IN_SUB.findall(str(said))
        case dict():
            for item in value.values():
                yield from _names(item)
        case list():
            for item in value:
                yield from _names(item)
