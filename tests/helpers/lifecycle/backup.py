"""Tests of a node's backup: source folders and a target."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.programs import load

backup_job = load("agent/backup/job.py")
content = load("agent/backup/content.py")
copying = load("agent/backup/copying.py")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a backup is root's: it keeps owners")


class Place:
    """Source folders, and a target file system, which /dev/shm represents."""

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


def replace_write_all(monkeypatch: pytest.MonkeyPatch, write_all: Callable[[int, bytes, int], object]) -> None:
    for module in (content, copying):
        monkeypatch.setattr(module, "write_all", write_all)


def lines_of(folder: Path) -> list[tuple[object, ...]]:
    """All that a folder has, but its pipes, which are not saved: equal for two folders if one is the copy of the other."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_fifo())
    first: dict[int, Path] = {}
    lines: list[tuple[object, ...]] = []
    for path in [folder, *paths]:
        found = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        # Names of one file are told by the first of them; for a folder it is its own.
        same = first.setdefault(found.st_ino, path).relative_to(folder)
        attributes = {
            name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
        }
        lines.append(
            (
                path.relative_to(folder),
                same,
                found.st_mode,
                found.st_uid,
                found.st_gid,
                found.st_mtime_ns,
                attributes,
                content,
            )
        )
    return lines


def sums_are_right(place: Place) -> bool:
    command = ["sha256sum", "--check", "--quiet", "../SHA256SUMS"]
    return subprocess.run(command, cwd=place.folder / "files", check=False).returncode == 0
