"""How much there is to save, and whether there are room and time enough."""

from __future__ import annotations

import contextlib
import heapq
import os
import shutil
import stat

from .walk import Folder, Visitor, allocated, descend, open_in
from .wording import BackupError, amount, owner, several, shown

MOST_BYTES_S = 500e6
"""More than any node saves in a second: one process reads, hashes, writes, reads again and hashes again each byte."""
MOST_FILES_S = 10_000
"""The same in files, however small."""


class Survey(Visitor):
    """How much there is to save, and how much of it an earlier try has copied."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.files = self.bytes = self.missing_files = self.missing_bytes = 0
        self.largest: list[tuple[int, str, int]] = []
        self.by_uid: dict[int, tuple[int, int]] = {}
        """Uid -> bytes, files."""
        self._linked: set[tuple[int, int]] = set()

    def enter(self, folder: Folder) -> None:
        with contextlib.suppress(OSError):
            if folder.parent is None:
                folder.copy = descend(self.target, ["files", *folder.path.split("/")], open_in)
            elif folder.parent.copy >= 0:
                folder.copy = open_in(folder.parent.copy, os.path.basename(folder.path))

    def entry(self, folder: Folder, name: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            return
        self.files += 1
        if found.st_nlink > 1:
            if (found.st_dev, found.st_ino) in self._linked:
                return
            self._linked.add((found.st_dev, found.st_ino))
        size = allocated(found)
        self.bytes += size
        of_owner = self.by_uid.get(found.st_uid, (0, 0))
        self.by_uid[found.st_uid] = (of_owner[0] + size, of_owner[1] + 1)
        if len(self.largest) < 3 or size > self.largest[0][0]:
            put = heapq.heappush if len(self.largest) < 3 else heapq.heapreplace
            put(self.largest, (size, f"{folder.path}/{name}", found.st_uid))
        there = self._there(folder, name)
        self.missing_files += there is None
        self.missing_bytes += max(0, size - (there or 0))

    @staticmethod
    def _there(folder: Folder, name: str) -> int | None:
        if folder.copy < 0:
            return None
        try:
            return allocated(os.lstat(name, dir_fd=folder.copy))
        except OSError:
            return None

    def most(self) -> str:
        """The users and files with most of it, for messages."""
        files = [
            f"{shown(path, 100)} of {owner(uid)} ({amount(size)})" for size, path, uid in sorted(self.largest)[::-1]
        ]
        users = heapq.nlargest(3, self.by_uid.items(), key=lambda each: each[1])
        owners = [f"{owner(uid)} {amount(size)} in {several(count, 'file')}" for uid, (size, count) in users]
        return f"most is of {', '.join(owners)}; the largest: {', '.join(files)}" if files else "there are no files"


def check_room(folder: str, survey: Survey) -> None:
    """Raise BackupError if the target has no room for what is still to be copied."""
    free = shutil.disk_usage(folder).free
    missing = survey.missing_bytes
    if missing > free:
        wanted = f"{missing / 1e9:.2f} GB are to be saved; {survey.most()}"
        raise BackupError(f"{folder} has room for {free / 1e9:.2f} GB, and {wanted}")


def check_time(survey: Survey, seconds: float) -> None:
    """Raise BackupError if the copy cannot end in time, however fast the disks are."""
    least = survey.missing_bytes / MOST_BYTES_S + survey.missing_files / MOST_FILES_S
    if least > seconds:
        what = f"{amount(survey.missing_bytes)} in {several(survey.missing_files, 'file')} are to be saved"
        raise BackupError(
            f"{what}, which takes {least / 60:.0f} minutes at the very least, and there are {seconds / 60:.0f}; drain "
            f"the node beforehand, with `cdk-hyperpod drain --hold 12h`; {survey.most()}"
        )
