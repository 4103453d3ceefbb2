"""What members of teams use besides HyperPod's own jobs, applied by a member, under quota, defaults and Role."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.manifests import Manifest
from helpers.kubernetes.apiserver.client import Answer, Client, await_answer
from helpers.kubernetes.apiserver.objects import await_counted, install, pod, requesting


def test_a_team_of_inference_runs_a_deployment_behind_a_service(admin: Client) -> None:
    member = install(admin, Team(name="inference", quota={"ml.g6.12xlarge": 2}))
    assert member.create(of_kind("v1", "ServiceAccount", "inference", "model")).status == 201
    container = {
        "name": "model",
        "image": "none",
        **requesting(**{"nvidia.com/gpu": "4", "cpu": "40", "memory": "120Gi"}),
    }
    labels = {"app": "model"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "serviceAccountName": "model", "schedulerName": "nobody"},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    assert member.create(of_kind("apps/v1", "Deployment", "inference", "model", spec=spec)).status == 201
    service = {"selector": labels, "ports": [{"port": 80}]}
    assert member.create(of_kind("v1", "Service", "inference", "model", spec=service)).status == 201
    # The third pod would exceed the quota, and the Deployment reports that.
    path = "/apis/apps/v1/namespaces/inference/deployments/model"
    answer = await_answer(lambda: member.get(path), is_short, "two pods of three")
    (failure,) = [item for item in answer.body["status"]["conditions"] if item["type"] == "ReplicaFailure"]
    assert "exceeded quota: team-quota, requested: " in failure["message"]
    pods = member.get("/api/v1/namespaces/inference/pods").body["items"]
    assert [item["spec"]["serviceAccountName"] for item in pods] == ["model", "model"]
    scale = of_kind("autoscaling/v1", "Scale", "inference", "model", spec={"replicas": 2})
    assert member.request("PUT", f"{path}/scale", scale).status == 200


def test_a_member_creates_a_jobset_and_its_jobs_create_pods(admin: Client) -> None:
    member = install(admin, Team(name="jobsets", quota={"ml.m5.4xlarge": 2}))
    one = pod("jobsets", "x", container=requesting(cpu="8", memory="16Gi"))["spec"] | {"restartPolicy": "Never"}
    job = {"template": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": one}}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, **job}]}
    assert member.create(of_kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", "pair", spec=spec)).status == 201
    # The Jobs that JobSet's controller, which does not run here, creates from it.
    workers = of_kind("batch/v1", "Job", "jobsets", "pair-workers-0", spec=copy.deepcopy(job["template"]["spec"]))
    assert member.create(workers).status == 201
    listed = "/api/v1/namespaces/jobsets/pods"
    await_answer(lambda: member.get(listed), lambda answer: len(answer.body.get("items", [])) == 2, "two pods")


def test_objects_beyond_the_count_are_refused(admin: Client) -> None:
    name, hard = "many-secrets", 200
    member = install(admin, Team(name=name, quota={"ml.m5.4xlarge": 1}))
    limits = admin.get(f"/api/v1/namespaces/{name}/resourcequotas/team-quota").body["status"]["hard"]
    assert (limits["secrets"], limits["configmaps"]) == (str(hard), "1k")
    # While the server counts again, it may admit one or two more.
    made = [member.create(of_kind("v1", "Secret", name, f"o{index}")) for index in range(hard + 5)]
    taken = [answer.status for answer in made].count(201)
    assert hard - 3 <= taken < hard + 5
    assert made[-1].status == 403
    assert "exceeded quota: team-quota, requested: secrets=1, used: secrets=" in made[-1].message


EMPTY: Manifest = {"selector": {"matchLabels": {"app": "x"}}}
SCALED: Manifest = {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}
COUNTED: list[tuple[str, str, str, Manifest]] = [
    ("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob", "count/hyperpodpytorchjobs.sagemaker.amazonaws.com", {}),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "count/jobsets.jobset.x-k8s.io", {}),
    ("kubeflow.org/v1", "PyTorchJob", "count/pytorchjobs.kubeflow.org", {}),
    ("kubeflow.org/v2beta1", "MPIJob", "count/mpijobs.kubeflow.org", {}),
    ("apps/v1", "Deployment", "count/deployments.apps", EMPTY),
    ("policy/v1", "PodDisruptionBudget", "count/poddisruptionbudgets.policy", EMPTY),
    ("batch/v1", "Job", "count/jobs.batch", {}),
    ("v1", "Service", "services", {"ports": [{"port": 80}]}),
    ("v1", "ServiceAccount", "count/serviceaccounts", {}),
    ("apps/v1", "StatefulSet", "count/statefulsets.apps", {**EMPTY, "serviceName": "x"}),
    ("batch/v1", "CronJob", "count/cronjobs.batch", {"schedule": "0 0 * * *"}),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "count/horizontalpodautoscalers.autoscaling", SCALED),
    ("ray.io/v1", "RayJob", "count/rayjobs.ray.io", {}),
    ("ray.io/v1", "RayCluster", "count/rayclusters.ray.io", {}),
    ("ray.io/v1", "RayService", "count/rayservices.ray.io", {}),
]


def test_every_kind_that_a_member_can_create_counts_against_the_quota(admin: Client) -> None:
    """Kinds of operators too, which the API server itself counts."""
    # Kubernetes creates a service account in every namespace.
    hard = {key: "2" if key == "count/serviceaccounts" else "1" for _, _, key, _ in COUNTED}
    team = Team(name="counted", quota={"ml.m5.4xlarge": 1}, work=("training", "ray"), hard=hard)
    member = install(admin, team)
    await_counted(admin, "counted", "team-quota")
    containers = {"metadata": {"labels": {"app": "x"}}, "spec": pod("counted", "x")["spec"]}
    for version, kind, key, content in COUNTED:
        spec = dict(content)
        job = {"template": {"spec": {**containers["spec"], "restartPolicy": "Never"}}}
        if kind in ("Deployment", "StatefulSet"):
            spec |= {"replicas": 0, "template": containers}
        elif kind == "Job":
            spec |= job
        elif kind == "CronJob":
            spec |= {"jobTemplate": {"spec": job}}
        extra = {"spec": spec} if spec else {}
        first, second = (member.create(of_kind(version, kind, "counted", name, **extra)) for name in ("a", "b"))
        assert (kind, first.status, first.message) == (kind, 201, "")
        assert (kind, second.status) == (kind, 403)
        assert f"exceeded quota: team-quota, requested: {key}=1, used: {key}={hard[key]}" in second.message


@pytest.mark.parametrize("amount", ["101Gi", "10Ti"])
def test_ephemeral_storage_counts_against_the_quota(admin: Client, amount: str) -> None:
    name = f"disk-{amount.lower()}"
    member = install(admin, Team(name=name, quota={"ml.m5.4xlarge": 1}))
    answer = member.create(pod(name, "p", container=requesting(**{"ephemeral-storage": amount})))
    assert answer.status == 403
    assert "exceeded quota: team-quota, requested: requests.ephemeral-storage=" in answer.message
    assert member.create(pod(name, "p", container=requesting(**{"ephemeral-storage": "90Gi"}))).status == 201


def test_a_member_cannot_evict_pods_of_another_team_or_change_workloads(admin: Client) -> None:
    member = install(admin, Team(name="meek", quota={"ml.m5.4xlarge": 1}), task_governance=True)
    install(admin, Team(name="other", quota={"ml.m5.4xlarge": 1}), task_governance=True)
    theirs = pod("hyperpod-ns-other", "p")
    assert admin.create(theirs).status == 201
    eviction = of_kind("policy/v1", "Eviction", "hyperpod-ns-other", "p")
    refused = member.request("POST", "/api/v1/namespaces/hyperpod-ns-other/pods/p/eviction", eviction)
    assert refused.status == 403
    assert member.delete(theirs).status == 403
    workload = "/apis/kueue.x-k8s.io/v1beta1/namespaces/hyperpod-ns-meek/workloads/job"
    patched = member.request("PATCH", workload, {"spec": {"priority": 1000}}, "application/merge-patch+json")
    assert (patched.status, "workloads.kueue.x-k8s.io" in patched.message) == (403, True)


def is_short(answer: Answer) -> bool:
    status = answer.body.get("status", {})
    failed = any(item["type"] == "ReplicaFailure" for item in status.get("conditions", []))
    return status.get("replicas") == 2 and failed


def of_kind(version: str, kind: str, namespace: str, name: str, **content: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **content}
