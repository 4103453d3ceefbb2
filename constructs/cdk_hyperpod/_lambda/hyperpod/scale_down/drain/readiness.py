"""Decides whether nodes are ready to be deleted. Pure.

Every poll decides anew, from the latest status of the agent on the controller or of the drainer of an EKS cluster. Nothing else is
remembered. The plan is carried out once every node of the request is ready, so if one is not, none is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from ...kernel.drain_protocol import NO_INSTANCE, PATCH, SILENT_S, NodeStatus
from ...kernel.refuse import Refuse
from .. import messages
from ..model.actions import Plan, Wait
from ..model.cluster import Cluster, DrainSettings, Node

DEADLINE = timedelta(minutes=55)
"""CloudFormation gives a custom resource 3,600 s and then reports "timed out". Prepare and finalize end before, with a reason."""

SILENT_AFTER = timedelta(seconds=SILENT_S)
"""The agent writes its status every minute. After this long without an answer it counts as dead.

Under Slurm and under EKS, one poll repeats a look without an answer for this long, because polls do not remember each other's
looks. Under Slurm, the time of reads that S3 refuses does not count."""

READ_WITHIN = timedelta(minutes=1)
"""The agent reads the request every ten seconds, so by then it has read this one."""

ROLLBACK_WAIT = timedelta(minutes=5)
"""The most that a rollback waits for a node, and the least that a node has from its launch."""

JOIN_TIME = timedelta(minutes=5)
"""How long a running node that Kubernetes does not have is waited for: it may still join, and get pods."""

FORCED_AFTER = 0.8
"""If jobs are ended at the deadline: when, as a share of the time that a node has. The rest is for ending and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """The last status of the agent, or the drainer's answer (docs/adr/0014). All of it is data of another machine."""

    silent: timedelta | None = None
    """Age of the status, by S3's clock. None: no status was ever written, or there was no answer for SILENT_AFTER."""
    beat: float | None = None
    """When it wrote this, by its own clock, in seconds since 1970. None: it does not say."""
    unreachable: str = ""
    """Why there was no answer."""
    rejected: str = ""
    """Why it rejects the deployment's request."""
    problem: str = ""
    """Why it does nothing."""
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    busy: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Ids of the instances that have jobs -> some of them: `4711 of alice`. The drainer reports no jobs."""
    saves: bool = False
    """It has a backup configured. An agent that was started before slurm.drain.backup was set does not."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many files its backup has left out (slurm.drain.backup.on_unsavable), also after the node was deleted."""

    def deployment_requests(self) -> dict[str, str]:
        """Node -> id of a deployment's request that it is held for."""
        return {name: node.requests["deployment"] for name, node in self.nodes.items() if "deployment" in node.requests}

    def held_by_patch(self) -> frozenset[str]:
        """Names of the nodes that a run of `cdk-hyperpod patch` holds."""
        held = {name: node.requests.get("operator", "") for name, node in self.nodes.items()}
        return frozenset(name for name, request_id in held.items() if request_id.startswith(PATCH))


NO_STATUS = AgentStatus()


