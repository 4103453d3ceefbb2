"""The folder at the target, and the folders above it: root alone may change them."""

from __future__ import annotations

import contextlib
import os
import stat

from .wording import BackupError, shown


def target_folder(to: str, instance: str) -> str:
    """Make the instance's own folder at the target, which root alone may enter. Raises BackupError if something else is there."""
    parent = os.path.dirname(to)
    if not os.path.isdir(parent):
        raise BackupError(f"{parent} does not exist: is the file system mounted?")
    check_above(to)
    if os.stat(parent).st_dev == os.stat("/").st_dev:
        raise BackupError(
            f"{parent} is on the node's own disk, which is deleted with the node: is the file system mounted?"
        )
    folder = f"{to}/{instance}"
    for path in (to, folder):
        # Users may write on a shared file system. A link of theirs may lead anywhere.
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise BackupError(f"{path} is not a folder that root alone may write; remove it, or choose another target")
    return folder


def check_above(path: str) -> None:
    """Raise BackupError if a folder above it is a link, or if others than root may write there and so swap what is in it."""
    for folder in parents(path):
        found = os.lstat(folder)
        loose = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or loose:
            raise BackupError(
                f"{folder} is not a folder that root alone may change, so {path} may be swapped; choose another folder"
            )


def parents(path: str) -> list[str]:
    """The folders above it, but for /."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]


def check_path(path: str) -> None:
    """Raise BackupError if it is not a folder, or is reached by a link: the link would be saved, and not its target."""
    real = os.path.realpath(path)
    if real != os.path.normpath(path):
        raise BackupError(f"{path} leads by a link to {shown(real)}; name that folder instead")
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise BackupError(f"{path} is not a folder")
