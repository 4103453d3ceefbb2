"""Why something is not saved, and how names, owners and amounts are written in what is said of it."""

from __future__ import annotations

import contextlib
import errno
import json
import pwd
import re
from collections.abc import Iterator

READ = "read on the node"
WRITTEN = "written at the target"
READ_AGAIN = "read again at the target"
ABOUT_ONE = frozenset([errno.EFBIG, errno.ENAMETOOLONG, errno.EILSEQ])
"""Errors of the target that are about one file: others can be saved all the same."""


class BackupError(Exception):
    """Why the folders cannot be saved: one sentence."""


class UnsavableError(BackupError):
    """Why one file or folder cannot be saved."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{shown(path)} {why}")
        self.why = why


def shown(path: str, most: int = 300) -> str:
    """A name on one printable line: it may hold anything."""
    quoted = json.dumps(path)
    return quoted if len(quoted) <= most else f'{quoted[: most - 4]}..."'


def owner(uid: int) -> str:
    """A user's name, or the number where there is none that could be shown."""
    with contextlib.suppress(KeyError, OSError):
        name = pwd.getpwuid(uid).pw_name
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", name):
            return name
    return f"uid {uid}"


def amount(size: float) -> str:
    """Bytes, for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def several(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def told(path: str, what: str) -> Iterator[None]:
    """Raise BackupError where a file system fails, with all of the path: an OSError has its last part, or nothing of it."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        if what == READ or error.errno in ABOUT_ONE:
            raise UnsavableError(path, f"could not be {what}: {why}") from None
        raise BackupError(f"{shown(path)} could not be {what}: {why}") from None
