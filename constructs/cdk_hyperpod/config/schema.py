"""The JSON schema of a cluster file and its reference page, both made from the typed model in `config/`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..facts.instance_types import catalogue, regions
from ..typed.annotations import field_types
from ..typed.schema import object_schema, places, texts, value_schema
from .cluster import ClusterConfig
from .effects import EFFECTS, change_of


def json_schema() -> dict[str, Any]:
    """The schema with which editors complete and check a cluster file (JSON Schema 2020-12)."""
    definitions = {kind.__name__: object_schema(kind) for kind in places(ClusterConfig)}
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
    """The reference page, in Markdown: every setting, its type, its default and the effect of a change."""
    parts = [
        "# Reference of the cluster file",
        "Made from `constructs/cdk_hyperpod/config/` by `make docs`; change it there.",
        'The column "a change" says what a change does while the cluster exists:',
        "\n".join(f"- {effect}: {says}" for effect, says in EFFECTS.items()),
        "`cdk-hyperpod plan` prints it for each setting that differs from what is deployed.",
    ]
    for kind, path in places(ClusterConfig).items():
        title = f"`{path}`" if path else "The file"
        parts.append(f"## {title}")
        parts.append(inspect.cleandoc(kind.__doc__ or ""))
        parts.append("\n".join(_reference_rows(kind)))
    return "\n\n".join(parts) + "\n"


def _reference_rows(kind: type) -> Iterator[str]:
    yield "| setting | type | default | a change | |"
    yield "|---|---|---|---|---|"
    for field in dataclasses.fields(kind):
        schema = value_schema(field_types(kind)[field.name])
        text = texts(kind).get(field.name, "").replace("|", "\\|")
        yield f"| `{field.name}` | {_type_words(schema)} | {_default_words(field)} | {_change_words(kind, field.name)} | {text} |"


def _change_words(kind: type, name: str) -> str:
    entry = change_of(kind, name)
    if entry is None:
        return "as below"
    words = f"{entry.effect}: {entry.says}".removesuffix(": ")
    removed, deletion = entry.removed, entry.deletion
    if removed is not None and removed.effect != entry.effect:
        words += f"; removed: {removed.effect} ({removed.says})"
    if deletion is not None:
        words += f"; deletes nodes {deletion.condition}: {deletion.says}"
    return words


def _type_words(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": options}:
            return ", ".join(f"`{option}`" for option in options)
        case {"$ref": str()}:
            return "settings"
        case {"anyOf": options}:
            return " or ".join(_type_words(option) for option in options)
        case {"type": "array", "items": items}:
            return f"list of {_type_words(items)}"
        case {"type": "object", "additionalProperties": {"anyOf": _}}:
            return "names and numbers or settings"
        case {"type": "object", "additionalProperties": {"$ref": str()}}:
            return "names and settings"
        case {"type": "object", "additionalProperties": values}:
            return f"names and {'numbers' if values['type'] == 'integer' else 'texts'}"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"whole number, {low} to {high}"
        case {"description": str(words)}:
            return words.replace("|", "\\|")
        case _:
            return _PLAIN_WORDS[schema["type"]]


_PLAIN_WORDS = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "the add-on's own settings",
}


def _default_words(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "**required**"
    if field.default in (None, (), dataclasses.MISSING):
        return ""
    if isinstance(field.default, tuple):
        return ", ".join(f"`{item}`" for item in field.default)
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
