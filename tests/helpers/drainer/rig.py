"""An EKS cluster for the drainer: a real API server with its controllers and scheduler. Tests act as the kubelets.

The drainer calls it as on EKS: over TLS, with a bearer token, as a member of its group only.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Api, Connection, Reply, Send
from cdk_hyperpod._lambda.hyperpod.drainer.drainer import Drainer
from cdk_hyperpod.kubernetes.drainer import DRAINER_GROUP, drainer_manifests
from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.apiserver.client import Answer, Client, await_answer, older_path
from helpers.kubernetes.apiserver.objects import await_usable
from helpers.kubernetes.apiserver.running import running

HOOK = "ops/save-node"
TOKEN = "the-drainers-token"
NOW = 1_800_000_000.0
_numbers = itertools.count(1)


def of_1_20(send: Send) -> Send:
    """The server that CI builds is 1.20, which has policy/v1 and CronJobs of batch/v1 as v1beta1, with the same
    fields. test_requests.py checks the newer versions against EKS's schemas."""

    def older(method: str, path: str, body: bytes | None, kind: str) -> Reply:
        path = older_path(path)
        if "/eviction" in path and body is not None:
            body = body.replace(b'"policy/v1"', b'"policy/v1beta1"')
        return send(method, path, body, kind)

    return older


@contextmanager
def control_plane(folder: Path) -> Iterator[Client]:
    """The administrator. It gives the drainer a token, its group, and exactly its permissions."""
    (folder / "tokens.csv").write_text(f"admin,admin,admin,system:masters\n{TOKEN},drainer,drainer,{DRAINER_GROUP}\n")
    with running(folder) as client:
        Rig(client, TOKEN).namespace(HOOK.partition("/")[0])
        client.apply_all(drainer_manifests(HOOK))
        yield client


