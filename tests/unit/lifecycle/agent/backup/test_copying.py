"""The copy of a node's folders: the same, proved, and nothing where it must not be. tests/real/slurm has it as a job."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.lifecycle.programs import load

backup_job = load("agent/backup/job.py")
changes = load("agent/backup/changes.py")
content = load("agent/backup/content.py")
copying = load("agent/backup/copying.py")
folders = load("agent/backup/folders.py")
manifest = load("agent/backup/manifest.py")
survey = load("agent/backup/survey.py")
target_module = load("agent/backup/target.py")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a backup is root's: it keeps owners")
NEEDS_RSYNC = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


class Place:
    """Folders to save, and a file system to save them on, which /dev/shm stands for."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self.said: list[str] = []

    def run(self, **change: Any) -> int:
        order = {
            "to": f"{self.target}/backup",
            "paths": [str(self.source)],
            "instance": "i-1",
            "request": "r1",
            "seconds": 600,
            **change,
        }
        self.said.clear()
        code: int = backup_job.main(order, self.said.append)
        return code

    @property
    def folder(self) -> Path:
        return self.target / "backup/i-1"

    @property
    def copy(self) -> Path:
        return Path(f"{self.folder}/files{self.source}")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    source, target = tmp_path / "work", tmp_path / "fsx"
    source.mkdir()
    target.mkdir()
    (source / "model.bin").write_bytes(os.urandom(100_000))
    # The test's folders may be anybody's, and are on the machine's own disk.
    monkeypatch.setattr(target_module, "parents", lambda path: [])
    real = os.stat

    def stat(path: Any, **more: Any) -> Any:
        found = real(path, **more)
        return os.stat_result([*found[:2], found.st_dev + (path == "/"), *found[3:]]) if path == "/" else found

    monkeypatch.setattr(os, "stat", stat)
    return Place(source, target)


def replace_write_all(monkeypatch: pytest.MonkeyPatch, write_all: Callable[[int, bytes, int], object]) -> None:
    for module in (content, copying):
        monkeypatch.setattr(module, "write_all", write_all)


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A file system that has ACLs and extended attributes of users', unlike some."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@ROOT
def test_what_was_copied_is_not_written_again(place: Place) -> None:
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
def test_what_cannot_be_there_in_time_is_refused_before_anything_is_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_BYTES_S", 1)
    assert place.run() == 1
    assert "which takes" in place.said[-1]
    assert (
        "there are 10: ask beforehand for longer, by `cdk-hyperpod drain --hold 12h`; most is of root" in place.said[-1]
    )
    assert not (place.folder / "files").exists()


@ROOT
def test_a_target_without_room_is_refused_before_anything_is_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=99_999))
    assert place.run() == 1
    assert "has room for 0.00 GB, and 0.00 GB are to be saved" in place.said[-1]
    assert not place.copy.exists()


@ROOT
@pytest.mark.parametrize("trap", ["link", "file", "open", "another's"])
def test_a_target_that_somebody_else_may_change_is_refused(place: Place, trap: str) -> None:
    target = place.target / "backup"
    elsewhere = place.target / "elsewhere"
    elsewhere.mkdir()
    if trap == "link":
        target.symlink_to(elsewhere)
    elif trap == "file":
        target.write_text("")
    else:
        target.mkdir()
        target.chmod(0o777 if trap == "open" else 0o755)
        os.chown(target, 0 if trap == "open" else 65534, 0)
    assert place.run() == 1
    assert f"{target} is not a folder that root alone may write" in place.said[-1]
    assert list(elsewhere.iterdir()) == []


@ROOT
def test_a_file_system_that_is_not_there_is_told(place: Place) -> None:
    assert place.run(to="/nowhere/backup") == 1
    assert place.said == ["/nowhere is not there: is the file system mounted?"]
    assert place.run(to="/backup") == 1
    assert "goes with the node" in place.said[0] or "root alone" in place.said[0]


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
def test_what_is_of_another_kind_by_now_is_set_aside(place: Place) -> None:
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


