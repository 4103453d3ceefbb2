"""An API server for a session's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdk_hyperpod_local.engine.kubernetes.control_plane import VERSION, built, control_plane
from helpers import unbuilt
from helpers.kubernetes.apiserver.client import Client


@contextmanager
def running(folder: Path) -> Iterator[Client]:
    """The administrator's client. If the server is not built, the tests are skipped; on CI they fail."""
    if built() is None:
        unbuilt.skip(f"Kubernetes {VERSION} is not built here: make kubernetes-apiserver (three minutes, once)")
    with control_plane(folder) as cluster:
        yield Client(cluster)
