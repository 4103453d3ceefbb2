"""Objects that the tests create beside the rendered ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from cdk_hyperpod.config.jobs import ElasticJob
from cdk_hyperpod.config.teams import PriorityClass, Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.kubernetes.allocatable import allocatable
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.manifests import Manifest
from cdk_hyperpod.kubernetes.quantities import cpu_quantity, memory_quantity
from cdk_hyperpod.kubernetes.teams import group_name, namespace_name, team_manifests
from helpers.kubernetes.apiserver.client import Answer, Client, await_answer


def kind_of(group: str, version: str, kind: str) -> Manifest:
    """A replacement of an operator's kind, with its names and any content."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


JOBS = kind_of("sagemaker.amazonaws.com", "v1", "HyperPodPyTorchJob")
"""The kind of the training operator, whose schema is not published."""
KINDS = (
    JOBS,
    kind_of("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    kind_of("kubeflow.org", "v1", "PyTorchJob"),
    kind_of("kubeflow.org", "v2beta1", "MPIJob"),
    kind_of("ray.io", "v1", "RayJob"),
    kind_of("ray.io", "v1", "RayCluster"),
    kind_of("ray.io", "v1", "RayService"),
)
"""All kinds of operators that a team's Role may contain."""


def established(answer: Answer) -> bool:
    """Whether the server serves a new kind."""
    conditions = answer.body.get("status", {}).get("conditions", []) if answer.status == 200 else []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def install_kinds(admin: Client) -> None:
    """Create the kinds, and wait until they are served and quotas count them. Until then a quota refuses them."""
    admin.apply_all(KINDS)
    names = [kind["metadata"]["name"] for kind in KINDS]
    for name in names:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        await_answer(partial(admin.get, path), established, f"the kind {name}")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "every-kind", "namespace": "default"},
        "spec": {"hard": {f"count/{name}": "0" for name in names}},
    }
    admin.apply_all([quota])
    await_counted(admin, "default", "every-kind")
    assert admin.delete(quota).status == 200


def await_counted(admin: Client, namespace: str, quota: str) -> None:
    """Kubernetes looks for new kinds every half minute."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/{quota}"

    def is_counted(answer: Answer) -> bool:
        status = answer.body.get("status", {})
        return "hard" in status and status["hard"].keys() == status.get("used", {}).keys()

    await_answer(lambda: admin.get(path), is_counted, f"the counts of {quota}", limit_s=180)


def install(
    admin: Client,
    team: Team,
    *,
    task_governance: bool = False,
    priority_classes: Sequence[PriorityClass] = (),
    usable_by_any_pod: bool = True,
) -> Client:
    """Create a team as a deployment does, and wait until its quota is enforced. Returns a member of it.

    usable_by_any_pod: False: Pod Security refuses a pod without a security context.
    """
    namespace = namespace_name(team, task_governance=task_governance)
    if task_governance:
        # HyperPod's own part.
        admin.apply_all([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    manifests = team_manifests(team, task_governance=task_governance, priority_classes=priority_classes)
    # A server before 1.30 does not have them.
    has_policies = admin.cluster.minor >= 30
    admin.apply_all(item for item in manifests if has_policies or "AdmissionPolicy" not in item["kind"])
    await_usable(admin, namespace, quotas=("team-quota", "no-other-priorities"))
    # The server sees a LimitRange after a while. Until then the quota refuses pods without requests.
    silent = pod(namespace, "silent")
    if usable_by_any_pod:
        await_answer(lambda: admin.create(silent, dry_run=True), lambda answer: answer.status == 201, "the defaults")
    return admin.as_member(f"someone-in-{team.name}", group_name(namespace))


def await_usable(admin: Client, namespace: str, *, quotas: Iterable[str]) -> None:
    """Pods need the namespace's default service account, and a quota refuses nothing before its first status."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    def is_usable(answer: Answer) -> bool:
        # Since 1.24 an account has no secret, and its pods get tokens by request.
        return answer.status == 200 and (admin.cluster.minor >= 24 or bool(answer.body.get("secrets")))

    await_answer(lambda: admin.get(account), is_usable, "the service account")
    for name in quotas:
        read = partial(admin.get, f"/api/v1/namespaces/{namespace}/resourcequotas/{name}")
        await_answer(read, lambda answer: bool(answer.body["status"].get("hard")), f"the status of {name}")


def pod(namespace: str, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A pod with one container; resources and other fields by keyword.

    It is not scheduled: all tests share one control plane, and it would use the nodes of another test.
    """
    container = {"name": "main", "image": "none", **spec.pop("container", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], "schedulerName": "nobody", **spec},
    }


def requesting(**resources: str) -> dict[str, Any]:
    """A container with these requests, which are also its limits."""
    return {"resources": {"requests": resources, "limits": resources}}


def pods_of(job: ElasticJob) -> list[Manifest]:
    """The pods of a job at its largest size, as the operator creates them from the templates."""
    (manifest,) = (item for item in job_manifests(job) if item["kind"] == "HyperPodPyTorchJob")
    pods = []
    for replica in manifest["spec"]["replicaSpecs"]:
        for index in range(replica.get("maxReplicas", replica["replicas"])):
            template = copy.deepcopy(replica["template"])
            template["metadata"] |= {"name": f"{job.name}-{replica['name']}-{index}", "namespace": job.namespace}
            pods.append({"apiVersion": "v1", "kind": "Pod", **template})
    return pods


def add_node(admin: Client, name: str, instance_type: str) -> None:
    """A node without a kubelet, which the scheduler treats as a healthy one of that type."""
    node = allocatable(catalogue()[instance_type])
    amounts = {name: str(count) for name, count in node.devices.items()}
    amounts |= {"cpu": cpu_quantity(node.millicpus), "memory": memory_quantity(node.memory_mib)}
    amounts |= {"ephemeral-storage": "90Gi", "pods": "49"}
    labels = {"node.kubernetes.io/instance-type": instance_type}
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    assert admin.create(manifest).status == 201
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": None}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    assert admin.patch_status(manifest, status).status == 200
    # The server taints a new node as not ready, and no controller here would remove the taint.
    path = f"/api/v1/nodes/{name}"
    assert admin.request("PATCH", path, {"spec": {"taints": None}}, "application/merge-patch+json").status == 200
