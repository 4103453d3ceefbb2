"""The seam "make this node ready to go": what has to happen on a node before it may be deleted. Pure.

What the agent on the controller, or the drainer of an EKS cluster, says of each node is looked at afresh at every poll, and
nothing else is remembered. The plan
is carried out when every node of the request may go, so where one may not, none has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
        came = node.launched is not None and node.launched > self.began and node.group in self.taken
        if came and self.must_be_ready:
            # Others have gone already, and it may have been seen late: it is waited for as long as anybody polls.
            return self.began + DEADLINE
        begins, span = self._time(node)
        return begins + span

    def deadline(self, node: Node) -> datetime:
        """Until when its jobs may run. Nobody ends pods: under EKS they end with the node, so only saving needs time."""
        if not self.forces:
            return self.limit(node)
        begins, span = self._time(node)
        ends_first = self.drain.must_be_saved or not self.drain.eks
        return begins + (span * ENDING if ends_first else span)

    def _time(self, node: Node) -> tuple[datetime, timedelta]:
        if self.rolling_back:
            return self.began, BACK
        asked = (self.began, timedelta(minutes=self.drain.minutes))
        return max(asked, (node.launched or self.began, BACK), key=lambda time: time[0] + time[1])


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


def judge_agent(said: Said, ask: Ask) -> Refuse | None:
    """Why it cannot do what is asked, whichever nodes it is; absent: it can, or need not."""
    if ask.rolling_back:
        return None
    eks = ask.drain.eks
    if is_silent(said):
        if ask.drain.undrained:
            return None
        return messages.drainer_is_silent(said.unreachable) if eks else _agent_is_silent(said)
    if not ask.drain.must_be_saved or said.saves:
        return None
    return messages.DRAINER_SAVES_NOTHING if eks else messages.AGENT_SAVES_NOTHING


def _agent_is_silent(said: Said) -> Refuse:
    if said.silent is None:
        return messages.agent_is_silent(said.unreachable)
    return messages.agent_is_silent(f"has said nothing for {said.silent.total_seconds() / 60:.0f} minutes")


def going(found: Plan, live: Cluster | None) -> list[Node]:
    """Every node that may have jobs and goes by this plan, now or later."""
    if live is None:
        return []
    logins = {group.name for group in live.groups if group.fixed.node_type == "Login"}
    doomed = {deletion.group for deletion in found.deletions}
    picked = [pick.node for pick in (*found.taken, *found.held)]
    return [
        node for node in (*picked, *(node for node in live.nodes if node.group in doomed)) if node.group not in logins
    ]


def judge_first(found: Plan, live: Cluster | None, said: Said, ask: Ask, *, new: bool) -> Refuse | None:
    """Why nothing can be drained for this deployment, however long anybody waits: what the first look tells.

    `new`: the deployment is the one that brings draining. A group is held for hours, and the rollback of what brings the
    rights takes them back before it calls prepare.
    """
    if why := judge_agent(said, ask):
        return why if any(_has_to_be_asked_for(node, ask) for node in going(found, live)) else None
    held = found.deletions and not (ask.rolling_back or is_silent(said))
    return messages.DRAINING_IS_NEW if held and new else None


def judge(leaving: Iterable[Node], said: Said, ask: Ask) -> Verdict:
    """Whether these nodes may go."""
    nodes = [node for node in leaving if _has_to_be_asked_for(node, ask)]
    if not nodes:
        return READY
    if said.unreachable and _is_awaited(nodes, said, ask):
        unheard = messages.drainer_is_stuck if ask.drain.eks else messages.agent_is_unheard
        return Verdict(waits=(unheard(said.unreachable),))
    if unable := judge_agent(said, ask):
        return Verdict(never=(str(unable),))
    if is_silent(said):
        return READY
    # What it rejected may be an earlier request.
    if said.rejected and not ask.rolling_back and ask.now - ask.began > HEARD:
        return Verdict(never=(said.rejected,))
    waits: list[Wait] = []
    never: list[str] = []
    for node in nodes:
        why, final = _what_keeps(node, said, ask)
        if final:
            never.append(messages.not_ready(node.name, why).why)
        elif why:
            waits.append(messages.not_ready(node.name, why))
    if said.problem and waits:
        stuck = messages.drainer_is_stuck if ask.drain.eks else messages.agent_is_stuck
        waits.append(stuck(said.problem))
    return Verdict(waits=tuple(waits), never=tuple(never))


def _is_awaited(nodes: Iterable[Node], said: Said, ask: Ask) -> bool:
    """Whether somebody who does not answer is asked again at the next poll. A drainer can give back what it holds only when it
    answers."""
    in_time = any(ask.now < ask.limit(node) for node in nodes)
    if ask.rolling_back:
        return in_time
    # One call that failed says nothing: pods may be leaving in good order.
    return not is_silent(said) or (ask.drain.eks and in_time and not ask.drain.undrained)


def _has_to_be_asked_for(node: Node, ask: Ask) -> bool:
    return node.is_there and node.name not in ask.nowhere


def _what_keeps(node: Node, said: Said, ask: Ask) -> tuple[str, bool]:
    """Why the node may not go, if so, and whether it ever may."""
    told = said.nodes.get(node.name, NodeStatus())
    heard = told.requests.get("deployment") == ask.request_id
    unread = messages.UNTOLD if ask.drain.eks else messages.UNREAD
    state, message = (told.state, told.message) if heard else ("", unread)
    if _is_ready(node, told, state) and not _may_join(node, state, ask):
        if _ends_pods(told, ask) and ask.now < ask.limit(node):
            return message or state, False
        if not _is_lost(told, state, ask):
            return "", False
        message = messages.unsaved(message)
    if _is_final(state, ask) and not ask.rolling_back:
        return message, True
    if ask.now < ask.limit(node):
        return message or state, False
    return (message or state, True) if ask.must_be_ready else ("", False)


def _ends_pods(told: NodeStatus, ask: Ask) -> bool:
    """Whether pods still run there. A backup begins before the time is over; that it is done ends no pod early."""
    return ask.drain.eks and bool(told.running)


def _is_lost(told: NodeStatus, state: str, ask: Ask) -> bool:
    """Whether what has to be saved is not: under EKS a node whose kubelet tells nothing may have pods all the same. Slurm gives
    up the jobs of a dead node by itself."""
    must = ask.drain.eks and ask.drain.must_be_saved and not ask.rolling_back
    return must and state == "ready" and not told.saved


def _is_final(state: str, ask: Ask) -> bool:
    """Whether no time helps. What an agent refuses may be a login node only until HyperPod says what it is; a drainer refuses
    what is Karpenter's."""
    return (state == "backup-failed" and ask.drain.must_be_saved) or (state == "refused" and ask.drain.eks)


def _may_join(node: Node, state: str, ask: Ask) -> bool:
    """Of Kubernetes alone: Slurm's nodes are in its files from the beginning."""
    came = max(ask.began, node.launched or ask.began)
    waited = ask.now >= min(came + JOINING, ask.limit(node))
    return state == "unknown" and ask.drain.eks and node.status == "Running" and not waited


def _is_ready(node: Node, told: NodeStatus, state: str) -> bool:
    match state:
        case "ready":
            return True
        case "unknown":
            # Of what Slurm does not know it runs nothing. What HyperPod's own list on the controller does not know, it may
            # know by the next look; of a node that is not there yet, or no more, nothing is to be waited for. One that the
            # agent only cannot tell from another may have jobs, whatever its status.
            strange = told.message.startswith(NO_INSTANCE)
            return told.absent or (strange and node.status != "Running")
    return False
