"""A Kubernetes API on loopback for each EKS cluster. IAM roles get access through the cluster's access entries.

A real API server if one is built, otherwise a recording. EKS itself is in `engine/services/eks_*.py`.
May import: places, engine.gate, engine.options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Json = Any
Identify = Callable[[str, str], tuple[str, list[str]] | None]
"""identify(cluster, caller) -> user name and groups; None if no access entry admits the caller.

`caller` is an ARN in STS's form, `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION` for a role. Called from any thread.
"""


class KubernetesApi(Protocol):
    """One EKS cluster's API."""

    url: str
    """Such as https://127.0.0.1:34567; the same after a restart of the engine."""
    certificate_authority: bytes
    """PEM."""

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        """Send a request as administrator, and return status and answer. A PATCH is a merge patch."""


class KubernetesApis(Protocol):
    """All APIs of an engine."""

    def create(self, cluster: str) -> KubernetesApi:
        """Start a new, empty API; takes up to a minute."""

    def get(self, cluster: str) -> KubernetesApi | None:
        """The cluster's API; started again if an earlier engine had it."""

    def delete(self, cluster: str) -> None:
        """End the API and delete its data. Does nothing if there is none."""
