"""`cdk-hyperpod patch`: drain a group's nodes, let HyperPod replace their image, follow it, and put the nodes back to work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import rich_click as click

from ..._lambda.hyperpod.kernel.images import DEFAULT, is_release
from ...config.cluster import ClusterConfig
from ...errors import Finding, HyperPodError
from .. import live, tables
from ..live import LiveError, Target
from ..nodes.drain import parse_span
from ..options import config_option, json_option, permissions, profile_option, yes_option
from . import view
from .drains import DrainerDrains, Drains, nothing_drains, open_drains
from .model import LEASE_S, DrainedBy, Options, Plan, Report, Run
from .patcher import Outcome, Patcher
from .plans import left_out, make_plans, named_images, unknown_groups
from .reading import Reader
from .refusals import Preview, refuse
from .run_record import LocalRecord, choose_run, local_record, new_run
from .steps import DONE, IS_ROLLED_BACK

SCHEMA = 1
"""Version of what --json prints."""

_HELP = """\
Update the nodes of instance groups to a new image, without losing a job.

Examples:
    cdk-hyperpod patch --dry-run
    cdk-hyperpod patch work
    cdk-hyperpod patch work --release 1.3.0 --force-after 6h --yes

Group after group: it drains the nodes as `drain` does, calls
UpdateClusterSoftware, follows it to its end, and puts the nodes back to work. The
first failure stops it. HyperPod replaces the root volumes and runs the lifecycle
scripts again; a Slurm group goes at once, a group with `rolling` in batches.

Without GROUP, all groups are patched, but the Slurm controller only with
--controller. The image is that of --release or --image-id, else the file's
(`image_release_version`, `image_id`), else HyperPod's latest one.

If it is killed, the same command goes on from what is live. Ctrl-C releases the
nodes, unless HyperPod may be replacing their image: then they stay held, at most
until the time that it printed. What a command holds that died before the update
is released after 10 minutes: by the drain agent under Slurm, and under EKS by the
next call of this command.

Exit code 0: patched, or nothing to patch. 3: HyperPod put the old image back. 4:
failed, not confirmed, or the time of --drain-for is over; the message names the
nodes that are left on the old image. 1: refused, and nothing was changed.
docs/patch.md has the steps of a patch day.
"""


@click.command(
    help=_HELP,
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:UpdateClusterSoftware"),
        *("cloudformation:DescribeStacks", "sagemaker:ListTags"),
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket", "kms:Decrypt", "kms:GenerateDataKey"),
        *("sagemaker:DescribeClusterNode", "lambda:InvokeFunction", "cloudwatch:DescribeAlarms"),
        *("sagemaker:ListClusterEvents", "sagemaker:DescribeClusterEvent", "iam:SimulatePrincipalPolicy"),
        "ec2:DescribeImages",
        besides="Under Slurm those of S3 and KMS are needed on the drain bucket and its key, under EKS InvokeFunction on the "
        "drainer. DescribeAlarms is needed for `rolling.rollback_alarms`, ListTags if another app has the cluster, "
        "DescribeClusterNode for nodes whose name has no address. Those for events show why an update failed. "
        "SimulatePrincipalPolicy, on your own role, finds a missing UpdateClusterSoftware before the drain, and DescribeImages an AMI that the nodes cannot run.",
    ),
)
@click.argument("groups", nargs=-1, metavar="[GROUP]…")
@click.option("--release", metavar="X.Y.Z", help="The release of HyperPod's image. EKS clusters created since 2026.")
@click.option(
    "--image-id",
    metavar="AMI",
    help="An AMI of your own, such as ami-0123456789abcdef0; or default, for HyperPod's latest.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and every reason against it. Changes nothing.")
@click.option(
    "--no-drain", is_flag=True, help="Do not drain: jobs end when HyperPod replaces the image of their nodes."
)
@click.option("--controller", is_flag=True, help="Patch the Slurm controller too, after all other groups.")
@click.option(
    "--drain-for",
    default="24h",
    metavar="TIME",
    help="How long it waits for a group's jobs, such as 90m; default: 24h, at most 24h. Then the nodes go back to work.",
)
@click.option(
    "--force-after",
    metavar="TIME",
    help="Requeue jobs that still run after TIME, and cancel those that cannot be requeued; under EKS their pods end with "
    "the image. Default: never.",
)
@yes_option
@json_option
@config_option
@profile_option
def patch(
    groups: Sequence[str],
    release: str | None,
    image_id: str | None,
    drain_for: str,
    force_after: str | None,
    config: str,
    profile: str | None,
    *,
    dry_run: bool,
    no_drain: bool,
    controller: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Read, decide, confirm, and act."""
    options = Options(
        groups=tuple(dict.fromkeys(groups)),
        release=release,
        image_id=image_id,
        drains=not no_drain,
        controller=controller,
        drain_for_s=parse_span(drain_for),
        force_s=None if force_after is None else parse_span(force_after),
    )
    _check_options(options, drain_for, force_after, yes=yes, dry_run=dry_run, as_json=as_json)
    target = live.find(config=config, cluster=None, region=None, profile=profile)
    command = _Command(target, options, _Printer(as_json=as_json), yes=yes)
    return command.show() if dry_run else command.run()


