"""The annotations of frozen values, taken apart: a field's type, its bounds, and what a union joins."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

_field_types: dict[type, Mapping[str, Any]] = {}


def field_types(kind: type) -> Mapping[str, Any]:
    """A dataclass's field names and types, Annotated kept."""
    if kind not in _field_types:
        _field_types[kind] = typing.get_type_hints(kind, include_extras=True)
    return _field_types[kind]


def split_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type, and what Annotated says of it; `Annotated[X, …] | None` counts as annotated too."""
    if typing.get_origin(annotation) is typing.Annotated:
        return annotation.__origin__, annotation.__metadata__
    if _is_union(annotation):
        options = [option for option in typing.get_args(annotation) if option is not types.NoneType]
        if len(options) == 1 and typing.get_origin(options[0]) is typing.Annotated:
            return options[0].__origin__ | None, options[0].__metadata__
    return annotation, ()


def union_options(annotation: Any) -> tuple[Any, ...]:
    """The types that a union joins; of anything else, itself."""
    return typing.get_args(annotation) if _is_union(annotation) else (annotation,)


def without_none(annotation: Any) -> Any:
    """The type of a value that is there: X of `X | None`."""
    (kind,) = (option for option in union_options(annotation) if option is not types.NoneType)
    return kind


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
