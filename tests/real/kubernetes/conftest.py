"""One control plane for all tests of this folder (for each process that runs them).

Each test has its own namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.kubernetes.apiserver.client import Client
from helpers.kubernetes.apiserver.objects import install_kinds
from helpers.kubernetes.apiserver.running import running


@pytest.fixture(scope="session")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The administrator of a running API server."""
    with running(tmp_path_factory.mktemp("apiserver")) as client:
        install_kinds(client)
        yield client
