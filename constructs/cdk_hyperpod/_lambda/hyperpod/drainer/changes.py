"""The changes that the drainer makes to objects of Kubernetes: built here, sent by `Drainer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .api_client import Json
from .backup_job import make_job
from .cluster_snapshot import BATCH, Hook
from .mark import MARK, Mark, make_mark
from .objects import Job, Node, Pod
from .view import NodeView

_GONE_OR_REPLACED = frozenset({404, 409})
"""The object does not exist any more, or another object has its name: each of these changes names a uid."""


@dataclass(frozen=True, slots=True)
class Change:
    """One request that changes an object."""

    instance: str
    purpose: str
    """For messages, such as `evict team/web-1`."""
    method: str
    path: str
    body: Json
    node: Node | None = None
    """The node that is changed, as it was read. None: another object is changed."""
    first: bool = False
    """It is made before all others. If it fails, no other change is made for the instance."""
    done_statuses: frozenset[int] = frozenset()
    """HTTP statuses that mean that nothing is left to do."""
    begins_drain: bool = False
    """It cordons a node or evicts a pod. It is not made for a request that is going to fail."""
    then: Callable[[Json], Change] | None = None
    """Makes the change that follows, from the server's answer."""


def cordon(view: NodeView) -> Change:
    """Cordon the node for its request, and mark it."""
    mark = Mark(view.request, ours=_owns_cordon(view.node), saved=False, since=view.now)
    return replace(write_mark(view.node, mark, "cordon"), begins_drain=True)


def _owns_cordon(node: Node) -> bool:
    """Whether the cordon is the drainer's, once the node is marked.

    What was cordoned before it was marked is another's cordon. A mark of an earlier request knows whose it is.
    """
    if not node.cordoned:
        return True
    return node.mark is not None and node.mark.ours


def write_mark(node: Node, mark: Mark, purpose: str) -> Change:
    """Cordon and mark the node in one request, so that neither exists without the other."""
    return Change(
        mark.request.instance,
        f"{purpose} {node.name}",
        "PATCH",
        node.path,
        {"metadata": {"annotations": {MARK: make_mark(mark)}}, "spec": {"unschedulable": True}},
        node,
        first=True,
    )


def release(node: Node) -> Change:
    """Remove the mark, and the cordon if it is the drainer's.

    A node that HyperPod keeps pods from stays cordoned: HyperPod may have cordoned it meanwhile, and nothing distinguishes the two
    cordons apart.
    """
    body: Json = {"metadata": {"annotations": {MARK: None}}}
    if _may_uncordon(node):
        body["spec"] = {"unschedulable": None}
    return Change(node.instance, f"release {node.name}", "PATCH", node.path, body, node)


def _may_uncordon(node: Node) -> bool:
    if not node.cordoned or node.barred:
        return False
    return node.mark is not None and node.mark.ours


def evict(instance: str, pod: Pod) -> Change:
    """Evict the pod. Disruption budgets may delay it."""
    return replace(_eviction(instance, pod, f"{pod.path}/eviction"), begins_drain=True)


def check_eviction(instance: str, pod: Pod) -> Change:
    """Check whether the server would evict the pod. Nothing is evicted."""
    return _eviction(instance, pod, f"{pod.path}/eviction?dryRun=All")


def _eviction(instance: str, pod: Pod, path: str) -> Change:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        # A StatefulSet's next pod has the same name, on another node.
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return Change(instance, f"evict {pod.title}", "POST", path, body, done_statuses=_GONE_OR_REPLACED)


def create_backup_job(view: NodeView, hook: Hook, cron_job: Json) -> Change:
    """Create the Job that saves the node, then write its uid into the mark: no other Job proves a backup."""
    request, node, mark = view.request, view.node, view.mark
    if mark is None:
        raise AssertionError  # only a held node is saved

    def record(created: Json) -> Change:
        uid = str((created.get("metadata") or {}).get("uid") or "")
        return write_mark(node, replace(mark, request=request, job=uid), "write down the Job of")

    path = f"{BATCH}/{hook.namespace}/jobs"
    job = make_job(request, node, hook, cron_job)
    return Change(request.instance, "make its backup's Job", "POST", path, job, then=record)


def delete_backup_job(job: Job, namespace: str) -> Change:
    """Delete the Job and its pods."""
    path = f"{BATCH}/{namespace}/jobs/{job.name}"
    body = {"propagationPolicy": "Background", "preconditions": {"uid": job.uid}}
    return Change(job.instance, "stop its backup", "DELETE", path, body, done_statuses=_GONE_OR_REPLACED)
