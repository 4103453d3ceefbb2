"""Reasons of a failed deployment, as CloudFormation shows them: what happened with its code, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...kernel.refuse import Failure, Refuse
from ...kernel.sentences import LIMIT, cut, fit, several, some

CONTINUE = "`aws cloudformation continue-update-rollback`"

# -- before the first change ------------------------------------------------------------------------------------------


def refused(cluster: str, refusals: Sequence[Refuse], *, first: bool) -> str:
    """The reason of a refused deployment. `first`: no node was deleted for it."""
    done = "nothing in the cluster was changed" if first else "nodes already deleted stay deleted"
    return fit(f"Scaling down {cluster} was refused, and {done}.", [str(each) for each in refusals])


def malformed(resource: str, problems: Sequence[str]) -> str:
    """The reason if the resource's properties are invalid."""
    failure = Failure(
        code="scale-down-properties-invalid",
        problem=f"The properties of {resource} are invalid, and nothing in the cluster was changed",
        remedy="correct the resource's properties, then deploy again",
    )
    return fit(failure.head, [*problems, failure.remedy])


OTHER_STATE = Failure(
    code="scale-down-state-of-another-version",
    problem="the request began with another version of the guard's function, and nothing more was changed",
    remedy="deploy again",
)

STATUS_UNKNOWN = Failure(
    code="stack-status-unreadable",
    problem="nothing was changed, because the function must know first whether the stack rolls back",
    remedy="find what denies its permission cloudformation:DescribeStacks on its own stack, then try again",
)

NOT_CONFIRMED = Failure(
    code="request-not-confirmed",
    problem="nothing was changed, because the guard does only what CloudFormation's own events and template ask for",
    remedy="deploy again. If it fails once more, compare this resource's ResourceProperties in "
    "`aws cloudformation describe-stack-events` with the template",
)

OVERTAKEN_FIRST = Failure(
    code="cluster-changed-meanwhile",
    problem="nothing was changed, because another request changed the cluster while S3 or the drainer did not respond",
    remedy="find out why they did not respond, then deploy again",
)


# -- calls that AWS rejects -------------------------------------------------------------------------------------------


def failed(cluster: str, reasons: Sequence[str]) -> str:
    """The reason if AWS rejected a call for good. `reasons`: what AWS answered; after it, what to do, if that is known."""
    failure = Failure(
        code="scale-down-failed",
        problem=f"Scaling down {cluster} failed",
        remedy="find the cause, then deploy again. Nodes already deleted stay deleted",
    )
    advice = [failure.remedy] if len(reasons) == 1 else []
    return fit(failure.head, [*reasons, *advice])


def as_reasons(failure: Failure) -> list[str]:
    """The failure as two sentences of another reason."""
    return [failure.problem, f"{failure.remedy} [{failure.code}]"]


def software_update(cluster: str, then: str) -> Failure:
    """`then`: what to do after the update."""
    return Failure(
        code="software-update-required",
        problem="this cluster needs one software update before single nodes can be deleted",
        remedy=f"run `cdk-hyperpod patch` for {cluster}, which drains its nodes, gives them HyperPod's latest image and runs the "
        f"lifecycle scripts again, and {then}",
    )


def group_deletion_failed(cluster: str, groups: Iterable[str], reason: str) -> str:
    names = some(groups)
    failure = Failure(
        code="group-deletion-rejected",
        problem=f"HyperPod rejected the deletion of {names} of {cluster}",
        remedy="find the cause, then deploy again",
    )
    return fit(failure.head, [reason, failure.remedy])


FIRST_HINT = (
    "If this deployment is the first with scale-down, it also brings the permissions: deploy once without deleting anything, "
    "then again"
)
"""For a missing permission to change something: in a first deployment it is granted after prepare."""


# -- nodes that cannot be drained -------------------------------------------------------------------------------------

RELEASED = ", and the drained nodes are released"
MARK = "cdk-hyperpod.dev/drain"
"""The drainer's annotation of a node that it holds."""
SAVING_HINT = (
    "In another namespace than hyperpod-backup, the stack hyperpod-NAME-teams grants the permission to create the CronJob's Job, "
    "and it is deployed after the nodes' stack: deploy once with scale_down.drain.backup_cron_job as it is and no lower count, "
    "then delete nodes"
)
DRAIN_HINT = (
    "If jobs need longer, run `cdk-hyperpod drain NODE --hold 12h --wait` first, then deploy; or raise "
    "scale_down.drain.timeout_minutes, or set on_timeout: force"
)
EVICTION_HINT = (
    "If pods need longer, wait until they have ended, or run `kubectl drain` first; or raise "
    "scale_down.drain.timeout_minutes, or set on_timeout: force"
)


def not_drained(cluster: str, why: Sequence[str], *, first: bool, eks: bool = False) -> str:
    """The reason of a deployment whose nodes could not be drained. `first`: no node was deleted for it."""
    done = "nothing was deleted" if first else "nodes already deleted stay deleted, no other node was deleted"
    failure = Failure(
        code="nodes-not-ready",
        problem=f"Nodes of {cluster} were not ready to be deleted: {done}{RELEASED}",
        remedy="wait for their jobs or pods, or drain the nodes first; or raise scale_down.drain.timeout_minutes, or set "
        "on_timeout: force",
    )
    return fit(failure.head, [*why, *_drain_hint(" ".join(why), eks)])


