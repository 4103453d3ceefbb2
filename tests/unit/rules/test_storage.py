"""Rules of the file system: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.findings import Found
from helpers.validating import changed_findings, validate

FS = {"file_system_id": "fs-0123456789abcdef0", "mount_name": "abcdefgh"}


def new(capacity: object = 1200, **settings: object) -> dict[str, Any]:
    return {"capacity_gib": capacity, **settings}


def linked(*paths: str, **settings: object) -> dict[str, Any]:
    return new(data_repositories=[{"file_system_path": path} for path in paths], **settings)


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        pytest.param({}, [("file-system-missing", "storage")], new(), id="neither new nor existing"),
        pytest.param({"metadata_iops": 9000, "mount_name": "fsx"}, [("file-system-missing", "storage"), ("metadata-iops-not-supported", "storage.metadata_iops")], new(), id="neither, and another setting"),
        # Capacity
        pytest.param(new(1000), [("capacity-not-supported", "storage.capacity_gib")], new(1200), id="capacity: too little"),
        pytest.param(new(0), [("capacity-not-supported", "storage.capacity_gib")], new(2400), id="capacity: none"),
        pytest.param(new(-2400), [("capacity-not-supported", "storage.capacity_gib")], new(4800), id="capacity: less than none"),
        pytest.param(new(3600), [("capacity-not-supported", "storage.capacity_gib")], new(7200), id="capacity: between steps"),
        pytest.param(new(4800, efa=True), [("capacity-not-supported-with-efa", "storage.capacity_gib")], new(19200, efa=True), id="capacity with EFA: 250"),
        pytest.param(new(19200, efa=True, throughput_mbps_per_tib=125), [("capacity-not-supported-with-efa", "storage.capacity_gib")], new(76800, efa=True, throughput_mbps_per_tib=125), id="capacity with EFA: 125"),
        pytest.param(new(14400, efa=True, throughput_mbps_per_tib=500), [("capacity-not-supported-with-efa", "storage.capacity_gib")], new(9600, efa=True, throughput_mbps_per_tib=500), id="capacity with EFA: 500"),
        pytest.param(new(7200, efa=True, throughput_mbps_per_tib=1000), [("capacity-not-supported-with-efa", "storage.capacity_gib")], new(4800, efa=True, throughput_mbps_per_tib=1000), id="capacity with EFA: 1000"),
        pytest.param(new(throughput_mbps_per_tib=200), [("value-not-a-choice", "storage.throughput_mbps_per_tib")], new(throughput_mbps_per_tib=1000), id="throughput"),
        # Metadata
        pytest.param(new(metadata_iops=9000), [("metadata-iops-not-supported", "storage.metadata_iops")], new(metadata_iops=6000), id="metadata: between steps"),
        pytest.param(new(metadata_iops=204000), [("metadata-iops-not-supported", "storage.metadata_iops")], new(metadata_iops=192000), id="metadata: too much"),
        # OpenZFS
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx"}), [("mount-paths-overlap", "storage.openzfs.mount_path")], new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx2"}), id="openzfs: two file systems at one place"),
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/opt"}), [("mount-path-of-the-system", "storage.openzfs.mount_path")], new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/mnt/homes"}), id="openzfs: over the system"),
        pytest.param(new(openzfs={"file_system_id": "fs-0fedcba9876543210", "mount_path": "/fsx/home"}), [("mount-paths-overlap", "storage.openzfs.mount_path")], new(openzfs={"file_system_id": "fs-0fedcba9876543210"}), id="openzfs: inside Lustre"),
        pytest.param({**FS, "openzfs": {"file_system_id": FS["file_system_id"]}}, [("openzfs-is-lustre", "storage.openzfs.file_system_id")], {**FS, "openzfs": {"file_system_id": "fs-0fedcba9876543210"}}, id="openzfs: the Lustre file system"),
        # Backups
        pytest.param(new(automatic_backup_retention_days=91), [("value-out-of-range", "storage.automatic_backup_retention_days")], new(automatic_backup_retention_days=90), id="backups: too long"),
        pytest.param(linked("/data", automatic_backup_retention_days=7), [("backups-with-data-repositories", "storage.automatic_backup_retention_days")], linked("/data", automatic_backup_retention_days=0), id="backups of a linked file system"),
        # Links
        pytest.param(linked(*(f"/f{n}" for n in range(9))), [("data-repositories-too-many", "storage.data_repositories")], linked(*(f"/f{n}" for n in range(8))), id="links: too many"),
        pytest.param(linked("data"), [("value-malformed", "storage.data_repositories[0].file_system_path")], linked("/data"), id="link: path without slash"),
        pytest.param(linked("/a", "/a"), [("data-repositories-overlap", "storage.data_repositories[1].file_system_path")], linked("/a", "/ab"), id="links: one folder twice"),
        pytest.param(linked("/a", "/a/b/c"), [("data-repositories-overlap", "storage.data_repositories[1].file_system_path")], linked("/a/b", "/a/c"), id="links: a folder below another"),
        pytest.param(linked("/a/b/c", "/x", "/a"), [("data-repositories-overlap", "storage.data_repositories[2].file_system_path")], linked("/a/b/c", "/x", "/a/b/d"), id="links: a folder above another"),
        pytest.param(linked("/", "/a"), [("data-repositories-overlap", "storage.data_repositories[1].file_system_path")], linked("/"), id="links: everything, and a folder"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "bucket_name": "A"}]), [("value-malformed", "storage.data_repositories[0].bucket_name")], new(data_repositories=[{"file_system_path": "/a", "bucket_name": "my.data-1"}]), id="link: bucket name"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "prefix": "/x"}]), [("value-malformed", "storage.data_repositories[0].prefix")], new(data_repositories=[{"file_system_path": "/a", "prefix": "x/"}]), id="link: prefix"),
        pytest.param(new(data_repositories=[{"file_system_path": "/a", "auto_export": ["gone"]}]), [("value-not-a-choice", "storage.data_repositories[0].auto_export[0]")], new(data_repositories=[{"file_system_path": "/a", "auto_import": [], "auto_export": ["deleted"]}]), id="link: events"),
        # Mount
        pytest.param(new(mount_path="/"), [("value-malformed", "storage.mount_path")], new(mount_path="/mnt/fsx"), id="mount path: root"),
        pytest.param(new(mount_path="/fsx//a"), [("value-malformed", "storage.mount_path")], new(mount_path="/fsx/a"), id="mount path: two slashes"),
        # An existing file system
        pytest.param({"file_system_id": FS["file_system_id"]}, [("mount-name-missing", "storage.mount_name")], FS, id="existing: no mount name"),
        pytest.param({**FS, "mount_name": "abcdefghi"}, [("value-malformed", "storage.mount_name")], {**FS, "mount_name": "a_-Z9"}, id="existing: mount name"),
        pytest.param({**FS, "file_system_id": "fs-1"}, [("value-malformed", "storage.file_system_id")], {**FS, "file_system_id": "fs-01234567"}, id="existing: id"),
        pytest.param({**FS, "security_group_id": "mine"}, [("value-malformed", "storage.security_group_id")], {**FS, "security_group_id": "sg-01234567"}, id="existing: security group"),
        pytest.param({**FS, "capacity_gib": 1200}, [("new-file-system-setting", "storage.capacity_gib")], {**FS, "mount_path": "/data"}, id="existing, and a capacity"),
        pytest.param({**FS, "efa": True}, [("new-file-system-setting", "storage.efa")], {**FS, "efa": False}, id="existing, and EFA"),
        pytest.param({**FS, "metadata_iops": 1500}, [("new-file-system-setting", "storage.metadata_iops")], {**FS, "availability_zone": "us-west-2c"}, id="existing, and metadata"),
        pytest.param(new(mount_name="abc"), [("existing-file-system-setting", "storage.mount_name")], new(), id="new, and a mount name"),
        pytest.param(new(security_group_id="sg-01234567"), [("existing-file-system-setting", "storage.security_group_id")], new(), id="new, and a security group"),
        pytest.param(new(availability_zone="us-west-2c"), [("existing-file-system-setting", "storage.availability_zone")], new(), id="new, and a zone"),
    ],
)  # fmt: skip
def test_an_invalid_setting_has_its_findings_and_a_valid_one_has_no_error(
    bad: dict[str, Any], expected: Found, good: dict[str, Any]
) -> None:
    assert validate({"storage": bad}) == expected
    assert validate({"storage": good}) == []


@pytest.mark.parametrize(
    ("storage", "multiple", "possible"),
    [
        (new(1000), 2400, 1200),
        (new(-2400), 2400, 1200),
        (new(3600), 2400, 4800),
        (new(4800, efa=True), 19200, 19200),
        (new(19200, efa=True, throughput_mbps_per_tib=125), 38400, 38400),
        (new(14400, efa=True, throughput_mbps_per_tib=500), 9600, 19200),
        (new(7200, efa=True, throughput_mbps_per_tib=1000), 4800, 9600),
    ],
)
def test_a_capacity_that_fsx_does_not_support_is_answered_with_the_next_one(
    storage: dict[str, Any], multiple: int, possible: int
) -> None:
    (finding,) = changed_findings({"storage": storage})
    assert str(storage["capacity_gib"]) in finding.problem
    assert f"multiple of {multiple}, such as {possible}" in finding.remedy


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, None),
        ({"instance_groups.1.instance_type": "ml.g5.xlarge"}, "work"),
        ({"instance_groups.1.instance_type": "ml.trn2.48xlarge"}, "work"),
        ({"instance_groups.1.instance_type": "ml.g5.xlarge", "storage.efa": False, "storage.capacity_gib": 1200}, None),
        ({"instance_groups.1.instance_type": "ml.unknown.48xlarge"}, None),
    ],
)
def test_groups_that_cannot_use_the_efa_of_their_file_system(settings: dict[str, object], names: str | None) -> None:
    """A controller has no EFA, and needs none."""
    storage = {"capacity_gib": 4800, "throughput_mbps_per_tib": 1000, "efa": True}
    findings = changed_findings({"storage": storage, **settings})
    told = [finding for finding in findings if finding.code == "storage-efa-without-adapter"]
    assert [(finding.path, finding.level) for finding in told] == ([("storage.efa", "warning")] if names else [])
    assert not told or f"nodes of {names} reach" in told[0].problem
