"""Teams of an EKS cluster as Kubernetes objects: a namespace each, with a quota, defaults, and permissions for IAM roles.

Nothing here calls Kubernetes: a team becomes plain manifests, which `kubectl apply` or CDK's kubectl handler sends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..config.cluster import InstanceGroup
from ..config.teams import PriorityClass, Share, Team
from . import quotas
from .manifests import Manifest
from .queue_policy import queue_manifests
from .shares import parts_of
from .work import kinds_of


def team_manifests(
    team: Team,
    *,
    task_governance: bool,
    priority_classes: Sequence[PriorityClass] = (),
    file_system_gib: int | None = 0,
    lists_extended: bool = False,
) -> tuple[Manifest, ...]:
    """All of a team's objects, in the order in which they can be applied. `priority_classes`: the cluster's own.
    `lists_extended`: as in `quotas.amounts`.

    file_system_gib: the capacity that the team's claim on the file system shows. 0: it has none. None: it is unknown.

    Under task governance HyperPod creates the namespace for the team's ComputeQuota. Apply these objects after that, and add
    `pod_security_labels` to the namespace. A team's permissions come after its limits.
    """
    namespace = namespace_name(team, task_governance=task_governance)
    hard = quota_hard(team, file_system_gib=file_system_gib, lists_extended=lists_extended)
    manifests = [] if task_governance else [_namespace(namespace, team)]
    manifests += [
        _resource_quota(namespace, hard),
        _no_other_priorities(namespace, allowed_priorities(team, priority_classes)),
    ]
    if team.quota or team.hard:
        # Quotas on vCPUs and memory refuse every pod with a container that declares no requests.
        manifests.append(_limit_range(namespace, team))
    if task_governance and borrows(team):
        manifests += queue_manifests(namespace, group_name(namespace))
    rules = _role_rules(team, task_governance)
    manifests += [
        _object("rbac.authorization.k8s.io/v1", "Role", "team-member", namespace, rules=rules),
        _binding("RoleBinding", "Role", "team-member", namespace),
    ]
    # `hyp` lists all namespaces to find those that its caller may use.
    rules = [_rule("", ("namespaces",), ("list",)), *(_queues(namespace) if task_governance else [])]
    manifests += _cluster_wide(namespace, "team-member", rules)
    if team.see_nodes:
        manifests += _cluster_wide(namespace, "node-reader", [_rule("", ("nodes",), ("get", "list"))])
    if team.pod_role_arn is not None:
        manifests.append(_object("v1", "ServiceAccount", POD_SERVICE_ACCOUNT, namespace))
    return tuple(manifests)


def _cluster_wide(namespace: str, name: str, rules: Sequence[Manifest]) -> list[Manifest]:
    """Permissions of the team outside of its namespace."""
    name = f"{namespace}-{name}"
    return [
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", name, rules=rules),
        _binding("ClusterRoleBinding", "ClusterRole", name, namespace),
    ]


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


def _namespace(namespace: str, team: Team) -> Manifest:
    manifest = _object("v1", "Namespace", namespace)
    manifest["metadata"]["labels"] |= pod_security_labels(team)
    return manifest


def _no_other_priorities(namespace: str, allowed: Sequence[str]) -> Manifest:
    """Refuse pods of other priority classes: a higher class preempts pods of other teams, and Kubernetes' own classes preempt the
    cluster's pods."""
    scope = "PriorityClass"
    selector: list[Manifest] = [{"scopeName": scope, "operator": "Exists"}]
    if allowed:
        selector.append({"scopeName": scope, "operator": "NotIn", "values": [*allowed]})
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": selector}}
    return _object("v1", "ResourceQuota", "no-other-priorities", namespace, spec=spec)


def _resource_quota(namespace: str, hard: Mapping[str, str]) -> Manifest:
    return _object("v1", "ResourceQuota", "team-quota", namespace, spec={"hard": dict(hard)})


# A pod that requests nothing does not count in the quota, but still uses a node. Not more than this, because Kubeflow's operator adds a
# container with these requests to a PyTorchJob's workers.
_LEAST = {"cpu": "50m", "memory": "10Mi"}


def _limit_range(namespace: str, team: Team) -> Manifest:
    request = {
        "cpu": str(team.default_vcpus),
        "memory": f"{team.default_memory_gib}Gi",
        "ephemeral-storage": DEFAULT_DISK,
    }
    # A default limit below a container's request refuses the container. So there is one only where a missing limit is refused too.
    limited = [name for name in request if name == "memory" or f"limits.{name}" in team.hard]
    limits = [
        {
            "type": "Container",
            "default": {name: request[name] for name in limited},
            "defaultRequest": request,
            "min": _LEAST,
        }
    ]
    return _object("v1", "LimitRange", "team-defaults", namespace, spec={"limits": limits})


_ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


_READ = ("get", "list", "watch")


