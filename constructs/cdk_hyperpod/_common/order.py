"""The order in which CloudFormation creates a template's resources, from the logical ids that each one names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

_IN_SUB = re.compile(r"\$\{([A-Za-z0-9]+)")
_SIGNALLED = "AWS::CloudFormation::WaitCondition"
"""It completes on a signal, which a node of the cluster may send. Before the cluster, waiting for it would never end."""


class Order:
    """A template's resources, each with those that it waits for.

    A condition that is false removes a resource from the stack, and with it the order that depends on it. So an order that needs a
    resource with a condition does not count.
    """

    def __init__(self, resources: Mapping[str, Any]) -> None:
        """`resources`: a template's, with every override."""
        # A macro such as Fn::ForEach is not a resource. It becomes resources at deployment, with unknown names.
        self._resources = {name: each for name, each in resources.items() if isinstance(each, Mapping)}
        self._waits_for = {name: self._named_by(each) for name, each in self._resources.items()}

    def waits_for(self, name: str) -> AbstractSet[str]:
        """Everything that it waits for, directly or not."""
        return reachable(self._waits_for, self._waits_for[name])

    def not_before(self, name: str) -> AbstractSet[str]:
        """Everything that waits for it, directly or not."""
        waiting: dict[str, set[str]] = {each: set() for each in self._waits_for}
        for each, needed in self._waits_for.items():
            for other in needed:
                waiting[other].add(each)
        return reachable(waiting, waiting[name])

    def signalled(self) -> AbstractSet[str]:
        """The resources that complete on a signal, and everything that waits for them."""
        found = {name for name, each in self._resources.items() if each.get("Type") == _SIGNALLED}
        return found.union(*(self.not_before(name) for name in found))

    def put_after(self, name: str, *, late: AbstractSet[str] = frozenset()) -> list[str]:
        """Make a resource wait for every other one that does not wait for it and is not in `late`.

        Returns the additions to its DependsOn.
        """
        certain = self._certain_waits()
        free = self._waits_for.keys() - self.not_before(name) - late - {name}
        wanted = free - reachable(certain, self._waits_for[name])
        covered = (reachable(certain, certain[each]) for each in wanted)
        missing = wanted.difference(*covered)
        self._waits_for[name] |= missing
        return sorted(missing)

    def _certain_waits(self) -> dict[str, AbstractSet[str]]:
        """What each resource waits for in every deployment: a resource with a condition may be absent."""
        absent: AbstractSet[str] = frozenset()
        return {
            name: absent if "Condition" in resource else self._waits_for[name]
            for name, resource in self._resources.items()
        }

    def _named_by(self, resource: Mapping[str, Any]) -> set[str]:
        return {name for name in names_in(resource) if name in self._resources}


class Around(NamedTuple):
    """How to order a stack around its cluster's guard."""

    prepare: list[str]
    """Additions to the DependsOn of the resource that runs before the cluster."""
    finalize: list[str]
    """Additions to the DependsOn of the resource that runs after it."""
    unordered: list[str]
    """Resources that do not need the cluster and cannot come before `prepare`, and those that cannot come before `finalize`."""


def order_around(resources: Mapping[str, Any], *, prepare: str, cluster: str, finalize: str) -> Around:
    """Put everything that does not need the cluster before `prepare`, and everything else before `finalize`."""
    order = Order(resources)
    # In this order: a resource before `prepare` is also before `finalize`.
    before, after = order.put_after(prepare, late=order.signalled()), order.put_after(finalize)
    needs_cluster = {cluster, *order.not_before(cluster)}
    loose = resources.keys() - order.waits_for(prepare) - needs_cluster - {prepare}
    return Around(before, after, sorted(loose | order.not_before(finalize)))


def order_before(resources: Mapping[str, Any], name: str) -> tuple[list[str], list[str]]:
    """Additions to a resource's DependsOn that put everything possible before it, and the resources that cannot come before it."""
    order = Order(resources)
    added = order.put_after(name, late=order.signalled())
    return added, sorted(resources.keys() - order.waits_for(name) - {name})


def reachable(graph: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """The nodes of a graph that can be reached from some of its nodes, which are included."""
    left, found = list(start), set[str]()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph.get(name, ())
    return found


def names_in(value: Any) -> Iterator[str]:
    """The logical ids that a part of a template names, parameters and pseudo parameters included."""
    match value:
        case dict():
            for key, item in value.items():
                yield from _named(key, item)
                yield from names_in(item)
        case list():
            for item in value:
                yield from names_in(item)


def _named(key: str, item: Any) -> Iterator[str]:
    match key, item:
        case ("Ref" | "DependsOn", str(name)):
            yield name
        case "Fn::GetAtt", [str(name), *_]:
            yield name
        case "Fn::GetAtt", str(path):
            yield path.split(".")[0]
        case "DependsOn", [*names]:
            yield from (name for name in names if isinstance(name, str))
        case "Fn::Sub", (str(text) | [str(text), *_]):
            yield from _IN_SUB.findall(text)
