"""Frozen values as JSON Schema (2020-12), with the text under each field as its description."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal

from .annotations import Either, Fields, Form, Items, JsonObject, Leaf, Names, field_types, shape
from .bounds import Pattern, Range

_TYPES = {str: "string", int: "integer", bool: "boolean"}


def object_schema(kind: type) -> dict[str, Any]:
    """The schema of a dataclass. The first line of its docstring is the description."""
    properties: dict[str, Any] = {}
    required = []
    for field in dataclasses.fields(kind):
        schema = value_schema(field_types(kind)[field.name])
        if text := texts(kind).get(field.name):
            schema = {**schema, "description": text}
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
        elif field.default not in (None, (), dataclasses.MISSING):
            schema["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
        properties[field.name] = schema
    return {
        "description": inspect.cleandoc(kind.__doc__ or "").splitlines()[0],
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def value_schema(annotation: Any) -> dict[str, Any]:
    """The schema of a field of this type, without null."""
    content = shape(annotation)
    schema = _form_schema(content.form)
    for bound in content.bounds:
        match bound:
            case Pattern():
                schema |= {"pattern": f"^({bound.regex})$", "description": bound.says}
            case Range():
                schema |= {"minimum": bound.low, "maximum": bound.high}
    return schema


def _form_schema(form: Form) -> dict[str, Any]:
    match form:
        case Fields(kind):
            return {"$ref": f"#/$defs/{kind.__name__}"}
        case Items(item):
            return {"type": "array", "items": value_schema(item)}
        case Names(key, value):
            names = value_schema(key)
            pattern = {"propertyNames": {"pattern": names["pattern"]}} if "pattern" in names else {}
            return {"type": "object", **pattern, "additionalProperties": value_schema(value)}
        case Either(plain, kind):
            return {"anyOf": [_form_schema(Leaf(plain)), _form_schema(Fields(kind))]}
        case JsonObject():
            return {"type": "object"}
        case Leaf(kind) if typing.get_origin(kind) is Literal:
            return {"enum": list(typing.get_args(kind))}
        case Leaf(kind):
            return {"type": _TYPES[kind]}
        case _:
            raise TypeError(f"no file can hold {form}")


def places(kind: type, path: str = "") -> dict[type, str]:
    """A dataclass and every dataclass in its fields, with the path of the first field of that type, in the file's order."""
    found = {kind: path}
    for name, annotation in field_types(kind).items():
        match shape(annotation).form:
            case Fields(inner) | Either(_, inner):
                suffix = name
            case Items(item) if isinstance(inner_form := shape(item).form, Fields):
                inner, suffix = inner_form.kind, f"{name}[]"
            case Names(_, value) if isinstance(inner_form := shape(value).form, (Either, Fields)):
                inner, suffix = inner_form.kind, f"{name}.NAME"
            case _:
                continue
        below = places(inner, f"{path}.{suffix}" if path else suffix)
        found |= {each: place for each, place in below.items() if each not in found}
    return found


def texts(kind: type) -> Mapping[str, str]:
    """The text under each field of a dataclass, those of its base classes first."""
    own = [_texts_in(each.__module__).get(each.__name__, {}) for each in reversed(kind.__mro__[:-1])]
    return {name: text for texts in own for name, text in texts.items()}


@functools.cache
def _texts_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The text under each field, by class and field. It is only in the source, since Python does not keep it."""
    docs: dict[str, dict[str, str]] = {}
    for statement in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(statement, ast.ClassDef):
            continue
        of_class = docs.setdefault(statement.name, {})
        for field, text in zip(statement.body, statement.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    of_class[name] = " ".join(inspect.cleandoc(words).split())
    return docs
