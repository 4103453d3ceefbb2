"""Patching settings of a live group, which UpdateCluster turns off if it does not carry them. Pure.

AWS documents that for AutoPatchConfig ("SageMaker HyperPod AMI automatic patching"). ScheduledUpdateConfig is treated the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..common.refuse import Refuse
from . import messages
from .cluster import Cluster, Desired, RequestContext

SETTINGS = ("AutoPatchConfig", "ScheduledUpdateConfig")
"""Members of ClusterInstanceGroupSpecification (botocore)."""

_SHOWN_ONLY = ("CurrentPatchSchedule", "DesiredPatchSchedule")
"""Members of ClusterAutoPatchConfigDetails that UpdateCluster takes as PatchSchedule."""


def patching(group: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that DescribeCluster shows of a group, as UpdateCluster takes them."""
    return {name: _as_sent(group[name]) for name in SETTINGS if group.get(name)}


def _as_sent(shown: Mapping[str, Any]) -> dict[str, Any]:
    sent = {key: value for key, value in shown.items() if key not in _SHOWN_ONLY and value is not None}
    schedule = shown.get("DesiredPatchSchedule") or shown.get("CurrentPatchSchedule")
    return {**sent, "PatchSchedule": schedule} if schedule else sent


def dropped_patching_settings(live: Cluster, desired: Desired, context: RequestContext) -> Iterator[Refuse]:
    """The live settings that the cluster's own update would turn off, because its template does not have them."""
    if context.previous is not None and context.previous.same_cluster(desired):
        return
    specs = {group.name: group.spec for group in desired.groups}
    for name in SETTINGS:
        groups = [
            group.name
            for group in live.groups
            if name in group.patching
            and group.name in specs
            and not specs[group.name].get(name)
            and group.name not in desired.patching_off.get(name, ())
        ]
        if groups:
            yield messages.refusals.patching_dropped(groups, name)


def carrying(spec: Mapping[str, Any], live: Cluster) -> dict[str, Any]:
    """A group's specification with its live settings, except those that it has itself."""
    found = next((group.patching for group in live.groups if group.name == spec["InstanceGroupName"]), {})
    return {**found, **spec}
