"""Why `patch` refuses to begin: every reason at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..._lambda.hyperpod.common.sentences import some
from ..._lambda.hyperpod.scale_down.images import DEFAULT, VERSIONED_SINCE, is_release
from ...errors import Finding
from .images import has_versions
from .model import LATEST, SYSTEM_UPDATING, DrainedBy, Group, Options, Plan, Report

SHOWN = 5
"""Names that a message shows."""
_NO_REPORT = Report()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What is known before anything is changed."""

    cluster: str
    options: Options
    plans: Sequence[Plan]
    groups: Sequence[Group]
    unknown: Sequence[str] = ()
    """Names that were typed, and are not groups."""
    is_eks: bool = False
    created: datetime | None = None
    cluster_status: str = "InService"
    deployment: str = ""
    """The stack that a deployment is changing, and its status. Empty: none."""
    report: Report = _NO_REPORT
    has_channel: bool = True
    """The file has a drain agent; under EKS: the drainer exists."""
    must_save: bool = False
    updating: frozenset[str] = frozenset()
    """Groups for which the run that goes on has sent an update."""
    held: frozenset[str] = frozenset()
    """Groups whose nodes an earlier run holds for an update, whatever image it wants."""
    missing_alarms: Sequence[str] = ()
    """Alarms of `rolling` that do not exist."""
    may_update: bool | None = None
    """The credentials may call UpdateClusterSoftware. None: unknown."""
    notes: Sequence[str] = ()
    """What is only worth knowing."""

    @property
    def needed(self) -> list[Plan]:
        """The groups that are patched."""
        return [plan for plan in self.plans if plan.is_needed]

    def group(self, plan: Plan) -> Group:
        """The live group of a plan."""
        return next(group for group in self.groups if group.name == plan.group)

    def drains(self, drained_by: DrainedBy) -> list[Plan]:
        """The groups that are emptied in this way, and have nodes that run."""
        return [plan for plan in self.needed if plan.drained_by is drained_by and self.group(plan).with_jobs]


def refuse(preview: Preview) -> list[Finding]:
    """Every reason, in the order of the rules."""
    return [finding for rule in _RULES for finding in rule(preview)]


# -- what was typed, and the file ---------------------------------------------------------------------------------------


def _unknown_groups(preview: Preview) -> Iterator[Finding]:
    if not preview.unknown:
        return
    unknown = ", ".join(map(ascii, preview.unknown))
    groups = ", ".join(group.name for group in preview.groups) or "none"
    yield Finding(
        code="patch-group-unknown",
        path="GROUP",
        problem=f"{unknown}: is not a group of cluster {preview.cluster}",
        remedy=f"its groups are {groups}",
    )


def _releases_under_slurm(preview: Preview) -> Iterator[Finding]:
    if preview.is_eks or preview.options.release is None:
        return
    yield Finding(
        code="patch-release-under-slurm",
        path="--release",
        problem="HyperPod has no releases of images under Slurm",
        remedy="leave it out: HyperPod installs its latest image. For another image, name an AMI by --image-id",
    )


def _has_no_releases(preview: Preview) -> Iterator[Finding]:
    """HyperPod keeps releases of EKS clusters that were created since 2026."""
    if not preview.is_eks:
        return
    is_old = preview.created is not None and preview.created < VERSIONED_SINCE
    for plan in preview.plans:
        if is_release(plan.wanted) and (is_old or not has_versions(preview.group(plan))):
            yield Finding(
                code="patch-cluster-without-releases",
                path=_path(plan, preview.options, "image_release_version", typed="--release"),
                problem=f"is {plan.wanted}, but HyperPod has releases only for EKS clusters that were created in 2026 or later, "
                "and for groups with its own image",
                remedy="leave it out: HyperPod installs its latest image. For another image, name an AMI by --image-id",
            )


