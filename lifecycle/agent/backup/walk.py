"""Walk through the folders of this node without following links, and recognize what has changed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable

from .wording import READ, UnsavableError, told

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""Flags to open a folder. A link to a folder is refused."""


class Folder:
    """A folder of this node, open while what is in it is read."""

    def __init__(self, path: str, opened: int, parent: Folder | None) -> None:
        self.path, self.opened, self.parent = path, opened, parent
        self.found = os.fstat(opened)
        self.copy = -1
        """The file descriptor of its copy. -1: no visitor has opened it."""
        self.below: list[str] = []
        """The names of its folders that are still to be read."""
        self.names: frozenset[str] | None = None
        """All names in it. None: the folder could not be read."""


class Visitor:
    """What `walk` calls for everything that it finds. Each method raises UnsavableError if it cannot handle this one."""

    def enter(self, folder: Folder) -> None:
        """Called before the folder's content."""

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        """Called for everything that is not a folder."""

    def leave(self, folder: Folder) -> None:
        """Called after all that is in the folder and below."""

    def elsewhere(self, path: str) -> None:
        """Called for a folder of another file system that is not in the table of mounts."""

    def refuse(self, path: str, found: os.stat_result, size: int, why: str) -> None:
        """Called for what cannot be read or handled. `found`: its status, or that of the folder above it."""


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
    """True: the folder's content is to be read."""
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
        # A user's own mount may refuse root, or hang. So its status is not even read.
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
    """A folder of this node, which the caller closes. Raises OSError if its path has a link."""
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
    """The bytes that a file occupies. With holes that is less than its size."""
    return min(found.st_size, found.st_blocks * 512)


def line_of(name: str, found: os.stat_result) -> bytes:
    """A line that differs after any change of a file or folder."""
    return os.fsencode(name) + b"/%d %d %d %d" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def place_of(path: str, found: os.stat_result) -> tuple[int, int, int]:
    """A folder at its path: after a move it is another."""
    return found.st_dev, found.st_ino, hash(path)


def fingerprint(line: bytes) -> int:
    """A number for a line. A folder has the sum of its entries' numbers, so that one can be exchanged."""
    return int.from_bytes(hashlib.sha256(line).digest(), "big")
