"""Patching settings of a live group, which UpdateCluster turns off if it does not carry them. Pure.

AWS documents that for AutoPatchConfig ("SageMaker HyperPod AMI automatic patching"). ScheduledUpdateConfig is treated the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cluster import Cluster

PATCHING_SETTINGS = ("AutoPatchConfig", "ScheduledUpdateConfig")
"""Members of ClusterInstanceGroupSpecification (botocore)."""

_SHOWN_ONLY = ("CurrentPatchSchedule", "DesiredPatchSchedule")
"""Members of ClusterAutoPatchConfigDetails that UpdateCluster takes as PatchSchedule."""


def patching(group: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that DescribeCluster shows of a group, as UpdateCluster takes them."""
    return {name: _as_sent(group[name]) for name in PATCHING_SETTINGS if group.get(name)}


def _as_sent(shown: Mapping[str, Any]) -> dict[str, Any]:
    sent = {key: value for key, value in shown.items() if key not in _SHOWN_ONLY and value is not None}
    schedule = shown.get("DesiredPatchSchedule") or shown.get("CurrentPatchSchedule")
    return {**sent, "PatchSchedule": schedule} if schedule else sent


def carrying(spec: Mapping[str, Any], live: Cluster) -> dict[str, Any]:
    """A group's specification with its live settings, except those that it has itself."""
    found = next((group.patching for group in live.groups if group.name == spec["InstanceGroupName"]), {})
    return {**found, **spec}
