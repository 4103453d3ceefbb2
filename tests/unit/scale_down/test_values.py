"""The values of the functions: two of different classes are never equal, whatever their fields."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from cdk_hyperpod._lambda import hyperpod
from cdk_hyperpod._lambda.hyperpod.kernel.refuse import Refuse
from cdk_hyperpod._lambda.hyperpod.scale_down.decide.group_deletion import GroupDeletion
from cdk_hyperpod._lambda.hyperpod.scale_down.model.actions import DeleteGroup, DeleteNodes, Picked, Plan


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Picked("p5", "i-1", "named"), Refuse(code="a-b", path="p5", why="i-1", fix="named")),
        (DeleteGroup("p5", 2), ("p5", 2)),
        (DeleteNodes("p5", (), None), ("p5", (), None)),
        (GroupDeletion(groups=(), wait=None, notes=()), ((), None, ())),
        (
            Plan(refusals=(Refuse(code="a-b", path="p5", why="i-1", fix="named"),)),
            Plan(refusals=(Picked("p5", "i-1", "named"),)),  # type: ignore[arg-type]
        ),
    ],
    ids=["picked and refused", "deletion", "nodes", "group deletion", "plans"],
)
def test_values_of_two_kinds_differ_where_their_fields_are_equal(one: object, other: object) -> None:
    assert one != other


def classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(hyperpod.__path__, f"{hyperpod.__name__}."):
        module = importlib.import_module(found.name)
        yield from (each for each in vars(module).values() if getattr(each, "__module__", "") == found.name)


def test_no_class_of_the_functions_is_a_tuple() -> None:
    found = [each for each in classes() if isinstance(each, type)]
    assert {"Plan", "Change", "Readiness", "NodeRequest"} <= {each.__name__ for each in found}
    assert [each.__name__ for each in found if issubclass(each, tuple)] == []