def by_rsync(place: Place) -> str:
    """How the copy differs from the node, by the word of another program. Pipes are not saved."""
    options = ["-aHAXn", "--checksum", "--delete", "--itemize-changes", "--no-specials"]
    command = ["rsync", *options, f"{place.source}/", f"{place.copy}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "".join(line for line in done.stdout.splitlines(keepends=True) if "skipping non-regular" not in line)


@ROOT
@NEEDS_RSYNC
def test_what_the_node_has_no_more_is_in_no_later_backup(place: Place) -> None:
    """A restored node must not get back what was deleted on purpose. It is moved: after a disk was lost it is the only copy."""
    victim = save_and_change(place)
    assert place.run(request="r2") == 0, place.said
    assert by_rsync(place) == ""
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
def test_what_is_set_aside_is_as_it_was_though_it_shared_its_copy_with_a_file_that_changed(place: Place) -> None:
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
@NEEDS_RSYNC
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
    assert by_rsync(place) == ""
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


@ROOT
def test_a_folder_that_is_reached_by_a_link_is_refused(place: Place) -> None:
    """A link would be saved, and every file be compared with itself."""
    link = place.source.parent / "link"
    link.symlink_to(place.source)
    for path in (link, link / "below"):
        (place.source / "below").mkdir(exist_ok=True)
        assert place.run(paths=[str(path)]) == 1
        assert place.said == [f'{path} leads by a link to "{os.path.realpath(path)}": name that folder']
    assert place.run(paths=[str(place.source / "model.bin")]) == 1
    assert "is no folder" in place.said[-1]
    assert not (place.folder / "manifest.json").exists()


@ROOT
def test_a_file_that_is_written_while_it_is_saved_is_not_saved(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "CHUNK", 60_000)
    real = copying.write_all

    def write_all(copy: int, chunk: bytes, offset: int) -> None:
        real(copy, chunk, offset)
        with (place.source / "model.bin").open("r+b") as source:
            source.write(b"new")

    replace_write_all(monkeypatch, write_all)
    assert place.run() == 1
    assert 'model.bin" of root (100.0 kB) was written while it was saved' in place.said[-1]
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
def test_a_file_system_that_fails_is_told_with_the_whole_path_and_its_side(
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
@pytest.mark.parametrize(
    ("gone", "then", "says"),
    [
        ("z", None, "No such file or directory"),
        ("z", "/etc/shadow", "Too many levels of symbolic links"),
        ("below", None, "No such file or directory"),
        ("below", "/etc", "Not a directory"),
    ],
)
def test_what_changes_before_it_is_saved_is_told_with_its_whole_path(
    place: Place, monkeypatch: pytest.MonkeyPatch, gone: str, then: str | None, says: str
) -> None:
    changed = place.source / gone
    (place.source / "below").mkdir()
    for file in (place.source / "z", place.source / "below/file"):
        file.write_text("")
    real = copying.Save._file

    def save_file(*given: Any) -> Any:
        if given[3] == "z" and not changed.is_symlink() and changed.exists():
            shutil.rmtree(changed) if changed.is_dir() else changed.unlink()
            if then:
                changed.symlink_to(then)
        return real(*given)

    monkeypatch.setattr(copying.Save, "_file", save_file)
    assert place.run() == 1
    assert f'"{changed}" of root could not be read on the node: {says}' in place.said[-1]


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


# -- what an unprivileged user of the node can put there --------------------------------------------------------------


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
def test_folders_as_deep_as_a_user_likes_are_opened_once_each(
    place: Place, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    opened, levels = os.open(place.source, os.O_RDONLY), 1000
    for _ in range(levels):
        os.mkdir("d" * 20, dir_fd=opened)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=opened))
    os.close(opened)
    # pytest's own way to remove them is recursive.
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(place.source), str(place.folder)], check=True))
    opens: list[object] = []
    real = os.open

    def count(*given: Any, **more: Any) -> int:
        opens.append(given[0])
        return real(*given, **more)

    monkeypatch.setattr(os, "open", count)
    assert place.run() == 0, place.said
    # Three looks, each at both sides.
    assert len(opens) < 6 * levels + 200
    monkeypatch.undo()
    found = subprocess.run(["find", ".", "-name", "last"], cwd=place.copy, capture_output=True, check=True)
    assert found.stdout.count(b"/") == levels + 1


