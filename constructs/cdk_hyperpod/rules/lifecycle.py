"""Rules of what runs on a new node.

Sources: ClusterLifeCycleConfig in the SageMaker API reference; the developer guide's pages on lifecycle scripts.
"""

from __future__ import annotations

from collections.abc import Iterator

from .._constraints import check_repeated
from .._structure import is_known
from ..config import ClusterConfig
from ..errors import Finding


def check_lifecycle(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that contradicts itself in `lifecycle`, and beside it."""
    lifecycle = config.lifecycle
    if lifecycle is None or not is_known(lifecycle):
        return
    yield from check_repeated(lifecycle.writers, "lifecycle.writers")
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
    if config.lifecycle_scripts is None:
        return
    if lifecycle.scripts is not None:
        yield Finding(
            path="lifecycle_scripts",
            problem="lifecycle.scripts names a folder too",
            remedy="keep lifecycle.scripts, and set lifecycle.mode to what you mean",
        )
    elif mode in ("extended", "bootstrap"):
        yield Finding(
            path="lifecycle_scripts",
            problem=f"means customer_managed, and lifecycle.mode is {mode}",
            remedy="name the folder in lifecycle.scripts, or remove one of the two",
        )
