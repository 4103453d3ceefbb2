"""The copy of a node's folders: the same, proved, and nothing where it must not be. tests/real/slurm has it as a job."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.backup import ROOT, Place, lines_of, replace_write_all, sums_are_right
from helpers.lifecycle.programs import load

content = load("agent/backup/content.py")
copying = load("agent/backup/copying.py")
folders = load("agent/backup/folders.py")
manifest = load("agent/backup/manifest.py")


@ROOT
def test_a_copied_file_is_repaired_in_place_and_not_written_again(place: Place) -> None:
    assert place.run() == 0, place.said
    copy = place.copy / "model.bin"
    inode, content = copy.stat().st_ino, copy.read_bytes()
    # As a job leaves it that was killed in the middle, and one whose file was longer.
    copy.write_bytes(content[:50_000])
    assert place.run() == 0, place.said
    assert copy.read_bytes() == content
    copy.write_bytes(content + b"more")
    assert place.run() == 0, place.said
    assert (copy.read_bytes(), copy.stat().st_ino) == (content, inode)
    assert json.loads((place.folder / "manifest.json").read_text())["bytes"] == 100_000


@ROOT
def test_only_the_chunk_that_differs_is_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "CHUNK", 1000)
    assert place.run() == 0
    copy = place.copy / "model.bin"
    spoiled = bytearray(copy.read_bytes())
    spoiled[5500] ^= 1
    copy.write_bytes(spoiled)
    written: list[bytes] = []
    real = copying.write_all

    def write_all(copy: int, chunk: bytes, offset: int) -> None:
        written.append(chunk)
        real(copy, chunk, offset)

    replace_write_all(monkeypatch, write_all)
    assert place.run() == 0
    assert [len(chunk) for chunk in written] == [1000]
    assert copy.read_bytes() == (place.source / "model.bin").read_bytes()


@ROOT
def test_a_target_that_lies_is_no_backup(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_write_all(monkeypatch, lambda copy, chunk, offset: os.pwrite(copy, b"x" * len(chunk), offset))
    assert place.run() == 1
    assert "model.bin" in place.said[-1]
    assert "differs at the target" in place.said[-1]
    assert not (place.folder / "manifest.json").exists()


@ROOT
def test_a_link_in_the_work_is_copied_as_a_link_and_not_followed(place: Place) -> None:
    (place.source / "out").symlink_to("/etc")
    (place.source / "loop").symlink_to(".")
    assert place.run() == 0
    assert os.readlink(place.copy / "out") == "/etc"
    assert os.readlink(place.copy / "loop") == "."
    assert place.run() == 0
    assert not (place.folder / "aside").exists()


@ROOT
def test_a_link_of_an_earlier_try_leads_nowhere(place: Place) -> None:
    """Somebody lets the first try save a link, and has a folder there at the second: root would write where the link leads."""
    victim = place.target.parent / "victim"
    victim.mkdir(mode=0o700)
    (place.source / "x").symlink_to(victim)
    (place.source / "y").symlink_to(victim / "made")
    assert place.run() == 0
    (place.source / "x").unlink()
    (place.source / "x").mkdir()
    (place.source / "x" / "evil").write_text("evil")
    os.chown(place.source / "x", 1000, 1000)
    (place.source / "y").unlink()
    (place.source / "y").write_text("evil")
    assert place.run() == 0, place.said
    assert list(victim.iterdir()) == []
    assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (0, 0o700)
    assert (place.copy / "x" / "evil").read_text() == (place.copy / "y").read_text() == "evil"
    assert not (place.copy / "x").is_symlink() and not (place.copy / "y").is_symlink()


@ROOT
def test_a_copy_whose_file_type_changed_is_set_aside(place: Place) -> None:
    work = place.source / "latest"
    work.mkdir()
    (work / "step").write_text("1")
    assert place.run() == 0
    (work / "step").unlink()
    work.rmdir()
    work.symlink_to("model.bin")
    assert place.run() == 0, place.said
    assert os.readlink(place.copy / "latest") == "model.bin"
    (kept,) = (place.folder / "aside").iterdir()
    assert (kept / "step").read_text() == "1"


def save_and_change(place: Place) -> Path:
    """Save the node, then delete some of its files, links and folders; a folder elsewhere that a deleted link led to."""
    victim = place.target.parent / "victim"
    victim.mkdir()
    (victim / "file").write_text("not the node's")
    (place.source / "run/deep").mkdir(parents=True)
    (place.source / "run/deep/step").write_text("1")
    (place.source / "kept").mkdir()
    (place.source / "kept/gone\nof two lines").write_text("2")
    (place.source / "kept/log").write_text("3")
    (place.source / "kept/other name").hardlink_to(place.source / "kept/log")
    (place.source / "out").symlink_to(victim)
    (place.source / "is a pipe later").write_text("4")
    assert place.run() == 0, place.said
    shutil.rmtree(place.source / "run")
    for name in ("kept/gone\nof two lines", "kept/log", "out", "is a pipe later"):
        (place.source / name).unlink()
    os.mkfifo(place.source / "is a pipe later")
    return victim


@ROOT
def test_a_file_deleted_from_the_node_is_set_aside_by_the_next_backup(place: Place) -> None:
    """A restored node must not get back what was deleted on purpose. It is moved: after a disk was lost it is the only copy."""
    victim = save_and_change(place)
    assert place.run(request="r2") == 0, place.said
    assert lines_of(place.copy) == lines_of(place.source)
    assert sums_are_right(place)
    manifest = json.loads((place.folder / "manifest.json").read_text())
    gone = ("is a pipe later", "kept/gone\nof two lines", "kept/log", "out", "run")
    assert manifest["gone"] == 5
    assert sorted(manifest["set_aside"]) == [f"{place.source}/{name}" for name in gone]
    aside = {path: place.folder / "aside" / name for path, name in manifest["set_aside"].items()}
    assert (aside[f"{place.source}/run"] / "deep/step").read_text() == "1"
    assert os.readlink(aside[f"{place.source}/out"]) == str(victim)
    assert (victim / "file").read_text() == "not the node's"
    # Another backup has nothing more to move.
    assert place.run(request="r3") == 0, place.said
    assert json.loads((place.folder / "manifest.json").read_text())["gone"] == 0


@ROOT
def test_a_hard_link_that_is_set_aside_keeps_its_content_when_the_other_link_changes(place: Place) -> None:
    (place.source / "a").write_text("old")
    os.link(place.source / "a", place.source / "b")
    assert place.run() == 0, place.said
    (place.source / "b").unlink()
    (place.source / "a").write_text("changed")
    assert place.run(request="r2") == 0, place.said
    manifest = json.loads((place.folder / "manifest.json").read_text())
    aside = place.folder / "aside" / manifest["set_aside"][f"{place.source}/b"]
    assert (aside.read_text(), (place.copy / "a").read_text()) == ("old", "changed")


class Killed(BaseException):
    """The backup's job is."""


