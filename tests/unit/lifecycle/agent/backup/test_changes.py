"""What is written while it is saved, and who writes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.backup import ROOT, Place, replace_write_all, sums_are_right
from helpers.lifecycle.programs import load

changes = load("agent/backup/changes.py")
content = load("agent/backup/content.py")
copying = load("agent/backup/copying.py")
manifest = load("agent/backup/manifest.py")


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
def test_a_file_that_vanishes_or_is_replaced_before_its_copy_is_reported_with_its_path(
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
def test_a_file_written_after_its_folder_was_saved_fails_the_backup(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_file_saved_twice_has_one_checksum_and_a_left_out_file_no_checksum(
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
