"""The groups whose nodes would get another image than they run: the one comparison of prepare, `plan` and `patch`. Pure.

Sources: botocore (ClusterInstanceGroupSpecification, ClusterInstanceGroupDetails, ClusterNodeSummary), and the schema of
AWS::SageMaker::Cluster, which says that CloudFormation calls UpdateClusterSoftware if ImageReleaseVersion changes. Whether a changed
ImageId does the same is not documented, so it counts as if it did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Spec = Mapping[str, Any]
"""A group as UpdateCluster takes it (botocore: ClusterInstanceGroupSpecification)."""

DEFAULT = "default"
"""ImageId of HyperPod's latest image (botocore)."""
UNKNOWN = "an unknown image"
"""The live image, if HyperPod does not report it."""

SHOWN = (
    "InstanceGroupName",
    "CurrentCount",
    "CurrentImageId",
    "CurrentImageReleaseVersion",
    "DesiredImageId",
    "DesiredImageReleaseVersion",
    "ImageVersionStatus",
)
"""What the comparison reads of a live group."""

IMAGE_SETTINGS = ("ImageId", "ImageReleaseVersion")
"""Members of ClusterInstanceGroupSpecification that name an image (botocore)."""

VERSIONED = {"ImageReleaseVersion": "image_release_version", "AutoPatchConfig": "auto_patch"}
"""Members of a specification that an older cluster under EKS does not have, and their settings in the file."""
VERSIONED_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""When such a cluster must have been created, or later ("SageMaker HyperPod AMI automatic patching")."""

_RELEASE = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


def is_release(image: str) -> bool:
    """Whether it is a release of HyperPod's image, such as 1.3.0."""
    return _RELEASE.fullmatch(image) is not None


def is_older(image: str, than: str) -> bool:
    """Whether both are releases, and the first one is the older one."""
    one, other = _RELEASE.fullmatch(image), _RELEASE.fullmatch(than)
    if one is None or other is None:
        return False
    return [*map(int, one.groups())] < [*map(int, other.groups())]


@dataclass(frozen=True, slots=True)
class ReImaged:
    """A group whose running nodes would get another image."""

    group: str
    nodes: int
    """How many nodes get it."""
    live: str
    """The image that they run: an AMI, a release, or UNKNOWN."""
    wanted: str
    """The image that they would get: an AMI, a release, or DEFAULT."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One group of a deployment, and what is live."""

    spec: Spec
    group: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    earlier: Spec | None
    """What the deployed template sends. None: no deployment is compared."""


def re_imaged(
    wanted: Sequence[Spec],
    live: Sequence[Mapping[str, Any]],
    before: Sequence[Spec] | None = None,
    nodes: Sequence[Mapping[str, Any]] = (),
) -> tuple[ReImaged, ...]:
    """The groups with nodes that run another image than the one wanted.

    `wanted`: ClusterInstanceGroupSpecifications, as the template sends them. A group that names no image keeps its own.
    `live`: InstanceGroups of DescribeCluster.
    `before`: what the deployed template sends. CloudFormation acts if a setting differs from it, also if it is removed. None: no
    deployment is compared.
    `nodes`: ClusterNodeSummaries of ListClusterNodes. Some may run an older release than their group, after a patch that left them out.
    """
    shown = {group.get("InstanceGroupName"): group for group in live}
    deployed = {spec.get("InstanceGroupName"): spec for spec in before or ()}
    of_group: dict[object, list[Mapping[str, Any]]] = {}
    for node in nodes:
        of_group.setdefault(node.get("InstanceGroupName"), []).append(node)
    found: list[ReImaged] = []
    for spec in wanted:
        name = spec.get("InstanceGroupName")
        # CurrentCount may leave out nodes that are still starting, which CloudFormation's update would re-image later.
        if shown.get(name, {}).get("CurrentCount") or name in of_group:
            earlier = None if before is None else deployed.get(name, {})
            comparison = _Comparison(spec, shown.get(name, {}), of_group.get(name, []), earlier)
            found += [*_differences(comparison)][:1]
    return tuple(found)


