"""The text of the settings that differ between the deployed file and this one (config/changes.py decides)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..config.changes import METADATA, Changed
from ..config.effects import EFFECTS, Record
from .tables import wrapped


def change_lines(changes: Sequence[Changed]) -> list[str]:
    """Every changed setting under the effect of its change, the most disruptive first; empty if nothing changed."""
    lines: list[str] = []
    for effect in reversed([*EFFECTS]):
        of_effect = [each for each in changes if each.effect == effect]
        if of_effect:
            lines += ["", *wrapped(f"{effect[0].upper()}{effect[1:]}: {EFFECTS[effect]}")]
            lines += [line for each in of_effect for line in wrapped(str(each), "  ", "    ")]
    return lines


def deployed_record(resources: Mapping[str, Any]) -> Record | None:
    """The record of settings in a deployed template; None: the template is of another app."""
    for resource in resources.values():
        found = (resource.get("Metadata") or {}).get(METADATA) if isinstance(resource, dict) else None
        if isinstance(found, dict):
            return found
    return None
