"""Objects of a team that borrows, with and without a queue, and whether the policy of its namespace admits them.

`tests/unit/kubernetes` decides with a CEL engine, and `tests/real/kubernetes` with an API server that has such policies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.queue_policy import QUEUE_LABEL

BORROWS = Team(name="borrows", quota={"ml.p5.48xlarge": 4}, borrow_limit=50, work=("training", "ray"))
"""Four nodes, and two more while others leave them idle."""
NAMESPACE = "hyperpod-ns-borrows"
QUEUED = {QUEUE_LABEL: f"{NAMESPACE}-localqueue"}
GPUS = {"nvidia.com/gpu": "8", "cpu": "179", "memory": "1890Gi", "vpc.amazonaws.com/efa": "32"}
OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "0", "controller": True}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One object that somebody creates."""

    name: str
    manifest: Manifest
    admitted: bool
    by_a_member: bool = True


def _spec(resources: dict[str, Any], *, limits_only: bool = False, first: bool = False) -> Manifest:
    amounts = {"limits": resources} if limits_only else {"limits": resources, "requests": resources}
    busy = {"name": "main", "image": "none", "resources": amounts}
    idle = {"name": "idle", "image": "none"}
    spec: Manifest = {"containers": [idle if first else busy], "restartPolicy": "Never", "schedulerName": "nobody"}
    return spec | ({"initContainers": [busy]} if first else {})


def _of_kinds(resources: dict[str, Any]) -> dict[str, tuple[str, str, Manifest]]:
    """Every kind that makes pods: its version, and its spec with pods of these resources."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": _spec(resources)}
    always = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
    selected = {"selector": {"matchLabels": {"app": "x"}}, "template": always}
    job = {"template": template}
    cluster = {"headGroupSpec": {"template": template}}
    idle = {"spec": _spec({"cpu": "1", "memory": "1Gi"})}
    workers = {"headGroupSpec": {"template": idle}, "workerGroupSpecs": [{"template": idle}, {"template": template}]}
    return {
        "Job": ("batch/v1", "jobs", job),
        "CronJob": ("batch/v1", "cronjobs", {"schedule": "0 0 * * *", "jobTemplate": {"spec": job}}),
        "Deployment": ("apps/v1", "deployments", {**selected, "replicas": 0}),
        "StatefulSet": ("apps/v1", "statefulsets", {**selected, "replicas": 0, "serviceName": "x"}),
        "HyperPodPyTorchJob": (
            "sagemaker.amazonaws.com/v1",
            "",
            {"replicaSpecs": [{"template": idle}, {"template": template}]},
        ),
        "PyTorchJob": ("kubeflow.org/v1", "", {"pytorchReplicaSpecs": {"Master": {"template": idle}, "Worker": job}}),
        "MPIJob": ("kubeflow.org/v2beta1", "", {"mpiReplicaSpecs": {"Launcher": {"template": idle}, "Worker": job}}),
        "JobSet": ("jobset.x-k8s.io/v1alpha2", "", {"replicatedJobs": [{"name": "a", "template": {"spec": job}}]}),
        "RayCluster": ("ray.io/v1", "", workers),
        "RayJob": ("ray.io/v1", "", {"rayClusterSpec": workers}),
        "RayService": ("ray.io/v1", "", {"rayClusterConfig": cluster}),
    }


def _made(version: str, kind: str, name: str, spec: Manifest, **metadata: Any) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": copy.deepcopy(spec),
    }


def _labelled(kind: str, manifest: Manifest, labels: dict[str, str]) -> Manifest:
    labelled = copy.deepcopy(manifest)
    holder = labelled["spec"]["jobTemplate"] if kind == "CronJob" else labelled
    holder.setdefault("metadata", {})["labels"] = labels
    return labelled


def _kinds() -> Iterator[Case]:
    for kind, (version, _, spec) in _of_kinds(GPUS).items():
        alone = _made(version, kind, f"{kind.lower()}-alone", spec)
        yield Case(name=f"{kind} without a queue", manifest=alone, admitted=False)
        through = _labelled(kind, _made(version, kind, f"{kind.lower()}-queued", spec), QUEUED)
        yield Case(name=f"{kind} with a queue", manifest=through, admitted=True)
        yield Case(
            name=f"{kind} with an empty queue", manifest=_labelled(kind, alone, {QUEUE_LABEL: ""}), admitted=False
        )
        made = _made(version, kind, f"{kind.lower()}-made", spec, ownerReferences=OWNER)
        yield Case(name=f"{kind} of a controller", manifest=made, admitted=True, by_a_member=False)
        forged = _made(version, kind, f"{kind.lower()}-forged", spec, ownerReferences=OWNER)
        yield Case(name=f"{kind} of a member that names an owner", manifest=forged, admitted=False)
        both = _labelled(kind, forged, QUEUED)
        yield Case(name=f"{kind} of a member that names a queue and an owner", manifest=both, admitted=False)
        yield Case(name=f"{kind} of a controller in a queue", manifest=both, admitted=True, by_a_member=False)
    for kind, (version, _, spec) in _of_kinds({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "0"}).items():
        small = _made(version, kind, f"{kind.lower()}-small", spec)
        yield Case(name=f"{kind} without accelerators", manifest=small, admitted=True)
        owned = _made(version, kind, f"{kind.lower()}-owned", spec, ownerReferences=OWNER)
        yield Case(name=f"{kind} of a member without accelerators, with an owner", manifest=owned, admitted=True)


def _pod(name: str, spec: Manifest, **metadata: Any) -> Manifest:
    return _made("v1", "Pod", name, spec, **metadata)


def _pods() -> Iterator[Case]:
    yield Case(name="pod without an owner", manifest=_pod("alone", _spec(GPUS)), admitted=False)
    yield Case(name="pod in a queue, without an owner", manifest=_pod("in", _spec(GPUS), labels=QUEUED), admitted=False)
    yield Case(name="pod of an administrator", manifest=_pod("admin", _spec(GPUS)), admitted=False, by_a_member=False)
    made = _pod("made", _spec(GPUS), ownerReferences=OWNER)
    yield Case(name="pod of a controller", manifest=made, admitted=True, by_a_member=False)
    yield Case(name="pod of a member that names an owner", manifest=made, admitted=False)
    yield Case(
        name="pod without accelerators", manifest=_pod("cpu", _spec({"cpu": "1", "memory": "1Gi"})), admitted=True
    )
    first = _pod("first", _spec(GPUS, first=True))
    yield Case(name="accelerators of an init container", manifest=first, admitted=False)
    partition = _pod("part", _spec({"nvidia.com/mig-1g.10gb": "1"}, limits_only=True))
    yield Case(name="a partition of a GPU, as a limit", manifest=partition, admitted=False)
    chip = _pod("chip", _spec({"aws.amazon.com/neurondevice": "1"}))
    yield Case(name="a Trainium chip", manifest=chip, admitted=False)
    bare = _pod("bare", {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"})
    yield Case(name="pod that requests nothing", manifest=bare, admitted=True)


CASES = (*_kinds(), *_pods())
