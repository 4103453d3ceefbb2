"""One control plane for all tests of this folder (for each process that runs them), cleared after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.drainer.rig import TOKEN, Rig, control_plane
from helpers.kubernetes.apiserver.client import Client


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The administrator's client."""
    with control_plane(tmp_path_factory.mktemp("drainer")) as client:
        yield client


@pytest.fixture
def rig(server: Client) -> Iterator[Rig]:
    """The empty cluster."""
    rig = Rig(server, TOKEN)
    yield rig
    rig.clear()
