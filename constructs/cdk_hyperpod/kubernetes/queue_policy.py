"""The policy of a team that borrows: what asks for accelerators goes through the team's queue.

The team's ResourceQuota stays at the ceiling, because it also counts the pods that Kueue admitted on borrowed nodes. Without this
policy, a pod without a queue could take borrowed nodes too, and Kueue could not give them back, since it preempts only what it
admitted. Kueue does not queue what another object owns, so a member may name no owner. A scale holds no pods, so its policy looks at
the Deployment or StatefulSet that is scaled.

Kubernetes' API server evaluates the expressions, in CEL (https://kubernetes.io/docs/reference/using-api/cel/). They use no function
that 1.30 does not have.
"""

from __future__ import annotations

from typing import TypeAlias

from .manifests import Manifest

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_API = "admissionregistration.k8s.io/v1"

_Resources: TypeAlias = tuple[str, str, tuple[str, ...], tuple[str, ...]]
_RESOURCES: tuple[_Resources, ...] = (
    ("", "v1", ("pods",), ("CREATE",)),
    ("batch", "v1", ("jobs", "cronjobs"), ("CREATE", "UPDATE")),
    ("apps", "v1", ("deployments", "statefulsets"), ("CREATE", "UPDATE")),
    ("sagemaker.amazonaws.com", "*", ("hyperpodpytorchjobs",), ("CREATE", "UPDATE")),
    ("kubeflow.org", "*", ("pytorchjobs", "mpijobs"), ("CREATE", "UPDATE")),
    ("jobset.x-k8s.io", "*", ("jobsets",), ("CREATE", "UPDATE")),
    ("ray.io", "*", ("rayjobs", "rayclusters", "rayservices"), ("CREATE", "UPDATE")),
)
"""Every kind that has or makes pods and that a member may create: group, version, plurals and operations."""
_SCALED = {"deployments": "Deployment", "statefulsets": "StatefulSet"}
"""Kinds with a scale that a member, or an autoscaler of theirs, may change."""


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


def _variables(group: str, *, templates: str, root: str = "object", labels_of: str = "object") -> list[Manifest]:
    """What the rules ask of `root`, which has or makes pods. Each variable may use those before it."""
    metadata = f"{root}.metadata"
    variables = {
        "templates": templates,
        "containers": "variables.templates.map(template, template.spec.containers + "
        "(has(template.spec.initContainers) ? template.spec.initContainers : []))",
        "accelerated": "variables.containers.exists(several, several.exists(container, has(container.resources) && "
        f"({_asks_for('requests')} || {_asks_for('limits')})))",
        # A member can write any owner into an object, so an owner counts only if a controller wrote it.
        "member": _by_a_member(group),
        "owned": f"has({metadata}.ownerReferences) && {metadata}.ownerReferences.size() > 0",
        "made": "variables.owned && !variables.member",
        "queued": f"has({labels_of}.metadata) && has({labels_of}.metadata.labels) && "
        f"'{QUEUE_LABEL}' in {labels_of}.metadata.labels && {labels_of}.metadata.labels['{QUEUE_LABEL}'] != ''",
    }
    return [{"name": name, "expression": text} for name, text in variables.items()]


def queue_manifests(namespace: str, group: str) -> tuple[Manifest, ...]:
    """The policies and their bindings. `group`: the team's Kubernetes group."""
    scales = (each for plural in _SCALED for each in _scale_manifests(namespace, group, plural))
    return (*_object_manifests(namespace, group), *scales)


def _object_manifests(namespace: str, group: str) -> tuple[Manifest, ...]:
    """What has or makes pods."""
    spec = {
        # Controllers change what existed before the policy: a finalizer, an annotation.
        "matchConditions": [
            {
                "name": "created-or-changed-by-a-member",
                "expression": f"request.operation == 'CREATE' || {_by_a_member(group)}",
            },
            {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
        ],
        "variables": _variables(group, templates=_templates(), labels_of=_LABELS_OF),
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
            {
                "expression": "object.kind == 'Pod' || !variables.accelerated || !variables.owned || !variables.member",
                "message": "what asks for accelerators needs a queue, because this team borrows nodes, and Kueue does not "
                "queue what has an owner: remove metadata.ownerReferences",
                "reason": "Forbidden",
            },
        ],
    }
    return _policy(f"{namespace}-queue", namespace, _RESOURCES, spec, {})


def _scale_manifests(namespace: str, group: str, plural: str) -> tuple[Manifest, ...]:
    """More replicas of one kind, by its scale. The parameters are all objects of the kind in the namespace."""
    spec = {
        "paramKind": {"apiVersion": "apps/v1", "kind": _SCALED[plural]},
        "matchConditions": [
            {
                "name": "more-replicas",
                "expression": f"{_replicas_of('object')} > {_replicas_of('oldObject')}",
            },
        ],
        "variables": _variables(group, templates="[params.spec.template]", root="params", labels_of="params"),
        "validations": [
            {
                "expression": "params.metadata.name != request.name || !variables.accelerated || variables.made || "
                "variables.queued",
                "message": f"more replicas with accelerators need a queue, because this team borrows nodes: first add the label "
                f"{QUEUE_LABEL}: {namespace}-localqueue",
                "reason": "Forbidden",
            },
        ],
    }
    resources = (("apps", "v1", (f"{plural}/scale",), ("UPDATE",)),)
    every = {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}
    return _policy(f"{namespace}-queue-{plural}", namespace, resources, spec, every)


def _replicas_of(scale: str) -> str:
    """Kubernetes leaves a zero out."""
    return f"(has({scale}.spec) && has({scale}.spec.replicas) ? {scale}.spec.replicas : 0)"


def _policy(
    name: str, namespace: str, resources: tuple[_Resources, ...], spec: Manifest, binding: Manifest
) -> tuple[Manifest, ...]:
    """A policy for the namespace, and its binding."""
    matched = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": [
            {"apiGroups": [group], "apiVersions": [version], "operations": [*operations], "resources": [*plurals]}
            for group, version, plurals, operations in resources
        ],
    }
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "cdk-hyperpod"}}
    return (
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {"failurePolicy": "Fail", "matchConstraints": matched, **spec},
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"], **binding},
        },
    )
