"""A Kubernetes API as far as draining needs it, with a scheduler, controllers and kubelets behind it.

Written only from Kubernetes' own documents (API reference; concepts: Nodes, Taints and Tolerations, Disruptions,
API-initiated Eviction, Jobs), not from the drainer's code. Callers have the permissions of docs/adr/0015, and all their
calls are checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Reply

from .clock import Clock
from .hyperpod import HyperPod, Node

MARK = "cdk-hyperpod.dev/drain"
"""The drainer's annotation of a node that it holds."""
HEALTH = "sagemaker.amazonaws.com/node-health-status"
KARPENTER = "karpenter.sh/nodepool"
HOOK = ("hyperpod-backup", "save-node")
"""Namespace and name of the CronJob that backs up a node."""

UNKNOWN_AFTER = 40.0
"""Seconds without a report of its kubelet after which a node's condition Ready is Unknown
(node-monitor-grace-period)."""
LOST_AFTER = UNKNOWN_AFTER + 300.0
"""The same until its pods are deleted, which they tolerate for 300 s. Only the kubelet ends them."""
COPIES = {
    "template": {"spec": {"containers": [{"name": "backup", "image": "rsync:3", "command": ["rsync", "/node/"]}]}}
}
"""The result of a backup."""

Json = dict[str, Any]


@dataclass(slots=True, eq=False)
class Member:
    """A Node object, with the true state of the machine behind it."""

    node: Node
    joined: float
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    cordon: str = ""
    """Who has cordoned it: drainer, person or hyperpod; empty: it is schedulable."""
    version: int = 1
    silent_since: float = inf
    """Its kubelet reports nothing any more. Its pods may continue."""
    used_until: float = -inf
    """When an ended pod last wrote there."""
    saved_from: float = -inf
    """A backup contains everything that was written before."""

    @property
    def name(self) -> str:
        return f"hyperpod-{self.node.id}"


@dataclass(slots=True, eq=False)
class App:
    """An app of a ReplicaSet, and its PodDisruptionBudget."""

    name: str
    replicas: int
    least: int
    """minAvailable."""


@dataclass(slots=True, eq=False)
class Pod:
    namespace: str
    name: str
    uid: str
    kind: str
    """Its owner's kind: ReplicaSet, Job, DaemonSet, Node (a static pod), Backup; empty: no owner."""
    member: Member | None
    """Absent: it waits for a node."""
    ends: float = inf
    """When its work is done."""
    grace: float = 30.0
    leaving: bool = False
    app: App | None = None
    owner: str = ""

    @property
    def is_unmanaged(self) -> bool:
        """No controller would create it again."""
        return not self.kind and not self.leaving

    @property
    def leaves(self) -> bool:
        """It must leave before its node may be deleted."""
        return self.kind not in ("DaemonSet", "Node", "Backup")


@dataclass(slots=True, eq=False)
class Job:
    """A backup."""

    name: str
    uid: str
    body: Json
    made: float
    forged: bool = False
    """A member created it. It claims to be complete, but nothing was backed up."""
    pod: Pod | None = None
    began: float = inf
    state: str = "Running"
    """Running, Complete or Failed."""
    succeeded: bool = False
    """One of its pods has completed."""


