"""CloudFormation's own resource schemas, as cfn-lint ships them. The engine refuses the properties that AWS would refuse.

CloudFormation converts "4" to 4 and "true" to true if a schema requires it (a parameter is always a string). So values
are converted first, and validated afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

Json = Any

# Used for a region that has no schema of a type: cfn-lint lacks AWS::SageMaker::Cluster in a few.
_FALLBACK_REGION = "us-east-1"
_MOST_REPORTED = 5


class Schemas:
    """Reads cfn-lint's folder `data/schemas`; each schema once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._of = cache(self._read)
        self._names = cache(self._read_names)

    def of(self, resource_type: str, region: str) -> dict[str, Json] | None:
        """The type's schema; None if CloudFormation has none."""
        name = self._names(region).get(resource_type) or self._names(_FALLBACK_REGION).get(resource_type)
        return self._of(name) if name else None

    def create_only(self, resource_type: str, region: str) -> tuple[str, ...]:
        """Top-level properties whose change replaces the resource."""
        schema = self.of(resource_type, region) or {}
        paths = [str(path).removeprefix("/properties/") for path in schema.get("createOnlyProperties", [])]
        return tuple(path for path in paths if "/" not in path)

    def _read_names(self, region: str) -> dict[str, str]:
        path = self._folder / "providers" / f"{region}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}

    def _read(self, name: str) -> dict[str, Json]:
        schema: dict[str, Json] = json.loads((self._folder / "resources" / f"{name}.json").read_text("utf-8"))
        return schema


def converted(value: Json, schema: dict[str, Json], root: dict[str, Json]) -> Json:
    """`value` with its scalars converted to the types of the schema, if that loses nothing."""
    schema = _resolved(schema, root)
    if isinstance(value, dict):
        known = _known(schema, root)
        return {key: converted(item, known[key], root) if key in known else item for key, item in value.items()}
    if isinstance(value, list):
        return [converted(item, schema.get("items", {}), root) for item in value]
    wanted = schema.get("type", ())
    types = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if not types or _has_type(value, types):
        return value
    if isinstance(value, str):
        return _from_text(value, types)
    if "string" in types and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _known(schema: dict[str, Json], root: dict[str, Json]) -> dict[str, Json]:
    """The schema's properties, including those of its alternatives. If these differ, the first definition counts."""
    parts = [part for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, [])]
    found = dict(schema.get("properties", {}))
    for part in parts:
        found = {**_known(_resolved(part, root), root), **found}
    return found


def problems(properties: dict[str, Json], schema: dict[str, Json]) -> list[str]:
    """Why CloudFormation refuses these properties, in its words. Empty: it accepts them."""
    writable = {key: value for key, value in properties.items() if key != "Tags"}
    if tags := _own_tags(properties.get("Tags")):
        writable["Tags"] = tags
    found = [
        f"#/{name}: property is read-only and may not be set"
        for name in writable
        if f"/properties/{name}" in schema.get("readOnlyProperties", [])
    ]
    errors = sorted(_Validator(schema).iter_errors(writable), key=lambda error: [str(part) for part in error.path])
    found += [line for error in errors for line in _lines(error)]
    if len(found) > _MOST_REPORTED:
        return [*found[:_MOST_REPORTED], f"and {len(found) - _MOST_REPORTED} more"]
    return found


def _pattern(
    validator: jsonschema.Draft7Validator, pattern: str, instance: Json, schema: dict[str, Json]
) -> Iterator[jsonschema.ValidationError]:
    """As in the standard, but a pattern in Java's dialect that Python cannot compile (\\p{L}) refuses nothing."""
    if not isinstance(instance, str):
        return
    try:
        matches = re.search(pattern, instance)
    except re.error:
        return
    if not matches:
        yield jsonschema.ValidationError(f"string [{instance}] does not match pattern {pattern}")


_TYPES = jsonschema.Draft7Validator.TYPE_CHECKER
_Validator = jsonschema.validators.extend(jsonschema.Draft7Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]


def _lines(error: jsonschema.ValidationError) -> list[str]:
    where = "#" + "".join(f"/{part}" for part in error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        return [f"{where}: extraneous key [{key}] is not permitted" for key in error.instance if key not in known]
    if error.validator == "required" and isinstance(error.instance, dict):
        wanted: list[str] = error.validator_value  # type: ignore[assignment]
        missing = [key for key in wanted if key not in error.instance]
        return [f"{where}: required key [{key}] not found" for key in missing]
    text = error.message if len(error.message) <= 300 else f"{error.message[:300]}…"
    return [f"{where}: {text}"]


def _own_tags(tags: Json) -> Json:
    """The properties without CloudFormation's own tags, which no template may set."""
    if isinstance(tags, list):
        return [tag for tag in tags if not (isinstance(tag, dict) and str(tag.get("Key", "")).startswith("aws:"))]
    if isinstance(tags, dict):
        return {key: value for key, value in tags.items() if not str(key).startswith("aws:")}
    return tags


def _resolved(schema: dict[str, Json], root: dict[str, Json]) -> dict[str, Json]:
    while "$ref" in schema:
        target: Json = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def _has_type(value: Json, types: tuple[str, ...]) -> bool:
    return any(_TYPES.is_type(value, name) for name in types)


def _from_text(text: str, types: tuple[str, ...]) -> Json:
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for name, convert in (("integer", int), ("number", float)):
        if name in types:
            try:
                return convert(text)
            except ValueError:
                continue
    return text
