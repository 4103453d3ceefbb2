"""The health monitoring agent in HyperPod's chart: its version, and the regions that have its image.

The chart's own version never changes. The agent's does, so it shows which of two charts is older.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..typed.yaml_text import YamlProblem, read_yaml

_TEMPLATE = re.compile(r"charts/health-monitoring-agent/templates/[^/]+\.(?:tpl|ya?ml)")
_VALUES = "charts/health-monitoring-agent/values.yaml"
_TAG = re.compile(r"\.Values\.imageTag \| default \"([0-9]+(?:\.[0-9]+)*)_[0-9.]+\"")
_REGION = re.compile(r"\"([a-z]{2}(?:-[a-z]+)+-[0-9])\" \"[0-9]{12}\"")
_MAX_TEMPLATE_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAgent:
    """The agent that a chart installs."""

    version: str
    """The version of its image, such as 1.0.1892.0."""
    regions: frozenset[str]
    """The regions that have the image."""
    has_own_image: bool
    """Whether the chart's values name another image (hmaimage)."""


def health_agent(files: Mapping[str, bytes]) -> HealthAgent | None:
    """The agent of a chart's files. None: the chart has another form."""
    templates = (content[:_MAX_TEMPLATE_BYTES] for name, content in files.items() if _TEMPLATE.fullmatch(name))
    for text in (content.decode("utf-8", "replace") for content in templates):
        if tag := _TAG.search(text):
            return HealthAgent(
                version=tag[1], regions=frozenset(_REGION.findall(text)), has_own_image=_names_image(files)
            )
    return None


def is_older(version: str, than: str) -> bool:
    """Whether a version of the agent is older than another one."""
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    return [int(part[:18]) for part in version.split(".")]


def _names_image(files: Mapping[str, bytes]) -> bool:
    try:
        values = read_yaml(files.get(_VALUES, b"")[:_MAX_TEMPLATE_BYTES])
    except YamlProblem:
        return False
    return isinstance(values, dict) and bool(values.get("hmaimage"))