def _drain_hint(why: str, eks: bool) -> Sequence[str]:
    if not eks:
        return (DRAIN_HINT,)
    if "[backup-impossible]" in why and "forbidden: user" in why.lower():
        return (SAVING_HINT,)
    # The drainer itself reports what to do about unmanaged pods.
    return () if "[pods-unmanaged]" in why else (EVICTION_HINT,)


def not_released(nodes: Iterable[str]) -> str:
    """What follows the reason if nodes under EKS stay held. `nodes`: empty: it is not known which."""
    held = some(sorted(nodes), 8) or "the nodes that it held"
    failure = Failure(
        code="nodes-not-released",
        problem=f"The drainer did not release {held}, which stay cordoned",
        remedy=f"change scale_down.retry and deploy, or run `kubectl uncordon hyperpod-ID && kubectl annotate node hyperpod-ID {MARK}-`",
    )
    return f"{failure}."


def still_held(reason: str, why: str) -> str:
    """The reason of a failure, and why nodes stay held after it."""
    return _with(reason.replace(RELEASED, "", 1), why)


def with_requested(reason: str, names: Iterable[str]) -> str:
    """The reason of a failure, and which nodes this request had deleted by then."""
    requested = list(names)
    return _with(reason, f"The guard has requested the deletion of {some(requested)}.") if requested else reason


def _with(reason: str, more: str) -> str:
    """Both. The first is cut if they are too long together."""
    return f"{cut(reason, LIMIT - len(more) - 1)} {more}"


# -- time -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StayingTarget:
    """A group of which HyperPod launches nodes again, because its target does not fall."""

    group: str
    target: int
    count: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of the nodes that were to be deleted at the first look."""

    gone: int
    """HyperPod does not list them any more."""
    accepted: int
    """HyperPod has accepted their deletion, and still lists them."""
    planned: int


LAST_CHANGE = "The last poll made a change, and its effect could not be seen any more"
"""Why a request has not finished that waits for nothing else."""


def out_of_time(
    cluster: str,
    minutes: int,
    deleted: Deleted | None,
    left: Sequence[str],
    waits: Sequence[str],
    *,
    rolling_back: bool,
    stays: StayingTarget | None = None,
) -> str:
    """The reason when CloudFormation's time limit is near.

    `deleted`: what became of the nodes that were to be deleted at the first look. None: they were not counted.
    `left`: nodes that are still to be deleted, whenever they came. `stays`: why continuing the rollback alone does not help.
    """
    done = _progress(deleted, left)
    if not rolling_back:
        failure = _update_out_of_time(cluster, minutes, done)
    elif stays is None:
        failure = _rollback_out_of_time(cluster, minutes, done)
    else:
        failure = _rollback_with_staying_target(cluster, minutes, done, stays)
    rest = [f"Left: {some(left, 8)}"] if left else []
    return fit(failure.head, [failure.remedy, *rest, *(waits or [LAST_CHANGE])])


def _progress(deleted: Deleted | None, left: Sequence[str]) -> str:
    if deleted is None or (left and not deleted.planned):
        return "deleted nodes stay deleted"
    if not deleted.planned:
        return "there was nothing to delete"
    accepted = f", and HyperPod has accepted the deletion of {deleted.accepted}" if deleted.accepted else ""
    return f"{deleted.gone} of {several(deleted.planned, 'node')} deleted{accepted}"


def _update_out_of_time(cluster: str, minutes: int, done: str) -> Failure:
    return Failure(
        code="scale-down-out-of-time",
        problem=f"Scaling down {cluster} did not finish within {minutes} minutes: {done}",
        remedy="deploy again to go on from here. Only what is left is deleted",
    )


def _rollback_out_of_time(cluster: str, minutes: int, done: str) -> Failure:
    return Failure(
        code="rollback-out-of-time",
        problem=f"Scaling down {cluster} in a rollback did not finish within {minutes} minutes: {done}",
        remedy=f"continue the rollback ({CONTINUE}) to go on from here",
    )


def _rollback_with_staying_target(cluster: str, minutes: int, done: str, stays: StayingTarget) -> Failure:
    nodes = several(stays.count, "node")
    return Failure(
        code="rollback-target-does-not-fall",
        problem=f"Scaling down {cluster} in a rollback did not finish within {minutes} minutes: {done}",
        remedy=f"continuing the rollback alone does not help, because HyperPod keeps a target of {stays.target} for group "
        f'"{stays.group}" and launches nodes again. Delete its nodes above {stays.count} yourself (`aws sagemaker '
        f"batch-delete-cluster-nodes`), set its InstanceCount to {stays.count} at once (`aws sagemaker update-cluster`, the group "
        f"otherwise as describe-cluster shows it; with more than {nodes} HyperPod chooses which to terminate), then run "
        f"{CONTINUE}",
    )
