"""The JSON schema of a cluster file, and its reference page: both made from the typed model in `config/`."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ..instance_types import catalogue, regions
from ..typed.annotations import field_types, split_annotated
from ..typed.bounds import Pattern, Range
from .cluster import ClusterConfig


def json_schema() -> dict[str, Any]:
    """The schema, for editors to complete and check a cluster file with (JSON Schema 2020-12)."""
    definitions = {kind.__name__: _object_schema(kind) for kind in _kinds(ClusterConfig)}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A SageMaker HyperPod cluster",
        **definitions.pop("ClusterConfig"),
        "$defs": dict(sorted(definitions.items())),
    }
    schema["properties"]["region"]["enum"] = sorted(regions().available)
    group = schema["$defs"]["InstanceGroup"]["properties"]
    group["instance_type"]["enum"] = list(catalogue())
    group["instance_types"]["items"]["enum"] = list(catalogue())
    return schema


def reference() -> str:
    """The reference page, in Markdown: every setting, its type, its default and what a change does."""
    parts = [
        "# Reference of the cluster file",
        "Made from `constructs/cdk_hyperpod/config/` by `make docs`; change it there.",
    ]
    for kind in _kinds(ClusterConfig):
        path = _paths().get(kind, "")
        title = f"`{path}`" if path else "The file"
        parts.append(f"## {title}")
        parts.append(inspect.cleandoc(kind.__doc__ or ""))
        parts.append("\n".join(_reference_rows(kind)))
    return "\n\n".join(parts) + "\n"


def _reference_rows(kind: type) -> Iterator[str]:
    yield "| setting | type | default | |"
    yield "|---|---|---|---|"
    for field in dataclasses.fields(kind):
        schema = _schema(field_types(kind)[field.name])
        text = _docs(kind).get(field.name, "").replace("|", "\\|")
        yield f"| `{field.name}` | {_type_words(schema)} | {_default_words(field)} | {text} |"


def _type_words(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": options}:
            return ", ".join(f"`{option}`" for option in options)
        case {"$ref": str()}:
            return "settings"
        case {"type": "array", "items": items}:
            return f"list of {_type_words(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"names and {'numbers' if values['type'] == 'integer' else 'texts'}"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"whole number, {low} to {high}"
        case {"description": str(words)}:
            return words.replace("|", "\\|")
        case _:
            return {"string": "text", "integer": "whole number", "boolean": "true or false"}[schema["type"]]


def _default_words(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "**required**"
    if field.default in (None, (), dataclasses.MISSING):
        return ""
    if isinstance(field.default, tuple):
        return ", ".join(f"`{item}`" for item in field.default)
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _object_schema(kind: type) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for field in dataclasses.fields(kind):
        schema = _schema(field_types(kind)[field.name])
        if text := _docs(kind).get(field.name):
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


def _schema(annotation: Any) -> dict[str, Any]:
    annotation, constraints = split_annotated(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = (option for option in typing.get_args(annotation) if option is not types.NoneType)
    schema = _plain_schema(annotation)
    for constraint in constraints:
        match constraint:
            case Pattern():
                schema |= {"pattern": f"^({constraint.regex})$", "description": constraint.says}
            case Range():
                schema |= {"minimum": constraint.low, "maximum": constraint.high}
    return schema


def _plain_schema(annotation: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        return {"$ref": f"#/$defs/{typing.cast(type, annotation).__name__}"}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    return {"type": {str: "string", int: "integer", bool: "boolean"}[annotation]}


def _kinds(kind: type) -> list[type]:
    """A dataclass and every dataclass in its fields, in the order in which the file names them."""
    return list(_paths_below(kind, ""))


def _paths() -> Mapping[type, str]:
    return _paths_below(ClusterConfig, "")


def _paths_below(kind: type, path: str) -> dict[type, str]:
    found = {kind: path}
    for name, annotation in field_types(kind).items():
        plain, _ = split_annotated(annotation)
        options = typing.get_args(plain) if not dataclasses.is_dataclass(plain) else (plain,)
        for option in options:
            if dataclasses.is_dataclass(option):
                suffix = f"{name}[]" if typing.get_origin(plain) is tuple else name
                below = _paths_below(typing.cast(type, option), f"{path}.{suffix}" if path else suffix)
                found |= {inner: inner_path for inner, inner_path in below.items() if inner not in found}
    return found


@functools.cache
def _docs_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The text under each field, by class and field: Python keeps it in the source only."""
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


def _docs(kind: type) -> Mapping[str, str]:
    return _docs_in(kind.__module__).get(kind.__name__, {})
