"""The Job that saves a node, made of the user's CronJob."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping

from ..kernel.drain_protocol import NodeRequest
from .api_client import Json
from .cluster_snapshot import BATCH, ClusterSnapshot, Hook
from .objects import JOB_LABEL, JOB_REQUEST, Node

KEPT_S = 24 * 3600
"""How long a backup's Job can be read after its end, if its CronJob does not set it."""
LEAST_KEPT_S = 3600
"""The minimum: a Job that is deleted before a look has seen its end would be made again."""


def job_name(request: NodeRequest, node: Node) -> str:
    """The name of the node's backup Job.

    Only a Job that was made for this request, and since the node was cordoned for it, proves a backup. If another client had undone
    the cordon, pods may have come since.
    """
    since = node.mark.since if node.mark else 0.0
    return f"drain-{request.instance}-{hashlib.sha256(f'{request.request_id} {since}'.encode()).hexdigest()[:8]}"


def make_job(request: NodeRequest, node: Node, hook: Hook, cron_job: Json) -> Json:
    """The Job of the CronJob's template, as `kubectl create job --from=cronjob/NAME` makes it, on this node alone."""
    template = copy.deepcopy(cron_job["spec"]["jobTemplate"])
    spec, metadata = template["spec"], template.get("metadata") or {}
    spec["ttlSecondsAfterFinished"] = _kept_seconds(spec)
    _bind_to_node(spec["template"].setdefault("spec", {}), node)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": hook.name, "uid": cron_job["metadata"]["uid"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(request, node),
            "namespace": hook.namespace,
            "labels": {**(metadata.get("labels") or {}), JOB_LABEL: request.instance},
            "annotations": {
                **(metadata.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
                JOB_REQUEST: request.request_id,
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _kept_seconds(job_spec: Json) -> int:
    configured: int | None = job_spec.get("ttlSecondsAfterFinished")
    if configured is None:
        return KEPT_S
    return max(configured, LEAST_KEPT_S)


def _bind_to_node(pod_spec: Json, node: Node) -> None:
    for name in ("nodeName", "nodeSelector"):
        pod_spec.pop(name, None)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    pod_spec["affinity"] = {**(pod_spec.get("affinity") or {}), "nodeAffinity": required}
    # The cordon is a taint, and the node may have others that keep every pod away.
    pod_spec["tolerations"] = [{"operator": "Exists"}]


def make_probe(requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> tuple[str, Json] | None:
    """A Job like the next one that would be made, to find out whether the server would accept it: path and object.

    None: no Job is going to be made, or none can be.
    """
    hook = snapshot.hook
    if hook is None or hook.cron_job is None or hook.trouble:
        return None
    for request in requests.values():
        node = _node_to_save(request, snapshot)
        if node is not None:
            job = make_job(request, node, hook, hook.cron_job)
            del job["metadata"]["name"]
            job["metadata"]["generateName"] = "drain-probe-"
            return f"{BATCH}/{hook.namespace}/jobs?dryRun=All", job
    return None


def _node_to_save(request: NodeRequest, snapshot: ClusterSnapshot) -> Node | None:
    """The node of a request whose backup has not begun."""
    nodes = snapshot.nodes.get(request.instance, ())
    if not request.backup or len(nodes) != 1:
        return None
    return None if _has_backup(request, nodes[0]) else nodes[0]


def _has_backup(request: NodeRequest, node: Node) -> bool:
    mark = node.mark
    if mark is None or mark.request.request_id != request.request_id:
        return False
    return mark.saved or bool(mark.job)