def _role_rules(team: Team, task_governance: bool) -> list[Manifest]:
    """A member's permissions in the team's namespace: everything on jobs and Deployments, nothing on the team's own limits.

    A service account of the team has no permissions in Kubernetes, because no member can grant it any.

    AWS's chart (https://github.com/aws/sagemaker-hyperpod-cli, team-role-and-bindings) has no rule for
    hyperpodpytorchjobs, and grants nodes in a Role, which has no effect there.
    """
    rules = [
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs",), _ALL),
        _rule("sagemaker.amazonaws.com", ("hyperpodpytorchjobs/status",), ("get",)),
        _rule("batch", ("jobs",), _ALL),
        _rule("jobset.x-k8s.io", ("jobsets",), _ALL),
        _rule("jobset.x-k8s.io", ("jobsets/status",), ("get",)),
        _rule("apps", ("deployments", "deployments/scale"), _ALL),
        _rule("apps", ("deployments/status", "replicasets"), _READ),
        _rule("kubeflow.org", ("pytorchjobs", "pytorchjobs/status", "mpijobs", "mpijobs/status"), _ALL),
        _rule("", ("pods", "configmaps", "secrets", "services", "persistentvolumeclaims", "serviceaccounts"), _ALL),
        _rule("", ("pods/log", "pods/status", "events", "resourcequotas", "limitranges"), _READ),
        _rule("", ("pods/exec", "pods/portforward"), ("create",)),
        _rule("policy", ("poddisruptionbudgets",), _ALL),
        # In a Role this allows the team's own namespace only.
        _rule("", ("namespaces",), ("get",)),
    ]
    for kind in kinds_of(team.work):
        rules += [_rule(kind.group, kind.resources, _ALL), _rule(kind.group, (f"{kind.plural}/status",), _READ)]
    if task_governance:
        rules += [
            _rule("kueue.x-k8s.io", ("workloads",), (*_READ, "patch") if team.patch_workloads else _READ),
            # Only Kueue may write the status, because that admits a job.
            _rule("kueue.x-k8s.io", ("workloads/status", "localqueues"), _READ),
        ]
    return rules


def _queues(namespace: str) -> list[Manifest]:
    """Permissions on Kueue's cluster-wide objects. The team sees only its own queue."""
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


POD_SERVICE_ACCOUNT = "team-pods"
"""The service account of a team's namespace whose pods have the team's `pod_role_arn`."""
DEFAULT_DISK = "1Gi"
"""The default request of a container for its node's disk: logs, and writes to its own layer."""
POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
"""The label with the Pod Security standard of a namespace."""


def namespace_name(team: Team, *, task_governance: bool) -> str:
    """The team's namespace: HyperPod's own under task governance, otherwise the team's choice or name."""
    return f"hyperpod-ns-{team.name}" if task_governance else team.namespace or team.name


def group_name(namespace: str) -> str:
    """The Kubernetes group of a team, for EKS access entries: named as AWS's `team-role-and-bindings` chart does."""
    return f"{namespace}-namespace-level-group"


def access_groups(teams: Sequence[Team], *, task_governance: bool) -> dict[str, tuple[str, ...]]:
    """IAM role -> Kubernetes groups. EKS has one access entry for a role, so a role in two teams has two groups."""
    groups: dict[str, list[str]] = {}
    for team in teams:
        for arn in dict.fromkeys(team.role_arns):
            groups.setdefault(arn, []).append(group_name(namespace_name(team, task_governance=task_governance)))
    return {arn: tuple(names) for arn, names in groups.items()}


def claim_gib(capacity_gib: object) -> int:
    """The capacity that a claim on the file system shows. Kubernetes does not enforce it. If it is not known: the smallest of Lustre's."""
    return capacity_gib if isinstance(capacity_gib, int) else 1200


def quota_hard(team: Team, *, file_system_gib: int | None = 0, lists_extended: bool = False) -> dict[str, str]:
    """`spec.hard` of the team's ResourceQuota: its ceiling, and the bounds of every team.

    file_system_gib: the capacity that the team's claim on the file system shows. 0: it has none. None: it is unknown.
    lists_extended: as in `quotas.amounts`.
    """
    nodes = sum(most_nodes(team).values())
    bounds = quotas.bounds(nodes, team.work, file_system_gib=file_system_gib)
    if not team.quota:
        return bounds | dict(team.hard)
    total = quotas.ceiling(
        team.quota,
        borrow_limit=team.borrow_limit,
        absolute_borrow_limits=team.absolute_borrow_limits,
        lists_extended=lists_extended,
    )
    return quotas.hard(total, quotas.disk(nodes) | bounds | dict(team.hard))


def borrows(team: Team) -> bool:
    """Whether the team may have more than its share."""
    return bool(team.borrow_limit or team.absolute_borrow_limits)


def most_nodes(team: Team) -> dict[str, int]:
    """The team's share and what it may borrow, in whole nodes of each type."""
    factor = 1 + Fraction(team.borrow_limit or 0, 100)
    nodes = {name: _nodes(name, share) * factor for name, share in team.quota.items()}
    for name, share in team.absolute_borrow_limits.items():
        nodes[name] = nodes.get(name, Fraction()) + _nodes(name, share)
    return {name: math.ceil(count) for name, count in nodes.items()}


def _nodes(instance_type: str, share: int | Share) -> Fraction:
    return max(parts_of(instance_type, share).values())


def allowed_priorities(team: Team, classes: Sequence[PriorityClass] = ()) -> tuple[str, ...]:
    """The PriorityClasses that the team's pods may name. `classes`: the cluster's own."""
    if team.priority_classes is not None:
        return team.priority_classes
    return tuple(item.name for item in classes if item.value <= 0)


def pod_security_labels(team: Team) -> dict[str, str]:
    """Labels of the team's namespace. Without a version label, Kubernetes uses its own version of the standard."""
    return {POD_SECURITY_LABEL: team.pod_security}


def cluster_nodes(groups: Sequence[InstanceGroup]) -> dict[str, int]:
    """Nodes by instance type. A group that mixes types may have all of its nodes of any one of them."""
    nodes: dict[str, int] = {}
    for group in groups:
        for name in group.all_instance_types:
            nodes[name] = nodes.get(name, 0) + group.instance_count
    return nodes
