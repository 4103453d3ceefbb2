"""Reads annotations: each type becomes a form, which building, validation and the schema match on."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .bounds import Constraint, Pattern, Range


@dataclass(frozen=True, slots=True)
class Leaf:
    """One plain value: text, a number, a flag, or one of a few (Literal)."""

    kind: Any


@dataclass(frozen=True, slots=True)
class Items:
    """A list, whose items have one type."""

    item: Any
    exact: bool
    """True: a tuple, as in the frozen values. False: any sequence, as in arguments."""


@dataclass(frozen=True, slots=True)
class Names:
    """A mapping."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A mapping of text to any JSON."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A frozen value with fields of its own."""

    kind: type


@dataclass(frozen=True, slots=True)
class Either:
    """One plain value, or one of a few words, or settings in its place."""

    plain: Any
    kind: type


@dataclass(frozen=True, slots=True)
class Made:
    """A value that only Python code can give: an object of a class, or of one of several, which may include plain types."""

    kinds: tuple[Any, ...]


Form: TypeAlias = Leaf | Items | Names | JsonObject | Fields | Either | Made


@dataclass(frozen=True, slots=True)
class Shape:
    """The content of one annotation."""

    form: Form
    optional: bool
    """Whether None is a valid value."""
    bounds: tuple[Constraint, ...]


@functools.cache
def shape(annotation: Any) -> Shape:
    """The content of an annotation. `Annotated[X, …] | None` has its bounds as `Annotated[X | None, …]` would."""
    inner, bounds = _unwrapped(annotation)
    options = typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else (inner,)
    kinds = tuple(option for option in options if option is not types.NoneType)
    if len(kinds) == 1:
        (kind,), (_, inner) = kinds, _unwrapped(kinds[0])
        return Shape(_form(_unwrapped(kind)[0]), len(options) > 1, (*bounds, *inner))
    return Shape(_form_of_several(kinds), len(options) > len(kinds), bounds)


_PLAIN = (str, int, bool, float)
_field_types: dict[type, Mapping[str, Any]] = {}


def field_types(kind: type) -> Mapping[str, Any]:
    """A dataclass's field names and types, with Annotated."""
    if kind not in _field_types:
        _field_types[kind] = typing.get_type_hints(kind, include_extras=True)
    return _field_types[kind]


def arguments_of(value: Any) -> dict[str, Any]:
    """A dataclass's fields as arguments, for a construct whose arguments have the same names."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Constraint, ...]]:
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, ()
    return annotation.__origin__, tuple(each for each in annotation.__metadata__ if isinstance(each, Pattern | Range))


def _form_of_several(kinds: tuple[Any, ...]) -> Form:
    match sorted(kinds, key=dataclasses.is_dataclass):
        case [plain, kind] if _is_plain(plain) and dataclasses.is_dataclass(kind):
            return Either(plain, typing.cast(type, kind))
        case _:
            return Made(kinds)


def _is_plain(kind: Any) -> bool:
    return typing.get_origin(kind) is Literal or kind in _PLAIN


def _form(kind: Any) -> Form:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Mapping:
        return JsonObject() if arguments[1] is Any else Names(*arguments)
    if origin is not None and origin is not Literal:
        return Items(arguments[0], exact=origin is tuple)
    if dataclasses.is_dataclass(kind):
        return Fields(typing.cast(type, kind))
    return Leaf(kind) if _is_plain(kind) else Made((kind,))
