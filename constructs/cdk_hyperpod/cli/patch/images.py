"""Which image a group gets, and whether its nodes run it already. Pure; the comparison is the guard's (scale_down.images)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._lambda.hyperpod.scale_down.images import DEFAULT, is_release, re_imaged
from ...config.cluster import InstanceGroup
from .model import LATEST, Group, Options, Progress


def wanted_image(options: Options, group: InstanceGroup | None) -> str:
    """The image for a group: that of the options, else that of the file, else the latest."""
    named = options.release or options.image_id
    if named is not None:
        return named
    if group is None:
        return LATEST
    return group.image_id or group.image_release_version or LATEST


def wanted_of(options: Options) -> str:
    """What a run's options want. Empty: what the file says."""
    return options.release or options.image_id or ""


def is_older(wanted: str, live: str | None) -> bool:
    """Whether the wanted release is older than the live one."""
    return live is not None and is_release(wanted) and is_release(live) and _parts(wanted) < _parts(live)


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def newest_release(group: Group) -> str | None:
    """The newest release that the group or one of its nodes runs. None: none is reported."""
    releases = [image for image in (group.image, *(node.image for node in group.nodes)) if image and is_release(image)]
    return max(releases, key=_parts, default=None)


def has_versions(group: Group) -> bool:
    """Whether HyperPod reports releases of this group: EKS clusters that were created since January 2026."""
    return bool(group.image)


def why_not_due(wanted: str, group: Group, live: Mapping[str, Any], progress: Progress | None, *, typed: bool) -> str:
    """Why the group needs no update. Empty: it needs one, or its image is unknown.

    `live`: the group as DescribeCluster shows it. `typed`: an option names the image. Otherwise automatic patching may have moved
    the nodes on within the minor release.
    """
    if progress is not None and progress.done:
        return "patched in this run"
    if progress is not None and progress.sent is not None:
        # It is followed to its end, whatever HyperPod shows by now.
        return ""
    if not group.nodes and not group.current:
        return "no nodes"
    if group.is_updating:
        # HyperPod may show the new image before all nodes have it.
        return ""
    if wanted == LATEST or (wanted == DEFAULT and _outdated(group)):
        is_latest = group.image_status == "UpToDate" and not _outdated(group)
        return "up to date" if is_latest else ""
    if typed and is_release(wanted):
        is_there = group.image == wanted and all(node.image in (None, wanted) for node in group.nodes)
        return "runs it" if is_there else ""
    setting = "ImageReleaseVersion" if is_release(wanted) else "ImageId"
    nodes = [{"InstanceGroupName": group.name, "CurrentImageReleaseVersion": node.image} for node in group.nodes]
    differs = re_imaged([{"InstanceGroupName": group.name, setting: wanted}], [live], nodes=nodes)
    return "" if differs else "runs it"


def _outdated(group: Group) -> bool:
    return any(node.image_status not in (None, "UpToDate") for node in group.nodes)
