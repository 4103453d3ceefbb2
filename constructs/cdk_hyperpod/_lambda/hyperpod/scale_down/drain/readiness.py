"""The seam "make this node ready to go": what has to happen on a node before it may be deleted. Pure.

What the agent on the controller, or the drainer of an EKS cluster, says of each node is looked at afresh at every poll, and
nothing else is remembered. The plan
is carried out when every node of the request may go, so where one may not, none has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from ...common.drain_protocol import SILENT_S, NodeStatus
from ...common.refuse import Refuse
from .. import messages
from ..actions import Plan, Wait
from ..cluster import Cluster, DrainSettings, Node

DEADLINE = timedelta(minutes=55)
"""CloudFormation gives a custom resource 3,600 s and then says "timed out"; prepare and finalize end before, with a reason."""

SILENT = timedelta(seconds=SILENT_S)
"""The agent writes its status every minute; after this long it is taken for dead. So long a look that finds no answer is
repeated, under Slurm and under EKS: between polls nobody remembers that there was none. Under Slurm the time of reads that S3
refuses is none of it."""

HEARD = timedelta(minutes=1)
"""The agent reads what is asked every ten seconds."""

BACK = timedelta(minutes=5)
"""The most that a rollback waits for a node, and the least that a node has from its launch."""

JOINING = timedelta(minutes=5)
"""So long a node that runs is waited for that Kubernetes does not have: it may join yet, and get pods."""

NO_INSTANCE = "is no instance of this cluster"
"""How the agent begins where HyperPod's list on the controller does not have the node."""

ENDING = 0.8
"""Where jobs are ended at the deadline: when, as a share of the time there is. What is left is for ending and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the agent said last (docs/adr/0014). All of it is data of another machine."""

    silent: timedelta | None = None
    """Age of what it said last, by S3's clock. Absent: there was no answer for SILENT."""
    unreachable: str = ""
    """Why there was no answer."""
    rejected: str = ""
    """Why it does not take the deployment's request."""
    problem: str = ""
    """Why it does nothing."""
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    busy: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Ids of the instances that have jobs -> some of them: `4711 of alice`. An agent of before told of none."""
    saves: bool = False
    """It has been told what to save, and where. One that runs since before slurm.drain.backup was in the file has not."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many files its backup has left out (slurm.drain.backup.on_unsavable), also after the node was deleted."""

    def deployment_requests(self) -> dict[str, str]:
        """Node -> id of a deployment's request that it is held for."""
        return {name: node.requests["deployment"] for name, node in self.nodes.items() if "deployment" in node.requests}


NOTHING_SAID = Said()


@dataclass(frozen=True, slots=True)
class _Span:
    """A length of time from a moment on."""

    begins: datetime
    length: timedelta

    @property
    def end(self) -> datetime:
        return self.begins + self.length

    def until(self, share: float) -> datetime:
        """When this share of it is over."""
        return self.begins + self.length * share