def _custom_images(preview: Preview) -> Iterator[Finding]:
    """UpdateClusterSoftware needs ImageId for a group with an AMI of its own (botocore). It would have no release."""
    if not any(has_versions(group) for group in preview.groups):
        return
    for plan in preview.needed:
        group = preview.group(plan)
        if plan.wanted == LATEST and group.image_id and not has_versions(group):
            yield Finding(
                code="patch-image-of-your-own",
                path=f"instance_groups[{plan.group}].image_id",
                problem=f"is missing, and the group runs an AMI of your own ({group.image_id})",
                remedy=f"name the new AMI there or by --image-id. --image-id {DEFAULT} installs HyperPod's latest image",
            )


def _path(plan: Plan, options: Options, setting: str, *, typed: str) -> str:
    return typed if options.release else f"instance_groups[{plan.group}].{setting}"


def _controller(preview: Preview) -> Iterator[Finding]:
    for plan in preview.plans:
        if plan.is_controller and not preview.options.controller:
            yield Finding(
                code="patch-controller-not-confirmed",
                path="--controller",
                problem=f"{plan.group} is the Slurm controller, and patching it may lose jobs and their history",
                remedy=f"read docs/patch.md, and run `cdk-hyperpod patch {plan.group} --controller`",
            )


def _alarms(preview: Preview) -> Iterator[Finding]:
    if preview.missing_alarms:
        yield Finding(
            code="patch-alarm-unknown",
            path="rolling.rollback_alarms",
            problem=f"CloudWatch has no alarm {', '.join(preview.missing_alarms)}",
            remedy="create it, or correct its name in the file",
        )


def _permission(preview: Preview) -> Iterator[Finding]:
    """It would show only after the drain."""
    if preview.needed and preview.may_update is False:
        yield Finding(
            code="patch-not-permitted",
            path="",
            problem="your credentials lack the permission sagemaker:UpdateClusterSoftware on the cluster, as IAM simulates it",
            remedy="add it to your role, or use other credentials (--profile NAME)",
        )


# -- who is at work -----------------------------------------------------------------------------------------------------


def _deployment(preview: Preview) -> Iterator[Finding]:
    if preview.deployment:
        yield Finding(
            code="patch-stack-in-progress",
            path="",
            problem=f"a deployment is changing stack {preview.deployment}",
            remedy="wait until it is over (`cdk-hyperpod watch`), then patch",
        )


def _guard(preview: Preview) -> Iterator[Finding]:
    held = preview.report.held_by_deployment
    if held:
        yield Finding(
            code="patch-guard-at-work",
            path="",
            problem=f"a deployment holds {some(sorted(held), SHOWN)}",
            remedy="wait until it is over. If it failed, its nodes are released within two hours, or by the next deployment",
        )


def _cluster(preview: Preview) -> Iterator[Finding]:
    is_following = any(preview.group(plan).is_updating for plan in preview.needed)
    if preview.cluster_status in ("InService", "Failed") or is_following:
        return
    yield Finding(
        code="patch-cluster-not-in-service",
        path="",
        problem=f"the cluster is in status {preview.cluster_status}",
        remedy="wait until it is InService (`cdk-hyperpod watch`), then patch",
    )


def _other_update(preview: Preview) -> Iterator[Finding]:
    """Only the update of an unfinished run is followed: its end decides whether the group is patched."""
    for plan in preview.needed:
        group = preview.group(plan)
        if not group.is_updating or group.name in preview.updating:
            continue
        to = f" to {group.coming[-1]}" if group.coming else ""
        shown = group.software or SYSTEM_UPDATING
        yield Finding(
            code="patch-other-update",
            path=f"instance_groups[{plan.group}]",
            problem=f"an update{to} is in progress ({shown}), which this command did not send",
            remedy="wait until it is over (`cdk-hyperpod watch`), then patch",
        )


def _left_behind(preview: Preview) -> Iterator[Finding]:
    """Their nodes would be released, and jobs would start that end with the old image."""
    needed = {plan.group for plan in preview.needed}
    for group in preview.groups:
        if group.name in preview.held - needed:
            yield Finding(
                code="patch-unfinished",
                path="GROUP",
                problem=f"an earlier run has not seen the end of the update of {group.name}, and holds its nodes",
                remedy=f"name {group.name}, too, and the same image; or end its hold by `cdk-hyperpod drain --release`",
            )


