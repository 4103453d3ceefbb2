"""Going through the folders of this node, without following a link; and how one sees that something has changed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable

from .wording import READ, UnsavableError, told

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder is opened: a link to one is refused."""


class Folder:
    """A folder of this node, open while what is in it is read."""

    def __init__(self, path: str, opened: int, parent: Folder | None) -> None:
        self.path, self.opened, self.parent = path, opened, parent
        self.found = os.fstat(opened)
        self.copy = -1
        """Its copy, where a visitor has opened it."""
        self.below: list[str] = []
        """Names of folders in it that were not read yet."""
        self.names: frozenset[str] | None = None
        """All names in it. None: it could not be read."""


class Visitor:
    """What is done with everything that `walk` finds. Each raises UnsavableError where it cannot be done with this one."""

    def enter(self, folder: Folder) -> None:
        """Before what is in it."""

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        """What is no folder."""

    def leave(self, folder: Folder) -> None:
        """After all that is in it and below."""

    def elsewhere(self, path: str) -> None:
        """A folder of another file system, of which the mounts say nothing."""

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        """What cannot be read, or done. `found`: of it, or of the folder it is in."""


def walk(top: str, mounts: frozenset[str], depth: int, visitor: Visitor) -> None:
    """The folder and all below it on its own file system. Links are not followed.

    Each folder is opened in the one above it, which stays open: however deep they are, each is opened once.
    """
    try:
        with told(top, READ):
            first = Folder(top, open_folder(top), None)
    except UnsavableError as error:
        visitor.refuse(top, os.lstat("/"), 0, error.why)
        return
    stack: list[Folder] = []
    try:
        _open_in(stack, first, visitor)
        if stack:
            _read(first, first, mounts, visitor)
        while stack:
            folder = stack[-1]
            if not folder.below:
                _leave(stack.pop(), visitor)
                continue
            name = folder.below.pop()
            below = _open_below(folder, name, len(stack) >= depth, visitor)
            if below is not None and _open_in(stack, below, visitor):
                _read(below, first, mounts, visitor)
    finally:
        for folder in stack:
            _close(folder)


def _open_below(folder: Folder, name: str, too_deep: bool, visitor: Visitor) -> Folder | None:
    path = f"{folder.path}/{name}"
    if too_deep:
        visitor.refuse(path, folder.found, 0, "is nested too deep")
        return None
    try:
        with told(path, READ):
            return Folder(path, os.open(name, FOLDER, dir_fd=folder.opened), folder)
    except UnsavableError as error:
        visitor.refuse(path, folder.found, 0, error.why)
        return None


def _open_in(stack: list[Folder], folder: Folder, visitor: Visitor) -> bool:
    """Whether what is in it is of use."""
    stack.append(folder)
    try:
        visitor.enter(folder)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
        _close(stack.pop())
        return False
    return True


def _leave(folder: Folder, visitor: Visitor) -> None:
    try:
        visitor.leave(folder)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
    finally:
        _close(folder)


def _close(folder: Folder) -> None:
    for opened in (folder.opened, folder.copy):
        if opened >= 0:
            os.close(opened)


def _read(folder: Folder, top: Folder, mounts: frozenset[str], visitor: Visitor) -> None:
    try:
        with told(folder.path, READ), os.scandir(folder.opened) as entries:
            names = sorted((entry.name for entry in entries), key=os.fsencode)
    except UnsavableError as error:
        visitor.refuse(folder.path, folder.found, 0, error.why)
        return
    folder.names = frozenset(names)
    for name in names:
        path = f"{folder.path}/{name}"
        # A user's own mount may refuse root, or never answer: it is not even looked at.
        if path in mounts:
            continue
        found = folder.found
        try:
            with told(path, READ):
                found = os.lstat(name, dir_fd=folder.opened)
            if not stat.S_ISDIR(found.st_mode):
                visitor.entry(folder, name, found)
            elif found.st_dev == top.found.st_dev:
                folder.below.append(name)
            else:
                visitor.elsewhere(path)
        except UnsavableError as error:
            size = allocated(found) if stat.S_ISREG(found.st_mode) else 0
            visitor.refuse(path, found, size, error.why)
    folder.below.reverse()


def mounts_below(paths: Iterable[str], table: str = "/proc/self/mountinfo") -> frozenset[str]:
    """What is mounted below these folders."""
    with open(table, encoding="utf-8", errors="surrogateescape") as file:
        points = [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in file]
    return frozenset(point for point in points for path in paths if point.startswith(f"{path}/"))


def open_folder(path: str) -> int:
    """A folder of this node, which the caller closes. Raises OSError where a link stands in its path."""
    return descend("/", path.split("/"), open_in)


def descend(top: str, names: list[str], step: Callable[[int, str], int]) -> int:
    """From a folder down to another, name by name, each opened in the one above it."""
    opened = os.open(top, FOLDER)
    for name in filter(None, names):
        try:
            below = step(opened, name)
        finally:
            os.close(opened)
        opened = below
    return opened


def open_in(parent: int, name: str) -> int:
    """A folder in another, which the caller closes. A link is refused."""
    return os.open(name, FOLDER, dir_fd=parent)


def allocated(found: os.stat_result) -> int:
    """Bytes that a file holds: of one with holes fewer than its size, which may be any number."""
    return min(found.st_size, found.st_blocks * 512)


def line_of(name: str, found: os.stat_result) -> bytes:
    """What changes with a file or folder, whoever changes it."""
    return os.fsencode(name) + b"/%d %d %d %d" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def place_of(path: str, found: os.stat_result) -> tuple[int, int, int]:
    """A folder where it is: one that is moved is another."""
    return found.st_dev, found.st_ino, hash(path)


def fingerprint(line: bytes) -> int:
    """Those of all that is in a folder are summed up: so one may be taken out for another."""
    return int.from_bytes(hashlib.sha256(line).digest(), "big")
