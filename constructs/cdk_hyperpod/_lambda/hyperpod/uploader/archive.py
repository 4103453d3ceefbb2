"""An asset's zip, read without trust: anybody who may write CDK's bucket of assets may have written it."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from ..kernel.text import one_line
from .content import MAX_BYTES, MAX_FILES

_END = struct.Struct("<4s4H2LH")
"""The end of the central directory record, without a comment: the last bytes of the zip."""
_LOCATOR_BYTES = 20
"""Of what stands before it in a zip of more than 4 GB, and names another list of files."""
_MAX_DIRECTORY_BYTES = 1_000_000
"""Of the list of files, which `zipfile` reads as a whole."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)
"""RuntimeError: an encrypted entry. ValueError: a name that is no text."""
_CHUNK = 1_000_000


class ArchiveError(Exception):
    """What is wrong with a zip: the end of a sentence that begins with its name."""


class Archive:
    """The files of a zip that may be uploaded. Raises ArchiveError if one of them may not."""

    def __init__(self, file: IO[bytes]) -> None:
        _check_directory(file)
        try:
            self._zip = zipfile.ZipFile(file)
        except _UNREADABLE as error:
            raise ArchiveError("is not a zip") from error
        entries = [entry for entry in self._zip.infolist() if not entry.filename.endswith("/")]
        _check_entries(entries)
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) < len(entries):
            raise ArchiveError("has two files of one name")

    def names(self) -> list[str]:
        """Sorted."""
        return sorted(self._entries)

    def files(self) -> Iterator[tuple[str, bytearray]]:
        """Names and contents, sorted by name. Only one content is in memory at a time."""
        for name in self.names():
            yield name, self.read(name)

    def read(self, name: str) -> bytearray:
        """The content of a file. `zipfile` reads no more bytes than the entry declares."""
        content = bytearray()
        try:
            with self._zip.open(self._entries[name]) as file:
                while chunk := file.read(_CHUNK):
                    content += chunk
        except _UNREADABLE as error:
            raise ArchiveError(f"has a file that cannot be unpacked ({one_line(name)})") from error
        return content


def _check_directory(file: IO[bytes]) -> None:
    """Check the list of files before it is read, because its length is the writer's choice."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END.size - _LOCATOR_BYTES))
    end = file.read()
    if len(end) < _END.size or end[-_END.size :][:4] != b"PK\x05\x06" or end.startswith(b"PK\x06\x07"):
        raise ArchiveError("is not a zip as CDK writes it")
    count, length = _END.unpack(end[-_END.size :])[4:6]
    if count > MAX_FILES or length > _MAX_DIRECTORY_BYTES:
        raise ArchiveError(f"has more than {MAX_FILES:,} files")


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    for entry in entries:
        if not _has_safe_name(entry):
            raise ArchiveError(f"has a file whose name leads out of its folder ({one_line(entry.orig_filename)})")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ArchiveError(f"has a link or a device in it ({one_line(entry.filename)})")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"has a file that cannot be unpacked ({one_line(entry.filename)})")
    if len(entries) > MAX_FILES:
        raise ArchiveError(f"has more than {MAX_FILES:,} files")
    if sum(entry.file_size for entry in entries) > MAX_BYTES:
        raise ArchiveError(f"has more than {MAX_BYTES:,} bytes when it is unpacked")


def _has_safe_name(entry: zipfile.ZipInfo) -> bool:
    name = entry.orig_filename
    return entry.filename == name and "\\" not in name and not {"", ".", ".."} & {*name.split("/")}
