"""What `patch` does next with a group, from what is live. Pure.

The rules of a phase are tried in their order, and the first that applies decides. The order is the specification: BEFORE the call
of UpdateClusterSoftware, and AFTER it. After the call no rule leads to another call, unless the first one has not arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..._lambda.hyperpod.common.drain_protocol import NO_INSTANCE, NodeStatus
from ..._lambda.hyperpod.common.sentences import join_clauses, some
from .evidence import Images, judge_images
from .model import ENDS, FAILED, ROLLED_BACK, SUCCEEDED, DrainedBy, Group, Hold, Node, Plan, Progress, Report

DONE, REFUSED, IS_ROLLED_BACK, HAS_FAILED = 0, 1, 3, 4
"""Exit codes of `patch`."""
SETTLE_S = 900.0
"""How long HyperPod may take to show an update that it has accepted, and nodes to report their image."""
DOUBT_S = 180.0
"""How long reports of HyperPod may differ, once it has reported success."""
QUIET_S = 5400.0
"""How long an update that reports no end may show no sign of work before it counts as over."""
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


@dataclass(frozen=True, slots=True)
class Relist:
    """List the group's nodes again, and decide anew."""


@dataclass(frozen=True, slots=True)
class Update:
    """Send UpdateClusterSoftware."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The call has not arrived: drain and send again."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The group is patched: release its nodes."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Release the nodes, and end with this exit code."""

    code: int
    why: str
    on_old_image: tuple[str, ...] = ()
    """Nodes on the old image, if some of the group have the new one."""


