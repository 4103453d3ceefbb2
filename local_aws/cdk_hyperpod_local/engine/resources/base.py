"""The parts of one of our CloudFormation resource types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = Any
Created = tuple[str, Json]
"""Physical id (the value of Ref) and attributes (the values of GetAtt)."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A type that ministack lacks. `cdk_hyperpod_local/engine/resources/__init__.py` lists them all."""

    name: str
    create: Callable[[str, Json, str], Created]
    """create(logical id, properties, stack name)"""
    delete: Callable[[str, Json], None]
    """delete(physical id, properties). A resource that does not exist is not an error."""
    update: Callable[[str, Json, Json, str, str], Created] | None = None
    """update(physical id, old properties, new properties, stack name, logical id).

    Absent: every change replaces the resource.
    """
    read: Callable[[str, Json], Json | None] | None = None
    """read(physical id, properties): the current properties, for drift; None if the resource does not exist.

    Absent: NOT_CHECKED.
    """
    read_properties: tuple[str, ...] = ()
    """The properties that `read` returns."""
    tag_property: str | None = None
    name_property: str | None = None
    """The property with the resource's name. As on AWS, a replacement with the same name is refused."""
    blocking: bool = False
    """The operations wait for something, so they run in a thread of their own."""


class RefusedError(Exception):
    """The reason in the stack's event, in the form of AWS's resource handlers."""

    def __init__(self, message: str, *, service: str, code: str, status: int = 400) -> None:
        super().__init__(
            f'Resource handler returned message: "{message} (Service: {service}, Status Code: {status})" '
            f"(HandlerErrorCode: {code})"
        )
