"""Opens files that a cluster file names: regular ones only."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def opened_regular(path: Path) -> io.BufferedReader:
    """A regular file. A device never ends, and a pipe waits for a writer: both are an OSError."""
    # A pipe would wait in open() already.
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is neither a file nor a folder")
    return file
