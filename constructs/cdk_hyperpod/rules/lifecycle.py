"""Rules of what runs on a new node.

Sources: ClusterLifeCycleConfig in the SageMaker API reference; the developer guide's pages on lifecycle scripts; for
the size of a bucket's policy the S3 developer guide, "Special Information for Amazon S3 Policies": 20 KB.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..typed.judge import check_repeated
from ..typed.known import is_known

MAX_WRITERS = 100
MAX_WRITERS_CHARACTERS = 15_000
"""Of all ARNs together: what else stands in the bucket's policy of 20 KB, is less than 4 KB."""


def check_writers(writers: object, path: str) -> Iterator[Finding]:
    """More roles than the bucket's policy has room for, and one that is there twice."""
    if not isinstance(writers, tuple):
        return
    # What is no text is reported by its type.
    arns = tuple(arn for arn in writers if isinstance(arn, str))
    yield from check_repeated(arns, path)
    characters = sum(map(len, arns))
    if len(writers) > MAX_WRITERS or characters > MAX_WRITERS_CHARACTERS:
        yield Finding(
            path=path,
            problem=f"there are {len(writers)} roles with {characters:,} characters, and the bucket's policy holds "
            f"{MAX_WRITERS}, with {MAX_WRITERS_CHARACTERS:,}",
            remedy="name fewer, such as one role that the others may take on",
        )


def check_lifecycle(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that contradicts itself in `lifecycle`, and beside it."""
    lifecycle = config.lifecycle
    if lifecycle is None or not is_known(lifecycle):
        return
    yield from check_writers(lifecycle.writers, "lifecycle.writers")
    mode = lifecycle.mode
    if config.orchestrator == "eks" and mode in ("extended", "bootstrap"):
        yield Finding(
            path="lifecycle.mode",
            problem=f"{mode} is documented for Slurm only",
            remedy="remove it, or set it to customer_managed",
        )
    if mode == "bootstrap" and lifecycle.scripts is not None:
        yield Finding(
            path="lifecycle.scripts",
            problem="no script runs in the mode bootstrap",
            remedy="remove it, or set lifecycle.mode to extended or customer_managed",
        )
