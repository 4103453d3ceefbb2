"""A real API server for each cluster. It asks the engine to review tokens."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from cdk_hyperpod_local.engine.kubernetes import Json, KubernetesApi
from cdk_hyperpod_local.engine.kubernetes.control_plane import ControlPlane, control_plane, kubeconfig
from cdk_hyperpod_local.engine.kubernetes.running import Start

ROUTE = "/_kubernetes/"
"""Of the engine; the cluster's name follows."""

EVICTIONS = "policy/v1beta1"
"""The version of evictions that it supports. policy/v1 exists since Kubernetes 1.22, with the same fields."""

MISSING_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
"""Kinds that stacks apply and that it lacks. Kubernetes has them since 1.30."""

# kubectl's own list without CronJob, which is in batch/v1 since Kubernetes 1.21. kubectl fails if a kind is missing.
_PRUNED = (
    "core/v1/ConfigMap",
    "core/v1/Endpoints",
    "core/v1/Namespace",
    "core/v1/PersistentVolumeClaim",
    "core/v1/PersistentVolume",
    "core/v1/Pod",
    "core/v1/ReplicationController",
    "core/v1/Secret",
    "core/v1/Service",
    "batch/v1/Job",
    "networking.k8s.io/v1/Ingress",
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
)


class RealApi:
    """A control plane as the rest of the engine uses it."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.url = cluster.url
        self.certificate_authority = cluster.certificate.read_bytes()
        self._cluster = cluster

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        address = urlsplit(self.url)
        context = ssl.create_default_context(cafile=str(self._cluster.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", address.port, timeout=30, context=context)
        headers = {
            "Authorization": f"Bearer {self._cluster.token}",
            "Accept": "application/json",
            "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
        }
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read().decode()
        try:
            return answer.status, json.loads(content)
        except ValueError:  # such as /healthz
            return answer.status, content


def start(engine: str, authority: Path) -> Start:
    """`engine`: its address, which serves `review` below ROUTE; `authority`: its certificate's."""

    def started(cluster: str, folder: Path, port: int) -> tuple[KubernetesApi, Callable[[], None]]:
        webhook = folder / "token-webhook"
        webhook.write_text(kubeconfig("engine", f"{engine}{ROUTE}{cluster}", authority))
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(control_plane(folder, port=port, token_webhook=webhook))
            return RealApi(running), stack.pop_all().close

    return started


def review(body: bytes, who: Callable[[str], tuple[str, list[str]] | None]) -> Json | None:
    """The answer to a TokenReview; None for any other request. who(token) -> user name and groups."""
    try:
        token = json.loads(body)["spec"]["token"]
    except (ValueError, LookupError, TypeError):
        return None
    if not isinstance(token, str):
        return None
    found = who(token)
    status: Json = {"authenticated": False}
    if found is not None:
        name, groups = found
        status = {"authenticated": True, "user": {"username": name, "groups": groups}}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}


def write_preferences(path: Path) -> None:
    """kubectl's preferences (KUBERC): prune the kinds that this version has."""
    options = [{"name": "prune-allowlist", "default": kind} for kind in _PRUNED]
    preferences = {
        "apiVersion": "kubectl.config.k8s.io/v1beta1",
        "kind": "Preference",
        "defaults": [{"command": "apply", "options": options}],
    }
    path.write_text(json.dumps(preferences))
