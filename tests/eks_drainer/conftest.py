"""One control plane for all tests of this folder (for each process that runs them), cleared after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdk_hyperpod.kubernetes.drainer import DRAINER_GROUP, drainer_manifests
from eks_drainer.rig import HOOK, Rig
from kubernetes.apiserver.client import Client
from kubernetes.apiserver.running import running

TOKEN = "the-drainers-token"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Its administrator. It knows the drainer by a token, as a member of its group, and gives it exactly its rights."""
    folder = tmp_path_factory.mktemp("drainer")
    (folder / "tokens.csv").write_text(f"admin,admin,admin,system:masters\n{TOKEN},drainer,drainer,{DRAINER_GROUP}\n")
    with running(folder) as client:
        Rig(client, TOKEN).namespace(HOOK.partition("/")[0])
        client.apply_all(drainer_manifests(HOOK))
        yield client


@pytest.fixture
def rig(server: Client) -> Iterator[Rig]:
    """The cluster, with nothing in it yet."""
    rig = Rig(server, TOKEN)
    yield rig
    rig.clear()
