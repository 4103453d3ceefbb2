"""What one look reads of Kubernetes: the nodes, the pods that have to leave, and the backups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .api_client import Api, Json, KubernetesError
from .objects import (
    JOB_LABEL,
    SYSTEM,
    TEXT,
    Job,
    Node,
    Pod,
    controller_of,
    delay_of,
    has_to_leave,
    parse_job,
    parse_node,
    parse_pod,
)

BATCH = "/apis/batch/v1/namespaces"
RUNNING_PODS = "status.phase!=Succeeded,status.phase!=Failed"
LIVE_PODS = f"{RUNNING_PODS},spec.nodeName!="
"""Selects the pods that may have to leave: on a node, and not ended."""


@dataclass(frozen=True, slots=True)
class Hook:
    """The user's backup: a CronJob, and the Jobs that the drainer has made of it."""

    namespace: str
    name: str
    cron_job: Json | None
    """None: no request wants a backup now, or see `trouble`."""
    jobs: Mapping[str, Job]
    pods: Mapping[str, str]
    """Job -> what its pod waits for."""
    events: Mapping[str, str] = field(default_factory=dict)
    """Job -> its last event, the latest at the end. Events outlive their Jobs, by an hour."""
    trouble: str = ""
    """Why no backup can be made."""
    lasting: bool = False
    """The trouble will not pass by itself."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The nodes, pods and backups of the EKS cluster, as one look has read them."""

    now: float
    nodes: Mapping[str, tuple[Node, ...]]
    """By instance; those of no known instance under the empty name."""
    pods: Mapping[str, tuple[Pod, ...]]
    """By node, in the order in which they leave."""
    busy: frozenset[str]
    """Names of nodes that have pods of users."""
    hook: Hook | None
    cut_off: bool = False
    """Most nodes are silent at once: rather the way to them is cut than that all have died."""


MOST_BY_NODE = 30
"""Nodes whose pods are listed node by node. The pods of all others are only counted, so their metadata is enough."""


def read_snapshot(
    api: Api, backup: str | None, now: float, *, wanted: bool, asked: Collection[str] = ()
) -> ClusterSnapshot:
    """One look: first all nodes, then all pods, so that a node that is cordoned gets no pod that the look does not see.

    `backup`: NAMESPACE/NAME of a CronJob. `wanted`: a request wants a backup, so the CronJob is read as well. `asked`: the instances
    that the request names. Raises KubernetesError.
    """
    nodes = [parse_node(each, now) for each in api.items("/api/v1/nodes")]
    hook = read_hook(api, backup, wanted=wanted) if backup else None
    pods = _PodLists(hook, _marked_jobs(nodes, hook))
    _read_pods(api, pods, [node.name for node in nodes if node.mark or node.instance in asked])
    return ClusterSnapshot(
        now=now,
        nodes=_by_instance(nodes),
        pods={node: tuple(sorted(found, key=_leaves_in_order)) for node, found in pods.leaving.items()},
        busy=frozenset(pods.busy),
        hook=replace(hook, pods=pods.delays) if hook else None,
        cut_off=2 * sum(node.dead for node in nodes) > len(nodes),
    )


def _read_pods(api: Api, pods: _PodLists, whole: Sequence[str]) -> None:
    """`whole`: names of the nodes whose pods are evicted, or reported. Two thousand pods may have 3 GB."""
    if len(whole) > MOST_BY_NODE:
        for each in api.items("/api/v1/pods", fieldSelector=LIVE_PODS):
            pods.add(each)
        return
    has_tables = True
    for node, pod in api.rows("/api/v1/pods", "Node", fieldSelector=LIVE_PODS, includeObject="Metadata"):
        has_tables = node is not None
        if node is None:
            pods.add(pod)
        elif node not in whole:
            pods.count(pod, node)
    for node in whole if has_tables else ():
        for each in api.items("/api/v1/pods", fieldSelector=f"{RUNNING_PODS},spec.nodeName={node}"):
            pods.add(each)


