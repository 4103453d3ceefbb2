"""What one look reads of Kubernetes, and what of it the drainer keeps: nodes, pods that have to leave, backups."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..common.drain_protocol import INSTANCE_ID, REQUEST_ID, NodeRequest
from .api_client import Api, Json, KubernetesError
from .event import WRITER

MARK = "cdk-hyperpod.dev/drain"
"""The annotation of a node that the drainer holds."""
JOB_LABEL = "cdk-hyperpod.dev/drain-instance"
"""The label of a backup's Job: the instance that it saves."""
JOB_REQUEST = "cdk-hyperpod.dev/drain-request"
"""The annotation of a backup's Job: id of the request that it was made for."""
KARPENTER = "karpenter.sh/nodepool"
DOMAIN = "sagemaker.amazonaws.com/"
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
"""Nodes of Fargate and hybrid nodes have it, and are no instances."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a static pod, which belongs to the kubelet."""
HEALTH = "sagemaker.amazonaws.com/node-health-status"
"""HyperPod's own word on a node (EKS user guide of HyperPod, "Kubernetes labels"); all but Schedulable keeps pods away."""
SYSTEM = "kube-system"
"""The namespace of what every cluster runs: its pods leave, and make no node busy."""
DEAD_AFTER_S = 300
"""So long after a kubelet fell silent Kubernetes takes its pods for lost (the toleration that it gives every pod)."""

BATCH = "/apis/batch/v1/namespaces"
UID = re.compile(r"[A-Za-z0-9-]{1,64}")
TEXT = 300
"""Characters that are kept of a text whose length nobody bounds."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the drainer has written on a node that it holds: all that it knows at its next look."""

    request: NodeRequest
    ours: bool
    """The cordon is the drainer's. Else somebody had cordoned the node before, or nobody can tell."""
    saved: bool
    """Its data is saved, for this very request."""
    since: float
    """When it was cordoned for this request: only a backup that was made since then has all that pods wrote there."""
    job: str = ""
    """The uid of the Job that the drainer made to save the node. It believes no other: anybody may use a name."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as Kubernetes has it."""

    name: str
    instance: str
    """Empty where nothing tells it."""
    version: str
    """A change is refused where the node has changed since."""
    cordoned: bool
    mark: Mark | None
    karpenter: str
    """The NodePool that it is of."""
    dead: bool
    """Its kubelet is silent. What runs on it may run on: the way between them may be cut."""
    no_instance: bool
    """It is known to be none."""
    barred: str
    """Why HyperPod wants no pod on it, in its word; empty: it does not say so."""

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that has to leave before its node may go."""

    namespace: str
    name: str
    uid: str
    owner: str
    """Its controller, such as ReplicaSet/web; empty: nothing would create it again."""
    priority: int
    leaving: bool
    """It ends by itself, in the time that it has for that."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(frozen=True, slots=True)
class Job:
    """A backup, or what calls itself one."""

    uid: str
    name: str
    instance: str
    state: str
    """running, complete or failed."""
    said: str


@dataclass(frozen=True, slots=True)
class Hook:
    """The user's backup: a CronJob, and the Jobs that the drainer has made of it."""

    namespace: str
    name: str
    cron_job: Json | None
    """Absent: nobody wants a backup now, or `trouble` says why."""
    jobs: Mapping[str, Job]
    pods: Mapping[str, str]
    """Job -> what its pod waits for."""
    events: Mapping[str, str] = field(default_factory=dict)
    """Job -> its last event, the latest at the end. Events outlive their Jobs, by an hour."""
    trouble: str = ""
    """Why no backup can be made."""
    lasting: bool = False
    """It will not pass by itself."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The nodes, pods and backups of the EKS cluster, as one look has read them."""

    now: float
    nodes: Mapping[str, tuple[Node, ...]]
    """By instance; those of no known instance under the empty name."""
    pods: Mapping[str, tuple[Pod, ...]]
    """By node, in the order in which they leave."""
    busy: frozenset[str]
    """Names of nodes that have pods of somebody's."""
    hook: Hook | None
    cut_off: bool = False
    """Most nodes are silent at once: rather the way to them is cut than that all have died."""


