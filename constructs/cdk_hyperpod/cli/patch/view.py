"""What `patch` prints before it begins: the table of groups, what it is going to do, and what a user has to confirm. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..._lambda.hyperpod.kernel.sentences import some
from .. import tables
from .model import FAILED, ROLLED_BACK, DrainedBy, Group, Options, Plan, Report

_HEADINGS = ("group", "nodes", "image", "wanted", "status", "what runs there")
_PAINT = {"Failed": tables.RED, "Degraded": tables.RED, "SystemUpdating": tables.YELLOW}
_SHOWN = 3
"""Jobs that a row shows."""
_UNKNOWN = "unknown"

LOST_WITH_THE_CONTROLLER = (
    "The new image replaces the controller's root volume. With it these are lost:",
    "  - the queue: every job that runs or waits, with its id and its output's place",
    "  - reservations, and what was changed by scontrol since Slurm began",
    "  - the history of jobs, users and limits, without slurm.accounting_database",
    "  - files in /home and elsewhere on the controller's own disk",
)
"""What the user confirms by typing the group's name. Each line fits a terminal."""


def table(
    plans: Sequence[Plan], groups: Sequence[Group], report: Report, *, columns: int | None, colour: bool
) -> list[str]:
    """A row for each group that is patched or could be."""
    rows = [_row(plan, _group(plan, groups), report) for plan in plans]
    return tables.table(
        _HEADINGS, rows, columns=columns, cut=(5, 0, 2, 3), right=(1,), paint=_PAINT if colour else None
    )


def _row(plan: Plan, group: Group, report: Report) -> tuple[str, ...]:
    wanted = plan.wanted if plan.is_needed else f"- ({plan.why_not})"
    return group.name, str(len(group.nodes)), image_of(group), wanted, status_of(group), _work(group, report)


def _group(plan: Plan, groups: Sequence[Group]) -> Group:
    return next(group for group in groups if group.name == plan.group)


def image_of(group: Group) -> str:
    """Its release, or else its AMI."""
    return group.image or group.image_id or _UNKNOWN


def status_of(group: Group) -> str:
    """The group's status, and that of an update that is under way or ended badly."""
    if group.is_updating or group.software in (ROLLED_BACK, FAILED):
        return f"{group.status}, update {group.software}" if group.software else group.status
    return group.status


def _work(group: Group, report: Report) -> str:
    if not group.nodes:
        return "-"
    busy = {node.name: report.busy[node.name] for node in group.nodes if node.name in report.busy}
    if not busy:
        is_known = report.is_read and not report.silence and group.node_type in (None, "Compute")
        return "nothing" if is_known else "-"
    jobs = list(dict.fromkeys(job for jobs in busy.values() for job in jobs))
    named = f": {some(jobs, _SHOWN)}" if jobs else ""
    return tables.shown(f"{len(busy)} {'node' if len(busy) == 1 else 'nodes'} busy{named}")


def intentions(plans: Sequence[Plan], groups: Sequence[Group], options: Options) -> Iterator[str]:
    """What happens to each group that is due, in order."""
    for number, plan in enumerate((plan for plan in plans if plan.is_needed), start=1):
        group = _group(plan, groups)
        yield f"{number}. {plan.group}: {_emptied(plan, group, options)}"


def _emptied(plan: Plan, group: Group, options: Options) -> str:
    if group.is_updating:
        return "follow the update that is under way"
    then = f"HyperPod installs {_image(plan.wanted)}"
    if plan.drained_by is DrainedBy.HYPERPOD:
        return f"{then} in batches, and evicts the pods of each"
    if plan.drained_by is DrainedBy.NONE:
        return f"{then} on all nodes at once. {_lost(plan)}"
    return f"{plan.drained_by.value} empties the nodes{_limit(options)}, then {then}"


def _image(wanted: str) -> str:
    return "its latest image" if wanted in ("latest", "default") else wanted


def _lost(plan: Plan) -> str:
    ends = {"Controller": "The queue stops meanwhile", "Login": "Sessions on them end"}
    return ends.get(plan.node_type or "", "Jobs that run there end")


def _limit(options: Options) -> str:
    hours = f" (at most {_time(options.drain_for_s)})"
    if options.force_s is None:
        return hours
    return f"{hours[:-1]}; jobs end after {_time(options.force_s)})"


def _time(seconds: int) -> str:
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}m"


def content(plans: Sequence[Plan], groups: Sequence[Group], report: Report) -> list[dict[str, Any]]:
    """The groups for --json."""
    return [_content(plan, _group(plan, groups), report) for plan in plans]


def _content(plan: Plan, group: Group, report: Report) -> dict[str, Any]:
    return {
        "group": group.name,
        "nodes": len(group.nodes),
        "image_release_version": group.image,
        "image_id": group.image_id,
        "image_version_status": group.image_status,
        "wanted": plan.wanted,
        "due": plan.is_needed,
        "why_not": plan.why_not or None,
        "status": group.status,
        "software_update_status": group.software,
        "emptied_by": plan.drained_by.name.lower(),
        "busy": {node.name: list(report.busy[node.name]) for node in group.nodes if node.name in report.busy},
    }