@dataclass(frozen=True, slots=True)
class Ask:
    """One deployment's drain request."""

    drain: DrainSettings
    began: datetime
    now: datetime
    rolling_back: bool = False
    taken: frozenset[str] = frozenset()
    """Groups of whose nodes to take some are gone. Nobody tells whether they were taken for this request, or HyperPod replaced them."""
    nowhere: frozenset[str] = frozenset()
    """Names of nodes that do not run and have no address, so that nobody can be asked for them."""

    @property
    def request_id(self) -> str:
        """What it is called: the same at every poll."""
        return f"{self.began:%Y%m%dT%H%M%S}"

    @property
    def forces(self) -> bool:
        """Whether jobs end at the deadline. Otherwise the nodes go back to work."""
        return self.rolling_back or self.drain.force

    @property
    def must_be_ready(self) -> bool:
        """Whether a node that is not ready at the limit stays."""
        return not self.rolling_back and (self.drain.must_be_saved or not self.drain.force)

    def limit(self, node: Node) -> datetime:
        """Until when the node is waited for."""
        if self.must_be_ready and self._came_in_place_of_another(node):
            # Other nodes are deleted already, and it may have been seen late: it is waited for as long as anybody polls.
            return self.began + DEADLINE
        return self._span(node).end

    def deadline(self, node: Node) -> datetime:
        """Until when its jobs may run. The drainer ends no pods: under EKS they end with the node, so only saving needs time."""
        if not self.forces:
            return self.limit(node)
        if self.drain.eks and not self.drain.must_be_saved:
            return self._span(node).end
        return self._span(node).until(ENDING)

    def _came_in_place_of_another(self, node: Node) -> bool:
        if node.launched is None or node.launched <= self.began:
            return False
        return node.group in self.taken

    def _span(self, node: Node) -> _Span:
        """The time that the node has."""
        if self.rolling_back:
            return _Span(self.began, BACK)
        configured = _Span(self.began, timedelta(minutes=self.drain.minutes))
        least = _Span(node.launched or self.began, BACK)
        return max(configured, least, key=lambda span: span.end)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the nodes may go: all of them, or none yet."""

    waits: tuple[Wait, ...] = ()
    never: tuple[str, ...] = ()
    """Why they may not, and never will; absent: they may, or may yet."""

    @property
    def ready(self) -> bool:
        return not (self.waits or self.never)


READY = Verdict()


def is_silent(said: Said) -> bool:
    """Whether nobody does what is asked."""
    return said.silent is None or said.silent > SILENT


def going(found: Plan, live: Cluster | None) -> list[Node]:
    """Every node that may have jobs and that this plan deletes, now or later."""
    if live is None:
        return []
    groups = {deletion.group for deletion in found.deletions}
    logins = {group.name for group in live.groups if group.fixed.node_type == "Login"}
    picked = [pick.node for pick in (*found.taken, *found.held)]
    of_groups = [node for node in live.nodes if node.group in groups]
    return [node for node in (*picked, *of_groups) if node.group not in logins]


# -- the agent --------------------------------------------------------------------------------------------------------


def judge_agent(said: Said, ask: Ask) -> Refuse | None:
    """Why the agent, or the drainer, cannot do what is requested, whichever nodes it is. None: it can, or need not."""
    if ask.rolling_back:
        return None
    if is_silent(said):
        return None if ask.drain.undrained else _silence(said, ask)
    if said.saves or not ask.drain.must_be_saved:
        return None
    return messages.DRAINER_SAVES_NOTHING if ask.drain.eks else messages.AGENT_SAVES_NOTHING


def _silence(said: Said, ask: Ask) -> Refuse:
    if ask.drain.eks:
        return messages.drainer_is_silent(said.unreachable)
    if said.silent is None:
        return messages.agent_is_silent(said.unreachable)
    return messages.agent_is_silent(f"has said nothing for {said.silent.total_seconds() / 60:.0f} minutes")


def judge_first(found: Plan, live: Cluster | None, said: Said, ask: Ask, *, new: bool) -> Refuse | None:
    """Why nothing can be drained for this deployment, however long it waits. Decided at its first look.

    `new`: the deployment is the one that adds scale_down.drain. A group is held for hours, and a rollback of the deployment that
    adds the permissions removes them before it calls prepare.
    """
    unable = judge_agent(said, ask)
    if unable is None:
        return messages.DRAINING_IS_NEW if new and _holds_groups(found, said, ask) else None
    nobody = not any(_has_to_be_asked_for(node, ask) for node in going(found, live))
    return None if nobody else unable


def _holds_groups(found: Plan, said: Said, ask: Ask) -> bool:
    """Whether nodes are going to be held until their group is deleted."""
    if ask.rolling_back or is_silent(said):
        return False
    return bool(found.deletions)


# -- all nodes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """What one poll decides by."""

    nodes: Sequence[Node]
    """Those of the nodes that have to be drained. At least one."""
    said: Said
    ask: Ask


def judge(leaving: Iterable[Node], said: Said, ask: Ask) -> Verdict:
    """Whether these nodes may be deleted: the first rule that applies decides for all of them, else each is looked at."""
    look = _Look([node for node in leaving if _has_to_be_asked_for(node, ask)], said, ask)
    for rule in _RULES:
        verdict = rule(look)
        if verdict is not None:
            return verdict
    return _judge_each(look)


def _has_to_be_asked_for(node: Node, ask: Ask) -> bool:
    return node.is_there and node.name not in ask.nowhere


def _needs_nobody(look: _Look) -> Verdict | None:
    return None if look.nodes else READY


def _await_an_answer(look: _Look) -> Verdict | None:
    if not look.said.unreachable or not _is_awaited(look):
        return None
    unheard = messages.drainer_is_stuck if look.ask.drain.eks else messages.agent_is_unheard
    return Verdict(waits=(unheard(look.said.unreachable),))


def _is_awaited(look: _Look) -> bool:
    """Whether an agent that does not answer is asked again at the next poll. A drainer can release what it holds only when it
    answers."""
    in_time = any(look.ask.now < look.ask.limit(node) for node in look.nodes)
    if look.ask.rolling_back:
        return in_time
    if not is_silent(look.said):
        # One call that failed says nothing: pods may be leaving in good order.
        return True
    if not look.ask.drain.eks or look.ask.drain.undrained:
        return False
    return in_time


def _reject_an_unable_agent(look: _Look) -> Verdict | None:
    unable = judge_agent(look.said, look.ask)
    return None if unable is None else Verdict(never=(str(unable),))


def _go_undrained(look: _Look) -> Verdict | None:
    """Silence that stops nothing: the file says so, or this is a rollback."""
    return READY if is_silent(look.said) else None


def _stop_at_a_rejected_request(look: _Look) -> Verdict | None:
    if not look.said.rejected or look.ask.rolling_back:
        return None
    if look.ask.now - look.ask.began <= HEARD:
        # What it rejected may be an earlier request.
        return None
    return Verdict(never=(look.said.rejected,))


_RULES: tuple[Callable[[_Look], Verdict | None], ...] = (
    _needs_nobody,
    _await_an_answer,
    _reject_an_unable_agent,
    _go_undrained,
    _stop_at_a_rejected_request,
)


def _judge_each(look: _Look) -> Verdict:
    waits: list[Wait] = []
    never: list[str] = []
    for node in look.nodes:
        found = judge_node(node, look.said, look.ask)
        if found.outcome is Outcome.WAIT:
            waits.append(messages.not_ready(node.name, found.message))
        elif found.outcome is Outcome.NEVER:
            never.append(messages.not_ready(node.name, found.message).why)
    if look.said.problem and waits:
        stuck = messages.drainer_is_stuck if look.ask.drain.eks else messages.agent_is_stuck
        waits.append(stuck(look.said.problem))
    return Verdict(waits=tuple(waits), never=tuple(never))


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


def judge_node(node: Node, said: Said, ask: Ask) -> NodeReadiness:
    """Whether one node may be deleted, by the first rule that applies."""
    view = _view_node(node, said, ask)
    for rule in _NODE_RULES:
        found = rule(view)
        if found is not None:
            return found
    return _end_the_wait(view)


def _view_node(node: Node, said: Said, ask: Ask) -> _NodeView:
    status = _status_of(node, said, ask)
    return _NodeView(
        state=status.state,
        report=status.message,
        ready=_is_ready(node, status) and not _may_join(node, status, ask),
        pods_run=ask.drain.eks and bool(status.running),
        unsaved=_is_unsaved(status, ask),
        final=not ask.rolling_back and _is_final(status, ask),
        in_time=ask.now < ask.limit(node),
        must_be_ready=ask.must_be_ready,
    )


def _status_of(node: Node, said: Said, ask: Ask) -> NodeStatus:
    """What is reported of the node for this very request."""
    status = said.nodes.get(node.name)
    if status is None or status.requests.get("deployment") != ask.request_id:
        return NodeStatus(message=messages.UNTOLD if ask.drain.eks else messages.UNREAD)
    return status


def _is_ready(node: Node, status: NodeStatus) -> bool:
    if status.state == "ready":
        return True
    return status.state == "unknown" and _runs_nothing(node, status)


def _runs_nothing(node: Node, status: NodeStatus) -> bool:
    """Slurm runs nothing on a node that it does not know.

    A node that HyperPod's own list on the controller does not know may be in it by the next look, unless it is not there yet, or no
    more. A node that only the agent cannot tell from another may have jobs, whatever its status.
    """
    if status.absent:
        return True
    return status.message.startswith(NO_INSTANCE) and node.status != "Running"


def _may_join(node: Node, status: NodeStatus, ask: Ask) -> bool:
    """Whether the node may join Kubernetes yet. Slurm's nodes are in its files from the beginning."""
    if not ask.drain.eks or status.state != "unknown" or node.status != "Running":
        return False
    came = max(ask.began, node.launched or ask.began)
    return ask.now < min(came + JOINING, ask.limit(node))


def _is_unsaved(status: NodeStatus, ask: Ask) -> bool:
    """Whether a drained node has to be saved, and is not. Under EKS a node whose kubelet is silent may have pods all the same.
    Slurm gives up the jobs of a dead node by itself."""
    if not ask.drain.eks or not ask.drain.must_be_saved or ask.rolling_back:
        return False
    return status.state == "ready" and not status.saved


def _is_final(status: NodeStatus, ask: Ask) -> bool:
    """Whether no time helps. A drainer refuses Karpenter's nodes. An agent may refuse a login node only until HyperPod reports
    what the node is."""
    if status.state == "backup-failed":
        return ask.drain.must_be_saved
    return status.state == "refused" and ask.drain.eks


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
    return NodeReadiness(Outcome.WAIT if view.in_time else Outcome.NEVER, messages.unsaved(view.report))


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
