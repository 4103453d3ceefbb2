"""Rules of the FSx for Lustre file system.

Sources: CreateFileSystem and CreateFileSystemLustreConfiguration in the FSx API reference; the Lustre user guide's
pages on EFA-enabled file systems, metadata configuration and data repository associations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..config.cluster import ClusterConfig, InstanceGroup
from ..config.storage import DataRepository, StorageConfig
from ..errors import Finding
from ..facts.instance_types import catalogue
from ..typed.known import is_known

# GiB of one step for each throughput in MB/s/TiB, on an EFA-enabled file system.
EFA_STEP_GIB = {125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800}
NO_EFA_FOR_LUSTRE = ("ml.trn2.", "ml.trn2u.")
"""Types with EFA that FSx's Lustre client does not support over EFA (user guide, "Configuring EFA clients")."""
METADATA_IOPS = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))

MAX_CAPACITY_GIB = 16 * 1024**2
"""16 PiB. FSx documents no maximum (the quota of a new account is 100,800 GiB). A larger number is probably a typing error."""

# Folders of the operating system, HyperPod and Slurm, with all folders in them. A mount there would hide what they need.
_SYSTEM = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "snap", "sys"),
    *("tmp", "usr", "var", "opt/amazon", "opt/aws", "opt/dlami", "opt/ml", "opt/nvidia", "opt/sagemaker", "opt/slurm"),
)
# A mount is possible on folders in these, but not on these.
_HOLDERS = ("home", "media", "mnt", "opt", "srv")

_OF_A_NEW_ONE = ("capacity_gib", "metadata_iops", "data_repositories", "automatic_backup_retention_days", "efa")
_OF_AN_EXISTING_ONE = ("mount_name", "security_group_id", "availability_zone")


def check_storage(storage: StorageConfig, path: str = "storage") -> Iterator[Finding]:
    """Everything that FSx would refuse, and settings that cannot be combined."""
    yield from _check_openzfs(storage, path)
    yield from _check_mount_path(storage.mount_path, f"{path}.mount_path")
    if storage.file_system_id is not None:
        yield from _check_existing(storage, path)
        return
    if storage.capacity_gib is None:
        yield Finding(
            code="file-system-missing",
            path=path,
            problem="names neither a new nor an existing file system",
            remedy="add capacity_gib: 1200 or more, or file_system_id and mount_name",
        )
    else:
        yield from _check_capacity(storage, path)
    yield from _check_new(storage, path)


def check_efa(config: ClusterConfig) -> Iterator[Finding]:
    """A warning if nodes that run jobs cannot use the file system's EFA."""
    storage = config.storage
    if (
        not isinstance(storage, StorageConfig)
        or storage.efa is not True
        or not isinstance(config.instance_groups, tuple)
    ):
        return
    slow = [group.name for group in config.instance_groups if is_known(group) and _lacks_efa_for_lustre(group)]
    if slow:
        names = ", ".join(str(name) for name in slow)
        yield Finding(
            code="storage-efa-without-adapter",
            path="storage.efa",
            problem=f"nodes of {names} reach the file system over TCP: Lustre cannot use EFA on their instance types",
            remedy="use types with EFA, other than trn2, for jobs that need the file system's throughput",
            level="warning",
        )


def _lacks_efa_for_lustre(group: InstanceGroup) -> bool:
    """Whether the group runs jobs, and one of its types has no EFA that Lustre can use."""
    if not is_known(group.node_type) or group.node_type not in (None, "compute"):
        return False
    types = group.all_instance_types if is_known(group.all_instance_types) else ()
    known = [catalogue()[name] for name in types if is_known(name) and name in catalogue()]
    return any(not kind.has_efa or kind.name.startswith(NO_EFA_FOR_LUSTRE) for kind in known)


def _check_mount_path(mount_path: str, path: str) -> Iterator[Finding]:
    if not is_known(mount_path):
        return
    if is_the_nodes_own(mount_path):
        yield _hides(mount_path, path, "/fsx or /mnt/data")


def is_the_nodes_own(path: str) -> bool:
    """Whether the operating system, HyperPod or Slurm needs what is at this path or below it."""
    parts = PurePosixPath(path).parts[1:]
    inside = {"/".join(parts[:length]) for length in (1, 2)}
    return bool(inside & set(_SYSTEM)) or path.removeprefix("/") in _HOLDERS


def mount_paths(config: ClusterConfig) -> frozenset[str]:
    """The paths at which file systems are mounted, as far as they are known."""
    storage = config.storage
    if storage is None or not is_known(storage):
        return frozenset()
    found = [
        storage.mount_path,
        *([] if storage.openzfs is None or not is_known(storage.openzfs) else [storage.openzfs.mount_path]),
    ]
    return frozenset(path for path in found if is_known(path))


def _hides(mount_path: str, path: str, example: str) -> Finding:
    return Finding(
        code="mount-path-of-the-system",
        path=path,
        problem=(f"{mount_path} belongs to the node's operating system, and a mount would hide what the node needs"),
        remedy=f"use a folder that nothing else uses, such as {example}",
    )


