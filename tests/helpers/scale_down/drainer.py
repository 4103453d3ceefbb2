"""The drainer of an EKS cluster as in ADR 15, with the true state of the pods and their budgets.

Independent of the function, and of the real drainer's code (_lambda/hyperpod/drainer, which tests/real/drainer tests on
a real API server). It acts only while it is called, and remembers only what is on the nodes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError  # type: ignore[import-untyped]

from helpers.scale_down.controller import Instance

Json = dict[str, Any]
ARN = "arn:aws:lambda:us-west-2:000000000000:function:hyperpod-train-drainer"


@dataclass(slots=True)
class Drainer:
    """A function in the VPC, with the nodes of its cluster."""

    now: Callable[[], float]
    nodes: Callable[[], Iterable[Instance]]
    pods: dict[str, float] = field(default_factory=dict)
    """Node -> how many seconds a pod needs to end after its eviction."""
    budgets: dict[str, float] = field(default_factory=dict)
    """Node -> until when a PodDisruptionBudget prevents the eviction of its pods."""
    saving_s: float = 0
    """How long the Job of the CronJob runs, if there is one."""
    unsavable: set[str] = field(default_factory=set)
    backup: str | None = None
    """The CronJob in its request."""
    karpenters: set[str] = field(default_factory=set)
    lone: set[str] = field(default_factory=set)
    """Nodes with pods that no controller owns."""
    absent: set[str] = field(default_factory=set)
    """Nodes that Kubernetes does not have."""
    fails: str = ""
    """How every call fails: a code of AWS, `function`, `timeout`, `garbage`, or `problem`."""
    fails_until: float = math.inf
    evicted: dict[str, float] = field(default_factory=dict)
    """Node -> when its pods were evicted; until the node is released."""
    evictions: dict[str, float] = field(default_factory=dict)
    """The same for all nodes, also after their release."""
    forbidden: set[str] = field(default_factory=set)
    """Nodes for which it may not create the Job."""
    stuck: set[str] = field(default_factory=set)
    """Nodes that cannot be changed, so that they stay cordoned."""
    dead: set[str] = field(default_factory=set)
    """Nodes with a silent kubelet: reported as ready, and not backed up."""
    patched: dict[str, float] = field(default_factory=dict)
    """Node -> until when a run of `cdk-hyperpod patch` holds it: no deployment's request changes that, but one that takes it over."""
    cordoned: dict[str, Json] = field(default_factory=dict)
    """Node -> its annotation: the holder, the request, and the time."""
    saving: dict[str, float] = field(default_factory=dict)
    """Node -> when its first Job began."""
    jobs: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Node, request) -> when the Job for it began."""
    saved: dict[str, str] = field(default_factory=dict)
    """Node -> the request for which it is backed up."""
    given_back: dict[str, float] = field(default_factory=dict)
    calls: list[Json] = field(default_factory=list)

    def busy(self, node: str) -> bool:
        """A pod that would be lost runs there now."""
        return node in self.pods and self.now() < self.evicted.get(node, math.inf) + self.pods[node]

    # -- Lambda

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Json:
        assert FunctionName == ARN, FunctionName
        event = json.loads(Payload)
        assert event.keys() == {"schema", "cluster", "requests"}, event
        assert (event["schema"], event["cluster"]) == (1, "train")
        assert all(request["schema"] == 1 for request in (event["requests"] or {}).values())
        if self.fails and self.now() < self.fails_until:
            return self._fail()
        self.calls.append(event)
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(self._look(event["requests"])).encode())}

    def _fail(self) -> Json:
        match self.fails:
            case "function":
                error = {"errorType": "RuntimeError", "errorMessage": "no way to the API"}
                return {
                    "StatusCode": 200,
                    "FunctionError": "Unhandled",
                    "Payload": io.BytesIO(json.dumps(error).encode()),
                }
            case "timeout":
                raise ReadTimeoutError(endpoint_url="https://lambda.us-west-2.amazonaws.com")
            case "garbage":
                return {"StatusCode": 200, "Payload": io.BytesIO(b'{"schema": 2}')}
            case "problem":
                said = {"schema": 1, "problem": "GET /api/v1/nodes: TimeoutError: timed out", "nodes": {}, "busy": []}
                return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(said).encode())}
        raise ClientError({"Error": {"Code": self.fails, "Message": "Rate Exceeded."}}, "Invoke")

    # -- one look

    def _look(self, requests: Json | None) -> Json:
        here = {str(node.instance_id) for node in self.nodes()} - self.absent
        self.cordoned = {node: held for node, held in self.cordoned.items() if node in here}
        wanted = None if requests is None else {each["id"]: each for each in requests["deployment"]["nodes"]}
        for node, held in list(self.cordoned.items()):
            if held["expires"] <= self.now() if wanted is None else node not in wanted:
                self._give_back(node)
        taken = {node for node, each in (wanted or {}).items() if each.get("takes_over")}
        self.patched = {node: end for node, end in self.patched.items() if end > self.now() and node not in taken}
        asked = {node: each for node, each in (wanted or {}).items() if node not in self.patched}
        held = {node: node_request for node, node_request in self.cordoned.items() if node not in asked}
        told = {node: self._told(node, node_request, here, acts=True) for node, node_request in asked.items()}
        told |= {node: self._told(node, node_request, here, acts=False) for node, node_request in held.items()}
        for node in self.patched.keys() & here:
            told[node] = {"state": "draining", "message": "", "requests": {"operator": "patch-1"}, "running": 0}
        return {
            "schema": 1,
            "beat": self.now(),
            "requests": {} if requests is None else {"deployment": requests["deployment"]["id"]},
            "refused": {},
            "problem": "not released: hyperpod-i (500)" if wanted is not None and set(held) & self.stuck else "",
            "busy": sorted(node for node in here if self.busy(node)),
            "backup": self.backup,
            "nodes": told,
        }

    def _told(self, node: str, node_request: Json, here: set[str], *, acts: bool) -> Json:
        said = self._judge(node, node_request, here, acts=acts)
        return {
            "requests": {"deployment": node_request["request"]},
            "jobs": [],
            "running": int(self.busy(node)),
            **said,
        }

    def _judge(self, node: str, node_request: Json, here: set[str], *, acts: bool) -> Json:
        if node not in here:
            return {"state": "unknown", "message": "Kubernetes has no such node", "absent": True}
        if node in self.karpenters:
            return {"state": "refused", "message": "is Karpenter's, which decides about it"}
        if node in self.lone and self.busy(node) and node_request["unmanaged_pods"] == "fail":
            return {"state": "refused", "message": "has pods that no controller owns: research/lone [pods-unmanaged]"}
        if node_request["deadline"] <= self.now() and node_request["on_timeout"] == "fail" and self.busy(node):
            self._give_back(node)
            return {"state": "timed-out", "message": "was released at its deadline; pods: research/job-0"}
        if acts:
            self.cordoned[node] = node_request
            if self.budgets.get(node, -math.inf) <= self.now():
                self.evictions[node] = self.evicted.setdefault(node, self.now())
        if node in self.dead:
            return {"state": "ready", "message": "does not respond", "saved": False}
        ignored = node_request["deadline"] <= self.now()
        if self.busy(node) and not ignored:
            budget = "; research/job allows no disruption" if node not in self.evicted else ""
            return {"state": "draining", "message": f"pods: research/job-0{budget}", "jobs": [{"name": "job-0"}]}
        if self.saved.get(node) == node_request["request"]:
            return {"state": "ready", "message": "", "saved": True}
        if self.backup is None or not node_request["backup"]:
            return {"state": "ready", "message": "", "saved": False}
        if node in self.forbidden:
            said = 'cannot be saved: cronjobs.batch "backup" is forbidden: User "drainer" [backup-impossible]'
            return {"state": "backup-failed", "message": said}
        if node in self.unsavable:
            return {"state": "backup-failed", "message": "Job hyperpod-backup/save-node-1 failed"}
        if (node, node_request["request"]) not in self.jobs:
            self.jobs[node, node_request["request"]] = self.now()
        self.saving.setdefault(node, self.now())
        if self.now() < self.jobs[node, node_request["request"]] + self.saving_s:
            return {"state": "backing-up", "message": "Job hyperpod-backup/save-node-1 runs"}
        self.saved[node] = node_request["request"]
        return {"state": "ready", "message": "", "saved": True}

    def _give_back(self, node: str) -> None:
        if node in self.cordoned and node not in self.stuck:
            del self.cordoned[node]
            self.given_back[node] = self.now()
            self.evicted.pop(node, None)
