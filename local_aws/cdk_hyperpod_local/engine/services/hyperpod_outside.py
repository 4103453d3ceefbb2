"""What HyperPod asks of the account while it updates software: CloudWatch's alarms, with the rights of the nodes' role, and the
Kubernetes API of the EKS cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi
from cdk_hyperpod_local.hyperpod import Outside
from cdk_hyperpod_local.hyperpod.outside import AlarmState
from cdk_hyperpod_local.hyperpod.state import Cluster, Node

Json = Any
_EVICTIONS = ("policy/v1", "policy/v1beta1")
"""The second one for API servers before Kubernetes 1.22."""
_BLOCKED = 429
"""The status of an eviction that a PodDisruptionBudget does not allow."""


class AccountOutside(Outside):
    """The rest of the account, for HyperPod."""

    __slots__ = ("_alarms", "_api", "_may_read")

    def __init__(
        self,
        alarms: Callable[[], Iterator[tuple[str, str, Json]]],
        may_read: Callable[[str, str, str], bool],
        api: Callable[[str], KubernetesApi | None],
    ) -> None:
        """`alarms`: account, Region and record of each. `may_read(role, session, alarm's ARN)`. `api(ARN of the EKS cluster)`."""
        super().__init__()
        self._alarms, self._may_read, self._api = alarms, may_read, api

    def alarm_state(self, cluster: Cluster, group: str, name: str) -> AlarmState | None:
        role = str(cluster.groups[group].spec["ExecutionRole"])
        for account, region, record in self._alarms():
            if (account, region, record["AlarmName"]) == (cluster.account, cluster.region, name):
                return record["StateValue"] if self._may_read(role, group, record["AlarmArn"]) else None
        return None

    def evict(self, cluster: Cluster, node: Node) -> bool:
        api = self._of(cluster)
        if api is None:
            return True
        self.cordon(cluster, node)
        evicted = [_evicted(api, pod) for pod in _pods(api, node)]
        return all(evicted)

    def cordon(self, cluster: Cluster, node: Node) -> None:
        self._set_unschedulable(cluster, node, True)

    def restore(self, cluster: Cluster, node: Node) -> None:
        self._set_unschedulable(cluster, node, None)

    def is_idle(self, cluster: Cluster, node: Node) -> bool:
        api = self._of(cluster)
        return api is None or not _pods(api, node)

    def _set_unschedulable(self, cluster: Cluster, node: Node, value: bool | None) -> None:
        api = self._of(cluster)
        if api is not None:
            api.request("PATCH", f"/api/v1/nodes/{_name(node)}", {"spec": {"unschedulable": value}})

    def _of(self, cluster: Cluster) -> KubernetesApi | None:
        eks = cluster.settings.get("Orchestrator", {}).get("Eks", {})
        return self._api(str(eks["ClusterArn"])) if eks else None


def _name(node: Node) -> str:
    return f"hyperpod-{node.instance_id}"


def _pods(api: KubernetesApi, node: Node) -> list[Json]:
    """The node's pods that an eviction is for: neither ended nor of a DaemonSet."""
    status, found = api.request("GET", "/api/v1/pods")
    return [] if status != 200 else [pod for pod in found["items"] if _is_there(pod, _name(node))]


def _is_there(pod: Json, node: str) -> bool:
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return pod["spec"].get("nodeName") == node and "DaemonSet" not in owners and not ended


def _evicted(api: KubernetesApi, pod: Json) -> bool:
    """Whether the pod is evicted. An API without evictions has no budgets either, and the pod is deleted."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    for version in _EVICTIONS:
        status, _ = api.request(
            "POST", f"{path}/eviction", {"apiVersion": version, "kind": "Eviction", "metadata": metadata}
        )
        if status in (200, 201, _BLOCKED):
            return status != _BLOCKED
    api.request("DELETE", path)
    return True
