"""The APIs of an engine. Each has its own folder, from which a later engine starts it again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi
from cdk_hyperpod_local.engine.kubernetes.control_plane import free_ports

Start = Callable[[str, Path, int], tuple[KubernetesApi, Callable[[], None]]]
"""start(cluster, folder, port) -> the API, and a function that ends it."""


@dataclass(frozen=True)
class _Running:
    api: KubernetesApi
    end: Callable[[], None]


class Apis:
    """All starts and ends happen in one thread that lives as long as the engine: Linux ends the API server's processes
    with the thread that started them."""

    def __init__(self, folder: Path, start: Start) -> None:
        self._folder = folder
        self._start = start
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kubernetes")
        self._running: dict[str, Future[_Running]] = {}
        for found in sorted(folder.glob("*/port")):
            self._begin(found.parent.name)

    def create(self, cluster: str) -> KubernetesApi:
        self.delete(cluster)
        folder = self._folder / cluster
        folder.mkdir(parents=True)
        (folder / "port").write_text(str(free_ports(1)[0]))
        self._begin(cluster)
        try:
            return self._running[cluster].result().api
        except Exception:
            self.delete(cluster)
            raise

    def get(self, cluster: str) -> KubernetesApi | None:
        known = self._running.get(cluster)
        return None if known is None else known.result().api

    def delete(self, cluster: str) -> None:
        known = self._running.pop(cluster, None)
        if known is not None:
            self._thread.submit(_end, known).result()
        shutil.rmtree(self._folder / cluster, ignore_errors=True)

    def end(self) -> None:
        """End all APIs. A later engine continues with their data."""
        for known in self._running.values():
            self._thread.submit(_end, known)
        self._running.clear()
        self._thread.shutdown()

    def _begin(self, cluster: str) -> None:
        self._running[cluster] = self._thread.submit(self._started, cluster)

    def _started(self, cluster: str) -> _Running:
        folder = self._folder / cluster
        return _Running(*self._start(cluster, folder, int((folder / "port").read_text())))


def _end(known: Future[_Running]) -> None:
    with contextlib.suppress(Exception):  # it was never started
        known.result().end()
