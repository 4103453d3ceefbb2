"""Rules of `slurm.drain`: refuses at synthesis what the drain agent would refuse, or could not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..config.cluster import ClusterConfig
from ..config.slurm import DrainBackup, SlurmConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
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
        "var/log",
        *("opt/amazon", "opt/aws", "opt/ml", "opt/nvidia", "opt/sagemaker", "opt/slurm"),
    ]
)
"""Folders of the operating system and its secrets, which every node has from its image. Users keep no work there."""


def check_drain_agent(config: ClusterConfig) -> Iterator[Finding]:
    """Whether the drain agent is started, who may request drains, and whether the backup can work."""
    slurm = config.slurm
    if config.orchestrator == "eks" or not isinstance(slurm, SlurmConfig) or slurm.drain is None:
        return
    if config.lifecycle is None or is_known(config.lifecycle):
        yield from _check_started(config)
    if is_known(slurm.drain):
        yield from _check_operators(slurm.drain.operators)
    if is_known(slurm.drain) and isinstance(slurm.drain.backup, DrainBackup):
        mounts = mount_paths(config) if config.storage is None or is_known(config.storage) else None
        yield from check_backup(slurm.drain.backup, mounts, "slurm.drain.backup")


def _check_operators(operators: object) -> Iterator[Finding]:
    yield from check_writers(operators, "slurm.drain.operators")
    if operators == ():
        yield Finding(
            code="drain-operators-missing",
            path="slurm.drain.operators",
            problem="is missing, so every principal with s3:PutObject on all buckets can drain nodes",
            remedy="name the roles of the people who run `cdk-hyperpod drain`",
            level="warning",
        )


def _check_started(config: ClusterConfig) -> Iterator[Finding]:
    if config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None:
        yield Finding(
            code="drain-agent-without-scripts",
            path="slurm.drain",
            problem="needs the library's own scripts, which start the drain agent but do not run on this cluster",
            remedy="remove it, or use the library's scripts (docs/lifecycle.md)",
        )
    elif config.lifecycle_steps.drain is False:
        yield Finding(
            code="drain-agent-without-step",
            path="lifecycle.steps.drain",
            problem="is false, but slurm.drain needs the step, which starts the drain agent",
            remedy="remove one of the two",
        )


def check_backup(backup: DrainBackup, mounts: frozenset[str] | None, path: str) -> Iterator[Finding]:
    """Settings of a backup that are missing or cannot be combined, and folders that cannot be saved. `mounts`: None if unknown."""
    if backup.hook is not None:
        if backup.on_unsavable == "skip":
            yield Finding(
                code="backup-hook-with-on-unsavable",
                path=f"{path}.on_unsavable",
                problem=f"cannot be combined with {path}.hook: it is about files that are copied from {path}.paths",
                remedy="remove it",
            )
        for name in ("paths", "to"):
            if getattr(backup, name):
                yield Finding(
                    code="backup-hook-with-folders",
                    path=f"{path}.{name}",
                    problem=f"cannot be combined with {path}.hook, which saves the node by itself",
                    remedy="remove one of the two",
                )
        return
    if isinstance(backup.paths, tuple):
        yield from _check_folders(backup.paths, backup.to, mounts or frozenset(), path)
    yield from _check_target(backup.to, mounts, path)


def _is_system_folder(folder: PurePosixPath) -> bool:
    parts = folder.parts[1:]
    return parts in (("opt",), ("var",), ("var", "lib")) or not _SYSTEM.isdisjoint(
        "/".join(parts[:length]) for length in (1, 2)
    )


def _check_target(target: str | None, mounts: frozenset[str] | None, path: str) -> Iterator[Finding]:
    """A target that is missing, or lost with the node."""
    if target is None:
        yield Finding(
            code="backup-target-missing",
            path=f"{path}.to",
            problem="is missing, so the copy has no target",
            remedy="add a folder such as /fsx/backup, or use a `hook` of your own in place of both",
        )
        return
    if mounts is None or not is_known(target):
        return
    if not mounts:
        yield Finding(
            code="backup-target-without-storage",
            path=f"{path}.to",
            problem=f"{target} is on the node's own disk, so the copy would be lost with the node",
            remedy="add storage, and put the copy there",
        )
    elif not any(PurePosixPath(mount) in PurePosixPath(target).parents for mount in mounts):
        some_mounts = " or ".join(sorted(mounts))
        yield Finding(
            code="backup-target-not-on-storage",
            path=f"{path}.to",
            problem=f"{target} is not on the file's storage, so the copy would be lost with the node",
            remedy=f"put it below {some_mounts}",
        )


def _check_folders(paths: tuple[str, ...], target: str | None, mounts: frozenset[str], path: str) -> Iterator[Finding]:
    """Too many or too few folders, those that contain the target, and those that are shared or belong to the system."""
    yield from check_repeated(paths, f"{path}.paths")
    if not 1 <= len(paths) <= MOST_PATHS:
        yield Finding(
            code="backup-paths-wrong-number",
            path=f"{path}.paths",
            problem=f"there are {len(paths)} folders",
            remedy=f"use 1 to {MOST_PATHS}, or a `hook` of your own, or remove slurm.drain.backup",
        )
    above_target = PurePosixPath(target).parents if target is not None and is_known(target) else ()
    for item_path, item in zip(item_paths(f"{path}.paths", paths), paths, strict=True):
        if not is_known(item):
            continue
        source = PurePosixPath(item)
        shared = next((mount for mount in sorted(mounts) if PurePosixPath(mount) in (source, *source.parents)), None)
        if _is_system_folder(source):
            yield Finding(
                code="backup-of-system-folder",
                path=item_path,
                problem=f"{item} belongs to the operating system, and contains secrets but no work of users",
                remedy="name folders with work, such as /opt/dlami/nvme/work",
            )
        elif shared is not None:
            yield Finding(
                code="backup-of-shared-folder",
                path=item_path,
                problem=f"{item} is on {shared}, which all nodes share, so it is not lost with the node",
                remedy="name folders on the nodes' own disks, such as /opt/dlami/nvme/work",
            )
        elif source in above_target:
            yield Finding(
                code="backup-of-its-target",
                path=item_path,
                problem=f"{item} contains {target}, so the copy would be copied again",
                remedy="name a smaller folder",
            )
