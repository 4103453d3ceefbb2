"""The policy of a team that borrows: what asks for accelerators goes through the team's queue.

The team's ResourceQuota stays at the ceiling, because it also counts the pods that Kueue admitted on borrowed nodes. Without this
policy, a pod without a queue could take borrowed nodes too, and Kueue could not give them back, since it preempts only what it
admitted.

Kubernetes' API server evaluates the expressions, in CEL (https://kubernetes.io/docs/reference/using-api/cel/). They use no function
that 1.30 does not have.
"""

from __future__ import annotations

from .manifests import Manifest

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_API = "admissionregistration.k8s.io/v1"

_RESOURCES = (
    ("", "v1", ("pods",), ("CREATE",)),
    ("batch", "v1", ("jobs", "cronjobs"), ("CREATE", "UPDATE")),
    ("apps", "v1", ("deployments", "statefulsets"), ("CREATE", "UPDATE")),
    ("sagemaker.amazonaws.com", "*", ("hyperpodpytorchjobs",), ("CREATE", "UPDATE")),
    ("kubeflow.org", "*", ("pytorchjobs", "mpijobs"), ("CREATE", "UPDATE")),
    ("jobset.x-k8s.io", "*", ("jobsets",), ("CREATE", "UPDATE")),
    ("ray.io", "*", ("rayjobs", "rayclusters", "rayservices"), ("CREATE", "UPDATE")),
)
"""Every kind that has or makes pods and that a member may create: group, version, plurals and operations."""


def _of_replicas(field: str) -> str:
    return f"(has(object.spec.{field}) ? object.spec.{field}.map(name, object.spec.{field}[name].template) : [])"


def _of_cluster(path: str) -> str:
    workers = f"(has({path}.workerGroupSpecs) ? {path}.workerGroupSpecs.map(group, group.template) : [])"
    return f"[{path}.headGroupSpec.template] + {workers}"


_TEMPLATES = {
    "Pod": "[object]",
    "CronJob": "[object.spec.jobTemplate.spec.template]",
    "JobSet": "object.spec.replicatedJobs.map(job, job.template.spec.template)",
    "HyperPodPyTorchJob": "(has(object.spec.replicaSpecs) ? object.spec.replicaSpecs.map(part, part.template) : [])",
    "PyTorchJob": _of_replicas("pytorchReplicaSpecs"),
    "MPIJob": _of_replicas("mpiReplicaSpecs"),
    "RayCluster": _of_cluster("object.spec"),
    "RayJob": f"(has(object.spec.rayClusterSpec) ? {_of_cluster('object.spec.rayClusterSpec')} : [])"
    " + (has(object.spec.submitterPodTemplate) ? [object.spec.submitterPodTemplate] : [])",
    "RayService": _of_cluster("object.spec.rayClusterConfig"),
}
"""Where a kind has the templates of its pods. Every other kind: `spec.template`."""

_IS_ACCELERATOR = "(name.startsWith('nvidia.com/') || name.startsWith('aws.amazon.com/neuron'))"
_LABELS_OF = "(object.kind == 'CronJob' ? object.spec.jobTemplate : object)"


def _asks_for(field: str) -> str:
    """Whether a container's requests or limits name an accelerator. AWS's SDK writes 0 for nodes without."""
    held = f"container.resources.{field}"
    return f"(has({held}) && {held}.exists(name, {_IS_ACCELERATOR} && string({held}[name]) != '0'))"


def _templates() -> str:
    chain = "".join(f"object.kind == '{kind}' ? ({where}) : " for kind, where in _TEMPLATES.items())
    return f"{chain}[object.spec.template]"


def _by_a_member(group: str) -> str:
    return f"(has(request.userInfo.groups) && request.userInfo.groups.exists(group, group == '{group}'))"


def _variables(group: str) -> dict[str, str]:
    """Each may use those before it."""
    return {
        "templates": _templates(),
        "containers": "variables.templates.map(template, template.spec.containers + "
        "(has(template.spec.initContainers) ? template.spec.initContainers : []))",
        "accelerated": "variables.containers.exists(several, several.exists(container, has(container.resources) && "
        f"({_asks_for('requests')} || {_asks_for('limits')})))",
        # A member can write any owner into an object, so an owner counts only if a controller wrote it.
        "made": "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.size() > 0 && "
        f"!{_by_a_member(group)}",
        "queued": f"has({_LABELS_OF}.metadata) && has({_LABELS_OF}.metadata.labels) && "
        f"'{QUEUE_LABEL}' in {_LABELS_OF}.metadata.labels && {_LABELS_OF}.metadata.labels['{QUEUE_LABEL}'] != ''",
    }


def queue_manifests(namespace: str, group: str) -> tuple[Manifest, ...]:
    """The policy and its binding. `group`: the team's Kubernetes group."""
    name = f"{namespace}-queue"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {
                    "apiGroups": [api_group],
                    "apiVersions": [version],
                    "operations": [*operations],
                    "resources": [*plurals],
                }
                for api_group, version, plurals, operations in _RESOURCES
            ],
        },
        # Controllers change what existed before the policy: a finalizer, an annotation.
        "matchConditions": [
            {
                "name": "created-or-changed-by-a-member",
                "expression": f"request.operation == 'CREATE' || {_by_a_member(group)}",
            },
            {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
        ],
        "variables": [{"name": each, "expression": text} for each, text in _variables(group).items()],
        "validations": [
            {
                "expression": "object.kind != 'Pod' || !variables.accelerated || variables.made",
                "message": "a pod with accelerators needs a queue, because this team borrows nodes: create a job with "
                f"the label {QUEUE_LABEL} instead of the pod",
                "reason": "Forbidden",
            },
            {
                "expression": "object.kind == 'Pod' || !variables.accelerated || variables.made || variables.queued",
                "message": "what asks for accelerators needs a queue, because this team borrows nodes: add the label "
                f"{QUEUE_LABEL}: {namespace}-localqueue (of a CronJob: to its jobTemplate)",
                "reason": "Forbidden",
            },
        ],
    }
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "cdk-hyperpod"}}
    return (
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    )
