"""What a resource waits for, looked up when the template is made, so that what came last counts too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jsii
from aws_cdk import CfnResource, Stack
from aws_cdk import aws_iam as iam
from constructs import Dependable, IConstruct, IDependable

from .._cdk_private import properties_as_set
from .order import names_in, reachable


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


def without_circle(
    needed: Iterable[IConstruct], resource: CfnResource, *, late: Callable[[IConstruct, IConstruct], None]
) -> list[IConstruct]:
    """The resources of constructs that a resource can wait for: those that do not refer to it, nor to what does.

    `late` is told of a policy that could come first but for some of what it allows, and of one thing that this is about.
    """
    stack = Stack.of(resource)
    own = stack.resolve(resource.logical_id)
    found = [child for each in needed for child in each.node.find_all() if CfnResource.is_cfn_resource(child)]
    named = [_references(child) for child in found]
    known = _resources(stack) if any(named) else {}
    named_by = functools.cache(lambda name: _references(known[name]) if name in known else set())

    def lead_to_it(names: set[str]) -> bool:
        return own in reachable(names, named_by)

    first = []
    for child, names in zip(found, named, strict=True):
        if not lead_to_it(names):
            first.append(child)
        elif isinstance(child, iam.CfnPolicy | iam.CfnManagedPolicy):
            allowed = [set(names_in(each)) for each in _permissions(stack.resolve(child.policy_document))]
            about = [sorted(name for name in each if lead_to_it({name})) for each in allowed]
            if [] in about and any(about):
                late(child, known[next(filter(None, about))[0]])
    return first


def _permissions(document: Any) -> Iterator[Any]:
    """A policy's statements, one for each resource: CDK makes one of those that allow the same."""
    for statement in _listed(document["Statement"]):
        for each in _listed(statement.get("Resource")):
            yield {**statement, "Resource": each}


def _listed(value: Any) -> list[Any]:
    """IAM takes one thing for a list of one."""
    return value if isinstance(value, list) else [value]


def _resources(stack: Stack) -> dict[str, IConstruct]:
    """A stack's resources by their logical ids."""
    here = [each for each in stack.node.find_all() if CfnResource.is_cfn_resource(each) and Stack.of(each) is stack]
    return {stack.resolve(each.logical_id): each for each in here}  # type: ignore[attr-defined]


def _references(resource: Any) -> set[str]:
    """The logical ids that a resource names."""
    named = set(names_in(Stack.of(resource).resolve(properties_as_set(resource))))
    return named | {Stack.of(other).resolve(other.logical_id) for other in resource.obtain_dependencies()}
