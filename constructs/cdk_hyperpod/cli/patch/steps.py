"""What `patch` does next with a group, from what is live. Pure.

The rules of a phase are tried in their order, and the first that applies decides. The order is the specification: BEFORE the call
of UpdateClusterSoftware, and AFTER it. After the call no rule leads to another call, unless the first one has not arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..._lambda.hyperpod.kernel.drain_protocol import NO_INSTANCE, NodeStatus
from ..._lambda.hyperpod.kernel.sentences import join_clauses, several, some
from ..live import Node
from .images import Images, judge_images
from .model import ENDS, FAILED, ROLLED_BACK, SUCCEEDED, DrainedBy, Group, Hold, Plan, Progress, Report

DONE, REFUSED, IS_ROLLED_BACK, HAS_FAILED = 0, 1, 3, 4
"""Exit codes of `patch`."""
SETTLE_S = 900.0
"""How long HyperPod may take to show an update that it has accepted, and nodes to report their image."""
QUIET_S = 5400.0
"""How long an update that reports no end may show no sign of work before it counts as over."""
SILENT_LIMIT_S = 600.0
"""How long a drain goes on without an answer of the agent or the drainer. systemd restarts the agent within seconds."""
JOIN_S = 300.0
"""How long a node that the agent refuses, or that Kubernetes does not have, is waited for: it may just have been launched."""
MOST_SENDS = 3
"""How often a run sends one update, if no call gets an answer."""
SHOWN = 3
"""Names that a message shows."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""

    why: str


@dataclass(frozen=True, slots=True)
class Update:
    """Send UpdateClusterSoftware."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The call has not arrived, or was not confirmed: drain and send again."""


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
    may_go_on: bool = False
    """HyperPod may still replace images: the nodes stay held as long as an update may take."""
    deleted: str = ""
    """The same command does not bring it back: the group, or the cluster."""


Step = Wait | Update | Resume | Finish | Stop


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
    earlier: Sequence[Node] = ()
    """Nodes of earlier lists that this look's does not have. They stay held."""
    foreign: str = ""
    """An update that this command did not send, as it was seen last."""
    worked: float = 0.0
    """When a sign of the update was seen last."""
    unanswered: int = 0
    """How many of this run's calls got no answer."""
    must_save: bool = False
    """A node that is not saved is not ready."""
    needs_empty_queue: bool = False
    """The user has not confirmed what the controller loses."""

    @property
    def live(self) -> Group:
        if self.group is None:
            raise AssertionError  # _is_gone comes first
        return self.group

    def stop(
        self, why: str, on_old_image: Sequence[str] = (), code: int = HAS_FAILED, *, may_go_on: bool = False
    ) -> Stop:
        return Stop(code, f"{self.plan.group}: {why}", tuple(on_old_image), may_go_on)


Rule = Callable[[Case], Step | None]


def next_step(case: Case) -> Step:
    """The next step, by the first rule that applies."""
    rules = BEFORE if case.progress.sent is None else AFTER
    found = (rule(case) for rule in (_is_gone, *rules))
    return next(step for step in found if step is not None)


def _is_gone(case: Case) -> Step | None:
    if case.group is not None and case.group.status != "Deleting":
        return None
    return Stop(HAS_FAILED, f"{case.plan.group}: the group was deleted meanwhile", deleted="group")


def _yields_to_another_update(case: Case) -> Step | None:
    """AutoPatch, a schedule, or a colleague. Jobs that began now would end with it, so the nodes stay held until it is over."""
    if not case.foreign:
        return None
    what = f"HyperPod has begun an update that this command did not send ({case.foreign})"
    if case.live.is_updating:
        return Wait(f"{what}. The nodes stay held until it is over")
    return case.stop(f"{what}. Look at `cdk-hyperpod nodes`, and patch again")


# -- after the call -----------------------------------------------------------------------------------------------------


def _follow(case: Case) -> Step | None:
    group = case.live
    if group.is_rolling_back:
        return Wait("HyperPod puts the old image back")
    if not group.is_updating:
        return None
    return Wait(f"HyperPod replaces the image of {several(group.current, 'node')} ({group.software or group.status})")


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
    if software is None or software in (*ENDS, case.progress.before) or case.progress.unconfirmed:
        return None
    what = f"HyperPod reports the update as {software}, which this version does not know"
    if case.now - case.worked < SETTLE_S:
        return Wait(what)
    return case.stop(what, _on_old_image(case), may_go_on=True)