def _check_options(
    options: Options, drain_for: str, force_after: str | None, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Raises UsageError with every rule that the options break."""
    force_s = options.force_s
    rules = (
        (options.release is not None and options.image_id is not None, "--release: cannot be combined with --image-id"),
        (
            options.release is not None and not is_release(options.release),
            f"--release: must be a release such as 1.3.0, got {options.release!r}",
        ),
        (
            options.image_id is not None and not _is_image(options.image_id),
            f"--image-id: must be an AMI such as ami-0123456789abcdef0, or {DEFAULT}, got {options.image_id!r}",
        ),
        (
            options.drain_for_s == 0,
            f"--drain-for: must be minutes or hours such as 90m or 12h, at most 24h, got {drain_for!r}",
        ),
        (force_s == 0, f"--force-after: must be minutes or hours such as 90m or 12h, at most 24h, got {force_after!r}"),
        (
            force_s is not None and 0 < options.drain_for_s < force_s,
            f"--force-after: is {force_after}, which is later than the end of --drain-for {drain_for}",
        ),
        (force_s is not None and not options.drains, "--force-after: cannot be combined with --no-drain"),
        (as_json and not (yes or dry_run), "--json: needs --yes or --dry-run, because it asks no question"),
    )
    broken = [message for is_broken, message in rules if is_broken]
    if broken:
        raise click.UsageError("\n".join(broken))


def _is_image(text: str) -> bool:
    import re

    return re.fullmatch(r"ami-[0-9a-f]{8,17}|default", text) is not None


class PatchRefusedError(HyperPodError):
    """Nothing was changed."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(
            "\n".join(["nothing was changed:", *(f"  {tables.shown(finding, 4000)}" for finding in findings)])
        )


@dataclass(frozen=True, slots=True)
class _Printer:
    """Prints lines for people, or a document a line for programs."""

    as_json: bool

    def emit(self, kind: str, lines: Sequence[str], content: Mapping[str, Any]) -> None:
        if self.as_json:
            tables.say_json("patch", SCHEMA, {"kind": kind, **content}, indent=None)
        else:
            tables.say(*lines)


