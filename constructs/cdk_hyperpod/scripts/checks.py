"""What is wrong with the arguments of LifecycleScripts, by the rules of a cluster file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._lambda.hyperpod.uploader.content import MAX_BYTES, MAX_FILES
from ..config.cluster import ClusterConfig, Orchestrator
from ..config.slurm import DrainAgentConfig, SlurmConfig
from ..config.storage import OpenZfsConfig, StorageConfig
from ..errors import Finding, raise_errors
from ..guard.drain_channel import DrainChannel
from ..rules import check_drain_agent, check_lifecycle, check_slurm_queues, check_users
from ..rules.files import check_own_script_folders, check_scripts
from ..rules.slurm_files import CONFS, check_slurm_files
from ..storage.lustre import LustreMount, mount_of
from ..storage.openzfs import OpenZfsMount
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import check_at_synth, without_refused
from ..typed.words import show

_AT_SYNTH: Mapping[str, tuple[str, ...]] = {
    "lifecycle": ("scripts", "scripts_before", "scripts_after", "script_minutes"),
    "slurm": ("prolog", "epilog", "hook_seconds"),
}
"""The settings that decide what is uploaded."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where the file systems of a cluster are mounted. None: there is no such file system."""

    lustre: str | None = None
    openzfs: str | None = None
    efa: bool = False

    @classmethod
    def of(cls, file_system: Any, openzfs: Any) -> Mounts:
        """Those of the arguments of a construct. Their types are validated elsewhere."""
        lustre = mount_of(file_system)
        homes = openzfs.mount_path if isinstance(openzfs, OpenZfsMount) else None
        return cls(lustre.mount_path, homes, lustre.efa) if isinstance(lustre, LustreMount) else cls(None, homes)

    @classmethod
    def of_file(cls, config: ClusterConfig) -> Mounts:
        """Those of a file."""
        storage = config.storage
        if storage is None:
            return cls()
        return cls(storage.mount_path, None if storage.openzfs is None else storage.openzfs.mount_path, storage.efa)

    def of_nodes(self, orchestrator: Orchestrator) -> list[dict[str, str]]:
        """What the nodes themselves mount. Under EKS pods mount the file systems."""
        found = [] if orchestrator == "eks" else [(self.lustre, "lustre"), (self.openzfs, "nfs")]
        return [{"path": path, "type": kind} for path, kind in found if path is not None]

    def storage(self) -> Any:
        """The same as a setting, for the rules of paths."""
        paths = [path for path in (self.lustre, self.openzfs) if path is not None]
        if not all(isinstance(path, str) and is_known(path) for path in paths):
            return UNKNOWN
        homes = [OpenZfsConfig(file_system_id=UNKNOWN, mount_path=path) for path in paths[1:]]
        return StorageConfig(mount_path=paths[0], openzfs=homes[0] if homes else None) if paths else None


def as_config(
    orchestrator: Orchestrator, groups: Any, users: Any, lifecycle: Any, slurm: Any, drain: object
) -> ClusterConfig:
    """The arguments as a file has them. The rest of the cluster is unknown."""
    if isinstance(drain, DrainChannel) and orchestrator == "slurm" and isinstance(slurm, SlurmConfig | None):
        slurm = dataclasses.replace(slurm or SlurmConfig(), drain=drain.drain)
    return ClusterConfig(
        name=UNKNOWN,
        region=UNKNOWN,
        instance_groups=UNKNOWN,
        orchestrator=orchestrator,
        storage=UNKNOWN,
        groups=_items(groups),
        users=_items(users),
        lifecycle=lifecycle,
        slurm=slurm,
    )


def check_settings(config: ClusterConfig, mounts: Mounts, base: Path) -> Iterator[Finding]:
    """The rules for a file's settings of the scripts. `base`: paths are relative to this folder."""
    known = without_refused(config, [])
    yield from _check_at_synth(known)
    yield from check_users(known)
    yield from check_slurm_queues(known)
    yield from check_lifecycle(known)
    yield from check_drain_agent(dataclasses.replace(known, storage=mounts.storage()))
    yield from check_scripts(known, base)
    yield from check_own_script_folders(known, base)
    yield from check_slurm_files(known.slurm, base)


def _check_at_synth(config: ClusterConfig) -> Iterator[Finding]:
    conf = getattr(config.slurm, "conf", None)
    values = {
        f"{owner}.{name}": getattr(getattr(config, owner), name, None)
        for owner in _AT_SYNTH
        for name in _AT_SYNTH[owner]
    }
    for path, value in {**values, **{f"slurm.conf.{name}": getattr(conf, name, None) for name in CONFS}}.items():
        yield from check_at_synth(value, path, "write it out", kinds=(str, int, float))


def check_no_agent_settings(drain: object) -> None:
    """Raise ConfigError for an agent's settings in the place of its channel, where an earlier version took them."""
    if isinstance(drain, DrainAgentConfig):
        finding = Finding(
            code="drain-channel-of-settings",
            path="drain",
            problem="must be a DrainChannel, got the settings of the agent",
            remedy="write slurm=SlurmConfig(drain=…)",
        )
        raise_errors([finding], "LifecycleScripts")


def check_channel(drain: object, orchestrator: object) -> Iterator[Finding]:
    """A channel is for the agent of the library's scripts for Slurm."""
    if isinstance(drain, DrainChannel) and orchestrator == "eks":
        yield Finding(
            code="drain-channel-under-eks",
            path="drain",
            problem="is for the drain agent under Slurm, and this cluster is under EKS",
            remedy="remove it, and give HyperPodCluster an EksDrainer",
        )


def check_size(files: Mapping[str, bytes]) -> Iterator[Finding]:
    """What the function that uploads would refuse."""
    size = sum(map(len, files.values()))
    if size > MAX_BYTES or len(files) > MAX_FILES:
        yield Finding(
            code="scripts-too-large",
            path="lifecycle",
            problem=f"the upload has {len(files):,} files with {size:,} bytes, and there is room for {MAX_FILES:,} files and {MAX_BYTES:,} bytes",
            remedy="keep large files in a bucket, and let a script download them",
        )


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
