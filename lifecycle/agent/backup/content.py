"""The bytes of one file, its holes, its sum and its attributes: read, compared and written."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
from collections.abc import Iterator

from .wording import told

CHUNK = 8 * 2**20
BLOCK = 64 * 2**10
"""Of a file with holes: blocks of zeros are not written."""
ACCESS = "system.posix_acl_access"
ACLS = (ACCESS, "system.posix_acl_default")
OWN_ATTRIBUTES = re.compile(
    r"system\.(?!posix_acl_)|lustre\.|security\.(selinux|ima|evm)$|trusted\.(lov|lma|lmv|link|fid|som|hsm)"
)
"""Attributes that a file system manages itself."""


class Sum:
    """The sha256 of a file that is read piece by piece. `gaps`: as sha256sum has it; else of its blocks of data, each after its
    offset in eight bytes, and of its size."""

    def __init__(self, gaps: bool) -> None:
        self._sum, self._gaps, self._at = hashlib.sha256(), gaps, 0

    def add(self, offset: int, data: bytes) -> None:
        self._skip(offset)
        self._sum.update(data)
        self._at = offset + len(data)

    def end(self, size: int) -> bytes:
        self._skip(size)
        return self._sum.digest()

    def _skip(self, offset: int) -> None:
        if not self._gaps:
            self._sum.update(offset.to_bytes(8, "big"))
            return
        while self._at < offset:
            zeros = min(CHUNK, offset - self._at)
            self._sum.update(bytes(zeros))
            self._at += zeros


def pieces(opened: int, size: int, holes: bool, path: str, what: str) -> Iterator[tuple[int, bytes]]:
    """A file's bytes with their offsets, up to this size; of one with holes only blocks that are not all zeros."""
    at = 0
    while not holes:
        with told(path, what):
            data = os.pread(opened, min(CHUNK, size - at), at)
        if not data:
            return
        yield at, data
        at += len(data)
    zeros = bytes(BLOCK)
    while at < size:
        with told(path, what):
            at = next_data(opened, at, size) // BLOCK * BLOCK
            data = os.pread(opened, min(BLOCK, size - at), at) if at < size else b""
        if data and data != zeros[: len(data)]:
            yield at, data
        at += BLOCK


def next_data(opened: int, at: int, size: int) -> int:
    """The offset of the next byte outside of a hole, or the end."""
    try:
        return os.lseek(opened, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return (size + BLOCK - 1) // BLOCK * BLOCK
        raise


def zero_out(copy: int, at: int, end: int) -> None:
    """Write zeros where the source has a hole, and an earlier try copied data."""
    while at < end:
        at = next_data(copy, at, end)
        data = os.pread(copy, min(BLOCK, end - at), at) if at < end else b""
        if data != bytes(len(data)):
            write_all(copy, bytes(len(data)), at)
        at += BLOCK


def write_all(copy: int, data: bytes, offset: int) -> None:
    """Write all of the data: one call may write less."""
    view = memoryview(data)
    while view:
        written = os.pwrite(copy, view, offset)
        view, offset = view[written:], offset + written


def sync(opened: int) -> None:
    """Make the file system of an open file store all that was written to it."""
    if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def attributes(opened: int) -> dict[str, bytes]:
    """Extended attributes, with ACLs and capabilities, without those that a file system manages itself."""
    try:
        names = os.listxattr(opened)
    except OSError:
        return {}
    found = {}
    for name in names:
        if not OWN_ATTRIBUTES.match(name):
            with contextlib.suppress(OSError):
                found[name] = os.getxattr(opened, name)
    return found
