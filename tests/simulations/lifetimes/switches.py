"""Undocumented behaviour of HyperPod and CloudFormation: one field for each unknown, drawn at random for a lifetime.

The letters are those of the "Not verified" list in the project's domain facts. docs/first-deployment.md lists what a first
deployment should confirm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Literal, get_args

Lowering = Literal["at once", "late, relative", "late, absolute", "when gone", "never"]
Dropped = Literal["deleted", "left", "deleted, and it fails on one that is gone"]
AllFail = Literal["ValidationException", "BadRequestException", "InvalidParameterValue", "answered"]
InUse = Literal["NodeIdInUse", "NODE_ID_IN_USE"]
NotFound = Literal["ResourceNotFound", "ResourceNotFoundException"]
Busy = Literal["ConflictException", "ValidationException"]
EventsShow = Literal["whole", "absent", "cut"]
Pages = Literal["whole", "repeat", "repeat by the other id", "skip", "change"]
PatchShows = Literal["SystemUpdating", "InService"]
Operations = Literal["told", "told, also of deletions", "empty", "denied", "another cluster's"]
Spoilt = Literal["missing", "empty", "cut off", "cut in transfer", "half a character", "ahead", "another version"]


@dataclass(frozen=True, slots=True)
class Statuses:
    """How the agent's status from S3 may differ from what the agent wrote: in some ways, or not at all."""

    ways: tuple[Spoilt, ...] = ()
    rate: float = 0.0
    """Probability that a read has the first of them."""
    lasts: tuple[float, ...] = (0.0,)
    """Seconds for which every read has it; 0: only that read."""


def draw_statuses(rng: Random) -> Statuses:
    """Each way in half of the lifetimes that have any."""
    if rng.random() < 0.5:
        return Statuses()
    ways = tuple(way for way in get_args(Spoilt) if rng.random() < 0.5)
    return Statuses(ways, rng.choice([0.02, 0.1, 0.3]) if ways else 0.0, (0.0, 0.0, 20.0, 100.0, 170.0, 400.0))


@dataclass(frozen=True, slots=True)
class Switches:
    """One answer to every question."""

    lowering: Lowering
    """(b) Whether and when BatchDeleteClusterNodes lowers the target."""
    lowering_delay: float
    """The delay in seconds, if it is late."""
    late_lowering_ends: bool
    """(s) If a late lowering brings the target below the live nodes, it terminates the difference at random."""
    counts_leaving: bool
    """(q) UpdateCluster counts nodes that are shutting down, and then terminates as many others at random."""
    counts_ended: bool
    """(q) … and those that CurrentCount still includes although they are terminated."""
    only_on_a_fall: bool
    """UpdateCluster terminates nodes only if its count is below the target, not if it equals the target."""
    by_target: bool
    """Standard provisioning: UpdateCluster terminates as many nodes as the target is lowered, even if nodes are
    missing."""
    unlaunched_first: bool
    """UpdateCluster cancels nodes that are not launched yet before it terminates others."""
    unlaunched_listed: bool
    """ListClusterNodes shows nodes that are not launched yet."""
    current_counts_booting: bool
    """CurrentCount includes booting nodes."""
    current_lag: float
    """Seconds for which CurrentCount still includes a node that has left ListClusterNodes."""
    group_says_updating: bool
    """Continuous provisioning: a group is Updating while its nodes start and terminate (the shape's text:
    InService)."""
    minimum_blocks: bool
    """(o) BatchDeleteClusterNodes refuses to go below the minimum of a group that is InService."""
    count_below_minimum: bool
    """(o) UpdateCluster accepts a count below the live minimum if it also lowers the minimum.

    Otherwise the minimum must be lowered first.
    """
    list_lag: float
    """Seconds for which ListClusterNodes still shows a node as it was before its termination, even if it has left by
    then."""
    delete_alone: bool
    """(d) UpdateCluster accepts InstanceGroupsToDelete without InstanceGroups."""
    all_fail: AllFail
    """(a) The code if no node of a BatchDeleteClusterNodes can be deleted; "answered": 200 and a list."""
    in_use: InUse
    """The code of a node that is in use, in botocore's or the AWS CLI documentation's spelling."""
    not_found: NotFound
    """The code if the cluster does not exist, with or without the usual suffix."""
    busy: Busy
    """The code of a call while the cluster is busy."""
    delete_keeps_busy: bool
    """Standard provisioning: the cluster is Updating while deleted nodes shut down."""
    dropped: Dropped
    """What CloudFormation's handler does with a group that was removed from the template."""
    handler_retries: bool
    """CloudFormation's handler waits for a busy cluster. Otherwise its update fails at once."""
    handler_waits: bool
    """CloudFormation's handler waits until the counts are reached. Otherwise only for the cluster's status."""
    rollback_backwards: bool
    """(p) A rollback goes against the order of dependencies."""
    back_to_stable: bool
    """After an update that was left failed, a rollback returns to the last complete state of the stack.

    Otherwise it returns each resource to its last successful update.
    """
    continuing_is_an_update: bool
    """continue-update-rollback changes the stack's LastUpdatedTime."""
    ref_is_name: bool
    """(c) CloudFormation's physical id of the cluster is its name; otherwise its ARN."""
    begins_unnamed: bool
    """CloudFormation's UPDATE_IN_PROGRESS of the cluster has no PhysicalResourceId, an optional field."""
    events_show: EventsShow
    """What CloudFormation's events show of a custom resource's properties."""
    empty_lists: bool
    """Replies contain empty lists; otherwise their keys are absent."""
    page: int
    """Nodes in a page of ListClusterNodes."""
    pages: Pages
    """How pages may differ from the list.

    Sometimes one begins with the last node of the page before, perhaps without its instance id; or it leaves out its
    first node; or the order changes between two pages.
    """
    clocks_apart: float
    """How many seconds LaunchTime is ahead of the function's clock."""
    operations: Operations
    """What ListClusterOperations contains: UpdateCluster and BatchAddClusterNodes, perhaps BatchDeleteClusterNodes, or
    nothing."""
    operations_lag: float
    """Minimum seconds for which an operation is InProgress."""
    patch_shows: PatchShows
    """Continuous provisioning: the cluster's status while the software of a group is updated."""
    same_image_again: bool
    """UpdateClusterSoftware re-images nodes that have the image already."""
    update_re_images: bool
    """UpdateCluster with another image re-images existing nodes."""
    image_id_re_images: bool
    """CloudFormation updates software if ImageId has changed. For ImageReleaseVersion it does."""
    deletion_drops_patching: bool
    """UpdateCluster with InstanceGroupsToDelete alone turns off automatic patching of the other groups."""
    absent_schedule_stays: bool
    """UpdateCluster without ScheduledUpdateConfig keeps it. Without AutoPatchConfig, it is turned off."""

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def _aside(rng: Random, what: str) -> Random:
    """Separate random numbers for a switch that was added later, so that earlier seeds keep their meaning."""
    copy = Random()
    copy.setstate(rng.getstate())
    return Random(f"{copy.random()} {what}")


