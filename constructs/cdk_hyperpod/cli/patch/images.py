"""Which image a group gets, whether its nodes run it, and whose update HyperPod shows: by all that it reports. Pure.

What HyperPod does not report proves nothing. A rule that decides from evidence is a row of a table: EVIDENCE, and OTHERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._lambda.hyperpod.kernel.images import DEFAULT, is_release, re_imaged
from ..._lambda.hyperpod.kernel.sentences import some
from ...config.cluster import InstanceGroup
from ..live import Node
from .model import ENDS, LATEST, ROLLED_BACK, Group, Options, Progress

LAUNCH_S = 300.0
"""A node that was launched in these seconds after the call may have got the earlier image: the call was on its way."""


# -- before the call ----------------------------------------------------------------------------------------------------


def wanted_image(options: Options, group: InstanceGroup | None) -> str:
    """The image for a group: that of the options, else that of the file, else the latest."""
    of_file = None if group is None else group.image_id or group.image_release_version
    return options.image or of_file or LATEST


def is_older(wanted: str, live: str | None) -> bool:
    """Whether the wanted release is older than the live one."""
    return live is not None and is_release(wanted) and is_release(live) and _parts(wanted) < _parts(live)


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def newest_release(group: Group) -> str | None:
    """The newest release that the group or one of its nodes runs. None: none is reported."""
    releases = [image for image in (group.image, *(node.image for node in group.nodes)) if image and is_release(image)]
    return max(releases, key=_parts, default=None)


def why_not_due(wanted: str, group: Group, live: Mapping[str, Any], progress: Progress | None, *, typed: bool) -> str:
    """Why the group needs no update. Empty: it needs one, or its image is unknown.

    `live`: the group as DescribeCluster shows it. `typed`: an option names the image. Otherwise automatic patching may have moved
    the nodes on within the minor release.
    """
    if progress is not None and (progress.done or progress.sent is not None):
        # An update that was sent is followed to its end, whatever HyperPod shows by now.
        return "patched in this run" if progress.done else ""
    if not group.nodes and not group.current:
        return "no nodes"
    if group.is_updating or (_is_short(group) and not group.contradicts(wanted)):
        # HyperPod may show the new image before all nodes have it.
        return ""
    if wanted == LATEST or (wanted == DEFAULT and _outdated(group)):
        return "up to date" if _is_latest(group) else ""
    return "runs it" if _runs(wanted, group, live, typed=typed) else ""


def _runs(wanted: str, group: Group, live: Mapping[str, Any], *, typed: bool) -> bool:
    if typed and is_release(wanted):
        return group.image == wanted and all(node.image in (None, wanted) for node in group.nodes)
    # What a deployment that names the image would not re-image.
    setting = "ImageReleaseVersion" if is_release(wanted) else "ImageId"
    nodes = [{"InstanceGroupName": group.name, "CurrentImageReleaseVersion": node.image} for node in group.nodes]
    return not re_imaged([{"InstanceGroupName": group.name, setting: wanted}], [live], nodes=nodes)


def _is_short(group: Group) -> bool:
    """Whether TargetStateCount shows that an update has left out nodes that run."""
    return group.on_desired is not None and group.on_desired < sum(node.status == "Running" for node in group.nodes)


def _is_latest(group: Group) -> bool:
    return group.image_status == "UpToDate" and not _outdated(group)


def _outdated(group: Group) -> bool:
    return any(node.image_status not in (None, "UpToDate") for node in group.nodes)


# -- after the call: which image each node has --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that HyperPod may report of a node."""

    reported: str
    """Where (botocore), and what proves the new image."""
    proves: Callable[[Node, str, float], bool | None]
    """By the wanted image and the time of the call. True: it has the new image. False: the old one. None: it is not reported, or
    proves nothing."""
    is_the_image: bool = False
    """It is about the image itself. Otherwise it is about some update: the image that is desired may be another one by now."""


def _by_release(node: Node, wanted: str, _: float) -> bool | None:
    return node.image == wanted if is_release(wanted) and node.image is not None else None


def _by_status(node: Node, wanted: str, _: float) -> bool | None:
    is_known = wanted in (LATEST, DEFAULT) and node.image_status is not None
    return node.image_status == "UpToDate" if is_known else None


def _by_update(node: Node, _: str, sent: float) -> bool | None:
    return True if node.updated is not None and node.updated.timestamp() > sent else None


def _by_launch(node: Node, _: str, sent: float) -> bool | None:
    return True if node.launched is not None and node.launched.timestamp() >= sent + LAUNCH_S else None