@ROOT
def test_folders_that_are_too_deep_are_told_with_their_owner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.source / "a/b/c/d").mkdir(parents=True)
    os.chown(place.source / "a/b", 65534, 65534)
    monkeypatch.setattr(folders, "allow_open_files", lambda: 3)
    assert place.run() == 1
    assert place.said[-1] == f'1 file not saved: "{place.source}/a/b/c" of nobody is nested too deep'


@ROOT
def test_what_is_mounted_below_is_named_and_not_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own mount (FUSE) refuses root, or never answers."""
    mounted = place.source / "my mount"
    mounted.mkdir()
    (mounted / "file").write_text("")
    looked: list[object] = []
    real = os.lstat

    def lstat(path: Any, **more: Any) -> Any:
        looked.append(path)
        return real(path, **more)

    monkeypatch.setattr(os, "lstat", lstat)
    table = place.source.parent / "mountinfo"
    table.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"23 22 254:0 / {place.source} rw - ext4 /dev/vdb rw\n"
        f"24 23 0:33 / {str(mounted).replace(' ', chr(92) + '040')} rw - fuse.sshfs x rw\n"
    )
    real_mounts = folders.mounts_below
    monkeypatch.setattr(folders, "mounts_below", lambda paths: real_mounts(paths, str(table)))
    assert place.run() == 0, place.said
    assert f'1 mount left out: mounted "{mounted}"' in place.said[-1]
    assert "my mount" not in looked
    assert json.loads((place.folder / "manifest.json").read_text())["mounts"] == [str(mounted)]


@ROOT
def test_paths_that_are_absent_are_told_and_all_of_them_fail(place: Place) -> None:
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
def test_what_is_written_after_it_was_saved_is_no_backup(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    below = place.source / "below"
    below.mkdir()
    (below / "file").write_text("")
    real = copying.Save.leave

    def leave(self: Any, folder: Any) -> None:
        real(self, folder)
        if folder.path == str(below):
            (below / "new").write_text("new")

    monkeypatch.setattr(copying.Save, "leave", leave)
    assert place.run() == 1
    assert place.said == [f'1 file not saved: "{below}/new" of root (0.0 kB) was written while it was saved']


def write_once_saved(monkeypatch: pytest.MonkeyPatch, *contents: bytes | None, file: Path) -> None:
    """Write the file when all is saved, before it is looked at: these contents, look by look."""
    left = list(contents)
    real = changes.Check.__init__

    def begin(self: Any, save: Any) -> None:
        real(self, save)
        content = left.pop(0) if left else None
        if content is not None:
            file.write_bytes(content)

    monkeypatch.setattr(changes.Check, "__init__", begin)


def sums_are_right(place: Place) -> bool:
    command = ["sha256sum", "--check", "--quiet", "../SHA256SUMS"]
    return subprocess.run(command, cwd=place.folder / "files", check=False).returncode == 0


@ROOT
def test_a_file_of_two_names_that_was_written_meanwhile_is_saved_again_and_not_its_old_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.source / "model.bin").write_bytes(b"old")
    os.link(place.source / "model.bin", place.source / "other")
    write_once_saved(monkeypatch, b"new, and longer", file=place.source / "other")
    assert place.run(last=True) == 0, place.said
    assert (place.copy / "model.bin").read_bytes() == b"new, and longer"
    assert (place.copy / "other").samefile(place.copy / "model.bin")
    assert sums_are_right(place)


@ROOT
@pytest.mark.parametrize("within", [False, True], ids=["from elsewhere", "within"])
def test_a_folder_that_is_moved_here_when_all_is_saved_is_saved_with_what_is_in_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    """Its own time changes, and that of no file in it."""
    old = (place.source if within else place.source.parent) / "old"
    (old / "below").mkdir(parents=True)
    for file in (old / "file", old / "below/file"):
        file.write_bytes(b"old")
    time.sleep(1.2)  # a backup takes what is a second old for new
    real = changes.Check.__init__

    def begin(self: Any, save: Any) -> None:
        real(self, save)
        if old.exists():
            old.rename(place.source / "moved")

    monkeypatch.setattr(changes.Check, "__init__", begin)
    assert place.run(last=True) == 0, place.said
    assert (place.copy / "moved/file").read_bytes() == (place.copy / "moved/below/file").read_bytes() == b"old"
    assert sums_are_right(place)


@ROOT
def test_what_was_saved_twice_has_one_sum_and_what_is_left_out_has_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.source / "a\nb").write_text("as it is")
    file = place.source / "log"
    file.write_bytes(b"old")
    write_once_saved(monkeypatch, b"new", file=file)
    assert place.run(last=True) == 0, place.said
    assert place.said[-1].startswith("saved 3 files,")
    assert sums_are_right(place)
    assert len((place.folder / "SHA256SUMS").read_text().splitlines()) == 3
    write_once_saved(monkeypatch, b"newer", b"newest", file=file)
    assert place.run(last=True, skip=True) == 0, place.said
    assert place.said[-1].startswith("saved 2 files,")
    assert "; 1 file left out (root 1)" in place.said[-1]
    assert sums_are_right(place)
    assert "/log\n" not in (place.folder / "SHA256SUMS").read_text()


@ROOT
@pytest.mark.parametrize("uid", [1001, 1000, 0])
@pytest.mark.parametrize("maps", [False, True])
def test_a_user_s_process_that_keeps_writing_is_ended_before_the_last_look(
    place: Place, monkeypatch: pytest.MonkeyPatch, uid: int, maps: bool
) -> None:
    file = place.source / "log"
    file.write_bytes(b"x" * 10_000)
    writer = WRITES_A_MAPPING if maps else WRITES_A_FILE
    process = subprocess.Popen(["python3", "-c", writer, str(file), str(uid)], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    monkeypatch.setattr(changes, "other_jobs", lambda: False)
    try:
        assert place.run() == 1
        assert '/log" of root' in place.said[-1]
        assert process.poll() is None
        if uid == 1001:
            monkeypatch.setattr(changes, "other_jobs", lambda: True)
            assert place.run(last=True) == 1
            assert process.poll() is None
            monkeypatch.setattr(changes, "other_jobs", lambda: False)
            assert place.run(last=True) == 0, place.said
            assert f"ended process {process.pid} (python3) of uid 1001" in place.said[-1]
            assert process.wait(10) < 0
            assert (place.copy / "log").read_bytes() == file.read_bytes()
        else:
            assert place.run(last=True) == 1
            assert process.poll() is None
            assert place.run(last=True, skip=True) == 0
            assert "1 file left out (root 1)" in place.said[-1]
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


WRITES_A_FILE = """
import os, sys
at = open(sys.argv[1], "r+b", buffering=0)
os.setresuid(*[int(sys.argv[2])] * 3)
print("writes", flush=True)
while True:
    at.seek(0)
    at.write(os.urandom(100))