@dataclass(frozen=True, slots=True)
class _Span:
    """A length of time from a point in time on."""

    begins: datetime
    length: timedelta

    @property
    def end(self) -> datetime:
        return self.begins + self.length

    def until(self, share: float) -> datetime:
        """When this share of it is over."""
        return self.begins + self.length * share


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """One deployment's drain request."""

    drain: DrainSettings
    began: datetime
    now: datetime
    recorded: datetime | None = None
    """When it began, as CloudFormation's events show it. None: they do not."""
    rolling_back: bool = False
    partly_deleted: frozenset[str] = frozenset()
    """Groups in which some of the nodes to delete are no longer listed. Whether this request deleted them or HyperPod replaced them is not known."""
    nowhere: frozenset[str] = frozenset()
    """Names of nodes that do not run and have no address, so that no request can name them."""

    @property
    def request_id(self) -> str:
        """The same at every poll, and if CloudFormation's event comes twice."""
        return f"{self.recorded or self.began:%Y%m%dT%H%M%S}"

    @property
    def forces(self) -> bool:
        """Whether jobs end at the deadline. Otherwise the nodes are released."""
        return self.rolling_back or self.drain.force

    @property
    def must_be_ready(self) -> bool:
        """Whether a node that is not ready at its limit is kept."""
        return not self.rolling_back and (self.drain.must_be_saved or not self.drain.force)

    def limit(self, node: Node) -> datetime:
        """Until when the node is waited for."""
        if self.must_be_ready and self._replaces_a_deleted_node(node):
            # Other nodes are deleted already, and the node may have been seen late: it is waited for as long as polls go on.
            return self.began + DEADLINE
        return self._span(node).end

    def deadline(self, node: Node) -> datetime:
        """Until when its jobs may run. The drainer ends no pods: under EKS they end with the node, so only saving needs time."""
        if not self.forces:
            return self.limit(node)
        if self.drain.eks and not self.drain.must_be_saved:
            return self._span(node).end
        return self._span(node).until(FORCED_AFTER)

    def _replaces_a_deleted_node(self, node: Node) -> bool:
        if node.launched is None or node.launched <= self.began:
            return False
        return node.group in self.partly_deleted

    def _span(self, node: Node) -> _Span:
        """The time that the node has."""
        if self.rolling_back:
            return _Span(self.began, ROLLBACK_WAIT)
        configured = _Span(self.began, timedelta(minutes=self.drain.minutes))
        least = _Span(node.launched or self.began, ROLLBACK_WAIT)
        return max(configured, least, key=lambda span: span.end)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the nodes may be deleted: all of them, or none yet."""

    waits: tuple[Wait, ...] = ()
    never: tuple[str, ...] = ()
    """Why they may not, and never will be. Empty: they may, or still may become ready."""

    @property
    def ready(self) -> bool:
        return not (self.waits or self.never)


READY = Readiness()


def is_silent(status: AgentStatus) -> bool:
    """Whether no agent and no drainer carries out requests."""
    return status.silent is None or status.silent > SILENT_AFTER


def nodes_to_drain(found: Plan, live: Cluster | None) -> list[Node]:
    """Every node that may have jobs and that this plan deletes, now or later."""
    if live is None:
        return []
    picked = [pick.node for pick in (*found.nodes_to_delete, *found.held)]
    logins = {group.name for group in live.groups if group.fixed.node_type == "Login"}
    return [node for node in (*picked, *_nodes_of_groups_to_delete(found, live)) if node.group not in logins]


def _nodes_of_groups_to_delete(found: Plan, live: Cluster) -> list[Node]:
    groups = {deletion.group for deletion in found.groups_to_delete}
    return [node for node in live.nodes if node.group in groups]


# -- the agent --------------------------------------------------------------------------------------------------------


def check_agent(status: AgentStatus, request: DrainRequest) -> Refuse | None:
    """Why the agent, or the drainer, cannot do what is requested, whichever nodes it is. None: it can, or need not."""
    if request.rolling_back:
        return None
    if is_silent(status):
        return None if request.drain.undrained else _silence(status, request)
    if status.saves or not request.drain.must_be_saved:
        return None
    return messages.refusals.DRAINER_SAVES_NOTHING if request.drain.eks else messages.refusals.AGENT_SAVES_NOTHING


def _silence(status: AgentStatus, request: DrainRequest) -> Refuse:
    if request.drain.eks:
        return messages.refusals.drainer_is_silent(status.unreachable)
    if status.silent is None:
        return messages.refusals.agent_is_silent(status.unreachable)
    return messages.refusals.agent_is_silent(f"has not reported for {status.silent.total_seconds() / 60:.0f} minutes")


def decide_first_look(
    found: Plan, live: Cluster | None, status: AgentStatus, request: DrainRequest, *, new: bool
) -> Refuse | None:
    """Why nothing can be drained for this deployment, however long it waits. Decided at its first look.

    `new`: the deployment is the one that adds scale_down.drain. A group is held for hours, and a rollback of the deployment that
    adds the permissions removes them before it calls prepare.
    """
    unable = check_agent(status, request)
    if unable is None:
        return messages.refusals.DRAINING_IS_NEW if new and _holds_groups(found, status, request) else None
    nothing_to_drain = not any(_must_be_drained(node, request) for node in nodes_to_drain(found, live))
    return None if nothing_to_drain else unable


def _holds_groups(found: Plan, status: AgentStatus, request: DrainRequest) -> bool:
    """Whether nodes are going to be held until their group is deleted."""
    if request.rolling_back or is_silent(status):
        return False
    return bool(found.groups_to_delete)


# -- all nodes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """What one poll decides by."""

    nodes: Sequence[Node]
    """Those of the nodes that have to be drained. At least one."""
    status: AgentStatus
    request: DrainRequest


def decide_readiness(leaving: Iterable[Node], status: AgentStatus, request: DrainRequest) -> Readiness:
    """Whether these nodes may be deleted: the first rule that applies decides for all of them, else each is looked at."""
    look = _Look([node for node in leaving if _must_be_drained(node, request)], status, request)
    for rule in _RULES:
        verdict = rule(look)
        if verdict is not None:
            return verdict
    return _decide_each(look)


def _must_be_drained(node: Node, request: DrainRequest) -> bool:
    return node.is_there and node.name not in request.nowhere


def _nothing_to_drain(look: _Look) -> Readiness | None:
    return None if look.nodes else READY


def _await_an_answer(look: _Look) -> Readiness | None:
    if not look.status.unreachable or not _is_awaited(look):
        return None
    unreachable = messages.waits.drainer_is_stuck if look.request.drain.eks else messages.waits.agent_is_unreachable
    return Readiness(waits=(unreachable(look.status.unreachable),))


def _is_awaited(look: _Look) -> bool:
    """Whether the next poll tries again to reach an agent that does not answer. A drainer can release what it holds only when it
    answers."""
    in_time = any(look.request.now < look.request.limit(node) for node in look.nodes)
    if look.request.rolling_back:
        return in_time
    if not is_silent(look.status):
        # One failed call does not mean silence: the drain may be going on.
        return True
    if not look.request.drain.eks or look.request.drain.undrained:
        return False
    return in_time


def _reject_an_unable_agent(look: _Look) -> Readiness | None:
    unable = check_agent(look.status, look.request)
    return None if unable is None else Readiness(never=(str(unable),))


def _go_undrained(look: _Look) -> Readiness | None:
    """Silence stops nothing if the file sets on_silent: undrained, or in a rollback."""
    return READY if is_silent(look.status) else None


def _stop_at_a_rejected_request(look: _Look) -> Readiness | None:
    if not look.status.rejected or look.request.rolling_back:
        return None
    if look.request.now - look.request.began <= READ_WITHIN:
        # What it rejected may be an earlier request.
        return None
    return Readiness(never=(look.status.rejected,))


_RULES: tuple[Callable[[_Look], Readiness | None], ...] = (
    _nothing_to_drain,
    _await_an_answer,
    _reject_an_unable_agent,
    _go_undrained,
    _stop_at_a_rejected_request,
)


def _decide_each(look: _Look) -> Readiness:
    waits: list[Wait] = []
    never: list[str] = []
    for node in look.nodes:
        found = decide_node(node, look.status, look.request)
        if found.outcome is Outcome.WAIT:
            waits.append(messages.waits.not_ready(node.name, found.message))
        elif found.outcome is Outcome.NEVER:
            never.append(messages.waits.not_ready(node.name, found.message).why)
    if look.status.problem and waits:
        stuck = messages.waits.drainer_is_stuck if look.request.drain.eks else messages.waits.agent_is_stuck
        waits.append(stuck(look.status.problem))
    return Readiness(waits=tuple(waits), never=tuple(never))


# -- one node ---------------------------------------------------------------------------------------------------------


class Outcome(Enum):
    """What may happen to a node at this poll."""

    READY = auto()
    """It may be deleted."""
    WAIT = auto()
    """It may not be deleted yet."""
    NEVER = auto()
    """It may not be deleted, and no wait helps."""


@dataclass(frozen=True, slots=True)
class NodeReadiness:
    """Whether a node may be deleted."""

    outcome: Outcome
    message: str = ""
    """Why it may not. Empty: it may."""


@dataclass(frozen=True, slots=True)
class _NodeView:
    """One node at one poll. Its fields are facts; the rules decide."""

    state: str
    """As the agent or the drainer reports it. Empty: nothing is reported for this request yet."""
    report: str
    """What it reports besides; it may be empty."""
    ready: bool
    """It is reported as drained, or as a node on which nothing can run."""
    pods_run: bool
    """Pods still run there. A backup begins before the time is over, and its end ends no pod early."""
    unsaved: bool
    """It is drained, and what has to be saved is not."""
    final: bool
    """No wait helps: it cannot be saved, or is refused."""
    in_time: bool
    """It is still waited for."""
    must_be_ready: bool
    """It stays if it is not ready in time."""

    @property
    def message(self) -> str:
        """What keeps the node."""
        return self.report or self.state


def decide_node(node: Node, status: AgentStatus, request: DrainRequest) -> NodeReadiness:
    """Whether one node may be deleted, by the first rule that applies."""
    view = _view_node(node, status, request)
    for rule in _NODE_RULES:
        found = rule(view)
        if found is not None:
            return found
    return _end_the_wait(view)


def _view_node(node: Node, status: AgentStatus, request: DrainRequest) -> _NodeView:
    reported = _status_of(node, status, request)
    return _NodeView(
        state=reported.state,
        report=reported.message,
        ready=_is_ready(node, reported) and not _may_join(node, reported, request),
        pods_run=request.drain.eks and bool(reported.running),
        unsaved=_is_unsaved(reported, request),
        final=not request.rolling_back and _is_final(reported, request),
        in_time=request.now < request.limit(node),
        must_be_ready=request.must_be_ready,
    )


def _status_of(node: Node, status: AgentStatus, request: DrainRequest) -> NodeStatus:
    """What is reported of the node for this very request."""
    reported = status.nodes.get(node.name)
    if reported is None or reported.requests.get("deployment") != request.request_id:
        return NodeStatus(message=messages.waits.UNREPORTED if request.drain.eks else messages.waits.UNREAD)
    return reported


def _is_ready(node: Node, reported: NodeStatus) -> bool:
    if reported.state == "ready":
        return True
    return reported.state == "unknown" and _runs_nothing(node, reported)


def _runs_nothing(node: Node, reported: NodeStatus) -> bool:
    """Slurm runs nothing on a node that it does not know.

    A node that HyperPod's own list on the controller does not know may be in it by the next look, unless it is not there yet, or no
    more. A node that only the agent cannot distinguish from another may have jobs, whatever its status.
    """
    if reported.absent:
        return True
    return reported.message.startswith(NO_INSTANCE) and node.status != "Running"


def _may_join(node: Node, reported: NodeStatus, request: DrainRequest) -> bool:
    """Whether the node may join Kubernetes yet. Slurm's nodes are in its files from the beginning."""
    if not request.drain.eks or reported.state != "unknown" or node.status != "Running":
        return False
    came = max(request.began, node.launched or request.began)
    return request.now < min(came + JOIN_TIME, request.limit(node))


