"""The constraints that fields carry in their types, checked over a whole value."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from .._fields import Pattern, Range
from .._structure import field_types, is_known, item_path, join, show, split_annotated
from ..errors import Finding


def check_constraints(value: Any, path: str = "") -> Iterator[Finding]:
    """Every field, at any depth, whose value its type's Pattern or Range refuses."""
    for name, annotation in field_types(type(value)).items():
        plain, constraints = split_annotated(annotation)
        yield from _check(getattr(value, name), plain, constraints, join(path, name))


def _check(value: Any, annotation: Any, constraints: tuple[Any, ...], path: str) -> Iterator[Finding]:
    if value is None or not (isinstance(value, tuple) or is_known(value)):
        return
    if dataclasses.is_dataclass(value):
        yield from check_constraints(value, path)
    elif isinstance(value, tuple):
        plain, constraints = split_annotated(typing.get_args(annotation)[0])
        for index, item in enumerate(value):
            yield from _check(item, plain, constraints, item_path(path, index, item))
    else:
        for constraint in constraints:
            if isinstance(constraint, (Pattern, Range)) and (problem := constraint.problem(value)):
                yield Finding(path=path, problem=f"{problem}, got {show(value)}", remedy="change it")