"""
WRITES_A_MAPPING = """
import mmap, os, sys, time
file = open(sys.argv[1], "r+b")
at = mmap.mmap(file.fileno(), 0)
file.close()
os.setresuid(*[int(sys.argv[2])] * 3)
print("writes", flush=True)
while True:
    at[:100] = os.urandom(100)
    at.flush()
"""


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


@ROOT
def test_the_number_of_files_counts_for_the_time(place: Place) -> None:
    for i in range(100):
        (place.source / str(i)).write_text("")
    assert place.run(seconds=0.005) == 1
    assert "100.0 kB in 101 files are to be saved, which takes 0 minutes at the very least" in place.said[-1]
    assert not (place.folder / "files").exists()
    assert place.run(seconds=600) == 0
    assert place.run(seconds=0.005) == 0


def test_names_are_written_as_sha256sum_reads_them() -> None:
    assert manifest.sum_line("0a", "/a/b") == "0a  a/b\n"
    assert manifest.sum_line("0a", "/a\nb\\c") == "\\0a  a\\nb\\\\c\n"


class Hook:
    """A program of the owner's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []

    def run(self, script: str, mode: int = 0o755, **change: Any) -> int:
        self.path.write_text(script)
        self.path.chmod(mode)
        self.said.clear()
        order = {"hook": str(self.path), "instance": "i-1", "request": "r1", "seconds": 600, **change}
        code: int = backup_job.main(order, self.said.append)
        return code


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    (tmp_path / "admin").mkdir(mode=0o755)
    return Hook(tmp_path / "admin/save-node")


