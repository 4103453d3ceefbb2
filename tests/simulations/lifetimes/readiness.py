"""The contract of scale-down for nodes that are drained before they are deleted, for the judge.

A node that is not ready is never deleted, unless the policy allows it. A node that stays is released when a request
ends. No node stays drained forever. The true state is read from Slurm or Kubernetes; what could be known, from the
function's reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .causes import Cause
from .cloudformation import ClusterUpdate, Deployment
from .draining import SILENT, Draining, Policy, read_policy
from .function import FINALIZE, PREPARE, Killed, Look, Request, Write
from .hyperpod import Ending, Node

if TYPE_CHECKING:
    from .lifetime import Lifetime

BACK = 300.0
"""Seconds that a rollback waits for a node, and that every node gets from its launch."""


def policy(request: Request) -> Policy | None:
    """Absent: nodes are deleted without draining."""
    before = request.old if request.rollback else None
    return read_policy(request.new.get("Drain") or (before or {}).get("Drain"))


class Readiness:
    undone_within = 180.0
    """How many seconds old the function's information may be."""

    def __init__(self, life: Lifetime, draining: Draining) -> None:
        self.life, self.draining = life, draining

    # -- what went --

    def nodes_taken(self, write: Write) -> None:
        """A BatchDeleteClusterNodes of the function deleted nodes."""
        if (said := policy(write.request)) is None or write.look is None:
            return
        for node in write.took:
            self._went(node, write.request, write.look, said, write.at)

    def group_deleted(self, ending: Ending) -> None:
        """A node was deleted with its group: prepare had it drained."""
        request, deployment = _who(ending.call)
        if deployment is None or (request and request.rollback):
            return
        prepare = next((each for each in deployment.requests if each.kind == PREPARE and not each.rollback), None)
        node = ending.node
        if prepare is None or prepare.look is None or not prepare.succeeded or (said := policy(prepare)) is None:
            return
        if node.launched is None:
            return
        if node.launched < prepare.look.since:
            self._went(node, prepare, prepare.look, said, ending.at)
        elif request and request.kind == FINALIZE and request.look:
            # It was launched while CloudFormation updated the cluster.
            self._went(node, request, request.look, said, ending.at)

    def _went(self, node: Node, request: Request, look: Look, said: Policy, now: float) -> None:
        why = self.draining.unready.get(node, "")
        # A rollback waits only for jobs: the nodes that it deletes came with the failed update.
        if not why or (why == "is not saved" and (request.rollback or not said.must_be_saved)):
            return
        if self._allowed(node, request, look, said):
            return
        since = look.heard.at - self.undone_within if look.heard else now
        if any(deed.node == node.id and deed.at >= since for deed in self.draining.undone):
            self.life.judge.spare(Cause.UNDRAINED)
            return
        if node in look.left_out_again:
            self.life.judge.spare(Cause.LEFT_OUT)
            return
        self.life.judge.fault("a node that was not ready goes", f"{request}: {node.name} of {node.group}: {why}")

    def _allowed(self, node: Node, request: Request, look: Look, said: Policy) -> bool:
        """The policy allows it."""
        looked, heard = look.at, look.heard
        if heard is None:
            return request.rollback
        if heard.silent:
            return request.rollback or said.undrained
        if node.launched is None or any(
            each.get("InstanceId") == node.id and each["InstanceStatus"]["Status"] == "Pending" for each in look.nodes
        ):
            return True  # It booted between the look and the call.
        if request.rollback:
            return looked >= request.heard + BACK
        if said.must_be_saved or not said.force:
            return False
        # A node's five minutes are measured by HyperPod's clock, the deadline by the function's.
        launched = node.launched + self.life.switches.clocks_apart
        return looked >= max(request.heard + said.minutes * 60, launched + BACK)

    def heard(self, request: Request, look: Look) -> dict[str, tuple[bool, bool]]:
        """Nodes that the function already knew as drained for it, which come before others, and those with jobs, which
        come after others."""
        if request.rollback or look.heard is None or look.heard.found is None:
            return {}
        found = look.heard.found
        asked = {
            node
            for node, told in found["nodes"].items()
            if told["requests"].get("deployment") in request.drain_request_ids
        }
        return {node: (node not in asked, node in found["busy"]) for node in {*found["busy"], *found["nodes"]}}

    # -- what stays --

    def request_ended(self, request: Request) -> None:
        """Its last decision: the nodes that it holds will be deleted, including those that finalize deletes."""
        if not request.succeeded and "[nodes-not-ready]" in request.reason and request.ready > 1:
            self.life.judge.fault("ready nodes do not go", f"{request}: {request.reason[:200]}")
        blamed = not request.succeeded and "on_silent: undrained" in request.reason
        # Its last read was for releasing nodes.
        if blamed and request.answered - request.silent > SILENT:
            self.life.judge.fault("who answers is taken for silent", f"{request}: {request.reason[:300]}")
        if request.type == "Delete" or request.faults or request.unread or isinstance(request.error, Killed):
            return  # A silent actor cannot be told which nodes to keep. A lease ends.
        if read_policy(request.new.get("Drain")) is None:
            return
        if not (request.asked_agent or (request.succeeded and request.kind == PREPARE)):
            return  # Nodes that are held for an earlier deployment are released by the rollback, or when their lease ends.
        kept: set[str] = set()
        if request.kind == PREPARE and request.succeeded and not request.rollback:
            kept = set(request.new["InstanceGroupsToDelete"])
        held = set(self.draining.wanted())
        stays = [node for node in self.draining.nodes() if node.id in held and node.group not in kept]
        stays = [node for node in stays if self.life.pod.groups[node.group].status != "Deleting"]
        if stays:
            names = ", ".join(f"{node.name} of {node.group}" for node in stays)
            self.life.judge.fault("a node that stays is not given back", f"{request}: {names}")

    def explains(self, request: Request) -> bool:
        """A deployment failed because nodes were not ready, or the actor that drains was silent."""
        return read_policy(request.new.get("Drain")) is not None and (
            "[nodes-not-ready]" in request.reason or "drain" in request.reason or request.faults > 0
        )

    def lifetime_ended(self) -> None:
        held = set(self.draining.held())
        for node in self.draining.nodes():
            if node.id in held:
                self.life.judge.fault("a node is drained for ever", f"{node.name} of {node.group}")


def _who(call: object) -> tuple[Request | None, Deployment | None]:
    if isinstance(call, Write):
        return call.request, call.request.deployment
    if isinstance(call, ClusterUpdate):
        return (call.before, call.deployment) if call.before and not call.rollback else (None, None)
    return None, None