@ROOT
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies", range(6))
def test_a_backup_that_is_killed_while_it_moves_what_is_gone_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, dies: int, after: bool
) -> None:
    save_and_change(place)
    real, count = os.rename, [0]

    def rename(*given: Any, **more: Any) -> None:
        if count[0] == dies and not after:
            raise Killed
        real(*given, **more)
        if count[0] == dies:
            raise Killed
        count[0] += 1

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(Killed):
        place.run(request="r2")
    monkeypatch.setattr(os, "rename", real)
    assert (place.folder / "manifest.json").exists() == (dies == 0 and not after)
    assert place.run(request="r2") == 0, place.said
    assert lines_of(place.copy) == lines_of(place.source)
    assert sums_are_right(place)
    assert len(list((place.folder / "aside").iterdir())) == 5
    assert json.loads((place.folder / "manifest.before.json").read_text())["request"] == "r1"


@ROOT
def test_a_folder_that_cannot_be_read_or_is_mounted_over_keeps_its_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "mounted"):
        (place.source / name).mkdir()
        (place.source / name / "file").write_text(name)
    assert place.run() == 0, place.said
    real = os.scandir

    def scandir(path: Any) -> Any:
        if isinstance(path, int) and os.readlink(f"/proc/self/fd/{path}") == f"{place.source}/bad":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(folders, "mounts_below", lambda paths: frozenset({f"{place.source}/mounted"}))
    assert place.run(last=True, skip=True) == 0, place.said
    assert (place.copy / "bad/file").read_text() == "bad"
    assert (place.copy / "mounted/file").read_text() == "mounted"
    assert not (place.folder / "aside").exists()


