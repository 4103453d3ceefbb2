"""What nobody knows about HyperPod and CloudFormation: one field for each unknown, drawn for a lifetime, every way.

The letters are those of the "Not verified" list of the domain facts that the project keeps; docs/first-deployment.md lists
what a first deployment should confirm.
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
Pages = Literal["whole", "repeat", "repeat by the other id", "skip", "change"]
Operations = Literal["told", "told, also of deletions", "empty", "denied", "another cluster's"]
Spoilt = Literal["missing", "empty", "cut off", "cut in transfer", "half a character", "ahead", "another version"]


@dataclass(frozen=True, slots=True)
class Statuses:
    """How what S3 gives of the agent's status may differ from what the agent said: some ways, or none."""

    ways: tuple[Spoilt, ...] = ()
    rate: float = 0.0
    """How often a read finds the first of them."""
    lasts: tuple[float, ...] = (0.0,)
    """Seconds for which every read finds it so; 0: that one only."""


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
    """Seconds, where it is late."""
    late_lowering_ends: bool
    """(s) Where a late lowering brings the target below what lives: it ends the difference, at random."""
    counts_leaving: bool
    """(q) UpdateCluster counts nodes that are shutting down, and then ends as many others at random."""
    counts_ended: bool
    """(q) … and those that CurrentCount still holds although they are gone."""
    only_on_a_fall: bool
    """UpdateCluster ends nodes only where the count that it brings is below the target, not where it equals it."""
    by_target: bool
    """Standard provisioning: UpdateCluster ends as many nodes as the target falls, also where some are missing."""
    unlaunched_first: bool
    """UpdateCluster gives up nodes that were not launched yet before it ends others."""
    unlaunched_listed: bool
    """ListClusterNodes shows nodes that were not launched yet."""
    current_counts_booting: bool
    """CurrentCount holds nodes that are booting."""
    current_lag: float
    """Seconds for which CurrentCount still holds a node that left ListClusterNodes."""
    group_says_updating: bool
    """Continuous provisioning: a group says Updating while its nodes come and go (the shape's text: InService)."""
    minimum_blocks: bool
    """(o) BatchDeleteClusterNodes refuses to go below the minimum of a group that is InService."""
    count_below_minimum: bool
    """(o) UpdateCluster takes a count below the live minimum where it brings a lower one; otherwise that goes first."""
    list_lag: float
    """Seconds for which ListClusterNodes still shows a node as it was before it ended, also if it has left by then."""
    delete_alone: bool
    """(d) UpdateCluster takes InstanceGroupsToDelete without InstanceGroups."""
    all_fail: AllFail
    """(a) The code where no node of a BatchDeleteClusterNodes can go; "answered": 200 and a list."""
    in_use: InUse
    """The code of a node that is in use, as botocore or as the AWS CLI's document spells it."""
    not_found: NotFound
    """The code where there is no such cluster, with or without the usual ending."""
    busy: Busy
    """The code of a call that comes while the cluster is busy."""
    delete_keeps_busy: bool
    """Standard provisioning: the cluster says Updating while deleted nodes shut down."""
    dropped: Dropped
    """What CloudFormation's handler does with a group that fell out of the template."""
    handler_retries: bool
    """CloudFormation's handler waits for a busy cluster; otherwise its update fails at once."""
    handler_waits: bool
    """CloudFormation's handler waits until the counts are reached; otherwise for the cluster's status alone."""
    rollback_backwards: bool
    """(p) A rollback goes against the direction in which resources depend on each other."""
    back_to_stable: bool
    """A rollback after an update that was left in failure goes back to where the stack was last complete; otherwise each
    resource to what it was last brought to."""
    continuing_is_an_update: bool
    """continue-update-rollback moves the stack's LastUpdatedTime."""
    ref_is_name: bool
    """(c) CloudFormation's physical id of the cluster is its name; otherwise its ARN."""
    empty_lists: bool
    """Replies hold empty lists; otherwise their keys are absent."""
    page: int
    """Nodes in a page of ListClusterNodes."""
    pages: Pages
    """How pages may differ from the list: now and then one begins with the last node of the page before, also without its
    instance id; or leaves its first node out; or the order changes between two pages."""
    clocks_apart: float
    """Seconds by which LaunchTime is ahead of the function's clock."""
    operations: Operations
    """What ListClusterOperations tells: of UpdateCluster and BatchAddClusterNodes, perhaps of BatchDeleteClusterNodes, or nothing."""
    operations_lag: float
    """Seconds for which an operation says InProgress at least."""

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def _aside(rng: Random, what: str) -> Random:
    """Dice of its own for a switch that came later: a seed stands for what it stood for before."""
    copy = Random()
    copy.setstate(rng.getstate())
    return Random(f"{copy.random()} {what}")


def draw(rng: Random) -> Switches:
    """Every way of every switch, the likelier one more often only where the other one would drown everything else."""

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
        empty_lists=either(),
        page=rng.choice([100, 100, 4, 2]),
        pages=rng.choice(["whole", "whole", *get_args(Pages)]),
        clocks_apart=rng.choice([-30.0, 0.0, 0.0, 30.0]),
        operations=_aside(rng, "the operations").choice(["told", *get_args(Operations)]),
        operations_lag=_aside(rng, "their lag").choice([0.0, 0.0, 100.0, 800.0]),
    )
