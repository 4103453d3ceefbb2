"""Rules of the file system: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.judging import judge

FS = {"file_system_id": "fs-0123456789abcdef0", "mount_name": "abcdefgh"}
IOPS = "use 1500, 3000, 6000 or a multiple of 12000 up to 192000, or remove it for automatic"
OF_A_NEW_ONE = "describes a new file system, and file_system_id names an existing one; remove one of the two"
OF_AN_EXISTING_ONE = (
    "describes an existing file system, and file_system_id is missing; remove it, or add file_system_id"
)


def new(capacity: object = 1200, **settings: object) -> dict[str, Any]:
    return {"capacity_gib": capacity, **settings}


def linked(*paths: str, **settings: object) -> dict[str, Any]:
    return new(data_repositories=[{"file_system_path": path} for path in paths], **settings)


@pytest.mark.parametrize(
    ("bad", "messages", "good"),
    [
        pytest.param({}, ["storage: names neither a new nor an existing file system; add capacity_gib: 1200 or more, or file_system_id and mount_name"], new(), id="neither new nor existing"),
        # Capacity
        pytest.param(new(1000), ["storage.capacity_gib: FSx refuses 1000 GiB; use 1200 or a multiple of 2400, such as 1200"], new(1200), id="capacity: too little"),
        pytest.param(new(0), ["storage.capacity_gib: FSx refuses 0 GiB; use 1200 or a multiple of 2400, such as 1200"], new(2400), id="capacity: none"),
        pytest.param(new(-2400), ["storage.capacity_gib: FSx refuses -2400 GiB; use 1200 or a multiple of 2400, such as 1200"], new(4800), id="capacity: less than none"),
        pytest.param(new(3600), ["storage.capacity_gib: FSx refuses 3600 GiB; use 1200 or a multiple of 2400, such as 4800"], new(7200), id="capacity: between steps"),
        pytest.param(new(4800, efa=True), ["storage.capacity_gib: FSx refuses 4800 GiB with EFA at 250 MB/s/TiB; use a multiple of 19200, such as 19200"], new(19200, efa=True), id="capacity with EFA: 250"),
        pytest.param(new(19200, efa=True, throughput_mbps_per_tib=125), ["storage.capacity_gib: FSx refuses 19200 GiB with EFA at 125 MB/s/TiB; use a multiple of 38400, such as 38400"], new(76800, efa=True, throughput_mbps_per_tib=125), id="capacity with EFA: 125"),
        pytest.param(new(14400, efa=True, throughput_mbps_per_tib=500), ["storage.capacity_gib: FSx refuses 14400 GiB with EFA at 500 MB/s/TiB; use a multiple of 9600, such as 19200"], new(9600, efa=True, throughput_mbps_per_tib=500), id="capacity with EFA: 500"),
        pytest.param(new(7200, efa=True, throughput_mbps_per_tib=1000), ["storage.capacity_gib: FSx refuses 7200 GiB with EFA at 1000 MB/s/TiB; use a multiple of 4800, such as 9600"], new(4800, efa=True, throughput_mbps_per_tib=1000), id="capacity with EFA: 1000"),
        pytest.param(new(throughput_mbps_per_tib=200), ["storage.throughput_mbps_per_tib: must be one of 125, 250, 500, 1000, got 200; use one of these"], new(throughput_mbps_per_tib=1000), id="throughput"),
        # Metadata
        pytest.param(new(metadata_iops=9000), [f"storage.metadata_iops: FSx refuses 9000; {IOPS}"], new(metadata_iops=6000), id="metadata: between steps"),
        pytest.param(new(metadata_iops=204000), [f"storage.metadata_iops: FSx refuses 204000; {IOPS}"], new(metadata_iops=192000), id="metadata: too much"),
        # OpenZFS
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx"}), ["storage.openzfs.mount_path: /fsx overlaps /fsx, where Lustre is mounted; mount them beside each other, such as at /home and /fsx"], new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx2"}), id="openzfs: two file systems at one place"),
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/opt"}), ["storage.openzfs.mount_path: /opt is the node's own, and a file system there would hide what the node needs; use a folder that nothing else uses, such as /home or /mnt/homes"], new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/mnt/homes"}), id="openzfs: over the system"),
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx/home"}), ["storage.openzfs.mount_path: /fsx/home overlaps /fsx, where Lustre is mounted; mount them beside each other, such as at /home and /fsx"], new(openzfs={"file_system_id": "fs-0fedcba9876543210"}), id="openzfs: inside Lustre"),
        pytest.param({**FS, "openzfs": {"file_system_id": FS["file_system_id"]}}, ["storage.openzfs.file_system_id: fs-0123456789abcdef0 is the Lustre file system's too; name the OpenZFS file system"], {**FS, "openzfs": {"file_system_id": "fs-0fedcba9876543210"}}, id="openzfs: the Lustre file system"),
        # Backups
        pytest.param(new(automatic_backup_retention_days=91), ["storage.automatic_backup_retention_days: must be 0 to 90, got 91; change it"], new(automatic_backup_retention_days=90), id="backups: too long"),
        pytest.param(linked("/data", automatic_backup_retention_days=7), ["storage.automatic_backup_retention_days: FSx keeps no backups of a file system with data repositories; set it to 0; auto_export is what saves the data"], linked("/data", automatic_backup_retention_days=0), id="backups of a linked file system"),
        # Links
        pytest.param(linked(*(f"/f{n}" for n in range(9))), ["storage.data_repositories: there are 9 links; a file system has at most 8"], linked(*(f"/f{n}" for n in range(8))), id="links: too many"),
        pytest.param(linked("data"), ["storage.data_repositories[0].file_system_path: must be a path that begins with a slash, such as /data, got 'data'; change it"], linked("/data"), id="link: path without slash"),
        pytest.param(linked("/a", "/a"), ["storage.data_repositories[1].file_system_path: /a overlaps /a; link folders that lie beside each other"], linked("/a", "/ab"), id="links: one folder twice"),
        pytest.param(linked("/a", "/a/b/c"), ["storage.data_repositories[1].file_system_path: /a/b/c overlaps /a; link folders that lie beside each other"], linked("/a/b", "/a/c"), id="links: a folder below another"),
        pytest.param(linked("/a/b/c", "/x", "/a"), ["storage.data_repositories[2].file_system_path: /a overlaps /a/b/c; link folders that lie beside each other"], linked("/a/b/c", "/x", "/a/b/d"), id="links: a folder above another"),
        pytest.param(linked("/", "/a"), ["storage.data_repositories[1].file_system_path: /a overlaps /; link folders that lie beside each other"], linked("/"), id="links: everything, and a folder"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "bucket_name": "A"}]), ["storage.data_repositories[0].bucket_name: must be an S3 bucket name, 3 to 63 characters, got 'A'; change it"], new(data_repositories=[{"file_system_path": "/a", "bucket_name": "my.data-1"}]), id="link: bucket name"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "prefix": "/x"}]), ["storage.data_repositories[0].prefix: must be a prefix without a leading slash, such as runs/a, got '/x'; change it"], new(data_repositories=[{"file_system_path": "/a", "prefix": "x/"}]), id="link: prefix"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "auto_export": ["gone"]}]), ["storage.data_repositories[0].auto_export[0]: must be one of new, changed, deleted, got 'gone'; use one of these"], new(data_repositories=[{"file_system_path": "/a", "auto_import": [], "auto_export": ["deleted"]}]), id="link: events"),
        # Mount
        pytest.param(new(mount_path="/"), ["storage.mount_path: must be an absolute path without a slash at its end, got '/'; change it"], new(mount_path="/mnt/fsx"), id="mount path: root"),
        pytest.param(new(mount_path="/fsx//a"), ["storage.mount_path: must be an absolute path without a slash at its end, got '/fsx//a'; change it"], new(mount_path="/fsx/a"), id="mount path: two slashes"),
        # An existing file system
        pytest.param({"file_system_id": FS["file_system_id"]}, ["storage.mount_name: is missing, and an existing file system needs it; add it as `aws fsx describe-file-systems` prints it"], FS, id="existing: no mount name"),
        pytest.param({**FS, "mount_name": "abcdefghi"}, ["storage.mount_name: must be the file system's mount name, 1 to 8 characters, got 'abcdefghi'; change it"], {**FS, "mount_name": "a_-Z9"}, id="existing: mount name"),
        pytest.param({**FS, "file_system_id": "fs-1"}, ["storage.file_system_id: must be a file system id such as fs-0123456789abcdef0, got 'fs-1'; change it"], {**FS, "file_system_id": "fs-01234567"}, id="existing: id"),
        pytest.param({**FS, "security_group_id": "mine"}, ["storage.security_group_id: must be a security group id such as sg-0123456789abcdef0, got 'mine'; change it"], {**FS, "security_group_id": "sg-01234567"}, id="existing: security group"),
        pytest.param({**FS, "capacity_gib": 1200}, [f"storage.capacity_gib: {OF_A_NEW_ONE}"], {**FS, "mount_path": "/data"}, id="existing, and a capacity"),
        pytest.param({**FS, "efa": True}, [f"storage.efa: {OF_A_NEW_ONE}"], {**FS, "efa": False}, id="existing, and EFA"),
        pytest.param({**FS, "metadata_iops": 1500}, [f"storage.metadata_iops: {OF_A_NEW_ONE}"], {**FS, "availability_zone": "us-west-2c"}, id="existing, and metadata"),
        pytest.param(new(mount_name="abc"), [f"storage.mount_name: {OF_AN_EXISTING_ONE}"], new(), id="new, and a mount name"),
        pytest.param(new(security_group_id="sg-01234567"), [f"storage.security_group_id: {OF_AN_EXISTING_ONE}"], new(), id="new, and a security group"),
        pytest.param(new(availability_zone="us-west-2c"), [f"storage.availability_zone: {OF_AN_EXISTING_ONE}"], new(), id="new, and a zone"),
    ],
)  # fmt: skip
def test_rule(bad: dict[str, Any], messages: list[str], good: dict[str, Any]) -> None:
    assert judge({"storage": bad}) == messages
    assert judge({"storage": good}) == []
