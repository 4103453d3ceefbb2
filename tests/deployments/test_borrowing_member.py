"""A member of a team that borrows nodes, against the policies in the template of the teams' stack.

Kueue counts and preempts only what goes through the team's queue. Whatever the member does, GPUs outside of it are refused, and the
controllers of Kubernetes, Kueue and HyperPod go on working.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from helpers.kubernetes.admission import Request, refused
from helpers.kubernetes.queued import GPUS, QUEUED
from helpers.synthesis import CONFIGS, of_file

Json = Any
NAMESPACE = "hyperpod-ns-research"
MEMBER = (f"{NAMESPACE}-namespace-level-group", "system:authenticated")
CONTROLLER = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
OWN_JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "small", "uid": "1", "controller": True}]
KINDS = {
    "Job": ("batch", "jobs"),
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
    "Pod": ("", "pods"),
}


@pytest.fixture(scope="module")
def policies() -> list[Json]:
    """As a deployment applies them."""
    resources = of_file(CONFIGS / "eks.yaml")["hyperpod-elastic-teams"].of("Custom::AWSCDK-EKS-KubernetesResource")
    (manifests,) = (
        json.loads(each["Properties"]["Manifest"])
        for each in resources.values()
        if f'"{NAMESPACE}-queue"' in str(each["Properties"]["Manifest"])
    )
    return [each for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"]


def made(kind: str, name: str, resources: Json = GPUS, **metadata: Json) -> Json:
    pod = {"containers": [{"name": "main", "image": "none", "resources": {"requests": resources, "limits": resources}}]}
    spec = pod if kind == "Pod" else {"template": {"spec": pod}}
    return {"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": spec}


SMALL = {"cpu": "1", "memory": "1Gi"}


def create(policies: list[Json], manifest: Json, groups: tuple[str, ...] = MEMBER) -> bool:
    group, plural = KINDS[manifest["kind"]]
    request = Request(operation="CREATE", group=group, plural=plural, manifest=manifest, groups=groups)
    return not refused(policies, request)


def update(policies: list[Json], old: Json, new: Json, groups: tuple[str, ...] = MEMBER) -> bool:
    group, plural = KINDS[new["kind"]]
    request = Request(operation="UPDATE", group=group, plural=plural, manifest=new, old=old, groups=groups)
    return not refused(policies, request)


def scale(policies: list[Json], target: Json, objects: list[Json], count: int, groups: tuple[str, ...]) -> bool:
    group, plural = KINDS[target["kind"]]
    request = Request(
        operation="UPDATE",
        group=group,
        plural=f"{plural}/scale",
        name=target["metadata"]["name"],
        manifest={"kind": "Scale", "spec": {"replicas": count}},
        old={"kind": "Scale", "spec": {}},
        groups=groups,
    )
    return not refused(policies, request, objects)


def test_an_owner_reference_to_a_small_job_of_ones_own(policies: list[Json]) -> None:
    assert create(policies, made("Job", "small", SMALL, labels=QUEUED))
    for kind in KINDS:
        assert not create(policies, made(kind, "large", labels=QUEUED, ownerReferences=OWN_JOB)), kind
    # In two steps: the owner before the accelerators, and after them.
    owned = made("Deployment", "d", SMALL, labels=QUEUED, ownerReferences=OWN_JOB)
    queued = made("Deployment", "d", labels=QUEUED)
    both = made("Deployment", "d", labels=QUEUED, ownerReferences=OWN_JOB)
    assert create(policies, owned) and create(policies, queued)
    assert not update(policies, owned, both)
    assert not update(policies, queued, both)


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_needs_a_queue_is_refused_without_its_label(policies: list[Json], kind: str) -> None:
    assert not create(policies, made(kind, "large"))
    assert not create(policies, made(kind, "large", labels={"kueue.x-k8s.io/queue-name": ""}))
    if kind != "Pod":
        assert create(policies, made(kind, "large", labels=QUEUED))
        assert not update(policies, made(kind, "large", labels=QUEUED), made(kind, "large"))


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_more_replicas_of_what_is_older_than_the_policy(policies: list[Json], kind: str) -> None:
    """By oneself, or by a HorizontalPodAutoscaler, whose controller is no member."""
    old, queued, cpu = made(kind, "old"), made(kind, "queued", labels=QUEUED), made(kind, "cpu", SMALL)
    for groups in (MEMBER, CONTROLLER):
        assert not scale(policies, old, [old, queued, cpu], 6, groups)
        assert scale(policies, queued, [old, queued, cpu], 6, groups)
        assert scale(policies, cpu, [old, queued, cpu], 6, groups)
        assert scale(policies, old, [old, queued, cpu], 0, groups)


def test_the_controllers_go_on_working(policies: list[Json]) -> None:
    """Of a Job, of a Deployment's ReplicaSet, of HyperPod's training operator, of its inference operator, and Kueue's changes."""
    for owner in ("Job", "ReplicaSet", "HyperPodPyTorchJob", "JobSet"):
        reference = [{**OWN_JOB[0], "kind": owner}]
        assert create(policies, made("Pod", "worker", ownerReferences=reference), CONTROLLER)
        assert create(policies, made("Job", "child", ownerReferences=reference), CONTROLLER)
    endpoint = made("Deployment", "endpoint", ownerReferences=[{**OWN_JOB[0], "kind": "InferenceEndpointConfig"}])
    assert create(policies, endpoint, CONTROLLER)
    assert scale(policies, endpoint, [endpoint], 4, CONTROLLER)
    old = made("Job", "old")
    admitted = copy.deepcopy(old)
    admitted["metadata"]["annotations"] = {"kueue.x-k8s.io/admitted": "true"}
    assert update(policies, old, admitted, CONTROLLER)
