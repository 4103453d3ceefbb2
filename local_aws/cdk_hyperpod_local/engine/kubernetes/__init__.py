"""For each EKS cluster a Kubernetes API on loopback, to which IAM roles get in by the cluster's access entries.

A real API server if one is built, otherwise a recording. EKS itself is in `engine/services/eks_*.py`.
May import: places, engine.gate, engine.options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Json = Any
Identify = Callable[[str, str], tuple[str, list[str]] | None]
"""identify(cluster, caller) -> user name and groups; None where no access entry lets the caller in.

`caller` is the ARN as STS says it, `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION` for a role. Called from any thread.
"""


class KubernetesApi(Protocol):
    """One EKS cluster's API."""

    url: str
    """Such as https://127.0.0.1:34567; the same over restarts of the engine."""
    certificate_authority: bytes
    """PEM."""

    def request(self, method: str, path: str, body: Json = None) -> tuple[int, Json]:
        """Ask as an administrator: status and answer. A PATCH is a merge patch."""


class KubernetesApis(Protocol):
    """All of an engine."""

    def create(self, cluster: str) -> KubernetesApi:
        """Start a new, empty one; takes up to a minute."""

    def get(self, cluster: str) -> KubernetesApi | None:
        """The cluster's; started again where an earlier engine had it."""

    def delete(self, cluster: str) -> None:
        """End it and forget what it held; nothing where there is none."""
