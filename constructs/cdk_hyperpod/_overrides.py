"""Overrides of a resource's properties, which CDK lets nobody read: they are noted while they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aws_cdk import CfnResource

Override = tuple[str, Any]
"""The path below the resource's properties, empty for all of them, and the value; None: deleted."""
_NOTED = "_cdk_hyperpod_overrides"
_ALL = "Properties"
# Each with its path's name, and with what the path lacks in front of it.
_METHODS = {
    "add_override": ("path", ""),
    "add_deletion_override": ("path", ""),
    "add_property_override": ("property_path", f"{_ALL}."),
    "add_property_deletion_override": ("property_path", f"{_ALL}."),
}


def watch_overrides(resource: CfnResource) -> Sequence[Override]:
    """The overrides of a resource's properties from the first call of this function on; the list grows with them.

    What was overridden before nobody can see, nor what a library that is not Python overrides.
    """
    noted: list[Override] | None = vars(resource).get(_NOTED)
    if noted is None:
        noted = []
        setattr(resource, _NOTED, noted)
        for name, (path, before) in _METHODS.items():
            setattr(resource, name, _noting(getattr(resource, name), path, before, noted))
    return noted


def _noting(method: Callable[..., None], path_name: str, before: str, noted: list[Override]) -> Callable[..., None]:
    def override(*given: Any, **named: Any) -> None:
        method(*given, **named)
        arguments = {**dict(zip((path_name, "value"), given, strict=False)), **named}
        first, _, path = f"{before}{arguments[path_name]}".partition(".")
        if first == _ALL:
            noted.append((path, arguments.get("value")))

    return override
