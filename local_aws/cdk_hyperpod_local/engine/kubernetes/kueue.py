"""What task governance's add-on leaves in the API: the Service of Kueue's webhook, with an address. No Kueue runs here."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi

Json = Any

_NAMESPACE, _NAME = "kueue-system", "kueue-webhook-service"
_PORT = {"name": "webhook", "port": 443}
_METADATA: Json = {"name": _NAME, "namespace": _NAMESPACE}
_OBJECTS: Json = {
    "/api/v1/namespaces": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
    # Without a selector, so that no controller changes its addresses.
    f"/api/v1/namespaces/{_NAMESPACE}/services": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _METADATA,
        "spec": {"ports": [_PORT]},
    },
    f"/api/v1/namespaces/{_NAMESPACE}/endpoints": {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": _METADATA,
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [_PORT]}],
    },
}


def install(api: KubernetesApi) -> None:
    """Create the objects. Existing ones do not change."""
    for path, manifest in _OBJECTS.items():
        status, answer = api.request("POST", path, manifest)
        if status not in (201, 409):
            raise RuntimeError(f"{manifest['kind']} of Kueue: {answer}")
