"""What `patch` does next with a group, from what is live. Pure.

The rules of RULES are tried in their order, and the first that applies decides. The order is the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..._lambda.hyperpod.common.drain_protocol import NO_INSTANCE, NodeStatus
from ..._lambda.hyperpod.common.sentences import join_clauses, some
from .images import is_updated_since, left_on_old_image
from .model import FAILED, ROLLED_BACK, SUCCEEDED, Group, Node, Plan, Progress, Report, Terms, Way

DONE, REFUSED, IS_ROLLED_BACK, HAS_FAILED = 0, 1, 3, 4
"""Exit codes of `patch`."""
SETTLE_S = 180.0
"""How long HyperPod may take to show an update that it has accepted."""
SILENT_LIMIT_S = 600.0
"""How long a drain goes on without an answer of the agent or the drainer. systemd restarts the agent within seconds."""
JOIN_S = 300.0
"""How long a node that the agent refuses, or that Kubernetes does not have, is waited for: it may just have been launched."""
SHOWN = 3
"""Names that a message shows."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""

    why: str
    doubts: bool = False
    """HyperPod reports success, and nodes on the old image. Its reports may differ for a moment."""


@dataclass(frozen=True, slots=True)
class Relist:
    """List the group's nodes again, and decide anew."""


@dataclass(frozen=True, slots=True)
class Update:
    """Send UpdateClusterSoftware."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The group is patched: release its nodes."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Release the nodes, and end with this exit code."""

    code: int
    why: str
    left: tuple[str, ...] = ()
    """Nodes on the old image, if some of the group have the new one."""


Step = Wait | Relist | Update | Finish | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that decides about a group at one look."""

    plan: Plan
    group: Group | None
    """None: it does not exist any more."""
    progress: Progress
    report: Report
    terms: Terms
    now: float
    deployment: str = ""
    """The stack that a deployment is changing. Empty: none."""
    fresh: bool = False
    """The nodes were listed at this look."""
    may_list: bool = True
    """Another list is due: those of large groups cost many calls."""
    is_resized: bool = False
    """The group's counts have changed since its nodes were listed."""
    doubted: bool = False
    """The look before found nodes on the old image, too."""
    must_save: bool = False
    """A node that is not saved is not ready."""
    needs_empty_queue: bool = False
    """The user has not confirmed what the controller loses."""


def next_step(case: Case) -> Step:
    """The next step, by the first rule that applies."""
    for rule in RULES:
        step = rule(case)
        if step is not None:
            return step
    return Update()


# -- the update -------------------------------------------------------------------------------------------------------


def _is_gone(case: Case) -> Step | None:
    if case.group is not None and case.group.status != "Deleting":
        return None
    return Stop(HAS_FAILED, f"{case.plan.group}: the group was deleted meanwhile")


def _follow(case: Case) -> Step | None:
    group = _group(case)
    if not group.is_updating:
        return None
    if group.software == "RollbackInProgress":
        return Wait("HyperPod puts the old image back")
    return Wait(f"HyperPod replaces the image of {_nodes(group.current)} ({group.software or group.status})")


def _await_the_update(case: Case) -> Step | None:
    """HyperPod has accepted the call, and does not show it yet."""
    progress = case.progress
    is_shown = progress.seen or _group(case).software != progress.before
    if progress.sent is None or not progress.accepted or is_shown:
        return None
    if case.now - progress.sent < SETTLE_S:
        return Wait("HyperPod has accepted the update, and has not begun it yet")
    return None


def _is_rolled_back(case: Case) -> Step | None:
    if not _has_ended(case, ROLLED_BACK):
        return None
    why = f"{case.plan.group}: HyperPod has put the old image back"
    return Stop(IS_ROLLED_BACK, why, _left(case))


def _has_failed(case: Case) -> Step | None:
    if not _has_ended(case, FAILED):
        return None
    why = f"{case.plan.group}: the update failed, and so did HyperPod's rollback"
    return Stop(HAS_FAILED, why, _left(case))


def _is_patched(case: Case) -> Step | None:
    """HyperPod may skip nodes (PodDisruptionBudgets) and report success all the same. So the nodes are listed."""
    if not _has_ended(case, SUCCEEDED, None):
        return None
    if not case.fresh:
        return Relist()
    left = _left(case)
    if left and not case.doubted:
        return Wait(f"{_nodes(len(left))} on the old image, though HyperPod reports success", doubts=True)
    if left:
        why = f"{case.plan.group}: HyperPod has skipped {_nodes(len(left))}"
        return Stop(HAS_FAILED, why, left)
    is_untouched = not case.progress.seen and _group(case).software == case.progress.before
    return Finish("HyperPod had nothing to update" if is_untouched else "")


def _has_ended(case: Case, *statuses: str | None) -> bool:
    """Whether this run's update has ended like this. A call that may not have arrived is sent again."""
    return _group(case).software in statuses and has_arrived(case.progress, _group(case))


def has_arrived(progress: Progress, group: Group) -> bool:
    """Whether HyperPod got the call. A process that was killed may not have seen its answer."""
    if progress.sent is None:
        return False
    if progress.accepted or progress.seen or group.software != progress.before:
        return True
    return is_updated_since(progress.sent, group)


def _left(case: Case) -> tuple[str, ...]:
    if case.progress.sent is None:
        return ()
    return tuple(left_on_old_image(case.plan.wanted, _group(case), case.progress.sent))


# -- others -----------------------------------------------------------------------------------------------------------


