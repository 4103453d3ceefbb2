"""Rules of what runs on a new node.

Sources: ClusterLifeCycleConfig in the SageMaker API reference; the developer guide's pages on lifecycle scripts; for
the size of a bucket's policy the S3 developer guide, "Special Information for Amazon S3 Policies": 20 KB.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from .own_scripts import check_own_scripts

MAX_WRITERS = 100
MAX_WRITERS_CHARACTERS = 15_000
"""The maximum for all ARNs together. The rest of the bucket's policy of 20 KB needs less than 4 KB."""


def check_writers(writers: object, path: str) -> Iterator[Finding]:
    """Too many roles for the bucket's policy, and duplicates."""
    if not isinstance(writers, tuple):
        return
    # Anything but text is reported by its type.
    arns = tuple(arn for arn in writers if isinstance(arn, str))
    yield from check_repeated(arns, path)
    characters = sum(map(len, arns))
    size = f"{characters:,}"
    if len(writers) > MAX_WRITERS or characters > MAX_WRITERS_CHARACTERS:
        yield Finding(
            code="writers-too-many",
            path=path,
            problem=(
                f"there are {len(writers)} roles with {size} characters, but the bucket's policy has room for "
                f"{MAX_WRITERS} roles with {MAX_WRITERS_CHARACTERS:,} characters"
            ),
            remedy="name fewer, such as one role that the others may assume",
        )


def check_lifecycle(config: ClusterConfig) -> Iterator[Finding]:
    """Settings of `lifecycle` that cannot be combined with each other or with the orchestrator."""
    lifecycle = config.lifecycle
    if lifecycle is None or not is_known(lifecycle):
        return
    yield from check_writers(lifecycle.writers, "lifecycle.writers")
    mode = lifecycle.mode
    if config.orchestrator == "eks" and mode in ("extended", "bootstrap"):
        yield Finding(
            code="lifecycle-mode-under-eks",
            path="lifecycle.mode",
            problem=f"{mode} is documented for Slurm only",
            remedy="remove it, or set it to customer_managed",
        )
    if mode == "bootstrap" and lifecycle.scripts is not None:
        yield Finding(
            code="scripts-in-bootstrap-mode",
            path="lifecycle.scripts",
            problem="cannot be combined with the lifecycle mode bootstrap, in which no script runs",
            remedy="remove it, or set lifecycle.mode to extended or customer_managed",
        )
    yield from check_own_scripts(config)