@ROOT
def test_a_hook_s_exit_code_says_whether_the_node_is_saved(hook: Hook, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"#!/bin/sh\necho $DRAIN_INSTANCE_ID $DRAIN_NODE $DRAIN_REQUEST $DRAIN_SECONDS $PWD >{told}\n"
    assert hook.run(script) == 0, hook.said
    assert told.read_text() == f"i-1 {os.uname().nodename} r1 600 /\n"
    assert hook.said == [f"{hook.path} runs", f"{hook.path} has saved it"]
    assert hook.run("#!/bin/sh\nexit 3\n") == 1
    assert hook.said[-1] == f"{hook.path} ended with 3; what it said is in /var/log/cdk-hyperpod-backup.log on the node"
    assert hook.run("#!/bin/sh\nkill -TERM $$\n") == 1
    assert f"{hook.path} was ended by signal 15" in hook.said[-1]
    assert hook.run("#!/no/such/shell\n") == 1
    assert "No such file or directory" in hook.said[-1]


@ROOT
@pytest.mark.parametrize("trap", ["link", "written by others", "another's", "above", "folder is a link", "no program"])
def test_a_hook_that_somebody_else_may_change_is_not_run(hook: Hook, tmp_path: Path, trap: str) -> None:
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {ran}\n"
    if trap == "link":
        (tmp_path / "real").write_text(script)
        hook.path.symlink_to(tmp_path / "real")
    elif trap == "another's":
        hook.path.write_text("")
        os.chown(hook.path, 65534, 0)
    elif trap == "above":
        hook.path.parent.chmod(0o777)
    elif trap == "folder is a link":
        (tmp_path / "moved").symlink_to(hook.path.parent)
        hook.path = tmp_path / "moved/save-node"
    mode = {"written by others": 0o775, "no program": 0o644}.get(trap, 0o755)
    assert hook.run(script, mode) == 1
    says = {
        "above": "is not a folder that root alone may change",
        "folder is a link": "is not a folder that root alone",
    }
    what = {**says, "no program": "may not be executed: chmod 755 it"}.get(
        trap, "is not a file that root alone may write"
    )
    assert what in hook.said[-1]
    assert not ran.exists()


@ROOT
def test_a_hook_that_hangs_is_ended_with_all_that_it_started(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    real = signal.alarm
    asked: list[int] = []

    def alarm(seconds: int) -> None:
        """It rings after a second, whatever was asked for."""
        asked.append(seconds)
        real(1)

    monkeypatch.setattr(signal, "alarm", alarm)
    assert hook.run(f"#!/bin/bash\nsleep 600 & echo $! >{began}\nwait\n", timeout_minutes=15) == 1
    assert asked == [900]
    assert hook.said[-1] == "took longer than slurm.drain.backup.timeout_minutes, and was ended"
    child = Path(f"/proc/{began.read_text().strip()}/stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX":
        pass  # it has been killed, and goes as soon as it runs