def read_snapshot(api: Api, backup: str | None, now: float, *, wanted: bool) -> ClusterSnapshot:
    """One look: one list of nodes, then one of pods, so that a cordoned node gets no pod that the look does not see.

    `backup`: NAMESPACE/NAME of a CronJob. `wanted`: somebody wants nodes, so it is read as well. Raises KubernetesError.
    """
    found = [parse_node(each, now) for each in api.items("/api/v1/nodes")]
    hook = read_hook(api, backup, wanted=wanted) if backup else None
    # Where Jobs cannot be read, marks tell which are backups.
    unread = hook is not None and bool(hook.trouble)
    marked = frozenset(one.mark.job for one in found if unread and one.mark and one.mark.job)
    pods: dict[str, list[Pod]] = {}
    busy: set[str] = set()
    waits: dict[str, str] = {}
    # Nothing of a pod that has ended, or has no node yet, has to leave.
    query = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
    for each in api.items("/api/v1/pods", fieldSelector=query):
        node = each["spec"].get("nodeName", "")
        job = _job_of(each, hook, marked)
        if job:
            waits[job] = _what_it_waits_for(each)
        elif has_to_leave(each):
            pods.setdefault(node, []).append(parse_pod(each))
            if each["metadata"]["namespace"] != SYSTEM:
                busy.add(node)
    nodes: dict[str, list[Node]] = {}
    for one in found:
        nodes.setdefault(one.instance, []).append(one)
    return ClusterSnapshot(
        now=now,
        nodes={instance: tuple(some) for instance, some in nodes.items()},
        pods={name: tuple(sorted(some, key=_leaves_in_order)) for name, some in pods.items()},
        busy=frozenset(busy),
        hook=replace(hook, pods=waits) if hook else None,
        cut_off=2 * sum(one.dead for one in found) > len(found),
    )


def read_hook(api: Api, backup: str, *, wanted: bool) -> Hook:
    """A hook that cannot be read stops no drain that needs none, and no node from going back."""
    namespace, _, name = backup.partition("/")
    hook = Hook(namespace, name, None, {}, {})
    try:
        jobs = api.items(f"{BATCH}/{namespace}/jobs", labelSelector=JOB_LABEL)
        hook = replace(hook, jobs={job.name: job for job in map(parse_job, jobs)})
        if wanted:
            hook = replace(hook, cron_job=api.get(f"{BATCH}/{namespace}/cronjobs/{name}"))
            hook = replace(hook, events=_read_events(api, namespace))
    except KubernetesError as error:
        gone = f"there is no CronJob {backup}, and scale_down.drain.backup_cron_job names it"
        hook = replace(hook, trouble=gone if error.status == 404 else str(error), lasting=error.status in (403, 404))
    return hook


def _read_events(api: Api, namespace: str) -> dict[str, str]:
    """Job -> its last event. Without them, only the reason of a delay is missing."""
    last: dict[str, tuple[str, str]] = {}
    try:
        for each in api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector="involvedObject.kind=Job"):
            job = str((each.get("involvedObject") or {}).get("name"))[:TEXT]
            when = str(each.get("lastTimestamp") or each.get("eventTime") or "")[:TEXT]
            said = f"{each.get('reason', '')}: {each.get('message', '')}"[:TEXT]
            last[job] = max(last.get(job, ("", "")), (when, said))
    except KubernetesError:
        pass
    return {job: said for job, (_, said) in sorted(last.items(), key=lambda each: each[1])}


# -- parsing ----------------------------------------------------------------------------------------------------------


def parse_node(found: Json, now: float) -> Node:
    """A node of the API."""
    metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    instance = _instance(metadata["name"], labels, str(spec.get("providerID") or ""))
    ready: Json = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    silent = ready.get("status") == "Unknown" and now - _moment(ready.get("lastTransitionTime"), now) >= DEAD_AFTER_S
    return Node(
        name=metadata["name"],
        instance=instance,
        version=metadata["resourceVersion"],
        cordoned=spec.get("unschedulable") is True,
        mark=parse_mark(annotations[MARK], instance) if MARK in annotations else None,
        karpenter=str(labels.get(KARPENTER) or ""),
        dead=silent,
        no_instance=labels.get(COMPUTE_TYPE) in ("fargate", "hybrid"),
        barred="" if labels.get(HEALTH, "Schedulable") == "Schedulable" else str(labels[HEALTH]),
    )


def _instance(name: str, labels: Mapping[str, str], provider: str) -> str:
    """HyperPod's nodes are called hyperpod-i-…; should they ever be called otherwise, providerID or a label may tell.

    The name comes first: a node's own kubelet can write labels. An id is never used again, so whoever has it is the instance.
    """
    for text in (name, provider):
        if end := re.search(rf"(?:^|[-/])({INSTANCE_ID})$", text):
            return end[1]
    told = {value for key, value in labels.items() if key.startswith(DOMAIN) and re.fullmatch(INSTANCE_ID, value)}
    return told.pop() if len(told) == 1 else ""


def make_mark(mark: Mark) -> str:
    """The annotation's text."""
    request = mark.request
    return json.dumps(
        {
            "by": request.writer,
            "request": request.request_id,
            "deadline": request.deadline,
            "expires": request.expires,
            "on_timeout": "force" if request.force else "fail",
            "backup": request.backup,
            "cordon": "ours" if mark.ours else "another's",
            "unmanaged_pods": "evict" if request.evict_unmanaged else "fail",
            "saved": mark.saved,
            "since": mark.since,
            "job": mark.job,
        }
    )


