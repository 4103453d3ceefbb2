"""Rules of `slurm.drain`: what the agent on the controller would refuse, or never hear, at synth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..config.cluster import ClusterConfig
from ..config.slurm import DrainBackup, SlurmConfig
from ..errors import Finding
from ..typed.judge import check_repeated
from ..typed.known import is_known
from ..typed.words import item_paths
from .lifecycle import check_writers
from .storage import mount_paths

MOST_PATHS = 20
_SYSTEM = frozenset(
    [
        *(
            "bin",
            "boot",
            "dev",
            "etc",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "proc",
            "root",
            "run",
            "sbin",
            "snap",
            "sys",
            "usr",
        ),
        *("opt/amazon", "opt/aws", "opt/ml", "opt/nvidia", "opt/sagemaker", "opt/slurm"),
    ]
)
"""Folders that hold the node's system and its secrets: no work of users is there, and every node has its own from its image."""


def check_drain_agent(config: ClusterConfig) -> Iterator[Finding]:
    """An agent that nothing starts, and a backup that cannot be."""
    slurm = config.slurm
    if config.orchestrator == "eks" or not isinstance(slurm, SlurmConfig) or slurm.drain is None:
        return
    if config.lifecycle is None or is_known(config.lifecycle):
        yield from _check_started(config)
    if is_known(slurm.drain):
        yield from _check_operators(slurm.drain.operators)
    storage_known = config.storage is None or is_known(config.storage)
    if is_known(slurm.drain) and isinstance(slurm.drain.backup, DrainBackup) and storage_known:
        yield from check_backup(slurm.drain.backup, mount_paths(config), "slurm.drain.backup")


def _check_operators(operators: object) -> Iterator[Finding]:
    yield from check_writers(operators, "slurm.drain.operators")
    if operators == ():
        yield Finding(
            path="slurm.drain.operators",
            problem="is missing, so every principal with s3:PutObject on all buckets can drain nodes",
            remedy="name the roles of those who run `cdk-hyperpod drain`",
            level="warning",
            code="drain-operators",
        )


def _check_started(config: ClusterConfig) -> Iterator[Finding]:
    if config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None:
        yield Finding(
            path="slurm.drain",
            problem="the library's own scripts start the agent on the controller, and they do not run",
            remedy="remove it, or let them run (docs/lifecycle.md)",
        )
    elif config.lifecycle_steps.drain is False:
        yield Finding(
            path="lifecycle.steps.drain",
            problem="is false, so nothing starts the agent that slurm.drain asks for",
            remedy="remove one of the two",
        )


def check_backup(backup: DrainBackup, mounts: frozenset[str], path: str) -> Iterator[Finding]:
    """What is not said, or twice, and folders that could not be saved."""
    if not isinstance(backup.paths, tuple) or not is_known(backup.hook) or not is_known(backup.to):
        return
    if backup.hook is not None:
        if backup.on_unsavable == "skip":
            yield Finding(
                path=f"{path}.on_unsavable",
                problem=f"is about files that are copied from {path}.paths, and {path}.hook saves the node by itself",
                remedy="remove it",
            )
        for name in ("paths", "to"):
            if getattr(backup, name):
                yield Finding(
                    path=f"{path}.{name}",
                    problem=f"says what is copied, and {path}.hook saves the node by itself",
                    remedy="remove one of the two",
                )
        return
    yield from check_repeated(backup.paths, f"{path}.paths")
    if not 1 <= len(backup.paths) <= MOST_PATHS:
        yield Finding(
            path=f"{path}.paths",
            problem=f"{len(backup.paths)} folders are named",
            remedy=f"name 1 to {MOST_PATHS}, or a `hook` of your own, or remove slurm.drain.backup",
        )
    if backup.to is None:
        yield Finding(
            path=f"{path}.to",
            problem="is missing, so nobody knows where the copy goes",
            remedy="add a folder such as /fsx/backup, or a `hook` of your own in place of both",
        )
        return
    yield from _check_folders(backup.paths, backup.to, mounts, path)


def _is_systems(folder: PurePosixPath) -> bool:
    parts = folder.parts[1:]
    return parts in (("opt",), ("var",)) or not _SYSTEM.isdisjoint("/".join(parts[:length]) for length in (1, 2))


def _check_folders(paths: tuple[str, ...], target: str, mounts: frozenset[str], path: str) -> Iterator[Finding]:
    """Folders that lead in a circle, that are shared anyway, or a target that goes with the node."""
    to = PurePosixPath(target)
    if not any(PurePosixPath(mount) in to.parents for mount in mounts):
        below = " or ".join(sorted(mounts))
        yield Finding(
            path=f"{path}.to",
            problem=f"{target} is on no storage of the file, so the copy would go with the node",
            remedy=f"put it below {below}" if below else "add storage, and put it there",
        )
    for item_path, item in zip(item_paths(f"{path}.paths", paths), paths, strict=True):
        if not is_known(item):
            continue
        source = PurePosixPath(item)
        if _is_systems(source):
            yield Finding(
                path=item_path,
                problem=f"{item} is the node's system's, with its secrets, and no work of users is there",
                remedy="name folders of work, such as /opt/dlami/nvme/work",
            )
            continue
        shared = next((mount for mount in sorted(mounts) if PurePosixPath(mount) in (source, *source.parents)), None)
        if shared is not None:
            yield Finding(
                path=item_path,
                problem=f"{item} is on {shared}, which all nodes share and no node takes with it",
                remedy="name folders on the nodes' own disks, such as /opt/dlami/nvme/work",
            )
        elif source in to.parents:
            yield Finding(
                path=item_path,
                problem=f"{item} holds {target}, so the copy would be copied too",
                remedy="name a smaller folder",
            )
