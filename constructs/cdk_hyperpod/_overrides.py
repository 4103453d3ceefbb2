"""Overrides of a cluster's properties, which CDK lets nobody read: they are noted while they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aws_cdk import aws_sagemaker as sagemaker

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


def overrides_of(cluster: sagemaker.CfnCluster) -> Sequence[Override]:
    """The overrides of a cluster's properties, in their order; the list grows with them.

    What was overridden before this library was imported nobody can see, nor what a library that is not Python overrides.
    """
    noted: list[Override] = vars(cluster).setdefault(_NOTED, [])
    return noted


def _noting(method: Callable[..., None], path_name: str, before: str) -> Callable[..., None]:
    def override(cluster: sagemaker.CfnCluster, *given: Any, **named: Any) -> None:
        method(cluster, *given, **named)
        arguments = {**dict(zip((path_name, "value"), given, strict=False)), **named}
        first, _, path = f"{before}{arguments[path_name]}".partition(".")
        if first == _ALL:
            vars(cluster).setdefault(_NOTED, []).append((path, arguments.get("value")))

    return override


# On the class: an override may be older than the guard of its cluster.
for _name, (_path, _before) in _METHODS.items():
    setattr(sagemaker.CfnCluster, _name, _noting(getattr(sagemaker.CfnCluster, _name), _path, _before))
