"""The groups whose nodes would get another image than they run: the one comparison of prepare, `plan` and `patch`. Pure.

Sources: botocore (ClusterInstanceGroupSpecification, ClusterInstanceGroupDetails), and the schema of AWS::SageMaker::Cluster,
which says that CloudFormation calls UpdateClusterSoftware if ImageReleaseVersion changes. Whether a changed ImageId does the
same is not documented, so it counts as if it did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .cluster import Spec

DEFAULT = "default"
"""ImageId of HyperPod's latest image (botocore)."""
UNKNOWN = "an unknown image"
"""The live image of a group of which DescribeCluster does not report it."""

_SETTINGS = ("ImageId", "ImageReleaseVersion")
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class ReImaged:
    """A group whose running nodes would get another image."""

    group: str
    nodes: int
    """How many nodes it has."""
    live: str
    """The image that they run: an AMI, a release, or UNKNOWN."""
    wanted: str
    """The image that they would get: an AMI, a release, or DEFAULT."""


def re_imaged(
    wanted: Sequence[Spec], live: Sequence[Mapping[str, Any]], before: Sequence[Spec] | None = None
) -> tuple[ReImaged, ...]:
    """The groups with nodes that run another image than the one wanted.

    `wanted`: ClusterInstanceGroupSpecifications, as the template sends them. A group that names no image keeps its own.
    `live`: InstanceGroups of DescribeCluster.
    `before`: what the deployed template sends. CloudFormation acts if a setting differs from it, also if it is removed. None: no
    deployment is compared.
    """
    shown = {group.get("InstanceGroupName"): group for group in live}
    deployed = {spec.get("InstanceGroupName"): spec for spec in before or ()}
    found: list[ReImaged] = []
    for spec in wanted:
        name = spec.get("InstanceGroupName")
        group = shown.get(name, {})
        nodes = group.get("CurrentCount") or 0
        if nodes:
            earlier = None if before is None else deployed.get(name, {})
            images = _differences(spec, group, earlier)
            found += [ReImaged(str(name), nodes, *image) for image in images][:1]
    return tuple(found)


def _differences(spec: Spec, group: Mapping[str, Any], earlier: Spec | None) -> Iterator[tuple[str, str]]:
    """The live image and the wanted one, for each setting that would replace the live one."""
    named = {setting: str(spec[setting]) for setting in _SETTINGS if spec.get(setting)}
    for setting, image in named.items():
        repeated = None if earlier is None else earlier.get(setting) == image
        if not _keeps(setting, image, group, repeated):
            yield _live_image(setting, group), image
    if not named and _was_removed(earlier) and not _is_latest(group):
        yield _live_image("ImageId", group), DEFAULT


def _keeps(setting: str, image: str, group: Mapping[str, Any], repeated: bool | None) -> bool:
    """Whether the nodes keep their image. `repeated`: the deployed template sends the same. None: no deployment is compared."""
    if image == DEFAULT:
        return repeated is True or _is_latest(group)
    live = _live_image(setting, group)
    if live == UNKNOWN:
        return repeated is True
    return live.lower() == image.lower() or (repeated is not False and _moved_on(live, image))


def _live_image(setting: str, group: Mapping[str, Any]) -> str:
    return str(group.get(f"Current{setting}") or UNKNOWN)


def _is_latest(group: Mapping[str, Any]) -> bool:
    return group.get("ImageVersionStatus") == "UpToDate"


def _was_removed(earlier: Spec | None) -> bool:
    """Whether the deployed template names an image, and not just the latest."""
    return any((earlier or {}).get(setting) not in (None, "", DEFAULT) for setting in _SETTINGS)


def _moved_on(live: str, wanted: str) -> bool:
    """Whether automatic patching may have brought the nodes from the wanted release to the live one: the same minor release, and
    a later patch."""
    have, want = _VERSION.fullmatch(live), _VERSION.fullmatch(wanted)
    if have is None or want is None:
        return False
    *have_minor, have_patch = map(int, have.groups())
    *want_minor, want_patch = map(int, want.groups())
    return have_minor == want_minor and have_patch >= want_patch