def _differences(of: _Comparison) -> Iterator[ReImaged]:
    """One for each setting that replaces the image of nodes."""
    named = {setting: str(of.spec[setting]) for setting in IMAGE_SETTINGS if of.spec.get(setting)}
    for setting, image in named.items():
        yield from _by_setting(of, setting, image)
    if not named and _names_image(of.earlier):
        yield from _by_default(of)


def _by_setting(of: _Comparison, setting: str, image: str) -> Iterator[ReImaged]:
    repeated = None if of.earlier is None else of.earlier.get(setting) == image
    if image == DEFAULT:
        yield from () if repeated else _by_default(of)
        return
    live = _live(setting, of.group)
    if not _keeps(live, image, repeated):
        yield _all_nodes(of, live, image)
    elif not repeated:
        yield from _coming(of, setting, image, live)
        yield from _left_out(of, setting, image, repeated)


def _coming(of: _Comparison, setting: str, image: str, live: str) -> Iterator[ReImaged]:
    """An update that is in progress gives the nodes another image, and CloudFormation's own update would follow it."""
    coming = of.group.get(f"Desired{setting}")
    if coming and str(coming).lower() not in (image.lower(), live.lower()):
        yield _all_nodes(of, str(coming), image)


def _by_default(of: _Comparison) -> Iterator[ReImaged]:
    """The latest image is wanted, and the nodes do not run it as far as HyperPod reports that."""
    if not _is_latest(of):
        # Otherwise no patch would show that they run it.
        would_show = bool(of.group.get("ImageVersionStatus")) or _names_image(of.earlier)
        yield _all_nodes(of, _live("ImageId", of.group) if would_show else UNKNOWN, DEFAULT)


def _left_out(of: _Comparison, setting: str, image: str, repeated: bool | None) -> Iterator[ReImaged]:
    """The nodes that a patch of their group left on an older release. An update to the group's own image replaces theirs."""
    releases = [str(release) for node in of.nodes if (release := node.get("CurrentImageReleaseVersion"))]
    # A node shows its release and not its AMI.
    own = image if setting == "ImageReleaseVersion" else of.group.get("CurrentImageReleaseVersion")
    older = [release for release in releases if own and not _keeps(release, own, repeated)]
    if older:
        yield ReImaged(str(of.spec["InstanceGroupName"]), len(older), older[0], image)


def _all_nodes(of: _Comparison, live: str, wanted: str) -> ReImaged:
    nodes = max(int(of.group.get("CurrentCount") or 0), len(of.nodes))
    return ReImaged(str(of.spec["InstanceGroupName"]), nodes, live, wanted)


def _keeps(live: str, wanted: str, repeated: bool | None) -> bool:
    """Whether nodes keep their image. `repeated`: the deployed template sends the same. None: no deployment is compared."""
    if live == UNKNOWN:
        return repeated is True
    return live.lower() == wanted.lower() or (repeated is not False and _moved_on(live, wanted))


def _live(setting: str, group: Mapping[str, Any]) -> str:
    """The image that the nodes run. An AMI of one's own has no release."""
    return str(group.get(f"Current{setting}") or group.get("CurrentImageId") or UNKNOWN)


def _is_latest(of: _Comparison) -> bool:
    """Whether the nodes run HyperPod's latest image. If HyperPod reports no status, an AMI that the deployed template does not name
    was put there by a patch."""
    status, live = of.group.get("ImageVersionStatus"), of.group.get("CurrentImageId")
    if status:
        return bool(status == "UpToDate")
    deployed = (of.earlier or {}).get("ImageId")
    return live is not None and deployed not in (None, "", DEFAULT, live)


def _names_image(earlier: Spec | None) -> bool:
    """Whether the deployed template names an image, and not just the latest."""
    return any((earlier or {}).get(setting) not in (None, "", DEFAULT) for setting in IMAGE_SETTINGS)


def _moved_on(live: str, wanted: str) -> bool:
    """Whether automatic patching may have brought nodes from the wanted release to the live one: the same minor release, and a
    later patch."""
    have, want = _RELEASE.fullmatch(live), _RELEASE.fullmatch(wanted)
    if have is None or want is None:
        return False
    *have_minor, have_patch = map(int, have.groups())
    *want_minor, want_patch = map(int, want.groups())
    return have_minor == want_minor and have_patch >= want_patch
