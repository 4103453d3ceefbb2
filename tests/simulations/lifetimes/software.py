"""UpdateClusterSoftware, its schedule and automatic patching in the second HyperPod, and the record of what they did.

A node keeps its instance and gets another root volume: everything that runs on it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hyperpod import HyperPod
    from .model import Group, Node, Who

FIRST = "1.4.0"
PATCHING = ("AutoPatchConfig", "ScheduledUpdateConfig")
IMAGES = ("ImageId", "ImageReleaseVersion")


@dataclass(frozen=True, slots=True, eq=False)
class ReImaging:
    """The replacement of one root volume."""

    node: Node
    at: float
    by: Who
    call: object
    before: str
    after: str


@dataclass(frozen=True, slots=True, eq=False)
class Dropped:
    """Patching of a group that an UpdateCluster turned off."""

    group: str
    setting: str
    at: float
    by: Who
    call: object
    alone: bool
    """The call had InstanceGroupsToDelete and no group."""


@dataclass(slots=True, eq=False)
class Update:
    """One group's update that is in progress."""

    image: str
    former: str
    by: Who
    call: object
    batch: int | None
    """Nodes at a time; absent: all at once."""
    fails: bool
    everything: bool
    """Nodes that have the image get it again."""
    back: bool = False
    seen: list[Node] = field(default_factory=list)


def ami(release: str) -> str:
    """The id of a release's AMI."""
    return "ami-" + "".join(f"{int(part):04d}" for part in release.split("."))


def release_of(spec: Mapping[str, Any]) -> str | None:
    """The release that a specification names; absent: none, or the latest."""
    if version := spec.get("ImageReleaseVersion"):
        return str(version)
    image = str(spec.get("ImageId") or "default")
    if image == "default":
        return None
    digits = image.removeprefix("ami-")
    return ".".join(str(int(digits[at : at + 4])) for at in (0, 4, 8))


def moved_on(older: str, newer: str) -> bool:
    """Whether `newer` is a later patch of the same minor version."""
    one, other = (tuple(map(int, each.split("."))) for each in (older, newer))
    return one[:2] == other[:2] and one < other