class _PodLists:
    """Sorts the pods of a cluster, one at a time: they may be many and large, and few facts of each are kept."""

    def __init__(self, hook: Hook | None, marked: frozenset[str]) -> None:
        self._hook, self._marked = hook, marked
        self.leaving: dict[str, list[Pod]] = {}
        """Node -> its pods that have to leave."""
        self.busy: set[str] = set()
        self.delays: dict[str, str] = {}
        """Backup's Job -> what its pod waits for."""

    def add(self, pod: Json) -> None:
        backup = _backup_of(pod, self._hook, self._marked)
        if backup:
            self.delays[backup] = delay_of(pod)
            return
        if not has_to_leave(pod):
            return
        node = pod["spec"].get("nodeName", "")
        self.leaving.setdefault(node, []).append(parse_pod(pod))
        self._note_busy(pod, node)

    def count(self, pod: Json, node: str) -> None:
        """A pod of which only the metadata was read: whether it makes its node busy. One that is ending does."""
        if not _backup_of(pod, self._hook, self._marked) and has_to_leave(pod):
            self._note_busy(pod, node)

    def _note_busy(self, pod: Json, node: str) -> None:
        if pod["metadata"]["namespace"] != SYSTEM:
            self.busy.add(node)


def _marked_jobs(nodes: Iterable[Node], hook: Hook | None) -> frozenset[str]:
    """Uids of the Jobs in marks. If Jobs cannot be read, they show which pods are backups."""
    if hook is None or not hook.trouble:
        return frozenset()
    return frozenset(node.mark.job for node in nodes if node.mark and node.mark.job)


def _backup_of(pod: Json, hook: Hook | None, marked: frozenset[str]) -> str:
    """The name of the backup's Job that the pod belongs to. Empty: none. `marked`: uids of backups' Jobs that cannot be read."""
    owner = controller_of(pod)
    if hook is None or pod["metadata"]["namespace"] != hook.namespace or owner.get("kind") != "Job":
        return ""
    if owner.get("uid") in marked or _is_known(owner, hook):
        return str(owner["name"])
    return ""


def _is_known(owner: Json, hook: Hook) -> bool:
    job = hook.jobs.get(owner["name"])
    return job is not None and job.uid == owner.get("uid")


def _by_instance(nodes: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        found.setdefault(node.instance, []).append(node)
    return {instance: tuple(same) for instance, same in found.items()}


def _leaves_in_order(pod: Pod) -> tuple[Any, ...]:
    """Low priority first, and of one job the last rank first: the other ranks look for the first one."""
    number = re.search(r"(\d+)$", pod.name)
    return pod.priority, pod.namespace, pod.owner, -int(number[1]) if number else 0, pod.name


# -- backups ----------------------------------------------------------------------------------------------------------


def read_hook(api: Api, backup: str, *, wanted: bool) -> Hook:
    """A hook that cannot be read stops no drain that needs none, and no release."""
    namespace, _, name = backup.partition("/")
    hook = Hook(namespace, name, None, {}, {})
    try:
        jobs = api.items(f"{BATCH}/{namespace}/jobs", labelSelector=JOB_LABEL)
        hook = replace(hook, jobs={job.name: job for job in map(parse_job, jobs)})
        if wanted:
            hook = replace(hook, cron_job=api.get(f"{BATCH}/{namespace}/cronjobs/{name}"))
            hook = replace(hook, events=_read_events(api, namespace))
    except KubernetesError as error:
        hook = replace(hook, trouble=_why_unreadable(backup, error), lasting=error.status in (403, 404))
    return hook


def _why_unreadable(backup: str, error: KubernetesError) -> str:
    if error.status == 404:
        return f"there is no CronJob {backup}, and scale_down.drain.backup_cron_job names it"
    return str(error)


def _read_events(api: Api, namespace: str) -> dict[str, str]:
    """Job -> its last event. If they cannot be read, only the reason of a delay is missing."""
    last: dict[str, tuple[str, str]] = {}
    try:
        for event in api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector="involvedObject.kind=Job"):
            job = str((event.get("involvedObject") or {}).get("name"))[:TEXT]
            last[job] = max(last.get(job, ("", "")), _dated_text(event))
    except KubernetesError:
        pass
    return {job: text for job, (_, text) in sorted(last.items(), key=lambda each: each[1])}


def _dated_text(event: Json) -> tuple[str, str]:
    """When it happened, and what."""
    when = str(event.get("lastTimestamp") or event.get("eventTime") or "")[:TEXT]
    return when, f"{event.get('reason', '')}: {event.get('message', '')}"[:TEXT]