EVIDENCE: Sequence[Evidence] = (
    Evidence("CurrentImageReleaseVersion: the wanted release", _by_release, is_the_image=True),
    Evidence("ImageVersionStatus: UpToDate, if the latest image is wanted", _by_status, is_the_image=True),
    Evidence("LastSoftwareUpdateTime: after the call", _by_update),
    Evidence("LaunchTime: minutes after the call, since new nodes get the desired image", _by_launch),
)
"""What proves a node's image. Old contradicts new: then the node counts as old until both agree. TargetStateCount, of the group,
proves all nodes or counts the old ones. What is not the image itself proves nothing unless HyperPod has accepted the call, and nothing
after RollbackComplete: whose update it was is unknown, or the desired image is the old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """What is known of a group's nodes after a call."""

    nodes: int
    """By CurrentCount, or by the list if it has more."""
    listed: int
    old: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    counted: int | None = None
    """TargetStateCount. None: not reported, or it proves nothing."""
    updated: int = 0
    """How many nodes HyperPod has updated since the call."""

    @property
    def all_new(self) -> bool:
        """Each node is known to have the image."""
        return not self.old and not self.unknown and self.listed >= self.nodes

    @property
    def words(self) -> str:
        """What is missing, in words."""
        if self.listed < self.nodes:
            return f"HyperPod lists {self.listed} of {self.nodes} nodes"
        if self.counted is not None and self.counted < self.nodes:
            return f"HyperPod counts {self.counted} of {self.nodes} nodes on the image"
        if self.old:
            return f"the old image is on {some(self.old, 3)}"
        if self.unknown:
            return f"HyperPod does not report the image of {some(self.unknown, 3)}"
        return "each node reports the image"


def judge_images(wanted: str, group: Group, progress: Progress) -> Images:
    """By the group's list, and its counts."""
    nodes, sent = group.with_jobs, progress.sent or 0.0
    is_desired = progress.accepted and group.software != ROLLED_BACK
    old, unknown = _by_node(wanted, group, sent, [row for row in EVIDENCE if is_desired or row.is_the_image])
    counted = group.on_desired if is_desired and not group.contradicts(wanted) else None
    if counted is not None:
        old, unknown = _by_count(counted, nodes, old, unknown)
    return Images(
        nodes=max(len(nodes), group.current),
        listed=len(nodes),
        old=tuple(old),
        unknown=tuple(unknown),
        counted=counted,
        updated=sum(bool(_by_update(node, wanted, sent)) for node in nodes),
    )


def _by_node(wanted: str, group: Group, sent: float, rows: Sequence[Evidence]) -> tuple[list[str], list[str]]:
    """The nodes on the old image, and those without any proof."""
    known: set[bool | None] = {False} if group.contradicts(wanted) else set()
    said = {node.name: known | {row.proves(node, wanted, sent) for row in rows} - {None} for node in group.with_jobs}
    return [name for name, found in said.items() if False in found], [name for name, found in said.items() if not found]


def _by_count(counted: int, nodes: Sequence[Node], old: list[str], unknown: list[str]) -> tuple[list[str], list[str]]:
    """TargetStateCount counts running nodes alone."""
    running = [node.name for node in nodes if node.status == "Running"]
    if counted >= len(nodes):
        return old, []
    if counted >= len(running):
        return old, [name for name in unknown if name not in running]
    # Some nodes that run are on the old image: those without proof, or else it is not known which.
    without = [name for name in unknown if name in running]
    missing = len(running) - counted
    if len({*old, *without}) == missing:
        return [*old, *without], [name for name in unknown if name not in without]
    return old, unknown or [*running]


# -- whose update it is -------------------------------------------------------------------------------------------------

OTHERS: Mapping[str, Callable[[Group, Progress, str], bool]] = {
    "this run has sent none": lambda group, progress, wanted: progress.sent is None,
    "DesiredImageId or DesiredImageReleaseVersion: not the image that was named": (
        lambda group, progress, wanted: group.contradicts(wanted)
    ),
    "SoftwareUpdateStatus: this run's was rolled back before": lambda group, progress, wanted: progress.rolled_back,
}
"""What proves that an update at work is another one's. Several updates in a row have the same status, so a command that was dead
meanwhile has to know."""


def is_of_others(wanted: str, group: Group, progress: Progress) -> bool:
    """Whether the update that HyperPod shows is not this run's: nobody's work is followed as its own."""
    has_ended = group.software in ENDS and group.software != progress.before
    if progress.sent is not None and (group.is_rolling_back or has_ended):
        return False  # the nodes show what was before
    return any(proves(group, progress, wanted) for proves in OTHERS.values())