class _Command:
    """One call of the command."""

    _drains: Drains

    def __init__(self, target: Target, options: Options, printer: _Printer, *, yes: bool) -> None:
        assert target.config is not None
        self._config: ClusterConfig = target.config
        self._target = target
        self._options = options
        self._printer = printer
        self._yes = yes
        self._reader = Reader(self._target)

    def show(self) -> int:
        """Show what would be done. Returns the exit code."""
        described = live.describe(self._target)
        self._drains = open_drains(self._target, self._config, described)
        preview = self._preview(described, None, self._held(self._drains.shared()))
        self._show_or_refuse(preview)
        return DONE

    def run(self) -> int:
        """Patch. Returns the exit code."""
        described = live.describe(self._target)
        account = str(described["ClusterArn"]).split(":")[4]
        with local_record(account, self._target.region, self._target.name) as local:
            self._drains = open_drains(self._target, self._config, described)
            shared = self._drains.shared()
            held = self._held(shared or local.read())
            unfinished = self._choose(local, shared, self._drains.now())
            if isinstance(self._drains, DrainerDrains):
                self._drains = DrainerDrains(self._target, self._config, unfinished.id)
            preview = self._preview(described, unfinished, held)
            self._show_or_refuse(preview)
            needed = preview.needed
            if not needed:
                return self._say_nothing_needed(local, unfinished)
            is_confirmed = self._confirm(preview)
            # Others see the claim at once, and this machine has to know that it is its own.
            local.write(unfinished)
            run = self._drains.claim(lambda shared, now: self._choose(local, shared, now, unfinished))
            local.write(run)
            with _ended_by_signals():
                return self._carry_out(self._patcher(local, run, is_confirmed), needed)

    def _carry_out(self, patcher: Patcher, needed: Sequence[Plan]) -> int:
        try:
            return self._say_end(patcher.patch(needed))
        except KeyboardInterrupt:
            if patcher.has_released:
                tables.complain(
                    "",
                    "no node is held. An update that HyperPod has begun goes on. The same command goes on from there",
                )
            raise

    def _choose(self, local: LocalRecord, shared: Run | None, now: float, fresh: Run | None = None) -> Run:
        made = fresh or new_run(local, wanted=named_images(self._options, self._config), typed=self._options.groups)
        return choose_run(shared, local.read(), replace(made, until=now + LEASE_S), now)

    def _say_nothing_needed(self, local: LocalRecord, unfinished: Run) -> int:
        if unfinished.groups:
            run = self._drains.claim(lambda shared, now: self._choose(local, shared, now, unfinished))
            self._drains.release(run, finished=True)
        local.write(None)
        self._printer.emit("end", ["nothing to patch"], _end_content(Outcome(code=DONE)))
        return DONE

    def _patcher(self, local: LocalRecord, run: Run, is_confirmed: bool) -> Patcher:
        return Patcher(
            reader=self._reader,
            drains=self._drains,
            local=local,
            run=run,
            options=self._options,
            must_save=_must_save(self._config),
            needs_empty_queue=not is_confirmed,
            emit=self._printer.emit,
        )

    # -- what is read -------------------------------------------------------------------------------------------------

    @property
    def _has_drainer(self) -> bool:
        return self._config.scale_down is not None and self._config.scale_down.drain is not None

    def _held(self, earlier: Run | None) -> frozenset[str]:
        now = self._drains.now()
        return frozenset() if earlier is None else frozenset(earlier.held(now))

    def _preview(self, described: live.Reply, run: Run | None, held: frozenset[str]) -> Preview:
        groups = self._reader.groups(described)
        by_name = {str(group["InstanceGroupName"]): group for group in live.groups(described)}
        plans = make_plans(self._options, self._config, groups, by_name, {} if run is None else run.groups)
        deployment = self._reader.deployment(described)
        report = self._look(described, plans, holds_nodes=run is not None and bool(run.groups))
        begun = () if run is None or not run.groups else (*run.typed, *run.groups)
        unknown = unknown_groups(self._options, groups)
        gone = [name for name in unknown if name in begun]
        may_update, unknown_why = self._may_update(described, plans)
        wrong_images, unread = self._reader.wrong_images(plans)
        unread_notes = {
            "whether you may call UpdateClusterSoftware is unknown": unknown_why,
            "whether the AMI fits the instance types is unknown": unread,
        }
        notes = [
            *(f"{what}: {why}" for what, why in unread_notes.items() if why),
            *(f"{name} was deleted meanwhile" for name in gone),
            *(
                f"{name} is not patched: it is the Slurm controller. Add --controller (docs/patch.md)"
                for name in left_out(self._options, groups)
            ),
        ]
        return Preview(
            cluster=self._target.name,
            options=self._options,
            plans=plans,
            groups=groups,
            unknown=[name for name in unknown if name not in gone],
            is_eks=self._config.orchestrator == "eks",
            created=described.get("CreationTime"),
            cluster_status=tables.shown(described["ClusterStatus"], 100),
            deployment=deployment,
            report=report,
            has_channel=self._drains.exists,
            must_save=_must_save(self._config),
            updating=frozenset() if run is None else run.updating,
            held=held,
            missing_alarms=self._reader.missing_alarms(plans),
            wrong_images=wrong_images,
            may_update=may_update,
            notes=notes,
        )

    def _look(self, described: live.Reply, plans: Sequence[Plan], *, holds_nodes: bool) -> Report:
        """What the agent or the drainer reports, if it has a part in this run."""
        if not isinstance(self._drains, DrainerDrains):
            return self._drains.look()
        is_drained = any(plan.is_needed and plan.drained_by in (DrainedBy.AGENT, DrainedBy.DRAINER) for plan in plans)
        # Also if nothing is drained: the drainer releases what a killed run has left only when it is called.
        report = self._drains.look() if is_drained or self._has_drainer else Report()
        if not is_drained and not holds_nodes:
            # It has nothing to drain, so it does not have to exist.
            self._drains = nothing_drains(described)
        return report

    def _may_update(self, described: live.Reply, plans: Sequence[Plan]) -> tuple[bool | None, str]:
        if not any(plan.is_needed for plan in plans):
            return None, ""
        return self._reader.may_update(described)

    # -- what is shown and confirmed ----------------------------------------------------------------------------------

    def _show_or_refuse(self, preview: Preview) -> None:
        findings = refuse(preview)
        self._show(preview, findings)
        if findings:
            raise PatchRefusedError(findings)

    def _show(self, preview: Preview, findings: Sequence[Finding]) -> None:
        colour = tables.colour_wanted() and not self._printer.as_json
        table = view.table(preview.plans, preview.groups, preview.report, columns=tables.width(), colour=colour)
        lines = [
            *(table if preview.plans else ()),
            *view.intentions(preview.plans, preview.groups, self._options),
            *(f"note: {note}" for note in preview.notes),
        ]
        content = {
            "cluster": self._target.name,
            "region": self._target.region,
            "groups": view.content(preview.plans, preview.groups, preview.report),
            "refusals": [
                {"code": each.code, "path": each.path, "problem": each.problem, "remedy": each.remedy}
                for each in findings
            ],
            "notes": list(preview.notes),
        }
        self._printer.emit("table", lines, content)

    def _confirm(self, preview: Preview) -> bool:
        """Whether the user has confirmed what the controller loses. Raises LiveError unless all is confirmed."""
        needed = [plan for plan in preview.needed if not preview.group(plan).is_updating]
        for plan in needed:
            if plan.older:
                self._type(
                    plan.group, [f"{plan.group} runs {plan.older}, and {plan.wanted} is older. Its fixes are lost."]
                )
        controller = next((plan for plan in needed if plan.is_controller), None)
        is_typed = controller is not None and not self._keeps_the_queue(preview.report)
        if controller is not None and is_typed:
            self._type(controller.group, view.LOST_WITH_THE_CONTROLLER)
        if self._yes or is_typed or any(plan.older for plan in needed):
            return is_typed
        self._type(self._target.name, [])
        return False

    def _keeps_the_queue(self, report: Report) -> bool:
        """Whether the controller loses nothing: no job runs or waits, and the history is in a database."""
        slurm = self._config.slurm
        has_database = slurm is not None and slurm.accounting_database is not None
        return has_database and report.queue == 0 and not report.silence

    def _type(self, name: str, lines: Sequence[str]) -> None:
        """Raises LiveError unless the user types the name. --yes does not answer for what cannot be undone."""
        if self._printer.as_json or not sys.stdin.isatty():
            terminal = "Run it on a terminal, without --json" if self._printer.as_json else "Run it on a terminal"
            way = terminal if lines else "To go on without confirmation, add --yes"
            raise LiveError("\n".join(["nothing was changed: there is no terminal to confirm on", *lines, way]))
        tables.say(*lines)
        tables.print_question(f"Type {name} to go on: ")
        if sys.stdin.readline().strip() != name:
            raise LiveError("nothing was changed")

    def _say_end(self, outcome: Outcome) -> int:
        self._printer.emit("end", [*_end_lines(outcome)], _end_content(outcome))
        if outcome.code != DONE and not self._printer.as_json:
            tables.complain(*_failure_lines(outcome))
        return outcome.code