class Software:
    """The software of one HyperPod's nodes."""

    def __init__(self, pod: HyperPod, seed: object) -> None:
        self.pod, self.rng = pod, Random(f"{seed} the software")
        self.latest = FIRST
        self.re_images: list[ReImaging] = []
        self.dropped: list[Dropped] = []
        self.in_progress: dict[str, Update] = {}
        """By group."""
        self.failures = 0.0
        """Probability that an update fails, and is rolled back."""
        self.protected = 0.0
        """Probability that a PodDisruptionBudget keeps a node from an update in batches."""

    def details(self, group: Group) -> dict[str, Any]:
        """What DescribeCluster shows."""
        shown = {
            "CurrentImageId": ami(group.image_before or group.image),
            "DesiredImageId": ami(group.image),
            "SoftwareUpdateStatus": group.software,
        }
        if self.pod.has_versions:
            current = group.image_before or group.image
            shown |= {"CurrentImageReleaseVersion": current, "DesiredImageReleaseVersion": group.image}
            shown["ImageVersionStatus"] = "UpToDate" if current == self.latest else "UpdateAvailable"
        return {key: value for key, value in shown.items() if value is not None}

    # -- UpdateClusterSoftware --

    def update(
        self, names: Iterable[str], image: str, *, by: Who, call: object = None, batch: int | None = None
    ) -> None:
        from .model import Refused

        pod = self.pod
        pod._there()
        pod._idle("UpdateClusterSoftware")
        for name in names:
            group = pod.groups.get(name)
            if group is None or group.status == "Deleting":
                raise Refused(pod.switches.not_found, f"Instance group {name} not found.")
            if group.under_way or name in self.in_progress:
                raise Refused("ConflictException", f"An operation on instance group {name} is in progress.")
        for name in names:
            self._begin(pod.groups[name], image, by, call, batch)

    def _begin(self, group: Group, image: str, by: Who, call: object, batch: int | None) -> None:
        pod = self.pod
        batch = batch if pod.has_versions else None  # There are no batches under Slurm.
        fails = self.rng.random() < self.failures
        update = Update(image, group.image, by, call, batch, fails, pod.switches.same_image_again)
        self.in_progress[group.name] = update
        group.image_before, group.image, group.software, group.status = group.image, image, "Pending", "SystemUpdating"
        pod.tell(f"UpdateClusterSoftware by {by}: {group.name} to {image}")
        if pod.switches.patch_shows == "SystemUpdating" or not pod.continuous:
            pod.status = "SystemUpdating"
        pod.clock.later(self.rng.uniform(5, 60), partial(self._next_batch, group, update))

    def _next_batch(self, group: Group, update: Update) -> None:
        if self._is_over(group, update):
            return
        if group.software == "Pending":
            group.software = "InProgress"
        nodes = [
            node
            for node in group.nodes
            if node.status == "Running"
            and node not in update.seen
            and (update.everything or node.image != update.image)
        ][: update.batch]
        if not nodes:
            self._finish(group, update)
            return
        update.seen += nodes
        if update.batch is not None and not update.back:
            nodes = [node for node in nodes if self.rng.random() >= self.protected]
        for node in nodes:
            self.re_image(node, update.image, by=update.by, call=update.call)
        self.pod.clock.later(self.rng.uniform(100, 900), partial(self._batch_ends, group, update, nodes))

    def re_image(self, node: Node, image: str, *, by: Who, call: object = None) -> None:
        """The node gets the image, and its scripts begin."""
        self.re_images.append(ReImaging(node, self.pod.clock.now, by, call, node.image, image))
        self.pod.tell(f"{node.name} of {node.group} gets {image}, by {by}")
        node.status, node.image = "SystemUpdating", image

    def _batch_ends(self, group: Group, update: Update, nodes: list[Node]) -> None:
        self.scripts_end(nodes)
        if update.fails and not update.back:
            update.image, update.former, update.back, update.seen = update.former, update.image, True, []
            update.everything = False
            group.image_before, group.image, group.software = (
                group.image,
                group.image_before or group.image,
                "RollbackInProgress",
            )
        self._next_batch(group, update)

    def scripts_end(self, nodes: Iterable[Node]) -> None:
        """The nodes run again."""
        for node in nodes:
            if node.status == "SystemUpdating":
                node.status, node.outdated = "Running", False

    def _finish(self, group: Group, update: Update) -> None:
        group.software = "RollbackComplete" if update.back else "Succeeded"
        group.image_before, group.status = None, "InService"
        del self.in_progress[group.name]
        self._rest()

    def _is_over(self, group: Group, update: Update) -> bool:
        """The group is deleted, or the cluster is."""
        if self.pod.groups.get(group.name) is group and group.status != "Deleting":
            return False
        if self.in_progress.get(group.name) is update:
            del self.in_progress[group.name]
        self._rest()
        return True

    def _rest(self) -> None:
        if self.pod.status == "SystemUpdating" and not self.in_progress:
            self.pod.status = "InService"

    # -- by itself --

    def patch(self, group: Group, *, idle: float) -> None:
        """Automatic patching: each node as it becomes idle. `idle`: the share of nodes that do within a day."""
        if not moved_on(group.image, self.latest) or group.name in self.in_progress:
            return
        group.image_before, group.image = group.image, self.latest
        group.software = "InProgress"
        for node in group.nodes:
            if node.id and self.rng.random() < idle:
                self.pod.clock.later(self.rng.uniform(10, 3000), partial(self._patch_node, group, node))
        self.pod.clock.later(4000, partial(self._patched, group))

    def _patch_node(self, group: Group, node: Node) -> None:
        if node.status == "Running" and node in group.nodes and node.image != group.image:
            self.re_image(node, group.image, by="hyperpod")
            self.pod.clock.later(self.rng.uniform(100, 900), partial(self.scripts_end, [node]))

    def _patched(self, group: Group) -> None:
        if group.name not in self.in_progress and group.software == "InProgress":
            group.image_before, group.software = None, "Succeeded"

    # -- what UpdateCluster does to it --

    def note_update(self, before: Mapping[str, Mapping[str, Any]], *, by: Who, call: object, alone: bool) -> None:
        """Record the patching that an UpdateCluster turned off. `before`: the specifications of the groups."""
        for name, spec in before.items():
            group = self.pod.groups.get(name)
            if group is None or group.status == "Deleting":
                continue
            for setting in PATCHING:
                if setting in spec and setting not in group.spec:
                    self.dropped.append(Dropped(name, setting, self.pod.clock.now, by, call, alone))

    def completed(self, group: Group, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A specification with the schedule that an absent one keeps, if a switch says so."""
        schedule = group.spec.get("ScheduledUpdateConfig")
        if schedule and "ScheduledUpdateConfig" not in spec and self.pod.switches.absent_schedule_stays:
            return {**spec, "ScheduledUpdateConfig": schedule}
        return dict(spec)

    def take_image(self, group: Group, spec: Mapping[str, Any], *, by: Who, call: object) -> None:
        """New nodes get the image of the specification, and existing ones too if a switch says so. A later patch stays."""
        image = release_of(spec)
        if image is None or image == group.image or moved_on(image, group.image) or group.name in self.in_progress:
            return
        if self.pod.switches.update_re_images:
            self._begin(group, image, by, call, None)
        else:
            group.image = image
