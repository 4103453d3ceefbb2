"""Kubernetes objects as plain data, and as YAML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import yaml

__all__ = ["Manifest", "to_yaml"]

Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object: dicts, lists, texts, numbers; nothing that jsii or YAML could not carry."""


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, as kubectl and people write them, and nothing is an alias of anything."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """The objects as YAML documents, keys in the order in which they were made: the same input gives the same bytes."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, explicit_start=True)