Step = Wait | Relist | Update | Resume | Finish | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that decides about a group at one look."""

    plan: Plan
    group: Group | None
    """None: it does not exist any more."""
    progress: Progress
    report: Report
    hold: Hold
    now: float
    deployment: str = ""
    """The stack that a deployment is changing. Empty: none."""
    fresh: bool = False
    """The nodes were listed at this look."""
    may_list: bool = True
    """Another list is due: those of large groups cost many calls."""
    earlier: Mapping[str, Node] = field(default_factory=dict)
    """Nodes of earlier lists that the last one does not have. They stay held."""
    foreign: str = ""
    """An update that this command did not send, as it was seen last."""
    worked: float = 0.0
    """When a sign of the update was seen last."""
    must_save: bool = False
    """A node that is not saved is not ready."""
    needs_empty_queue: bool = False
    """The user has not confirmed what the controller loses."""

    @property
    def live(self) -> Group:
        if self.group is None:
            raise AssertionError  # _is_gone comes first
        return self.group

    def stop(self, why: str, on_old_image: Sequence[str] = (), code: int = HAS_FAILED) -> Stop:
        return Stop(code, f"{self.plan.group}: {why}", tuple(on_old_image))


Rule = Callable[[Case], Step | None]


def next_step(case: Case) -> Step:
    """The next step, by the first rule that applies."""
    rules = BEFORE if case.progress.sent is None else AFTER
    for rule in (_is_gone, _needs_a_list, *rules):
        step = rule(case)
        if step is not None:
            return step
    return Update() if case.progress.sent is None else _judge_end(case)


def _is_gone(case: Case) -> Step | None:
    if case.group is not None and case.group.status != "Deleting":
        return None
    return case.stop("the group was deleted meanwhile")


def _needs_a_list(case: Case) -> Step | None:
    """HyperPod may have replaced a node, or have added one, with the counts as they were."""
    return Relist() if not case.fresh and case.may_list else None


# -- after the call -----------------------------------------------------------------------------------------------------


def _installs_another_image(case: Case) -> Step | None:
    """A release or an AMI was named, and HyperPod reports another one to come."""
    if not case.live.is_updating or case.live.is_rolling_back or not case.live.contradicts(case.plan.wanted):
        return None
    return _await_end(case, f"HyperPod installs {case.live.coming[-1]}, and not {case.plan.wanted}")


def _follow(case: Case) -> Step | None:
    group = case.live
    if group.is_rolling_back:
        return Wait("HyperPod puts the old image back")
    if not (group.is_updating or group.cluster_updates):
        return None
    return Wait(f"HyperPod replaces the image of {_nodes(group.current)} ({group.software or group.status})")


def _has_ended_badly(case: Case) -> Step | None:
    software = case.live.software
    if software == case.progress.before:
        return None  # of an earlier update
    if software == ROLLED_BACK:
        return case.stop("HyperPod has put the old image back", _on_old_image(case), IS_ROLLED_BACK)
    if software == FAILED:
        return case.stop("the update failed, and so did HyperPod's rollback", _on_old_image(case))
    return None


def _has_an_unknown_status(case: Case) -> Step | None:
    """A status that this version does not know is neither work nor an end: HyperPod has the time of an update to change it."""
    software = case.live.software
    if software is None or software in ENDS or software == case.progress.before:
        return None
    what = f"HyperPod reports the update as {software}, which this version does not know"
    if case.now - case.worked < SETTLE_S:
        return Wait(what)
    if not case.fresh:
        return Relist()
    return case.stop(what, _on_old_image(case))


AFTER: Sequence[Rule] = (
    _installs_another_image,
    _follow,
    _has_ended_badly,
    _has_an_unknown_status,
)
"""None of them applies: the update is not shown, or shows no work any more. The evidence decides (`_judge_end`)."""


def _judge_end(case: Case) -> Step:
    step = _judge_list(case)
    # An old list ends nothing.
    return step if case.fresh or isinstance(step, Wait) else Wait("HyperPod's next list of nodes decides")


def _judge_list(case: Case) -> Step:
    found = judge_images(case.plan.wanted, case.live, case.progress)
    is_end = case.live.software == SUCCEEDED and case.progress.before != SUCCEEDED
    if found.all_new and (is_end or case.now - case.worked >= SETTLE_S):
        is_untouched = not case.progress.seen and not found.updated
        return Finish("HyperPod had nothing to update" if is_untouched else "")
    limit, why = _patience(case, found, is_end=is_end)
    if case.now - case.worked < limit:
        return Wait(why)
    if not case.progress.has_arrived:
        unknown = "it is unknown whether HyperPod got the call, and whether the nodes have the image"
        return Resume() if found.old else case.stop(f"not confirmed: {unknown}")
    if found.old and is_end:
        return case.stop(f"HyperPod has skipped {_nodes(len(found.old))}", found.old)
    return case.stop(f"not confirmed: {found.words}", found.old)


def _patience(case: Case, found: Images, *, is_end: bool) -> tuple[float, str]:
    """How long evidence is waited for since the last sign of work, and what is printed meanwhile."""
    if is_end and found.old:
        return DOUBT_S, f"{_nodes(len(found.old))} on the old image, though HyperPod reports success"
    if is_end:
        return SETTLE_S, f"HyperPod reports success; {found.words}"
    if case.progress.seen:
        return QUIET_S, f"HyperPod reports no end; {found.words}"
    return SETTLE_S, "HyperPod has accepted the update, and has not begun it yet"


def _on_old_image(case: Case) -> tuple[str, ...]:
    return judge_images(case.plan.wanted, case.live, case.progress).old


def _await_end(case: Case, what: str) -> Step:
    """The nodes stay held while HyperPod replaces their images, for whomever."""
    return Wait(f"{what}. The nodes stay held until it is over") if case.live.is_updating else case.stop(what)


# -- before the call: others --------------------------------------------------------------------------------------------


def _yields_to_another_update(case: Case) -> Step | None:
    """AutoPatch, a schedule, or a colleague. Jobs that began now would end with it, so the nodes stay held until it is over."""
    if not case.foreign:
        return None
    what = f"HyperPod has begun an update that this command did not send ({case.foreign})"
    if case.live.is_updating:
        return Wait(f"{what}. The nodes stay held until it is over")
    return case.stop(f"{what}. Look at `cdk-hyperpod nodes`, and patch again")


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
    """HyperPod scales the group, for example, or its status is a new word. It would refuse the update."""
    if case.live.status in ("InService", "Degraded", "Failed"):
        return None
    return _in_time(case, f"HyperPod is at work ({case.live.status})")


def _needs_an_empty_queue(case: Case) -> Step | None:
    """Silence is not an empty queue."""
    if not case.needs_empty_queue:
        return None
    if case.report.silence and case.report.silent_s < SILENT_LIMIT_S:
        return _in_time(case, f"the queue is unknown: the drain agent {case.report.silence}")
    if case.report.queue == 0 and not case.report.silence:
        return None
    what = "is unknown" if case.report.queue is None or case.report.silence else f"has {case.report.queue} jobs"
    return case.stop(f"the queue {what}. Patch it when no job runs or waits")


def _needs_no_drain(case: Case) -> Step | None:
    return Update() if case.plan.drained_by in (DrainedBy.NONE, DrainedBy.HYPERPOD) else None


# -- before the call: the drain -----------------------------------------------------------------------------------------


def _is_silent(case: Case) -> Step | None:
    report = case.report
    if not report.silence:
        return None
    if report.silent_s < SILENT_LIMIT_S:
        return _in_time(case, f"{case.plan.drained_by.value} {report.silence}")
    return case.stop(f"{case.plan.drained_by.value} {report.silence}")


def _is_refused(case: Case) -> Step | None:
    if not case.report.refused:
        return None
    return case.stop(f"{case.plan.drained_by.value} refuses the request: {case.report.refused}")


def _cannot_be_drained(case: Case) -> Step | None:
    never = [f"{node.id}: {why}" for node in _drained(case) if (why := _why_never(node, case))]
    return case.stop(some(never, SHOWN)) if never else None


def _drains(case: Case) -> Step | None:
    waits = {node.id: why for node in _drained(case) if (why := why_not_ready(node, case))}
    if not waits:
        return None
    shown = some([f"{node} {why}" for node, why in waits.items()], SHOWN)
    return _in_time(case, join_clauses(f"{_nodes(len(waits))} not ready: {shown}", case.report.problem))


def _confirms_the_list(case: Case) -> Step | None:
    """A node may have been launched since the nodes were listed, and a list may leave one out."""
    if not case.fresh:
        return Relist()
    listed = len(case.live.with_jobs)
    if listed >= case.live.current:
        return None
    return _in_time(case, f"HyperPod lists {listed} of {_nodes(case.live.current)}")


BEFORE: Sequence[Rule] = (
    _yields_to_another_update,
    _yields_to_a_deployment,
    _awaits_hyperpod,
    _needs_an_empty_queue,
    _needs_no_drain,
    _yields_to_the_guard,
    _is_silent,
    _is_refused,
    _cannot_be_drained,
    _drains,
    _confirms_the_list,
)
"""None of them applies: the group is updated."""


def _drained(case: Case) -> list[Node]:
    """Every node that may have jobs, and those of earlier lists, unless what drains knows that they are gone."""
    gone = (node for node in case.earlier.values() if not _is_gone_for_good(case.report.nodes.get(node.id)))
    return [*case.live.with_jobs, *gone]


def _is_gone_for_good(status: NodeStatus | None) -> bool:
    return (
        status is not None and status.state == "unknown" and (status.absent or status.message.startswith(NO_INSTANCE))
    )


def why_not_ready(node: Node, case: Case) -> str:
    """What keeps a node. Empty: it may be updated."""
    status = case.report.nodes.get(node.id)
    if status is None:
        return f"is {node.status}, and not held yet" if node.status != "Running" else "has not been reported yet"
    if status.state == "ready":
        return _why_ready_waits(status, case)
    if status.state == "unknown" and _runs_nothing(node, status, case):
        return ""
    return _words(status)


def _why_ready_waits(status: NodeStatus, case: Case) -> str:
    """Under EKS a node may be reported as ready while pods run that end with it, and while its kubelet is silent: with
    --force-after they may end, and otherwise the node goes back to work."""
    is_late = case.hold.force and case.now >= case.hold.deadline
    if case.plan.drained_by is DrainedBy.DRAINER and status.running and not is_late:
        return _words(status)
    return f"is not saved: {_words(status)}" if case.must_save and not (status.saved or status.waived) else ""


def _runs_nothing(node: Node, status: NodeStatus, case: Case) -> bool:
    """A node that has not joined yet may still join, and get jobs."""
    if not status.absent or node.status == "Pending":
        return False
    if case.plan.drained_by is DrainedBy.AGENT:
        return True
    return case.now - max(case.hold.began, node.launched or 0.0) >= JOIN_S


def _why_never(node: Node, case: Case) -> str:
    """Why no wait helps. Empty: one may."""
    status = case.report.nodes.get(node.id)
    if status is None:
        return ""
    if status.state == "backup-failed" and case.must_save:
        return _words(status)
    if status.state != "refused":
        return ""
    is_final = case.plan.drained_by is DrainedBy.DRAINER or case.now - case.hold.began >= JOIN_S
    return _words(status) if is_final else ""


def _words(status: NodeStatus) -> str:
    return f"{status.state}: {status.message}" if status.message else status.state


def _in_time(case: Case, why: str) -> Step:
    """Wait, unless the time is over."""
    if case.now < case.hold.until:
        return Wait(why)
    return case.stop(f"the time of --drain-for is over; {why}")


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
