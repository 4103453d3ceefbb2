"""One control plane for all tests of this folder (for each process that runs them); each has namespaces of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cdk_hyperpod_local.engine.kubernetes.control_plane import VERSION, built, control_plane
from kubernetes.apiserver.client import Client
from kubernetes.apiserver.objects import install_kinds


@pytest.fixture(scope="session")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The administrator of a running API server."""
    if built() is None:
        message = f"Kubernetes {VERSION} is not built here: make kubernetes-apiserver (ten minutes, once)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with control_plane(tmp_path_factory.mktemp("apiserver")) as cluster:
        client = Client(cluster)
        install_kinds(client)
        yield client