def parse_mark(text: str, instance: str) -> Mark:
    """The drainer's own annotation. What somebody else has made of it is a mark all the same, of no request, and long over.

    A cordon is the drainer's only where the mark says so: who cannot tell leaves it.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        found = {}
    request_id = found.get("request")
    known = isinstance(request_id, str) and re.fullmatch(REQUEST_ID, request_id) is not None
    request = NodeRequest(
        writer=WRITER,
        request_id=str(request_id) if known else "",
        instance=instance,
        address="",
        deadline=_number(found.get("deadline")),
        expires=_number(found.get("expires")),
        force=found.get("on_timeout") == "force",
        backup=found.get("backup") is True,
        evict_unmanaged=found.get("unmanaged_pods") == "evict",
    )
    job = found.get("job")
    return Mark(
        request,
        ours=found.get("cordon") == "ours",
        saved=found.get("saved") is True,
        since=_number(found.get("since")),
        job=job if isinstance(job, str) and UID.fullmatch(job) else "",
    )


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def has_to_leave(pod: Json) -> bool:
    """Not of a DaemonSet, which tolerates the cordon and would make it anew; not of the kubelet itself; not ended."""
    metadata = pod["metadata"]
    if MIRROR in (metadata.get("annotations") or {}):
        return False
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or _is_only_an_object(pod):
        return False
    return _controller(metadata).get("kind") != "DaemonSet"


def is_unmanaged(pod: Json) -> bool:
    """Of one that has to leave: nothing would create it again. One that is on its way out leaves by somebody else's doing."""
    return not _controller(pod["metadata"]) and "deletionTimestamp" not in pod["metadata"]


def _is_only_an_object(pod: Json) -> bool:
    """It was deleted and all of its containers have terminated: a finalizer, or a long grace period, keeps nothing but an object."""
    status = pod.get("status") or {}
    main = status.get("containerStatuses") or ()
    others = (
        each for kind in ("initContainerStatuses", "ephemeralContainerStatuses") for each in status.get(kind) or ()
    )
    told = len(main) >= max(1, len(pod["spec"].get("containers") or ()))
    return (
        "deletionTimestamp" in pod["metadata"]
        and told
        and all("terminated" in (each.get("state") or {}) for each in (*main, *others))
    )


def parse_pod(found: Json) -> Pod:
    """A pod of the API."""
    metadata, owner = found["metadata"], _controller(found["metadata"])
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        owner=f"{owner['kind']}/{owner['name']}"[:TEXT] if owner else "",
        priority=found["spec"].get("priority") or 0,
        leaving="deletionTimestamp" in metadata,
    )


def _leaves_in_order(pod: Pod) -> tuple[Any, ...]:
    """What is dear to nobody first, and of one job the last rank first: the first is the one that the others look for."""
    number = re.search(r"(\d+)$", pod.name)
    return pod.priority, pod.namespace, pod.owner, -int(number[1]) if number else 0, pod.name


def _controller(metadata: Json) -> Json:
    owners: Iterable[Json] = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def parse_job(found: Json) -> Job:
    """A Job of the API. It is complete only if a pod of it succeeded: one with `completions: 0` completes by itself."""
    metadata, status = found["metadata"], found.get("status") or {}
    ended = {each.get("type"): each for each in status.get("conditions") or () if each.get("status") == "True"}
    why = ended.get("Failed") or {}
    said = ": ".join(str(why[key]) for key in ("reason", "message") if why.get(key))[:TEXT]
    state = "failed" if ended.keys() & {"Complete", "Failed"} else "running"
    if "Complete" in ended:
        succeeded = status.get("succeeded")
        saved = isinstance(succeeded, int) and succeeded >= 1
        state, said = ("complete", "") if saved else ("failed", "it completed, and no pod of it succeeded")
    labels = metadata.get("labels") or {}
    return Job(str(metadata.get("uid"))[:TEXT], metadata["name"], str(labels.get(JOB_LABEL, "")), state, said)


def _job_of(pod: Json, hook: Hook | None, marked: frozenset[str]) -> str:
    """The backup that the pod belongs to; empty: none. `marked`: uids of backups' Jobs that cannot be read."""
    owner = _controller(pod["metadata"])
    if hook is None or pod["metadata"]["namespace"] != hook.namespace or owner.get("kind") != "Job":
        return ""
    job = hook.jobs.get(owner["name"])
    own = owner.get("uid") in marked or (job is not None and job.uid == owner.get("uid"))
    return str(owner["name"]) if own else ""


def _what_it_waits_for(pod: Json) -> str:
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "waits")[:TEXT]
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"{each.get('reason', '')}: {each.get('message', '')}"[:TEXT]
    return str(status.get("phase") or "")


def _moment(text: Any, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, TypeError):
        return otherwise
