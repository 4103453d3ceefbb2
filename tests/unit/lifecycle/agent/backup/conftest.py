"""Folders to save, and where to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.backup import Place
from helpers.lifecycle.programs import load

target_module = load("agent/backup/target.py")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The job sets its process's own, with which the tests after it would make folders for root alone."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


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


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A file system that has ACLs and extended attributes of users', unlike some."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)
