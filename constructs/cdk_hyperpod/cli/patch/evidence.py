"""Which image the nodes of a group have, by all that HyperPod reports. Pure.

A group is patched only if each of its nodes is known to have the image. What HyperPod does not report proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..._lambda.hyperpod.common.sentences import some
from ..._lambda.hyperpod.scale_down.images import DEFAULT, is_release
from .model import LATEST, ROLLED_BACK, Group, Node, Progress


class Image(Enum):
    """What a piece of evidence says of one node."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class _Question:
    wanted: str
    sent: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that HyperPod may report of a node."""

    reported: str
    """Where (botocore)."""
    says: Callable[[Node, _Question], Image | None]
    """None: it is not reported, or proves nothing."""


def _by_release(node: Node, question: _Question) -> Image | None:
    if not is_release(question.wanted) or node.image is None:
        return None
    return Image.NEW if node.image == question.wanted else Image.OLD


def _by_image_status(node: Node, question: _Question) -> Image | None:
    if question.wanted not in (LATEST, DEFAULT) or node.image_status is None:
        return None
    return Image.NEW if node.image_status == "UpToDate" else Image.OLD


def _by_update(node: Node, question: _Question) -> Image | None:
    return Image.NEW if node.updated is not None and node.updated >= question.sent else None


def _by_launch(node: Node, question: _Question) -> Image | None:
    return Image.NEW if node.launched is not None and node.launched >= question.sent else None


EVIDENCE: Sequence[Evidence] = (
    Evidence("CurrentImageReleaseVersion: the wanted release, or another one", _by_release),
    Evidence("ImageVersionStatus: UpToDate, or not, if the latest image is wanted", _by_image_status),
    Evidence("LastSoftwareUpdateTime: after the call", _by_update),
    Evidence("LaunchTime: after the call, since new nodes get the desired image", _by_launch),
)
"""What proves a node's image. OLD contradicts NEW: then the node counts as old until both agree. TargetStateCount, of the group,
proves all nodes or counts the old ones; it proves nothing unless HyperPod has accepted the call, or if it
reports another image to come. After RollbackComplete only the first two prove something."""


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
    updated: bool = False
    """HyperPod has updated a node since the call."""

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
    """By the group's last list, and its counts."""
    nodes = group.with_jobs
    question = _Question(wanted, progress.sent or 0.0)
    # Whether an update that is seen after an unanswered call is this call's is unknown: only the image itself proves something. After a
    # rollback, of this update or of an earlier one, the desired image is the old one, and nodes were updated to it.
    is_desired = progress.accepted and group.software != ROLLED_BACK
    rows = EVIDENCE if is_desired else EVIDENCE[:2]
    said = {node.id: {each.says(node, question) for each in rows} - {None} for node in nodes}
    if group.contradicts(wanted):
        said = {name: found | {Image.OLD} for name, found in said.items()}
    old = [name for name, found in said.items() if Image.OLD in found]
    unknown = [name for name, found in said.items() if not found]
    # Before the call arrives, the desired image is the old one.
    counted = group.on_desired if is_desired and not group.contradicts(wanted) else None
    if counted is not None:
        old, unknown = _by_count(counted, nodes, old, unknown)
    return Images(
        nodes=max(len(nodes), group.current),
        listed=len(nodes),
        old=tuple(old),
        unknown=tuple(unknown),
        counted=counted,
        updated=any(_by_update(node, question) for node in nodes),
    )


def _by_count(counted: int, nodes: Sequence[Node], old: list[str], unknown: list[str]) -> tuple[list[str], list[str]]:
    """TargetStateCount counts running nodes alone."""
    running = [node.id for node in nodes if node.status == "Running"]
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