@dataclass(slots=True)
class Rig:
    """One cluster, and the objects of a test. `clear` deletes them all."""

    admin: Client
    token: str
    now: float = NOW
    backup: str | None = None
    logged: list[str] = field(default_factory=list)
    wrap: Callable[[Send], Send] = lambda send: send
    """What a test puts between the drainer and the server."""
    made: list[str] = field(default_factory=list)

    # -- the drainer --

    def ask(self, *nodes: dict[str, Any], request: str = "r-1") -> dict[str, Any]:
        """A look with a request. Its whole answer can be sent as JSON."""
        asked = {"schema": 1, "id": request, "nodes": list(nodes)}
        return self.send({"schema": 1, "cluster": "train", "requests": {"deployment": asked}})

    def tell(self) -> dict[str, Any]:
        """A look without a request."""
        return self.send({"schema": 1, "cluster": "train", "requests": None})

    def send(self, event: Any) -> dict[str, Any]:
        cluster = self.admin.cluster
        connection = Connection(cluster.url, cluster.certificate.read_text(), self.token)
        try:
            send = of_1_20(connection.send) if self.admin.cluster.minor < 21 else connection.send
            api = Api(self.wrap(send), sleep=lambda _: None)
            found = Drainer(api, self.backup, log=self.logged.append).look(event, self.now)
        finally:
            connection.close()
        answer: dict[str, Any] = json.loads(json.dumps(found))
        return answer

    def node_request(self, instance: str, request: str = "20271107T090000", **changed: Any) -> dict[str, Any]:
        """A request for a node in the scale-down function's form: twenty-five minutes, all of them left."""
        return {
            "id": instance,
            "ip": "10.0.0.1",
            "request": request,
            "deadline": NOW + 1500,
            "expires": self.now + 600,
            "on_timeout": "fail",
            "backup": True,
            **changed,
        }

    # -- the cluster --

    def node(
        self,
        name: str = "hyperpod-{}",
        *,
        labels: dict[str, str] | None = None,
        instance: str | None = None,
        **spec: Any,
    ) -> str:
        """Create a ready node with room for any pods; returns its instance id."""
        instance = instance or f"i-{next(_numbers):017x}"
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name.format(instance), "labels": labels or {}},
            "spec": spec,
        }
        self.must(self.admin.create(manifest))
        room = {"cpu": "96", "memory": "1000Gi", "pods": "100", "ephemeral-storage": "100Gi"}
        ready = {"type": "Ready", "status": "True", "reason": "Test"}
        self.must(self.admin.patch_status(manifest, {"capacity": room, "allocatable": room, "conditions": [ready]}))
        # The server taints a new node as not ready, and no controller here would remove the taint.
        self.patch(f"/api/v1/nodes/{name.format(instance)}", {"spec": {"taints": None}})
        return instance

    def namespace(self, name: str) -> str:
        if self.admin.get(f"/api/v1/namespaces/{name}").status == 404:
            self.must(self.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        await_usable(self.admin, name, quotas=())
        return name

    def pod(self, instance: str, name: str, *, owner: str | None = "ReplicaSet/web", **changed: Any) -> str:
        """Create a pod that runs on the node; returns its path.

        `changed`: labels, annotations, namespace, and fields of its spec.
        """
        namespace = self.namespace(changed.pop("namespace", "team"))
        metadata: Manifest = {"name": name, "namespace": namespace}
        metadata |= {key: changed.pop(key) for key in ("labels", "annotations") if key in changed}
        if owner is not None:
            kind, _, owned_by = owner.partition("/")
            reference = {"apiVersion": "apps/v1", "kind": kind, "name": owned_by, "uid": "u-1", "controller": True}
            metadata["ownerReferences"] = [reference]
        spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": f"hyperpod-{instance}", **changed}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.must(self.admin.create(manifest))
        self.runs(manifest)
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    def runs(self, pod: Manifest, phase: str = "Running") -> None:
        """The kubelet's report."""
        ready = "True" if phase == "Running" else "False"
        self.must(self.admin.patch_status(pod, {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}))

    def budget(self, name: str, selector: dict[str, str], least: int) -> None:
        """A PodDisruptionBudget, after its controller has counted."""
        spec = {"minAvailable": least, "selector": {"matchLabels": selector}}
        self.install_budget({"metadata": {"name": name, "namespace": "team"}, "spec": spec})

    def install_budget(self, manifest: Manifest, healthy: int = 1) -> None:
        self.must(self.admin.create({**manifest, "apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}))
        metadata = manifest["metadata"]
        path = f"/apis/policy/v1/namespaces/{metadata['namespace']}/poddisruptionbudgets/{metadata['name']}"
        self.made.append(path)
        await_answer(
            lambda: self.admin.get(path),
            lambda answer: answer.body.get("status", {}).get("currentHealthy", 0) >= healthy,
            "the budget's count",
        )

    def allowed(self, budget: str) -> int:
        """How many pods a budget allows to evict now."""
        path = f"/apis/policy/v1/namespaces/team/poddisruptionbudgets/{budget}"
        return int(self.admin.get(path).body["status"]["disruptionsAllowed"])

    def quota(self, hard: dict[str, str]) -> None:
        """The quota of the backups' namespace, after it is enforced."""
        metadata = {"name": "tight", "namespace": "ops"}
        self.must(
            self.admin.create(
                {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
            )
        )
        path = "/api/v1/namespaces/ops/resourcequotas/tight"
        self.made.append(path)
        await_answer(lambda: self.admin.get(path), lambda answer: bool(answer.body["status"].get("hard")), "the quota")

    def goes_silent(self, instance: str, since: float) -> None:
        """The node controller's report when the kubelet is silent."""
        moment = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"hyperpod-{instance}"}}
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": moment}
        self.must(self.admin.patch_status(manifest, {"conditions": [ready]}))

    def watch(self, sent: list[str]) -> None:
        """Record the paths of the drainer's requests."""

        def watching(send: Send) -> Send:
            def watched(method: str, path: str, body: bytes | None, kind: str) -> Reply:
                sent.append(path)
                return send(method, path, body, kind)

            return watched

        self.wrap = watching

    @staticmethod
    def until(holds: Callable[[], bool], what: str, limit_s: float = 20) -> None:
        """Wait for a controller."""
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.1)

    def end_pods(self) -> list[str]:
        """Act as the kubelets: pods that are being deleted end. Returns their names."""
        gone = []
        for pod in self.admin.get("/api/v1/pods").body["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                gone.append(pod["metadata"]["name"])
                self.admin.delete({"apiVersion": "v1", "kind": "Pod", **pod})
        return sorted(gone)

    def cron_job(self, **job: Any) -> None:
        """The user's backup, suspended."""
        namespace, _, name = HOOK.partition("/")
        self.namespace(namespace)
        container = {"name": "save", "image": "none", "command": ["save"]}
        pod = {"restartPolicy": "Never", "nodeSelector": {"disk": "nvme"}, "containers": [container]}
        template = {
            "metadata": {"labels": {"app": "save"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}, **job},
        }
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
        metadata = {"name": name, "namespace": namespace}
        self.must(self.admin.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}))
        self.made.append(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/{name}")
        self.backup = HOOK

    def jobs(self) -> list[Manifest]:
        found: list[Manifest] = self.admin.get("/apis/batch/v1/namespaces/ops/jobs").body["items"]
        return found

    def job_pod(self) -> Manifest:
        """The pod of the only backup, after the scheduler has placed it. (A pod of a deleted Job may come late.)"""
        (job,) = self.jobs()
        listed = f"/api/v1/namespaces/ops/pods?labelSelector=controller-uid%3D{job['metadata']['uid']}"

        def is_placed(answer: Answer) -> bool:
            return any(pod["spec"].get("nodeName") for pod in answer.body["items"])

        (pod,) = await_answer(lambda: self.admin.get(listed), is_placed, "the backup's pod").body["items"]
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def job_ends(self, phase: str) -> None:
        """The kubelet reports that the pod has ended, and the Jobs' controller that the Job has."""
        pod = self.job_pod()
        self.runs(pod, phase)
        path = f"/apis/batch/v1/namespaces/ops/jobs/{pod['metadata']['labels']['job-name']}"
        await_answer(
            lambda: self.admin.get(path), lambda answer: bool(answer.body["status"].get("conditions")), "the Job's end"
        )

    def ended_already(self) -> bool:
        """Whether the backup has ended."""
        return any(job["status"].get("conditions") for job in self.jobs())

    # -- what it looks like --

    def raw(self, instance: str) -> Manifest:
        found: Manifest = self.admin.get(f"/api/v1/nodes/hyperpod-{instance}").body
        return found

    def held(self, instance: str) -> bool:
        """Cordoned and marked. The drainer never does only one of the two."""
        node = self.raw(instance)
        marked = "cdk-hyperpod.dev/drain" in node["metadata"].get("annotations", {})
        return marked and node["spec"].get("unschedulable", False) is True

    def free(self, instance: str) -> bool:
        node = self.raw(instance)
        return not node["spec"].get("unschedulable") and not node["metadata"].get("annotations", {})

    def ends(self, path: str) -> bool:
        """The pod is being deleted, or is deleted."""
        answer = self.admin.get(path)
        return answer.status == 404 or "deletionTimestamp" in answer.body["metadata"]

    def patch(self, path: str, body: Manifest) -> None:
        self.must(self.admin.request("PATCH", path, body, "application/merge-patch+json"))

    @staticmethod
    def must(answer: Answer) -> None:
        assert answer.status in (200, 201), answer.body

    def clear(self) -> None:
        """Nodes, pods, budgets and backups: every test sees the whole cluster."""
        self._delete(self.made)
        self.clear_nodes()

    def clear_nodes(self) -> None:
        """All nodes, their pods, and the backups."""
        self.clear_jobs()
        deadline = time.monotonic() + 20
        while pods := self.admin.get("/api/v1/pods").body["items"]:
            assert time.monotonic() < deadline
            self._delete(
                f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}" for pod in pods
            )
        nodes = self.admin.get("/api/v1/nodes").body["items"]
        self._delete(f"/api/v1/nodes/{node['metadata']['name']}" for node in nodes)

    def clear_jobs(self) -> None:
        """Delete everything, as an administrator would."""
        self._delete(f"/apis/batch/v1/namespaces/ops/jobs/{job['metadata']['name']}" for job in self.jobs())

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.admin.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