def _judge_evidence(case: Case) -> Step:
    """The update is not shown, or shows no work any more."""
    found = judge_images(case.plan.wanted, case.live, case.progress)
    is_end = case.live.software == SUCCEEDED and case.progress.before != SUCCEEDED
    limit, why = _patience(case, found, is_end=is_end)
    is_over = case.now - case.worked >= limit
    if found.all_new and (is_end or is_over):
        is_untouched = not case.progress.seen and not found.updated
        return Finish("HyperPod had nothing to update" if is_untouched else "")
    if not is_over:
        return Wait(why)
    if not case.progress.has_arrived:
        return _judge_unanswered(case, found)
    if found.old and is_end:
        return case.stop(f"HyperPod has skipped {several(len(found.old), 'node')}", found.old)
    if case.progress.unconfirmed:
        return Resume()
    return case.stop(f"not confirmed: {found.words}", found.old, may_go_on=not is_end)


def _judge_unanswered(case: Case, found: Images) -> Step:
    """No sign shows that the call has arrived, and it has had its time."""
    if case.progress.unconfirmed or (found.old and case.unanswered < MOST_SENDS):
        return Resume()
    unknown = "it is unknown whether HyperPod got the call, and whether the nodes have the image"
    shown = f"HyperPod shows no sign of {case.unanswered} calls; {found.words}" if found.old else unknown
    return case.stop(f"not confirmed: {shown}", found.old, may_go_on=True)


def _patience(case: Case, found: Images, *, is_end: bool) -> tuple[float, str]:
    """How long evidence is waited for since the last sign of work, and what is printed meanwhile."""
    if is_end:
        return SETTLE_S, f"HyperPod reports success; {found.words}"
    if case.progress.seen and found.updated < found.nodes:
        # Nodes that have the image may get it again.
        return QUIET_S, f"HyperPod reports no end; {found.words}"
    if not case.progress.has_arrived:
        return SETTLE_S, "it is unknown whether HyperPod got the call; no update is shown yet"
    return SETTLE_S, "HyperPod has accepted the update, and has not begun it yet"


def _on_old_image(case: Case) -> tuple[str, ...]:
    return judge_images(case.plan.wanted, case.live, case.progress).old


AFTER: Sequence[Rule] = (
    _yields_to_another_update,
    _follow,
    _has_ended_badly,
    _has_an_unknown_status,
    _judge_evidence,
)


# -- before the call: others --------------------------------------------------------------------------------------------


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
    never = [f"{node.name}: {why}" for node in _drained(case) if (why := _why_never(node, case))]
    return case.stop(some(never, SHOWN)) if never else None


def _drains(case: Case) -> Step | None:
    waits = {node.name: why for node in _drained(case) if (why := why_not_ready(node, case))}
    if not waits:
        return None
    shown = some([f"{node} {why}" for node, why in waits.items()], SHOWN)
    return _in_time(case, join_clauses(f"{several(len(waits), 'node')} not ready: {shown}", case.report.problem))


def _has_no_nodes(case: Case) -> Step | None:
    """It was scaled to zero meanwhile."""
    return None if case.live.with_jobs or case.live.current else case.stop("it has no nodes any more")


def _has_it_by_now(case: Case) -> Step | None:
    """Another operator's update was at work during the drain."""
    found, group = judge_images(case.plan.wanted, case.live, Progress()), case.live
    is_shown = group.image_status in (None, "UpToDate") or group.image == case.plan.wanted
    return Finish("another update has installed the image meanwhile") if found.all_new and is_shown else None


def _updates(case: Case) -> Step:
    """Unless the list leaves out a node."""
    listed, count = len(case.live.with_jobs), case.live.current
    return Update() if listed >= count else _in_time(case, f"HyperPod lists {listed} of {several(count, 'node')}")


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
    _has_no_nodes,
    _has_it_by_now,
    _updates,
)


def _drained(case: Case) -> list[Node]:
    """Every node that may have jobs, and those of earlier lists, unless what drains knows that they are gone."""
    earlier = (node for node in case.earlier if not _is_gone_for_good(case.report.nodes.get(node.name)))
    return [*case.live.with_jobs, *earlier]


def _is_gone_for_good(status: NodeStatus | None) -> bool:
    return (
        status is not None and status.state == "unknown" and (status.absent or status.message.startswith(NO_INSTANCE))
    )


def why_not_ready(node: Node, case: Case) -> str:
    """What keeps a node. Empty: it may be updated."""
    status = case.report.nodes.get(node.name)
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
    launched = node.launched.timestamp() if node.launched else 0.0
    return case.now - max(case.hold.began, launched) >= JOIN_S


def _why_never(node: Node, case: Case) -> str:
    """Why no wait helps. Empty: one may."""
    status = case.report.nodes.get(node.name)
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
