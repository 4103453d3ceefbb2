"""The Kubernetes API of an EKS cluster as far as draining needs it, and the drainer itself, which looks when it is called."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, Reply
from cdk_hyperpod._lambda.hyperpod.drainer.drainer import Drainer
from cdk_hyperpod._lambda.hyperpod.drainer.mark import MARK
from helpers.drainer.lease import RunLease

from .world import Job, Node, World

Json = Any


class Kubernetes:
    """Nodes with their marks and cordons, and a pod for each job. A budget protects some pods until they end by themselves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.marks: dict[str, str] = {}
        self.cordons: set[str] = set()
        self.versions: dict[str, int] = {}
        self.silent_since: dict[str, float] = {}
        self.evictions = 0
        self.lease = RunLease()
        world.drainer = self.drain

    def drain(self, event: Json) -> Json:
        """The function."""
        api = Api(self._send, sleep=lambda _: None)
        answer = Drainer(api, None, log=lambda _: None, clock=lambda: 0.0).look(event, self.world.now)
        for node in self.world.nodes:
            mark = json.loads(self.marks.get(node.id, "{}"))
            by = "patch" if str(mark.get("request", "")).startswith("patch-") else mark.get("by")
            node.held_by = frozenset([by] if mark else []) | ({"cordon"} if node.id in self.cordons else frozenset())
        return answer

    def _members(self) -> list[Node]:
        return [node for node in self.world.nodes if node.here and node.status != "Pending"]

    def _send(self, method: str, path: str, body: bytes | None, _: str) -> Reply:
        if self.lease.is_asked(path):
            status, found = self.lease.answer(method, json.loads(body) if body else {})
            return Reply(status, json.dumps(found).encode())
        names = urlsplit(path).path.strip("/").split("/")[2:]
        status, found = self._answer(method, names, json.loads(body) if body else {}, dry="dryRun" in path)
        return Reply(status, json.dumps(found).encode())

    def _answer(self, method: str, names: list[str], body: Json, *, dry: bool) -> tuple[int, Json]:
        if method == "GET" and names == ["nodes"]:
            return 200, {"metadata": {}, "items": [self._node(node) for node in self._members()]}
        if method == "GET" and names == ["pods"]:
            jobs = [node.job for node in self._members() if node.job]
            return 200, {"metadata": {}, "items": [self._pod(job) for job in jobs]}
        if names[0] == "nodes":
            node = next((each for each in self._members() if f"hyperpod-{each.id}" == names[1]), None)
            if node is None:
                return 404, {"message": "not found"}
            return self._patch(node, body) if method == "PATCH" else (200, self._node(node))
        if names[0] == "namespaces" and names[-1] == "eviction":
            return self._evict(names[3], dry=dry)
        return 404, {"message": f"unknown: {names}"}

    def _node(self, node: Node) -> Json:
        ready = {"type": "Ready", "status": "True"}
        if node.silent:
            since = self.silent_since.setdefault(node.id, self.world.now)
            ready = {
                "type": "Ready",
                "status": "Unknown",
                "lastTransitionTime": datetime.fromtimestamp(since, UTC).isoformat(),
            }
        marks = {MARK: self.marks[node.id]} if node.id in self.marks else {}
        name, version = f"hyperpod-{node.id}", str(self.versions.get(node.id, 0))
        return {
            "metadata": {"name": name, "resourceVersion": version, "labels": {}, "annotations": marks},
            "spec": {"unschedulable": True} if node.id in self.cordons else {},
            "status": {"conditions": [ready]},
        }

    def _pod(self, job: Job) -> Json:
        name = f"pod-{job.node.number}-{job.began:.0f}"
        owner = {"kind": "ReplicaSet", "name": "train", "uid": "u", "controller": True}
        metadata = {"namespace": "team", "name": name, "uid": name, "ownerReferences": [owner]}
        return {
            "metadata": metadata,
            "spec": {"nodeName": f"hyperpod-{job.node.id}", "containers": [{}]},
            "status": {"phase": "Running"},
        }

    def _patch(self, node: Node, body: Json) -> tuple[int, Json]:
        if body["metadata"].get("resourceVersion") != str(self.versions.get(node.id, 0)):
            return 409, {"message": "the object has been modified"}
        for name, text in body["metadata"].get("annotations", {}).items():
            if name == MARK and text is None:
                self.marks.pop(node.id, None)
            elif name == MARK:
                self.marks[node.id] = text
        if "unschedulable" in body.get("spec", {}):
            (self.cordons.add if body["spec"]["unschedulable"] else self.cordons.discard)(node.id)
        self.versions[node.id] = self.versions.get(node.id, 0) + 1
        return 200, self._node(node)

    def _evict(self, name: str, *, dry: bool) -> tuple[int, Json]:
        for node in self._members():
            if node.job is None or self._pod(node.job)["metadata"]["name"] != name:
                continue
            if node.job.protected or node.silent:
                causes = [{"reason": "DisruptionBudget", "message": "The disruption budget train needs 1 healthy pod"}]
                return 429, {"message": "Cannot evict pod", "details": {"causes": causes}}
            if not dry:
                self.evictions += 1
                self.world.end_job(node.job, "")
            return 201, {}
        return 404, {"message": "not found"}