def draw(rng: Random) -> Switches:
    """All values of every switch. The likelier one is more frequent only if the other would hide everything else."""

    def either() -> bool:
        return rng.random() < 0.5

    return Switches(
        lowering=rng.choice(get_args(Lowering)),
        lowering_delay=rng.choice([2.0, 20.0, 45.0, 200.0]),
        late_lowering_ends=either(),
        counts_leaving=either(),
        counts_ended=either(),
        only_on_a_fall=either(),
        by_target=either(),
        unlaunched_first=rng.random() < 0.7,
        unlaunched_listed=rng.random() < 0.8,
        current_counts_booting=either(),
        current_lag=rng.choice([0.0, 0.0, 15.0, 70.0, 240.0, 400.0]),
        group_says_updating=either(),
        minimum_blocks=either(),
        count_below_minimum=rng.random() < 0.8,
        list_lag=rng.choice([0.0, 0.0, 0.0, 5.0, 20.0, 45.0, 100.0]),
        delete_alone=either(),
        all_fail=rng.choice(get_args(AllFail)),
        in_use=rng.choice(get_args(InUse)),
        not_found=rng.choice(get_args(NotFound)),
        busy=rng.choice(get_args(Busy)),
        delete_keeps_busy=either(),
        dropped=rng.choice(get_args(Dropped)),
        handler_retries=rng.random() < 0.8,
        handler_waits=rng.random() < 0.3,
        rollback_backwards=rng.random() < 0.1,
        back_to_stable=either(),
        continuing_is_an_update=either(),
        ref_is_name=either(),
        begins_unnamed=_aside(rng, "the cluster's id in events").random() < 0.3,
        events_show=_aside(rng, "properties in events").choice(["whole", "whole", *get_args(EventsShow)]),
        empty_lists=either(),
        page=rng.choice([100, 100, 4, 2]),
        pages=rng.choice(["whole", "whole", *get_args(Pages)]),
        clocks_apart=rng.choice([-30.0, 0.0, 0.0, 30.0]),
        operations=_aside(rng, "the operations").choice(["told", *get_args(Operations)]),
        operations_lag=_aside(rng, "their lag").choice([0.0, 0.0, 100.0, 800.0]),
        patch_shows=_aside(rng, "the status of a patch").choice(get_args(PatchShows)),
        same_image_again=_aside(rng, "the same image").random() < 0.3,
        update_re_images=_aside(rng, "another image").random() < 0.3,
        image_id_re_images=_aside(rng, "the image's id").random() < 0.5,
        deletion_drops_patching=_aside(rng, "patching of others").random() < 0.3,
        absent_schedule_stays=_aside(rng, "a schedule").random() < 0.3,
    )