def _check_openzfs(storage: StorageConfig, path: str) -> Iterator[Finding]:
    openzfs = storage.openzfs
    if openzfs is None or not is_known(openzfs):
        return
    if is_known(storage.file_system_id) and openzfs.file_system_id == storage.file_system_id:
        yield Finding(
            code="openzfs-is-lustre",
            path=f"{path}.openzfs.file_system_id",
            problem=f"{openzfs.file_system_id} is the Lustre file system",
            remedy="name the OpenZFS file system",
        )
    if not is_known(openzfs.mount_path):
        return
    # /home is possible: the image has only the home of its own user there.
    if openzfs.mount_path != "/home" and is_the_nodes_own(openzfs.mount_path):
        yield _hides(openzfs.mount_path, f"{path}.openzfs.mount_path", "/home or /mnt/homes")
    if not is_known(storage.mount_path):
        return
    lustre, homes = PurePosixPath(storage.mount_path), PurePosixPath(openzfs.mount_path)
    if lustre == homes or lustre in homes.parents or homes in lustre.parents:
        yield Finding(
            code="mount-paths-overlap",
            path=f"{path}.openzfs.mount_path",
            problem=f"{homes} overlaps {lustre}, where Lustre is mounted",
            remedy="mount them side by side, such as at /home and /fsx",
        )


def _check_existing(storage: StorageConfig, path: str) -> Iterator[Finding]:
    if storage.mount_name is None:
        yield Finding(
            code="mount-name-missing",
            path=f"{path}.mount_name",
            problem="is missing, but an existing file system requires it",
            remedy="add it as `aws fsx describe-file-systems` prints it",
        )
    for field in _OF_A_NEW_ONE:
        if getattr(storage, field):
            yield Finding(
                code="new-file-system-setting",
                path=f"{path}.{field}",
                problem="cannot be combined with file_system_id: it describes a new file system",
                remedy="remove one of the two",
            )


def _check_new(storage: StorageConfig, path: str) -> Iterator[Finding]:
    for field in _OF_AN_EXISTING_ONE:
        # Without a capacity, the finding about both names file_system_id already.
        if storage.capacity_gib is not None and getattr(storage, field) is not None:
            yield Finding(
                code="existing-file-system-setting",
                path=f"{path}.{field}",
                problem="describes an existing file system, but file_system_id is missing",
                remedy="remove it, or add file_system_id",
            )
    iops = storage.metadata_iops
    if iops is not None and is_known(iops) and iops not in METADATA_IOPS:
        yield Finding(
            code="metadata-iops-not-supported",
            path=f"{path}.metadata_iops",
            problem=f"{iops} is not supported by FSx",
            remedy="use 1500, 3000, 6000 or a multiple of 12000 up to 192000, or remove it for automatic",
        )
    repositories = storage.data_repositories
    if not isinstance(repositories, tuple):
        return
    if repositories and is_known(storage.automatic_backup_retention_days) and storage.automatic_backup_retention_days:
        yield Finding(
            code="backups-with-data-repositories",
            path=f"{path}.automatic_backup_retention_days",
            problem="cannot be combined with data_repositories: FSx does not back up such a file system",
            remedy="set it to 0. auto_export saves the data instead",
        )
    yield from _check_repositories(repositories, f"{path}.data_repositories")


def _check_capacity(storage: StorageConfig, path: str) -> Iterator[Finding]:
    capacity = storage.capacity_gib
    if capacity is None or not is_known(capacity):
        return
    if capacity > MAX_CAPACITY_GIB:
        yield Finding(
            code="capacity-too-large",
            path=f"{path}.capacity_gib",
            problem=f"{capacity:,} GiB is more than 16 PiB",
            remedy="use what the cluster needs. A file system can grow, but cannot shrink",
        )
        return
    throughput = storage.throughput_mbps_per_tib
    if storage.efa is True:
        step = EFA_STEP_GIB.get(throughput) if is_known(throughput) else None
        if step and (capacity < step or capacity % step):
            possible = _round_up(capacity, step)
            yield Finding(
                code="capacity-not-supported-with-efa",
                path=f"{path}.capacity_gib",
                problem=f"{capacity} GiB is not supported by FSx with EFA at {throughput} MB/s/TiB",
                remedy=f"use a multiple of {step}, such as {possible}",
            )
    elif capacity != 1200 and (capacity < 1200 or capacity % 2400):
        possible = 1200 if capacity < 1200 else _round_up(capacity, 2400)
        yield Finding(
            code="capacity-not-supported",
            path=f"{path}.capacity_gib",
            problem=f"{capacity} GiB is not supported by FSx",
            remedy=f"use 1200 or a multiple of 2400, such as {possible}",
        )


def _round_up(capacity: int, step: int) -> int:
    return max(1, -(-capacity // step)) * step


def _check_repositories(repositories: tuple[DataRepository, ...], path: str) -> Iterator[Finding]:
    if len(repositories) > 8:
        yield Finding(
            code="data-repositories-too-many",
            path=path,
            problem=f"there are {len(repositories)} data repositories",
            remedy="use at most 8",
        )
    linked: set[str] = set()
    below: dict[str, str] = {}  # each folder above a linked one, and itself: the linked one
    for index, repository in enumerate(repositories):
        if not is_known(repository) or not is_known(repository.file_system_path):
            continue
        folder = PurePosixPath(repository.file_system_path)
        above = [str(part) for part in (folder, *folder.parents)]
        other = next(filter(linked.__contains__, above), below.get(str(folder)))
        if other is not None:
            yield Finding(
                code="data-repositories-overlap",
                path=f"{path}[{index}].file_system_path",
                problem=f"{folder} overlaps {other}",
                remedy="link folders that lie side by side",
            )
        linked.add(str(folder))
        for part in above:
            below.setdefault(part, str(folder))
