"""The drainer of an EKS cluster: the real one, with the Kubernetes of tests/simulations/lifetimes, for the nodes of the first
HyperPod model.

Kubernetes has its own clock, which is set to HyperPod's at each call.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from botocore.exceptions import ClientError, ReadTimeoutError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.drainer import drainer
from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, Reply
from cdk_hyperpod._lambda.hyperpod.drainer.mark import MARK, Mark, make_mark, parse_mark
from cdk_hyperpod._lambda.hyperpod.drainer.objects import JOB_LABEL, JOB_REQUEST
from cdk_hyperpod._lambda.hyperpod.kernel.drain_protocol import PATCH, NodeRequest
from helpers.drainer.lease import RunLease
from helpers.scale_down.controller import Instance
from simulations.lifetimes.clock import EPOCH, Clock
from simulations.lifetimes.hyperpod import Group, HyperPod, Node
from simulations.lifetimes.kubernetes import KARPENTER, LOST_AFTER, App, Habits, Job, Kubernetes, Member, Pod

Json = dict[str, Any]
ARN = "arn:aws:lambda:us-west-2:000000000000:function:hyperpod-train-drainer"


class _Longest(Random):
    """What may take from one to another time takes the longer one."""

    def uniform(self, a: float, b: float) -> float:
        del a
        return b

    def choice(self, seq: Any) -> Any:
        return seq[0]


class _Kubernetes(Kubernetes):
    """Records what the drainer does to nodes, by instance, in seconds since 1970."""

    def __init__(self, clock: Clock, group: Group) -> None:
        hyperpod = cast(HyperPod, SimpleNamespace(groups={"": group}))
        super().__init__(clock, _Longest(0), hyperpod, Habits(arrivals=0, backup=(0, 0), joins=0), self._refuse)
        self.evictions: dict[str, float] = {}
        self.given_back: dict[str, float] = {}
        self.made: dict[tuple[str, str], float] = {}
        """(Node, request) -> when the Job for it was made."""
        self.unsavable: set[str] = set()
        self.saved: set[str] = set()

    @staticmethod
    def _refuse(what: str, detail: str) -> None:
        raise AssertionError(f"{what}: {detail}")

    def time(self) -> float:
        return self.clock.datetime().timestamp()

    def join(self, absent: set[str]) -> None:
        """Running nodes are in Kubernetes at once, but the absent ones."""
        self._joins.update({node: math.inf for node in self.pod.groups[""].nodes if node.id in absent})
        self._join(at_once=True)
        for member in list(self.members.values()):
            if member.node.gone or member.node.id in absent:
                self.forget(member)

    def place(self, member: Member, kind: str, seconds: float, app: App | None) -> Pod:
        """A pod that ends so many seconds after its eviction."""
        pod = self._make("research", kind, member, app)
        pod.name, pod.grace = f"{'job' if kind else 'lone'}-{pod.uid}", seconds
        return pod

    def remove(self, pod: Pod) -> None:
        self._remove(pod)

    def delete(self, pod: Pod) -> None:
        if pod.member and not pod.leaving:
            self.evictions[str(pod.member.node.id)] = self.time()
        super().delete(pod)

    def _patch(self, member: Member, body: Json) -> Json:
        was_held = MARK in member.annotations
        reply = super()._patch(member, body)
        if was_held and MARK not in member.annotations:
            self.given_back[str(member.node.id)] = self.time()
        return reply

    def _create(self, name: str, body: Json, *, forged: bool = False) -> Job:
        self.made[_of(body)] = self.time()
        return super()._create(name, body, forged=forged)

    def _done(self, job: Job) -> None:
        node, _ = _of(job.body)
        self.habits.fails = float(node in self.unsavable)
        super()._done(job)
        if job.state == "Complete":
            self.saved.add(node)


def _of(job: Json) -> tuple[str, str]:
    """The node and the request that a Job was made for."""
    metadata = job["metadata"]
    return metadata["labels"][JOB_LABEL], metadata["annotations"][JOB_REQUEST]


class Drainer:
    """Lambda's client with the drainer behind it. Nodes are instance ids, and times seconds since 1970."""

    def __init__(self, now: Callable[[], float], nodes: Callable[[], Iterable[Instance]]) -> None:
        self.now, self._instances = now, nodes
        self._clock, self._group, self._nodes = Clock(), Group("", {}, 0, 0), dict[str, Node]()
        self._clock.now = now() - EPOCH.timestamp()
        self.kubernetes = _Kubernetes(self._clock, self._group)
        self.kubernetes.begin()
        self.lease = RunLease()
        """The run of `cdk-hyperpod patch`."""
        self._pods: dict[str, tuple[tuple[float | None, float | None], Pod]] = {}
        self.pods: dict[str, float] = {}
        """Node -> how many seconds a pod needs to end after its eviction."""
        self.jobs: dict[str, float] = {}
        """Node -> when its pod ends, evicted or not."""
        self.budgets: dict[str, float] = {}
        """Node -> until when a PodDisruptionBudget prevents the eviction of its pods."""
        self.lone: set[str] = set()
        """Nodes with pods that no controller owns."""
        self.karpenters: set[str] = set()
        self.absent: set[str] = set()
        """Nodes that Kubernetes does not have."""
        self.dead: set[str] = set()
        """Nodes with a silent kubelet."""
        self.stuck: set[str] = set()
        """Nodes that cannot be released."""
        self.forbidden: set[str] = set()
        """Nodes for which it may not create the Job."""
        self.backup: str | None = None
        """The CronJob that it knows."""
        self.saving_s: float = 0
        """How long the Job of the CronJob runs."""
        self.fails = ""
        """How every call fails: a code of AWS, `function`, `timeout`, `garbage`, or `problem`."""
        self.fails_until = math.inf
        self.calls: list[Json] = []

    # -- what is true

    @property
    def marks(self) -> dict[str, Mark]:
        members = {str(member.node.id): member for member in self.kubernetes.members.values()}
        return {
            node: parse_mark(member.annotations[MARK], node)
            for node, member in members.items()
            if MARK in member.annotations
        }

    @property
    def held(self) -> dict[str, str]:
        """Node -> the request in its mark."""
        return {node: mark.request.request_id for node, mark in self.marks.items()}

    def hold(self, node: str, until: float = math.inf, request: str = f"{PATCH}1") -> None:
        """As an earlier look did: for a run of `cdk-hyperpod patch`, or another request."""
        self.catch_up()
        end = min(until, self.now() + 10 * 86_400)
        asked = NodeRequest("", request, node, "", end, end, force=False, backup=False)
        member = self.kubernetes.members[f"hyperpod-{node}"]
        member.annotations[MARK] = make_mark(Mark(asked, ours=True, saved=False, since=self.now()))
        member.cordon = "drainer"

    # -- Lambda

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Json:
        assert FunctionName == ARN, FunctionName
        event = json.loads(Payload)
        assert event.keys() == {"schema", "cluster", "requests"}, event
        assert (event["schema"], event["cluster"]) == (1, "train")
        if self.fails and self.now() < self.fails_until:
            return self._fail()
        self.calls.append(event)
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(self.look(event)).encode())}

    def look(self, event: Json) -> Json:
        """The answer to an event."""
        self.catch_up()
        for request in (event["requests"] or {}).values():
            self.kubernetes.unmanaged |= {each["id"]: each["unmanaged_pods"] for each in request["nodes"]}
        api = Api(self._send, self._clock.pass_time, lambda: self._clock.now)
        real = drainer.Drainer(api, self.backup, log=lambda line: None, clock=lambda: self._clock.now)
        return real.look(event, self.now())

    def _fail(self) -> Json:
        said: Json = {"schema": 1, "problem": "GET /api/v1/nodes: TimeoutError: timed out", "nodes": {}, "busy": {}}
        match self.fails:
            case "function":
                said = {"errorType": "RuntimeError", "errorMessage": "no way to the API"}
                payload = io.BytesIO(json.dumps(said).encode())
                return {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": payload}
            case "timeout":
                raise ReadTimeoutError(endpoint_url="https://lambda.us-west-2.amazonaws.com")
            case "garbage" | "problem":
                said = {"schema": 2} if self.fails == "garbage" else said
                return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(said).encode())}
        raise ClientError({"Error": {"Code": self.fails, "Message": "Rate Exceeded."}}, "Invoke")

    def _send(self, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        content = json.loads(body or b"{}")
        if self.lease.is_asked(path):
            status, found = self.lease.answer(method, content)
            return Reply(status, json.dumps(found).encode())
        is_stuck = method == "PATCH" and path.rpartition("hyperpod-")[2] in self.stuck
        if is_stuck and content["metadata"]["annotations"][MARK] is None:
            return Reply(500, b'{"message": "not now"}')
        if method == "POST" and "/jobs" in path and _of(content)[0] in self.forbidden:
            return Reply(403, b'{"message": "jobs.batch is forbidden: User \\"drainer\\" cannot create it"}')
        return self.kubernetes.request(method, path, content, kind)

    # -- Kubernetes' clock, nodes and pods

    def catch_up(self) -> None:
        """What has happened since the last call."""
        self._clock.pass_time(self.now() - EPOCH.timestamp() - self._clock.now)
        here = {each.instance_id: each for each in self._instances() if each.instance_id}
        for name, each in here.items():
            self._nodes.setdefault(name, Node(each.group, each.logical_id, 0.0, "person", name)).status = each.status
        for name in self._nodes.keys() - here.keys():
            self._nodes.pop(name).gone = True
        self._group.nodes = [*self._nodes.values()]
        kubernetes = self.kubernetes
        kubernetes.habits.backup = (self.saving_s, self.saving_s)
        kubernetes.join(self.absent)
        for member in kubernetes.members.values():
            node = str(member.node.id)
            if node in self.karpenters:
                member.labels[KARPENTER] = "pool"
            if node in self.dead:
                member.silent_since = min(member.silent_since, self._clock.now - 10 * LOST_AFTER)
            self._place(node, member)

    def _place(self, node: str, member: Member) -> None:
        wanted, end = (self.pods.get(node), self.jobs.get(node)), self.jobs.get(node, math.inf)
        placed, pod = self._pods.get(node, ((None, None), None))
        if placed == wanted:
            return
        if pod is not None:
            self.kubernetes.remove(pod)
            del self._pods[node]
        if wanted != (None, None):
            kind = "" if node in self.lone else "ReplicaSet"
            pod = self.kubernetes.place(member, kind, self.pods.get(node, math.inf), self._app(node))
            pod.ends = end - EPOCH.timestamp()
            self._pods[node] = wanted, pod

    def _app(self, node: str) -> App | None:
        """An app whose budget refuses evictions for a time."""
        if node not in self.budgets:
            return None
        app = App("job", 0, 1)
        if self.budgets[node] < math.inf:
            self._clock.later(self.budgets[node] - self.now(), lambda: setattr(app, "least", 0))
        return app
