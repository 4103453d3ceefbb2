"""What a CloudFormation resource type of ours is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = Any
Created = tuple[str, Json]
"""Physical id (what Ref returns) and attributes (what GetAtt returns)."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A type that ministack lacks. `cdk_hyperpod_local/engine/resources/__init__.py` lists them all."""

    name: str
    create: Callable[[str, Json, str], Created]
    """create(logical id, properties, stack name)"""
    delete: Callable[[str, Json], None]
    """delete(physical id, properties); what is gone already is no error"""
    update: Callable[[str, Json, Json, str, str], Created] | None = None
    """update(physical id, old properties, new properties, stack name, logical id). Absent: every change replaces."""
    read: Callable[[str, Json], Json | None] | None = None
    """read(physical id, properties): what is there now, for drift; None where nothing is. Absent: NOT_CHECKED."""
    read_properties: tuple[str, ...] = ()
    """The properties that `read` knows."""
    tag_property: str | None = None
    name_property: str | None = None
    """The property that names it: a replacement under the same name is refused, as on AWS."""
    blocking: bool = False
    """It waits for something: it gets a thread of its own."""


class RefusedError(Exception):
    """The reason in the stack's event, worded as a resource handler on AWS words it."""

    def __init__(self, message: str, *, service: str, code: str) -> None:
        super().__init__(
            f'Resource handler returned message: "{message} (Service: {service}, Status Code: 400)" '
            f"(HandlerErrorCode: {code})"
        )
