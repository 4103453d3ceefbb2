"""Objects of the Kubernetes API, and what the drainer keeps of them: nodes, pods that have to leave, backups' Jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..kernel.drain_protocol import INSTANCE_ID
from .api_client import Json
from .mark import MARK, Mark, parse_mark

JOB_LABEL = "cdk-hyperpod.dev/drain-instance"
"""The label of a backup's Job: the instance that it saves."""
JOB_REQUEST = "cdk-hyperpod.dev/drain-request"
"""The annotation of a backup's Job: id of the request that it was made for."""
KARPENTER = "karpenter.sh/nodepool"
DOMAIN = "sagemaker.amazonaws.com/"
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
"""Nodes of Fargate and hybrid nodes have it, and are not instances."""
SYSTEM = "kube-system"
"""The namespace of what every cluster runs: its pods leave, and make no node busy."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a static pod, which belongs to the kubelet."""
HEALTH = "sagemaker.amazonaws.com/node-health-status"
"""HyperPod's own word on a node (EKS user guide of HyperPod, "Kubernetes labels"); all but Schedulable keeps pods away."""
DEAD_AFTER_S = 300
"""This long after a kubelet fell silent, Kubernetes treats its pods as lost (the toleration that it gives every pod)."""
TEXT = 300
"""Characters that are kept of a text of any length."""


# -- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    instance: str
    """Its instance's id. Empty: it is not known."""
    version: str
    """Kubernetes rejects a change if the node's version is another by then."""
    cordoned: bool
    mark: Mark | None
    karpenter: str
    """The NodePool that it belongs to. Empty: it is not Karpenter's."""
    dead: bool
    """Its kubelet is silent. What runs on it may run on: the way between them may be cut."""
    no_instance: bool
    """It is known not to be an instance."""
    barred: str
    """Why HyperPod keeps pods from it, in its word. Empty: it does not."""

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"


def parse_node(found: Json, now: float) -> Node:
    """A node of the API."""
    metadata, spec = found["metadata"], found.get("spec") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    instance = _instance(metadata["name"], labels, str(spec.get("providerID") or ""))
    return Node(
        name=metadata["name"],
        instance=instance,
        version=metadata["resourceVersion"],
        cordoned=spec.get("unschedulable") is True,
        mark=parse_mark(annotations[MARK], instance) if MARK in annotations else None,
        karpenter=str(labels.get(KARPENTER) or ""),
        dead=_is_silent(found.get("status") or {}, now),
        no_instance=labels.get(COMPUTE_TYPE) in ("fargate", "hybrid"),
        barred=_health_problem(labels),
    )


def _instance(name: str, labels: Mapping[str, str], provider: str) -> str:
    """HyperPod's nodes are named hyperpod-i-…. If that changes, providerID or a label may have the id.

    The name comes first: a node's own kubelet can write labels. EC2 never uses an id again, so the node with the id is the instance.
    """
    for text in (name, provider):
        if end := re.search(rf"(?:^|[-/])({INSTANCE_ID})$", text):
            return end[1]
    ids = {value for key, value in labels.items() if key.startswith(DOMAIN) and re.fullmatch(INSTANCE_ID, value)}
    return ids.pop() if len(ids) == 1 else ""


def _is_silent(status: Json, now: float) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            since = _timestamp(condition.get("lastTransitionTime"), now)
            return condition.get("status") == "Unknown" and now - since >= DEAD_AFTER_S
    return False


def _health_problem(labels: Mapping[str, str]) -> str:
    health = labels.get(HEALTH, "Schedulable")
    return "" if health == "Schedulable" else str(health)


# -- pods -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that has to leave before its node is deleted."""

    namespace: str
    name: str
    uid: str
    owner: str
    """Its controller, such as ReplicaSet/web. Empty: nothing would create the pod again."""
    priority: int
    leaving: bool
    """It ends by itself, in the time that it has for that."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


def parse_pod(found: Json) -> Pod:
    """A pod of the API."""
    metadata, owner = found["metadata"], controller_of(found)
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        owner=f"{owner['kind']}/{owner['name']}"[:TEXT] if owner else "",
        priority=found["spec"].get("priority") or 0,
        leaving=_is_deleted(found),
    )


def has_to_leave(pod: Json) -> bool:
    """Whether the pod has to leave before its node is deleted.

    A static pod is the kubelet's. A DaemonSet tolerates the cordon, and would create its pod again.
    """
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return False
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    if _is_only_an_object(pod):
        return False
    return controller_of(pod).get("kind") != "DaemonSet"


def is_unmanaged(pod: Json) -> bool:
    """Of a pod that has to leave: whether nothing would create it again. A pod that another client deleted leaves by itself."""
    return not controller_of(pod) and not _is_deleted(pod)


def _is_deleted(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_only_an_object(pod: Json) -> bool:
    """It was deleted and all of its containers have terminated: a finalizer, or a long grace period, keeps nothing but an object."""
    if not _is_deleted(pod):
        return False
    reported = (pod.get("status") or {}).get("containerStatuses") or ()
    # Of some pods only the metadata is read (cluster_snapshot).
    if len(reported) < max(1, len((pod.get("spec") or {}).get("containers") or ())):
        return False
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return all("terminated" in state for state in _container_states(pod, *kinds))


def _container_states(pod: Json, *kinds: str) -> Iterator[Json]:
    status = pod.get("status") or {}
    for kind in kinds:
        for container in status.get(kind) or ():
            yield container.get("state") or {}


def controller_of(found: Json) -> Json:
    """The owner that would create the object again. Empty: none."""
    owners: Iterable[Json] = found["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def delay_of(pod: Json) -> str:
    """What the pod waits for, as far as Kubernetes reports it; else its phase."""
    phase = str((pod.get("status") or {}).get("phase") or "")
    return _waiting_reason(pod) or _scheduling_problem(pod) or phase


def _waiting_reason(pod: Json) -> str:
    """Why its first container that waits does so. Empty: none waits."""
    for state in _container_states(pod, "initContainerStatuses", "containerStatuses"):
        if state.get("waiting"):
            return str(state["waiting"].get("reason") or "waits")[:TEXT]
    return ""


def _scheduling_problem(pod: Json) -> str:
    """Why it has no node. Empty: it has one."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:TEXT]
    return ""


# -- backups' Jobs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """A Job with the label of a backup."""

    uid: str
    name: str
    instance: str
    state: str
    """running, complete or failed."""
    message: str
    """Why it failed."""


def parse_job(found: Json) -> Job:
    """A Job of the API."""
    metadata, status = found["metadata"], found.get("status") or {}
    state, message = _job_state(status)
    instance = str((metadata.get("labels") or {}).get(JOB_LABEL, ""))
    return Job(str(metadata.get("uid"))[:TEXT], metadata["name"], instance, state, message)


def _job_state(status: Json) -> tuple[str, str]:
    """Its state, and why it failed. It is complete only if a pod of it succeeded: one with `completions: 0` completes by itself."""
    conditions = {each.get("type"): each for each in status.get("conditions") or () if each.get("status") == "True"}
    if "Complete" in conditions:
        if _has_succeeded(status):
            return "complete", ""
        return "failed", "it completed, and no pod of it succeeded"
    if "Failed" in conditions:
        return "failed", _reason_of(conditions["Failed"])
    return "running", ""


def _has_succeeded(status: Json) -> bool:
    succeeded = status.get("succeeded")
    return isinstance(succeeded, int) and succeeded >= 1


def _reason_of(condition: Json) -> str:
    return ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))[:TEXT]


def _timestamp(text: Any, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, TypeError):
        return otherwise