class Rejected(Exception):
    """An error reply of the API."""

    def __init__(self, status: int, message: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        details = {"causes": [{"reason": "DisruptionBudget", "message": each} for each in causes]}
        self.reply = {"kind": "Status", "status": "Failure", "message": message, "code": status, "details": details}
        self.status = status


@dataclass(slots=True)
class Habits:
    """The habits of a cluster's users."""

    arrivals: float
    """Probability that a node with room gets a pod within a minute."""
    backup: tuple[float, float] = (30.0, 300.0)
    """Duration of a backup in seconds."""
    fails: float = 0.0
    """Probability that a backup fails."""
    joins: float = 60.0
    """Seconds within which a running node joins."""
    page: int = 500
    """Maximum objects in a page. A page with a selector may have fewer."""


class Kubernetes:
    def __init__(
        self, clock: Clock, rng: Random, pod: HyperPod, habits: Habits, fault: Callable[[str, str], None]
    ) -> None:
        self.clock, self.rng, self.pod, self.habits, self.fault = clock, rng, pod, habits, fault
        self.members: dict[str, Member] = {}
        """By name."""
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.apps: list[App] = []
        self.jobs: dict[str, Job] = {}
        self.has_cron_job = True
        self.unmanaged: dict[str, str] = {}
        """The policy of the last request for pods without a controller, for each node: fail or evict."""
        self.hook_denied_until = 0.0
        """Until when it has no permission to create Jobs of it, or to read them."""
        self.open = True
        """Users create new pods."""
        self._joins: dict[Node, float] = {}
        self._lists: dict[str, list[Json]] = {}
        """The remaining pages of lists. All pages of a list are of one time."""
        self._count = 0

    # -- what is true --

    def member(self, node: Node) -> Member | None:
        return next((member for member in self.members.values() if member.node is node), None)

    def on(self, member: Member) -> Iterator[Pod]:
        """Pods that run there and must leave."""
        for pod in self.pods.values():
            if pod.member is member and pod.leaves and pod.ends > self.clock.now:
                yield pod

    def is_idle(self, member: Member) -> bool:
        """The node is ready, apart from its backup."""
        return member.silent_since == inf and KARPENTER not in member.labels and not any(self.on(member))

    def takes_pods(self, member: Member) -> bool:
        return not member.cordon and member.silent_since == inf and member.node.status == "Running"

    def is_saved(self, member: Member) -> bool:
        """Everything that ended pods wrote there."""
        ended = [pod.ends for pod in self.pods.values() if pod.member is member and pod.leaves]
        return member.saved_from > max(
            [member.joined, member.used_until, *(end for end in ended if end <= self.clock.now)]
        )

    def unready(self, node: Node, *, must_be_saved: bool) -> str:
        """What would be lost if it were deleted now; empty: nothing. A node that has not joined loses nothing."""
        member = self.member(node)
        if member is None:
            return ""
        if pod := next(self.on(member), None):
            return f"{pod.name} runs"
        if self.takes_pods(member):
            return "a pod may come"
        return "is not saved" if must_be_saved and not self.is_saved(member) else ""

    # -- as time goes --

    def begin(self) -> None:
        for number in range(self.rng.choice([0, 1, 2])):
            replicas = self.rng.randint(1, 4)
            self.apps.append(App(f"web{number}", replicas, max(0, replicas - self.rng.choice([0, 1, 1, 2]))))
        self._join(at_once=True)
        for _ in range(2):
            self._arrive()
        self._tick()

    def _tick(self) -> None:
        self._join()
        for member in list(self.members.values()):
            if member.node.gone:
                self.forget(member)
            elif self.clock.now > member.silent_since + LOST_AFTER:
                for pod in self.on(member):
                    pod.leaving = True
        for pod in list(self.pods.values()):
            if pod.ends < self.clock.now - 600:
                self._remove(pod)
            elif pod.member is None:
                pod.member = self._place(pod)
        self._arrive()
        self.clock.later(self.rng.uniform(20, 60), self._tick)

    def _join(self, *, at_once: bool = False) -> None:
        for group in self.pod.groups.values():
            for node in group.nodes:
                if node.status != "Running" or node.id is None:
                    continue
                within = 0.0 if at_once else self.rng.uniform(0, self.habits.joins)
                if self.clock.now >= self._joins.setdefault(node, self.clock.now + within) != inf:
                    self._joins[node] = inf
                    labels = {HEALTH: "Schedulable"} | ({KARPENTER: "pool"} if node.by == "autoscaler" else {})
                    member = Member(node, self.clock.now, labels)
                    self.members[member.name] = member
                    self._make("kube-system", "DaemonSet", member)
                    self._make("kube-system", "Node", member)

    def _arrive(self) -> None:
        """Pods for nodes with room, and for apps with missing pods."""
        for app in self.apps:
            mine = [pod for pod in self.pods.values() if pod.app is app and not pod.leaving]
            for _ in range(app.replicas - len(mine)):
                pod = self._make("research", "ReplicaSet", None, app=app)
                pod.member = self._place(pod)
        for member in self.members.values():
            room = self.open and self.takes_pods(member) and len(list(self.on(member))) < 2
            if room and self.rng.random() < self.habits.arrivals:
                span = self.rng.choices([(20, 300), (300, 3000), (3000, 40000), (inf, inf)], [5, 3, 1, 0.5])[0]
                lasts = inf if span[0] == inf else self.rng.uniform(*span)
                pod = self._make("research", self.rng.choice(["Job", "Job", ""]), member)
                pod.ends = self.clock.now + lasts

    def _make(self, namespace: str, kind: str, member: Member | None, app: App | None = None) -> Pod:
        self._count += 1
        owner = app.name if app else f"{kind.lower()}-{self._count}"
        pod = Pod(namespace, f"{owner or 'pod'}-{self._count}", f"u-{self._count}", kind, member, app=app, owner=owner)
        pod.grace = self.rng.choice([1.0, 30.0, 30.0, 300.0])
        self.pods[pod.uid] = pod
        return pod

    def _place(self, pod: Pod) -> Member | None:
        free = [member for member in self.members.values() if self.takes_pods(member)]
        return self.rng.choice(free) if free and pod.kind != "Backup" else None

    def _remove(self, pod: Pod) -> None:
        if self.pods.pop(pod.uid, None) and pod.member and pod.leaves:
            pod.member.used_until = max(pod.member.used_until, min(pod.ends, self.clock.now))

    def forget(self, member: Member) -> None:
        """Its object is deleted, and its pods with it."""
        self.members.pop(member.name, None)
        for pod in [pod for pod in self.pods.values() if pod.member is member]:
            self._remove(pod)

    def delete(self, pod: Pod) -> None:
        """It gets its grace period, and its kubelet ends it."""
        if not pod.leaving:
            pod.leaving = True
            self.clock.later(self.rng.uniform(0.5, 1) * pod.grace, partial(self._ended, pod))

    def _ended(self, pod: Pod) -> None:
        if pod.member is not None and pod.member.silent_since != inf:
            self.clock.later(30, partial(self._ended, pod))
        else:
            self._remove(pod)

    # -- the API --

    def request(self, method: str, path: str, body: Json | None, kind: str) -> Reply:
        """One request of the drainer."""
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        names = parts.path.strip("/").split("/")
        try:
            found = self._route(method, names, query, body or {}, kind)
        except Rejected as error:
            return Reply(error.status, json.dumps(error.reply).encode())
        return Reply(200 if method == "GET" else 201, json.dumps(found).encode())

    def _route(self, method: str, names: list[str], query: dict[str, str], body: Json, kind: str) -> Json:
        namespace, name = HOOK
        jobs = ["apis", "batch", "v1", "namespaces", namespace, "jobs"]
        if names[1] == "batch" and self.clock.now < self.hook_denied_until:
            raise Rejected(403, f"{names[-1]} is forbidden")
        match method, names:
            case "GET", ["api", "v1", "nodes"]:
                return self._page(query, lambda: [self._node(member) for member in self.members.values()])
            case "GET", ["api", "v1", "nodes", who]:
                return self._node(self._known(who))
            case "PATCH", ["api", "v1", "nodes", who] if kind == "application/merge-patch+json":
                return self._patch(self._known(who), body)
            case "GET", ["api", "v1", "pods"]:
                selector = query.get("fieldSelector", "")
                shown = map(self._pod, self.pods.values())
                return self._page(query, lambda: [pod for pod in shown if _selects(selector, pod)])
            case "POST", ["api", "v1", "namespaces", where, "pods", who, "eviction"]:
                return self._evict(where, who, body, dry=query.get("dryRun") == "All")
            case "GET", ["apis", "batch", "v1", "namespaces", where, "cronjobs", who] if (where, who) == HOOK:
                if not self.has_cron_job:
                    raise Rejected(404, f'cronjobs.batch "{name}" not found')
                return {"metadata": {"name": name, "uid": "c-1"}, "spec": {"jobTemplate": {"spec": COPIES}}}
            case "GET", ["api", "v1", "namespaces", where, "events"] if where == namespace:
                return self._page(query, list)
            case "POST", _ if names == jobs and query.get("dryRun") == "All":
                return body
            case "GET", _ if names == jobs:
                key = query.get("labelSelector", "")
                return self._page(query, lambda: [_job(job) for job in self.jobs.values() if key in _labels(job.body)])
            case "POST", _ if names == jobs:
                return self._run(body)
            case "DELETE", _ if names[:-1] == jobs:
                return self.stop(names[-1], body.get("preconditions", {}).get("uid"))
        self.fault("the drainer does what it has no right to", f"{method} /{'/'.join(names)}")
        raise Rejected(403, "forbidden")

    def _page(self, query: dict[str, str], make: Callable[[], list[Json]]) -> Json:
        found = self._lists.get(query["continue"]) if "continue" in query else make()
        if found is None:
            raise Rejected(410, "The provided continue parameter is too old")
        most = min(self.habits.page, int(query["limit"]))
        token = ""
        if found[most:]:
            self._count += 1
            token = str(self._count)
            self._lists[token] = found[most:]
        return {"metadata": {"continue": token}, "items": found[:most]}

    def _known(self, name: str) -> Member:
        if name not in self.members:
            raise Rejected(404, f'nodes "{name}" not found')
        return self.members[name]

    def _node(self, member: Member) -> Json:
        unknown = self.clock.now > member.silent_since + UNKNOWN_AFTER
        since = self.clock.datetime(member.silent_since + UNKNOWN_AFTER if unknown else member.joined)
        ready = {"type": "Ready", "status": "Unknown" if unknown else "True", "lastTransitionTime": since.isoformat()}
        return {
            "metadata": {
                "name": member.name,
                "resourceVersion": str(member.version),
                "labels": dict(member.labels),
                "annotations": dict(member.annotations),
            },
            "spec": {"unschedulable": True} if member.cordon else {},
            "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, ready]},
        }

    def _pod(self, pod: Pod) -> Json:
        metadata: Json = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        if pod.kind:
            kind = {"Backup": "Job"}.get(pod.kind, pod.kind)
            job = self.jobs.get(pod.owner) if pod.kind == "Backup" else None
            uid = job.uid if job and job.pod is pod else f"of-{pod.owner}"
            metadata["ownerReferences"] = [{"kind": kind, "name": pod.owner, "uid": uid, "controller": True}]
        if pod.kind == "Node":
            metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
        if pod.leaving:
            metadata["deletionTimestamp"] = self.clock.datetime().isoformat()
        # The state of containers is unknown if their kubelet is silent.
        silent = pod.member is not None and pod.member.silent_since != inf
        phase = (
            "Pending" if pod.member is None else "Succeeded" if pod.ends <= self.clock.now and not silent else "Running"
        )
        return {
            "metadata": metadata,
            "spec": {} if pod.member is None else {"nodeName": pod.member.name},
            "status": {"phase": phase},
        }

    def _patch(self, member: Member, body: Json) -> Json:
        metadata, spec = dict(body.get("metadata", {})), body.get("spec", {})
        version = metadata.pop("resourceVersion", None)
        if version is not None and version != str(member.version):
            raise Rejected(409, "the object has been modified; please apply your changes to the latest version")
        marks = metadata.get("annotations", {})
        others = (
            {*metadata} - {"annotations"}
            or {*marks} - {MARK}
            or {*spec} - {"unschedulable"}
            or {*body} - {"metadata", "spec"}
        )
        if others or version is None:
            self.fault("the drainer changes of a node what is not its own", str(body))
        wanted = spec.get("unschedulable", bool(member.cordon))
        if wanted and KARPENTER in member.labels:
            self.fault("the drainer cordons a node of Karpenter's", member.name)
        undone = bool(member.cordon) and not wanted
        if undone and (member.cordon in ("person", "hyperpod") or member.labels[HEALTH] != "Schedulable"):
            self.fault("another's cordon is undone", f"{member.name}, by {member.cordon}")
        if marks.get(MARK) is not None:
            member.annotations[MARK] = marks[MARK]
        elif MARK in marks:
            member.annotations.pop(MARK, None)
            if wanted and member.labels[HEALTH] != "Schedulable":
                member.cordon = "hyperpod"  # An unnecessary cordon costs only one command.
        member.cordon = (member.cordon or "drainer") if wanted else ""
        member.version += 1
        return self._node(member)

    def _evict(self, namespace: str, name: str, body: Json, *, dry: bool) -> Json:
        pod = next((pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)), None)
        if pod is None:
            raise Rejected(404, f'pods "{name}" not found')
        if body.get("deleteOptions", {}).get("preconditions", {}).get("uid", pod.uid) != pod.uid:
            raise Rejected(409, "Precondition failed: UID in precondition")
        member = pod.member
        if not pod.leaves:
            self.fault("the drainer evicts what stays by its nature", f"{pod.name} of a {pod.kind}")
        if not dry and pod.is_unmanaged and member and self.unmanaged.get(str(member.node.id)) == "fail":
            self.fault("the drainer evicts a pod that nothing creates again", pod.name)
        if not dry and (member is None or MARK not in member.annotations):
            self.fault("the drainer evicts from a node that it does not hold", pod.name)
        if member and not pod.leaving and pod.ends > self.clock.now:
            self._respect_budget(pod)
        if not dry:
            self.delete(pod)
        return {"kind": "Status", "status": "Success"}

    def _respect_budget(self, pod: Pod) -> None:
        healthy = [each for each in self.pods.values() if each.app is pod.app and not each.leaving and each.member]
        healthy = [each for each in healthy if each.member and each.member.silent_since == inf]
        if pod.app and len(healthy) - (pod in healthy) < pod.app.least:
            cause = f"The disruption budget {pod.app.name} needs {pod.app.least} healthy pods and has {len(healthy)}"
            raise Rejected(429, "Cannot evict pod as it would violate the pod's disruption budget.", (cause,))

    # -- backups --

    def _run(self, body: Json) -> Json:
        name = body["metadata"]["name"]
        if name in self.jobs:
            raise Rejected(409, f'jobs.batch "{name}" already exists')
        job = self._create(name, body)
        self.clock.later(self.rng.uniform(1, 15), partial(self._start, job))
        return {**body, "metadata": {**body["metadata"], "uid": job.uid}}

    def _create(self, name: str, body: Json, *, forged: bool = False) -> Job:
        self._count += 1
        self.jobs[name] = job = Job(name, f"j-{self._count}", body, self.clock.now, forged=forged)
        return job

    def forge(self, name: str, *, succeeds: bool) -> None:
        """A member deletes a backup, and creates one with its name that completes by itself, or with a pod that does
        nothing."""
        body = self.jobs[name].body
        self.stop(name)
        job = self._create(name, body, forged=True)
        job.state, job.succeeded = "Complete", succeeds

    def _start(self, job: Job) -> None:
        spec = job.body["spec"]["template"]["spec"]
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        wanted = [value for term in terms for each in term["matchFields"] for value in each["values"]]
        tolerates = any(each.get("operator") == "Exists" and "key" not in each for each in spec["tolerations"])
        member = next((self.members[each] for each in wanted if each in self.members), None)
        if self.jobs.get(job.name) is not job:
            return
        if member is None or (member.cordon and not tolerates) or member.silent_since != inf:
            self.clock.later(30, partial(self._start, job))
            return
        job.pod = self._make(HOOK[0], "Backup", member)
        job.pod.owner, job.began = job.name, self.clock.now
        self.clock.later(self.rng.uniform(*self.habits.backup), partial(self._done, job))

    def _done(self, job: Job) -> None:
        pod = job.pod
        if self.jobs.get(job.name) is not job or pod is None or pod.member is None:
            return
        if pod.member.silent_since != inf:
            self.clock.later(30, partial(self._done, job))
            return
        alive = pod.uid in self.pods and self.rng.random() >= self.habits.fails
        job.state, job.succeeded = "Complete" if alive else "Failed", alive
        self._remove(pod)
        if alive and job.body["spec"]["template"]["spec"]["containers"] == COPIES["template"]["spec"]["containers"]:
            pod.member.saved_from = max(pod.member.saved_from, job.began)
        kept = job.body["spec"].get("ttlSecondsAfterFinished", inf)
        if kept != inf:
            self.clock.later(kept, partial(self._forget_job, job))

    def _forget_job(self, job: Job) -> None:
        if self.jobs.get(job.name) is job:
            del self.jobs[job.name]

    def stop(self, name: str, uid: str | None = None) -> Json:
        """Its Job is deleted, and the pod with it."""
        job = self.jobs.get(name)
        if job is None:
            raise Rejected(404, f'jobs.batch "{name}" not found')
        if uid is not None and uid != job.uid:
            raise Rejected(409, "Precondition failed: UID in precondition")
        del self.jobs[name]
        if job.pod is not None:
            self._remove(job.pod)
        return {"kind": "Status", "status": "Success"}


def _labels(body: Json) -> dict[str, str]:
    labels: dict[str, str] = body["metadata"].get("labels") or {}
    return labels


def _job(job: Job) -> Json:
    conditions = (
        [] if job.state == "Running" else [{"type": job.state, "status": "True", "reason": "BackoffLimitExceeded"}]
    )
    status = {"conditions": conditions, "succeeded": int(job.succeeded)}
    return {"metadata": {**job.body["metadata"], "uid": job.uid}, "status": status}


def _selects(selector: str, pod: Json) -> bool:
    """For a field selector: NAME!=VALUE, separated by commas."""
    for term in filter(None, selector.split(",")):
        path, value = term.split("!=")
        of, name = path.split(".")
        if pod[of].get(name, "") == value:
            return False
    return True
