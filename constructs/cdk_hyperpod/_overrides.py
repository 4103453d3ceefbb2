"""Overrides of a resource's properties, which CDK lets nobody read: they are noted while they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aws_cdk import CfnResource

Override = tuple[str, Any]
"""The path below the resource's properties, and the value; None: deleted."""
_NOTED = "_cdk_hyperpod_overrides"
_PROPERTIES = "Properties."
# Each with what its path lacks in front of it.
_METHODS = {
    "add_override": "",
    "add_deletion_override": "",
    "add_property_override": _PROPERTIES,
    "add_property_deletion_override": _PROPERTIES,
}


def watch_overrides(resource: CfnResource) -> Sequence[Override]:
    """The overrides of a resource's properties from the first call of this function on; the list grows with them.

    What was overridden before nobody can see, nor what a library that is not Python overrides.
    """
    noted: list[Override] | None = vars(resource).get(_NOTED)
    if noted is None:
        noted = []
        setattr(resource, _NOTED, noted)
        for name, before in _METHODS.items():
            setattr(resource, name, _noting(getattr(resource, name), before, noted))
    return noted


def _noting(method: Callable[..., None], before: str, noted: list[Override]) -> Callable[..., None]:
    def override(*given: Any, **named: Any) -> None:
        method(*given, **named)
        path, *value = [*given, *named.values()]
        if (before + path).startswith(_PROPERTIES):
            noted.append(((before + path).removeprefix(_PROPERTIES), value[0] if value else None))

    return override