def _minimum(preview: Preview) -> Iterator[Finding]:
    for plan in preview.needed:
        group = preview.group(plan)
        if group.current < group.minimum and group.status in ("Creating", "Updating"):
            yield Finding(
                code="patch-below-minimum",
                path=f"instance_groups[{plan.group}].min_instance_count",
                problem=f"the group has {group.current} of at least {group.minimum} nodes, and HyperPod updates no such group",
                remedy="wait for the nodes, or lower the minimum and deploy (docs/capacity.md)",
            )


def _health_checks(preview: Preview) -> Iterator[Finding]:
    for plan in preview.needed:
        checked = [node.id for node in preview.group(plan).nodes if node.status == "DeepHealthCheckInProgress"]
        if checked:
            yield Finding(
                code="patch-deep-health-check",
                path=f"instance_groups[{plan.group}]",
                problem=f"deep health checks run on {some(checked, SHOWN)}",
                remedy="wait until they are over (an hour or more), then patch",
            )


# -- what drains --------------------------------------------------------------------------------------------------------

_UNDRAINED = "To patch without draining, add --no-drain: then all jobs on these nodes end"


def _agent(preview: Preview) -> Iterator[Finding]:
    if not preview.drains(DrainedBy.AGENT):
        return
    if not preview.has_channel:
        yield Finding(
            code="patch-without-drain-agent",
            path="slurm.drain",
            problem="is missing, so nothing drains the nodes before their images are replaced",
            remedy=f"add `slurm: {{drain: {{}}}}` and deploy. {_UNDRAINED}",
        )
    elif preview.report.silence:
        yield Finding(
            code="patch-drain-agent-silent",
            path="slurm.drain",
            problem=f"the drain agent on the controller {preview.report.silence}",
            remedy=f"start it by `cdk-hyperpod lifecycle run drain | bash`. {_UNDRAINED}",
        )
    elif preview.must_save and not preview.report.saves:
        yield Finding(
            code="patch-drain-agent-saves-nothing",
            path="slurm.drain.backup",
            problem="is set, but the drain agent was started before, and would save nothing",
            remedy="restart it by `cdk-hyperpod lifecycle run drain | bash`",
        )


def _drainer(preview: Preview) -> Iterator[Finding]:
    plans = preview.drains(DrainedBy.DRAINER)
    if not plans:
        return
    if not preview.has_channel:
        nodes = [f"hyperpod-{node.id}" for plan in plans for node in preview.group(plan).with_jobs]
        names = " ".join(nodes if len(nodes) <= SHOWN else [*nodes[:SHOWN], "…"])
        yield Finding(
            code="patch-without-drainer",
            path="scale_down.drain",
            problem="is missing, so nothing drains the nodes before their images are replaced",
            remedy="add it and deploy, or set `rolling` for the group. To drain by hand, run "
            f"`kubectl drain {names} --ignore-daemonsets --delete-emptydir-data`, and add --no-drain",
        )
    elif preview.report.silence:
        yield Finding(
            code="patch-drainer-silent",
            path="scale_down.drain",
            problem=f"the drainer {preview.report.silence}",
            remedy="read its log (docs/drain-eks-messages.md), then patch",
        )
    elif preview.must_save and not preview.report.saves:
        yield Finding(
            code="patch-drainer-saves-nothing",
            path="scale_down.drain.backup_cron_job",
            problem="is set, but the deployed drainer would save nothing",
            remedy="deploy the file, then patch",
        )


def _other_run(preview: Preview) -> Iterator[Finding]:
    if preview.report.other_run:
        yield Finding(
            code="patch-already-running",
            path="",
            problem=f"another `cdk-hyperpod patch` of this cluster holds nodes (run {preview.report.other_run})",
            remedy="wait until it ends. If it was killed, try again in 10 minutes",
        )


_RULES: tuple[Callable[[Preview], Iterator[Finding]], ...] = (
    _unknown_groups,
    _releases_under_slurm,
    _has_no_releases,
    _custom_images,
    _controller,
    _alarms,
    _permission,
    _deployment,
    _guard,
    _cluster,
    _other_update,
    _left_behind,
    _minimum,
    _health_checks,
    _agent,
    _drainer,
    _other_run,
)
