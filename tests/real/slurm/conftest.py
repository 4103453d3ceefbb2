"""One cluster for each Slurm version and hook, shared by all tests of this folder in a process.

Tests of behaviour that differs by version or hook run in all four setups. Other tests have a mark that names their
setups, so that each is tested once and none takes long.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from helpers import unbuilt
from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, Node, Provisioning, slurm_cluster
from helpers.slurm.drains import WORK, Drains
from helpers.slurm.hyperpod import Mode, SlurmVersion
from helpers.slurm.parts import why_not
from helpers.slurm.scripts import packed

HERE = Path(__file__).parent
SETUPS: tuple[tuple[SlurmVersion, Mode], ...] = (
    ("22.05", "extended"),
    ("24.11", "customer_managed"),
    ("24.11", "extended"),
    ("22.05", "customer_managed"),
)


class _ByCluster(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one cluster run in one process: version and hook come first in the brackets."""

    def _split_scope(self, nodeid: str) -> str:
        return "-".join(nodeid.rpartition("[")[2].rstrip("]").split("-")[:2])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Each of two processes has one cluster at a time."""
    return _ByCluster(config, log)


@pytest.fixture(scope="session")
def parts() -> None:
    """The parts of a cluster must be on this machine.

    If they are not, CI fails, and other runs skip the tests with the reason.
    """
    if (reason := why_not()) is not None:
        unbuilt.skip(f"no cluster of real Slurm can be brought up here: {reason}")


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(setup, id="-".join(setup), marks=pytest.mark.xdist_group("-".join(setup))) for setup in SETUPS
    ],
)
def cluster(request: pytest.FixtureRequest, parts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Controller, login and four compute nodes, booted, without Slurm running."""
    slurm, mode = request.param
    with slurm_cluster(slurm, mode, tmp_path_factory.mktemp("consoles")) as it:
        yield it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each setup the tests that are marked for others. `setups` contains hooks, or whole setups."""

    def belongs(item: pytest.Item) -> bool:
        # The hook gets the tests of the whole session, and others have a `cluster` fixture of their own.
        if not item.path.is_relative_to(HERE) or "cluster" not in getattr(item, "fixturenames", ()):
            return True
        slurm, mode = _setup(item)
        mark = item.get_closest_marker("setups")
        return mark is None or not {mode, f"{slurm}-{mode}"}.isdisjoint(mark.args)

    other = [item for item in items if not belongs(item)]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]


def _setup(item: pytest.Item) -> tuple[SlurmVersion, Mode]:
    assert isinstance(item, pytest.Function)
    return cast(tuple[SlurmVersion, Mode], item.callspec.params["cluster"])


@pytest.fixture(scope="session")
def scripts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lifecycle scripts of the tests' cluster file, as HyperPod downloads them.

    With accounts only under extended, where HyperPod provides a database for them.
    """
    more: dict[str, Any] = {} if cluster.mode == "extended" else {"slurm": {}}
    base = tmp_path_factory.getbasetemp()
    # The first process of a run packs them. Each folder is for one hook.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"scripts-{cluster.mode}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder / "ready"
        if not ready.exists():
            ready.write_text(packed(folder, lifecycle={"mode": cluster.mode}, **more).name)
    return folder / ready.read_text()


@pytest.fixture(scope="session")
def changed(scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Any], None]], Path]:
    """The same scripts with another cluster.json: `changed(change)` calls `change` with its content."""

    def change_of(change: Callable[[Any], None]) -> Path:
        folder = tmp_path_factory.mktemp("changed") / "scripts"
        shutil.copytree(scripts, folder)
        cluster = json.loads((folder / "cluster.json").read_text())
        change(cluster)
        (folder / "cluster.json").write_text(json.dumps(cluster))
        return folder

    return change_of


@pytest.fixture(scope="session")
def provisioned(cluster: Cluster, scripts: Path) -> dict[str, Provisioning]:
    """The result of the scripts by node name. They ran on all nodes at once, while HyperPod started Slurm."""
    with ThreadPoolExecutor(1) as hyperpod:
        started = hyperpod.submit(cluster.hyperpod_starts_slurm) if cluster.mode == "extended" else None
        ended = cluster.on_each(lambda node: node.provision(scripts))
        if started is not None:
            started.result()
    cluster.await_idle()
    return {node.name: result for node, result in zip(cluster.nodes, ended, strict=True)}


@pytest.fixture(scope="module")
def drains(cluster: Cluster, provisioned: object) -> Iterator[Drains]:
    with asking.agent(cluster) as it:
        yield it


@pytest.fixture
def node(cluster: Cluster, drains: Drains) -> Iterator[Node]:
    """A compute node with data to back up."""
    node = cluster.compute[0]
    node.run(
        f"rm -rf {WORK}; mkdir -p {WORK}/deep; cd {WORK}; head -c 3000000 /dev/urandom >model.bin; echo text >'a name'; "
        r"echo 1 >$'two\nlines\\'; : >empty; ln -s /etc/passwd deep/link; mkfifo deep/pipe; chown 3001:2001 model.bin; "
        "chmod 640 model.bin; touch -d 2024-01-02 model.bin"
    )
    yield node
    drains.ask()
    drains.ask(writer="deployment")
    drains.await_given_back(*cluster.compute)
