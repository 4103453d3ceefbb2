"""The drainer's permissions in an EKS cluster, as Kubernetes objects (docs/adr/0015).

Its function's access entry has the group `DRAINER_GROUP`, and no access policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .manifests import Manifest
from .teams import POD_SECURITY_LABEL

DRAINER_GROUP = "cdk-hyperpod-drainer"
"""The Kubernetes group of the drainer's access entry. EKS refuses groups that begin with system:, eks:, aws:, amazon: or iam:."""

BACKUP_NAMESPACE = "hyperpod-backup"
"""The library's namespace for the user's backup. It is privileged, has no quota, and no team has a Role there."""
RESERVED = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Namespaces of every cluster. A backup must not be in them."""

LEASE_NAMESPACE, PATCH_LEASE = "kube-system", "cdk-hyperpod-patch"
"""Where the drainer keeps the run of `cdk-hyperpod patch` (drainer/run_lease.py)."""

_NAME = "cdk-hyperpod-drainer"
_RBAC = "rbac.authorization.k8s.io"


def drainer_manifests(backup_cron_job: str | None = None) -> tuple[Manifest, ...]:
    """The drainer's permissions, in the order in which they can be applied.

    `backup_cron_job`: NAMESPACE/NAME of the user's backup (scale_down.drain.backup_cron_job). The drainer may create Jobs in that
    namespace only, because whoever creates Jobs in all namespaces can use every service account. The namespace must exist. The drainer
    may not create pods. Absent: it may not create or read Jobs.
    """
    manifests = [
        _object(
            "ClusterRole",
            rules=[
                _rule("", ("nodes",), ("get", "list", "patch")),
                _rule("", ("pods",), ("list",)),
                # Eviction respects disruption budgets. The drainer may not delete pods.
                _rule("", ("pods/eviction",), ("create",)),
            ],
        ),
        _binding("ClusterRole"),
    ]
    # The Lease that keeps the run of `cdk-hyperpod patch` (docs/adr/0021). To create leases cannot be limited to a name.
    of_run = _rule("coordination.k8s.io", ("leases",), ("get", "patch")) | {"resourceNames": [PATCH_LEASE]}
    manifests += [_lease(), _object("Role", LEASE_NAMESPACE, rules=[of_run]), _binding("Role", LEASE_NAMESPACE)]
    if backup_cron_job is not None:
        namespace, _, name = backup_cron_job.partition("/")
        rules = [
            _rule("batch", ("cronjobs",), ("get",)) | {"resourceNames": [name]},
            _rule("batch", ("jobs",), ("get", "list", "create", "delete")),
            # Only events show why a Job has no pod.
            _rule("", ("events",), ("list",)),
        ]
        manifests += [_object("Role", namespace, rules=rules), _binding("Role", namespace)]
    return tuple(manifests)


def backup_namespace_manifest() -> Manifest:
    """The namespace of the backup, whose pods mount paths of nodes. The Pod Security standard `baseline` would refuse that."""
    labels = {"app.kubernetes.io/managed-by": "cdk-hyperpod", POD_SECURITY_LABEL: "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BACKUP_NAMESPACE, "labels": labels}}


def in_own_namespace(cron_job: str | None) -> bool:
    """Whether the CronJob, NAMESPACE/NAME, is in the library's own namespace."""
    return cron_job is not None and cron_job.partition("/")[0] == BACKUP_NAMESPACE


def _lease() -> Manifest:
    labels = {"app.kubernetes.io/managed-by": "cdk-hyperpod"}
    metadata = {"name": PATCH_LEASE, "namespace": LEASE_NAMESPACE, "labels": labels}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


def _binding(role_kind: str, namespace: str | None = None) -> Manifest:
    return _object(
        f"{role_kind}Binding",
        namespace,
        subjects=[{"kind": "Group", "name": DRAINER_GROUP, "apiGroup": _RBAC}],
        roleRef={"kind": role_kind, "name": _NAME, "apiGroup": _RBAC},
    )


def _object(kind: str, namespace: str | None = None, **content: Any) -> Manifest:
    metadata: Manifest = {"name": _NAME, **({} if namespace is None else {"namespace": namespace})}
    metadata["labels"] = {"app.kubernetes.io/managed-by": "cdk-hyperpod"}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}