@ROOT
def test_a_backup_that_fails_leaves_no_manifest_of_the_one_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is of both by then."""
    assert place.run() == 0, place.said
    assert place.run(seconds=-1) == 1
    assert (place.folder / "manifest.json").exists()
    (place.source / "model.bin").write_bytes(b"another")
    replace_write_all(monkeypatch, grow(place.source / "model.bin"))
    assert place.run() == 1
    assert not (place.folder / "manifest.json").exists()


FULL = "could not be written at the target: No space left on device"
SQUASHED = "could not be written at the target: Operation not permitted"


@ROOT
@pytest.mark.parametrize(
    ("call", "number", "path", "says"),
    [
        ("write_all", errno.ENOSPC, "{copy}/model.bin", FULL),
        ("sync", errno.ENOSPC, "{folder}", FULL),
        ("os.symlink", errno.ENOSPC, "{copy}/latest", FULL),
        ("os.fchown", errno.EPERM, "{copy}/model.bin", SQUASHED),
        ("os.replace", errno.ENOSPC, "{folder}/SHA256SUMS", FULL),
        ("os.readlink", errno.EIO, "{source}/latest", "could not be read on the node: Input/output error"),
        ("os.scandir", errno.EIO, "{source}", "could not be read on the node: Input/output error"),
    ],
)
def test_a_file_system_error_is_reported_with_its_path_and_its_side(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, number: int, path: str, says: str
) -> None:
    (place.source / "latest").symlink_to("model.bin")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    module, _, name = call.rpartition(".")
    monkeypatch.setattr(os if module else copying, name, fail)
    assert place.run() == 1
    where = path.format(copy=place.copy, folder=place.folder, source=place.source)
    one = f'1 file not saved: "{where}" of root ' if "on the node" in says else f'"{where}" '
    assert place.said[-1] == one + says


@ROOT
def test_owner_mode_and_times_are_those_of_what_was_saved(place: Place) -> None:
    below = place.source / "below"
    below.mkdir()
    (below / "tool").write_text("tool")
    for path, mode in ((below / "tool", 0o4750), (below, 0o2770)):
        os.chown(path, 1000, 1001)
        path.chmod(mode)
        os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    assert place.run() == 0, place.said
    for path in (below / "tool", below):
        found = Path(f"{place.folder}/files{path}").stat()
        assert (found.st_uid, found.st_gid, found.st_mode, found.st_mtime_ns) == (
            1000,
            1001,
            path.stat().st_mode,
            2_000_000_000,
        )


@ROOT
def test_holes_stay_holes_and_count_for_nothing(place: Place) -> None:
    """15 TB that are not there: neither room nor time is needed for them."""
    large, small = place.source / "large", place.source / "small"
    for path, size in ((large, 15 * 10**12), (small, 50 * 2**20)):
        with path.open("wb") as file:
            file.truncate(size)
            for offset in (0, size // 2, size - 5):
                file.seek(offset)
                file.write(b"data!")
    assert place.run() == 0, place.said
    for path in (large, small):
        copy = place.copy / path.name
        assert copy.stat().st_size == path.stat().st_size
        assert copy.stat().st_blocks <= 3 * 128 + 8
        with copy.open("rb") as file:
            for offset in (0, path.stat().st_size // 2, path.stat().st_size - 5):
                file.seek(offset)
                assert file.read(5) == b"data!"
    check = ["sha256sum", "--check", "--quiet", "--strict", "../SHA256SUMS"]
    subprocess.run(check, cwd=place.folder / "files", check=True)
    assert "large" not in (place.folder / "SHA256SUMS").read_text()
    assert "large" in (place.folder / "SHA256SUMS.sparse").read_text()
    # A hole where an earlier try has copied something, and something where there was a hole.
    with small.open("r+b") as file:
        file.truncate(1000)
        file.truncate(50 * 2**20)
        file.seek(10 * 2**20)
        file.write(b"later")
    assert place.run() == 0, place.said
    subprocess.run(["cmp", str(small), str(place.copy / "small")], check=True)
    subprocess.run(check, cwd=place.folder / "files", check=True)


@ROOT
def test_hard_links_stay_links_within_a_path(place: Place) -> None:
    other = place.source.parent / "other"
    (other / "x").mkdir(parents=True)
    for name in ("b", "c"):
        os.link(place.source / "model.bin", place.source / name)
    os.link(place.source / "model.bin", other / "x/elsewhere")
    (place.source / "d").write_text("alone")
    paths = [str(place.source), str(other)]
    assert place.run(paths=paths) == 0, place.said
    kept = {(place.copy / name).stat().st_ino for name in ("b", "c", "model.bin")}
    assert len(kept) == 1
    elsewhere = Path(f"{place.folder}/files{other}/x/elsewhere")
    assert elsewhere.stat().st_ino not in kept
    assert elsewhere.read_bytes() == (place.copy / "b").read_bytes()
    assert (place.copy / "b").stat().st_nlink == 3
    assert not (place.folder / "links").exists()
    manifest = json.loads((place.folder / "manifest.json").read_text())
    assert (manifest["files"], manifest["hard_links"], manifest["bytes"]) == (5, 2, 2 * 102_400 + 5 - 2 * 2400)
    # What was linked to another once must not be written through it.
    (place.source / "c").unlink()
    (place.source / "c").write_text("now another")
    (place.source / "d").unlink()
    os.link(place.source / "b", place.source / "d")
    assert place.run(paths=paths) == 0, place.said
    assert (place.copy / "c").read_text() == "now another"
    assert (place.copy / "d").samefile(place.copy / "b")
    assert (place.copy / "b").read_bytes() == (place.source / "b").read_bytes()


@ROOT
def test_absent_paths_are_reported_and_the_backup_fails_if_all_are_absent(place: Place) -> None:
    assert place.run(paths=["/no/such", "/nor/this"]) == 1
    assert place.said == ["none of the folders is on the node (/no/such, /nor/this): is a disk not mounted?"]
    assert place.run(paths=["/no/such", str(place.source)]) == 0
    assert place.said[-1] == "saved 1 file, 100.0 kB; 1 path absent: absent /no/such"


@ROOT
def test_acls_attributes_and_capabilities_are_copied(place: Place, other_disk: Path) -> None:
    place = Place(other_disk / "work", other_disk / "fsx")
    for folder in (place.source / "below", place.target):
        folder.mkdir(parents=True)
    file = place.source / "file"
    file.write_text("")
    file.chmod(0o640)
    (place.source / "tool").write_text("")
    os.setxattr(file, "system.posix_acl_access", ACL)
    os.setxattr(place.source / "below", "system.posix_acl_default", ACL)
    os.setxattr(file, "user.note", b"a note")
    os.setxattr(place.source / "tool", "security.capability", CAPABILITY)
    assert place.run() == 0, place.said
    assert place.said == ["saved 2 files, 0.0 kB"]
    for path in (file, place.source / "below", place.source / "tool"):
        copy = Path(f"{place.folder}/files{path}")
        assert {name: os.getxattr(copy, name) for name in os.listxattr(copy)} == {
            name: os.getxattr(path, name) for name in os.listxattr(path)
        }
        assert copy.stat().st_mode == path.stat().st_mode
    # What is gone by the next try is gone there, too.
    os.removexattr(file, "user.note")
    os.removexattr(file, "system.posix_acl_access")
    assert place.run() == 0
    assert os.listxattr(Path(f"{place.folder}/files{file}")) == []


ACL = struct.pack(
    "<I" + "HHI" * 5,
    2,
    *(1, 6, 0xFFFFFFFF),
    *(2, 6, 1234),
    *(4, 4, 0xFFFFFFFF),
    *(16, 6, 0xFFFFFFFF),
    *(32, 0, 0xFFFFFFFF),
)
"""user::rw-, user:1234:rw-, group::r--, mask::rw-, other::---"""
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
"""cap_net_bind_service=ep"""


@ROOT
def test_an_acl_that_cannot_be_copied_gives_the_group_nothing(
    place: Place, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(other_disk / "work", other_disk / "fsx")
    for folder in (place.source, place.target):
        folder.mkdir()
    file = place.source / "file"
    file.write_text("")
    file.chmod(0o640)
    os.setxattr(file, "system.posix_acl_access", ACL)
    os.setxattr(file, "user.note", b"a note")
    assert file.stat().st_mode & 0o777 == 0o660

    def setxattr(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "setxattr", setxattr)
    assert place.run() == 0, place.said
    said = "saved 1 file, 0.0 kB; 1 ACL lost, so the group has no access; 1 extended attribute lost"
    assert place.said[-1] == said
    assert Path(f"{place.folder}/files{file}").stat().st_mode & 0o777 == 0o600


def grow(path: Path) -> Any:
    """A `write_all` that has a file grow while any is saved."""
    real = copying.write_all

    def write_all(copy: int, data: bytes, offset: int) -> None:
        real(copy, data, offset)
        with path.open("ab") as file:
            file.write(b"more")

    return write_all


@ROOT
def test_all_that_can_be_saved_is_and_the_largest_of_the_rest_are_named_with_their_owners(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size, uid in (("a", 8192, 1234), ("b", 4096, 0), ("evil\n\x1b[2J\u202e", 40960, 65534), ("z", 1, 0)):
        (place.source / name).write_bytes(b"x" * size)
        os.chown(place.source / name, uid, 0)
    growing = {"a", "b", "evil\n\x1b[2J\u202e", "z"}
    real = copying.Save._copy

    def copy(self: Any, source: int, copy: int, path: str, found: Any) -> Any:
        if os.path.basename(path) in growing:
            raise copying.UnsavableError(path, copying.CHANGED)
        return real(self, source, copy, path, found)

    monkeypatch.setattr(copying.Save, "_copy", copy)
    assert place.run() == 1
    (said,) = place.said
    assert said.startswith(
        f'4 files not saved: "{place.source}/evil\\n\\u001b[2J\\u202e" of nobody (41.0 kB) was written'
    )
    assert '/a" of uid 1234 (' in said
    assert said.endswith("; and 1 more")
    assert said.isprintable()
    assert (place.copy / "model.bin").read_bytes() == (place.source / "model.bin").read_bytes()
    assert not (place.folder / "manifest.json").exists()
    # on_unsavable: skip
    assert place.run(last=True, skip=True) == 0
    assert place.said[-1].startswith("saved 1 file, 100.0 kB; 4 files left out (root 2, ")
    assert place.said[-1].isprintable()
    manifest = json.loads((place.folder / "manifest.json").read_text())
    assert manifest["left_out"] == 4
    assert manifest["left_out_by_owner"]["uid 1234"] == {
        "uid": 1234,
        "files": 1,
        "bytes": 8192,
        "paths": [{"path": f"{place.source}/a", "bytes": 8192, "why": "was written while it was saved"}],
    }
    assert "evil" not in (place.folder / "SHA256SUMS").read_text()


@ROOT
def test_small_files_are_synced_in_batches_and_not_written_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(1200):
        (place.source / f"{i:04}").write_text(str(i))
    synced: list[int] = []
    real = copying.sync

    def sync(opened: int) -> None:
        synced.append(opened)
        real(opened)

    monkeypatch.setattr(copying, "sync", sync)
    assert place.run() == 0, place.said
    assert len(synced) == 5
    written: list[object] = []
    replace_write_all(monkeypatch, lambda *given: written.append(given))
    assert place.run() == 0, place.said
    assert written == []


def test_names_are_written_as_sha256sum_reads_them() -> None:
    assert manifest.sum_line("0a", "/a/b") == "0a  a/b\n"
    assert manifest.sum_line("0a", "/a\nb\\c") == "\\0a  a\\nb\\\\c\n"
