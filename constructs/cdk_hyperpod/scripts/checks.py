"""What is wrong with the arguments of LifecycleScripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._lambda.hyperpod.uploader.content import MAX_BYTES, MAX_FILES
from ..config.cluster import ClusterConfig, Orchestrator
from ..config.slurm import (
    DrainAgentConfig,
    SlurmConfig,
    SlurmFiles,
)
from ..errors import Finding
from ..guard.drain_channel import DrainChannel
from ..rules import check_backup, check_slurm_queues, check_users
from ..rules.own_scripts import SETTINGS as OWN_SETTINGS
from ..rules.own_scripts import beside_a_folder
from ..rules.slurm_files import check_slurm_files
from ..rules.slurm_queues import without_scripts
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import without_refused
from ..typed.words import show
from .own_scripts import check_own_folders


def check_size(files: Mapping[str, bytes]) -> Iterator[Finding]:
    """What the function that uploads would refuse."""
    size = sum(map(len, files.values()))
    if size > MAX_BYTES or len(files) > MAX_FILES:
        yield Finding(
            code="scripts-too-large",
            path="source",
            problem=f"the upload has {len(files):,} files with {size:,} bytes, and there is room for {MAX_FILES:,} files and {MAX_BYTES:,} bytes",
            remedy="keep large files in a bucket, and let a script download them",
        )


def check_people(
    orchestrator: Orchestrator, groups: object, users: object, accounts: object, partitions: object, qos: object
) -> Iterator[Finding]:
    """The rules for a file's `groups`, `users`, `slurm.accounts`, `partitions` and `qos`. The rest of the cluster is unknown here."""
    config = ClusterConfig(
        name=UNKNOWN,
        region=UNKNOWN,
        instance_groups=UNKNOWN,
        orchestrator=orchestrator,
        storage=UNKNOWN,
        groups=_items(groups),
        users=_items(users),
        slurm=SlurmConfig(accounts=_items(accounts), partitions=_named(partitions), qos=_items(qos)),
    )
    if orchestrator == "slurm" or config.groups or config.users:
        known = without_refused(config, [])
        yield from check_users(known)
        yield from check_slurm_queues(known)


def _named(values: object) -> Any:
    """A mapping, which is empty if there is none."""
    return values if isinstance(values, Mapping) else {}


def check_slurm_folders(conf: object, prolog: object, epilog: object, base: Path) -> Iterator[Finding]:
    """Own Slurm files, and the folders of prolog and epilog."""
    files = conf if isinstance(conf, SlurmFiles) else None
    folders = [str(folder) if isinstance(folder, str | Path) else None for folder in (prolog, epilog)]
    yield from check_slurm_files(SlurmConfig(conf=files, prolog=folders[0], epilog=folders[1]), base, "")


def check_library_settings(source: object, orchestrator: object, settings: Mapping[str, object]) -> Iterator[Finding]:
    """Settings that only the library's own scripts for Slurm carry out."""
    has_own_source = isinstance(source, str | Path) and is_known(str(source))
    if has_own_source or orchestrator == "eks":
        yield from (without_scripts(name) for name, value in settings.items() if value)


def check_drain(drain: object, orchestrator: object, source: object, mounts: Sequence[object]) -> Iterator[Finding]:
    """The drain agent, and what it backs up."""
    if not isinstance(drain, DrainChannel | DrainAgentConfig):
        return
    has_own_source = source is not None and is_known(source)
    if orchestrator == "eks" or has_own_source:
        yield Finding(
            code="drain-without-library-scripts",
            path="drain",
            problem="the library's own scripts for Slurm start the agent, and they are not uploaded",
            remedy="remove it, or use the library's scripts",
        )
    config = drain.drain if isinstance(drain, DrainChannel) else drain
    if config.backup is not None:
        yield from check_backup(config.backup, _known_paths(mounts), "drain.backup")


def _known_paths(mounts: Sequence[object]) -> frozenset[str] | None:
    """All mount paths. None: one of them is invalid, or known at deployment only."""
    found: set[str] = set()
    for paths in mounts:
        if not isinstance(paths, list | tuple):
            return None
        for path in paths:
            if not isinstance(path, str) or not is_known(path):
                return None
            found.add(path)
    return frozenset(found)


def check_scripts_beside(
    before: object, after: object, base: Path, source: object, prefix: str = ""
) -> Iterator[Finding]:
    """The user's own scripts run beside the library's. `prefix`: of the settings' paths."""
    if source is None:
        yield from check_own_folders(before, after, base, prefix)
        return
    for setting, folder in zip(OWN_SETTINGS, (before, after), strict=True):
        if folder is not None:
            yield beside_a_folder(f"{prefix}{setting}")


def check_bucket(bucket: object, access_logs: object) -> Iterator[Finding]:
    """A given bucket: nodes must be able to read it."""
    name = getattr(bucket, "bucket_name", None)
    if not isinstance(name, str):
        return
    if is_known(name) and not name.startswith("sagemaker-"):
        yield Finding(
            code="scripts-bucket-unreadable",
            path="bucket",
            problem=f"HyperPod's managed policy does not allow nodes to read {show(name)}",
            remedy="use a bucket whose name begins with sagemaker-",
        )
    if access_logs is not None:
        yield Finding(
            code="access-logs-of-given-bucket",
            path="access_logs",
            problem="is for a new bucket, and you give an existing one",
            remedy="remove it, and set access logs where your bucket is made",
        )


def _items(values: object) -> Any:
    """A list's items. What is not a list is reported by its type already."""
    return tuple(values) if isinstance(values, (list, tuple)) else UNKNOWN
