"""Why `patch` refuses to begin: every reason at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..._lambda.hyperpod.kernel.images import DEFAULT, VERSIONED_SINCE, is_release
from ..._lambda.hyperpod.kernel.sentences import some
from ...errors import Finding
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
    wrong_images: Mapping[str, str] = field(default_factory=dict)
    """Group -> why its nodes cannot run its AMI."""
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


Row = tuple[object, Finding]
"""Whether a reason applies, and its words."""


def refuse(preview: Preview) -> list[Finding]:
    """Every reason, in the order of the tables."""
    rows = (
        *_of_options(preview),
        *(row for plan in preview.plans for row in _of_plan(preview, plan, preview.group(plan))),
        *_of_others(preview),
        *(row for plan in preview.needed for row in _of_group(preview, plan, preview.group(plan))),
        *_of_agent(preview),
        *_of_drainer(preview),
    )
    return [finding for applies, finding in rows if applies]


def _of_options(preview: Preview) -> Iterator[Row]:
    """What was typed, and what the credentials may do: that would show only after the drain."""
    unknown = ", ".join(map(ascii, preview.unknown))
    groups = ", ".join(group.name for group in preview.groups) or "none"
    yield (
        preview.unknown,
        Finding(
            code="patch-group-unknown",
            path="GROUP",
            problem=f"{unknown}: is not a group of cluster {preview.cluster}",
            remedy=f"its groups are {groups}",
        ),
    )
    yield (
        not preview.is_eks and preview.options.release,
        Finding(
            code="patch-release-under-slurm",
            path="--release",
            problem="HyperPod has no releases of images under Slurm",
            remedy="leave it out: HyperPod installs its latest image. For another image, name an AMI by --image-id",
        ),
    )
    yield (
        preview.missing_alarms,
        Finding(
            code="patch-alarm-unknown",
            path="rolling.rollback_alarms",
            problem=f"CloudWatch has no alarm {', '.join(preview.missing_alarms)}",
            remedy="create it, or correct its name in the file",
        ),
    )
    yield (
        preview.needed and preview.may_update is False,
        Finding(
            code="patch-not-permitted",
            path="",
            problem="your credentials lack the permission sagemaker:UpdateClusterSoftware on the cluster, as IAM simulates it",
            remedy="add it to your role, or use other credentials (--profile NAME)",
        ),
    )


def _of_plan(preview: Preview, plan: Plan, group: Group) -> Iterator[Row]:
    """The image of a group, and whether it is the controller."""
    file, options = f"instance_groups[{plan.group}]", preview.options
    # HyperPod keeps releases of EKS clusters that were created since 2026.
    is_old = preview.created is not None and preview.created < VERSIONED_SINCE
    yield (
        preview.is_eks and is_release(plan.wanted) and (is_old or not group.image),
        Finding(
            code="patch-cluster-without-releases",
            path="--release" if options.release else f"{file}.image_release_version",
            problem=f"is {plan.wanted}, but HyperPod has releases only for EKS clusters that were created in 2026 or later, "
            "and for groups with its own image",
            remedy="leave it out: HyperPod installs its latest image. For another image, name an AMI by --image-id",
        ),
    )
    # UpdateClusterSoftware needs ImageId for a group with an AMI of its own (botocore). It would have no release.
    is_own = plan.wanted == LATEST and group.image_id and not group.image and any(each.image for each in preview.groups)
    yield (
        plan.is_needed and is_own,
        Finding(
            code="patch-image-of-your-own",
            path=f"{file}.image_id",
            problem=f"is missing, and the group runs an AMI of your own ({group.image_id})",
            remedy=f"name the new AMI there or by --image-id. --image-id {DEFAULT} installs HyperPod's latest image",
        ),
    )
    why = preview.wrong_images.get(plan.group)
    yield (
        why,
        Finding(
            code="patch-image-wrong",
            path="--image-id" if options.image_id else f"{file}.image_id",
            problem=f"{why}",
            remedy="name an AMI of your account and of this region that is built for the instance type",
        ),
    )
    yield (
        plan.is_controller and not options.controller,
        Finding(
            code="patch-controller-not-confirmed",
            path="--controller",
            problem=f"{plan.group} is the Slurm controller, and patching it may lose jobs and their history",
            remedy=f"read docs/patch.md, and run `cdk-hyperpod patch {plan.group} --controller`",
        ),
    )


def _of_others(preview: Preview) -> Iterator[Row]:
    """Who else is at work."""
    yield (
        preview.deployment,
        Finding(
            code="patch-stack-in-progress",
            path="",
            problem=f"a deployment is changing stack {preview.deployment}",
            remedy="wait until it is over (`cdk-hyperpod watch`), then patch",
        ),
    )
    held, run = preview.report.held_by_deployment, preview.report.other_run
    yield (
        held,
        Finding(
            code="patch-guard-at-work",
            path="",
            problem=f"a deployment holds {some(sorted(held), SHOWN)}",
            remedy="wait until it is over. If it failed, its nodes are released within two hours, or by the next deployment",
        ),
    )
    is_following = any(preview.group(plan).is_updating for plan in preview.needed)
    yield (
        preview.cluster_status not in ("InService", "Failed") and not is_following,
        Finding(
            code="patch-cluster-not-in-service",
            path="",
            problem=f"the cluster is in status {preview.cluster_status}",
            remedy="wait until it is InService (`cdk-hyperpod watch`), then patch",
        ),
    )
    yield (
        run,
        Finding(
            code="patch-already-running",
            path="",
            problem=f"another `cdk-hyperpod patch` of this cluster holds nodes (run {run})",
            remedy="wait until it ends. If it was killed, try again in 10 minutes",
        ),
    )
    # Their nodes would be released, and jobs would start that end with the old image.
    left = preview.held - {plan.group for plan in preview.needed}
    for group in preview.groups:
        yield (
            group.name in left,
            Finding(
                code="patch-unfinished",
                path="GROUP",
                problem=f"an earlier run has not seen the end of the update of {group.name}, and holds its nodes",
                remedy=f"name {group.name}, too, and the same image; or end its hold by `cdk-hyperpod drain --release`",
            ),
        )


def _of_group(preview: Preview, plan: Plan, group: Group) -> Iterator[Row]:
    """What HyperPod does with a group that is to be patched."""
    file, to = f"instance_groups[{plan.group}]", f" to {group.coming[-1]}" if group.coming else ""
    shown = group.software or SYSTEM_UPDATING
    # Only the update of an unfinished run is followed: its end decides whether the group is patched.
    yield (
        group.is_updating and group.name not in preview.updating,
        Finding(
            code="patch-other-update",
            path=file,
            problem=f"an update{to} is in progress ({shown}), which this command did not send",
            remedy="wait until it is over (`cdk-hyperpod watch`), then patch",
        ),
    )
    yield (
        group.current < group.minimum and group.status in ("Creating", "Updating"),
        Finding(
            code="patch-below-minimum",
            path=f"{file}.min_instance_count",
            problem=f"the group has {group.current} of at least {group.minimum} nodes, and HyperPod updates no such group",
            remedy="wait for the nodes, or lower the minimum and deploy (docs/capacity.md)",
        ),
    )
    checked = [node.name for node in group.nodes if node.status == "DeepHealthCheckInProgress"]
    yield (
        checked,
        Finding(
            code="patch-deep-health-check",
            path=file,
            problem=f"deep health checks run on {some(checked, SHOWN)}",
            remedy="wait until they are over (an hour or more), then patch",
        ),
    )


_UNDRAINED = "To patch without draining, add --no-drain: then all jobs on these nodes end"


def _of_agent(preview: Preview) -> Iterator[Row]:
    is_needed, silence = bool(preview.drains(DrainedBy.AGENT)), preview.report.silence
    answers = is_needed and preview.has_channel and not silence
    yield (
        is_needed and not preview.has_channel,
        Finding(
            code="patch-without-drain-agent",
            path="slurm.drain",
            problem="is missing, so nothing drains the nodes before their images are replaced",
            remedy=f"add `slurm: {{drain: {{}}}}` and deploy. {_UNDRAINED}",
        ),
    )
    yield (
        is_needed and preview.has_channel and silence,
        Finding(
            code="patch-drain-agent-silent",
            path="slurm.drain",
            problem=f"the drain agent on the controller {silence}",
            remedy=f"start it by `cdk-hyperpod lifecycle run drain | bash`. {_UNDRAINED}",
        ),
    )
    yield (
        answers and preview.must_save and not preview.report.saves,
        Finding(
            code="patch-drain-agent-saves-nothing",
            path="slurm.drain.backup",
            problem="is set, but the drain agent was started before, and would save nothing",
            remedy="restart it by `cdk-hyperpod lifecycle run drain | bash`",
        ),
    )


def _of_drainer(preview: Preview) -> Iterator[Row]:
    plans, silence = preview.drains(DrainedBy.DRAINER), preview.report.silence
    nodes = [f"hyperpod-{node.name}" for plan in plans for node in preview.group(plan).with_jobs]
    names = " ".join(nodes if len(nodes) <= SHOWN else [*nodes[:SHOWN], "…"])
    yield (
        plans and not preview.has_channel,
        Finding(
            code="patch-without-drainer",
            path="scale_down.drain",
            problem="is missing, so nothing drains the nodes before their images are replaced",
            remedy="add it and deploy, or set `rolling` for the group. To drain by hand, run "
            f"`kubectl drain {names} --ignore-daemonsets --delete-emptydir-data`, and add --no-drain",
        ),
    )
    yield (
        plans and preview.has_channel and silence,
        Finding(
            code="patch-drainer-silent",
            path="scale_down.drain",
            problem=f"the drainer {silence}",
            remedy="read its log (docs/drain-eks-messages.md), then patch",
        ),
    )
    answers = plans and preview.has_channel and not silence
    yield (
        answers and preview.must_save and not preview.report.saves,
        Finding(
            code="patch-drainer-saves-nothing",
            path="scale_down.drain.backup_cron_job",
            problem="is set, but the deployed drainer would save nothing",
            remedy="deploy the file, then patch",
        ),
    )
