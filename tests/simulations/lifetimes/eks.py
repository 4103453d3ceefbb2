"""Nodes of an EKS cluster that are drained before they are deleted: the real drainer, with a simulated Kubernetes.

The scale-down function calls the drainer through Lambda, and the drainer calls the API. Both calls can fail, the
drainer can be killed at any step, and other parties act between any two of its steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, Reply
from cdk_hyperpod._lambda.hyperpod.drainer.drainer import Drainer
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import NOT_RELEASED

from .cloudformation import Deployment, Template
from .draining import SILENT, Draining, Heard, Policy, Undone, read_policy
from .function import PREPARE, Killed, Look, Request
from .hyperpod import Node, Refused
from .kubernetes import HEALTH, HOOK, LOST_AFTER, MARK, Habits, Kubernetes, Member
from .readiness import BACK, Readiness

if TYPE_CHECKING:
    from .lifetime import Lifetime

LASTS = 60.0
"""Lambda's timeout of the drainer in seconds."""
HANGS = 10.0
"""The drainer's timeout of a request to the API in seconds."""
SAVES_AT = 0.8
"""If pods may end with the node: the share of the time after which it is backed up, whatever still runs."""


class End(NamedTuple):
    """The state of a node when its deletion began."""

    joined: float
    saved: bool
    """Including everything that ended pods wrote there."""
    saved_from: float
    """When its last backup began."""
    silent: float
    """For how many seconds its kubelet had been silent."""
    cut_off: bool
    """Most kubelets had been silent for as long."""