def _is_unsaved(reported: NodeStatus, request: DrainRequest) -> bool:
    """Whether a drained node has to be saved, and is not. A rollback saves nothing."""
    if not request.drain.must_be_saved or request.rolling_back:
        return False
    return reported.state == "ready" and not (reported.saved or reported.waived)


def _is_final(reported: NodeStatus, request: DrainRequest) -> bool:
    """Whether no time helps. A drainer refuses Karpenter's nodes. An agent may refuse a login node only until HyperPod reports
    what the node is."""
    if reported.state == "backup-failed":
        return request.drain.must_be_saved
    return reported.state == "refused" and request.drain.eks


def _await_pods(view: _NodeView) -> NodeReadiness | None:
    if not view.ready or not view.pods_run or not view.in_time:
        return None
    return NodeReadiness(Outcome.WAIT, view.message)


def _accept(view: _NodeView) -> NodeReadiness | None:
    if not view.ready or view.unsaved:
        return None
    return NodeReadiness(Outcome.READY)


def _keep_unsaved(view: _NodeView) -> NodeReadiness | None:
    if not view.unsaved:
        return None
    return NodeReadiness(Outcome.WAIT if view.in_time else Outcome.NEVER, messages.waits.unsaved(view.report))


def _reject(view: _NodeView) -> NodeReadiness | None:
    return NodeReadiness(Outcome.NEVER, view.message) if view.final else None


def _await(view: _NodeView) -> NodeReadiness | None:
    return NodeReadiness(Outcome.WAIT, view.message) if view.in_time else None


_NODE_RULES: tuple[Callable[[_NodeView], NodeReadiness | None], ...] = (
    _await_pods,
    _accept,
    _keep_unsaved,
    _reject,
    _await,
)


def _end_the_wait(view: _NodeView) -> NodeReadiness:
    """The time is over."""
    if view.must_be_ready:
        return NodeReadiness(Outcome.NEVER, view.message)
    return NodeReadiness(Outcome.READY)
