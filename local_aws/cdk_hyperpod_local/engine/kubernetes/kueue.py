"""What task governance's add-on leaves in the API: Kueue's Deployment, which is ready. No Kueue runs here."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi

Json = Any

_NAMESPACE, _NAME = "kueue-system", "kueue-controller-manager"
_LABELS = {"control-plane": "controller-manager"}
_DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": _LABELS},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {
            "metadata": {"labels": _LABELS},
            "spec": {"containers": [{"name": "manager", "image": "kueue"}]},
        },
    },
}
_READY: Json = {"status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}}


def install(api: KubernetesApi) -> None:
    """Create the Deployment, or report an existing one as ready."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    deployments = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments"
    for path, manifest in (("/api/v1/namespaces", namespace), (deployments, _DEPLOYMENT)):
        status, answer = api.request("POST", path, manifest)
        if status not in (201, 409):
            raise RuntimeError(f"{manifest['kind']} of Kueue: {answer}")
    api.request("PATCH", f"{deployments}/{_NAME}/status", _READY)
