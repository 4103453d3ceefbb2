"""Validates every resource's properties against CloudFormation's own schema before the resource is created."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.resources.base import Created, Json
from cdk_hyperpod_local.engine.schemas import Schemas, converted, problems
from cdk_hyperpod_local.engine.seam import cloudformation


def install(schemas: Schemas) -> None:
    for name, entry in cloudformation.handlers().items():
        # CloudFormation's own types (nested stacks, custom resources) accept any property.
        if not name.startswith("AWS::CloudFormation::"):
            _validate(name, entry, schemas)


def _validate(name: str, entry: dict[str, Any], schemas: Schemas) -> None:
    def checked(logical_id: str, properties: Json) -> Json:
        schema = schemas.of(name, seam.region())
        if schema is None:
            return properties
        typed = converted(properties, schema, schema)
        found = problems(typed, schema)
        if found:
            raise ValueError(f"Properties validation failed for resource {logical_id} with message: {'; '.join(found)}")
        return typed

    create = entry["create"]

    def created(logical_id: str, properties: Json, stack_name: str) -> Created:
        made: Created = create(logical_id, checked(logical_id, properties), stack_name)
        return made

    entry["create"] = created
    if "update" not in entry:
        return
    update = entry["update"]

    def updated(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str = "") -> Created:
        rest = (logical_id,) if entry.get("update_with_logical_id") else ()
        made: Created = update(physical_id, old, checked(logical_id or physical_id, new), stack_name, *rest)
        return made

    entry["update"] = updated
