"""Errors of a backup, and how they write names, owners and amounts."""

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
"""Errors at the target that concern one file. Other files can still be saved."""


class BackupError(Exception):
    """The folders cannot be saved. The message is one sentence."""


class UnsavableError(BackupError):
    """One file or folder cannot be saved."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{shown(path)} {why}")
        self.why = why


def shown(path: str, most: int = 300) -> str:
    """A name, which may contain anything, on one printable line."""
    quoted = json.dumps(path)
    return quoted if len(quoted) <= most else f'{quoted[: most - 4]}..."'


def owner(uid: int) -> str:
    """A user's name. If there is none, or it has unusual characters, the uid."""
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
    """Turn an OSError into a BackupError with the whole path: an OSError has only its last part, or none."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        if what == READ or error.errno in ABOUT_ONE:
            raise UnsavableError(path, f"could not be {what}: {why}") from None
        raise BackupError(f"{shown(path)} could not be {what}: {why}") from None
