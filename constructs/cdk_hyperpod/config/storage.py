"""The part of the typed model about file systems and memory for checkpoints: `storage` and `tiered_storage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ..typed.bounds import PATH_SEGMENT, Pattern, Range
from .effects import IN_PLACE, NEW_NODES, does_not_shrink, in_place, new_nodes, refused, replaces
from .patterns import BucketName, MountPath, SecurityGroupId, Zone

LustreThroughput = Literal[125, 250, 500, 1000]
DEFAULT_LUSTRE_THROUGHPUT: LustreThroughput = 250
FileSystemId = Annotated[str, Pattern(r"fs-[0-9a-f]{8,17}", "a file system id such as fs-0123456789abcdef0")]

_LINK = replaces("the link; no file is deleted, here or in S3")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRepository:
    """A link between a folder of the file system and a place in S3 (FSx data repository association)."""

    file_system_path: Annotated[
        str, Pattern(rf"/({PATH_SEGMENT}(/{PATH_SEGMENT})*)?", "a path that begins with a slash, such as /data"), _LINK
    ]
    """The folder of the file system, such as /checkpoints."""
    bucket_name: Annotated[BucketName | None, _LINK] = None
    """An existing bucket of the same region. Absent: one new bucket for all such links."""
    prefix: Annotated[
        str,
        Pattern(
            r"((?!\.{1,2}(/|$))[^/\s]+(/(?!\.{1,2}(/|$))[^/\s]+)*/?)?",
            "a prefix without a leading slash, such as runs/a",
        ),
        _LINK,
    ] = ""
    """The prefix in the bucket. Absent: the folder's own path."""
    auto_import: Annotated[tuple[Literal["new", "changed", "deleted"], ...], IN_PLACE] = ("new", "changed", "deleted")
    """Which changes in S3 appear in the file system."""
    auto_export: Annotated[tuple[Literal["new", "changed", "deleted"], ...], IN_PLACE] = ()
    """Which changes in the file system are written to S3. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenZfsConfig:
    """An existing FSx for OpenZFS file system for homes, which every node mounts in addition to Lustre.

    Slurm only. A change reaches new nodes only.
    """

    file_system_id: Annotated[FileSystemId, NEW_NODES]
    """The file system. Nodes mount its root volume. Its NFS export must have the option no_root_squash, because root
    creates the homes of `users`."""
    mount_path: Annotated[MountPath, NEW_NODES] = "/home"
    """Where nodes mount it. It contains the homes of `users`. The mount hides whatever the image has at this path, such
    as /home/ubuntu."""
    security_group_id: Annotated[SecurityGroupId | None, IN_PLACE] = None
    """Its security group, which gets a rule for the nodes. Absent: you allow the nodes in yourself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """The FSx for Lustre file system that every node mounts: a new one, or an existing one by its id."""

    capacity_gib: Annotated[int | None, refused("FSx can only raise it", does_not_shrink)] = None
    """Capacity in GiB of a new file system: 1200, or a multiple of 2400. With EFA the steps are larger. You can only
    raise it."""
    throughput_mbps_per_tib: Annotated[LustreThroughput, in_place("with efa, it cannot change after creation")] = (
        DEFAULT_LUSTRE_THROUGHPUT
    )
    """Throughput in MB/s for each TiB (PERSISTENT_2)."""
    efa: Annotated[
        bool,
        refused(
            "it would create a new, empty file system: first remove storage from the file in a separate deployment"
        ),
    ] = False
    """True: nodes with EFA reach the file system over it, and the throughput cannot change after creation. A change is
    refused while the file system exists: first remove storage from the file in a separate deployment. Running nodes
    keep their mounts."""
    metadata_iops: Annotated[int | None, IN_PLACE] = None
    """Provisioned metadata operations a second: 1500, 3000, 6000 or a multiple of 12000 up to 192000. Absent: automatic,
    by capacity."""
    automatic_backup_retention_days: Annotated[int, Range(0, 90), IN_PLACE] = 0
    """How many days daily backups are kept; 0 for none. FSx does not back up a file system with data repositories."""
    data_repositories: Annotated[tuple[DataRepository, ...], in_place("removing a link deletes no file")] = ()
    """Links to S3, at most 8."""
    mount_path: Annotated[MountPath, NEW_NODES] = "/fsx"
    """Where nodes mount it: a folder that nothing else uses, such as /fsx or /mnt/data. A change reaches new nodes only."""
    file_system_id: Annotated[
        FileSystemId | None,
        new_nodes("removal decides what happens to the data of a file system that this file created"),
    ] = None
    """An existing file system. Requires `mount_name`."""
    mount_name: Annotated[
        str | None, Pattern(r"[A-Za-z0-9_-]{1,8}", "the file system's mount name, 1 to 8 characters"), NEW_NODES
    ] = None
    """The existing file system's mount name, as `aws fsx describe-file-systems` prints it."""
    security_group_id: Annotated[SecurityGroupId | None, IN_PLACE] = None
    """The existing file system's security group, which gets a rule for the nodes. Absent: you allow the nodes in yourself."""
    availability_zone: Annotated[Zone | None, in_place("used for checks only")] = None
    """The existing file system's zone. Absent: not checked against the nodes' zones."""
    openzfs: Annotated[OpenZfsConfig | None, NEW_NODES] = None
    """An FSx for OpenZFS file system for homes, in addition to Lustre. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorageConfig:
    """Managed tiered checkpointing: memory of the nodes is the fastest tier for checkpoints."""

    instance_memory_allocation_percentage: Annotated[int | None, Range(20, 100), IN_PLACE] = None
    """Share of each node's memory in percent. Absent: HyperPod's own share."""