def _yields_to_a_deployment(case: Case) -> Step | None:
    if not case.deployment:
        return None
    return Stop(HAS_FAILED, f"a deployment of stack {case.deployment} has begun. Patch again when it is over")


def _yields_to_the_guard(case: Case) -> Step | None:
    if not case.report.held_by_deployment:
        return None
    nodes = some(sorted(case.report.held_by_deployment), SHOWN)
    return Stop(HAS_FAILED, f"a deployment drains {nodes}. Patch again when it is over")


def _awaits_hyperpod(case: Case) -> Step | None:
    """HyperPod scales the group, for example. It would refuse the update."""
    group = _group(case)
    if group.status in ("InService", "Degraded", "Failed"):
        return None
    return _in_time(case, f"HyperPod is at work ({group.status})")


def _needs_an_empty_queue(case: Case) -> Step | None:
    if not case.needs_empty_queue or case.report.queue == 0:
        return None
    what = "is unknown" if case.report.queue is None else f"has {case.report.queue} jobs"
    return Stop(HAS_FAILED, f"{case.plan.group}: the queue {what}. Patch it when no job runs or waits")


def _needs_no_drain(case: Case) -> Step | None:
    return Update() if case.plan.way in (Way.NONE, Way.HYPERPOD) else None


# -- the drain --------------------------------------------------------------------------------------------------------


def _is_silent(case: Case) -> Step | None:
    report = case.report
    if not report.silence:
        return None
    if report.silent_s < SILENT_LIMIT_S:
        return _in_time(case, f"{case.plan.way.value} {report.silence}")
    return Stop(HAS_FAILED, f"{case.plan.group}: {case.plan.way.value} {report.silence}")


def _is_refused(case: Case) -> Step | None:
    if not case.report.refused:
        return None
    return Stop(HAS_FAILED, f"{case.plan.group}: {case.plan.way.value} refuses the request: {case.report.refused}")


def _needs_a_list(case: Case) -> Step | None:
    """HyperPod has replaced a node, or has added one."""
    if case.fresh or not case.may_list:
        return None
    is_replaced = any(_was_replaced(case.report.nodes.get(node.id)) for node in _group(case).running)
    return Relist() if is_replaced or case.is_resized else None


def _was_replaced(status: NodeStatus | None) -> bool:
    return (
        status is not None and status.state == "unknown" and (status.absent or status.message.startswith(NO_INSTANCE))
    )


def _cannot_be_drained(case: Case) -> Step | None:
    never = [f"{node.id}: {why}" for node in _group(case).running if (why := _why_never(node, case))]
    return Stop(HAS_FAILED, f"{case.plan.group}: {some(never, SHOWN)}") if never else None


def _drains(case: Case) -> Step | None:
    waits = {node.id: why for node in _group(case).running if (why := why_not_ready(node, case))}
    if not waits:
        return None
    shown = some([f"{node} {why}" for node, why in waits.items()], SHOWN)
    return _in_time(case, join_clauses(f"{_nodes(len(waits))} not ready: {shown}", case.report.problem))


def _confirms_the_list(case: Case) -> Step | None:
    """A node may have been launched since the nodes were listed."""
    return None if case.fresh else Relist()


def why_not_ready(node: Node, case: Case) -> str:
    """What keeps a node. Empty: it may be updated."""
    status = case.report.nodes.get(node.id)
    if status is None:
        return "has not been reported yet"
    if status.state == "ready":
        return _why_ready_waits(status, case)
    if status.state == "unknown" and _runs_nothing(node, status, case):
        return ""
    return _words(status)


def _why_ready_waits(status: NodeStatus, case: Case) -> str:
    """Under EKS a node may be reported as ready while pods run that end with it, and while its kubelet is silent."""
    if case.plan.way is not Way.DRAINER:
        return ""
    if status.running and case.now < case.terms.deadline:
        return _words(status)
    return f"is not saved: {_words(status)}" if case.must_save and not status.saved else ""


def _runs_nothing(node: Node, status: NodeStatus, case: Case) -> bool:
    if not status.absent:
        return False
    if case.plan.way is Way.AGENT:
        return True
    return case.now - max(case.progress.began, node.launched or 0.0) >= JOIN_S


def _why_never(node: Node, case: Case) -> str:
    """Why no wait helps. Empty: one may."""
    status = case.report.nodes.get(node.id)
    if status is None:
        return ""
    if status.state == "backup-failed" and case.must_save:
        return _words(status)
    if status.state != "refused":
        return ""
    is_final = case.plan.way is Way.DRAINER or case.now - case.progress.began >= JOIN_S
    return _words(status) if is_final else ""


def _words(status: NodeStatus) -> str:
    return f"{status.state}: {status.message}" if status.message else status.state


def _in_time(case: Case, why: str) -> Step:
    """Wait, unless the time is over."""
    if case.now < case.terms.until:
        return Wait(why)
    return Stop(HAS_FAILED, f"{case.plan.group}: the time of --drain-for is over; {why}")


RULES: Sequence[Callable[[Case], Step | None]] = (
    _is_gone,
    _follow,
    _await_the_update,
    _is_rolled_back,
    _has_failed,
    _is_patched,
    _yields_to_a_deployment,
    _awaits_hyperpod,
    _needs_an_empty_queue,
    _needs_no_drain,
    _yields_to_the_guard,
    _is_silent,
    _is_refused,
    _needs_a_list,
    _cannot_be_drained,
    _drains,
    _confirms_the_list,
)
"""None of them applies: the group is updated."""


def _group(case: Case) -> Group:
    if case.group is None:
        raise AssertionError  # _is_gone comes first
    return case.group


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
