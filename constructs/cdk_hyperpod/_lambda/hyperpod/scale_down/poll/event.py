"""CloudFormation's event, as the provider framework passes it on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.properties import FINALIZE, PREPARE, MalformedError


@dataclass(frozen=True, slots=True)
class Event:
    """The parts of a CloudFormation event that matter here; never its ResponseURL."""

    kind: str
    """PREPARE or FINALIZE."""
    request: str
    """Create, Update or Delete."""
    stack: str
    resource: str
    """Its logical id."""
    properties: object
    old_properties: object
    physical_id: str | None

    @property
    def cluster(self) -> str:
        """The cluster's name, for messages, also if the properties are invalid."""
        name = self.properties.get("ClusterName") if isinstance(self.properties, Mapping) else None
        return name if isinstance(name, str) else "the cluster"


def read_event(event: Mapping[str, Any]) -> Event:
    """The event, as the provider framework passes it on. Raises MalformedError for a resource type that is not ours."""
    kind, request = event.get("ResourceType"), event.get("RequestType")
    if kind not in (PREPARE, FINALIZE):
        raise MalformedError([f"ResourceType: must be {PREPARE} or {FINALIZE}, got {json.dumps(kind)}"])
    if request not in ("Create", "Update", "Delete"):
        raise MalformedError([f"RequestType: must be Create, Update or Delete, got {json.dumps(request)}"])
    return Event(
        kind=kind,
        request=request,
        stack=str(event.get("StackId", "")),
        resource=str(event.get("LogicalResourceId", "")),
        properties=event.get("ResourceProperties"),
        old_properties=event.get("OldResourceProperties"),
        physical_id=event.get("PhysicalResourceId"),
    )
