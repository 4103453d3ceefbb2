"""Teams and priorities as Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .manifests import Manifest
from .teams import PriorityClass, Team, group_name, namespace_name, pod_security_labels, quota_hard

__all__ = ["priority_class_manifests", "team_manifests"]


def team_manifests(team: Team, *, task_governance: bool) -> tuple[Manifest, ...]:
    """All of a team's objects, in the order in which they can be applied.

    Under task governance HyperPod makes the namespace, when it sees the team's ComputeQuota: these come after that, and
    whoever applies them puts `pod_security_labels` on the namespace. A team's rights come after its limits.
    """
    namespace = namespace_name(team, task_governance=task_governance)
    hard = quota_hard(team)
    manifests = [] if task_governance else [_namespace(namespace, team)]
    manifests += [_resource_quota(namespace, _NO_WAY_IN | hard), _no_system_priorities(namespace)]
    if hard:
        # Quotas on vCPUs and memory refuse every pod with a container that does not say how much it takes.
        manifests.append(_limit_range(namespace, team))
    manifests += [
        _object("rbac.authorization.k8s.io/v1", "Role", "team-member", namespace, rules=_role_rules(task_governance)),
        _binding("RoleBinding", "Role", "team-member", namespace),
    ]
    if task_governance:
        manifests += [
            _object(
                "rbac.authorization.k8s.io/v1", "ClusterRole", f"{namespace}-team-member", rules=_queues(namespace)
            ),
            _binding("ClusterRoleBinding", "ClusterRole", f"{namespace}-team-member", namespace),
        ]
    return tuple(manifests)


def priority_class_manifests(classes: Sequence[PriorityClass]) -> tuple[Manifest, ...]:
    """The cluster's PriorityClasses. Value and preemption cannot change: another class needs another name."""
    return tuple(
        _object("scheduling.k8s.io/v1", "PriorityClass", item.name)
        | {
            "value": item.value,
            "globalDefault": False,
            "preemptionPolicy": "PreemptLowerPriority" if item.preempts else "Never",
        }
        | ({"description": item.description} if item.description else {})
        for item in classes
    )


# Such Services open ports to the network, and a load balancer of AWS costs money.
_NO_WAY_IN = {"services.loadbalancers": "0", "services.nodeports": "0"}


def _namespace(namespace: str, team: Team) -> Manifest:
    manifest = _object("v1", "Namespace", namespace)
    manifest["metadata"]["labels"] |= pod_security_labels(team)
    return manifest


def _no_system_priorities(namespace: str) -> Manifest:
    """Pods of Kubernetes' own classes would end those of every other team, and of the cluster itself."""
    classes = ["system-node-critical", "system-cluster-critical"]
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": classes}]}
    spec = {"hard": {"pods": "0"}, "scopeSelector": selector}
    return _object("v1", "ResourceQuota", "no-system-priorities", namespace, spec=spec)


def _resource_quota(namespace: str, hard: Mapping[str, str]) -> Manifest:
    return _object("v1", "ResourceQuota", "team-quota", namespace, spec={"hard": dict(hard)})


# A pod that requests nothing counts nothing in the quota, and takes a node all the same. Not more than this: it is what
# the container requests that Kubeflow's operator puts before a PyTorchJob's workers.
_LEAST = {"cpu": "50m", "memory": "10Mi"}


def _limit_range(namespace: str, team: Team) -> Manifest:
    default = {"cpu": str(team.default_vcpus), "memory": f"{team.default_memory_gib}Gi"}
    limits = [{"type": "Container", "default": default, "defaultRequest": default, "min": _LEAST}]
    return _object("v1", "LimitRange", "team-defaults", namespace, spec={"limits": limits})


_ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


_READ = ("get", "list", "watch")


def _role_rules(task_governance: bool) -> list[Manifest]:
    """What a member may do in the team's namespace: everything with jobs, and nothing with the team's own limits.

    AWS's chart (https://github.com/aws/sagemaker-hyperpod-cli, team-role-and-bindings) has no rule for
    hyperpodpytorchjobs, and grants nodes in a Role, which has no effect there.
    """
    rules = [
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs",), _ALL),
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs/status",), ("get",)),
        _rule("batch", ("jobs",), _ALL),
        _rule("kubeflow.org", ("pytorchjobs", "pytorchjobs/status", "mpijobs", "mpijobs/status"), _ALL),
        _rule("", ("pods", "configmaps", "secrets", "services", "persistentvolumeclaims"), _ALL),
        _rule("", ("pods/log", "pods/status", "events", "serviceaccounts", "resourcequotas", "limitranges"), _READ),
        _rule("", ("pods/exec", "pods/portforward"), ("create",)),
        _rule("policy", ("poddisruptionbudgets",), _ALL),
        # In a Role: the own one, and no other.
        _rule("", ("namespaces",), ("get",)),
    ]
    if task_governance:
        rules += [
            _rule("kueue.x-k8s.io", ("workloads",), (*_READ, "patch")),
            # Kueue writes the status: whoever can write it might admit a job past the queue.
            _rule("kueue.x-k8s.io", ("workloads/status", "localqueues"), _READ),
        ]
    return rules


def _queues(namespace: str) -> list[Manifest]:
    """What Kueue keeps outside of namespaces; the team sees its own queue only."""
    own = _rule("kueue.x-k8s.io", ("clusterqueues",), ("get",)) | {"resourceNames": [f"{namespace}-clusterqueue"]}
    return [own, _rule("kueue.x-k8s.io", ("resourceflavors", "workloadpriorityclasses"), _READ)]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


def _binding(kind: str, role_kind: str, role: str, namespace: str) -> Manifest:
    rbac = "rbac.authorization.k8s.io"
    return _object(f"{rbac}/v1", kind, role, namespace if kind == "RoleBinding" else None) | {
        "subjects": [{"kind": "Group", "name": group_name(namespace), "apiGroup": rbac}],
        "roleRef": {"kind": role_kind, "name": role, "apiGroup": rbac},
    }


def _object(api_version: str, kind: str, name: str, namespace: str | None = None, **content: Any) -> Manifest:
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = {"app.kubernetes.io/managed-by": "cdk-hyperpod"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
