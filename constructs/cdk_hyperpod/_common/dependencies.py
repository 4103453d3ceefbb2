"""What a resource waits for, determined at synthesis, so that later additions to the app count too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsii
from aws_cdk import CfnResource, Stack
from aws_cdk import aws_iam as iam
from constructs import Dependable, IConstruct, IDependable

from .._cdk_private import properties_as_set
from .order import names_in, reachable

References = Mapping[str, set[str]]
"""A logical id -> those that its resource names."""


@jsii.implements(IDependable)
class AtSynth(Dependable):
    """A dependency on constructs that are determined at synthesis."""

    def __init__(self, roots: Callable[[], Sequence[IConstruct]]) -> None:
        super().__init__()
        self._roots = roots
        Dependable.implement(self, self)

    @property
    @jsii.member(jsii_name="dependencyRoots")
    def dependency_roots(self) -> list[IConstruct]:
        """The current constructs."""
        return list(self._roots())


@dataclass(frozen=True, slots=True)
class LatePolicy:
    """A policy that must come after a resource because of one permission, although others of its permissions need not."""

    policy: IConstruct
    permission_on: IConstruct
    """What that permission is on: the resource, or one that names it."""


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """The parts of some constructs, ordered around a resource."""

    before: Sequence[IConstruct]
    """Resources that do not name the resource, directly or not: it can wait for them."""
    late_policies: Sequence[LatePolicy]


def prerequisites(needed: Iterable[IConstruct], resource: CfnResource) -> Prerequisites:
    """Which resources inside of constructs can come before a resource of the same stack.

    A resource that names it, or names another one that does, has to come after it: CloudFormation refuses a circle.
    """
    stack = Stack.of(resource)
    resource_id = stack.resolve(resource.logical_id)
    candidates = [child for each in needed for child in each.node.find_all() if CfnResource.is_cfn_resource(child)]
    named = [_references_of(child) for child in candidates]
    resources = _resources_in(stack) if any(named) else {}
    graph = _references_from(resources, set().union(*named))
    before: list[IConstruct] = []
    late: list[LatePolicy] = []
    for candidate, names in zip(candidates, named, strict=True):
        if resource_id not in reachable(graph, names):
            before.append(candidate)
        elif isinstance(candidate, iam.CfnPolicy | iam.CfnManagedPolicy):
            document = stack.resolve(candidate.policy_document)
            cause = cause_of_lateness(document, resource_id, graph)
            if cause is not None:
                late.append(LatePolicy(candidate, resources[cause]))
    return Prerequisites(before, late)


def cause_of_lateness(document: Mapping[str, Any], resource_id: str, references: References) -> str | None:
    """The logical id that the first permission names which makes a policy come after a resource.

    None: no permission does, or each of them does, so no permission is late because of another one.

    `document`: a resolved policy document.
    """
    causes = [
        sorted(name for name in set(names_in(permission)) if resource_id in reachable(references, {name}))
        for permission in _permissions(document)
    ]
    late = [names for names in causes if names]
    all_are_late = len(late) == len(causes)
    if not late or all_are_late:
        return None
    return late[0][0]


def _permissions(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A policy's statements, one for each resource: CDK merges the statements that allow the same."""
    for statement in _as_list(document["Statement"]):
        for resource in _as_list(statement.get("Resource")):
            yield {**statement, "Resource": resource}


def _as_list(value: Any) -> list[Any]:
    """IAM accepts a single value instead of a list of one."""
    return value if isinstance(value, list) else [value]


def _resources_in(stack: Stack) -> dict[str, IConstruct]:
    """A stack's resources by their logical ids."""
    resources: dict[str, IConstruct] = {}
    for construct in stack.node.find_all():
        if CfnResource.is_cfn_resource(construct) and Stack.of(construct) is stack:
            resources[stack.resolve(construct.logical_id)] = construct  # type: ignore[attr-defined]
    return resources


def _references_from(resources: Mapping[str, IConstruct], start: Iterable[str]) -> References:
    """The references of these resources and of everything that they name. Each look calls Node, so no other is read."""
    references: dict[str, set[str]] = {}
    left = list(start)
    while left:
        name = left.pop()
        if name in references or name not in resources:
            continue
        references[name] = _references_of(resources[name])
        left += references[name]
    return references


def _references_of(resource: Any) -> set[str]:
    """The logical ids that a resource names, DependsOn included."""
    named = set(names_in(Stack.of(resource).resolve(properties_as_set(resource))))
    return named | {Stack.of(other).resolve(other.logical_id) for other in resource.obtain_dependencies()}
