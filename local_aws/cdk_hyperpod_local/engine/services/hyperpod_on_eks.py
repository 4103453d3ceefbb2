"""The connections between HyperPod and the EKS clusters that orchestrate it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, karpenter
from cdk_hyperpod_local.engine.services import hyperpod_checks
from cdk_hyperpod_local.engine.services.eks import EksService
from cdk_hyperpod_local.engine.services.eks_addons import TASK_GOVERNANCE
from cdk_hyperpod_local.engine.services.json_service import ServiceError
from cdk_hyperpod_local.hyperpod import HyperPod
from cdk_hyperpod_local.hyperpod.state import Cluster, Node

Json = Any
_HYPERPOD = "hyperpod.sagemaker.amazonaws.com"


class HyperPodOnEks:
    """Also implements `task_governance.Clusters`."""

    def __init__(self, hyperpod: Callable[[], HyperPod], control_planes: EksService) -> None:
        self._hyperpod = hyperpod
        self._control_planes = control_planes

    # -- what HyperPod asks of EKS -------------------------------------------------------------------------------------

    def control_plane(self, arn: str) -> Json | None:
        return self._control_planes.cluster(arn)

    def prepare(self, operation: str, request: Json) -> None:
        """Create what HyperPod creates in the EKS cluster for later nodes: their access entries, and Karpenter's kinds
        with autoscaling."""
        if operation not in ("CreateCluster", "UpdateCluster"):
            return
        arn = hyperpod_checks.eks_cluster(request) or self._orchestrator(str(request["ClusterName"]))
        cluster = self.control_plane(arn) if arn else None
        if cluster is None:
            return
        for role in sorted({str(group["ExecutionRole"]) for group in request.get("InstanceGroups", [])}):
            entry = {"clusterName": cluster["name"], "principalArn": role, "type": "HYPERPOD_LINUX"}
            if role not in cluster["_entries"]:
                with contextlib.suppress(ServiceError):
                    self._control_planes.call("CreateAccessEntry", entry, who=_HYPERPOD)
        api = self._control_planes.state.kubernetes.get(cluster["name"])
        if api is not None and request.get("AutoScaling", {}).get("Mode") == "Enable":
            karpenter.install(api)

    def _orchestrator(self, name_or_arn: str) -> str | None:
        found = (item for item in self._clusters() if name_or_arn in (item.name, item.arn))
        return next((hyperpod_checks.eks_cluster(cluster.settings) for cluster in found), None)

    # -- what EKS asks of HyperPod -------------------------------------------------------------------------------------

    def names(self, arn: str) -> list[str]:
        """The HyperPod clusters that this EKS cluster orchestrates."""
        return [cluster.name for cluster in self._on(arn)]

    def running_nodes(self, arn: str) -> int:
        return sum(node.status == "Running" for cluster in self._on(arn) for node in list(cluster.nodes.values()))

    def nodes(self, arn: str) -> list[Json]:
        """The Kubernetes Nodes of the nodes that have joined, with HyperPod's labels.

        A software update keeps the instance, and so its Node and a cordon.
        """
        return [
            _node(cluster, node)
            for cluster in self._on(arn)
            for node in list(cluster.nodes.values())
            if node.status in ("Running", "SystemUpdating")
        ]

    def _on(self, arn: str) -> Iterator[Cluster]:
        return (cluster for cluster in self._clusters() if hyperpod_checks.eks_cluster(cluster.settings) == arn)

    def _clusters(self) -> list[Cluster]:
        hyperpod = self._hyperpod()
        with hyperpod._lock:
            hyperpod.tick()
            return list(hyperpod._state.clusters.values())

    # -- what task governance asks of both -----------------------------------------------------------------------------

    def instance_groups(self, arn: str) -> Json | None:
        cluster = next((item for item in self._clusters() if item.arn == arn), None)
        if cluster is None:
            return None
        found: Counter[str] = Counter()
        for group in cluster.groups.values():
            for kind in group.instance_types:
                found[kind] += group.target
        return found

    def has_task_governance(self, arn: str) -> bool:
        control_plane = self._of(arn)
        addons = control_plane["_addons"] if control_plane else {}
        return bool(addons.get(TASK_GOVERNANCE, {}).get("status") == "ACTIVE")

    def kubernetes(self, arn: str) -> KubernetesApi | None:
        control_plane = self._of(arn)
        return self._control_planes.state.kubernetes.get(control_plane["name"]) if control_plane else None

    def _of(self, arn: str) -> Json | None:
        orchestrator = self._orchestrator(arn)
        return self.control_plane(orchestrator) if orchestrator else None


def _node(cluster: Cluster, node: Node) -> Json:
    group = cluster.groups.get(node.group)
    config = group.spec.get("KubernetesConfig", {}) if group else {}
    taints = [
        {key.lower(): value for key, value in taint.items() if key in ("Key", "Value", "Effect")}
        for taint in config.get("Taints", [])
    ]
    name = f"hyperpod-{node.instance_id}"
    labels = {
        **config.get("Labels", {}),
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": node.instance_type,
        "sagemaker.amazonaws.com/cluster-name": cluster.name,
        "sagemaker.amazonaws.com/compute-type": "hyperpod",
        "sagemaker.amazonaws.com/instance-group-name": node.group,
        "sagemaker.amazonaws.com/node-health-status": "Schedulable",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///sagemaker/cluster/{name}", **({"taints": taints} if taints else {})},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
    }