def _end_lines(outcome: Outcome) -> Iterator[str]:
    if outcome.patched:
        yield f"patched: {', '.join(outcome.patched)}"


def _failure_lines(outcome: Outcome) -> Iterator[str]:
    yield f"{'rolled back' if outcome.code == IS_ROLLED_BACK else 'failed'}: {tables.shown(outcome.why)}"
    yield from (f"  {tables.shown(reason)}" for reason in outcome.reasons)
    if outcome.on_old_image:
        yield f"on the old image: {', '.join(outcome.on_old_image)}"
    if outcome.left:
        yield f"not patched: {', '.join(outcome.left)}. Run the same command again to go on with them"


def _end_content(outcome: Outcome) -> dict[str, Any]:
    return {
        "exit_code": outcome.code,
        "text": outcome.why or None,
        "patched": list(outcome.patched),
        "not_patched": list(outcome.unpatched),
        "on_old_image": list(outcome.on_old_image),
        "reasons": list(outcome.reasons),
    }


def _must_save(config: ClusterConfig) -> bool:
    """Whether a node that could not be saved keeps its image."""
    if config.orchestrator == "eks":
        drain = config.scale_down.drain if config.scale_down else None
        return drain is not None and drain.backup_cron_job is not None
    backup = config.slurm.drain.backup if config.slurm and config.slurm.drain else None
    return backup is not None and backup.on_failure == "fail"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A lost terminal or an end of the session is like Ctrl-C: what is held is released."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # nohup lets the command live on without its terminal.
    wanted = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
