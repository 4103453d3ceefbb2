"""`cdk-hyperpod nodes --kubernetes` reads states through a real kubectl from a real API server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cdk_hyperpod.cli.kubernetes import HEALTH, states
from cdk_hyperpod_local import kubectl
from helpers.kubernetes.apiserver.client import Client

READY, FAILED = "i-0123456789abcdef0", "i-0123456789abcdef1"


def _node(instance: str, health: str, *, unschedulable: bool) -> dict[str, object]:
    metadata = {"name": f"hyperpod-{instance}", "labels": {HEALTH: health}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": unschedulable}}


@pytest.fixture
def nodes(admin: Client) -> Iterator[None]:
    """A ready node, and one that HyperPod is about to replace. No kubelet reports for either."""
    made = [
        _node(READY, "Schedulable", unschedulable=False),
        _node(FAILED, "UnschedulablePendingReplacement", unschedulable=True),
    ]
    for node in made:
        assert admin.request("POST", "/api/v1/nodes", node).status == 201
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    path = f"/api/v1/nodes/hyperpod-{READY}/status"
    assert admin.request("PATCH", path, status, "application/merge-patch+json").status == 200
    yield
    for instance in (READY, FAILED):
        admin.request("DELETE", f"/api/v1/nodes/hyperpod-{instance}")


@pytest.mark.usefixtures("nodes")
def test_each_node_has_the_state_that_kubectl_shows(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, kubectl.programs()), os.environ["PATH"]]))
    monkeypatch.setenv("KUBECONFIG", str(admin.cluster.kubeconfig))
    arn = f"arn:aws:eks:us-west-2:111122223333:cluster/{admin.cluster.kubeconfig.parent.name}"

    found = states({"Orchestrator": {"Eks": {"ClusterArn": arn}}})

    assert found.unread is None
    assert found.cells[READY] == "Ready"
    assert found.cells[FAILED] == "NotReady,SchedulingDisabled,UnschedulablePendingReplacement"
