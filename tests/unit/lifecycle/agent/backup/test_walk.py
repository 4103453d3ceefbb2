"""Folders of any depth, and what is mounted in them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from helpers.lifecycle.backup import ROOT, Place
from helpers.lifecycle.programs import load

folders = load("agent/backup/folders.py")
manifest = load("agent/backup/manifest.py")


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
def test_folders_that_are_nested_too_deep_are_reported_with_their_owner(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.source / "a/b/c/d").mkdir(parents=True)
    os.chown(place.source / "a/b", 65534, 65534)
    monkeypatch.setattr(folders, "allow_open_files", lambda: 3)
    assert place.run() == 1
    assert place.said[-1] == f'1 file not saved: "{place.source}/a/b/c" of nobody is nested too deep'


@ROOT
def test_a_mount_below_a_backup_path_is_reported_and_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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
