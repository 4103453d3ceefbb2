"""The copy of a node's folders: the same, proved, and nothing where it must not be. tests/slurm has it as a job."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lifecycle.programs import load

backup = load("backup.py")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a backup is root's: it keeps owners")


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
        code: int = backup.main(order, self.said.append)
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
    monkeypatch.setattr(backup, "parents", lambda path: [])
    real = os.stat

    def stat(path: Any, **more: Any) -> Any:
        found = real(path, **more)
        return os.stat_result([*found[:2], found.st_dev + (path == "/"), *found[3:]]) if path == "/" else found

    monkeypatch.setattr(backup.os, "stat", stat)
    return Place(source, target)


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
    monkeypatch.setattr(backup, "CHUNK", 1000)
    assert place.run() == 0
    copy = place.copy / "model.bin"
    spoiled = bytearray(copy.read_bytes())
    spoiled[5500] ^= 1
    copy.write_bytes(spoiled)
    written: list[bytes] = []
    real = backup.write_all

    def write_all(file: Any, chunk: bytes) -> None:
        written.append(chunk)
        real(file, chunk)

    monkeypatch.setattr(backup, "write_all", write_all)
    assert place.run() == 0
    assert [len(chunk) for chunk in written] == [1000]
    assert copy.read_bytes() == (place.source / "model.bin").read_bytes()


@ROOT
def test_a_target_that_lies_is_no_backup(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "write_all", lambda file, chunk: file.write(b"x" * len(chunk)))
    assert place.run() == 1
    assert "model.bin" in place.said[-1]
    assert "differs at the target" in place.said[-1]
    assert not (place.folder / "manifest.json").exists()


@ROOT
def test_what_cannot_be_there_in_time_is_refused_before_anything_is_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "MOST_BYTES_S", 1)
    assert place.run() == 1
    assert "which takes" in place.said[-1]
    assert place.said[-1].endswith("there are 10: ask beforehand for longer, by `cdk-hyperpod drain --hold 12h`")
    assert not (place.folder / "files").exists()


@ROOT
def test_a_target_without_room_is_refused_before_anything_is_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup.shutil, "disk_usage", lambda path: SimpleNamespace(free=99_999))
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
    monkeypatch.setattr(backup, "CHUNK", 60_000)
    real = backup.write_all

    def write_all(file: Any, chunk: bytes) -> None:
        real(file, chunk)
        with (place.source / "model.bin").open("r+b") as source:
            source.write(b"new")

    monkeypatch.setattr(backup, "write_all", write_all)
    assert place.run() == 1
    assert 'model.bin" was written while it was saved' in place.said[-1]
    assert not (place.folder / "manifest.json").exists()


FULL = "could not be written at the target: No space left on device"
SQUASHED = "could not be written at the target: Operation not permitted"


@ROOT
@pytest.mark.parametrize(
    ("call", "number", "path", "says"),
    [
        ("write_all", errno.ENOSPC, "{copy}/model.bin", FULL),
        ("os.fsync", errno.ENOSPC, "{copy}/model.bin", FULL),
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
    monkeypatch.setattr(backup.os if module else backup, name, fail)
    assert place.run() == 1
    where = path.format(copy=place.copy, folder=place.folder, source=place.source)
    assert place.said[-1] == f'"{where}" {says}'


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
    real = backup.copy_file

    def copy_file(*given: Any) -> Any:
        if not changed.is_symlink() and changed.exists():
            shutil.rmtree(changed) if changed.is_dir() else changed.unlink()
            if then:
                changed.symlink_to(then)
        return real(*given)

    monkeypatch.setattr(backup, "copy_file", copy_file)
    assert place.run() == 1
    assert place.said[-1] == f'"{changed}" could not be read on the node: {says}'


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


def test_names_are_written_as_sha256sum_reads_them() -> None:
    assert backup.sum_line("0a", "/a/b") == "0a  a/b\n"
    assert backup.sum_line("0a", "/a\nb\\c") == "\\0a  a\\nb\\\\c\n"


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
        code: int = backup.main(order, self.said.append)
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
    real = backup.signal.alarm
    asked: list[int] = []

    def alarm(seconds: int) -> None:
        """It rings after a second, whatever was asked for."""
        asked.append(seconds)
        real(1)

    monkeypatch.setattr(backup.signal, "alarm", alarm)
    assert hook.run(f"#!/bin/bash\nsleep 600 & echo $! >{began}\nwait\n", timeout_minutes=15) == 1
    assert asked == [900]
    assert hook.said[-1] == "took longer than slurm.drain.backup.timeout_minutes, and was ended"
    child = Path(f"/proc/{began.read_text().strip()}/stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX":
        pass  # it has been killed, and goes as soon as it runs
