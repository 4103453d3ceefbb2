"""What the type of each field says by itself, checked over a whole value."""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from .._fields import Pattern, Range
from .._structure import (
    MAPPED,
    UNKNOWN,
    field_types,
    is_known,
    item_paths,
    join,
    leaf_problem,
    show,
    split_annotated,
    without_none,
)
from ..errors import Finding

T = TypeVar("T")


def check_constraints(value: object, path: str = "") -> Iterator[Finding]:
    """Every field, at any depth, whose value its type refuses."""
    findings: list[Finding] = []
    without_refused(value, findings, path)
    yield from findings


def without_refused(value: T, findings: list[Finding], path: str = "") -> T:
    """The value, UNKNOWN in place of what its types refuse: a rule that came upon it would report it once more.

    Names stay, good or bad: paths tell the items of a list apart by them.
    """
    changed = {}
    for name, annotation in field_types(type(value)).items():
        before = getattr(value, name)
        after = _judge(before, annotation, join(path, name), findings)
        if after is not before and not (name == "name" and isinstance(before, str)):
            changed[name] = after
    return dataclasses.replace(value, **changed) if changed else value  # type: ignore[type-var]


def _judge(value: Any, annotation: Any, path: str, findings: list[Finding]) -> Any:
    annotation, constraints = split_annotated(annotation)
    annotation = without_none(annotation)
    origin = typing.get_origin(annotation)
    if value is None or value is UNKNOWN:
        return value
    if origin is tuple and isinstance(value, tuple):
        paths = item_paths(path, value)
        (kind, _) = typing.get_args(annotation)
        items = tuple(_judge(item, kind, paths[index], findings) for index, item in enumerate(value))
        return value if all(map(operator.is_, items, value)) else items
    if not is_known(value):
        return value
    if dataclasses.is_dataclass(annotation) and isinstance(value, typing.cast(type, annotation)):
        return without_refused(value, findings, path)
    problem = _problem(annotation, origin, value, constraints)
    if problem is None:
        return value
    findings.append(Finding(path=path, problem=f"{problem[0]}, got {show(value)}", remedy=problem[1]))
    return UNKNOWN


def _problem(kind: Any, origin: Any, value: object, constraints: tuple[Any, ...]) -> tuple[str, str] | None:
    if origin is tuple:
        return "must be a tuple", "write it as (a, b) or (a,)"
    if dataclasses.is_dataclass(kind):
        return f"must be of the class {typing.cast(type, kind).__name__}", "make one"
    if origin is Mapping:
        (_, mapped) = typing.get_args(kind)
        fits = isinstance(value, Mapping) and all(
            isinstance(key, str) and leaf_problem(mapped, item) is None for key, item in value.items()
        )
        return None if fits else (f"must be a mapping of text to {MAPPED[mapped]}", "make one")
    if problem := leaf_problem(kind, value):
        return problem
    for constraint in constraints:
        if isinstance(constraint, (Pattern, Range)) and (words := constraint.problem(value)):
            return words, "change it"
    return None
