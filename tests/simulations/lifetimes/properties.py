"""Groups as the properties of a request have them: what Template.properties writes, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .software import IMAGES, PATCHING

_JUDGED_ELSEWHERE = ("InstanceCount", "MinInstanceCount", *IMAGES, *PATCHING)


def specs_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {spec["InstanceGroupName"]: spec for spec in map(json.loads, properties["Groups"])}


def counts_of(properties: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(spec["InstanceCount"]) for name, spec in specs_of(properties).items()}


def but_counts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification without counts, images and patching, which have rules of their own."""
    return {key: value for key, value in spec.items() if key not in _JUDGED_ELSEWHERE}