class ByDrainer(Draining):
    """The EKS way, with a function in the VPC."""

    channel = ("Function", "arn:aws:lambda:us-west-2:111122223333:function:hyperpod-train-drainer")

    def __init__(self, life: Lifetime, rng: Random) -> None:
        super().__init__(life, rng)
        self._must = rng.random() < 0.5
        habits = Habits(
            arrivals=rng.choice([0.05, 0.3, 0.8]),
            backup=rng.choice([(2.0, 30.0), (30.0, 300.0), (300.0, 1200.0)]),
            fails=rng.choice([0.0, 0.0, 0.1, 0.6]),
            joins=rng.choice([20.0, 100.0, 400.0]),
            page=rng.choice([500, 500, 8]),
        )
        self.kubernetes = Kubernetes(life.clock, rng, life.pod, habits, life.judge.fault)
        self.ends: dict[Node, End] = {}
        self._knows_hook = self._must and rng.random() < 0.95
        """Otherwise it has been running since before the backup was in the file."""
        self._troubles = rng.choice([0.0, 0.0, 0.01, 0.05])
        """Probability that a request to the API fails."""
        self._api_out: tuple[float, str] = (0.0, "")
        """Until when every request fails, and how."""
        self._dies_in = inf
        """After how many requests its process is killed."""
        self._failing: dict[Request, float] = {}
        """Requests whose calls fail, and since when."""
        self._troubled = 0
        """Failed requests to the API so far."""
        self._left = rng.choice([0, 2, 4, 8, 16])

    def _ends(self, node: Node) -> None:
        kubernetes, now = self.kubernetes, self.life.clock.now
        self.unready[node] = kubernetes.unready(node, must_be_saved=True)
        if member := kubernetes.member(node):
            silent = [each for each in kubernetes.members.values() if now - each.silent_since >= LOST_AFTER]
            cut_off = 2 * len(silent) > len(kubernetes.members)
            self.ends[node] = End(
                member.joined, kubernetes.is_saved(member), member.saved_from, now - member.silent_since, cut_off
            )
            member.silent_since = min(member.silent_since, now)

    def _policy(self) -> str:
        said = read_policy(super()._policy())
        assert said is not None
        return replace(said, unmanaged=self.rng.choice(["fail", "evict", "evict", "evict"])).text()

    # -- as time goes --

    def begin(self, file: Template) -> None:
        super().begin(file)
        self.is_there = bool(file.drain)
        self.kubernetes.begin()
        self.life.tell(f"drains: {asdict(self.kubernetes.habits)}, saves {self._must}, troubles {self._troubles}")

    def deployment_begins(self, deployment: Deployment) -> None:
        """The stack of the EKS cluster, which contains the drainer, is deployed before the cluster's, and stays."""
        super().deployment_begins(deployment)
        self.is_there = bool(deployment.new.drain)

    def finish(self) -> None:
        """The cause is fixed, and the deployment is repeated with another `retry`, as the function's message says."""
        super().finish()
        self.kubernetes.open = False
        self.kubernetes.has_cron_job, self._troubles, self._dies_in = True, 0.0, inf
        self.function_out, self._api_out, self.kubernetes.hook_denied_until = (0.0, ""), (0.0, ""), 0.0
        stack = self.life.stack
        for number in range(3):
            self.life.clock.pass_time(4000)
            file = stack.known[PREPARE]
            if not (file and file.drain and self.life.pod.exists) or "ROLLBACK_FAILED" in stack.status:
                self.is_there = False
                return
            self.life.faults.calm()
            self.life.deploy_again(f"{file.retry} at last {number}")
            if not any(request.faults for request in stack.deployments[-1].requests):
                return

    def wanted(self) -> list[str]:
        return [str(member.node.id) for member in self.kubernetes.members.values() if MARK in member.annotations]

    def held(self) -> Iterable[str]:
        if self.is_there:
            for member in self.kubernetes.members.values():
                if MARK in member.annotations or member.cordon == "drainer":
                    yield str(member.node.id)

    # -- what the function calls --

    def invoke(self, arn: str, payload: bytes, request: Request) -> dict[str, Any]:
        """Lambda's answer."""
        if arn != self.channel[1] or not self.is_there:
            request.faults += (
                1  # It was deleted, with the nodes that it held, when the file no longer drained: docs/drain-eks.md.
            )
            raise Refused("ResourceNotFoundException", f"Function not found: {arn}", 404)
        troubled, asked = self._troubled, (json.loads(payload)["requests"] or {}).get("deployment")
        if asked is not None:
            request.asked_agent = True
            request.drain_request_ids |= self.new_request_ids(asked["nodes"])
            request.drained |= {node_request["id"] for node_request in asked["nodes"]}
            self.kubernetes.unmanaged |= {
                node_request["id"]: node_request["unmanaged_pods"] for node_request in asked["nodes"]
            }
        answer = self._run(payload)
        request.faults += self._troubled > troubled
        if asked is not None and asked["nodes"]:
            ready = self._troubled == troubled and self._may_go(asked["nodes"], json.loads(answer["Payload"]), request)
            request.ready = request.ready + 1 if ready else 0
        return answer

    def _may_go(self, node_requests: list[dict[str, Any]], answer: dict[str, Any], request: Request) -> bool:
        """Whether the drainer reports all nodes as ready, or would have to."""
        told, names = answer["nodes"], {node_request["id"] for node_request in node_requests}
        if names == told.keys() and all(
            each["state"] == "ready"
            and not each["running"]
            and (each["saved"] or not self._must)
            and each["requests"]["deployment"] in request.drain_request_ids
            for each in told.values()
        ):
            return True
        members = {str(member.node.id): member for member in self.kubernetes.members.values()}
        return not self._must and all(name in members and self.kubernetes.is_idle(members[name]) for name in names)

    def hear(self, request: Request, began: float, answer: bytes | None) -> Heard:
        """What can be known from a call that began then; `answer` absent: it failed."""
        found = None if answer is None else json.loads(answer)
        if found is None or (found["problem"] and not found["problem"].startswith(NOT_RELEASED)):
            request.ready = 0
            since = self._failing.setdefault(request, began)
            return Heard(began, None, self.life.clock.now - since >= SILENT)
        self._failing.pop(request, None)
        return Heard(began, found, silent=False)

    def _run(self, payload: bytes) -> dict[str, Any]:
        """One run of the drainer."""
        clock = self.life.clock
        clock.pass_time(self.rng.uniform(0.05, 1.5))
        send = partial(self._send, clock.now)
        hook = "/".join(HOOK) if self._knows_hook else None
        drainer = Drainer(Api(send, clock.pass_time, lambda: clock.now), hook, log=self._log, clock=lambda: clock.now)
        try:
            return {"Payload": json.dumps(drainer.look(json.loads(payload), clock.datetime().timestamp())).encode()}
        except Killed:
            self._troubled += 1
            return {"FunctionError": "Unhandled", "Payload": b'{"errorMessage": "Task timed out after 60.00 seconds"}'}

    def _log(self, line: str) -> None:
        if self.life.story is not None:
            self.life.tell(f"    drainer: {line[:400]}")

    def _send(self, began: float, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        """One request of the drainer to the API."""
        clock, rng = self.life.clock, self.rng
        clock.pass_time(rng.uniform(0.005, 0.08))
        if self._left > 0 and rng.random() < 0.01:
            self._act()
        self._dies_in -= 1
        if self._dies_in <= 0 or clock.now > began + LASTS:
            self._dies_in = inf
            raise Killed
        if rng.random() < 0.05 and self.kubernetes.members:
            rng.choice(list(self.kubernetes.members.values())).version += 1  # Its kubelet reports.
        until, how = self._api_out
        if clock.now >= until:
            how = rng.choice(_WAYS) if rng.random() < self._troubles else ""
        self._troubled += bool(how)
        if how == "hangs":
            clock.pass_time(HANGS)
            raise TimeoutError("timed out")
        if how.isdecimal():
            return Reply(int(how), b'{"message": "not now"}', "1" if how == "429" else "")
        reply = self.kubernetes.request(method, path, None if body is None else json.loads(body), kind)
        if how == "lost":
            raise ConnectionResetError
        return replace(reply, content=reply.content[:20]) if how == "cut" else reply

    # -- what goes wrong --

    def _some(self, *, held: bool | None = None) -> Member | None:
        """Absent (`held`): usually a held node."""
        members = list(self.kubernetes.members.values())
        marked = [member for member in members if MARK in member.annotations]
        if held is None:
            held = bool(marked) and self.rng.random() < 0.7
        members = marked if held else [member for member in members if member not in marked]
        return self.rng.choice(members) if members else None

    def _drainer_dies(self) -> None:
        self._dies_in = self.rng.randint(1, 12)

    def _api_is_away(self) -> None:
        how = self.rng.choice(_WAYS)
        self._api_out = (self.life.clock.now + self.rng.choice([15.0, 100.0, 400.0, 1500.0]), how)

    def _function_is_refused(self) -> None:
        code = self.rng.choice(["TooManyRequestsException", "AccessDeniedException", "ServiceException"])
        self.function_out = (self.life.clock.now + self.rng.choice([20.0, 100.0, 250.0, 1500.0]), code)

    def _budget_changes(self) -> None:
        if self.kubernetes.apps:
            app = self.rng.choice(self.kubernetes.apps)
            app.least = self.rng.choice([0, app.replicas - 1, app.replicas])

    def _person_cordons(self) -> None:
        if (member := self._some(held=False)) and not member.cordon:
            self._writes(member).cordon = "person"

    def _person_uncordons(self) -> None:
        if (member := self._some()) and member.cordon:
            self._writes(member).cordon = ""
            self.undone.append(Undone(self.life.clock.now, str(member.node.id)))

    def _hyperpod_bars(self) -> None:
        """It wants no pods there for a while."""
        if member := self._some():
            self._writes(member).labels[HEALTH] = "UnschedulablePendingReboot"
            member.cordon = member.cordon or "hyperpod"
            self.life.clock.later(self.rng.choice([60.0, 900.0, 20000.0]), partial(self._hyperpod_unbars, member))

    def _hyperpod_unbars(self, member: Member) -> None:
        self._writes(member).labels[HEALTH] = "Schedulable"
        member.cordon = "" if member.cordon == "hyperpod" else member.cordon

    def _mark_is_spoilt(self) -> None:
        """The owner of the cordon is no longer known, so it is the person's who changed it."""
        if member := self._some(held=True):
            self._writes(member).annotations[MARK] = "{}"
            member.cordon = member.cordon and "person"

    def _kubelet_falls_silent(self, member: Member | None = None) -> None:
        if (member := member or self._some()) and member.silent_since == inf:
            member.silent_since = self.life.clock.now
            self.life.clock.later(
                self.rng.choice([100.0, 500.0, 3000.0, 40000.0]), partial(self._kubelet_is_back, member)
            )

    def _kubelet_is_back(self, member: Member) -> None:
        if not member.node.leaving and not member.node.gone:
            member.silent_since = inf

    def _most_fall_silent(self) -> None:
        members = list(self.kubernetes.members.values())
        for member in self.rng.sample(members, 2 * len(members) // 3):
            self._kubelet_falls_silent(member)

    def _person_deletes_a_node_object(self) -> None:
        if member := next((m for m in self.kubernetes.members.values() if m.silent_since != inf), None):
            self.kubernetes.forget(member)

    def _person_deletes_a_pod(self) -> None:
        if pods := [pod for pod in self.kubernetes.pods.values() if pod.member]:
            self.kubernetes.delete(self.rng.choice(pods))

    def _person_deletes_a_backup(self) -> None:
        if self.kubernetes.jobs:
            self.kubernetes.stop(self.rng.choice(list(self.kubernetes.jobs)))

    def _member_forges_a_backup(self) -> None:
        """The drainer should have no permission in its namespace, but has one."""
        if self.kubernetes.jobs:
            name = self.rng.choice(list(self.kubernetes.jobs))
            self.kubernetes.forge(name, succeeds=self.rng.random() < 0.5)

    def _cron_job_goes(self) -> None:
        self.kubernetes.has_cron_job = False
        self.life.clock.later(self.rng.choice([60.0, 1000.0]), partial(setattr, self.kubernetes, "has_cron_job", True))

    def _hook_is_forbidden(self) -> None:
        """The Role in its namespace is missing."""
        self.kubernetes.hook_denied_until = self.life.clock.now + self.rng.choice([60.0, 400.0, 4000.0])

    def _node_fails(self) -> None:
        """A held node, if there is one. Its kubelet may be alive."""
        if (member := self._some(held=True) or self._some()) and member.node.status == "Running":
            self.life.pod.fail(member.node)
            if self.rng.random() < 0.5:
                self._kubelet_falls_silent(member)

    def _writes(self, member: Member) -> Member:
        member.version += 1
        return member


_WAYS = ("hangs", "lost", "cut", "429", "500", "503", "401", "403")

ByDrainer.deeds = {
    "the drainer dies": (4, ByDrainer._drainer_dies),
    "the API is away": (2, ByDrainer._api_is_away),
    "Lambda refuses the function": (2, ByDrainer._function_is_refused),
    "a budget changes": (2, ByDrainer._budget_changes),
    "a person cordons": (2, ByDrainer._person_cordons),
    "a person uncordons": (2, ByDrainer._person_uncordons),
    "HyperPod bars a node": (2, ByDrainer._hyperpod_bars),
    "a person spoils a mark": (0.5, ByDrainer._mark_is_spoilt),
    "a kubelet falls silent": (2, ByDrainer._kubelet_falls_silent),
    "most kubelets fall silent": (1, ByDrainer._most_fall_silent),
    "a person deletes a Node object": (1, ByDrainer._person_deletes_a_node_object),
    "a person deletes a pod": (1, ByDrainer._person_deletes_a_pod),
    "a person deletes a backup": (1, ByDrainer._person_deletes_a_backup),
    "a member forges a backup": (2, ByDrainer._member_forges_a_backup),
    "the CronJob is gone": (0.5, ByDrainer._cron_job_goes),
    "the hook is forbidden": (0.5, ByDrainer._hook_is_forbidden),
    "a node fails": (2, ByDrainer._node_fails),
}


class EksReadiness(Readiness):
    """The same guarantees for a drainer that answers at once or not at all (docs/adr/0015)."""

    undone_within = 0.0
    draining: ByDrainer

    def _allowed(self, node: Node, request: Request, look: Look, said: Policy) -> bool:
        heard, end = look.heard, self.draining.ends.get(node)
        if heard is None or heard.silent:
            return request.rollback or (heard is not None and said.undrained)
        if end is None or end.joined >= heard.at:
            return True  # It joined between the drainer's look and the call.
        asked = (request.heard, BACK if request.rollback else said.minutes * 60.0)
        # A node's five minutes are measured by HyperPod's clock.
        launched = (node.launched or 0.0) + self.life.switches.clocks_apart
        began, span = asked if request.rollback else max(asked, (launched, BACK), key=sum)
        forces = request.rollback or said.force
        if said.must_be_saved and not request.rollback:
            # What runs on after that, and ends before the node does, is in no backup.
            ends = began + SAVES_AT * span
            # A complete backup ends no pod before its time is over.
            runs = self.draining.unready[node].endswith("runs")
            waited = heard.at + 3 >= (began + span if runs else ends)
            return forces and waited and (end.saved or end.saved_from + 3 >= ends)
        # The pods of a silent kubelet may still run. They get the same time as others, and more if most kubelets are
        # silent.
        lost = end.silent >= LOST_AFTER and not end.cut_off
        return heard.at + 3 >= began + span and (forces or lost)

    def request_ended(self, request: Request) -> None:
        super().request_ended(request)
        told = request.succeeded or "[nodes-not-released]" in request.reason or isinstance(request.error, Killed)
        stays = [node.name for node in self.draining.nodes() if node.id in self.draining.wanted()]
        if request.asked_agent and stays and not told:
            self.life.judge.fault(
                "a node stays held in silence", f"{request}: {', '.join(stays)}: {request.reason[:300]}"
            )
