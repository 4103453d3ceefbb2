"""HyperPod's nodes in Kubernetes: a Node object for each running node of an EKS cluster.

There is no kubelet. The objects have the labels and conditions that selectors and people look for, and nothing runs on
them.
"""

from __future__ import annotations

import threading
import time
from http.client import HTTPException
from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi
from cdk_hyperpod_local.engine.services.eks import EksService
from cdk_hyperpod_local.engine.services.hyperpod_on_eks import HyperPodOnEks

Json = Any
_OURS = "sagemaker.amazonaws.com/compute-type"
_PATH = "/api/v1/nodes"
_SECONDS = 0.5


class KubernetesNodes:
    """Updates the objects in regular intervals: nodes change over time, and API servers start and end."""

    def __init__(self, on_eks: HyperPodOnEks, control_planes: EksService) -> None:
        self._on_eks = on_eks
        self._control_planes = control_planes
        self._known: dict[str, set[str]] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="kubernetes-nodes", daemon=True).start()

    def _run(self) -> None:
        while True:
            for name, nodes in self._wanted().items():
                try:
                    self._reconcile(name, nodes)
                except (OSError, HTTPException, RuntimeError, ValueError):  # its API is still starting, or has ended
                    self._known.pop(name, None)
            time.sleep(_SECONDS)

    def _wanted(self) -> dict[str, dict[str, Json]]:
        """EKS cluster -> node name -> the Node; of the clusters that have an API."""
        found = self._control_planes.endpoints()
        self._known = {name: known for name, known in self._known.items() if name in found.values()}
        return {
            name: {node["metadata"]["name"]: node for node in self._on_eks.nodes(arn)} for arn, name in found.items()
        }

    def _reconcile(self, cluster: str, wanted: dict[str, Json]) -> None:
        if self._known.get(cluster) == set(wanted):
            return
        api = self._control_planes.state.kubernetes.get(cluster)
        if api is None:
            return
        present = _present(api)
        for name in sorted(present - set(wanted)):
            api.request("DELETE", f"{_PATH}/{name}")
        for name in sorted(set(wanted) - present):
            api.request("POST", _PATH, wanted[name])
        self._known[cluster] = _present(api)


def _present(api: KubernetesApi) -> set[str]:
    status, reply = api.request("GET", f"{_PATH}?labelSelector={_OURS}%3Dhyperpod")
    if status != 200:
        raise OSError(f"{_PATH}: {status}")
    return {item["metadata"]["name"] for item in reply["items"]}
